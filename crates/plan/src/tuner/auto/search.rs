//! Line search along one knob after another, in powers of two.
//!
//! From the start each knob is doubled as long as that is worth 3 % more: first files at once,
//! which matter most, then files ahead, then streams per file (storkcloud-2013 section 3.1 has the
//! order). Knobs that did not grow are then halved as long as that is worth 3 % more. Seven tries
//! at most: 21 seconds.

use posthaste_types::{ByteRate, record};

use super::super::{Bounds, Knob, Outcome, Probe, Setting, utility::gain_permille};

/// Settings measured in one search, the start included.
const PROBES_MAX: u32 = 7;
/// Least gain of a step, in thousandths: less is noise.
pub(super) const GAIN_MIN_PERMILLE: i64 = 30;
/// Most streams that a search goes up to. If twice the opening's most is not enough, the path has
/// another limit.
pub(super) const STREAMS_MAX: u32 = 128;

/// Knobs, and whether each is turned up.
const LEGS: [(Knob, bool); 6] = [
    (Knob::Concurrency, true),
    (Knob::Pipelining, true),
    (Knob::Parallelism, true),
    (Knob::Concurrency, false),
    (Knob::Pipelining, false),
    (Knob::Parallelism, false),
];

record! {
    /// A search under way.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Search {
        /// Best setting so far.
        base: Setting,
        /// Its utility, once measured.
        worth: Option<u64>,
        /// Its rate.
        rate: ByteRate,
        /// Place in the list of legs.
        leg: u32,
        probes: u32,
        /// Knobs whose increase gained, one bit for each leg.
        gained: u8,
    }
}

/// Next step of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Measure this setting next.
    Try {
        /// Whole setting.
        setting: Setting,
        /// Knob that differs.
        knob: Knob,
    },
    /// Nothing is left to try.
    Done,
}

impl Search {
    /// Returns a search from `start`, which is measured first.
    pub(super) fn new(start: Setting) -> Self {
        Self {
            base: start,
            worth: None,
            rate: ByteRate::ZERO,
            leg: 0,
            probes: 0,
            gained: 0,
        }
    }

    /// Returns the best setting so far.
    pub(super) fn base(&self) -> Setting {
        self.base
    }

    /// Returns the rate of the best setting.
    pub(super) fn rate(&self) -> ByteRate {
        self.rate
    }

    /// Records the utility of a probe. Returns its comparison with the best before.
    pub(super) fn judge(&mut self, probe: &Probe, worth: u64) -> Option<Outcome> {
        self.probes += 1;
        let measured = probe.setting;
        let Some(best) = self.worth else {
            (self.base, self.worth, self.rate) = (measured, Some(worth), probe.rate());
            return None;
        };
        let gain = gain_permille(best, worth);
        let &(knob, is_up) = LEGS.get(self.leg as usize)?;
        let outcome = Outcome {
            knob,
            tried: knob.of(measured),
            against: knob.of(self.base),
            gain_permille: gain_permille(self.rate.get(), probe.rate().get()),
        };
        if gain >= GAIN_MIN_PERMILLE {
            (self.base, self.worth, self.rate) = (measured, Some(worth), probe.rate());
            if is_up {
                self.gained |= 1 << self.leg;
            }
        } else {
            self.leg += 1;
        }
        Some(outcome)
    }

    /// Returns the next setting to measure.
    pub(super) fn next(&mut self, bounds: &Bounds) -> Step {
        while self.probes < PROBES_MAX
            && let Some(&(knob, is_up)) = LEGS.get(self.leg as usize)
        {
            let value = knob.of(self.base);
            let turned = if is_up {
                value.saturating_mul(2)
            } else {
                value / 2
            };
            let setting = bounds.clamp(knob.with(self.base, turned));
            let is_settled = !is_up && self.gained >> (self.leg - 3) & 1 == 1;
            let is_same = knob.of(setting) == value;
            let is_crowd = is_up && setting.streams() > STREAMS_MAX.max(self.base.streams());
            if !is_settled && !is_same && !is_crowd {
                return Step::Try { setting, knob };
            }
            self.leg += 1;
        }
        Step::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuner::trial::probe;
    use alloc::vec::Vec;

    const BOUNDS: Bounds = Bounds {
        concurrency_min: 1,
        concurrency_max: 64,
        parallelism_max: 16,
        pipelining_max: 64,
    };

    /// Searches a made-up path and returns the measured settings, in order, and the final one.
    fn search(
        start: Setting,
        bounds: &Bounds,
        carried: impl Fn(Setting) -> u64,
    ) -> (Vec<Setting>, Setting) {
        let mut search = Search::new(start);
        let mut measured = alloc::vec![start];
        search.judge(&probe(start, carried(start)), carried(start));
        while let Step::Try { setting, .. } = search.next(bounds) {
            measured.push(setting);
            search.judge(&probe(setting, carried(setting)), carried(setting));
        }
        (measured, search.base())
    }

    #[test]
    fn what_helps_is_doubled_until_it_no_longer_does() {
        let knee = |setting: Setting| 1000 * u64::from(setting.concurrency.min(32));
        let (measured, end) = search(Setting::new(8, 2, 8), &BOUNDS, knee);
        assert_eq!(end.concurrency, 32);
        let tried: Vec<u16> = measured.iter().map(|setting| setting.concurrency).collect();
        assert_eq!(tried[..4], [8, 16, 32, 64]);
    }

    #[test]
    fn seven_probes_are_enough() {
        for seed in 0..200u64 {
            let rough = |setting: Setting| {
                1000 + (u64::from(setting.streams()) * 7 + u64::from(setting.pipelining) * seed)
                    % 1000
            };
            let (measured, end) = search(Setting::new(8, 2, 8), &BOUNDS, rough);
            assert!(measured.len() <= 7, "{measured:?}");
            let best = measured.iter().map(|&setting| rough(setting)).max();
            assert!(rough(end) * 103 >= best.unwrap_or(0) * 100, "seed {seed}");
        }
    }

    #[test]
    fn what_does_harm_is_halved() {
        let crowded = |setting: Setting| 1_000_000 / u64::from(setting.streams());
        let (_, end) = search(Setting::new(8, 1, 1), &BOUNDS, crowded);
        assert_eq!(end, Setting::new(1, 1, 1));
    }

    #[test]
    fn nothing_goes_below_the_fewest_at_once() {
        let bounds = Bounds {
            concurrency_min: 6,
            parallelism_max: 1,
            pipelining_max: 1,
            ..BOUNDS
        };
        let crowded = |setting: Setting| 1_000_000 / u64::from(setting.streams());
        let (measured, end) = search(Setting::new(8, 1, 1), &bounds, crowded);
        assert_eq!(end.concurrency, 6);
        let tried: Vec<u16> = measured.iter().map(|setting| setting.concurrency).collect();
        assert_eq!(tried, [8, 16, 6]);
        // If fewer are allowed, all of those are used.
        let few = Bounds {
            concurrency_max: 2,
            ..bounds
        };
        assert_eq!(few.clamp(Setting::ONE).concurrency, 2);
    }

    #[test]
    fn a_knob_that_is_not_there_costs_no_probe() {
        let bounds = Bounds {
            parallelism_max: 1,
            pipelining_max: 1,
            ..BOUNDS
        };
        let (measured, _) = search(Setting::new(8, 1, 1), &bounds, |_| 1000);
        let tried: Vec<u16> = measured.iter().map(|setting| setting.concurrency).collect();
        assert_eq!(tried, [8, 16, 4]);
    }

    #[test]
    fn streams_stay_below_their_limit() {
        let linear = |setting: Setting| u64::from(setting.streams());
        let (measured, _) = search(Setting::new(32, 2, 8), &BOUNDS, linear);
        assert!(
            measured
                .iter()
                .all(|setting| setting.streams() <= STREAMS_MAX),
            "{measured:?}"
        );
    }
}
