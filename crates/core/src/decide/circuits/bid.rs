//! Choice of a reservation: the least rate that keeps the deadline, on the cheapest circuit. It
//! begins as soon as it can be had and lasts no longer than needed.

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_plan::lease;
use posthaste_types::{ByteRate, Bytes, CircuitId, DepotId, RequestId, Timestamp};

use crate::{
    contract::{Reason, Reserve},
    decide,
    decide::verdict::Verdict,
    forecast,
    forecast::completion::raise::Raise,
    state,
    state::completion::{Promised, Sweep},
    state::{Circuit, Request, State, share},
};

/// Most circuits that are tried for one request.
const CANDIDATES_MAX: usize = 8;

/// Margin at the end of a reservation, in hundredths of its length, and the least one: the forecast
/// part may come late.
const MARGIN_PERCENT: u32 = 10;

const MARGIN_LEAST: Duration = Duration::from_secs(10);

/// Reservation to ask for.
pub(crate) struct Bid {
    pub(crate) circuit: CircuitId,
    /// Depots of the request to which it leads.
    pub(crate) depots: Vec<DepotId>,
    pub(crate) rate: ByteRate,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    /// p90 finish without it.
    pub(crate) without: Option<Timestamp>,
    /// p90 finish with it.
    pub(crate) finish: Timestamp,
    /// Cost, in millionths of a dollar.
    pub(crate) cost: u64,
}

impl Bid {
    pub(crate) fn rank(&self) -> (u64, Timestamp, CircuitId) {
        (self.cost, self.finish, self.circuit)
    }
}

/// Returns circuits that may be asked now, the cheapest first.
fn open_circuits(state: &State) -> impl Iterator<Item = (CircuitId, &Circuit)> {
    let offered = state.circuits.offered.iter();
    let open = offered.filter(|(_, circuit)| circuit.not_before <= state.now);
    let mut open: Vec<_> = open.map(|(id, circuit)| (*id, circuit)).collect();
    open.sort_by_key(|(id, circuit)| (circuit.terms.hour_micro_usd, *id));
    open.into_iter()
}

/// Returns depots to which a circuit leads and the request sends; if it sends to none of them,
/// those to which it could send.
fn ends(state: &State, request: &Request, circuit: &Circuit) -> Vec<DepotId> {
    let leads = |lane: &usize| {
        let id = request.lanes[*lane].depot;
        circuit.terms.depots.contains(&id)
            && state::usable::can_use(state, request, *lane)
            && request.is_on_route(*lane)
    };
    let lanes: Vec<usize> = (0..request.lanes.len()).filter(leads).collect();
    let is_fed = |lane: &usize| request.lanes[*lane].is_active;
    let fed: Vec<usize> = lanes.iter().copied().filter(is_fed).collect();
    let ends = if fed.is_empty() { lanes } else { fed };
    let ends = ends.into_iter().map(|lane| request.lanes[lane].depot);
    ends.collect()
}

/// Returns the best reservation to ask for; none if nothing helps, pays or can be paid.
pub(crate) fn best_bid(state: &State, id: RequestId, sweep: &Sweep) -> Option<Bid> {
    let request = state.requests.get(&id)?;
    let able = open_circuits(state).filter_map(|(circuit, offered)| {
        let depots = ends(state, request, offered);
        (!depots.is_empty()).then_some((circuit, offered, depots))
    });
    let bids = able.take(CANDIDATES_MAX);
    let bids =
        bids.filter_map(|(id, circuit, depots)| bid_on(state, request, sweep, id, circuit, depots));
    bids.min_by_key(Bid::rank)
}

fn bid_on(
    state: &State,
    request: &Request,
    sweep: &Sweep,
    id: CircuitId,
    circuit: &Circuit,
    depots: Vec<DepotId>,
) -> Option<Bid> {
    let terms = &circuit.terms;
    let from = begin(state.now, terms.lead);
    let aim = request.aim() - forecast::completion::margin(state, request.aim());
    let load = forecast::completion::load(state, request, sweep.places(), request.route, |lane| {
        let lane = &request.lanes[lane];
        lane.is_active || depots.contains(&lane.depot)
    });
    let without = sweep.finish_slow(&load, state.now);
    let with = |rate| {
        let raise = raise(&depots, request, (from, terms.least), rate);
        forecast::completion::raise::finish_raised(state, sweep, &load, &raise)
    };
    let top = circuit.top();
    let is_wished = request.wishes.reserve == Reserve::Always;
    let rate = if is_wished {
        wished(load.bytes, aim.since(from), top)?
    } else {
        let pays = does_pay(state, load.bytes, without, top, terms.lead);
        let least = lease::least(top, |rate| with(rate).is_some_and(|finish| finish <= aim));
        // Any rate that its owner said would fit is better than none.
        let partly = circuit.fits.and_then(|_| lease::whole_steps(top));
        least.or(partly).filter(|_| pays)?
    };
    let finish = with(rate)?;
    let is_better = without.is_none_or(|without| finish < without);
    let until = end(from, finish, terms.least);
    let cost = terms.cost(until.since(from));
    let is_paid = cost <= decide::budget::money_to_spare(state, request);
    (is_paid && (is_better || is_wished)).then_some(Bid {
        circuit: id,
        depots,
        rate,
        from,
        until,
        without,
        finish,
        cost,
    })
}

/// Returns whether setting up a circuit of that rate takes less time than it saves.
fn does_pay(
    state: &State,
    bytes: Bytes,
    without: Option<Timestamp>,
    rate: ByteRate,
    lead: Duration,
) -> bool {
    let direct = without.map_or(ByteRate::ZERO, |finish| {
        ByteRate::over(bytes, finish.since(state.now))
    });
    lease::pays(bytes, direct, rate, lead)
}

/// Returns what to ask for a newcomer that would be refused, and how it is accepted then.
pub(crate) fn bid_newcomer(
    state: &State,
    request: &Request,
    left: &Promised,
    earliest: Option<Timestamp>,
) -> Option<(Bid, Verdict)> {
    let able = open_circuits(state).filter_map(|(id, circuit)| {
        let least = least_for(state, request, left, circuit)?;
        Some((id, circuit, least))
    });
    let bids = able
        .take(CANDIDATES_MAX)
        .filter_map(|(id, circuit, least)| {
            let (rate, finish, from, depots) = least;
            let terms = &circuit.terms;
            let pays = does_pay(
                state,
                request.spec.bytes,
                earliest,
                circuit.top(),
                terms.lead,
            );
            let until = end(from, finish, terms.least);
            let cost = terms.cost(until.since(from));
            (pays && cost <= decide::budget::money_to_spare(state, request)).then_some(Bid {
                circuit: id,
                depots,
                rate,
                from,
                until,
                without: earliest,
                finish,
                cost,
            })
        });
    let bid = bids.min_by_key(Bid::rank)?;
    let raise = raise(&bid.depots, request, (bid.from, Duration::ZERO), bid.rate);
    let verdict = decide::admission::weigh(
        state,
        request,
        &forecast::completion::raise::left_raised(state, left, &raise),
    );
    Some((bid, verdict))
}

/// Returns the least rate on a circuit that makes a newcomer feasible. The result also says
/// when it would be safe then, from when it is reserved, and for which depots.
pub(crate) fn least_for(
    state: &State,
    request: &Request,
    left: &Promised,
    circuit: &Circuit,
) -> Option<(ByteRate, Timestamp, Timestamp, Vec<DepotId>)> {
    let terms = &circuit.terms;
    let depots = ends(state, request, circuit);
    if depots.is_empty() {
        return None;
    }
    let from = begin(state.now, terms.lead);
    let with = |rate| {
        let raise = raise(&depots, request, (from, terms.least), rate);
        forecast::completion::raise::left_raised(state, left, &raise)
    };
    let top = circuit.top();
    let careful = |rate| decide::admission::try_careful(state, request, &with(rate));
    if let Some(rate) = lease::least(top, |rate| careful(rate).is_some()) {
        return Some((rate, careful(rate)?, from, depots));
    }
    let hopeful = |rate| decide::admission::try_hopeful(state, request, &with(rate));
    let rate = lease::least(top, |rate| hopeful(rate).is_some())?;
    Some((rate, hopeful(rate)?, from, depots))
}

/// Returns whether a newcomer that would be refused may be accepted on what it asks for.
pub(crate) fn may_bid(state: &State, request: &Request, reason: &Reason) -> bool {
    let is_late = matches!(reason, Reason::Infeasible { .. });
    is_late && !state.circuits.offered.is_empty() && request.wishes.reserve != Reserve::Never
}

impl Circuit {
    /// Returns the most that may be asked for now.
    pub(crate) fn top(&self) -> ByteRate {
        let most = self.terms.rate_max;
        self.fits.map_or(most, |fits| fits.min(most))
    }
}

/// Returns so much more rate from the beginning until the request is due, or for as long as it must
/// last.
pub(crate) fn raise<'a>(
    depots: &'a [DepotId],
    request: &Request,
    (from, least): (Timestamp, Duration),
    rate: ByteRate,
) -> Raise<'a> {
    Raise {
        depots,
        from,
        until: request.aim().max(from + least),
        before: ByteRate::ZERO,
        after: share(rate, depots.len()),
    }
}

/// Returns the rate that carries all of it in that time, as far as available.
fn wished(bytes: Bytes, span: Duration, most: ByteRate) -> Option<ByteRate> {
    let wanted = ByteRate::over(bytes, span.max(Duration::from_secs(1)));
    lease::least(most, |rate| rate >= wanted).or_else(|| lease::whole_steps(most))
}

/// Returns the first whole second at which a circuit asked for now can be up.
fn begin(now: Timestamp, lead: Duration) -> Timestamp {
    whole_second(now + lead)
}

/// Returns when a reservation ends with which something should be done at `finish`.
pub(crate) fn end(from: Timestamp, finish: Timestamp, least: Duration) -> Timestamp {
    let margin = (finish.since(from) / 100 * MARGIN_PERCENT).max(MARGIN_LEAST);
    whole_second((finish + margin).max(from + least))
}

fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_micros(at.as_micros().div_ceil(1_000_000).saturating_mul(1_000_000))
}
