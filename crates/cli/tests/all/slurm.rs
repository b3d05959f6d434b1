//! Front door of Slurm: a real Slurm, a real service, real sources and relays.

mod centre;
mod faults;
mod held;
mod later;
mod many;
mod movers;
mod newer;
mod onward;
mod queue;
mod rest;
mod setup;
mod shared;

use std::{fs, os::unix::fs::MetadataExt};

use centre::{Centre, USER, contents};
use posthaste_testbed::Slurm;

#[test]
fn a_job_starts_with_its_data_and_frees_its_node_before_what_it_leaves_is_safe() {
    let centre = Centre::start("1500K", 600);
    let script = centre.script(
        "job.sh",
        "#!/bin/sh\n\
         #POSTHASTE stage_in source=archive:run destination=SCRATCH/weather\n\
         #POSTHASTE stage_in source=tape: destination=SCRATCH/mesh\n\
         #POSTHASTE stage_out source=SCRATCH/o*t destination=home via=a,b code=1+1 release=when-safe\n\
         #POSTHASTE stage_out source=SCRATCH/mesh/own destination=archive:own\n\
         [ \"$POSTHASTE_STAGE_IN_2\" = SCRATCH/mesh ] || exit 3\n\
         mkdir out && find mesh -type f | xargs cat > out/result.h5 \
         && head -c 6M /dev/urandom >> out/result.h5 && echo x >> mesh/own\n",
    );
    let scratch = centre.scratch();
    let job = centre.slurm.submit(&script).unwrap();
    centre.wait_for(job, |state, reason| {
        state == "PENDING" && reason.contains("BurstBufferStageIn")
    });
    assert!(
        !scratch.join("weather").exists(),
        "it appears when all of it is whole"
    );
    assert!(centre.job(job).as_str().unwrap().contains("archive:run"));

    centre.wait_for(job, |state, _| state == "STAGE_OUT");
    let wanted = contents(&centre.s3.bucket_folder().join("run"));
    assert_eq!(contents(&scratch.join("weather")), wanted);
    assert_eq!(fs::metadata(scratch.join("mesh")).unwrap().uid(), USER);
    let result = scratch.join("out/result.h5");
    assert!(result.exists(), "the job ran");
    let idle = |slurm: &Slurm| Ok(slurm.ask("sinfo", &["-h", "-o", "%T"])?.trim() == "idle");
    centre.slurm.wait_until("the node is free", idle).unwrap();
    let out = centre.leaving("out");
    assert!(
        ["scanning", "moving"].contains(&out["state"].as_str().unwrap()),
        "{out}"
    );

    centre.wait_for(job, |state, _| state == "COMPLETED");
    let id = out["id"].as_str().unwrap();
    centre
        .service
        .wait_until(id, |request| request["state"] == "released");
    assert!(!result.exists(), "it was to be removed when safe");
    let own = centre.s3.bucket_folder().join("own/own");
    assert_eq!(fs::read_to_string(own).unwrap(), "x\n");
    drop(centre.ssh);
}
