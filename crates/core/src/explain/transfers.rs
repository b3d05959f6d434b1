//! Transfers of a request: its paths, the progress of each, and when it will be complete.

pub(crate) mod ends;
pub(crate) mod inbound;

use alloc::vec::Vec;
use posthaste_types::{Bytes, DepotId, RequestId};

use crate::{
    Mind,
    contract::{
        Forecast, RequestState, Standstill, TransferEnd, TransferKind, TransferState, TransferView,
    },
    explain, forecast,
    forecast::completion::ahead::Ahead,
    forecast::delivery::ahead::Awaited,
    state::{Depot, Request, State},
};

impl Mind {
    /// Returns each transfer of a request, present or past: of a stage-out one to each depot and
    /// destination, of a stage-in one from each source. Transfers that came to nothing are left
    /// out. None if the request is unknown. Visits the more urgent requests, some hundreds at most.
    #[must_use]
    pub fn transfers(&self, id: RequestId) -> Option<Vec<TransferView>> {
        if let Some(request) = self.state.requests.get(&id) {
            return Some(outbound_transfers(&self.state, id, request));
        }
        let arrival = self.state.arrivals.requests.get(&id)?;
        Some(explain::transfers::inbound::inbound_transfers(
            &self.state,
            id,
            arrival,
        ))
    }
}

fn outbound_transfers(state: &State, id: RequestId, request: &Request) -> Vec<TransferView> {
    match request.state {
        RequestState::Refused | RequestState::Cancelled | RequestState::Failed => {
            return Vec::new();
        }
        RequestState::Moving
        | RequestState::Safe
        | RequestState::Released
        | RequestState::Delivered => {}
    }
    let is_moving = request.is_moving();
    let ahead = is_moving
        .then(|| forecast::completion::ahead::ahead(state, id))
        .flatten();
    let depots = request
        .depot_lanes()
        .filter_map(|lane| to_depot(state, id, request, lane, ahead.as_deref()));
    let awaited = match request.state {
        RequestState::Delivered => Vec::new(),
        RequestState::Moving
        | RequestState::Safe
        | RequestState::Released
        | RequestState::Refused
        | RequestState::Cancelled
        | RequestState::Failed => forecast::delivery::ahead::awaited(state, id, request),
    };
    let destinations = request
        .destinations()
        .map(|lane| to_destination(state, id, request, lane, &awaited));
    depots.chain(destinations).collect()
}

/// Returns the transfer to a depot; none if nothing goes there.
fn to_depot(
    state: &State,
    id: RequestId,
    request: &Request,
    place: usize,
    ahead: Option<&[Ahead]>,
) -> Option<TransferView> {
    let lane = &request.lanes[place];
    let piece = request.piece(place);
    let (fragments, done) = request.replica.stored(place);
    let (pushed, givers) = pushed(state, id, lane.depot);
    let in_flight = lane.in_flight + lane.awaited + pushed;
    let on_way = piece.times(in_flight.into());
    let room = request.share_of_domain(place, request.replica.room(place));
    let found = ahead.map(|ahead| ahead.iter().find(|ahead| ahead.depot == lane.depot));
    let is_fed = lane.is_active && request.is_on_route(place) && request.is_moving();
    let (left, finish) = match found {
        // It can't go anywhere at present.
        Some(_) if is_fed && request.finish.is_none() => (room.max(on_way), None),
        Some(Some(found)) => (found.bytes.max(on_way), found.finish),
        Some(None) => (on_way, None),
        // Placement by the last look at everything.
        None if request.is_moving() => {
            let pieces = u64::from(lane.kept) + u64::from(in_flight);
            (piece.times(pieces), request.finish)
        }
        None => (on_way, None),
    };
    if fragments == 0 && left == Bytes::ZERO && !is_fed {
        return None;
    }
    let from = match givers {
        Some(givers) if lane.in_flight == 0 => givers,
        _ => TransferEnd::Centre,
    };
    Some(TransferView {
        kind: TransferKind::Depot,
        from,
        to: explain::transfers::ends::end_at(state, lane.depot),
        source: None,
        done,
        left,
        in_flight,
        finish: finish.filter(|_| left > Bytes::ZERO),
        state: state_at_depot(state, request, lane.depot, piece, left, in_flight),
    })
}

fn state_at_depot(
    state: &State,
    request: &Request,
    depot: DepotId,
    piece: Bytes,
    left: Bytes,
    in_flight: u32,
) -> TransferState {
    let lane = request.lane_of(depot);
    let lent = lane.and_then(|lane| request.lent(lane));
    let depot = state.depots.get(&depot);
    let why = match (request.pause(), depot) {
        _ if in_flight > 0 => return TransferState::Running,
        _ if left == Bytes::ZERO => return TransferState::Done,
        (Some(pause), _) => Standstill::Paused {
            by: pause.by.clone(),
        },
        (None, None) => Standstill::Away,
        (None, Some(depot)) if !depot.is_up() => Standstill::Away,
        (None, Some(depot)) if !depot.is_within_hours(state.now) => Standstill::Hours,
        (None, Some(depot)) if depot.is_loaded(lent) => Standstill::Loaded,
        (None, Some(depot)) if depot.space() < piece => Standstill::Full,
        (None, Some(_)) => {
            let why = (!request.is_due).then_some(Standstill::Others);
            return TransferState::Waiting { why };
        }
    };
    TransferState::Parked { why }
}

/// Returns the transfer to a destination, from any place.
fn to_destination(
    state: &State,
    id: RequestId,
    request: &Request,
    place: usize,
    awaited: &[Awaited],
) -> TransferView {
    let lane = &request.lanes[place];
    // Holdings are no longer in the books once it is delivered.
    let done = match request.state == RequestState::Delivered {
        true => request.spec.bytes,
        false => request.replica.stored(place).1,
    };
    let left = request.spec.bytes - done;
    let (pushed, givers) = pushed(state, id, lane.depot);
    let in_flight = lane.in_flight + pushed;
    let awaited = awaited.iter().find(|awaited| awaited.lane == place);
    let finish: Option<Forecast> = awaited.and_then(|awaited| awaited.finish);
    let is_fed = lane.in_flight > 0 || awaited.is_some_and(|awaited| awaited.is_fed);
    let transfer_state = match (request.pause(), awaited) {
        _ if left == Bytes::ZERO => TransferState::Done,
        _ if in_flight > 0 => TransferState::Running,
        (Some(pause), _) => TransferState::Parked {
            why: Standstill::Paused {
                by: pause.by.clone(),
            },
        },
        (None, Some(awaited)) => {
            let why = Standstill::Delivery {
                hindrance: awaited.hindrance,
            };
            match finish {
                Some(_) => TransferState::Waiting { why: Some(why) },
                None if state.depots.get(&lane.depot).is_some_and(Depot::is_up) => {
                    TransferState::Waiting { why: Some(why) }
                }
                None => TransferState::Parked { why },
            }
        }
        (None, None) => TransferState::Waiting { why: None },
    };
    TransferView {
        kind: TransferKind::Destination,
        from: match givers {
            Some(givers) if !is_fed => givers,
            None if !is_fed => TransferEnd::Depots,
            _ => TransferEnd::Centre,
        },
        to: explain::transfers::ends::end_at(state, lane.depot),
        source: None,
        done,
        left,
        in_flight,
        finish: finish.filter(|_| left > Bytes::ZERO),
        state: transfer_state,
    }
}

/// Returns how many pieces of a request other depots send to one, and their sender; none if
/// none do.
fn pushed(state: &State, id: RequestId, to: DepotId) -> (u32, Option<TransferEnd>) {
    let (mut pieces, mut giver, mut are_several) = (0u32, None, false);
    for (_, flight) in state.pushes.to(to, Some(id)) {
        pieces = pieces.saturating_add(1);
        for from in flight.givers {
            are_several |= giver.is_some_and(|giver| giver != from);
            giver = Some(from);
        }
    }
    let end = giver.map(|giver| match are_several {
        true => TransferEnd::Depots,
        false => explain::transfers::ends::end_at(state, giver),
    });
    (pieces, end)
}
