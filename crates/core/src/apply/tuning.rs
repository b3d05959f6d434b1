//! Tunes the number of sends that are in flight at once.

use alloc::{boxed::Box, format};
use posthaste_plan::tuner::{Bounds, Choice, Method, PathFacts, Stocks, Tuner, optimizer};
use posthaste_types::{Bytes, DepotId, RequestId};

use crate::{
    contract::Reason,
    decide,
    decide::tuning::{AT_ONCE_MIN, BUFFER, CORES, RTT, fragment_size, narrow},
    state,
    state::{State, Tuning},
};

/// Gives each depot that the request feeds an optimizer. The default one waits until the link
/// was measured: until then the window alone decides.
pub(crate) fn begin_tuning(state: &mut State, id: RequestId) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let method = request.method;
    let lacks = |&lane: &usize| {
        let fed = &request.lanes[lane];
        let depot = state.depots.get(&fed.depot);
        let is_known = depot.is_some_and(|depot| {
            depot.is_up() && (method != Method::Auto || depot.link.is_measured())
        });
        fed.tuning.is_none() && fed.is_active && request.is_on_route(lane) && is_known
    };
    let lacking: alloc::vec::Vec<usize> = (0..request.lanes.len()).filter(lacks).collect();
    for lane in lacking {
        begin_lane(state, id, lane);
    }
}

fn begin_lane(state: &mut State, id: RequestId, lane: usize) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let depot = request.lanes[lane].depot;
    let Some(book) = state.depots.get(&depot) else {
        return;
    };
    let fragment = fragment_size(request, lane);
    let window = book.link.window(state.settings.window, &state.settings);
    let opened = narrow(window.get() / fragment.get()).max(2);
    let most = state.settings.window_bytes_max.get() / fragment.get();
    let bounds = Bounds {
        concurrency_min: if request.method == Method::Auto {
            opened.min(AT_ONCE_MIN)
        } else {
            1
        },
        concurrency_max: narrow(most)
            .min(narrow(state.settings.flights_max.into()))
            .min(narrow(state.settings.stripes_max.into()))
            .max(2),
        parallelism_max: 1,
        pipelining_max: 1,
    };
    let facts = PathFacts {
        rtt: RTT,
        bandwidth: book.link.advert(),
        buffer: BUFFER,
        cores: CORES,
        piece: Bytes::ZERO,
    };
    let history = book.best.filter(|_| request.method == Method::Auto);
    let urgency = decide::tuning::urgency(state, request);
    let tuner: Tuner = optimizer(request.method, facts, bounds, history, urgency);
    let mut stocks = decide::tuning::stocks(state, request, lane, &facts);
    if history.is_none() && request.method == Method::Auto {
        // Nothing is known of more at once than the window holds.
        stocks = Stocks::default();
        stocks.add_all(facts.class(fragment), opened.into(), fragment);
    }
    let (tuning, choice) = Tuning::begin(tuner, &stocks, opened, state.now);
    if let Some(request) = state.requests.get_mut(&id) {
        request.lanes[lane].tuning = Some(Box::new(tuning));
    }
    remember_tuned(state, id, depot, &choice);
}

/// Asks the optimizers whose period is over what to do next, and keeps their findings.
pub(crate) fn review_tuning(state: &mut State, id: RequestId) {
    let lanes = state
        .requests
        .get(&id)
        .map_or(0, |request| request.lanes.len());
    for lane in 0..lanes {
        review_lane(state, id, lane);
    }
}

fn review_lane(state: &mut State, id: RequestId, lane: usize) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let depot = request.lanes[lane].depot;
    let facts = PathFacts {
        rtt: RTT,
        bandwidth: state
            .depots
            .get(&depot)
            .and_then(|depot| depot.link.advert()),
        buffer: BUFFER,
        cores: CORES,
        piece: Bytes::ZERO,
    };
    let stocks = decide::tuning::stocks(state, request, lane, &facts);
    let (urgency, now) = (decide::tuning::urgency(state, request), state.now);
    let Some(tuning) = state
        .requests
        .get_mut(&id)
        .and_then(|request| request.lanes[lane].tuning.as_mut())
    else {
        return;
    };
    let before = tuning.at_once();
    let Some(choice) = tuning.next(urgency, &stocks, now) else {
        return;
    };
    let best = tuning.best();
    if let Some(depot) = state.depots.get_mut(&depot) {
        depot.best = best.or(depot.best);
    }
    if choice.setting().concurrency != before || !choice.reason.is_routine() {
        remember_tuned(state, id, depot, &choice);
    }
}

/// Records which optimizer was asked for by name, for `explain`.
pub(crate) fn remember_optimizer(state: &mut State, id: RequestId) {
    let method = state.requests.get(&id).map(|request| request.method);
    if let Some(method) = method.filter(|method| *method != Method::Auto) {
        state::memory::remember(state, id, format!("optimizer {method}"), Reason::Asked);
    }
}

/// Records a choice, for `explain`.
fn remember_tuned(state: &mut State, id: RequestId, depot: DepotId, choice: &Choice) {
    let why = choice.reason;
    let at_once = choice.setting().concurrency;
    let noun = if at_once == 1 {
        "fragment"
    } else {
        "fragments"
    };
    let (what, name) = (
        format!("{at_once} {noun} at once"),
        state::names::name_of(state, depot),
    );
    state::memory::remember_of(state, id, name, at_once.into(), what, Reason::Tuned { why });
}
