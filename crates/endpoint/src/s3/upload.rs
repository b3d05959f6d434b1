//! A multipart upload that a later run can continue.
//!
//! The upload's id, each segment's checksum and the ETag the store gave for it are noted in a
//! ledger under the state folder. A later run asks the store which segments it holds; those with
//! the noted ETag are kept. A changed source has another identity, and its old upload is aborted.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::StreamExt;

use super::{
    client::S3Client,
    headers::{checksum_in, crc32c_in},
    multipart::{Multipart, Stored},
    object,
    sums::Sum,
};
use crate::{
    Checksum, Error, ErrorKind, Locus, Result, Summer,
    checksum::Crc32c,
    cut::{Cut, Limits},
    endpoint::{Boxed, ByteStream, FileSpec, Writer},
    ledger::{Head, Kept, Ledger},
    objects::{Length, Record},
    outgoing::Outgoing,
    web::text_of,
};

/// Segments S3 takes for one object; those of unknown length reach 406 GiB.
pub(super) static LIMITS: Limits = Limits {
    segments_max: 10_000,
    growth: &[(1_000, 16), (2_000, 32), (7_000, 48)],
};

/// An object on its way.
pub(super) struct Upload {
    upload: Multipart,
    cut: Cut,
    stored: Mutex<BTreeMap<u64, Stored>>,
    kept: Vec<(u64, Checksum)>,
    ledger: Ledger,
}

fn stored_of(kept: &Kept) -> (u64, Stored) {
    let (etag, crc32c) = etag_of(&kept.receipt);
    let stored = Stored {
        checksum: Some(kept.checksum),
        crc32c,
        etag: etag.to_owned(),
    };
    (kept.index, stored)
}

/// A segment as ledgers note it: its ETag, and its CRC-32C where the store keeps that.
fn receipt_of(stored: &Stored) -> String {
    match stored.crc32c {
        Some(crc32c) => format!("{}/{crc32c}", stored.etag),
        None => stored.etag.clone(),
    }
}

/// Reads what [`receipt_of`] wrote.
fn etag_of(receipt: &str) -> (&str, Option<Crc32c>) {
    let noted = receipt.rsplit_once('/');
    match noted.and_then(|(etag, sum)| Some((etag, Crc32c::from_hex(sum)?))) {
        Some((etag, sum)) => (etag, Some(sum)),
        None => (receipt, None),
    }
}

impl Upload {
    /// Continues the unfinished upload of the same source, or starts one.
    pub(super) async fn start(
        client: Arc<S3Client>,
        key: String,
        spec: &FileSpec,
        length: Length,
    ) -> Result<Self> {
        let (cut, spec) = length.cut(spec, &LIMITS);
        let record = Record::of(&*client, &key, &spec);
        let segment_size = cut.segment();
        let mut continued = None;
        if let Some((head, kept)) = record.load() {
            let upload = Multipart::noted(Arc::clone(&client), key.clone(), &head.token);
            if head.identity == spec.identity() && head.segment_size == segment_size {
                let kept = held(&upload, cut, kept).await?;
                continued = kept.map(|kept| (upload, kept));
            } else {
                upload.abort().await;
            }
        }
        let (upload, kept) = match continued {
            Some(continued) => continued,
            None => {
                let upload =
                    Multipart::initiate(Arc::clone(&client), key.clone(), &spec, true).await?;
                (upload, Vec::new())
            }
        };
        let head = Head {
            identity: spec.identity(),
            segment_size,
            token: upload.token(),
        };
        let ledger = record.start(&head, &kept)?;
        let uploading = Self {
            cut,
            stored: Mutex::new(kept.iter().map(stored_of).collect()),
            kept: kept
                .iter()
                .map(|kept| (kept.index, kept.checksum))
                .collect(),
            upload,
            ledger,
        };
        uploading.try_streams().await;
        Ok(uploading)
    }

    /// Finds out, once for each endpoint, whether segments can be sent while they are read.
    async fn try_streams(&self) {
        let (client, sum) = (&self.upload.client, self.upload.sum());
        if client.trailing(sum).is_some() {
            return;
        }
        if sum == Sum::Md5 {
            return client.found_trailing(sum);
        }
        let last = LIMITS.segments_max - 1;
        if let Some(takes) = self.upload.takes_streams(last, sum).await {
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
            data.push(bytes);
        }
        drop(holding);
        if held != len {
            return Err(Error::new(ErrorKind::Unreachable, "read", self.shown())
                .cause("the source ended early")
                .at(Locus::Source));
        }
        let sum = summer.sum();
        Ok((sum, self.upload.send(index, &data, sum).await?))
    }

    fn note_stored(&self, index: u64, sum: Checksum, stored: Stored) -> Result<()> {
        self.ledger
            .add(index, sum, &receipt_of(&stored))
            .map_err(|cause| Error::io("note an unfinished upload of", self.shown(), cause))?;
        let mut segments = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        segments.insert(index, stored);
        Ok(())
    }

    fn shown(&self) -> String {
        self.upload.client.show(&self.upload.key)
    }

    async fn complete(&self, size: u64, whole: Checksum) -> Result<()> {
        let segments = {
            let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
            stored.clone()
        };
        let segments = segments.iter().map(|(index, stored)| (*index, stored));
        let segments = segments.filter(|(index, _)| self.cut.start(*index) < size);
        let crc32c = segments.clone().try_fold(Crc32c::EMPTY, |sum, segment| {
            let (index, stored) = segment;
            let end = self.cut.start(index + 1).min(size);
            Some(sum.then(stored.crc32c?, end - self.cut.start(index)))
        });
        let completed = self.upload.complete(segments, Some(whole), crc32c).await;
        let is_right = match completed {
            Ok(is_right) => is_right,
            // An earlier attempt may have succeeded without our hearing of it.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if !self.is_published(size, whole, crc32c).await {
                    self.ledger.remove();
                    return Err(error.hint("run the same command again"));
                }
                true
            }
            Err(error) => return Err(error),
        };
        if !is_right {
            return Err(Error::new(ErrorKind::Corrupt, "finish", self.shown())
                .cause("the store's checksum differs from what was sent")
                .at(Locus::Destination));
        }
        self.ledger.remove();
        Ok(())
    }

    /// Whether the object under the final name is the one that was sent, as its checksum says.
    async fn is_published(&self, size: u64, whole: Checksum, crc32c: Option<Crc32c>) -> bool {
        let Multipart { client, key, .. } = &self.upload;
        let Ok(Some(headers)) = object::head(client, key, "look at").await else {
            return false;
        };
        let found = text_of(&headers, "content-length").and_then(|text| text.parse().ok());
        let is_same = || match checksum_in(&headers) {
            Some(found) => found == whole,
            None => crc32c.is_some() && crc32c_in(&headers) == crc32c,
        };
        found == Some(size) && is_same()
    }
}

/// Which noted segments the store still holds; `None` when it does not know the upload.
async fn held(upload: &Multipart, cut: Cut, noted: Vec<Kept>) -> Result<Option<Vec<Kept>>> {
    let Some(listed) = upload.list().await? else {
        return Ok(None);
    };
    let mut kept: BTreeMap<u64, Kept> = BTreeMap::new();
    for noted in noted {
        let bare = |etag: &str| etag.trim_matches('"').to_owned();
        let is_held = listed.get(&noted.index).is_some_and(|(etag, size)| {
            bare(etag) == bare(etag_of(&noted.receipt).0) && cut.allows(noted.index, *size)
        });
        if is_held {
            kept.insert(noted.index, noted);
        }
    }
    Ok(Some(kept.into_values().collect()))
}

impl Writer for Upload {
    fn segment_size(&self) -> u64 {
        self.cut.segment()
    }

    fn segment_start(&self, index: u64) -> u64 {
        self.cut.start(index)
    }

    fn kept(&self) -> Vec<(u64, Checksum)> {
        self.kept.clone()
    }

    fn write(
        &self,
        index: u64,
        range: Range<u64>,
        body: ByteStream,
    ) -> Boxed<'_, Result<Checksum>> {
        Box::pin(async move {
            if index >= LIMITS.segments_max {
                return Err(Error::new(ErrorKind::Unsupported, "write", self.shown())
                    .cause(format!(
                        "S3 takes no more than {} segments",
                        LIMITS.segments_max
                    ))
                    .hint("say how long it is with --size")
                    .at(Locus::Destination));
            }
            let len = range.end - range.start;
            let trailing = self.upload.client.trailing(self.upload.sum());
            let (sum, stored) = match trailing.filter(|&sum| sum != Sum::Md5) {
                Some(trailing) => self.upload.send_stream(index, body, len, trailing).await?,
                None => self.hold(index, len, body).await?,
            };
            self.note_stored(index, sum, stored)?;
            Ok(sum)
        })
    }

    fn finish(&self, whole: Checksum) -> Boxed<'_, Result<()>> {
        match self.cut {
            Cut::Even { size, .. } => self.finish_at(size, whole),
            Cut::Growing(_) => Box::pin(async {
                Err(Error::new(ErrorKind::Invalid, "finish", self.shown())
                    .cause("nobody said where it ends"))
            }),
        }
    }

    fn finish_at(&self, size: u64, whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(self.complete(size, whole))
    }

    /// The store only answers for what it keeps.
    fn settle(&self) -> Boxed<'_, Result<bool>> {
        Box::pin(async { Ok(true) })
    }

    fn note(&self) -> Option<String> {
        self.ledger.note()
    }

    fn discard(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            self.upload.abort().await;
            self.ledger.remove();
        })
    }
}
