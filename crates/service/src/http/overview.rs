//! Route for the overview of all requests.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use posthaste_api as api;

use super::{Answer, Desk};
use crate::render;

/// Shows how many requests stand where, and how many are in danger, as of a second ago or more.
#[utoipa::path(get, path = "/v1/overview", operation_id = "get_overview", tag = "requests", security(("bearer" = ["read"])),
    responses((status = 200, body = api::Overview), (status = 401, body = api::Problem)))]
pub(crate) async fn show(State(desk): State<Desk>) -> Answer<Json<api::Overview>> {
    let centre = &desk.centre;
    let (glance, newest_event) = tokio::task::block_in_place(|| {
        // Looked up first: events during the look are reported twice rather than never.
        let newest = centre.store.journal(|journal| journal.newest_event())?;
        Ok::<_, super::Refusal>((centre.glances.take(centre), newest))
    })?;
    let tally = &glance.tally;
    let named = |counts: &BTreeMap<&'static str, u64>| -> BTreeMap<String, u64> {
        let counts = counts.iter();
        counts
            .map(|(state, count)| ((*state).to_owned(), *count))
            .collect()
    };
    Ok(Json(api::Overview {
        as_of: render::moment(glance.as_of),
        stage_outs: named(&tally.requests),
        stage_ins: named(&tally.stage_ins),
        under_way: glance.pressing.len() as u64,
        at_risk: tally.at_risk,
        missed: tally.missed,
        waiting_bytes: tally.waiting.get(),
        least_slack_s: tally.slack_micros.map(render::seconds),
        newest_event,
    }))
}
