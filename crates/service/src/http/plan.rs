//! Route for the plan in force: the turn of each request.

use axum::{
    Json,
    extract::{Query, State},
};
use posthaste_api as api;
use posthaste_core::contract::TurnView;
use posthaste_endpoint::{Error, ErrorKind};
use serde::Deserialize;

use super::{Answer, Desk, requests::parse_id};
use crate::{driver::Centre, render};

/// Requests of one page, at most and by default.
const PAGE_MAX: usize = 1_000;
const PAGE: usize = 100;

/// Fields shown of it.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only those whose turn comes behind that of this request, like `r7`: the last one of the page before.
    after: Option<String>,
    /// Most to show: 1,000 at most, 100 where nothing is said.
    limit: Option<usize>,
}

/// Shows the plan in force: the requests that move, whose turn comes first first, with where each goes now. Stage-ins have turns of their own and are not
/// among them. What would become of a request that is not submitted is asked with `POST /v1/requests?dry_run=true`.
#[utoipa::path(get, path = "/v1/plan", operation_id = "get_plan", tag = "requests", security(("bearer" = ["read"])), params(Which),
    responses((status = 200, body = Vec<api::Turn>), (status = 401, body = api::Problem),
        (status = 404, body = api::Problem), (status = 422, body = api::Problem)))]
pub(crate) async fn show(
    State(desk): State<Desk>,
    Query(which): Query<Which>,
) -> Answer<Json<Vec<api::Turn>>> {
    let after = which.after.as_deref().map(parse_id).transpose()?;
    let limit = which.limit.unwrap_or(PAGE).min(PAGE_MAX);
    let turns = desk.centre.mind().turns(after, limit);
    let turns = turns.ok_or_else(|| {
        let which = format!("request {}", which.after.as_deref().unwrap_or_default());
        Error::new(ErrorKind::NotFound, "find", which)
            .cause("it takes no turn any more")
            .hint("begin again without `after`")
    })?;
    let centre = &desk.centre;
    Ok(Json(turns.iter().map(|turn| shown(centre, turn)).collect()))
}

fn shown(centre: &Centre, turn: &TurnView) -> api::Turn {
    let shares = turn.shares.iter().map(|share| api::TurnShare {
        depot: centre.depots.name(share.depot),
        in_flight: share.in_flight,
        quota_bytes: share.quota.map(posthaste_types::Bytes::get),
    });
    api::Turn {
        request: turn.request.to_string(),
        leftover: turn.is_leftover,
        deadline: render::moment(turn.deadline),
        finish: turn.finish.map(render::finish),
        slack_s: turn
            .finish
            .map(|finish| render::seconds(turn.deadline.slack_micros(finish.p90))),
        at_risk: turn.at_risk,
        paused: turn.is_paused,
        bytes_left: turn.bytes_left.get(),
        shares: shares.collect(),
    }
}
