//! Reports of a stage-in's destination: it refuses data, or keeps it without modes, times or some
//! files.

use alloc::{string::String, vec::Vec};
use posthaste_types::RequestId;

use crate::{
    contract::{LeftOut, Reason},
    state,
    state::{Arrival, State},
};

/// Records that the destination refuses data. Of refusals at once the first is remembered, and
/// no refusal is reported twice.
pub(crate) fn on_refused_there(state: &mut State, id: RequestId, said: &str) {
    let (now, arrival) = (state.now, state.arrivals.requests.get(&id));
    let reason = Reason::DestinationRefuses { said: said.into() };
    let is_new = |arrival: &Arrival| {
        let is_first = arrival.state.is_live() && arrival.held_until <= now;
        is_first && arrival.refusal().as_ref() != Some(&reason)
    };
    if arrival.is_some_and(|arrival| is_new(arrival)) {
        state::memory::remember(state, id, String::from("held"), reason);
    }
}

/// Some of its files come from one source each.
pub(crate) fn on_from_one(state: &mut State, id: RequestId, said: &str) {
    let arrival = state.arrivals.requests.get(&id);
    if arrival.is_some_and(|arrival| arrival.state.is_live()) {
        let reason = Reason::FromOneSource { said: said.into() };
        state::memory::remember(state, id, String::from("from one source"), reason);
    }
}

/// Records that the destination keeps no modes or times of some files.
pub(crate) fn on_unkept_there(state: &mut State, id: RequestId, modes: u64, times: u64) {
    let arrival = state.arrivals.requests.get(&id);
    if arrival.is_some_and(|arrival| arrival.state.is_live()) {
        let reason = Reason::NotKeptThere { modes, times };
        state::memory::remember(state, id, String::from("not kept"), reason);
    }
}

/// Most lines about files left out that are remembered one by one.
const LEFT_OUT_SAID_MAX: usize = 10;

/// Records files that are missing at the destination and stay at their source.
pub(crate) fn on_left_out_there(state: &mut State, id: RequestId, found: &LeftOut) {
    let live = state.arrivals.requests.get_mut(&id);
    let Some(arrival) = live.filter(|arrival| arrival.state.is_live()) else {
        return;
    };
    let named = found.named.iter().take(LeftOut::NAMED_MAX);
    let left_out = LeftOut {
        named: named.cloned().collect(),
        ..*found
    };
    if arrival.left_out == left_out {
        return;
    }
    let said = left_out.named.iter().take(LEFT_OUT_SAID_MAX);
    let is_new = |line: &&String| !arrival.left_out.named.contains(*line);
    let said: Vec<String> = said.filter(is_new).cloned().collect();
    arrival.left_out = left_out;
    for said in said {
        let reason = Reason::NotThere { said };
        state::memory::remember(state, id, String::from("left out"), reason);
    }
}

impl Arrival {
    /// Returns the last refusal of the destination, if any.
    pub(crate) fn refusal(&self) -> Option<Reason> {
        let reasons = self.decisions.to_vec().into_iter();
        let reasons = reasons.map(|decision| decision.reason).rev();
        let is_refusal = |reason: &Reason| matches!(reason, Reason::DestinationRefuses { .. });
        reasons.into_iter().find(is_refusal)
    }
}
