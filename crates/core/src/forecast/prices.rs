//! Costs of bytes at a depot.

use posthaste_types::Bytes;

use crate::{
    contract::Cost,
    state::{Request, Route, State},
};

/// Month of storage, as stores bill it: 730 hours.
const MONTH_S: u64 = 730 * 3600;

/// Returns the cost of the request: stored data where it lies, and missing data where it is
/// fed, by the forecast of each depot.
pub(crate) fn cost(state: &State, request: &Request) -> Cost {
    let terms = |lane: usize| {
        let depot = state.depots.get(&request.lanes[lane].depot)?;
        Some((depot, depot.link.rates.p50.get()))
    };
    let fed = |lane: usize| request.lanes[lane].is_active && request.is_on_route(lane);
    let lanes = 0..request.lanes.len();
    let rates = lanes.clone().filter(|&lane| fed(lane)).filter_map(terms);
    let all: u64 = rates
        .fold(0u64, |sum, (_, rate)| sum.saturating_add(rate))
        .max(1);
    let missing = if request.is_moving() {
        left(request)
    } else {
        Bytes::ZERO
    };
    let to = request.lead_depot().and_then(|to| state.depots.get(&to));
    let places = to.map(|to| (to.name.as_str(), to.terms.domain.as_str()));
    let (mut cost, mut read) = (Cost::default(), 0u64);
    for lane in lanes {
        let Some((depot, rate)) = terms(lane) else {
            continue;
        };
        let share = u128::from(missing.get()) * u128::from(rate) / u128::from(all);
        let share = if fed(lane) {
            u64::try_from(share).unwrap_or(u64::MAX)
        } else {
            0
        };
        let bytes = request.replica.stored(lane).1 + Bytes::new(share);
        let month = depot.terms.cost(bytes, MONTH_S).micro_usd();
        let send = depot.terms.cost(bytes, 0).micro_usd();
        let requests = bytes.pieces(request.piece(lane).max(Bytes::new(1)));
        let puts = depot.prices.put().micro_usd().saturating_mul(requests);
        cost.send_micro_usd = cost
            .send_micro_usd
            .saturating_add(send)
            .saturating_add(puts);
        cost.month_micro_usd = cost.month_micro_usd.saturating_add(month - send);
        if !request.is_destination(lane) {
            let gets = depot.prices.get().micro_usd().saturating_mul(requests);
            let leaves = depot.prices.egress(places).of(bytes).micro_usd();
            read = read.saturating_add(gets).saturating_add(leaves);
        }
    }
    // Reading takes as many fragments of a chunk as rebuild it.
    let (data, total) = (request.spec.code.data(), request.spec.code.total().max(1));
    let read = (u128::from(read) * u128::from(data)).div_ceil(u128::from(total));
    cost.read_micro_usd = u64::try_from(read).unwrap_or(u64::MAX);
    cost
}

/// Returns what still has to be sent of a request, by its route.
pub(crate) fn left(request: &Request) -> Bytes {
    match request.route {
        Route::Direct => request.replica.unsafe_bytes(),
        Route::Staged => request.replica.missing_bytes(),
    }
}
