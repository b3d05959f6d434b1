use posthaste_types::{ChunkIndex, DepotId, RequestId};

use crate::{
    apply,
    contract::{GiverEnd, Outbox, Reason},
    state::{FlightKey, State, is_of_giver},
};

/// Handles how the senders of a chunk's fragments to a destination did: each path shows its
/// rate, and only a sender that failed rests.
pub(crate) fn on_gather_told(
    state: &mut State,
    id: RequestId,
    to: DepotId,
    chunk: ChunkIndex,
    givers: &[GiverEnd],
    out: &mut Outbox,
) {
    let key = FlightKey {
        depot: to,
        request: id,
        chunk,
    };
    for giver in givers {
        let Some(share) = state.pushes.share_of(key, giver.depot) else {
            continue;
        };
        match giver.fault {
            None if giver.span.is_zero() => {}
            None => {
                let beside = state.pushes.flights(giver.depot, to).max(1);
                let taken = (share, giver.span, beside);
                let (now, settings) = (state.now, &state.settings);
                state
                    .crossings
                    .observe(giver.depot, to, taken, now, settings);
                state.pushes.succeed(giver.depot, to, now);
            }
            Some(fault) => {
                state.pushes.blame(key);
                let attempt = apply::push::failures::back_off(state, giver.depot, to) + 1;
                let reason = Reason::Retry { fault, attempt };
                if is_of_giver(fault) {
                    apply::push::failures::ask_giver(state, id, giver.depot, &reason, out);
                }
            }
        }
    }
}
