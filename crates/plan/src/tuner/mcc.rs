//! Multi-chunk concurrency: one channel for large files beside all others for small ones
//! (storkcloud-2013 Algorithm 3), so that the slow small files hide behind the fast large ones.

use alloc::vec::Vec;
use posthaste_types::record;

use super::{
    Bounds, Choice, Class, ClassSet, Optimizer, PathFacts, Probe, Reason, Setting, Share, Stocks,
    Urgency, rules,
};

record! {
    /// Small files beside large ones.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Mcc {
        facts: PathFacts,
        bounds: Bounds,
    }
}

/// Merged classes with their settings by rule.
struct Group {
    classes: ClassSet,
    setting: Setting,
    files: u64,
}

impl Mcc {
    pub(super) fn new(facts: PathFacts, bounds: Bounds) -> Self {
        Self { facts, bounds }
    }

    /// Divides `channels` among the groups by their concurrency by rule. Each gets at least one as
    /// long as there are any, and no more than it has files.
    fn divide(groups: &[Group], channels: u16) -> Vec<Share> {
        let wanted: u32 = groups
            .iter()
            .map(|group| u32::from(group.setting.concurrency))
            .sum();
        let mut left = channels;
        let mut shares = Vec::new();
        for (place, group) in groups.iter().enumerate() {
            let by_want =
                u32::from(channels) * u32::from(group.setting.concurrency) / wanted.max(1);
            let is_last = place + 1 == groups.len();
            let dealt = if is_last {
                left
            } else {
                rules::narrow(by_want.into()).clamp(1, left.max(1))
            };
            let channels = dealt.min(rules::narrow(group.files)).min(left);
            left -= channels;
            if channels > 0 {
                shares.push(Share {
                    classes: group.classes,
                    setting: group.setting,
                    channels,
                });
            }
        }
        shares
    }
}

impl Optimizer for Mcc {
    fn first(&mut self, stocks: &Stocks) -> Choice {
        let groups = stocks.merged(self.facts.bdp());
        let (mut small, mut large) = (Vec::new(), Vec::new());
        for (class, classes) in groups {
            let stock = stocks.sum(classes);
            let group = Group {
                classes,
                setting: rules::setting(class, stock, &self.facts, &self.bounds),
                files: stock.files,
            };
            match class {
                Class::Small | Class::Middle => small.push(group),
                Class::Large | Class::Huge => large.push(group),
            }
        }
        let most = self.bounds.concurrency_max.max(1);
        // Lines 5-14: one for the large, the rest for the small; without small ones a second for
        // the large.
        let for_large = match (small.is_empty(), large.is_empty()) {
            (_, true) => 0,
            (true, false) => most.min(2),
            (false, false) => 1,
        };
        let mut shares = Self::divide(&large, for_large);
        shares.extend(Self::divide(&small, most.saturating_sub(for_large)));
        let channels = |wanted: &[Group]| -> u16 {
            let is_wanted =
                |share: &&Share| wanted.iter().any(|group| group.classes == share.classes);
            shares
                .iter()
                .filter(is_wanted)
                .map(|share| share.channels)
                .sum()
        };
        let reason = Reason::Divided {
            small: channels(&small),
            large: channels(&large),
        };
        Choice::of(&shares, &self.facts, reason)
    }

    fn on_probe(&mut self, _: &Probe, stocks: &Stocks) -> Choice {
        // A freed channel goes to the rest: the division is repeated.
        self.first(stocks)
    }

    fn set_urgency(&mut self, _: Urgency) {}

    /// Returns none: the rules need no history.
    fn best(&self) -> Option<Setting> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuner::trial::{BOUNDS, facts, stocks};

    fn channels(files: &[(u64, u64)]) -> Vec<(Vec<Class>, u16)> {
        let facts = facts(60, Some(10));
        let choice = Mcc::new(facts, BOUNDS).first(&stocks(&facts, files));
        let shares = choice.shares.iter();
        shares
            .map(|share| (share.classes.iter().collect(), share.channels))
            .collect()
    }

    #[test]
    fn large_files_get_one_channel_beside_small_ones() {
        assert_eq!(
            channels(&[(1000, 1_000_000), (100, 100_000_000)]),
            [
                (alloc::vec![Class::Large], 1),
                (alloc::vec![Class::Small], 31)
            ]
        );
    }

    #[test]
    fn alone_the_small_get_all_and_the_large_two() {
        assert_eq!(
            channels(&[(1000, 1_000_000)]),
            [(alloc::vec![Class::Small], 32)]
        );
        assert_eq!(
            channels(&[(100, 100_000_000)]),
            [(alloc::vec![Class::Large], 2)]
        );
    }

    #[test]
    fn small_and_middle_share_what_the_large_leave() {
        let dealt = channels(&[(1000, 1_000_000), (100, 20_000_000), (10, 10_000_000_000)]);
        let total: u16 = dealt.iter().map(|(_, channels)| channels).sum();
        assert_eq!((dealt.len(), total), (3, 32));
    }
}
