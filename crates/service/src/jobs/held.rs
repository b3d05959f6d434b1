//! Jobs that were submitted held, where Slurm has no burst buffer: they are released when their data is here, and looked
//! at until they have ended. All that counts is in the journal, so that it goes on after a crash.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use posthaste_api as api;
use posthaste_batch::slurm::JobState;
use posthaste_endpoint::Result;
use posthaste_journal::{JobHold, JobPhase, JobRecord};
use posthaste_types::Timestamp;

use super::{JOBS_MAX, ended, remove, scontrol, stage_in};
use crate::http::{Answer, Desk};

/// Between two looks; Slurm is asked once at each, about all jobs.
const LOOK_EVERY: Duration = Duration::from_secs(4);
/// What has arrived is looked at on scratch at every so many looks: that takes a look at each file.
const LOOKS_PER_CHECK: u32 = 15;
/// Slurm may not name a job for so long before it counts as forgotten: its controller may just have started.
const MISSING_MAX: Duration = Duration::from_secs(60);
/// What a job leaves is seen to for so long after its end: far longer than what can leave takes to be asked for.
const ENDED_MAX: Duration = Duration::from_secs(7 * 86_400);

/// How the jobs stand, where Slurm says it.
type States = Option<BTreeMap<u64, JobState>>;

/// What is known of jobs between two looks, and may be lost.
#[derive(Default)]
struct Notes {
    /// What was said last of each, so that it is said once.
    said: BTreeMap<String, String>,
    /// Since when Slurm has not named these.
    missing: BTreeMap<String, Timestamp>,
}

impl Notes {
    /// Says something of a job, or of Slurm where that is `""`; empty text is for all being well.
    fn say(&mut self, job: &str, text: String) {
        let before = self.said.get(job).map_or("", String::as_str);
        if before != text && !text.is_empty() {
            let subject = if job.is_empty() {
                "Slurm".to_owned()
            } else {
                format!("slurm job {job}")
            };
            eprintln!("posthaste: {subject}: {text}");
        }
        self.said.insert(job.to_owned(), text);
    }

    /// Forgets all but these jobs.
    fn keep_only(&mut self, jobs: &[JobRecord]) {
        let known: BTreeSet<&str> = jobs.iter().map(|record| record.job.as_str()).collect();
        self.said
            .retain(|job, _| job.is_empty() || known.contains(job.as_str()));
        self.missing.retain(|job, _| known.contains(job.as_str()));
    }
}

/// One look at all jobs.
struct Look<'a> {
    desk: &'a Desk,
    states: States,
    /// Whether what has arrived is looked at as well.
    checks: bool,
}

/// Looks after all of them until the service ends.
///
/// # Errors
/// The journal's.
pub(crate) async fn look_after_all(desk: Desk) -> Result<()> {
    let mut notes = Notes::default();
    for number in 0u32.. {
        tokio::time::sleep(LOOK_EVERY).await;
        let journal = &desk.centre.store;
        let jobs = journal.journal(|journal| journal.jobs_watched(JOBS_MAX))?;
        notes.keep_only(&jobs);
        let look = Look {
            desk: &desk,
            states: states(&jobs, &mut notes).await,
            checks: number % LOOKS_PER_CHECK == 0,
        };
        for record in jobs {
            let job = record.job.clone();
            // What goes wrong with one is tried again at the next look.
            let said = look.at(record, &mut notes).await;
            let said = said.unwrap_or_else(|refusal| Some(refusal.to_string()));
            notes.say(&job, said.unwrap_or_default());
        }
    }
    Ok(())
}

/// Asks Slurm, where there is a job that has not ended.
async fn states(jobs: &[JobRecord], notes: &mut Notes) -> States {
    let has_ended = |record: &JobRecord| matches!(record.phase, JobPhase::Ended { .. });
    if jobs.iter().all(has_ended) {
        return None;
    }
    let asked = scontrol::states().await;
    let said = asked.as_ref().err().map(ToString::to_string);
    notes.say("", said.unwrap_or_default());
    asked.ok()
}

impl Look<'_> {
    /// Looks at one job; what is to be said of it.
    async fn at(&self, record: JobRecord, notes: &mut Notes) -> Answer<Option<String>> {
        match record.phase {
            JobPhase::Gone => Ok(None),
            JobPhase::Ended { well, at } => self.at_ended(record, well, at),
            JobPhase::Registered | JobPhase::StagingIn => match record.hold {
                JobHold::None => Ok(None),
                JobHold::Held => self.at_held(record, notes).await,
                JobHold::Released | JobHold::Freed => self.at_released(record, notes).await,
            },
        }
    }

    /// Forgets a job once all that it leaves is safe, or can't leave: that is said once.
    fn at_ended(&self, record: JobRecord, well: bool, at: Timestamp) -> Answer<Option<String>> {
        let asked = ended(self.desk, record.clone(), api::JobEnd { well });
        let is_over = match &asked {
            Ok(job) => job.safe || job.trouble.is_some(),
            Err(refusal) => !refusal.may_pass(),
        };
        if is_over || self.now() >= at + ENDED_MAX {
            remove(self.desk, record)?;
        }
        asked.map(|job| job.trouble)
    }

    /// Releases a job whose data is here.
    async fn at_held(&self, mut record: JobRecord, notes: &mut Notes) -> Answer<Option<String>> {
        let state = self.state(&record, notes);
        if state == Known::Standing(JobState::HeldByAdministrator) && !self.checks {
            return Ok(None);
        }
        // A job that was cancelled needs no data, also where that can't come: the answer counts only for one that waits.
        let staged = stage_in(self.desk, record.clone());
        if record.phase == JobPhase::Registered {
            record.phase = JobPhase::StagingIn;
        }
        match state {
            Known::Not | Known::Standing(JobState::HeldByAdministrator) => Ok(trouble(&staged?)),
            Known::Standing(JobState::Held) => {
                let job = staged?;
                if job.ready {
                    scontrol::release(&record.job).await?;
                    record.hold = JobHold::Released;
                    self.keep(&record)?;
                }
                Ok(trouble(&job))
            }
            // We released it and had no time to note it, or somebody else did, who wants it to start in any case.
            Known::Standing(JobState::Waiting | JobState::Running) => {
                record.hold = if staged.is_ok_and(|job| job.ready) {
                    JobHold::Released
                } else {
                    JobHold::Freed
                };
                self.keep(&record).map(|()| None)
            }
            // One that Slurm forgot while it was held has not run, as far as anybody knows.
            Known::Standing(JobState::NeverBegan) | Known::Vanished => {
                Ok(remove(self.desk, record).map(|()| None)?)
            }
            Known::Standing(JobState::Ended { well }) => self.end(record, well),
        }
    }

    /// Sees when a job ends, and holds one again whose data went before it began.
    async fn at_released(
        &self,
        mut record: JobRecord,
        notes: &mut Notes,
    ) -> Answer<Option<String>> {
        match self.state(&record, notes) {
            // Held, it may be that we had no time to note that: then its data is missing as well.
            Known::Standing(state @ (JobState::Waiting | JobState::Held))
                if self.checks && record.hold == JobHold::Released =>
            {
                if stage_in(self.desk, record.clone()).is_ok_and(|job| job.ready) {
                    return Ok(None);
                }
                if state == JobState::Waiting {
                    scontrol::hold(&record.job).await?;
                }
                // It is told of anew, so that what is missing is asked for again.
                record.phase = JobPhase::StagingIn;
                record.round += 1;
                record.created = self.now();
                record.hold = JobHold::Held;
                self.keep(&record)?;
                Ok(Some(
                    "it is held again: what was brought for it is gone or changed".into(),
                ))
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
            // It has ended, and nobody knows how: what it left is to leave.
            Known::Vanished => self.end(record, true),
        }
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

    /// How a job stands, as far as Slurm said it.
    fn state(&self, record: &JobRecord, notes: &mut Notes) -> Known {
        let Some(states) = &self.states else {
            return Known::Not;
        };
        let number = record.job.parse().ok();
        if let Some(state) = number.and_then(|number: u64| states.get(&number)) {
            notes.missing.remove(&record.job);
            return Known::Standing(*state);
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

/// What is known of how a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Nothing, at this look.
    Not,
    /// Slurm says it.
    Standing(JobState),
    /// Slurm has forgotten it.
    Vanished,
}

/// Why a job stays held.
fn trouble(job: &api::Job) -> Option<String> {
    let trouble = job.trouble.as_ref()?;
    Some(format!("it stays held: {trouble}"))
}
