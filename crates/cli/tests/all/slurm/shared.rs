//! Inputs that several jobs read, and inputs that disappear while their job waits.

use std::{fs, path::Path};

use posthaste_testbed::Slurm;

use crate::slurm::centre::{Centre, contents};

/// Jobs submitted at once.
const CROWD: usize = 80;

/// Waits until a job's data is here and it waits for a processor only.
pub fn wait_until_staged(centre: &Centre, job: u32) {
    let looked = centre.slurm.wait_until("its data is here", |slurm| {
        let about = slurm.ask("scontrol", &["show", "job", &job.to_string()])?;
        Ok(about.contains("BurstBufferState=staged-in"))
    });
    looked.unwrap_or_else(|error| {
        let (told, asked) = (centre.job(job), centre.requests(|_| true));
        panic!("{error}\n{told}\n{asked:?}\n{}", centre.service_log())
    });
}

/// Runs a job that has the node for itself until there is a file `go`.
pub fn occupy(centre: &Centre) -> u32 {
    let script = centre.script(
        "occupy.sh",
        "#!/bin/sh\n#SBATCH --exclusive --time=30\nwhile [ ! -e go ]; do sleep 0.2; done\n",
    );
    let job = centre.slurm.submit(&script).unwrap();
    centre.wait_for(job, |state, _| state == "RUNNING");
    job
}

#[test]
fn a_job_does_not_start_without_what_can_t_be_brought_again() {
    let centre = Centre::start("1G", 600);
    let occupier = occupy(&centre);
    let (source, scratch) = (centre.s3.bucket_folder().join("run"), centre.scratch());
    let script = centre.script(
        "lost.sh",
        "#!/bin/sh\n#POSTHASTE stage_in source=archive:run destination=SCRATCH/weather\ncp -r weather used\n",
    );
    let job = centre.slurm.submit(&script).unwrap();
    wait_until_staged(&centre, job);
    let wanted = contents(&source);
    let away = centre.s3.bucket_folder().join("away");
    fs::rename(&source, &away).unwrap();
    fs::remove_dir_all(scratch.join("weather")).unwrap();
    fs::write(scratch.join("go"), "").unwrap();
    centre.wait_for(job, |state, reason| {
        state == "PENDING" && reason.contains("pre_run")
    });
    fs::rename(&away, &source).unwrap();
    let id = job.to_string();
    centre.slurm.ask("scontrol", &["release", &id]).unwrap();
    // Slurm would wait two minutes after a start that failed.
    let now = ["update", &format!("JobId={id}"), "StartTime=now"];
    centre.slurm.ask("scontrol", &now).unwrap();
    centre.wait_for(job, |state, _| state == "COMPLETED");
    assert_eq!(contents(&scratch.join("used")), wanted);
    centre.wait_for(occupier, |state, _| state == "COMPLETED");
}

/// Counts Slurm's jobs in that state.
fn count(slurm: &Slurm, state: &str) -> anyhow::Result<usize> {
    let shown = slurm.ask("squeue", &["-h", "-a", "-r", "-t", state, "-o", "%i"])?;
    Ok(shown.lines().count())
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

#[test]
fn a_crowd_of_jobs_shares_one_fetch_of_its_input() {
    let centre = Centre::start("1G", 3600);
    let scratch = centre.scratch();
    for number in 0..4 {
        let own = centre.s3.bucket_folder().join(format!("own/{number}"));
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("n"), format!("{number}")).unwrap();
    }
    let array = centre.script(
        "array.sh",
        "#!/bin/sh\n#SBATCH --array=0-3\n\
         #POSTHASTE stage_in source=archive:run destination=SCRATCH/shared\n\
         #POSTHASTE stage_in source=archive:own/%a destination=SCRATCH/own-%a\n\
         [ -e shared/1.h5 ] && [ \"$(cat own-$SLURM_ARRAY_TASK_ID/n)\" = $SLURM_ARRAY_TASK_ID ] && echo ok >> tasks\n\
         touch shared/used-by-$SLURM_ARRAY_TASK_ID\n",
    );
    centre.slurm.submit(&array).unwrap();
    let all = centre
        .slurm
        .wait_until("the tasks ran", |_| Ok(lines(&scratch.join("tasks")) == 4));
    all.unwrap_or_else(|error| panic!("{error}"));

    let crowd = centre.script(
        "crowd.sh",
        "#!/bin/sh\n#POSTHASTE stage_in source=archive:run destination=SCRATCH/shared\n\
         [ -e shared/1.h5 ] && echo ok >> crowd\n",
    );
    for _ in 0..CROWD {
        centre.slurm.submit(&crowd).unwrap();
    }
    let mut before = CROWD;
    while before > 0 {
        // As long as it gets on, it may take its time.
        let gone_on = centre.slurm.wait_until("another job ends", |slurm| {
            let left = count(slurm, "all")?;
            let ended = count(slurm, "CD,F,CA,TO,NF")?;
            let now = left - ended;
            let is_less = now < before;
            before = now.min(before);
            Ok(is_less)
        });
        gone_on.unwrap_or_else(|error| panic!("{before} jobs are left: {error}"));
    }
    assert_eq!(lines(&scratch.join("crowd")), CROWD);
    let asked = centre.stage_ins("shared");
    assert_eq!(asked.len(), 1, "{asked:?}");
}
