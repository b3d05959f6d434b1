//! Requests and their bodies: bytes in memory, or a file read while it is sent, complete or still
//! growing.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use http::Method;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use posthaste_types::{Digest, Timestamp};

use super::{DatasetId, Scope, growing::Growing, pulse::Pulse, wire::Target};

/// Most bytes of a file in memory at once.
const PIECE_BYTES: usize = 256 << 10;

/// Body being sent.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Content of a request. It can be sent again, since a kept connection may turn out to be closed.
#[derive(Clone)]
pub(super) enum Cargo {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Bytes in memory, in two pieces.
    Led(Bytes, Bytes),
    /// First bytes of a file, and their number.
    File(Arc<File>, u64),
    /// File that still grows.
    Growing(Growing),
}

impl Cargo {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Led(first, rest) => (first.len() + rest.len()) as u64,
            Self::File(_, length) => *length,
            Self::Growing(growing) => growing.size,
        }
    }

    /// Returns the body, from its beginning; `pulse` belongs to the connection that carries it.
    pub(super) fn body(&self, pulse: Option<&Arc<Pulse>>) -> Body {
        match self {
            Self::Bytes(bytes) => Full::new(bytes.clone())
                .map_err(|never| match never {})
                .boxed_unsync(),
            Self::Led(first, rest) => {
                let pieces = [first.clone(), rest.clone()].map(|piece| Ok(Frame::data(piece)));
                BodyExt::boxed_unsync(StreamBody::new(stream::iter(pieces)))
            }
            Self::File(file, length) => {
                let start = (Arc::clone(file), 0, *length);
                let pieces = stream::try_unfold(start, |(file, at, length)| async move {
                    let left = length - at;
                    if left == 0 {
                        return Ok(None);
                    }
                    let reading = Arc::clone(&file);
                    let read = tokio::task::spawn_blocking(move || read_at(&reading, at, left));
                    let piece = read.await.map_err(io::Error::other)??;
                    let at = at + piece.len() as u64;
                    Ok(Some((Frame::data(piece), (file, at, length))))
                });
                BodyExt::boxed_unsync(StreamBody::new(pieces))
            }
            Self::Growing(growing) => growing.body(pulse.cloned()),
        }
    }
}

pub(super) fn read_at(file: &File, at: u64, left: u64) -> io::Result<Bytes> {
    let wanted = usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
    let mut piece = vec![0; wanted];
    file.read_exact_at(&mut piece, at)?;
    Ok(piece.into())
}

/// Request as the client states it.
pub(super) struct Ask<'a> {
    pub(super) operation: &'static str,
    pub(super) method: Method,
    pub(super) target: Target,
    pub(super) query: &'a str,
    pub(super) scope: Scope,
    pub(super) body: Option<Load>,
}

/// Body of a request, and the headers that describe it if it is an object.
pub(super) struct Load {
    pub(super) cargo: Cargo,
    pub(super) object: Option<(Digest, Timestamp)>,
}

impl Load {
    pub(super) fn object(cargo: Cargo, digest: Digest, expires: Timestamp) -> Self {
        let object = Some((digest, expires));
        Self { cargo, object }
    }

    pub(super) fn plain(bytes: Vec<u8>) -> Self {
        let cargo = Cargo::Bytes(bytes.into());
        let object = None;
        Self { cargo, object }
    }
}

impl Ask<'_> {
    pub(super) fn dataset(&self) -> Option<&DatasetId> {
        match &self.target {
            Target::Status
            | Target::Probe
            | Target::Measure
            | Target::Register
            | Target::Heartbeat
            | Target::Spaces => None,
            Target::Dataset(dataset)
            | Target::Space(dataset)
            | Target::Inventory(dataset)
            | Target::Object(dataset, _)
            | Target::Pass(dataset, _)
            | Target::Forward(dataset, _)
            | Target::Gather(dataset, _)
            | Target::Scatter(dataset, _) => Some(dataset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[tokio::test]
    async fn a_file_is_sent_whole_and_again() {
        let bytes: Vec<u8> = (0..251).cycle().take(PIECE_BYTES * 2 + 7).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let cargo = Cargo::File(Arc::new(file), bytes.len() as u64);
        for _ in 0..2 {
            let sent = cargo.body(None).collect().await.unwrap().to_bytes();
            assert_eq!(sent, bytes);
        }
        assert_eq!(cargo.len(), bytes.len() as u64);
    }

    #[tokio::test]
    async fn a_file_that_is_shorter_than_it_should_be_breaks_the_request() {
        let cargo = Cargo::File(Arc::new(tempfile::tempfile().unwrap()), 5);
        assert!(cargo.body(None).collect().await.is_err());
    }
}
