//! Plans over time (`docs/algorithms/time-expanded-plan.md`): asked for if taking turns by deadline
//! is not enough, and followed as quotas.
//!
//! A plan says which request may put how much on which depot. That, and not when, is what turns
//! can't find. Within its quotas each request still takes its turn by deadline, which on one depot
//! is the best there is. So a plan in force needs no other forecast and no other promise than the
//! greedy one's. That forecast also judges its worth: a plan that keeps nothing more is rejected.

pub(crate) mod draw;
pub(crate) mod follow;
pub(crate) mod hold;

use alloc::{collections::BTreeMap, vec::Vec};
use posthaste_types::{RequestId, Timestamp};

use crate::{
    forecast,
    forecast::completion::keep::give_back,
    state::completion::belief::Belief,
    state::{Request, State, Urgency},
};

/// Returns whether there are at least so many requests, and not too many, for a plan over time.
pub(crate) fn is_plan_allowed(state: &State, least: usize) -> bool {
    let most = state.settings.plan_requests_max as usize;
    (least..=most).contains(&state.index.moving())
}

/// Returns whether there are several requests to put in order, and not too many to try orders.
pub(crate) fn may_reorder(state: &State) -> bool {
    is_plan_allowed(state, 2)
}

/// Returns which requests would be done by the deadline, and when, if all take their turns
/// within their quotas. A newcomer can be added, or one of them left out.
pub(crate) fn kept(
    state: &State,
    belief: Belief,
    newcomer: Option<(RequestId, &Request)>,
    without: Option<RequestId>,
) -> BTreeMap<RequestId, Timestamp> {
    let places = forecast::completion::places(state);
    let mut supplies = forecast::completion::supplies(state, belief);
    let all = state
        .index
        .after(None)
        .filter(|urgency| !urgency.is_leftover && Some(urgency.request) != without);
    let mut order: Vec<Urgency> = all.collect();
    order.extend(newcomer.map(|(id, request)| Urgency::of_newcomer(id, request)));
    order.sort_unstable();
    let mut kept = BTreeMap::new();
    for urgency in order {
        let id = urgency.request;
        let newcomer = newcomer.filter(|(newcomer, _)| *newcomer == id);
        let known = newcomer.map(|(_, request)| request);
        let Some(request) = known.or_else(|| state.requests.get(&id)) else {
            continue;
        };
        if known.is_none() && request.is_paused() {
            continue;
        }
        give_back(
            &mut supplies,
            &forecast::completion::keep::space_of(state, id, &places),
        );
        let load = forecast::completion::load_now(state, request, &places);
        let outcome = supplies.early(&load, state.now);
        if let Some(finish) = outcome.edge.filter(|edge| *edge <= urgency.deadline) {
            kept.insert(id, finish);
        }
        supplies.take(&load, &outcome);
    }
    kept
}
