//! Frames of answers: four bytes with a kind and a length, and a payload.

use std::{collections::VecDeque, pin::Pin};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::FutureExt as _;
use hyper::body::{Body, Incoming};

use crate::unkept::Unkept;

/// Longest message of an answer, in bytes.
const MESSAGE_BYTES_MAX: usize = super::wire::MESSAGE_BYTES_MAX;

/// Bytes of a frame's head: the length in 24 bits, little-endian, and the kind in 8.
pub const HEAD_BYTES: usize = 4;

/// Bytes of a BLAKE3 digest.
pub const DIGEST_BYTES: usize = 32;

/// Content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// A record.
    Message,
    /// Bytes.
    Data,
    /// BLAKE3 digest of all data before.
    Digest,
    /// Nothing: the answer is not ready yet.
    Wait,
    /// Numbers of files stored without their mode and without their time, each in eight bytes,
    /// little-endian.
    Unkept,
}

impl FrameKind {
    const fn number(self) -> u8 {
        match self {
            Self::Message => 1,
            Self::Data => 2,
            Self::Digest => 3,
            Self::Wait => 4,
            Self::Unkept => 5,
        }
    }

    const fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Message),
            2 => Some(Self::Data),
            3 => Some(Self::Digest),
            4 => Some(Self::Wait),
            5 => Some(Self::Unkept),
            _ => None,
        }
    }
}

/// Returns the head of a frame of `len` bytes. Lengths are below 16 MiB.
#[must_use]
pub fn head(kind: FrameKind, len: usize) -> [u8; HEAD_BYTES] {
    debug_assert!(len < 1 << 24, "a frame's length has 24 bits");
    let [a, b, c, ..] = len.to_le_bytes();
    [a, b, c, kind.number()]
}

/// Returns a whole frame with `payload`.
#[must_use]
pub fn frame(kind: FrameKind, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(HEAD_BYTES + payload.len());
    out.extend_from_slice(&head(kind, payload.len()));
    out.extend_from_slice(payload);
    out.freeze()
}

/// Bytes of [`FrameKind::Unkept`].
const UNKEPT_BYTES: usize = 16;

/// Returns the frame that reports attributes not kept.
#[must_use]
pub fn unkept_frame(unkept: Unkept) -> Bytes {
    let numbers = [unkept.modes, unkept.times].map(u64::to_le_bytes);
    frame(FrameKind::Unkept, numbers.as_flattened())
}

fn read_unkept(mut payload: Bytes) -> Unkept {
    Unkept {
        modes: payload.get_u64_le(),
        times: payload.get_u64_le(),
    }
}

/// Piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A record.
    Message(Bytes),
    /// Bytes as they arrived, not as they were framed.
    Data(Bytes),
    /// Digest of all data since the last one.
    Digest([u8; DIGEST_BYTES]),
}

/// Reason why an answer can't be read on.
#[derive(Debug)]
pub enum Broken {
    /// Connection ended.
    Connection(hyper::Error),
    /// Answer ended in the middle.
    Short,
    /// Not an answer of this protocol.
    Nonsense(&'static str),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connection(cause) => write!(f, "{cause}"),
            Self::Short => f.write_str("the answer ended early"),
            Self::Nonsense(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Broken {}

/// Rest of the frame being read.
#[derive(Debug, Clone, Copy)]
enum Inside {
    Head,
    Data(usize),
    Whole(FrameKind, usize),
}

/// Splitter of a body into pieces, without copying data.
#[derive(Debug)]
pub struct Frames<B = Incoming> {
    body: B,
    /// Bytes that arrived and are not used yet.
    pending: Bytes,
    /// Head, message or digest that arrived in several pieces.
    gathered: BytesMut,
    inside: Inside,
    /// Attributes reported as not kept.
    unkept: Unkept,
}

impl<B: Body<Data = Bytes, Error = hyper::Error> + Unpin> Frames<B> {
    /// Reads `body`.
    pub fn new(body: B) -> Self {
        Self {
            body,
            pending: Bytes::new(),
            gathered: BytesMut::new(),
            inside: Inside::Head,
            unkept: Unkept::default(),
        }
    }

    /// Returns and resets the attributes reported so far as not kept.
    pub fn take_unkept(&mut self) -> Unkept {
        std::mem::take(&mut self.unkept)
    }

    /// Returns the next piece; `None` at the end, which must fall between two frames.
    ///
    /// # Errors
    /// [`Broken`].
    pub async fn next(&mut self) -> Result<Option<Piece>, Broken> {
        loop {
            if let Some(piece) = self.cut()? {
                return Ok(Some(piece));
            }
            let frame =
                std::future::poll_fn(|context| Pin::new(&mut self.body).poll_frame(context));
            match frame.await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.pending = data;
                    }
                }
                Some(Err(cause)) => return Err(Broken::Connection(cause)),
                None if matches!(self.inside, Inside::Head) && self.gathered.is_empty() => {
                    return Ok(None);
                }
                None => return Err(Broken::Short),
            }
        }
    }

    /// Returns a piece of the bytes that have arrived, if there is one.
    fn cut(&mut self) -> Result<Option<Piece>, Broken> {
        loop {
            match self.inside {
                Inside::Head => {
                    let Some(head) = self.gather(HEAD_BYTES) else {
                        return Ok(None);
                    };
                    self.inside = begin(&head)?;
                }
                Inside::Data(left) => {
                    if left == 0 {
                        self.inside = Inside::Head;
                        continue;
                    }
                    if self.pending.is_empty() {
                        return Ok(None);
                    }
                    let data = self.pending.split_to(left.min(self.pending.len()));
                    self.inside = Inside::Data(left - data.len());
                    return Ok(Some(Piece::Data(data)));
                }
                Inside::Whole(kind, len) => {
                    let Some(whole) = self.gather(len) else {
                        return Ok(None);
                    };
                    self.inside = Inside::Head;
                    match kind {
                        FrameKind::Message => return Ok(Some(Piece::Message(whole))),
                        FrameKind::Digest => {
                            let digest = whole[..].try_into();
                            let digest = digest.map_err(|_| Broken::Nonsense("a short digest"))?;
                            return Ok(Some(Piece::Digest(digest)));
                        }
                        FrameKind::Unkept => self.unkept += read_unkept(whole),
                        FrameKind::Wait | FrameKind::Data => {}
                    }
                }
            }
        }
    }

    /// Returns `len` contiguous bytes, once they are here.
    fn gather(&mut self, len: usize) -> Option<Bytes> {
        if self.gathered.is_empty() && self.pending.len() >= len {
            return Some(self.pending.split_to(len));
        }
        let missing = (len - self.gathered.len()).min(self.pending.len());
        self.gathered.extend_from_slice(&self.pending[..missing]);
        self.pending.advance(missing);
        if self.gathered.len() == len {
            return Some(self.gathered.split().freeze());
        }
        None
    }
}

fn begin(head: &[u8]) -> Result<Inside, Broken> {
    let [a, b, c, number] = *head else {
        return Err(Broken::Nonsense("a short head"));
    };
    let len = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
    let kind = FrameKind::of(number).ok_or(Broken::Nonsense("a frame of an unknown kind"))?;
    match kind {
        FrameKind::Data => Ok(Inside::Data(len)),
        FrameKind::Message if len <= MESSAGE_BYTES_MAX => Ok(Inside::Whole(kind, len)),
        FrameKind::Digest if len == DIGEST_BYTES => Ok(Inside::Whole(kind, len)),
        FrameKind::Wait if len == 0 => Ok(Inside::Whole(kind, len)),
        FrameKind::Unkept if len == UNKEPT_BYTES => Ok(Inside::Whole(kind, len)),
        FrameKind::Message | FrameKind::Digest | FrameKind::Wait | FrameKind::Unkept => {
            Err(Broken::Nonsense("a frame of an impossible length"))
        }
    }
}

/// Longest record within data, in bytes.
const RECORD_BYTES_MAX: usize = 64 << 10;

/// Bytes that arrive in pieces and are taken in others, without being copied.
#[derive(Debug, Default)]
pub struct Pieces {
    pieces: VecDeque<Bytes>,
    len: usize,
}

impl Pieces {
    /// Adds bytes that arrived.
    pub fn push(&mut self, bytes: Bytes) {
        self.len += bytes.len();
        self.pieces.push_back(bytes);
    }

    /// Returns whether all bytes were taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the next `len` bytes, once they are here.
    pub fn take(&mut self, len: usize) -> Option<Vec<Bytes>> {
        if self.len < len {
            return None;
        }
        self.len -= len;
        let mut left = len;
        let mut taken = Vec::new();
        while left > 0 {
            let mut piece = self.pieces.pop_front()?;
            if piece.len() > left {
                taken.push(piece.split_to(left));
                self.pieces.push_front(piece);
                break;
            }
            left -= piece.len();
            taken.push(piece);
        }
        Some(taken)
    }

    /// Returns the next record, prefixed with its length in four bytes, once it is here.
    ///
    /// # Errors
    /// [`Broken::Nonsense`] for a length no record has.
    pub fn take_record(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        let mut bytes = self.pieces.iter().flat_map(|piece| piece.iter().copied());
        let mut next = || bytes.next();
        let (Some(a), Some(b), Some(c), Some(d)) = (next(), next(), next(), next()) else {
            return Ok(None);
        };
        let len = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if len > RECORD_BYTES_MAX {
            return Err(Broken::Nonsense("a record of an impossible length"));
        }
        let Some(pieces) = self.take(HEAD_BYTES + len) else {
            return Ok(None);
        };
        let mut record = pieces.concat();
        record.drain(..HEAD_BYTES);
        Ok(Some(record))
    }
}

/// Pieces of a body, all present.
struct Steps(VecDeque<Bytes>);

impl Body for Steps {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, hyper::Error>>> {
        let next = self.0.pop_front();
        std::task::Poll::Ready(next.map(|next| Ok(hyper::body::Frame::data(next))))
    }
}

/// Reads an answer and its messages as every possible kind, for [`crate::fuzzing`].
pub(crate) fn try_frames(data: &[u8]) {
    let Some((&step, body)) = data.split_first() else {
        return;
    };
    let pieces = body.chunks(usize::from(step).max(1));
    let mut frames = Frames::new(Steps(pieces.map(Bytes::copy_from_slice).collect()));
    let mut bytes = 0;
    // All bytes are present, so nothing waits.
    while let Some(Ok(Some(piece))) = frames.next().now_or_never() {
        match piece {
            Piece::Message(message) => {
                bytes += message.len();
                super::wire::try_message(&message);
            }
            Piece::Data(data) => bytes += data.len(),
            Piece::Digest(digest) => bytes += digest.len(),
        }
        assert!(bytes <= body.len(), "more was read than was there");
    }
    let _ = super::Invitation::parse(body);
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::StreamBody;

    type Given = StreamBody<
        futures_util::stream::Iter<
            std::vec::IntoIter<Result<hyper::body::Frame<Bytes>, hyper::Error>>,
        >,
    >;

    fn body(bytes: &[u8], step: usize) -> Given {
        let pieces: Vec<_> = bytes
            .chunks(step)
            .map(|piece| Ok(hyper::body::Frame::data(Bytes::copy_from_slice(piece))))
            .collect();
        StreamBody::new(futures_util::stream::iter(pieces))
    }

    async fn read(bytes: &[u8], step: usize) -> Result<Vec<Piece>, Broken> {
        let mut frames = Frames::new(body(bytes, step));
        let mut found = Vec::new();
        while let Some(piece) = frames.next().await? {
            match (found.last_mut(), piece) {
                (Some(Piece::Data(before)), Piece::Data(bytes)) => {
                    *before = [&before[..], &bytes[..]].concat().into();
                }
                (_, piece) => found.push(piece),
            }
        }
        Ok(found)
    }

    #[tokio::test]
    async fn frames_come_out_wherever_the_network_cut_them() {
        let sent = [
            frame(FrameKind::Message, b"hello"),
            frame(FrameKind::Wait, b""),
            frame(FrameKind::Data, &[7; 1000]),
            frame(FrameKind::Data, &[8; 300]),
            frame(FrameKind::Digest, &[9; 32]),
            frame(FrameKind::Message, b""),
        ]
        .concat();
        let wanted = [
            Piece::Message(Bytes::from_static(b"hello")),
            Piece::Data([[7; 1000].as_slice(), &[8; 300]].concat().into()),
            Piece::Digest([9; 32]),
            Piece::Message(Bytes::new()),
        ];
        for step in [1, 2, 3, 7, 100, sent.len()] {
            assert_eq!(read(&sent, step).await.unwrap(), wanted, "step {step}");
        }
        for cut in (1..sent.len()).filter(|cut| ![9, 13, 1017, 1321, 1357].contains(cut)) {
            assert!(
                matches!(read(&sent[..cut], 64).await, Err(Broken::Short)),
                "cut at {cut}"
            );
        }
    }

    #[tokio::test]
    async fn impossible_frames_are_refused_before_memory_is_taken() {
        for head in [
            [0, 0, 0, 0],
            [0, 0, 0, 9],
            [255, 255, 255, 1],
            [1, 0, 0, 4],
            [31, 0, 0, 3],
        ] {
            let sent = [head.as_slice(), &[0; 64]].concat();
            let found = read(&sent, 10).await;
            assert!(matches!(found, Err(Broken::Nonsense(_))), "{head:?}");
        }
    }

    #[test]
    fn records_and_bytes_are_taken_out_of_any_pieces() {
        let sent = [&5u32.to_le_bytes()[..], b"abcde", &[3; 10]].concat();
        for step in 1..=sent.len() {
            let mut pieces = Pieces::default();
            for piece in sent.chunks(step) {
                pieces.push(Bytes::copy_from_slice(piece));
            }
            assert_eq!(pieces.take_record().unwrap().unwrap(), b"abcde");
            assert_eq!(pieces.take(10).unwrap().concat(), [3; 10]);
            assert!(pieces.is_empty());
            assert_eq!(pieces.take_record().unwrap(), None);
        }
        let mut pieces = Pieces::default();
        pieces.push(Bytes::from_static(&[255; 4]));
        assert!(pieces.take_record().is_err());
    }
}
