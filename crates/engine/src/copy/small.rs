//! Small files: whole in memory, several in one request if an end supports bundles.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use posthaste_endpoint::{Checksum, Entry, Error, Locus, Parcel, Result, Whole};

use super::{
    Notice,
    cargo::Cargo,
    help::{self, Left},
    lane::{Shared, note_lent, spec_of},
    progress::Moving,
    remote::{borrow_memory, check_copy, needs_copy},
    retry::retried,
    walk::Work,
};

/// Small files read at once for one bundle from an end that gives one at a time.
const READS_AT_ONCE: usize = 16;

/// Bytes copied, and their checksum.
pub(super) type Copied = (u64, Checksum);

/// Copies one small file.
pub(super) async fn copy(
    shared: &Arc<Shared>,
    work: &Work,
    entry: &Entry,
    moving: &Arc<Moving>,
) -> Result<Copied> {
    let left = help::whole(shared, work, entry, moving).await;
    if let Left::Done(sum) = left {
        return Ok((entry.size, sum));
    }
    let _memory = borrow_memory(shared, entry.size).await;
    let copied = retried(shared, || copy_once(shared, work, entry, moving)).await?;
    left.was_done(shared);
    Ok(copied)
}

async fn copy_once(
    shared: &Arc<Shared>,
    work: &Work,
    entry: &Entry,
    moving: &Arc<Moving>,
) -> Result<Copied> {
    let whole = work.source.place.endpoint.get(&work.from, entry).await?;
    shared.options.throttle.pass(whole.entry.size).await;
    let (size, sum) = (whole.entry.size, whole.checksum);
    note_lent(shared, work, &whole.entry, moving);
    let Parcel {
        path,
        spec,
        data,
        sum: _,
    } = parcel(work, whole);
    let putting = shared.destination.endpoint.put(&path, &spec, data, sum);
    let stored = Cargo::of(moving, size).carry_all(putting).await;
    stored.map_err(|error| error.at(Locus::Destination))?;
    Ok((size, sum))
}

fn parcel(work: &Work, whole: Whole) -> Parcel {
    Parcel {
        path: work.to.clone(),
        spec: spec_of(work, &whole.entry),
        data: whole.data,
        sum: whole.checksum,
    }
}

/// A file of a bundle.
struct Item {
    work: Work,
    entry: Entry,
    moving: Arc<Moving>,
}

/// Copies many small files together. Failed ones are retried alone, then reported.
pub(super) async fn copy_bundle(shared: &Arc<Shared>, works: Vec<Work>) {
    let mut items = Vec::with_capacity(works.len());
    let look = async |work: Work| {
        let shown = shared.destination.endpoint.show(&work.to);
        (needs_copy(shared, &work, &shown).await, work, shown)
    };
    let mut looks = stream::iter(works.into_iter().map(look)).buffered(READS_AT_ONCE);
    while let Some((needs, work, shown)) = looks.next().await {
        match needs {
            Ok(Some(_)) if shared.options.dry_run => {
                (shared.options.on_notice)(&Notice::WouldCopy(&shown));
            }
            Ok(Some(entry)) => {
                let moving = Arc::new(shared.progress.start(shown, entry.size));
                items.push(Item {
                    work,
                    entry,
                    moving,
                });
            }
            Ok(None) => {}
            Err(error) => shared.failed(error),
        }
    }
    if items.is_empty() {
        return;
    }
    let bytes = items.iter().map(|item| item.entry.size).sum();
    let memory = borrow_memory(shared, bytes).await;
    let sent = send_bundle(shared, &items).await;
    drop(memory);
    for (item, outcome) in items.into_iter().zip(sent) {
        if let Err(error) = settle(shared, &item, outcome).await {
            shared.failed(error);
        }
    }
}

/// Sends a bundle; returns one outcome for each item.
async fn send_bundle(shared: &Arc<Shared>, items: &[Item]) -> Vec<Result<Copied>> {
    let wholes = read_bundle(items).await;
    let mut parcels = Vec::with_capacity(items.len());
    let mut moving = Vec::with_capacity(items.len());
    let mut outcomes = Vec::with_capacity(items.len());
    for (item, whole) in items.iter().zip(wholes) {
        outcomes.push(match whole {
            Ok(whole) => {
                let copied = (whole.entry.size, whole.checksum);
                note_lent(shared, &item.work, &whole.entry, &item.moving);
                moving.push((&item.moving, whole.entry.size));
                parcels.push(parcel(&item.work, whole));
                Ok(copied)
            }
            Err(error) => Err(error),
        });
    }
    let bytes = parcels.iter().map(|parcel| parcel.spec.size).sum();
    shared.options.throttle.pass(bytes).await;
    let putting = shared.destination.endpoint.put_all(parcels);
    let arrived = |stored: &Vec<Result<()>>| stored.iter().map(Result::is_ok).collect();
    let stored = Cargo::new(moving.into_iter()).carry(putting, arrived).await;
    let mut stored = stored.into_iter();
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
        if let Some(Err(error)) = stored.next() {
            *outcome = Err(error.at(Locus::Destination));
        }
    }
    outcomes
}

/// Bundles never mix sources: a bundle of several is read one file at a time.
async fn read_bundle(items: &[Item]) -> Vec<Result<Whole>> {
    let Some(first) = items.first() else {
        return Vec::new();
    };
    let source = &first.work.source;
    let is_one = items
        .iter()
        .all(|item| Arc::ptr_eq(&item.work.source, source));
    if is_one && source.place.endpoint.capabilities().bundle_bytes_max > 0 {
        let wanted: Vec<(Vec<u8>, Entry)> = items
            .iter()
            .map(|item| (item.work.from.clone(), item.entry.clone()))
            .collect();
        return source.place.endpoint.get_all(&wanted).await;
    }
    let mut reads = Vec::with_capacity(items.len());
    for item in items {
        let endpoint = &item.work.source.place.endpoint;
        reads.push(endpoint.get(&item.work.from, &item.entry));
    }
    stream::iter(reads).buffered(READS_AT_ONCE).collect().await
}

async fn settle(shared: &Arc<Shared>, item: &Item, outcome: Result<Copied>) -> Result<()> {
    let (size, sum) = match outcome {
        Ok(copied) => copied,
        Err(error) if error.is_temporary() && !shared.is_stopped() => {
            copy(shared, &item.work, &item.entry, &item.moving).await?
        }
        Err(error) => return Err(error),
    };
    check_copy(shared, &item.work.to, (size, sum), None).await?;
    item.moving.arrived();
    shared.copied(&item.work.to, item.moving.name());
    Ok(())
}

/// Returns the error for a copy that is not what it should be.
pub(super) fn is_other(shown: impl Into<String>) -> Error {
    Error::new(posthaste_endpoint::ErrorKind::Corrupt, "verify", shown)
        .cause("what was read back is not what was written")
        .hint("copy it again with --ignore-times; if it stays, distrust that storage")
        .at(Locus::Destination)
}

/// Returns that error with the checksums of both.
pub(super) fn differs(shown: String, wanted: Checksum, found: Checksum) -> Error {
    let error = is_other(shown);
    error.with("wanted", wanted).with("found", found)
}
