//! Connections to one relay: opened with the pinned key, watched for progress, kept for reuse.

use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    RelayAddress,
    cargo::Body,
    pin,
    pulse::{Arrivals, Pulse},
    turnstile::{Haste, Pass, Turnstile},
};
use crate::{
    Boxed, Error, ErrorKind, Locus, Result,
    gateway::{Reserved, Way, Ways, connect_by},
    line::Humble,
};

/// Connections to one relay at once. Four fill a path that one TCP stream can't; twice as many let
/// small requests (manifest, inventory) pass beside the fragments.
const CONNECTIONS_MAX: usize = 8;
/// Connections beside them for what must never wait behind fragments: how the relay is.
const URGENT_CONNECTIONS_MAX: usize = 2;
/// A relay that can be reached at all answers a SYN within this, even on the far side of the world.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// TLS takes two round trips and some arithmetic of a relay that may be busy.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A request on which no byte moved either way for this long is given up.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How often progress is looked at.
const STALL_CHECK: Duration = Duration::from_secs(1);
/// Connections idle for longer are not used again: relays close them after 60 s.
const IDLE_MAX: Duration = Duration::from_secs(20);
/// What the kernel may hold unsent. Little, so that a path that becomes slow still shows that bytes move: megabytes that
/// it took when the path was fast would hide it for longer than [`STALL_TIMEOUT`].
const UNSENT_BYTES_MAX: u32 = 256 << 10;
/// What kernels hold of a body between our last write and the relay's last read, per connection:
/// the largest default send and receive buffers of Linux.
const KERNEL_BUFFER_BYTES: u64 = 10 << 20;

/// Bytes that crossed the network, TLS included.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    /// Of what was sent straight: what the relay's kernel has acknowledged.
    pub(super) arrived: Arc<Arrivals>,
    /// The shortest TCP handshake straight to the relay, in microseconds; 0 before the first.
    pub(super) round_trip_micros: AtomicU64,
}

impl Traffic {
    fn saw_round_trip(&self, span: Duration) {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1);
        let shorter = |known| (known == 0 || micros < known).then_some(micros);
        // Refused where it is no shorter.
        let _ = self
            .round_trip_micros
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, shorter);
    }
}

/// How connections stand to others on their path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manners {
    /// They share it.
    Ordinary,
    /// They take only what others leave.
    Humble,
}

/// A TCP stream that counts.
pub(super) struct Counted {
    pub(super) stream: TcpStream,
    humble: Option<Humble>,
    pulse: Arc<Pulse>,
    traffic: Arc<Traffic>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(context, buffer);
        let count = (buffer.filled().len() - before) as u64;
        self.pulse.moved(count);
        self.traffic.received.fetch_add(count, Ordering::Relaxed);
        poll
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = &poll {
            let this = &mut *self;
            if let Some(humble) = &mut this.humble {
                humble.wrote(*count, &this.stream);
            }
            self.pulse.moved(*count as u64);
            self.traffic
                .sent
                .fetch_add(*count as u64, Ordering::Relaxed);
        }
        poll
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// One open connection. Dropping it closes it.
pub(super) struct Connection {
    pub(super) sender: SendRequest<Body>,
    pulse: Arc<Pulse>,
    /// Owns the future that drives the connection.
    _driver: JoinSet<()>,
    idle_since: Instant,
    /// Which way it goes.
    way: usize,
}

/// A connection that speaks TLS and nothing above it yet.
pub(super) struct Opened {
    pub(super) stream: TlsStream<Counted>,
    pub(super) pulse: Arc<Pulse>,
    /// How long the TCP handshake took.
    pub(super) round_trip: Duration,
    way: usize,
}

/// The right to use one connection.
pub(super) struct Lease {
    pub(super) connection: Connection,
    /// Whether an earlier request used it: then the relay may have closed it meanwhile.
    pub(super) reused: bool,
    pass: Pass,
}

/// All connections to one relay.
pub(super) struct Pool {
    host: String,
    port: u16,
    server_name: ServerName<'static>,
    tls: TlsConnector,
    url: String,
    turnstile: Arc<Turnstile>,
    urgent_turnstile: Arc<Turnstile>,
    idle: Mutex<Vec<Connection>>,
    manners: Manners,
    /// What they are streams of at the gateways on their way: those of different reservations never share one.
    reservation: Option<Reserved>,
    pub(super) ways: Arc<Ways>,
    pub(super) traffic: Arc<Traffic>,
    /// Bytes a second the relay said it takes; 0 when it did not say.
    pub(super) rate_limit: Arc<AtomicU64>,
}

impl Pool {
    pub(super) fn new(address: &RelayAddress, ways: Vec<Way>) -> Result<Self> {
        let (host, port) = address.host_and_port()?;
        let invalid = || Error::new(ErrorKind::Invalid, "use the depot", address.url.clone());
        let server_name =
            ServerName::try_from(host.clone()).map_err(|cause| invalid().cause(cause))?;
        let config =
            pin::client_config(address.fingerprint).map_err(|cause| invalid().cause(cause))?;
        Ok(Self {
            host,
            port,
            server_name,
            tls: TlsConnector::from(Arc::new(config)),
            url: address.url.clone(),
            turnstile: Turnstile::new(CONNECTIONS_MAX),
            urgent_turnstile: Turnstile::new(URGENT_CONNECTIONS_MAX),
            idle: Mutex::new(Vec::new()),
            manners: Manners::Ordinary,
            reservation: None,
            ways: Arc::new(Ways::new(ways)),
            traffic: Arc::default(),
            rate_limit: Arc::default(),
        })
    }

    /// Connections to the same relay beside these, with other manners or as streams of a reservation; what they carry is
    /// counted together.
    pub(super) fn beside(&self, manners: Manners, reservation: Option<Reserved>) -> Self {
        Self {
            host: self.host.clone(),
            port: self.port,
            server_name: self.server_name.clone(),
            tls: self.tls.clone(),
            url: self.url.clone(),
            turnstile: Turnstile::new(CONNECTIONS_MAX),
            urgent_turnstile: Turnstile::new(URGENT_CONNECTIONS_MAX),
            idle: Mutex::new(Vec::new()),
            manners,
            reservation,
            ways: Arc::clone(&self.ways),
            traffic: Arc::clone(&self.traffic),
            rate_limit: Arc::clone(&self.rate_limit),
        }
    }

    /// Waits for the right to a connection, one of a few set apart for what is `urgent`; then takes an idle one (if
    /// `reuse`) or opens one.
    pub(super) async fn lease(&self, reuse: bool, urgent: bool, haste: Haste) -> Result<Lease> {
        let turnstile = if urgent {
            &self.urgent_turnstile
        } else {
            &self.turnstile
        };
        let pass = turnstile.pass(haste).await;
        while let Some(connection) = reuse.then(|| self.take_idle()).flatten() {
            // One of a way that was left, or only stood in for another, has done its service.
            if !connection.sender.is_closed()
                && connection.idle_since.elapsed() < IDLE_MAX
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
                // The request on this connection gets the same error; there is nobody else to tell.
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

    /// Opens a connection of its own, beside those that requests share, by the first way that opens.
    pub(super) fn connect(&self) -> Boxed<'_, Result<Opened>> {
        Box::pin(async move {
            let mut last = None;
            for way in self.ways.to_try() {
                match self.connect_by(way).await {
                    Ok(opened) => return Ok(opened),
                    Err(error) => {
                        self.ways.failed(way);
                        last = Some(match last {
                            Some(before) => error.with("another way", before),
                            None => error,
                        });
                    }
                }
            }
            Err(last.unwrap_or_else(|| {
                Error::new(ErrorKind::Invalid, "connect to", self.url.clone())
                    .cause("there is no way")
            }))
        })
    }

    /// A request over this connection broke.
    pub(super) fn broke(&self, connection: &Connection) {
        self.ways.failed(connection.way);
    }

    async fn connect_by(&self, way: usize) -> Result<Opened> {
        let late = || {
            Error::new(ErrorKind::TimedOut, "connect to", self.url.clone())
                .at(Locus::Network)
                .cause("no answer")
                .hint("is the relay running, and does a firewall let its port through?")
        };
        let hops = self.ways.hops(way);
        let (stream, round_trip) = if hops.is_empty() {
            let started = Instant::now();
            let connect = TcpStream::connect((self.host.as_str(), self.port));
            let stream = timeout(CONNECT_TIMEOUT, connect)
                .await
                .map_err(|_| late())?;
            let stream = stream.map_err(|cause| self.unreachable(cause))?;
            let round_trip = started.elapsed();
            self.traffic.saw_round_trip(round_trip);
            (stream, round_trip)
        } else {
            connect_by(hops, &self.host, self.port, self.reservation.as_ref()).await?
        };
        stream
            .set_nodelay(true)
            .map_err(|cause| self.unreachable(cause))?;
        // An improvement, no need.
        let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
        // What a gateway has taken has not arrived yet.
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
        let shake = self.tls.connect(self.server_name.clone(), counted);
        let stream = timeout(HANDSHAKE_TIMEOUT, shake)
            .await
            .map_err(|_| late())?;
        let stream = stream.map_err(|cause| pin::handshake_error(&self.url, cause))?;
        Ok(Opened {
            stream,
            pulse,
            round_trip,
            way,
        })
    }

    fn unreachable(&self, cause: io::Error) -> Error {
        Error::io("connect to", self.url.clone(), cause)
            .at(Locus::Network)
            .hint("is the relay running, and does a firewall let its port through?")
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
                return Err(Error::new(ErrorKind::TimedOut, operation, self.url.clone())
                    .at(Locus::Network)
                    .cause(format!("nothing moved for {} s", patience.as_secs())));
            }
        }
    }

    /// A relay that limits its rate may take this long to read what kernels already hold.
    fn drain_time(&self) -> Duration {
        match self.rate_limit.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            rate => Duration::from_secs(KERNEL_BUFFER_BYTES * CONNECTIONS_MAX as u64 / rate),
        }
    }
}

impl Connection {
    pub(super) fn pulse(&self) -> Arc<Pulse> {
        Arc::clone(&self.pulse)
    }
}
