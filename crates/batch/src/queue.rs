//! Queue of any batch system: jobs that run, jobs that wait, and their expected starts.

use std::time::Duration;

use posthaste_types::Timestamp;

/// Most jobs accepted from one answer; the largest centres allow fewer in a queue.
pub(crate) const JOBS_MAX: usize = 200_000;
/// Longest name of a job or a user, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// Program that queries a batch system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Name of the program, which is looked up in `PATH`.
    pub program: &'static str,
    /// Arguments of the program.
    pub arguments: &'static [&'static str],
    /// Environment variable that the program needs, and its value.
    pub environment: (&'static str, &'static str),
}

/// State of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Job that waits for free processors.
    Waiting,
    /// Job that waits for something else: a hold, a time, another job.
    Held,
    /// Job that has its processors.
    Running,
    /// Job that started and has ended.
    Over,
    /// Job that ended before it started.
    Cancelled,
}

/// Job of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Id as a person would type it.
    pub id: String,
    /// Second name by which hooks may know the job. In Slurm, the number of a job of an array; jobs
    /// that Slurm has not split off the array yet share one. In PBS, the array.
    pub number: Option<String>,
    /// True if the job waits for other jobs to end, whatever else holds it.
    pub is_dependent: bool,
    /// Name of the user, or the number if there is no name.
    pub user: String,
    /// State of the job.
    pub state: State,
    /// Reason for waiting, in the words of the batch system.
    pub reason: String,
    /// Number of processors.
    pub procs: u32,
    /// Longest run time; `None` if nothing bounds it.
    pub walltime: Option<Duration>,
    /// Priority; higher ones start first.
    pub priority: u64,
    /// Time of submission.
    pub submitted: Option<Timestamp>,
    /// Start time; for a waiting job, the start that the batch system expects.
    pub start: Option<Timestamp>,
    /// End time; for a running job, its latest end.
    pub end: Option<Timestamp>,
}

/// Jobs of one answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Queue {
    /// Jobs as listed.
    pub jobs: Vec<Job>,
    /// Number of jobs that were invalid or too many.
    pub left_out: usize,
}

/// Reason why an answer can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Name of the answer.
    pub(crate) what: &'static str,
    /// Description of the problem, in one line.
    pub(crate) why: String,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "can't read {}: {}", self.what, self.why)
    }
}

impl std::error::Error for Unreadable {}

impl Unreadable {
    pub(crate) fn new(what: &'static str, why: &str) -> Self {
        // Parsers quote their input, whatever it is.
        let why = why.escape_debug().to_string();
        Self { what, why }
    }
}

impl Queue {
    /// Adds a job, or counts it if it is invalid.
    pub(crate) fn take(&mut self, job: Option<Job>) {
        match job {
            Some(job) if self.jobs.len() < JOBS_MAX && job.has_sense() => self.jobs.push(job),
            Some(_) | None => self.leave_out(1),
        }
    }

    /// Counts jobs for which there is no space.
    pub(crate) fn leave_out(&mut self, jobs: usize) {
        self.left_out = self.left_out.saturating_add(jobs);
    }

    /// Returns the jobs that wait for processors, in order of priority, then of submission, then of
    /// number.
    #[must_use]
    pub fn waiting(&self) -> Vec<&Job> {
        let waiting = self.jobs.iter().filter(|job| job.state == State::Waiting);
        let mut waiting: Vec<&Job> = waiting.collect();
        waiting.sort_by_key(|job| (std::cmp::Reverse(job.priority), job.submitted, job.order()));
        waiting
    }

    /// Returns the running jobs.
    pub fn running(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter().filter(|job| job.state == State::Running)
    }
}

impl Job {
    /// Returns the start time; `None` for a waiting job, even with an expected start.
    #[must_use]
    pub fn started(&self) -> Option<Timestamp> {
        match self.state {
            State::Running | State::Over => self.start,
            State::Waiting | State::Held | State::Cancelled => None,
        }
    }

    /// Returns the number at the beginning of the id, which batch systems count up.
    fn order(&self) -> Option<u64> {
        let end = self.id.find(|letter: char| !letter.is_ascii_digit());
        self.id[..end.unwrap_or(self.id.len())].parse().ok()
    }

    fn has_sense(&self) -> bool {
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= NAME_BYTES_MAX
                && !name.contains(|letter: char| letter.is_control() || letter.is_whitespace())
        };
        is_name(&self.id) && is_name(&self.user) && self.procs > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: &str, state: State, priority: u64) -> Job {
        Job {
            id: id.into(),
            number: None,
            is_dependent: false,
            user: "alice".into(),
            state,
            reason: String::new(),
            procs: 1,
            walltime: None,
            priority,
            submitted: None,
            start: None,
            end: None,
        }
    }

    #[test]
    fn what_waits_is_in_the_order_in_which_it_may_start() {
        let mut queue = Queue::default();
        for (id, state, priority) in [
            ("1", State::Waiting, 5),
            ("2", State::Held, 9),
            ("3", State::Waiting, 7),
            ("4", State::Running, 1),
            ("10_1", State::Waiting, 5),
            ("9[1].pbs", State::Waiting, 5),
        ] {
            queue.take(Some(job(id, state, priority)));
        }
        let ids: Vec<&str> = queue.waiting().iter().map(|job| job.id.as_str()).collect();
        assert_eq!(ids, ["3", "1", "9[1].pbs", "10_1"]);
        assert_eq!(queue.running().count(), 1);
    }

    #[test]
    fn jobs_without_sense_are_counted_and_left_out() {
        let mut queue = Queue::default();
        queue.take(None);
        queue.take(Some(job("a\nb", State::Waiting, 1)));
        let idle = Job {
            procs: 0,
            ..job("5", State::Waiting, 1)
        };
        queue.take(Some(idle));
        assert_eq!((queue.jobs.len(), queue.left_out), (0, 3));
    }
}
