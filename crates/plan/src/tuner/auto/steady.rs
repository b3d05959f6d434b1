//! After the search: stay, and feel now and then for a few files at once more or fewer.
//!
//! Falcon's climb, slowed down and tied to a post: five periods where it is, two an eighth further up or
//! down. What is worth 3 % more is the new post, and the next step goes the same way at once; else
//! it returns and looks the other way next time. A step that is forgotten can't add up to a drift.
//! What is carried leaving the running median by 30 % for three periods in a row means that the path
//! has changed.

use alloc::vec::Vec;
use posthaste_types::{ByteRate, record};

use super::super::{
    Knob, Outcome, Probe,
    utility::{gain_permille, median},
};
use super::search::GAIN_MIN_PERMILLE;

/// Periods at the post between two steps.
const STAY: usize = 5;
/// Periods a step is looked at.
const FEEL: usize = 2;
/// A step is this fraction of the files at once, one at least.
const STEP_FRACTION: u16 = 8;
/// Periods the running median is made of.
const MEDIAN_OF: usize = 9;
/// Fewer than this many say nothing about what is usual.
const MEDIAN_MIN: usize = 3;
/// Rates within this of the median, in thousandths of it, are the usual noise.
const USUAL_PERMILLE: i64 = 300;
/// Periods outside in a row before it counts as a change.
const OUTSIDE_MAX: u32 = 3;

record! {
    /// What a period carried, and what that was worth.
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
        /// What the last periods carried, the oldest first.
        rates: Vec<ByteRate>,
        outside: u32,
        /// What the periods at this count of files carried and were worth.
        here: Vec<Figures>,
        /// The post: files at once.
        post: u16,
        /// The figures of the post, while a step is looked at.
        before: Option<Figures>,
        /// The next step is up.
        is_up: bool,
    }
}

/// What a period in the steady state leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing.
    Hold,
    /// So many files at once from now on.
    Step {
        /// How many.
        to: u16,
        /// How the step before did.
        last: Option<Outcome>,
    },
    /// The path is another one than it was.
    Moved {
        /// What it carried.
        from: ByteRate,
    },
}

impl Steady {
    /// A path that was measured to carry `rate` with the `post` files at once it is now left at.
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

    /// Files at once that were best so far.
    pub(super) fn post(&self) -> u16 {
        self.post
    }

    /// Counts a period with `probe` that was worth `worth`; `most` files at once are allowed.
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

    /// A step was looked at: it becomes the post, or is taken back.
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

    /// The next step from the post, whose figures are `here`.
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

/// The middle one by worth, which a single odd period does not move; of two, the lesser.
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

    /// Files at once in each of `periods` on a path that carries `carried(files)`.
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
