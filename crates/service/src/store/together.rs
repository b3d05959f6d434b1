//! Combines writes of several callers in one transaction: each transaction costs a wait for the
//! disk.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::{Journal, JournalError, RequestRecord, Scanned};
use posthaste_types::RequestId;

use super::{Store, journal_error};

/// Result of a write, for its waiter.
type Slot<R> = Arc<Mutex<Option<Result<R>>>>;

/// Waiting writes of one kind: the next caller with the journal writes them all.
#[derive(Debug)]
pub(super) struct Together<W, R> {
    waiting: Mutex<Vec<(W, Slot<R>)>>,
}

impl<W, R> Default for Together<W, R> {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
        }
    }
}

impl<W, R> Together<W, R> {
    /// Writes an item together with other waiting ones: by `many` if there are several, and, if
    /// that fails, each by `one`.
    fn write(
        &self,
        journal: &Mutex<Journal>,
        what: W,
        one: impl Fn(&mut Journal, &W) -> Result<R, JournalError>,
        many: impl FnOnce(&mut Journal, &[W]) -> Result<Vec<R>, JournalError>,
    ) -> Result<R> {
        let mine = Slot::default();
        locked(&self.waiting).push((what, Arc::clone(&mine)));
        let mut journal = locked(journal);
        if let Some(done) = locked(&mine).take() {
            return done;
        }
        let (wanted, slots): (Vec<W>, Vec<Slot<R>>) =
            mem::take(&mut *locked(&self.waiting)).into_iter().unzip();
        let together = (wanted.len() > 1).then(|| many(&mut journal, &wanted));
        let done: Vec<Result<R>> = match together {
            Some(Ok(done)) => done.into_iter().map(Ok).collect(),
            // A single write may be at fault, and the others not.
            Some(Err(_)) | None => {
                let each = wanted.iter().map(|what| one(&mut journal, what));
                each.map(|done| done.map_err(journal_error)).collect()
            }
        };
        for (slot, done) in slots.iter().zip(done) {
            *locked(slot) = Some(done);
        }
        drop(journal);
        let done = locked(&mine).take();
        done.unwrap_or_else(|| Err(Error::new(ErrorKind::Other, "append to", "the journal")))
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Records a new request and gives it its number. Blocking.
    ///
    /// # Errors
    /// The journal's, also if the submission id is taken.
    pub(crate) fn insert_request(&self, record: RequestRecord) -> Result<RequestId> {
        self.inserts.write(
            &self.journal,
            record,
            Journal::insert_request,
            Journal::insert_requests,
        )
    }

    /// Records the scan of a request's source. Blocking.
    ///
    /// # Errors
    /// The journal's.
    pub(crate) fn keep_scan(&self, scanned: Scanned) -> Result<()> {
        self.scans.write(
            &self.journal,
            scanned,
            |journal, scanned| journal.keep_scans(std::slice::from_ref(scanned)),
            |journal, scans| {
                journal.keep_scans(scans)?;
                Ok(vec![(); scans.len()])
            },
        )
    }
}
