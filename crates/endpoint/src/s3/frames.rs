//! Content coding `aws-chunked` with a trailing checksum: a body need not be in memory to be hashed
//! first ("Transferring payload with trailing headers").

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures_util::StreamExt;

use super::sums::Sum;
use crate::{
    Checksum, Error, ErrorKind, Locus, Result, Summer,
    checksum::{Crc32c, Crc32cSummer},
    endpoint::ByteStream,
};

/// Bytes of each chunk but the last. Amazon requires at least 8 KiB; some stores accept at most 16
/// MiB.
const CHUNK_BYTES: u64 = 1 << 20;

/// Checksums of the bytes framed so far: ours, and the store's if it is a different one.
#[derive(Debug, Clone)]
pub(super) struct Framed(Arc<Mutex<(Summer, Option<Crc32cSummer>)>>);

impl Framed {
    fn new(trailing: Sum) -> Self {
        let other = (trailing == Sum::Crc32c).then(Crc32cSummer::default);
        Self(Arc::new(Mutex::new((Summer::default(), other))))
    }

    fn add(&self, bytes: &[u8]) {
        let mut summers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        summers.0.add(bytes);
        if let Some(other) = &mut summers.1 {
            other.add(bytes);
        }
    }

    pub(super) fn sums(&self) -> (Checksum, Option<Crc32c>) {
        let summers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let other = summers.1.as_ref();
        (summers.0.sum(), other.map(Crc32cSummer::sum))
    }

    /// Returns the line after the last byte.
    fn trailer(&self) -> String {
        let (ours, other) = self.sums();
        let (sum, text) = match other {
            Some(other) => (Sum::Crc32c, other.to_base64()),
            None => (Sum::Crc64, ours.to_base64()),
        };
        format!("{}:{text}", sum.name().unwrap_or_default())
    }
}

/// Returns the framed length of `len` bytes.
pub(super) fn framed_len(len: u64, trailing: Sum) -> u64 {
    let framed = |chunk: u64| format!("{chunk:x}\r\n\r\n").len() as u64 + chunk;
    let rest = len % CHUNK_BYTES;
    let rest = if rest == 0 { 0 } else { framed(rest) };
    let trailer = Framed::new(trailing).trailer();
    let trailer = format!("0\r\n{trailer}\r\n\r\n").len() as u64;
    len / CHUNK_BYTES * framed(CHUNK_BYTES) + rest + trailer
}

/// Frames `len` bytes. A body with fewer or more ends in an error about `subject`.
pub(super) fn framed(
    body: ByteStream,
    len: u64,
    trailing: Sum,
    subject: &str,
) -> (ByteStream, Framed) {
    let summer = Framed::new(trailing);
    let frames = Frames {
        body,
        summer: summer.clone(),
        left: len,
        in_chunk: 0,
        ready: VecDeque::new(),
        has_ended: false,
        subject: subject.to_owned(),
    };
    let stream = futures_util::stream::try_unfold(frames, |mut frames| async move {
        Ok(frames.next().await?.map(|bytes| (bytes, frames)))
    });
    (Box::pin(stream), summer)
}

/// Returns a body with a wrong checksum in its trailer, and its length before framing.
pub(super) fn wrong(trailing: Sum) -> (ByteStream, u64) {
    let (told, sent) = ("posthaste", "postwaste");
    let summer = Framed::new(trailing);
    summer.add(told.as_bytes());
    let (len, trailer) = (sent.len(), summer.trailer());
    let text = format!("{len:x}\r\n{sent}\r\n0\r\n{trailer}\r\n\r\n");
    let stream = futures_util::stream::iter([Ok(Bytes::from(text))]);
    (Box::pin(stream), sent.len() as u64)
}

struct Frames {
    body: ByteStream,
    summer: Framed,
    /// Bytes still to come.
    left: u64,
    /// Bytes of this chunk still to come.
    in_chunk: u64,
    /// Output to send before more is read.
    ready: VecDeque<Bytes>,
    has_ended: bool,
    subject: String,
}

impl Frames {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Ok(Some(bytes));
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.body.next().await.transpose()? {
                Some(bytes) => self.add(bytes)?,
                None => self.end()?,
            }
        }
    }

    fn add(&mut self, mut bytes: Bytes) -> Result<()> {
        if bytes.len() as u64 > self.left {
            return Err(self.fail("the source has more bytes than it said"));
        }
        self.summer.add(&bytes);
        while !bytes.is_empty() {
            if self.in_chunk == 0 {
                self.in_chunk = self.left.min(CHUNK_BYTES);
                self.ready
                    .push_back(format!("{:x}\r\n", self.in_chunk).into());
            }
            let most = usize::try_from(self.in_chunk).unwrap_or(usize::MAX);
            let piece = bytes.split_to(most.min(bytes.len()));
            self.in_chunk -= piece.len() as u64;
            self.left -= piece.len() as u64;
            self.ready.push_back(piece);
            if self.in_chunk == 0 {
                self.ready.push_back(Bytes::from_static(b"\r\n"));
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        if self.left > 0 {
            return Err(self.fail("the source ended early"));
        }
        let trailer = self.summer.trailer();
        self.ready
            .push_back(format!("0\r\n{trailer}\r\n\r\n").into());
        self.has_ended = true;
        Ok(())
    }

    fn fail(&self, cause: &'static str) -> Error {
        Error::new(ErrorKind::Unreachable, "read", &*self.subject)
            .cause(cause)
            .at(Locus::Source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn frame(bytes: &[u8], step: usize, len: u64, trailing: Sum) -> Result<Vec<u8>> {
        let pieces: Vec<_> = bytes
            .chunks(step)
            .map(|piece| Ok(Bytes::copy_from_slice(piece)))
            .collect();
        let body: ByteStream = Box::pin(futures_util::stream::iter(pieces));
        let (mut stream, summer) = framed(body, len, trailing, "x");
        let mut whole = Vec::new();
        while let Some(bytes) = stream.next().await {
            whole.extend_from_slice(&bytes?);
        }
        assert_eq!(summer.sums().0, Checksum::of(bytes));
        Ok(whole)
    }

    #[tokio::test]
    async fn a_body_is_cut_into_chunks_with_its_sum_at_the_end() {
        let sum = Checksum::of(b"posthaste").to_base64();
        let wanted = format!("9\r\nposthaste\r\n0\r\nx-amz-checksum-crc64nvme:{sum}\r\n\r\n");
        let found = frame(b"posthaste", 4, 9, Sum::Crc64).await.unwrap();
        assert_eq!(found, wanted.as_bytes());
        // Check value of the catalogue, e3069283.
        let wanted = "9\r\n123456789\r\n0\r\nx-amz-checksum-crc32c:4waSgw==\r\n\r\n";
        let found = frame(b"123456789", 4, 9, Sum::Crc32c).await.unwrap();
        assert_eq!(found, wanted.as_bytes());
        let chunk = usize::try_from(CHUNK_BYTES).unwrap();
        for len in [0, 1, chunk - 1, chunk, chunk + 1, 3 * chunk] {
            for sum in [Sum::Crc64, Sum::Crc32c] {
                let framed = frame(&vec![7; len], 700_001, len as u64, sum).await;
                let framed = framed.unwrap().len() as u64;
                assert_eq!(framed, framed_len(len as u64, sum), "{len}");
            }
        }
    }

    #[tokio::test]
    async fn a_body_of_another_length_never_gets_its_sum() {
        for (len, told) in [(8, 9), (10, 9), (0, 1)] {
            let error = frame(&vec![7; len], 3, told, Sum::Crc64).await.unwrap_err();
            assert_eq!(error.locus(), Locus::Source, "{error}");
        }
    }
}
