//! Steady state after the search: stay, and try slightly more or fewer files at once now and then.
//!
//! This is Falcon's climb, slowed down and tied to a post: five periods at the post, two an eighth
//! further up or down. A step worth 3 % more becomes the new post, and the next step goes the same
//! way at once. Otherwise the count returns, and the next step goes the other way. Failed steps
//! can't add up to a drift. Rates that differ from the running median by 30 % for three periods in
//! a row mean that the path has changed.

use alloc::vec::Vec;
use posthaste_types::{ByteRate, record};

use super::super::{
    Knob, Outcome, Probe,
    utility::{gain_permille, median},
};
use super::search::GAIN_MIN_PERMILLE;

/// Periods at the post between two steps.
const STAY: usize = 5;
/// Periods for which a step is tried.
const FEEL: usize = 2;
/// Divisor: a step is this fraction of the files at once, at least one.
const STEP_FRACTION: u16 = 8;
/// Periods in the running median.
const MEDIAN_OF: usize = 9;
/// Fewest periods that show the usual rate.
const MEDIAN_MIN: usize = 3;
/// Usual noise: distance of a rate from the median, in thousandths of it.
const USUAL_PERMILLE: i64 = 300;
/// Periods in a row outside the noise that count as a change.
const OUTSIDE_MAX: u32 = 3;

record! {
    /// Rate of a period, and its utility.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Figures {
        rate: ByteRate,
        worth: u64,
    }
}

record! {
    /// A path in its steady state.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Steady {
        /// Rates of the last periods, the oldest first.
        rates: Vec<ByteRate>,
        outside: u32,
        /// Figures of the periods at this count of files.
        here: Vec<Figures>,
        /// The post: files at once.
        post: u16,
        /// Figures of the post while a step is tried.
        before: Option<Figures>,
        /// The next step is up.
        is_up: bool,
    }
}

/// Result of a period in the steady state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// No change.
    Hold,
    /// Change the number of files at once.
    Step {
        /// New number of files.
        to: u16,
        /// Result of the step before.
        last: Option<Outcome>,
    },
    /// The path has changed.
    Moved {
        /// Its earlier rate.
        from: ByteRate,
    },
}

impl Steady {
    /// Returns the steady state of a path with `post` files at once, which was measured to carry
    /// `rate`.
    pub(super) fn new(post: u16, rate: ByteRate) -> Self {
        Self {
            rates: alloc::vec![rate; MEDIAN_MIN],
            outside: 0,
            here: Vec::new(),
            post,
            before: None,
            is_up: true,
        }
    }

    /// Returns the best number of files at once so far.
    pub(super) fn post(&self) -> u16 {
        self.post
    }

    /// Records a period with `probe` and utility `worth`; `most` files at once are allowed.
    pub(super) fn on_probe(&mut self, probe: &Probe, worth: u64, most: u16) -> Turn {
        let rate = probe.rate();
        if let Some(usual) = median(&self.rates) {
            let is_outside = gain_permille(usual.get(), rate.get()).abs() > USUAL_PERMILLE;
            self.outside = if is_outside { self.outside + 1 } else { 0 };
            if self.outside >= OUTSIDE_MAX {
                return Turn::Moved { from: usual };
            }
        }
        if self.rates.len() >= MEDIAN_OF {
            self.rates.remove(0);
        }
        self.rates.push(rate);
        self.here.push(Figures { rate, worth });
        let wanted = if self.before.is_some() { FEEL } else { STAY };
        if self.here.len() < wanted {
            return Turn::Hold;
        }
        let figures = typical(&mut self.here);
        let at = probe.setting.concurrency;
        match self.before.take() {
            None => {
                self.post = at;
                self.step(figures, most, None)
            }
            Some(before) => self.judge(at, before, figures, most),
        }
    }

    /// Judges a step: it becomes the post, or is taken back.
    fn judge(&mut self, at: u16, before: Figures, here: Figures, most: u16) -> Turn {
        let last = Outcome {
            knob: Knob::Concurrency,
            tried: at,
            against: self.post,
            gain_permille: gain_permille(before.rate.get(), here.rate.get()),
        };
        if gain_permille(before.worth, here.worth) >= GAIN_MIN_PERMILLE {
            self.post = at;
            return self.step(here, most, Some(last));
        }
        self.is_up = !self.is_up;
        Turn::Step {
            to: self.post.min(most),
            last: Some(last),
        }
    }

    /// Returns the next step from the post, whose figures are `here`.
    fn step(&mut self, here: Figures, most: u16, last: Option<Outcome>) -> Turn {
        let length = (self.post / STEP_FRACTION).max(1);
        let towards = |is_up: bool| {
            let to = if is_up {
                self.post.saturating_add(length).min(most)
            } else {
                self.post.saturating_sub(length).max(1)
            };
            (to != self.post).then_some((to, is_up))
        };
        let Some((to, is_up)) = towards(self.is_up).or_else(|| towards(!self.is_up)) else {
            return Turn::Hold;
        };
        self.is_up = is_up;
        self.before = Some(here);
        Turn::Step { to, last }
    }
}

/// Returns the median by utility, which a single odd period does not move; of two, the lesser.
fn typical(figures: &mut Vec<Figures>) -> Figures {
    figures.sort_unstable_by_key(|figures| figures.worth);
    let middle = figures[(figures.len() - 1) / 2];
    figures.clear();
    middle
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuner::{Setting, trial::probe};

    /// Returns the files at once in each of `periods` on a path that carries `carried(files)`.
    fn walk(post: u16, periods: usize, carried: impl Fn(u16) -> u64) -> Vec<u16> {
        let mut steady = Steady::new(post, ByteRate::new(carried(post)));
        let mut files = post;
        let mut walked = Vec::new();
        for _ in 0..periods {
            walked.push(files);
            let rate = carried(files);
            let probe = probe(Setting::new(files, 1, 1), rate);
            match steady.on_probe(&probe, rate, 64) {
                Turn::Hold => {}
                Turn::Step { to, .. } => files = to,
                Turn::Moved { .. } => panic!("nothing has moved"),
            }
        }
        walked
    }

    #[test]
    fn where_all_is_well_it_stays() {
        let walked = walk(16, 70, |files| 1_000_000 * u64::from(files.min(16)));
        let away = walked.iter().filter(|&&files| files != 16).count();
        assert!(away <= 20, "{walked:?}");
        assert!(walked.iter().all(|files| (14..=18).contains(files)));
    }

    #[test]
    fn where_more_is_better_it_goes_there_without_a_rest() {
        let walked = walk(16, 30, |files| 1_000_000 * u64::from(files.min(32)));
        assert!(walked[15..].iter().all(|&files| files >= 28), "{walked:?}");
    }

    #[test]
    fn a_drop_for_three_periods_is_a_change() {
        let mut steady = Steady::new(8, ByteRate::new(1_000_000));
        let low = probe(Setting::new(8, 1, 1), 600_000);
        assert_eq!(steady.on_probe(&low, 1, 64), Turn::Hold);
        assert_eq!(steady.on_probe(&low, 1, 64), Turn::Hold);
        let from = ByteRate::new(1_000_000);
        assert_eq!(steady.on_probe(&low, 1, 64), Turn::Moved { from });
    }
}
