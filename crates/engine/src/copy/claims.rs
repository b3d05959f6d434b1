//! Names at the destination that two copied objects would both get: from two sources, or from one
//! source whose names the destination does not distinguish. One would replace the other there, so
//! the second is left out.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use posthaste_endpoint::{Error, ErrorKind, Kind, Locus, Result, posix::split};
use tokio::sync::OnceCell;

use super::{Placed, folding::Folding, lane::Shared};

/// Names given before the folding is learnt. Learning makes a file at the destination, so it waits
/// until there are more names than this, or two that may be equal.
const EARLY_MAX: usize = 1 << 16;

/// Names already given, recorded only if a copy needs them, because each takes 16 bytes.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Paths of the whole copy, by the folding of the destination's top.
    paths: Given,
    /// Names of each directory, if several sources may put something into one.
    directories: Mutex<HashMap<Vec<u8>, Arc<Given>>>,
    overlap: AtomicBool,
    /// The destination may treat two names as equal.
    may_fold: AtomicBool,
    /// Copied links, hashed: nothing else is written through them.
    links: Mutex<HashSet<u64>>,
    state: RandomState,
}

/// Names already given. A directory below the destination may fold names otherwise than its top, so
/// it has its own set for as long as something goes into it.
#[derive(Debug, Default)]
pub(super) struct Given {
    names: Mutex<Names>,
    learnt: OnceCell<()>,
}

#[derive(Debug, Default)]
enum Names {
    /// Names given before the destination's folding is known, by their widest folding, hashed.
    Early {
        given: HashMap<u64, Vec<u8>>,
        overlap: bool,
    },
    /// Exact names by the folded ones, both hashed.
    Known {
        given: HashMap<u64, u64>,
        folding: Folding,
    },
    /// All names differ, and nothing is given twice.
    #[default]
    Apart,
}

/// Marks an error as that of a name that is taken at the destination.
#[must_use]
pub fn clash(error: Error) -> Error {
    error.with("names", "taken")
}

/// Returns whether an error says that a name is taken at the destination. A retry gives the same
/// error.
#[must_use]
pub fn is_clash(error: &Error) -> bool {
    error.context().iter().any(|(key, _)| *key == "names")
}

/// Reason why a name can't be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// Something has the name.
    Taken,
    /// Something has a name that is equal there.
    Same,
    /// The folding is not known yet, so neither is whether something has the name.
    Early,
}

impl Names {
    /// Gives `path` to something of this kind. Directories of one name become one.
    fn give(&mut self, path: &[u8], kind: Kind, state: &RandomState) -> Result<(), Refused> {
        match self {
            Self::Apart => Ok(()),
            Self::Early { given, .. } => {
                let is_full = given.len() >= EARLY_MAX;
                match given.entry(state.hash_one(&*Folding::WIDEST.fold(path))) {
                    Entry::Vacant(free) if !is_full => {
                        free.insert(path.to_vec());
                        Ok(())
                    }
                    Entry::Occupied(had) if kind == Kind::Directory && had.get() == path => Ok(()),
                    Entry::Vacant(_) | Entry::Occupied(_) => Err(Refused::Early),
                }
            }
            Self::Known { given, folding } => {
                let exact = state.hash_one(path);
                match given.entry(state.hash_one(&*folding.fold(path))) {
                    Entry::Vacant(free) => {
                        free.insert(exact);
                        Ok(())
                    }
                    Entry::Occupied(had) if *had.get() != exact => Err(Refused::Same),
                    Entry::Occupied(_) if kind == Kind::Directory => Ok(()),
                    Entry::Occupied(_) => Err(Refused::Taken),
                }
            }
        }
    }

    /// Folds the names given so far.
    fn learn(&mut self, folding: Folding, state: &RandomState) {
        let Self::Early { given, overlap } = self else {
            return;
        };
        let hashed = |path: &Vec<u8>| {
            (
                state.hash_one(&*folding.fold(path)),
                state.hash_one(&**path),
            )
        };
        *self = if *overlap || folding != Folding::default() {
            Self::Known {
                given: given.values().map(hashed).collect(),
                folding,
            }
        } else {
            Self::Apart
        };
    }
}

impl Given {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives `name`. If another may be equal, learns the folding in the first of these directories
    /// that can tell.
    async fn give(
        &self,
        shared: &Shared,
        learn_in: &[&[u8]],
        name: &[u8],
        kind: Kind,
    ) -> Result<(), Refused> {
        let state = &shared.claims.state;
        let give = || self.names().give(name, kind, state);
        let given = give();
        if given != Err(Refused::Early) {
            return given;
        }
        let learnt = self.learnt.get_or_init(async || {
            let mut folding = None;
            for directory in learn_in {
                if folding.is_none() {
                    folding = Folding::learn(shared, directory).await;
                }
            }
            // A folding that can't be learnt counts as the widest: an object with such a name is
            // reported.
            let folding = folding.unwrap_or(Folding::WIDEST);
            self.names().learn(folding, state);
        });
        learnt.await;
        give()
    }
}

impl Claims {
    /// Notes where the sources go.
    pub(super) fn prepare(&self, shared: &Shared, placed: &[Placed]) {
        let mut names: Vec<_> = placed.iter().map(|placed| &placed.to).collect();
        names.sort_unstable();
        let is_twice = names.windows(2).any(|pair| pair[0] == pair[1]);
        let has_content = placed.iter().any(|placed| placed.to.is_empty());
        let overlap = placed.len() > 1 && (is_twice || has_content);
        let alone = placed.len() == 1 && placed[0].entry.kind != Kind::Directory;
        let can = shared.destination.endpoint.capabilities();
        // Stores of objects know exact names, except those that keep them as files. Nothing is made
        // to learn the folding that can't be removed.
        let may_fold = can.directories || can.removes;
        let may_fold = may_fold && !alone && !shared.options.dry_run;
        self.may_fold.store(may_fold, Relaxed);
        self.overlap.store(overlap, Relaxed);
        *self.paths.names() = if may_fold {
            Names::Early {
                given: HashMap::new(),
                overlap,
            }
        } else if overlap {
            Names::Known {
                given: HashMap::new(),
                folding: Folding::default(),
            }
        } else {
            Names::Apart
        };
    }

    /// Returns the names of a directory at the destination.
    pub(super) fn directory(&self, to: &[u8]) -> Arc<Given> {
        let new = || {
            let names = match self.may_fold.load(Relaxed) {
                true => Names::Early {
                    given: HashMap::new(),
                    overlap: false,
                },
                false => Names::Apart,
            };
            Arc::new(Given {
                names: Mutex::new(names),
                learnt: OnceCell::new(),
            })
        };
        if !self.overlap.load(Relaxed) {
            return new();
        }
        let directories = self.directories.lock();
        let mut directories = directories.unwrap_or_else(PoisonError::into_inner);
        Arc::clone(directories.entry(to.to_vec()).or_insert_with(new))
    }

    /// Gives the name `to` at the destination to one object of this kind; `above` has the names of
    /// its directory, which is there. Otherwise a listing with a link and a directory of one name
    /// would have files written to wherever the link leads.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if another has the name.
    pub(super) async fn give(
        &self,
        shared: &Shared,
        above: Option<&Given>,
        to: &[u8],
        kind: Kind,
    ) -> Result<()> {
        let shown = || shared.destination.endpoint.show(to);
        if !self.is_no_link(to, kind) {
            return Err(Error::new(ErrorKind::Conflict, "write", shown())
                .cause("the source has a symbolic link and a directory of this name")
                .at(Locus::Source));
        }
        let (directory, name) = split(to);
        let mut given = self.paths.give(shared, &[b"", directory], to, kind).await;
        if let (Ok(()), Some(above)) = (given, above) {
            given = above.give(shared, &[directory], name, kind).await;
        }
        let cause = match given {
            Ok(()) | Err(Refused::Early) => return Ok(()),
            Err(Refused::Taken) => "something else that is copied has this name",
            Err(Refused::Same) => {
                "something else that is copied has a name that is the same there: in other case, otherwise written accents, or with \
                 dots or spaces at its end"
            }
        };
        let error = Error::new(ErrorKind::Conflict, "write", shown()).cause(cause);
        let error = error.hint("copy it to another directory, or under another name");
        Err(clash(error.at(Locus::Destination)))
    }
}

impl Claims {
    /// Notes a link; returns whether no other object has the name of one.
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

    const KNOWN: [Folding; 2] = [
        Folding {
            case: false,
            accents: false,
            ends: false,
        },
        Folding::WIDEST,
    ];

    fn known(folding: Folding) -> impl FnMut(&str, Kind) -> Result<(), Refused> {
        let state = RandomState::new();
        let mut names = Names::Known {
            given: HashMap::new(),
            folding,
        };
        move |path, kind| names.give(path.as_bytes(), kind, &state)
    }

    #[test]
    fn a_name_is_given_once() {
        let [exact, widest] = KNOWN;
        let mut exact = known(exact);
        for path in ["d/File", "d/file", "d/file.", "d/\u{e4}", "d/a\u{308}"] {
            assert_eq!(exact(path, Kind::File), Ok(()), "{path}");
            assert_eq!(exact(path, Kind::Link), Err(Refused::Taken), "{path}");
        }
        let mut widest = known(widest);
        for (first, second) in [
            ("d/file", "d/File"),
            ("d/\u{e4}", "D/A\u{308}"),
            ("stra\u{df}e", "STRASSE"),
            ("e./f", "e/f. "),
        ] {
            assert_eq!(widest(first, Kind::File), Ok(()), "{first}");
            assert_eq!(widest(second, Kind::File), Err(Refused::Same), "{second}");
        }
    }

    #[test]
    fn directories_of_one_name_become_one() {
        let mut widest = known(Folding::WIDEST);
        assert_eq!(widest("d", Kind::Directory), Ok(()));
        assert_eq!(widest("d", Kind::Directory), Ok(()));
        assert_eq!(widest("D", Kind::Directory), Err(Refused::Same));
        assert_eq!(widest("d", Kind::File), Err(Refused::Taken));
    }

    #[test]
    fn who_may_have_a_name_that_another_has_waits_until_it_is_known() {
        for (folding, is_one) in KNOWN.into_iter().zip([false, true]) {
            let state = RandomState::new();
            let mut names = Names::Early {
                given: HashMap::new(),
                overlap: false,
            };
            let give = |names: &mut Names, path: &[u8]| names.give(path, Kind::File, &state);
            assert_eq!(give(&mut names, b"a"), Ok(()));
            assert_eq!(give(&mut names, b"A"), Err(Refused::Early));
            assert_eq!(give(&mut names, b"b"), Ok(()));
            names.learn(folding, &state);
            assert_eq!(give(&mut names, b"A").is_err(), is_one);
            assert_eq!(give(&mut names, b"c"), Ok(()));
        }
    }

    #[test]
    fn nothing_is_written_through_a_link_that_is_copied() {
        let claims = Claims::default();
        assert!(claims.is_no_link(b"d", Kind::Directory) && claims.is_no_link(b"n", Kind::Link));
        assert!(!claims.is_no_link(b"n", Kind::Directory));
    }
}
