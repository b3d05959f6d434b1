use alloc::vec::Vec;
use core::time::Duration;
use posthaste_types::{ByteRate, ChunkIndex, DepotId, RequestId};

use crate::{
    apply,
    contract::{Encode, Fault, Outbox, Reason},
    state,
    state::{FlightKey, State},
};

/// Handles a relay that did not begin to code and send on a chunk. Its fragments are sent from
/// here, and it rests from coding, ever longer. As a depot it is blamed for faults that would
/// have kept a fragment out too.
pub(crate) fn on_scatter_failed(
    state: &mut State,
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
    let sent = state.transfers.get(at, id, chunk);
    let sent = sent.filter(|flight| flight.is_scattered).copied();
    let Some(flight) = sent.and_then(|flight| apply::flights::land(state, key, flight.fragment))
    else {
        return;
    };
    let pieces = state.pushes.pieces_from(at, Some(id));
    for (piece, fragment) in pieces.into_iter().filter(|(piece, _)| piece.chunk == chunk) {
        apply::flights::land_push(state, piece, fragment);
    }
    if fault.is_of_source() {
        apply::source_fault::on_source_fault(state, id, fault, None, out);
        apply::stripes::refresh_stripe(state, id, chunk);
        return;
    }
    let attempt = apply::push::failures::rest_coder(state, at) + 1;
    if let Some(request) = state.requests.get_mut(&id) {
        let spent = &mut request.spent_micro_usd;
        *spent = spent.saturating_sub(flight.keep_micro_usd);
        // Nothing of it was begun: another may code it, or it is sent from here.
        if !request.is_flying(chunk) && request.stripes.remove(&chunk).is_some() {
            request.replica.put_back(chunk);
        }
    }
    apply::stripes::refresh_stripe(state, id, chunk);
    match fault {
        Fault::Unreachable | Fault::Full | Fault::Unauthenticated => {
            apply::losses::blame(state, id, at, flight.since, fault, out);
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
            let name = state::names::name_of(state, at);
            let reason = Reason::Retry { fault, attempt };
            state::memory::remember_of(
                state,
                id,
                name,
                1,
                "it did not code a chunk".into(),
                reason,
            );
        }
    }
}

/// Handles a fragment that a coding depot sent on: the path between the two shows its rate.
pub(crate) fn on_piece_told(
    state: &mut State,
    id: RequestId,
    to: DepotId,
    chunk: ChunkIndex,
    span: Duration,
) {
    let Some(piece) = state.pushes.get(to, id, chunk) else {
        return;
    };
    if let ([from], true, false) = (&piece.givers[..], piece.is_piece, span.is_zero()) {
        let (from, beside) = (*from, state.pushes.flights(*from, to).max(1));
        let taken = (piece.share, span, beside);
        let (now, settings) = (state.now, &state.settings);
        state.crossings.observe(from, to, taken, now, settings);
    }
}

/// Sets where chunks are coded.
pub(crate) fn on_encode_chosen(state: &mut State, encode: Encode) {
    state.settings.encode = encode;
    touch_all(state);
}

/// Sets the capacity of the centre's uplink.
pub(crate) fn on_egress_told(state: &mut State, rate: Option<ByteRate>) {
    state.settings.egress = rate;
    state::wake::look_now(state);
    touch_all(state);
}

fn touch_all(state: &mut State) {
    let all: Vec<DepotId> = state.depots.keys().copied().collect();
    all.into_iter().for_each(|depot| state.depots.touch(depot));
}
