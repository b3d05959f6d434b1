//! Failed pushes: which depots rest, for how long, and what is given up.

use alloc::format;
use core::time::Duration;
use posthaste_types::{Bytes, DepotId, RequestId};

use crate::{
    Settings, apply,
    contract::{Command, Fault, Outbox, Reason},
    decide::dispatch::patience::backoff,
    state,
    state::{FlightKey, Forwarded, State, is_of_giver},
};

/// Consecutive failures after which a pair of depots, or a coding one, rests for long.
const HOPELESS: u32 = 8;

/// Handles a push that ended without the fragment being stored. No depot is lost by that: the
/// culprit can't be identified, and nothing is less safe than before.
pub(crate) fn on_push_failed(
    state: &mut State,
    key: FlightKey,
    flight: Forwarded,
    fault: Fault,
    out: &mut Outbox,
) {
    let (to, id) = (key.depot, key.request);
    let givers = flight.givers.iter();
    // A fragment that never came is not the fault of the depot there.
    let did_not_arrive = flight.is_following && fault == Fault::SourceVanished;
    let attempts = match flight.is_blamed || did_not_arrive {
        true => 0,
        false => givers
            .map(|&from| back_off(state, from, to))
            .max()
            .unwrap_or(0),
    };
    let reason = match did_not_arrive {
        true => Reason::DidNotArrive,
        false => Reason::Retry {
            fault,
            attempt: attempts + 1,
        },
    };
    if fault == Fault::Full
        && let Some(depot) = state.depots.get_mut(&to)
    {
        depot.free = Bytes::ZERO;
    }
    if flight.is_piece {
        apply::encoding::on_piece_failed(state, key, fault);
    }
    if let [from] = flight.givers[..] {
        if is_of_giver(fault) && !did_not_arrive {
            ask_giver(state, id, from, &reason, out);
        }
        if attempts == 1 || did_not_arrive {
            let (from, to) = (
                state::names::name_of(state, from),
                state::names::name_of(state, to),
            );
            if did_not_arrive {
                state::memory::remember(
                    state,
                    id,
                    format!("{from} to {to}: a push is given up"),
                    reason,
                );
            } else {
                let what = format!("a push from {from} is tried again");
                state::memory::remember_of(state, id, to, 1, what, reason);
            }
        }
    }
    apply::stripes::refresh_stripe(state, id, key.chunk);
}

/// Asks a depot for its inventory, as it no longer holds what is believed.
pub(crate) fn ask_giver(
    state: &mut State,
    id: RequestId,
    from: DepotId,
    reason: &Reason,
    out: &mut Outbox,
) {
    abandon_pushes(state, id, from, reason, out);
    apply::depots::ask_if_used(state, id, from, reason.clone(), out);
}

pub(crate) fn back_off(state: &mut State, from: DepotId, to: DepotId) -> u32 {
    let (now, settings) = (state.now, &state.settings);
    state
        .pushes
        .fail(from, to, |failures| now + pause(settings, failures))
}

/// Lets a depot rest from coding after a failure. Returns the number of consecutive failures.
pub(crate) fn rest_coder(state: &mut State, depot: DepotId) -> u32 {
    let (now, settings) = (state.now, &state.settings);
    state
        .pushes
        .rest(depot, |failures| now + pause(settings, failures))
}

/// Abandons what a lost depot was sending on.
pub(crate) fn abandon_pushes_from(
    state: &mut State,
    from: DepotId,
    reason: &Reason,
    out: &mut Outbox,
) {
    for (id, to) in state.pushes.ways_from(from) {
        abandon_pushes(state, id, to, reason, out);
    }
}

pub(crate) fn abandon_pushes(
    state: &mut State,
    id: RequestId,
    to: DepotId,
    reason: &Reason,
    out: &mut Outbox,
) {
    if apply::flights::end_flights(state, to, Some(id)) > 0 {
        out.commands.push(Command::Abandon {
            request: id,
            depot: to,
            reason: reason.clone(),
        });
    }
}

/// Returns the rest after so many consecutive failures.
fn pause(settings: &Settings, failures: u32) -> Duration {
    match failures > HOPELESS {
        true => settings.hold_max,
        false => backoff(settings, failures),
    }
}
