//! Route for reservations on circuits.

use axum::{
    Json,
    extract::{Query, State},
};
use posthaste_api as api;
use serde::Deserialize;

use super::Desk;
use crate::render;

/// Fields of a listing.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only those of this request, like r7.
    request: Option<String>,
    /// Only those in this state.
    state: Option<api::ReservationState>,
}

/// Lists what is reserved on circuits or asked for, in the order of the asking. What is over is not listed: the events of
/// its request tell of it.
#[utoipa::path(get, path = "/v1/reservations", operation_id = "list_reservations", tag = "reservations", security(("bearer" = ["read"])), params(Which),
    responses((status = 200, body = Vec<api::Reservation>), (status = 401, body = api::Problem)))]
pub(crate) async fn list(
    State(desk): State<Desk>,
    Query(which): Query<Which>,
) -> Json<Vec<api::Reservation>> {
    let held = desk.centre.mind().reservations();
    let shown = held
        .iter()
        .map(|held| render::reservation(&desk.centre, held));
    let is_wanted = |one: &api::Reservation| {
        let request = which.request.as_ref();
        request.is_none_or(|id| *id == one.request)
            && which.state.is_none_or(|state| state == one.state)
    };
    Json(shown.filter(is_wanted).collect())
}
