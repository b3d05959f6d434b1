//! Watches data that is ready for jobs waiting for nodes. Data that a purge removes is requested
//! again at once, rather than when the first job is to start. Other code watches jobs submitted
//! held; PBS's jobs repeat their requests.
//!
//! This also watches for jobs that were cancelled before they began, without a report. Slurm ends
//! everything that runs for a cancelled job. If Slurm is busy, that includes the plug-in's report
//! that the job is gone, which is never repeated (seen with 22.05).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use posthaste_batch::slurm::JobState;
use posthaste_endpoint::Result;
use posthaste_journal::{JobHold, JobPhase, JobRecord, PhaseName, RequestRecord};
use posthaste_types::RequestId;

use super::{SLURM, read_again, scontrol, scontrol::Whose, stage_in};
use crate::{
    http::Desk,
    inbound::landed::{self, Landed},
};

/// Interval between looks, each of which examines every ready file.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Data of which a purge removed some or all.
struct Missing {
    request: RequestRecord,
    landed: Landed,
    /// Jobs that want it and have not ended.
    jobs: Vec<JobRecord>,
}

/// Looks repeatedly until the service ends.
///
/// # Errors
/// The journal's.
pub(crate) async fn look_on(desk: Desk) -> Result<()> {
    let (mut said, mut called_off) = (String::new(), BTreeSet::new());
    // A service that runs as root has everybody's jobs.
    let whose = if desk.centre.store.actors.are_owners() {
        Whose::Everybody
    } else {
        Whose::OfService
    };
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let missing = tokio::task::block_in_place(|| missing(&desk))?;
        let waiting = waiting(&desk)?;
        if missing.is_empty() && waiting.is_empty() {
            continue;
        }
        // Asked after the check: no job starts without whole data, so a job that waits now reads
        // none of it.
        let states = match &desk.slurmrestd {
            Some(slurmrestd) => slurmrestd.states().await,
            None => scontrol::states(whose).await,
        };
        let states = match states {
            Ok(states) => states,
            Err(error) => {
                let text = format!("can't bring again what a purge took: {error}");
                if !missing.is_empty() && text != said {
                    tracing::warn!("{text}");
                    said = text;
                }
                continue;
            }
        };
        said.clear();
        called_off = forget_called_off(&desk, waiting, &states, &called_off)?;
        for one in missing {
            bring_again(&desk, &one, &states)?;
        }
    }
}

/// Returns jobs that Slurm keeps from starting until their data is here.
fn waiting(desk: &Desk) -> Result<Vec<JobRecord>> {
    let phases = [PhaseName::StagingIn];
    let jobs = |journal: &mut posthaste_journal::Journal| journal.jobs(Some(SLURM), &phases, None);
    let jobs = desk.centre.store.journal(jobs)?;
    Ok(jobs.into_iter().filter(is_watched).collect())
}

/// Forgets jobs that Slurm reported as cancelled at the previous look too, so that its own report
/// had time to come. Returns those newly reported as cancelled.
fn forget_called_off(
    desk: &Desk,
    waiting: Vec<JobRecord>,
    states: &BTreeMap<u64, JobState>,
    before: &BTreeSet<String>,
) -> Result<BTreeSet<String>> {
    let mut first = BTreeSet::new();
    for job in waiting.into_iter().filter(|job| is_called_off(job, states)) {
        if !before.contains(&job.job) {
            first.insert(job.job);
            continue;
        }
        let now = desk
            .centre
            .store
            .journal(|journal| journal.job(&job.scheduler, &job.job))?;
        if now.as_ref() == Some(&job) {
            tracing::info!(
                job = format_args!("slurm job {}", job.job),
                "was called off, and nobody said that it is gone"
            );
            super::remove(desk, job)?;
        }
    }
    Ok(first)
}

/// Returns data that arrived for Slurm's jobs and is no longer whole.
fn missing(desk: &Desk) -> Result<Vec<Missing>> {
    let centre = &desk.centre;
    let all = centre
        .store
        .journal(|journal| journal.jobs(None, &PhaseName::BEFORE_THE_END, None))?;
    let mut wanted: BTreeMap<RequestId, (RequestRecord, Vec<JobRecord>)> = BTreeMap::new();
    for job in all {
        for one in &read_again(&job).stage_ins {
            if let Some(request) = stage_in::newest(centre, &job, one)? {
                let entry = wanted.entry(request.id).or_insert((request, Vec::new()));
                entry.1.push(job.clone());
            }
        }
    }
    let mut missing = Vec::new();
    for (request, jobs) in wanted.into_values() {
        let is_ready = stage_in::is_of_job(&request) && stage_in::has_arrived(centre, &request);
        if !is_ready || !jobs.iter().any(is_watched) {
            continue;
        }
        match landed::look(&centre.store, &request) {
            Ok(landed @ (Landed::Partly | Landed::Gone)) => missing.push(Missing {
                request,
                landed,
                jobs,
            }),
            // Files that a user changed are that user's.
            Ok(Landed::Whole | Landed::Changed | Landed::Unknown) => {}
            Err(error) => tracing::warn!("{error}"),
        }
    }
    Ok(missing)
}

/// Returns whether Slurm keeps this job from starting until its data is here.
fn is_watched(job: &JobRecord) -> bool {
    job.scheduler == SLURM && job.phase == JobPhase::StagingIn && job.hold == JobHold::None
}

/// Returns the job's state by Slurm, or none for jobs of other batch systems.
fn standing(job: &JobRecord, states: &BTreeMap<u64, JobState>) -> Option<JobState> {
    let number = job.job.parse::<u64>().ok();
    let number = number.filter(|_| job.scheduler == SLURM);
    number.and_then(|number| states.get(&number).copied())
}

/// Returns whether Slurm reports that a job was cancelled before it began.
fn is_called_off(job: &JobRecord, states: &BTreeMap<u64, JobState>) -> bool {
    standing(job, states) == Some(JobState::NeverBegan)
}

/// Returns whether Slurm reports that a job waits.
fn waits(job: &JobRecord, states: &BTreeMap<u64, JobState>) -> bool {
    match standing(job, states) {
        Some(JobState::Waiting | JobState::Held | JobState::HeldByAdministrator) => true,
        Some(JobState::Running | JobState::NeverBegan | JobState::Ended { .. }) | None => false,
    }
}

/// Requests it again in the name of a waiting job, unless a job may be reading the rest.
fn bring_again(desk: &Desk, one: &Missing, states: &BTreeMap<u64, JobState>) -> Result<()> {
    let store = &desk.centre.store;
    let Some(job) = one
        .jobs
        .iter()
        .find(|job| is_watched(job) && waits(job, states))
    else {
        return Ok(());
    };
    if one.landed == Landed::Partly {
        if !one.jobs.iter().all(|job| waits(job, states)) {
            return Ok(());
        }
        // Jobs registered meanwhile find it missing, as these do.
        let _asking = stage_in::asking(desk);
        if let Err(error) = tokio::task::block_in_place(|| landed::evict(store, &one.request)) {
            tracing::warn!("{error}");
            return Ok(());
        }
    }
    // The job may have ended, or have been registered anew.
    let now = store.journal(|journal| journal.job(&job.scheduler, &job.job))?;
    let Some(mut record) = now.filter(|now| now == job) else {
        return Ok(());
    };
    record.round += 1;
    record.created = desk.centre.clock.now();
    store.journal(|journal| journal.keep_job(&record))?;
    tracing::info!(
        job = format_args!("slurm job {}", record.job),
        "brings {} again: a purge took some of it",
        one.request.destination
    );
    if let Err(refusal) = stage_in::ask(desk, &record) {
        tracing::warn!(job = format_args!("slurm job {}", record.job), "{refusal}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_types::Timestamp;

    #[test]
    fn only_jobs_that_slurm_holds_back_for_their_data_are_watched() {
        let mut job = JobRecord {
            scheduler: SLURM.into(),
            job: "7".into(),
            round: 0,
            uid: 1000,
            gid: 100,
            script: String::new(),
            phase: JobPhase::StagingIn,
            created: Timestamp::from_secs(1),
            hold: JobHold::None,
        };
        let states = |state| BTreeMap::from([(7, state)]);
        assert!(is_watched(&job));
        assert!(waits(&job, &states(JobState::Waiting)));
        for state in [JobState::Running, JobState::Ended { well: true }] {
            assert!(!waits(&job, &states(state)), "{state:?}");
            assert!(!is_called_off(&job, &states(state)), "{state:?}");
        }
        assert!(is_called_off(&job, &states(JobState::NeverBegan)));
        assert!(!is_called_off(&job, &BTreeMap::new()), "nor does it say so");
        assert!(!waits(&job, &BTreeMap::new()), "Slurm does not name it");
        job.scheduler = "pbs".into();
        assert!(!is_watched(&job));
        assert!(
            !waits(&job, &states(JobState::Waiting)),
            "it is another's 7"
        );
        job.scheduler = SLURM.into();
        job.hold = JobHold::Released;
        assert!(!is_watched(&job));
        job.hold = JobHold::None;
        job.phase = JobPhase::Registered;
        assert!(!is_watched(&job), "nothing was brought for it");
    }
}
