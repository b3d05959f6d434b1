//! Folders of posthaste itself below a source: they stay.

use std::path::Path;

use posthaste_endpoint::{Error, ErrorKind, Locus};
use posthaste_engine::dataset::{FileKind, FileList};

/// Files by which a folder of a service or of a relay is known: all of one row.
const MARKS: [&[&str]; 2] = [&["journal.db", "token"], &["identity/secret", "lock"]];

fn is_own(folder: &Path) -> bool {
    let is_there = |name: &&str| folder.join(name).symlink_metadata().is_ok();
    MARKS.iter().any(|marks| marks.iter().all(is_there))
}

/// Returns the folders of posthaste in a list, by their paths below `root`.
pub(super) fn folders<'a>(root: &Path, list: &'a FileList) -> Vec<&'a [u8]> {
    let entries = list.files.iter();
    let directories = entries.filter(|entry| entry.kind == FileKind::Directory);
    let own = directories.filter(|entry| is_own(&entry.below(root)));
    own.map(|entry| entry.path.as_ref()).collect()
}

/// Returns whether a path is one of `folders` or below it.
pub(super) fn is_of(folders: &[&[u8]], path: &[u8]) -> bool {
    folders.iter().any(|folder| {
        let rest = path.strip_prefix(*folder);
        rest.is_some_and(|rest| folder.is_empty() || rest.is_empty() || rest.starts_with(b"/"))
    })
}

/// Returns the error that such a file stays.
pub(super) fn stays(shown: String) -> Error {
    Error::new(ErrorKind::Changed, "release", shown)
        .at(Locus::Source)
        .cause("it is a file of posthaste itself, so it stays")
        .hint("leave it out with --exclude")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_a_folder_is_of_it_and_what_begins_alike_is_not() {
        let folders: [&[u8]; 1] = [b"a/state"];
        for (path, wanted) in [
            (&b"a/state"[..], true),
            (b"a/state/token", true),
            (b"a/state2", false),
            (b"a", false),
            (b"state", false),
        ] {
            assert_eq!(is_of(&folders, path), wanted, "{path:?}");
        }
        assert!(is_of(&[b""], b"anything"));
    }
}
