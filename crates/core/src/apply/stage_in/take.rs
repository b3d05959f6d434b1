//! Takes a stage-in in.

use alloc::{boxed::Box, vec::Vec};
use posthaste_types::{RequestId, Timestamp};

use crate::{
    apply,
    contract::{ArrivalSpec, Happening, Holding, HopeReason, Outbox, Reason},
    forecast,
    forecast::stage_in::Quantile,
    state,
    state::{Account, Arrival, State},
};

/// Builds a stage-in to be weighed, from what is known of its sources now.
pub(crate) fn new_arrival(state: &mut State, spec: ArrivalSpec, holdings: &[Holding]) -> Arrival {
    let mut arrival = Arrival::new(spec, holdings, state.now);
    let sources = &state.arrivals.sources;
    arrival.keep_sources(|source| sources.contains_key(&source));
    apply::stage_in::outlook::look_at_inbound_links(state);
    arrival
}

/// Accepts a stage-in that was weighed.
pub(crate) fn take_arrival(state: &mut State, id: RequestId, arrival: Arrival, out: &mut Outbox) {
    let is_leftover = arrival.is_leftover;
    let from = forecast::stage_in::onward::readable_from(state, id, Quantile::P10);
    let hoped = forecast::stage_in::weigh_arrival(state, &arrival, from, Quantile::Hopeful).0;
    state.arrivals.requests.insert(id, Box::new(arrival));
    apply::stage_in::outlook::look_at_arrivals(state);
    answer_arrival(state, id, hoped, out);
    // A stage-in accepted in hope is known to be at risk.
    let arrival = state.arrivals.requests.get(&id);
    let is_late = arrival.is_some_and(|arrival| {
        let finish = arrival.finish;
        finish.is_some_and(|finish| finish.p90 > arrival.spec.deadline)
    });
    if is_leftover || is_late {
        apply::stage_in::review::say_arrival_at_risk(state, id, out);
    }
    state::wake::look_at_arrivals_now(state);
}

fn answer_arrival(state: &mut State, id: RequestId, hoped: Option<Timestamp>, out: &mut Outbox) {
    let Some(arrival) = state.arrivals.requests.get_mut(&id) else {
        return;
    };
    let deadline = arrival.spec.deadline;
    let finish = arrival.finish.map(|finish| finish.p90);
    arrival.account = Account::open(deadline, finish);
    let sources = u32::try_from(arrival.lanes.len()).unwrap_or(u32::MAX);
    let begin_by = arrival.begin_by.filter(|_| !arrival.is_due);
    let reason = match (finish, arrival.binding.clone()) {
        (Some(finish), Some(binding)) if finish <= deadline => Reason::InboundBound {
            sources,
            begin_by,
            finish,
            deadline,
            binding,
        },
        (Some(finish), None) if finish <= deadline => Reason::Inbound {
            sources,
            begin_by,
            finish,
            deadline,
        },
        (finish, binding) => match (hoped.filter(|hoped| *hoped <= deadline), binding) {
            (Some(hoped), _) => Reason::Hoped {
                why: HopeReason::Inbound {
                    sources,
                    hoped,
                    deadline,
                },
            },
            (None, Some(binding)) => Reason::OnlyThere {
                binding,
                finish,
                deadline,
                would_buy: Vec::new(),
            },
            (None, None) => Reason::Infeasible {
                earliest: finish,
                deadline,
                would_buy: Vec::new(),
            },
        },
    };
    apply::tell::tell(state, out, Some(id), None, Happening::Admitted, reason);
}
