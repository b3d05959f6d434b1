//! Copies a file, or a segment of one, to the destination of a stage-out.

use std::sync::{Arc, atomic::Ordering};

use futures_util::StreamExt;
use posthaste_api as api;
use posthaste_endpoint::{
    ByteStream, Checksum, Condition, Error, ErrorKind, FileSpec, LentSegment, Locus, Result,
};
use posthaste_types::Bytes;

use crate::{
    Tools,
    ledger::Progress,
    sources::{Place, entry_of, is_same},
};

/// Reads a file or segment and writes it. The store holds it when this returns; the result is its
/// checksum and, for a segment, the store's receipt.
///
/// # Errors
/// Errors of the source at [`Locus::Source`], and of writing at [`Locus::Destination`].
pub(crate) async fn carry(
    tools: &Arc<Tools>,
    chore: &api::CarryChore,
    progress: &Progress,
) -> Result<(Checksum, String)> {
    let piece = &chore.piece;
    let _memory = tools
        .reserve(Bytes::new(piece.to.saturating_sub(piece.from)))
        .await?;
    let owner = chore.owner.as_deref();
    let source = Place::of(&chore.source, owner);
    let done = match &chore.segment {
        Some(segment) => carry_segment(tools, chore, (source, segment), progress).await,
        None => carry_whole(tools, chore, source, progress).await,
    };
    if done.is_err() {
        tools.sources.close(&Place::of(&chore.source, owner), piece);
    }
    done
}

fn spec_of(chore: &api::CarryChore) -> FileSpec {
    let entry = entry_of(&chore.piece);
    FileSpec {
        size: entry.size,
        mtime: entry.mtime,
        mode: chore.mode,
        origin: chore.origin.as_str().into(),
        version: entry.version,
    }
}

async fn carry_segment(
    tools: &Arc<Tools>,
    chore: &api::CarryChore,
    (source, segment): (Place, &api::ChoreSegment),
    progress: &Progress,
) -> Result<(Checksum, String)> {
    let (piece, owner) = (&chore.piece, chore.owner.as_deref());
    let actor = tools.actors.of(owner).await?;
    let reader = tools.sources.open(&actor, source, piece).await?;
    let into = Place::of(&chore.destination, owner);
    let destination = tools.sources.endpoint(&actor, into).await;
    let destination = destination.map_err(|error| error.at(Locus::Destination))?;
    let at_source = |error: Error| error.at(Locus::Source);
    let body = reader.read(piece.from..piece.to).await.map_err(at_source)?;
    let body = leased(tools, body, progress);
    let segment = LentSegment {
        token: segment.token.clone(),
        index: segment.index,
        range: piece.from..piece.to,
    };
    let path = piece.path.as_bytes();
    let spec = spec_of(chore);
    let stored = destination
        .write_lent(path, &spec, &segment, body)
        .await
        .map_err(|error| match error.locus() {
            Locus::Source => error,
            Locus::Network | Locus::Destination | Locus::Client => error.at(Locus::Destination),
        })?;
    reader.confirm().await.map_err(at_source)?;
    tools.leases.check()?;
    Ok(stored)
}

/// Passes on bytes only while this mover may still write.
fn leased(tools: &Arc<Tools>, body: ByteStream, progress: &Progress) -> ByteStream {
    let (tools, progress) = (Arc::clone(tools), Arc::clone(progress));
    Box::pin(body.map(move |some| {
        let some = some.map_err(|error| error.at(Locus::Source))?;
        tools.leases.check()?;
        progress.fetch_add(some.len() as u64, Ordering::Relaxed);
        tools.sources.add(some.len() as u64);
        Ok(some)
    }))
}

async fn carry_whole(
    tools: &Arc<Tools>,
    chore: &api::CarryChore,
    source: Place,
    progress: &Progress,
) -> Result<(Checksum, String)> {
    let (piece, owner) = (&chore.piece, chore.owner.as_deref());
    let actor = tools.actors.of(owner).await?;
    let entry = entry_of(piece);
    let from = tools.sources.endpoint(&actor, source).await;
    let from = from.map_err(|error| error.at(Locus::Source))?;
    let path = piece.source_path.as_bytes();
    let whole = from.get(path, &entry).await;
    let whole = whole.map_err(|error| error.at(Locus::Source))?;
    if !is_same(&whole.entry, &entry) {
        let shown = from.show(path);
        return Err(Error::new(ErrorKind::Changed, "read", shown).at(Locus::Source));
    }
    let into = Place::of(&chore.destination, owner);
    let at = |error: Error| error.at(Locus::Destination);
    let destination = tools.sources.endpoint(&actor, into).await.map_err(at)?;
    tools.leases.check()?;
    let (bytes, sum) = (entry.size, whole.checksum);
    let (spec, path) = (spec_of(chore), piece.path.as_bytes());
    let put = if !chore.only_new {
        destination.put(path, &spec, whole.data, sum)
    } else if destination.capabilities().conditional_writes {
        destination.put_if(path, &spec, whole.data, sum, &Condition::Absent)
    } else if destination.stat(path, false).await.map_err(at)?.is_none() {
        destination.put(path, &spec, whole.data, sum)
    } else {
        let error = Error::new(ErrorKind::Conflict, "write", destination.show(path));
        return Err(at(error.cause("something else got this name meanwhile")));
    };
    put.await.map_err(at)?;
    progress.fetch_add(bytes, Ordering::Relaxed);
    tools.sources.add(bytes);
    tools.leases.check()?;
    Ok((sum, String::new()))
}
