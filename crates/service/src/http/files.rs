//! Route for the files of a request and their progress.

use std::{ops::Range, sync::Arc};

use axum::{
    Extension, Json,
    extract::{Path, Query, State},
};
use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Result, Status};
use posthaste_engine::dataset::FileKind;
use posthaste_journal::{RequestRecord, Scan};
use posthaste_types::Bytes;
use serde::Deserialize;

use super::{Answer, Desk, requests::find_own};
use crate::{inbound::list::List, outbound, tokens::Caller};

/// Files of one page, at most and by default.
const PAGE_MAX: usize = 10_000;
const PAGE: usize = 1_000;

/// Which files are shown.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only those in this state.
    state: Option<api::FileState>,
    /// Begin behind so many: `next` of the page before.
    #[serde(default)]
    from: u64,
    /// Most to show: 10,000 at most, 1,000 where nothing is said.
    limit: Option<usize>,
}

/// File with its path and its position in the stream.
struct Placed {
    path: Vec<u8>,
    range: Range<u64>,
}

/// Shows how far the files of a request are, page by page: what is safe of each, or here of a stage-in.
#[utoipa::path(get, path = "/v1/requests/{id}/files", operation_id = "list_request_files", tag = "requests", security(("bearer" = ["submit"])),
    params(("id" = String, Path, description = "The request's id, like r7"), Which),
    responses((status = 200, body = api::FilePage), (status = 401, body = api::Problem), (status = 404, body = api::Problem),
        (status = 409, body = api::Problem, description = "Its files are not known yet, or not any more")))]
pub(crate) async fn show(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(id): Path<String>,
    Query(which): Query<Which>,
) -> Answer<Json<api::FilePage>> {
    Ok(Json(tokio::task::block_in_place(|| {
        let record = find_own(&desk, &caller, &id)?;
        let (files, chunk_size) = files(&desk, &record)?;
        let done = desk.centre.mind().done(record.id, chunk_size);
        let done = done.unwrap_or_else(|| ended(&record));
        Ok::<_, super::Refusal>(page(&files, &done, &which))
    })?))
}

/// Returns the files of a request in order, and its chunk size.
fn files(desk: &Desk, record: &RequestRecord) -> Result<(Vec<Placed>, Bytes)> {
    let unknown = |why: &str| {
        Error::new(
            ErrorKind::Conflict,
            "show",
            format!("the files of {}", record.id),
        )
        .cause(why.to_owned())
    };
    if outbound::goes_out(record) {
        let hint = "`posthaste ls` shows what is at the address";
        return Err(
            unknown("of a stage-out to an address they are not looked at one by one").hint(hint),
        );
    }
    let chunk_size = match record.scan {
        Some(Scan::Sealed { chunk_size, .. }) => chunk_size,
        Some(Scan::Failed { .. }) => return Err(unknown("its source could not be scanned")),
        None => {
            return Err(unknown("its source is still being scanned")
                .status_is(Status::Temporary)
                .hint("try again in a moment"));
        }
    };
    let store = &desk.centre.store;
    if record.stage_in.is_some() {
        let kept = store.stage_in_list(record.id);
        let kept = kept.map_err(|_| unknown("they are not kept once it is over"))?;
        let list = List::restore(&kept).map_err(|cause| {
            Error::new(
                ErrorKind::Corrupt,
                "read",
                format!("the list of {}", record.id),
            )
            .cause(cause)
        })?;
        let starts = list.starts();
        let placed = list
            .files
            .into_iter()
            .zip(starts)
            .map(|(file, start)| Placed {
                range: start..start + file.size,
                path: file.path,
            });
        return Ok((placed.collect(), chunk_size));
    }
    let list = store.list(record.id)?;
    let regular = list
        .files
        .into_iter()
        .filter(|file| file.kind == FileKind::Regular);
    let placed = regular.map(|file| Placed {
        range: file.offset..file.offset + file.size,
        path: file.path,
    });
    Ok((placed.collect(), chunk_size))
}

/// Returns the finished ranges of a request that the mind has forgotten.
fn ended(record: &RequestRecord) -> Vec<Range<u64>> {
    match record.ended.as_deref() {
        Some("safe" | "released" | "delivered" | "arrived") => vec![Range {
            start: 0,
            end: u64::MAX,
        }],
        _ => Vec::new(),
    }
}

fn page(files: &[Placed], done: &[Range<u64>], which: &Which) -> api::FilePage {
    let limit = which.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let from = usize::try_from(which.from).unwrap_or(usize::MAX);
    let mut page = api::FilePage {
        files: Vec::new(),
        next: None,
    };
    for (place, file) in files.iter().enumerate().skip(from) {
        let shown = progress(file, done);
        if which.state.is_some_and(|state| state != shown.state) {
            continue;
        }
        if page.files.len() == limit {
            page.next = Some(place as u64);
            break;
        }
        page.files.push(shown);
    }
    page
}

fn progress(file: &Placed, done: &[Range<u64>]) -> api::FileProgress {
    let Range { start, end } = file.range;
    let first = done.partition_point(|range| range.end < start);
    let mut through = 0;
    for range in done[first..].iter().take_while(|range| range.start < end) {
        through += range.end.min(end).saturating_sub(range.start.max(start));
    }
    // An empty file is finished with the bytes before it.
    let is_at_end = done.get(first).is_some_and(|range| range.start <= start);
    let state = match through {
        _ if through == end - start && (through > 0 || is_at_end) => api::FileState::Done,
        0 => api::FileState::Waiting,
        _ => api::FileState::Moving,
    };
    api::FileProgress {
        path: String::from_utf8_lossy(&file.path).into_owned(),
        size: end - start,
        done: through,
        state,
    }
}

#[cfg(test)]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "what is done is ranges, often one"
)]
mod tests {
    use super::*;

    fn placed(sizes: &[u64]) -> Vec<Placed> {
        let mut end = 0;
        let place = |(number, size): (usize, &u64)| {
            end += size;
            Placed {
                path: format!("f{number}").into_bytes(),
                range: end - size..end,
            }
        };
        sizes.iter().enumerate().map(place).collect()
    }

    fn which(state: Option<api::FileState>, from: u64, limit: usize) -> Which {
        Which {
            state,
            from,
            limit: Some(limit),
        }
    }

    #[test]
    fn a_file_is_as_far_as_the_chunks_it_lies_in() {
        let files = placed(&[10, 0, 10, 5, 0, 7]);
        let far = |done: &[Range<u64>]| -> Vec<u64> {
            let page = page(&files, done, &which(None, 0, 100));
            page.files.iter().map(|file| file.done).collect()
        };
        assert_eq!(far(&[]), [0; 6]);
        assert_eq!(far(&[0..u64::MAX]), [10, 0, 10, 5, 0, 7]);
        assert_eq!(far(&[4..16]), [6, 0, 6, 0, 0, 0]);
        assert_eq!(far(&[0..4, 8..12, 24..26]), [6, 0, 2, 1, 0, 1]);
        let states = |done: &[Range<u64>]| -> Vec<api::FileState> {
            let page = page(&files, done, &which(None, 0, 100));
            page.files.iter().map(|file| file.state).collect()
        };
        use api::FileState::{Done, Moving, Waiting};
        assert_eq!(
            states(&[0..16]),
            [Done, Done, Moving, Waiting, Waiting, Waiting]
        );
        assert_eq!(states(&[]), [Waiting; 6]);
        assert_eq!(states(&[0..u64::MAX]), [Done; 6]);
    }

    #[test]
    fn pages_go_on_where_the_last_ended_whichever_files_are_shown() {
        let files = placed(&[3; 10]);
        let done = [0..3, 9..12, 15..30];
        let mut found = Vec::new();
        let mut from = Some(0);
        while let Some(next) = from {
            let page = page(&files, &done, &which(Some(api::FileState::Done), next, 2));
            found.extend(page.files.into_iter().map(|file| file.path));
            from = page.next;
        }
        assert_eq!(found, ["f0", "f3", "f5", "f6", "f7", "f8", "f9"]);
    }
}
