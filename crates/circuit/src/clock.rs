//! The one place of this room that reads the clock.

use posthaste_types::Timestamp;

/// Now.
pub(crate) fn now() -> Timestamp {
    let micros = jiff::Timestamp::now().as_microsecond();
    Timestamp::from_micros(u64::try_from(micros).unwrap_or(0))
}
