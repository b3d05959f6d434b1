//! The requests a multipart upload is made of.

use std::{collections::HashMap, fmt::Write, ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method};

use super::{
    client::{Call, S3Client},
    frames,
    headers::{checksum_in, matches_store, metadata_of},
    sums::Sum,
    wire::{
        CHECKSUM, CHECKSUM_TYPE, CompleteMultipartUploadResult, CopyResult,
        InitiateMultipartUploadResult, ListPartsResult, escape,
    },
};
use crate::{
    Checksum, Error, ErrorKind, Kind, Locus, Result, Status,
    endpoint::{ByteStream, FileSpec},
    web::{Sent, text_of},
};

/// Pages of a listing of segments: 10,000 by the smallest page stores use, and room.
const PAGES_MAX: usize = 200;

/// How long a store may work to copy a segment or to put an object together.
const STORE_WORKS_FOR: Duration = Duration::from_secs(600);

/// A segment the store holds.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    /// Not every store tells that of what it copied itself.
    pub checksum: Option<Checksum>,
    pub etag: String,
}

/// An upload the store knows. Segments are numbered from 0.
pub(super) struct Multipart {
    pub client: Arc<S3Client>,
    pub key: String,
    pub id: String,
}

impl Multipart {
    /// Starts one, of which the store keeps a checksum if it is `summed`.
    pub(super) async fn initiate(
        client: Arc<S3Client>,
        key: String,
        spec: &FileSpec,
        summed: bool,
    ) -> Result<Self> {
        let started: InitiateMultipartUploadResult = client
            .sums
            .write(|sum| {
                let mut call = Call::new(Method::POST, &key, "write")
                    .query(&[("uploads", "")])
                    .at(Locus::Destination);
                call.headers.extend(metadata_of(spec, Kind::File));
                if summed && sum == Sum::Crc64 {
                    call = call
                        .header("x-amz-checksum-algorithm", "CRC64NVME")
                        .header(CHECKSUM_TYPE, "FULL_OBJECT");
                }
                client.ask_xml(call)
            })
            .await?;
        Ok(Self {
            id: started.upload_id,
            client,
            key,
        })
    }

    fn fail(&self, kind: ErrorKind) -> Error {
        Error::new(kind, "write", self.client.show(&self.key)).at(Locus::Destination)
    }

    /// Sends a segment that is in memory.
    pub(super) async fn send(
        &self,
        index: u64,
        data: &[Bytes],
        checksum: Checksum,
    ) -> Result<Stored> {
        let number = (index + 1).to_string();
        let query = [("partNumber", &*number), ("uploadId", &*self.id)];
        let sums = &self.client.sums;
        let headers = sums
            .write(|sum| {
                let (name, value) = sum.header(checksum, data);
                let call = Call::new(Method::PUT, &self.key, "write")
                    .query(&query)
                    .header(name, value)
                    .body(data.to_vec())
                    .at(Locus::Destination);
                async move {
                    let (headers, _) = self.client.ask(call).await?;
                    if sum == Sum::Crc64 {
                        sums.learn(&headers);
                    }
                    Ok(headers)
                }
            })
            .await?;
        if !matches_store(&headers, checksum, data) {
            return Err(self.differs());
        }
        self.stored(&headers, checksum)
    }

    /// Sends a segment while it is read; its checksum follows the last byte.
    pub(super) async fn send_stream(
        &self,
        index: u64,
        body: ByteStream,
        len: u64,
    ) -> Result<(Checksum, Stored)> {
        let (body, summer) = frames::framed(body, len, &self.client.show(&self.key));
        let headers = self.send_framed(index, body, len).await?;
        self.client.sums.learn(&headers);
        let checksum = summer.sum();
        if checksum_in(&headers).is_some_and(|found| found != checksum) {
            return Err(self.differs());
        }
        Ok((checksum, self.stored(&headers, checksum)?))
    }

    async fn send_framed(&self, index: u64, body: ByteStream, len: u64) -> Result<HeaderMap> {
        let number = (index + 1).to_string();
        let query = [("partNumber", &*number), ("uploadId", &*self.id)];
        let mut call = Call::new(Method::PUT, &self.key, "write")
            .query(&query)
            .header("content-encoding", "aws-chunked")
            .header("x-amz-decoded-content-length", len.to_string())
            .header("x-amz-trailer", CHECKSUM)
            .at(Locus::Destination);
        call.body = Sent::stream(body, frames::framed_len(len));
        call.signed_as = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
        Ok(self.client.ask(call).await?.0)
    }

    /// Whether the store takes segments while they are read, and checks them: it has to refuse one
    /// with a wrong checksum. `None` where it could not be asked.
    pub(super) async fn takes_streams(&self, index: u64) -> Option<bool> {
        let (body, len) = frames::wrong();
        match self.send_framed(index, body, len).await {
            Err(error) if error.kind() == ErrorKind::Corrupt => Some(true),
            Err(error) if error.is_temporary() => None,
            Ok(_) | Err(_) => Some(false),
        }
    }

    /// Lets the store copy a segment out of its object `from`, which has to be `version` still.
    pub(super) async fn copy(
        &self,
        index: u64,
        from: &str,
        version: Option<&str>,
        range: Range<u64>,
    ) -> Result<Stored> {
        let number = (index + 1).to_string();
        let query = [("partNumber", &*number), ("uploadId", &*self.id)];
        let span = format!("bytes={}-{}", range.start, range.end - 1);
        let mut call = Call::new(Method::PUT, &self.key, "copy on the server to")
            .query(&query)
            .header("x-amz-copy-source", from)
            .header("x-amz-copy-source-range", span)
            .patience(STORE_WORKS_FOR)
            .at(Locus::Destination);
        if let Some(version) = version {
            call = call.header("x-amz-copy-source-if-match", version);
        }
        let copied: CopyResult = self.client.ask_xml(call).await?;
        Ok(Stored {
            checksum: copied.checksum(),
            etag: copied.etag,
        })
    }

    fn differs(&self) -> Error {
        self.fail(ErrorKind::Corrupt)
            .cause("the store holds other bytes than were sent")
            .status_is(Status::Temporary)
    }

    fn stored(&self, headers: &HeaderMap, checksum: Checksum) -> Result<Stored> {
        let etag = text_of(headers, "etag").ok_or_else(|| {
            self.fail(ErrorKind::Corrupt)
                .cause("the store gave no receipt for a segment")
        })?;
        Ok(Stored {
            checksum: Some(checksum),
            etag: etag.to_owned(),
        })
    }

    /// Puts the object together; returns its checksum where the store tells it.
    pub(super) async fn complete<'a>(
        &self,
        segments: impl Iterator<Item = (u64, &'a Stored)> + Clone,
        whole: Option<Checksum>,
    ) -> Result<Option<Checksum>> {
        let query = [("uploadId", &*self.id)];
        let completed = self.client.sums.write(|sum| {
            let mut call = Call::new(Method::POST, &self.key, "finish")
                .query(&query)
                .header("content-type", "application/xml")
                .body(vec![order(segments.clone(), sum).into()])
                .patience(STORE_WORKS_FOR)
                .at(Locus::Destination);
            if let Some(whole) = whole.filter(|_| sum == Sum::Crc64) {
                call = call
                    .header(CHECKSUM, whole.to_base64())
                    .header(CHECKSUM_TYPE, "FULL_OBJECT");
            }
            self.client.ask_xml(call)
        });
        let completed: CompleteMultipartUploadResult = completed.await?;
        Ok(completed.checksum())
    }

    pub(super) async fn abort(&self) {
        let query = [("uploadId", &*self.id)];
        let call = Call::new(Method::DELETE, &self.key, "abort").query(&query);
        // What can't be aborted the bucket's own rules remove.
        let _ = self.client.ask(call).await;
    }

    /// The ETag and size of each segment the store holds; `None` when it does not know the upload.
    pub(super) async fn list(&self) -> Result<Option<HashMap<u64, (String, u64)>>> {
        let mut listed = HashMap::new();
        let mut marker = "0".to_owned();
        for _ in 0..PAGES_MAX {
            let query = [("part-number-marker", &*marker), ("uploadId", &*self.id)];
            let call = Call::new(Method::GET, &self.key, "continue")
                .query(&query)
                .at(Locus::Destination);
            let page: ListPartsResult = match self.client.ask_xml(call).await {
                Ok(page) => page,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            for segment in page.segments {
                let index = segment.number.saturating_sub(1);
                listed.insert(index, (segment.etag, segment.size));
            }
            match page.next_marker {
                Some(next) if page.is_truncated && next != marker => marker = next,
                Some(_) | None => break,
            }
        }
        Ok(Some(listed))
    }
}

/// The list of segments an object is made of.
fn order<'a>(segments: impl Iterator<Item = (u64, &'a Stored)>, sum: Sum) -> String {
    let mut text = String::from("<CompleteMultipartUpload>");
    for (index, stored) in segments {
        let _ = write!(text, "<Part><ETag>{}</ETag>", escape(&stored.etag));
        if let Some(checksum) = stored.checksum.filter(|_| sum == Sum::Crc64) {
            let checksum = checksum.to_base64();
            let _ = write!(text, "<ChecksumCRC64NVME>{checksum}</ChecksumCRC64NVME>");
        }
        let _ = write!(text, "<PartNumber>{}</PartNumber></Part>", index + 1);
    }
    text.push_str("</CompleteMultipartUpload>");
    text
}
