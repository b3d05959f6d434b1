//! An answer that is read while it comes: 100,000 jobs are some hundred megabytes.

use std::{
    io::{self, ErrorKind, Read},
    pin::Pin,
    time::Duration,
};

use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use posthaste_endpoint::deepest;
use tokio::{runtime::Handle, time::Sleep};

/// Largest answer that is read, in bytes: some ten thousand for each of 200,000 jobs.
const ANSWER_BYTES_MAX: u64 = 2 << 30;

/// The body of an answer. Reading it blocks: only where that may be, as in `block_in_place`.
pub(super) struct Answer {
    body: Incoming,
    /// When nobody waits for it any longer, and how long that was from the question on.
    late: Pin<Box<Sleep>>,
    patience: Duration,
    here: Bytes,
    left: u64,
}

impl Answer {
    pub(super) fn new(body: Incoming, late: Pin<Box<Sleep>>, patience: Duration) -> Self {
        Self {
            body,
            late,
            patience,
            here: Bytes::new(),
            left: ANSWER_BYTES_MAX,
        }
    }

    /// The next bytes; none at the end.
    async fn next(&mut self) -> io::Result<Bytes> {
        let broken = |kind, why: String| Err(io::Error::new(kind, why));
        loop {
            let frame = tokio::select! {
                frame = self.body.frame() => frame,
                () = &mut self.late => {
                    let why = format!("no whole answer in {} s", self.patience.as_secs());
                    return broken(ErrorKind::TimedOut, why);
                }
            };
            let bytes = match frame {
                None => return Ok(Bytes::new()),
                Some(Err(cause)) => return broken(ErrorKind::ConnectionReset, deepest(&cause)),
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
                let why = "its answer is longer than 2 GiB".to_owned();
                return broken(ErrorKind::FileTooLarge, why);
            };
            self.left = left;
            if !bytes.is_empty() {
                return Ok(bytes);
            }
        }
    }
}

impl Read for Answer {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.here.is_empty() {
            self.here = Handle::current().block_on(self.next())?;
        }
        let len = into.len().min(self.here.len());
        self.here.copy_to_slice(&mut into[..len]);
        Ok(len)
    }
}
