//! Budget of a request (`docs/algorithms/wishes.md`): which depots it pays, whatever share of the
//! request each of them gets. Nothing begins that it does not pay.

use alloc::vec::Vec;
use posthaste_types::{Bytes, DepotId, FragmentIndex, Timestamp};

use crate::{
    contract::Reason,
    decide,
    decide::verdict::Verdict,
    state,
    state::completion::Promised,
    state::{Depot, Request, State},
};

/// Data still to be sent, in pieces of one size.
pub(crate) struct Need {
    /// Fragments.
    pub(crate) fragments: u64,
    /// Most fragments that each lane can take.
    pub(crate) rooms: Vec<u64>,
    /// Chunks, if they go whole.
    pub(crate) chunks: u64,
}

/// Highest costs of a request on the cheapest depots, for each sufficient number of them, and whole
/// at the cheapest destinations; each with its lanes.
pub(crate) struct Prices {
    pub(crate) staged: Vec<(u64, u64)>,
    pub(crate) whole: Vec<(u64, u64)>,
}

impl Prices {
    /// Returns the lanes that can be used with so much money, as a mask: as many as it pays
    /// whichever of them gets most. None if it pays for no way at all.
    pub(crate) fn lanes(&self, micro_usd: u64) -> u64 {
        let is_paid = |(cost, _): &&(u64, u64)| *cost <= micro_usd;
        let staged = self.staged.iter().rev().find(is_paid);
        let whole = self.whole.iter().rev().find(is_paid);
        staged
            .into_iter()
            .chain(whole)
            .fold(0, |all, (_, lanes)| all | lanes)
    }

    /// Returns every amount of money that allows one way more, in order.
    pub(crate) fn levels(&self) -> Vec<u64> {
        let mut levels: Vec<u64> = self
            .staged
            .iter()
            .chain(&self.whole)
            .map(|(cost, _)| *cost)
            .collect();
        levels.sort_unstable();
        levels.dedup();
        levels
    }
}

/// Weighs a newcomer on the depots its budget pays. If those don't suffice, returns the budget
/// with which it would be on time.
pub(crate) fn weigh_within(state: &State, request: &mut Request, left: &Promised) -> Verdict {
    let budget = request.wishes.budget_micro_usd;
    let Some(budget) = budget.filter(|_| request.spec.chunks() > 0) else {
        return decide::admission::weigh(state, request, left);
    };
    request.uncommon.dear = 0;
    if let Some(flaw) = decide::admission::find_flaw(state, request) {
        return Verdict::Refuse(flaw);
    }
    let prices = prices(state, request, &need_of_newcomer(request), |lane| {
        state::usable::may_use(state, request, lane)
    });
    let levels = prices.levels();
    let mut within = None;
    if levels.first().is_some_and(|least| *least <= budget) {
        spend_at_most(state, request, &prices, budget);
        let verdict = decide::admission::weigh(state, request, left);
        if matches!(verdict, Verdict::Admit { .. }) {
            return verdict;
        }
        within = Some(verdict);
    }
    for &needed in levels.iter().filter(|level| **level > budget) {
        spend_at_most(state, request, &prices, needed);
        if let Verdict::Admit {
            finish,
            is_leftover: false,
            ..
        } = decide::admission::weigh(state, request, left)
        {
            return Verdict::Refuse(Reason::OverBudget {
                budget,
                needed,
                finish,
            });
        }
    }
    request.uncommon.dear = 0;
    within.unwrap_or_else(|| match levels.first() {
        Some(&needed) => Verdict::Refuse(Reason::OverBudget {
            budget,
            needed,
            finish: None,
        }),
        None => decide::admission::weigh(state, request, left),
    })
}

/// Returns whether a trial request can be paid at all if it has a budget, and bars the other
/// lanes.
pub(crate) fn spend_within_budget(state: &State, request: &mut Request) -> bool {
    let Some(budget) = request.wishes.budget_micro_usd else {
        return true;
    };
    request.uncommon.dear = 0;
    let prices = prices(state, request, &need_of_newcomer(request), |lane| {
        state::usable::may_use(state, request, lane)
    });
    spend_at_most(state, request, &prices, budget);
    prices.lanes(budget) != 0
}

fn spend_at_most(state: &State, request: &mut Request, prices: &Prices, micro_usd: u64) {
    request.uncommon.dear = !prices.lanes(micro_usd);
    request.set_kin(state::failure_domain::kin(state, request));
}

/// Returns the part of a budget that nothing else will need, whatever way the request goes;
/// endless without a budget.
pub(crate) fn money_to_spare(state: &State, request: &Request) -> u64 {
    if request.wishes.budget_micro_usd.is_none() {
        return u64::MAX;
    }
    let prices = prices(state, request, &need_of(request), |lane| {
        state::usable::may_use(state, request, lane)
    });
    let dearest = prices.levels().last().copied().unwrap_or(0);
    request.money_left().saturating_sub(dearest)
}

/// Returns the cost of the next piece to a lane: a fragment, or a chunk to the destination.
pub(crate) fn piece(state: &State, request: &Request, lane: usize) -> Option<u64> {
    let depot = state.depots.get(&request.lanes[lane].depot)?;
    let chunk = request.spec.chunk_size;
    let bytes = match request.portion(lane) {
        FragmentIndex::WHOLE => chunk,
        _ => request.spec.code.fragment_size(chunk),
    };
    let keeps = request.keeps(state.now).as_secs();
    Some(depot.cost(bytes, keeps))
}

/// Returns the cost of data that goes from depots to another: sending and storing it there, and
/// a share of it from each.
pub(crate) fn price_between(
    state: &State,
    from: &[DepotId],
    to: DepotId,
    bytes: Bytes,
    share: Bytes,
) -> u64 {
    let taker = state.depots.get(&to);
    let stored = taker.map_or(0, |taker| taker.cost_of_sending(bytes));
    from.iter().fold(stored, |sum, giver| {
        let giver = state.depots.get(giver);
        let read = giver.map_or(0, |giver| giver.cost_of_reading(share, taker));
        sum.saturating_add(read)
    })
}

pub(crate) fn prices(
    state: &State,
    request: &Request,
    need: &Need,
    may: impl Fn(usize) -> bool,
) -> Prices {
    let lanes = request.depot_lanes().filter(|&lane| may(lane));
    let mut lanes: Vec<(u64, usize)> = lanes
        .filter_map(|lane| Some((piece(state, request, lane)?, lane)))
        .collect();
    // Pinned depots are used whatever they cost, and filled.
    let is_pinned = |&(_, lane): &(u64, usize)| request.is_pinned(lane);
    let pinned: Vec<(u64, usize)> = lanes.extract_if(.., |lane| is_pinned(lane)).collect();
    let has_pinned = pinned.len() == request.pinned_lanes().count_ones() as usize;
    lanes.sort_unstable();
    let fixed = pinned.iter().fold(0u64, |sum, (cost, lane)| {
        sum.saturating_add(cost.saturating_mul(need.rooms[*lane]))
    });
    let filled: u64 = pinned.iter().map(|(_, lane)| need.rooms[*lane]).sum();
    let fragments = need.fragments.saturating_sub(filled);
    let fixed_mask = pinned.iter().fold(0, |mask, (_, lane)| mask | 1 << lane);
    let least = usize::from(request.spec.code.total()).saturating_sub(pinned.len());
    let prefixes = (least..=lanes.len()).map(|count| &lanes[..count]);
    let prefixes = prefixes.filter(|_| has_pinned);
    let staged = prefixes.filter_map(|chosen| {
        let mask = chosen
            .iter()
            .fold(fixed_mask, |mask, (_, lane)| mask | 1 << lane);
        let rest = at_worst(chosen, fragments, &need.rooms)?;
        Some((fixed.saturating_add(rest), mask))
    });
    let ends = request.destinations().filter(|&lane| may(lane));
    let mut ends: Vec<(u64, usize)> = ends
        .filter_map(|lane| Some((piece(state, request, lane)?, lane)))
        .collect();
    ends.sort_unstable();
    let whole = ends.iter().scan(0u64, |mask, &(cost, lane)| {
        *mask |= 1 << lane;
        let cost = cost.saturating_mul(need.chunks);
        Some((fixed.saturating_add(cost), *mask | fixed_mask))
    });
    let whole = whole.filter(|_| has_pinned && request.is_safe_whole());
    Prices {
        staged: staged.collect(),
        whole: whole.collect(),
    }
}

impl Request {
    /// Returns the cost of sending bytes to the depot and keeping them there, in millionths of a
    /// dollar.
    pub(crate) fn price(&self, depot: &Depot, bytes: Bytes, now: Timestamp) -> u64 {
        let keeps = self.keeps(now).as_secs();
        depot.cost(bytes, keeps)
    }

    /// Returns whether the lane may be used, and what is left of the budget pays bytes there.
    pub(crate) fn can_pay(&self, lane: usize, depot: &Depot, bytes: Bytes, now: Timestamp) -> bool {
        let is_free = self.wishes.budget_micro_usd.is_none();
        !self.is_barred(lane) && (is_free || self.price(depot, bytes, now) <= self.money_left())
    }

    /// Counts a begun send as spent, with keeping it to the end. Returns the share of keeping it.
    pub(crate) fn pay(&mut self, depot: &Depot, bytes: Bytes, now: Timestamp) -> u64 {
        let all = self.price(depot, bytes, now);
        self.spent_micro_usd = self.spent_micro_usd.saturating_add(all);
        all.saturating_sub(depot.cost_of_sending(bytes))
    }
}

/// Returns the cost of the needed fragments if the dearest of those lanes got most; none if these
/// lanes can't take all. The cheapest come first.
fn at_worst(lanes: &[(u64, usize)], fragments: u64, rooms: &[u64]) -> Option<u64> {
    let (mut left, mut sum) = (fragments, 0u64);
    for (cost, lane) in lanes.iter().rev() {
        let taken = rooms[*lane].min(left);
        sum = sum.saturating_add(cost.saturating_mul(taken));
        left -= taken;
    }
    (left == 0).then_some(sum)
}

fn need_of_newcomer(request: &Request) -> Need {
    let chunks = u64::from(request.spec.chunks());
    Need {
        fragments: chunks * u64::from(request.spec.code.total()),
        rooms: alloc::vec![chunks; request.lanes.len()],
        chunks,
    }
}

/// Returns what a request lacks that is not on its way: flights are paid.
pub(crate) fn need_of(request: &Request) -> Need {
    let lanes = request.lanes.iter().enumerate();
    let rooms = lanes.map(|(place, lane)| {
        let room = u64::from(request.replica.room_count(place));
        room.saturating_sub(u64::from(lane.in_flight))
    });
    let whole = request.destinations();
    let whole: u64 = whole
        .map(|lane| u64::from(request.lanes[lane].in_flight))
        .sum();
    let coded: u64 = request
        .depot_lanes()
        .map(|lane| u64::from(request.lanes[lane].in_flight))
        .sum();
    let pinned = u64::from(request.pinned_lanes().count_ones());
    let spared = u64::from(request.spec.code.total()).saturating_sub(pinned);
    let flying = coded + whole * spared;
    let unsafe_chunks = u64::from(request.replica.chunks() - request.replica.safe());
    Need {
        fragments: request.replica.missing().saturating_sub(flying),
        rooms: rooms.collect(),
        chunks: unsafe_chunks.saturating_sub(whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_dearest_lanes_count_as_full() {
        let rooms = [10, 10, 10, 10];
        let lanes = [(1, 0), (2, 2), (5, 1), (9, 3)];
        assert_eq!(at_worst(&lanes[..1], 20, &rooms), None);
        assert_eq!(at_worst(&lanes[..2], 20, &rooms), Some(30));
        assert_eq!(at_worst(&lanes[..3], 20, &rooms), Some(70));
        assert_eq!(at_worst(&lanes, 20, &rooms), Some(140));
    }

    proptest! {
        /// Checks that no spread of what is needed over the lanes costs more.
        #[test]
        fn no_way_to_spread_it_costs_more(
            lanes in proptest::collection::vec((0u64..50, 0u64..30), 1..6),
            shares in proptest::collection::vec(0u64..30, 6),
        ) {
            let mut costs: Vec<(u64, usize)> =
                lanes.iter().enumerate().map(|(lane, (cost, _))| (*cost, lane)).collect();
            costs.sort_unstable();
            let rooms: Vec<u64> = lanes.iter().map(|(_, room)| *room).collect();
            let placed: Vec<u64> = rooms.iter().zip(&shares).map(|(room, share)| *room.min(share)).collect();
            let fragments = placed.iter().sum();
            let cost: u64 = placed.iter().zip(&lanes).map(|(count, (cost, _))| count * cost).sum();
            prop_assert!(at_worst(&costs, fragments, &rooms).unwrap() >= cost);
        }
    }
}
