//! Outcomes of earlier forecasts of the queue, and their use for the next.
//!
//! A simulated queue knows processors and requested times. It does not know which running jobs end
//! early, that a partition is closed or that a user is over their share. So each forecast is
//! compared with similar ones, and the further waits of those jobs are the answer.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::{ops::RangeInclusive, time::Duration};
use posthaste_types::Timestamp;

use super::rolling::Wake;

/// Borders between kinds of forecasts by requested time, in seconds: by fours from half an hour.
const WALLTIMES: [u64; 4] = [1800, 7200, 28_800, 115_200];

/// Borders by thousandths of the machine's processors: jobs that request few fill gaps, jobs that
/// request many wait to be first.
const SHARES_PERMILLE: [u32; 2] = [62, 250];

/// Borders by the time until the forecast start, in seconds: doubling from five minutes.
const AHEADS: [u64; 9] = [300, 600, 1200, 2400, 4800, 9600, 19_200, 38_400, 76_800];

/// Age up to which a job may start at once. An older one that "starts now" is held by something
/// that is not simulated.
const FRESH: Duration = Duration::from_secs(90);

/// Time after the arrival of its data within which a starting job was waiting for it: schedulers
/// look about every half minute.
const AT_ONCE: Duration = Duration::from_secs(60);

/// Time after the arrival of its data from which a job that could start, but does not, waits for
/// something else.
const NOT_THE_DATA: Duration = Duration::from_secs(120);

/// Outcomes of a kind that are kept: some weeks of a medium centre, and 600 KiB for all kinds
/// together.
const OUTCOMES_MAX: usize = 128;

/// Fewest outcomes that are used.
const OUTCOMES_MIN: usize = 8;

/// Fewest outcomes that a job has not outlived, for the rest to be used.
const LEFT_MIN: usize = 3;

/// Most kinds of forecast kept of a waiting job, the first ones: more than it can have.
const SAID_MAX: usize = 2 * (AHEADS.len() + 1);

/// Most waiting jobs that are followed: many times the number of forecasts.
const WAITING_MAX: usize = 10_000;

/// Thousandths in one.
const ONE: usize = 1000;

/// A forecast for a job, and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// Number of the job.
    pub job: u64,
    /// Time that it requests.
    pub walltime: Duration,
    /// Thousandths of the machine's processors that it requests.
    pub share_permille: u32,
    /// Submission of the job.
    pub submitted: Timestamp,
    /// Start that the current queue allows.
    pub start: Timestamp,
    /// Time of the forecast.
    pub now: Timestamp,
}

/// Arrival of a job's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data {
    /// Start of the transfer.
    pub begun: Timestamp,
    /// Moment when all of it was there.
    pub ready: Timestamp,
}

/// Similar forecasts: as far ahead, of jobs that request as much of the machine and as much time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    ahead: usize,
    is_fresh: bool,
    share: usize,
    walltime: usize,
}

impl Kind {
    /// Returns whether two kinds are similar: with growing looseness in all but the requested time,
    /// and then approximately in the time ahead only.
    fn is_like(self, other: Self, looseness: usize) -> bool {
        let as_fresh = self.is_fresh == other.is_fresh;
        match looseness {
            0 => self == other,
            1 => as_fresh && (self.ahead, self.share) == (other.ahead, other.share),
            _ => as_fresh && self.ahead / 2 == other.ahead / 2,
        }
    }

    /// Returns the range of kinds that can be similar.
    fn nearest(self, looseness: usize) -> RangeInclusive<Self> {
        let of = |ahead, is_fresh, class| Self {
            ahead,
            is_fresh,
            share: class,
            walltime: class,
        };
        match looseness {
            0 => self..=self,
            1 => of(self.ahead, self.is_fresh, 0)..=of(self.ahead, self.is_fresh, usize::MAX),
            _ => of(self.ahead & !1, false, 0)..=of(self.ahead | 1, true, usize::MAX),
        }
    }
}

impl Said {
    fn kind(&self) -> Kind {
        let ahead = self.start.since(self.now);
        let is_under = |most: &u64, time| Duration::from_secs(*most) < time;
        Kind {
            ahead: AHEADS.partition_point(|most| is_under(most, ahead)),
            is_fresh: self.now.since(self.submitted) < FRESH,
            share: SHARES_PERMILLE.partition_point(|most| *most < self.share_permille),
            walltime: WALLTIMES.partition_point(|most| is_under(most, self.walltime)),
        }
    }
}

/// A waiting job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Open {
    /// First forecast of each kind, the newest kind last.
    said: Vec<(Kind, Said)>,
    /// First and last time that a forecast let it start at once.
    room: Option<(Timestamp, Timestamp)>,
}

impl Open {
    /// Returns when the job would have started if its data had always been there, as far as that is
    /// known.
    fn start(&self, start: Timestamp, data: Option<Data>) -> Timestamp {
        let Some(data) = data else {
            return start;
        };
        let begun = match start.since(data.ready) < AT_ONCE {
            true => data.begun.min(start),
            false => start,
        };
        match self.room {
            // There was room before its data came, and none stayed unused after that. If there had
            // been room long before the transfer began, nobody expected the job to start then.
            Some((first, last)) if first < data.ready && last <= data.ready + NOT_THE_DATA => {
                begun.min(first.max(data.begun))
            }
            Some(_) | None => begun,
        }
    }
}

/// Further waits of jobs after each kind of forecast, and the forecasts whose jobs still wait.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Calibration {
    /// Outcomes by kind, oldest first.
    outcomes: BTreeMap<Kind, VecDeque<Duration>>,
    open: BTreeMap<u64, Open>,
}

impl Calibration {
    /// Records a forecast if it differs in kind from earlier ones of the job.
    pub fn on_forecast(&mut self, said: Said) {
        if self.open.len() >= WAITING_MAX && !self.open.contains_key(&said.job) {
            return;
        }
        let open = self.open.entry(said.job).or_default();
        if said.start <= said.now {
            let (first, _) = open.room.unwrap_or((said.now, said.now));
            open.room = Some((first, said.now));
        }
        let kind = said.kind();
        if open.said.len() < SAID_MAX && open.said.iter().all(|(known, _)| *known != kind) {
            open.said.push((kind, said));
        }
    }

    /// Records the start of a job, and returns the outcomes of its forecasts.
    ///
    /// A job that waited for its data counts as started when the transfer began or, if that was
    /// sooner, when there was room for the job. Otherwise late data would be learnt as a long
    /// queue, and the next data would come later still.
    pub fn on_start(
        &mut self,
        job: u64,
        now: Timestamp,
        data: Option<Data>,
    ) -> Vec<(Said, Duration)> {
        let open = self.open.remove(&job).unwrap_or_default();
        let start = open.start(now, data);
        let known = open.said.into_iter();
        let known: Vec<(Said, Duration)> = known
            .map(|(_, said)| (said, start.since(said.now)))
            .collect();
        for (said, waited) in &known {
            self.learn(said, *waited);
        }
        known
    }

    /// Adds the further wait of a job after a forecast.
    pub fn learn(&mut self, said: &Said, waited: Duration) {
        let outcomes = self.outcomes.entry(said.kind()).or_default();
        if outcomes.len() >= OUTCOMES_MAX {
            outcomes.pop_front();
        }
        outcomes.push_back(waited);
    }

    /// Records that a job left the queue without a start: its forecasts are neither right nor
    /// wrong.
    pub fn on_cancel(&mut self, job: u64) {
        self.open.remove(&job);
    }

    /// Returns when a job with this forecast starts, at a quantile in thousandths.
    ///
    /// The quantile is over all jobs with similar forecasts that still waited as long after their
    /// first one. The answer is now if nearly all of them had started sooner. If fewer than eight
    /// are known of a kind, less similar kinds are used; none if these are too few as well. The
    /// cost is O(n) for 128, and at most sixty times as many if few are known.
    #[must_use]
    pub fn start(&self, said: &Said, permille: u16) -> Option<Timestamp> {
        let kind = said.kind();
        let alike = [
            self.alike(kind, 0),
            self.alike(kind, 1),
            self.alike(kind, 2),
        ];
        let known = alike
            .into_iter()
            .find(|known| known.clone().take(OUTCOMES_MIN).count() == OUTCOMES_MIN)?;
        let mut said_so = self
            .open
            .get(&said.job)
            .into_iter()
            .flat_map(|open| &open.said);
        let first = said_so.find(|(known, _)| *known == kind);
        let past = said
            .now
            .since(first.map_or(said.now, |(_, first)| first.now));
        let left = known.filter_map(|waited| waited.checked_sub(past));
        let mut left: Vec<Duration> = left.collect();
        if left.len() < LEFT_MIN {
            return Some(said.now);
        }
        let rank = (left.len() * usize::from(permille)).div_ceil(ONE);
        let place = rank.max(1).min(left.len()) - 1;
        let (_, at, _) = left.select_nth_unstable(place);
        Some(said.now + *at)
    }

    /// Iterates over the outcomes of similar kinds.
    fn alike(&self, kind: Kind, looseness: usize) -> impl Iterator<Item = Duration> + Clone {
        let near = self.outcomes.range(kind.nearest(looseness));
        let alike = near.filter(move |(other, _)| kind.is_like(**other, looseness));
        alike.flat_map(|(_, outcomes)| outcomes.iter().copied())
    }

    /// Returns when to begin staging that takes `lead`, so that it ends before this quantile of the
    /// start. Without similar outcomes, the forecast itself is used.
    #[must_use]
    pub fn wake(&self, said: &Said, lead: Duration, permille: u16) -> Wake {
        let Some(start) = self.start(said, permille) else {
            return Wake::before(said.start, lead, said.now);
        };
        match Wake::before(start, lead, said.now) {
            Wake::Now => Wake::Now,
            // The quantile is over all similar forecasts: the next forecast has another one.
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

    /// Returns a long job with a forecast to start at once, an hour after its submission.
    fn said(job: u64, now: u64) -> Said {
        Said {
            job,
            walltime: Duration::from_secs(5 * HOUR),
            share_permille: 10,
            submitted: at(now - HOUR),
            start: at(now),
            now: at(now),
        }
    }

    #[test]
    fn a_site_that_starts_long_jobs_at_night_only_is_found_out() {
        let mut known = Calibration::default();
        let noon = |day| day * 24 * HOUR + 12 * HOUR;
        for day in 1..20 {
            known.on_forecast(said(day, noon(day)));
            known.on_forecast(said(day, noon(day) + 3 * HOUR));
            known.on_start(day, at(noon(day) + 6 * HOUR + 30), None);
        }
        let lead = Duration::from_secs(1800);
        known.on_forecast(said(99, noon(40)));
        for (hours, wake) in [(0, Wake::Later), (3, Wake::Later), (6, Wake::Now)] {
            let later = said(99, noon(40) + hours * HOUR);
            let start = known.start(&later, 300);
            assert_eq!(start, Some(at(noon(40) + 6 * HOUR + 30)), "{hours}");
            assert_eq!(known.wake(&later, lead, 300), wake, "{hours}");
        }
        let outlived = said(99, noon(40) + 7 * HOUR);
        assert_eq!(
            known.start(&outlived, 300),
            Some(outlived.now),
            "it may start at any moment"
        );
    }

    #[test]
    fn who_asks_for_more_or_longer_is_told_by_its_like_where_there_are_some() {
        let mut known = Calibration::default();
        let now = 50 * HOUR;
        let wide = |job| Said {
            share_permille: 251,
            ..said(job, now)
        };
        let short = |job| Said {
            walltime: Duration::from_secs(HOUR),
            ..said(job, now)
        };
        let learn = |known: &mut Calibration, said: &Said, secs| {
            (0..8).for_each(|_| known.learn(said, Duration::from_secs(secs)));
        };
        assert_eq!(
            known.start(&said(1, now), 500),
            None,
            "the queue is believed"
        );
        learn(&mut known, &wide(1), 7 * HOUR);
        let start = |known: &Calibration, said: Said| known.start(&said, 500);
        for other in [said(2, now), short(2), wide(2)] {
            assert_eq!(
                start(&known, other),
                Some(at(now + 7 * HOUR)),
                "no other is known"
            );
        }
        learn(&mut known, &short(1), 600);
        assert_eq!(start(&known, said(2, now)), Some(at(now + 600)), "as wide");
        learn(&mut known, &said(1, now), 1200);
        assert_eq!(start(&known, said(2, now)), Some(at(now + 1200)));
        assert_eq!(start(&known, short(2)), Some(at(now + 600)));
        assert_eq!(start(&known, wide(2)), Some(at(now + 7 * HOUR)));
    }

    #[test]
    fn room_that_there_was_before_the_data_is_when_it_could_have_started() {
        let now = 50 * HOUR;
        let waits = |looks: &[u64], begun: u64, ready: u64, start: u64| {
            let mut known = Calibration::default();
            let later = Said {
                start: at(now + 9 * HOUR),
                ..said(1, now)
            };
            known.on_forecast(later);
            for look in looks {
                known.on_forecast(said(1, now + look));
            }
            let data = Data {
                begun: at(now + begun),
                ready: at(now + ready),
            };
            let found = known.on_start(1, at(now + start), Some(data));
            found[0].1.as_secs()
        };
        assert_eq!(waits(&[], 100, 900, 5000), 5000, "it waited for processors");
        assert_eq!(waits(&[800], 100, 900, 5000), 800, "it lost its turn");
        assert_eq!(waits(&[1000], 100, 900, 5000), 5000, "its data was there");
        assert_eq!(waits(&[10, 800], 700, 900, 930), 700, "nobody thought so");
        assert_eq!(
            waits(&[800, 1100], 100, 900, 5000),
            5000,
            "its data was not what it waited for"
        );
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
        let later = |job| Said {
            start: at(now + 900),
            ..said(job, now)
        };
        known.on_forecast(later(1));
        let late = known.on_start(1, at(now + 930), data(now + 600, now + 900));
        assert_eq!(late, [(later(1), Duration::from_secs(600))]);
        known.on_forecast(later(2));
        let early = known.on_start(2, at(now + 930), data(now + 600, now + 800));
        assert_eq!(early, [(later(2), Duration::from_secs(930))]);
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
