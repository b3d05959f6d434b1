//! Registry of the open braids, and of the connections that may join them.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use posthaste_endpoint::gateway::{Braid, BraidId, CONNECTIONS_MAX};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::carry::End;

/// Most braids at once, incoming and outgoing: each may hold 16 MiB ([`super::order`]), so all hold
/// 1 GiB at most. Further streams use a single connection.
pub(crate) const BRAIDS_MAX: usize = 64;
/// Time after a braid's start in which connections may join it.
const JOIN_WITHIN_S: u64 = 60;

/// Reason why a connection may not join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// No such braid, or one that has ended.
    Unknown,
    /// Braid that began too long ago.
    Late,
    /// Connection that has already joined, or was never offered.
    Taken,
}

/// Place in a braid.
#[derive(Debug)]
pub(crate) struct Place {
    /// Channel that accepts the connection.
    pub joins: mpsc::Sender<End>,
    /// `SO_PRIORITY` of the stream.
    pub class: Option<u32>,
}

#[derive(Debug)]
struct Entry {
    begun_unix_s: u64,
    /// Bit for each connection that may still join.
    free: u32,
    place: Place,
}

/// Braids of a gateway.
#[derive(Debug)]
pub(crate) struct Book {
    open: Mutex<BTreeMap<BraidId, Entry>>,
    permits: Arc<Semaphore>,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            open: Mutex::default(),
            permits: Arc::new(Semaphore::new(BRAIDS_MAX)),
        }
    }
}

/// Braid that connections may join as long as this lives.
#[derive(Debug)]
pub(crate) struct Listed {
    book: Arc<Book>,
    id: BraidId,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.book.lock().remove(&self.id);
    }
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<BraidId, Entry>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves space for a braid, if there is some.
    pub(crate) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Lists a braid of so many connections, and returns it with the receiver of those that join.
    ///
    /// # Errors
    /// If the machine has no random numbers.
    pub(crate) fn list(
        self: &Arc<Self>,
        connections: u8,
        class: Option<u32>,
        permit: OwnedSemaphorePermit,
        now_unix_s: u64,
    ) -> io::Result<(Braid, Listed, mpsc::Receiver<End>)> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|cause| io::Error::other(cause.to_string()))?;
        let connections = connections.min(CONNECTIONS_MAX);
        let id = BraidId::new(bytes);
        let (joins, joined) = mpsc::channel(usize::from(CONNECTIONS_MAX));
        let entry = Entry {
            begun_unix_s: now_unix_s,
            // The first has already joined.
            free: (1 << connections) - 2,
            place: Place { joins, class },
        };
        self.lock().insert(id, entry);
        let listed = Listed {
            book: Arc::clone(self),
            id,
            _permit: permit,
        };
        Ok((Braid { id, connections }, listed, joined))
    }

    /// Gives away the place of one connection, once.
    ///
    /// # Errors
    /// The reason why it may not join.
    pub(crate) fn claim(
        &self,
        id: BraidId,
        number: u8,
        now_unix_s: u64,
    ) -> Result<Place, Stranger> {
        let mut open = self.lock();
        let entry = open.get_mut(&id).ok_or(Stranger::Unknown)?;
        if now_unix_s.saturating_sub(entry.begun_unix_s) > JOIN_WITHIN_S {
            return Err(Stranger::Late);
        }
        let bit = 1u32.checked_shl(u32::from(number)).unwrap_or(0);
        if entry.free & bit == 0 {
            return Err(Stranger::Taken);
        }
        entry.free &= !bit;
        Ok(Place {
            joins: entry.place.joins.clone(),
            class: entry.place.class,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_given_away_once_in_time_and_while_the_braid_lives() {
        let book = Arc::new(Book::default());
        let list = |connections| {
            let permit = book.permit().unwrap();
            book.list(connections, Some(7), permit, 1000).unwrap()
        };
        let (braid, listed, _joined) = list(3);
        assert_eq!(braid.connections, 3);
        for number in [0, 3, 31, 32, 255] {
            let place = book.claim(braid.id, number, 1000);
            assert_eq!(place.unwrap_err(), Stranger::Taken, "{number}");
        }
        assert_eq!(book.claim(braid.id, 2, 1000).unwrap().class, Some(7));
        assert_eq!(book.claim(braid.id, 2, 1000).unwrap_err(), Stranger::Taken);
        assert_eq!(
            book.claim(braid.id, 1, 1000 + JOIN_WITHIN_S + 1)
                .unwrap_err(),
            Stranger::Late
        );
        book.claim(braid.id, 1, 1000 + JOIN_WITHIN_S).unwrap();
        let (other, _other, _joined) = list(200);
        assert_ne!(other.id, braid.id);
        assert_eq!(other.connections, CONNECTIONS_MAX);
        drop(listed);
        assert_eq!(
            book.claim(braid.id, 1, 1000).unwrap_err(),
            Stranger::Unknown
        );
    }

    #[test]
    fn there_are_so_many_and_no_more_until_one_ends() {
        let book = Arc::new(Book::default());
        let mut permits: Vec<_> = (0..BRAIDS_MAX).map(|_| book.permit().unwrap()).collect();
        assert!(book.permit().is_none());
        permits.pop();
        assert!(book.permit().is_some());
    }
}
