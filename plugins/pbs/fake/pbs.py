"""A stand-in for the module `pbs` that PBS gives its server's hooks: what its documentation names, as far as hooks of jobs
need it. See README.md."""

import os

QUEUEJOB = 0x01
MODIFYJOB = 0x02
RUNJOB = 0x10
PERIODIC = 0x8000
JOBOBIT = 0x800000
POSTQUEUEJOB = 0x8000000

LOG_DEBUG = LOG_WARNING = LOG_ERROR = 4

JOB_STATE_QUEUED = 1
JOB_STATE_HELD = 2
JOB_STATE_WAITING = 3
JOB_STATE_RUNNING = 4
JOB_STATE_EXITING = 5
JOB_STATE_MOVED = 8
JOB_STATE_FINISHED = 9
JOB_STATE_BEGUN = 7
JOB_SUBSTATE_EXITED = 53
JOB_SUBSTATE_RERUN3 = 63

# What stands for them in what is shown.
_STATES = {
    "Q": JOB_STATE_QUEUED,
    "H": JOB_STATE_HELD,
    "W": JOB_STATE_WAITING,
    "R": JOB_STATE_RUNNING,
    "B": JOB_STATE_BEGUN,
    "F": JOB_STATE_FINISHED,
}

# What a hook may change of a job that it rejects in runjob.
_REJECT_MAY_SET = ("Execution_Time", "Hold_Types", "project", "depend", "Variable_List", "Resource_List")
_ATTRIBUTES = (
    "id",
    "Job_Name",
    "Job_Owner",
    "euser",
    "Variable_List",
    "stagein",
    "stageout",
    "Execution_Time",
    "Hold_Types",
    "Exit_status",
    "job_state",
    "substate",
    "array_index",
    "array_indices_submitted",
    "array_indices_remaining",
    "project",
    "depend",
    "Resource_List",
    "comment",
)

_current = None
_log = None
hook_config_filename = None


class UnsetAttributeNameError(Exception):
    pass


class EventIncompatibleError(Exception):
    pass


class staging_list(str):
    """`local@host:remote[,…]`, a comma in a path with a backslash before it."""


class hold_types(str):
    """Some of the letters u, o, s, or n."""

    def __new__(cls, letters):
        if not letters or set(letters) - set("uosn"):
            raise ValueError("hold types are u, o, s and n")
        return super().__new__(cls, letters)


class _job:
    def __init__(self, values):
        object.__setattr__(self, "_set", {})
        for name in _ATTRIBUTES:
            object.__setattr__(self, name, values.get(name))

    def __setattr__(self, name, value):
        if name not in _ATTRIBUTES:
            raise UnsetAttributeNameError("job attribute '%s' not found" % name)
        object.__setattr__(self, name, value)
        self._set[name] = value


class _server:
    def __init__(self, name, jobs):
        self.name = name
        # A task of an array is no job before it was tried.
        self._jobs = {job_id: job for job_id, job in jobs.items() if job.get("tried", True)}

        for job_id in [job_id for job_id in self._jobs if "[]" in job_id]:
            before, after = job_id.split("[]")
            tasks = (job for other, job in jobs.items() if other.startswith(before + "[") and other.endswith(after))
            remaining = [str(job["array_index"]) for job in tasks if not job.get("tried", True)]
            self._jobs[job_id] = {**self._jobs[job_id], "array_indices_remaining": ",".join(remaining) or "-"}

    def job(self, job_id):
        values = self._jobs.get(job_id)
        return _job({**values, "job_state": _STATES[values["job_state"]]}) if values else None


class _event:
    def __init__(self, kind, job, server):
        self.type = kind
        self._job = job
        self._server = server
        self.requestor = job.Job_Owner.split("@")[0] if job else "pbs"
        self.said = None
        self.accepted = None

    @property
    def job(self):
        if self._job is None:
            raise EventIncompatibleError('"job" not found in self._param')
        return self._job

    def accept(self, ecode=0):
        self.accepted = True
        raise SystemExit(str(ecode))

    def reject(self, emsg="", ecode=255):
        self.accepted, self.said = False, emsg
        raise SystemExit(str(ecode))


def event():
    return _current


def server():
    return _current._server


def logmsg(_level, message):
    with open(_log, "a", encoding="utf-8") as file:
        file.write("%s\n" % message)


def logjobmsg(job_id, message):
    logmsg(LOG_DEBUG, "%s;%s" % (job_id, message))


def _begin(kind, job, here, config, log):
    """Of the stand-in: what the next hook finds."""
    global _current, _log, hook_config_filename
    _current, _log, hook_config_filename = _event(kind, job, here), log, config
    if config:
        os.environ["PBS_HOOK_CONFIG_FILE"] = config
    return _current
