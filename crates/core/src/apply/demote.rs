//! Lets a late request wait if that keeps more deadlines.

use alloc::{string::String, vec::Vec};
use posthaste_types::{Bytes, RequestId};

use crate::{
    apply,
    contract::Reason,
    decide,
    decide::demote::TRIED_MAX,
    state,
    state::completion::belief::Belief,
    state::{Request, State},
};

/// Reviews the order after a look at everything: one late request lets others go first, or one
/// that did takes its turn again.
pub(crate) fn review_order(state: &mut State) {
    if !decide::plan_over_time::may_reorder(state) {
        return;
    }
    let conceded = decide::demote::those(state, |request| {
        request.uncommon.has_conceded && request.is_under_way()
    });
    let least = state.settings.behind_ticks;
    let may_concede = |request: &Request| {
        !request.is_leftover
            && !request.is_paused()
            && request.at_risk
            && request.late_ticks >= least
    };
    let late = decide::demote::those(state, may_concede);
    if conceded.is_empty() && late.len() < 2 {
        return;
    }
    let kept = decide::plan_over_time::kept(state, Belief::P50, None, None);
    let regained = conceded.into_iter().find(|&id| {
        let request = state.requests.get(&id);
        let all = request.map(|request| {
            decide::plan_over_time::kept(state, Belief::P50, Some((id, request)), None)
        });
        all.is_some_and(|all| all.contains_key(&id) && all.len() > kept.len())
    });
    if let Some(id) = regained {
        take_turn_again(state, id);
        return;
    }
    let mut late: Vec<(Bytes, RequestId)> = late
        .into_iter()
        .filter(|id| !kept.contains_key(id))
        .filter_map(|id| Some((state.requests.get(&id)?.replica.unsafe_bytes(), id)))
        .collect();
    late.sort_unstable_by(|one, other| other.cmp(one));
    late.truncate(TRIED_MAX);
    let tried = late.into_iter().map(|(_, id)| {
        (
            decide::plan_over_time::kept(state, Belief::P50, None, Some(id)).len(),
            id,
        )
    });
    // Of equals the largest wins, which came first.
    let best = tried
        .filter(|(others, _)| *others > kept.len())
        .min_by_key(|&(others, _)| core::cmp::Reverse(others));
    if let Some((others, id)) = best {
        concede(state, id, others - kept.len());
    }
}

fn concede(state: &mut State, id: RequestId, more: usize) {
    if let Some(request) = state.requests.get_mut(&id) {
        request.go_last(state.shares.turn(request.wishes.claim(), &state.settings));
        request.uncommon.has_conceded = true;
    }
    let more = u32::try_from(more).unwrap_or(u32::MAX);
    state::memory::remember(
        state,
        id,
        String::from("lets others go first"),
        Reason::Concedes { more },
    );
    apply::reindex::bring_up_to_date(state);
}

fn take_turn_again(state: &mut State, id: RequestId) {
    if let Some(request) = state.requests.get_mut(&id) {
        request.take_turn();
    }
    state::memory::remember(
        state,
        id,
        String::from("takes its turn again"),
        Reason::Regained,
    );
    apply::reindex::bring_up_to_date(state);
}
