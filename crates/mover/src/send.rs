//! Sends a fragment to a depot.

use std::sync::Arc;

use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Result, relay::Haste};
use posthaste_types::{Bytes, ChunkIndex, Digest, FragmentIndex, Timestamp};

use crate::{Tools, ledger::Report};

/// Reads a chunk, codes it and sends one fragment. The depot has checked and stored it when this
/// returns; the result is the digests of the chunk.
///
/// # Errors
/// Errors of the source, the depot and the service.
pub(crate) async fn send(
    tools: &Arc<Tools>,
    lease: u64,
    chore: &api::SendChore,
) -> Result<Vec<Digest>> {
    let sealed = tools
        .datasets
        .open(
            &tools.service,
            &tools.actors,
            &chore.request,
            chore.left_out,
        )
        .await?;
    let (chunk, fragment) = (
        ChunkIndex::new(chore.chunk),
        FragmentIndex::new(chore.fragment),
    );
    let known = chore.known.iter().map(|digest| digest.parse());
    let known: Vec<Digest> = known
        .collect::<Result<_, _>>()
        .map_err(|_| Error::new(ErrorKind::Invalid, "read", "the digests of a chunk"))?;
    if !known.is_empty() {
        sealed.check_unchanged(chunk, &known)?;
    }
    let _memory = tools
        .reserve(sealed.fragment_bytes(chunk, FragmentIndex::WHOLE))
        .await?;
    let (read, _stripe) = sealed.fragment(chunk, fragment).await?;
    tracing::Span::current().record("bytes", read.bytes.len());
    let digest = read.digest.to_string();
    let begun = Report::Begun(api::BegunWork { lease, digest });
    // Fails once the mover has ended.
    let _ = tools.reports.send(begun).await;
    let haste = match chore.due_us {
        None => Haste::Whenever,
        Some(0) => Haste::Now,
        Some(due) => Haste::By(Timestamp::from_micros(due)),
    };
    let client = tools.depots.sender(&chore.depot, chore.gives_way)?;
    let (client, seal) = (client.hasty(haste), sealed.seal());
    let stored = client.put_fragment(
        &seal.dataset,
        chunk,
        fragment,
        read.bytes,
        read.digest,
        seal.expires,
    );
    stored.await?;
    Ok(read.digests)
}

impl Tools {
    /// Waits for so much memory, and reserves it as long as the result lives.
    ///
    /// # Errors
    /// None in practice.
    pub(crate) async fn reserve(&self, bytes: Bytes) -> Result<tokio::sync::OwnedSemaphorePermit> {
        let mebi = u32::try_from(bytes.get().div_ceil(1 << 20)).unwrap_or(u32::MAX);
        let most = u32::try_from(self.memory_mebi).unwrap_or(u32::MAX);
        let memory = Arc::clone(&self.memory);
        let taken = memory.acquire_many_owned(mebi.clamp(1, most)).await;
        taken.map_err(|_| Error::new(ErrorKind::Cancelled, "take", "memory"))
    }
}
