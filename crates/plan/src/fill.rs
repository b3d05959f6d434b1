//! Data as a fluid: what one request puts where and when, given what the ones before it left.

use alloc::{vec, vec::Vec};
use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, Timestamp, record};

use crate::Curve;

record! {
    /// What one depot offers.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Supply {
        /// What it takes, over time.
        pub curve: Curve,
        /// What it has space for.
        pub space: Bytes,
    }
}

record! {
    /// What the depots offer to whoever comes next.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Supplies {
        /// Each depot.
        pub depots: Vec<Supply>,
        /// What the centre's way out carries, where that is known: all depots share it.
        pub way_out: Option<Curve>,
    }
}

/// One depot as one load may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Place of the depot among the supplies.
    pub supply: usize,
    /// Most this load may put there. With one fragment of a chunk a depot, this is one fragment for
    /// each chunk that still lacks one and has none there: the cap of the water-filling.
    pub room: Bytes,
}

/// What one request still has to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// Coded bytes.
    pub bytes: Bytes,
    /// Where they may go.
    pub lanes: Vec<Lane>,
}

/// A lane carries this rate from one moment to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    lane: usize,
    from: Timestamp,
    to: Timestamp,
    rate: ByteRate,
}

/// How one load fares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Filled early: when all of it has arrived. Filled late: when it must begin at the latest. None
    /// when it does not fit.
    pub edge: Option<Timestamp>,
    /// What each of its lanes carried, in their order: its share.
    pub placed: Vec<Bytes>,
    stretches: Vec<Stretch>,
}

/// A load that would take longer than this never finishes.
const HORIZON: Duration = Duration::from_secs(100 * 365 * 86400);

/// From which end a load is filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Towards {
    Early,
    Late,
}

impl Towards {
    /// The rate next to `at`, seen from where the filling comes.
    fn rate(self, curve: &Curve, at: Timestamp) -> ByteRate {
        match self {
            Self::Early => curve.rate_at(at),
            Self::Late => curve.rate_before(at),
        }
    }

    /// How long that rate lasts.
    fn lasts(self, curve: &Curve, at: Timestamp) -> Duration {
        match self {
            Self::Early => curve
                .next_change(at)
                .map_or(Duration::MAX, |next| next.since(at)),
            Self::Late => at.since(curve.last_change(at)),
        }
    }

    fn on(self, at: Timestamp, span: Duration) -> Timestamp {
        match self {
            Self::Early => at + span,
            Self::Late => at - span,
        }
    }
}

impl Supplies {
    /// Fills the load in from `from` on, as early as it goes.
    ///
    /// A load after another that was [taken](Self::take) gets what that one left; in the order of
    /// deadlines this is preemptive EDF, which is optimal on one bottleneck. Costs a visit of each lane
    /// for each piece of their curves that it passes.
    ///
    /// # Panics
    /// When a lane names no supply.
    #[must_use]
    pub fn early(&self, load: &Load, from: Timestamp) -> Outcome {
        self.fill(load, from, HORIZON, Towards::Early)
    }

    /// Fills the load in backwards from `until`, as late as it goes but not before `from`: what is free
    /// before stays free for more urgent ones (DCRoute: Noormohammadpour et al., HiPC 2016).
    ///
    /// # Panics
    /// When a lane names no supply.
    #[must_use]
    pub fn late(&self, load: &Load, from: Timestamp, until: Timestamp) -> Outcome {
        self.fill(load, until, until.since(from), Towards::Late)
    }

    /// What the load got is no longer there for others, whether it was all it wanted or not.
    ///
    /// # Panics
    /// When `outcome` is of another load.
    pub fn take(&mut self, load: &Load, outcome: &Outcome) {
        for stretch in &outcome.stretches {
            let supply = &mut self.depots[load.lanes[stretch.lane].supply];
            supply.curve.take(stretch.from, stretch.to, stretch.rate);
            if let Some(way_out) = &mut self.way_out {
                way_out.take(stretch.from, stretch.to, stretch.rate);
            }
        }
        for (lane, placed) in load.lanes.iter().zip(&outcome.placed) {
            self.depots[lane.supply].space -= *placed;
        }
    }

    fn fill(&self, load: &Load, start: Timestamp, limit: Duration, towards: Towards) -> Outcome {
        let mut filling = Filling::new(self, load);
        let (mut at, mut gone) = (start, Duration::ZERO);
        while filling.left > 0 && gone < limit {
            filling.give(at, towards);
            let Some(span) = filling.next_change(at, towards) else {
                break;
            };
            let span = span.min(limit.saturating_sub(gone));
            if span.is_zero() {
                break;
            }
            filling.advance(at, span, towards);
            at = towards.on(at, span);
            gone += span;
        }
        Outcome {
            edge: (filling.left == 0).then_some(at),
            placed: filling.placed.into_iter().map(Bytes::new).collect(),
            stretches: filling.stretches,
        }
    }
}

/// A load while it is filled in.
struct Filling<'a> {
    supplies: &'a Supplies,
    load: &'a Load,
    left: u64,
    room: Vec<u64>,
    placed: Vec<u64>,
    given: Vec<u64>,
    stretches: Vec<Stretch>,
}

impl<'a> Filling<'a> {
    fn new(supplies: &'a Supplies, load: &'a Load) -> Self {
        let room = |lane: &Lane| lane.room.min(supplies.depots[lane.supply].space).get();
        let lanes = load.lanes.len();
        Self {
            supplies,
            load,
            left: load.bytes.get(),
            room: load.lanes.iter().map(room).collect(),
            placed: vec![0; lanes],
            given: vec![0; lanes],
            stretches: Vec::with_capacity(lanes),
        }
    }

    /// Gives each lane what its depot, then the way out, still carries.
    fn give(&mut self, at: Timestamp, towards: Towards) {
        let way_out = self.supplies.way_out.as_ref();
        let mut way_out = way_out.map_or(u64::MAX, |curve| towards.rate(curve, at).get());
        for (place, lane) in self.load.lanes.iter().enumerate() {
            self.given[place] = 0;
            if self.room[place] > 0 {
                let curve = &self.supplies.depots[lane.supply].curve;
                self.given[place] = towards.rate(curve, at).get().min(way_out);
                way_out -= self.given[place];
            }
        }
    }

    /// How long that stays so: until the load is done, a lane is full, or a rate changes. None when
    /// nothing moves any more.
    fn next_change(&self, at: Timestamp, towards: Towards) -> Option<Duration> {
        let micros = |amount: u64, rate: u64| {
            let micros = (u128::from(amount) * 1_000_000).div_ceil(u128::from(rate));
            Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX).max(1))
        };
        let total = self
            .given
            .iter()
            .fold(0u64, |sum, &rate| sum.saturating_add(rate));
        let mut span = Duration::MAX;
        if total > 0 {
            span = micros(self.left, total);
        }
        for (place, lane) in self.load.lanes.iter().enumerate() {
            if self.room[place] == 0 {
                continue;
            }
            let curve = &self.supplies.depots[lane.supply].curve;
            span = span.min(towards.lasts(curve, at));
            if self.given[place] > 0 {
                span = span.min(micros(self.room[place], self.given[place]));
            }
        }
        if let Some(way_out) = &self.supplies.way_out {
            span = span.min(towards.lasts(way_out, at));
        }
        (span < Duration::MAX).then_some(span)
    }

    fn advance(&mut self, at: Timestamp, span: Duration, towards: Towards) {
        let end = towards.on(at, span);
        for lane in 0..self.given.len() {
            let rate = self.given[lane];
            if rate == 0 {
                continue;
            }
            let moved = (u128::from(rate) * span.as_micros()).div_ceil(1_000_000);
            let moved = u64::try_from(moved)
                .unwrap_or(u64::MAX)
                .min(self.left)
                .min(self.room[lane]);
            self.left -= moved;
            self.room[lane] -= moved;
            self.placed[lane] += moved;
            self.stretches.push(Stretch {
                lane,
                from: at.min(end),
                to: at.max(end),
                rate: ByteRate::new(rate),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLENTY: Bytes = Bytes::new(u64::MAX >> 8);
    const NOW: Timestamp = Timestamp::from_secs(1000);

    fn supplies(rates: &[u64]) -> Supplies {
        let supply = |&rate: &u64| Supply {
            curve: Curve::constant(ByteRate::new(rate)),
            space: PLENTY,
        };
        Supplies {
            depots: rates.iter().map(supply).collect(),
            way_out: None,
        }
    }

    fn load(bytes: u64, lanes: &[(usize, u64)]) -> Load {
        let lane = |&(supply, room)| Lane {
            supply,
            room: Bytes::new(room),
        };
        Load {
            bytes: Bytes::new(bytes),
            lanes: lanes.iter().map(lane).collect(),
        }
    }

    fn finish_s(outcome: &Outcome) -> f64 {
        outcome.edge.unwrap().since(NOW).as_secs_f64()
    }

    #[test]
    fn a_stripe_is_as_slow_as_its_slowest_depot_when_all_are_needed() {
        let load = load(3000, &[(0, 1000), (1, 1000), (2, 1000)]);
        let outcome = supplies(&[100, 200, 10]).early(&load, NOW);
        assert!((finish_s(&outcome) - 100.0).abs() < 0.01);
    }

    #[test]
    fn a_spare_depot_carries_only_what_the_others_leave() {
        // 2 fragments a chunk on 3 depots: 100 + 100 + 50 carry 2000 in 8 s.
        let load = load(2000, &[(0, 1000), (1, 1000), (2, 1000)]);
        let outcome = supplies(&[100, 100, 50]).early(&load, NOW);
        assert!((finish_s(&outcome) - 8.0).abs() < 0.01);
        assert_eq!(outcome.placed[2], Bytes::new(400));
    }

    #[test]
    fn who_comes_later_gets_what_is_left() {
        let mut supplies = supplies(&[100]);
        let load = load(500, &[(0, 500)]);
        let first = supplies.early(&load, NOW);
        supplies.take(&load, &first);
        let second = supplies.early(&load, NOW);
        assert!((finish_s(&first) - 5.0).abs() < 0.01);
        assert!((finish_s(&second) - 10.0).abs() < 0.01);
    }

    #[test]
    fn what_is_filled_in_late_leaves_the_time_before_free() {
        let mut supplies = supplies(&[100]);
        let patient = load(500, &[(0, 500)]);
        let outcome = supplies.late(&patient, NOW, NOW + Duration::from_secs(20));
        assert_eq!(outcome.edge, Some(NOW + Duration::from_secs(15)));
        supplies.take(&patient, &outcome);
        let urgent = load(1500, &[(0, 1500)]);
        assert!((finish_s(&supplies.early(&urgent, NOW)) - 15.0).abs() < 0.01);
        assert_eq!(
            supplies
                .late(&urgent, NOW, NOW + Duration::from_secs(14))
                .edge,
            None
        );
    }

    #[test]
    fn a_depot_that_is_away_is_waited_for() {
        let mut supplies = supplies(&[100]);
        let away = (NOW, NOW + Duration::from_secs(30));
        supplies.depots[0].curve.close(away.0, away.1);
        let outcome = supplies.early(&load(500, &[(0, 500)]), NOW);
        assert!((finish_s(&outcome) - 35.0).abs() < 0.01);
    }

    #[test]
    fn the_centres_way_out_bounds_the_sum() {
        let mut supplies = supplies(&[100, 100]);
        supplies.way_out = Some(Curve::constant(ByteRate::new(50)));
        let outcome = supplies.early(&load(1000, &[(0, 500), (1, 500)]), NOW);
        assert!((finish_s(&outcome) - 20.0).abs() < 0.01);
    }

    #[test]
    fn what_has_no_space_or_no_path_never_finishes() {
        let mut full = supplies(&[10]);
        full.depots[0].space = Bytes::new(5);
        assert_eq!(full.early(&load(6, &[(0, 6)]), NOW).edge, None);
        assert_eq!(supplies(&[0]).early(&load(6, &[(0, 6)]), NOW).edge, None);
        assert_eq!(supplies(&[]).early(&load(6, &[]), NOW).edge, None);
        assert_eq!(supplies(&[]).early(&load(0, &[]), NOW).edge, Some(NOW));
    }

    /// The oracle: by bisection, the first moment by which the lanes can have carried everything.
    fn finish_by_bisection(supplies: &Supplies, load: &Load) -> Option<u64> {
        let carried = |micros: u64| -> u128 {
            let lane = |lane: &Lane| {
                let supply = &supplies.depots[lane.supply];
                let until = NOW + Duration::from_micros(micros);
                let carried = supply.curve.volume(NOW, until);
                u128::from(carried.min(lane.room).min(supply.space).get())
            };
            load.lanes.iter().map(lane).sum()
        };
        let (mut low, mut high) = (0u64, 1_000_000_000_000);
        if carried(high) < u128::from(load.bytes.get()) {
            return None;
        }
        while low < high {
            let middle = u64::midpoint(low, high);
            if carried(middle) >= u128::from(load.bytes.get()) {
                high = middle
            } else {
                low = middle + 1
            }
        }
        Some(low)
    }

    proptest! {
        #[test]
        fn one_load_finishes_when_bisection_says(
            depots in proptest::collection::vec(
                (1u64..10_000, 0u64..100_000, 0u64..100_000, 0u64..20, 0u64..20), 1..6),
            bytes in 0u64..200_000,
        ) {
            let rates: Vec<u64> = depots.iter().map(|depot| depot.0).collect();
            let mut supplies = supplies(&rates);
            for (supply, &(_, space, _, from, lasts)) in supplies.depots.iter_mut().zip(&depots) {
                supply.space = Bytes::new(space);
                let from = NOW + Duration::from_secs(from);
                supply.curve.close(from, from + Duration::from_secs(lasts));
            }
            let lanes: Vec<(usize, u64)> =
                depots.iter().enumerate().map(|(place, depot)| (place, depot.2)).collect();
            let load = load(bytes, &lanes);
            let outcome = supplies.early(&load, NOW);
            match (outcome.edge, finish_by_bisection(&supplies, &load)) {
                (None, None) => {}
                (Some(ours), Some(theirs)) => {
                    // Integer rounding costs at most a microsecond and a byte a segment and lane; a
                    // byte may have to wait until an absent depot is back.
                    let ours = u64::try_from(ours.since(NOW).as_micros()).unwrap();
                    let slowest = rates.iter().min().unwrap();
                    let tolerance = 40 + 40 * 1_000_000 / slowest;
                    let is_near = ours.abs_diff(theirs) <= tolerance;
                    prop_assert!(is_near || ours.abs_diff(theirs) <= 20_000_000 + tolerance,
                        "{ours} and {theirs}");
                }
                differ => prop_assert!(false, "{differ:?}"),
            }
        }

        /// Early and late agree whether a load fits between two moments, and nobody ever gets more
        /// than room, space, curves and the way out give.
        #[test]
        fn shares_never_exceed_what_there_is(
            depots in proptest::collection::vec((0u64..10_000, 0u64..50_000), 1..6),
            wants in proptest::collection::vec((0u64..100_000, 0u64..50_000, any::<bool>()), 1..6),
            way_out in proptest::option::of(1u64..20_000),
        ) {
            let rates: Vec<u64> = depots.iter().map(|depot| depot.0).collect();
            let mut supplies = supplies(&rates);
            for (supply, &(_, space)) in supplies.depots.iter_mut().zip(&depots) {
                supply.space = Bytes::new(space);
            }
            supplies.way_out = way_out.map(|rate| Curve::constant(ByteRate::new(rate)));
            let before = supplies.clone();
            let until = NOW + Duration::from_secs(60);
            let mut into = vec![Bytes::ZERO; depots.len()];
            for &(bytes, room, early) in &wants {
                let lanes: Vec<(usize, u64)> = (0..depots.len()).map(|place| (place, room)).collect();
                let load = load(bytes, &lanes);
                let outcome = if early {
                    supplies.early(&load, NOW)
                } else {
                    supplies.late(&load, NOW, until)
                };
                let placed: Bytes = outcome.placed.iter().copied().sum();
                prop_assert!(placed <= load.bytes);
                prop_assert_eq!(outcome.edge.is_some(), placed == load.bytes);
                if !early && load.bytes > Bytes::ZERO && let Some(start) = outcome.edge {
                    prop_assert!(start >= NOW);
                    let by = supplies.early(&load, NOW).edge;
                    let slack = Duration::from_micros(50);
                    prop_assert!(by.is_some_and(|by| by <= until + slack), "{by:?}");
                }
                for (place, (lane, placed)) in load.lanes.iter().zip(&outcome.placed).enumerate() {
                    prop_assert!(*placed <= lane.room);
                    into[place] += *placed;
                    prop_assert!(into[place] <= before.depots[place].space);
                }
                supplies.take(&load, &outcome);
            }
        }
    }
}
