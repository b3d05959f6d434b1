//! Times of file systems.

use std::{cmp::Ordering, fmt};

use crate::clock;

/// Time of a file system: whole seconds since the Unix epoch and nanoseconds after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileTime {
    /// Seconds; negative before 1970.
    pub secs: i64,
    /// Nanoseconds, below 10^9.
    pub nanos: u32,
}

/// Age of a time, in seconds, from which a later change is sure to have another: many servers tell
/// whole seconds, and the clock of the files may be another (RFC 9110, section 8.8.2.2).
const SETTLED_SECS: i64 = 60;

impl FileTime {
    /// Returns whether a change after `now_secs` can't have this time too.
    pub(crate) fn is_settled(self, now_secs: i64) -> bool {
        self.secs
            .checked_add(SETTLED_SECS)
            .is_some_and(|settled| settled <= now_secs)
    }

    /// Returns whether a change from now on shows in the time of a file that has this one. Whole
    /// seconds do not show one within the last of them.
    #[must_use]
    pub fn shows_changes(self) -> bool {
        self.nanos > 0 || self.is_settled(i64::try_from(clock::unix_secs()).unwrap_or(0))
    }

    /// Returns whether both fall into one step of `step_ns`: stores keep different precisions.
    #[must_use]
    pub fn agrees(self, other: Self, step_ns: u32) -> bool {
        let (early, late) = match self.cmp(&other) {
            Ordering::Greater => (other, self),
            Ordering::Less | Ordering::Equal => (self, other),
        };
        let apart_ns = (i128::from(late.secs) - i128::from(early.secs)) * 1_000_000_000
            + i128::from(late.nanos)
            - i128::from(early.nanos);
        apart_ns < i128::from(step_ns)
    }
}

impl fmt::Display for FileTime {
    /// Writes decimal seconds, as rclone keeps them in S3 metadata.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.secs < 0 && self.nanos > 0 {
            let (secs, nanos) = (-(self.secs + 1), 1_000_000_000 - self.nanos);
            return write!(f, "-{secs}.{nanos:09}");
        }
        write!(f, "{}.{:09}", self.secs, self.nanos)
    }
}

impl std::str::FromStr for FileTime {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits: String = fraction
            .chars()
            .chain("000000000".chars())
            .take(9)
            .collect();
        let secs: i64 = whole.parse()?;
        let nanos: u32 = digits.parse()?;
        if whole.starts_with('-') && nanos > 0 {
            return Ok(Self {
                secs: secs.saturating_sub(1),
                nanos: 1_000_000_000 - nanos,
            });
        }
        Ok(Self { secs, nanos })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_shown() {
        for (secs, nanos) in [
            (0, 0),
            (1_700_000_000, 123_456_789),
            (-1, 500_000_000),
            (-5, 0),
        ] {
            let time = FileTime { secs, nanos };
            assert_eq!(time.to_string().parse(), Ok(time), "{time}");
        }
        assert_eq!(
            "12.5".parse(),
            Ok(FileTime {
                secs: 12,
                nanos: 500_000_000
            })
        );
    }

    #[test]
    fn times_agree_within_the_coarser_step() {
        let fine = FileTime {
            secs: 7,
            nanos: 900_000_000,
        };
        let coarse = FileTime { secs: 7, nanos: 0 };
        assert!(fine.agrees(coarse, 1_000_000_000));
        assert!(coarse.agrees(fine, 1_000_000_000));
        assert!(!fine.agrees(coarse, 1_000_000));
        assert!(!fine.agrees(FileTime { secs: 9, nanos: 0 }, 1_000_000_000));
        let farthest = [i64::MIN, i64::MAX].map(|secs| FileTime { secs, nanos: 0 });
        assert!(!farthest[0].agrees(farthest[1], 1));
        let text = format!("{}.5", i64::MIN);
        assert!(text.parse::<FileTime>().is_ok(), "a store may tell it");
    }
}
