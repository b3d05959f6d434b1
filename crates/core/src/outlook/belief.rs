use posthaste_types::ByteRate;

use crate::books::Depot;

/// So much of the distance from p50 down to what several depots together carry at p10 is counted off where one hopes, in
/// hundredths: all of it refuses more that could be kept, none breaks more promises.
const DOUBT_PERCENT: u64 = 30;

/// Which rate of a depot to count on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Belief {
    /// p10: nine in ten measurements are faster.
    P10,
    /// p50.
    P50,
    /// p90.
    P90,
    /// Somewhat below p50 where the depot was measured; p90 of what is believed where it was not: no request is refused for
    /// want of knowledge.
    Hopeful,
}

impl Belief {
    pub(crate) fn rate(self, depot: &Depot, spread: u64) -> ByteRate {
        let rates = depot.link.shared;
        match self {
            Self::P10 => rates.p10,
            Self::P50 => rates.p50,
            Self::P90 => rates.p90,
            Self::Hopeful if depot.link.is_measured() => {
                let below = rates.p50.get().saturating_sub(depot.link.p10_then.get());
                let doubt = ByteRate::new(below / spread).scaled(DOUBT_PERCENT, 100);
                ByteRate::new(rates.p50.get().saturating_sub(doubt.get()))
            }
            Self::Hopeful => rates.p90,
        }
    }
}
