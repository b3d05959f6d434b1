//! Several connections to one host: what one carries ends at SSH's own window (2 MiB a round trip)
//! and at one processor's cipher.

use std::sync::{
    Arc, PoisonError,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::Mutex;

use super::{Host, session::Session};
use crate::Result;

/// Connections to one host. OpenSSH's server begins to refuse at ten that are not logged in yet
/// (`MaxStartups`), and these log in one after the other.
const SESSIONS_MAX: usize = 8;

/// Streams on a connection before another is made.
const STREAMS_A_SESSION: usize = 2;

/// The connections to a host. The first is made at once and serves everything; the others only
/// carry the bytes of files, and are made when there are streams for them.
pub(super) struct Pool {
    host: Host,
    slots: [Slot; SESSIONS_MAX],
    /// Slots that may be used: fewer after the host refused one more.
    usable: AtomicUsize,
    /// Held while a slot is chosen, so that two streams don't choose the same.
    choosing: std::sync::Mutex<()>,
}

#[derive(Default)]
struct Slot {
    session: Mutex<Option<Arc<Session>>>,
    streams: AtomicUsize,
}

/// A stream's place on a connection.
pub(super) struct Lease {
    pool: Arc<Pool>,
    slot: usize,
}

impl Lease {
    pub(super) fn slot(&self) -> usize {
        self.slot
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.slots[self.slot].streams.fetch_sub(1, Relaxed);
    }
}

impl Pool {
    /// A pool whose first connection is there.
    pub(super) fn new(host: Host, first: Session) -> Arc<Self> {
        let mut slots: [Slot; SESSIONS_MAX] = Default::default();
        slots[0].session = Mutex::new(Some(Arc::new(first)));
        Arc::new(Self {
            host,
            slots,
            usable: AtomicUsize::new(SESSIONS_MAX),
            choosing: std::sync::Mutex::new(()),
        })
    }

    /// A place for one more stream: on the connection with the fewest, or on a new one.
    pub(super) fn lease(self: &Arc<Self>) -> Lease {
        let _choosing = self.choosing.lock().unwrap_or_else(PoisonError::into_inner);
        let streams = |slot: usize| self.slots[slot].streams.load(Relaxed);
        let usable = self.usable.load(Relaxed);
        // The first connection with room, so that few are made.
        let with_room = (0..usable).find(|&slot| streams(slot) < STREAMS_A_SESSION);
        let slot = with_room
            .or_else(|| (0..usable).min_by_key(|&slot| streams(slot)))
            .unwrap_or(0);
        self.slots[slot].streams.fetch_add(1, Relaxed);
        Lease {
            pool: Arc::clone(self),
            slot,
        }
    }

    /// The living connection of a slot; a broken or missing one is made. Where the host refuses one
    /// more, the first has to do.
    pub(super) async fn session(&self, slot: usize) -> Result<Arc<Session>> {
        let slot = if slot < self.usable.load(Relaxed) {
            slot
        } else {
            0
        };
        let mut session = self.slots[slot].session.lock().await;
        if let Some(session) = session.as_ref()
            && !session.is_dead()
        {
            return Ok(Arc::clone(session));
        }
        match Session::connect(&self.host).await {
            Ok(made) => {
                let made = Arc::new(made);
                *session = Some(Arc::clone(&made));
                Ok(made)
            }
            Err(error) if slot == 0 => Err(error),
            Err(_) => {
                self.usable.fetch_min(slot, Relaxed);
                drop(session);
                Box::pin(self.session(0)).await
            }
        }
    }
}

/// One value for each slot.
pub(super) type EachSlot<T> = [Option<T>; SESSIONS_MAX];
