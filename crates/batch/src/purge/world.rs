//! Inputs of a purge beside its rules and the file: the time, the fill of the file system, and the
//! announced files.

use std::{
    fmt,
    hash::{DefaultHasher, Hasher},
};

use jiff::{Timestamp, tz::TimeZone};
use posthaste_types::Bytes;

use super::{Confidence, Rule, Trigger};

/// Shortest span in seconds between two fills that gives a rate: below it noise prevails.
const RATE_SPAN_MIN_S: i64 = 3_600;

/// Fill level of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Thousandths of its bytes.
    Permille(u64),
    /// Bytes used.
    Used(u64),
    /// Number of files.
    Files(u64),
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permille(level) if level % 10 == 0 => write!(f, "{} %", level / 10),
            Self::Permille(level) => write!(f, "{}.{} %", level / 10, level % 10),
            Self::Used(bytes) => write!(f, "{}", Bytes::new(*bytes)),
            Self::Files(files) => write!(f, "{files} files"),
        }
    }
}

/// Fill of a file system at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fill {
    /// Time in seconds since 1970.
    pub at_s: i64,
    /// Bytes used.
    pub used: u64,
    /// Capacity in bytes.
    pub capacity: u64,
    /// Number of files.
    pub files: u64,
}

impl Fill {
    /// Returns the fill and the level, in the unit of the level.
    fn against(&self, level: Level) -> (u128, u128) {
        match level {
            Level::Permille(permille) => (
                u128::from(self.used) * 1000,
                u128::from(self.capacity) * u128::from(permille),
            ),
            Level::Used(bytes) => (u128::from(self.used), u128::from(bytes)),
            Level::Files(files) => (u128::from(self.files), u128::from(files)),
        }
    }
}

/// List that announces files of a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Index of the rule in the policy.
    pub rule: usize,
    /// Time at which the listed files are removed, in seconds since 1970.
    pub at_s: i64,
    /// Sorted digests of the listed paths.
    digests: Vec<u64>,
}

impl Listed {
    /// Builds a list of these paths. O(n log n), 8 bytes a path.
    #[must_use]
    pub fn new<'a>(rule: usize, at_s: i64, paths: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut digests: Vec<u64> = paths.map(digest).collect();
        digests.sort_unstable();
        Self {
            rule,
            at_s,
            digests,
        }
    }
}

/// Hashes a path to 64 bits. Among 10^7 listed paths and 10^7 files, two collide once in 10^5
/// times.
fn digest(path: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(path);
    hasher.finish()
}

/// Inputs of a purge beside its rules and the file.
#[derive(Debug, Clone)]
pub struct World {
    /// Current time, in seconds since 1970.
    pub now_s: i64,
    /// Time zone of calendars.
    pub zone: TimeZone,
    /// Observed fills of the file system, the latest last; may be empty.
    pub fills: Vec<Fill>,
    /// Lists of announced files.
    pub listed: Vec<Listed>,
}

impl World {
    /// Returns a world of which only the time is known.
    #[must_use]
    pub fn at(now_s: i64, zone: TimeZone) -> Self {
        Self {
            now_s,
            zone,
            fills: Vec::new(),
            listed: Vec::new(),
        }
    }

    /// Returns when a rule removes files that match since a moment, and the confidence in that.
    pub(super) fn removal(&self, rule: &Rule, since_s: i64) -> Option<(i64, Confidence)> {
        match &rule.trigger {
            Trigger::Continuous => {
                Some((since_s.saturating_add(rule.grace_s), Confidence::Certain))
            }
            Trigger::Calendar(schedule) => {
                let after = |from_s: i64| {
                    let from = Timestamp::from_second(from_s).ok()?;
                    Some(schedule.next(from, &self.zone)?.as_second())
                };
                let at_s = after(since_s)?.saturating_add(rule.grace_s);
                if at_s < self.now_s {
                    // The file should be gone, so that run did not remove it.
                    return Some((after(self.now_s)?, Confidence::Certain));
                }
                Some((at_s, Confidence::Certain))
            }
            Trigger::Watermark { high, .. } => {
                let ready_s = since_s.saturating_add(rule.grace_s);
                Some(match self.full_s(*high) {
                    Some(full_s) => (ready_s.max(full_s), Confidence::Predicted),
                    None => (ready_s, Confidence::Possible),
                })
            }
        }
    }

    /// Predicts when the file system reaches a level, from the rate between the first and the last
    /// fill. `None` if there is no rate.
    #[must_use]
    pub fn full_s(&self, level: Level) -> Option<i64> {
        let last = self.fills.last()?;
        let (used, wanted) = last.against(level);
        if used >= wanted {
            return Some(self.now_s);
        }
        let first = self.fills.first()?;
        if last.at_s - first.at_s < RATE_SPAN_MIN_S {
            return None;
        }
        let (before, _) = Fill {
            capacity: last.capacity,
            ..*first
        }
        .against(level);
        let seconds = u128::try_from(last.at_s - first.at_s).ok()?;
        let grown = used.checked_sub(before).filter(|grown| *grown > 0)?;
        let lacking = (wanted - used).checked_mul(seconds)? / grown;
        last.at_s.checked_add(i64::try_from(lacking).ok()?)
    }

    /// Returns when a list of a rule removes a path.
    pub(super) fn listed_s(&self, rule: usize, path: &[u8]) -> Option<i64> {
        let digest = (!self.listed.is_empty()).then(|| digest(path))?;
        let naming = self
            .listed
            .iter()
            .filter(|list| list.rule == rule && list.digests.binary_search(&digest).is_ok());
        naming.map(|list| list.at_s).min()
    }
}
