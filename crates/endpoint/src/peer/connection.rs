//! Connections to a peer: opened with the pinned key, watched for progress.

use std::{
    future::Future,
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::TlsConnector;

use super::body::{Body, Sending};
use crate::{
    Error, ErrorKind, Locus, Result,
    gateway::{Way, Ways, connect_by},
    line::{Counted, Fleet, LONG_PATH, Line},
    relay::{Fingerprint, pin},
};

/// Timeout of a TCP connection. A SYN lost twice is sent a third time after 3 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// Timeout of the TLS handshake: a round trip, and some arithmetic of a machine that may be busy.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time without a byte in either direction after which a request is given up.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between checks of progress.
const STALL_CHECK: Duration = Duration::from_secs(1);

/// Longest idle time of a connection that is used again: peers close them after 60 s.
const IDLE_MAX: Duration = Duration::from_secs(45);

/// Address of a peer, and the key it must have.
pub(super) struct Target {
    /// Host name or address.
    pub(super) host: String,
    pub(super) port: u16,
    /// Address for messages.
    pub(super) shown: Arc<str>,
    pub(super) server_name: ServerName<'static>,
    pub(super) tls: TlsConnector,
    /// Routes to it.
    pub(super) ways: Ways,
}

impl Target {
    /// Creates a target whose key has this fingerprint, with the routes to it.
    pub(super) fn new(
        host: &str,
        port: u16,
        fingerprint: Fingerprint,
        shown: &str,
        ways: Vec<Way>,
    ) -> Result<Self> {
        let invalid = || Error::new(ErrorKind::Invalid, "connect to", shown);
        let server_name =
            ServerName::try_from(host.to_owned()).map_err(|cause| invalid().cause(cause))?;
        let config = pin::client_config(fingerprint).map_err(|cause| invalid().cause(cause))?;
        Ok(Self {
            host: host.to_owned(),
            port,
            server_name,
            tls: TlsConnector::from(Arc::new(config)),
            shown: shown.into(),
            ways: Ways::new(ways),
        })
    }
}

/// Sender of requests.
enum Sender {
    /// HTTP/1.1, one request at a time.
    Http1(http1::SendRequest<Body>),
    /// HTTP/2, many requests on one channel.
    Http2(http2::SendRequest<Body>),
}

/// Open connection. Dropping it closes it.
pub(super) struct Connection {
    sender: Sender,
    pub(super) activity: Arc<AtomicU64>,
    /// True if it sends bulk data.
    pub(super) is_bulk: Arc<AtomicBool>,
    /// Owner of the future that drives the connection.
    _driver: JoinSet<()>,
    pub(super) idle_since: Instant,
    /// True if a request was made on it.
    pub(super) used: bool,
    /// Route that it takes.
    pub(super) way: usize,
}

impl Connection {
    /// Creates a share in a channel that another owner drives.
    pub(super) fn shared(sender: http2::SendRequest<Body>, activity: Arc<AtomicU64>) -> Self {
        Self {
            sender: Sender::Http2(sender),
            activity,
            is_bulk: Arc::default(),
            _driver: JoinSet::new(),
            idle_since: Instant::now(),
            used: true,
            way: 0,
        }
    }

    /// Returns whether a request may be made on it.
    pub(super) fn is_usable(&self) -> bool {
        let is_closed = match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        };
        !is_closed && self.idle_since.elapsed() < IDLE_MAX
    }

    /// Makes a request.
    pub(super) async fn send(
        &mut self,
        request: Request<Body>,
    ) -> hyper::Result<Response<Incoming>> {
        match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

/// Runs a step of a request for as long as bytes move, or could move if the source yielded any.
pub(super) async fn watch<T>(
    activity: &AtomicU64,
    shown: &str,
    sending: Option<&Sending>,
    operation: &'static str,
    step: impl Future<Output = T>,
) -> Result<T> {
    let mut step = pin!(step);
    let mut seen = activity.load(Relaxed);
    let mut since = Instant::now();
    loop {
        tokio::select! {
            output = &mut step => return Ok(output),
            () = sleep(STALL_CHECK) => {}
        }
        let now = activity.load(Relaxed);
        let is_starved = sending.is_some_and(|sending| sending.is_starved.load(Relaxed));
        if now != seen || is_starved {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() >= STALL_TIMEOUT {
            return Err(Error::new(ErrorKind::TimedOut, operation, shown)
                .at(Locus::Network)
                .cause(format!("nothing moved for {} s", STALL_TIMEOUT.as_secs())));
        }
    }
}

/// Opens a connection by the first route that opens; `on_rtt` receives its round trip time.
pub(super) async fn open(
    target: &Target,
    fleet: Arc<Fleet>,
    on_rtt: impl Fn(Duration),
) -> Result<Connection> {
    let mut last = None;
    for way in target.ways.to_try() {
        match open_by(target, way, Arc::clone(&fleet), &on_rtt).await {
            Ok(connection) => return Ok(connection),
            Err(error) => {
                target.ways.failed(way);
                last = Some(match last {
                    Some(before) => error.with("another way", before),
                    None => error,
                });
            }
        }
    }
    Err(last.unwrap_or_else(|| {
        Error::new(ErrorKind::Invalid, "connect to", &*target.shown).cause("there is no way")
    }))
}

/// Opens a TCP connection and measures how long that takes: through gateways no less than one round
/// trip over the whole path.
async fn connect(target: &Target, way: usize) -> Result<(TcpStream, Duration)> {
    let hops = target.ways.hops(way);
    if !hops.is_empty() {
        return connect_by(hops, &target.host, target.port, None).await;
    }
    let started = Instant::now();
    let connect = TcpStream::connect((target.host.as_str(), target.port));
    let stream = timeout(CONNECT_TIMEOUT, connect)
        .await
        .map_err(|_| late(target))?
        .map_err(|cause| failed(target, cause))?;
    Ok((stream, started.elapsed()))
}

const HINT: &str = "is it running, and does a firewall let its port through?";

fn failed(target: &Target, cause: io::Error) -> Error {
    Error::io("connect to", &*target.shown, cause)
        .at(Locus::Network)
        .hint(HINT)
}

fn late(target: &Target) -> Error {
    Error::new(ErrorKind::TimedOut, "connect to", &*target.shown)
        .at(Locus::Network)
        .cause("no answer")
        .hint(HINT)
}

async fn open_by(
    target: &Target,
    way: usize,
    fleet: Arc<Fleet>,
    on_rtt: &impl Fn(Duration),
) -> Result<Connection> {
    let (stream, rtt) = connect(target, way).await?;
    on_rtt(rtt);
    let is_bulk = Arc::new(AtomicBool::new(false));
    let stream = if rtt >= LONG_PATH {
        Line::far(stream, fleet, Arc::clone(&is_bulk))
    } else {
        Line::near(stream)
    };
    let activity = Arc::new(AtomicU64::new(0));
    let counted = Counted::new(stream, Arc::clone(&activity));
    let shake = target.tls.connect(target.server_name.clone(), counted);
    let stream = timeout(HANDSHAKE_TIMEOUT, shake)
        .await
        .map_err(|_| late(target))?
        .map_err(|cause| pin::handshake_error(&target.shown, cause))?;
    let (sender, driver) = http1::Builder::new()
        .writev(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|cause| failed(target, io::Error::other(cause)))?;
    Ok(Connection {
        sender: Sender::Http1(sender),
        activity,
        is_bulk,
        _driver: drive(async {
            let _ = driver.await;
        }),
        idle_since: Instant::now(),
        used: false,
        way,
    })
}

/// Drives a connection. Its errors reach the requests on it; nobody else needs them.
fn drive(driver: impl Future<Output = ()> + Send + 'static) -> JoinSet<()> {
    let mut drivers = JoinSet::new();
    drivers.spawn(driver);
    drivers
}
