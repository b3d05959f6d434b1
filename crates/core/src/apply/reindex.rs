//! Keeps derived data up to date: the order of requests, what each waits for, and timers.

use posthaste_types::Timestamp;

use crate::{
    apply, decide, state,
    state::{Request, State},
};

/// Updates the index with the requests that were touched.
pub(crate) fn bring_up_to_date(state: &mut State) {
    for id in state.requests.take_touched() {
        state.requests.settle(&id, Request::settle);
        let entry = state
            .requests
            .get(&id)
            .map(|request| decide::wants::entry_of(state, id, request))
            .unwrap_or_default();
        for &depot in entry.wants.iter() {
            state.depots.touch(depot);
        }
        let has_ended = state.index.moves(id) && entry.urgency.is_none();
        state.index.set(id, entry);
        // Requests that wait for it at its destination may go on.
        let lead = state.requests.get(&id).and_then(Request::lead_depot);
        if let Some(to) = lead.filter(|_| has_ended) {
            state.pushes.touch(to);
        }
        apply::spaces::end_space(state, id);
    }
}

/// Records when time alone next changes something about the touched depots.
pub(crate) fn wind_timers(state: &mut State) {
    for &id in state.depots.touched() {
        let timer = state.depots.get(&id).and_then(|depot| {
            let back = depot.answered.as_ref().map(|_| depot.hold_until);
            let resume = (depot.resume_at > state.now).then_some(depot.resume_at);
            let times = [back, resume, depot.turns_at, depot.counts_at];
            times.into_iter().flatten().min()
        });
        state.index.set_timer(id, timer);
    }
}

/// Returns when time alone next changes something.
pub(crate) fn find_alarm(state: &mut State) -> Option<Timestamp> {
    wind_timers(state);
    let sweep = state.sweep.as_ref().map(|sweep| sweep.goes_on);
    let others = [
        state.index.next_timer(),
        state.index.next_call(),
        state.index.next_resume(),
        state.tick_at,
    ];
    let more = [
        state.pushes.more_at,
        state.planning.alarm(&state.settings),
        state::stage_ins::next_arrival_alarm(state),
        state.circuits.next_due(),
        state.spaces.next_ending().map(|(due, _)| due),
        state.forgets.next_due().map(|(due, _)| due),
    ];
    others
        .into_iter()
        .chain([sweep])
        .chain(more)
        .flatten()
        .min()
}

/// Forgets the oldest finished requests beyond the number kept.
pub(crate) fn forget_oldest(state: &mut State) {
    bring_up_to_date(state);
    for id in state.index.forgettable(state.settings.finished_max) {
        state.requests.remove(&id);
    }
    bring_up_to_date(state);
}
