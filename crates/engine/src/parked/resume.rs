//! Completion of a parked stream at its destination, or its removal.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use posthaste_endpoint::{
    ByteStream, Checksum, Endpoint, Error, ErrorKind, FileSpec, Locus, Result, Summer, Writer,
};
use posthaste_types::Bytes as Size;

use super::{Known, Lot, ParkId, Piece, Plan, Record, lot::Content, plan};
use crate::copy::persisted;

/// Segments in memory and on their way at once: 96 MiB of the largest.
const SEGMENTS_AT_ONCE: usize = 2;

/// Ranges named in an error.
const RANGES_SHOWN_MAX: usize = 4;

/// Outcome of a completed stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumed {
    /// Length in bytes.
    pub size: u64,
    /// Bytes that the destination already had.
    pub kept: u64,
    /// Bytes sent from the parking place.
    pub sent: u64,
}

/// Outcome of dropping a stream.
#[derive(Debug)]
pub struct Dropped {
    /// Files removed at the parking place.
    pub files: usize,
    /// Reason why the unfinished copy at the destination may still be there.
    pub left: Option<Error>,
}

/// Completes the parked stream `id` at `destination`, whose root is the file itself, then removes
/// it from the parking place. With `cut_short`, a stream whose end was never seen ends at the first
/// gap.
///
/// # Errors
/// [`ErrorKind::NotFound`] without such a stream; [`ErrorKind::Invalid`] if its end was never seen;
/// [`ErrorKind::Corrupt`] if bytes are gone at both places; errors of both places. Nothing is
/// removed then.
pub async fn resume(
    place: &Arc<dyn Endpoint>,
    destination: &Arc<dyn Endpoint>,
    id: &ParkId,
    cut_short: bool,
) -> Result<Resumed> {
    let lot = Lot::new(Arc::clone(place), id.clone());
    let record = lot.record().await?;
    let content = lot.content().await?;
    let completing = Completing {
        lot: &lot,
        destination,
        record: &record,
        content: &content,
        cut_short,
    };
    let resumed = completing.run().await?;
    lot.clear().await?;
    Ok(resumed)
}

/// Removes everything of the parked stream `id`, and the unfinished copy at `destination`, whose
/// root is the file itself. `destination` is an error if it could not be opened. With `force`, it
/// also removes a stream that may still be running.
///
/// # Errors
/// [`ErrorKind::NotFound`] without such a stream; [`ErrorKind::Invalid`] for one that may still be
/// running; errors of the parking place.
pub async fn drop_stream(
    place: &Arc<dyn Endpoint>,
    destination: Result<Arc<dyn Endpoint>>,
    id: &ParkId,
    force: bool,
) -> Result<Dropped> {
    let lot = Lot::new(Arc::clone(place), id.clone());
    let record = lot.record().await?;
    if record.whole.is_none() && !force {
        return Err(unended(&record, "drop", "--force drops it"));
    }
    let left = match destination {
        Ok(destination) => discard(&lot, &destination, &record).await.err(),
        Err(error) => Some(error),
    };
    let files = lot.clear().await?;
    Ok(Dropped { files, left })
}

/// Removes what the destination keeps of an unfinished copy.
async fn discard(lot: &Lot, destination: &Arc<dyn Endpoint>, record: &Record) -> Result<()> {
    // A stream that was never begun there has no note and nothing confirmed.
    let note = lot.note().await?;
    if note.is_none() && record.confirmed.bytes() == 0 && record.why.is_some() {
        return Ok(());
    }
    let spec = spec(record);
    if let Some(note) = note {
        destination.adopt(b"", &spec, &note).await?;
    }
    let writer = persisted(|| destination.create_open_ended(b"", &spec)).await?;
    writer.discard().await;
    Ok(())
}

fn spec(record: &Record) -> FileSpec {
    FileSpec {
        size: 0,
        mtime: None,
        mode: None,
        origin: record.id.origin().into(),
        version: None,
    }
}

fn unended(record: &Record, operation: &'static str, hint: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        operation,
        format!("the stream {}", record.id),
    )
    .cause("its end was never seen: it is still being written, or was killed")
    .hint(format!("if it no longer runs, {hint}"))
}

struct Completing<'a> {
    lot: &'a Lot,
    destination: &'a Arc<dyn Endpoint>,
    record: &'a Record,
    content: &'a Content,
    cut_short: bool,
}

impl Completing<'_> {
    async fn run(&self) -> Result<Resumed> {
        if self.record.whole.is_none() && !self.cut_short {
            let hint = "--cut-short completes the file with the bytes there are";
            return Err(unended(self.record, "complete", hint));
        }
        if let Some(resumed) = self.is_there().await? {
            return Ok(resumed);
        }
        persisted(|| self.destination.make_parents()).await?;
        let spec = spec(self.record);
        if let Some(note) = self.lot.note().await? {
            self.destination.adopt(b"", &spec, &note).await?;
        }
        let writer = persisted(|| self.destination.create_open_ended(b"", &spec)).await?;
        let kept: BTreeMap<u64, Checksum> = writer.kept().into_iter().collect();
        let known = Known {
            size: self.record.whole.map(|(size, _)| size),
            confirmed: self.record.confirmed.clone(),
            pieces: self.content.pieces.clone(),
        };
        let start_of = |index| writer.segment_start(index);
        match plan(&known, &kept, start_of, self.cut_short) {
            Plan::Complete { size, keep, send } => self.complete(&*writer, size, keep, send).await,
            Plan::Unended { reach } => Err(unended(
                self.record,
                "complete",
                &format!("--cut-short completes the file with {}", Size::new(reach)),
            )),
            Plan::Lost { ranges } => {
                if kept.is_empty() {
                    writer.discard().await;
                }
                Err(self.lost(&ranges))
            }
        }
    }

    fn show(&self) -> String {
        self.destination.show(b"")
    }

    /// Returns the outcome if an earlier attempt finished without learning of it: then the whole
    /// file is there.
    async fn is_there(&self) -> Result<Option<Resumed>> {
        let Some((size, sum)) = self.record.whole else {
            return Ok(None);
        };
        let found = persisted(|| self.destination.stat(b"", true)).await?;
        let Some(entry) = found.filter(|entry| entry.size == size && size > 0) else {
            return Ok(None);
        };
        let reader = persisted(|| self.destination.open(b"", &entry)).await?;
        let found = match reader.checksum() {
            Some(found) => found,
            None => sum_of(reader.read(0..size).await?).await?,
        };
        Ok((found == sum).then_some(Resumed {
            size,
            kept: size,
            sent: 0,
        }))
    }

    async fn complete(
        &self,
        writer: &dyn Writer,
        size: u64,
        keep: BTreeMap<u64, Checksum>,
        send: Vec<u64>,
    ) -> Result<Resumed> {
        let range_of = |index: u64| {
            writer.segment_start(index).min(size)..writer.segment_start(index + 1).min(size)
        };
        let small = self.destination.capabilities().segment_size_min;
        if keep.is_empty() && size <= small {
            writer.discard().await;
            return self.put(size).await;
        }
        let mut sums = keep;
        let mut sent = 0;
        let at_once = if self.destination.capabilities().segments_in_any_order {
            SEGMENTS_AT_ONCE
        } else {
            1
        };
        let sending = send.into_iter().map(|index| {
            let range = range_of(index);
            async move { (index, self.send(writer, index, range).await) }
        });
        let mut sending = stream::iter(sending).buffer_unordered(at_once);
        while let Some((index, sum)) = sending.next().await {
            let range = range_of(index);
            sums.insert(index, sum?);
            sent += range.end - range.start;
        }
        let whole = sums.iter().fold(Checksum::EMPTY, |whole, (&index, &sum)| {
            let range = range_of(index);
            whole.then(sum, range.end - range.start)
        });
        self.check(size, whole)?;
        persisted(|| writer.finish_at(size, whole)).await?;
        Ok(Resumed {
            size,
            kept: size - sent,
            sent,
        })
    }

    async fn send(&self, writer: &dyn Writer, index: u64, range: Range<u64>) -> Result<Checksum> {
        let data = self.gather(range.clone()).await?;
        let stored = persisted(|| {
            let body: ByteStream = Box::pin(stream::iter(data.clone().into_iter().map(Ok)));
            writer.write(index, range.clone(), body)
        });
        stored.await
    }

    /// Writes a short stream of which the destination has nothing in one piece.
    async fn put(&self, size: u64) -> Result<Resumed> {
        let data = self.gather(0..size).await?;
        let sum = sum(&data);
        self.check(size, sum)?;
        let spec = FileSpec {
            size,
            ..spec(self.record)
        };
        persisted(|| self.destination.put(b"", &spec, data.clone(), sum)).await?;
        Ok(Resumed {
            size,
            kept: 0,
            sent: size,
        })
    }

    /// Compares with the checksum of the stream when it was read.
    fn check(&self, size: u64, sum: Checksum) -> Result<()> {
        match self.record.whole {
            Some(wanted) if wanted != (size, sum) => {
                Err(Error::new(ErrorKind::Corrupt, "complete", self.show())
                    .cause("what was parked and kept is not the stream that was read")
                    .hint("`posthaste parked drop` removes it"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the bytes of `range`, from the pieces that hold them.
    async fn gather(&self, range: Range<u64>) -> Result<Vec<Bytes>> {
        let mut data = Vec::new();
        for piece in self
            .content
            .pieces
            .iter()
            .filter(|piece| overlaps(piece, &range))
        {
            let mut at = piece.start;
            for bytes in self.lot.fetch(piece).await? {
                let end = at + bytes.len() as u64;
                let (from, to) = (at.max(range.start), end.min(range.end));
                if from < to {
                    let within = |place: u64| usize::try_from(place - at).unwrap_or(usize::MAX);
                    data.push(bytes.slice(within(from)..within(to)));
                }
                at = end;
            }
        }
        Ok(data)
    }

    fn lost(&self, ranges: &[Range<u64>]) -> Error {
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let shown: Vec<String> = ranges
            .iter()
            .take(RANGES_SHOWN_MAX)
            .map(|range| format!("{} to {}", range.start, range.end))
            .collect();
        let more = if ranges.len() > RANGES_SHOWN_MAX {
            ", …"
        } else {
            ""
        };
        Error::new(ErrorKind::Corrupt, "complete", self.show())
            .cause(format!(
                "{} that it had confirmed are gone there and were not parked: bytes {}{more}",
                Size::new(bytes),
                shown.join(", ")
            ))
            .hint(format!(
                "the stream is lost; `posthaste parked drop {}` removes the rest",
                self.record.id
            ))
            .at(Locus::Destination)
    }
}

fn overlaps(piece: &Piece, range: &Range<u64>) -> bool {
    piece.start < range.end && range.start < piece.range().end
}

fn sum(data: &[Bytes]) -> Checksum {
    let mut summer = Summer::default();
    data.iter().for_each(|bytes| summer.add(bytes));
    summer.sum()
}

async fn sum_of(mut body: ByteStream) -> Result<Checksum> {
    let mut summer = Summer::default();
    while let Some(bytes) = body.next().await {
        summer.add(&bytes?);
    }
    Ok(summer.sum())
}
