//! Bodies of requests: a message, and bytes that are hashed as they pass.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::Notify;

use super::frame::DIGEST_BYTES;
use crate::{
    Checksum, Error, ErrorKind, checksum::Summer, endpoint::ByteStream, outgoing::Load,
    web::next_step,
};

/// Returns a message as a request carries it: its length in four bytes, little-endian, and itself.
pub(super) fn message(record: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(4 + record.len());
    out.put_u32_le(u32::try_from(record.len()).unwrap_or(u32::MAX));
    out.extend_from_slice(record);
    out.freeze()
}

/// State of a streamed body, readable during and after the upload.
#[derive(Debug, Default)]
pub(super) struct Sending {
    /// True while the source yields nothing: no fault of the network.
    pub(super) is_starved: AtomicBool,
    outcome: Mutex<Option<Result<Checksum, Error>>>,
    ended: Notify,
}

impl Sending {
    /// Returns the checksum of all that was sent, or the source's error; `None` while in progress.
    pub(super) fn take(&self) -> Option<Result<Checksum, Error>> {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.take()
    }

    /// Waits for the checksum of the whole body, known once it is sent; never returns if the source
    /// fails.
    pub(super) async fn sum(&self) -> Checksum {
        loop {
            let ended = self.ended.notified();
            let sum = match &*self.outcome.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(Ok(sum)) => Some(*sum),
                Some(Err(_)) | None => None,
            };
            if let Some(sum) = sum {
                return sum;
            }
            ended.await;
        }
    }

    fn end(&self, outcome: Result<Checksum, Error>) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.ended.notify_one();
    }
}

/// Body of a request. Its length is known from the start.
pub(super) enum Body {
    /// Body in memory: it can be sent twice.
    Whole {
        pieces: VecDeque<Bytes>,
        left: u64,
        load: Load,
    },
    /// Body read from a source as it is sent.
    Streamed(Box<Streamed>),
}

impl Body {
    /// Creates a body of these bytes, which `load` counts as they go.
    pub(super) fn whole(pieces: VecDeque<Bytes>, load: Load) -> Self {
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self::Whole { pieces, left, load }
    }

    /// Creates a body of `head` and `len` bytes of `stream`, with a digest after every
    /// `segment_size` bytes.
    pub(super) fn streamed(
        head: Bytes,
        stream: ByteStream,
        len: u64,
        segment_size: u64,
    ) -> (Self, Arc<Sending>) {
        let sending = Arc::new(Sending::default());
        let body = Self::Streamed(Box::new(Streamed {
            head: Some(head),
            stream,
            ready: Bytes::new(),
            segment_size: segment_size.max(1),
            segment_left: len.min(segment_size.max(1)),
            left: len,
            hasher: blake3::Hasher::new(),
            summer: Summer::default(),
            is_ended: false,
            sending: Arc::clone(&sending),
        }));
        (body, sending)
    }
}

/// Body read from a source.
pub(super) struct Streamed {
    head: Option<Bytes>,
    stream: ByteStream,
    /// Bytes from the stream that lie beyond the segment.
    ready: Bytes,
    segment_size: u64,
    /// Bytes until the next digest.
    segment_left: u64,
    left: u64,
    hasher: blake3::Hasher,
    summer: Summer,
    is_ended: bool,
    sending: Arc<Sending>,
}

impl Streamed {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, io::Error>>> {
        if let Some(head) = self.head.take() {
            return Poll::Ready(Some(Ok(head)));
        }
        if self.is_ended {
            return Poll::Ready(None);
        }
        if self.segment_left == 0 {
            return Poll::Ready(Some(Ok(self.end_segment())));
        }
        if !self.ready.is_empty() {
            return Poll::Ready(Some(Ok(self.cut())));
        }
        let polled = self.stream.as_mut().poll_next(context);
        self.sending.is_starved.store(polled.is_pending(), Relaxed);
        let failed = match polled {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(bytes))) if bytes.len() as u64 <= self.left => {
                self.ready = bytes;
                return Poll::Ready(Some(Ok(self.cut())));
            }
            Poll::Ready(Some(Ok(_))) => Error::new(ErrorKind::Changed, "read", "the source")
                .cause("it gave more than was asked for"),
            Poll::Ready(Some(Err(error))) => error,
            Poll::Ready(None) => {
                Error::new(ErrorKind::Unreachable, "read", "the source").cause("it ended early")
            }
        };
        self.is_ended = true;
        self.sending.end(Err(failed));
        Poll::Ready(Some(Err(io::Error::other("the source failed"))))
    }
}

impl Streamed {
    /// Returns the next bytes, up to the end of the segment.
    fn cut(&mut self) -> Bytes {
        let most = usize::try_from(self.segment_left).unwrap_or(usize::MAX);
        let bytes = self.ready.split_to(most.min(self.ready.len()));
        self.left -= bytes.len() as u64;
        self.segment_left -= bytes.len() as u64;
        self.hasher.update(&bytes);
        self.summer.add(&bytes);
        bytes
    }

    /// Returns the digest of the segment, and begins the next.
    fn end_segment(&mut self) -> Bytes {
        let digest = Bytes::copy_from_slice(self.hasher.finalize().as_bytes());
        self.hasher.reset();
        self.segment_left = self.left.min(self.segment_size);
        if self.left == 0 {
            self.is_ended = true;
            self.sending.end(Ok(self.summer.sum()));
        }
        digest
    }

    /// Returns the number of bytes still to come.
    fn rest(&self) -> u64 {
        let head = self.head.as_ref().map_or(0, |head| head.len() as u64);
        let digests = 1 + (self.left - self.segment_left).div_ceil(self.segment_size);
        head + self.left + digests * DIGEST_BYTES as u64
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut *self {
            Self::Whole { pieces, left, load } => {
                let piece = next_step(pieces);
                let len = piece.as_ref().map_or(0, |piece| piece.remaining() as u64);
                *left -= len;
                load.left(len);
                if *left == 0 {
                    load.ended();
                }
                Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
            }
            Self::Streamed(streamed) => streamed
                .poll(context)
                .map(|polled| polled.map(|bytes| bytes.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole { pieces, .. } => pieces.is_empty(),
            Self::Streamed(streamed) => streamed.is_ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Whole { left, .. } => *left,
            Self::Streamed(streamed) if streamed.is_ended => 0,
            Self::Streamed(streamed) => streamed.rest(),
        })
    }
}
