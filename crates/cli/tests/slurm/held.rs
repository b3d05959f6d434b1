//! Slurm without a burst buffer: `posthaste submit`.

use std::process::Output;

use crate::{
    centre::{Centre, USER, contents},
    faults::wait_until_half_here,
    processes::text,
};

fn submit(centre: &Centre, arguments: &[&str]) -> Output {
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
    command.output().unwrap()
}

#[test]
fn a_held_job_is_released_with_its_data_and_what_it_leaves_leaves() {
    let mut centre = Centre::start_with("1M", |_, _| {});
    centre.script(
        "wrong.sh",
        "#!/bin/sh\n#POSTHASTE stage_in sorce=a destination=/b\n",
    );
    let wrong = submit(&centre, &["wrong.sh"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong.stderr).contains("line 2: `sorce`"),
        "{}",
        text(&wrong.stderr)
    );

    let queued = || centre.slurm.ask("squeue", &["--noheader"]).unwrap();
    assert_eq!(queued(), "", "nothing was submitted");

    centre.script(
        "job.sh",
        "#!/bin/sh\n#POSTHASTE stage_in source=archive:run destination=SCRATCH/weather\n\
         #POSTHASTE stage_out source=SCRATCH/out destination=home via=a,b code=1+1 after=ok\n\
         cp -r weather used; mkdir out; echo x > out/x\n",
    );
    let shown = submit(&centre, &["--dry-run", "--json", "job.sh", "--time=10"]);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    assert!(text(&shown.stdout).contains("--time=10"));
    let refused = submit(&centre, &["job.sh", "--partition=none"]);
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("invalid partition"));
    assert_eq!(queued(), "", "nothing was submitted");
    let submitted = submit(&centre, &["job.sh", "--time=10"]);
    assert!(submitted.status.success(), "{}", text(&submitted.stderr));
    let said = text(&submitted.stdout);
    let job: u32 = said.trim().rsplit(' ').next().unwrap().parse().unwrap();
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
    let out = centre.leaving("out");
    let id = out["id"].as_str().unwrap();
    centre.service.wait_until(id, |one| one["state"] == "safe");
}
