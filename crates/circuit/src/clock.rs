//! Clock: the only place in this crate that reads it.

use posthaste_types::Timestamp;

/// Returns the current time.
pub(crate) fn now() -> Timestamp {
    let micros = jiff::Timestamp::now().as_microsecond();
    Timestamp::from_micros(u64::try_from(micros).unwrap_or(0))
}
