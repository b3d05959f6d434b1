//! Only place in this crate that reads a clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Returns the seconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "this is the room's clock")]
pub(crate) fn unix_secs() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Returns the current instant, for measuring spans.
#[expect(clippy::disallowed_methods, reason = "this is the room's clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the current instant of the timers, which tests may run ahead.
pub(crate) fn timer_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}
