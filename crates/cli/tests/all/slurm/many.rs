//! A service run by root serves the jobs of all users: each has their own rights and no others.

use std::{fs, thread::sleep, time::Duration};

use crate::{
    slurm::{
        centre::{Centre, contents},
        shared::{occupy, wait_until_staged},
    },
    support::{
        accounts::{ALICE, BOB, is_owned, lend_archive, private, requests_of},
        processes::{PATIENCE, now},
    },
};

fn submit(centre: &Centre, (name, uid): (&str, u32), text: &str) -> u32 {
    let number = fs::read_dir(centre.scratch()).unwrap().count();
    let script = centre.script(
        &format!("{name}-{number}.sh"),
        &format!("#!/bin/sh\n{text}"),
    );
    centre.slurm.submit_as(uid, &script).unwrap()
}

#[test]
fn one_service_serves_the_jobs_of_all_users_with_the_rights_of_each() {
    let centre = Centre::start_for_all("1G");
    let folders = [ALICE, BOB].map(|user| private(&centre.scratch(), user));
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
        let asked = requests_of(&centre.service, user);
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
    private(&centre.scratch(), ALICE);
    lend_archive(&centre.service, &centre.scratch(), ALICE);
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
    centre.wait_for(job, |_, reason| reason.contains("burst_buffer/lua"));
    let private = scratch.join(format!("of-{name}"));
    let start = now();
    let foreign = loop {
        let mut asked = requests_of(&centre.service, BOB);
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

#[test]
fn what_a_purge_takes_from_queued_jobs_is_brought_again_whoever_s_they_are() {
    let centre = Centre::start_for_all("1G");
    let (occupier, scratch) = (occupy(&centre), centre.scratch());
    let users = [ALICE, BOB];
    let wanted = users.map(|user| contents(&private(&scratch, user)));
    let jobs = users.map(|user| {
        let name = user.0;
        let text = format!(
            "#POSTHASTE stage_in source=SCRATCH/of-{name} destination=SCRATCH/in-{name}\ncp -r in-{name} used-{name}\n"
        );
        submit(&centre, user, &text)
    });
    for job in jobs {
        wait_until_staged(&centre, job);
    }
    let of = |what: &str, user: (&str, u32)| scratch.join(format!("{what}-{}", user.0));
    fs::remove_dir_all(of("in", ALICE)).unwrap();
    fs::remove_file(of("in", BOB).join("1.h5")).unwrap();
    let looked = centre.slurm.wait_until("it is brought again", |_| {
        let is_whole = |user| of("in", user).join("1.h5").exists();
        Ok(users.into_iter().all(is_whole))
    });
    looked.unwrap_or_else(|error| panic!("{error}\n{}", centre.service_log()));
    for user in users {
        is_owned(&of("in", user), user);
    }
    fs::write(scratch.join("go"), "").unwrap();
    for ((user, job), wanted) in users.into_iter().zip(jobs).zip(wanted) {
        centre.wait_for(job, |state, _| state == "COMPLETED");
        assert_eq!(contents(&of("used", user)), wanted);
    }
    centre.wait_for(occupier, |state, _| state == "COMPLETED");
}
