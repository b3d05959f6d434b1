//! Multipart upload, as [`crate::objects::Upload`] continues it.
//!
//! A ledger notes the ETag that the store returned for each segment: a later run keeps the segments
//! that the store lists with it.

use std::sync::Arc;

use futures_util::StreamExt;

use super::{
    client::S3Client,
    held,
    multipart::{Multipart, Stored, is_made_of},
    sums::Sum,
};
use crate::{
    Checksum, Error, ErrorKind, Locus, Result, Status, Summer,
    checksum::Crc32c,
    cut::Limits,
    endpoint::{ByteStream, FileSpec},
    ledger::Kept,
    objects::{Head, Incomplete, Noted, Segment, Segments},
    outgoing::Outgoing,
};

/// Most segments that S3 accepts for one object; those of unknown length reach 406 GiB.
pub(super) static LIMITS: Limits = Limits {
    segments_max: 10_000,
    growth: &[(1_000, 16), (2_000, 32), (7_000, 48)],
};

/// Parses a receipt: an ETag, and its CRC-32C if the store keeps that.
fn etag_of(receipt: &str) -> (&str, Option<Crc32c>) {
    let noted = receipt.rsplit_once('/');
    match noted.and_then(|(etag, sum)| Some((etag, Crc32c::from_hex(sum)?))) {
        Some((etag, sum)) => (etag, Some(sum)),
        None => (receipt, None),
    }
}

/// Returns the CRC-32C of all segments, if the store keeps that of each.
fn crc32c_of(segments: &[Segment<Stored>]) -> Option<Crc32c> {
    let mut segments = segments.iter();
    segments.try_fold(Crc32c::EMPTY, |sum, segment| {
        Some(sum.then(segment.stored.crc32c?, segment.len))
    })
}

impl Multipart {
    /// Probes, once for each endpoint, whether segments can be streamed.
    async fn try_streams(&self) {
        let (client, sum) = (&self.client, self.sum());
        if client.trailing(sum).is_some() {
            return;
        }
        if sum == Sum::Md5 {
            return client.found_trailing(sum);
        }
        let last = LIMITS.segments_max - 1;
        if let Some(takes) = self.takes_streams(last, sum).await {
            client.found_trailing(if takes { sum } else { Sum::Md5 });
        }
    }

    /// Reads a segment into memory, then sends it.
    async fn hold(&self, index: u64, len: u64, mut body: ByteStream) -> Result<(Checksum, Stored)> {
        let mut data = Vec::new();
        let mut summer = Summer::default();
        let mut held = 0;
        let holding = Outgoing::current().hold();
        while let Some(bytes) = body.next().await {
            let bytes = bytes?;
            summer.add(&bytes);
            held += bytes.len() as u64;
            if held > len {
                break;
            }
            data.push(bytes);
        }
        drop(holding);
        if held != len {
            return Err(
                Error::new(ErrorKind::Unreachable, "read", self.client.show(&self.key))
                    .cause("the source has not as many bytes as it said")
                    .at(Locus::Source),
            );
        }
        let sum = summer.sum();
        Ok((sum, self.send_held(index, &data, sum).await?))
    }
}

impl Segments for Multipart {
    type Store = S3Client;
    type Stored = Stored;

    fn limits() -> &'static Limits {
        &LIMITS
    }

    fn at(store: &Arc<S3Client>, key: &str, _spec: &FileSpec, token: &str) -> Self {
        Self::noted_as(Arc::clone(store), key.to_owned(), token)
    }

    async fn begin(store: &Arc<S3Client>, key: &str, spec: &FileSpec) -> Result<Self> {
        let begun = Self::initiate(Arc::clone(store), key.to_owned(), spec, true).await?;
        begun.try_streams().await;
        Ok(begun)
    }

    async fn held(&self, noted: Noted) -> Result<Option<Vec<Kept>>> {
        let Some(listed) = self.list().await? else {
            return Ok(None);
        };
        self.try_streams().await;
        let bare = |etag: &str| etag.trim_matches('"').to_owned();
        Ok(Some(noted.held(|noted| {
            let (etag, size) = listed.get(&noted.index)?;
            (bare(etag) == bare(etag_of(&noted.receipt).0)).then_some(*size)
        })))
    }

    fn token(&self) -> String {
        self.show_token()
    }

    fn receipt(stored: &Stored) -> String {
        match stored.crc32c {
            Some(crc32c) => format!("{}/{crc32c}", stored.etag),
            None => stored.etag.clone(),
        }
    }

    fn noted(kept: &Kept) -> Option<Stored> {
        let (etag, crc32c) = etag_of(&kept.receipt);
        Some(Stored {
            checksum: Some(kept.checksum),
            crc32c,
            etag: etag.to_owned(),
            is_md5: false,
        })
    }

    fn shown(&self) -> String {
        self.client.show(&self.key)
    }

    async fn send(&self, index: u64, len: u64, body: ByteStream) -> Result<(Checksum, Stored)> {
        let trailing = self.client.trailing(self.sum());
        match trailing.filter(|&sum| sum != Sum::Md5) {
            Some(trailing) => self.send_stream(index, body, len, trailing).await,
            None => self.hold(index, len, body).await,
        }
    }

    async fn complete(
        &self,
        segments: Vec<Segment<Stored>>,
        (size, whole): (u64, Checksum),
        only_new: bool,
    ) -> Result<(), Incomplete> {
        let crc32c = crc32c_of(&segments);
        let stored = segments
            .iter()
            .map(|segment| (segment.index, &segment.stored));
        let made = self.put_together(stored, (Some(whole), crc32c), only_new);
        let made = made.await;
        let (is_right, etag) = made.map_err(|error| Incomplete {
            is_gone: error.kind() == ErrorKind::NotFound,
            error,
        })?;
        if !is_right {
            let differs = held::differs_there(&self.client, &self.key, Some(&etag));
            // The upload is over: it can't be finished once more.
            return Err(differs.await.status_is(Status::Permanent).into());
        }
        let stored = segments.iter().map(|segment| &segment.stored);
        self.prove(stored, &etag, (size, whole)).await?;
        Ok(())
    }

    fn is_made_of(head: &Head, segments: &[Segment<Stored>], whole: Checksum) -> bool {
        let stored = segments.iter().map(|segment| &segment.stored);
        is_made_of(&head.headers, stored, Some(whole), crc32c_of(segments))
    }

    async fn discard(&self) {
        self.abort().await;
    }
}
