//! Requests that bring data: bundles of small files, and segments of large ones.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use posthaste_endpoint::{
    ErrorKind, Summer,
    peer::{
        frame::Pieces,
        wire::{
            BUNDLE_BYTES_MAX, BUNDLE_NAMES_BYTES_MAX, Done, Outcomes, Refusal, Store, Write,
            WriteOpen,
        },
    },
    posix::{Block, DraftRules, segment_range},
};
use tokio::task::{JoinHandle, spawn_blocking};

use super::{
    Files, blocking, bundle,
    drafts::{OpenDraft, is_open_ended, known_length, open_range},
    ended,
    inflow::Inflow,
    outflow::Noted,
};

/// Bytes of a segment gathered before they go to the disk. A segment holds twice as many in memory,
/// because one batch is written while the next arrives.
const BATCH_BYTES: usize = Block::BYTES;

/// Pieces in a batch, whatever their size.
const BATCH_PIECES: usize = 1024;

impl Files {
    /// Receives a bundle.
    pub(super) async fn store(
        self: Arc<Self>,
        mut inflow: Inflow,
        noted: Noted,
    ) -> (Result<Outcomes<Done>, Refusal>, Inflow) {
        let stored = self.store_from(&mut inflow, noted).await;
        (stored, inflow)
    }

    async fn store_from(
        self: Arc<Self>,
        inflow: &mut Inflow,
        noted: Noted,
    ) -> Result<Outcomes<Done>, Refusal> {
        let message: Store = inflow.message().await?;
        if message.bytes > BUNDLE_BYTES_MAX + BUNDLE_NAMES_BYTES_MAX {
            return Err(Refusal::new(ErrorKind::Invalid, "the bundle is too large"));
        }
        let mebi = u32::try_from(message.bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX);
        let _memory = self.bundles.acquire_many(mebi).await;
        let (mut pieces, mut hasher) = (Pieces::default(), blake3::Hasher::new());
        let mut left = message.bytes;
        while left > 0 {
            let bytes = inflow.some(left).await?;
            left -= bytes.len() as u64;
            hasher.update(&bytes);
            pieces.push(bytes);
        }
        inflow.digest(&hasher).await?;
        inflow.end().await?;
        let rules = DraftRules {
            verify: false,
            fsync: message.flush || self.flush,
            ..DraftRules::default()
        };
        let files = Arc::clone(&self);
        blocking(move || {
            let how = (rules, &noted);
            bundle::store(&files.ground, &files.space, message.count, pieces, how)
        })
        .await
    }

    /// Receives a segment, and those that follow it.
    pub(super) async fn write(
        self: Arc<Self>,
        mut inflow: Inflow,
    ) -> (Result<Done, Refusal>, Inflow) {
        let written = self.write_from(&mut inflow).await;
        (written, inflow)
    }

    async fn write_from(self: Arc<Self>, inflow: &mut Inflow) -> Result<Done, Refusal> {
        let message: Write = inflow.message().await?;
        let (file, index) = (message.file, message.index);
        let (segment_size, size) = (file.segment_size, file.spec.size);
        if segment_range(index, segment_size, size).is_empty() {
            return Err(no_such_segment());
        }
        let files = Arc::clone(&self);
        let draft = blocking(move || {
            let draft = files.drafts.open(&file);
            draft.map_err(|error| Refusal::of(&error))
        })
        .await?;
        for index in index.. {
            let range = segment_range(index, segment_size, size);
            if range.is_empty() {
                inflow.end().await?;
                break;
            }
            take(inflow, Arc::clone(&draft), index, range, false).await?;
            if inflow.is_ended().await? {
                break;
            }
        }
        Ok(Done)
    }

    /// Receives a segment of a file of unknown length.
    pub(super) async fn write_open(
        self: Arc<Self>,
        mut inflow: Inflow,
    ) -> (Result<Done, Refusal>, Inflow) {
        let written = self.write_open_from(&mut inflow).await;
        (written, inflow)
    }

    async fn write_open_from(self: Arc<Self>, inflow: &mut Inflow) -> Result<Done, Refusal> {
        let message: WriteOpen = inflow.message().await?;
        let flush = message.flush || self.flush;
        let (file, index) = (message.file, message.index);
        if !is_open_ended(&file) {
            return Err(Refusal::of(&known_length()));
        }
        let range = open_range(&file, index, message.bytes).ok_or_else(no_such_segment)?;
        let (files, end) = (Arc::clone(&self), range.end);
        let draft = blocking(move || {
            let draft = files.drafts.open(&file);
            let draft = draft.and_then(|draft| files.drafts.reach(&draft, end).map(|()| draft));
            draft.map_err(|error| Refusal::of(&error))
        })
        .await?;
        take(inflow, draft, index, range, flush).await?;
        inflow.end().await?;
        Ok(Done)
    }
}

fn no_such_segment() -> Refusal {
    Refusal::new(ErrorKind::Invalid, "there is no such segment")
}

/// Receives the bytes of a segment.
async fn take(
    inflow: &mut Inflow,
    draft: Arc<OpenDraft>,
    index: u64,
    range: Range<u64>,
    flush: bool,
) -> Result<(), Refusal> {
    let mut writing = Writing::Idle(Box::new(Batches {
        draft,
        offset: range.start,
        hasher: blake3::Hasher::new(),
        summer: Summer::default(),
    }));
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let mut left = range.end - range.start;
    while left > 0 {
        let data = inflow.some(left).await?;
        left -= data.len() as u64;
        bytes += data.len();
        batch.push(data);
        if bytes >= BATCH_BYTES || batch.len() >= BATCH_PIECES || left == 0 {
            writing = writing.write(std::mem::take(&mut batch)).await?;
            bytes = 0;
        }
    }
    let batches = writing.finish().await?;
    inflow.digest(&batches.hasher).await?;
    blocking(move || {
        let draft = &batches.draft;
        let recorded = draft.record(index, batches.summer.sum());
        let recorded = recorded.and_then(|()| if flush { draft.draft.settle() } else { Ok(()) });
        recorded.map_err(|error| Refusal::of(&error))
    })
    .await
}

/// Segment on its way to the disk.
struct Batches {
    draft: Arc<OpenDraft>,
    offset: u64,
    hasher: blake3::Hasher,
    summer: Summer,
}

impl Batches {
    fn write(&mut self, batch: &[Bytes]) -> Result<(), Refusal> {
        for bytes in batch {
            self.hasher.update(bytes);
            self.summer.add(bytes);
        }
        let written = self.draft.draft.write_pieces(batch, self.offset);
        written.map_err(|error| Refusal::of(&error))?;
        self.offset += batch.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
        Ok(())
    }
}

/// State of a segment: at rest, or with a batch on its way to the disk.
enum Writing {
    Idle(Box<Batches>),
    Busy(JoinHandle<Result<Box<Batches>, Refusal>>),
}

impl Writing {
    async fn finish(self) -> Result<Box<Batches>, Refusal> {
        match self {
            Self::Idle(batches) => Ok(batches),
            Self::Busy(writing) => writing.await.map_err(ended)?,
        }
    }

    /// Waits for the batch before, then starts to write this one.
    async fn write(self, batch: Vec<Bytes>) -> Result<Self, Refusal> {
        let mut batches = self.finish().await?;
        Ok(Self::Busy(spawn_blocking(move || {
            batches.write(&batch)?;
            Ok(batches)
        })))
    }
}
