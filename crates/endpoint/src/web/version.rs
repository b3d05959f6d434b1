//! Versions of files: what shows that several answers are of one.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::{HeaderMap, StatusCode};

use super::{quoted, range::size_behind, text_of};
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

/// Returns whether an answer is about the version that `entry` describes, as far as both tell.
pub(super) fn is_same(headers: &HeaderMap, entry: &Entry) -> bool {
    let version = text_of(headers, "etag");
    let mtime = text_of(headers, "last-modified").and_then(dates::parse_http);
    let has_time = match (entry.mtime, mtime) {
        (Some(wanted), Some(found)) => wanted.secs == found.secs,
        (None, _) | (_, None) => true,
    };
    match (&entry.version, version) {
        (Some(wanted), Some(found)) => {
            // A weak one stays when bytes change that matter little to a reader.
            quoted(wanted) == quoted(found) && (has_time || !quoted(found).starts_with("W/"))
        }
        (None, _) | (_, None) => has_time,
    }
}

/// Returns whether an answer with a part names the version and the time by which the file was known
/// when it was opened: what is not told may have changed. Beside a strong version the time is not
/// needed, but it must not be another.
pub(super) fn tells_as_much(headers: &HeaderMap, entry: &Entry) -> bool {
    let mtime = text_of(headers, "last-modified").and_then(dates::parse_http);
    let version = text_of(headers, "etag").filter(|version| is_strong(version));
    let tells_version = entry.version.is_none() || text_of(headers, "etag").is_some();
    let tells_time = match (entry.mtime, mtime) {
        (Some(wanted), Some(found)) => wanted.secs == found.secs,
        (Some(_), None) => version.is_some(),
        (None, _) => true,
    };
    tells_version && tells_time
}

/// Returns whether an answer that passed [`is_same`] says enough to show it: the version or the
/// time, and the size.
pub(super) fn is_shown(status: StatusCode, headers: &HeaderMap, entry: &Entry) -> bool {
    let tells = |name| text_of(headers, name).is_some();
    // A weak version shows nothing about bytes (RFC 9110, section 8.8.1).
    let has_version = entry.version.as_deref().is_some_and(is_strong) && tells("etag");
    let has_time = entry.mtime.is_some() && tells("last-modified");
    let has_size = status != StatusCode::PARTIAL_CONTENT || size_behind(headers).is_some();
    (has_version || has_time) && has_size
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
