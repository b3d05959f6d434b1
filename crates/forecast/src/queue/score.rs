//! Accuracy of forecasts, by forecaster.

use core::time::Duration;
use posthaste_types::Timestamp;

use super::rolling::Starts;

/// Accuracy of a forecaster's forecasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Score {
    count: u32,
    within: u32,
    error_secs: u64,
}

impl Score {
    /// Records that a job with this forecast started then.
    pub fn add(&mut self, said: &Starts, start: Timestamp) {
        self.count = self.count.saturating_add(1);
        if (said.p10..=said.p90).contains(&start) {
            self.within = self.within.saturating_add(1);
        }
        let error = start.since(said.p50).max(said.p50.since(start));
        self.error_secs = self.error_secs.saturating_add(error.as_secs());
    }

    /// Returns the number of scored forecasts.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns how many of them started between p10 and p90.
    #[must_use]
    pub fn within(&self) -> u32 {
        self.within
    }

    /// Returns the mean error of p50; none before the first.
    #[must_use]
    pub fn mean_error(&self) -> Option<Duration> {
        let mean = self.error_secs.checked_div(self.count.into())?;
        Some(Duration::from_secs(mean))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_and_late_are_off_by_as_much() {
        let at = Timestamp::from_secs;
        let said = Starts {
            job: 1,
            p10: at(100),
            p50: at(200),
            p90: at(300),
        };
        let mut score = Score::default();
        assert_eq!(score.mean_error(), None);
        for start in [100, 300, 301] {
            score.add(&said, at(start));
        }
        assert_eq!((score.count(), score.within()), (3, 2));
        assert_eq!(score.mean_error(), Some(Duration::from_secs(100)));
    }
}
