//! Events for people: the mind's decisions, and requests that ended before the mind knew them.

use posthaste_core::contract::{Event, Happening, Reason};
use posthaste_endpoint::Result;
use posthaste_journal::{Scan, Scanned};
use posthaste_types::RequestId;

use super::Centre;

impl Centre {
    /// Keeps what the scan of a request's source brought, and tells who follows events where that ends the request. Blocking.
    ///
    /// # Errors
    /// The journal's.
    pub(crate) fn keep_scan(
        &self,
        request: RequestId,
        scan: Scan,
        list: Option<Vec<u8>>,
    ) -> Result<()> {
        let event = self.ended_by(request, &scan);
        self.store.keep_scan(Scanned {
            request,
            scan,
            list,
            event: event.clone(),
        })?;
        if let Some(event) = event {
            let newest = self.store.journal(|journal| journal.newest_event())?;
            self.told(&[event], newest);
        }
        Ok(())
    }

    fn ended_by(&self, request: RequestId, scan: &Scan) -> Option<Event> {
        let Scan::Failed { error, .. } = scan else {
            return None;
        };
        let (happening, reason) = if *scan == Scan::cancelled() {
            (Happening::Cancelled, Reason::Asked)
        } else {
            let said = error.clone();
            (Happening::Failed, Reason::NotThere { said })
        };
        Some(Event {
            at: self.clock.now(),
            request: Some(request),
            depot: None,
            happening,
            reason,
        })
    }

    /// These events are in the journal, the last of them under this number.
    pub(super) fn told(&self, events: &[Event], newest: u64) {
        for event in events {
            self.counts.count(&event.happening);
            self.log(event);
        }
        self.newest_event.send_if_modified(|known| {
            let is_newer = *known < newest;
            *known = newest.max(*known);
            is_newer
        });
    }

    /// Logs an event in one line, for the operator.
    fn log(&self, event: &Event) {
        let depot = event.depot.map(|depot| self.depots.name(depot));
        let reason = crate::render::reason(self, &event.reason, event.at);
        tracing::info!(
            target: "posthaste::event",
            at = %event.at,
            request = event.request.map(tracing::field::display),
            depot,
            event = event.happening.name(),
            "{}: {reason}",
            event.happening
        );
    }
}
