//! Work in progress, and reports that the service has not received yet.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use posthaste_api as api;
use tokio::task::AbortHandle;

/// Report on work.
#[derive(Debug)]
pub(crate) enum Report {
    Begun(api::BegunWork),
    Ended(api::EndedWork),
}

/// Bytes that a fetch has received.
pub(crate) type Progress = Arc<AtomicU64>;

#[derive(Debug)]
struct Running {
    handle: AbortHandle,
    progress: Progress,
}

/// Work in progress, by lease.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    running: BTreeMap<u64, Running>,
    /// Reports that wait for an answer, the newest last.
    begun: Vec<api::BegunWork>,
    ended: Vec<api::EndedWork>,
}

impl Ledger {
    pub(crate) fn begin(&mut self, lease: u64, handle: AbortHandle, progress: Progress) {
        self.running.insert(lease, Running { handle, progress });
    }

    /// Adds a report, unless its work was stopped.
    pub(crate) fn extend(&mut self, report: Option<Report>) {
        match report {
            Some(Report::Begun(begun)) if self.running.contains_key(&begun.lease) => {
                self.begun.push(begun);
            }
            Some(Report::Ended(ended)) if self.running.remove(&ended.lease).is_some() => {
                self.ended.push(ended);
            }
            Some(Report::Begun(_) | Report::Ended(_)) | None => {}
        }
    }

    /// Removes the oldest reports of each kind, as the service received them.
    pub(crate) fn heard(&mut self, begun: usize, ended: usize) {
        self.begun.drain(..begun.min(self.begun.len()));
        self.ended.drain(..ended.min(self.ended.len()));
    }

    pub(crate) fn stop(&mut self, lease: u64) {
        if let Some(running) = self.running.remove(&lease) {
            running.handle.abort();
        }
    }

    /// Stops all work, which belongs to others by now.
    pub(crate) fn give_up(&mut self) {
        for (_, running) in std::mem::take(&mut self.running) {
            running.handle.abort();
        }
        self.begun.clear();
        self.ended.clear();
    }

    pub(crate) fn under_way(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn has_reports(&self) -> bool {
        !self.begun.is_empty() || !self.ended.is_empty()
    }

    /// Returns whether no work is in progress and all reports were received.
    pub(crate) fn is_over(&self) -> bool {
        self.running.is_empty() && !self.has_reports()
    }

    pub(crate) fn leases(&self) -> Vec<u64> {
        self.running.keys().copied().collect()
    }

    pub(crate) fn begun(&self) -> &[api::BegunWork] {
        &self.begun
    }

    pub(crate) fn ended(&self) -> &[api::EndedWork] {
        &self.ended
    }

    /// Returns the progress of fetches.
    pub(crate) fn fetched(&self) -> Vec<api::FetchedBytes> {
        let far = self.running.iter().filter_map(|(lease, running)| {
            let bytes = running.progress.load(Ordering::Relaxed);
            (bytes > 0).then_some(api::FetchedBytes {
                lease: *lease,
                bytes,
            })
        });
        far.collect()
    }
}
