//! Reports sources that are lost or back.

use posthaste_types::SourceId;

use crate::{
    apply,
    contract::{Happening, Outbox, Reason},
    state,
    state::State,
};

/// Reports something to every live stage-in that uses a source.
pub(crate) fn tell_users(
    state: &mut State,
    source: SourceId,
    happening: &Happening,
    reason: &Reason,
    out: &mut Outbox,
) {
    for id in state.arrivals.users(source) {
        apply::tell::tell(
            state,
            out,
            Some(id),
            None,
            happening.clone(),
            reason.clone(),
        );
    }
}

pub(crate) fn say_source_is_back(state: &mut State, source: SourceId, out: &mut Outbox) {
    for id in state.arrivals.users(source) {
        let name = state::stage_ins::name_of_source(state, source);
        let happening = Happening::SourceBack { name };
        apply::tell::tell(state, out, Some(id), None, happening, Reason::GaveAgain);
        apply::stage_in::slack::blame_source(state, id, source);
    }
    state::wake::look_at_arrivals_now(state);
}
