//! Route for events as they happen: Server-Sent Events.

use std::{collections::VecDeque, convert::Infallible, sync::Arc};

use axum::{
    Extension,
    extract::{Query, State},
    http::HeaderMap,
    response::sse::{Event, KeepAlive, Sse},
};
use futures_util::{Stream, stream};
use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind};
use posthaste_journal::EventRecord;
use posthaste_types::RequestId;
use serde::Deserialize;
use tokio::sync::watch;

use super::{Answer, Desk};
use crate::{driver::Centre, render, tokens::Caller};

/// Events read from the journal at once: memory for a slow reader.
const BATCH: u32 = 256;

/// Which events to stream.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only those of this request, like `r7`, and those about no request in particular.
    request: Option<String>,
    /// Only those after this number; the header `Last-Event-ID` says the same.
    after: Option<u64>,
}

/// Streams events from the beginning, or from where the reader left, and goes on as they happen.
#[utoipa::path(get, path = "/v1/events", operation_id = "stream_events", tag = "events", security(("bearer" = ["read"])), params(Which),
    responses((status = 200, content_type = "text/event-stream", body = String,
            description = "Server-Sent Events; the `data` of each is an `Event`"),
        (status = 401, body = api::Problem), (status = 422, body = api::Problem)))]
pub(crate) async fn stream(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Query(which): Query<Which>,
    headers: HeaderMap,
) -> Answer<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let request = which
        .request
        .as_deref()
        .map(str::parse::<RequestId>)
        .transpose()
        .map_err(|_| {
            Error::new(ErrorKind::Invalid, "stream", "events")
                .cause("a request's id is written like r7")
        })?;
    let resumed = headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse().ok());
    let reader = Reader {
        newest: desk.centre.newest_event(),
        centre: desk.centre,
        caller,
        request,
        after: resumed.or(which.after).unwrap_or(0),
        waiting: VecDeque::new(),
    };
    let events = stream::unfold(reader, |mut reader| async {
        let event = reader.next().await?;
        Some((Ok(event), reader))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

struct Reader {
    centre: Arc<Centre>,
    caller: Arc<Caller>,
    newest: watch::Receiver<u64>,
    request: Option<RequestId>,
    after: u64,
    waiting: VecDeque<api::Event>,
}

impl Reader {
    /// Returns whether an event may be shown. Events about no request are of depots, and those of
    /// other owners are not there.
    fn sees(&self, record: &EventRecord) -> bool {
        let (event, viewer) = (&record.event, self.caller.viewer());
        let depot = event.depot.filter(|_| event.request.is_none());
        depot.is_none_or(|depot| match self.centre.depots.get(depot) {
            Some(depot) => viewer.sees(&depot.record),
            None => true,
        })
    }

    async fn next(&mut self) -> Option<Event> {
        while self.waiting.is_empty() {
            // Marked before reading, so that an event in between wakes the wait below.
            self.newest.borrow_and_update();
            let (request, after) = (self.request, self.after);
            let read = tokio::task::block_in_place(|| {
                self.centre
                    .store
                    .journal(|journal| journal.events(request, after, BATCH))
            });
            let read = read.ok()?;
            // Those that it may not see are not read again.
            self.after = read.last().map_or(self.after, |last| last.seq);
            let seen = read.iter().filter(|record| self.sees(record));
            let seen = seen.map(|record| render::event(&self.centre, record));
            let seen: Vec<api::Event> = seen.collect();
            self.waiting.extend(seen);
            if read.is_empty() {
                self.newest.changed().await.ok()?;
            }
        }
        let event = self.waiting.pop_front()?;
        let shown = Event::default()
            .id(event.seq.to_string())
            .event(event.name.clone());
        Some(shown.json_data(&event).unwrap_or_default())
    }
}
