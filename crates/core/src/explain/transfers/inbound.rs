//! Views of what comes in.

use alloc::{collections::BTreeMap, vec::Vec};
use posthaste_types::{Bytes, RequestId, SourceId, Timestamp};

use crate::{
    contract::{ArrivalState, Standstill, TransferEnd, TransferKind, TransferState, TransferView},
    explain, forecast,
    forecast::stage_in::ahead::Coming,
    state,
    state::{Arrival, Near, Source, SourceLane, State},
};

pub(crate) fn inbound_transfers(
    state: &State,
    id: RequestId,
    arrival: &Arrival,
) -> Vec<TransferView> {
    match arrival.state {
        ArrivalState::Refused | ArrivalState::Cancelled | ArrivalState::Failed => {
            return Vec::new();
        }
        ArrivalState::Waiting
        | ArrivalState::Moving
        | ArrivalState::Landing
        | ArrivalState::Arrived
        | ArrivalState::Released => {}
    }
    let coming = forecast::stage_in::ahead::coming(state, id);
    let goes_out = state.arrivals.outward.contains_key(&id);
    let near = arrival.near.iter();
    let near = near.filter(|near| near.is_used);
    let lanes = arrival.lanes.iter();
    let lanes = lanes.filter(|lane| lane.near.is_none() || lane.bytes + lane.holds > Bytes::ZERO);
    lanes
        .map(|lane| way_from(state, arrival, lane, coming.as_ref(), goes_out))
        .chain(near.map(|near| way_to_near(state, arrival, near)))
        .collect()
}

/// Returns the transfer from one source, or to the address.
fn way_from(
    state: &State,
    arrival: &Arrival,
    lane: &SourceLane,
    coming: Option<&BTreeMap<SourceId, Coming>>,
    goes_out: bool,
) -> TransferView {
    let coming = match coming {
        Some(coming) => coming.get(&lane.source).copied().unwrap_or_default(),
        None if arrival.state.is_live() => Coming {
            bytes: arrival.missing().min(lane.holds),
            finish: arrival.finish,
        },
        None => Coming::default(),
    };
    let there = match lane.near {
        Some(depot) => explain::transfers::ends::end_at(state, depot),
        None => TransferEnd::Source {
            name: state::stage_ins::name_of_source(state, lane.source),
        },
    };
    let (kind, from, to) = match (goes_out, lane.near.is_some()) {
        (true, _) => (TransferKind::Address, TransferEnd::Centre, there),
        (false, true) => (TransferKind::Near, there, TransferEnd::Centre),
        (false, false) => (TransferKind::Source, there, TransferEnd::Centre),
    };
    TransferView {
        kind,
        from,
        to,
        source: Some(lane.source),
        done: lane.bytes,
        left: coming.bytes,
        in_flight: lane.in_flight,
        finish: coming.finish.filter(|_| coming.bytes > Bytes::ZERO),
        state: state_of_source(state, arrival, lane, coming.bytes),
    }
}

fn state_of_source(
    state: &State,
    arrival: &Arrival,
    lane: &SourceLane,
    left: Bytes,
) -> TransferState {
    let source = state.arrivals.sources.get(&lane.source);
    let rests = |until: Timestamp| (until > state.now).then_some(Standstill::Rests { until });
    let is_over = !arrival.state.is_live() || arrival.is_whole();
    let why = match arrival.pause() {
        _ if is_over => return TransferState::Done,
        _ if lane.in_flight > 0 => return TransferState::Running,
        _ if lane.is_gone => Some(Standstill::Gone),
        Some(pause) => Some(Standstill::Paused {
            by: pause.by.clone(),
        }),
        None if source.is_none_or(Source::is_down) => Some(Standstill::Away),
        None => source
            .and_then(|source| rests(source.resume_at))
            .or_else(|| rests(arrival.held_until)),
    };
    match why {
        Some(why) => TransferState::Parked { why },
        None if left == Bytes::ZERO && lane.bytes > Bytes::ZERO => TransferState::Done,
        None => TransferState::Waiting {
            why: match (arrival.is_due, arrival.begin_by) {
                (false, Some(begin_by)) => Some(Standstill::Early { begin_by }),
                (true, _) | (false, None) => None,
            },
        },
    }
}

/// Returns the transfer to a depot near the centre.
fn way_to_near(state: &State, arrival: &Arrival, near: &Near) -> TransferView {
    let sources = arrival.prestages.iter();
    let sources = sources.filter(|(_, prestage)| prestage.depot == near.depot);
    let mut sources = sources.map(|(fetch, _)| fetch.source);
    let first = sources.next();
    let from = match first {
        Some(source) if sources.all(|other| other == source) => TransferEnd::Source {
            name: state::stage_ins::name_of_source(state, source),
        },
        _ => TransferEnd::Sources,
    };
    let came = arrival.lanes.iter().find(|lane| lane.source == near.source);
    let is_wanted = arrival.held.iter().any(|held| held.may_prestage);
    let transfer_state = match near.in_flight {
        0 if near.resume_at > state.now && is_wanted => TransferState::Parked {
            why: Standstill::Rests {
                until: near.resume_at,
            },
        },
        0 if is_wanted && arrival.state.is_live() => TransferState::Waiting { why: None },
        0 => TransferState::Done,
        _ => TransferState::Running,
    };
    TransferView {
        kind: TransferKind::Prestage,
        from,
        to: explain::transfers::ends::end_at(state, near.depot),
        source: None,
        done: near.missing() + came.map_or(Bytes::ZERO, |lane| lane.bytes),
        left: near.flying,
        in_flight: near.in_flight,
        finish: None,
        state: transfer_state,
    }
}
