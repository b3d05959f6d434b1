//! A constant setting.

use posthaste_types::record;

use super::{Bounds, Choice, Optimizer, PathFacts, Probe, Reason, Setting, Stocks, Urgency};

record! {
    /// The setting that was asked for.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Fixed {
        setting: Setting,
        facts: PathFacts,
    }
}

impl Fixed {
    /// Returns an optimizer that keeps `setting`, as far as the bounds allow.
    pub(super) fn new(setting: Setting, facts: PathFacts, bounds: Bounds) -> Self {
        Self {
            setting: bounds.clamp(setting),
            facts,
        }
    }
}

impl Optimizer for Fixed {
    fn first(&mut self, _: &Stocks) -> Choice {
        Choice::of_all(self.setting, &self.facts, Reason::Asked)
    }

    fn on_probe(&mut self, _: &Probe, stocks: &Stocks) -> Choice {
        self.first(stocks)
    }

    fn set_urgency(&mut self, _: Urgency) {}

    /// Returns none: a user's own setting says nothing about the path.
    fn best(&self) -> Option<Setting> {
        None
    }
}
