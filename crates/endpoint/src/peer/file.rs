//! Large files: read by ranges, written in segments.

use std::{
    collections::BTreeMap,
    ops::Range,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use futures_util::stream;
use posthaste_types::Record;
use tokio::sync::Notify;

use super::{
    body::{self, Body},
    frame::Piece,
    remote::{Answer, Remote},
    wire::{self, Create, Done, Finish, FinishOpen, Operation, Read, Seen, WriteOpen},
};
use crate::{
    Checksum, Error, ErrorKind, Locus, Result,
    endpoint::{Boxed, ByteStream, Entry, FileSpec, Reader, Writer},
    posix::segment_range,
};

/// Bytes of the segments of one request: enough that the latency of its answer does not matter.
const RUN_BYTES_MAX: u64 = 16 << 20;

/// File at a peer, open for reading.
pub(super) struct PeerReader {
    remote: Arc<Remote>,
    path: Vec<u8>,
    entry: Entry,
}

impl PeerReader {
    /// Opens `path`. Sends a request only if no listing reported exactly what `entry` says.
    pub(super) async fn open(remote: Arc<Remote>, path: Vec<u8>, entry: &Entry) -> Result<Self> {
        if remote.knowledge.takes_for(&path, entry) {
            let entry = entry.clone();
            return Ok(Self {
                remote,
                path,
                entry,
            });
        }
        let message = Read {
            path: remote.name(&path),
            seen: None,
            start: 0,
            end: 0,
        };
        let mut answer = remote.begin(Operation::Read, &path, &message).await?;
        let entry: Entry = answer.message().await?;
        end_of_data(answer, &blake3::Hasher::new()).await?;
        Ok(Self {
            remote,
            path,
            entry,
        })
    }

    async fn start(&self, range: Range<u64>) -> Result<Incoming> {
        let message = Read {
            path: self.remote.name(&self.path),
            seen: Some(Seen {
                size: self.entry.size,
                mtime: self.entry.mtime,
            }),
            start: range.start,
            end: range.end,
        };
        let begun = self.remote.begin(Operation::Read, &self.path, &message);
        let mut answer = begun.await?;
        answer.message::<Entry>().await?;
        Ok(Incoming {
            answer: Some(answer),
            hasher: blake3::Hasher::new(),
            left: range.end - range.start,
            held: None,
        })
    }
}

/// Range being received.
struct Incoming {
    /// Answer being read; `None` once it was read to its end.
    answer: Option<Answer>,
    hasher: blake3::Hasher,
    left: u64,
    /// Last bytes that arrived. A reader that counts bytes sees them as the end, so they wait for
    /// the digest check.
    held: Option<Bytes>,
}

impl Incoming {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        while self.left > 0 {
            let Some(answer) = &mut self.answer else {
                break;
            };
            match answer.next().await? {
                Some(Piece::Data(bytes)) if bytes.len() as u64 <= self.left => {
                    self.left -= bytes.len() as u64;
                    self.hasher.update(&bytes);
                    if let Some(before) = self.held.replace(bytes) {
                        return Ok(Some(before));
                    }
                }
                Some(Piece::Message(bytes)) => {
                    answer.read::<Done>(&bytes)?;
                    return Err(answer.nonsense("the answer ends before the data"));
                }
                Some(Piece::Data(_) | Piece::Digest(_)) | None => {
                    return Err(answer.nonsense("the answer has other data than asked for"));
                }
            }
        }
        if let Some(answer) = self.answer.take() {
            end_of_data(answer, &self.hasher).await?;
        }
        Ok(self.held.take())
    }
}

/// Compares the digest and checks that the file is unchanged.
pub(super) async fn end_of_data(mut answer: Answer, hasher: &blake3::Hasher) -> Result<()> {
    match answer.next().await? {
        Some(Piece::Digest(digest)) if digest == *hasher.finalize().as_bytes() => {}
        Some(Piece::Digest(_)) => return Err(answer.corrupt()),
        Some(Piece::Message(bytes)) => {
            answer.read::<Done>(&bytes)?;
            return Err(answer.nonsense("the answer has no digest"));
        }
        Some(Piece::Data(_)) | None => return Err(answer.nonsense("the answer has no digest")),
    }
    answer.message::<Done>().await?;
    answer.end().await
}

impl Reader for PeerReader {
    fn entry(&self) -> &Entry {
        &self.entry
    }

    fn checksum(&self) -> Option<Checksum> {
        None
    }

    fn read(&self, range: Range<u64>) -> Boxed<'_, Result<ByteStream>> {
        Box::pin(async {
            let incoming = self.start(range).await?;
            let bytes = stream::try_unfold(incoming, |mut incoming| async move {
                Ok(incoming.next().await?.map(|bytes| (bytes, incoming)))
            });
            let bytes: ByteStream = Box::pin(bytes);
            Ok(bytes)
        })
    }

    /// Every range was compared with the state of the file at opening, before and after it was
    /// read.
    fn confirm(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// Large file being sent to a peer.
pub(super) struct PeerWriter {
    remote: Arc<Remote>,
    path: Vec<u8>,
    file: Create,
    kept: Vec<(u64, Checksum)>,
    is_open_ended: bool,
    sent: Sent,
}

/// Ranges of a file that are in flight or have arrived.
#[derive(Default)]
struct Sent {
    ranges: Mutex<SentRanges>,
    changed: Notify,
}

#[derive(Default)]
struct SentRanges {
    /// Checksums by first byte, each with the end: of one segment or several.
    sums: BTreeMap<u64, (u64, Checksum)>,
    /// Bytes of all ranges.
    bytes: u64,
}

impl Sent {
    fn ranges(&self) -> MutexGuard<'_, SentRanges> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, range: &Range<u64>, sum: Checksum) {
        let mut ranges = self.ranges();
        let before = ranges.sums.insert(range.start, (range.end, sum));
        ranges.bytes += range.end - range.start;
        ranges.bytes -= before.map_or(0, |(end, _)| end - range.start);
        self.changed.notify_one();
    }

    /// Waits until nothing is missing. Returns the checksum of the whole; `None` if ranges overlap.
    async fn whole(&self, size: u64) -> Option<Checksum> {
        loop {
            let changed = self.changed.notified();
            if self.ranges().bytes >= size {
                return self.ranges().whole();
            }
            changed.await;
        }
    }
}

impl SentRanges {
    fn whole(&self) -> Option<Checksum> {
        let mut reached = 0;
        self.sums
            .iter()
            .try_fold(Checksum::EMPTY, |whole, (&start, &(end, sum))| {
                let follows = start == std::mem::replace(&mut reached, end);
                follows.then(|| whole.then(sum, end - start))
            })
    }
}

impl PeerWriter {
    /// Starts or continues a file. Sends a request only if something unfinished may exist.
    pub(super) async fn start(
        remote: Arc<Remote>,
        path: Vec<u8>,
        spec: &FileSpec,
        segment_size: u64,
    ) -> Result<Self> {
        let file = Create {
            path: remote.name(&path),
            spec: spec.clone(),
            segment_size,
        };
        let kept = if remote.knowledge.starts_from_nothing(&path) {
            Vec::new()
        } else {
            remote.ask(Operation::Create, &path, &file).await?
        };
        remote.knowledge.started(&path);
        let sent = Sent::default();
        for &(index, sum) in &kept {
            sent.add(&segment_range(index, segment_size, spec.size), sum);
        }
        Ok(Self {
            remote,
            path,
            file,
            kept,
            is_open_ended: false,
            sent,
        })
    }

    /// Starts or continues a file of unknown length.
    pub(super) async fn start_open_ended(
        remote: Arc<Remote>,
        path: Vec<u8>,
        spec: &FileSpec,
        segment_size: u64,
    ) -> Result<Self> {
        let file = Create {
            path: remote.name(&path),
            spec: spec.open_ended(),
            segment_size,
        };
        let kept = remote.ask(Operation::Create, &path, &file).await?;
        remote.knowledge.started(&path);
        Ok(Self {
            remote,
            path,
            file,
            kept,
            is_open_ended: true,
            sent: Sent::default(),
        })
    }

    /// Sends a message and the segments that follow it.
    async fn send(
        &self,
        operation: Operation,
        message: &[u8],
        range: Range<u64>,
        segment_size: u64,
        body: ByteStream,
    ) -> Result<Checksum> {
        let head = body::message(message);
        let (body, sending) = Body::streamed(head, body, range.end - range.start, segment_size);
        let begun = self
            .remote
            .begin_streamed(operation, &self.path, body, &sending);
        let mut answered = pin!(async {
            let mut answer = begun.await?;
            answer.message::<Done>().await?;
            answer.end().await
        });
        let answered = tokio::select! {
            biased;
            answered = &mut answered => answered,
            sum = sending.sum() => {
                self.sent.add(&range, sum);
                answered.await
            }
        };
        // The source's error, if there is one, is the cause.
        match (sending.take(), answered) {
            (Some(Err(error)), _) | (_, Err(error)) => Err(error),
            (Some(Ok(sum)), Ok(())) => {
                self.sent.add(&range, sum);
                Ok(sum)
            }
            (None, Ok(())) => Err(self
                .remote
                .nonsense(operation, "it took less than was sent")),
        }
    }
}

impl PeerWriter {
    async fn finish_by(&self, operation: Operation, whole: Checksum) -> Result<()> {
        let message = Finish {
            file: self.file.clone(),
            whole,
            flush: self.remote.flush,
        };
        let finished = self.remote.ask(operation, &self.path, &message);
        finished.await.map(|Done| {
            self.remote.knowledge.ended(&self.path);
        })
    }
}

/// Servers older than files of unknown length have no path for them.
fn is_too_old(error: Error) -> Error {
    if error.kind() != ErrorKind::NotFound {
        return error;
    }
    Error::new(ErrorKind::Unsupported, "write", "a file of unknown length")
        .cause("the posthaste at the other end is too old for it")
        .hint("bring it up to date")
        .at(Locus::Destination)
}

impl Writer for PeerWriter {
    fn segment_size(&self) -> u64 {
        self.file.segment_size
    }

    fn kept(&self) -> Vec<(u64, Checksum)> {
        self.kept.clone()
    }

    fn run_max(&self) -> u64 {
        if self.is_open_ended || !self.remote.can(wire::FEATURE_RUNS) {
            return 1;
        }
        (RUN_BYTES_MAX / self.file.segment_size).max(1)
    }

    fn write(
        &self,
        index: u64,
        range: Range<u64>,
        body: ByteStream,
    ) -> Boxed<'_, Result<Checksum>> {
        Box::pin(async move {
            if self.is_open_ended {
                let message = WriteOpen {
                    file: self.file.clone(),
                    index,
                    bytes: range.end - range.start,
                    flush: true,
                };
                let message = message.to_bytes();
                let bytes = range.end - range.start;
                let sent = self.send(Operation::WriteOpen, &message, range, bytes, body);
                return sent.await.map_err(is_too_old);
            }
            let segment_size = self.file.segment_size;
            debug_assert_eq!(
                range.start,
                segment_range(index, segment_size, self.file.spec.size).start,
                "a segment has its place"
            );
            let message = wire::Write {
                file: self.file.clone(),
                index,
            };
            let message = message.to_bytes();
            self.send(Operation::Write, &message, range, segment_size, body)
                .await
        })
    }

    fn finish(&self, whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(self.finish_by(Operation::Finish, whole))
    }

    fn all_sent(&self) -> Boxed<'_, Option<Checksum>> {
        Box::pin(async move {
            if self.is_open_ended || !self.remote.can(wire::FEATURE_FINISH_AHEAD) {
                return None;
            }
            self.sent.whole(self.file.spec.size).await
        })
    }

    fn finish_ahead(&self, whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(self.finish_by(Operation::FinishAhead, whole))
    }

    fn finish_at(&self, size: u64, whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(async move {
            let message = FinishOpen {
                file: self.file.clone(),
                size,
                whole,
                flush: self.remote.flush,
            };
            let finished = self.remote.ask(Operation::FinishOpen, &self.path, &message);
            let finished: Result<Done> = finished.await;
            finished.map_err(is_too_old).map(|Done| {
                self.remote.knowledge.ended(&self.path);
            })
        })
    }

    /// Each segment of a file of unknown length was flushed before it counted.
    fn settle(&self) -> Boxed<'_, Result<bool>> {
        Box::pin(async { Ok(self.is_open_ended) })
    }

    fn discard(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            let discarded = self.remote.ask(Operation::Discard, &self.path, &self.file);
            let discarded: Result<Done, Error> = discarded.await;
            if discarded.is_ok() {
                self.remote.knowledge.ended(&self.path);
            }
        })
    }
}
