//! Depots that come and go (`docs/algorithms/greedy-planner.md`). A request fed to such depots is
//! fed to more than it needs, so that it is on time without the fastest of them.

use alloc::vec::Vec;
use core::cmp::Reverse;
use posthaste_plan::Proposal;
use posthaste_types::{RequestId, Timestamp};

use crate::{
    decide,
    decide::verdict::Way,
    state,
    state::{Request, State},
};

/// Share of the time left in which a request must be safe without one of its depots: a tenth.
const EARLY: u32 = 10;

/// Adds depots to those chosen for a newcomer until it is on time without the fastest that
/// comes and goes. Adds all if that does not suffice.
pub(crate) fn with_spares(
    state: &State,
    request: &Request,
    way: &Way,
    chosen: Vec<usize>,
    finish: Timestamp,
) -> (Vec<usize>, Timestamp) {
    let near = way.lanes.iter();
    let near = near.filter(|&&lane| state::usable::level_of(state, request, lane) == 1);
    let near = near.count().max(chosen.len());
    let all = &way.proposal.candidates[..near];
    let least = usize::from(way.proposal.code.total());
    let mut count = chosen.len();
    while count < all.len() && !survives_on(state, request, way, count) {
        count = (count + 1).max(least).min(all.len());
    }
    let more = &all[..count];
    let then = way.scene.finish(&way.proposal, more);
    match then.filter(|&then| count > chosen.len() && then <= request.aim()) {
        Some(then) => (more.to_vec(), then),
        None => (chosen, finish),
    }
}

/// Returns when a request must be safe without a depot that may go: its fragments must be sent
/// again.
pub(crate) fn early(state: &State, request: &Request) -> Timestamp {
    state.now + request.aim().since(state.now) / EARLY
}

/// Returns whether a newcomer on the first so many of its depots would be on time without the
/// fastest that comes and goes.
fn survives_on(state: &State, request: &Request, way: &Way, count: usize) -> bool {
    let lead = way.proposal.destination.and(request.lead());
    let fed = way.lanes[..count].iter().copied().chain(lead);
    let Some(lost) = fastest_shaky(state, request, fed) else {
        return true;
    };
    let left = (0..count).filter(|&place| way.lanes[place] != lost);
    let left: Vec<usize> = left.collect();
    let without = Proposal {
        destination: way.proposal.destination.filter(|_| lead != Some(lost)),
        ..way.proposal.clone()
    };
    let is_enough = left.len() >= usize::from(without.code.total());
    (without.destination.is_some() || is_enough)
        && way.scene.holds(&without, &left, early(state, request))
}

/// Returns the fastest of these lanes whose depot is up and may go. It was lost recently, or
/// others were and it has not been up for long.
fn fastest_shaky(
    state: &State,
    request: &Request,
    lanes: impl Iterator<Item = usize>,
) -> Option<usize> {
    let shaky = lanes.filter_map(|lane| {
        let depot = state.depots.get(&request.lanes[lane].depot)?;
        let may_go = depot.is_shaky(state.now) || state.is_restless && depot.is_new(state.now);
        (may_go && !depot.is_down()).then_some((Reverse(depot.link.rates.p50), lane))
    });
    shaky.min().map(|(_, lane)| lane)
}

/// Returns the fastest depot fed by a request that comes and goes.
pub(crate) fn fastest_shaky_fed(state: &State, request: &Request) -> Option<usize> {
    let fed = request.depot_lanes();
    let fed = fed.filter(|&lane| request.lanes[lane].is_active);
    fastest_shaky(state, request, fed.chain(request.lead()))
}

/// Returns whether a running request is fed to a depot that comes and goes; if so, it is not
/// fed to fewer.
pub(crate) fn is_fed_shaky(state: &State, id: RequestId) -> bool {
    let request = state.requests.get(&id);
    request.is_some_and(|request| fastest_shaky_fed(state, request).is_some())
}

/// Returns whether the next depot in reserve is near the centre: those nearer to the
/// destination are fed by others.
pub(crate) fn has_spare(state: &State, request: &Request) -> bool {
    let next = decide::fan_out::next_in_reserve(state, request);
    next.is_some_and(|lane| state::usable::level_of(state, request, lane) == 1)
}
