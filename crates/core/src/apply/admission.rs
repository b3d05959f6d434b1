//! Takes a request in, refuses it, or answers a changed one.

use alloc::{string::String, vec::Vec};
use posthaste_types::{RequestId, Timestamp};

use crate::{
    apply,
    contract::{CircuitReason, Forecast, Happening, Outbox, Reason, RequestState},
    decide,
    decide::verdict::Verdict,
    state,
    state::completion::Promised,
    state::{Account, Depot, Request, Route, State},
};

/// Records the depots kept in reserve, for `explain`.
fn remember_spares(state: &mut State, id: posthaste_types::RequestId) {
    let Some(request) = state
        .requests
        .get(&id)
        .filter(|request| request.route == Route::Staged)
    else {
        return;
    };
    let spares: Vec<_> = request
        .lanes
        .iter()
        .enumerate()
        .filter(|&(place, lane)| !lane.is_active && !request.is_destination(place))
        .map(|(_, lane)| state::names::name_of(state, lane.depot))
        .collect();
    for name in spares {
        let reason = Reason::Spare { name: name.clone() };
        state::memory::remember_of(state, id, name, 0, "kept in reserve".into(), reason);
    }
}

/// Most requests before a new one that are searched for equal wishes.
const ALIKE_MAX: usize = 8;

/// Accepts a newcomer or refuses it. With `may_wait`, one that turns would refuse may wait for
/// a plan over time.
pub(crate) fn answer(
    state: &mut State,
    id: RequestId,
    mut request: Request,
    may_wait: bool,
    out: &mut Outbox,
) {
    for lane in &request.lanes {
        apply::completion::look_at_link(state, lane.depot);
    }
    request.uncommon.drained = decide::drain::drained_lanes(state, &request);
    request.set_kin(state::failure_domain::kin(state, &request));
    apply::reindex::bring_up_to_date(state);
    let lead = decide::delivery::best_destination(state, &request);
    lead.into_iter().for_each(|lead| request.set_lead(lead));
    let left = apply::completion::left_for_newcomers(state);
    let (verdict, tardy) = decide::newcomer::weigh_with_delivery(state, id, &mut request, &left);
    match verdict {
        Verdict::Refuse(reason) => {
            state.promised = Some(left);
            // A plan over time does not cover what destinations take from others.
            let may_wait = may_wait && request.wishes.deliver_by.is_none();
            let request = match may_wait && !request.spec.best_effort {
                true => apply::plan_over_time::ask::hold(state, id, request, &reason, out),
                false => Some(request),
            };
            if let Some(request) = request {
                refuse(state, id, request, reason, out);
            }
        }
        Verdict::Admit {
            route,
            active,
            reason,
            finish,
            is_leftover,
        } => {
            let (reason, _) = apply::counter_offer::bargain(state, &request, &left, reason);
            request.route = route;
            request.is_leftover = is_leftover;
            request.due.is_leftover = is_leftover || tardy.is_some();
            if is_leftover {
                request.uncommon.turn = state.shares.turn(request.wishes.claim(), &state.settings);
            }
            let whole = request.whole_lanes();
            for (place, lane) in request.lanes.iter_mut().enumerate() {
                // A destination that is away is fed as soon as it is back.
                lane.is_active = active.contains(&place) || whole >> place & 1 == 1;
            }
            state.promised = Some(left);
            take_in(state, id, request, finish, reason, out);
            if let Some(reason) = tardy {
                state::memory::remember(state, id, "delivery can't be in time".into(), reason);
                apply::delivery::promise::say_delivery_at_risk(state, id, out);
            }
        }
    }
}

fn refuse(state: &mut State, id: RequestId, request: Request, reason: Reason, out: &mut Outbox) {
    let left = apply::completion::left_for_newcomers(state);
    let Some(mut request) = take_reserving(state, id, request, &left, &reason, out) else {
        return;
    };
    let (reason, would_buy) = apply::counter_offer::bargain(state, &request, &left, reason);
    request.state = RequestState::Refused;
    request.close_books();
    state.requests.insert(id, request);
    apply::tell::tell(state, out, Some(id), None, Happening::Refused, reason);
    apply::stage_in::onward::refuse_onward(state, id, out);
    apply::drains::remember_drained(state, id);
    apply::binding::remember_binding(state, id);
    if !would_buy.is_empty() {
        state::memory::remember(state, id, "offered".into(), Reason::Offered { would_buy });
    }
    state.promised = Some(left);
}

/// Accepts a newcomer that would be refused if rate that can be reserved keeps its deadline,
/// and asks for that. Returns it if not.
fn take_reserving(
    state: &mut State,
    id: RequestId,
    mut request: Request,
    left: &Promised,
    reason: &Reason,
    out: &mut Outbox,
) -> Option<Request> {
    if !decide::circuits::bid::may_bid(state, &request, reason) {
        return Some(request);
    }
    let earliest = reason.earliest();
    let Some((
        bid,
        Verdict::Admit {
            route,
            active,
            finish: Some(finish),
            is_leftover: false,
            ..
        },
    )) = decide::circuits::bid::bid_newcomer(state, &request, left, earliest)
    else {
        return Some(request);
    };
    request.route = route;
    let whole = request.whole_lanes();
    for (place, lane) in request.lanes.iter_mut().enumerate() {
        lane.is_active = active.contains(&place) || whole >> place & 1 == 1;
    }
    let offered = state.circuits.offered.get(&bid.circuit);
    let name = offered.map_or_else(String::new, |circuit| circuit.terms.name.clone());
    let why = CircuitReason::Counted {
        rate: bid.rate,
        from: bid.from,
        finish,
        deadline: request.spec.deadline,
    };
    let reason = Reason::Circuit { name, why };
    take_in(state, id, request, Some(finish), reason, out);
    let taken = state.requests.get(&id);
    if taken.is_some_and(|request| !request.is_final()) {
        apply::circuits::ask_for(state, id, bid, out);
    }
    None
}

/// Accepts a newcomer with the quotas that a plan gives it.
pub(crate) fn take_planned(
    state: &mut State,
    id: RequestId,
    request: Request,
    finish: Timestamp,
    reason: Reason,
    out: &mut Outbox,
) {
    // Others have other quotas now.
    state::wake::look_now(state);
    state.promised = Some(apply::completion::left_for_newcomers(state));
    take_in(state, id, request, Some(finish), reason, out);
}

fn take_in(
    state: &mut State,
    id: RequestId,
    mut request: Request,
    finish: Option<Timestamp>,
    reason: Reason,
    out: &mut Outbox,
) {
    let is_leftover = request.is_leftover;
    let onward = match apply::stage_in::onward::weigh_onward(state, id, finish) {
        Ok(onward) => onward,
        Err(reason) => return refuse_here(state, id, request, reason, out),
    };
    // Consecutive requests of one user mostly have equal wishes.
    let latest = state.requests.iter().rev().take(ALIKE_MAX);
    request.wishes.share(latest.map(|(_, other)| &other.wishes));
    // It may have waited for a plan meanwhile.
    request.uncommon.drained = decide::drain::drained_lanes(state, &request);
    request.finish = finish.map(|finish| Forecast {
        p10: finish,
        p50: finish,
        p90: finish,
    });
    for (place, lane) in request.lanes.iter().enumerate() {
        let depot = state.depots.get(&lane.depot);
        let is_live = depot.is_some_and(Depot::is_expected);
        request.replica.set_live(place, is_live);
    }
    for (place, lane) in request.lanes.iter_mut().enumerate() {
        lane.is_active &= request.uncommon.drained >> place & 1 == 0;
    }
    let mut left = apply::completion::left_for_newcomers(state);
    if !is_leftover {
        let load = decide::candidates::promised_load(state, &request, &left);
        left.promise(&load, request.aim());
    }
    state.promised = Some(left);
    request.account = Account::open(request.spec.deadline, finish);
    state.requests.insert(id, request);
    apply::push::offers::sort_by_level(state, id);
    apply::delivery::begin_delivery(state, id);
    admit(state, id, reason, is_leftover, out);
    if let Some(onward) = onward {
        apply::stage_in::onward::take_onward(state, id, onward, out);
    }
}

/// Refuses a request whose depots would be in time, but not the address to which it goes on.
fn refuse_here(
    state: &mut State,
    id: RequestId,
    mut request: Request,
    reason: Reason,
    out: &mut Outbox,
) {
    request.state = RequestState::Refused;
    request.close_books();
    state.requests.insert(id, request);
    apply::tell::tell(state, out, Some(id), None, Happening::Refused, reason);
    apply::stage_in::onward::refuse_onward(state, id, out);
}

fn admit(state: &mut State, id: RequestId, reason: Reason, is_leftover: bool, out: &mut Outbox) {
    apply::redundancy::say_code(state, id, out);
    apply::tell::tell(state, out, Some(id), None, Happening::Admitted, reason);
    apply::binding::remember_binding(state, id);
    apply::reduce_redundancy::say_lighter(state, id);
    apply::tuning::remember_optimizer(state, id);
    apply::drains::remember_drained(state, id);
    remember_spares(state, id);
    apply::lent::remember_lent(state, id);
    apply::settle::settle(state, id, out);
    apply::reindex::bring_up_to_date(state);
    apply::completion::look_ahead(state);
    apply::delivery::outlook::look_at_deliveries(state);
    apply::binding::remember_what_binds(state, id);
    if is_leftover {
        apply::risk::say_at_risk(state, id, out);
    }
}
