//! Connections to one relay: opened with the pinned key, watched for progress, kept for reuse.

use std::{
    future::Future,
    io,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::{
    RelayAddress,
    cargo::Body,
    exchange::Call,
    pin,
    place::Place,
    pulse::Pulse,
    stream::{Counted, Stream, Traffic},
    turnstile::{Pass, Turnstile},
};
use crate::{
    Boxed, Error, ErrorKind, Locus, Result,
    gateway::{Reserved, Way, Ways, connect_by},
    line::Humble,
    reach::{REFUSED_HINT, Reach},
};

/// Most connections to one relay at once. Four fill a path that one TCP stream can't; twice as many
/// let small requests (manifest, inventory) pass beside the fragments.
const CONNECTIONS_MAX: usize = 8;
/// Further connections for requests that must never wait behind fragments, such as the status.
const URGENT_CONNECTIONS_MAX: usize = 2;
/// Timeout of a TCP connection. A reachable relay answers a SYN within this, even on the far side
/// of the world.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of the TLS handshake: two round trips, and some arithmetic of a relay that may be busy.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without a byte in either direction after which a request is given up.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between checks of progress.
const STALL_CHECK: Duration = Duration::from_secs(1);
/// Most stores that presigned URLs of one relay lead to: more than one only while it moves.
const STORES_MAX: usize = 2;
/// Most bytes that the kernel may hold unsent. Few, so that a path that becomes slow still shows
/// progress: megabytes buffered while the path was fast would hide it for longer than
/// [`STALL_TIMEOUT`].
const UNSENT_BYTES_MAX: u32 = 256 << 10;
/// Bytes per connection that kernels may hold between our last write and the relay's last read: the
/// largest default send and receive buffers of Linux.
const KERNEL_BUFFER_BYTES: u64 = 10 << 20;

/// Behaviour of connections towards others on their path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manners {
    /// Share the path.
    Ordinary,
    /// Use only the rate that others leave.
    Humble,
}

/// Open connection. Dropping it closes it.
pub(super) struct Connection {
    pub(super) sender: SendRequest<Body>,
    pulse: Arc<Pulse>,
    /// Owner of the future that drives the connection.
    _driver: JoinSet<()>,
    idle_since: Instant,
    /// Route that it takes.
    way: usize,
}

/// Connection that has carried no request yet.
pub(super) struct Opened {
    pub(super) stream: Stream,
    pub(super) pulse: Arc<Pulse>,
    /// Duration of the TCP handshake.
    pub(super) round_trip: Duration,
    way: usize,
}

/// Right to use one connection.
pub(super) struct Lease {
    pub(super) connection: Connection,
    /// True if an earlier request used it: the relay may have closed it since.
    pub(super) reused: bool,
    pass: Pass,
}

/// All connections to one relay, or to the store in which it keeps everything.
pub(super) struct Pool {
    pub(super) place: Place,
    turnstile: Arc<Turnstile>,
    urgent_turnstile: Arc<Turnstile>,
    idle: Mutex<Vec<Connection>>,
    manners: Manners,
    /// Reservation whose streams they are at gateways: streams of different reservations never
    /// share a connection.
    reservation: Option<Reserved>,
    pub(super) ways: Arc<Ways>,
    pub(super) traffic: Arc<Traffic>,
    /// Rate limit that the relay reported, in bytes per second; 0 if it reported none.
    pub(super) rate_limit: Arc<AtomicU64>,
    /// True if the relay hands out presigned URLs instead of accepting bytes itself; set once that
    /// is known.
    pub(super) lets_through: Arc<AtomicBool>,
    pub(super) is_known: Arc<AtomicBool>,
    /// Time at which a sender last asked for that.
    pub(super) asked_at: Arc<tokio::sync::Mutex<Option<Instant>>>,
    /// True if the store checks uploads by MD5 only.
    pub(super) needs_md5: Arc<AtomicBool>,
    /// Addresses that may be reached directly.
    reach: Reach,
    /// Connections to the stores behind its presigned URLs.
    stores: Mutex<Vec<Arc<Pool>>>,
}

impl Pool {
    pub(super) fn new(address: &RelayAddress, ways: Vec<Way>) -> Result<Self> {
        Ok(Self::of(Place::of_relay(address)?, ways))
    }

    /// Creates a pool about whose relay nothing is known yet.
    pub(super) fn of(place: Place, ways: Vec<Way>) -> Self {
        Self {
            place,
            turnstile: Turnstile::new(CONNECTIONS_MAX),
            urgent_turnstile: Turnstile::new(URGENT_CONNECTIONS_MAX),
            idle: Mutex::new(Vec::new()),
            manners: Manners::Ordinary,
            reservation: None,
            ways: Arc::new(Ways::new(ways)),
            traffic: Arc::default(),
            rate_limit: Arc::default(),
            lets_through: Arc::default(),
            is_known: Arc::default(),
            asked_at: Arc::default(),
            needs_md5: Arc::default(),
            reach: Reach::default(),
            stores: Mutex::default(),
        }
    }

    /// Returns an unused pool that connects only where `reach` permits.
    pub(super) fn reaching(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    /// Creates a separate pool to the same relay, with other manners or for a reservation; both
    /// count their bytes together.
    pub(super) fn beside(&self, manners: Manners, reservation: Option<Reserved>) -> Self {
        Self {
            manners,
            reservation,
            ways: Arc::clone(&self.ways),
            traffic: Arc::clone(&self.traffic),
            rate_limit: Arc::clone(&self.rate_limit),
            lets_through: Arc::clone(&self.lets_through),
            is_known: Arc::clone(&self.is_known),
            asked_at: Arc::clone(&self.asked_at),
            needs_md5: Arc::clone(&self.needs_md5),
            reach: self.reach.clone(),
            ..Self::of(self.place.clone(), Vec::new())
        }
    }

    /// Returns the pool for the store at `base`, with the same manners; its bytes count as the
    /// relay's.
    ///
    /// # Errors
    /// Errors of [`Place::of_store`].
    pub(super) fn store(&self, base: &str) -> Result<Arc<Self>> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = stores.iter().find(|known| known.place.url == base) {
            return Ok(Arc::clone(known));
        }
        let place = Place::of_store(base, &self.place.host)?;
        if stores.len() >= STORES_MAX {
            // Requests in progress on its connections continue.
            stores.remove(0);
        }
        let store = Arc::new(Self {
            manners: self.manners,
            traffic: Arc::clone(&self.traffic),
            reach: self.reach.clone(),
            ..Self::of(place, vec![Way::straight()])
        });
        stores.push(Arc::clone(&store));
        Ok(store)
    }

    /// Waits for the right to a connection, one of a few reserved ones if the call is urgent. Then
    /// takes an idle connection (if `reuse`) or opens one.
    pub(super) async fn lease(&self, reuse: bool, call: &Call) -> Result<Lease> {
        let turnstile = if call.is_urgent {
            &self.urgent_turnstile
        } else {
            &self.turnstile
        };
        let pass = turnstile.pass(call.haste).await;
        if let Some(departure) = &call.departure
            && !departure.leave()
        {
            let subject = self.place.url.clone();
            return Err(Error::new(ErrorKind::Cancelled, call.operation, subject)
                .cause("it was called back"));
        }
        while let Some(connection) = reuse.then(|| self.take_idle()).flatten() {
            // A connection by a route that is no longer preferred, or was only a fallback, is not
            // kept.
            if !connection.sender.is_closed()
                && connection.idle_since.elapsed() < self.place.idle_max
                && self.ways.is_first(connection.way)
            {
                return Ok(Lease {
                    connection,
                    reused: true,
                    pass,
                });
            }
        }
        let connection = self.open().await?;
        Ok(Lease {
            connection,
            reused: false,
            pass,
        })
    }

    fn take_idle(&self) -> Option<Connection> {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }

    /// Keeps the connection for the next request. At most as many are kept as may be in use.
    pub(super) fn give_back(&self, mut lease: Lease) {
        lease.connection.idle_since = Instant::now();
        self.ways.served(lease.connection.way);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < CONNECTIONS_MAX && !lease.connection.sender.is_closed() {
            idle.push(lease.connection);
        }
        drop(lease.pass);
    }

    fn open(&self) -> Boxed<'_, Result<Connection>> {
        Box::pin(async move {
            let opened = self.connect().await?;
            let (sender, connection) = http1::Builder::new()
                .handshake(TokioIo::new(opened.stream))
                .await
                .map_err(|cause| self.unreachable(io::Error::other(cause)))?;
            let mut driver = JoinSet::new();
            driver.spawn(async move {
                // The request on this connection gets the same error; nobody else needs it.
                let _ = connection.await;
            });
            Ok(Connection {
                sender,
                pulse: opened.pulse,
                _driver: driver,
                idle_since: Instant::now(),
                way: opened.way,
            })
        })
    }

    /// Opens a separate connection, beside those that requests share, by the first route that
    /// opens.
    pub(super) fn connect(&self) -> Boxed<'_, Result<Opened>> {
        Box::pin(async move {
            let mut last = None;
            for way in self.ways.to_try() {
                match self.connect_by(way).await {
                    Ok(opened) => return Ok(opened),
                    Err(error) => {
                        self.ways.failed(way);
                        last = Some(match last {
                            Some(before) if weight(&before) > weight(&error) => {
                                before.with("another way", error)
                            }
                            Some(before) => error.with("another way", before),
                            None => error,
                        });
                    }
                }
            }
            Err(last.unwrap_or_else(|| {
                Error::new(ErrorKind::Invalid, "connect to", self.place.url.clone())
                    .cause("there is no way")
            }))
        })
    }

    /// Records that a request over this connection broke.
    pub(super) fn broke(&self, connection: &Connection) {
        self.ways.failed(connection.way);
    }

    async fn connect_by(&self, way: usize) -> Result<Opened> {
        let late = || {
            Error::new(ErrorKind::TimedOut, "connect to", self.place.url.clone())
                .at(Locus::Network)
                .cause("no answer")
                .hint(self.place.hint)
        };
        let hops = self.ways.hops(way);
        let (stream, round_trip) = if hops.is_empty() {
            let started = Instant::now();
            let connect = self.reach.connect(&self.place.host, self.place.port);
            let stream = timeout(CONNECT_TIMEOUT, connect)
                .await
                .map_err(|_| late())?;
            let stream = stream.map_err(|cause| self.unreachable(cause))?;
            let round_trip = started.elapsed();
            self.traffic.saw_round_trip(round_trip);
            (stream, round_trip)
        } else {
            let checked = self.reach.check_host(&self.place.host, self.place.port);
            checked.await.map_err(|cause| self.unreachable(cause))?;
            connect_by(
                hops,
                &self.place.host,
                self.place.port,
                self.reservation.as_ref(),
            )
            .await?
        };
        stream
            .set_nodelay(true)
            .map_err(|cause| self.unreachable(cause))?;
        // An optional improvement.
        let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
        // Bytes that a gateway acknowledged have not arrived yet.
        let pulse = match hops.is_empty() {
            true => Pulse::among(&self.traffic.arrived, &stream),
            false => Pulse::of(&stream),
        };
        let pulse = pulse.map_err(|cause| self.unreachable(cause))?;
        let pulse = Arc::new(pulse);
        let humble = match self.manners {
            Manners::Ordinary => None,
            Manners::Humble => Some(Humble::begin(&stream)),
        };
        let counted = Counted {
            stream,
            humble,
            pulse: Arc::clone(&pulse),
            traffic: Arc::clone(&self.traffic),
        };
        let stream = match &self.place.tls {
            None => Stream::Plain(counted),
            Some((tls, name)) => {
                let shake = tls.connect(name.clone(), counted);
                let stream = timeout(HANDSHAKE_TIMEOUT, shake)
                    .await
                    .map_err(|_| late())?;
                let stream =
                    stream.map_err(|cause| pin::handshake_error(&self.place.url, cause))?;
                Stream::Tls(Box::new(stream))
            }
        };
        Ok(Opened {
            stream,
            pulse,
            round_trip,
            way,
        })
    }

    fn unreachable(&self, cause: io::Error) -> Error {
        // The kernel's own refusals have no cause of ours.
        let is_ours = cause.kind() == io::ErrorKind::PermissionDenied && cause.get_ref().is_some();
        Error::io("connect to", self.place.url.clone(), cause)
            .at(Locus::Network)
            .hint(if is_ours {
                REFUSED_HINT
            } else {
                self.place.hint
            })
    }

    /// Runs a step of a request for as long as bytes move.
    pub(super) async fn watch<T>(
        &self,
        connection: &Pulse,
        operation: &'static str,
        step: impl Future<Output = T>,
    ) -> Result<T> {
        let patience = STALL_TIMEOUT + self.drain_time();
        let mut step = pin!(step);
        let mut seen = connection.count();
        let mut since = Instant::now();
        loop {
            tokio::select! {
                output = &mut step => return Ok(output),
                () = sleep(STALL_CHECK) => {}
            }
            let now = connection.count();
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() >= patience {
                return Err(
                    Error::new(ErrorKind::TimedOut, operation, self.place.url.clone())
                        .at(Locus::Network)
                        .cause(format!("nothing moved for {} s", patience.as_secs())),
                );
            }
        }
    }

    /// Returns how long a relay that limits its rate may need to read the bytes that kernels
    /// already hold.
    pub(super) fn drain_time(&self) -> Duration {
        match self.rate_limit.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            rate => Duration::from_secs(KERNEL_BUFFER_BYTES * CONNECTIONS_MAX as u64 / rate),
        }
    }
}

/// Ranks the errors of several routes by what they say about a place that none of them reaches. An
/// answer of the place itself ranks highest. A route that leads nowhere ranks lowest: a place
/// behind a gateway has no direct route, whatever delays the gateway's answer.
fn weight(error: &Error) -> u8 {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "ErrorKind may grow; the rest is alike"
    )]
    match error.kind() {
        ErrorKind::Unreachable => 0,
        ErrorKind::TimedOut | ErrorKind::Busy => 1,
        _ => 2,
    }
}

impl Connection {
    pub(super) fn pulse(&self) -> Arc<Pulse> {
        Arc::clone(&self.pulse)
    }
}
