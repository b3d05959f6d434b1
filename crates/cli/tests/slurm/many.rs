//! One service, run by root, for the jobs of all users: each has their own rights and no others.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use serde_json::Value;

use crate::{
    centre::{Centre, USER, contents, make_files},
    processes::{PATIENCE, now, text},
};

/// Accounts that are on every machine, and their numbers.
const ALICE: (&str, u32) = ("nobody", USER);
const BOB: (&str, u32) = ("daemon", 1);

/// A directory that only its owner may look into.
fn private(centre: &Centre, (name, uid): (&str, u32)) -> PathBuf {
    let folder = centre.scratch().join(format!("of-{name}"));
    make_files(&folder, 2);
    for path in [
        folder.join("deep"),
        folder.join("0.h5"),
        folder.join("1.h5"),
        folder.clone(),
    ] {
        if path.exists() {
            chown(&path, Some(uid), Some(uid)).unwrap();
        }
    }
    for file in fs::read_dir(folder.join("deep")).unwrap() {
        chown(file.unwrap().path(), Some(uid), Some(uid)).unwrap();
    }
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    folder
}

/// Lets a user's requests, and so their jobs, use the archive of the service's.
fn lend_archive(centre: &Centre, (name, _): (&str, u32)) {
    let output = centre.scratch().join("token");
    let words = ["token", "add", name, "--scope", "submit", "--owner", name];
    let places = ["--below", "/nowhere", "--profile", "archive", "--output"];
    let words = [&words[..], &places, &[output.to_str().unwrap()]].concat();
    let made = centre.service.run(&words);
    assert!(made.status.success(), "{}", text(&made.stderr));
}

fn submit(centre: &Centre, (name, uid): (&str, u32), text: &str) -> u32 {
    let number = fs::read_dir(centre.scratch()).unwrap().count();
    let script = centre.script(
        &format!("{name}-{number}.sh"),
        &format!("#!/bin/sh\n{text}"),
    );
    centre.slurm.submit_as(uid, &script).unwrap()
}

fn is_owned(path: &Path, (_, uid): (&str, u32)) {
    assert_eq!(fs::metadata(path).unwrap().uid(), uid, "{}", path.display());
}

/// The requests of this owner.
fn requests_of(centre: &Centre, (name, _): (&str, u32)) -> Vec<Value> {
    centre.requests(|one| one["wishes"]["owner"] == *name)
}

#[test]
fn one_service_serves_the_jobs_of_all_users_with_the_rights_of_each() {
    let centre = Centre::start_for_all("1G");
    let folders = [ALICE, BOB].map(|user| private(&centre, user));
    let jobs = [ALICE, BOB].map(|user| {
        let name = user.0;
        let text = format!(
            "#POSTHASTE stage_in source=SCRATCH/of-{name} destination=SCRATCH/in-{name}\n\
             #POSTHASTE stage_out source=SCRATCH/out-{name} destination=home via=a,b code=1+1 release=when-safe\n\
             mkdir -m 700 out-{name} && cp in-{name}/1.h5 out-{name}/ && touch ran-{name}\n"
        );
        submit(&centre, user, &text)
    });
    let scratch = centre.scratch();
    for ((user, job), folder) in [ALICE, BOB].into_iter().zip(jobs).zip(&folders) {
        centre.wait_for(job, |state, _| state == "COMPLETED");
        let came = scratch.join(format!("in-{}", user.0));
        is_owned(&scratch.join(format!("ran-{}", user.0)), user);
        is_owned(&came, user);
        is_owned(&came.join("1.h5"), user);
        assert_eq!(contents(&came), contents(folder));
        let asked = requests_of(&centre, user);
        assert_eq!(asked.len(), 2, "{asked:?}\n{}", centre.service_log());
        let out = asked
            .iter()
            .find(|one| !one["stage_in"].is_object())
            .unwrap();
        let id = out["id"].as_str().unwrap();
        centre
            .service
            .wait_until(id, |request| request["state"] == "released");
        assert!(
            !scratch
                .join(format!("out-{}", user.0))
                .join("1.h5")
                .exists()
        );
    }
}

#[test]
fn nobody_s_job_reads_or_sends_off_what_another_alone_may_read_or_uses_what_was_lent_to_another() {
    let centre = Centre::start_for_all("1G");
    private(&centre, ALICE);
    lend_archive(&centre, ALICE);
    let scratch = centre.scratch();
    let refused = |text: &str, why: &str| {
        let job = submit(&centre, BOB, text);
        let mut said = String::new();
        centre.wait_for(job, |_, reason| {
            reason.clone_into(&mut said);
            reason.contains("slurm_bb_data_in") || reason.contains("burst_buffer/lua")
        });
        // Slurm writes no spaces there.
        let said = said.replace('_', " ");
        assert!(said.contains(why), "{said}\n{}", centre.service_log());
    };
    let name = ALICE.0;
    refused(
        &format!("#POSTHASTE stage_in source=SCRATCH/of-{name} destination=SCRATCH/stolen\ntrue\n"),
        "Permission denied",
    );
    refused(
        "#POSTHASTE stage_in source=archive:run destination=SCRATCH/lent\ntrue\n",
        "with a profile that it may use",
    );
    for path in ["stolen", "lent"] {
        assert!(!scratch.join(path).exists(), "{path}");
    }
    let job = submit(
        &centre,
        ALICE,
        "#POSTHASTE stage_in source=archive:run destination=SCRATCH/lent\ntrue\n",
    );
    centre.wait_for(job, |state, _| state == "COMPLETED");
    is_owned(&scratch.join("lent"), ALICE);
    let job = submit(
        &centre,
        BOB,
        &format!(
            "#POSTHASTE stage_out source=SCRATCH/of-{name} destination=home via=a,b code=1+1\ntrue\n"
        ),
    );
    centre.wait_for(job, |state, _| state == "STAGE_OUT");
    centre.wait_for(job, |_, reason| reason.contains("burst_buffer/lua"));
    let private = scratch.join(format!("of-{name}"));
    let start = now();
    let foreign = loop {
        let mut asked = requests_of(&centre, BOB);
        asked.retain(|one| one["source"].as_str() == private.to_str());
        if asked.len() == 2 && asked.iter().all(|one| one["state"] != "scanning") {
            break asked;
        }
        assert!(start.elapsed() < PATIENCE, "{asked:?}");
        sleep(Duration::from_millis(200));
    };
    for one in foreign {
        let why = one["reason"].as_str().unwrap();
        assert!(
            one["state"] == "failed" && why.contains("Permission denied"),
            "{one}"
        );
    }
}
