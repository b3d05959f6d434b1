//! Waiting and running scans: each can be cancelled until its result counts.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_engine::dataset::{Lent, Portion, Room};
use posthaste_types::RequestId;
use tokio::sync::{mpsc, watch};

use super::shares::{Share, Shares};

/// Most requests of one owner that may wait for their scan. Further ones are refused, so that none
/// is forgotten.
const WAITING_OF_ONE: usize = 10_000;
/// Limit over all owners.
const WAITING: usize = 40_000;
/// Scans at once: each keeps one directory tree busy. Enough that a good many owners have to list what never ends before others wait.
const SCANS_AT_ONCE: usize = 32;
/// Scans at once of one owner, whose listings may never end.
const SCANS_OF_ONE: usize = 2;

/// Scans of a service.
#[derive(Debug)]
pub(crate) struct Scans {
    waiting: Arc<Shares>,
    running: Arc<Shares>,
    rehearsed: Arc<Shares>,
    /// Memory of the lists of running scans and of rehearsals.
    memory: Arc<Room>,
    portions: Mutex<HashMap<String, Weak<Portion>>>,
    going: Mutex<HashMap<RequestId, Going>>,
    begun: mpsc::UnboundedSender<Begun>,
}

/// Request to be scanned, with its slot among the waiting ones.
pub(crate) type Begun = (RequestId, Option<Share>);

/// Progress of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Cancellable.
    Open,
    /// Cancelled.
    Unwanted,
    /// Final: its result counts.
    Counts,
    Over,
}

/// Scan, as seen by itself and by cancellers.
#[derive(Debug, Clone)]
pub(super) struct Going(Arc<watch::Sender<Stage>>);

impl Going {
    /// Waits until it is to be cancelled.
    pub(super) async fn unwanted(&self) {
        let mut stage = self.0.subscribe();
        if stage
            .wait_for(|stage| *stage == Stage::Unwanted)
            .await
            .is_err()
        {
            std::future::pending::<()>().await;
        }
    }

    /// Makes its result final, unless it was cancelled.
    pub(super) fn counts(&self) -> bool {
        self.0.send_if_modified(|stage| {
            let is_wanted = *stage != Stage::Unwanted;
            if is_wanted {
                *stage = Stage::Counts;
            }
            is_wanted
        })
    }
}

/// Leave to scan a source, and memory for its list, for as long as this is kept.
#[derive(Debug)]
pub(crate) struct Leave {
    _share: Share,
    pub(crate) lent: Arc<Lent>,
}

/// Place for one request among those that wait for their scan.
#[derive(Debug)]
pub(crate) struct Place {
    scans: Arc<Scans>,
    share: Share,
}

impl Place {
    /// Queues the recorded request for its scan.
    pub(crate) fn send(self, request: RequestId) {
        self.scans.begin(request, Some(self.share));
    }
}

/// Ends a scan when dropped, also if the service drops it.
#[derive(Debug)]
pub(super) struct End<'a>(&'a Scans, RequestId);

impl Drop for End<'_> {
    fn drop(&mut self) {
        if let Some(going) = self.0.going().remove(&self.1) {
            going.0.send_replace(Stage::Over);
        }
    }
}

impl Scans {
    /// Creates an empty set, and the receiver of new scans.
    #[expect(
        clippy::disallowed_methods,
        reason = "what waits there has a place, of which there are so many, or was in the journal at the start"
    )]
    pub(crate) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Begun>) {
        let (begun, queue) = mpsc::unbounded_channel();
        let scans = Self {
            waiting: Shares::new(WAITING, WAITING_OF_ONE),
            running: Shares::new(SCANS_AT_ONCE, SCANS_OF_ONE),
            rehearsed: Shares::new(SCANS_AT_ONCE, SCANS_OF_ONE),
            memory: Room::of_machine(),
            portions: Mutex::default(),
            going: Mutex::default(),
            begun,
        };
        (Arc::new(scans), queue)
    }

    fn going(&self) -> MutexGuard<'_, HashMap<RequestId, Going>> {
        self.going.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a slot for a request of this owner.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if all are taken; `subject` is what was submitted.
    pub(crate) fn reserve(self: &Arc<Self>, owner: &str, subject: &str) -> Result<Place> {
        let share = self.waiting.try_enter(owner).ok_or_else(|| {
            Error::new(ErrorKind::Busy, "submit", subject)
                .cause(format!(
                    "as many requests wait for their scan as may: {WAITING_OF_ONE} of one owner, {WAITING} of all, and of nobody more than are free"
                ))
                .hint("try again in a minute")
        })?;
        let scans = Arc::clone(self);
        Ok(Place { scans, share })
    }

    /// Waits for a slot.
    pub(crate) async fn wait(self: &Arc<Self>, owner: &str) -> Place {
        let (share, scans) = (self.waiting.enter(owner).await, Arc::clone(self));
        Place { scans, share }
    }

    /// Queues the scan of a recorded request.
    pub(crate) fn begin(&self, request: RequestId, share: Option<Share>) {
        let going = Going(Arc::new(watch::Sender::new(Stage::Open)));
        self.going().insert(request, going);
        // The queue closes only when the service ends.
        let _ = self.begun.send((request, share));
    }

    /// Leave to scan a source.
    pub(super) async fn enter(&self, owner: &str) -> Leave {
        self.leave(self.running.enter(owner).await, owner)
    }

    /// Leave to scan a source for an answer alone.
    pub(crate) async fn rehearse(&self, owner: &str) -> Leave {
        self.leave(self.rehearsed.enter(owner).await, owner)
    }

    fn leave(&self, share: Share, owner: &str) -> Leave {
        let mut portions = self.portions.lock().unwrap_or_else(PoisonError::into_inner);
        portions.retain(|_, portion| portion.strong_count() > 0);
        let portion = portions.get(owner).and_then(Weak::upgrade);
        let portion = portion.unwrap_or_else(|| self.memory.portion());
        portions.insert(owner.to_owned(), Arc::downgrade(&portion));
        Leave {
            _share: share,
            lent: portion.lend(),
        }
    }

    /// Returns the waiting or running scan of a request.
    pub(super) fn of(&self, request: RequestId) -> Option<Going> {
        self.going().get(&request).cloned()
    }

    /// Returns a guard that ends the scan of a request when dropped.
    pub(super) fn ends(&self, request: RequestId) -> End<'_> {
        End(self, request)
    }

    /// Cancels the waiting or running scan of a request. Returns whether there was one; its end is
    /// then on record, unless the service ends.
    pub(crate) async fn cancel(&self, request: RequestId) -> bool {
        let Some(going) = self.of(request) else {
            return false;
        };
        going.0.send_if_modified(|stage| {
            let is_open = *stage == Stage::Open;
            if is_open {
                *stage = Stage::Unwanted;
            }
            is_open
        });
        if *going.0.borrow() != Stage::Unwanted {
            return false;
        }
        let mut stage = going.0.subscribe();
        let is_over = stage.wait_for(|stage| *stage == Stage::Over).await;
        is_over.is_ok()
    }
}
