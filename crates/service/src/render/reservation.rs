use posthaste_api as api;
use posthaste_core::{Mind, contract::ReservationView};
use posthaste_types::RequestId;

use super::{moment, usd, words};
use crate::driver::Centre;

/// Returns a reservation, held or asked for.
pub(crate) fn reservation(centre: &Centre, held: &ReservationView) -> api::Reservation {
    let depots = held.depots.iter().map(|depot| centre.depots.name(*depot));
    api::Reservation {
        id: held.reservation.to_string(),
        request: held.request.to_string(),
        circuit: held.name.clone(),
        depots: depots.collect(),
        rate_bytes_per_s: held.rate.get(),
        from: moment(held.from),
        until: moment(held.until),
        state: words::reservation_state(held.state),
        cost_usd: usd(held.cost_micro_usd),
        key: centre.circuits.key(held.reservation),
    }
}

/// Returns the reservations of a request, held or asked for.
pub(super) fn of(centre: &Centre, mind: &Mind, request: RequestId) -> Vec<api::Reservation> {
    let all = mind.reservations().into_iter();
    let mine = all.filter(|held| held.request == request);
    mine.map(|held| reservation(centre, &held)).collect()
}
