//! Last time a relay ran. If its clock is far ahead of that at its start, no dataset expires. The
//! relay can't tell a long absence from a wrong clock, and data kept too long costs only space.

use std::path::Path;

use posthaste_endpoint::{Result, kept::KeptFile};
use serde::{Deserialize, Serialize};
use tracing::{error, warn};

/// Absence, in seconds, beyond which a relay's clock counts as wrong: a week.
const AWAY_S_MAX: u64 = 7 * 86_400;
const FILE_BYTES_MAX: u64 = 4096;
const VERSION: u64 = 1;

/// Record on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    unix_s: u64,
}

/// Time by which datasets expire.
#[derive(Debug)]
pub(super) struct Age {
    file: KeptFile,
    /// Seconds that are not counted.
    uncounted_s: u64,
}

impl Age {
    /// Reads when the relay of this directory ran last; `now_s` is the clock's time. Blocking.
    ///
    /// # Errors
    /// The operating system's, and [`posthaste_endpoint::ErrorKind::Invalid`] for a file that makes
    /// no sense.
    pub(super) fn open(dir: &Path, now_s: u64) -> Result<Self> {
        let file = KeptFile {
            path: dir.join("ran.json"),
            version: VERSION,
            bytes_max: FILE_BYTES_MAX,
            operation: "read when the relay ran last in",
            hint: "move it away: then the clock of this machine counts",
        };
        let last: Option<Seen> = file.read()?;
        let ahead_s = last.map_or(0, |last| now_s.saturating_sub(last.unix_s));
        let uncounted_s = if ahead_s > AWAY_S_MAX { ahead_s } else { 0 };
        if uncounted_s > 0 {
            error!(
                "the clock of this machine is {} days ahead of when this relay ran last, and nothing expires by that: set it right, or, where it is, \
                 move {} away, and start the relay again",
                ahead_s / 86_400,
                file.path.display()
            );
        }
        Ok(Self { file, uncounted_s })
    }

    /// Returns the time by which datasets expire when the clock shows `now_s`, and writes it down.
    /// Blocking.
    pub(super) fn count(&self, now_s: u64) -> u64 {
        let unix_s = now_s.saturating_sub(self.uncounted_s);
        if let Err(error) = self.file.write(&Seen { unix_s }) {
            warn!("{error}");
        }
        unix_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_far_ahead_at_the_start_is_not_gone_by() {
        const DAY_S: u64 = 86_400;
        let dir = tempfile::tempdir().unwrap();
        let first = Age::open(dir.path(), 1000 * DAY_S).unwrap();
        assert_eq!(first.count(1000 * DAY_S), 1000 * DAY_S);
        // A few days off are counted.
        let off = Age::open(dir.path(), 1003 * DAY_S).unwrap();
        assert_eq!(off.count(1003 * DAY_S), 1003 * DAY_S);
        let wrong = Age::open(dir.path(), 9000 * DAY_S).unwrap();
        assert_eq!(wrong.count(9000 * DAY_S), 1003 * DAY_S);
        assert_eq!(wrong.count(9001 * DAY_S), 1004 * DAY_S);
        let right = Age::open(dir.path(), 1005 * DAY_S).unwrap();
        assert_eq!(right.count(1005 * DAY_S), 1005 * DAY_S);
        let behind = Age::open(dir.path(), 10 * DAY_S).unwrap();
        assert_eq!(behind.count(10 * DAY_S), 10 * DAY_S);
    }
}
