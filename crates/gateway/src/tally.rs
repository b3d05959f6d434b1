//! Counters of a gateway.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use posthaste_endpoint::{Error, ErrorKind};

/// Counts since the gateway started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Streams that are open.
    pub open: u64,
    /// Streams that were opened.
    pub opened: u64,
    /// Clients that were refused: no good token, a target that is not allowed, a loop.
    pub refused: u64,
    /// Streams whose target could not be reached.
    pub failed: u64,
    /// Streams that broke instead of ending.
    pub broken: u64,
    /// Bytes carried, in both directions together.
    pub carried_bytes: u64,
    /// Segments of streams that several connections may carry, to or from another gateway.
    pub braids: u64,
    /// Further connections of such streams that were accepted.
    pub joined: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    open: AtomicU64,
    opened: AtomicU64,
    pub refused: AtomicU64,
    failed: AtomicU64,
    pub broken: AtomicU64,
    pub carried: Arc<AtomicU64>,
    pub braids: AtomicU64,
    pub joined: AtomicU64,
}

impl Tally {
    /// Counts a stream as open as long as the result lives.
    pub(crate) fn open(&self) -> Open<'_> {
        self.opened.fetch_add(1, Relaxed);
        self.open.fetch_add(1, Relaxed);
        Open(&self.open)
    }

    /// Counts a stream that could not be opened.
    pub(crate) fn count(&self, error: &Error) {
        let is_refusal = matches!(
            error.kind(),
            ErrorKind::PermissionDenied | ErrorKind::Conflict
        );
        let counter = if is_refusal {
            &self.refused
        } else {
            &self.failed
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        Counts {
            open: read(&self.open),
            opened: read(&self.opened),
            refused: read(&self.refused),
            failed: read(&self.failed),
            broken: read(&self.broken),
            carried_bytes: read(&self.carried),
            braids: read(&self.braids),
            joined: read(&self.joined),
        }
    }
}

/// Open stream, counted as long as it lives.
pub(crate) struct Open<'a>(&'a AtomicU64);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
