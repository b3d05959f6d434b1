//! Samples of a run for plots, drawn once a virtual second, and less often in long runs.

use std::{collections::BTreeMap, time::Duration};

use posthaste_core::{
    Mind,
    contract::{RequestState, RequestView},
};
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{Scenario, scenario::SECONDS_A_MONTH};

/// Most numbers kept for all samples together: 4 MB.
const NUMBERS_MAX: usize = 500_000;
/// Most samples kept, and the number kept with any number of depots.
const SAMPLES_MAX: usize = 4000;
const SAMPLES_MIN: usize = 100;
/// Number of requests whose slack is followed: the first ones. A plot with more is unreadable.
const FOLLOWED_MAX: usize = 24;

/// State at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Time of the sample since the start.
    pub at: Duration,
    /// Average rate of each depot since the previous sample, in bytes a second.
    pub rates: Vec<u64>,
    /// Bytes each depot holds.
    pub used: Vec<u64>,
    /// Deadline minus p90 finish of each followed request that moves, in microseconds; none without
    /// a forecast finish.
    pub slacks: Vec<(RequestId, Option<i64>)>,
    /// Money spent so far, in millionths of a dollar.
    pub micro_usd: u64,
}

/// All samples of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recording {
    /// Samples in the order of time. Rates and use are in the order of the report's depots.
    pub samples: Vec<Sample>,
    /// Every request, as it stood at the end.
    pub requests: Vec<RequestView>,
    /// Fragments of the first request at each depot at the end, as the mind knew them.
    pub holders: Vec<(DepotId, Vec<(ChunkIndex, FragmentIndex)>)>,
    /// Presence of a price at any depot.
    pub is_priced: bool,
}

/// Prices of a depot, in millionths of a dollar.
#[derive(Debug, Clone, Copy)]
struct Price {
    /// Price of sending 10^9 bytes to it.
    gigabyte: u128,
    /// Price of keeping 10^9 bytes there a month.
    gigabyte_month: u128,
}

/// Recorder of samples.
#[derive(Debug)]
pub(crate) struct Recorder {
    samples: Vec<Sample>,
    samples_max: usize,
    prices: Vec<Price>,
    followed: Vec<RequestId>,
    /// Virtual seconds between two samples.
    stride: u64,
    /// Observations since the last sample.
    looks: u64,
    last_look: Duration,
    /// Bytes each depot received since the last sample, and since the last observation.
    moved: Vec<u64>,
    new: Vec<u64>,
    /// Cost of sending so far, in 10^-15 of a dollar. `kept_cost` also has a factor of microseconds
    /// in a month. Nothing is rounded.
    sent_cost: u128,
    kept_cost: u128,
}

impl Recorder {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let prices: Vec<Price> = scenario
            .depots
            .iter()
            .map(|depot| Price {
                gigabyte: u128::from(depot.usd_per_gb.micro()),
                gigabyte_month: u128::from(depot.usd_per_gb_month.micro()),
            })
            .collect();
        let numbers = 2 * prices.len() + FOLLOWED_MAX;
        Self {
            samples: Vec::new(),
            samples_max: (NUMBERS_MAX / numbers).clamp(SAMPLES_MIN, SAMPLES_MAX),
            followed: Vec::new(),
            stride: 1,
            looks: 0,
            last_look: Duration::ZERO,
            moved: vec![0; prices.len()],
            new: vec![0; prices.len()],
            prices,
            sent_cost: 0,
            kept_cost: 0,
        }
    }

    pub(crate) fn on_submitted(&mut self, request: RequestId) {
        if self.followed.len() < FOLLOWED_MAX {
            self.followed.push(request);
        }
    }

    /// Records bytes that a depot received.
    pub(crate) fn on_moved(&mut self, depot: DepotId, bytes: u64) {
        let place = (depot.get() as usize).wrapping_sub(1);
        if let Some(new) = self.new.get_mut(place) {
            *new += bytes;
        }
    }

    /// Observes the world, and keeps a sample if one is due.
    pub(crate) fn sample(&mut self, at: Duration, used: Vec<u64>, mind: Option<&Mind>) {
        self.spend(at, &used);
        self.looks += 1;
        let first = self.samples.is_empty();
        let last = self.samples.last().map_or(Duration::ZERO, |last| last.at);
        let span = at.saturating_sub(last);
        if !first && (self.looks < self.stride || span.is_zero()) {
            return;
        }
        self.looks = 0;
        let rate = |moved: &mut u64| {
            let micros = span.as_micros().max(1);
            let rate = u128::from(std::mem::take(moved)) * 1_000_000 / micros;
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let slacks = mind.map(|mind| self.slacks(mind)).unwrap_or_default();
        self.samples.push(Sample {
            at,
            rates: self.moved.iter_mut().map(rate).collect(),
            used,
            slacks,
            micro_usd: self.micro_usd(),
        });
        if self.samples.len() >= self.samples_max {
            self.thin();
        }
    }

    fn spend(&mut self, at: Duration, used: &[u64]) {
        let micros = at.saturating_sub(self.last_look).as_micros();
        self.last_look = at;
        for (place, used) in used.iter().enumerate() {
            let new = std::mem::take(&mut self.new[place]);
            self.moved[place] += new;
            self.sent_cost += u128::from(new) * self.prices[place].gigabyte;
            self.kept_cost += u128::from(*used) * self.prices[place].gigabyte_month * micros;
        }
    }

    fn micro_usd(&self) -> u64 {
        const GIGABYTE: u128 = 1_000_000_000;
        let kept = self.kept_cost / (u128::from(SECONDS_A_MONTH) * 1_000_000);
        u64::try_from((self.sent_cost + kept) / GIGABYTE).unwrap_or(u64::MAX)
    }

    fn slacks(&self, mind: &Mind) -> Vec<(RequestId, Option<i64>)> {
        let views = self.followed.iter().filter_map(|&id| mind.request(id));
        let moving = views.filter(|view| view.state == RequestState::Moving);
        moving
            .map(|view| {
                let slack = |finish| view.spec.deadline.slack_micros(finish);
                (view.request, view.finish.map(|finish| slack(finish.p90)))
            })
            .collect()
    }

    /// Merges samples in pairs, and halves the sampling rate.
    fn thin(&mut self) {
        self.stride *= 2;
        let before = std::mem::take(&mut self.samples);
        // The first sample stands for the start and has no span.
        let mut rest = before.into_iter();
        self.samples.extend(rest.next());
        while let Some(early) = rest.next() {
            let Some(late) = rest.next() else {
                self.samples.push(early);
                break;
            };
            let start = self.samples.last().map_or(Duration::ZERO, |last| last.at);
            self.samples.push(merge(start, early, late));
        }
    }

    /// Draws the last sample, and returns all samples.
    pub(crate) fn finish(mut self, at: Duration, used: Vec<u64>, mind: Option<&Mind>) -> Recording {
        self.stride = 1;
        self.sample(at, used, mind);
        let requests = mind.into_iter().flat_map(Mind::requests).collect();
        let mut prices = self.prices.iter();
        let first = mind.zip(self.followed.first());
        let holders = first.map(|(mind, request)| mind.holders(*request));
        Recording {
            samples: self.samples,
            requests,
            holders: holders.unwrap_or_default(),
            is_priced: prices.any(|price| price.gigabyte + price.gigabyte_month > 0),
        }
    }
}

/// Merges two consecutive samples: rates are averaged, everything else is taken from the later one.
fn merge(start: Duration, early: Sample, late: Sample) -> Sample {
    let first = early.at.saturating_sub(start).as_micros();
    let second = late.at.saturating_sub(early.at).as_micros();
    let average = |(early, late): (u64, u64)| {
        let moved = u128::from(early) * first + u128::from(late) * second;
        u64::try_from(moved / (first + second).max(1)).unwrap_or(u64::MAX)
    };
    let rates = early.rates.into_iter().zip(late.rates).map(average);
    Sample {
        rates: rates.collect(),
        ..late
    }
}

impl Recording {
    /// Returns the slack of each followed request over time, in seconds.
    #[must_use]
    pub fn slacks(&self) -> BTreeMap<RequestId, Vec<(f64, f64)>> {
        let mut lines: BTreeMap<RequestId, Vec<(f64, f64)>> = BTreeMap::new();
        for sample in &self.samples {
            for &(request, slack) in &sample.slacks {
                let line = lines.entry(request).or_default();
                if let Some(micros) = slack {
                    line.push((sample.at.as_secs_f64(), seconds(micros)));
                }
            }
        }
        lines
    }
}

/// Converts microseconds to seconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "a plot needs no more than 52 bits"
)]
pub(super) fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_s: u64, rate: u64) -> Sample {
        Sample {
            at: Duration::from_secs(at_s),
            rates: vec![rate],
            used: vec![at_s],
            slacks: Vec::new(),
            micro_usd: at_s,
        }
    }

    #[test]
    fn merged_samples_carry_the_same_bytes() {
        let merged = merge(Duration::from_secs(1), sample(2, 10), sample(5, 30));
        assert_eq!(merged.rates, [25], "(1 s x 10 + 3 s x 30) / 4 s");
        assert_eq!((merged.at.as_secs(), merged.micro_usd), (5, 5));
    }

    #[test]
    fn a_long_run_keeps_a_bounded_number_of_samples_and_loses_no_byte() {
        let scenario = Scenario::parse(
            "name='a'\nsummary=''\nhorizon_s=1\nrequest=[]\n[[depot]]\nname='d'\n\
             rate_mib_per_s=1\ncapacity_mib=1\nusd_per_gb=0.5\n",
        )
        .unwrap();
        let mut recorder = Recorder::new(&scenario);
        let total = 3 * SAMPLES_MAX as u64;
        recorder.sample(Duration::ZERO, vec![0], None);
        for second in 1..=total {
            recorder.on_moved(DepotId::new(1), 1_000_000);
            recorder.sample(Duration::from_secs(second), vec![0], None);
        }
        let recording = recorder.finish(Duration::from_secs(total), vec![0], None);
        let kept = recording.samples.len();
        assert!(kept <= SAMPLES_MAX && kept > SAMPLES_MAX / 4, "{kept}");
        let mut moved = 0;
        for pair in recording.samples.windows(2) {
            moved += pair[1].rates[0] * (pair[1].at - pair[0].at).as_secs();
        }
        let last = recording.samples.last().unwrap();
        assert_eq!((moved, last.at.as_secs()), (total * 1_000_000, total));
        assert!(recording.is_priced);
        assert_eq!(last.micro_usd, total * 500);
    }
}
