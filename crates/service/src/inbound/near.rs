//! Depots near the centre where a stage-in waits until its not-before time: whole chunks go there
//! and come back.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use posthaste_core::contract::{Fault, NearDepot};
use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use posthaste_journal::ChunkRecord;
use posthaste_types::{Bytes, ChunkIndex, Digest, FragmentIndex, SourceId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Flow, chunk, stage::Stage};
use crate::{
    clock::Clock,
    depots::{Depot, Depots, fault_of},
    hands::Metered,
};

/// Interval between looks at bytes that a depot delivered.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Memory for chunks on their way to such depots, of all stage-ins together, in MiB.
pub(super) const MEMORY_MEBI: u32 = 512;

/// Waits for memory for a chunk, which is held until the returned value is dropped.
pub(super) async fn reserve(
    memory: &Arc<Semaphore>,
    stage: &Stage,
    chunk: ChunkIndex,
) -> Option<OwnedSemaphorePermit> {
    let range = stage.range(chunk);
    let mebi = (range.end - range.start).div_ceil(1 << 20);
    let mebi = u32::try_from(mebi).unwrap_or(u32::MAX).min(MEMORY_MEBI);
    Arc::clone(memory).acquire_many_owned(mebi).await.ok()
}

/// Returns the journal's name of a depot as a source.
pub(super) fn way(name: &str) -> String {
    format!("depot:{name}")
}

/// Returns whether a chunk is here by its record. A chunk that lies only near the centre has the
/// digest of its copy there on record too.
pub(super) fn is_here(known: &ChunkRecord) -> bool {
    known.digests.len() == 1
}

/// Reason why a chunk does not lie at a depot.
pub(super) enum Failure {
    /// The source failed to deliver it.
    Source(Error),
    /// The depot failed to store it.
    Depot(Fault),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Source(error) => error.fmt(f),
            Self::Depot(fault) => fault.fmt(f),
        }
    }
}

/// Reads a chunk from a source, stores it at a depot, and returns the record.
///
/// # Errors
/// The failed end, with its error.
pub(super) async fn prestage(
    stage: &Arc<Stage>,
    source: SourceId,
    flow: &Flow,
    chunk: ChunkIndex,
    depot: Option<Arc<Depot>>,
) -> Result<ChunkRecord, Failure> {
    let depot = depot.ok_or(Failure::Depot(Fault::Unreachable))?;
    let read = chunk::read_whole(stage, source, flow, chunk).await;
    let (bytes, digest) = read.map_err(Failure::Source)?;
    let size = Bytes::new(bytes.len() as u64);
    let expires = stage.deadline.max(Clock::default().now()) + NearDepot::KEPT;
    let metered = Metered::start(&depot, false);
    let stored = depot
        .client
        .put_fragment(
            &stage.dataset,
            chunk,
            FragmentIndex::WHOLE,
            bytes,
            digest,
            expires,
        )
        .await;
    metered.end(if stored.is_ok() { size } else { Bytes::ZERO });
    stored.map_err(|error| {
        tracing::warn!(request = %stage.request, "{error}");
        Failure::Depot(fault_of(&error))
    })?;
    let slot = stage.slot(chunk);
    slot.lock().unwrap_or_else(PoisonError::into_inner).near = Some(digest);
    Ok(ChunkRecord {
        request: stage.request,
        chunk,
        digests: vec![digest, digest],
    })
}

/// Fetches a chunk from the depot where it waits, and returns its digest once it is durable.
///
/// # Errors
/// [`ErrorKind::NotFound`] if the depot does not hold it, the depot's own, and errors of writing.
pub(super) async fn fetch(
    stage: &Arc<Stage>,
    name: &str,
    depots: &Depots,
    flow: &Flow,
    chunk: ChunkIndex,
) -> Result<ChunkRecord> {
    let gone = |kind| {
        Error::new(
            kind,
            "read",
            format!("{chunk} of {} at {name}", stage.request),
        )
    };
    let depot = depots.named(name);
    let depot = depot.ok_or_else(|| gone(ErrorKind::Unreachable).at(Locus::Source))?;
    let slot = stage.slot(chunk);
    let expected = slot.lock().unwrap_or_else(PoisonError::into_inner).near;
    let expected = expected.ok_or_else(|| gone(ErrorKind::NotFound).at(Locus::Source))?;
    let bytes = read(stage, &depot, flow, chunk, expected).await;
    let bytes = bytes.map_err(|error| error.at(Locus::Source))?;
    chunk::write_whole(stage, chunk, bytes).await
}

/// Reads a chunk, and counts its bytes as they arrive.
async fn read(
    stage: &Stage,
    depot: &Depot,
    flow: &Flow,
    chunk: ChunkIndex,
    expected: Digest,
) -> Result<bytes::Bytes> {
    let _fetching = flow.begin();
    let client = &depot.client;
    let reading = client.get_fragment(&stage.dataset, chunk, FragmentIndex::WHOLE, expected);
    let mut reading = std::pin::pin!(reading);
    flow.catch_up(client.received().get());
    loop {
        let looked = tokio::time::timeout(LOOK_EVERY, &mut reading).await;
        flow.catch_up(client.received().get());
        if let Ok(read) = looked {
            return read;
        }
    }
}
