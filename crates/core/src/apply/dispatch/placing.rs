//! Borrows the books that one placement needs.

use alloc::vec::Vec;
use posthaste_types::RequestId;

use crate::{
    decide::dispatch::placing::Placing,
    state::{Release, State},
};

pub(crate) fn placing(state: &mut State, id: RequestId) -> Option<Placing<'_>> {
    let request = state.requests.get_mut(&id)?;
    // A source that is being removed can't be counted on.
    let feeds = request.is_moving() && request.release != Release::Commanded;
    feeds.then_some(Placing {
        id,
        ranks: Vec::new(),
        index: &state.index,
        request,
        depots: &mut state.depots,
        transfers: &mut state.transfers,
        pushes: &mut state.pushes,
        crossings: &state.crossings,
        settings: &state.settings,
        now: state.now,
    })
}
