//! Scans the sources of requests, and records their contents.

use std::{os::unix::ffi::OsStrExt, path::Path, sync::Arc, thread, time::Duration};

use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use posthaste_engine::{
    copy::Filter,
    dataset::{self, Bounds, FileKind, FileList, Lent, Root, Wanted},
};
use posthaste_journal::{Patterns, RequestRecord, Scan};
use posthaste_types::{Bytes, RequestId, Timestamp};
use tokio::sync::mpsc;
use tracing::Instrument;

use super::{
    going::{Begun, Going, Leave},
    shares::Share,
    submit,
};
use crate::{driver::Centre, inbound, outbound, store::Remains};

/// Pause before an unavailable journal is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Most attempts to list a source for which other scans leave no memory.
const TRIES_MAX: u32 = 10;
/// Longest wait between these attempts; memory given back ends it earlier.
const FREED_WITHIN: Duration = Duration::from_secs(60);

/// Scans sources, with a limit per owner, including those that a crash left unscanned.
pub(crate) async fn scan_all(centre: Arc<Centre>, mut queue: mpsc::UnboundedReceiver<Begun>) {
    let mut running = tokio::task::JoinSet::new();
    while let Some((request, place)) = queue.recv().await {
        while running.try_join_next().is_some() {}
        let centre = Arc::clone(&centre);
        running.spawn(async move {
            let mut place = place;
            let _end = centre.scans.ends(request);
            // Writes that an unavailable journal lost are repeated: nobody else would, until the
            // next start.
            while let Err(error) = in_turn(&centre, request, &mut place).await {
                tracing::warn!(%request, "{error}");
                if !error.is_temporary() {
                    break;
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        });
    }
}

/// Scans a source when it is its owner's turn; until then it waits in its slot.
async fn in_turn(
    centre: &Arc<Centre>,
    request: RequestId,
    place: &mut Option<Share>,
) -> Result<()> {
    let Some(going) = centre.scans.of(request) else {
        return Ok(());
    };
    let record = tokio::task::block_in_place(|| centre.store.request(request))?;
    let leave = tokio::select! {
        () = going.unwanted() => None,
        leave = centre.scans.enter(&record.wishes.owner) => Some(leave),
    };
    drop(place.take());
    // It is large, and those that wait are many.
    Box::pin(traced(centre, request, &going, leave.as_ref())).await
}

async fn traced(
    centre: &Arc<Centre>,
    request: RequestId,
    going: &Going,
    leave: Option<&Leave>,
) -> Result<()> {
    let span = centre.traced.of_scan(request);
    let scanned = scan(centre, request, going, leave);
    let scanned = scanned.instrument(span.clone()).await;
    posthaste_trace::ended(&span, &scanned);
    scanned
}

async fn scan(
    centre: &Arc<Centre>,
    request: RequestId,
    going: &Going,
    leave: Option<&Leave>,
) -> Result<()> {
    let record = centre.store.request(request)?;
    if record.scan.is_some() {
        return submit(centre, request).await;
    }
    if outbound::onward::of(&record).is_some() {
        // The export is scanned with its offload.
        return Ok(());
    }
    let looked = tokio::select! {
        biased;
        () = going.unwanted() => None,
        looked = look_in_turn(centre, &record, leave) => Some(looked),
    };
    let is_cancelled = !going.counts();
    let (scan, list, failed) = match looked.filter(|_| !is_cancelled) {
        Some(Ok((scan, list))) => (scan, list, None),
        Some(Err(error)) => (failed(&error), None, Some(error)),
        None => {
            let error = Error::new(ErrorKind::Cancelled, "scan", request.to_string());
            (Scan::cancelled(), None, Some(error))
        }
    };
    if failed.is_some() && outbound::onward::goes_on(&record) {
        outbound::onward::fail(centre, &record, scan.clone())?;
    }
    tokio::task::block_in_place(|| {
        centre.keep_scan(request, scan, list)?;
        centre.store.forget_names(&record);
        Ok::<_, Error>(())
    })?;
    if let Some(error) = failed {
        posthaste_trace::fail(&tracing::Span::current(), &error);
        centre.store.retire_key(request, Remains::Nothing)?;
        // Its result may have been stored just now.
        tokio::task::block_in_place(|| centre.store.forget_outward(request));
        if outbound::goes_out(&record) {
            centre.outgoing.places.give_back(record.id);
        }
        tracing::warn!(%request, "{error}");
        return Ok(());
    }
    submit(centre, request).await
}

/// Looks at it, again where the lists of others left no memory for its own.
async fn look_in_turn(
    centre: &Arc<Centre>,
    record: &RequestRecord,
    leave: Option<&Leave>,
) -> Result<(Scan, Option<Vec<u8>>)> {
    let Some(leave) = leave else {
        return Err(Error::new(
            ErrorKind::Cancelled,
            "scan",
            record.id.to_string(),
        ));
    };
    for _ in 1..TRIES_MAX {
        let looked = look(centre, record, &leave.lent).await;
        if looked.is_ok() || !leave.lent.give_back() {
            return looked;
        }
        tracing::info!(request = %record.id, "its list waits for memory that lists of others take");
        leave.lent.wait(FREED_WITHIN).await;
    }
    look(centre, record, &leave.lent).await
}

/// Lists what a request is about, and looks at where it goes.
async fn look(
    centre: &Arc<Centre>,
    record: &RequestRecord,
    lent: &Arc<Lent>,
) -> Result<(Scan, Option<Vec<u8>>)> {
    let (scan, list) = if outbound::goes_out(record) {
        (outbound::submit::scan(centre, record, lent).await?, None)
    } else if record.stage_in.is_some() {
        (inbound::submit::scan(centre, record, lent).await?, None)
    } else {
        // If this is cancelled, so is the list.
        let wanted = Wanted::default();
        let bounds = Bounds::while_wanted(&wanted).sharing(lent);
        let (here, record) = (Arc::clone(centre), record.clone());
        let sealed = tokio::task::spawn_blocking(move || seal(&here, &record, bounds)).await;
        sealed.map_err(|cause| {
            Error::new(ErrorKind::Other, "scan", "a source").cause(cause.to_string())
        })??
    };
    tokio::task::block_in_place(|| centre.quotas.weigh(centre, record, &scan))?;
    if outbound::onward::goes_on(record) {
        outbound::onward::look(centre, record, list.as_deref()).await?;
    }
    Ok((scan, list))
}

/// Returns the scan that ended with an error.
pub(crate) fn failed(error: &Error) -> Scan {
    Scan::Failed {
        code: error.code().to_owned(),
        error: error.to_string(),
    }
}

/// Lists a source; the caller must still keep a small list.
fn seal(
    centre: &Centre,
    record: &RequestRecord,
    bounds: Bounds,
) -> Result<(Scan, Option<Vec<u8>>)> {
    let list = listed_of(centre, record, bounds)?;
    settle(&list, centre.clock.now());
    check_kept(record, &list)?;
    let small = centre.store.keep_if_large(record.id, &list)?;
    Ok((sealed(record, &list), small))
}

/// Longest wait for files that changed right before their listing, or ahead of this machine's
/// clock.
const SETTLE_MAX: Duration = Duration::from_secs(3);

/// Waits until any further change of a file gives it other times than listed. Those are compared
/// when it is read and before it is removed. Blocking.
pub(crate) fn settle(list: &FileList, now: Timestamp) {
    let now = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
    let left = list.settled_ns().saturating_sub(now.saturating_mul(1000));
    let left = Duration::from_nanos(u64::try_from(left).unwrap_or(0));
    thread::sleep(left.min(SETTLE_MAX));
}

/// Checks that removing the source loses nothing. An address keeps less than depots do.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if a file has attributes that are not kept.
pub(crate) fn check_kept(record: &RequestRecord, list: &FileList) -> Result<()> {
    if !record.release || record.drops_extras {
        return Ok(());
    }
    let is_address = outbound::submit::is_address(&record.destination);
    let beyond = || list.beyond_bytes().filter(|_| is_address);
    let Some((file, lacks)) = list.lacking().or_else(beyond) else {
        return Ok(());
    };
    let root = Path::new(std::ffi::OsStr::from_bytes(&record.source));
    let shown = file.below(root).display().to_string();
    Err(Error::new(ErrorKind::Unsupported, "release", shown)
        .at(Locus::Source)
        .cause(lacks.to_owned())
        .hint("keep the source, leave it out with --exclude, or drop that with --release anyway"))
}

/// Lists the source of a request with its owner's rights. Blocking.
pub(super) fn listed_of(
    centre: &Centre,
    record: &RequestRecord,
    bounds: Bounds,
) -> Result<FileList> {
    let root = Path::new(std::ffi::OsStr::from_bytes(&record.source));
    let actor = centre.store.actors.of(record)?;
    let names = centre.store.names(record)?;
    // If the kernel does not enforce an owner's rights, the path was checked at submission.
    let is_judged = !record.wishes.owner.is_empty() && !centre.store.actors.are_owners();
    actor.run(|| {
        let root = Root::open(root, is_judged)?.within(bounds);
        match &names {
            Some(names) => {
                let filter = filter(&record.patterns)?;
                let names = names
                    .iter()
                    .filter(|name| filter.passes_file(name.as_ref()));
                some(&root, dataset::scan_files(&root, names)?, &filter)
            }
            None => listed(&root, &record.only, &record.patterns),
        }
    })
}

/// Lists a directory or its named files, filtered by patterns.
pub(crate) fn listed(root: &Root, only: &[String], patterns: &Patterns) -> Result<FileList> {
    let filter = filter(patterns)?;
    let list = if only.is_empty() {
        dataset::scan_passing(root, &filter)
    } else {
        let only = only
            .iter()
            .filter(|name| filter.passes_file(name.as_bytes()));
        dataset::scan_files(root, only)
    };
    some(root, list?, &filter)
}

/// Most patterns of one request.
const PATTERNS_MAX: usize = 1000;

/// Returns the patterns of the wanted files.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an invalid pattern, or too many.
pub(crate) fn patterns(new: &api::NewRequest) -> Result<Patterns> {
    let patterns = Patterns {
        include: new.include.clone(),
        exclude: new.exclude.clone(),
    };
    filter(&patterns)?;
    if patterns.include.len() + patterns.exclude.len() > PATTERNS_MAX {
        return Err(Error::new(ErrorKind::Invalid, "submit", &new.source)
            .cause(format!("{PATTERNS_MAX} patterns are the most"))
            .hint("name the files with --files-from"));
    }
    Ok(patterns)
}

/// Compiles the patterns.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an invalid pattern.
fn filter(patterns: &Patterns) -> Result<Filter> {
    Filter::new(&patterns.include, &patterns.exclude)
}

/// Checks that patterns left some files: the intended ones may have other names.
fn some(root: &Root, list: FileList, filter: &Filter) -> Result<FileList> {
    let is_none = list
        .files
        .iter()
        .all(|file| file.kind == FileKind::Directory);
    if is_none && !filter.is_open() {
        let shown = root.path().display().to_string();
        return Err(Error::new(ErrorKind::NotFound, "list", shown)
            .at(Locus::Source)
            .cause("no file of it passes --include and --exclude"));
    }
    Ok(list)
}

pub(super) fn sealed(record: &RequestRecord, list: &FileList) -> Scan {
    let bytes = Bytes::new(list.bytes);
    let files = list.regular_files() as u64;
    Scan::Sealed {
        bytes,
        files,
        chunk_size: dataset::chunk_size_for(bytes, !record.recipients.is_empty()),
    }
}
