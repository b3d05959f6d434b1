//! The one place of copy that reads a clock.

use std::time::Instant;

/// Now, for measuring spans.
#[expect(clippy::disallowed_methods, reason = "this is the clock of copy")]
pub(super) fn now() -> Instant {
    Instant::now()
}
