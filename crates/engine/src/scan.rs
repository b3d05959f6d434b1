//! Scan of a tree of any endpoint: everything below a directory, in memory that does not depend on
//! its size.
//!
//! [`list`] reports its findings as they come. A [`Scan`] writes them into a folder instead, where
//! they can be read any number of times, and continues after it was killed. Stores that list whole
//! trees are asked for the whole; of others several directories are listed at once.

mod entries;
mod pen;
mod record;
mod spool;
mod visit;

use std::{
    future::Future,
    hash::{BuildHasher, RandomState},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use posthaste_endpoint::{Endpoint, Entry, Error, ErrorKind, Kind, Listing, Locus, Result, join};
use posthaste_plan::patience::next_try;
use tokio::{
    sync::mpsc,
    task::{JoinSet, spawn_blocking},
    time::sleep,
};

pub use entries::Entries;
pub use record::Found;

use crate::{agenda::visit_all, copy::trouble_of};
use pen::Pen;
use record::Current;
use spool::{Identity, Spool};
use visit::DirectoryVisit;

/// Directories listed at once if each costs a round trip.
pub const LISTED_AT_ONCE: usize = 16;

/// Local directories listed at once: more only make a disk seek.
pub const LOCAL_LISTED_AT_ONCE: usize = 4;

/// Maximum depth of a tree: a followed symbolic link to its own parent ends here.
const DEPTH_MAX: usize = 256;

/// Time between two checkpoints: the most that a killed scan lists again.
const SAVED_EVERY: Duration = Duration::from_secs(1);

/// Options of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Scans what symbolic links point to rather than the links.
    pub follow: bool,
    /// Directories listed at once, if the endpoint can't list the whole tree. A continued scan
    /// keeps the number it began with.
    pub at_once: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            follow: false,
            at_once: LISTED_AT_ONCE,
        }
    }
}

/// Progress of a scan: counters that anybody may read.
#[derive(Debug, Default)]
pub struct Tally {
    entries: AtomicU64,
    directories: AtomicU64,
    failures: AtomicU64,
    temporary: AtomicU64,
}

impl Tally {
    /// Returns the entries found.
    pub fn entries(&self) -> u64 {
        self.entries.load(Relaxed)
    }

    /// Returns the directories among them.
    pub fn directories(&self) -> u64 {
        self.directories.load(Relaxed)
    }

    /// Returns the directories that could not be listed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Directories among those failures that a retry may list.
    pub fn temporary(&self) -> u64 {
        self.temporary.load(Relaxed)
    }

    fn found(&self, entries: &[Entry]) {
        let is_directory = |entry: &&Entry| entry.kind == Kind::Directory;
        let directories = entries.iter().filter(is_directory).count();
        self.entries.fetch_add(entries.len() as u64, Relaxed);
        self.directories.fetch_add(directories as u64, Relaxed);
    }

    fn failed(&self, error: &Error) {
        self.failures.fetch_add(1, Relaxed);
        if error.is_temporary() {
            self.temporary.fetch_add(1, Relaxed);
        }
    }
}

/// News of a scan.
#[derive(Debug)]
pub enum News {
    /// Entries.
    Found(Found),
    /// A directory could not be listed, or not to its end; the others go on.
    Failed(Error),
}

/// Lists everything below the endpoint's root and reports it as it comes. Ends early when nobody
/// listens any more.
///
/// # Errors
/// The root itself can't be listed: errors of [`Endpoint::list`].
pub async fn list(
    endpoint: &Arc<dyn Endpoint>,
    options: Options,
    tally: &Arc<Tally>,
    news: mpsc::Sender<News>,
) -> Result<()> {
    let tree = match options.follow {
        false => patiently(|| endpoint.list_tree(b"")).await?,
        true => None,
    };
    let teller = Teller {
        endpoint: Arc::clone(endpoint),
        follow: options.follow,
        tally: Arc::clone(tally),
        news,
    };
    if let Some(listing) = tree {
        let mut pages = Pages::new(listing);
        loop {
            let page = pages.next().await?;
            if page.is_empty() || !teller.found(b"", page).await {
                return Ok(());
            }
        }
    }
    let root = patiently(|| endpoint.list(b"", options.follow)).await?;
    let visit = DirectoryVisit::root(Arc::new(teller), root);
    visit_all(vec![visit], options.at_once).await;
    Ok(())
}

/// State shared by the visits of a listing.
struct Teller {
    endpoint: Arc<dyn Endpoint>,
    follow: bool,
    tally: Arc<Tally>,
    news: mpsc::Sender<News>,
}

impl Teller {
    /// Reports a page; returns whether anybody listens.
    async fn found(&self, directory: &[u8], entries: Vec<Entry>) -> bool {
        self.tally.found(&entries);
        let found = Found {
            directory: directory.to_vec(),
            entries,
        };
        self.news.send(News::Found(found)).await.is_ok()
    }

    async fn failed(&self, error: Error) {
        self.tally.failed(&error);
        // A receiver that stopped listening does not want to know.
        let _ = self.news.send(News::Failed(error)).await;
    }
}

/// Retries a request while that can help. Returns the last error.
async fn patiently<T, F: Future<Output = Result<T>>>(mut request: impl FnMut() -> F) -> Result<T> {
    let mut failures = 0;
    loop {
        let error = match request().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        failures += 1;
        let lot = RandomState::new().hash_one(failures);
        match next_try(trouble_of(&error), failures, error.pause(), lot) {
            Some(pause) => sleep(pause).await,
            None => return Err(error.with("tries", failures).at(Locus::Source)),
        }
    }
}

/// Listing that is retried when a page fails for now.
struct Pages(tokio::sync::Mutex<Box<dyn Listing>>);

impl Pages {
    fn new(listing: Box<dyn Listing>) -> Self {
        Self(tokio::sync::Mutex::new(listing))
    }

    async fn next(&mut self) -> Result<Vec<Entry>> {
        patiently(|| async { self.0.lock().await.next_page().await }).await
    }

    fn mark(&mut self) -> Option<Vec<u8>> {
        self.0.get_mut().mark()
    }
}

/// Returns the paths of the directories on a page.
fn below(directory: &[u8], entries: &[Entry]) -> Vec<Vec<u8>> {
    let found = entries.iter().filter(|entry| entry.kind == Kind::Directory);
    found.map(|entry| join(directory, &entry.name)).collect()
}

/// Refuses a directory too deep.
fn check_depth(endpoint: &dyn Endpoint, path: &[u8]) -> Result<()> {
    if path.split(|&byte| byte == b'/').count() <= DEPTH_MAX {
        return Ok(());
    }
    Err(
        Error::new(ErrorKind::Unsupported, "list", endpoint.show(path))
            .cause(format!("more than {DEPTH_MAX} directories deep"))
            .hint("a followed link may lead back to its own parent")
            .at(Locus::Source),
    )
}

/// Scan with its findings in a folder.
pub struct Scan {
    endpoint: Arc<dyn Endpoint>,
    spool: Arc<Spool>,
    tally: Arc<Tally>,
    follow: bool,
}

impl Scan {
    /// Opens the scan in `folder`, or starts one there. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if another process scans into the folder, or it holds a scan of
    /// something else; [`ErrorKind::Corrupt`] if its files were changed; the system's.
    pub fn open(folder: &Path, endpoint: Arc<dyn Endpoint>, options: Options) -> Result<Self> {
        let identity = Identity {
            address: &endpoint.show(b""),
            follow: options.follow,
            whole: endpoint.capabilities().listing_marks && !options.follow,
            slots: options.at_once.max(1),
        };
        let spool = Spool::open(folder, identity)?;
        let tally = Tally::default();
        let (entries, directories, failures) = spool.counts();
        tally.entries.store(entries, Relaxed);
        tally.directories.store(directories, Relaxed);
        tally.failures.store(failures, Relaxed);
        Ok(Self {
            endpoint,
            spool: Arc::new(spool),
            tally: Arc::new(tally),
            follow: options.follow,
        })
    }

    /// Returns the progress, with what earlier runs found.
    #[must_use]
    pub fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    /// Returns whether everything was listed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.spool.is_finished()
    }

    /// Returns the entries that were found and count.
    ///
    /// # Errors
    /// The system's.
    pub fn entries(&self) -> Result<Entries> {
        Entries::open(self.spool.written())
    }

    /// Removes the folder's scan. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(self) -> Result<()> {
        self.spool.remove()
    }

    /// Scans until everything is listed. Reports directories that can't be listed to `on_failure`,
    /// and goes on with the others.
    ///
    /// # Errors
    /// Temporary errors that persist over the retries: another run goes on from there. Errors of
    /// listing the root itself. Errors of writing the folder.
    pub async fn run(self: &Arc<Self>, on_failure: &Arc<OnFailure>) -> Result<()> {
        if self.is_finished() {
            return Ok(());
        }
        let mut workers = JoinSet::new();
        for slot in 0..self.spool.slots() {
            let (scan, on_failure) = (Arc::clone(self), Arc::clone(on_failure));
            workers.spawn(async move { scan.work(slot, &*on_failure).await });
        }
        let first = Mutex::new(Ok(()));
        let note = |result: Result<()>| {
            if let Err(error) = result {
                self.spool.end();
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                if first.is_ok() {
                    *first = Err(error);
                }
            }
        };
        let mut saving = tokio::time::interval(SAVED_EVERY);
        loop {
            tokio::select! {
                ended = workers.join_next() => match ended {
                    None => break,
                    Some(Ok(result)) => note(result),
                    Some(Err(cause)) => note(Err(lost(cause))),
                },
                _ = saving.tick() => note(self.save().await),
            }
        }
        note(self.save().await);
        first.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    async fn save(self: &Arc<Self>) -> Result<()> {
        let spool = Arc::clone(&self.spool);
        spawn_blocking(move || spool.save()).await.map_err(lost)?
    }

    async fn work(&self, slot: usize, on_failure: &OnFailure) -> Result<()> {
        let mut pen = Some(Pen::new(&self.spool, slot));
        while let Some(current) = self.spool.take(slot).await? {
            let path = current.path.0.clone();
            let Err(error) = self.list_one(&mut pen, current).await else {
                continue;
            };
            if error.kind() == ErrorKind::Cancelled {
                self.spool.give_back(slot);
                return Ok(());
            }
            let is_root = path.is_empty();
            if is_root || error.is_temporary() || error.locus() != Locus::Source {
                self.spool.give_back(slot);
                return Err(error);
            }
            self.spool.leave_out(slot);
            self.tally.failed(&error);
            on_failure(&error);
        }
        Ok(())
    }

    /// Lists one directory, or the rest of it.
    async fn list_one(&self, pen: &mut Option<Pen>, current: Current) -> Result<()> {
        let Current { path, mark } = current;
        let path = Arc::new(path.0);
        check_depth(self.endpoint.as_ref(), &path)?;
        let whole = self.spool.is_whole();
        let mut pages = Pages::new(
            self.begin(&path, mark.as_ref().map(|mark| &*mark.0))
                .await?,
        );
        if let Some(pen) = pen.as_mut() {
            pen.begin();
        }
        loop {
            let page = pages.next().await?;
            let is_last = page.is_empty();
            let mark = pages.mark();
            self.tally.found(&page);
            let Some(mut owned) = pen.take() else {
                return Err(Error::new(ErrorKind::Other, "write", "what was found")
                    .cause("an earlier write failed"));
            };
            let directory = Arc::clone(&path);
            let written = spawn_blocking(move || {
                if !is_last {
                    let below = if whole {
                        Vec::new()
                    } else {
                        below(&directory, &page)
                    };
                    owned.write(&directory, &page, below)?;
                }
                if is_last || mark.is_some() {
                    owned.count(mark.filter(|_| !is_last));
                }
                Ok(owned)
            });
            *pen = Some(written.await.map_err(lost)??);
            if is_last {
                return Ok(());
            }
            if self.spool.is_ended() {
                // Another worker met what ends the scan for now.
                let shown = self.endpoint.show(&path);
                return Err(Error::new(ErrorKind::Cancelled, "list", shown));
            }
        }
    }

    async fn begin(&self, path: &[u8], mark: Option<&[u8]>) -> Result<Box<dyn Listing>> {
        if let Some(mark) = mark {
            return patiently(|| self.endpoint.list_on(path, mark)).await;
        }
        if self.spool.is_whole()
            && let Some(listing) = patiently(|| self.endpoint.list_tree(path)).await?
        {
            return Ok(listing);
        }
        patiently(|| self.endpoint.list(path, self.follow)).await
    }
}

/// Callback for each directory that can't be listed.
pub type OnFailure = dyn Fn(&Error) + Send + Sync;

fn lost(cause: tokio::task::JoinError) -> Error {
    Error::new(ErrorKind::Other, "run", "a scan").cause(cause)
}
