//! Several ways to one place: the choice for the next connection.
//!
//! Ways are listed in order of preference. A way that fails is left at once for the next open one,
//! and retried after a pause that doubles with each further failure. It has to serve for a while
//! before its failures are forgotten, so that a way that keeps opening and breaking is tried ever
//! less often. While all are closed, the way whose pause ends first is tried all the same: the
//! place itself may not answer.

use alloc::{vec, vec::Vec};
use core::time::Duration;

use posthaste_types::ByteRate;

/// Pause after the first failure of a way.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest pause: a way that is back is used again within this.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Doublings until the longest pause.
const DOUBLINGS_MAX: u32 = 6;
/// Time a way must serve after it was closed until its failures are forgotten.
const STEADY: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, Default)]
struct Way {
    /// Failures since it last served for long.
    failures: u32,
    /// Moment until which it is left alone.
    closed_until: Duration,
}

/// Ways to one place, the preferred one first. Times are counted from any moment, the same for all
/// calls.
#[derive(Debug, Clone)]
pub struct Ways {
    ways: Vec<Way>,
    /// The preferred way.
    wanted: usize,
}

impl Ways {
    /// Returns this many ways, none of which has failed.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self {
            ways: vec![Way::default(); count],
            wanted: 0,
        }
    }

    /// Prefers this way from now on.
    pub fn want(&mut self, way: usize) {
        if way < self.ways.len() {
            self.wanted = way;
        }
    }

    /// Returns the ways in the order to try them until one opens; at least one, unless there are
    /// none.
    #[must_use]
    pub fn order(&self, now: Duration) -> Vec<usize> {
        let all = self.ways.iter().enumerate();
        let mut open: Vec<usize> = all
            .clone()
            .filter(|(_, way)| way.closed_until <= now)
            .map(|(at, _)| at)
            .collect();
        open.sort_by_key(|at| *at != self.wanted);
        if !open.is_empty() {
            return open;
        }
        let soonest = all.min_by_key(|(_, way)| way.closed_until);
        soonest.map(|(at, _)| at).into_iter().collect()
    }

    /// Returns the way of the next connection, if it opens.
    #[must_use]
    pub fn first(&self, now: Duration) -> Option<usize> {
        self.order(now).first().copied()
    }

    /// Records that a way did not open, or that a connection over it broke. Simultaneous breaks
    /// count once.
    pub fn failed(&mut self, way: usize, now: Duration) {
        let Some(way) = self.ways.get_mut(way) else {
            return;
        };
        if now < way.closed_until {
            return;
        }
        let pause = PAUSE * 2_u32.pow(way.failures.min(DOUBLINGS_MAX));
        way.closed_until = now + pause.min(PAUSE_MAX);
        way.failures = way.failures.saturating_add(1);
    }

    /// Records that a way served.
    pub fn served(&mut self, way: usize, now: Duration) {
        if let Some(way) = self.ways.get_mut(way)
            && now >= way.closed_until + STEADY
        {
            way.failures = 0;
        }
    }
}

/// Fifths of the other way's rate that a gateway must carry to be chosen.
const GAIN_FIFTHS: u64 = 6;
/// Twentieths of the current gateway's rate that the direct way must carry to be chosen.
const STRAIGHT_TWENTIETHS: u64 = 19;

/// Returns whether a way with `rate` is worth leaving one with `than` for.
#[must_use]
pub fn pays(rate: ByteRate, than: ByteRate) -> bool {
    rate >= than.scaled(GAIN_FIFTHS, 5)
}

/// Returns the way to use, by forecast rates (p50, none before the first measurement).
///
/// A gateway has to carry a fifth more than the current way and than the direct one. If no gateway
/// does, the direct way only has to carry as much as the current one, less up to a twentieth. Rates
/// between these limits are not worth a change. `taken` and `straight` are places in `rates`.
#[must_use]
pub fn choose(rates: &[Option<ByteRate>], taken: usize, straight: usize) -> usize {
    let rate = |place: usize| rates.get(place).copied().flatten();
    let Some(now) = rate(taken) else {
        return taken;
    };
    let most = (0..rates.len())
        .filter(|place| *place != straight)
        .filter_map(|place| Some((rate(place)?, core::cmp::Reverse(place))))
        .max();
    let straight_carries = rate(straight);
    // Some gateway is better than the direct way.
    let worthy =
        most.filter(|(gateway, _)| straight_carries.is_none_or(|carries| pays(*gateway, carries)));
    match (worthy, straight_carries) {
        (Some((gateway, core::cmp::Reverse(place))), _) if pays(gateway, now) => place,
        (None, Some(carries)) if carries >= now.scaled(STRAIGHT_TWENTIETHS, 20) => straight,
        _ => taken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_way_that_fails_is_left_at_once_and_tried_again_later() {
        let mut ways = Ways::new(2);
        assert_eq!(ways.order(s(0)), [0, 1]);
        ways.failed(0, s(5));
        assert_eq!(ways.order(s(5)), [1]);
        assert_eq!(ways.order(s(6)), [0, 1]);
    }

    #[test]
    fn the_way_that_is_wanted_is_tried_before_all_others_while_it_is_open() {
        let mut ways = Ways::new(3);
        ways.want(2);
        assert_eq!(ways.order(s(0)), [2, 0, 1]);
        ways.failed(2, s(0));
        assert_eq!(ways.order(s(0)), [0, 1]);
        assert_eq!(ways.order(s(1)), [2, 0, 1]);
        ways.want(3);
        assert_eq!(ways.first(s(1)), Some(2), "there is none of this number");
    }

    #[test]
    fn pauses_double_up_to_a_minute_and_what_breaks_together_counts_once() {
        let mut ways = Ways::new(2);
        let mut now = Duration::ZERO;
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            for _ in 0..8 {
                ways.failed(0, now);
            }
            let almost = now + s(pause) - Duration::from_micros(1);
            assert_eq!(ways.first(almost), Some(1), "{pause}");
            now += s(pause);
            assert_eq!(ways.first(now), Some(0), "{pause}");
        }
    }

    #[test]
    fn failures_are_forgotten_by_one_that_serves_for_long_only() {
        let mut ways = Ways::new(2);
        ways.failed(0, s(0));
        // The way opens again, serves a little, and breaks: the pause is longer.
        ways.served(0, s(2));
        ways.failed(0, s(2));
        assert_eq!(ways.first(s(3)), Some(1));
        assert_eq!(ways.first(s(4)), Some(0));
        ways.served(0, s(14));
        ways.failed(0, s(14));
        assert_eq!(ways.first(s(15)), Some(0));
    }

    fn rates(mib: &[u64]) -> Vec<Option<ByteRate>> {
        let rate = |mib: &u64| (*mib > 0).then(|| ByteRate::new(mib << 20));
        mib.iter().map(rate).collect()
    }

    #[test]
    fn a_gateway_is_taken_where_it_carries_clearly_more_and_left_where_it_buys_nothing() {
        // The direct way is the last; zero means not measured.
        let cases = [
            (&[100, 50][..], 1, 0),
            (&[60, 50], 1, 0),
            (&[59, 50], 1, 1),
            (&[59, 50], 0, 0),
            (&[50, 50], 0, 1),
            (&[50, 48], 0, 1),
            (&[50, 47], 0, 0),
            (&[0, 50], 1, 1),
            (&[50, 0], 0, 0),
            (&[50, 0], 1, 1),
            (&[70, 90, 50], 2, 1),
            (&[70, 80, 50], 0, 0),
            (&[70, 84, 50], 0, 1),
            (&[90, 90, 50], 2, 0),
            (&[70, 90, 88], 0, 2),
            (&[10, 12, 11], 0, 2),
            (&[100, 118, 96], 0, 0),
            (&[100, 121, 100], 0, 1),
        ];
        for (mib, taken, chosen) in cases {
            let straight = mib.len() - 1;
            assert_eq!(choose(&rates(mib), taken, straight), chosen, "{mib:?}");
        }
    }

    #[test]
    fn what_was_chosen_is_chosen_again() {
        let some = [0, 40, 45, 50, 55, 60, 100];
        let three = some.map(|a| some.map(|b| some.map(|c| [a, b, c])));
        for mib in three.iter().flatten().flatten() {
            let rates = rates(mib);
            for taken in 0..3 {
                let chosen = choose(&rates, taken, 2);
                assert_eq!(choose(&rates, chosen, 2), chosen, "{mib:?} from {taken}");
            }
        }
    }

    #[test]
    fn where_all_are_closed_the_one_that_opens_first_is_tried() {
        let mut ways = Ways::new(2);
        ways.failed(0, s(0));
        ways.failed(0, s(1));
        ways.failed(1, s(1));
        assert_eq!(ways.order(s(1)), [1]);
        // A single way is always used, whatever it did.
        let mut alone = Ways::new(1);
        alone.failed(0, s(0));
        assert_eq!(alone.order(s(0)), [0]);
        assert!(Ways::new(0).order(s(0)).is_empty());
    }
}
