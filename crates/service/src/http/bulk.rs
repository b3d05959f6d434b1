//! Many requests in one call: JSON lines come, and JSON lines go back, while they come.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Extension,
    body::{Body, BodyDataStream},
    extract::State,
    http::{HeaderMap, header},
    response::IntoResponse,
};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::RequestId;

use super::{Answer, BODY_BYTES_MAX, Desk, Refusal, requests::claim};
use crate::{submit as submission, tokens::Caller};

/// JSON, a line each.
const LINES: &str = "application/x-ndjson";
/// Lines of one call: ten times what waits for a scan.
const LINES_MAX: u64 = 100_000;
/// Lines that are under way at once: what one transaction of the journal writes together.
const AT_ONCE: usize = 64;

/// Submits many stage-outs, each line of the body one of them. They are taken as they come, a bad one does not keep the others,
/// and each is written down when its line is answered. A line may be as long as the body of a single submission, and a call
/// has 100,000 lines at most; empty ones count, and are not answered. What a caller sends again with the submission ids of
/// before is taken once.
#[utoipa::path(post, path = "/v1/requests/bulk", tag = "requests", security(("bearer" = ["submit"])),
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
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some(LINES) {
        return Err(Error::new(ErrorKind::Invalid, "read", "the requests")
            .cause(format!("their content type is `{}`", kind.escape_debug()))
            .hint(format!("send {LINES}, a request a line"))
            .into());
    }
    let lines = stream::unfold(Lines::new(body), |mut lines| async {
        let line = lines.next().await?;
        Some((line, lines))
    });
    let answers = lines.map(move |(number, line)| {
        let (desk, caller) = (desk.clone(), Arc::clone(&caller));
        async move { answer(number, take(desk, caller, line).await) }
    });
    // Answers that are there already go together.
    let answers = answers.buffered(AT_ONCE).ready_chunks(AT_ONCE);
    let answers = answers.map(|ready| Ok::<_, Infallible>(ready.concat()));
    let kind = [(header::CONTENT_TYPE, LINES)];
    Ok((kind, Body::from_stream(answers)))
}

/// Takes a line. It is written down to its end even if nobody waits for the answer any more.
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
    // Where too many wait for their scan, so does this one.
    let permit = desk.scans.clone().reserve_owned().await;
    let permit = permit.map_err(|_| ending())?;
    let taken = tokio::task::spawn_blocking(move || {
        claim(&desk, &caller, &mut new)?;
        let (record, fresh) = submission::accept(&desk.centre, &new)?;
        if fresh {
            permit.send(record.id);
        }
        Ok((record.id, !fresh))
    });
    taken.await.map_err(|_| ending())?
}

/// What is answered to a line, as a line.
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

/// A line of a body.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Text(Bytes),
    /// It was not kept.
    TooLong,
    /// Nothing is read after it.
    TooMany,
}

/// The lines of a body, as it comes. No more is kept of it than one line, and what came with its end.
struct Lines {
    body: BodyDataStream,
    came: BytesMut,
    /// So much of it has no end of a line.
    looked: usize,
    number: u64,
    is_skipping: bool,
    is_over: bool,
}

impl Lines {
    fn new(body: Body) -> Self {
        Self {
            body: body.into_data_stream(),
            came: BytesMut::new(),
            looked: 0,
            number: 0,
            is_skipping: false,
            is_over: false,
        }
    }

    /// The next line that is not empty, with its number; none after the last, and where the connection broke.
    async fn next(&mut self) -> Option<(u64, Line)> {
        loop {
            let end = self.came[self.looked..]
                .iter()
                .position(|&byte| byte == b'\n');
            let end = end.map(|end| self.looked + end + 1);
            if let Some(end) = end.or(self.is_over.then_some(self.came.len())) {
                if end == 0 && !self.is_skipping {
                    return None;
                }
                let text = self.came.split_to(end).freeze();
                self.looked = 0;
                if let Some(line) = self.line(text) {
                    return Some((self.number, line));
                }
                continue;
            }
            self.looked = self.came.len();
            if self.looked > BODY_BYTES_MAX {
                self.is_skipping = true;
                self.came.clear();
                self.looked = 0;
            }
            match self.body.next().await {
                Some(Ok(data)) => self.came.extend_from_slice(&data),
                // What has no end may be half of what was meant.
                Some(Err(_)) => return None,
                None => self.is_over = true,
            }
        }
    }

    /// What came until the end of a line; none for an empty one.
    fn line(&mut self, text: Bytes) -> Option<Line> {
        self.number += 1;
        if self.number > LINES_MAX {
            (self.is_over, self.is_skipping) = (true, false);
            self.came.clear();
            return Some(Line::TooMany);
        }
        let was_skipping = std::mem::take(&mut self.is_skipping);
        if was_skipping || text.len() > BODY_BYTES_MAX {
            return Some(Line::TooLong);
        }
        let is_empty = text.iter().all(u8::is_ascii_whitespace);
        (!is_empty).then_some(Line::Text(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(pieces: &[&str]) -> Vec<(u64, Line)> {
        let pieces: Vec<_> = pieces
            .iter()
            .map(|piece| Ok::<_, Infallible>(piece.to_string()))
            .collect();
        let mut lines = Lines::new(Body::from_stream(stream::iter(pieces)));
        let mut all = Vec::new();
        while let Some(line) = lines.next().await {
            all.push(line);
        }
        all
    }

    fn text(number: u64, text: &'static str) -> (u64, Line) {
        (number, Line::Text(Bytes::from_static(text.as_bytes())))
    }

    #[tokio::test]
    async fn lines_are_read_wherever_they_are_cut() {
        let whole = [text(1, "one\n"), text(3, "two\n"), text(4, "three")];
        assert_eq!(read(&["one\n\ntwo\nthree"]).await, whole);
        assert_eq!(
            read(&["o", "ne\n \n", "two", "\n", "thr", "ee"]).await[0],
            whole[0]
        );
        assert_eq!(read(&["one", "\n", "\n", "two\n", "three"]).await, whole);
        assert_eq!(read(&[]).await, []);
        assert_eq!(read(&["\n\n"]).await, []);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_left_out_and_not_kept() {
        let half = "x".repeat(BODY_BYTES_MAX / 2 + 10);
        let pieces = ["a\n", &half, &half, &half, "\nb\n"];
        let expected = [text(1, "a\n"), (2, Line::TooLong), text(3, "b\n")];
        assert_eq!(read(&pieces).await, expected);
        let pieces = [&half[..], &half];
        assert_eq!(read(&pieces).await, [(1, Line::TooLong)]);
        let whole = format!("{half}{half}\nb");
        assert_eq!(read(&[&whole]).await, [(1, Line::TooLong), text(2, "b")]);
    }

    #[tokio::test]
    async fn what_is_one_more_than_the_most_ends_it() {
        let many = "{}\n".repeat(usize::try_from(LINES_MAX).unwrap() + 5);
        let lines = read(&[&many]).await;
        assert_eq!(lines.len() as u64, LINES_MAX + 1);
        assert_eq!(lines.last().unwrap().1, Line::TooMany);
    }
}
