//! Folding of names by a file system. It may ignore differences in case (APFS, NTFS, exFAT,
//! SMB), in how accents are written (APFS, ZFS) or in the dots and spaces at the end (Windows).

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    os::fd::AsFd,
};

use futures_util::future::join3;
use posthaste_endpoint::{Checksum, Error, ErrorKind, FileSpec, Locus, join, trial_name};
use rustix::{
    fs::{AtFlags, Mode, OFlags, openat, statat, unlinkat},
    io::Errno,
};
use unicode_normalization::UnicodeNormalization;

use super::{lane::Shared, retry::retried};

/// Differences between names that a file system ignores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Folding {
    /// Ignores upper and lower case.
    pub(crate) case: bool,
    /// Ignores whether an accent is part of a letter or follows it.
    pub(crate) accents: bool,
    /// Ignores dots and spaces at the end.
    pub(crate) ends: bool,
}

impl Folding {
    /// Folding of all file systems together.
    pub(crate) const WIDEST: Self = Self {
        case: true,
        accents: true,
        ends: true,
    };

    /// Learns the folding by an empty file that is made in `directory` and removed; `None` if no
    /// file can be made. An object store that can't be asked counts as exact, as most are: its keys
    /// may write and not look.
    pub(super) async fn learn(shared: &Shared, directory: &[u8]) -> Option<Self> {
        let endpoint = &*shared.destination.endpoint;
        let is_store = !endpoint.capabilities().directories;
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
            let put = || endpoint.put(&path, &spec, Vec::new(), Checksum::EMPTY);
            if retried(shared, put).await.is_err() {
                continue;
            }
            let is_one = async |other: Vec<u8>| {
                let path = join(directory, &other);
                let there = || endpoint.stat(&path, false);
                other != name
                    && match retried(shared, there).await {
                        Ok(found) => found.is_some(),
                        Err(_) => !is_store,
                    }
            };
            let apart = String::from_utf8_lossy(&name).nfd().collect::<String>();
            let (case, accents, ends) = join3(
                is_one(name.to_ascii_uppercase()),
                is_one(apart.into_bytes()),
                is_one([&*name, b"."].concat()),
            )
            .await;
            // The file is hidden, and its name says whose it is.
            let _ = endpoint.remove(&path).await;
            return Some(Self {
                case,
                accents,
                ends,
            });
        }
        is_store.then(Self::default)
    }

    /// Learns the folding of a local directory that is open. Blocks.
    pub(crate) fn learn_in(directory: impl AsFd) -> Self {
        for letter in ["\u{e9}", "e"] {
            let name = trial_name(letter.as_bytes());
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if openat(&directory, &*name, flags, Mode::RUSR | Mode::WUSR).is_err() {
                continue;
            }
            let is_one = |other: &[u8]| {
                let found = statat(&directory, other, AtFlags::SYMLINK_NOFOLLOW);
                other != &*name && !matches!(found, Err(Errno::NOENT))
            };
            let apart = String::from_utf8_lossy(&name).nfd().collect::<String>();
            let folding = Self {
                case: is_one(&name.to_ascii_uppercase()),
                accents: is_one(apart.as_bytes()),
                ends: is_one(&[&*name, b"."].concat()),
            };
            // The file is hidden, and its name says whose it is.
            let _ = unlinkat(&directory, &*name, AtFlags::empty());
            return folding;
        }
        Self::WIDEST
    }

    /// Returns what all paths become that are one.
    pub(crate) fn fold(self, path: &[u8]) -> Cow<'_, [u8]> {
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
        if self.case {
            // By way of upper case: some letters become several there, and some have no single
            // capital.
            folded = folded.to_lowercase().to_uppercase().to_lowercase();
        }
        if self.accents {
            // Wider than most do: ligatures count as their letters, and what is not seen as
            // nothing.
            folded = folded.nfkd().filter(|letter| !is_unseen(*letter)).collect();
        }
        if self.case && self.accents {
            folded = folded.to_uppercase().to_lowercase().nfkd().collect();
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

/// Returns which of these paths equal one before them: the position of each in the list, and of the
/// first that has its name. The folding is learnt only if any may be equal.
pub(crate) fn clashes<'a>(
    paths: impl Iterator<Item = &'a [u8]> + Clone,
    learn: impl FnOnce() -> Folding,
) -> Vec<(usize, usize)> {
    let state = RandomState::new();
    let hashed = |folding: Folding, path: &[u8]| state.hash_one(&*folding.fold(path));
    let mut seen = HashSet::new();
    let may_be_one = |path| !seen.insert(hashed(Folding::WIDEST, path));
    if !paths.clone().any(may_be_one) {
        return Vec::new();
    }
    drop(seen);
    let folding = learn();
    if folding == Folding::default() {
        return Vec::new();
    }
    let mut first = HashMap::new();
    let clash = |(place, path)| {
        let had = *first.entry(hashed(folding, path)).or_insert(place);
        (had != place).then_some((place, had))
    };
    paths.enumerate().filter_map(clash).collect()
}

/// Returns the paths that equal another if all known foldings apply together.
pub(crate) fn may_be_one<'a>(paths: impl Iterator<Item = &'a [u8]> + Clone) -> Vec<&'a [u8]> {
    let state = RandomState::new();
    let hashed = |path: &[u8]| state.hash_one(&*Folding::WIDEST.fold(path));
    let mut seen = HashSet::new();
    let twice: HashSet<u64> = paths
        .clone()
        .map(hashed)
        .filter(|hash| !seen.insert(*hash))
        .collect();
    drop(seen);
    if twice.is_empty() {
        return Vec::new();
    }
    paths.filter(|path| twice.contains(&hashed(path))).collect()
}

/// Returns the error that something is not written because `other` has its name there.
pub(crate) fn is_one_with(operation: &'static str, shown: String, other: &[u8]) -> Error {
    let other = String::from_utf8_lossy(other);
    Error::new(ErrorKind::Conflict, operation, shown)
        .cause(format!(
            "{other:?} has a name that is the same there: in other case, otherwise written accents, or with dots or spaces at its end"
        ))
        .at(Locus::Destination)
}

/// Returns whether a letter only changes how others look, so that file systems ignore it: joiners,
/// marks of direction, soft hyphens, selectors of variants, tags (`Default_Ignorable_Code_Point` of
/// Unicode).
fn is_unseen(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns the length of a path without the dots and spaces at its end.
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
        assert_eq!(fold(accents, "A./\u{c9}"), "A./E\u{301}");
        assert_eq!(fold(accents, "\u{fb01}a\u{200d}"), "fia");
        assert_eq!(fold(accents, "a\u{61c}\u{e0067}\u{3164}b"), "ab");
        for (one, other) in [
            ("STRA\u{1e9e}E", "stra\u{df}e"),
            ("\u{390}", "\u{3aa}\u{301}"),
        ] {
            assert_eq!(fold(Folding::WIDEST, one), fold(Folding::WIDEST, other));
        }
        let ends = Folding { ends: true, ..none };
        assert_eq!(fold(ends, "A. ./b.c../\u{e9} "), "A/b.c/\u{e9}");
    }
}
