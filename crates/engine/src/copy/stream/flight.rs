//! Segments of a stream on their way, to the destination or to the parking place.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use posthaste_endpoint::{ByteStream, Checksum, Error, ErrorKind, Result, Writer};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    super::{
        lane::Shared, progress::Moving, remote::borrow_memory, retry::retried, watch::watched,
    },
    Spout,
};
use crate::parked::Lot;

/// Segment of the stream in memory.
pub(super) struct Segment {
    pub(super) index: u64,
    pub(super) start: u64,
    pub(super) data: Vec<Bytes>,
    pub(super) _memory: Option<OwnedSemaphorePermit>,
}

impl Segment {
    pub(super) fn range(&self) -> Range<u64> {
        let bytes: u64 = self.data.iter().map(|bytes| bytes.len() as u64).sum();
        self.start..self.start + bytes
    }

    pub(super) fn body(&self) -> ByteStream {
        Box::pin(stream::iter(self.data.clone().into_iter().map(Ok)))
    }
}

/// Segment that was written.
pub(super) struct Landed {
    pub(super) segment: Segment,
    pub(super) to_parking: bool,
    pub(super) outcome: Result<Checksum>,
}

/// Waits for memory and fills it with the next `len` bytes, or what is left of the stream.
pub(super) async fn next_segment(
    shared: &Shared,
    spout: &mut Spout,
    len: u64,
) -> Result<(Vec<Bytes>, Option<OwnedSemaphorePermit>)> {
    let memory = borrow_memory(shared, len).await;
    spout.gather(len).await?;
    Ok((spout.take(len), memory))
}

/// Writes a segment to its target. With a parking place, it counts only once a crash at the
/// destination can't lose it, or it was parked as well.
pub(super) async fn fly(
    shared: &Arc<Shared>,
    moving: &Arc<Moving>,
    writer: &dyn Writer,
    lot: Option<&Lot>,
    segment: &Segment,
) -> Result<Checksum> {
    let range = segment.range();
    let bytes = range.end - range.start;
    let sum = retried(shared, || {
        watched(shared, (moving, bytes), false, |tap| {
            writer.write(segment.index, segment.range(), tap.meter(segment.body()))
        })
    })
    .await?;
    if let Some(lot) = lot
        && !retried(shared, || writer.settle()).await?
    {
        lot.keep(segment.start, &segment.data).await?;
    }
    Ok(sum)
}

pub(super) async fn park(
    shared: &Shared,
    moving: &Moving,
    lot: Option<&Lot>,
    segment: &Segment,
) -> Result<Checksum> {
    let Some(lot) = lot else {
        return Err(Error::new(ErrorKind::Invalid, "park", "a stream").cause("no place is known"));
    };
    let range = segment.range();
    shared.options.throttle.pass(range.end - range.start).await;
    let sum = lot.keep(segment.start, &segment.data).await?;
    moving.sent(range.end - range.start);
    Ok(sum)
}
