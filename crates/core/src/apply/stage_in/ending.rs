//! Ends of a stage-in: its files get their names, or what was written of them is removed.

use posthaste_types::{RequestId, SourceId};

use crate::{
    apply,
    contract::{ArrivalState, Command, DeliveryReason, Happening, Outbox, Reason},
    state,
    state::State,
};

/// Ends the onward copy of a request that is over before all of it is at its address: nothing
/// can be read any more.
pub(crate) fn end_onward(
    state: &mut State,
    of: RequestId,
    outcome: ArrivalState,
    out: &mut Outbox,
) {
    if let Some(id) = state::onward::goes_on_as(state, of)
        && state::onward::is_going_on(state, of)
    {
        let why = DeliveryReason::StaysBehind { of };
        end_arrival(state, id, outcome, Reason::Delivery { why }, out);
    }
}

/// Names the files once every chunk is here. An empty stage-in is complete as soon as it may
/// be.
pub(crate) fn land_if_whole(state: &mut State, id: RequestId, out: &mut Outbox) {
    let now = state.now;
    if state::onward::waits_for_depots(state, id) {
        return;
    }
    let Some(arrival) = state.arrivals.requests.get_mut(&id) else {
        return;
    };
    let is_landing = arrival.state == ArrivalState::Landing || !arrival.state.is_live();
    let may = arrival.chunks() > 0 || arrival.is_due;
    let may = may && !arrival.is_paused();
    if is_landing || !may || arrival.asked_at.is_some() || !arrival.is_whole() {
        return;
    }
    if arrival.held_until > now {
        return;
    }
    arrival.state = ArrivalState::Landing;
    let chunks = arrival.chunks();
    let reason = Reason::AllHere { chunks };
    quit_all(state, id, &reason, out);
    out.commands.push(Command::Settle {
        request: id,
        keep: true,
        reason,
    });
}

/// Stops all fetches of a stage-in.
pub(crate) fn quit_all(state: &mut State, id: RequestId, reason: &Reason, out: &mut Outbox) {
    let Some(arrival) = state.arrivals.requests.get(&id) else {
        return;
    };
    let sources: alloc::vec::Vec<SourceId> = arrival.lanes.iter().map(|lane| lane.source).collect();
    for source in sources {
        if !apply::stage_in::fetches::end_fetches(state, source, Some(id)).is_empty() {
            out.commands.push(Command::Quit {
                request: id,
                source,
                reason: reason.clone(),
            });
        }
    }
}

/// Ends a stage-in that can't go on or is no longer wanted, and removes what was written of it.
pub(crate) fn end_arrival(
    state: &mut State,
    id: RequestId,
    outcome: ArrivalState,
    reason: Reason,
    out: &mut Outbox,
) {
    quit_all(state, id, &reason, out);
    apply::stage_in::near::empty_near(state, id);
    let Some(arrival) = state.arrivals.requests.get_mut(&id) else {
        return;
    };
    arrival.state = outcome;
    arrival.close_books();
    out.commands.push(Command::Settle {
        request: id,
        keep: false,
        reason: reason.clone(),
    });
    let happening = if outcome == ArrivalState::Cancelled {
        Happening::Cancelled
    } else {
        Happening::Failed
    };
    apply::tell::tell(state, out, Some(id), None, happening, reason);
    apply::stage_in::onward_end::onward_ended(state, id);
    state::wake::look_at_arrivals_now(state);
}

/// Cancels a stage-in for its user, unless its files are already getting their names.
pub(crate) fn cancel_arrival(state: &mut State, id: RequestId, out: &mut Outbox) {
    let arrival = state.arrivals.requests.get(&id);
    let can_end = arrival
        .is_some_and(|arrival| arrival.state.is_live() && arrival.state != ArrivalState::Landing);
    if can_end {
        end_arrival(state, id, ArrivalState::Cancelled, Reason::Asked, out);
    }
}
