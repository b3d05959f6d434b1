//! Sends that are lost on their way.

use std::time::Duration;

use posthaste_core::contract::Fault;

use super::{Run, faults::BREAK_NOTICED_MS_MAX, probes::is_block};
use crate::world::{Arrival, Sending};

impl Run<'_> {
    /// Records fragments in flight as lost with their connections.
    pub(super) fn lose(&mut self, lost: Vec<Arrival>) {
        for arrival in lost {
            let Arrival { to, sending, .. } = arrival;
            if self.on_gathered(&arrival, true) || self.is_orphan(&arrival) {
                continue;
            }
            if is_block(&sending) {
                let span = Duration::from_millis(self.dice.between(1, BREAK_NOTICED_MS_MAX));
                self.end_probe(span);
                continue;
            }
            let span = Duration::from_millis(self.dice.between(1, BREAK_NOTICED_MS_MAX));
            if self.on_to_be_coded(&arrival, Some(span)) || self.on_near(&arrival, Some(span)) {
                continue;
            }
            let Some(to) = to.place() else { continue };
            let depot = self.world.sites[to].id;
            let Sending {
                request,
                chunk,
                fragment,
                ..
            } = sending;
            let send = (depot, request, chunk, fragment);
            self.tell_send(span, send, Some(Fault::Unreachable));
        }
    }
}
