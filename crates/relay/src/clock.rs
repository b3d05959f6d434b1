//! The one place of this room that reads a clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "this is the room's clock")]
pub(crate) fn unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Minutes that this machine's clock is ahead of UTC now.
pub(crate) fn ahead_of_utc_min() -> i32 {
    jiff::Zoned::now().offset().seconds() / 60
}
