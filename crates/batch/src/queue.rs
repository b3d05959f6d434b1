//! A queue as any batch system shows it: what runs, what waits, and what it thinks of when that starts.

use std::time::Duration;

use posthaste_types::Timestamp;

/// Jobs of one answer that are taken; more than the largest centres let into a queue.
pub(crate) const JOBS_MAX: usize = 200_000;
/// Bytes of the name of a job or a user; longer ones are nobody's.
const NAME_BYTES_MAX: usize = 128;

/// A program that asks a batch system something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Its name, which is looked for in `PATH`.
    pub program: &'static str,
    /// Its arguments.
    pub arguments: &'static [&'static str],
    /// An environment variable that it needs, with its value.
    pub environment: (&'static str, &'static str),
}

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It waits, and starts once there is room.
    Waiting,
    /// It waits for something else: a hold, a time, another job.
    Held,
    /// It has its processors.
    Running,
    /// It started and is over.
    Over,
    /// It ended before it started.
    Cancelled,
}

/// A job of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its id, as a person would type it.
    pub id: String,
    /// What hooks may know it by beside its id: Slurm's number of a job of an array, which those share that Slurm has not made
    /// jobs of their own yet; in PBS the array.
    pub number: Option<String>,
    /// Whether it waits for other jobs to end, whatever else holds it.
    pub is_dependent: bool,
    /// Whose it is: a name, or a number where no name is told.
    pub user: String,
    /// Where it is.
    pub state: State,
    /// Why it waits, in the words of the batch system.
    pub reason: String,
    /// Processors.
    pub procs: u32,
    /// The longest it may run; none where nothing bounds it.
    pub walltime: Option<Duration>,
    /// Higher ones start first.
    pub priority: u64,
    /// When it was submitted.
    pub submitted: Option<Timestamp>,
    /// When it started; of one that waits, when the batch system thinks that it will.
    pub start: Option<Timestamp>,
    /// When it ended; of one that runs, when it must have.
    pub end: Option<Timestamp>,
}

/// The jobs of one answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Queue {
    /// The jobs, as they were listed.
    pub jobs: Vec<Job>,
    /// Jobs that made no sense, or were too many.
    pub left_out: usize,
}

/// Why an answer is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// What was read.
    pub(crate) what: &'static str,
    /// What is wrong with it, in one line.
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
        // Parsers quote what they read, whatever it is.
        let why = why.escape_debug().to_string();
        Self { what, why }
    }
}

impl Queue {
    /// Takes a job, or counts it where it makes no sense.
    pub(crate) fn take(&mut self, job: Option<Job>) {
        match job {
            Some(job) if self.jobs.len() < JOBS_MAX && job.has_sense() => self.jobs.push(job),
            Some(_) | None => self.leave_out(1),
        }
    }

    /// Counts jobs for which there is no room.
    pub(crate) fn leave_out(&mut self, jobs: usize) {
        self.left_out = self.left_out.saturating_add(jobs);
    }

    /// What waits for room, first in priority first; of the same priority, first submitted first; of the same second, by number.
    #[must_use]
    pub fn waiting(&self) -> Vec<&Job> {
        let waiting = self.jobs.iter().filter(|job| job.state == State::Waiting);
        let mut waiting: Vec<&Job> = waiting.collect();
        waiting.sort_by_key(|job| (std::cmp::Reverse(job.priority), job.submitted, job.order()));
        waiting
    }

    /// What runs.
    pub fn running(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter().filter(|job| job.state == State::Running)
    }
}

impl Job {
    /// When it started; none of one that waits, whatever is thought of when it will.
    #[must_use]
    pub fn started(&self) -> Option<Timestamp> {
        match self.state {
            State::Running | State::Over => self.start,
            State::Waiting | State::Held | State::Cancelled => None,
        }
    }

    /// The number that its id begins with, which batch systems count up.
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
