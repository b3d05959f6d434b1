//! Watches the batch system's queue, forecasts it, and scores the forecasts as jobs start.

mod ask;
mod book;

use std::{
    str::FromStr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use posthaste_api as api;
use posthaste_endpoint::Result;
use posthaste_journal::JobRecord;
use posthaste_types::Timestamp;
use tokio::sync::Notify;

use crate::{driver::Centre, jobs::timing, render, slurmrestd::Slurmrestd};
use book::{Book, Forecast};

/// Interval between two looks: a large centre's scheduler answers many callers, each in a second or
/// so.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Shortest time between looks, also when jobs register: a burst of them costs one look.
const LOOK_LEAST: Duration = Duration::from_secs(5);

/// Just-in-time data should arrive this long before the p10 start of such jobs, as measured
/// (docs/algorithms/queue-wait.md, closed loop).
const AHEAD: Duration = Duration::from_secs(60);
/// Data that is wanted sooner than this is not delayed.
const NEAR: Duration = Duration::from_secs(60);
/// Delay of the data of a job that came since the last look: nothing is known of it before the next
/// look, which comes much sooner if Slurm answers.
const UNSEEN: Duration = Duration::from_secs(120);
/// Delay of the data of a job that waits for other jobs to end, whose end is unknown.
const DEPENDENT: Duration = Duration::from_secs(12 * 3600);

/// Batch system whose queue is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduler {
    /// Slurm, asked by `squeue`, `sinfo` and `sacct`, or through slurmrestd.
    Slurm,
    /// PBS, asked by `qstat` and `pbsnodes`.
    Pbs,
}

impl FromStr for Scheduler {
    type Err = String;

    fn from_str(name: &str) -> core::result::Result<Self, String> {
        match name {
            "slurm" => Ok(Self::Slurm),
            "pbs" => Ok(Self::Pbs),
            _ => Err(format!(
                "`{name}` is no queue that can be looked at: slurm and pbs are"
            )),
        }
    }
}

impl Scheduler {
    fn name(self) -> &'static str {
        match self {
            Self::Slurm => "slurm",
            Self::Pbs => "pbs",
        }
    }
}

/// Source of a queue.
pub(crate) enum Asked {
    /// Programs of a batch system.
    Programs(Scheduler),
    /// Slurm, without its programs.
    Slurmrestd(Arc<Slurmrestd>),
}

impl Asked {
    /// Returns the shortest time between two looks: slurmrestd's answers are large, so a registered
    /// job causes none.
    fn rest_least(&self) -> Duration {
        match self {
            Self::Programs(_) => LOOK_LEAST,
            Self::Slurmrestd(_) => LOOK_EVERY,
        }
    }

    pub(crate) fn of(scheduler: Scheduler, slurmrestd: Option<Arc<Slurmrestd>>) -> Self {
        match (scheduler, slurmrestd) {
            (Scheduler::Slurm, Some(slurmrestd)) => Self::Slurmrestd(slurmrestd),
            (scheduler, _) => Self::Programs(scheduler),
        }
    }

    fn scheduler(&self) -> Scheduler {
        match self {
            Self::Programs(scheduler) => *scheduler,
            Self::Slurmrestd(_) => Scheduler::Slurm,
        }
    }
}

/// Watched queue with its known state.
pub(crate) struct Outlook {
    asked: Asked,
    /// Set if jobs' data arrives just before they start.
    is_just_in_time: AtomicBool,
    known: Mutex<Known>,
    told: Notify,
}

#[derive(Default)]
struct Known {
    book: Book,
    procs: u32,
    left_out: u64,
    /// Time at which the known queue was requested, and at which it arrived.
    asked: Option<Timestamp>,
    looked: Option<Timestamp>,
    trouble: Option<String>,
    /// Number of jobs learned from the accounting, and the reason if none.
    history_jobs: u32,
    history_trouble: Option<String>,
}

impl Outlook {
    pub(crate) fn new(asked: Asked, is_just_in_time: bool) -> Self {
        Self {
            asked,
            is_just_in_time: AtomicBool::new(is_just_in_time),
            known: Mutex::default(),
            told: Notify::new(),
        }
    }

    /// Returns the batch system's name.
    fn name(&self) -> &'static str {
        self.asked.scheduler().name()
    }

    fn is_just_in_time(&self) -> bool {
        self.is_just_in_time.load(Relaxed)
    }

    /// Sets whether jobs' data comes just before they start, or at once.
    pub(crate) fn time(&self, is_just_in_time: bool) {
        self.is_just_in_time.store(is_just_in_time, Relaxed);
    }

    /// Requests a look soon: a job came, ended or went.
    pub(crate) fn tell(&self) {
        self.told.notify_one();
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when a job's data should arrive if it comes just in time; none if it is wanted at
    /// once: the job may start soon, or has no forecast.
    pub(crate) fn wanted_at(&self, record: &JobRecord, now: Timestamp) -> Option<Timestamp> {
        if !self.is_just_in_time() || record.scheduler != self.name() {
            return None;
        }
        let known = self.known();
        if known.asked.is_none_or(|asked| asked < record.created) {
            return Some(now + UNSEEN);
        }
        if known.book.waits_for_others(&record.job) {
            return Some(now + DEPENDENT);
        }
        let at = known.book.soonest(&record.job)? - AHEAD;
        (at > now + NEAR).then_some(at)
    }

    /// Returns the known queue for the API, to a caller that may see the jobs of these users.
    pub(crate) fn show(&self, sees: impl Fn(&str) -> bool) -> api::Queue {
        let known = self.known();
        let forecasts = known.book.forecasts.iter();
        let (shown, others): (Vec<_>, Vec<_>) = forecasts.partition(|one| sees(&one.user));
        let scores = known.book.scores.iter().map(|(by, score)| api::QueueScore {
            forecaster: by.name().to_owned(),
            scored: score.count(),
            within: score.within(),
            mean_error_s: score.mean_error().map(|error| error.as_secs()),
        });
        api::Queue {
            scheduler: self.name().to_owned(),
            looked: known.looked.map(render::moment),
            trouble: known.trouble.clone(),
            procs: known.procs,
            jobs: shown.into_iter().map(show_job).collect(),
            jobs_of_others: u32::try_from(others.len()).unwrap_or(u32::MAX),
            left_out: known.left_out,
            scores: scores.collect(),
            history_jobs: known.history_jobs,
            history_trouble: known.history_trouble.clone(),
        }
    }
}

fn show_job(one: &Forecast) -> api::QueuedJob {
    api::QueuedJob {
        job: one.job.clone(),
        user: one.user.clone(),
        procs: one.procs,
        start_p10: render::moment(one.starts.p10),
        start_p50: render::moment(one.starts.p50),
        start_p90: render::moment(one.starts.p90),
        forecaster: one.by.name().to_owned(),
        start_bound: one.bound.map(render::moment),
        start_scheduler: one.scheduler.map(render::moment),
    }
}

/// Looks at the queue repeatedly.
///
/// # Errors
/// The journal's: other errors are shown to callers, and the look is repeated.
pub(crate) async fn look_on(centre: Arc<Centre>, outlook: Arc<Outlook>) -> Result<()> {
    let outcomes = centre.store.journal(|journal| journal.outcomes())?;
    tokio::task::block_in_place(|| outlook.known().book = Book::restore(&outcomes));
    drop(outcomes);
    let (mut has_learned, mut has_looked) = (false, false);
    loop {
        // An error that hides the queue may hide its past too. After a first look much is known
        // that the past would replace.
        if !has_learned && !has_looked {
            has_learned = learn_history(&outlook).await;
        }
        let is_there = look(&centre, &outlook).await?;
        if is_there && outlook.is_just_in_time() {
            timing::retime(&centre, &outlook).await?;
        }
        has_looked |= is_there;
        let least = outlook.asked.rest_least();
        tokio::time::sleep(least).await;
        let rest = LOOK_EVERY.saturating_sub(least);
        let _ = tokio::time::timeout(rest, outlook.told.notified()).await;
    }
}

/// Learns from the accounting how long jobs waited before; many centres have none. Returns whether
/// there was an answer.
async fn learn_history(outlook: &Outlook) -> bool {
    let answer = ask::history(&outlook.asked).await;
    tokio::task::block_in_place(|| {
        let mut known = outlook.known();
        match answer {
            Ok(history) => {
                known.history_jobs = known.book.learn(&history);
                known.history_trouble = None;
                true
            }
            Err(error) => {
                known.history_trouble = Some(error.to_string());
                false
            }
        }
    })
}

/// Looks once. Returns whether there was an answer.
async fn look(centre: &Centre, outlook: &Outlook) -> Result<bool> {
    let asked = centre.clock.now();
    let (queue, procs) = match ask::queue(&outlook.asked).await {
        Ok(answer) => answer,
        Err(error) => {
            let said = error.to_string();
            let before = outlook.known().trouble.replace(said.clone());
            if before.as_ref() != Some(&said) {
                tracing::warn!("the queue can't be looked at: {said}");
            }
            return Ok(false);
        }
    };
    tokio::task::block_in_place(|| {
        let outcomes = {
            let now = centre.clock.now();
            let mut known = outlook.known();
            (known.procs, known.asked, known.looked) = (procs, Some(asked), Some(now));
            known.left_out = queue.left_out as u64;
            known.trouble = None;
            let name = outlook.name();
            let data_of = |job: &str| timing::data_of(centre, name, job);
            known.book.on_look(&queue, procs, now, data_of)?
        };
        if !outcomes.is_empty() {
            centre
                .store
                .journal(|journal| journal.keep_outcomes(&outcomes))?;
        }
        Ok(true)
    })
}
