//! Lists directories: opens their endpoints, keeps these open for a while, and retries temporary
//! errors.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use posthaste_endpoint::{
    Endpoint, Entry, Error, ErrorKind, FileTime, Kind, Listing, Locus, Result,
};
use posthaste_types::Timestamp;
use tokio::{
    sync::{OnceCell, Semaphore},
    time::{sleep, timeout},
};

use super::{
    cache::Known,
    listed::{Draft, ENTRIES_MAX, Listed},
    place::{Place, Root},
};
use crate::{actors::Actors, clock::Clock, credentials::Behalf, inbound::look};

/// Endpoints open at once.
const OPEN_MAX: usize = 64;
/// Idle time after which an endpoint is closed.
pub(super) const IDLE_FOR: Duration = Duration::from_secs(60);
/// Age at which an endpoint is opened anew: its profile may have changed.
const OPEN_FOR: Duration = Duration::from_secs(600);
/// Directories listed on request at once at one endpoint.
const ASKED_AT_ONCE: usize = 16;
/// Directories of this machine listed at once.
const LOCAL_AT_ONCE: usize = 4;
/// Entries of a tree that is listed in one call: 50 pages of a store, and a few megabytes. Larger
/// trees are listed directory by directory.
const TREE_ENTRIES_MAX: usize = 50_000;
/// Attempts at a listing that fails temporarily, and the first pause between them, which doubles.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(250);
/// Longest listing: one that takes longer is not going to end.
const LONGEST: Duration = Duration::from_secs(1800);

/// Owner of an endpoint, and the path at which it was opened.
type Key = (Arc<Root>, Vec<u8>);
type Endpoints = HashMap<Key, Arc<Opened>>;

/// Endpoint that is open, or being opened by its first user.
struct Opened {
    endpoint: OnceCell<Arc<dyn Endpoint>>,
    opened: Timestamp,
    used: Mutex<Timestamp>,
    /// Slots for directories that a caller waits for.
    asked: Semaphore,
}

/// Result of reading a directory.
pub(super) struct Read {
    pub(super) known: Known,
    /// Set if it was unchanged and so not listed again.
    pub(super) is_unchanged: bool,
    /// Set if its store lists everything below in one call.
    pub(super) lists_trees: bool,
}

/// Work to do at an endpoint.
enum What {
    Directory(Option<Known>),
    Tree,
}

/// Result of that work.
enum Found {
    Directory(Read),
    /// All directories of a tree; none if they are too many or the store can't list them in one
    /// call.
    Tree(Option<Vec<(Vec<u8>, Listed)>>, Timestamp),
}

/// Endpoints by credential and path.
#[derive(Default)]
pub(super) struct Reader {
    clock: Clock,
    opened: Mutex<Endpoints>,
    /// Rights and credentials that open them.
    actors: Arc<Actors>,
}

impl Reader {
    pub(super) fn new(actors: &Arc<Actors>) -> Self {
        Self {
            actors: Arc::clone(actors),
            ..Self::default()
        }
    }

    pub(super) fn actors(&self) -> &Actors {
        &self.actors
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Lists a directory, unless it is unchanged since `old` was listed. Listings on request have
    /// their own slots.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is nothing, [`ErrorKind::Invalid`] for a file,
    /// [`ErrorKind::Unsupported`] for too many entries, and the endpoint's.
    pub(super) async fn read(
        &self,
        place: &Place,
        old: Option<Known>,
        is_awaited: bool,
    ) -> Result<Read> {
        match self.find(place, What::Directory(old), is_awaited).await? {
            Found::Directory(read) => Ok(read),
            Found::Tree(..) => Err(Error::new(ErrorKind::Other, "list", "a directory")),
        }
    }

    /// Lists every directory at and below a directory. Returns none if that is too much, or its
    /// store does not list trees.
    ///
    /// # Errors
    /// The endpoint's.
    pub(super) async fn read_tree(&self, place: &Place) -> Result<Option<Vec<(Place, Known)>>> {
        let Found::Tree(Some(found), began) = self.find(place, What::Tree, false).await? else {
            return Ok(None);
        };
        let known = |listed| Known {
            listed: Arc::new(listed),
            listed_at: began,
            as_of: began,
            mtime: None,
        };
        let found = found.into_iter();
        let found = found.map(|(path, listed)| (place.below_it(&path), known(listed)));
        Ok(Some(found.collect()))
    }

    async fn find(&self, place: &Place, what: What, is_awaited: bool) -> Result<Found> {
        let (key, opened) = self.opened(place);
        let path = place.below(&key.1).unwrap_or_default().to_vec();
        let reading = async {
            let _turn = match is_awaited {
                true => opened.asked.acquire().await.ok(),
                false => None,
            };
            let began = self.clock.now();
            let endpoint = opened
                .endpoint
                .get_or_try_init(|| self.open(place, &key.1))
                .await?;
            let read = match what {
                What::Directory(old) => {
                    let read = read_at(endpoint.as_ref(), &path, old, began).await?;
                    Found::Directory(read)
                }
                What::Tree => Found::Tree(read_tree_at(endpoint.as_ref(), &path).await?, began),
            };
            if let Some(local) = place.local() {
                let local = local.to_owned();
                let shown = endpoint.show(&path);
                let behalf = self.behalf(place)?;
                let look = move || is_still_there(&local, shown);
                behalf.blocking(look).await?;
            }
            Ok(read)
        };
        let read = timeout(LONGEST, reading).await.unwrap_or_else(|_| {
            let cause = format!("not through with it after {} s", LONGEST.as_secs());
            Err(Error::new(ErrorKind::TimedOut, "list", "a directory").cause(cause))
        });
        if read.as_ref().is_err_and(is_lost) {
            let mut all = self.locked();
            if all
                .get(&key)
                .is_some_and(|known| Arc::ptr_eq(known, &opened))
            {
                all.remove(&key);
            }
        }
        read.map_err(|error| error.at(Locus::Source))
    }

    /// Returns the endpoint at which a place is listed, an open one if there is one.
    fn opened(&self, place: &Place) -> (Key, Arc<Opened>) {
        let now = self.clock.now();
        let mut all = self.locked();
        all.retain(|_, opened| now.since(opened.opened) < OPEN_FOR);
        let fits = |key: &Key| key.0 == *place.root() && place.below(&key.1).is_some();
        let found = all.iter().find(|(key, _)| fits(key));
        if let Some((key, opened)) = found {
            opened.touch(now);
            return (key.clone(), Arc::clone(opened));
        }
        let base = Some(place.top()).filter(|top| place.below(top).is_some());
        let base = base.unwrap_or_else(|| place.path().to_vec());
        let key = (Arc::clone(place.root()), base);
        let at_once = if place.site().is_here() {
            LOCAL_AT_ONCE
        } else {
            ASKED_AT_ONCE
        };
        let opened = Arc::new(Opened {
            endpoint: OnceCell::new(),
            opened: now,
            used: Mutex::new(now),
            asked: Semaphore::new(at_once),
        });
        if all.len() >= OPEN_MAX
            && let Some(oldest) = all
                .iter()
                .min_by_key(|(_, opened)| opened.used())
                .map(|(key, _)| key.clone())
        {
            all.remove(&oldest);
        }
        all.insert(key.clone(), Arc::clone(&opened));
        (key, opened)
    }

    async fn open(&self, place: &Place, base: &[u8]) -> Result<Arc<dyn Endpoint>> {
        let location = place.location(base)?;
        let behalf = self.behalf(place)?;
        look::open_location(
            location,
            place.root().profile(),
            &behalf,
            posthaste_endpoint::posix::DraftRules::default(),
        )
        .await
    }

    /// Returns on whose behalf a place is opened: for the service's own user if it has no owner.
    fn behalf(&self, place: &Place) -> Result<Behalf> {
        match (place.root().owner(), place.local()) {
            (Some(owner), Some(_)) => tokio::task::block_in_place(|| self.actors.owner(owner)),
            (owner, _) => Ok(self.actors.elsewhere(owner.unwrap_or_default())),
        }
    }

    /// Closes idle endpoints; returns whether any stays open.
    pub(super) fn close_idle(&self) -> bool {
        let now = self.clock.now();
        let mut all = self.locked();
        all.retain(|_, opened| now.since(opened.used()) < IDLE_FOR);
        !all.is_empty()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Endpoints> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opened {
    fn used(&self) -> Timestamp {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self, now: Timestamp) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
}

/// Returns whether an endpoint should be opened anew.
fn is_lost(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unreachable | ErrorKind::Unauthenticated | ErrorKind::TimedOut
    )
}

/// Checks that a local path still leads to where it led when access to it was checked.
fn is_still_there(path: &std::path::Path, shown: String) -> Result<()> {
    match std::fs::canonicalize(path) {
        Ok(followed) if followed == path => Ok(()),
        Ok(_) => Err(Error::new(ErrorKind::Changed, "list", shown)
            .cause("it became a link meanwhile")
            .hint("ask again")),
        Err(cause) => Err(Error::io("list", shown, cause)),
    }
}

/// Retries as long as that can help.
async fn patiently<T, F: Future<Output = Result<T>>>(mut work: impl FnMut() -> F) -> Result<T> {
    let mut tries = 1;
    loop {
        match work().await {
            Err(error) if error.is_temporary() && tries < TRIES => {
                let pause = PAUSE * 2_u32.pow(tries - 1);
                sleep(error.pause().map_or(pause, |said| said.min(pause * 8))).await;
                tries += 1;
            }
            done => return done,
        }
    }
}

/// Returns whether a directory's modification time shows that names were added or removed.
fn tells_changes(endpoint: &dyn Endpoint) -> bool {
    matches!(endpoint.capabilities().scheme, "file" | "sftp")
}

async fn read_at(
    endpoint: &dyn Endpoint,
    path: &[u8],
    old: Option<Known>,
    began: Timestamp,
) -> Result<Read> {
    let tells = tells_changes(endpoint);
    if let Some(old) = old
        && tells
        && old.may_be_confirmed(began)
        && let Some(there) = patiently(|| endpoint.stat(path, true)).await?
        && there.kind == Kind::Directory
        && there.mtime == old.mtime
    {
        let known = Known {
            as_of: began,
            ..old
        };
        return Ok(Read {
            known,
            is_unchanged: true,
            lists_trees: false,
        });
    }
    let (mtime, listing) = patiently(|| begin(endpoint, path, tells)).await?;
    let listed = read_all(endpoint, path, listing).await?;
    if listed.after(b"") == 0 && listed.page(0, 1).0.next().is_none() {
        see_that_it_is_a_directory(endpoint, path).await?;
    }
    Ok(Read {
        known: Known {
            listed: Arc::new(listed),
            listed_at: began,
            as_of: began,
            mtime,
        },
        is_unchanged: false,
        lists_trees: endpoint.capabilities().listing_marks,
    })
}

/// Begins listing, and asks for the modification time in the same round trip.
async fn begin(
    endpoint: &dyn Endpoint,
    path: &[u8],
    tells: bool,
) -> Result<(Option<FileTime>, Box<dyn Listing>)> {
    if !tells {
        return Ok((None, endpoint.list(path, false).await?));
    }
    let (there, listing) = tokio::join!(endpoint.stat(path, true), endpoint.list(path, false));
    // The listing's own error says more.
    let listing = listing?;
    Ok((there?.and_then(|there| there.mtime), listing))
}

async fn read_all(
    endpoint: &dyn Endpoint,
    path: &[u8],
    listing: Box<dyn Listing>,
) -> Result<Listed> {
    let mut draft = Draft::default();
    let listing = tokio::sync::Mutex::new(listing);
    loop {
        let page = patiently(|| async { listing.lock().await.next_page().await }).await?;
        if page.is_empty() {
            // Sorting millions of names takes a while.
            return Ok(tokio::task::block_in_place(|| draft.finish()));
        }
        for entry in &page {
            if !draft.push(entry) {
                let cause = format!(
                    "it has more than {ENTRIES_MAX} entries, or longer names than fit: {} were read",
                    draft.len()
                );
                return Err(
                    Error::new(ErrorKind::Unsupported, "list", endpoint.show(path))
                        .cause(cause)
                        .hint("list it with `posthaste ls`, without --service"),
                );
            }
        }
    }
}

/// Lists all directories of a tree, by their paths below this one.
async fn read_tree_at(
    endpoint: &dyn Endpoint,
    path: &[u8],
) -> Result<Option<Vec<(Vec<u8>, Listed)>>> {
    let Some(listing) = patiently(|| endpoint.list_tree(path)).await? else {
        return Ok(None);
    };
    let mut drafts = HashMap::from([(Vec::new(), Draft::default())]);
    let mut entries = 0;
    let listing = tokio::sync::Mutex::new(listing);
    loop {
        let page = patiently(|| async { listing.lock().await.next_page().await }).await?;
        if page.is_empty() {
            let found = drafts.into_iter();
            let found = found.map(|(path, draft)| (path, draft.finish()));
            return Ok(Some(found.collect()));
        }
        entries += page.len();
        if entries > TREE_ENTRIES_MAX {
            return Ok(None);
        }
        for mut entry in page {
            let slash = entry.name.iter().rposition(|byte| *byte == b'/');
            let above = slash.map_or(Vec::new(), |slash| entry.name[..slash].to_vec());
            if entry.kind == Kind::Directory {
                drafts.entry(entry.name.clone()).or_default();
            }
            entry.name.drain(..slash.map_or(0, |slash| slash + 1));
            if !drafts.entry(above).or_default().push(&entry) {
                return Ok(None);
            }
        }
    }
}

/// Checks that a path is a directory: a store that only knows keys lists nothing below a file or a
/// missing path.
async fn see_that_it_is_a_directory(endpoint: &dyn Endpoint, path: &[u8]) -> Result<()> {
    let there: Option<Entry> = patiently(|| endpoint.stat(path, true)).await?;
    match there.map(|entry| entry.kind) {
        Some(Kind::Directory) => Ok(()),
        Some(Kind::File | Kind::Link | Kind::Special) => {
            Err(Error::new(ErrorKind::Invalid, "list", endpoint.show(path))
                .cause("it is no directory")
                .hint("list the directory that it lies in"))
        }
        // A bucket without keys has no root either.
        None if path.is_empty() => Ok(()),
        None => Err(Error::new(ErrorKind::NotFound, "list", endpoint.show(path))
            .cause("no such file or directory")
            .hint("check the path")),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path, time::SystemTime};

    use super::*;

    fn place(path: &Path) -> Place {
        Place::of(path.to_str().unwrap(), None, Ok).unwrap()
    }

    /// Makes a directory with a file look untouched for long.
    fn settle(folder: &Path) {
        for path in [folder.join("file"), folder.to_owned()] {
            let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
            fs::File::open(path)
                .unwrap()
                .set_modified(long_ago)
                .unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_directory_that_did_not_change_is_not_listed_again() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "x").unwrap();
        let (reader, place) = (Reader::default(), place(folder.path()));
        let young = reader.read(&place, None, true).await.unwrap();
        let again = reader.read(&place, Some(young.known), true).await.unwrap();
        assert!(!again.is_unchanged, "it may have changed within a tick");
        settle(folder.path());
        let old = reader.read(&place, None, true).await.unwrap().known;
        let again = reader.read(&place, Some(old.clone()), true).await.unwrap();
        assert!(again.is_unchanged && Arc::ptr_eq(&again.known.listed, &old.listed));
        assert!(again.known.as_of > old.as_of && again.known.listed_at == old.listed_at);
        fs::write(folder.path().join("new"), "x").unwrap();
        let again = reader.read(&place, Some(old.clone()), true).await.unwrap();
        assert!(!again.is_unchanged);
        assert_eq!(again.known.listed.page(0, 10).0.count(), 2);
        fs::remove_dir_all(folder.path()).unwrap();
        let gone = reader.read(&place, Some(old), true).await;
        assert_eq!(gone.map(|_| ()).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_directory_that_became_a_link_is_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("mine");
        fs::create_dir_all(folder.path().join("theirs/secret")).unwrap();
        fs::create_dir(&there).unwrap();
        let (reader, place) = (Reader::default(), place(&there));
        fs::remove_dir(&there).unwrap();
        symlink("theirs", &there).unwrap();
        let refused = reader
            .read(&place, None, true)
            .await
            .map(|_| ())
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Changed, "{refused}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn endpoints_are_shared_by_what_lies_at_them() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("below")).unwrap();
        let reader = Reader::default();
        for path in [folder.path(), &folder.path().join("below")] {
            reader.read(&place(path), None, true).await.unwrap();
        }
        assert_eq!(reader.locked().len(), 1);
        assert!(reader.close_idle(), "it was used just now");
    }
}
