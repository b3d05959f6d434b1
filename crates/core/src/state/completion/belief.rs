use posthaste_types::ByteRate;

use crate::state::Depot;

/// Share of the distance from p50 to p10 of several depots' joint rate that a hopeful belief
/// subtracts, in hundredths. All of it refuses more requests that could be kept; none breaks more
/// promises.
const DOUBT_PERCENT: u64 = 30;

/// Quantile of a depot's rate to count on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Belief {
    /// p10: nine in ten measurements are faster.
    P10,
    /// p50.
    P50,
    /// p90.
    P90,
    /// Somewhat below p50 if the depot was measured; p90 of the prior if it was not: no request is
    /// refused for want of knowledge.
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
