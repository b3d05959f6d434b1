//! Chunks that movers fetch.

use std::sync::Arc;

use posthaste_api as api;
use posthaste_core::movers::MoverId;
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::{ChunkIndex, Digest};

use super::{Flow, stage::Stage};
use crate::movers::{Ending, Movers, News, Offered};

/// Result of offering a chunk to the movers.
pub(super) enum Fetched {
    /// The chunk is durable in its draft and has this digest.
    Done(Digest),
    /// Left to this process: no mover is to fetch it, or this one could not.
    Ours(Option<MoverId>),
}

/// Lets a mover fetch a chunk into its draft. This creates the draft's files: a mover writes to
/// existing files and creates none.
///
/// # Errors
/// Errors of creating the files.
pub(super) async fn fetch(
    stage: &Arc<Stage>,
    movers: &Movers,
    place: usize,
    flow: &Flow,
    chunk: ChunkIndex,
) -> Result<Fetched> {
    let chore = movers.are_there().then(|| chore(stage, place, chunk));
    let Some(chore) = chore.flatten() else {
        return Ok(Fetched::Ours(None));
    };
    make_files(stage, chunk).await?;
    let offered = Offered {
        departure: Arc::default(),
        request: stage.request,
        chunk,
        due: stage.deadline,
        chore: Arc::new(move || api::Chore::Fetch(chore.clone())),
    };
    let (mut fetching, mut seen) = (None, 0);
    let ending = movers.carry(offered, |news| match news {
        News::Given => {
            fetching.get_or_insert_with(|| flow.begin());
            seen = 0;
        }
        News::Fetched(bytes) => {
            flow.add(usize::try_from(bytes.saturating_sub(seen)).unwrap_or(0));
            seen = seen.max(bytes);
        }
        News::Begun(_) => {}
    });
    let ending = ending.await;
    let range = stage.range(chunk);
    match ending {
        Some(Ending::Done(digests)) if digests.len() == 1 => {
            let rest = (range.end - range.start).saturating_sub(seen);
            flow.add(usize::try_from(rest).unwrap_or(0));
            Ok(Fetched::Done(digests[0]))
        }
        Some(Ending::Failed(mover)) => Ok(Fetched::Ours(Some(mover))),
        Some(Ending::Done(_) | Ending::Stored(..)) | None => Ok(Fetched::Ours(None)),
    }
}

async fn make_files(stage: &Arc<Stage>, chunk: ChunkIndex) -> Result<()> {
    let pieces = stage.pieces(chunk);
    let made = stage.blocking(move |stage| {
        // Once the stage-in has ended, its draft must not be created again.
        let Some(_leave) = stage.leave() else {
            return Err(Error::new(ErrorKind::Cancelled, "write", "a chunk"));
        };
        for piece in pieces {
            let file = &stage.list.files[piece.file];
            stage.draft.make(&file.path, file.size)?;
        }
        Ok(())
    });
    made.await
}

/// Longest description of a chunk for a mover: chunks with very many small files exceed it and stay
/// here. One answer to a mover carries several.
const CHORE_BYTES_MAX: usize = 2 << 20;
/// Bytes that a piece takes besides its names.
const PIECE_BYTES: usize = 160;

/// Returns the chore for a chunk. Returns none if it can't be written as text, the text is too
/// long, or the chunk has several sources.
fn chore(stage: &Stage, place: usize, chunk: ChunkIndex) -> Option<api::FetchChore> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let piece = |piece: super::list::Piece| {
        let entry = stage.list.entry(place, piece.file)?;
        Some(api::FetchPiece {
            path: text(&stage.list.files[piece.file].path)?,
            source_path: text(stage.list.path_there(place, piece.file))?,
            size: entry.size,
            mtime_s: entry.mtime.map(|mtime| mtime.secs),
            mtime_ns: entry.mtime.map_or(0, |mtime| mtime.nanos),
            version: entry.version.as_deref().map(str::to_owned),
            from: piece.range.start,
            to: piece.range.end,
        })
    };
    let pieces = stage.pieces(chunk);
    let mut of_others = pieces.iter();
    let is_of_other = |piece: &super::list::Piece| {
        let is_whole = piece.range == (0..stage.list.files[piece.file].size);
        stage.place_of(piece.file, place, is_whole) != place
    };
    if of_others.any(is_of_other) {
        return None;
    }
    let names = pieces.iter().map(|piece| {
        let path = &stage.list.files[piece.file].path;
        path.len() + stage.list.path_there(place, piece.file).len() + PIECE_BYTES
    });
    if names.sum::<usize>() > CHORE_BYTES_MAX {
        return None;
    }
    let pieces = pieces.into_iter().map(piece);
    let source = stage.wanted.sources.get(place)?;
    let own = stage.behalf.own(source).ok()?;
    Some(api::FetchChore {
        request: stage.request.to_string(),
        chunk: chunk.get(),
        source: api::ChorePlace {
            address: stage.behalf.given(source).ok()?,
            profile: stage.wanted.profile.clone(),
            credential: own.map(|own| own.for_mover()),
        },
        owner: stage.behalf.name().map(str::to_owned),
        draft: stage.draft.folder().to_str()?.to_owned(),
        pieces: pieces.collect::<Option<_>>()?,
        traceparent: posthaste_trace::traceparent(),
    })
}
