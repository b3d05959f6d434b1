//! Copies files and trees between any two endpoints.
//!
//! A walker lists the sources and hands files to lanes through a bounded queue. Lanes between two
//! local paths run on blocking threads (`local`). All others stream (`remote`); an optimizer
//! chooses their number by the results so far (`tuning`). Small files travel whole (`small`). Large
//! ones travel in segments (`large`), each summed on its way, verified at the destination and
//! recorded, so that a killed copy continues where it was. Temporary failures are retried
//! (`retry`), a stalled stream is replaced by another (`watch`). A file that fails is reported and
//! left out; the others go on. Only an error that every file would get (no space, no credentials, a
//! read-only file system) stops the copy.

mod board;
mod cargo;
mod claims;
mod clock;
mod filter;
pub(crate) mod folding;
mod help;
mod lane;
mod large;
mod local;
mod progress;
mod proof;
mod remote;
mod retry;
mod small;
mod stream;
mod tuning;
mod unchanged;
mod walk;
mod watch;
mod written;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use posthaste_endpoint::{
    Endpoint, Entry, Error, ErrorKind, Kind, Locus, Result, Unkept,
    posix::{DraftRules, Posix},
};
use posthaste_plan::tuner::{Method, Setting};
use posthaste_types::Bytes;

pub use claims::{clash, is_clash};
pub use filter::Filter;
pub use help::{Errand, Help, Helped};
pub use posthaste_endpoint::limits::Throttle;
pub use progress::{Current, Figures, Progress};
pub(crate) use retry::{persisted, trouble_of};
pub use stream::{Parking, Poured, Spout, pour};
pub use tuning::{Decision, Tuned};
pub use written::Written;

use lane::Shared;

/// Treatment of symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Links {
    /// Copied as links.
    #[default]
    Keep,
    /// Followed: what a link points to is copied.
    Follow,
    /// Left out.
    Skip,
}

/// An end of a copy.
#[derive(Clone)]
pub struct Place {
    endpoint: Arc<dyn Endpoint>,
    local: Option<Posix>,
}

impl Place {
    /// Returns an end at local files.
    #[must_use]
    pub fn local(posix: Posix) -> Self {
        Self {
            endpoint: Arc::new(posix.clone()),
            local: Some(posix),
        }
    }

    /// Returns an end at any other endpoint.
    #[must_use]
    pub fn remote(endpoint: Arc<dyn Endpoint>) -> Self {
        Self {
            endpoint,
            local: None,
        }
    }
}

impl Place {
    /// Shows a path below it as messages do.
    #[must_use]
    pub fn show(&self, path: &[u8]) -> String {
        self.endpoint.show(path)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.endpoint.show(b""))
    }
}

/// Source of a copy.
#[derive(Debug, Clone)]
pub struct Source {
    /// Place of the source; its root is the file or directory itself.
    pub place: Place,
    /// Name of the source inside a destination directory.
    pub name: Vec<u8>,
    /// Source written with a trailing slash: it must be a directory, and its content is copied.
    pub content: bool,
}

/// Options of a copy.
#[derive(Clone)]
pub struct Options {
    /// Filter of files.
    pub filter: Filter,
    /// Method that decides how many files and streams are used at once.
    pub method: Method,
    /// Settings at which earlier copies ended, by the name of their path ([`Tuned::path`]).
    pub history: BTreeMap<String, Setting>,
    /// Rate limit of all lanes together. May be changed while the copy runs.
    pub throttle: Throttle,
    /// Treatment of symbolic links.
    pub links: Links,
    /// Rules for writing local files.
    pub rules: DraftRules,
    /// Copies also what seems unchanged.
    pub again: bool,
    /// Leaves files alone that are as new at the destination, or newer.
    pub update: bool,
    /// Counts a file with another mode at the destination as changed.
    pub modes: bool,
    /// Reads each file back from a remote destination and compares.
    pub verify: bool,
    /// Reports only what would be done.
    pub dry_run: bool,
    /// An earlier run of this copy made the destination: it is the copy, not a directory to copy
    /// into.
    pub continues: bool,
    /// An earlier run of this copy made the destination. If that is a directory, it gets the
    /// attributes of its source.
    pub has_begun: bool,
    /// Record of what this copy wrote so far, also in earlier runs. If nothing is to be replaced,
    /// only recorded files count as unchanged by size and time; the bytes of all others at the
    /// destination are compared. Without a record nothing is remembered.
    pub written: Option<Arc<Written>>,
    /// Bytes after which no further file starts.
    pub transfer_max: Option<Bytes>,
    /// Time after which nothing starts, and transfers under way end within seconds.
    pub duration_max: Option<Duration>,
    /// Others that may copy some of it; `None` for nobody.
    pub help: Option<Arc<dyn Help>>,
    /// Callback for each notice.
    pub on_notice: Arc<dyn Fn(&Notice<'_>) + Send + Sync>,
}

/// Notice of a copy, worth a line.
#[derive(Debug)]
pub enum Notice<'a> {
    /// The copy makes the destination, as a copy of a tree. If this run is interrupted, the next
    /// one will find a directory there, which is not one to copy into ([`Options::continues`]).
    Made,
    /// The directory of [`Notice::Made`] exists, at this local path.
    Stands(&'a std::path::Path),
    /// This failed; the rest goes on unless the error is fatal.
    Failed(&'a Error),
    /// A file arrived.
    Copied(&'a str),
    /// A file was there already.
    Unchanged(&'a str),
    /// A file would be copied.
    WouldCopy(&'a str),
    /// Something that can't be copied was left out: a socket or device, or a link not asked for.
    LeftOut(&'a str),
    /// A stream's destination failed: the rest goes to the parking place of this name.
    Parking(&'a Error, &'a str),
    /// The optimizer chose.
    Tuned(&'a Decision),
}

/// End of a copy.
#[derive(Debug)]
pub struct Ending {
    /// Counters at the end.
    pub figures: Figures,
    /// Error that stopped everything, or the reason why nothing could be written at all.
    pub fatal: Option<Error>,
    /// Counts of what arrived without something of its own.
    pub unkept: Unkept,
    /// Counts of directories that arrived without attributes of their own, because the destination
    /// keeps none, as object stores. Not among those of `unkept`.
    pub directories_unkept: Unkept,
    /// Symbolic links that the destination refuses to make; they are among those left out.
    pub links_refused: u64,
    /// Files that count as unchanged by their size, because the destination keeps no times.
    pub untimed: u64,
    /// Files whose set-user-ID and set-group-ID bits were not kept, although modes were to be.
    pub lent_rights: u64,
    /// Last failure that did not stop everything.
    pub last_error: Option<String>,
    /// The page under `docs/errors/` that explains it.
    pub last_code: Option<&'static str>,
    /// Everything has arrived, or was there, except what failed and was named.
    pub rest_arrived: bool,
    /// Number of failures that may pass when tried again.
    pub temporary: u64,
    /// Number of files left out for a reason of their own: changed, unreadable, impossible name.
    pub left_out: u64,
    /// Number of other failures.
    pub other: u64,
    /// Limit that ended it.
    pub limit: Option<Limit>,
    /// Report of the optimizer.
    pub tuned: Tuned,
}

/// A limit the user set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// [`Options::transfer_max`].
    Transfer,
    /// [`Options::duration_max`].
    Duration,
}

/// Copies `sources` to `destination`.
///
/// A single source becomes the destination, unless that is a directory. Several sources, a
/// destination that is a directory, or one written with a trailing slash (`into`): each source goes
/// into it under its own name. A source written with a trailing slash gives its content.
pub async fn copy(
    sources: Vec<Source>,
    destination: Place,
    into: bool,
    options: Options,
    progress: Arc<Progress>,
) -> Ending {
    let shared = Arc::new(Shared::new(destination, options, progress));
    match place_all(&shared, sources, into).await {
        Ok(placed) => lane::run(&shared, placed).await,
        Err(error) => shared.stop(error),
    }
    shared.ending()
}

/// Source and its destination.
#[derive(Debug)]
pub(crate) struct Placed {
    source: Arc<Source>,
    entry: Entry,
    /// Path relative to the destination.
    to: Vec<u8>,
    /// `to` existed before.
    existed: bool,
}

async fn place_all(shared: &Shared, sources: Vec<Source>, into: bool) -> Result<Vec<Placed>> {
    let destination = &shared.destination.endpoint;
    destination.check_writes()?;
    let there = retry::reached(shared, || destination.stat(b"", true)).await;
    let there = lane::seen(&**destination, there)?;
    let is_directory = there
        .as_ref()
        .is_some_and(|entry| entry.kind == Kind::Directory);
    if there.is_some() && !is_directory && (into || sources.len() > 1) {
        return Err(
            Error::new(ErrorKind::Conflict, "copy into", destination.show(b""))
                .cause("it is not a directory")
                .hint("name a directory, or one source for that name")
                .at(Locus::Destination),
        );
    }
    let is_place = is_directory && !shared.options.continues;
    let inside = into || is_place || sources.len() > 1;
    let among_several = sources.len() > 1;
    let mut placed = Vec::with_capacity(sources.len());
    for source in sources {
        let endpoint = &source.place.endpoint;
        let follow = shared.options.links == Links::Follow || source.content;
        let found = retry::reached(shared, || endpoint.stat(b"", follow))
            .await
            .map_err(|error| error.at(Locus::Source))?;
        let entry = match found {
            Some(entry) => entry,
            // One source of several.
            None if among_several => {
                shared.failed(missing(&source));
                continue;
            }
            None => return Err(missing(&source)),
        };
        let is_tree = entry.kind == Kind::Directory;
        if source.content && !is_tree {
            return Err(Error::new(ErrorKind::NotFound, "read", endpoint.show(b""))
                .cause("not a directory")
                .with("directory", true)
                .hint("leave out the trailing slash to copy a file")
                .at(Locus::Source));
        }
        if is_tree && there.is_some() && !is_directory {
            return Err(Error::new(
                ErrorKind::Conflict,
                "copy a directory onto",
                destination.show(b""),
            )
            .cause("a file has that name")
            .at(Locus::Destination));
        }
        if is_tree && there.is_none() && !inside && !shared.options.dry_run {
            (shared.options.on_notice)(&Notice::Made);
        }
        let named = inside && !source.content;
        placed.push(Placed {
            to: if named {
                source.name.clone()
            } else {
                Vec::new()
            },
            existed: is_directory && !named && !shared.options.has_begun,
            source: Arc::new(source),
            entry,
        });
    }
    Ok(placed)
}

fn missing(source: &Source) -> Error {
    let error = Error::new(ErrorKind::NotFound, "read", source.place.endpoint.show(b""))
        .hint("check the path")
        .at(Locus::Source);
    if source.content {
        return error.cause("no such directory").with("directory", true);
    }
    error.cause("no such file or directory")
}
