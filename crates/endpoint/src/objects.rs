//! Common conventions of all object stores: how they keep what a bucket has no place for.
//!
//! A symbolic link is an object `NAME.rclonelink` that holds its target, an empty directory an
//! object `NAME/`. Modes are octal, with the file type above them. rclone writes all three this
//! way.

mod circle;
mod doubt;
mod look;
mod raw;
mod record;
mod spans;
mod store;
mod upload;
mod whole;

use http::HeaderMap;

use crate::{
    Entry, Error, ErrorKind, FileSpec, Kind, Locus, Result, Status, Whole,
    web::{About, told_size},
};

pub(crate) use circle::Circle;
pub(crate) use doubt::{Doubt, Removed, other_bytes};
pub(crate) use raw::{KeysListing, RawStore};
pub(crate) use record::Record;
pub(crate) use spans::Spans;
pub(crate) use store::{Objects, directory_entry};
pub(crate) use upload::{Incomplete, Length, Noted, Segment, Segments, Upload};

/// Facts about an object from the headers of an answer.
pub(crate) struct Head {
    pub headers: HeaderMap,
    /// Size in bytes.
    pub size: u64,
}

impl Head {
    /// Reads the answer to HEAD.
    ///
    /// # Errors
    /// Errors of [`told_size`].
    pub(crate) fn of(headers: HeaderMap, about: &About) -> Result<Self> {
        Ok(Self {
            size: told_size(&headers, about)?,
            headers,
        })
    }
}

/// Parses the size of one file in a list. An invalid one becomes the largest size, which no copy
/// accepts: that file is reported, and the others of the list arrive.
pub(crate) fn listed_size(text: &str) -> u64 {
    text.parse().unwrap_or(u64::MAX)
}

/// Returns an object that was read if it has the listed size: it was read on the condition that it
/// is the listed one.
///
/// # Errors
/// [`ErrorKind::Changed`].
fn as_listed(whole: Whole, entry: &Entry, show: impl Fn() -> String) -> Result<Whole> {
    if entry.version.is_none() || whole.entry.size == entry.size {
        return Ok(whole);
    }
    let (found, listed) = (whole.entry.size, entry.size);
    Err(Error::new(ErrorKind::Changed, "read", show())
        .cause(format!("it holds {found} bytes where {listed} are listed"))
        .at(Locus::Source))
}

/// Returns whether a store may have carried out a request despite the error: the answer was lost,
/// is invalid, or answers a repeated request.
pub(crate) fn may_be_done(error: &Error) -> bool {
    error.is_temporary() || matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Other)
}

/// Returns whether an object has `size` bytes and keeps the attributes of `spec`.
pub(crate) fn is_kept_as(found: &Entry, spec: &FileSpec, size: u64) -> bool {
    let has_mode = |mode| found.mode == Some(mode & 0o7777);
    found.size == size
        && spec.mtime.is_none_or(|mtime| found.mtime == Some(mtime))
        && spec.mode.is_none_or(has_mode)
}

/// Times that stores can write as dates, in seconds: of the years 1 to 9999.
const YEARS_TOLD: std::ops::Range<i64> = -62_135_596_800..253_402_300_800;

/// Most files in flight: such stores serve thousands of clients, and each request waits for its
/// answer.
pub(crate) const FILES_AT_ONCE_MAX: u16 = 256;

/// Suffix with which rclone names the object that holds a symbolic link's target.
pub(crate) const LINK_SUFFIX: &str = ".rclonelink";

/// Returns the common prefix of keys below the directory `key`.
pub(crate) fn prefix_of(key: &str) -> String {
    if key.is_empty() {
        String::new()
    } else {
        format!("{key}/")
    }
}

/// Parses permission bits: octal, with the file type above them.
pub(crate) fn parse_mode(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 8).ok().map(|mode| mode & 0o7777)
}

/// Formats a mode for [`parse_mode`].
pub(crate) fn show_mode(kind: Kind, mode: u32) -> String {
    let file_type = match kind {
        Kind::File | Kind::Special => 0o100_000,
        Kind::Directory => 0o040_000,
        Kind::Link => 0o120_000,
    };
    format!("{:o}", file_type | mode)
}

/// Returns the media type of a `kind`.
pub(crate) fn content_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Directory => "application/x-directory",
        Kind::File | Kind::Link | Kind::Special => "application/octet-stream",
    }
}

/// Converts the name of a listed object into that of the link it stands for, if it is one.
pub(crate) fn take_link(name: &mut Vec<u8>) -> bool {
    match name.strip_suffix(LINK_SUFFIX.as_bytes()) {
        Some(stem) if !stem.is_empty() && !stem.ends_with(b"/") => {
            name.truncate(stem.len());
            true
        }
        Some(_) | None => false,
    }
}

/// Checks that the store really holds an object of `size` bytes that is the one of `spec`, and no
/// earlier one of that size. Without permission to look it trusts the store.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it does not; errors of looking.
pub(crate) async fn check_held<S: RawStore>(
    store: &S,
    key: &str,
    spec: &FileSpec,
    size: u64,
) -> Result<()> {
    let why = match store.head(key, "look at").await {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
        Err(error) => return Err(error.at(Locus::Destination)),
        Ok(None) => "the store says that it has it, and it is not there".to_owned(),
        Ok(Some(head)) => match S::entry(&head, Kind::File) {
            found if found.size != size => {
                format!("the store holds {} bytes of {size}", found.size)
            }
            found if is_another(&found, spec) => {
                "the store says that it has it, and holds another of that size".to_owned()
            }
            _ => return Ok(()),
        },
    };
    Err(Error::new(ErrorKind::Corrupt, "write", store.show(key))
        .cause(why)
        .status_is(Status::Temporary)
        .at(Locus::Destination))
}

/// Returns whether the object's attributes belong to another file. A store that keeps no modes may
/// keep nothing.
fn is_another(found: &Entry, spec: &FileSpec) -> bool {
    let other_time = found.mtime != spec.mtime
        && (spec.mtime).is_some_and(|mtime| YEARS_TOLD.contains(&mtime.secs));
    found.mode.is_some()
        && spec
            .mode
            .is_some_and(|mode| found.mode != Some(mode & 0o7777) || other_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_come_back_without_the_file_type() {
        for kind in [Kind::File, Kind::Directory, Kind::Link] {
            assert_eq!(parse_mode(&show_mode(kind, 0o4751)), Some(0o4751));
        }
        assert_eq!(parse_mode("8"), None);
    }

    #[test]
    fn links_are_told_by_their_names() {
        for (name, stem) in [("a.rclonelink", "a"), ("d/a.rclonelink", "d/a")] {
            let mut name = name.as_bytes().to_vec();
            assert!(take_link(&mut name), "it is a link");
            assert_eq!(name, stem.as_bytes());
        }
        for name in ["a", ".rclonelink", "d/.rclonelink", "a.rclonelink/b"] {
            assert!(!take_link(&mut name.as_bytes().to_vec()), "{name}");
        }
    }
}
