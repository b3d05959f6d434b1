//! Fetches one chunk: reads its pieces from a source, writes them to their places and computes
//! their digests.
//!
//! A fetch writes as it reads. A second fetch, from another source because the first is late,
//! buffers its bytes in memory. The first fetch to finish has its bytes written, and the other must
//! have read the same bytes. So recorded bytes of a chunk are never overwritten.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use posthaste_endpoint::{Compared, Error, ErrorKind, Locus, Result, StoredSum};
use posthaste_journal::ChunkRecord;
use posthaste_types::{ChunkIndex, Digest, SourceId};

use super::{
    Flow,
    by_mover::{self, Fetched},
    list::Piece,
    stage::{Slot, Stage},
};
use crate::movers::Movers;

/// Bytes written at once.
const WRITE_BYTES: usize = 1 << 20;

/// Some bytes of a file.
#[derive(Debug, Clone)]
pub(super) struct Strip {
    file: usize,
    at: u64,
    bytes: bytes::Bytes,
}

/// Right to write a chunk, until it is dropped.
pub(super) struct Turn {
    slot: Arc<Mutex<Slot>>,
    number: u64,
}

impl Turn {
    fn begin(slot: Arc<Mutex<Slot>>, number: u64) -> Self {
        let turn = Self { slot, number };
        let mut slot = turn.look();
        if slot.writer == 0 && slot.done.is_none() {
            slot.writer = number;
        }
        drop(slot);
        turn
    }

    fn look(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn may_write(&self) -> bool {
        self.look().writer == self.number
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut slot = self.look();
        if slot.writer == self.number {
            slot.writer = 0;
        }
    }
}

/// Fetches a chunk and returns its digest once it is durable.
///
/// # Errors
/// [`ErrorKind::Changed`] if the source changed, [`ErrorKind::Conflict`] if another source
/// delivered other bytes; errors of writing, with [`Locus::Destination`]; and the source's own.
pub(super) async fn fetch(
    stage: &Arc<Stage>,
    movers: &Movers,
    source: SourceId,
    flow: &Flow,
    chunk: ChunkIndex,
) -> Result<ChunkRecord> {
    let place = stage.place(source)?;
    let turn = Arc::new(Turn::begin(stage.slot(chunk), stage.next_fetch()));
    let mut failed = None;
    if turn.may_write() {
        match by_mover::fetch(stage, movers, place, flow, chunk).await? {
            Fetched::Done(digest) => {
                for piece in stage.pieces(chunk) {
                    if piece.range != (0..stage.list.files[piece.file].size) {
                        stage.came(piece.file, place).await?;
                        stage.came_by_mover(piece.file, place).await?;
                    }
                }
                let came = Came::of_mover(digest);
                return note(stage, &turn, None, chunk, came).await;
            }
            Fetched::Ours(mover) => failed = mover,
        }
    }
    let _fetching = flow.begin();
    let mut intake = Intake::into_draft(stage, &turn);
    intake.read_all(place, flow, chunk).await?;
    let record = intake.settle(&turn, chunk).await?;
    if let Some(mover) = failed {
        movers.could_be_done(mover);
    }
    Ok(record)
}

/// Reads a chunk into memory, to be used elsewhere.
///
/// # Errors
/// Errors of [`fetch`], except those of writing.
pub(super) async fn read_whole(
    stage: &Arc<Stage>,
    source: SourceId,
    flow: &Flow,
    chunk: ChunkIndex,
) -> Result<(bytes::Bytes, Digest)> {
    let place = stage.place(source)?;
    let _fetching = flow.begin();
    let mut intake = Intake::new(stage, Goes::Whole(bytes::BytesMut::new()));
    intake.read_all(place, flow, chunk).await?;
    let Came { digest, .. } = intake.came();
    let Goes::Whole(bytes) = intake.goes else {
        return Err(Error::new(ErrorKind::Other, "read", "a chunk").at(Locus::Source));
    };
    Ok((bytes.freeze(), digest))
}

/// Writes a chunk that arrived in one piece and returns its digest once it is durable.
///
/// # Errors
/// Errors of writing, with [`Locus::Destination`].
pub(super) async fn write_whole(
    stage: &Arc<Stage>,
    chunk: ChunkIndex,
    bytes: bytes::Bytes,
) -> Result<ChunkRecord> {
    let turn = Arc::new(Turn::begin(stage.slot(chunk), stage.next_fetch()));
    let mut intake = Intake::into_draft(stage, &turn);
    intake.hasher.update(&bytes);
    let mut rest = bytes;
    for piece in stage.pieces(chunk) {
        let mut at = piece.range.start;
        while at < piece.range.end {
            let left = usize::try_from(piece.range.end - at).unwrap_or(usize::MAX);
            let bytes = rest.split_to(left.min(WRITE_BYTES).min(rest.len()));
            if bytes.is_empty() {
                let subject = format!("{chunk}");
                return Err(Error::new(ErrorKind::Corrupt, "write", subject).at(Locus::Source));
            }
            let next = at + bytes.len() as u64;
            let file = piece.file;
            intake.take(Strip { file, at, bytes }).await?;
            at = next;
        }
    }
    intake.settle(&turn, chunk).await
}

/// Receives a chunk as it comes.
struct Intake<'a> {
    stage: &'a Arc<Stage>,
    hasher: blake3::Hasher,
    /// Bytes that came.
    hashed: u64,
    sums: Vec<(usize, StoredSum)>,
    goes: Goes<'a>,
}

/// Destination of the bytes of a fetch.
enum Goes<'a> {
    /// Draft of the stage-in.
    Draft(&'a Arc<Turn>),
    /// Kept for comparison: another fetch writes.
    Kept(Vec<Strip>),
    /// Into memory, in one piece.
    Whole(bytes::BytesMut),
}

impl<'a> Intake<'a> {
    fn new(stage: &'a Arc<Stage>, goes: Goes<'a>) -> Self {
        Self {
            stage,
            hasher: blake3::Hasher::new(),
            hashed: 0,
            sums: Vec::new(),
            goes,
        }
    }

    fn into_draft(stage: &'a Arc<Stage>, turn: &'a Arc<Turn>) -> Self {
        let goes = if turn.may_write() {
            Goes::Draft(turn)
        } else {
            Goes::Kept(Vec::new())
        };
        Self::new(stage, goes)
    }

    async fn read_all(&mut self, place: usize, flow: &Flow, chunk: ChunkIndex) -> Result<()> {
        for piece in self.stage.pieces(chunk) {
            read(self, place, flow, &piece).await?;
        }
        Ok(())
    }

    async fn take(&mut self, strip: Strip) -> Result<()> {
        match &mut self.goes {
            Goes::Draft(turn) => return write(self.stage, turn, strip).await,
            Goes::Kept(kept) => kept.push(strip),
            Goes::Whole(whole) => whole.extend_from_slice(&strip.bytes),
        }
        Ok(())
    }

    /// Takes zeros for a piece of a file that is left out: no byte of it is written.
    async fn pass_over(&mut self, piece: &Piece) -> Result<()> {
        let zeros = bytes::Bytes::from(vec![0; WRITE_BYTES]);
        let mut left = piece.range.end - piece.range.start;
        while left > 0 {
            let length = left.min(WRITE_BYTES as u64);
            let some = zeros.slice(..usize::try_from(length).unwrap_or(WRITE_BYTES));
            self.hasher.update(&some);
            if let Goes::Whole(whole) = &mut self.goes {
                whole.extend_from_slice(&some);
            }
            left -= length;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn came(&mut self) -> Came {
        Came {
            digest: Digest::new(*self.hasher.finalize().as_bytes()),
            sums: std::mem::take(&mut self.sums),
        }
    }

    /// Makes the chunk durable.
    async fn settle(mut self, turn: &Arc<Turn>, chunk: ChunkIndex) -> Result<ChunkRecord> {
        let came = self.came();
        let kept = match self.goes {
            Goes::Kept(kept) => Some(kept),
            Goes::Draft(_) | Goes::Whole(_) => None,
        };
        note(self.stage, turn, kept, chunk, came).await
    }
}

/// Result of fetching a chunk.
struct Came {
    digest: Digest,
    /// Checksum states of files that continue in other chunks, if their source keeps a checksum.
    sums: Vec<(usize, StoredSum)>,
}

impl Came {
    /// Returns the result of a mover's fetch, which reports only the digest.
    fn of_mover(digest: Digest) -> Self {
        let sums = Vec::new();
        Self { digest, sums }
    }
}

/// Makes a written or kept chunk durable, and returns its record.
async fn note(
    stage: &Arc<Stage>,
    turn: &Arc<Turn>,
    kept: Option<Vec<Strip>>,
    chunk: ChunkIndex,
    came: Came,
) -> Result<ChunkRecord> {
    let pieces = stage.pieces(chunk).into_iter();
    let files = pieces.map(|piece| piece.file).collect();
    let digest = came.digest;
    finish(stage, turn, kept, files, came).await?;
    stage.sums.mend(chunk);
    Ok(ChunkRecord {
        request: stage.request,
        chunk,
        digests: vec![digest],
    })
}

/// Reads a piece of a file, strip by strip, and checks that the file is unchanged.
async fn read(intake: &mut Intake<'_>, asked: usize, flow: &Flow, piece: &Piece) -> Result<()> {
    let is_whole = piece.range == (0..intake.stage.list.files[piece.file].size);
    let place = intake.stage.place_of(piece.file, asked, is_whole);
    if intake.stage.behind.has(piece.file) {
        return intake.pass_over(piece).await;
    }
    let had = intake.hashed;
    let read = read_at(intake, place, flow, piece).await;
    let Err(error) = read else {
        return Ok(());
    };
    intake.stage.close_reader(place, piece.file);
    intake.stage.give_up(piece.file, place);
    match intake.hashed == had && intake.stage.leaves_out(piece.file, &error).await? {
        true => intake.pass_over(piece).await,
        false => Err(intake.stage.named(error, piece.file, place)),
    }
}

async fn read_at(intake: &mut Intake<'_>, place: usize, flow: &Flow, piece: &Piece) -> Result<()> {
    let reader = intake.stage.reader(place, piece.file).await?;
    let mut bytes = reader.read(piece.range.clone()).await?;
    let mut compared = Compared::begin(&*reader, &piece.range);
    let mut at = piece.range.start;
    let mut strip = bytes::BytesMut::new();
    while let Some(some) = bytes.next().await {
        let some = some?;
        flow.add(some.len());
        intake.hasher.update(&some);
        intake.hashed += some.len() as u64;
        if let Some(compared) = &mut compared {
            compared.add(&some);
        }
        strip.extend_from_slice(&some);
        if strip.len() >= WRITE_BYTES {
            let (file, bytes) = (piece.file, strip.split().freeze());
            let next = at + bytes.len() as u64;
            intake.take(Strip { file, at, bytes }).await?;
            at = next;
        }
    }
    let (file, bytes) = (piece.file, strip.freeze());
    let end = at + bytes.len() as u64;
    intake.take(Strip { file, at, bytes }).await?;
    if end != piece.range.end {
        let cause = format!(
            "{} bytes of a piece came, not {}",
            end - piece.range.start,
            piece.range.end - piece.range.start
        );
        return Err(Error::new(ErrorKind::Changed, "read", "a source")
            .cause(cause)
            .at(Locus::Source));
    }
    reader.confirm().await?;
    let shown = intake.stage.show(piece.file);
    let sum = compared.map(|compared| compared.end(&piece.range, &shown));
    let sum = sum.transpose()?;
    if piece.range != (0..reader.entry().size) {
        intake.sums.extend(sum.map(|sum| (piece.file, sum)));
        let stage = intake.stage;
        stage.sums.tell(piece.file, place, reader.stored_sum());
        if reader.stored_sum().is_none() {
            stage.came(piece.file, place).await?;
            stage.came_unproved(piece.file, &*reader).await?;
        }
    }
    Ok(())
}

/// Writes a strip, unless another fetch writes this chunk by now.
async fn write(stage: &Arc<Stage>, turn: &Arc<Turn>, strip: Strip) -> Result<()> {
    let turn = Arc::clone(turn);
    stage
        .blocking(move |stage| {
            let slot = turn.look();
            let Some(_leave) = stage.leave() else {
                return Ok(());
            };
            if slot.writer != turn.number {
                return Ok(());
            }
            let file = &stage.list.files[strip.file];
            stage
                .draft
                .write(&file.path, file.size, strip.at, &strip.bytes)
        })
        .await
}

/// Makes a chunk durable, or compares it with the durable one.
async fn finish(
    stage: &Arc<Stage>,
    turn: &Arc<Turn>,
    kept: Option<Vec<Strip>>,
    mut files: Vec<usize>,
    came: Came,
) -> Result<()> {
    let turn = Arc::clone(turn);
    files.dedup();
    stage
        .blocking(move |stage| {
            let mut slot = turn.look();
            if let Some(done) = slot.done {
                return if done == came.digest {
                    Ok(())
                } else {
                    Err(differs())
                };
            }
            let Some(_leave) = stage.leave() else {
                return Err(Error::new(ErrorKind::Cancelled, "write", "a chunk"));
            };
            if slot.writer != turn.number && kept.is_none() {
                // Another fetch wrote meanwhile and failed to finish: the bytes are of both.
                return Err(Error::new(ErrorKind::Busy, "write", "a chunk"));
            }
            slot.writer = turn.number;
            for strip in kept.iter().flatten() {
                let file = &stage.list.files[strip.file];
                stage
                    .draft
                    .write(&file.path, file.size, strip.at, &strip.bytes)?;
            }
            for file in files {
                let file = &stage.list.files[file];
                stage.draft.sync(&file.path, file.size)?;
            }
            slot.done = Some(came.digest);
            slot.sums = came.sums;
            Ok(())
        })
        .await
}

fn differs() -> Error {
    Error::new(ErrorKind::Conflict, "read", "a source")
        .cause("it holds something else than another source")
        .at(Locus::Source)
}
