//! Endless gradient steps on files at once (Arifuzzaman, Arslan: Online Optimization of File
//! Transfers in High-Speed Networks, SC 2021, section 3, and the authors' published code). All
//! transfers that climb the same concave utility come to rest at an equal share.

use posthaste_types::{ByteRate, record};

use super::{
    Bounds, Choice, Knob, Optimizer, Outcome, PathFacts, Probe, Reason, Setting, Stocks, Urgency,
    rules,
    utility::{Cost, gain_permille},
};

/// Farthest step beyond the best so far.
const REACH: u16 = 10;
/// Most files at once.
const CONCURRENCY_MAX: u16 = 100;
/// Fewest files at once: with a single one there is nothing to compare.
const CONCURRENCY_MIN: u16 = 2;

record! {
    /// A number of files at once, its rate and its utility.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Point {
        count: u16,
        rate: ByteRate,
        worth: u64,
    }
}

record! {
    /// The gradient method.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Falcon {
        facts: PathFacts,
        bounds: Bounds,
        before: Option<Point>,
        best: Option<Point>,
        /// Steps in one direction, signed: the momentum.
        streak: i64,
        /// Setting in force.
        setting: Setting,
    }
}

impl Falcon {
    pub(super) fn new(facts: PathFacts, bounds: Bounds) -> Self {
        Self {
            facts,
            bounds,
            before: None,
            best: None,
            streak: 0,
            setting: Setting::ONE,
        }
    }

    fn most(&self, stocks: &Stocks) -> u16 {
        let files = rules::narrow(stocks.total().files.max(1));
        self.bounds
            .concurrency_max
            .min(CONCURRENCY_MAX)
            .min(files)
            .max(1)
    }

    /// Applies this many files at once, with streams and files ahead by rule.
    fn go(&mut self, count: u16, stocks: &Stocks, reason: Reason) -> Choice {
        let total = stocks.total();
        let class = self.facts.class(total.mean());
        let by_rule = rules::setting(class, total, &self.facts, &self.bounds);
        self.setting = Knob::Concurrency.with(by_rule, count);
        Choice::of_all(self.setting, &self.facts, reason)
    }

    /// Returns the next count: `n + theta * ceil(n * |g/u|)`, within the bounds.
    fn next(&mut self, now: Point, before: Point, most: u16) -> u16 {
        let rise = i128::from(now.worth) - i128::from(before.worth);
        let run = i128::from(now.count) - i128::from(before.count);
        // At a limit there is no gradient: step backwards.
        let is_rising = rise.signum() * run.signum() > 0;
        self.streak = if is_rising {
            self.streak.max(0) + 1
        } else {
            self.streak.min(0) - 1
        };
        let below = (run.unsigned_abs() * u128::from(before.worth)).max(1);
        let step = (u128::from(now.count) * rise.unsigned_abs())
            .div_ceil(below)
            .max(1);
        let step = i128::try_from(step)
            .unwrap_or(i128::MAX)
            .min(i128::from(most));
        let wanted = i128::from(now.count) + i128::from(self.streak) * step;
        let soft = self
            .best
            .map_or(most, |best| best.count.saturating_add(REACH).min(most));
        let least = CONCURRENCY_MIN.min(soft);
        u16::try_from(wanted.clamp(i128::from(least), i128::from(soft))).unwrap_or(least)
    }
}

impl Optimizer for Falcon {
    fn first(&mut self, stocks: &Stocks) -> Choice {
        (self.before, self.best, self.streak) = (None, None, 0);
        self.go(1, stocks, Reason::Stepping { last: None, to: 1 })
    }

    fn on_probe(&mut self, probe: &Probe, stocks: &Stocks) -> Choice {
        if probe.is_too_short() {
            return self.go(self.setting.concurrency, stocks, Reason::TooShort);
        }
        let most = self.most(stocks);
        let count = probe.setting.concurrency;
        let worth = Cost::FILE.worth(probe, count.into());
        let rate = probe.rate();
        let now = Point { count, rate, worth };
        if self.best.is_none_or(|best| worth > best.worth) {
            self.best = Some(now);
        }
        let last = self.before.map(|before| Outcome {
            knob: Knob::Concurrency,
            tried: count,
            against: before.count,
            gain_permille: gain_permille(before.rate.get(), rate.get()),
        });
        let to = match self.before {
            Some(before) => self.next(now, before, most),
            None => CONCURRENCY_MIN.min(most),
        };
        self.before = Some(now);
        self.go(to, stocks, Reason::Stepping { last, to })
    }

    fn set_urgency(&mut self, _: Urgency) {}

    fn best(&self) -> Option<Setting> {
        self.best
            .map(|best| Knob::Concurrency.with(self.setting, best.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuner::trial::{BOUNDS, facts, probe, stocks};

    #[test]
    fn it_climbs_to_where_one_more_is_not_worth_it() {
        let facts = facts(60, Some(10));
        let stocks = stocks(&facts, &[(1000, 100_000_000)]);
        let mut falcon = Falcon::new(facts, BOUNDS);
        let mut choice = falcon.first(&stocks);
        // Each file carries 50 MB/s until the path is full at 20.
        let carried = |count: u16| 50_000_000 * u64::from(count.min(20));
        let mut late = alloc::vec::Vec::new();
        for period in 0..60 {
            let count = choice.setting().concurrency;
            if period >= 40 {
                late.push(count);
            }
            choice = falcon.on_probe(&probe(choice.setting(), carried(count)), &stocks);
        }
        let mean = late.iter().map(|&count| u64::from(count)).sum::<u64>() / late.len() as u64;
        assert!((15..=26).contains(&mean), "{late:?}");
        assert_eq!(
            falcon.best().map(|best| best.concurrency.abs_diff(20) <= 3),
            Some(true)
        );
    }
}
