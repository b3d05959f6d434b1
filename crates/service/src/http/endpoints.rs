//! Routes for the places that can be opened here.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use posthaste_api as api;
use posthaste_endpoint::{BUILT_IN, capabilities::rows::told, profiles};

use super::{Answer, Desk};
use crate::tokens::Caller;

/// Shows which addresses can be named, and what each kind of storage can do.
#[utoipa::path(get, path = "/v1/endpoints", operation_id = "list_endpoints", tag = "listing", security(("bearer" = ["read"])),
    responses((status = 200, body = api::Endpoints), (status = 401, body = api::Problem)))]
pub(crate) async fn show(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
) -> Answer<Json<api::Endpoints>> {
    let kinds = BUILT_IN.iter().map(|built_in| {
        let mut can = told(&built_in.capabilities);
        can.remove("scheme");
        api::EndpointKind {
            scheme: built_in.capabilities.scheme.to_owned(),
            addresses: built_in.addresses.to_owned(),
            can: can.into_iter().collect(),
        }
    });
    let profiles = match caller.operates() {
        true => {
            let known = tokio::task::block_in_place(|| profiles(None))?;
            known.names().map(str::to_owned).collect()
        }
        false => caller.profiles().to_vec(),
    };
    let credentials = &desk.centre.store.actors.credentials;
    let own = credentials.list(Some(caller.owner().unwrap_or_default()));
    Ok(Json(api::Endpoints {
        kinds: kinds.collect(),
        profiles,
        credentials: own.into_iter().map(|own| own.name).collect(),
    }))
}
