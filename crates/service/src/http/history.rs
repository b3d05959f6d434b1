//! Routes for the history of transfers.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Json,
    extract::{Query, State},
};
use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, Desk};
use crate::{
    depots::Viewer, driver::Centre, history::Wanted, render::parse_moment, tokens::Caller,
};

/// Default span of history.
const USUAL: Duration = Duration::from_secs(6 * 3600);

/// Which path, and when.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Span {
    /// The depot or the source, by its name; all of them where nothing is said.
    path: Option<String>,
    /// From when on, RFC 3339; six hours before the end where nothing is said.
    from: Option<String>,
    /// Until when, RFC 3339; now where nothing is said.
    to: Option<String>,
    /// Seconds of each step. Minutes are known of a day, hours of a month, days of two years: where that is too short it is made longer.
    step: Option<u64>,
}

/// Shows what was moved on each path: to depots what they acknowledged, from sources what came; movers' too.
#[utoipa::path(get, path = "/v1/history", operation_id = "get_history", tag = "paths", security(("bearer" = ["read"])), params(Span),
    responses((status = 200, body = api::History), (status = 401, body = api::Problem),
        (status = 404, body = api::Problem, description = "Nothing of that name is there or was"), (status = 422, body = api::Problem)))]
pub(crate) async fn show(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Query(span): Query<Span>,
) -> Answer<Json<api::History>> {
    let centre = &desk.centre;
    let moment = |field, text: &Option<String>| {
        let text = text.as_deref();
        text.map(|text| parse_moment(field, text)).transpose()
    };
    let now = centre.clock.now();
    let to = moment("to", &span.to)?.unwrap_or(now);
    let from = moment("from", &span.from)?.unwrap_or_else(|| earlier(to, USUAL));
    if from > to {
        return Err(Error::new(ErrorKind::Invalid, "show", "what was moved")
            .cause("it would end before it begins")
            .hint("give an earlier `from`")
            .into());
    }
    let wanted = Wanted {
        path: span.path,
        from,
        to,
        step: span.step.map(Duration::from_secs),
    };
    let shown =
        tokio::task::block_in_place(|| centre.history.show(centre, &wanted, caller.viewer()))?;
    if let Some(path) = wanted.path.as_deref().filter(|_| shown.paths.is_empty()) {
        check_path(centre, caller.viewer(), path)?;
    }
    Ok(Json(shown))
}

/// Checks that a path on which nothing was moved is one that is there.
///
/// # Errors
/// [`ErrorKind::NotFound`] if it is not.
fn check_path(centre: &Centre, viewer: Viewer<'_>, path: &str) -> Result<()> {
    let is_source = || centre.mind().sources().any(|view| view.name == path);
    if centre.depots.named_for(viewer, path).is_some() || is_source() {
        return Ok(());
    }
    Err(centre.depots.unknown(viewer, "show history of", path))
}

fn earlier(at: Timestamp, span: Duration) -> Timestamp {
    let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    Timestamp::from_micros(at.as_micros().saturating_sub(micros))
}
