//! Open datasets: all readers of a dataset share one, so a source that changes is noticed whichever
//! reads it first.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use posthaste_endpoint::Result;
use posthaste_engine::sealed::Sealed;
use posthaste_types::RequestId;

use crate::store::Store;

/// Open datasets, by their requests.
#[derive(Default)]
pub(crate) struct Opened {
    by_request: Mutex<HashMap<RequestId, Arc<Sealed>>>,
}

impl Opened {
    fn books(&self) -> MutexGuard<'_, HashMap<RequestId, Arc<Sealed>>> {
        self.by_request
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the dataset, opened at its first use.
    ///
    /// # Errors
    /// Errors of [`Store::open_sealed`].
    pub(crate) fn get(&self, store: &Store, request: RequestId) -> Result<Arc<Sealed>> {
        if let Some(sealed) = self.books().get(&request).cloned() {
            return Ok(sealed);
        }
        let fresh = tokio::task::block_in_place(|| store.open_sealed(request))?;
        let mut books = self.books();
        let sealed = books.entry(request).or_insert_with(|| Arc::new(fresh));
        Ok(Arc::clone(sealed))
    }

    /// Returns the dataset if it is open.
    pub(crate) fn known(&self, request: RequestId) -> Option<Arc<Sealed>> {
        self.books().get(&request).cloned()
    }

    /// Forgets the dataset of a request that has ended.
    pub(crate) fn forget(&self, request: RequestId) {
        self.books().remove(&request);
    }
}
