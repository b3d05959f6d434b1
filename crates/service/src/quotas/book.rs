//! Users' open requests, as far as known.

use std::collections::BTreeMap;

use posthaste_core::Mind;
use posthaste_endpoint::{ErrorKind, Result};
use posthaste_journal::{RequestRecord, Scan};
use posthaste_types::{Bytes, RequestId};

use crate::driver::Centre;

/// Request that may still change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub(super) bytes: Bytes,
    /// Set if its source is removed once it is safe.
    pub(super) releases: bool,
}

/// Open requests of one user.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Requests being recorded.
    coming: u64,
    open: BTreeMap<RequestId, Open>,
}

#[derive(Debug, Default)]
pub(super) struct Book(BTreeMap<String, Held>);

impl Book {
    pub(super) fn of(&mut self, owner: &str) -> &mut Held {
        self.0.entry(owner.to_owned()).or_default()
    }

    /// Removes requests that have ended.
    pub(super) fn sweep(&mut self, centre: &Centre) -> Result<()> {
        self.0.values_mut().try_for_each(|held| held.sweep(centre))
    }
}

impl Held {
    pub(super) fn requests(&self) -> u64 {
        self.coming + self.open.len() as u64
    }

    pub(super) fn bytes(&self) -> Bytes {
        let bytes = self.open.values().map(|open| open.bytes.get());
        Bytes::new(bytes.fold(0, u64::saturating_add))
    }

    pub(super) fn enter(&mut self) {
        self.coming += 1;
    }

    pub(super) fn leave(&mut self) {
        self.coming = self.coming.saturating_sub(1);
    }

    pub(super) fn add(&mut self, request: RequestId, open: Open) {
        self.open.insert(request, open);
    }

    pub(super) fn weigh(&mut self, request: RequestId, bytes: Bytes) {
        if let Some(open) = self.open.get_mut(&request) {
            open.bytes = bytes;
        }
    }

    /// Removes requests that have ended.
    pub(super) fn sweep(&mut self, centre: &Centre) -> Result<()> {
        let mut unknown = Vec::new();
        {
            let mind = centre.mind();
            self.open.retain(|request, open| {
                let is_open = is_open(&mind, *request, open.releases);
                if is_open.is_none() {
                    unknown.push(*request);
                }
                is_open.unwrap_or(true)
            });
        }
        // They wait for their scan, or the mind has forgotten them.
        for request in unknown {
            let is_open = match centre.store.request(request) {
                Ok(record) => is_coming(&record),
                Err(error) if error.kind() == ErrorKind::NotFound => false,
                Err(error) => return Err(error),
            };
            if !is_open {
                self.open.remove(&request);
            }
        }
        Ok(())
    }
}

/// Returns whether a request may still change by itself; none if the mind does not know it.
fn is_open(mind: &Mind, request: RequestId, releases: bool) -> Option<bool> {
    if let Some(view) = mind.arrival(request) {
        return Some(view.state.is_live() || view.releases);
    }
    Some(match mind.state_of(request)? {
        "refused" | "delivered" | "cancelled" | "failed" => false,
        "released" => mind.is_awaited(request),
        "safe" => releases || mind.is_awaited(request),
        _ => true,
    })
}

fn is_coming(record: &RequestRecord) -> bool {
    match record.scan {
        None => record.ended.is_none(),
        Some(Scan::Sealed { .. }) => !record.submitted && record.ended.is_none(),
        Some(Scan::Failed { .. }) => false,
    }
}
