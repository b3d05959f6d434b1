//! Failures, timeouts and cancellations.

use std::fs;

use serde_json::Value;

use crate::{
    slurm::{
        centre::{Centre, USER, contents},
        shared::occupy,
    },
    support::processes::{binary, text},
};

fn is_held(reason: &str) -> bool {
    reason.contains("burst_buffer/lua") || reason.contains("JobHeld")
}

/// Waits until some of a stage-in's data is here, and not all.
pub fn wait_until_half_here(centre: &Centre, to: &str) {
    let looked = centre.slurm.wait_until("some of it is here", |_| {
        let found = centre.stage_ins(to);
        let here = |one: &Value| one["chunks_safe"].as_u64() >= Some(1);
        Ok(found.first().is_some_and(here))
    });
    looked.unwrap_or_else(|error| panic!("{error}: {:?}", centre.stage_ins(to)));
}

#[test]
fn a_job_gets_its_data_once_whoever_dies_meanwhile() {
    let mut centre = Centre::start("1M", 600);
    let job = centre.slurm.submit(&centre.script(
        "job.sh",
        "#!/bin/sh\n#POSTHASTE stage_in source=archive:run destination=SCRATCH/weather\n\
         cp -r weather used\n",
    ));
    let job = job.unwrap();
    wait_until_half_here(&centre, "weather");
    centre.service.kill();
    centre.service.restart();
    centre.slurm.stop_controller().unwrap();
    centre.slurm.start_controller().unwrap();
    wait_until_half_here(&centre, "weather");
    centre.s3.kill();
    centre.s3.restart().unwrap();

    centre.wait_for(job, |state, _| state == "COMPLETED");
    let wanted = contents(&centre.s3.bucket_folder().join("run"));
    assert_eq!(contents(&centre.scratch().join("used")), wanted);
    let asked = centre.stage_ins("weather");
    assert_eq!(asked.len(), 1, "{asked:?}");
}

#[test]
fn a_stage_in_that_takes_too_long_holds_its_job_until_it_is_through() {
    let centre = Centre::start("1M", 5);
    let job = centre.slurm.submit(&centre.script(
        "job.sh",
        "#!/bin/sh\n#POSTHASTE stage_in source=archive:run destination=SCRATCH/weather\n\
         [ -e weather ] || touch without\ntouch ran\n",
    ));
    let job = job.unwrap();
    centre.wait_for(job, |state, reason| state == "PENDING" && is_held(reason));
    assert!(!centre.scratch().join("ran").exists());
    // What is on its way goes on, so that some release brings the job through.
    centre.wait_for(job, |state, reason| {
        if state == "PENDING" && is_held(reason) {
            // It may be held no longer by then.
            let release = ["release", &job.to_string()];
            let _ = centre.slurm.ask("scontrol", &release);
        }
        state == "COMPLETED"
    });
    let ran = |name: &str| centre.scratch().join(name).exists();
    assert!(ran("ran") && !ran("without"));
}

/// Returns the requests that leave scratch from below this folder.
fn leaves(centre: &Centre, folder: &str) -> Vec<Value> {
    let folder = centre.scratch().join(folder);
    centre.requests(|one| one["source"].as_str() == folder.to_str())
}

/// Returns whether a name on scratch begins so.
fn is_begun(centre: &Centre, name: &str) -> bool {
    let entries = fs::read_dir(centre.scratch()).unwrap();
    let mut names = entries.map(|entry| entry.unwrap().file_name());
    names.any(|found| found.to_string_lossy().starts_with(name))
}

/// Makes an input that takes far longer to arrive than its cancellation may take. It uses no space
/// itself.
fn make_vast(centre: &Centre) {
    let folder = centre.s3.bucket_folder().join("vast");
    fs::create_dir(&folder).unwrap();
    let hole = fs::File::create(folder.join("hole.h5")).unwrap();
    hole.set_len(1 << 30).unwrap();
}

/// Waits until a request was cancelled.
fn wait_until_given_up(centre: &Centre, id: &str) {
    let is_given_up =
        |_: &posthaste_testbed::Slurm| Ok(centre.service.status(id)["state"] == "cancelled");
    let looked = centre.slurm.wait_until("it is given up", is_given_up);
    looked.unwrap_or_else(|error| panic!("{error}\n{}", centre.service_log()));
}

#[test]
fn what_is_called_off_leaves_nothing_half_done() {
    let centre = Centre::start("1500K", 600);
    make_vast(&centre);
    let cancel = |job: u32, how: &[&str]| {
        let id = job.to_string();
        centre
            .slurm
            .ask("scancel", &[how, &[&id]].concat())
            .unwrap();
    };
    let submit = |name: &str, text: &str| {
        let script = centre.script(name, &format!("#!/bin/sh\n{text}"));
        centre.slurm.submit(&script)
    };
    let wrong = submit(
        "wrong.sh",
        "\n#POSTHASTE stage_in sorce=archive:run destination=/b\n",
    );
    let wrong = wrong.unwrap_err().to_string();
    for said in ["line 3", "sorce", "source"] {
        assert!(wrong.contains(said), "{wrong}");
    }

    // While it stages in.
    let text = "#POSTHASTE stage_in source=archive:vast destination=SCRATCH/weather\n\
                #POSTHASTE stage_out source=SCRATCH/never destination=home via=a,b\n\
                mkdir never\n";
    let staging = submit("staging.sh", text).unwrap();
    let begun = |_: &posthaste_testbed::Slurm| Ok(is_begun(&centre, ".weather"));
    centre.slurm.wait_until("it is on its way", begun).unwrap();
    cancel(staging, &[]);
    centre.wait_for(staging, |state, _| state == "CANCELLED");

    // While it runs: what leaves is what it asked for in that case.
    let text = "#POSTHASTE stage_out source=SCRATCH/bad destination=home via=a,b code=1+1 after=notok\n\
                #POSTHASTE stage_out source=SCRATCH/good destination=home via=a,b code=1+1 after=ok\n\
                mkdir bad good; echo x > bad/x; echo x > good/x; touch running; sleep 600\n";
    let running = submit("running.sh", text).unwrap();
    let is_running = |_: &posthaste_testbed::Slurm| Ok(centre.scratch().join("running").exists());
    centre.slurm.wait_until("it runs", is_running).unwrap();
    cancel(running, &[]);
    centre.wait_for(running, |state, _| state == "CANCELLED");
    let bad = centre.leaving("bad");
    let id = bad["id"].as_str().unwrap();
    centre.service.wait_until(id, |one| one["state"] == "safe");
    assert!(leaves(&centre, "good").is_empty());

    // While it stages out: what has begun to leave is not left behind.
    let text = "#POSTHASTE stage_out source=SCRATCH/out destination=home via=a,b code=1+1\n\
                mkdir out && head -c 8M /dev/urandom > out/x\n";
    let leaving = submit("leaving.sh", text).unwrap();
    centre.wait_for(leaving, |state, _| state == "STAGE_OUT");
    let out = centre.leaving("out");
    cancel(leaving, &["--hurry"]);
    centre.wait_for(leaving, |state, _| state != "STAGE_OUT");
    let id = out["id"].as_str().unwrap();
    centre.service.wait_until(id, |one| one["state"] == "safe");

    let given_up = centre.stage_ins("weather")[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    wait_until_given_up(&centre, &given_up);
    let gone = |_: &posthaste_testbed::Slurm| Ok(!is_begun(&centre, ".weather"));
    let what = "nothing of it is on scratch";
    centre.slurm.wait_until(what, gone).unwrap();
    assert!(!centre.scratch().join("weather").exists());
    assert!(leaves(&centre, "never").is_empty());
}

/// Slurm does not report a job that it should have torn down: this happens if it is busy during a
/// cancellation.
#[test]
fn a_job_that_was_called_off_is_seen_though_its_teardown_never_comes() {
    let centre = Centre::start("1500K", 600);
    make_vast(&centre);
    let occupier = occupy(&centre);
    // The plug-in is never asked about it; what it would have said first is said here.
    let plain = centre.script("plain.sh", "#!/bin/sh\ntrue\n");
    let job = centre.slurm.submit(&plain).unwrap();
    let told = centre.script(
        "told.sh",
        "#!/bin/sh\n#POSTHASTE stage_in source=archive:vast destination=SCRATCH/weather\n",
    );
    let (id, user, told) = (job.to_string(), USER.to_string(), told.to_str().unwrap());
    let hook = |call: &str, words: &[&str]| {
        let mut command = binary();
        command
            .args(["slurm", "hook", "--config"])
            .arg(centre.slurm.folder().join("posthaste.toml"))
            .args([call, "--"])
            .args(words);
        command
    };
    let setup = ["scratch", "0", told];
    let setup = hook("setup", &[&[&*id, &*user, &*user], &setup[..]].concat()).output();
    let setup = setup.unwrap();
    assert!(setup.status.success(), "{}", text(&setup.stderr));
    let mut waits = hook("data_in", &[&id, told]).spawn().unwrap();
    let begun = |_: &posthaste_testbed::Slurm| Ok(is_begun(&centre, ".weather"));
    centre.slurm.wait_until("it is on its way", begun).unwrap();
    waits.kill().unwrap();
    waits.wait().unwrap();
    centre.slurm.ask("scancel", &[&id]).unwrap();
    let asked = centre.stage_ins("weather")[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    wait_until_given_up(&centre, &asked);
    let said = "was called off, and nobody said that it is gone";
    assert!(
        centre.service_log().contains(said),
        "{}",
        centre.service_log()
    );
    centre
        .slurm
        .ask("scancel", &[&occupier.to_string()])
        .unwrap();
}
