//! Files and listings of an endpoint under caps.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use super::{Excuse, Limits, Pass, TURN_BYTES};
use crate::{
    Checksum, Error, ErrorKind, Result, StoredSum,
    endpoint::{Boxed, ByteStream, Entry, Listing, Reader, Writer},
    outgoing::Outgoing,
};

/// Stream at a limited rate, with its place until its last byte.
struct Paced {
    body: ByteStream,
    /// Bytes received that wait for the rate.
    ready: Bytes,
    limits: Limits,
    excuse: Excuse,
    place: Option<Pass>,
    /// Set if the stream is read piece by piece, each for a write of its own: it gives its place up
    /// while writes need one.
    yields: bool,
    /// Bytes to come.
    left: u64,
}

impl Paced {
    async fn next(&mut self) -> Option<Result<Bytes>> {
        if self.yields && self.limits.takes_bodies_whole() {
            self.place = None;
        }
        while self.ready.is_empty() {
            match self.body.next().await {
                Some(Ok(bytes)) => self.ready = bytes,
                other => {
                    self.place = None;
                    return other;
                }
            }
        }
        let turn = usize::try_from(TURN_BYTES).unwrap_or(usize::MAX);
        let piece = self.ready.split_to(turn.min(self.ready.len()));
        self.limits.pay(piece.len() as u64, &self.excuse).await;
        self.left = self.left.saturating_sub(piece.len() as u64);
        if self.left == 0 {
            self.place = None;
        }
        Some(Ok(piece))
    }
}

/// Returns the stream at the rate of `limits`. It gives `place` back after `bytes`, or as soon as
/// it must if it `yields`.
pub(super) fn paced(
    body: ByteStream,
    limits: Limits,
    (place, yields): (Option<Pass>, bool),
    bytes: u64,
) -> ByteStream {
    let paced = Paced {
        body,
        ready: Bytes::new(),
        limits,
        excuse: Excuse::current(),
        place,
        yields,
        left: bytes,
    };
    Box::pin(stream::unfold(paced, |mut paced| async move {
        let next = paced.next().await?;
        Some((next, paced))
    }))
}

/// Longest body read into memory, in bytes: copies borrow memory for it, but for the largest
/// segments.
const TAKEN_IN_MAX: u64 = 256 << 20;

/// Reads a stream of `bytes` into memory until it ends, so that its source is done.
pub(super) async fn taken_in(mut body: ByteStream, bytes: u64) -> Result<ByteStream> {
    if bytes > TAKEN_IN_MAX {
        return Err(no_room("write"));
    }
    let outgoing = Outgoing::current();
    let holding = outgoing.hold();
    let mut pieces = Vec::new();
    while let Some(piece) = body.next().await {
        pieces.push(piece?);
    }
    drop(holding);
    Ok(outgoing.counted(pieces))
}

/// Returns the error for a stream that would hold the place that its reader needs.
fn no_room(operation: &'static str) -> Error {
    let subject = "a file that goes in one stream";
    Error::new(ErrorKind::Unsupported, operation, subject)
        .cause("source and destination share the connections_max of one profile")
        .hint("give each its own: --source-profile")
}

pub(super) struct LimitedReader {
    pub(super) inner: Arc<dyn Reader>,
    pub(super) limits: Limits,
    /// Set if [`Reader::read`] can start anywhere.
    pub(super) ranges: bool,
}

impl Reader for LimitedReader {
    fn entry(&self) -> &Entry {
        self.inner.entry()
    }

    fn checksum(&self) -> Option<Checksum> {
        self.inner.checksum()
    }

    fn stored_sum(&self) -> Option<StoredSum> {
        self.inner.stored_sum()
    }

    fn is_of_one_version(&self) -> bool {
        self.inner.is_of_one_version()
    }

    fn can_be_continued(&self) -> bool {
        self.inner.can_be_continued()
    }

    fn is_compared(&self) -> bool {
        self.inner.is_compared()
    }

    fn read(&self, range: Range<u64>) -> Boxed<'_, Result<ByteStream>> {
        Box::pin(async move {
            if !self.ranges && self.limits.takes_bodies_whole() {
                return Err(no_room("read"));
            }
            let place = self.limits.enter().await;
            let bytes = range.end.saturating_sub(range.start);
            let body = self.inner.read(range).await?;
            Ok(paced(
                body,
                self.limits.clone(),
                (Some(place), !self.ranges),
                bytes,
            ))
        })
    }

    fn confirm(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            let _place = self.limits.enter().await;
            self.inner.confirm().await
        })
    }
}

pub(super) struct LimitedWriter {
    pub(super) inner: Arc<dyn Writer>,
    pub(super) limits: Limits,
}

impl Writer for LimitedWriter {
    fn segment_size(&self) -> u64 {
        self.inner.segment_size()
    }

    fn kept(&self) -> Vec<(u64, Checksum)> {
        self.inner.kept()
    }

    fn run_max(&self) -> u64 {
        self.inner.run_max()
    }

    fn write(
        &self,
        index: u64,
        range: Range<u64>,
        body: ByteStream,
    ) -> Boxed<'_, Result<Checksum>> {
        Box::pin(async move {
            let bytes = range.end.saturating_sub(range.start);
            let (_place, body) = self.limits.enter_with(body, bytes).await?;
            let body = paced(body, self.limits.clone(), (None, false), bytes);
            self.inner.write(index, range, body).await
        })
    }

    fn finish(&self, whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(async move {
            let _place = self.limits.enter().await;
            self.inner.finish(whole).await
        })
    }

    fn discard(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            let _place = self.limits.enter().await;
            self.inner.discard().await;
        })
    }

    fn all_sent(&self) -> Boxed<'_, Option<Checksum>> {
        self.inner.all_sent()
    }

    fn finish_ahead(&self, whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(async move {
            let _place = self.limits.enter().await;
            self.inner.finish_ahead(whole).await
        })
    }

    fn read_back(&self, range: Range<u64>) -> Option<ByteStream> {
        self.inner.read_back(range)
    }

    fn segment_start(&self, index: u64) -> u64 {
        self.inner.segment_start(index)
    }

    fn finish_at(&self, size: u64, whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(async move {
            let _place = self.limits.enter().await;
            self.inner.finish_at(size, whole).await
        })
    }

    fn settle(&self) -> Boxed<'_, Result<bool>> {
        Box::pin(async {
            let _place = self.limits.enter().await;
            self.inner.settle().await
        })
    }

    fn note(&self) -> Option<String> {
        self.inner.note()
    }

    fn lend(&self) -> Option<String> {
        self.inner.lend()
    }

    fn take(&self, index: u64, sum: Checksum, receipt: &str) -> Result<()> {
        self.inner.take(index, sum, receipt)
    }
}

pub(super) struct LimitedListing {
    pub(super) inner: Box<dyn Listing>,
    pub(super) limits: Limits,
}

impl Listing for LimitedListing {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(async {
            let _place = if self.inner.counts_itself() {
                None
            } else {
                Some(self.limits.enter().await)
            };
            self.inner.next_page().await
        })
    }

    fn mark(&self) -> Option<Vec<u8>> {
        self.inner.mark()
    }
}
