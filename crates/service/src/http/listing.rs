//! Selects the requests and properties of a listing, page by page.

use std::{collections::BTreeSet, sync::LazyLock};

use axum::{
    Json,
    extract::{Query, State},
    http::{HeaderMap, HeaderValue, header},
};
use posthaste_api as api;
use posthaste_core::Mind;
use posthaste_endpoint::{Error, ErrorKind, Result, encode};
use posthaste_journal::RequestRecord;
use posthaste_types::RequestId;
use serde::Deserialize;
use serde_json::Value;
use utoipa::{
    PartialSchema,
    openapi::{RefOr, Schema},
};

use super::{
    Answer, Desk,
    requests::{parse_id, show_record},
};
use crate::render;

/// Requests of one page, at most and by default.
const PAGE_MAX: usize = 10_000;
/// Requests read from the journal at once.
const BATCH: u32 = 1_000;

/// Requests of a list by slack, at most: each is looked up separately.
const PRESSING_MAX: usize = 1_000;

/// Name for all states that may still change.
const OPEN: &str = "open";
/// States of requests, of stage-outs and of stage-ins.
const STATES: [&str; 12] = [
    "scanning",
    "refused",
    "moving",
    "paused",
    "safe",
    "released",
    "delivered",
    "cancelled",
    "failed",
    "waiting",
    "landing",
    "arrived",
];

/// Fields of a listing.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only requests in these states, with commas between; `open` stands for all that something still comes of.
    state: Option<String>,
    /// In which order: `slack` lists those under way, the one with the least slack first, as of a second ago or more; 1,000 at most,
    /// and no other page. The newest first where nothing is said.
    sort: Option<String>,
    /// Only those to this name.
    to: Option<String>,
    /// Only those that were submitted before this one, like `r7`: the last one of the page before.
    before: Option<String>,
    /// Most to show: 10,000 at most, and where nothing is said.
    limit: Option<usize>,
    /// Only these properties of each, with commas between, like `id,state`; all of them where nothing is said.
    fields: Option<String>,
}

/// Properties of a request.
static FIELDS: LazyLock<BTreeSet<String>> = LazyLock::new(|| match api::Request::schema() {
    RefOr::T(Schema::Object(object)) => object.properties.into_keys().collect(),
    RefOr::T(_) | RefOr::Ref(_) => BTreeSet::new(),
});

impl Which {
    /// Returns the wanted states; none for all.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an unknown state.
    fn states(&self) -> Result<Option<Vec<&str>>> {
        let Some(text) = &self.state else {
            return Ok(None);
        };
        let states: Vec<&str> = text.split(',').collect();
        match states
            .iter()
            .find(|state| **state != OPEN && !STATES.contains(state))
        {
            Some(unknown) => Err(Error::new(ErrorKind::Invalid, "list", "requests")
                .cause(format!("no request is ever `{unknown}`"))
                .hint(format!("there are {OPEN}, {}", STATES.join(", ")))),
            None => Ok(Some(states)),
        }
    }

    /// Returns the wanted properties; none for all.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an unknown property.
    fn fields(&self) -> Result<Option<BTreeSet<&str>>> {
        let Some(text) = &self.fields else {
            return Ok(None);
        };
        let fields: BTreeSet<&str> = text.split(',').collect();
        match fields.iter().find(|field| !FIELDS.contains(**field)) {
            Some(unknown) => {
                let known: Vec<&str> = FIELDS.iter().map(String::as_str).collect();
                Err(Error::new(ErrorKind::Invalid, "list", "requests")
                    .cause(format!("a request has no `{}`", unknown.escape_debug()))
                    .hint(format!("it has {}", known.join(", "))))
            }
            None => Ok(Some(fields)),
        }
    }
}

impl Which {
    /// Returns whether requests under way are wanted by slack.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an unknown order, or for options that exclude such a list.
    fn is_by_slack(&self) -> Result<bool> {
        let wrong = |cause: &str| {
            let cause = cause.to_owned();
            Error::new(ErrorKind::Invalid, "list", "requests").cause(cause)
        };
        match self.sort.as_deref() {
            None => Ok(false),
            Some("slack") if self.before.is_none() && self.to.is_none() => Ok(true),
            Some("slack") => Err(
                wrong("a list by slack begins with the least, and names no `to`")
                    .hint("leave out before= and to=; state= and limit= choose"),
            ),
            Some(_) => Err(wrong("they are sorted by `slack`, or the newest first")
                .hint("write sort=slack, or leave it out")),
        }
    }
}

/// Returns a request with these properties only, or with all if none are named.
fn pick(request: &api::Request, fields: Option<&BTreeSet<&str>>) -> Result<Value> {
    let shown = serde_json::to_value(request);
    let mut shown =
        shown.map_err(|cause| Error::new(ErrorKind::Other, "show", &request.id).cause(cause))?;
    if let (Some(fields), Value::Object(properties)) = (fields, &mut shown) {
        properties.retain(|name, _| fields.contains(name.as_str()));
    }
    Ok(shown)
}

/// Lists requests, newest first. Where there may be more, the header `Link` has the address of the next page.
#[utoipa::path(get, path = "/v1/requests", operation_id = "list_requests", tag = "requests", security(("bearer" = ["read"])), params(Which),
    responses((status = 200, body = Vec<api::Request>), (status = 401, body = api::Problem),
        (status = 422, body = api::Problem)))]
pub(crate) async fn list(
    State(desk): State<Desk>,
    Query(which): Query<Which>,
) -> Answer<(HeaderMap, Json<Vec<Value>>)> {
    let (states, fields) = (which.states()?, which.fields()?);
    if which.is_by_slack()? {
        let wanted = |mind: &Mind, record: &RequestRecord| is_in(mind, record, states.as_deref());
        let limit = which.limit.unwrap_or(PRESSING_MAX).min(PRESSING_MAX);
        let shown = tokio::task::block_in_place(|| pressing(&desk, limit, wanted))?;
        let shown = shown.iter().map(|request| pick(request, fields.as_ref()));
        return Ok((HeaderMap::new(), Json(shown.collect::<Result<_>>()?)));
    }
    let limit = which.limit.unwrap_or(PAGE_MAX).min(PAGE_MAX);
    let before = which.before.as_deref().map(parse_id).transpose()?;
    let is_wanted = |mind: &Mind, record: &RequestRecord| {
        let is_there = |to: &String| record.destinations().any(|name| name == to.as_str());
        which.to.as_ref().is_none_or(is_there) && is_in(mind, record, states.as_deref())
    };
    let shown = pick_before(&desk, before, limit, |record| {
        let is_wanted = is_wanted(&desk.centre.mind(), record);
        is_wanted.then(|| show_record(&desk, record))
    })?;
    let mut headers = HeaderMap::new();
    if let Some(last) = shown.last().filter(|_| shown.len() == limit) {
        headers.extend(next_page(&which, limit, last).map(|link| (header::LINK, link)));
    }
    let shown = shown.iter().map(|request| pick(request, fields.as_ref()));
    Ok((headers, Json(shown.collect::<Result<_>>()?)))
}

/// Converts requests before the given one, newest first, until enough conversions yield a value.
///
/// # Errors
/// The journal's.
fn pick_before<T>(
    desk: &Desk,
    mut before: Option<RequestId>,
    most: usize,
    make: impl Fn(&RequestRecord) -> Option<T>,
) -> Result<Vec<T>> {
    let (mut made, mut chooses) = (Vec::new(), false);
    while made.len() < most {
        let lacking = u32::try_from(most - made.len()).unwrap_or(BATCH);
        let batch = if chooses { BATCH } else { lacking.min(BATCH) };
        let store = &desk.centre.store;
        let read = || store.journal(|journal| journal.requests_before(before, batch));
        let records = tokio::task::block_in_place(read)?;
        let Some(last) = records.last() else {
            break;
        };
        before = Some(last.id);
        let wanted = records.iter().filter_map(&make);
        made.extend(wanted.take(most - made.len()));
        chooses = true;
    }
    Ok(made)
}

/// Returns whether a request is in one of these states, if any are named.
fn is_in(mind: &Mind, record: &RequestRecord, states: Option<&[&str]>) -> bool {
    states.is_none_or(|states| {
        let state = render::state(mind, record);
        states.contains(&state.as_str()) || (states.contains(&OPEN) && is_open(mind, record, state))
    })
}

/// Returns the requests under way by least slack, from the overview. Blocking.
fn pressing(
    desk: &Desk,
    limit: usize,
    is_wanted: impl Fn(&Mind, &RequestRecord) -> bool,
) -> Result<Vec<api::Request>> {
    let centre = &desk.centre;
    let glance = centre.glances.take(centre);
    let mut shown = Vec::new();
    for &id in glance.pressing.iter().take(PRESSING_MAX) {
        if shown.len() == limit {
            break;
        }
        let record = match centre.store.request(id) {
            Ok(record) => record,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if is_wanted(&centre.mind(), &record) {
            shown.push(show_record(desk, &record));
        }
    }
    Ok(shown)
}

/// Returns whether the request may still change by itself.
fn is_open(mind: &Mind, record: &RequestRecord, state: api::RequestState) -> bool {
    use api::RequestState as State;

    match state {
        State::Refused | State::Delivered | State::Cancelled | State::Failed => false,
        State::Arrived => mind.arrival(record.id).is_some_and(|view| view.releases),
        // A request that is no longer safe is not finished.
        State::Released => mind.is_awaited(record.id) || mind.is_unsafe_again(record.id),
        State::Safe => record.release || mind.is_awaited(record.id),
        State::Scanning | State::Moving | State::Paused | State::Waiting | State::Landing => true,
    }
}

/// Returns the link to the page after `last` (RFC 8288).
fn next_page(which: &Which, limit: usize, last: &api::Request) -> Option<HeaderValue> {
    let choice = [
        ("state", &which.state),
        ("to", &which.to),
        ("fields", &which.fields),
    ];
    let choice = choice
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_deref()?)));
    let choice: String = choice
        .map(|(name, value)| format!("&{name}={}", encode(value.as_bytes(), false)))
        .collect();
    let link = format!(
        "</v1/requests?limit={limit}&before={}{choice}>; rel=\"next\"",
        last.id
    );
    HeaderValue::from_str(&link).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn which(state: Option<&str>, to: Option<&str>) -> Which {
        Which {
            state: state.map(str::to_owned),
            sort: None,
            to: to.map(str::to_owned),
            before: None,
            limit: None,
            fields: None,
        }
    }

    #[test]
    fn properties_that_are_named_are_those_of_a_request() {
        let which = |fields: &str| Which {
            fields: Some(fields.to_owned()),
            ..which(None, None)
        };
        let both = which("state,id");
        assert_eq!(both.fields().unwrap().unwrap(), ["id", "state"].into());
        for wrong in ["", "id,", "stat", "ID"] {
            let refused = which(wrong);
            let refused = refused.fields().map(|_| ()).unwrap_err().to_string();
            assert!(refused.contains("a request has no"), "{refused}");
        }
    }

    #[test]
    fn a_list_by_slack_has_one_page() {
        let by = |sort: &str, before: Option<&str>, to: Option<&str>| Which {
            sort: Some(sort.to_owned()),
            before: before.map(str::to_owned),
            ..which(None, to)
        };
        assert!(!which(None, Some("home")).is_by_slack().unwrap());
        assert!(by("slack", None, None).is_by_slack().unwrap());
        for wrong in [
            by("age", None, None),
            by("slack", Some("r7"), None),
            by("slack", None, Some("home")),
        ] {
            assert!(wrong.is_by_slack().is_err());
        }
    }

    #[test]
    fn what_nothing_can_be_is_refused() {
        assert!(which(None, None).states().unwrap().is_none());
        let both = which(Some("open,safe"), None);
        assert_eq!(both.states().unwrap().unwrap(), ["open", "safe"]);
        for wrong in ["", "late", "safe,", "Safe"] {
            let refused = which(Some(wrong), None).states().map(|_| ()).unwrap_err();
            assert!(
                refused.to_string().contains("no request is ever"),
                "{refused}"
            );
        }
    }
}
