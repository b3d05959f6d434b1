//! Lists the sources, makes the directories and hands files to the lanes.
//!
//! Several directories are listed and made at once, or a whole tree if the source can list one. The
//! bounded queue to the lanes sets the pace. A directory is made before its files are handed over,
//! and sealed when the last of them has arrived, so that nothing grows with the tree.

mod directory;
mod inside;
mod names;
mod seals;
mod tree;
mod visit;

use std::sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed};

use posthaste_endpoint::{
    Entry, Error, ErrorKind, Kind, Locus, Result, UNFINISHED, is_unfinished, join,
    posix::without_lent_rights,
};
use tokio::{sync::mpsc, task::JoinSet};

use super::{Links, Placed, Source, lane::Shared, retry::retried};
use crate::agenda::visit_all;
use directory::{Directory, Made};
use names::Lookups;
use seals::Seals;
use visit::DirectoryVisit;

/// Files of one batch, so that a lane takes the queue's lock once for many small files.
const BATCH_FILES: usize = 64;

/// Bytes of one batch, so that large files spread over all lanes.
const BATCH_BYTES: u64 = 8 << 20;

/// Maximum depth of a tree: a followed symbolic link to its own parent ends here if no end reports
/// where it leads.
const DEPTH_MAX: usize = 256;

/// Directories listed at once if each costs a round trip.
const LISTED_AT_ONCE: usize = 16;

/// Local directories listed at once: more only make a disk seek.
const LOCAL_LISTED_AT_ONCE: usize = 4;

/// Bytes of the largest file that any file system accepts.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Reason why an object that is no file has nothing to copy.
const SPECIAL: &str = "it is a device, a pipe or a socket";

/// Object at a file's destination.
#[derive(Debug, Clone)]
pub(super) enum There {
    /// Nothing, because its directory is new.
    Nothing,
    /// This.
    Found(Entry),
    /// Nobody looked yet.
    Ask,
}

/// A file or link to copy.
#[derive(Debug)]
pub(super) struct Work {
    pub source: Arc<Source>,
    pub from: Vec<u8>,
    pub to: Vec<u8>,
    pub entry: Entry,
    pub there: There,
    /// Keeps the directory unsealed until the file has arrived.
    pub _directory: Option<Arc<Directory>>,
}

/// Batch of files to hand over.
#[derive(Debug, Default)]
struct Batch {
    works: Vec<Work>,
    bytes: u64,
}

/// State shared by all visits of a walk.
struct Walk {
    shared: Arc<Shared>,
    queue: mpsc::Sender<Vec<Work>>,
    batch: Mutex<Batch>,
    lookups: Lookups,
    seals: Arc<Seals>,
}

/// Directories that wait to be sealed when the lanes have ended.
pub(super) struct Walked {
    seals: Arc<Seals>,
    sealing: JoinSet<()>,
}

impl Walked {
    /// Gives the remaining directories their attributes.
    pub(super) async fn seal(mut self, shared: &Shared) {
        self.seals.end();
        while let Some(ended) = self.sealing.join_next().await {
            if let Err(cause) = ended {
                let subject = "the sealing of directories";
                shared.failed(Error::new(ErrorKind::Other, "run", subject).cause(cause));
            }
        }
        shared.bare.note_directories(self.seals.unsealed());
    }
}

pub(super) struct Walker {
    walk: Arc<Walk>,
}

impl Walker {
    pub(super) fn new(shared: &Arc<Shared>, queue: mpsc::Sender<Vec<Work>>) -> Self {
        let walk = Walk {
            shared: Arc::clone(shared),
            queue,
            batch: Mutex::default(),
            lookups: Lookups::default(),
            seals: Seals::new(shared),
        };
        Self {
            walk: Arc::new(walk),
        }
    }

    /// Walks all sources.
    pub(super) async fn walk(self, placed: Vec<Placed>) -> Walked {
        let Self { walk } = self;
        let shared = &walk.shared;
        let sealing = walk.seals.start(shared);
        let mut visits = Vec::new();
        let mut at_once = LOCAL_LISTED_AT_ONCE;
        for placed in placed {
            if placed.source.place.local.is_none() {
                at_once = LISTED_AT_ONCE;
            }
            match walk.begin(placed).await {
                Ok(visit) => visits.extend(visit),
                Err(error) => shared.failed(error),
            }
        }
        // The newest is looked at first.
        visits.reverse();
        visit_all(visits, at_once).await;
        walk.flush().await;
        shared.progress.walk_ended();
        Walked {
            seals: Arc::clone(&walk.seals),
            sealing,
        }
    }
}

impl Walk {
    /// Hands a file over, walks a tree that is listed at once, or returns the visit that walks it.
    async fn begin(self: &Arc<Self>, placed: Placed) -> Result<Option<DirectoryVisit>> {
        let Placed {
            source,
            entry,
            to,
            existed,
        } = placed;
        let shared = &self.shared;
        if entry.kind == Kind::Special {
            let shown = source.place.endpoint.show(b"");
            return Err(Error::new(ErrorKind::Unsupported, "copy", shown)
                .cause(SPECIAL)
                .hint("what it gives is copied as a stream: cat FILE | posthaste cp - DESTINATION")
                .at(Locus::Source));
        }
        inside::refuse(shared, &source, &entry, &to).await?;
        inside::note_absent(shared, &source, &to).await;
        if let Some(namesake) = source.place.endpoint.namesake() {
            shared.failed(namesake);
        }
        let destination = &shared.destination.endpoint;
        if !shared.options.dry_run {
            retried(shared, || destination.make_parents()).await?;
        }
        if entry.kind != Kind::Directory {
            self.begin_file(source, entry, to).await?;
            return Ok(None);
        }
        let root = Directory::root(source, to, entry, existed, &self.seals);
        let endpoint = &root.source.place.endpoint;
        // Links are followed and directories left out one at a time.
        let whole = shared.options.links != Links::Follow && !shared.options.filter.is_pruning();
        if whole {
            let listing = retried(shared, || endpoint.list_tree(b"")).await;
            if let Some(listing) = listing.map_err(|error| error.at(Locus::Source))? {
                tree::walk(self, &root, listing).await?;
                return Ok(None);
            }
        }
        Ok(Some(DirectoryVisit::new(Arc::clone(self), root)))
    }

    async fn begin_file(&self, source: Arc<Source>, entry: Entry, to: Vec<u8>) -> Result<()> {
        let shared = &self.shared;
        let named = if to.is_empty() { &source.name } else { &to };
        if !shared.options.filter.passes_file(named) {
            return Ok(());
        }
        if !to.is_empty() && !shared.options.dry_run {
            let above = split_last(&to).map_or(&b""[..], |(above, _)| above);
            let destination = &shared.destination.endpoint;
            retried(shared, || destination.make_directory(above)).await?;
        }
        self.hand_over(Work {
            source,
            from: Vec::new(),
            to,
            entry,
            there: There::Ask,
            _directory: None,
        })
        .await;
        Ok(())
    }

    /// Returns whether an entry is copied at all; reports why not.
    fn takes(&self, directory: &Directory, entry: &Entry) -> bool {
        let options = &self.shared.options;
        let from = join(&directory.from, &entry.name);
        let byte_names = self.shared.destination.endpoint.capabilities().byte_names;
        if let Err(reason) = check_name(&entry.name, byte_names) {
            let mut named = from;
            if entry.name.is_empty() {
                named.push(b'/');
            }
            let shown = directory.source.place.endpoint.show(&named);
            let error = Error::new(ErrorKind::Unsupported, "copy", shown).cause(reason);
            self.shared
                .failed(error.hint("rename it").at(Locus::Source));
            return false;
        }
        let is_wanted = match entry.kind {
            Kind::Directory => options.filter.passes_directory(&from),
            Kind::File | Kind::Link | Kind::Special => options.filter.passes_file(&from),
        };
        let reason = refusal(entry).filter(|_| is_wanted);
        if let Some((cause, hint)) = reason {
            let shown = directory.source.place.endpoint.show(&from);
            let error = Error::new(ErrorKind::Unsupported, "copy", shown).cause(cause);
            self.shared.failed(error.hint(hint).at(Locus::Source));
        }
        is_wanted && reason.is_none()
    }

    /// Makes the directory, looks at what its files would replace, and hands them over. Reports
    /// those it can't.
    async fn place(&self, directory: &Arc<Directory>, files: Vec<Entry>) {
        if directory.is_refused() {
            return;
        }
        if let Err(error) = self.try_place(directory, files).await {
            directory.refuse();
            self.shared.failed(error);
        }
    }

    async fn try_place(&self, directory: &Arc<Directory>, files: Vec<Entry>) -> Result<()> {
        let shared = &self.shared;
        if files.is_empty() {
            // With patterns, a directory that holds nothing wanted is not made.
            if shared.options.filter.is_open() {
                directory.make(shared).await?;
            }
            return Ok(());
        }
        let Made { new } = directory.make(shared).await?;
        let names = match &shared.destination.local {
            None if !new => Some(self.lookups.names(shared, &directory.to).await?),
            None | Some(_) => None,
        };
        for entry in files {
            let there = match names.as_ref().and_then(|names| names.get()) {
                _ if new => There::Nothing,
                Some(names) => names.get(&entry.name),
                None => There::Ask,
            };
            self.hand_over(Work {
                source: Arc::clone(&directory.source),
                from: join(&directory.from, &entry.name),
                to: join(&directory.to, &entry.name),
                entry,
                there,
                _directory: Some(Arc::clone(directory)),
            })
            .await;
        }
        if !shared.is_local() {
            self.flush().await;
        }
        Ok(())
    }

    async fn hand_over(&self, work: Work) {
        let shared = &self.shared;
        let above = work._directory.as_ref();
        let above = above.map(|above| above.names(shared));
        let given = shared.claims.give(shared, above, &work.to, work.entry.kind);
        if let Err(error) = given.await {
            return shared.failed(error);
        }
        if work.entry.kind == Kind::File {
            let lends = |mode| mode != without_lent_rights(mode);
            let is_less = shared.options.modes && work.entry.mode.is_some_and(lends);
            shared.lent_rights.fetch_add(is_less.into(), Relaxed);
            shared.progress.found_file(work.entry.size);
        }
        let full = {
            let mut batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
            batch.bytes = batch.bytes.saturating_add(work.entry.size);
            batch.works.push(work);
            let is_full = batch.works.len() >= BATCH_FILES || batch.bytes >= BATCH_BYTES;
            is_full.then(|| std::mem::take(&mut *batch))
        };
        self.send(full).await;
    }

    async fn flush(&self) {
        let batch = std::mem::take(&mut *self.batch.lock().unwrap_or_else(PoisonError::into_inner));
        self.send(Some(batch)).await;
    }

    async fn send(&self, batch: Option<Batch>) {
        if let Some(Batch { works, .. }) = batch
            && !works.is_empty()
        {
            // The queue closes only when every lane has ended, which a stop causes.
            let _ = self.queue.send(works).await;
        }
    }
}

/// Returns why an existing entry is not copied, and what to do about it.
fn refusal(entry: &Entry) -> Option<(&'static str, &'static str)> {
    if entry.kind == Kind::Special {
        return Some((SPECIAL, "leave it out with --exclude"));
    }
    if entry.size > FILE_BYTES_MAX {
        return Some((
            "the size it is said to have makes no sense",
            "ask who runs the server",
        ));
    }
    is_unfinished(&entry.name).then_some((
        UNFINISHED,
        "end that copy, or leave the name out with --exclude",
    ))
}

fn check_name(name: &[u8], byte_names: bool) -> Result<(), &'static str> {
    if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err("this can't be a file's name at the destination");
    }
    if !byte_names && std::str::from_utf8(name).is_err() {
        return Err("its name is not UTF-8, which the destination needs");
    }
    Ok(())
}

fn split_last(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let cut = path.iter().rposition(|&byte| byte == b'/')?;
    Some((&path[..cut], &path[cut + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in [b"".as_slice(), b".", b"..", b"a/b", b"a\0"] {
            assert!(check_name(name, true).is_err(), "{name:?}");
        }
        assert!(check_name(b"caf\xe9\n", true).is_ok());
        assert!(check_name(b"caf\xe9", false).is_err());
    }
}
