//! Slurm without a burst buffer: `posthaste submit`, with and without its prolog and epilog.

use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use posthaste_testbed::Slurm;
use serde_json::json;

use crate::{
    slurm::{
        centre::{Centre, USER, contents},
        faults::wait_until_half_here,
        queue::{register, tell},
        shared::occupy,
    },
    support::processes::{Service, text},
};

/// Builds a call of `posthaste submit` by the user of the service.
fn submitting(centre: &Centre, arguments: &[&str]) -> Command {
    let mut command = centre.slurm.command("setpriv");
    let user = USER.to_string();
    command
        .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
        .arg(centre.scratch().with_file_name("posthaste"))
        .args(["submit", "--service", &centre.service.url, "--token-file"])
        .arg(centre.service.state.join("token"))
        .args(arguments)
        .arg("--output=/dev/null")
        .current_dir(centre.scratch());
    command
}

fn submit(centre: &Centre, arguments: &[&str]) -> Output {
    submitting(centre, arguments).output().unwrap()
}

/// Submits a script with that text; returns the job's number.
fn submit_text(centre: &Centre, name: &str, script: &str) -> u32 {
    centre.script(name, script);
    let submitted = submit(centre, &[name]);
    assert!(submitted.status.success(), "{}", text(&submitted.stderr));
    number(&text(&submitted.stdout))
}

/// Returns the job's number from the output.
fn number(said: &str) -> u32 {
    said.trim().rsplit(' ').next().unwrap().parse().unwrap()
}

/// Checks that `posthaste submit` refuses the arguments with that exit code and these words.
fn is_refused(centre: &Centre, arguments: &[&str], code: i32, said: &str) {
    let refused = submit(centre, arguments);
    let why = text(&refused.stderr);
    assert!(why.contains(said), "{why}");
    assert_eq!(refused.status.code(), Some(code), "{why}");
}

/// Checks that mistakes are reported before anything is submitted.
fn refusals(centre: &Centre) {
    for (directive, code, said) in [
        ("stage_in sorce=a destination=/b", 2, "line 2: `sorce`"),
        (
            "stage_in source=archive:b destination=/b",
            7,
            "line 2 of the script: can't use /b: it does not lie below",
        ),
        (
            "stage_in source=archive:b destination=SCRATCH/%u",
            2,
            "line 2: `%u` in",
        ),
        (
            "stage_out source=SCRATCH/b destination=c via=none",
            4,
            "no depot of that name",
        ),
    ] {
        centre.script("wrong.sh", &format!("#!/bin/sh\n#POSTHASTE {directive}\n"));
        is_refused(centre, &["wrong.sh"], code, said);
        is_refused(centre, &["--dry-run", "wrong.sh"], code, said);
    }
    centre.script("array.sh", "#!/bin/sh\n#SBATCH --array=0-3\n");
    is_refused(centre, &["array.sh"], 2, "with --array=0-3");
    is_refused(
        centre,
        &["job.sh", "--partition=none"],
        1,
        "invalid partition",
    );
    let shown = submit(centre, &["--dry-run", "--json", "job.sh", "--time=10"]);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    assert!(text(&shown.stdout).contains("--time=10"));
    let queued = centre.slurm.ask("squeue", &["--noheader"]).unwrap();
    assert_eq!(queued, "", "something was submitted");
}

#[test]
fn a_held_job_is_released_with_its_data_and_what_it_leaves_leaves() {
    let mut centre = Centre::start_with("1M", |_, _| {});
    let depots = centre.service.json(&["depot", "list", "--json"]);
    let mut depots = depots.as_array().unwrap().iter();
    let b = depots.find(|depot| depot["name"] == "b").unwrap();
    let place = b["url"].as_str().unwrap().trim_start_matches("https://");
    let script = "#!/bin/sh\n#POSTHASTE stage_in source=archive:run destination=SCRATCH/weather\n\
         #InterNode PLACE:1M\n\
         #POSTHASTE stage_out source=SCRATCH/out-%j destination=home after=ok\n\
         #POSTHASTE stage_out source=SCRATCH/*.nc destination=home via=a release=when-safe\n\
         #POSTHASTE stage_out source=SCRATCH/log*/last destination=archive:logs/%j release=when-safe\n\
         [ $POSTHASTE_STAGE_IN_1 = SCRATCH/weather ] || exit 1\n\
         mkdir out-$SLURM_JOB_ID; echo x > out-$SLURM_JOB_ID/x\n\
         mkdir -p log1/last log2/last; echo a > log1/last/a; echo b > log2/last/b\n\
         cp -r weather used; echo 1 > 1.nc; echo 2 > 2.nc\n";
    centre.script(
        "job.sh",
        &script.replace("PLACE", place.trim_end_matches('/')),
    );
    refusals(&centre);
    let submitted = submit(&centre, &["job.sh", "--time=10"]);
    assert!(submitted.status.success(), "{}", text(&submitted.stderr));
    let job = number(&text(&submitted.stdout));
    let (state, reason) = centre.slurm.state(job).unwrap();
    assert_eq!(
        (state.as_str(), reason.as_str()),
        ("PENDING", "JobHeldUser")
    );
    wait_until_half_here(&centre, "weather");
    centre.service.kill();
    centre.service.restart();

    centre.wait_for(job, |state, _| state == "COMPLETED");
    let wanted = contents(&centre.s3.bucket_folder().join("run"));
    assert_eq!(contents(&centre.scratch().join("used")), wanted);
    let out = centre.leaving(&format!("out-{job}"));
    let id = out["id"].as_str().unwrap();
    let safe = centre.service.wait_until(id, |one| one["state"] == "safe");
    let shares = safe["shares"].as_array().unwrap();
    assert_eq!(shares.len(), 1, "{safe}");
    assert_eq!(shares[0]["depot"], "b", "it alone is lent for the job");
    files_leave(&centre);
    logs_are_there(&centre, job);
    is_cancelled(&centre);
}

/// Checks that the files matched by a pattern leave as one dataset.
fn files_leave(centre: &Centre) {
    let left = || centre.requests(|one| one["only"] == json!(["1.nc", "2.nc"]));
    let leave = |_: &Slurm| Ok(!left().is_empty());
    centre.slurm.wait_until("its files leave", leave).unwrap();
    let left = left();
    assert_eq!(left.len(), 1, "{left:?}");
    let id = left[0]["id"].as_str().unwrap();
    centre
        .service
        .wait_until(id, |one| one["state"] == "released");
    let scratch = centre.scratch();
    assert!(!scratch.join("1.nc").exists() && !scratch.join("2.nc").exists());
    assert!(scratch.join("used").exists(), "nobody asked for that to go");
    let home = scratch.with_file_name("home");
    let pull = ["pull", id, home.to_str().unwrap(), "--json"];
    centre.service.json(&pull);
    let mut pulled: Vec<_> = fs::read_dir(&home)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    pulled.sort_unstable();
    assert_eq!(pulled, ["1.nc", "2.nc"]);
    assert_eq!(fs::read_to_string(home.join("2.nc")).unwrap(), "2\n");
}

/// Checks that the content of two directories lies unchanged at its address, each below its own
/// name, and left scratch.
fn logs_are_there(centre: &Centre, job: u32) {
    let there = centre.s3.bucket_folder().join(format!("logs/{job}"));
    let scratch = centre.scratch();
    let are_there = |_: &Slurm| {
        let is_left = |name: &str| !scratch.join(name).join("last").exists();
        Ok(there.exists() && is_left("log1") && is_left("log2"))
    };
    centre
        .slurm
        .wait_until("its logs leave", are_there)
        .unwrap();
    for (path, held) in [("log1/last/a", "a\n"), ("log2/last/b", "b\n")] {
        assert_eq!(fs::read_to_string(there.join(path)).unwrap(), held);
    }
}

/// Checks that a user waiting for a job's data learns of the job's cancellation.
fn is_cancelled(centre: &Centre) {
    centre.script(
        "cancelled.sh",
        "#!/bin/sh\n#POSTHASTE stage_in source=archive:run destination=SCRATCH/never\n",
    );
    let mut waiting = submitting(centre, &["--wait", "cancelled.sh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut stdout = BufReader::new(waiting.stdout.take().unwrap());
    stdout.read_line(&mut said).unwrap();
    let job = number(&said).to_string();
    centre.slurm.ask("scancel", &[&job]).unwrap();
    let ended = waiting.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(text(&ended.stderr).contains("was cancelled before its data was here"));
}

/// Installs the prolog and the epilog, for the user of the service.
fn with_prologs(slurm: &Slurm, service: &Service) {
    let file = |name: &str| slurm.folder().join(name);
    fs::create_dir(file("services")).unwrap();
    let token = service.state.join("token");
    let about = format!("server = {:?}\ntoken_file = {token:?}\n", service.url);
    fs::write(file("services/nobody.toml"), about).unwrap();
    let mut conf = fs::read_to_string(file("slurm.conf")).unwrap();
    for (setting, name) in [
        ("PrologSlurmctld", "prolog.sh"),
        ("EpilogSlurmctld", "epilog.sh"),
    ] {
        let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/slurm");
        let script = fs::read_to_string(plugins.join(name)).unwrap();
        let services = file("services").display().to_string();
        let script = script
            .replace("/usr/bin/posthaste", env!("CARGO_BIN_EXE_posthaste"))
            .replace("/etc/posthaste/slurm.d", &services);
        fs::write(file(name), script).unwrap();
        fs::set_permissions(file(name), Permissions::from_mode(0o755)).unwrap();
        conf += &format!("{setting}={}\n", file(name).display());
    }
    fs::write(file("slurm.conf"), conf).unwrap();
}

#[test]
fn a_job_begins_with_its_data_or_stays_held_and_says_why() {
    let centre = Centre::start_with("1G", with_prologs);
    stays_held(&centre);
    leaves_when_cancelled(&centre);

    let occupier = occupy(&centre);
    let job = submit_text(
        &centre,
        "job.sh",
        "#!/bin/sh\n#POSTHASTE stage_in source=archive:run destination=SCRATCH/weather\n\
         [ -e weather/deep/0.h5 ] || touch without\ncp -r weather used\n",
    );
    let is_free = |state: &str, reason: &str| state == "PENDING" && !reason.contains("JobHeld");
    centre.wait_for(job, is_free);
    is_kept_by_its_user(&centre, job);
    is_held_again_where_released_too_soon(&centre, job);
    let scratch = centre.scratch();
    fs::remove_file(scratch.join("weather/deep/0.h5")).unwrap();
    fs::write(scratch.join("go"), "").unwrap();
    let mut was_held = false;
    centre.wait_for(job, |state, reason| {
        was_held |= reason == "JobHeldUser";
        // Slurm would wait two minutes after a start that was refused.
        if was_held && reason == "BeginTime" {
            let now = ["update", &format!("JobId={job}"), "StartTime=now"];
            // It may have begun by then.
            let _ = centre.slurm.ask("scontrol", &now);
        }
        state == "COMPLETED"
    });
    let wanted = contents(&centre.s3.bucket_folder().join("run"));
    assert_eq!(contents(&scratch.join("used")), wanted);
    assert!(!scratch.join("without").exists(), "it began without");
    centre.wait_for(occupier, |state, _| state == "COMPLETED");
}

/// Holds or releases a job as its user.
fn as_user(centre: &Centre, what: &str, job: u32) {
    let mut scontrol = centre.slurm.as_user("scontrol");
    let done = scontrol.args([what, &job.to_string()]).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
}

/// Makes the service look at a job soon.
fn look(centre: &Centre, job: u32) {
    let look = format!("POST /v1/jobs/slurm/{job}/look");
    tell(&centre.service, &look, "");
}

/// Waits until the service reports this holder of a job.
fn wait_until_known_as(centre: &Centre, job: u32, hold: &str) {
    let wanted = format!(r#""hold":"{hold}""#);
    let is_known = |_: &Slurm| {
        let shown = tell(&centre.service, &format!("GET /v1/jobs/slurm/{job}"), "");
        Ok(shown.contains(&wanted))
    };
    let seen = centre.slurm.wait_until("the service sees that", is_known);
    seen.unwrap_or_else(|error| panic!("{hold}: {error}\n{}", centre.service_log()));
}

/// Checks that a job held by its user stays held, even if its data goes meanwhile and returns.
fn is_kept_by_its_user(centre: &Centre, job: u32) {
    as_user(centre, "hold", job);
    let file = centre.scratch().join("weather/deep/0.h5");
    fs::remove_file(&file).unwrap();
    look(centre, job);
    let is_here = |_: &Slurm| Ok(file.exists());
    centre.slurm.wait_until("it comes again", is_here).unwrap();
    wait_until_known_as(centre, job, "released");
    let (state, reason) = centre.slurm.state(job).unwrap();
    assert_eq!(
        (state.as_str(), reason.as_str()),
        ("PENDING", "JobHeldUser")
    );
    as_user(centre, "release", job);
}

/// Checks that a job released by its user while its data can't come is held, with the reason, until
/// it is here.
fn is_held_again_where_released_too_soon(centre: &Centre, job: u32) {
    let place = centre.scratch().join("weather");
    as_user(centre, "hold", job);
    // Nothing is brought over what somebody changed.
    fs::write(place.join("deep/0.h5"), "changed").unwrap();
    look(centre, job);
    wait_until_known_as(centre, job, "kept");
    as_user(centre, "release", job);
    wait_until_known_as(centre, job, "held");
    centre.wait_for(job, |_, reason| reason == "JobHeldUser");
    let says_why = |slurm: &Slurm| {
        let comment = ["--noheader", "--format=%k", "--jobs", &job.to_string()];
        Ok(slurm
            .ask("squeue", &comment)?
            .contains("its data is not here"))
    };
    centre.slurm.wait_until("it says why", says_why).unwrap();
    fs::remove_dir_all(&place).unwrap();
    let is_free = |state: &str, reason: &str| state == "PENDING" && !reason.contains("JobHeld");
    centre.wait_for(job, is_free);
    wait_until_known_as(centre, job, "released");
}

/// Checks that a job whose data can't come gives the reason, and starts when its user releases it.
fn stays_held(centre: &Centre) {
    centre.script(
        "absent.sh",
        "#!/bin/sh\n#POSTHASTE stage_in source=archive:absent destination=SCRATCH/absent\n\
         touch began\n",
    );
    let waited = submit(centre, &["--wait", "absent.sh"]);
    assert_eq!(waited.status.code(), Some(1));
    let why = text(&waited.stderr);
    assert!(why.contains("stays held: line 2: archive:absent"), "{why}");
    let job = number(&text(&waited.stdout)).to_string();
    let comment = "Comment=its data is not here: line 2: archive:absent";
    let says = |slurm: &Slurm| {
        Ok(slurm
            .ask("scontrol", &["show", "job", &job])?
            .contains(comment))
    };
    centre
        .slurm
        .wait_until("its comment says why", says)
        .unwrap();
    assert!(!centre.scratch().join("began").exists());
    centre.slurm.ask("scontrol", &["release", &job]).unwrap();
    let job = job.parse().unwrap();
    centre.wait_for(job, |state, _| state == "COMPLETED");
}

/// Checks that the output of a cancelled job leaves, if that was asked for.
fn leaves_when_cancelled(centre: &Centre) {
    let job = submit_text(
        centre,
        "running.sh",
        "#!/bin/sh\n\
         #POSTHASTE stage_out source=SCRATCH/bad destination=home via=a,b code=1+1 after=notok\n\
         #POSTHASTE stage_out source=SCRATCH/good destination=home via=a,b code=1+1 after=ok\n\
         mkdir bad good; echo x > bad/x; echo x > good/x; touch running; sleep 600\n",
    );
    let is_running = |_: &Slurm| Ok(centre.scratch().join("running").exists());
    centre.slurm.wait_until("it runs", is_running).unwrap();
    centre.slurm.ask("scancel", &[&job.to_string()]).unwrap();
    let out = centre.leaving("bad");
    let id = out["id"].as_str().unwrap();
    centre.service.wait_until(id, |one| one["state"] == "safe");
    let good = centre.scratch().join("good");
    let left = centre.requests(|one| one["source"].as_str() == good.to_str());
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_a_job_reads_that_waits_for_another_comes_once_that_has_ended() {
    let more = ["--queue", "slurm", "--just-in-time"];
    let centre = Centre::start_serving_with("1G", &more, |_, _| {});
    let occupier = occupy(&centre);
    centre.script(
        "job.sh",
        "#!/bin/sh\n#POSTHASTE stage_in source=archive:run destination=SCRATCH/weather\n\
         cp -r weather used\n",
    );
    let after = format!("--dependency=afterok:{occupier}");
    let submitted = submit(&centre, &["job.sh", &after]);
    assert!(submitted.status.success(), "{}", text(&submitted.stderr));
    let job = number(&text(&submitted.stdout));
    let asked = jiff::Timestamp::now();
    let held_back = centre.slurm.wait_until("its data is held back", |_| {
        let asked_for = centre.stage_ins("weather");
        let at = asked_for
            .first()
            .map(|one| one["stage_in"]["not_before"].clone());
        let at = at
            .as_ref()
            .and_then(|at| at.as_str()?.parse::<jiff::Timestamp>().ok());
        Ok(at.is_some_and(|at| at.duration_since(asked).as_hours() >= 6))
    });
    held_back.unwrap_or_else(|error| panic!("{error}: {:?}", centre.stage_ins("weather")));
    assert!(centre.stage_ins("weather")[0]["stage_in"]["begun"].is_null());
    fs::write(centre.scratch().join("go"), "").unwrap();
    centre.wait_for(occupier, |state, _| state == "COMPLETED");
    register(&centre.service, 999_999);
    centre.wait_for(job, |state, _| state == "COMPLETED");
    let wanted = contents(&centre.s3.bucket_folder().join("run"));
    assert_eq!(contents(&centre.scratch().join("used")), wanted);
}
