//! Counter-offers for a stage-in that can't be in time, beyond a later deadline. They are a higher
//! limit of its own, a lost source, another stage-in's slack, or a reservation. Each is tried
//! before it is offered.

use alloc::vec::Vec;
use core::cmp::Reverse;
use posthaste_plan::Curve;
use posthaste_types::{Bytes, SourceId, Timestamp};

use crate::{
    contract::WouldBuy,
    decide::counter_offer::{LATER_MIN, RATE_BITS, least, least_later},
    forecast,
    forecast::stage_in::Quantile,
    forecast::stage_in::inbound::Inbound,
    state,
    state::{Arrival, State},
};

/// Most stage-ins at which offers are tried: each trial visits all of them.
pub(crate) const LIVE_MAX: usize = 64;

/// Most other stage-ins whose slack is tried, those with most to come.
const OTHERS_MAX: usize = 3;

/// Most lost sources that are tried.
const LOST_MAX: usize = 4;

/// Returns what would make a stage-in possible that can be read from then on, the least effort
/// first.
pub(crate) fn bargain_arrival(
    state: &State,
    newcomer: &Arrival,
    from: Option<Timestamp>,
) -> Vec<WouldBuy> {
    let Some(from) = from.filter(|_| state.arrivals.live().count() <= LIVE_MAX) else {
        return Vec::new();
    };
    let left = forecast::stage_in::left_for_arrivals(state, None, Quantile::P10);
    let mut offers = Vec::from_iter(offer_limit_in(state, newcomer, from, &left));
    offers.extend(offer_source_back(state, newcomer, from, &left));
    offers.extend(offer_slack_in(state, newcomer, from));
    offers.extend(offer_reservation_in(state, newcomer, from, &left));
    offers
}

/// Returns when the stage-in would be here with what is left, if that is in time.
fn try_arrival(
    state: &State,
    newcomer: &Arrival,
    from: Timestamp,
    left: &Inbound,
) -> Option<Timestamp> {
    let mut left = left.clone();
    let fare = left.early(newcomer, |_| from.max(state.now));
    fare.edge.filter(|finish| *finish <= newcomer.spec.deadline)
}

/// Returns the smallest limit of its own with which the stage-in is in time.
fn offer_limit_in(
    state: &State,
    newcomer: &Arrival,
    from: Timestamp,
    left: &Inbound,
) -> Option<WouldBuy> {
    let limit = newcomer.spec.rate_max?;
    let mut trial = newcomer.clone();
    let mut finish = None;
    let rate = least(1 << RATE_BITS.end(), |rate| {
        trial.spec.rate_max = Some(limit.max(rate));
        let found = try_arrival(state, &trial, from, left);
        finish = found.or(finish);
        found.is_some()
    })?;
    let finish = finish?;
    Some(WouldBuy::HigherLimit { rate, finish })
}

/// Returns the lost sources any one of which would suffice, if it were back.
fn offer_source_back(
    state: &State,
    newcomer: &Arrival,
    from: Timestamp,
    left: &Inbound,
) -> Vec<WouldBuy> {
    let lost = newcomer.named().filter(|source| {
        let known = state.arrivals.sources.get(source);
        known.is_some_and(|source| source.is_down())
    });
    let offer = |source: SourceId| {
        let rate = state.arrivals.sources.get(&source)?.link.rates.p10;
        let mut left = left.clone();
        left.give_from(source, Curve::constant(rate));
        let finish = try_arrival(state, newcomer, from, &left)?;
        let name = state::stage_ins::name_of_source(state, source);
        Some(WouldBuy::SourceBack { name, finish })
    };
    lost.take(LOST_MAX).filter_map(offer).collect()
}

/// Returns another stage-in whose deadline, if it were later, would leave enough.
fn offer_slack_in(state: &State, newcomer: &Arrival, from: Timestamp) -> Option<WouldBuy> {
    let is_rival = |other: &Arrival| {
        !other.is_leftover
            && !other.is_paused()
            && newcomer
                .named()
                .any(|source| other.named().any(|its| its == source))
    };
    let others = state.arrivals.live().filter(|(_, other)| is_rival(other));
    let mut others: Vec<_> = others
        .map(|(&id, other)| {
            let missing: Bytes = other.held.iter().map(|held| held.missing).sum();
            (Reverse(missing), id)
        })
        .collect();
    others.sort_unstable();
    others.truncate(OTHERS_MAX);
    let tried = others.into_iter().filter_map(|(_, id)| {
        let deadline = state.arrivals.requests.get(&id)?.spec.deadline;
        let later = least_later(&LATER_MIN, |later| {
            let left = forecast::stage_in::left_for_arrivals(
                state,
                Some((id, deadline + later)),
                Quantile::P10,
            );
            try_arrival(state, newcomer, from, &left).is_some()
        })?;
        Some((later, id, deadline + later))
    });
    let (later, request, deadline) = tried.min()?;
    Some(WouldBuy::OthersSlack {
        request,
        later,
        deadline,
    })
}

/// Returns the least rate that would suffice if reserved until the deadline on the link to its
/// fastest source.
fn offer_reservation_in(
    state: &State,
    newcomer: &Arrival,
    from: Timestamp,
    left: &Inbound,
) -> Option<WouldBuy> {
    let given = newcomer.named().filter(|source| left.gives(*source));
    let fastest = given.max_by_key(|source| {
        let known = state.arrivals.sources.get(source);
        known.map(|source| source.link.rates.p50)
    })?;
    let until = newcomer.spec.deadline;
    let rate = least(1 << RATE_BITS.end(), |rate| {
        let mut left = left.clone();
        left.reserve(fastest, state.now, until, rate);
        try_arrival(state, newcomer, from, &left).is_some()
    })?;
    Some(WouldBuy::Reservation {
        on: state::stage_ins::name_of_source(state, fastest),
        rate,
        from: state.now,
        until,
    })
}
