//! Speed of an export, measured at each look.

use std::time::Duration;

/// Interval between looks at the progress of the copy.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Looks without a byte after which the path is no longer measured: fewer than a window of its
/// measurement has.
const QUIET_LOOKS: u32 = 3;

/// Recent rate: a copy may exceed its allowance by one second's bytes, or it would wait for each
/// answer.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Bytes moved since the last look.
    pub(super) moved: u64,
    bytes_per_s: u64,
    /// Consecutive looks without a byte.
    quiet_looks: u32,
}

impl Pace {
    /// Returns the bytes per second at this look.
    pub(super) fn look(&mut self) -> u64 {
        let looks = 1000 / u64::try_from(LOOK_EVERY.as_millis()).unwrap_or(1000);
        self.quiet_looks = if self.moved > 0 {
            0
        } else {
            self.quiet_looks + 1
        };
        let latest = std::mem::take(&mut self.moved).saturating_mul(looks);
        self.bytes_per_s = self.bytes_per_s / 2 + latest / 2;
        self.bytes_per_s
    }

    /// Returns whether a lack of progress says nothing about the path: stores compose large files
    /// at the end, which takes them time.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet_looks >= QUIET_LOOKS
    }
}
