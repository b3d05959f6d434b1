//! Routes for paths: forecasts, a probe, and the resulting order of depots.

use std::sync::{Arc, atomic::Ordering};

use axum::{
    Extension, Json,
    extract::{Path, Query, State},
    http::StatusCode,
};
use posthaste_api as api;
use posthaste_core::contract::{DepotState, Input};
use posthaste_endpoint::{Error, ErrorKind};
use posthaste_types::DepotId;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, Centre, Desk};
use crate::{
    depots::Viewer,
    outbound::{measure, submit::check_address},
    render,
    tokens::Caller,
};

/// Lists the paths from the centre, and those between depots of which anything is known: what each is forecast to carry, how that is known, and how far
/// the forecast was off so far. Who operates sees those from sources of stage-ins, and to addresses, as well.
#[utoipa::path(get, path = "/v1/paths", operation_id = "list_paths", tag = "paths", security(("bearer" = ["read"])),
    responses((status = 200, body = Vec<api::Path>), (status = 401, body = api::Problem)))]
pub(crate) async fn list(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
) -> Json<Vec<api::Path>> {
    let now = desk.centre.clock.now();
    let mind = desk.centre.mind();
    let (paths, crossings) = (mind.paths(now), mind.crossings(now));
    let sources: Vec<_> = match caller.operates() {
        true => mind.sources().collect(),
        false => Vec::new(),
    };
    drop(mind);
    let viewer = caller.viewer();
    let paths = paths.iter().chain(&crossings).filter(|path| {
        let mut ends = path.from.iter().chain([&path.name]);
        ends.all(|name| viewer.sees_name(name))
    });
    let paths = paths.map(|path| render::path(path, now));
    let sources = sources.iter();
    let sources = sources.map(|source| render::path_of_source(source, now));
    Json(paths.chain(sources).collect())
}

/// Which path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Begin {
    /// The depot where it begins; the centre where nothing is said.
    from: Option<String>,
}

/// Which way.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct End {
    /// The depot where it ends.
    to: Option<String>,
}

/// Lists the depots in the order in which those are taken of which no rate is known: near the centre and far from the destination first,
/// landmarks last.
#[utoipa::path(get, path = "/v1/ranking", operation_id = "rank_depots", tag = "paths", security(("bearer" = ["read"])), params(End),
    responses((status = 200, body = Vec<api::Ranked>), (status = 401, body = api::Problem),
        (status = 404, body = api::Problem)))]
pub(crate) async fn ranking(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Query(End { to }): Query<End>,
) -> Answer<Json<Vec<api::Ranked>>> {
    let centre = &desk.centre;
    let to = to
        .as_deref()
        .map(|to| named(centre, caller.viewer(), "rank", to))
        .transpose()?;
    let now = centre.clock.now();
    let ranked = centre.mind().ranked(to, now);
    Ok(Json(
        ranked
            .iter()
            .filter(|view| caller.viewer().sees_name(&view.name))
            .map(|view| render::ranked(view, now))
            .collect(),
    ))
}

/// Returns the depot of that name.
fn named(
    centre: &Centre,
    viewer: Viewer<'_>,
    operation: &'static str,
    name: &str,
) -> Result<DepotId, Error> {
    let depot = centre.depots.known(viewer, operation, name);
    let depot = depot.map_err(|error| error.about(format!("the path to {name}")))?;
    Ok(depot.record.id)
}

/// Asks for a probe of the path to a depot: it begins once nothing is on its way there and no other
/// probe runs, and `probed` of the path says when it has ended.
#[utoipa::path(post, path = "/v1/paths/{to}/probe", operation_id = "probe_path", tag = "paths", security(("bearer" = ["operate"])),
    params(("to" = String, Path, description = "The depot's name"), Begin),
    responses((status = 202), (status = 401, body = api::Problem),
        (status = 404, body = api::Problem), (status = 502, body = api::Problem)))]
pub(crate) async fn probe(
    State(desk): State<Desk>,
    Path(to): Path<String>,
    Query(Begin { from }): Query<Begin>,
) -> Answer<StatusCode> {
    let centre = &desk.centre;
    let depot = named(centre, Viewer::Operator, "probe", &to)?;
    let from = from.map(|name| {
        let depot = named(centre, Viewer::Operator, "probe", &name)?;
        Ok::<_, Error>((depot, name))
    });
    let from = from.transpose()?;
    let views = centre.mind().depots();
    let is_up = |depot: DepotId| {
        let mut views = views.iter();
        views.any(|view| view.depot == depot && view.state == DepotState::Up)
    };
    let ends = from.iter().map(|(depot, name)| (*depot, name));
    for (end, name) in ends.chain([(depot, &to)]) {
        if !is_up(end) {
            let path = format!("the path to {to}");
            return Err(Error::new(ErrorKind::Unreachable, "probe", path)
                .cause(format!("depot {name} does not answer"))
                .into());
        }
    }
    let input = match from {
        None => Input::ProbeAsked { depot },
        Some((from, name)) if from == depot => {
            let path = format!("the path from {name} to itself");
            return Err(Error::new(ErrorKind::Invalid, "probe", path).into());
        }
        Some((from, name)) => {
            let known = centre.depots.get(from);
            if !known.is_some_and(|known| known.measures.load(Ordering::Relaxed)) {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "probe",
                    format!("the path from {name}"),
                )
                .cause("its relay is of a release that can't measure")
                .into());
            }
            Input::CrossingProbeAsked { from, to: depot }
        }
    };
    centre.put_down(input).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Measures the path to an address: writes something there, of 64 MiB at most, and removes it.
#[utoipa::path(post, path = "/v1/paths/probe", operation_id = "probe_address", tag = "paths", security(("bearer" = ["operate"])),
    request_body = api::NewProbe,
    responses((status = 200, body = api::Path), (status = 401, body = api::Problem),
        (status = 404, body = api::Problem), (status = 422, body = api::Problem), (status = 502, body = api::Problem)))]
pub(crate) async fn probe_address(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Json(mut new): Json<api::NewProbe>,
) -> Answer<Json<api::Path>> {
    let owner = caller.owner().unwrap_or_default();
    let credentials = &desk.centre.store.actors.credentials;
    credentials.claim(owner, &mut new.address)?;
    check_address(&new.address)?;
    Ok(Json(measure::asked(&desk.centre, owner, &new).await?))
}
