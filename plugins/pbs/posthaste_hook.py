"""Jobs of PBS wait for their data: a hook for queuejob, postqueuejob, runjob, jobobit and periodic.

A server's hooks never see the job script, only what qsub makes of its #PBS lines. So a job says what it needs in the
variable POSTHASTE, one directive after another, between semicolons:

    #PBS -v POSTHASTE="stage_in source=archive:run7 destination=/scratch/run7; stage_out source=/scratch/out destination=home"

Everything is decided by posthaste's service; this asks it, over HTTP, and answers PBS. pbs_server does nothing else while
a hook runs, so nothing here waits for data: a job whose data is not there yet is tried again a while later.
docs/operating/pbs.md says how it is set up.
"""

import json
import os
import pwd
import random
import re
import stat
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pbs

VARIABLE = "POSTHASTE"
SCHEDULER = "pbs"
# What stands for the number of a task in what its array says.
INDEX = "^array_index^"
# For one answer of the service. Twice this is far from PBS's alarm (30 s), after which a hook counts as failed.
ANSWER_WITHIN_S = 5
# For one check of directives, which asks nobody.
CHECK_WITHIN_S = 5
# What one periodic run may take: pbs_server does nothing else meanwhile.
PERIODIC_WITHIN_S = 10
# Longest answer read: the names of all jobs, 10,000 of them.
ANSWER_BYTES_MAX = 4 << 20
# Tasks of an array whose own data is asked for when it is queued: the first of them, the others when they are tried. Each
# is a question to the service, and one of the 10,000 jobs that it knows, of all users.
TASKS_MAX = 16
# What asking for them may take: no question is begun later, and each may take as long as an answer.
TASKS_WITHIN_S = 2
# PBS shows a message on one line.
MESSAGE_MAX = 512
# What a note of a job that ended says.
NOTE_KEYS = {"job", "uid", "gid", "script", "well"}

DEFAULTS = {
    "server": "http://127.0.0.1:7420",
    "token_file": "/etc/posthaste/token",
    "program": "/usr/bin/posthaste",
    # Jobs that ended while the service did not answer, one file each.
    "notes": "/var/spool/posthaste-pbs",
    "look_again_after_s": 30,
}


class Refused(Exception):
    """The service, or the program, says no; asking again will not help."""


class Unreachable(Exception):
    """No answer; asking again may help."""


# What this side knows


def read_config(path):
    """Reads the hook's configuration, a JSON object; what it leaves out is as in DEFAULTS."""
    if not path:
        return dict(DEFAULTS)
    try:
        with open(path, encoding="utf-8") as file:
            said = json.load(file)
        if not isinstance(said, dict):
            raise ValueError("it is no object")
    except (OSError, ValueError) as why:
        raise Refused("can't read the hook's configuration %s: %s" % (path, why)) from why
    unknown = sorted(set(said) - set(DEFAULTS))
    if unknown:
        known = ", ".join(sorted(DEFAULTS))
        raise Refused("%s: `%s` is no setting (write one of %s)" % (path, unknown[0], known))
    return {**DEFAULTS, **said}


def read_token(path):
    """The service's token, from a file that nobody but its owner can read."""
    try:
        with open(path, encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_IMODE(mode) & 0o077:
                raise Unreachable("others can read the token %s (chmod 600 %s)" % (path, path))
            return file.read().strip()
    except (OSError, ValueError) as why:
        raise Unreachable("can't read the service's token %s: %s" % (path, why)) from why


def directives_of(job, index=None):
    """What the job says in POSTHASTE, as lines of a script; None where it says nothing. Of an array, what its task of that
    number says."""
    variables = job.Variable_List
    value = variables.get(VARIABLE) if variables else None
    if not value or not value.strip():
        return None
    # qsub escapes commas and quotes, and PBS leaves them so.
    value = re.sub(r"\\(.)", r"\1", value).strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    # A task of an array has its number in its paths, as in PBS's own staging.
    if index is None:
        index = getattr(job, "array_index", None)
    if index is not None:
        value = value.replace(INDEX, str(index))
    # Semicolons in quotes divide nothing; a quote that is not closed goes on to the end, for the check to say so.
    pieces = re.findall(r'''(?:"[^"]*"?|'[^']*'?|[^;\n"'])+''', value)
    lines = [piece.strip() for piece in pieces if piece.strip()]
    return "".join("#POSTHASTE %s\n" % line for line in lines) or None


def is_array(job_id):
    """Whether it is an array as a whole, and none of its tasks."""
    return "[]" in job_id


def array_of(job_id):
    """The array that a task belongs to, None for other jobs."""
    array = re.sub(r"\[\d+\]", "[]", job_id)
    return array if array != job_id else None


def indexes_of(job):
    """The numbers of an array's tasks, a range: of `1-9:2` they are odd."""
    said = re.match(r"(\d+)-(\d+)(?::(\d+))?", str(getattr(job, "array_indices_submitted", None)))
    if not said:
        return range(0)
    first, last, step = (int(number or 1) for number in said.groups())
    return range(first, last + 1, max(step, 1))


def is_before(array, task):
    """Whether an array has still to run a task, as far as it says: `1-4,7` are before it."""
    said = str(getattr(array, "array_indices_remaining", None))
    index = re.search(r"\[(\d+)\]", task)
    spans = [re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", span.strip()) for span in said.split(",")]
    if not index or not all(spans):
        return said != "-"
    index = int(index.group(1))
    of = [(int(first), int(last or first), int(step or 1)) for first, last, step in (span.groups() for span in spans)]
    return any(first <= index <= last and (index - first) % max(step, 1) == 0 for first, last, step in of)


def user_of(job):
    """Who owns the job: (user, group) by number."""
    name = getattr(job, "euser", None) or str(job.Job_Owner).split("@")[0]
    try:
        entry = pwd.getpwnam(str(name))
    except KeyError as why:
        raise Refused("nobody here is called %s" % name) from why
    return entry.pw_uid, entry.pw_gid


def shortened(text):
    """One line for PBS."""
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_MAX else line[: MESSAGE_MAX - 1] + "…"


# The program and the service


def check(program, script):
    """Refuses directives that make no sense, with the line, the word and what was meant."""
    try:
        checked = subprocess.run(
            [program, "check", "-", "--queued", "--json"],
            input=script.encode("utf-8"),
            capture_output=True,
            timeout=CHECK_WITHIN_S,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as why:
        raise Refused("can't check %s: %s" % (VARIABLE, why)) from why
    if checked.returncode != 0:
        said = checked.stderr.decode("utf-8", "replace").splitlines()
        said = [re.sub(r"^posthaste: (-: )?", "", line) for line in said]
        raise Refused("%s: %s" % (VARIABLE, "; ".join(said)))


class Service:
    """posthaste's service, asked over HTTP without any proxy."""

    def __init__(self, config):
        self.server = config["server"].rstrip("/")
        self.token = read_token(config["token_file"])
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(self, method, path, body=None):
        """One question; what the service answers, or None where it has nothing to say."""
        request = urllib.request.Request(
            self.server + path,
            data=None if body is None else json.dumps(body).encode("utf-8"),
            method=method,
            headers={"Authorization": "Bearer " + self.token, "Content-Type": "application/json"},
        )
        try:
            with self.opener.open(request, timeout=ANSWER_WITHIN_S) as answer:
                text = answer.read(ANSWER_BYTES_MAX)
                return json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            message = said_in(error)
            # Who runs PBS mends a wrong token (401); the job's owner can't.
            if error.code == 401 or (error.code >= 500 and error.code != 507):
                raise Unreachable(message) from error
            raise Refused(message) from error
        except (OSError, ValueError) as why:
            reason = getattr(why, "reason", why)
            raise Unreachable("can't ask the service %s: %s" % (self.server, reason)) from why

    def register(self, job_id, uid, gid, script):
        """Tells of a job; telling of it again changes nothing."""
        body = {"uid": uid, "gid": gid, "script": script}
        return self.ask("PUT", path_of(job_id), body)

    def stage_in(self, job):
        """Tells of a job and asks for what it reads; how far that is."""
        return self.stage_in_as(str(job.id), user_of(job), directives_of(job))

    def stage_in_as(self, job_id, user, script):
        """The same, of a job of that name that says this."""
        self.register(job_id, user[0], user[1], script)
        return self.ask("POST", path_of(job_id) + "/stage-in", {})

    def ended(self, note):
        """Tells that a job ended; what it leaves is asked for."""
        self.register(note["job"], note["uid"], note["gid"], note["script"])
        return self.ask("POST", path_of(note["job"]) + "/ended", {"well": note["well"]})


def said_in(error):
    """The line in an answer that is none of the good ones."""
    try:
        return str(json.loads(error.read(1 << 20))["detail"])
    except (OSError, ValueError, KeyError, TypeError):
        return "the service answered %s" % error.code


def path_of(job_id):
    return "/v1/jobs/%s/%s" % (SCHEDULER, urllib.parse.quote(job_id, safe=""))


# Notes of jobs that ended, kept until the service knows


def write_note(folder, note):
    """Writes it so that it is there whole or not at all."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    name = os.path.join(folder, urllib.parse.quote(note["job"], safe=""))
    draft = name + ".draft"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(note, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, name)
    return name


def notes_in(folder):
    """All notes that can be read, oldest first, each with its file. One that can't keeps no other back."""
    try:
        entries = [entry for entry in os.scandir(folder) if not entry.name.endswith(".draft")]
    except FileNotFoundError:
        return []
    found = []
    for entry in entries:
        try:
            written = entry.stat().st_mtime
            with open(entry.path, encoding="utf-8") as file:
                note = json.load(file)
            if not isinstance(note, dict) or not NOTE_KEYS <= set(note):
                raise ValueError("it is no note of a job")
        except (OSError, ValueError) as why:
            pbs.logmsg(pbs.LOG_WARNING, "posthaste: can't read %s: %s" % (entry.path, shortened(str(why))))
            continue
        found.append((written, entry.path, note))
    return [(name, note) for _, name, note in sorted(found, key=lambda one: one[:2])]


# The events


def on_queuejob(event, config):
    """Refuses a job whose directives make no sense."""
    script = directives_of(event.job)
    if script:
        check(config["program"], script)


def on_postqueuejob(event, config):
    """Asks for the data at once, so that it may be there when nodes are."""
    job = event.job
    if not directives_of(job):
        return
    try:
        service = Service(config)
        if is_array(str(job.id)):
            stage_in_array(service, job)
        else:
            service.stage_in(job)
    except (Refused, Unreachable) as why:
        # runjob asks again, and says what is the matter.
        pbs.logjobmsg(str(job.id), "posthaste: %s" % shortened(str(why)))


def stage_in_array(service, job):
    """Asks for what an array reads. Its tasks are jobs of their own, which come into being when they run: data that all of
    them read is asked for in the array's name, and what is another's for each in the names that they will have."""
    array, user = str(job.id), user_of(job)
    reads = [line for line in directives_of(job).splitlines() if line.startswith("#POSTHASTE stage_in")]
    if not any(INDEX in line for line in reads):
        if reads:
            service.stage_in_as(array, user, "".join(line + "\n" for line in reads))
        return
    until = time.monotonic() + TASKS_WITHIN_S
    for index in indexes_of(job)[:TASKS_MAX]:
        if time.monotonic() > until:
            return
        service.stage_in_as(array.replace("[]", "[%d]" % index), user, directives_of(job, index))


def on_runjob(event, config):
    """Lets a job run only when all its data is there."""
    job = event.job
    if not directives_of(job):
        return
    try:
        service = Service(config)
        told = service.stage_in(job)
        if told.get("trouble") and not told["ready"]:
            # When it is tried again, all is asked for anew.
            service.ask("DELETE", path_of(str(job.id)))
    except Unreachable:
        look_again(job, config)
        raise
    except Refused:
        hold(job)
        raise
    if told["ready"]:
        return
    if told.get("trouble"):
        hold(job)
        raise Refused("%s (qrls %s tries again)" % (told["trouble"], job.id))
    look_again(job, config)
    waits = [one for one in told["stage_ins"] if one["state"] != "arrived"]
    what = ", ".join("%s is %s" % (one["destination"], one["state"]) for one in waits)
    raise Refused("data is on its way: %s" % what)


def look_again(job, config):
    """The scheduler tries the job again then, and others meanwhile."""
    job.Execution_Time = int(time.time()) + int(config["look_again_after_s"])


def hold(job):
    """It stays held until its owner releases it."""
    job.Hold_Types = pbs.hold_types("u")


def on_jobobit(event, config):
    """Lets what the job leaves go, unless PBS will run it again."""
    job = event.job
    script = directives_of(job)
    # What an array leaves was told of by its tasks.
    if not script or is_array(str(job.id)) or runs_again(job):
        return
    uid, gid = user_of(job)
    note = {
        "job": str(job.id),
        "uid": uid,
        "gid": gid,
        "script": script,
        "well": job.Exit_status == 0,
    }
    name = write_note(config["notes"], note)
    try:
        tell_of_end(Service(config), name, note)
    except Unreachable as why:
        pbs.logjobmsg(note["job"], "posthaste: told later that it ended: %s" % shortened(str(why)))


def runs_again(job):
    """Whether this end is none: the job goes back into the queue."""
    substates = ("JOB_SUBSTATE_RERUN", "JOB_SUBSTATE_RERUN1", "JOB_SUBSTATE_RERUN2", "JOB_SUBSTATE_RERUN3")
    return job.substate in [getattr(pbs, name) for name in substates if hasattr(pbs, name)]


def tell_of_end(service, name, note):
    """Tells it, and forgets the note once the service knows, or will never take it."""
    try:
        service.ended(note)
    except Refused as why:
        pbs.logjobmsg(note["job"], "posthaste: %s" % shortened(str(why)))
    os.remove(name)


def on_periodic(_event, config):
    """Tells what could not be told, and lets the service forget jobs that are over."""
    until = time.monotonic() + PERIODIC_WITHIN_S
    service = Service(config)
    away = None
    for name, note in notes_in(config["notes"]):
        if time.monotonic() > until:
            return
        try:
            tell_of_end(service, name, note)
        except Unreachable as why:
            # It may be this one that the service can't take now.
            away = why
    if away:
        raise away
    here = pbs.server()
    jobs = service.ask("GET", "/v1/jobs/names?scheduler=" + SCHEDULER)
    # Where time is short each has its turn in the end.
    random.shuffle(jobs)
    for told in jobs:
        if time.monotonic() > until:
            return
        if told["job"].endswith("." + str(here.name)) and is_over(service, here, told):
            service.ask("DELETE", path_of(told["job"]))


def is_over(service, here, told):
    """Whether nothing will ever be asked for the job again. The service forgets by itself what has not left in a week."""
    if told["phase"] == "ended":
        try:
            # What could not be asked for when it ended is asked for now; how it ended is known.
            job = service.ask("POST", path_of(told["job"]) + "/ended", {"well": True})
        except Refused as why:
            pbs.logjobmsg(told["job"], "posthaste: %s" % shortened(str(why)))
            return True
        return job["safe"] or bool(job["trouble"])
    job = here.job(told["job"])
    if job is None and array_of(told["job"]):
        # A task that has not been tried yet is no job; it comes as long as its array has it before it.
        job = here.job(array_of(told["job"]))
        if job is not None and not is_before(job, told["job"]):
            return True
    if job is None:
        return True
    over = ("JOB_STATE_FINISHED", "JOB_STATE_EXPIRED", "JOB_STATE_MOVED")
    return job.job_state in [getattr(pbs, name) for name in over if hasattr(pbs, name)]


EVENTS = {
    "QUEUEJOB": on_queuejob,
    "POSTQUEUEJOB": on_postqueuejob,
    "RUNJOB": on_runjob,
    "JOBOBIT": on_jobobit,
    "PERIODIC": on_periodic,
}


def main():
    event = pbs.event()
    name = next((name for name in EVENTS if getattr(pbs, name, None) == event.type), None)
    try:
        # A hook that has no business with a job must not stand in its way.
        if name and (name == "PERIODIC" or directives_of(event.job)):
            EVENTS[name](event, read_config(pbs.hook_config_filename))
    except (Refused, Unreachable) as why:
        event.reject("posthaste: " + shortened(str(why)))
    event.accept()


main()
