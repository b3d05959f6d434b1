//! Clock of the copy, the only one it reads.

use std::time::Instant;

/// Returns the current time, to measure spans.
#[expect(clippy::disallowed_methods, reason = "this is the clock of copy")]
pub(super) fn now() -> Instant {
    Instant::now()
}
