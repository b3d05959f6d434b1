//! Speed of an export, measured at each look.

use std::time::Duration;

/// Interval between looks at the progress of the copy.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Looks without a byte after which the path is no longer measured: fewer than a window of its
/// measurement has.
const QUIET_LOOKS: u32 = 3;
/// So many looks in a row at which a limit held back tell that it does.
const HELD_LOOKS: u32 = 2;

/// Recent rate: a copy may exceed its allowance by one second's bytes, or it would wait for each
/// answer.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Bytes moved since the last look.
    pub(super) moved: u64,
    bytes_per_s: u64,
    /// Consecutive looks without a byte.
    quiet_looks: u32,
    /// Looks in a row at which the request's own limit held back what was to go.
    held_looks: u32,
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

    /// Returns whether the request's own limit, not the path, holds back the transfer. It takes
    /// several looks in a row: one may fall behind a large piece on a slow path.
    pub(super) fn is_held(&mut self, is_in_debt: bool) -> bool {
        self.held_looks = if is_in_debt { self.held_looks + 1 } else { 0 };
        self.held_looks >= HELD_LOOKS
    }

    /// Returns whether the silence says nothing of the path: stores assemble large files at that
    /// time.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet_looks >= QUIET_LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds_back_where_it_does_so_again_and_again() {
        let mut pace = Pace::default();
        let held =
            [true, false, true, true, true, false].map(|is_in_debt| pace.is_held(is_in_debt));
        assert_eq!(held, [false, false, false, true, true, false]);
    }
}
