//! Bounds from the waits of similar jobs: an upper and a lower one, after BMBP and QBETS.

use alloc::collections::BTreeMap;
use core::time::Duration;
use posthaste_types::Timestamp;

use super::history::History;

/// Class borders by processors, each the most of its class.
const PROCS: [u32; 4] = [4, 16, 64, 256];

/// Class borders by requested time, in hours.
const HOURS: [u64; 3] = [1, 6, 24];

/// Most waiting jobs that are followed: many times what a centre admits to its queue. Further ones
/// count only when they start.
const WAITING_MAX: usize = 100_000;

/// Resources that a job requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Processors.
    pub procs: u32,
    /// Requested time.
    pub walltime: Duration,
}

/// Bounds of a job's wait, each with 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Wait below which 5 % of the jobs start.
    pub lower: Duration,
    /// Wait within which 95 % of the jobs start.
    pub upper: Duration,
}

/// A class of jobs; a wider one if requested time or processors are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Class {
    procs: Option<usize>,
    hours: Option<usize>,
}

impl Shape {
    /// Returns its class and the wider ones, narrowest first.
    fn classes(self) -> [Class; 3] {
        let procs = PROCS.partition_point(|most| *most < self.procs);
        let hours = HOURS.partition_point(|most| Duration::from_secs(most * 3600) < self.walltime);
        let class = |procs, hours| Class { procs, hours };
        [
            class(Some(procs), Some(hours)),
            class(Some(procs), None),
            class(None, None),
        ]
    }
}

/// A waiting job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waiting {
    shape: Shape,
    since: Timestamp,
    /// Upper bound reported for it, and the class that gave it.
    told: Option<(Class, Duration)>,
    /// Wait so far when it counted as longer than its bound.
    counted: Option<Duration>,
}

/// Waits of jobs by class, and the waiting jobs.
///
/// A job enters its class when it starts. A job that already exceeded its bound enters with its
/// wait so far, so that a stopped queue is learnt while it stands and not after.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Waits {
    histories: BTreeMap<Class, History>,
    waiting: BTreeMap<u64, Waiting>,
    keeps: bool,
}

impl Waits {
    /// Returns waits that never forget when the queue changes, to compare trimming with.
    #[must_use]
    pub fn untrimmed() -> Self {
        Self {
            keeps: true,
            ..Self::default()
        }
    }

    fn history(&mut self, class: Class) -> &mut History {
        let keeps = self.keeps;
        self.histories.entry(class).or_insert_with(|| {
            if keeps {
                History::keeping()
            } else {
                History::default()
            }
        })
    }

    /// Returns bounds of the wait of a job like this, from the narrowest class that knows 59 waits;
    /// none before that.
    #[must_use]
    pub fn bounds(&self, shape: Shape) -> Option<Bounds> {
        self.bounds_of(shape).map(|(_, bounds)| bounds)
    }

    /// Returns the bounds and the class they come from.
    fn bounds_of(&self, shape: Shape) -> Option<(Class, Bounds)> {
        shape.classes().into_iter().find_map(|class| {
            let (lower, upper) = self.histories.get(&class).and_then(History::bounds)?;
            Some((class, Bounds { lower, upper }))
        })
    }

    /// Records the submission of a job.
    pub fn on_submit(&mut self, job: u64, shape: Shape, now: Timestamp) {
        if self.waiting.len() < WAITING_MAX {
            let waiting = Waiting {
                shape,
                since: now,
                told: self
                    .bounds_of(shape)
                    .map(|(class, bounds)| (class, bounds.upper)),
                counted: None,
            };
            self.waiting.insert(job, waiting);
        }
    }

    /// Records the start of a job: its wait is known.
    pub fn on_start(&mut self, job: u64, now: Timestamp) {
        let Some(waiting) = self.waiting.remove(&job) else {
            return;
        };
        let wait = now.since(waiting.since);
        if let Some((class, upper)) = waiting.told {
            self.history(class).judge(wait > upper);
        }
        for class in waiting.shape.classes() {
            let history = self.history(class);
            match waiting.counted {
                Some(before) => history.replace(before, wait),
                None => history.take(wait),
            }
        }
    }

    /// Records that a job left the queue without a start: its wait stays unknown.
    pub fn on_cancel(&mut self, job: u64) {
        self.waiting.remove(&job);
    }

    /// Counts the jobs that by now have waited longer than their bound. O(waiting jobs).
    pub fn review(&mut self, now: Timestamp) {
        let late = self.waiting.iter().filter_map(|(job, waiting)| {
            let wait = now.since(waiting.since);
            let is_late = self.bounds(waiting.shape)?.upper < wait;
            (is_late && waiting.counted.is_none()).then_some((*job, waiting.shape, wait))
        });
        let late: alloc::vec::Vec<_> = late.collect();
        for (job, shape, wait) in late {
            for class in shape.classes() {
                self.history(class).take(wait);
            }
            if let Some(waiting) = self.waiting.get_mut(&job) {
                waiting.counted = Some(wait);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Shape = Shape {
        procs: 1,
        walltime: Duration::from_secs(600),
    };
    const LARGE: Shape = Shape {
        procs: 512,
        walltime: Duration::from_secs(86_401),
    };

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn served(waits: &mut Waits, shape: Shape, count: u64, wait: u64) {
        for job in 0..count {
            waits.on_submit(job, shape, at(1000));
            waits.on_start(job, at(1000 + wait));
        }
    }

    #[test]
    fn a_class_speaks_for_itself_once_it_knows_59_and_the_pool_before() {
        let mut waits = Waits::default();
        served(&mut waits, SMALL, 59, 10);
        assert_eq!(waits.bounds(LARGE).unwrap().upper, Duration::from_secs(10));
        served(&mut waits, LARGE, 59, 5000);
        assert_eq!(
            waits.bounds(LARGE).unwrap().lower,
            Duration::from_secs(5000)
        );
        assert_eq!(waits.bounds(SMALL).unwrap().upper, Duration::from_secs(10));
    }

    #[test]
    fn a_queue_that_stands_is_learned_while_it_stands() {
        let mut waits = Waits::default();
        served(&mut waits, SMALL, 200, 10);
        (900..903).for_each(|job| waits.on_submit(job, SMALL, at(2000)));
        waits.review(at(2010));
        assert_eq!(waits.bounds(SMALL).unwrap().upper, Duration::from_secs(10));
        waits.review(at(5000));
        assert_eq!(
            waits.bounds(SMALL).unwrap().upper,
            Duration::from_secs(3000)
        );
        let before = waits.bounds(SMALL);
        waits.review(at(5001));
        assert_eq!(waits.bounds(SMALL), before);
        (900..903).for_each(|job| waits.on_start(job, at(8000)));
        assert_eq!(
            waits.bounds(SMALL).unwrap().upper,
            Duration::from_secs(6000)
        );
    }

    #[test]
    fn a_change_of_the_queue_moves_the_bound_only_where_the_past_is_forgotten() {
        for (mut waits, upper) in [(Waits::default(), 900), (Waits::untrimmed(), 10)] {
            served(&mut waits, SMALL, 500, 10);
            served(&mut waits, SMALL, 4, 900);
            let found = waits.bounds(SMALL).unwrap().upper;
            assert_eq!(found, Duration::from_secs(upper));
        }
    }

    #[test]
    fn while_too_many_waited_longer_than_told_the_longest_wait_is_told() {
        let mut waits = Waits::default();
        let mut now = 1000;
        let mut serve = |waits: &mut Waits, count: u64, wait: u64| {
            (0..count).for_each(|job| waits.on_submit(job, SMALL, at(now)));
            (0..count).for_each(|job| waits.on_start(job, at(now + wait)));
            now += 10_000;
        };
        let upper = |waits: &Waits| waits.bounds(SMALL).unwrap().upper.as_secs();
        serve(&mut waits, 1, 500);
        serve(&mut waits, 1000, 10);
        assert_eq!(upper(&waits), 10);
        // Simultaneous jobs get the same bound, and all wait longer: a hundred of 1,000.
        (0..999).for_each(|_| serve(&mut waits, 1, 10));
        serve(&mut waits, 100, 100);
        serve(&mut waits, 59, 10);
        assert_eq!(upper(&waits), 100, "the longest since the queue changed");
        // For each job that waited longer, 19 that did not, and enough that the former are few.
        serve(&mut waits, 100 * 50, 10);
        assert_eq!(upper(&waits), 10);
    }

    #[test]
    fn a_cancelled_job_teaches_nothing() {
        let mut waits = Waits::default();
        served(&mut waits, SMALL, 58, 10);
        waits.on_submit(99, SMALL, at(0));
        waits.on_cancel(99);
        waits.on_start(99, at(50));
        assert_eq!(waits.bounds(SMALL), None);
    }
}
