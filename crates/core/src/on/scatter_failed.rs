use alloc::vec::Vec;
use core::time::Duration;
use posthaste_types::{ByteRate, ChunkIndex, DepotId, RequestId};

use crate::{
    Mind,
    books::FlightKey,
    contract::{Encode, Fault, Outbox, Reason},
};

impl Mind {
    /// Handles a relay that did not begin to code and send on a chunk. Its fragments are sent from
    /// here, and it rests from coding, ever longer. As a depot it is blamed for faults that would
    /// have kept a fragment out too.
    pub(crate) fn on_scatter_failed(
        &mut self,
        id: RequestId,
        at: DepotId,
        chunk: ChunkIndex,
        fault: Fault,
        out: &mut Outbox,
    ) {
        let key = FlightKey {
            depot: at,
            request: id,
            chunk,
        };
        let sent = self.transfers.get(at, id, chunk);
        let sent = sent.filter(|flight| flight.is_scattered).copied();
        let Some(flight) = sent.and_then(|flight| self.land(key, flight.fragment)) else {
            return;
        };
        let pieces = self.pushes.pieces_from(at, Some(id));
        for (piece, fragment) in pieces.into_iter().filter(|(piece, _)| piece.chunk == chunk) {
            self.land_push(piece, fragment);
        }
        if fault.is_of_source() {
            self.on_source_fault(id, fault, None, out);
            self.refresh_stripe(id, chunk);
            return;
        }
        let attempt = self.rest_coder(at) + 1;
        if let Some(request) = self.requests.get_mut(&id) {
            let spent = &mut request.spent_micro_usd;
            *spent = spent.saturating_sub(flight.keep_micro_usd);
            // Nothing of it was begun: another may code it, or it is sent from here.
            if !request.is_flying(chunk) && request.stripes.remove(&chunk).is_some() {
                request.replica.put_back(chunk);
            }
        }
        self.refresh_stripe(id, chunk);
        match fault {
            Fault::Unreachable | Fault::Full | Fault::Unauthenticated => {
                self.blame(id, at, flight.since, fault, out);
            }
            Fault::Corrupt
            | Fault::Busy
            | Fault::SourceChanged
            | Fault::SourceVanished
            | Fault::SourceUnreadable
            | Fault::Unremovable
            | Fault::SourceBusy
            | Fault::SourcesDiffer
            | Fault::Unwritable
            | Fault::NamesMeet
            | Fault::SourceStalled
            | Fault::Other => {
                let name = self.name_of(at);
                let reason = Reason::Retry { fault, attempt };
                self.remember_of(id, name, 1, "it did not code a chunk".into(), reason);
            }
        }
    }

    /// Handles a fragment that a coding depot sent on: the path between the two shows its rate.
    pub(crate) fn on_piece_told(
        &mut self,
        id: RequestId,
        to: DepotId,
        chunk: ChunkIndex,
        span: Duration,
    ) {
        let Some(piece) = self.pushes.get(to, id, chunk) else {
            return;
        };
        if let ([from], true, false) = (&piece.givers[..], piece.is_piece, span.is_zero()) {
            let (from, beside) = (*from, self.pushes.flights(*from, to).max(1));
            let taken = (piece.share, span, beside);
            let (now, settings) = (self.now, &self.settings);
            self.crossings.observe(from, to, taken, now, settings);
        }
    }

    /// Sets where chunks are coded.
    pub(crate) fn on_encode_chosen(&mut self, encode: Encode) {
        self.settings.encode = encode;
        self.touch_all();
    }

    /// Sets the capacity of the centre's uplink.
    pub(crate) fn on_egress_told(&mut self, rate: Option<ByteRate>) {
        self.settings.egress = rate;
        self.look_now();
        self.touch_all();
    }

    fn touch_all(&mut self) {
        let all: Vec<DepotId> = self.depots.keys().copied().collect();
        all.into_iter().for_each(|depot| self.depots.touch(depot));
    }

    /// Ends what depots get from a coding depot, of one request or of all: it ends together with
    /// the sends to that one. Returns the chunks concerned.
    pub(crate) fn end_pieces_from(
        &mut self,
        depot: DepotId,
        id: Option<RequestId>,
    ) -> Vec<(RequestId, ChunkIndex)> {
        let pieces = self.pushes.pieces_from(depot, id);
        for (key, fragment) in &pieces {
            self.land_push(*key, *fragment);
        }
        pieces
            .iter()
            .map(|(key, _)| (key.request, key.chunk))
            .collect()
    }

    /// Handles a coded fragment that did not reach its depot, or never will.
    pub(crate) fn on_piece_failed(&mut self, key: FlightKey, fault: Fault) {
        if let Some(request) = self.requests.get_mut(&key.request)
            && let Some(stripe) = request.stripes.get_mut(&key.chunk)
        {
            stripe.failures += 1;
            stripe.last_fault = Some(fault);
        }
    }

    /// Reports once for a request that depots code its chunks.
    pub(crate) fn say_scattered(&mut self, id: RequestId) {
        let request = self.requests.get_mut(&id);
        if let Some(request) = request.filter(|request| request.uncommon.is_scatter_unsaid) {
            (
                request.uncommon.is_scatter_unsaid,
                request.uncommon.is_scattered,
            ) = (false, true);
            let what = "depots code its chunks".into();
            self.remember(id, what, Reason::CodedThere);
        }
    }

    /// Returns the configured capacity of the uplink, and where chunks are coded.
    #[must_use]
    pub fn encoding(&self) -> (Encode, Option<ByteRate>) {
        (self.settings.encode, self.settings.egress)
    }
}
