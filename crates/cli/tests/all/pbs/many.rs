//! A service run by root serves the jobs of all users of PBS: each has their own rights and no
//! others.

use std::{fs, os::unix::fs::MetadataExt, path::PathBuf};

use serde_json::Value;

use crate::{
    pbs::centre::{Centre, comment},
    support::{
        accounts::{ALICE, BOB, is_owned, lend_archive, private, requests_of},
        files::{contents, make_files},
        processes::{Relay, text},
    },
};

impl Centre {
    /// Submits a script as somebody.
    fn submitted_by(&self, (name, _): (&str, u32), script: &str) -> String {
        let output = self.submit_with(&["--as", name], script);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    }
}

/// Starts a centre with two depots, a service of root's and directories that only Alice and Bob can
/// read.
fn start() -> (Centre, [Relay; 2], [PathBuf; 2]) {
    let centre = Centre::start_for_all("1G");
    let relays = ["a", "b"].map(|name| Relay::start(centre.folder.path(), name, "1G", "10M"));
    for relay in &relays {
        centre.service.add(relay);
    }
    centre
        .service
        .wait_for_depots(|depot| depot["state"] == "up");
    let folders = [ALICE, BOB].map(|user| private(&centre.path("scratch"), user));
    (centre, relays, folders)
}

#[test]
fn one_service_serves_the_jobs_of_all_users_with_the_rights_of_each() {
    let (centre, _relays, folders) = start();
    let jobs = [ALICE, BOB].map(|user| {
        let name = user.0;
        let script = format!(
            "#!/bin/sh\n\
             #PBS -v POSTHASTE=\"stage_in source=SCRATCH/of-{name} destination=SCRATCH/in-{name}; stage_out \
             source=SCRATCH/out-{name} destination=home via=a,b code=1+1 release=when-safe\"\n\
             cd SCRATCH && mkdir -m 700 out-{name} && cp in-{name}/1.h5 out-{name}/ && touch ran-{name}\n"
        );
        centre.submitted_by(user, &script)
    });
    let scratch = centre.path("scratch");
    for ((user, job), folder) in [ALICE, BOB].into_iter().zip(jobs).zip(&folders) {
        let done = centre.cycle_until(&job, |job| job["job_state"] == "F");
        assert_eq!(done["Exit_status"], 0, "{done}\n{}", centre.log());
        let came = scratch.join(format!("in-{}", user.0));
        is_owned(&scratch.join(format!("ran-{}", user.0)), user);
        is_owned(&came, user);
        is_owned(&came.join("1.h5"), user);
        assert_eq!(contents(&came), contents(folder));
        let asked = requests_of(&centre.service, user);
        assert_eq!(asked.len(), 2, "{asked:?}\n{}", centre.log());
        let mut out = asked.iter().filter(|one| !one["stage_in"].is_object());
        let id = out.next().unwrap()["id"].as_str().unwrap();
        let is_released = |request: &Value| request["state"] == "released";
        centre.service.wait_until(id, is_released);
        assert!(!scratch.join(format!("out-{}/1.h5", user.0)).exists());
    }
}

#[test]
fn nobody_s_job_reads_or_sends_off_what_another_alone_may_read_or_uses_what_was_lent_to_another() {
    let (centre, _relays, [private, _]) = start();
    make_files(&centre.s3.bucket_folder().join("run"), 2);
    let scratch = centre.path("scratch");
    lend_archive(&centre.service, &scratch, ALICE);
    let script = |directive: &str| format!("#!/bin/sh\n#PBS -v POSTHASTE=\"{directive}\"\ntrue\n");
    let of_alice = format!("SCRATCH/of-{}", ALICE.0);
    for (directive, why) in [
        (
            format!("stage_in source={of_alice} destination=SCRATCH/stolen"),
            "Permission denied",
        ),
        (
            "stage_in source=archive:run destination=SCRATCH/lent".to_owned(),
            "with a profile that it may use",
        ),
    ] {
        let job = centre.submitted_by(BOB, &script(&directive));
        let held = centre.cycle_until(&job, |job| job["job_state"] == "H");
        assert!(comment(&held).contains(why), "{held}\n{}", centre.log());
    }
    for path in ["stolen", "lent"] {
        assert!(!scratch.join(path).exists(), "{path}");
    }
    let lent = script("stage_in source=archive:run destination=SCRATCH/lent");
    let job = centre.submitted_by(ALICE, &lent);
    centre.cycle_until(&job, |job| job["job_state"] == "F");
    is_owned(&scratch.join("lent"), ALICE);

    let leaves = format!("stage_out source={of_alice} destination=home via=a,b code=1+1");
    let job = centre.submitted_by(BOB, &script(&leaves));
    centre.cycle_until(&job, |job| job["job_state"] == "F");
    let of_bob = || {
        let mut asked = requests_of(&centre.service, BOB);
        asked.retain(|one| one["source"].as_str() == private.to_str());
        asked.retain(|one| !one["stage_in"].is_object() && one["state"] != "scanning");
        asked
    };
    centre.wait_for("what it leaves is looked at", || !of_bob().is_empty());
    for one in of_bob() {
        let why = one["reason"].as_str().unwrap();
        let is_refused = one["state"] == "failed" && why.contains("Permission denied");
        assert!(is_refused, "{one}");
    }
    let owner = fs::metadata(private.join("1.h5")).unwrap().uid();
    assert_eq!(owner, ALICE.1, "it is there, and hers");
}
