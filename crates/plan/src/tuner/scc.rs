//! Single-chunk concurrency: one class of files after another, each with its own setting
//! (storkcloud-2013 Algorithm 2).

use posthaste_types::record;

use super::{
    Bounds, Choice, Class, ClassSet, Optimizer, PathFacts, Probe, Reason, Setting, Share, Stocks,
    Urgency, rules,
};

record! {
    /// Classes one after another, the smallest files first, each with its setting by rule.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Scc {
        facts: PathFacts,
        bounds: Bounds,
    }
}

impl Scc {
    pub(super) fn new(facts: PathFacts, bounds: Bounds) -> Self {
        Self { facts, bounds }
    }
}

impl Optimizer for Scc {
    fn first(&mut self, stocks: &Stocks) -> Choice {
        let bdp = self.facts.bdp();
        let groups = stocks.merged(bdp);
        let (class, classes) = groups
            .first()
            .copied()
            .unwrap_or((Class::Huge, ClassSet::ALL));
        let stock = stocks.sum(classes);
        let setting = rules::setting(class, stock, &self.facts, &self.bounds);
        let share = Share {
            classes,
            setting,
            channels: setting.concurrency,
        };
        let mean = stock.mean();
        Choice::of(&[share], &self.facts, Reason::ByRule { class, mean, bdp })
    }

    fn on_probe(&mut self, _: &Probe, stocks: &Stocks) -> Choice {
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
    use crate::tuner::trial::{BOUNDS, facts, probe, stocks};

    #[test]
    fn classes_come_one_after_another_the_smallest_first() {
        let facts = facts(60, Some(10));
        let mut scc = Scc::new(facts, BOUNDS);
        let all = stocks(&facts, &[(1000, 1_000_000), (100, 100_000_000)]);
        let choice = scc.first(&all);
        assert_eq!(choice.shares[0].classes, ClassSet::of(Class::Small));
        assert_eq!(choice.shares.len(), 1);
        let rest = stocks(&facts, &[(100, 100_000_000)]);
        let choice = scc.on_probe(&probe(choice.setting(), 1), &rest);
        assert_eq!(choice.shares[0].classes, ClassSet::of(Class::Large));
        assert_eq!(choice.shares[0].channels, 2);
    }

    #[test]
    fn a_class_of_one_small_file_goes_with_its_neighbour() {
        let facts = facts(60, Some(10));
        let all = stocks(&facts, &[(1, 1_000_000), (100, 100_000_000)]);
        let choice = Scc::new(facts, BOUNDS).first(&all);
        let both = ClassSet::of(Class::Small).with(Class::Large);
        assert_eq!(choice.shares[0].classes, both);
    }
}
