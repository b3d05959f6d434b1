//! Jobs that were submitted held, where Slurm has no burst buffer: they are released when their data is here, and looked
//! at until they have ended. All that is remembered is in the journal, so that it goes on after a crash.

use std::{process::Command, time::Duration};

use posthaste_api as api;
use posthaste_batch::job_state::JobState;
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::{JobHold, JobPhase, JobRecord};

use super::{JOBS_MAX, ended, remove, stage_in};
use crate::http::{Answer, Desk};

/// Between two looks at whether data is here.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Slurm is asked about a job that gets on without us at every so many of them: half a minute.
const ASKS_EVERY: u32 = 15;
/// What Slurm says of a job that it no longer knows.
const FORGOTTEN: &str = "Invalid job id";

/// Looks after all of them until the service ends.
///
/// # Errors
/// The journal's.
pub(crate) async fn look_after_all(desk: Desk) -> Result<()> {
    let mut look = 0;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        look = (look + 1) % ASKS_EVERY;
        let jobs = desk
            .centre
            .store
            .journal(|journal| journal.jobs(JOBS_MAX))?;
        // Slurm's commands take their time.
        tokio::task::block_in_place(|| {
            for record in jobs {
                if record.hold != JobHold::None && record.phase != JobPhase::Gone {
                    look_after(&desk, record, look == 0);
                }
            }
        });
    }
}

/// What goes wrong with one is said, and tried again at a later look.
fn look_after(desk: &Desk, record: JobRecord, asks: bool) {
    let subject = format!("{} job {}", record.scheduler, record.job);
    if let Err(refusal) = look_at(desk, record, asks)
        && asks
    {
        eprintln!("posthaste: {subject}: {refusal}");
    }
}

fn look_at(desk: &Desk, record: JobRecord, asks: bool) -> Answer<()> {
    match record.phase {
        JobPhase::Gone => Ok(()),
        JobPhase::Ended { .. } if !asks => Ok(()),
        JobPhase::Ended { well, .. } => look_at_ended(desk, record, well),
        JobPhase::Registered | JobPhase::StagingIn => match record.hold {
            JobHold::None => Ok(()),
            JobHold::Held => look_at_held(desk, record, asks),
            JobHold::Released => look_at_released(desk, record, asks),
        },
    }
}

/// Forgets a job once all that it leaves is safe, or can't leave: that is said once.
fn look_at_ended(desk: &Desk, record: JobRecord, well: bool) -> Answer<()> {
    let asked = ended(desk, record.clone(), api::JobEnd { well });
    let is_over = match &asked {
        Ok(job) => job.safe || job.trouble.is_some(),
        Err(refusal) => !refusal.may_pass(),
    };
    if is_over {
        remove(desk, record)?;
    }
    asked.map(|_| ())
}

/// Releases a job whose data is here.
fn look_at_held(desk: &Desk, mut record: JobRecord, asks: bool) -> Answer<()> {
    // A job that was cancelled needs no data, also where that can't come.
    let ready = stage_in(desk, record.clone()).map(|job| job.ready);
    record.phase = JobPhase::StagingIn;
    if !asks && !matches!(ready, Ok(true)) {
        return ready.map(|_| ());
    }
    match state_of(&record)? {
        JobState::Held => {
            if ready? {
                scontrol("release", &record)?;
                record.hold = JobHold::Released;
                keep(desk, &record)?;
            }
            Ok(())
        }
        // Somebody else released it, or we did, and had no time to note it.
        JobState::Waiting | JobState::Running => {
            record.hold = JobHold::Released;
            keep(desk, &record)
        }
        JobState::NeverBegan => Ok(remove(desk, record)?),
        JobState::Ended { well } => ended(desk, record, api::JobEnd { well }).map(|_| ()),
    }
}

/// Sees when a job ends, and holds one again whose data went before it began.
fn look_at_released(desk: &Desk, mut record: JobRecord, asks: bool) -> Answer<()> {
    if !asks {
        return Ok(());
    }
    match state_of(&record)? {
        JobState::Waiting if !is_ready(desk, &record) => {
            // It is told of anew, so that what is missing is asked for again.
            record.phase = JobPhase::StagingIn;
            record.round += 1;
            record.created = desk.centre.clock.now();
            record.hold = JobHold::Held;
            keep(desk, &record)?;
            scontrol("hold", &record)?;
            Ok(())
        }
        // What its user holds is theirs to release.
        JobState::Waiting | JobState::Held | JobState::Running => Ok(()),
        JobState::NeverBegan => Ok(remove(desk, record)?),
        JobState::Ended { well } => ended(desk, record, api::JobEnd { well }).map(|_| ()),
    }
}

fn is_ready(desk: &Desk, record: &JobRecord) -> bool {
    stage_in(desk, record.clone()).is_ok_and(|job| job.ready)
}

fn keep(desk: &Desk, record: &JobRecord) -> Answer<()> {
    desk.centre
        .store
        .journal(|journal| journal.keep_job(record))?;
    Ok(())
}

/// How a job stands. One that Slurm forgot has ended, and nobody knows how: what it left is to leave.
fn state_of(record: &JobRecord) -> Result<JobState> {
    match scontrol("show", record) {
        Ok(line) => JobState::read(&line).ok_or_else(|| failed(record, "it says no state")),
        Err(error) if error.to_string().contains(FORGOTTEN) => Ok(JobState::Ended { well: true }),
        Err(error) => Err(error),
    }
}

/// Asks Slurm with the rights of the job's own user, which are the service's.
fn scontrol(what: &str, record: &JobRecord) -> Result<String> {
    let mut command = Command::new("scontrol");
    if what == "show" {
        command.args(["-o", "show", "job", &record.job]);
    } else {
        command.args([what, &record.job]);
    }
    let output = command.output();
    let output = output.map_err(|cause| Error::io("run", "scontrol", cause))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(record, said.trim()))
}

fn failed(record: &JobRecord, why: &str) -> Error {
    Error::new(
        ErrorKind::Other,
        "ask Slurm about",
        format!("job {}", record.job),
    )
    .cause(why.replace('\n', "; "))
}
