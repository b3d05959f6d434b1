//! TCP connections over distance: set up for bulk data, with their path observed.
//!
//! [`posthaste_plan::fleet`] decides the pace. A connection reports the kernel's statistics to it
//! while it sends. If BBR is right, the connection gets it with its next bulk data: BBR paces data
//! at the rate it has seen delivered, which holds short requests back. Bulk data that is still
//! being sent when most of the others have ended gets it, too, and estimates anew if it has it. At
//! the start BBR doubles its rate every round trip, while otherwise it would take seconds to use
//! the room.

mod counted;
mod humble;
mod kernel;

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use posthaste_plan::fleet::{self, Health};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

pub use counted::Counted;
pub(crate) use humble::Humble;
pub(crate) use kernel::acknowledged;

/// Round trip from which a path is long, and its sockets are set up for distance. On shorter ones
/// the kernel's own choices cost less.
pub(crate) const LONG_PATH: Duration = Duration::from_millis(2);

/// Bytes without an answer after which known bulk data may get BBR: by then the first round trips
/// are over, in which it would send less.
const BULK_BYTES: usize = 384 << 10;

/// Bytes without an answer after which data of unknown kind may get BBR: more than a bundle of
/// small files.
const UNTOLD_BULK_BYTES: usize = 4 << 20;

/// Bytes between two queries of the kernel about a connection.
const ASK_EVERY_BYTES: usize = 64 << 10;

/// Connections that share a path.
#[derive(Debug, Default)]
pub struct Fleet {
    mind: Mutex<fleet::Fleet>,
    /// Copies of [`fleet::Fleet::thinned`] and [`fleet::Fleet::is_lossy`], for readers that can't
    /// wait.
    thinned: AtomicU64,
    is_lossy: AtomicBool,
}

impl Fleet {
    fn tell(&self, news: impl FnOnce(&mut fleet::Fleet)) {
        let mut mind = self.mind.lock().unwrap_or_else(PoisonError::into_inner);
        news(&mut mind);
        self.thinned.store(mind.thinned(), Relaxed);
        self.is_lossy.store(mind.is_lossy(), Relaxed);
    }
}

/// Fleets of all connections, by server.
#[derive(Debug, Default)]
pub struct Fleets {
    known: Mutex<HashMap<IpAddr, Weak<Fleet>>>,
}

impl Fleets {
    fn known(&self) -> MutexGuard<'_, HashMap<IpAddr, Weak<Fleet>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the fleet of the connections from a host.
    fn of(&self, host: IpAddr) -> Arc<Fleet> {
        let mut known = self.known();
        if let Some(fleet) = known.get(&host).and_then(Weak::upgrade) {
            return fleet;
        }
        known.retain(|_, fleet| fleet.strong_count() > 0);
        let fleet = Arc::new(Fleet::default());
        known.insert(host, Arc::downgrade(&fleet));
        fleet
    }

    /// Returns the line of an accepted connection.
    #[must_use]
    pub fn accepted(&self, stream: TcpStream, host: IpAddr) -> Line {
        let rtt = kernel::health(&stream).map_or(0, |health| health.rtt_us);
        if Duration::from_micros(rtt.into()) < LONG_PATH {
            return Line::near(stream);
        }
        // Most reads here are messages, and most writes are bulk data.
        let is_bulk = Arc::new(AtomicBool::new(true));
        Line::far(stream, self.of(host), is_bulk)
    }
}

/// Returns whether the kernel offers BBR.
pub(crate) fn has_bbr() -> bool {
    kernel::has_bbr()
}

/// Party that sets the pace of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    Kernel,
    Bbr,
}

/// State of a connection over distance.
#[derive(Debug)]
struct Far {
    fleet: Arc<Fleet>,
    /// Set if large requests are bulk data as soon as that shows.
    is_bulk: Arc<AtomicBool>,
    pace: Pace,
    is_sending: bool,
    /// Bytes since the last answer.
    sent: usize,
    /// Bytes since the last query of the kernel.
    unasked: usize,
    /// Kernel's last answer.
    health: Health,
    /// Value of [`Fleet::thinned`] when the estimate began.
    thinned: u64,
}

/// TCP connection.
#[derive(Debug)]
pub struct Line {
    stream: TcpStream,
    far: Option<Far>,
    /// Set if a proxy that reads the requests is at the other end.
    through_proxy: bool,
}

impl Line {
    /// Returns a connection on a short path.
    pub(crate) fn near(stream: TcpStream) -> Self {
        kernel::prepare(&stream);
        Self {
            stream,
            far: None,
            through_proxy: false,
        }
    }

    /// Notes that a proxy that reads the requests is at the connection's other end.
    pub(crate) fn through_proxy(self) -> Self {
        Self {
            through_proxy: true,
            ..self
        }
    }

    pub(crate) fn is_through_proxy(&self) -> bool {
        self.through_proxy
    }

    /// Returns a connection over distance; `is_bulk` is set if large requests are bulk data as soon
    /// as that shows.
    pub(crate) fn far(stream: TcpStream, fleet: Arc<Fleet>, is_bulk: Arc<AtomicBool>) -> Self {
        kernel::prepare(&stream);
        let far = Far {
            fleet,
            is_bulk,
            pace: Pace::Kernel,
            is_sending: false,
            sent: 0,
            unasked: 0,
            health: Health::default(),
            thinned: 0,
        };
        Self {
            stream,
            far: Some(far),
            through_proxy: false,
        }
    }

    fn begin_write(&mut self) {
        if let Some(far) = &mut self.far {
            far.begin_write(&self.stream);
        }
    }

    fn end_write(&mut self, written: &Poll<io::Result<usize>>) {
        if let (Some(far), Poll::Ready(Ok(count))) = (&mut self.far, written) {
            far.wrote(*count, &self.stream);
        }
    }
}

impl Far {
    fn is_in_bulk(&self) -> bool {
        let most = if self.is_bulk.load(Relaxed) {
            BULK_BYTES
        } else {
            UNTOLD_BULK_BYTES
        };
        self.sent >= most
    }

    /// Prepares the connection before bytes are sent.
    fn begin_write(&mut self, stream: &TcpStream) {
        let was_sending = std::mem::replace(&mut self.is_sending, true);
        if !was_sending {
            self.fleet.tell(fleet::Fleet::begin);
        }
        let thinned = self.fleet.thinned.load(Relaxed);
        let has_room = thinned != self.thinned && was_sending && self.is_in_bulk();
        if has_room {
            self.find_anew(stream);
        }
        self.thinned = thinned;
    }

    fn wrote(&mut self, count: usize, stream: &TcpStream) {
        self.sent += count;
        self.unasked += count;
        if self.pace == Pace::Bbr {
            return;
        }
        if self.unasked >= ASK_EVERY_BYTES {
            self.unasked = 0;
            if let Ok(now) = kernel::health(stream) {
                let before = std::mem::replace(&mut self.health, now);
                let mut is_starved = false;
                self.fleet.tell(|fleet| {
                    fleet.observe(before, now);
                    is_starved = fleet.is_starved(now);
                });
                if is_starved {
                    self.find_anew(stream);
                }
            }
        }
        if self.fleet.is_lossy.load(Relaxed) && self.is_in_bulk() {
            kernel::use_bbr(stream);
            self.pace = Pace::Bbr;
        }
    }

    fn find_anew(&self, stream: &TcpStream) {
        match self.pace {
            Pace::Kernel => kernel::find_anew(stream),
            Pace::Bbr => kernel::use_bbr(stream),
        }
    }

    /// Notes that bytes arrived.
    fn answered(&mut self) {
        self.sent = 0;
        self.stop_sending();
    }

    fn stop_sending(&mut self) {
        if std::mem::take(&mut self.is_sending) {
            self.fleet.tell(fleet::Fleet::end);
        }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.stop_sending();
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
        if buffer.filled().len() > before
            && let Some(far) = &mut self.far
        {
            far.answered();
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
