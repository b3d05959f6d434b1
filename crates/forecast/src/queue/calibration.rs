//! What became of earlier forecasts of the queue, and what that says of the next.
//!
//! A simulated queue knows processors and requested times. It does not know that long jobs start at night
//! only, that a partition is closed or that a user is over their share: it then says "now" for hours. So each
//! forecast is put beside those that looked like it, and what these jobs still waited is the answer.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::time::Duration;
use posthaste_types::Timestamp;

use super::rolling::Wake;

/// Requested time that divides forecasts into kinds, in seconds: doubling, because a rule of a site
/// ("over 4 hours by night") cuts anywhere.
const WALLTIMES: [u64; 8] = [900, 1800, 3600, 7200, 14_400, 28_800, 57_600, 115_200];

/// How far away a forecast start divides them, in seconds.
const AHEADS: [u64; 4] = [60, 900, 7200, 43_200];

/// A job this young may start at once; one that is older and "starts now" is held by what nobody simulated.
const FRESH: Duration = Duration::from_secs(90);

/// A job that starts so soon after its data came was waiting for it: schedulers look about every half minute.
const AT_ONCE: Duration = Duration::from_secs(60);

/// Outcomes of a kind that are kept: some weeks of a middling centre, and 2 MiB for all kinds together.
const OUTCOMES_MAX: usize = 128;

/// Fewest outcomes that speak for a kind.
const OUTCOMES_MIN: usize = 8;

/// Kinds of forecast that one job has while it waits, the newest: two days of hours.
const SAID_MAX: usize = 48;

/// Jobs that are followed while they wait: many times what is forecast.
const WAITING_MAX: usize = 10_000;

/// Thousandths in one.
const ONE: usize = 1000;

/// Microseconds of an hour.
const HOUR_MICROS: u64 = 3_600_000_000;

/// What is forecast of a job, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// Its number.
    pub job: u64,
    /// The time that it asks for.
    pub walltime: Duration,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// When the queue as it stands lets it start.
    pub start: Timestamp,
    /// When that was said.
    pub now: Timestamp,
}

/// When the data of a job came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data {
    /// It began to come.
    pub begun: Timestamp,
    /// All of it was there.
    pub ready: Timestamp,
}

/// Forecasts that look alike: asked for as much time, at the same hour of the day (UTC), as far ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    hour: u64,
    walltime: usize,
    ahead: usize,
    is_fresh: bool,
}

impl Said {
    fn kind(&self) -> Kind {
        let ahead = self.start.since(self.now);
        Kind {
            hour: self.now.as_micros() / HOUR_MICROS % 24,
            walltime: WALLTIMES.partition_point(|most| Duration::from_secs(*most) < self.walltime),
            ahead: AHEADS.partition_point(|most| Duration::from_secs(*most) < ahead),
            is_fresh: self.now.since(self.submitted) < FRESH,
        }
    }
}

/// What jobs still waited after each kind of forecast, and the forecasts whose jobs still wait.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Calibration {
    /// Oldest first.
    outcomes: BTreeMap<Kind, VecDeque<Duration>>,
    /// The first forecast of each kind, the newest kind last.
    open: BTreeMap<u64, VecDeque<Said>>,
}

impl Calibration {
    /// Something was forecast. It is remembered where it differs in kind from what was said before.
    pub fn on_forecast(&mut self, said: Said) {
        if self.open.len() >= WAITING_MAX && !self.open.contains_key(&said.job) {
            return;
        }
        let open = self.open.entry(said.job).or_default();
        if open.back().is_some_and(|last| last.kind() == said.kind()) {
            return;
        }
        if open.len() >= SAID_MAX {
            open.pop_front();
        }
        open.push_back(said);
    }

    /// A job started: what had been said of it has its outcome, which is given back as well. Where its data was
    /// what it waited for, it counts as started when that began to come: else late data would be learned as a
    /// long queue, and the next data would come later still.
    pub fn on_start(
        &mut self,
        job: u64,
        now: Timestamp,
        data: Option<Data>,
    ) -> Vec<(Said, Duration)> {
        let start = match data {
            Some(data) if now.since(data.ready) < AT_ONCE => data.begun.min(now),
            Some(_) | None => now,
        };
        let open = self.open.remove(&job).unwrap_or_default();
        let known = open.into_iter().map(|said| (said, start.since(said.now)));
        let known: Vec<(Said, Duration)> = known.collect();
        for (said, waited) in &known {
            self.learn(said, *waited);
        }
        known
    }

    /// Takes what a job still waited after something was said of it.
    pub fn learn(&mut self, said: &Said, waited: Duration) {
        let outcomes = self.outcomes.entry(said.kind()).or_default();
        if outcomes.len() >= OUTCOMES_MAX {
            outcomes.pop_front();
        }
        outcomes.push_back(waited);
    }

    /// A job left the queue without a start: what was said of it is neither right nor wrong.
    pub fn on_cancel(&mut self, job: u64) {
        self.open.remove(&job);
    }

    /// When a job starts of which this is said: so many thousandths of all such jobs had started by then. None
    /// where fewer than eight are known. O(n log n) for 128.
    #[must_use]
    pub fn start(&self, said: &Said, permille: u16) -> Option<Timestamp> {
        let known = self.outcomes.get(&said.kind())?;
        if known.len() < OUTCOMES_MIN {
            return None;
        }
        let mut sorted: Vec<Duration> = known.iter().copied().collect();
        sorted.sort_unstable();
        let rank = (sorted.len() * usize::from(permille)).div_ceil(ONE);
        let place = rank.max(1).min(sorted.len()) - 1;
        Some(said.now + sorted[place])
    }

    /// When to begin staging that takes `lead`, so that it ends before this quantile of the start. Where no such
    /// forecast is known, the forecast itself is believed.
    #[must_use]
    pub fn wake(&self, said: &Said, lead: Duration, permille: u16) -> Wake {
        let Some(start) = self.start(said, permille) else {
            return Wake::before(said.start, lead, said.now);
        };
        match Wake::before(start, lead, said.now) {
            Wake::Now => Wake::Now,
            // The quantile is that of all who were told the same: what comes next is told anew.
            Wake::At(_) | Wake::Later => Wake::Later,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: u64 = 3600;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    /// A long job that is said to start at once, an hour after it came.
    fn said(job: u64, now: u64) -> Said {
        Said {
            job,
            walltime: Duration::from_secs(5 * HOUR),
            submitted: at(now - HOUR),
            start: at(now),
            now: at(now),
        }
    }

    #[test]
    fn a_site_that_starts_long_jobs_at_night_only_is_found_out() {
        let mut known = Calibration::default();
        for day in 1..20 {
            let noon = day * 24 * HOUR + 12 * HOUR;
            let night = noon + 6 * HOUR;
            known.on_forecast(said(day, noon));
            known.on_forecast(said(day, night));
            known.on_start(day, at(night + 30), None);
        }
        let noon = 40 * 24 * HOUR + 12 * HOUR;
        let start = |now| known.start(&said(99, now), 300);
        assert_eq!(start(noon), Some(at(noon + 6 * HOUR + 30)));
        assert_eq!(start(noon + 6 * HOUR), Some(at(noon + 6 * HOUR + 30)));
        assert_eq!(
            start(noon + 3 * HOUR),
            None,
            "of that hour nothing is known"
        );
        let lead = Duration::from_secs(1800);
        let wake = |now| known.wake(&said(99, now), lead, 300);
        assert_eq!(wake(noon), Wake::Later);
        assert_eq!(wake(noon + 3 * HOUR), Wake::Now, "the queue is believed");
        assert_eq!(wake(noon + 6 * HOUR), Wake::Now);
    }

    #[test]
    fn a_job_that_waited_for_its_data_is_not_taken_for_a_long_queue() {
        let mut known = Calibration::default();
        let now = 50 * HOUR;
        let data = |begun, ready| {
            Some(Data {
                begun: at(begun),
                ready: at(ready),
            })
        };
        known.on_forecast(said(1, now));
        let late = known.on_start(1, at(now + 930), data(now + 600, now + 900));
        assert_eq!(late, [(said(1, now), Duration::from_secs(600))]);
        known.on_forecast(said(2, now));
        let early = known.on_start(2, at(now + 930), data(now + 600, now + 800));
        assert_eq!(early, [(said(2, now), Duration::from_secs(930))]);
    }

    #[test]
    fn seven_outcomes_say_nothing_and_a_cancelled_job_is_none() {
        let mut known = Calibration::default();
        for job in 0..8 {
            known.on_forecast(said(job, 50 * HOUR));
        }
        known.on_cancel(7);
        (0..8).for_each(|job| drop(known.on_start(job, at(51 * HOUR), None)));
        assert_eq!(known.start(&said(9, 74 * HOUR), 500), None);
        known.learn(&said(7, 50 * HOUR), Duration::from_secs(60));
        assert_eq!(
            known.start(&said(9, 74 * HOUR), 1),
            Some(at(74 * HOUR + 60))
        );
    }

    #[test]
    fn the_same_kind_said_twice_counts_once_from_the_first() {
        let mut known = Calibration::default();
        known.on_forecast(said(1, 50 * HOUR));
        known.on_forecast(Said {
            job: 1,
            ..said(1, 50 * HOUR + 600)
        });
        let outcome = (said(1, 50 * HOUR), Duration::from_secs(HOUR));
        assert_eq!(known.on_start(1, at(51 * HOUR), None), [outcome]);
        assert_eq!(known.on_start(1, at(51 * HOUR), None), []);
    }

    proptest! {
        #[test]
        fn a_quantile_has_its_share_of_the_last_outcomes_below_it(
            waits in prop::collection::vec(0u64..100_000, 8..300),
            permille in 1u16..=1000,
        ) {
            let mut known = Calibration::default();
            let like = said(1, 50 * HOUR);
            waits.iter().for_each(|wait| known.learn(&like, Duration::from_secs(*wait)));
            let start = known.start(&like, permille).unwrap();
            let last = &waits[waits.len().saturating_sub(OUTCOMES_MAX)..];
            let upto = last.iter().filter(|wait| like.now + Duration::from_secs(**wait) <= start).count();
            let below = last.iter().filter(|wait| like.now + Duration::from_secs(**wait) < start).count();
            prop_assert!(upto * 1000 >= last.len() * usize::from(permille));
            prop_assert!(below * 1000 < last.len() * usize::from(permille));
        }
    }
}
