//! Several connections to one host: one is limited by SSH's own window (2 MiB a round trip) and by
//! one processor's cipher.
//!
//! Each costs a key exchange, some 50 ms of processor time at either end with the algorithms that
//! OpenSSH has proposed since 9.0. If the window is no limit, as many are made as processors can
//! use.

use std::{
    num::NonZero,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::sync::Mutex;

use super::{Host, session::Session};
use crate::Result;

/// Most connections to one host. OpenSSH's server begins to refuse at ten that are not logged in
/// yet (`MaxStartups`), and these log in one after the other.
const SESSIONS_MAX: usize = 8;

/// Capacity of a connection before another is made.
const ROOM: usize = 16;

/// Round trip below which a window of 2 MiB carries a gigabyte a second and more.
const NEAR: Duration = Duration::from_millis(2);

/// Processors here that a connection to a near host keeps busy: one encrypts, one reads and sums.
const PROCESSORS_A_SESSION: usize = 2;

/// Purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// Small file, of which many are in flight at once.
    SmallFile,
    /// Range of a large file.
    Range,
}

impl Stream {
    /// Returns the room it needs. On a far path two fill a window, whatever they are. On a near one
    /// small files mostly wait for one another's answers, and four ranges keep a cipher busy.
    fn room(self, is_near: bool) -> usize {
        match (is_near, self) {
            (false, Self::SmallFile | Self::Range) => ROOM / 2,
            (true, Self::SmallFile) => 1,
            (true, Self::Range) => ROOM / 4,
        }
    }
}

/// Returns the number of connections that suits a host at this distance and so many processors.
fn sessions_worth(round_trip: Option<Duration>, processors: usize) -> usize {
    if is_near(round_trip) {
        (processors / PROCESSORS_A_SESSION).clamp(1, SESSIONS_MAX)
    } else {
        SESSIONS_MAX
    }
}

fn is_near(round_trip: Option<Duration>) -> bool {
    round_trip.is_some_and(|round_trip| round_trip < NEAR)
}

/// Connections to a host. The first is made at once and serves everything; the others only carry
/// the bytes of files, and are made when there are streams for them.
pub(super) struct Pool {
    host: Host,
    /// Ciphers to propose instead of those of `ssh`.
    ciphers: Option<String>,
    is_near: bool,
    slots: [Slot; SESSIONS_MAX],
    /// Slots that may be used: fewer after the host refused one more.
    usable: AtomicUsize,
    /// Lock during the choice of a slot, so that two streams don't choose the same.
    choosing: std::sync::Mutex<()>,
}

#[derive(Default)]
struct Slot {
    session: Mutex<Option<Arc<Session>>>,
    /// Occupied room.
    taken: AtomicUsize,
}

/// Place of a stream on a connection.
pub(super) struct Lease {
    pool: Arc<Pool>,
    slot: usize,
    room: usize,
}

impl Lease {
    pub(super) fn slot(&self) -> usize {
        self.slot
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.slots[self.slot]
            .taken
            .fetch_sub(self.room, Relaxed);
    }
}

impl Pool {
    /// Returns a pool that has its first connection.
    pub(super) fn new(host: Host, ciphers: Option<String>, first: Session) -> Arc<Self> {
        let processors = std::thread::available_parallelism().map_or(2, NonZero::get);
        let usable = sessions_worth(first.round_trip, processors);
        let is_near = is_near(first.round_trip);
        let mut slots: [Slot; SESSIONS_MAX] = Default::default();
        slots[0].session = Mutex::new(Some(Arc::new(first)));
        Arc::new(Self {
            host,
            ciphers,
            is_near,
            slots,
            usable: AtomicUsize::new(usable),
            choosing: std::sync::Mutex::new(()),
        })
    }

    /// Returns a place for one more stream: on the first connection with room, so that few are
    /// made, or on the one with the most.
    pub(super) fn lease(self: &Arc<Self>, stream: Stream) -> Lease {
        let _choosing = self.choosing.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = |slot: usize| self.slots[slot].taken.load(Relaxed);
        let usable = self.usable.load(Relaxed);
        let room = stream.room(self.is_near);
        let with_room = (0..usable).find(|&slot| taken(slot) + room <= ROOM);
        let slot = with_room
            .or_else(|| (0..usable).min_by_key(|&slot| taken(slot)))
            .unwrap_or(0);
        self.slots[slot].taken.fetch_add(room, Relaxed);
        Lease {
            pool: Arc::clone(self),
            slot,
            room,
        }
    }

    /// Returns the living connection of a slot, and makes a broken or missing one. If the host
    /// refuses one more, returns the first.
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
        match Session::connect(&self.host, self.ciphers.as_deref()).await {
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

/// Values by slot.
pub(super) type EachSlot<T> = [Option<T>; SESSIONS_MAX];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_host_gets_as_many_connections_as_processors_can_use() {
        let near = Some(Duration::from_micros(300));
        for (processors, sessions) in [(1, 1), (2, 1), (4, 2), (16, 8), (128, 8)] {
            assert_eq!(sessions_worth(near, processors), sessions);
        }
        for far in [
            None,
            Some(Duration::from_millis(2)),
            Some(Duration::from_secs(1)),
        ] {
            assert_eq!(sessions_worth(far, 1), SESSIONS_MAX);
        }
    }

    #[test]
    fn far_connections_carry_two_streams() {
        for stream in [Stream::SmallFile, Stream::Range] {
            assert_eq!(ROOM / stream.room(false), 2);
            assert!(stream.room(true) < stream.room(false));
        }
    }
}
