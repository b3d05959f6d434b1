//! Requests with any number of named files, as JSON lines.

use std::{borrow::Cow, sync::Arc};

use axum::{
    Extension, Json,
    body::Body,
    extract::{Query, State},
    http::{HeaderMap, StatusCode},
};
use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use posthaste_engine::dataset::is_path_below;
use posthaste_journal::RequestRecord;

use super::{
    Answer, Desk,
    lines::{self, Line, Lines},
    requests::{How, claim, show_record},
};
use crate::{store::NamesDraft, submit as submission, tokens::Caller};

/// Limits of named files and of the bytes of all their names: a dataset's own limit, and memory
/// while they are looked up.
const NAMES_MAX: u64 = 10_000_000;
const NAMES_BYTES_MAX: u64 = 1 << 30;

/// Submits a stage-out of files that are named: the first line of the body is the request, as `POST /v1/requests` takes it, and each
/// other one the path of a file below its source, as a string of JSON; 10,000,000 at most. They are kept as they come. Nothing is
/// submitted where a line is wrong, or the connection breaks before the last.
#[utoipa::path(post, path = "/v1/requests/named", operation_id = "submit_named_files", tag = "requests", security(("bearer" = ["submit"])), params(How),
    request_body(content = String, content_type = "application/x-ndjson",
        description = "A stage-out, then the path of a file a line, from its source"),
    responses((status = 201, body = api::Request),
        (status = 200, body = api::Request, description = "That submission id was taken before, or it was a dry run"),
        (status = 401, body = api::Problem), (status = 404, body = api::Problem), (status = 422, body = api::Problem)))]
pub(crate) async fn submit(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Query(how): Query<How>,
    headers: HeaderMap,
    body: Body,
) -> Answer<(StatusCode, Json<api::Request>)> {
    lines::check_kind(&headers, "the files")?;
    let mut lines = Lines::new(body, NAMES_MAX + 1);
    let mut new = first(&mut lines).await?;
    let known = tokio::task::block_in_place(|| {
        claim(&desk, &caller, &mut new)?;
        submission::known(&desk.centre, &new)
    })?;
    if let Some(known) = known.filter(|_| !how.dry_run) {
        return Ok((StatusCode::OK, Json(show_record(&desk, &known))));
    }
    let store = Arc::clone(&desk.centre.store);
    let (mut record, mut draft) = tokio::task::block_in_place(|| {
        let record = submission::check_named(&desk.centre, &new)?;
        let draft = store.begin_names(&record.dataset)?;
        Ok::<_, Error>((record, draft))
    })?;
    take(&mut lines, &mut draft, &new.source).await?;
    record.named = Some(tokio::task::block_in_place(|| store.keep_names(draft))?);
    if how.dry_run {
        let decided = submission::rehearse_named(&desk.centre, &new, &record).await;
        tokio::task::block_in_place(|| store.forget_names(&record));
        return Ok((StatusCode::OK, Json(decided?)));
    }
    let written = write_down(&desk, &new, record.clone());
    let taken_before = !matches!(&written, Ok((_, true)));
    if taken_before {
        tokio::task::block_in_place(|| store.forget_names(&record));
    }
    let (record, _) = written?;
    let status = if taken_before {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok((status, Json(show_record(&desk, &record))))
}

/// Records it and has its source scanned; or returns what was submitted under its id meanwhile,
/// marked as such.
fn write_down(
    desk: &Desk,
    new: &api::NewRequest,
    record: RequestRecord,
) -> Answer<(RequestRecord, bool)> {
    let permit = desk.reserve_scan(new.wishes.owner.as_ref(), &new.source)?;
    let (record, fresh) = tokio::task::block_in_place(|| {
        let _turn = desk.centre.turns.wait(new.submission_id.as_deref());
        submission::keep(&desk.centre, new, record)
    })?;
    if fresh {
        desk.centre.traced.begin(record.id);
        permit.send(record.id);
    }
    Ok((record, fresh))
}

/// Reads the request, which comes first.
async fn first(lines: &mut Lines) -> Result<api::NewRequest> {
    let invalid = || Error::new(ErrorKind::Invalid, "read", "the request, the first line");
    match lines.next().await {
        Some((_, Line::Text(text))) => serde_json::from_slice(&text).map_err(|cause| {
            let error = invalid().cause(cause.to_string());
            error.hint("see openapi/ for what a request has")
        }),
        Some((_, Line::TooLong)) => Err(invalid().cause("it is too long")),
        Some((_, Line::TooMany)) | None => Err(invalid().cause("there is none")),
    }
}

/// Reads all names.
async fn take(lines: &mut Lines, draft: &mut NamesDraft, source: &str) -> Result<()> {
    let mut count = 0_u64;
    while let Some((_, line)) = lines.next().await {
        count += 1;
        let invalid = |why: String| {
            let what = format!("the name of file {count} below {source}");
            Error::new(ErrorKind::Invalid, "read", what)
                .cause(why)
                .at(Locus::Source)
        };
        let text = match line {
            Line::Text(text) => text,
            Line::TooLong => return Err(invalid("it is too long".into())),
            Line::TooMany => {
                let many = invalid(format!(
                    "it is one more than the {NAMES_MAX} of one request"
                ));
                return Err(many.hint("name their directories, in requests of their own"));
            }
        };
        let name: Cow<'_, str> = serde_json::from_slice(&text)
            .map_err(|cause| invalid(cause.to_string()).hint("write a string of JSON"))?;
        if !is_path_below(name.as_bytes()) {
            let shown = name.escape_debug();
            let why = format!("`{shown}` is no path of a file from there");
            return Err(invalid(why).hint("write it like `run7/result.h5`"));
        }
        if draft.bytes() > NAMES_BYTES_MAX {
            return Err(invalid("all names together are longer than a GiB".into()));
        }
        tokio::task::block_in_place(|| draft.add(name.as_bytes()))?;
    }
    let refused = |why: &str| {
        Error::new(ErrorKind::Invalid, "submit", source)
            .cause(why.to_owned())
            .at(Locus::Source)
    };
    if lines.is_broken() {
        return Err(refused(
            "the connection broke before the last of its files was named",
        ));
    }
    if count == 0 {
        return Err(refused("no file is named").hint("name some, or submit all of it"));
    }
    Ok(())
}
