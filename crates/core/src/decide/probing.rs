//! Choice of paths to probe (`docs/algorithms/bandwidth-forecast.md`): only one that a request
//! could use, that was not measured recently and that is idle. Probes run one at a time, for a
//! hundredth of what the request sends and pays. Outside its hours a depot is not probed. Transfers
//! show more, so probes fill gaps.

pub(crate) mod crossing;

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_types::{Bytes, DepotId, RequestId, Timestamp};

use crate::{
    contract::GIGABYTE,
    forecast,
    state::{Depot, Request, Route, State},
};

/// Time for which a path is assumed to carry a probe: slow start and three seconds.
pub(crate) const PROBE_SPAN: Duration = Duration::from_secs(5);

/// Time before the end of its hours in which a depot is not probed: no probe takes longer.
const PROBE_SPAN_MAX: Duration = Duration::from_secs(20);

/// Returns what a probe for the request may send, and what it may cost in millionths of a
/// dollar; none if it should send nothing.
pub(crate) fn probe_allowance(state: &State, request: &Request) -> Option<(Bytes, u64)> {
    let settings = &state.settings;
    // A probe goes as fast as it can.
    if request.wishes.rate_max.is_some() {
        return None;
    }
    let left = allowance(request, settings.probe_permille) - request.uncommon.probed;
    if left < settings.probe_bytes_min {
        return None;
    }
    let paid = u64::from(settings.probe_permille)
        * forecast::prices::cost(state, request).send_micro_usd
        / 1000;
    // A budget is for the data.
    let money = match request.wishes.budget_micro_usd {
        Some(_) => 0,
        None => paid.saturating_sub(request.uncommon.probed_micro_usd),
    };
    Some((left, money))
}

/// Returns the path of the request that is most worth a probe, and what that may cost.
pub(crate) fn find_stale(state: &State, id: RequestId) -> Option<(DepotId, Bytes)> {
    let settings = &state.settings;
    let request = state.requests.get(&id)?;
    let comes_in_time = request
        .finish
        .is_none_or(|finish| finish.p50 > state.now + settings.probe_lead);
    let (left, money) = probe_allowance(state, request).filter(|_| comes_in_time)?;
    let stale: Vec<(Option<Timestamp>, DepotId)> = request
        .lanes
        .iter()
        .enumerate()
        .filter(|(lane, _)| is_candidate(request, *lane))
        .filter_map(|(_, lane)| Some((stale_since(state, lane.depot)?, lane.depot)))
        .collect();
    let affordable = stale.into_iter().filter_map(|(since, id)| {
        let depot = state.depots.get(&id)?;
        let most = left.min(for_money(depot, money));
        (most >= settings.probe_bytes_min).then_some((since, id, most))
    });
    // Never measured comes first, then the oldest.
    let (_, depot, most) = affordable.min()?;
    let rate = state.depots.get(&depot)?.link.rates.p90;
    let wanted = rate.volume(PROBE_SPAN).max(settings.probe_bytes_min);
    Some((depot, wanted.min(most).min(settings.probe_bytes_max)))
}

/// Returns when the idle path to the depot was measured last, if that is too long ago.
pub(crate) fn stale_since(state: &State, id: DepotId) -> Option<Option<Timestamp>> {
    let depot = state.depots.get(&id)?;
    let link = &depot.link;
    let measured_at = link.path().measured_at();
    let heard_at = measured_at.max(link.probed_at);
    let is_stale = heard_at.is_none_or(|at| at + state.settings.probe_after <= state.now);
    let is_idle = depot.is_up() && depot.resume_at <= state.now && link.flights == 0;
    let is_free = is_idle && is_open(depot, state.now);
    (is_stale && is_free).then_some(measured_at)
}

/// Returns whether the hours of the depot let a probe begin and end, and its load.
pub(crate) fn is_open(depot: &Depot, now: Timestamp) -> bool {
    depot.is_open(now) && depot.is_open(now + PROBE_SPAN_MAX)
}

/// Returns the bytes of a probe of the depot for so much money.
pub(crate) fn for_money(depot: &Depot, micro_usd: u64) -> Bytes {
    let price = u128::from(depot.terms.send_micro_usd);
    let bytes = u128::from(micro_usd) * u128::from(GIGABYTE.get());
    match bytes.checked_div(price) {
        Some(bytes) => Bytes::new(u64::try_from(bytes).unwrap_or(u64::MAX)),
        None => Bytes::new(u64::MAX),
    }
}

/// Returns whether the request may come to use this lane. A lane that it feeds is measured by that.
fn is_candidate(request: &Request, lane: usize) -> bool {
    let is_fed = request.lanes[lane].is_active && request.is_on_route(lane);
    let is_drained = request.uncommon.drained >> lane & 1 == 1;
    !is_fed && !is_drained && request.lanes[lane].asked_at.is_none()
}

/// Returns the bytes of probes for which the request may pay in all.
fn allowance(request: &Request, permille: u32) -> Bytes {
    let code = request.spec.code;
    let planned = match request.route {
        Route::Direct => u128::from(request.spec.bytes.get()),
        Route::Staged => {
            u128::from(request.spec.bytes.get()) * u128::from(code.total())
                / u128::from(code.data().max(1))
        }
    };
    Bytes::new(u64::try_from(planned * u128::from(permille) / 1000).unwrap_or(u64::MAX))
}
