//! Large files: segments, several at once if both ends can, each retried by itself.

use std::{
    collections::BTreeMap,
    ops::Range,
    pin::pin,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use posthaste_endpoint::{
    ByteStream, Checksum, Entry, Error, ErrorKind, FileSpec, Locus, Reader, Result, StoredSum,
    Summer, Writer, limits::Pass,
};
use posthaste_plan::run;
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit},
    task::JoinSet,
    time::timeout,
};

use super::{
    help::{self, Errand, Left},
    lane::{Shared, note_lent, of_this_run, spec_of},
    progress::Moving,
    proof::{self, Proof},
    remote::borrow_memory,
    retry::retried,
    small::Copied,
    walk::Work,
    watch::watched,
};

/// Attempts that are given up for being slow; later ones may be slow.
const HURRIED_ATTEMPTS: u32 = 2;

/// Wait for the answers of segments that are known to be stored.
const ANSWERED_WITHIN: Duration = Duration::from_millis(500);

/// Checksums of stored segments: by the index of the first segment, with the number of bytes.
type Sums = BTreeMap<u64, (u64, Checksum)>;

/// Index, length and checksum of a segment.
type Sum = (u64, (u64, Checksum));

/// Copies one large file. Returns its bytes and their checksum, and the source's own checksum if
/// that is of another kind.
///
/// A file whose ranges turn out not to be of one version is copied once more, as one stream.
pub(super) async fn copy(
    shared: &Arc<Shared>,
    work: &Work,
    entry: &Entry,
    moving: &Arc<Moving>,
) -> Result<(Copied, Option<StoredSum>)> {
    let source = &work.source.place.endpoint;
    let open = || retried(shared, || source.open(&work.from, entry));
    let reader = open().await?;
    let ranges = source.capabilities().ranges && reader.is_of_one_version();
    match copy_opened(shared, work, (Arc::clone(&reader), ranges), moving).await {
        Err(error)
            if ranges && error.kind() == ErrorKind::Changed && !reader.is_of_one_version() =>
        {
            moving.start_over();
            copy_opened(shared, work, (open().await?, false), moving).await
        }
        copied => copied,
    }
}

async fn copy_opened(
    shared: &Arc<Shared>,
    work: &Work,
    (reader, ranges): (Arc<dyn Reader>, bool),
    moving: &Arc<Moving>,
) -> Result<(Copied, Option<StoredSum>)> {
    let destination = &shared.destination.endpoint;
    let mut spec = spec_of(work, reader.entry());
    note_lent(shared, work, reader.entry(), moving);
    if !reader.can_be_continued() {
        // Nothing shows a later run whether it is still the same.
        spec.version = Some(of_this_run());
    }
    let writer = retried(shared, || destination.create(&work.to, &spec))
        .await
        .map_err(|error| error.at(Locus::Destination))?;
    let errand = Errand {
        from: work.from.clone(),
        entry: reader.entry().clone(),
        to: work.to.clone(),
        spec: spec.clone(),
        segment: None,
    };
    let copying = Copying {
        shared: Arc::clone(shared),
        in_order: !destination.capabilities().segments_in_any_order,
        holds: destination.capabilities().segments_held,
        ranges,
        was_helped: Arc::default(),
        errand,
        spec,
        reader,
        writer,
        moving: Arc::clone(moving),
    };
    let copied = |whole| ((copying.spec.size, whole), copying.reader.stored_sum());
    match copying.copy().await {
        Ok(Stage::Finished(whole)) => Ok(copied(whole)),
        Ok(Stage::Stored(whole)) => {
            retried(shared, || copying.writer.finish(whole)).await?;
            Ok(copied(whole))
        }
        Err(error) => {
            if matches!(error.kind(), ErrorKind::Changed | ErrorKind::Corrupt) {
                copying.writer.discard().await;
            }
            Err(error)
        }
    }
}

/// Copy of one large file.
struct Copying {
    shared: Arc<Shared>,
    /// Errand that others get if they write segments of the file.
    errand: Errand,
    spec: FileSpec,
    reader: Arc<dyn Reader>,
    writer: Arc<dyn Writer>,
    moving: Arc<Moving>,
    /// The destination accepts segments only in order.
    in_order: bool,
    /// The destination keeps a segment in memory while it is sent.
    holds: bool,
    /// The source is read from any position.
    ranges: bool,
    /// Set once others wrote segments.
    was_helped: Arc<AtomicBool>,
}

/// Stage of a copy, with the checksum of the whole.
enum Stage {
    /// All segments are there.
    Stored(Checksum),
    /// The file has its name.
    Finished(Checksum),
}

impl Copying {
    /// Copies all segments. Finishes the file while the last ones are on their way, where the
    /// destination can.
    async fn copy(&self) -> Result<Stage> {
        let mut storing = pin!(self.store());
        let mut ahead = pin!(self.finish_ahead());
        let mut may_finish = true;
        let stored = loop {
            tokio::select! {
                stored = &mut storing => break stored,
                finished = &mut ahead, if may_finish => match finished? {
                    Some(whole) => {
                        // The answers of the segments are not needed, but their connections are.
                        let _ = timeout(ANSWERED_WITHIN, storing).await;
                        return Ok(Stage::Finished(whole));
                    }
                    None => may_finish = false,
                }
            }
        };
        let whole = stored?;
        // Everything is sent: a destination that can finish ahead has begun to, and ends within a
        // round trip.
        if may_finish && ahead.await? == Some(whole) {
            return Ok(Stage::Finished(whole));
        }
        self.confirm(whole).await?;
        let ends = (&*self.reader, &*self.writer);
        let was_helped = self.was_helped.load(Relaxed);
        if let Some(proof) = Proof::of(ends, &self.spec, whole, was_helped)? {
            let found = retried(&self.shared, || proof.read()).await?;
            proof.judge(found, whole)?;
        }
        Ok(Stage::Stored(whole))
    }

    /// Returns the checksum of the file if it could be finished ahead.
    ///
    /// # Errors
    /// Errors of the destination's file system about bytes that it accepted before. It may report
    /// them only once.
    async fn finish_ahead(&self) -> Result<Option<Checksum>> {
        let Some(whole) = self.writer.all_sent().await else {
            return Ok(None);
        };
        if self.confirm(whole).await.is_err() || proof::is_lacking(&*self.reader) {
            return Ok(None);
        }
        match self.writer.finish_ahead(whole).await {
            Ok(()) => Ok(Some(whole)),
            Err(error) if may_go_later(error.kind()) => Ok(None),
            Err(error) => Err(error.at(Locus::Destination)),
        }
    }

    async fn store(&self) -> Result<Checksum> {
        if self.ranges {
            self.copy_segments().await
        } else {
            self.copy_stream().await
        }
    }

    /// Compares what arrived with the source as it is now and with what the source reports.
    async fn confirm(&self, whole: Checksum) -> Result<()> {
        retried(&self.shared, || self.reader.confirm()).await?;
        match self.reader.checksum() {
            Some(wanted) if wanted != whole => {
                Err(Error::new(ErrorKind::Corrupt, "copy", &*self.spec.origin)
                    .cause("what was read has not the checksum the store keeps for it")
                    .hint("copy it again; if it stays, the stored object is damaged")
                    .with("wanted", wanted)
                    .with("found", whole)
                    .at(Locus::Source))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn range(&self, index: u64) -> Range<u64> {
        let start = index * self.writer.segment_size();
        start..(start + self.writer.segment_size()).min(self.spec.size)
    }

    fn count(&self) -> u64 {
        self.spec.size.div_ceil(self.writer.segment_size())
    }

    /// Returns the segments that an earlier run sent.
    fn kept(&self) -> Sums {
        let kept = self.writer.kept().into_iter().map(|(index, sum)| {
            let range = self.range(index);
            self.moving.resumed(range.end - range.start);
            (index, (range.end - range.start, sum))
        });
        kept.collect()
    }

    /// Returns how many of these segments the next request brings.
    fn run(&self, missing: &[u64]) -> usize {
        let streams = self.shared.streams.limit() as u64;
        let most = run::segments(missing.len() as u64, streams, self.writer.run_max());
        let follows = |(at, index): &(u64, &u64)| missing[0] + at == **index;
        (0..most).zip(missing).take_while(follows).count()
    }

    fn check_stop(&self) -> Result<()> {
        if self.shared.is_stopped() {
            return Err(Error::new(ErrorKind::Cancelled, "copy", &*self.spec.origin));
        }
        Ok(())
    }

    /// Waits for what a segment needs before it may fly: memory if it is held, and a stream.
    async fn admit(&self, bytes: u64) -> (Option<OwnedSemaphorePermit>, Pass) {
        // Work of others needs no memory here; work that they leave needs it once it is known.
        let memory = if self.holds && !help::is_there(&self.shared) {
            borrow_memory(&self.shared, bytes).await
        } else {
            None
        };
        (memory, self.shared.streams.pass().await)
    }

    async fn copy_segments(&self) -> Result<Checksum> {
        let mut sums = self.kept();
        let missing: Vec<u64> = (0..self.count())
            .filter(|index| !sums.contains_key(index))
            .collect();
        let mut missing = &missing[..];
        let mut flying = JoinSet::new();
        while let Some(&index) = missing.first() {
            // A segment that ended shows its error before the next one starts.
            while let Some(ended) = flying.try_join_next() {
                note(&mut sums, ended)?;
            }
            let (run, rest) = missing.split_at(self.run(missing));
            missing = rest;
            let end = run.last().map_or(0, |&last| self.range(last).end);
            let range = self.range(index).start..end;
            let admitted = self.admit(range.end - range.start).await;
            self.check_stop()?;
            let flight = Flight {
                shared: Arc::clone(&self.shared),
                errand: self.errand.clone(),
                holds: self.holds,
                was_helped: Arc::clone(&self.was_helped),
                reader: Arc::clone(&self.reader),
                writer: Arc::clone(&self.writer),
                moving: Arc::clone(&self.moving),
                attempts: AtomicU32::new(0),
                admitted,
            };
            flying.spawn(async move { flight.fly(index, range).await });
            if self.in_order
                && let Some(ended) = flying.join_next().await
            {
                note(&mut sums, ended)?;
            }
        }
        while let Some(ended) = flying.join_next().await {
            note(&mut sums, ended)?;
        }
        Ok(whole(&sums))
    }

    /// Copies from a source that can only be read from its start: one stream, cut into segments.
    /// After a failure it starts over and skips what was stored.
    async fn copy_stream(&self) -> Result<Checksum> {
        let sums = std::sync::Mutex::new(self.kept());
        retried(&self.shared, || self.stream_once(&sums)).await?;
        let sums = sums.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(whole(&sums))
    }

    async fn stream_once(&self, sums: &std::sync::Mutex<Sums>) -> Result<()> {
        let known = |index: u64| {
            let sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
            sums.get(&index).map(|&(_, sum)| sum)
        };
        let body = self.reader.read(0..self.spec.size).await?;
        let cutter = Arc::new(Cutter::new(body));
        for index in 0..self.count() {
            self.check_stop()?;
            let range = self.range(index);
            let bytes = range.end - range.start;
            let piece = cutter.piece(bytes);
            if let Some(sum) = known(index) {
                if sum_of(piece).await? != sum {
                    return Err(
                        Error::new(ErrorKind::Changed, "continue", &*self.spec.origin)
                            .cause("its beginning is no longer what was copied")
                            .at(Locus::Source),
                    );
                }
                continue;
            }
            let _admitted = self.admit(bytes).await;
            let sum = watched(&self.shared, (&self.moving, bytes), false, |tap| {
                self.writer.write(index, range, tap.meter(piece))
            })
            .await?;
            let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
            sums.insert(index, (bytes, sum));
        }
        Ok(())
    }
}

/// Returns whether a file that can't be finished ahead may be finished once all its segments are
/// known to be there.
fn may_go_later(kind: ErrorKind) -> bool {
    !matches!(
        kind,
        ErrorKind::Full
            | ErrorKind::PermissionDenied
            | ErrorKind::Conflict
            | ErrorKind::NotFound
            | ErrorKind::Other
    )
}

fn whole(sums: &Sums) -> Checksum {
    let join = |whole: Checksum, &(bytes, sum): &(u64, Checksum)| whole.then(sum, bytes);
    sums.values().fold(Checksum::EMPTY, join)
}

async fn sum_of(mut body: ByteStream) -> Result<Checksum> {
    let mut summer = Summer::default();
    while let Some(bytes) = body.next().await {
        summer.add(&bytes?);
    }
    Ok(summer.sum())
}

fn note(sums: &mut Sums, ended: Result<Result<Sum>, tokio::task::JoinError>) -> Result<()> {
    let (index, stored) = ended.unwrap_or_else(|cause| {
        Err(Error::new(ErrorKind::Other, "run", "a segment's lane").cause(cause))
    })?;
    sums.insert(index, stored);
    Ok(())
}

/// Segment on its way, or a run of them.
struct Flight {
    shared: Arc<Shared>,
    errand: Errand,
    holds: bool,
    was_helped: Arc<AtomicBool>,
    reader: Arc<dyn Reader>,
    writer: Arc<dyn Writer>,
    moving: Arc<Moving>,
    attempts: AtomicU32,
    admitted: (Option<OwnedSemaphorePermit>, Pass),
}

impl Flight {
    async fn fly(&self, index: u64, range: Range<u64>) -> Result<Sum> {
        let bytes = range.end - range.start;
        let (copy, errand) = ((&self.shared, &self.moving), self.errand.clone());
        let segment = (index, range.clone());
        let left = help::segment(copy, errand, self.writer.as_ref(), segment).await?;
        if let Left::Done(sum) = left {
            self.was_helped.store(true, Relaxed);
            return Ok((index, (bytes, sum)));
        }
        let _memory = match &self.admitted {
            (None, _) if self.holds => borrow_memory(&self.shared, bytes).await,
            _ => None,
        };
        let sum = retried(&self.shared, || self.attempt(index, range.clone())).await?;
        left.was_done(&self.shared);
        Ok((index, (bytes, sum)))
    }

    async fn attempt(&self, index: u64, range: Range<u64>) -> Result<Checksum> {
        let hurries = self.attempts.fetch_add(1, Relaxed) < HURRIED_ATTEMPTS;
        let bytes = range.end - range.start;
        watched(&self.shared, (&self.moving, bytes), hurries, async |tap| {
            let body = self.reader.read(range.clone()).await?;
            self.writer.write(index, range, tap.meter(body)).await
        })
        .await
    }
}

/// Cutter of one stream into pieces that are read one after the other.
struct Cutter {
    rest: Mutex<(ByteStream, Bytes)>,
}

impl Cutter {
    fn new(body: ByteStream) -> Self {
        Self {
            rest: Mutex::new((body, Bytes::new())),
        }
    }

    /// Returns the next `bytes` of the stream.
    fn piece(self: &Arc<Self>, bytes: u64) -> ByteStream {
        let cutter = Arc::clone(self);
        Box::pin(stream::unfold(
            (cutter, bytes),
            |(cutter, left)| async move {
                if left == 0 {
                    return None;
                }
                let next = cutter.next(left).await?;
                let taken = next.as_ref().map_or(left, |bytes| bytes.len() as u64);
                Some((next, (cutter, left - taken)))
            },
        ))
    }

    async fn next(&self, most: u64) -> Option<Result<Bytes>> {
        let mut rest = self.rest.lock().await;
        let (body, ready) = &mut *rest;
        while ready.is_empty() {
            match body.next().await? {
                Ok(bytes) => *ready = bytes,
                Err(error) => return Some(Err(error)),
            }
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(ready.len());
        Some(Ok(ready.split_to(most)))
    }
}
