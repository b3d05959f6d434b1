//! Reviews what a request may still spend.

use posthaste_types::RequestId;

use crate::{decide, decide::budget::need_of, state::State};

/// Re-evaluates which lanes the rest of a budget pays, after failed sends, lost depots or new
/// prices. If it pays nothing any more, no finish is in sight.
pub(crate) fn review_purse(state: &mut State, id: RequestId) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let Some(budget) = request
        .wishes
        .budget_micro_usd
        .filter(|_| request.is_moving())
    else {
        return;
    };
    let left = budget.saturating_sub(request.spent_micro_usd);
    let need = need_of(request);
    if need.fragments == 0 && need.chunks == 0 {
        return;
    }
    let is_there = |lane: usize| {
        let depot = state.depots.get(&request.lanes[lane].depot);
        let is_barred = (request.uncommon.barred | request.uncommon.drained) >> lane & 1 == 1;
        !is_barred && depot.is_some_and(|depot| depot.is_expected())
    };
    let prices = decide::budget::prices(state, request, &need, is_there);
    let cheapest = prices.staged.first().or(prices.whole.first());
    let lanes = match prices.lanes(left) {
        // If not all of it can be paid, as much as can be.
        0 => cheapest.map_or(0, |(_, lanes)| *lanes),
        lanes => lanes,
    };
    let pays = |lane: usize| {
        lanes >> lane & 1 == 1
            && decide::budget::piece(state, request, lane).is_some_and(|cost| cost <= left)
    };
    let is_stuck = cheapest.is_some() && !(0..request.lanes.len()).any(pays);
    let is_stuck = is_stuck && request.lanes.iter().all(|lane| lane.in_flight == 0);
    // If too few depots are up, that is the obstacle.
    let dear = match (is_stuck, cheapest) {
        (true, _) => u64::MAX,
        (false, None) => request.uncommon.dear,
        (false, Some(_)) => !lanes,
    };
    if (dear, is_stuck) != (request.uncommon.dear, request.uncommon.is_broke)
        && let Some(request) = state.requests.get_mut(&id)
    {
        (request.uncommon.dear, request.uncommon.is_broke) = (dear, is_stuck);
        request.replica.unpark();
    }
}
