//! Counter-offers for an infeasible request, beyond a lighter code or a later deadline. They are a
//! depot that was not named, one that is away, another request's slack, or a reservation. Each is
//! tried on what is left for newcomers before it is offered, and the number of trials is bounded.

use alloc::{string::String, vec::Vec};
use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, DepotId, RequestId, Timestamp};

use crate::{
    contract::WouldBuy,
    decide, forecast, state,
    state::completion::Promised,
    state::completion::belief::Belief,
    state::{Request, State},
};

/// Most trials for one refusal: each asks what the last step of an admission asks.
const TRIALS_MAX: u32 = 64;

/// Most offers of one kind: a person reads all of them.
pub(crate) const OFFERS_MAX: usize = 2;

/// Most depots that were not named and are tried, alone or together.
const NAMED_MAX: usize = 8;

/// Most other requests whose slack is tried.
const OTHERS_MAX: usize = 3;

/// Most open requests at which others' slack is tried: each trial visits all of them.
const MOVING_MAX: usize = 64;

/// Most links to depots on which a reservation is tried.
const LINKS_MAX: usize = 2;

/// Reservations offered, as powers of two: from 2^16 to 2^50 bytes/s, to a sixteenth.
pub(crate) const RATE_BITS: core::ops::RangeInclusive<u32> = 16..=50;

const RATE_STEPS: u64 = 16;

/// Delays offered for another deadline, in round minutes.
pub(crate) const LATER_MIN: [u64; 9] = [5, 10, 20, 30, 60, 120, 240, 480, 1440];

/// State of the search for offers for one refusal.
pub(crate) struct Bargain<'a> {
    pub(crate) request: &'a Request,
    pub(crate) left: &'a Promised,
    pub(crate) trials: u32,
}

/// Returns when the request would be safe with what is left, if that is in time.
pub(crate) fn try_offer(
    state: &State,
    bargain: &mut Bargain<'_>,
    request: &Request,
    left: &Promised,
) -> Option<Timestamp> {
    if bargain.trials >= TRIALS_MAX {
        return None;
    }
    let mut paid = None;
    if request.wishes.budget_micro_usd.is_some() {
        let paid = paid.insert(request.clone());
        if !decide::budget::spend_within_budget(state, paid) {
            return None;
        }
    }
    let request = paid.as_ref().unwrap_or(request);
    if decide::admission::find_flaw(state, request).is_some() {
        return None;
    }
    bargain.trials += 1;
    decide::admission::try_hopeful(state, request, left)
}

/// Returns the smallest limit on its own rate with which the request is in time, if that limit
/// is the obstacle.
pub(crate) fn offer_limit(state: &State, bargain: &mut Bargain<'_>) -> Option<WouldBuy> {
    let request = bargain.request;
    let limit = request.wishes.rate_max?;
    let mut trial = request.clone();
    let mut finish = None;
    let rate = least(1 << RATE_BITS.end(), |rate| {
        trial.wishes.rate_max = Some(limit.max(rate));
        let found = try_offer(state, bargain, &trial, bargain.left);
        finish = found.or(finish);
        found.is_some()
    })?;
    let finish = finish?;
    Some(WouldBuy::HigherLimit { rate, finish })
}

/// Returns depots that were not named: the cheapest and fastest of those that suffice alone,
/// else the fewest that suffice together.
pub(crate) fn offer_named(state: &State, bargain: &mut Bargain<'_>) -> Vec<WouldBuy> {
    let (request, left) = (bargain.request, bargain.left);
    let unnamed = state.depots.iter().filter(|(id, depot)| {
        let is_named = request.lanes.iter().any(|lane| lane.depot == **id);
        let is_for_it = depot.is_for(&request.wishes.owner);
        !is_named && is_for_it && left.places.contains_key(*id) && depot.free > Bytes::ZERO
    });
    let mut ranked: Vec<_> = unnamed
        .map(|(id, depot)| {
            let price = decide::prices::price(state, request, depot);
            let rate = core::cmp::Reverse(depot.link.rates.p50);
            (depot.terms.is_landmark, price, rate, *id)
        })
        .collect();
    ranked.sort_unstable();
    let room = Request::LANES_MAX.saturating_sub(request.lanes.len());
    ranked.truncate(NAMED_MAX.min(room));
    let ids: Vec<DepotId> = ranked.iter().map(|(_, _, _, id)| *id).collect();
    let mut offers = Vec::new();
    for &id in &ids {
        let trial = with_depots(state, request, &[id]);
        if let Some(finish) = try_offer(state, bargain, &trial, left) {
            let names = alloc::vec![state::names::name_of(state, id)];
            offers.push(WouldBuy::NamedDepots { names, finish });
        }
        if offers.len() == OFFERS_MAX {
            return offers;
        }
    }
    for count in 2..=ids.len() {
        if !offers.is_empty() {
            break;
        }
        let trial = with_depots(state, request, &ids[..count]);
        if let Some(finish) = try_offer(state, bargain, &trial, left) {
            let names = ids[..count]
                .iter()
                .map(|id| state::names::name_of(state, *id))
                .collect();
            offers.push(WouldBuy::NamedDepots { names, finish });
        }
    }
    offers
}

/// Returns the request with more depots named; its stored fragments are ignored.
pub(crate) fn with_depots(state: &State, request: &Request, more: &[DepotId]) -> Request {
    let mut spec = request.spec.clone();
    spec.via.extend_from_slice(more);
    let bytes = core::mem::replace(&mut spec.bytes, Bytes::ZERO);
    let (method, wishes) = (request.method, (*request.wishes).clone());
    let mut trial = Request::new(
        spec,
        method,
        wishes,
        request.uncommon.pinned.clone(),
        state.now,
    );
    trial.spec.bytes = bytes;
    trial.set_kin(state::failure_domain::kin(state, &trial));
    trial
}

/// Returns named depots whose hours are the obstacle.
pub(crate) fn offer_hours(state: &State, bargain: &mut Bargain<'_>) -> Vec<WouldBuy> {
    let (request, until) = (bargain.request, bargain.request.spec.deadline);
    let mut offers = Vec::new();
    for lane in &request.lanes {
        let Some(depot) = state.depots.get(&lane.depot) else {
            continue;
        };
        let closes = depot.terms.windows.next_change(state.now);
        let is_closed = !depot.is_within_hours(state.now);
        if !is_closed && closes.is_none_or(|closes| closes >= until) {
            continue;
        }
        let mut left = bargain.left.clone();
        left.open(
            lane.depot,
            depot,
            forecast::completion::spread::spread(state),
            (state.now, until),
        );
        let Some(finish) = try_offer(state, bargain, request, &left) else {
            continue;
        };
        let name = depot.name.clone();
        offers.push(WouldBuy::DepotHours { name, finish });
        if offers.len() == OFFERS_MAX {
            break;
        }
    }
    offers
}

/// Returns rate on an offered circuit: the least on the cheapest that would suffice.
pub(crate) fn offer_circuit(state: &State, bargain: &Bargain<'_>) -> Option<WouldBuy> {
    let mut offered: Vec<_> = state.circuits.offered.values().collect();
    offered.sort_by_key(|circuit| circuit.terms.hour_micro_usd);
    offered.truncate(LINKS_MAX);
    let (request, left) = (bargain.request, bargain.left);
    let mut found = offered.into_iter().filter_map(|circuit| {
        let (rate, finish, from, _) =
            decide::circuits::bid::least_for(state, request, left, circuit)?;
        let name = circuit.terms.name.clone();
        Some(WouldBuy::Circuit {
            name,
            rate,
            from,
            finish,
        })
    });
    found.next()
}

/// Returns rate reserved from now until the deadline, on the centre's uplink or on the link to
/// a named depot.
pub(crate) fn offer_reservations(state: &State, bargain: &mut Bargain<'_>) -> Vec<WouldBuy> {
    let (request, until) = (bargain.request, bargain.request.spec.deadline);
    let named = request.lanes.iter().map(|lane| lane.depot);
    let mut links: Vec<_> = named
        .filter(|id| bargain.left.places.contains_key(id))
        .filter_map(|id| Some((id, state.depots.get(&id)?)))
        .map(|(id, depot)| (core::cmp::Reverse(depot.link.rates.p50), id))
        .collect();
    links.sort_unstable();
    links.truncate(LINKS_MAX);
    let mut targets: Vec<Option<DepotId>> = Vec::new();
    targets.extend(state.settings.egress.map(|_| None));
    targets.extend(links.into_iter().map(|(_, id)| Some(id)));
    let mut offers = Vec::new();
    for target in targets {
        let most = reservable(state, target);
        let Some(rate) = least_rate(state, bargain, target, most) else {
            continue;
        };
        offers.push(WouldBuy::Reservation {
            on: target.map_or_else(String::new, |id| state::names::name_of(state, id)),
            rate,
            from: state.now,
            until,
        });
        break;
    }
    offers
}

/// Returns the most that a reservation can add: a depot accepts no more than its owner lends.
fn reservable(state: &State, target: Option<DepotId>) -> u64 {
    let most = 1 << RATE_BITS.end();
    let depot = target.and_then(|id| state.depots.get(&id));
    depot.map_or(most, |depot| {
        let advert = depot.link.advert().map_or(most, ByteRate::get);
        advert.saturating_sub(
            Belief::Hopeful
                .rate(depot, forecast::completion::spread::spread(state))
                .get(),
        )
    })
}

/// Returns the least rate that suffices when reserved, up to `most`.
fn least_rate(
    state: &State,
    bargain: &mut Bargain<'_>,
    target: Option<DepotId>,
    most: u64,
) -> Option<ByteRate> {
    let until = bargain.request.spec.deadline;
    least(most, |rate| {
        let mut left = bargain.left.clone();
        left.reserve(target, state.now, until, rate);
        let request = bargain.request;
        try_offer(state, bargain, request, &left).is_some()
    })
}

/// Returns another request on the same depots whose deadline, if it were later, would leave
/// enough.
pub(crate) fn offer_slack(state: &State, bargain: &mut Bargain<'_>) -> Option<WouldBuy> {
    if state.index.moving() > MOVING_MAX {
        return None;
    }
    let request = bargain.request;
    let mut others: Vec<(core::cmp::Reverse<Bytes>, RequestId)> = state
        .index
        .after(None)
        .filter_map(|urgency| Some((urgency.request, state.requests.get(&urgency.request)?)))
        .filter(|(_, other)| !other.is_leftover && shares_depot(request, other))
        .map(|(id, other)| (core::cmp::Reverse(other.replica.missing_bytes()), id))
        .collect();
    others.sort_unstable();
    others.truncate(OTHERS_MAX);
    let mut best: Option<(Duration, RequestId, Timestamp)> = None;
    for (_, id) in others {
        let Some(deadline) = state.requests.get(&id).map(|other| other.spec.deadline) else {
            continue;
        };
        let later = least_later(&LATER_MIN, |later| {
            let left = forecast::completion::left_with(state, id, deadline + later);
            try_offer(state, bargain, request, &left).is_some()
        });
        let Some(later) = later else { continue };
        if best.is_none_or(|(least, _, _)| later < least) {
            best = Some((later, id, deadline + later));
        }
    }
    best.map(|(later, request, deadline)| WouldBuy::OthersSlack {
        request,
        later,
        deadline,
    })
}

/// Returns the least time in minutes, in order, that holds.
pub(crate) fn least_later(
    minutes: &[u64],
    mut holds: impl FnMut(Duration) -> bool,
) -> Option<Duration> {
    let later = |place: usize| Duration::from_secs(minutes[place] * 60);
    let (mut low, mut high) = (0, minutes.len().checked_sub(1)?);
    if !holds(later(high)) {
        return None;
    }
    while low < high {
        let middle = usize::midpoint(low, high);
        if holds(later(middle)) {
            high = middle
        } else {
            low = middle + 1
        }
    }
    Some(later(high))
}

/// Returns the least rate that holds, up to `most` bytes a second: first its power of two, then in
/// sixteenths of that.
pub(crate) fn least(most: u64, mut holds: impl FnMut(ByteRate) -> bool) -> Option<ByteRate> {
    let mut holds = |rate: u64| holds(ByteRate::new(rate));
    if !holds(most) {
        return None;
    }
    let (mut low, mut high) = (*RATE_BITS.start(), most.ilog2());
    while low < high {
        let middle = u32::midpoint(low, high);
        if holds(1 << middle) {
            high = middle
        } else {
            low = middle + 1
        }
    }
    let step = (1u64 << low) / 2 / RATE_STEPS;
    let (mut low_step, mut high_step) = (RATE_STEPS, 2 * RATE_STEPS);
    while low_step < high_step {
        let middle = u64::midpoint(low_step, high_step);
        if holds((middle * step).min(most)) {
            high_step = middle
        } else {
            low_step = middle + 1
        }
    }
    let rate = (low_step * step).min(most);
    // Only tried offers are made; trials may have run out.
    holds(rate).then(|| ByteRate::new(rate))
}

/// Returns whether another request may use a depot that this one may.
fn shares_depot(request: &Request, other: &Request) -> bool {
    let mut lanes = request.lanes.iter();
    lanes.any(|lane| other.lane_of(lane.depot).is_some())
}

/// Ranks the effort of an offer, the least first. The ranks: type a name, give up some redundancy,
/// ask an owner, ask another user, ask a network operator, find unknown depots, or wait.
pub(crate) fn effort(offer: &WouldBuy) -> u8 {
    match offer {
        WouldBuy::NamedDepots { .. } | WouldBuy::HigherLimit { .. } => 0,
        WouldBuy::DestinationBack { .. } => 3,
        WouldBuy::WithoutDestination { .. } => 6,
        WouldBuy::LighterCode { .. } | WouldBuy::Budget { .. } => 1,
        WouldBuy::DepotHours { .. } => 2,
        WouldBuy::DepotBack { .. } | WouldBuy::SourceBack { .. } => 3,
        WouldBuy::OthersSlack { .. } => 4,
        WouldBuy::Circuit { .. } => 2,
        WouldBuy::Reservation { .. } => 5,
        WouldBuy::MoreDepots { .. } | WouldBuy::MoreRate { .. } | WouldBuy::MoreSpace { .. } => 6,
        WouldBuy::Later { .. } | WouldBuy::DeliveredLater { .. } => 7,
    }
}
