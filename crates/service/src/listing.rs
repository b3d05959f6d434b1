//! Lists directories of any endpoint: listings are cached for a while, and listed ahead for callers
//! that walk a tree.
//!
//! `place` decides which directories are equal for which owner, `listed` keeps entries small,
//! `cache` decides how long a listing is fresh, `agenda` what is listed ahead, `reader` lists.
//! Before each call, the caller must check with [`crate::tokens::Caller::reads`] that the user may
//! read that address with that profile.

mod agenda;
mod cache;
mod listed;
mod place;
mod reader;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::RequestRecord;
use posthaste_types::Timestamp;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{actors::Actors, inbound::look};
use agenda::{Agenda, Wanted};
pub(crate) use agenda::{LEVELS, LEVELS_MAX};
use cache::{Cache, Known, Look, Want};
pub(crate) use listed::{Listed, Seen};
pub(crate) use place::{Place, Written};
use reader::{IDLE_FOR, Read, Reader};

/// Default memory for cached listings.
pub const CACHE_BYTES: u64 = 64 << 20;
/// Directories that are listed on request at once, or wait for it.
pub(crate) const ASKED_MAX: usize = 1024;
/// Longest wait for a directory: the caller is then told to ask again, and the listing continues.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Number of directories listed on request at which listing ahead stops.
const BUSY_AT: usize = 32;
/// Directories listed ahead after the requested one: callers that walk a tree ask for them next.
const BESIDE: usize = 64;

/// Result of a listing, for all its waiters.
type Outcome = Option<std::result::Result<Arc<Read>, Arc<Error>>>;
type Waiter = watch::Receiver<Outcome>;

/// Listing that a caller requested.
pub(crate) struct Start {
    place: Place,
    number: u64,
    old: Option<Known>,
    outcome: watch::Sender<Outcome>,
}

/// Options of a request for a listing.
#[derive(Debug, Default)]
pub(crate) struct Ask {
    /// Name after which the page begins.
    pub(crate) after: Option<Vec<u8>>,
    /// Set to list anew, whatever is cached.
    pub(crate) refresh: bool,
    /// Levels to list ahead.
    pub(crate) levels: u8,
    /// Examines neighbouring directories even if this one was cached.
    pub(crate) looks_beside: bool,
}

/// Answer to a request for a listing.
pub(crate) struct Answer {
    pub(crate) listed: Arc<Listed>,
    /// Moment at which the listing was known to be true.
    pub(crate) as_of: Timestamp,
    /// Set if it came from the cache.
    pub(crate) is_cached: bool,
    /// Set if the store lists everything below in one call.
    lists_trees: bool,
}

struct Books {
    cache: Cache<Waiter>,
    agenda: Agenda,
    /// Directories being listed for a waiting caller.
    asked: usize,
}

/// Listings of a service.
pub(crate) struct Listings {
    books: Mutex<Books>,
    reader: Reader,
    starts: mpsc::Sender<Start>,
    /// Notified when there may be something to list ahead.
    told: Notify,
}

/// Write under way, which ends when this is dropped.
pub(crate) struct Writing {
    listings: Arc<Listings>,
    number: Option<u64>,
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.listings.books().cache.end_writing(number);
        }
    }
}

/// Listing under way; dropping it always notes its end.
struct Flight {
    listings: Arc<Listings>,
    place: Place,
    number: u64,
    is_awaited: bool,
    known: Option<Known>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut books = self.listings.books();
        books.cache.end(&self.place, self.number, self.known.take());
        if self.is_awaited {
            books.asked -= 1;
        }
    }
}

impl Listings {
    /// Creates a cache of this many bytes; each listing is made with its caller's rights and
    /// credentials. Requests are queued for [`Listings::run`].
    pub(crate) fn new(
        cache_bytes: u64,
        actors: &Arc<Actors>,
    ) -> (Arc<Self>, mpsc::Receiver<Start>) {
        let (starts, started) = mpsc::channel(ASKED_MAX);
        let bytes = usize::try_from(cache_bytes).unwrap_or(usize::MAX);
        let books = Books {
            cache: Cache::new(bytes),
            agenda: Agenda::default(),
            asked: 0,
        };
        let listings = Self {
            books: Mutex::new(books),
            reader: Reader::new(actors),
            starts,
            told: Notify::new(),
        };
        (Arc::new(listings), started)
    }

    /// Sets the memory for listings.
    pub(crate) fn resize(&self, cache_bytes: u64) {
        let bytes = usize::try_from(cache_bytes).unwrap_or(usize::MAX);
        self.books().cache.resize(bytes);
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a directory's listing: a fresh one, or else a new one. The caller has checked read
    /// access.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if too many listings run, or this one takes too long: ask again. Errors
    /// of listing.
    pub(crate) async fn ask(&self, place: &Place, ask: &Ask) -> Result<Answer> {
        let want = {
            let mut books = self.books();
            books.agenda.take(place);
            Want {
                is_further: ask.after.is_some(),
                newer_than: ask.refresh.then(|| books.cache.next_number()),
            }
        };
        let answer = timeout(ANSWER_WITHIN, self.wait_for(place, want)).await;
        let answer = answer.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Busy, "list", "a directory")
                .cause(format!(
                    "it takes longer than {} s",
                    ANSWER_WITHIN.as_secs()
                ))
                .hint("ask again, without refresh: it is being listed all the same"))
        })?;
        self.look_ahead(place, ask, &answer);
        Ok(answer)
    }

    async fn wait_for(&self, place: &Place, want: Want) -> Result<Answer> {
        loop {
            let (waiter, is_of_use) = match self.begin(place, want)? {
                Ok(known) => {
                    return Ok(Answer {
                        listed: known.listed,
                        as_of: known.as_of,
                        is_cached: true,
                        lists_trees: false,
                    });
                }
                Err(waiting) => waiting,
            };
            let outcome = ended(waiter).await;
            if !is_of_use {
                continue;
            }
            let read = outcome?;
            return Ok(Answer {
                listed: Arc::clone(&read.known.listed),
                as_of: read.known.as_of,
                is_cached: read.is_unchanged,
                lists_trees: read.lists_trees,
            });
        }
    }

    /// Returns a fresh cached listing, or what to wait for: a listing under way, started here if
    /// there was none.
    fn begin(
        &self,
        place: &Place,
        want: Want,
    ) -> Result<std::result::Result<Known, (Waiter, bool)>> {
        let now = self.reader.now();
        let (outcome, waiter) = watch::channel(None);
        let mut books = self.books();
        let looked = books.cache.look(place, now, want, || waiter.clone());
        let (number, old) = match looked {
            Look::Here(known) => return Ok(Ok(known)),
            Look::Wait { waiter, is_of_use } => return Ok(Err((waiter, is_of_use))),
            Look::Begin { number, old } => (number, old),
        };
        let start = Start {
            place: place.clone(),
            number,
            old,
            outcome,
        };
        let has_room = books.asked < ASKED_MAX;
        if has_room && self.starts.try_send(start).is_ok() {
            books.asked += 1;
            return Ok(Err((waiter, true)));
        }
        books.cache.end(place, number, None);
        Err(Error::new(ErrorKind::Busy, "list", "a directory")
            .cause(format!("{ASKED_MAX} directories are being listed"))
            .hint("try again in a minute"))
    }

    /// Queues what is likely to be asked for next: directories below and beside this one.
    fn look_ahead(&self, place: &Place, asked: &Ask, answer: &Answer) {
        if asked.levels == 0 {
            return;
        }
        let listed = &answer.listed;
        let now = self.reader.now();
        let start = asked.after.as_ref().map_or(0, |after| listed.after(after));
        let mut books = self.books();
        let Books { cache, agenda, .. } = &mut *books;
        let ask = agenda.open(asked.levels, now);
        if answer.lists_trees {
            if listed.directories(0).next().is_some() {
                agenda.offer_tree(ask, place.clone());
            }
            agenda.close(ask);
            drop(books);
            self.told.notify_one();
            return;
        }
        let looks_beside = asked.looks_beside || !answer.is_cached;
        let parent = place.parent().filter(|_| looks_beside);
        let beside = parent.into_iter().flat_map(|(parent, name)| {
            let known = cache.peek(&parent).map(|known| Arc::clone(&known.listed));
            let names = known.map(|listed| {
                let behind = listed.directories(listed.after(name)).take(BESIDE);
                behind.map(<[u8]>::to_vec).collect::<Vec<_>>()
            });
            let names = names.unwrap_or_default();
            names.into_iter().map(move |name| parent.child(&name))
        });
        let below = listed.directories(start).take(agenda.room(ask, 1));
        let mut is_news = false;
        for wanted in below.map(|name| place.child(name)).chain(beside) {
            if !cache.is_there(&wanted, now) {
                agenda.offer(ask, 1, wanted);
                is_news = true;
            }
        }
        agenda.close(ask);
        drop(books);
        if is_news {
            self.told.notify_one();
        }
    }

    /// Lists requested directories, and others ahead, until the service ends.
    pub(crate) async fn run(self: Arc<Self>, mut starts: mpsc::Receiver<Start>) -> Result<()> {
        let mut running = JoinSet::new();
        let mut is_open = false;
        loop {
            tokio::select! {
                start = starts.recv() => match start {
                    Some(start) => {
                        running.spawn(Arc::clone(&self).list(start));
                        is_open = true;
                    }
                    None => return Ok(()),
                },
                () = self.told.notified() => {}
                Some(_) = running.join_next() => {}
                () = sleep(IDLE_FOR), if is_open && running.is_empty() => {
                    is_open = self.reader.close_idle();
                }
            }
            while let Some(wanted) = self.next_ahead() {
                let listings = Arc::clone(&self);
                if wanted.is_tree {
                    running.spawn(listings.list_tree(wanted));
                } else {
                    running.spawn(listings.list_ahead(wanted));
                }
                is_open = true;
            }
        }
    }

    fn next_ahead(&self) -> Option<Wanted> {
        let mut books = self.books();
        if books.asked >= BUSY_AT {
            return None;
        }
        books.agenda.next(self.reader.now())
    }

    async fn list(self: Arc<Self>, start: Start) {
        let Start {
            place,
            number,
            old,
            outcome,
        } = start;
        let mut flight = Flight {
            listings: Arc::clone(&self),
            place,
            number,
            is_awaited: true,
            known: None,
        };
        let read = self.reader.read(&flight.place, old, true).await;
        let read = read.map(Arc::new).map_err(Arc::new);
        flight.known = read.as_ref().ok().map(|read| read.known.clone());
        drop(flight);
        outcome.send_replace(Some(read));
    }

    /// Lists everything below a directory; if that is too much, offers its subdirectories.
    async fn list_tree(self: Arc<Self>, wanted: Wanted) {
        let Some(number) = self.books().cache.begin_tree(&wanted.place) else {
            self.books().agenda.done(&wanted, 0, std::iter::empty());
            return;
        };
        let found = self.reader.read_tree(&wanted.place).await;
        let mut books = self.books();
        let Books { cache, agenda, .. } = &mut *books;
        let listed = match found {
            Ok(Some(found)) => {
                let bytes = found.iter().map(|(_, known)| known.listed.bytes()).sum();
                cache.end_tree(number, found);
                agenda.done(&wanted, bytes, std::iter::empty());
                return;
            }
            Ok(None) => cache
                .peek(&wanted.place)
                .map(|known| Arc::clone(&known.listed)),
            Err(_) => None,
        };
        cache.end_tree(number, Vec::new());
        let below = listed.iter().flat_map(|listed| listed.directories(0));
        let below = below.map(|name| wanted.place.child(name));
        agenda.done(&wanted, 0, below);
        drop(books);
        self.told.notify_one();
    }

    /// Lists a directory ahead unless it is cached, and offers the directories below it.
    async fn list_ahead(self: Arc<Self>, wanted: Wanted) {
        let now = self.reader.now();
        let (outcome, waiter) = watch::channel(None);
        let looked = self
            .books()
            .cache
            .look(&wanted.place, now, Want::default(), || waiter);
        let (listed, bytes) = match looked {
            Look::Here(known) => (Some(known.listed), 0),
            Look::Wait { .. } => (None, 0),
            Look::Begin { number, old } => {
                let mut flight = Flight {
                    listings: Arc::clone(&self),
                    place: wanted.place.clone(),
                    number,
                    is_awaited: false,
                    known: None,
                };
                let read = self.reader.read(&wanted.place, old, false).await;
                if read.as_ref().is_err_and(Error::is_temporary) {
                    self.books().agenda.give_up(wanted.place.site());
                }
                let read = read.map(Arc::new).map_err(Arc::new);
                flight.known = read.as_ref().ok().map(|read| read.known.clone());
                drop(flight);
                outcome.send_replace(Some(read.clone()));
                let read = read.ok();
                let bytes = read.as_ref().map_or(0, |read| match read.is_unchanged {
                    true => 0,
                    false => read.known.listed.bytes(),
                });
                (read.map(|read| Arc::clone(&read.known.listed)), bytes)
            }
        };
        let below = listed.iter().flat_map(|listed| listed.directories(0));
        let below = below.map(|name| wanted.place.child(name));
        self.books().agenda.done(&wanted, bytes, below);
        self.told.notify_one();
    }

    /// Notes that something is being written at a request's destination, until the returned value
    /// is dropped. Blocking.
    pub(crate) fn writing(self: &Arc<Self>, record: &RequestRecord) -> Writing {
        let written = self.written(&record.wishes.owner, &record.destination);
        let number = written
            .ok()
            .map(|written| self.books().cache.begin_writing(written));
        Writing {
            listings: Arc::clone(self),
            number,
        }
    }

    fn written(&self, owner: &str, address: &str) -> Result<Written> {
        let behalf = self.reader.actors().elsewhere(owner);
        Written::at(address, |location| look::resolve(&behalf, location))
    }

    /// Notes that something of this owner was written or removed here. Blocking.
    pub(crate) fn wrote(&self, owner: &str, address: &str) {
        if let Ok(written) = self.written(owner, address) {
            self.books().cache.drop_touched(&written);
        }
    }
}

/// Waits until a listing ends.
async fn ended(mut waiter: Waiter) -> Result<Arc<Read>> {
    let outcome = waiter.wait_for(Option::is_some).await;
    match outcome.as_deref() {
        Ok(Some(Ok(read))) => Ok(Arc::clone(read)),
        Ok(Some(Err(error))) => Err(error.retold()),
        Ok(None) | Err(_) => Err(Error::new(ErrorKind::Cancelled, "list", "a directory")
            .cause("the service is ending")
            .hint("try again")),
    }
}
