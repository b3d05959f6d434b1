use std::collections::{BTreeMap, BTreeSet};

use posthaste_core::contract::{Event, Happening};
use posthaste_types::RequestId;

use super::{Found, ensure};

pub(super) const NAME: &str =
    "what goes on to an address is read from depots once safe, and kept there until it has arrived";

/// Exports from depots to an address.
#[derive(Debug, Default)]
pub(crate) struct Onward {
    /// For each export, the request whose depots it reads.
    of: BTreeMap<RequestId, RequestId>,
    /// Requests that were reported safe.
    safe: BTreeSet<RequestId>,
    /// Exports that are complete at their address, or were given up.
    over: BTreeSet<RequestId>,
}

impl Onward {
    /// Records an export before it is submitted.
    pub(crate) fn on_asked(&mut self, request: RequestId, of: RequestId) {
        self.of.insert(request, of);
    }

    /// Returns the request whose depots an export reads.
    pub(crate) fn of(&self, request: RequestId) -> Option<RequestId> {
        self.of.get(&request).copied()
    }

    /// Checks a fetch of a chunk.
    pub(crate) fn on_fetch(&self, request: RequestId) -> Result<(), Found> {
        let Some(of) = self.of(request) else {
            return Ok(());
        };
        ensure(NAME, self.safe.contains(&of), || {
            format!("{request} is read from the depots of {of}, which is not safe")
        })
    }

    /// Checks that depots may remove their data. The data must be unwanted, or complete at its
    /// address.
    pub(crate) fn on_forget(&self, of: RequestId, is_unwanted: bool) -> Result<(), Found> {
        let on = self.of.iter().find(|(_, from)| **from == of);
        let on = on.map(|(request, _)| *request);
        let may = is_unwanted || on.is_none_or(|request| self.over.contains(&request));
        ensure(NAME, may, || {
            format!("depots are to remove {of}, and {on:?} has not brought it to its address")
        })
    }

    /// Records reports about both requests.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "nothing else begins or ends what is read here"
    )]
    pub(crate) fn on_event(&mut self, event: &Event) {
        let Some(request) = event.request else {
            return;
        };
        match event.happening {
            Happening::Safe { .. } => {
                self.safe.insert(request);
            }
            Happening::Arrived { .. } => {
                self.over.insert(request);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::contract::Reason;
    use posthaste_types::Bytes;

    use super::*;

    fn event(request: RequestId, happening: Happening) -> Event {
        Event {
            at: Default::default(),
            request: Some(request),
            depot: None,
            happening,
            reason: Reason::Asked,
        }
    }

    #[test]
    fn what_is_read_too_early_or_removed_too_early_is_caught() {
        let (of, on) = (RequestId::new(1), RequestId::new(2));
        let bytes = Bytes::ZERO;
        let mut onward = Onward::default();
        assert!(onward.on_fetch(on).is_ok() && onward.on_forget(of, false).is_ok());
        onward.on_asked(on, of);
        assert!(onward.on_fetch(on).is_err());
        onward.on_event(&event(of, Happening::Safe { bytes }));
        assert!(onward.on_fetch(on).is_ok());
        assert!(onward.on_forget(of, false).is_err());
        assert!(onward.on_forget(of, true).is_ok(), "cancelled");
        onward.on_event(&event(on, Happening::Arrived { bytes }));
        assert!(onward.on_forget(of, false).is_ok());
    }
}
