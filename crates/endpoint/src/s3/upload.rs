//! A multipart upload that a later run can continue.
//!
//! The upload's id, each segment's checksum and the ETag the store gave for it are noted in a
//! ledger under the state folder. A later run asks the store which segments it holds; those with
//! the noted ETag are kept. A changed source has another identity, and its old upload is aborted.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write,
    ops::Range,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures_util::StreamExt;
use http::Method;

use super::{
    client::{Call, S3Client},
    headers::{checksum_in, metadata_of, text_of},
    wire::{
        CHECKSUM, CHECKSUM_TYPE, CompleteMultipartUploadResult, InitiateMultipartUploadResult,
        ListPartsResult, escape,
    },
};
use crate::{
    Checksum, Error, ErrorKind, Kind, Locus, Result, Summer,
    config::state_folder,
    cut::{Cut, Limits},
    endpoint::{Boxed, ByteStream, FileSpec, Writer},
    ledger::{Head, Kept, Ledger},
};

/// Segments S3 takes for one object; those of unknown length reach 406 GiB.
static LIMITS: Limits = Limits {
    segments_max: 10_000,
    growth: &[(1_000, 16), (2_000, 32), (7_000, 48)],
};

/// Pages of a listing of segments: `segments_max` by the smallest page stores use, and room.
const PAGES_MAX: usize = 200;

#[derive(Debug, Clone)]
struct Stored {
    checksum: Checksum,
    etag: String,
}

pub(super) struct Upload {
    client: Arc<S3Client>,
    key: String,
    id: String,
    cut: Cut,
    stored: Mutex<BTreeMap<u64, Stored>>,
    kept: Vec<(u64, Checksum)>,
    ledger: Ledger,
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
        let mut continued = None;
        if let Some((head, kept)) = Ledger::load(&path) {
            if head.identity == spec.identity() && head.segment_size == segment_size {
                continued = held(&client, &key, cut, &head, kept)
                    .await?
                    .map(|kept| (head, kept));
            } else {
                abort(&client, &key, &head.token).await;
            }
        }
        let (head, kept) = match continued {
            Some(continued) => continued,
            None => {
                let token = initiate(&client, &key, spec).await?;
                (
                    Head {
                        identity: spec.identity(),
                        segment_size,
                        token,
                    },
                    Vec::new(),
                )
            }
        };
        let ledger = Ledger::start(path.clone(), &head, &kept).map_err(|cause| {
            Error::io(
                "note an unfinished upload in",
                path.to_string_lossy(),
                cause,
            )
        })?;
        let stored = kept.iter().map(|kept| {
            let stored = Stored {
                checksum: kept.checksum,
                etag: kept.receipt.clone(),
            };
            (kept.index, stored)
        });
        Ok(Self {
            id: head.token,
            cut,
            stored: Mutex::new(stored.collect()),
            kept: kept
                .iter()
                .map(|kept| (kept.index, kept.checksum))
                .collect(),
            client,
            key,
            ledger,
        })
    }

    async fn send_segment(&self, index: u64, data: Vec<Bytes>, sum: Checksum) -> Result<()> {
        let number = (index + 1).to_string();
        let query = [("partNumber", &*number), ("uploadId", &*self.id)];
        let call = Call::new(Method::PUT, &self.key, "write")
            .query(&query)
            .header(CHECKSUM, sum.to_base64())
            .body(data)
            .at(Locus::Destination);
        let (headers, _) = self.client.ask(call).await?;
        let fail = |cause: &'static str| {
            Error::new(ErrorKind::Corrupt, "write", self.client.show(&self.key))
                .cause(cause)
                .at(Locus::Destination)
        };
        if checksum_in(&headers).is_some_and(|found| found != sum) {
            return Err(fail("the store holds other bytes than were sent"));
        }
        let etag = text_of(&headers, "etag")
            .ok_or_else(|| fail("the store gave no receipt for a segment"))?
            .to_owned();
        self.ledger.add(index, sum, &etag).map_err(|cause| {
            Error::io(
                "note an unfinished upload of",
                self.client.show(&self.key),
                cause,
            )
        })?;
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        stored.insert(
            index,
            Stored {
                checksum: sum,
                etag,
            },
        );
        Ok(())
    }

    async fn complete(&self, size: u64, whole: Checksum) -> Result<()> {
        let query = [("uploadId", &*self.id)];
        let call = Call::new(Method::POST, &self.key, "finish")
            .query(&query)
            .header(CHECKSUM, whole.to_base64())
            .header(CHECKSUM_TYPE, "FULL_OBJECT")
            .header("content-type", "application/xml")
            .body(vec![self.order(size).into()])
            .at(Locus::Destination);
        let completed: Result<CompleteMultipartUploadResult> = self.client.ask_xml(call).await;
        let found = match completed {
            Ok(result) => result.checksum.as_deref().and_then(Checksum::from_base64),
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
            return Err(
                Error::new(ErrorKind::Corrupt, "finish", self.client.show(&self.key))
                    .cause("the store's checksum differs from what was sent")
                    .at(Locus::Destination),
            );
        }
        self.ledger.remove();
        Ok(())
    }

    /// The list of segments the object of `size` bytes is made of.
    fn order(&self, size: u64) -> String {
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::from("<CompleteMultipartUpload>");
        let within = stored.iter();
        let within = within.filter(|&(&index, _)| self.cut.start(index) < size);
        for (index, stored) in within {
            let _ = write!(
                text,
                "<Part><ETag>{}</ETag><ChecksumCRC64NVME>{}</ChecksumCRC64NVME>\
                 <PartNumber>{}</PartNumber></Part>",
                escape(&stored.etag),
                stored.checksum.to_base64(),
                index + 1
            );
        }
        text.push_str("</CompleteMultipartUpload>");
        text
    }

    /// The checksum of the object under the final name, if it has this size.
    async fn published(&self, wanted: u64) -> Option<Checksum> {
        let call =
            Call::new(Method::HEAD, &self.key, "look at").header("x-amz-checksum-mode", "ENABLED");
        let (headers, _) = self.client.ask(call).await.ok()?;
        let size: u64 = text_of(&headers, "content-length")?.parse().ok()?;
        (size == wanted).then(|| checksum_in(&headers))?
    }
}

async fn initiate(client: &S3Client, key: &str, spec: &FileSpec) -> Result<String> {
    let mut call = Call::new(Method::POST, key, "write")
        .query(&[("uploads", "")])
        .header("x-amz-checksum-algorithm", "CRC64NVME")
        .header(CHECKSUM_TYPE, "FULL_OBJECT")
        .at(Locus::Destination);
    call.headers.extend(metadata_of(spec, Kind::File));
    let started: InitiateMultipartUploadResult = client.ask_xml(call).await?;
    Ok(started.upload_id)
}

async fn abort(client: &S3Client, key: &str, id: &str) {
    let query = [("uploadId", id)];
    let call = Call::new(Method::DELETE, key, "abort").query(&query);
    // What can't be aborted the bucket's own rules remove.
    let _ = client.ask(call).await;
}

/// Which noted segments the store still holds; `None` when it does not know the upload.
async fn held(
    client: &S3Client,
    key: &str,
    cut: Cut,
    head: &Head,
    noted: Vec<Kept>,
) -> Result<Option<Vec<Kept>>> {
    let mut listed = HashMap::new();
    let mut marker = "0".to_owned();
    for _ in 0..PAGES_MAX {
        let query = [("part-number-marker", &*marker), ("uploadId", &*head.token)];
        let call = Call::new(Method::GET, key, "continue")
            .query(&query)
            .at(Locus::Destination);
        let page: ListPartsResult = match client.ask_xml(call).await {
            Ok(page) => page,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        for segment in page.segments {
            listed.insert(segment.number, (segment.etag, segment.size));
        }
        match page.next_marker {
            Some(next) if page.is_truncated && next != marker => marker = next,
            Some(_) | None => break,
        }
    }
    let mut kept: BTreeMap<u64, Kept> = BTreeMap::new();
    for noted in noted {
        let bare = |etag: &str| etag.trim_matches('"').to_owned();
        let is_held = listed.get(&(noted.index + 1)).is_some_and(|(etag, size)| {
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
        mut body: ByteStream,
    ) -> Boxed<'_, Result<Checksum>> {
        Box::pin(async move {
            if index >= LIMITS.segments_max {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "write",
                    self.client.show(&self.key),
                )
                .cause(format!(
                    "S3 takes no more than {} segments",
                    LIMITS.segments_max
                ))
                .hint("say how long it is with --size")
                .at(Locus::Destination));
            }
            let mut data = Vec::new();
            let mut summer = Summer::default();
            let mut len = 0;
            while let Some(bytes) = body.next().await {
                let bytes = bytes?;
                summer.add(&bytes);
                len += bytes.len() as u64;
                data.push(bytes);
            }
            if len != range.end - range.start {
                return Err(Error::new(
                    ErrorKind::Unreachable,
                    "read",
                    self.client.show(&self.key),
                )
                .cause("the source ended early")
                .at(Locus::Source));
            }
            let sum = summer.sum();
            self.send_segment(index, data, sum).await?;
            Ok(sum)
        })
    }

    fn finish(&self, whole: Checksum) -> Boxed<'_, Result<()>> {
        match self.cut {
            Cut::Even { size, .. } => self.finish_at(size, whole),
            Cut::Growing(_) => Box::pin(async {
                Err(
                    Error::new(ErrorKind::Invalid, "finish", self.client.show(&self.key))
                        .cause("nobody said where it ends"),
                )
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
            abort(&self.client, &self.key, &self.id).await;
            self.ledger.remove();
        })
    }
}
