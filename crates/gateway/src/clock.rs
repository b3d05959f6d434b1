//! Clock: the only place in this crate that reads it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use posthaste_types::Timestamp;

#[expect(clippy::disallowed_methods, reason = "this is the room's clock")]
fn since_epoch() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default()
}

/// Returns the seconds since the Unix epoch.
pub(crate) fn unix_s() -> u64 {
    since_epoch().as_secs()
}

/// Returns the current time.
pub(crate) fn now() -> Timestamp {
    Timestamp::default() + since_epoch()
}
