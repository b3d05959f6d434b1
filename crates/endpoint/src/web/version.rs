//! Versions of files: what shows that several answers are of one.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::HeaderMap;

use super::text_of;
use crate::{ErrorKind, Result, clock, dates, endpoint::Entry};

/// Knowledge whether separate answers with parts of a file are of one version.
#[derive(Debug)]
pub(crate) struct OneVersion(AtomicBool);

impl OneVersion {
    pub(crate) fn new(is_told: bool) -> Self {
        Self(AtomicBool::new(is_told))
    }

    /// Returns whether they are, as far as is known.
    pub(crate) fn is_sure(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Learns from the answer to a request for a part: if it contradicts the others, only one
    /// answer with all of the file is of one version.
    pub(crate) fn judge<T>(&self, answer: Result<T>) -> Result<T> {
        answer.inspect_err(|error| {
            if error.kind() == ErrorKind::Changed {
                self.0.store(false, Relaxed);
            }
        })
    }
}

/// Returns whether a version changes with every byte (RFC 9110, section 8.8.1).
pub(crate) fn is_strong(version: &str) -> bool {
    !version.starts_with("W/")
}

/// Returns whether a change of the file that `entry` describes would show in the answers to come: its
/// time is old enough, or it has a strong version and no time. Many servers make a version of the
/// second of the time and the size.
pub(super) fn shows_changes(headers: &HeaderMap, entry: &Entry) -> bool {
    let now = text_of(headers, "date").and_then(dates::parse_http);
    let now = now.map_or_else(
        || i64::try_from(clock::unix_secs()).unwrap_or(0),
        |now| now.secs,
    );
    match entry.mtime {
        Some(mtime) => mtime.is_settled(now),
        None => entry.version.as_deref().is_some_and(is_strong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileTime, Kind};

    #[test]
    fn a_change_shows_in_a_strong_version_or_in_a_time_that_is_old_enough() {
        let at = 1_700_000_000;
        for (version, mtime, date, shows) in [
            (Some("\"e\""), None, None, true),
            (Some("e"), None, None, true),
            (Some("W/\"e\""), None, None, false),
            (None, None, None, false),
            (None, Some(at), Some(at), false),
            (None, Some(at), Some(at + 59), false),
            (None, Some(at), Some(at + 60), true),
            (Some("W/\"e\""), Some(at), Some(at + 60), true),
            (Some("W/\"e\""), Some(at), Some(at + 1), false),
            (Some("\"e\""), Some(at), Some(at), false),
            (Some("\"e\""), Some(at), Some(at + 60), true),
            // Where no time is told, it is ours.
            (None, Some(at), None, true),
            (None, Some(i64::MAX), None, false),
        ] {
            let time = |secs| FileTime { secs, nanos: 0 };
            let entry = Entry {
                size: 5,
                version: version.map(Into::into),
                mtime: mtime.map(time),
                ..Entry::bare(Vec::new(), Kind::File)
            };
            let mut headers = HeaderMap::new();
            if let Some(date) = date {
                headers.insert("date", dates::show_http(time(date)).parse().unwrap());
            }
            assert_eq!(shows_changes(&headers, &entry), shows, "{entry:?} {date:?}");
        }
    }
}
