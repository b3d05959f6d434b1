//! Many requests in one call: JSON lines in, and JSON lines back as they are processed.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Extension,
    body::Body,
    extract::State,
    http::{HeaderMap, header},
    response::IntoResponse,
};
use futures_util::{StreamExt, stream};
use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::RequestId;

use super::{
    Answer, BODY_BYTES_MAX, Desk, Refusal,
    lines::{LINES, Line, Lines, check_kind},
    requests::claim,
};
use crate::{submit as submission, tokens::Caller};

/// Lines of one call: ten times the requests that may wait for a scan.
const LINES_MAX: u64 = 100_000;
/// Lines in progress at once: one transaction of the journal writes them together.
const AT_ONCE: usize = 64;

/// Submits many stage-outs, each line of the body one of them. They are taken as they come, a bad one does not keep the others,
/// and each is written down when its line is answered. A line may be as long as the body of a single submission, and a call
/// has 100,000 lines at most; empty ones count, and are not answered. What a caller sends again with the submission ids of
/// before is taken once.
#[utoipa::path(post, path = "/v1/requests/bulk", operation_id = "submit_requests", tag = "requests", security(("bearer" = ["submit"])),
    request_body(content = api::NewRequest, content_type = "application/x-ndjson", description = "A stage-out, a line each"),
    responses((status = 200, content_type = "application/x-ndjson", body = api::LineAnswer,
            description = "What became of each line, in their order"),
        (status = 401, body = api::Problem), (status = 422, body = api::Problem)))]
pub(crate) async fn submit(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    headers: HeaderMap,
    body: Body,
) -> Answer<impl IntoResponse> {
    check_kind(&headers, "the requests")?;
    let lines = stream::unfold(Lines::new(body, LINES_MAX), |mut lines| async {
        let line = lines.next().await?;
        Some((line, lines))
    });
    let answers = lines.map(move |(number, line)| {
        let (desk, caller) = (desk.clone(), Arc::clone(&caller));
        async move { answer(number, take(desk, caller, line).await) }
    });
    // Answers that are ready are sent together.
    let answers = answers.buffered(AT_ONCE).ready_chunks(AT_ONCE);
    let answers = answers.map(|ready| Ok::<_, Infallible>(ready.concat()));
    let kind = [(header::CONTENT_TYPE, LINES)];
    Ok((kind, Body::from_stream(answers)))
}

/// Accepts a line. It is recorded completely even if the client no longer waits.
async fn take(desk: Desk, caller: Arc<Caller>, line: Line) -> Result<(RequestId, bool)> {
    let invalid = |why: String| Error::new(ErrorKind::Invalid, "read", "the line").cause(why);
    let text = match line {
        Line::Text(text) => text,
        Line::TooLong => {
            return Err(invalid(format!("it is longer than {BODY_BYTES_MAX} bytes")));
        }
        Line::TooMany => {
            let many = invalid(format!("it is one more than the {LINES_MAX} of one call"));
            return Err(many.hint("send it and what follows in another call"));
        }
    };
    let mut new: api::NewRequest = serde_json::from_slice(&text)
        .map_err(|cause| invalid(cause.to_string()).hint("see openapi/ for what a request has"))?;
    let ending = || Error::new(ErrorKind::Cancelled, "submit", "the request");
    let claimed = tokio::task::spawn_blocking(move || {
        claim(&desk, &caller, &mut new)?;
        Ok::<_, Error>((desk, new))
    });
    let (desk, new) = claimed.await.map_err(|_| ending())??;
    // If too many requests of its owner wait for their scan, so does this one.
    let owner = new.wishes.owner.as_deref().unwrap_or_default();
    let permit = desk.centre.scans.wait(owner).await;
    let taken = tokio::task::spawn_blocking(move || {
        let (record, fresh) = submission::accept(&desk.centre, &new)?;
        if fresh {
            desk.centre.traced.begin(record.id);
            permit.send(record.id);
        }
        Ok((record.id, !fresh))
    });
    taken.await.map_err(|_| ending())?
}

/// Returns the answer to a line, as a line.
fn answer(line: u64, taken: Result<(RequestId, bool)>) -> Vec<u8> {
    let answer = match taken {
        Ok((id, known)) => api::LineAnswer {
            line,
            id: Some(id.to_string()),
            known,
            problem: None,
        },
        Err(error) => api::LineAnswer {
            line,
            id: None,
            known: false,
            problem: Some(Refusal::from(error).problem()),
        },
    };
    let mut text = serde_json::to_vec(&answer).unwrap_or_default();
    text.push(b'\n');
    text
}
