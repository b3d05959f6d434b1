//! TCP connections over distance that learn from their use what congestion control is right.
//!
//! BBR keeps its rate where single packets are lost, so it is right for bulk data. It paces what is
//! sent at what it has seen delivered, though. That holds short requests back, so a connection gets
//! it with its first large one; until then it grows faster without. And it raises its estimate by a
//! quarter in eight round trips only (Cardwell et al. 2017, "BBR: congestion-based congestion
//! control"): when most of the connections of a fleet have ended, the rest would take seconds to
//! notice. They are told, and begin to estimate anew, which doubles the rate every round trip.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::peer::socket;

/// From here on a path is long, and its sockets are set up for distance. On shorter ones the
/// kernel's own choices cost less.
pub(crate) const LONG_PATH: Duration = Duration::from_millis(2);

/// Bytes without an answer after which what is known to be bulk data gets BBR: by then the first
/// round trips are over, in which it would send less.
const BULK_BYTES: usize = 384 << 10;

/// The same where nobody said what it is: more than a bundle of small files.
const UNTOLD_BULK_BYTES: usize = 4 << 20;

/// Connections that share a path.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    load: Mutex<Load>,
    /// How often most of those that were sending had ended.
    thinned: AtomicU64,
}

#[derive(Debug, Default)]
struct Load {
    /// Connections that are sending.
    sending: usize,
    /// The most of them since it was told last that they have become fewer.
    most: usize,
}

impl Fleet {
    fn change(&self, change: impl FnOnce(&mut Load)) {
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut load);
        load.most = load.most.max(load.sending);
        if load.sending <= load.most / 2 {
            load.most = load.sending;
            self.thinned.fetch_add(1, Relaxed);
        }
    }
}

/// Who sets the pace of a connection.
#[derive(Debug)]
enum Pace {
    /// On a short path, where its choices cost less: the kernel.
    Kernel,
    /// The kernel until bulk data comes: so many bytes were sent since the last answer.
    Unknown {
        sent: usize,
        is_bulk: Arc<AtomicBool>,
    },
    Bbr,
}

/// A connection of a fleet.
#[derive(Debug)]
pub(crate) struct Line {
    stream: TcpStream,
    /// `None` where the others don't matter.
    fleet: Option<Arc<Fleet>>,
    is_sending: bool,
    pace: Pace,
    /// What [`Fleet::thinned`] was when the estimate began.
    thinned: u64,
}

impl Line {
    /// On a short path.
    pub(crate) fn near(stream: TcpStream) -> Self {
        Self {
            stream,
            fleet: None,
            is_sending: false,
            pace: Pace::Kernel,
            thinned: 0,
        }
    }

    /// Over distance; `is_bulk` tells whether large requests are bulk data as soon as that shows.
    pub(crate) fn far(
        stream: TcpStream,
        fleet: Option<Arc<Fleet>>,
        is_bulk: Arc<AtomicBool>,
    ) -> Self {
        socket::prepare(&stream);
        Self {
            stream,
            fleet,
            is_sending: false,
            pace: Pace::Unknown { sent: 0, is_bulk },
            thinned: 0,
        }
    }

    fn set_sending(&mut self, is_sending: bool) {
        if self.is_sending == is_sending {
            return;
        }
        self.is_sending = is_sending;
        if let Some(fleet) = &self.fleet {
            fleet.change(|load| {
                if is_sending {
                    load.sending += 1;
                } else {
                    load.sending = load.sending.saturating_sub(1);
                }
            });
        }
    }

    /// Before bytes are sent.
    fn begin_write(&mut self) {
        let was_sending = self.is_sending;
        self.set_sending(true);
        let Some(fleet) = &self.fleet else {
            return;
        };
        let thinned = fleet.thinned.load(Relaxed);
        if thinned != self.thinned && matches!(self.pace, Pace::Bbr) && was_sending {
            socket::estimate_anew(&self.stream);
        }
        self.thinned = thinned;
    }

    fn end_write(&mut self, written: &Poll<io::Result<usize>>) {
        if let (Pace::Unknown { sent, is_bulk }, Poll::Ready(Ok(count))) = (&mut self.pace, written)
        {
            *sent += count;
            let most = if is_bulk.load(Relaxed) {
                BULK_BYTES
            } else {
                UNTOLD_BULK_BYTES
            };
            if *sent >= most {
                socket::use_bbr(&self.stream);
                self.pace = Pace::Bbr;
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.set_sending(false);
    }
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.set_sending(false);
            if let Pace::Unknown { sent, .. } = &mut self.pace {
                *sent = 0;
            }
        }
        read
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.begin_write();
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.end_write(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.begin_write();
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.end_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_tells_whenever_half_have_ended() {
        let fleet = Fleet::default();
        let mut told = Vec::new();
        for sending in [1, 2, 3, 4, 5, 6, 7, 8, 7, 6, 5, 4, 3, 4, 3, 2, 1, 0] {
            fleet.change(|load| load.sending = sending);
            told.push(fleet.thinned.load(Relaxed));
        }
        assert_eq!(told, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 3, 4]);
    }
}
