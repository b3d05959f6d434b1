//! Clock of the relay, the only one it reads.

use posthaste_endpoint::{SteadyClock, Step};
use tracing::error;

/// Clock by which datasets expire. A clock that is years ahead for a moment must not make them
/// expire.
static CLOCK: SteadyClock = SteadyClock::new();

/// Returns the seconds since the Unix epoch.
pub(crate) fn unix_s() -> u64 {
    let (now, step) = CLOCK.read();
    if let Some(Step { ahead, by }) = step {
        let way = if ahead { "ahead" } else { "back" };
        let seconds = by.as_secs();
        error!(
            "the clock of this machine stepped {seconds} s {way}, which is not taken: set it right, or restart the relay to go by it"
        );
    }
    now.as_secs()
}

/// Returns the minutes that this machine's clock is ahead of UTC now.
pub(crate) fn ahead_of_utc_min() -> i32 {
    jiff::Zoned::now().offset().seconds() / 60
}
