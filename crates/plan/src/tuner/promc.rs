//! ProMC: all classes at once, with channels by weight. A channel moves if one class would finish
//! long before another (Arslan, Kosar: High Speed Transfer Optimization Based on Historical
//! Analysis and Real-Time Tuning; the reference code of the same group).

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, record};

use super::{
    Bounds, Choice, Class, ClassSet, Optimizer, PathFacts, Probe, Reason, Setting, Share, Stocks,
    Urgency, rules,
};

/// Time between two reviews of the channels.
const PERIOD: Duration = Duration::from_secs(5);
/// Periods in a row that a class must be late before a channel moves.
const LATE_PERIODS: u32 = 3;
/// Factor by which a late class takes longer than the first to finish.
const LATE_FACTOR: u32 = 2;

record! {
    /// All classes at once.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Promc {
        facts: PathFacts,
        bounds: Bounds,
        /// Merged classes, with their names and channels.
        groups: Vec<Group>,
        /// Files left when the period began.
        before: Stocks,
        late: u32,
    }
}

record! {
    /// Classes that go together.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Group {
        class: Class,
        classes: ClassSet,
        channels: u16,
    }
}

/// Returns the weight of a byte of the class.
const fn weight(class: Class) -> u64 {
    match class {
        Class::Small => 3,
        Class::Middle => 2,
        Class::Large | Class::Huge => 1,
    }
}

impl Promc {
    pub(super) fn new(facts: PathFacts, bounds: Bounds) -> Self {
        Self {
            facts,
            bounds,
            groups: Vec::new(),
            before: Stocks::default(),
            late: 0,
        }
    }

    /// Assigns the channels: by weight rounded down, at least one each, and the rest to the class
    /// with the fewest.
    fn deal(&mut self, stocks: &Stocks) {
        let groups = stocks.merged(self.facts.bdp());
        let weigh = |&(class, classes): &(Class, ClassSet)| {
            u128::from(stocks.sum(classes).bytes.get()) * u128::from(weight(class))
        };
        let sum: u128 = groups.iter().map(weigh).sum::<u128>().max(1);
        let most = self.bounds.concurrency_max.max(1);
        self.groups = groups
            .iter()
            .map(|group| Group {
                class: group.0,
                classes: group.1,
                channels: u16::try_from(u128::from(most) * weigh(group) / sum)
                    .unwrap_or(most)
                    .max(1),
            })
            .collect();
        let dealt = |groups: &[Group]| {
            groups
                .iter()
                .map(|group| u32::from(group.channels))
                .sum::<u32>()
        };
        while dealt(&self.groups) > u32::from(most).max(1) {
            let largest = self.groups.iter_mut().max_by_key(|group| group.channels);
            match largest {
                Some(group) if group.channels > 1 => group.channels -= 1,
                // With more classes than channels the last ones wait.
                Some(_) | None => {
                    self.groups.truncate(most.into());
                    break;
                }
            }
        }
        while dealt(&self.groups) < u32::from(most) {
            let Some(fewest) = self.groups.iter_mut().min_by_key(|group| group.channels) else {
                break;
            };
            fewest.channels += 1;
        }
    }

    /// Returns whether some group has nothing left, or a class with files is in no group.
    fn is_stale(&self, stocks: &Stocks) -> bool {
        let covered = self
            .groups
            .iter()
            .fold(ClassSet::NONE, |all, group| all.union(group.classes));
        let waits = self.groups.len() < usize::from(self.bounds.concurrency_max);
        self.groups
            .iter()
            .any(|group| stocks.sum(group.classes).files == 0)
            || waits
                && stocks
                    .present()
                    .iter()
                    .any(|class| !covered.contains(class))
    }

    /// Returns the groups that would finish first and last, if they differ by more than the factor.
    fn uneven(&self, elapsed: Duration, stocks: &Stocks) -> Option<(usize, usize)> {
        let left: Vec<Duration> = self
            .groups
            .iter()
            .map(|group| {
                let rest: Bytes = stocks.sum(group.classes).bytes;
                let moved = self.before.sum(group.classes).bytes - rest;
                ByteRate::over(moved, elapsed).time_for(rest)
            })
            .collect();
        let places = 0..left.len();
        let first = places
            .clone()
            .filter(|&place| self.groups[place].channels > 1);
        let first = first.min_by_key(|&place| left[place])?;
        let last = places.max_by_key(|&place| left[place])?;
        (left[last] > left[first].saturating_mul(LATE_FACTOR)).then_some((first, last))
    }

    fn choice(&self, stocks: &Stocks, reason: Reason) -> Choice {
        let share = |group: &Group| {
            let stock = stocks.sum(group.classes);
            Share {
                classes: group.classes,
                setting: rules::setting(group.class, stock, &self.facts, &self.bounds),
                channels: group.channels.min(rules::narrow(stock.files.max(1))),
            }
        };
        let shares: Vec<Share> = self.groups.iter().map(share).collect();
        let choice = Choice::of(&shares, &self.facts, reason);
        Choice {
            skip: Duration::ZERO,
            probe: PERIOD,
            ..choice
        }
    }
}

impl Optimizer for Promc {
    fn first(&mut self, stocks: &Stocks) -> Choice {
        self.deal(stocks);
        self.before = *stocks;
        self.late = 0;
        self.choice(stocks, Reason::Weighed)
    }

    fn on_probe(&mut self, probe: &Probe, stocks: &Stocks) -> Choice {
        if self.is_stale(stocks) {
            return self.first(stocks);
        }
        let uneven = self.uneven(probe.elapsed, stocks);
        self.before = *stocks;
        self.late = if uneven.is_some() { self.late + 1 } else { 0 };
        let mut reason = Reason::Weighed;
        if let Some((first, last)) = uneven.filter(|_| self.late >= LATE_PERIODS) {
            self.late = 0;
            self.groups[first].channels -= 1;
            self.groups[last].channels += 1;
            reason = Reason::Reallocated {
                from: self.groups[first].class,
                to: self.groups[last].class,
            };
        }
        self.choice(stocks, reason)
    }

    fn set_urgency(&mut self, _: Urgency) {}

    /// Returns none: the weights need no history.
    fn best(&self) -> Option<Setting> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuner::trial::{BOUNDS, facts, stocks};

    fn period() -> Probe {
        Probe {
            setting: Setting::ONE,
            elapsed: PERIOD,
            bytes: Bytes::mebi(1),
            lost_permille: None,
        }
    }

    #[test]
    fn channels_go_by_bytes_with_small_ones_counting_threefold() {
        let facts = facts(60, Some(10));
        let all = stocks(&facts, &[(1000, 1_000_000), (10, 300_000_000)]);
        let choice = Promc::new(facts, BOUNDS).first(&all);
        let dealt: Vec<u16> = choice.shares.iter().map(|share| share.channels).collect();
        // 3 x 1 GB beside 1 x 3 GB; only ten large files are there.
        assert_eq!(dealt, [16, 10]);
    }

    #[test]
    fn a_channel_moves_to_the_class_that_is_late_three_times() {
        let facts = facts(60, Some(10));
        let of =
            |small: u64, large: u64| stocks(&facts, &[(small, 1_000_000), (large, 100_000_000)]);
        let mut promc = Promc::new(facts, BOUNDS);
        let first = promc.first(&of(9000, 90));
        let small = first.shares[0].channels;
        for period_index in 1..=3u64 {
            // Small files are slow, large ones fast.
            let choice = promc.on_probe(
                &period(),
                &of(9000 - 100 * period_index, 90 - 10 * period_index),
            );
            let moved = u16::from(period_index == 3);
            assert_eq!(choice.shares[0].channels, small + moved);
        }
    }

    #[test]
    fn a_class_that_is_done_gives_its_channels_away() {
        let facts = facts(60, Some(10));
        let mut promc = Promc::new(facts, BOUNDS);
        promc.first(&stocks(&facts, &[(9000, 1_000_000), (90, 100_000_000)]));
        let choice = promc.on_probe(&period(), &stocks(&facts, &[(9000, 1_000_000)]));
        assert_eq!(choice.shares.len(), 1);
        assert_eq!(choice.shares[0].channels, 32);
    }
}
