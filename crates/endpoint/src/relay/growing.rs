//! Files that are sent on while they still grow.

use std::{fs::File, io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::{sync::watch, time::timeout};

use super::{
    cargo::{Body, read_at},
    pulse::Pulse,
};

/// Interval at which a request that waits for its bytes shows that it is alive.
const SIGN_EVERY: Duration = Duration::from_secs(1);

/// Progress of a growing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grown {
    /// Bytes present, from the beginning.
    Bytes(u64),
    /// Complete, checked and kept.
    Whole,
    /// Failed: it will never be complete.
    Failed,
}

/// File that grows to a known size.
#[derive(Debug, Clone)]
pub struct Growing {
    /// The file.
    pub file: Arc<File>,
    /// Size of the complete file, in bytes.
    pub size: u64,
    /// Progress of the file. A file without a sender has failed, unless it is complete.
    pub grown: watch::Receiver<Grown>,
}

impl Growing {
    /// Waits until bytes after the first `at` may be sent, and returns the number of bytes present.
    /// The last byte waits until the file is complete, so that no receiver has all bytes of an
    /// invalid file.
    async fn beyond(&mut self, at: u64) -> io::Result<u64> {
        let size = self.size;
        let ready = |grown: Grown| match grown {
            Grown::Bytes(bytes) => bytes.min(size.saturating_sub(1)),
            Grown::Whole => size,
            Grown::Failed => 0,
        };
        let is_over = |grown: &Grown| ready(*grown) > at || !matches!(grown, Grown::Bytes(_));
        let grown = self.grown.wait_for(is_over).await;
        let grown = *grown.map_err(|_| did_not_arrive())?;
        match grown {
            Grown::Failed => Err(did_not_arrive()),
            Grown::Bytes(_) | Grown::Whole => Ok(ready(grown)),
        }
    }

    /// Waits until the file is complete.
    ///
    /// # Errors
    /// Fails if the file never will be.
    pub(super) async fn whole(&mut self) -> io::Result<()> {
        self.beyond(self.size).await.map(drop)
    }

    /// Returns whether the file is known to have failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        match *self.grown.borrow() {
            Grown::Failed => true,
            Grown::Bytes(_) => self.grown.has_changed().is_err(),
            Grown::Whole => false,
        }
    }

    /// Returns the file from its beginning, as it grows. `pulse` shows that a request waiting for
    /// it is not stalled.
    pub(super) fn body(&self, pulse: Option<Arc<Pulse>>) -> Body {
        let start = (self.clone(), 0, pulse);
        let pieces = stream::try_unfold(start, |(mut growing, at, pulse)| async move {
            if at == growing.size {
                return Ok(None);
            }
            let there = loop {
                match timeout(SIGN_EVERY, growing.beyond(at)).await {
                    Ok(there) => break there?,
                    Err(_) => pulse.iter().for_each(|pulse| pulse.moved(1)),
                }
            };
            let file = Arc::clone(&growing.file);
            let read = tokio::task::spawn_blocking(move || read_at(&file, at, there - at));
            let piece: Bytes = read.await.map_err(io::Error::other)??;
            let at = at + piece.len() as u64;
            Ok(Some((Frame::data(piece), (growing, at, pulse))))
        });
        BodyExt::boxed_unsync(StreamBody::new(pieces))
    }
}

fn did_not_arrive() -> io::Error {
    io::Error::other("what was followed did not arrive")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    async fn next(body: &mut Body) -> Option<io::Result<Bytes>> {
        let frame = body.frame().await?;
        Some(frame.map(|frame| frame.into_data().unwrap_or_default()))
    }

    fn grows(size: u64) -> (File, watch::Sender<Grown>, Growing) {
        let file = tempfile::tempfile().unwrap();
        let (told, grown) = watch::channel(Grown::Bytes(0));
        let growing = Growing {
            file: Arc::new(file.try_clone().unwrap()),
            size,
            grown,
        };
        (file, told, growing)
    }

    #[tokio::test]
    async fn bytes_go_as_they_come_and_the_last_one_when_all_is_whole() {
        let (mut file, told, growing) = grows(5);
        let mut body = growing.body(None);
        file.write_all(b"ab").unwrap();
        told.send_replace(Grown::Bytes(2));
        assert_eq!(next(&mut body).await.unwrap().unwrap(), "ab");
        file.write_all(b"cde").unwrap();
        told.send_replace(Grown::Bytes(5));
        assert_eq!(next(&mut body).await.unwrap().unwrap(), "cd");
        told.send_replace(Grown::Whole);
        drop(told);
        assert_eq!(next(&mut body).await.unwrap().unwrap(), "e");
        assert!(next(&mut body).await.is_none());
        assert!(!growing.has_failed());
    }

    #[tokio::test]
    async fn what_is_never_whole_is_never_sent_whole() {
        for is_said in [false, true] {
            let (mut file, told, mut growing) = grows(3);
            let mut body = growing.body(None);
            file.write_all(b"abc").unwrap();
            told.send_replace(Grown::Bytes(3));
            assert_eq!(next(&mut body).await.unwrap().unwrap(), "ab");
            assert!(!growing.has_failed());
            if is_said {
                told.send_replace(Grown::Failed);
            }
            drop(told);
            assert!(next(&mut body).await.unwrap().is_err());
            assert!(growing.has_failed());
            assert!(growing.whole().await.is_err());
        }
    }
}
