//! Jobs submitted held, for a Slurm without a burst buffer: the service releases each job when its
//! data is here, and watches it until it has ended. All state that counts is in the journal, so it
//! survives a crash.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use posthaste_api as api;
use posthaste_batch::slurm::JobState;
use posthaste_endpoint::Result;
use posthaste_journal::{JobHold, JobPhase, JobRecord};
use posthaste_types::Timestamp;
use tokio::sync::Notify;

use super::{JOBS_MAX, SLURM, ended, forget, remove, scontrol, scontrol::Whose, stage_in};
use crate::http::{Answer, Desk};

/// Interval between looks; each asks Slurm once, about all jobs.
const LOOK_EVERY: Duration = Duration::from_secs(4);
/// Delay from a request for a look to the look: the step that a prolog or epilog reports has ended
/// by then.
const LOOK_SOON: Duration = Duration::from_secs(1);
/// Span of thorough looks after a request: Slurm takes a while to put a job back into its queue.
const ASKED_LASTS: Duration = Duration::from_secs(60);
/// Arrived data is checked on scratch once in this many looks, since each file must be examined.
const LOOKS_PER_CHECK: u32 = 15;
/// Time for which Slurm may not list a job before it counts as forgotten: its controller may just
/// have started.
const MISSING_MAX: Duration = Duration::from_secs(60);

/// Jobs to look at ahead of schedule.
#[derive(Default)]
pub(crate) struct Looks {
    /// Requested jobs, at most [`JOBS_MAX`]: the next look covers all jobs anyway.
    asked: Mutex<BTreeSet<String>>,
    woken: Notify,
}

impl Looks {
    /// Requests a look soon.
    pub(crate) fn ask(&self, job: &str) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.len() < JOBS_MAX as usize {
            asked.insert(job.to_owned());
        }
        self.woken.notify_one();
    }

    fn take(&self) -> BTreeSet<String> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *asked)
    }

    /// Waits for the next look.
    async fn next(&self) -> BTreeSet<String> {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = self.woken.notified() => tokio::time::sleep(LOOK_SOON).await,
        }
        self.take()
    }
}

/// States of the jobs, as far as Slurm reports them.
type States = Option<BTreeMap<u64, JobState>>;

/// Notes on jobs between two looks, which may be lost.
#[derive(Default)]
struct Notes {
    /// Last message about each job, so that it is logged once.
    said: BTreeMap<String, String>,
    /// Our comments on the jobs.
    noted: BTreeMap<String, String>,
    /// Moments from which Slurm no longer lists these jobs.
    missing: BTreeMap<String, Timestamp>,
    /// Moments at which a look at these jobs was requested.
    asked: BTreeMap<String, Timestamp>,
}

impl Notes {
    /// Logs a message about a job, or about Slurm if the job is `""`; empty text means that all is
    /// well.
    fn say(&mut self, job: &str, text: &str) {
        let before = self.said.get(job).map_or("", String::as_str);
        if before != text && !text.is_empty() {
            if job.is_empty() {
                tracing::warn!("Slurm: {text}");
            } else {
                tracing::info!(job = format_args!("slurm job {job}"), "{text}");
            }
        }
        self.said.insert(job.to_owned(), text.to_owned());
    }

    /// Writes into the comment of a held job why it stays held, once.
    async fn comment(&mut self, job: &str, text: &str) {
        if self.noted.get(job).map_or("", String::as_str) == text {
            return;
        }
        self.noted.insert(job.to_owned(), text.to_owned());
        if let Err(error) = scontrol::note(job, text).await {
            tracing::warn!(job = format_args!("slurm job {job}"), "{error}");
        }
    }

    /// Forgets all but these jobs.
    fn keep_only(&mut self, jobs: &[JobRecord]) {
        let known: BTreeSet<&str> = jobs.iter().map(|record| record.job.as_str()).collect();
        self.said
            .retain(|job, _| job.is_empty() || known.contains(job.as_str()));
        self.noted.retain(|job, _| known.contains(job.as_str()));
        self.missing.retain(|job, _| known.contains(job.as_str()));
        self.asked.retain(|job, _| known.contains(job.as_str()));
    }
}

/// Single look at all jobs.
struct Look<'a> {
    desk: &'a Desk,
    states: States,
    /// Set if this look also checks the arrived data.
    checks: bool,
}

/// Attends to all of them until the service ends.
///
/// # Errors
/// The journal's.
pub(crate) async fn look_after_all(desk: Desk) -> Result<()> {
    let mut notes = Notes::default();
    for number in 0u32.. {
        let asked = desk.looks.next().await;
        let now = desk.centre.clock.now();
        let journal = &desk.centre.store;
        let jobs = journal.journal(|journal| journal.jobs_watched(JOBS_MAX))?;
        notes.asked.extend(asked.into_iter().map(|job| (job, now)));
        notes.keep_only(&jobs);
        notes.asked.retain(|_, since| now < *since + ASKED_LASTS);
        let look = Look {
            desk: &desk,
            states: states(&jobs, &mut notes).await,
            checks: number % LOOKS_PER_CHECK == 0,
        };
        for JobRecord { job, .. } in jobs {
            // A look at all jobs takes time, in which one may be registered again or forgotten.
            let record = journal.journal(|journal| journal.job(SLURM, &job))?;
            if let Some(record) = record {
                look.at_one(record, &mut notes).await;
            }
        }
    }
    Ok(())
}

/// Asks Slurm if a job has not ended.
async fn states(jobs: &[JobRecord], notes: &mut Notes) -> States {
    let has_ended = |record: &JobRecord| matches!(record.phase, JobPhase::Ended { .. });
    if jobs.iter().all(has_ended) {
        return None;
    }
    let asked = scontrol::states(Whose::OfService).await;
    let said = asked.as_ref().err().map(ToString::to_string);
    notes.say("", &said.unwrap_or_default());
    asked.ok()
}

impl Look<'_> {
    /// Looks at one job and logs its news. The next look retries after errors.
    async fn at_one(&self, record: JobRecord, notes: &mut Notes) {
        let job = record.job.clone();
        let is_held = matches!(record.hold, JobHold::Held | JobHold::Kept)
            && self.named(&job) == Some(JobState::Held);
        let said = self.at(record, notes).await;
        let said = said.unwrap_or_else(|refusal| Some(refusal.to_string()));
        let said = said.unwrap_or_default();
        if is_held {
            notes.comment(&job, &said).await;
        }
        notes.say(&job, &said);
    }

    /// Looks at one job and returns the message about it.
    async fn at(&self, record: JobRecord, notes: &mut Notes) -> Answer<Option<String>> {
        match record.phase {
            JobPhase::Gone => Ok(None),
            JobPhase::Ended { well, at } => self.at_ended(record, well, at),
            JobPhase::Registered | JobPhase::StagingIn => match record.hold {
                JobHold::None => Ok(None),
                JobHold::Held => self.at_held(record, notes).await,
                JobHold::Kept => self.at_kept(record, notes).await,
                JobHold::Released | JobHold::Holding | JobHold::Freed => {
                    self.at_released(record, notes).await
                }
            },
        }
    }

    /// Forgets a job once all its results are safe or can't leave, which is logged once.
    fn at_ended(&self, record: JobRecord, well: bool, at: Timestamp) -> Answer<Option<String>> {
        let asked = ended(self.desk, record.clone(), api::JobEnd { well });
        let is_over = match &asked {
            Ok(job) => job.safe || job.trouble.is_some(),
            Err(refusal) => !refusal.may_pass(),
        };
        if is_over || forget::is_too_old(at, self.now()) {
            remove(self.desk, record)?;
        }
        asked.map(|job| job.trouble)
    }

    /// Releases a job whose inputs are here.
    async fn at_held(&self, mut record: JobRecord, notes: &mut Notes) -> Answer<Option<String>> {
        let state = self.state(&record, notes);
        if state == Known::Standing(JobState::HeldByAdministrator)
            && !self.checks(&record.job, notes)
        {
            return Ok(None);
        }
        // A cancelled job needs no data, even data that can't come: the answer counts only for a
        // waiting job.
        let staged = stage_in(self.desk, record.clone());
        if record.phase == JobPhase::Registered {
            record.phase = JobPhase::StagingIn;
        }
        match state {
            Known::Not | Known::Standing(JobState::HeldByAdministrator) => Ok(staged?.trouble),
            Known::Standing(JobState::Held) => {
                let job = staged?;
                if job.ready {
                    scontrol::release(&record.job).await?;
                    record.hold = JobHold::Released;
                    self.keep(&record)?;
                }
                Ok(job.trouble)
            }
            // The service released it and could not record that, or another user released it to
            // start it in any case.
            Known::Standing(JobState::Waiting | JobState::Running) => {
                record.hold = if staged.is_ok_and(|job| job.ready) {
                    JobHold::Released
                } else {
                    JobHold::Freed
                };
                self.keep(&record).map(|()| None)
            }
            // A job that Slurm forgot while it was held has not run, as far as is known.
            Known::Standing(JobState::NeverBegan) | Known::Vanished => {
                Ok(remove(self.desk, record).map(|()| None)?)
            }
            Known::Standing(JobState::Ended { well }) => self.end(record, well),
        }
    }

    /// Notes the end of a job, and holds a job again if its inputs vanished before it began.
    async fn at_released(&self, record: JobRecord, notes: &mut Notes) -> Answer<Option<String>> {
        match self.state(&record, notes) {
            Known::Standing(state @ (JobState::Waiting | JobState::Held))
                if record.hold == JobHold::Holding
                    || record.hold == JobHold::Released && self.checks(&record.job, notes) =>
            {
                let is_ready = self.is_ready(&record);
                self.at_checked(record, state, is_ready).await
            }
            Known::Not
            | Known::Standing(
                JobState::Waiting
                | JobState::Held
                | JobState::HeldByAdministrator
                | JobState::Running,
            ) => Ok(None),
            Known::Standing(JobState::NeverBegan) => Ok(remove(self.desk, record).map(|()| None)?),
            Known::Standing(JobState::Ended { well }) => self.end(record, well),
            // The job has ended in an unknown way: its results are to be staged out.
            Known::Vanished => self.end(record, true),
        }
    }

    /// Holds a job whose inputs vanished before it began, and stages them in again. A job that its
    /// user holds gets only the stage-in.
    async fn at_checked(
        &self,
        mut record: JobRecord,
        state: JobState,
        is_ready: bool,
    ) -> Answer<Option<String>> {
        let is_held = state == JobState::Held;
        // A hold that the service did not set is the user's.
        let is_kept = is_held && record.hold == JobHold::Released;
        if is_ready {
            if record.hold == JobHold::Holding {
                record.hold = if is_held {
                    JobHold::Held
                } else {
                    JobHold::Released
                };
                self.keep(&record)?;
            }
            return Ok(None);
        }
        if !is_held {
            record.hold = JobHold::Holding;
            self.keep(&record)?;
            scontrol::hold(&record.job).await?;
        }
        // Registered anew, so that missing data is requested again.
        record.phase = JobPhase::StagingIn;
        record.round += 1;
        record.created = self.now();
        record.hold = if is_kept {
            JobHold::Kept
        } else {
            JobHold::Held
        };
        self.keep(&record)?;
        let then = if is_kept {
            "it comes again, and its user holds it"
        } else {
            "it is held again"
        };
        let why = "what was brought for it is gone or changed";
        Ok(Some(format!("{then}: {why}")))
    }

    /// Stages in the inputs of a job that its user holds, and leaves its release to the user.
    async fn at_kept(&self, mut record: JobRecord, notes: &mut Notes) -> Answer<Option<String>> {
        match self.state(&record, notes) {
            // The user released it: it is treated like any released job, and held if its data is
            // not complete.
            Known::Standing(state @ JobState::Waiting) => {
                let is_ready = self.is_ready(&record);
                record.hold = JobHold::Released;
                self.keep(&record)?;
                self.at_checked(record, state, is_ready).await
            }
            Known::Standing(JobState::Held | JobState::HeldByAdministrator) => {
                let job = stage_in(self.desk, record.clone())?;
                if job.ready {
                    record.hold = JobHold::Released;
                    self.keep(&record)?;
                }
                Ok(job.trouble)
            }
            Known::Not => Ok(None),
            // The job began or is gone: from here on it is like any released job.
            Known::Vanished | Known::Standing(_) => {
                record.hold = JobHold::Released;
                self.keep(&record).map(|()| None)
            }
        }
    }

    /// Returns whether all inputs of a job are here. Data that can't even be requested is not, for
    /// any reason.
    fn is_ready(&self, record: &JobRecord) -> bool {
        stage_in(self.desk, record.clone()).is_ok_and(|job| job.ready)
    }

    fn end(&self, record: JobRecord, well: bool) -> Answer<Option<String>> {
        let job = ended(self.desk, record, api::JobEnd { well })?;
        Ok(job.trouble)
    }

    fn keep(&self, record: &JobRecord) -> Answer<()> {
        let store = &self.desk.centre.store;
        Ok(store.journal(|journal| journal.keep_job(record))?)
    }

    fn now(&self) -> Timestamp {
        self.desk.centre.clock.now()
    }

    /// Returns whether this look checks a job's arrived data.
    fn checks(&self, job: &str, notes: &Notes) -> bool {
        self.checks || notes.asked.contains_key(job)
    }

    /// Returns the state of a job that Slurm lists.
    fn named(&self, job: &str) -> Option<JobState> {
        let number: u64 = job.parse().ok()?;
        self.states.as_ref()?.get(&number).copied()
    }

    /// Returns the state of a job, as far as Slurm reported it.
    fn state(&self, record: &JobRecord, notes: &mut Notes) -> Known {
        if self.states.is_none() {
            return Known::Not;
        }
        if let Some(state) = self.named(&record.job) {
            notes.missing.remove(&record.job);
            return Known::Standing(state);
        }
        let now = self.now();
        let since = *notes.missing.entry(record.job.clone()).or_insert(now);
        if now < since + MISSING_MAX {
            Known::Not
        } else {
            Known::Vanished
        }
    }
}

/// Known state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Not reported at this look.
    Not,
    /// State by Slurm.
    Standing(JobState),
    /// Forgotten by Slurm.
    Vanished,
}
