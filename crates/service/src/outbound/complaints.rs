//! Last error of each export, in the words of the component that failed. The mind decides by fault
//! kinds and keeps no text.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use posthaste_endpoint::Error;
use posthaste_types::RequestId;

/// Requests whose last errors are kept: the newest.
const KEPT_MAX: usize = 10_000;

/// Last error of a request.
#[derive(Debug, Clone)]
pub(crate) struct Complaint {
    pub(crate) text: String,
    /// Set if a retry may succeed.
    pub(crate) may_pass: bool,
}

/// Last error of each request that had one.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<BTreeMap<RequestId, Complaint>>);

impl Complaints {
    /// Records an error and logs it.
    pub(crate) fn note(&self, request: RequestId, error: &Error) {
        tracing::warn!(%request, "{error}");
        self.keep(request, error);
    }

    /// Records an error that was logged.
    pub(crate) fn keep(&self, request: RequestId, error: &Error) {
        let complaint = Complaint {
            text: error.to_string(),
            may_pass: error.is_temporary(),
        };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(request, complaint);
        while kept.len() > KEPT_MAX {
            kept.pop_first();
        }
    }

    /// Forgets an error that has passed.
    pub(crate) fn pass(&self, request: RequestId) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(&request);
    }

    /// Returns the last error of a request since the service started.
    pub(crate) fn of(&self, request: RequestId) -> Option<Complaint> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(&request).cloned()
    }
}
