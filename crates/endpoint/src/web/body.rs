//! Bodies of requests: pieces in memory, or a stream.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::gate::{Gate, Waiting};
use crate::{
    Error, ErrorKind, Locus, Result,
    endpoint::ByteStream,
    outgoing::{Load, Outgoing, STEP_BYTES},
};

/// Progress of a body while it is sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watch {
    /// Bytes passed to the connection.
    pub sent: Arc<AtomicU64>,
    broken: Arc<Mutex<Option<Error>>>,
}

impl Watch {
    /// Returns why the stream broke, if it did.
    pub(crate) fn take_broken(&self) -> Option<Error> {
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        broken.take()
    }
}

/// A request's body, of a known length.
pub(crate) struct Sent {
    from: Origin,
    left: u64,
    watch: Watch,
    /// Count of the bytes sent, if they are a file's.
    load: Load,
}

enum Origin {
    Pieces(VecDeque<Bytes>),
    Stream(ByteStream),
    Held(Waiting),
}

impl Sent {
    pub(crate) fn nothing() -> Self {
        Self::pieces(Vec::new())
    }

    /// Creates a body of pieces that are sent unchanged.
    pub(crate) fn pieces(pieces: Vec<Bytes>) -> Self {
        Self {
            left: pieces.iter().map(|piece| piece.len() as u64).sum(),
            from: Origin::Pieces(pieces.into()),
            watch: Watch::default(),
            load: Load::default(),
        }
    }

    /// Returns the bytes of a file, which count for the attempt that this is made in.
    pub(crate) fn payload(pieces: Vec<Bytes>) -> Self {
        Self {
            load: Outgoing::current().load(),
            ..Self::pieces(pieces)
        }
    }

    /// Returns `len` bytes of a stream; a stream with fewer or more breaks the request.
    pub(crate) fn stream(stream: ByteStream, len: u64) -> Self {
        Self {
            left: len,
            from: Origin::Stream(stream),
            watch: Watch::default(),
            load: Load::default(),
        }
    }

    /// Puts the body behind a gate, which opens when the server wants it.
    pub(super) fn held(self) -> (Self, Gate) {
        let (left, watch) = (self.left, self.watch());
        let gate = Gate::hold(self);
        let held = Self {
            from: Origin::Held(Waiting::before(&gate)),
            left,
            watch,
            load: Load::default(),
        };
        (held, gate)
    }

    /// Returns whether the body is still there, and not gone with another connection.
    pub(super) fn is_there(&self) -> bool {
        match &self.from {
            Origin::Held(waiting) => waiting.gate().holds(),
            Origin::Pieces(_) | Origin::Stream(_) => true,
        }
    }

    /// Returns the body for a repeated request; a stream can't be had twice.
    pub(crate) fn again(&self) -> Option<Self> {
        match &self.from {
            Origin::Held(waiting) => Some(Self {
                from: Origin::Held(Waiting::before(waiting.gate())),
                left: self.left,
                watch: self.watch(),
                load: Load::default(),
            }),
            Origin::Pieces(pieces) => Some(Self {
                load: self.load.again(),
                ..Self::pieces(pieces.iter().cloned().collect())
            }),
            Origin::Stream(_) => None,
        }
    }

    /// Returns the number of bytes still to be sent.
    pub(crate) fn len(&self) -> u64 {
        self.left
    }

    pub(crate) fn watch(&self) -> Watch {
        self.watch.clone()
    }

    fn break_off(&self, error: Error) -> Poll<Option<Result<Frame<Bytes>, BrokenSource>>> {
        let mut broken = self
            .watch
            .broken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *broken = Some(error);
        Poll::Ready(Some(Err(BrokenSource)))
    }
}

impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.left)
    }
}

/// Error for a body whose source broke; its [`Watch`] has the reason.
#[derive(Debug)]
pub(crate) struct BrokenSource;

impl fmt::Display for BrokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the source broke")
    }
}

impl std::error::Error for BrokenSource {}

impl Body for Sent {
    type Data = Bytes;
    type Error = BrokenSource;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenSource>>> {
        if let Origin::Held(waiting) = &mut self.from {
            let Some(body) = ready!(waiting.poll(context)) else {
                return Poll::Ready(Some(Err(BrokenSource)));
            };
            (self.from, self.load) = (body.from, body.load);
        }
        let left = self.left;
        let piece = match &mut self.from {
            // A body that passed its gate is no longer held.
            Origin::Held(_) => None,
            Origin::Pieces(pieces) => next_step(pieces),
            Origin::Stream(_) if left == 0 => None,
            Origin::Stream(stream) => match ready!(stream.as_mut().poll_next(context)) {
                Some(Ok(piece)) if piece.len() as u64 <= left => Some(piece),
                Some(Ok(_)) => return self.break_off(ended("has more bytes than it said")),
                Some(Err(error)) => return self.break_off(error),
                None => return self.break_off(ended("ended early")),
            },
        };
        if let Some(piece) = &piece {
            self.left -= piece.len() as u64;
            self.watch.sent.fetch_add(piece.len() as u64, Relaxed);
            self.load.left(piece.len() as u64);
        }
        if self.left == 0 {
            self.load.ended();
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Returns the next bytes, few enough that progress is seen between them.
pub(crate) fn next_step(pieces: &mut VecDeque<Bytes>) -> Option<Bytes> {
    let first = pieces.front_mut()?;
    if first.len() > STEP_BYTES {
        return Some(first.split_to(STEP_BYTES));
    }
    pieces.pop_front()
}

fn ended(how: &str) -> Error {
    Error::new(ErrorKind::Unreachable, "read", "the source")
        .cause(format!("the source {how}"))
        .at(Locus::Source)
}
