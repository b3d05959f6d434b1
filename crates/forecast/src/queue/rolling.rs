//! Simulation of the live queue: the start of each job if no other is submitted before it.

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_types::Timestamp;

use super::bound::Shape;

/// Most queued jobs that are placed: those after them have no forecast. A centre's own backfill
/// looks as far.
pub const DEPTH_MAX: usize = 500;

/// Assumed further run time of a job that outlived its forecast.
const OVERRUN: Duration = Duration::from_secs(60);

/// Thousandths in one.
const ONE: u32 = 1000;

/// Time between the end of staging and the start to aim at.
const GUARD: Duration = Duration::from_secs(60);

/// A running job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running {
    /// Resources it requested.
    pub shape: Shape,
    /// Start of the job.
    pub since: Timestamp,
}

/// A waiting job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    /// Number of the job.
    pub job: u64,
    /// Resources it requests.
    pub shape: Shape,
}

/// A machine and its queue at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site<'a> {
    /// Processors of the machine.
    pub procs: u32,
    /// Running jobs.
    pub running: &'a [Running],
    /// Waiting jobs, highest priority first.
    pub queue: &'a [Queued],
    /// Quantiles .1, .5, .9 of the share of its requested time that a job uses, in thousandths.
    pub used_permille: [u32; 3],
}

/// Forecast start of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Starts {
    /// Number of the job.
    pub job: u64,
    /// Start if jobs are as short as the shortest tenth.
    pub p10: Timestamp,
    /// Start with jobs as usual.
    pub p50: Timestamp,
    /// Start if jobs are as long as the longest tenth.
    pub p90: Timestamp,
}

/// Time at which staging must begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Begin now.
    Now,
    /// Begin then, unless the forecast moves.
    At(Timestamp),
    /// Not now: ask again when the queue has changed, or the hour.
    Later,
}

impl Wake {
    /// Returns when to begin staging that takes `lead` for a job that starts at `start`: `start -
    /// lead - guard`, or at once if that is past.
    #[must_use]
    pub fn before(start: Timestamp, lead: Duration, now: Timestamp) -> Self {
        let ahead = start.since(now).saturating_sub(lead.saturating_add(GUARD));
        if ahead.is_zero() {
            Self::Now
        } else {
            Self::At(now + ahead)
        }
    }
}

/// Forecasts the starts of the first 500 queued jobs by conservative backfill, once with each
/// quantile of the time that jobs use.
///
/// Each job takes the earliest gap that delays none before it. Jobs that request more than the
/// machine has are left out. O(depth (depth + running)).
#[must_use]
pub fn starts(site: &Site<'_>, now: Timestamp) -> Vec<Starts> {
    let middle = place(site, site.used_permille[1], now);
    let beside = |used| {
        if used == site.used_permille[1] {
            middle.clone()
        } else {
            place(site, used, now)
        }
    };
    let (low, high) = (beside(site.used_permille[0]), beside(site.used_permille[2]));
    let rows = low.iter().zip(&middle).zip(&high);
    rows.map(|((&(job, low), &(_, middle)), &(_, high))| {
        // Shorter jobs can delay one that longer ones would have let into a gap: sort the three.
        let mut found = [low, middle, high];
        found.sort_unstable();
        let [p10, p50, p90] = found;
        Starts { job, p10, p50, p90 }
    })
    .collect()
}

fn place(site: &Site<'_>, used_permille: u32, now: Timestamp) -> Vec<(u64, Timestamp)> {
    let mut profile = Profile::new(site, used_permille, now);
    let fitting = site.queue.iter().take(DEPTH_MAX);
    fitting
        .filter(|queued| queued.shape.procs <= site.procs)
        .map(|queued| {
            let length = queued.shape.walltime.saturating_mul(used_permille) / ONE;
            (queued.job, profile.reserve(queued.shape.procs, length))
        })
        .collect()
}

/// Free processors from each moment on until the next; the last holds forever.
struct Profile {
    steps: Vec<(Timestamp, u32)>,
}

impl Profile {
    fn new(site: &Site<'_>, used_permille: u32, now: Timestamp) -> Self {
        let mut ends: Vec<(Timestamp, u32)> = site
            .running
            .iter()
            .map(|running| {
                let length = running.shape.walltime.saturating_mul(used_permille) / ONE;
                let end = (running.since + length).max(now + OVERRUN);
                (end, running.shape.procs)
            })
            .collect();
        ends.sort_unstable();
        let busy = ends
            .iter()
            .fold(0u32, |sum, (_, procs)| sum.saturating_add(*procs));
        let mut steps = Vec::with_capacity(ends.len() + 1);
        steps.push((now, site.procs.saturating_sub(busy)));
        let mut left = busy;
        for (end, procs) in ends {
            left = left.saturating_sub(procs);
            steps.push((end, site.procs.saturating_sub(left)));
        }
        steps.dedup_by(|later, earlier| {
            let is_same = later.0 == earlier.0;
            if is_same {
                earlier.1 = later.1;
            }
            is_same
        });
        Self { steps }
    }

    /// Takes the earliest gap of this size and length, and returns its start.
    fn reserve(&mut self, procs: u32, length: Duration) -> Timestamp {
        let mut from = 0;
        let mut step = 0;
        while let Some((at, free)) = self.steps.get(step) {
            if *at >= self.steps[from].0 + length && step > from {
                break;
            }
            if *free < procs {
                from = step + 1;
            }
            step += 1;
        }
        let from = from.min(self.steps.len() - 1);
        let start = self.steps[from].0;
        let to = self.split(start + length);
        for (_, free) in &mut self.steps[from..to] {
            *free = free.saturating_sub(procs);
        }
        start
    }

    /// Returns the step that begins then; makes it if there is none.
    fn split(&mut self, at: Timestamp) -> usize {
        let place = self.steps.partition_point(|step| step.0 < at);
        if self.steps.get(place).is_none_or(|step| step.0 != at) {
            let free = self.steps[place - 1].1;
            self.steps.insert(place, (at, free));
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn shape(procs: u32, secs: u64) -> Shape {
        Shape {
            procs,
            walltime: Duration::from_secs(secs),
        }
    }

    fn queue(shapes: &[(u32, u64)]) -> Vec<Queued> {
        let jobs = (0..).zip(shapes);
        jobs.map(|(job, &(procs, secs))| Queued {
            job,
            shape: shape(procs, secs),
        })
        .collect()
    }

    fn site<'a>(running: &'a [Running], queue: &'a [Queued], used_permille: [u32; 3]) -> Site<'a> {
        Site {
            procs: 8,
            running,
            queue,
            used_permille,
        }
    }

    #[test]
    fn a_short_job_fills_the_gap_and_a_long_one_waits() {
        let running = [Running {
            shape: shape(6, 600),
            since: at(1000),
        }];
        let queue = queue(&[(8, 300), (2, 600), (2, 601), (9, 1)]);
        let found = starts(&site(&running, &queue, [1000; 3]), at(1000));
        let found: Vec<_> = found.iter().map(|row| (row.job, row.p50)).collect();
        assert_eq!(found, [(0, at(1600)), (1, at(1000)), (2, at(1900))]);
    }

    #[test]
    fn jobs_that_use_less_than_they_ask_for_bring_the_start_forward() {
        let running = [Running {
            shape: shape(8, 1000),
            since: at(1000),
        }];
        let queue = queue(&[(8, 1000)]);
        let found = starts(&site(&running, &queue, [100, 500, 1000]), at(1200));
        assert_eq!(found[0].p10, at(1260), "it has outlived a tenth already");
        assert_eq!((found[0].p50, found[0].p90), (at(1500), at(2000)));
    }

    #[test]
    fn staging_wakes_its_lead_and_a_guard_before_the_start_or_at_once() {
        let lead = Duration::from_secs(100);
        assert_eq!(Wake::before(at(1000), lead, at(0)), Wake::At(at(840)));
        assert_eq!(Wake::before(at(1000), lead, at(840)), Wake::Now);
        let brief = Duration::from_secs(1);
        assert_eq!(Wake::before(at(1000), brief, at(0)), Wake::At(at(939)));
    }

    fn seconds(length: Duration) -> usize {
        usize::try_from(length.as_secs()).unwrap()
    }

    /// Starts each job at the first second from which every second of it has room, without a
    /// profile.
    fn brute(running: &[Running], queue: &[Queued], now: u64) -> Vec<Timestamp> {
        let mut busy = std::vec![0u32; 4000];
        for job in running {
            let end = (job.since + job.shape.walltime).max(at(now) + OVERRUN);
            let length = seconds(end.since(at(now)));
            busy[..length]
                .iter_mut()
                .for_each(|used| *used += job.shape.procs);
        }
        let mut found = Vec::new();
        for job in queue {
            let length = seconds(job.shape.walltime);
            let fits = |from: &usize| {
                busy[*from..from + length]
                    .iter()
                    .all(|used| used + job.shape.procs <= 8)
            };
            let from = (0..3000).find(fits).unwrap();
            busy[from..from + length]
                .iter_mut()
                .for_each(|used| *used += job.shape.procs);
            found.push(at(now) + Duration::from_secs(from as u64));
        }
        found
    }

    proptest! {
        #[test]
        fn backfill_places_jobs_where_brute_force_does(
            ends in prop::collection::vec((1u32..=2, 1u64..200), 0..4),
            waiting in prop::collection::vec((1u32..=8, 1u64..200), 0..10),
        ) {
            let running: Vec<_> = ends
                .iter()
                .map(|&(procs, secs)| Running { shape: shape(procs, secs), since: at(480) })
                .collect();
            let queue = queue(&waiting);
            let found = starts(&site(&running, &queue, [1000; 3]), at(500));
            let found: Vec<_> = found.iter().map(|row| row.p50).collect();
            prop_assert_eq!(found, brute(&running, &queue, 500));
        }

        #[test]
        fn quantiles_are_ordered_and_never_before_now(
            waiting in prop::collection::vec((1u32..=8, 1u64..9000), 1..120),
        ) {
            let queue = queue(&waiting);
            let found = starts(&site(&[], &queue, [50, 400, 1000]), at(500));
            prop_assert_eq!(found.len(), waiting.len().min(DEPTH_MAX));
            for row in found {
                prop_assert!(at(500) <= row.p10 && row.p10 <= row.p50 && row.p50 <= row.p90);
            }
        }
    }
}
