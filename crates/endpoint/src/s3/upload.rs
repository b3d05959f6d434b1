//! A multipart upload that a later run can continue.
//!
//! The upload's id, each segment's checksum and the ETag the store gave for it are noted in a
//! ledger under the state folder. A later run asks the store which segments it holds; those with
//! the noted ETag are kept. A changed source has another identity, and its old upload is aborted.

use std::{
    collections::BTreeMap,
    ops::Range,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::StreamExt;

use super::{
    client::S3Client,
    headers::checksum_in,
    multipart::{Multipart, Stored},
    object,
    sums::Sum,
};
use crate::{
    Checksum, Error, ErrorKind, Locus, Result, Summer,
    config::state_folder,
    cut::{Cut, Limits},
    endpoint::{Boxed, ByteStream, FileSpec, Writer},
    ledger::{Head, Kept, Ledger},
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
    let stored = Stored {
        checksum: Some(kept.checksum),
        etag: kept.receipt.clone(),
    };
    (kept.index, stored)
}

/// Takes over what another machine noted.
pub(super) fn adopt(client: &S3Client, key: &str, spec: &FileSpec, note: &str) -> Result<()> {
    let path = ledger_path(client, key, spec);
    Ledger::adopt(&path, &spec.identity(), note).map_err(|cause| {
        Error::io(
            "note an unfinished upload in",
            path.to_string_lossy(),
            cause,
        )
    })
}

fn ledger_path(client: &S3Client, key: &str, spec: &FileSpec) -> PathBuf {
    let name = format!("{}\n{key}\n{}", client.base(), spec.origin);
    let hash = blake3::hash(name.as_bytes()).to_hex();
    state_folder().join(format!("s3-{}", &hash[..32]))
}

impl Upload {
    /// Continues the unfinished upload of the same source, or starts one.
    pub(super) async fn start(client: Arc<S3Client>, key: String, spec: &FileSpec) -> Result<Self> {
        let cut = Cut::even(spec.size, &LIMITS);
        Self::start_cut(client, key, spec, cut).await
    }

    /// The same for an object of unknown length.
    pub(super) async fn start_open_ended(
        client: Arc<S3Client>,
        key: String,
        spec: &FileSpec,
    ) -> Result<Self> {
        Self::start_cut(client, key, &spec.open_ended(), Cut::Growing(&LIMITS)).await
    }

    async fn start_cut(
        client: Arc<S3Client>,
        key: String,
        spec: &FileSpec,
        cut: Cut,
    ) -> Result<Self> {
        let path = ledger_path(&client, &key, spec);
        let segment_size = cut.segment();
        let known = |id: &str| Multipart {
            client: Arc::clone(&client),
            key: key.clone(),
            id: id.to_owned(),
        };
        let mut continued = None;
        if let Some((head, kept)) = Ledger::load(&path) {
            let upload = known(&head.token);
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
                    Multipart::initiate(Arc::clone(&client), key.clone(), spec, true).await?;
                (upload, Vec::new())
            }
        };
        let head = Head {
            identity: spec.identity(),
            segment_size,
            token: upload.id.clone(),
        };
        let ledger = Ledger::start(path.clone(), &head, &kept).map_err(|cause| {
            let shown = path.to_string_lossy();
            Error::io("note an unfinished upload in", shown, cause)
        })?;
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
        let client = &self.upload.client;
        if client.takes_streams().is_some() {
            return;
        }
        if client.sums.preferred() == Sum::Md5 {
            return client.found_streams(false);
        }
        if let Some(takes) = self.upload.takes_streams(LIMITS.segments_max - 1).await {
            client.found_streams(takes);
        }
    }

    /// Reads a segment into memory, then sends it.
    async fn hold(&self, index: u64, len: u64, mut body: ByteStream) -> Result<(Checksum, Stored)> {
        let mut data = Vec::new();
        let mut summer = Summer::default();
        let mut held = 0;
        while let Some(bytes) = body.next().await {
            let bytes = bytes?;
            summer.add(&bytes);
            held += bytes.len() as u64;
            data.push(bytes);
        }
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
            .add(index, sum, &stored.etag)
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
        let found = match self.upload.complete(segments, Some(whole)).await {
            Ok(found) => found,
            // An earlier attempt may have succeeded without our hearing of it.
            Err(error) if error.kind() == ErrorKind::NotFound => match self.published(size).await {
                Some(found) if found == whole => Some(found),
                Some(_) | None => {
                    self.ledger.remove();
                    return Err(error.hint("run the same command again"));
                }
            },
            Err(error) => return Err(error),
        };
        if found.is_some_and(|found| found != whole) {
            return Err(Error::new(ErrorKind::Corrupt, "finish", self.shown())
                .cause("the store's checksum differs from what was sent")
                .at(Locus::Destination));
        }
        self.ledger.remove();
        Ok(())
    }

    /// The checksum of the object under the final name, if it has this size.
    async fn published(&self, wanted: u64) -> Option<Checksum> {
        let Multipart { client, key, .. } = &self.upload;
        let headers = object::head(client, key, "look at").await.ok()??;
        let size: u64 = text_of(&headers, "content-length")?.parse().ok()?;
        (size == wanted).then(|| checksum_in(&headers))?
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
            bare(etag) == bare(&noted.receipt) && cut.allows(noted.index, *size)
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
            let (sum, stored) = if self.upload.client.takes_streams() == Some(true) {
                self.upload.send_stream(index, body, len).await?
            } else {
                self.hold(index, len, body).await?
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
