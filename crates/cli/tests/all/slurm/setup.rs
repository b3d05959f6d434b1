//! Slurm set up by `posthaste slurm install`, and the doctor's report of it.

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Output,
};

use posthaste_testbed::Slurm;
use serde_json::Value;

use crate::{
    slurm::centre::{Centre, contents, polling},
    support::processes::{Service, binary, text},
};

fn ask(slurm: &Slurm, what: &str, more: &[&str]) -> Output {
    let mut command = binary();
    command.args(["slurm", what]).args(more);
    command
        .arg("--slurm-conf")
        .arg(slurm.folder().join("slurm.conf"));
    command.output().unwrap()
}

fn install(slurm: &Slurm, service: &Service, more: &[&str]) -> Output {
    let token = service.state.join("token");
    let first = [
        "--server",
        &service.url,
        "--token-file",
        token.to_str().unwrap(),
    ];
    ask(slurm, "install", &[&first, more].concat())
}

/// Returns the files beside slurm.conf, with their content.
fn beside(slurm: &Slurm) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(slurm.folder()).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Installs in all ways, and leaves a Slurm that is set up.
fn set_up(slurm: &Slurm, service: &Service) {
    let script = slurm.folder().join("burst_buffer.lua");
    fs::write(&script, "-- somebody else's\n").unwrap();
    let settings = slurm.folder().join("burst_buffer.conf");
    // Where it is not known, the file is made as on a fresh site.
    let polling = polling(slurm);
    if !polling.is_empty() {
        fs::write(settings, polling).unwrap();
    }
    let before = beside(slurm);
    let refused = install(slurm, service, &["--job-submit"]);
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("it is not posthaste's"));
    let shown = install(slurm, service, &["--job-submit", "--force", "--dry-run"]);
    assert!(text(&shown.stdout).contains("+ BurstBufferType=burst_buffer/lua"));
    assert!(beside(slurm) == before, "something was changed by a look");

    let done = install(slurm, service, &["--job-submit", "--force"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let copy = fs::read_to_string(slurm.folder().join("burst_buffer.lua.before-posthaste-1"));
    assert_eq!(copy.unwrap(), "-- somebody else's\n");
    let token = fs::metadata(slurm.folder().join("posthaste.token")).unwrap();
    assert_eq!(token.permissions().mode() & 0o7777, 0o600);
    let secret = fs::read_to_string(service.state.join("token")).unwrap();
    assert!(!text(&done.stdout).contains(secret.trim()));

    let before = beside(slurm);
    let again = install(slurm, service, &["--job-submit"]);
    assert_eq!(text(&again.stdout), "nothing is to be changed\n");
    assert!(beside(slurm) == before);
}

#[test]
fn what_install_sets_up_works_and_the_doctor_names_what_is_broken() {
    let mut centre = Centre::start_with("1G", set_up);
    let wanted = contents(&centre.s3.bucket_folder().join("run"));
    let scratch = centre.scratch();

    let script = centre.script(
        "job.sh",
        "#!/bin/sh\n#POSTHASTE stage_in source=archive:run destination=SCRATCH/weather\ncp -r weather used\n",
    );
    let job = centre.slurm.submit(&script).unwrap();
    centre.wait_for(job, |state, _| state == "COMPLETED");
    assert_eq!(contents(&scratch.join("used")), wanted);
    asked_by_comment(&centre);
    asked_in_other_words(&centre);
    waits_for_room_that_is_not_there(&centre);
    is_well(&centre);
    breaks(&centre);

    centre.service.kill();
    assert!(bad(&centre).contains("service"));
    centre.service.restart();
    centre.slurm.stop_controller().unwrap();
    assert!(bad(&centre).contains("slurmctld"));
}

/// Checks that lines in others' words do what ours do, also if one has a symbol of Slurm.
fn asked_in_other_words(centre: &Centre) {
    let script = centre.script(
        "others.sh",
        "#!/bin/sh\n#DW jobdw capacity=1MiB\n#DW stage_in type=directory source=archive:run destination=SCRATCH/dw-%j\n\
         #Stageout SCRATCH/out-%j home\n#Deadline 12/31/2099:12:00\n\
         cp -r dw-$SLURM_JOB_ID used-by-dw; mkdir out-$SLURM_JOB_ID; echo x > out-$SLURM_JOB_ID/x\n",
    );
    let job = centre.slurm.submit(&script).unwrap();
    centre.wait_for(job, |state, _| state == "COMPLETED");
    assert_eq!(
        contents(&centre.scratch().join("used-by-dw")),
        contents(&centre.s3.bucket_folder().join("run"))
    );
    let leaving = centre.leaving(&format!("out-{job}"));
    assert_eq!(leaving["state"], "safe");
    assert!(
        leaving["deadline"]
            .as_str()
            .unwrap()
            .starts_with("2099-12-31"),
        "{leaving}"
    );
}

/// Checks that the pool is as large as the free space on scratch, and that a job that wants more of
/// it waits.
fn waits_for_room_that_is_not_there(centre: &Centre) {
    let free = rustix::fs::statvfs(centre.scratch()).unwrap();
    let free_mib = (free.f_bavail * free.f_frsize) >> 20;
    let asking = |capacity: &str| {
        let text = format!("#!/bin/sh\n#POSTHASTE pool=scratch capacity={capacity}\ntrue\n");
        let script = centre.script("room.sh", &text);
        centre.slurm.submit(&script)
    };
    let little = asking("1MiB").unwrap();
    centre.wait_for(little, |state, _| state == "COMPLETED");
    let much = asking(&format!("{}MiB", 4 * free_mib)).unwrap();
    centre.wait_for(much, |state, reason| {
        assert_eq!(state, "PENDING", "{reason}");
        reason == "BurstBufferResources"
    });
    let much = much.to_string();
    centre.slurm.ask("scancel", &[&much]).unwrap();
}

/// Checks that a comment does what lines of the script do.
fn asked_by_comment(centre: &Centre) {
    let scratch = centre.scratch();
    let plain = centre.script(
        "plain.sh",
        "#!/bin/sh\ncp -r mesh used-by-comment; mkdir result; echo x > result/x\n",
    );
    let place = scratch.to_str().unwrap();
    let comment = format!(
        "--comment=project 7; posthaste:stage_in source=archive:run destination={place}/mesh; \
         stage_out source={place}/result destination=home via=a,b code=1+1"
    );
    let job = centre.slurm.submit_with(&plain, &[&comment]).unwrap();
    centre.wait_for(job, |state, _| state == "COMPLETED");
    assert_eq!(
        contents(&scratch.join("used-by-comment")),
        contents(&centre.s3.bucket_folder().join("run"))
    );
    assert_eq!(centre.leaving("result")["state"], "safe");

    for (wrong, said) in [
        ("posthaste:stagein source=a destination=/b", "stage_in"),
        (
            "posthaste:stage_in source=a destination=b",
            "part 1 of the comment: b is no absolute path",
        ),
    ] {
        let refused = centre.slurm.submit_with(&plain, &["--comment", wrong]);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
    let other = centre
        .slurm
        .submit_with(&plain, &["--comment=see posthaste"])
        .unwrap();
    centre.wait_for(other, |state, _| state == "COMPLETED" || state == "FAILED");
}

/// Returns the checks that the doctor calls bad.
fn bad(centre: &Centre) -> BTreeSet<String> {
    let said = ask(&centre.slurm, "doctor", &["--json"]);
    let all: Value = serde_json::from_slice(&said.stdout).unwrap();
    let checks = all["checks"].as_array().unwrap().iter();
    let bad: BTreeSet<String> = checks
        .filter(|check| check["ok"] == false)
        .map(|check| check["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(said.status.success(), bad.is_empty());
    assert_eq!(all["ok"], bad.is_empty());
    bad
}

fn is_well(centre: &Centre) {
    let well = centre
        .slurm
        .wait_until("all is well", |_| Ok(bad(centre).is_empty()));
    let said = ask(&centre.slurm, "doctor", &[]);
    well.unwrap_or_else(|error| panic!("{error}\n{}", text(&said.stdout)));
}

/// Breaks one thing after the other; all is well again each time.
fn breaks(centre: &Centre) {
    let file = |name: &str| centre.slurm.folder().join(name);
    let broken = |path: &Path, text: &str, name: &str| {
        let before = fs::read(path).unwrap();
        fs::write(path, text).unwrap();
        let found = bad(centre);
        assert!(found.contains(name), "{name} is not among {found:?}");
        fs::write(path, before).unwrap();
    };
    let read = |name: &str| fs::read_to_string(file(name)).unwrap();
    let conf = read("slurm.conf");
    let without = |word: &str| conf.replace(word, "# ");
    for (text, name) in [
        (without("BurstBufferType="), "BurstBufferType"),
        (without("JobSubmitPlugins="), "JobSubmitPlugins"),
        (
            without("SlurmUser=root") + "SlurmUser=nobodyatall\n",
            "SlurmUser",
        ),
        (conf.clone() + "PluginDir=/nowhere\n", "plug-in"),
    ] {
        broken(&file("slurm.conf"), &text, name);
    }
    let script = read("burst_buffer.lua");
    let program = format!("{:?}", env!("CARGO_BIN_EXE_posthaste"));
    for (text, name) in [
        (script.clone() + "-- more\n", "script"),
        (
            script.replace(&program, "\"/nowhere/posthaste\""),
            "program",
        ),
        (
            script.replace("posthaste.toml", "absent.toml"),
            "hook configuration",
        ),
    ] {
        broken(&file("burst_buffer.lua"), &text, name);
    }
    broken(
        &file("burst_buffer.conf"),
        "StageInTimeout=86400\n",
        "Directive",
    );
    broken(
        &file("burst_buffer.conf"),
        "Directive=POSTHASTE\nFlags=TeardownFailure\nStageInTimeout=5\n",
        "StageInTimeout",
    );
    broken(&file("burst_buffer.conf"), "Directive=POSTHASTE\n", "Flags");
    broken(&file("posthaste.token"), "another\n", "service");
    broken(
        &file("posthaste.toml"),
        "server = \"http://127.0.0.1:1\"\n",
        "token",
    );
    fs::set_permissions(file("posthaste.token"), Permissions::from_mode(0o644)).unwrap();
    assert!(bad(centre).contains("token"));
    fs::set_permissions(file("posthaste.token"), Permissions::from_mode(0o600)).unwrap();
    // By its compiler, or by what the controller logs when it looks at the script again.
    fs::write(
        file("burst_buffer.lua"),
        script.clone() + "this is ( wrong\n",
    )
    .unwrap();
    let said = centre
        .slurm
        .wait_until("Lua complains", |_| Ok(bad(centre).contains("Lua")));
    said.unwrap();
    fs::write(file("burst_buffer.lua"), script).unwrap();
}
