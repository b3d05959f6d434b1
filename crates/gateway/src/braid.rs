//! Braids: streams that several connections carry over one segment.
//!
//! ```text
//! plain ──► frames, each to whoever can send ══ connection 0 ══►  each reads on while there is
//!           first: none has more of it than   ══ connection 1 ══►  room, `order` puts in order ──► plain
//!           it is sending                      ══ connection 2 ══►
//! ```
//!
//! A TCP connection loses half of its window with a lost packet and recovers slowly; of several
//! connections only one loses it. The gateway that opened the first connection opens the others,
//! and each counts from its first frame on. A direction ends on every connection with a frame that
//! gives the stream's length and the number of connections. So a torn stream is never taken for a
//! whole one. If any connection breaks, all are reset, and with them both ends of the stream.
//! Unlike in [`crate::carry`], bytes pass through this process: they must be cut and put in order.

mod book;
mod frame;
mod order;
mod plain;

use std::{
    io,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use posthaste_endpoint::gateway::{Braid, Hop, Segment, join};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UnixStream, tcp::WriteHalf},
    sync::{Mutex as AsyncMutex, Notify, OwnedSemaphorePermit, mpsc},
    task::JoinSet,
    time::timeout,
};

use crate::carry::{self, End, Pipes};
use frame::{Frame, HEADER_BYTES, LOAD_BYTES, nonsense};
use order::Order;
use plain::Plain;

pub(crate) use book::{BRAIDS_MAX, Book, Listed, Stranger};
pub(crate) use frame::try_frames;

/// Bytes in a connection's buffer beyond those in flight: few, as the connection may become slow
/// and no other can send them.
const NOT_SENT_BYTES: u32 = 32 << 10;
/// Time for an accepted connection to send its first frame, and for all announced connections to
/// join.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Side of a stream.
pub(crate) enum Side {
    One(End),
    Several(Box<Several>),
}

/// Connections of a braid, of which the first is open.
pub(crate) struct Several {
    first: End,
    /// Connections that join.
    more: mpsc::Receiver<End>,
    role: Role,
}

/// Role of this end of the segment, with resources that live as long as the braid.
enum Role {
    Opens {
        _opening: JoinSet<()>,
        _permit: OwnedSemaphorePermit,
    },
    LetsIn {
        _listed: Listed,
    },
}

/// Offer by the next gateway of further connections for a stream that it has opened.
pub(crate) struct Offer {
    pub braid: Braid,
    pub hop: Hop,
    /// Address of the next gateway's machine.
    pub address: IpAddr,
    pub segment: Segment,
    pub permit: OwnedSemaphorePermit,
}

impl Several {
    /// Returns the end that accepts further connections.
    pub(crate) fn listed(first: End, listed: Listed, more: mpsc::Receiver<End>) -> Self {
        Self {
            first,
            more,
            role: Role::LetsIn { _listed: listed },
        }
    }

    /// Opens the offered connections. The stream does without those that fail.
    pub(crate) fn opened(first: End, offer: Offer, class: Option<u32>) -> Self {
        let (joins, more) = mpsc::channel(usize::from(offer.braid.connections));
        let Offer {
            braid,
            hop,
            address,
            segment,
            permit,
        } = offer;
        let ways = Arc::new((hop, segment));
        let mut opening = JoinSet::new();
        for number in 1..braid.connections {
            let (ways, joins) = (Arc::clone(&ways), joins.clone());
            opening.spawn(async move {
                let (hop, segment) = &*ways;
                let joined = join(hop, address, segment, (braid.id, number)).await;
                let Ok((stream, early)) = joined else {
                    return;
                };
                let set = class.map_or(Ok(()), |class| SockRef::from(&stream).set_priority(class));
                if set.is_ok() {
                    // Fails once the stream has ended.
                    let _ = joins.send(End { stream, early }).await;
                }
            });
        }
        Self {
            first,
            more,
            role: Role::Opens {
                _opening: opening,
                _permit: permit,
            },
        }
    }
}

/// Waits for the first frame of an accepted connection.
///
/// # Errors
/// If it sends something else, or nothing.
pub(crate) async fn greet(end: &mut End) -> io::Result<()> {
    break_when_closed(&end.stream, Some(Duration::ZERO))?;
    let mut header = [0; HEADER_BYTES];
    let early = end.early.len().min(HEADER_BYTES);
    header[..early].copy_from_slice(&end.early[..early]);
    end.early.drain(..early);
    timeout(HELLO_TIMEOUT, end.stream.read_exact(&mut header[early..])).await??;
    match Frame::read(header)? {
        Frame::Hello => Ok(()),
        Frame::Load { .. } | Frame::End { .. } => {
            Err(nonsense("a connection begins without hello"))
        }
    }
}

/// Carries both directions between two sides until both have ended, like [`carry::carry`].
///
/// # Errors
/// If a connection breaks; then all of both sides are reset.
pub(crate) async fn carry(
    one: Side,
    other: Side,
    pipes: &Pipes,
    carried: &Arc<AtomicU64>,
) -> io::Result<()> {
    match (one, other) {
        (Side::One(one), Side::One(other)) => carry::carry(one, other, pipes, carried).await,
        (Side::One(end), Side::Several(several)) | (Side::Several(several), Side::One(end)) => {
            let woven = weave(end.stream.into(), end.early, *several, Arc::clone(carried)).await?;
            woven.let_go()
        }
        (Side::Several(one), Side::Several(other)) => {
            let (near, far) = UnixStream::pair()?;
            // Each byte counts once.
            let (near, far) = tokio::try_join!(
                weave(near.into(), Vec::new(), *one, Arc::clone(carried)),
                weave(far.into(), Vec::new(), *other, Arc::default()),
            )?;
            near.let_go()?;
            far.let_go()
        }
    }
}

fn break_when_closed(stream: &TcpStream, zero: Option<Duration>) -> io::Result<()> {
    SockRef::from(stream).set_linger(zero)
}

/// Braid that has ended well, with its open sockets.
struct Woven {
    shared: Arc<Shared>,
    connections: Vec<TcpStream>,
}

impl Woven {
    /// Closes the sockets without a reset.
    fn let_go(self) -> io::Result<()> {
        let mut all = self.connections.iter();
        all.try_for_each(|stream| break_when_closed(stream, None))?;
        self.shared.plain.break_when_closed(None)
    }
}

/// State that all connections of a braid share.
struct Shared {
    plain: Plain,
    /// Bytes already read of the plain end, for the connection that reads on.
    early: AsyncMutex<Vec<u8>>,
    state: Mutex<State>,
    /// Signals that there may be space now.
    moved: Notify,
    /// Signals that there may be something to write.
    arrived: Notify,
    carried: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    order: Order,
    /// Bytes read of the plain end.
    given: u64,
    /// True once the plain end has been read to its end; from then on no further connection joins.
    has_given_all: bool,
    /// Connections that count.
    connections: u8,
    /// Connections that have announced the stream's length.
    ended: u8,
    /// Number of connections that the other end announced, as far as known.
    announced: u8,
}

impl State {
    fn have_all_come(&self) -> bool {
        self.connections >= self.announced
    }

    /// Returns whether the incoming direction has ended on each connection, so that none that
    /// breaks now could have brought more.
    fn is_over(&self) -> bool {
        self.announced > 0 && self.ended >= self.announced && self.order.is_whole()
    }
}

/// Cuts one end's bytes into frames, and puts incoming frames in order.
async fn weave(
    plain: Plain,
    early: Vec<u8>,
    several: Several,
    carried: Arc<AtomicU64>,
) -> io::Result<Woven> {
    plain.break_when_closed(Some(Duration::ZERO))?;
    let shared = Arc::new(Shared {
        plain,
        early: AsyncMutex::new(early),
        state: Mutex::default(),
        moved: Notify::new(),
        arrived: Notify::new(),
        carried,
    });
    let Several {
        first,
        mut more,
        role,
    } = several;
    let mut running: JoinSet<io::Result<Option<TcpStream>>> = JoinSet::new();
    running.spawn(Arc::clone(&shared).write());
    shared.state().connections = 1;
    running.spawn(Arc::clone(&shared).run(first, false));
    let mut connections = Vec::new();
    let mut may_join = true;
    loop {
        if running.is_empty() && shared.state().have_all_come() {
            return Ok(Woven {
                shared,
                connections,
            });
        }
        tokio::select! {
            joined = more.recv(), if may_join => match (joined, &role) {
                (Some(end), Role::Opens { .. }) => {
                    if shared.takes_one_more() {
                        running.spawn(Arc::clone(&shared).run(end, true));
                    }
                }
                (Some(end), Role::LetsIn { .. }) => {
                    shared.state().connections += 1;
                    running.spawn(Arc::clone(&shared).run(end, false));
                }
                (None, _) => may_join = false,
            },
            Some(ended) = running.join_next() => {
                connections.extend(ended.map_err(io::Error::other)??);
            }
            // Only announced connections can still come.
            () = tokio::time::sleep(HELLO_TIMEOUT), if running.is_empty() => {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a further connection, unless their number has already been announced.
    fn takes_one_more(&self) -> bool {
        let mut state = self.state();
        let may = !state.has_given_all;
        state.connections += u8::from(may);
        may
    }

    /// Carries both directions of one connection, and returns it.
    async fn run(self: Arc<Self>, end: End, says_hello: bool) -> io::Result<Option<TcpStream>> {
        let End { mut stream, early } = end;
        break_when_closed(&stream, Some(Duration::ZERO))?;
        SockRef::from(&stream).set_tcp_notsent_lowat(NOT_SENT_BYTES)?;
        let (read, mut write) = stream.split();
        let give = async {
            if says_hello {
                write.write_all(&Frame::Hello.to_bytes()).await?;
            }
            self.give(write).await
        };
        tokio::try_join!(give, self.take(early.as_slice().chain(read)))?;
        Ok(Some(stream))
    }

    /// Sends the next frame whenever this connection has sent the one before.
    async fn give(&self, mut to: WriteHalf<'_>) -> io::Result<()> {
        let mut frame = vec![0; HEADER_BYTES + LOAD_BYTES];
        loop {
            let (header, length) = self.cut(&mut frame[HEADER_BYTES..]).await?;
            frame[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
            to.write_all(&frame[..HEADER_BYTES + length]).await?;
            self.carried.fetch_add(length as u64, Relaxed);
            if matches!(header, Frame::End { .. }) {
                return to.shutdown().await;
            }
        }
    }

    /// Reads the next frame's load from the plain end. Connections wait for it one at a time.
    async fn cut(&self, room: &mut [u8]) -> io::Result<(Frame, usize)> {
        let mut early = self.early.lock().await;
        let has_all = self.state().has_given_all;
        let length = if has_all {
            0
        } else if early.is_empty() {
            self.plain.read(room).await?
        } else {
            let length = early.len().min(room.len());
            room[..length].copy_from_slice(&early[..length]);
            early.drain(..length);
            length
        };
        let mut state = self.state();
        let offset = state.given;
        state.given += length as u64;
        if length > 0 {
            return Ok((Frame::Load { offset, length }, length));
        }
        state.has_given_all = true;
        let connections = state.connections;
        let total = offset;
        Ok((Frame::End { total, connections }, 0))
    }

    /// Receives frames on one connection, as far as there is space.
    async fn take(&self, mut from: impl AsyncRead + Unpin) -> io::Result<()> {
        loop {
            let mut header = [0; HEADER_BYTES];
            from.read_exact(&mut header).await?;
            match Frame::read(header)? {
                Frame::Hello => return Err(nonsense("a connection says hello in mid-stream")),
                Frame::Load { offset, length } => {
                    self.room(offset, length).await;
                    let mut load = vec![0; length];
                    from.read_exact(&mut load).await?;
                    self.state().order.put(offset, load)?;
                    // A waiting frame may be the next one now.
                    self.moved.notify_waiters();
                    self.arrived.notify_one();
                }
                Frame::End { total, connections } => return self.ended(total, connections),
            }
        }
    }

    async fn room(&self, offset: u64, length: usize) {
        loop {
            let moved = self.moved.notified();
            if self.state().order.admit(offset, length) {
                return;
            }
            moved.await;
        }
    }

    /// Records that a connection has ended.
    fn ended(&self, total: u64, connections: u8) -> io::Result<()> {
        let mut state = self.state();
        state.order.end(total)?;
        state.announced = state.announced.max(connections);
        state.ended += 1;
        if state.ended >= state.announced && !state.order.is_whole() {
            return Err(nonsense("the stream ended with a gap"));
        }
        self.arrived.notify_one();
        Ok(())
    }

    /// Writes ordered bytes to the plain end, and then ends it.
    async fn write(self: Arc<Self>) -> io::Result<Option<TcpStream>> {
        loop {
            let (next, is_over) = {
                let mut state = self.state();
                (state.order.next(), state.is_over())
            };
            let Some(load) = next else {
                if is_over {
                    self.plain.end()?;
                    return Ok(None);
                }
                self.arrived.notified().await;
                continue;
            };
            self.plain.write(&load).await?;
            self.carried.fetch_add(load.len() as u64, Relaxed);
            self.state().order.wrote(load.len());
            self.moved.notify_waiters();
        }
    }
}
