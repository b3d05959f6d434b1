//! Output of a job goes over depots on to an address.

use std::fs;

use crate::slurm::centre::Centre;

#[test]
fn what_a_job_leaves_is_off_scratch_while_its_address_is_away_and_gets_there_later() {
    let mut centre = Centre::start("20M", 600);
    centre.s3.kill();
    let script = centre.script(
        "job.sh",
        "#!/bin/sh\n\
         #POSTHASTE stage_out source=SCRATCH/out destination=archive:results/%j deadline=2h via=a,b code=1+1 release=when-safe\n\
         mkdir out && head -c 1500000 /dev/urandom > out/result.h5 && cp out/result.h5 kept.h5\n",
    );
    let job = centre.slurm.submit(&script).unwrap();
    // It has ended once its results are safe on depots: nobody waits for the bucket.
    centre.wait_for(job, |state, _| state == "COMPLETED");
    let out = centre.leaving("out");
    let id = out["id"].as_str().unwrap();
    assert_eq!(out["to"], format!("archive:results/{job}"));
    let request = centre
        .service
        .wait_until(id, |request| request["state"] == "released");
    assert!(!centre.scratch().join("out").exists(), "scratch is free");
    assert_eq!(request["delivery"]["delivered"], serde_json::Value::Null);
    centre.s3.restart().unwrap();
    centre
        .service
        .wait_until(id, |request| request["state"] == "delivered");
    let there = centre
        .s3
        .bucket_folder()
        .join(format!("results/{job}/result.h5"));
    let kept = fs::read(centre.scratch().join("kept.h5")).unwrap();
    assert_eq!(fs::read(there).unwrap(), kept);
}

#[test]
fn what_is_lent_for_a_job_at_some_hours_and_below_some_load_is_used_within_these() {
    let centre = Centre::start("20M", 600);
    let closed = (jiff::Zoned::now().hour() + 3) % 24;
    let (from, to) = (closed, (closed + 2) % 24);
    let script = |name: &str, hours: &str| {
        centre.script(
            &format!("{name}.sh"),
            &format!(
                "#!/bin/sh\n#POSTHASTE depot a:50GB {hours} load<900\n\
                 #POSTHASTE stage_out source=SCRATCH/{name} destination=home release=when-safe\n\
                 mkdir {name} && echo x > {name}/result.h5\n"
            ),
        )
    };
    let now = centre.slurm.submit(&script("now", "when=00-24")).unwrap();
    let later = format!("when={from:02}-{to:02}");
    let later = centre.slurm.submit(&script("later", &later)).unwrap();
    centre.wait_for(now, |state, _| state == "COMPLETED");
    centre.wait_for(later, |state, _| state == "STAGE_OUT");
    let out = centre.leaving("later");
    let id = out["id"].as_str().unwrap();
    let request = centre
        .service
        .wait_until(id, |request| request["state"] == "moving");
    assert_eq!(request["wishes"]["lent"][0]["depot"], "a", "{request}");
    assert_eq!(
        request["wishes"]["lent"][0]["load_below"], 900.0,
        "{request}"
    );
    let stored = &request["shares"][0]["stored"];
    assert_eq!(stored, 0, "{request}");
    assert!(centre.scratch().join("later/result.h5").exists());
}
