use core::time::Duration;
use posthaste_plan::{
    decay::{WHOLE, decayed, share_left},
    redundancy::CERTAIN,
};
use posthaste_types::{Timestamp, record};

/// Time after which knowledge of a depot counts half: depots change hands, disks and rooms.
const HALF_LIFE: Duration = Duration::from_secs(180 * 86400);

/// Belief about a depot of unknown history: watched for a year, it lost what it held a tenth of a
/// time. That is several times the yearly failure rate of disks (1 to 2 %), since a depot has more
/// to fail than its disk. One true loss outweighs it.
const PRIOR_LOSSES_MILLI: u64 = 100;
const PRIOR_SEEN_S: u64 = 365 * 86400;

record! {
    /// Record of how often a depot lost what it held. One that was gone for a while and came back
    /// with everything lost nothing.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct History {
        /// Losses, in thousandths, decayed by age.
        losses_milli: u64,
        /// Seconds it was watched, decayed by age.
        seen_s: u64,
        /// Time of these values.
        at: Timestamp,
        /// True if the last loss may turn out to be none.
        is_open: bool,
    }
}

impl History {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            losses_milli: 0,
            seen_s: 0,
            at: now,
            is_open: false,
        }
    }

    /// Returns how long it has been watched, decayed by age.
    pub(crate) fn watched(&self, now: Timestamp) -> Duration {
        Duration::from_secs(self.seen_s) + now.since(self.at)
    }

    /// Records that it is gone, and with it what it holds.
    pub(crate) fn on_lost(&mut self, now: Timestamp) {
        self.age(now);
        if !self.is_open {
            self.losses_milli += 1000;
        }
        self.is_open = true;
    }

    /// Records that it is back, and whether it still holds everything.
    pub(crate) fn on_back(&mut self, has_all: bool) {
        if self.is_open && has_all {
            self.losses_milli = self.losses_milli.saturating_sub(1000);
        }
        self.is_open = false;
    }

    /// Returns the chance that it loses what it holds within `span`, in parts of [`CERTAIN`].
    /// Losses come at random, at the past rate (a Poisson process, its rate the mean of a gamma
    /// distribution).
    pub(crate) fn chance(&self, now: Timestamp, span: Duration) -> u64 {
        let mut then = self.clone();
        then.age(now);
        let losses_milli = u128::from(then.losses_milli + PRIOR_LOSSES_MILLI);
        let seen_micros = u128::from(then.seen_s + PRIOR_SEEN_S) * 1_000_000;
        // ln 2 divided by the rate.
        let half_life = seen_micros * 1000 * 693_147 / 1_000_000 / losses_milli;
        let half_life = Duration::from_micros(u64::try_from(half_life).unwrap_or(u64::MAX));
        let lost = WHOLE - share_left(span, half_life);
        u64::try_from(lost >> 4).unwrap_or(CERTAIN)
    }

    fn age(&mut self, now: Timestamp) {
        let span = now.since(self.at);
        self.losses_milli = decayed(self.losses_milli, span, HALF_LIFE);
        // Integral of the decay: half-life / ln 2 times the share that is gone.
        let gone = WHOLE - share_left(span, HALF_LIFE);
        let most = u128::from(HALF_LIFE.as_secs()) * 1_442_695 / 1_000_000;
        let seen = u64::try_from((most * gone) >> 64).unwrap_or(u64::MAX);
        self.seen_s = decayed(self.seen_s, span, HALF_LIFE).saturating_add(seen);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const MONTH: Duration = Duration::from_secs(30 * 86400);
    const YEAR: Duration = Duration::from_secs(365 * 86400);

    fn chance(history: &History, at: Timestamp) -> f64 {
        history.chance(at, MONTH) as f64 / CERTAIN as f64
    }

    #[test]
    fn an_unknown_depot_loses_what_it_holds_once_in_ten_years() {
        let fresh = History::new(NOW);
        let exact = 1.0 - f64::exp(-0.1 * 30.0 / 365.0);
        assert!(
            (chance(&fresh, NOW) - exact).abs() < 1e-6,
            "{}",
            chance(&fresh, NOW)
        );
    }

    #[test]
    fn a_depot_that_stays_is_trusted_more_and_one_that_loses_less() {
        let mut history = History::new(NOW);
        let (first, later) = (chance(&history, NOW), chance(&history, NOW + YEAR));
        assert!(later < first * 0.75, "{first} and {later}");
        history.on_lost(NOW + YEAR);
        history.on_back(false);
        let lost = chance(&history, NOW + YEAR);
        assert!(lost > 5.0 * first, "{first} and {lost}");
        let forgotten = chance(&history, NOW + YEAR * 5);
        assert!(forgotten < first, "{first} and {forgotten}");
    }

    #[test]
    fn who_comes_back_with_everything_lost_nothing() {
        let mut history = History::new(NOW);
        for day in 1..50 {
            let now = NOW + Duration::from_secs(day * 86400);
            history.on_lost(now);
            history.on_lost(now);
            history.on_back(true);
        }
        let at = NOW + Duration::from_secs(50 * 86400);
        let (ours, fresh) = (chance(&history, at), chance(&History::new(NOW), at));
        assert!((ours - fresh).abs() < 1e-6, "{ours} and {fresh}");
    }
}
