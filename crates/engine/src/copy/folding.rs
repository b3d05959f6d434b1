//! Which names a file system takes for one: those that differ in case (APFS, NTFS, exFAT, SMB), in how accents are written (APFS, ZFS)
//! or in the dots and spaces at their end (Windows).

use std::borrow::Cow;

use futures_util::future::join3;
use posthaste_endpoint::{Checksum, Endpoint, FileSpec, join, trial_name};
use unicode_normalization::UnicodeNormalization;

/// What names may differ in and still be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Folding {
    /// Upper and lower case.
    pub(super) case: bool,
    /// A letter with an accent, and the letter followed by the accent.
    pub(super) accents: bool,
    /// Dots and spaces at the end.
    pub(super) ends: bool,
}

impl Folding {
    /// All that file systems do.
    pub(super) const WIDEST: Self = Self {
        case: true,
        accents: true,
        ends: true,
    };

    /// Learns it by an empty file that is made in `directory` and removed. What can't be learnt counts as told apart.
    pub(super) async fn learn(endpoint: &dyn Endpoint, directory: &[u8]) -> Self {
        // Some file systems refuse letters that they have no code for.
        for letter in ["\u{e9}", "e"] {
            let name = trial_name(letter.as_bytes());
            let path = join(directory, &name);
            let spec = FileSpec {
                size: 0,
                mtime: None,
                mode: None,
                origin: endpoint.show(&path).into(),
                version: None,
            };
            let put = endpoint.put(&path, &spec, Vec::new(), Checksum::EMPTY);
            if put.await.is_err() {
                continue;
            }
            let is_there = async |other: Vec<u8>| {
                let path = join(directory, &other);
                other != name && matches!(endpoint.stat(&path, false).await, Ok(Some(_)))
            };
            let apart = String::from_utf8_lossy(&name).nfd().collect::<String>();
            let (case, accents, ends) = join3(
                is_there(name.to_ascii_uppercase()),
                is_there(apart.into_bytes()),
                is_there([&*name, b"."].concat()),
            )
            .await;
            // It is hidden, and its name says whose it is.
            let _ = endpoint.remove(&path).await;
            return Self {
                case,
                accents,
                ends,
            };
        }
        Self::default()
    }

    /// Returns what all paths become that are one.
    pub(super) fn fold(self, path: &[u8]) -> Cow<'_, [u8]> {
        if self == Self::default() {
            return path.into();
        }
        if path.is_ascii() {
            let mut folded = path.to_vec();
            if self.case {
                folded.make_ascii_lowercase();
            }
            return self.cut(folded).into();
        }
        let mut folded = String::from_utf8_lossy(path).into_owned();
        if self.accents {
            folded = folded.nfc().collect();
        }
        if self.case {
            // To upper case first: some letters become several there.
            folded = folded.to_uppercase().to_lowercase();
        }
        self.cut(folded.into_bytes()).into()
    }

    /// Removes the dots and spaces at the end of each name.
    fn cut(self, mut path: Vec<u8>) -> Vec<u8> {
        if !self.ends {
            return path;
        }
        let mut kept = 0;
        for at in 0..path.len() {
            if path[at] == b'/' {
                kept = trimmed(&path[..kept]);
            }
            path[kept] = path[at];
            kept += 1;
        }
        path.truncate(trimmed(&path[..kept]));
        path
    }
}

/// How much of a path is left without the dots and spaces at its end.
fn trimmed(path: &[u8]) -> usize {
    let is_kept = |byte: &u8| !matches!(byte, b'.' | b' ');
    path.iter().rposition(is_kept).map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_its_own() {
        let fold = |folding: Folding, path: &str| {
            String::from_utf8(folding.fold(path.as_bytes()).into_owned()).unwrap()
        };
        let none = Folding::default();
        assert_eq!(fold(none, "A/E\u{301}. "), "A/E\u{301}. ");
        let case = Folding { case: true, ..none };
        assert_eq!(fold(case, "A./E\u{301}"), "a./e\u{301}");
        let accents = Folding {
            accents: true,
            ..none
        };
        assert_eq!(fold(accents, "A./E\u{301}"), "A./\u{c9}");
        let ends = Folding { ends: true, ..none };
        assert_eq!(fold(ends, "A. ./b.c../\u{e9} "), "A/b.c/\u{e9}");
    }
}
