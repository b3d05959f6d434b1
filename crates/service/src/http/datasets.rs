//! Routes for the datasets that depots hold.

use axum::{
    Json,
    extract::{Path, Query, State},
};
use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind};
use posthaste_journal::RequestRecord;
use posthaste_types::RequestId;
use serde::Deserialize;

use super::{Answer, Desk, requests::parse_id};
use crate::{credentials, render};

/// Datasets of one page, at most and by default.
const PAGE_MAX: usize = 1_000;
const PAGE: usize = 100;

/// Which are shown.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only those of requests that were submitted before this one, like `r7`: the last one of the page before.
    before: Option<String>,
    /// Most to show: 1,000 at most, 100 where nothing is said.
    limit: Option<usize>,
}

/// Lists the datasets that depots hold something of, those of the newest requests first.
#[utoipa::path(get, path = "/v1/datasets", operation_id = "list_datasets", tag = "requests", security(("bearer" = ["read"])), params(Which),
    responses((status = 200, body = Vec<api::Dataset>), (status = 401, body = api::Problem),
        (status = 422, body = api::Problem)))]
pub(crate) async fn list(
    State(desk): State<Desk>,
    Query(which): Query<Which>,
) -> Answer<Json<Vec<api::Dataset>>> {
    let before = which.before.as_deref().map(parse_id).transpose()?;
    let limit = which.limit.unwrap_or(PAGE).min(PAGE_MAX);
    Ok(Json(tokio::task::block_in_place(|| {
        page(&desk, before, limit)
    })?))
}

/// Returns up to `most` datasets with data on depots, which may change meanwhile. Blocking.
fn page(
    desk: &Desk,
    mut before: Option<RequestId>,
    most: usize,
) -> posthaste_endpoint::Result<Vec<api::Dataset>> {
    let mut made = Vec::new();
    while made.len() < most {
        let held: Vec<RequestId> = {
            let mind = desk.centre.mind();
            mind.held_before(before).take(most - made.len()).collect()
        };
        let Some(last) = held.last() else {
            break;
        };
        before = Some(*last);
        let store = &desk.centre.store;
        let records = store.journal(|journal| journal.requests_among(&held))?;
        let datasets = records.iter().filter_map(|record| shown(desk, record));
        made.extend(datasets.filter(|dataset| !dataset.holders.is_empty()));
    }
    Ok(made)
}

/// Shows one dataset.
#[utoipa::path(get, path = "/v1/datasets/{id}", operation_id = "get_dataset", tag = "requests", security(("bearer" = ["read"])),
    params(("id" = String, Path, description = "The name that depots know it by: `dataset` of its request")),
    responses((status = 200, body = api::Dataset), (status = 401, body = api::Problem), (status = 404, body = api::Problem)))]
pub(crate) async fn show(
    State(desk): State<Desk>,
    Path(id): Path<String>,
) -> Answer<Json<api::Dataset>> {
    let store = &desk.centre.store;
    let find = || store.journal(|journal| journal.request_of_dataset(&id));
    let record = tokio::task::block_in_place(find)?;
    let shown = record.and_then(|record| shown(&desk, &record));
    Ok(Json(shown.ok_or_else(|| {
        let id: String = id.chars().take(100).collect();
        Error::new(ErrorKind::NotFound, "find", format!("dataset {id}"))
            .hint("GET /v1/datasets shows those that depots hold")
    })?))
}

/// Returns the dataset of a request; none if it has none, or none is known any more.
fn shown(desk: &Desk, record: &RequestRecord) -> Option<api::Dataset> {
    let mind = desk.centre.mind();
    let view = mind.request(record.id)?;
    // What depots still have of it, they remove.
    let is_over = render::is_kept_no_longer(&desk.centre, &mind, record);
    let is_held = |stored: u32| stored > 0 && !is_over;
    let holders = view.shares.iter().filter(|share| is_held(share.stored));
    let holders = holders.map(|share| api::Holding {
        depot: desk.centre.depots.name(share.depot),
        state: render::depot_state(&mind, share.depot),
        fragments: share.stored,
        bytes: share.stored_bytes.get(),
    });
    Some(api::Dataset {
        id: record.dataset.clone(),
        request: record.id.to_string(),
        source: credentials::shown(&String::from_utf8_lossy(&record.source)),
        state: render::state(&mind, record),
        bytes: view.spec.bytes.get(),
        files: view.spec.files,
        chunks: view.spec.chunks(),
        chunk_bytes: view.spec.chunk_size.get(),
        chunks_safe: match is_over {
            true => 0,
            false => render::chunks_safe(&view),
        },
        code: view.spec.code.to_string(),
        encrypt_for: record.recipients.clone(),
        holders: holders.collect(),
        manifest: format!("/v1/requests/{}/manifest", record.id),
    })
}
