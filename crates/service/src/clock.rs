//! The one place of the service that reads the clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use posthaste_types::Timestamp;

/// The wall clock, made to never run backwards within one process.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    latest: std::sync::Mutex<Timestamp>,
}

impl Clock {
    /// The time now, not before any time given earlier.
    pub(crate) fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        let wall = Timestamp::from_micros(u64::try_from(wall.as_micros()).unwrap_or(u64::MAX));
        let mut latest = self
            .latest
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *latest = wall.max(*latest);
        *latest
    }
}
