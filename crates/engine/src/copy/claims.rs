//! Names at the destination that two things copied would both get: of two sources, or of one whose names the destination's file
//! system does not tell apart. One replaces the other there, so that the second is left out.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    hash::{BuildHasher, RandomState},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use posthaste_endpoint::{Error, ErrorKind, Kind, Locus, Result};
use tokio::sync::OnceCell;

use super::{Placed, lane::Shared};

/// What has been given a name, where that has to be known: 16 bytes a name, so not for every copy.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Sources go to places that may overlap.
    overlap: AtomicBool,
    /// There is one file to copy.
    alone: AtomicBool,
    names: OnceCell<Option<Names>>,
    /// Links that are copied, hashed: nothing else is written through them.
    links: Mutex<HashSet<u64>>,
    state: RandomState,
}

#[derive(Debug)]
struct Names {
    /// Names that differ in case only are one.
    folds: bool,
    state: RandomState,
    /// The exact name by the folded one, both hashed.
    given: Mutex<HashMap<u64, u64>>,
}

impl Names {
    /// Whether `path` may still be given to something of this kind. Directories of one name become one.
    fn give(&self, path: &[u8], kind: Kind) -> bool {
        let exact = self.state.hash_one(path);
        let folded = if self.folds {
            // To upper case first: some letters become several there.
            let folded = String::from_utf8_lossy(path).to_uppercase().to_lowercase();
            self.state.hash_one(folded.as_bytes())
        } else {
            exact
        };
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        match given.entry(folded) {
            Entry::Vacant(free) => {
                free.insert(exact);
                true
            }
            Entry::Occupied(found) => kind == Kind::Directory && *found.get() == exact,
        }
    }
}

impl Claims {
    /// Learns where the sources go.
    pub(super) fn prepare(&self, placed: &[Placed]) {
        let mut names: Vec<_> = placed.iter().map(|placed| &placed.to).collect();
        names.sort_unstable();
        let is_twice = names.windows(2).any(|pair| pair[0] == pair[1]);
        let has_content = placed.iter().any(|placed| placed.to.is_empty());
        let overlap = placed.len() > 1 && (is_twice || has_content);
        self.overlap.store(overlap, Relaxed);
        let alone = placed.len() == 1 && placed[0].entry.kind != Kind::Directory;
        self.alone.store(alone, Relaxed);
    }

    /// Gives the name `to` at the destination, of which a directory above it is there, to one thing of this kind. A listing that
    /// calls one name a link and a directory would have files written to wherever the link leads.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] where it has been given to another.
    pub(super) async fn give(&self, shared: &Shared, to: &[u8], kind: Kind) -> Result<()> {
        if !self.is_no_link(to, kind) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "write",
                shared.destination.endpoint.show(to),
            )
            .cause("the source has a symbolic link and a directory of this name")
            .at(Locus::Source));
        }
        let names = self.names.get_or_init(async || {
            let local = shared.destination.local.as_ref();
            let asks = !shared.options.dry_run && !self.alone.load(Relaxed);
            let folds = match local.filter(|_| asks) {
                Some(local) => local.folds_names(to).await,
                None => false,
            };
            (folds || self.overlap.load(Relaxed)).then(|| Names {
                folds,
                state: RandomState::new(),
                given: Mutex::default(),
            })
        });
        match names.await {
            Some(names) if !names.give(to, kind) => {
                let shown = shared.destination.endpoint.show(to);
                Err(Error::new(ErrorKind::Conflict, "write", shown)
                    .cause(if names.folds {
                        "something else that is copied has this name, and the file system takes no account of case"
                    } else {
                        "something else that is copied has this name"
                    })
                    .hint("copy it to another directory, or under another name")
                    .at(Locus::Destination))
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Claims {
    /// Notes a link; whether anything else has not the name of one.
    fn is_no_link(&self, to: &[u8], kind: Kind) -> bool {
        let name = || self.state.hash_one(to);
        let links = || self.links.lock().unwrap_or_else(PoisonError::into_inner);
        match kind {
            Kind::Link => {
                links().insert(name());
                true
            }
            Kind::Directory => !links().contains(&name()),
            Kind::File | Kind::Special => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folds: bool) -> Names {
        Names {
            folds,
            state: RandomState::new(),
            given: Mutex::default(),
        }
    }

    #[test]
    fn a_name_is_given_once() {
        let exact = names(false);
        assert!(exact.give(b"d/File", Kind::File) && exact.give(b"d/file", Kind::File));
        assert!(!exact.give(b"d/file", Kind::Link));
        let folded = names(true);
        assert!(folded.give("d/\u{c4}".as_bytes(), Kind::File));
        assert!(!folded.give("d/\u{e4}".as_bytes(), Kind::File));
        assert!(folded.give("stra\u{df}e".as_bytes(), Kind::File));
        assert!(!folded.give(b"STRASSE", Kind::File));
    }

    #[test]
    fn directories_of_one_name_become_one() {
        let folded = names(true);
        assert!(folded.give(b"d", Kind::Directory) && folded.give(b"d", Kind::Directory));
        assert!(!folded.give(b"D", Kind::Directory));
        assert!(!folded.give(b"d", Kind::File));
    }

    #[test]
    fn nothing_is_written_through_a_link_that_is_copied() {
        let claims = Claims::default();
        assert!(claims.is_no_link(b"d", Kind::Directory) && claims.is_no_link(b"n", Kind::Link));
        assert!(!claims.is_no_link(b"n", Kind::Directory));
    }
}
