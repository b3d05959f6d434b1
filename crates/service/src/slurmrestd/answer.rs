//! Answers parsed as they arrive: 100,000 jobs are some hundred megabytes.

use std::{
    io::{self, ErrorKind, Read},
    pin::Pin,
    time::Duration,
};

use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use posthaste_endpoint::deepest;
use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    task::JoinSet,
    time::Sleep,
};

/// Largest answer, in bytes: some ten thousand for each of 200,000 jobs.
const ANSWER_BYTES_MAX: u64 = 2 << 30;
/// Pieces of an answer, of some kilobytes each, that wait for the reader.
const PIECES_MAX: usize = 16;

/// Deadline of an answer, and its time limit from the call on.
pub(super) struct Late {
    pub(super) at: Pin<Box<Sleep>>,
    pub(super) patience: Duration,
}

/// Parses an answer on a thread of its own. A caller that stops waiting ends that too, at once.
///
/// # Errors
/// [`ErrorKind::Other`] if the runtime ends meanwhile, or the parser panics.
pub(super) async fn read<T: Send + 'static>(
    body: Incoming,
    late: Late,
    read: impl FnOnce(Answer) -> T + Send + 'static,
) -> io::Result<T> {
    let (pieces, comes) = channel(PIECES_MAX);
    let answer = Answer {
        comes,
        here: Bytes::new(),
        has_ended: false,
    };
    let mut reading = JoinSet::new();
    reading.spawn_blocking(move || read(answer));
    hand_on(body, late, pieces).await;
    match reading.join_next().await {
        Some(Ok(read)) => Ok(read),
        Some(Err(cause)) => Err(io::Error::other(cause)),
        None => Err(io::Error::other("nobody reads it")),
    }
}

/// Passes on pieces until the answer ends or nobody reads it any more; an empty piece marks its
/// end.
async fn hand_on(mut body: Incoming, mut late: Late, pieces: Sender<io::Result<Bytes>>) {
    let mut left = ANSWER_BYTES_MAX;
    loop {
        let piece = tokio::select! {
            piece = next(&mut body, &mut late, &mut left) => piece,
            () = pieces.closed() => return,
        };
        let is_last = piece.as_ref().map_or(true, Bytes::is_empty);
        if pieces.send(piece).await.is_err() || is_last {
            return;
        }
    }
}

/// Returns the next bytes; none at the end.
async fn next(body: &mut Incoming, late: &mut Late, left: &mut u64) -> io::Result<Bytes> {
    let broken = |kind, why: String| Err(io::Error::new(kind, why));
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = &mut late.at => {
                let why = format!("no whole answer in {} s", late.patience.as_secs());
                return broken(ErrorKind::TimedOut, why);
            }
        };
        let bytes = match frame {
            None => return Ok(Bytes::new()),
            Some(Err(cause)) => return broken(ErrorKind::ConnectionReset, deepest(&cause)),
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
        };
        let Some(rest) = left.checked_sub(bytes.len() as u64) else {
            let why = "its answer is longer than 2 GiB".to_owned();
            return broken(ErrorKind::FileTooLarge, why);
        };
        *left = rest;
        if !bytes.is_empty() {
            return Ok(bytes);
        }
    }
}

/// Bytes of an answer; reading blocks.
pub(super) struct Answer {
    comes: Receiver<io::Result<Bytes>>,
    here: Bytes,
    has_ended: bool,
}

impl Read for Answer {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.here.is_empty() && !self.has_ended {
            // Only a caller that stopped waiting ends it without a last piece.
            let over = || Err(ErrorKind::BrokenPipe.into());
            self.here = self.comes.blocking_recv().unwrap_or_else(over)?;
            self.has_ended = self.here.is_empty();
        }
        let len = into.len().min(self.here.len());
        self.here.copy_to_slice(&mut into[..len]);
        Ok(len)
    }
}
