//! Forecasts of stage-ins: when they will be here, and when they must begin
//! (`docs/algorithms/just-in-time-arrival.md`).
//!
//! Backward: in the order of deadlines each stage-in is promised what the sources give at their
//! p10. The promise is as late as its deadline less a margin allows (`plan::Supplies::late`); the
//! moment at which it begins is the latest start. Forward: in the same order each takes what is
//! there as early as it may, at p10, p50 and p90 of the rates. The result is the forecast.

pub(crate) mod ahead;
pub(crate) mod inbound;
pub(crate) mod near;
pub(crate) mod onward;

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_plan::Curve;
use posthaste_types::{ByteRate, Bytes, DepotId, RequestId, Timestamp};

use crate::{
    contract::{Binding, Forecast},
    forecast,
    forecast::stage_in::inbound::{Edge, Fare, Inbound, Share},
    state,
    state::{Arrival, Source, State},
};

/// Reserve before a deadline: this, and one part in so many of the time needed. It covers late
/// looks and the naming of files.
const MARGIN: Duration = Duration::from_secs(5);

const MARGIN_SHARE: u32 = 8;

/// Delay beyond which data goes near the centre first: it must be able to come this much later from
/// there than from its sources. Less is not worth moving it twice. The rest of data that began to
/// go there needs less.
const LATER: Duration = Duration::from_secs(60);

const LATER_STILL: Duration = Duration::from_secs(5);

/// Quantile of a source's rate that is counted on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Quantile {
    P10,
    P50,
    P90,
    /// p10, but p90 if the rate is a guess: no request is refused for want of knowledge.
    Hopeful,
}

/// Returns the forecast rates of all sources.
pub(crate) fn inbound(state: &State, quantile: Quantile) -> Inbound {
    let near = forecast::stage_in::near::depots_as_sources(state);
    let sources = state.arrivals.sources.iter();
    Inbound::new(sources.map(|(id, source)| {
        let near = near.get(id).copied();
        let gives = !forecast::stage_in::near::gives_nothing(state, source, near);
        let counts = !source.is_hopeless(&state.settings);
        let curve = curve_of(state, source, near, quantile);
        (*id, [gives, counts], curve)
    }))
}

/// Returns the rate of a source over time. A lost source gives nothing until it has given
/// something again.
fn curve_of(state: &State, source: &Source, near: Option<DepotId>, quantile: Quantile) -> Curve {
    let rates = forecast::stage_in::near::rates_of(state, source, near);
    let rate = match quantile {
        Quantile::P10 => rates.p10,
        Quantile::P50 => rates.p50,
        Quantile::P90 => rates.p90,
        Quantile::Hopeful if forecast::stage_in::near::is_assumed(state, source, near) => rates.p90,
        Quantile::Hopeful => rates.p10,
    };
    if forecast::stage_in::near::gives_nothing(state, source, near) {
        return Curve::constant(ByteRate::ZERO);
    }
    let mut curve = Curve::constant(rate);
    curve.close(state.now, source.resume_at);
    curve
}

/// Returns when a stage-in should be here if it had these sources alone: its deadline less a
/// margin.
pub(crate) fn wanted_by(state: &State, arrival: &Arrival, alone: &Inbound) -> Timestamp {
    let finish = alone.clone().early(arrival, |_| state.now).edge;
    arrival.spec.deadline - margin(finish, state.now)
}

/// Returns when a newcomer readable from then on would be here, and what binds that. It takes
/// only what is promised to no other, as far as that is counted on.
pub(crate) fn weigh_arrival(
    state: &State,
    newcomer: &Arrival,
    from: Option<Timestamp>,
    quantile: Quantile,
) -> (Option<Timestamp>, Option<Binding>) {
    let now = state.now;
    let Some(from) = from else {
        return (None, None);
    };
    let mut left = left_for_arrivals(state, None, quantile);
    let fare = left.early(newcomer, |_| from.max(now));
    (fare.edge, binding(state, newcomer, fare))
}

/// Returns what decides when a stage-in is here, unless it lies at all of its sources.
pub(crate) fn binding(state: &State, arrival: &Arrival, fare: Fare) -> Option<Binding> {
    let held = arrival.held.get(fare.binds?)?;
    let lanes = arrival.lanes.iter();
    let lanes = lanes.filter(|lane| !lane.is_gone && lane.near.is_none());
    let names = held
        .sources
        .iter()
        .map(|source| state::stage_ins::name_of_source(state, *source));
    (held.sources.len() < lanes.count()).then(|| Binding {
        names: names.collect(),
        bytes: arrival.far(fare.binds.unwrap_or_default()),
    })
}

/// Returns the reserve for a stage-in that alone would be here at `finish`.
pub(crate) fn margin(finish: Option<Timestamp>, now: Timestamp) -> Duration {
    let needed = finish.map_or(Duration::ZERO, |finish| finish.since(now));
    MARGIN + needed / MARGIN_SHARE
}

/// Chance of a stage-in to wait near the centre.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nearby {
    /// Closed, as no depot is up for it.
    Closed,
    /// Time by which all of it would have to begin to come from there.
    From(Timestamp),
    /// Unknown, as the rates of depots there are.
    Unknown,
}

/// Sets when each share of a stage-in must begin, and whether its chunks may be asked for. They may
/// if nothing is in the way, or waiting longer would endanger the deadline. Data that would come
/// before it is welcome may go near the centre meanwhile. That must leave time, and the data must
/// be able to come later from there than from its sources.
pub(crate) fn set_begin(
    arrival: &mut Arrival,
    edges: &[Edge],
    nearby: Nearby,
    until: Timestamp,
    now: Timestamp,
) {
    let is_leftover = arrival.is_leftover;
    let not_before = arrival.spec.not_before.filter(|at| *at > now);
    let is_due =
        |begin_by: Option<Timestamp>| not_before.is_none() || begin_by.is_none_or(|at| at <= now);
    let edge_of = |share: Share| {
        let mut edges = edges.iter().filter(|(of, _)| *of == share);
        let first = edges.next().map(|(_, edge)| *edge)?;
        // A share that never begins is earlier than any.
        Some(edges.fold(first, |first, (_, edge)| first.min(*edge)))
    };
    let gain = if arrival.is_near_said {
        LATER_STILL
    } else {
        LATER
    };
    let mut near_first = None;
    let mut first = (!is_leftover).then_some(until);
    let mut all_due = false;
    for place in 0..arrival.held.len() {
        let has_near = arrival
            .near
            .iter()
            .any(|near| near.bytes[place] > Bytes::ZERO);
        if has_near {
            let edge = edge_of(Share::Near(place)).flatten();
            near_first = Some(near_first.map_or(edge, |first: Option<Timestamp>| first.min(edge)));
        }
        if arrival.far(place) == Bytes::ZERO {
            arrival.held[place].is_due = false;
            arrival.held[place].may_prestage = false;
            continue;
        }
        let held = &mut arrival.held[place];
        held.begin_by = edge_of(Share::Far(place)).flatten();
        let is_better = |begin_by: Timestamp| match nearby {
            Nearby::Closed => false,
            Nearby::From(at) => at >= begin_by + gain,
            Nearby::Unknown => true,
        };
        let (begin_by, not_before) = (held.begin_by, not_before);
        held.may_prestage = begin_by
            .zip(not_before)
            .is_some_and(|(begin_by, not_before)| begin_by < not_before && is_better(begin_by));
        held.is_due = !held.may_prestage && is_due(held.begin_by);
        all_due |= held.is_due;
        if !held.may_prestage {
            first = first.and_then(|first| held.begin_by.map(|at| at.min(first)));
        }
    }
    arrival.is_near_known = matches!(nearby, Nearby::From(_));
    let goes_onward = arrival.held.iter().any(|held| held.may_prestage);
    if let (Some(edge), true) = (edge_of(Share::Onward), arrival.is_near_known && goes_onward) {
        near_first = Some(near_first.map_or(edge, |first| first.min(edge)));
    }
    arrival.near_begin_by = near_first.flatten();
    arrival.is_near_due = near_first.is_some_and(&is_due);
    if let Some(near) = near_first {
        first = first.and_then(|first| near.map(|at| at.min(first)));
    }
    arrival.begin_by = first;
    arrival.is_due = all_due || arrival.is_near_due || is_due(first);
}

/// Returns when a share of a stage-in begins or goes on.
pub(crate) fn starts_at(arrival: &Arrival, share: Share, now: Timestamp) -> Timestamp {
    let (is_due, begin_by) = match share {
        Share::Far(place) => {
            let held = &arrival.held[place];
            (held.is_due || held.may_prestage, held.begin_by)
        }
        Share::Near(_) | Share::Onward => (arrival.is_near_due, arrival.near_begin_by),
    };
    if is_due {
        return now;
    }
    let welcome = arrival.spec.not_before.unwrap_or(now);
    begin_by.unwrap_or(now).min(welcome).max(now)
}

/// Forecasts a stage-in. One that waits does not come before it may, as far as its deadline lets it
/// wait.
pub(crate) fn forecast(
    arrival: &Arrival,
    now: Timestamp,
    finishes: [Option<Timestamp>; 3],
) -> Option<Forecast> {
    let [Some(p10), Some(p50), Some(p90)] = finishes else {
        return None;
    };
    let held = arrival.spec.not_before.filter(|at| *at > now);
    let held = held.map_or(now, |at| at.min(p90));
    Some(Forecast {
        p10: p10.max(held),
        p50: p50.max(held),
        p90,
    })
}

/// Returns what stage-ins with promises leave, with another deadline for one of them.
pub(crate) fn left_for_arrivals(
    state: &State,
    moved: Option<(RequestId, Timestamp)>,
    quantile: Quantile,
) -> Inbound {
    let deadline = |id: RequestId, arrival: &Arrival| match moved {
        Some((other, deadline)) if other == id => deadline,
        _ => arrival.spec.deadline,
    };
    let mut promised: Vec<(Timestamp, RequestId, &Arrival)> = state
        .arrivals
        .live()
        .filter(|(_, arrival)| !arrival.is_leftover && !arrival.is_paused())
        .map(|(&id, arrival)| (deadline(id, arrival), id, arrival))
        .collect();
    promised.sort_unstable_by_key(|(deadline, id, _)| (*deadline, *id));
    let mut left = inbound(state, quantile);
    for (deadline, _, arrival) in promised {
        left.late(arrival, state.now, deadline);
    }
    left
}
