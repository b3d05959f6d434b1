//! Answers to requests for space.

use std::sync::Arc;

use http::{Method, Response, StatusCode};
use posthaste_endpoint::relay::{
    DatasetId,
    wire::{SPACE_BODY_BYTES_MAX, SpaceBody},
};

use crate::{
    answer::{Body, empty, json},
    order,
    reception::{Reception, blocking},
    store::{Refusal, Store},
};

/// Makes, changes or releases the reservation of a dataset.
pub(crate) async fn answer(
    store: &Arc<Store>,
    method: &Method,
    dataset: DatasetId,
    body: Reception,
) -> Result<Response<Body>, Refusal> {
    let store = Arc::clone(store);
    if method == Method::DELETE {
        blocking(move || store.release_space(&dataset)).await?;
        return Ok(empty(StatusCode::NO_CONTENT));
    }
    let wanted = body.read(SPACE_BODY_BYTES_MAX).await?;
    let wanted: SpaceBody = order::read(&wanted, "the body says not how much space until when")?;
    let (is_new, grant) = blocking(move || store.reserve_space(&dataset, wanted)).await?;
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(json(status, &grant))
}
