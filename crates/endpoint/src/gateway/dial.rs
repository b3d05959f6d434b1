//! Connections, direct or through gateways by HTTP CONNECT.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use posthaste_types::Bytes;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream, lookup_host},
    time::timeout,
};

use super::{
    braid::{Braid, CONNECTIONS_HEADER},
    reserved::Reserved,
    target::{Host, Target},
    token::{TOKEN_LIFETIME_S, mint},
};
use crate::{Error, ErrorKind, Locus, Result, clock};

/// Longest head of a request or an answer, in bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Timeout of a connection to one address, and of the resolver.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;
/// Time for a gateway to reach its target, which may lie behind further ones.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Idle time after which the kernel checks that a connection lives; after four failed checks it is
/// given up.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Most gateways on one route.
pub const HOPS_MAX: usize = 8;

/// TCP settings of one segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Segment {
    /// Kernel's name of a congestion control, such as `bbr` or `cubic`; without one, the machine's
    /// own.
    pub congestion: Option<String>,
    /// Bytes the kernel may hold for each direction: rate times round trip of the segment. Without
    /// it the kernel decides, up to `net.ipv4.tcp_wmem` and `tcp_rmem`.
    pub buffer: Option<Bytes>,
}

/// The next gateway, and the secret that opens it.
#[derive(Clone)]
pub struct Hop {
    /// Address at which it listens.
    pub address: Target,
    /// Secret of the gateway.
    pub secret: [u8; 32],
}

impl std::fmt::Debug for Hop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hop({}, hidden)", self.address)
    }
}

/// A way to a place.
#[derive(Debug, Clone)]
pub struct Way {
    /// Name for people: the names of its gateways, or `straight`.
    pub name: String,
    /// Gateways, the nearest first; none on the direct route.
    pub hops: Vec<Hop>,
}

impl Way {
    /// Returns the way without gateways.
    #[must_use]
    pub fn straight() -> Self {
        Self {
            name: String::from("straight"),
            hops: Vec::new(),
        }
    }
}

/// Sets up the TCP of a segment. Settings that the kernel lacks were refused at the start.
///
/// # Errors
/// The operating system's error.
pub fn tune(socket: SockRef<'_>, segment: &Segment) -> std::io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE);
    socket.set_tcp_keepalive(&keepalive.with_retries(4))?;
    if let Some(congestion) = &segment.congestion {
        socket.set_tcp_congestion(congestion.as_bytes())?;
    }
    if let Some(buffer) = segment.buffer {
        // The kernel doubles the given size, for its own bookkeeping.
        let bytes = usize::try_from(buffer.get()).unwrap_or(usize::MAX);
        socket.set_send_buffer_size(bytes)?;
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(())
}

/// Returns the addresses of a host, each a canonical one.
///
/// # Errors
/// [`ErrorKind::Unreachable`] and [`ErrorKind::TimedOut`].
pub async fn resolve(target: &Target) -> Result<Vec<IpAddr>> {
    let name = match &target.host {
        Host::Address(address) => return Ok(vec![*address]),
        Host::Name(name) => name.as_str(),
    };
    let failed = |kind| Error::new(kind, "look up", name.to_owned()).at(Locus::Network);
    let found = timeout(CONNECT_TIMEOUT, lookup_host((name, target.port)))
        .await
        .map_err(|_| failed(ErrorKind::TimedOut))?
        .map_err(|cause| failed(ErrorKind::Unreachable).cause(cause))?;
    let found = found.map(|at| at.ip().to_canonical()).take(ADDRESSES_MAX);
    Ok(found.collect())
}

async fn connect_to(address: SocketAddr, segment: &Segment) -> Result<TcpStream> {
    let failed = |kind| Error::new(kind, "connect to", address.to_string()).at(Locus::Network);
    let begin = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // Before the connection, since the window's scale is negotiated then.
        tune(SockRef::from(&socket), segment)?;
        std::io::Result::Ok(socket)
    };
    let socket = begin().map_err(|cause| failed(ErrorKind::Other).cause(cause))?;
    match timeout(CONNECT_TIMEOUT, socket.connect(address)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(cause)) => Err(failed(ErrorKind::Unreachable).cause(cause)),
        Err(_) => Err(failed(ErrorKind::TimedOut)),
    }
}

/// Connects to the first of the addresses that answers.
///
/// # Errors
/// [`ErrorKind::Unreachable`] and [`ErrorKind::TimedOut`], of the last address.
pub async fn connect(
    target: &Target,
    addresses: &[IpAddr],
    segment: &Segment,
) -> Result<TcpStream> {
    let mut last = None;
    for &address in addresses {
        match connect_to(SocketAddr::new(address, target.port), segment).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| {
        Error::new(ErrorKind::Unreachable, "look up", target.to_string())
            .cause("it has no address")
            .at(Locus::Network)
    }))
}

/// Reads on from `read` to the empty line. Also returns the bytes behind it.
///
/// # Errors
/// Fails if the connection breaks or ends before that, or if the head is longer than 8 KiB.
pub async fn read_head(
    stream: &mut TcpStream,
    mut read: Vec<u8>,
) -> io::Result<(Vec<u8>, Vec<u8>)> {
    loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let behind = read.split_off(end + 4);
            return Ok((read, behind));
        }
        if read.len() > HEAD_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "its head does not end",
            ));
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Request to a gateway.
#[derive(Debug, Clone, Copy)]
pub struct Passage<'a> {
    /// Target of the stream.
    pub target: &'a Target,
    /// Gateways that it came through.
    pub path: &'a [String],
    /// Reservation that the stream belongs to.
    pub reservation: Option<&'a Reserved>,
    /// Connections that may carry the stream on the segment to that gateway. A gateway without
    /// braids uses one.
    pub connections: u8,
}

/// Stream that a gateway opened.
#[derive(Debug)]
pub struct Opened {
    /// Connection that leads there.
    pub stream: TcpStream,
    /// Bytes that followed the answer.
    pub early: Vec<u8>,
    /// Braid that further connections may join; data then travels in its frames.
    pub braid: Option<Braid>,
}

/// Asks a gateway, over a connection that leads to it, for a stream to a target.
///
/// # Errors
/// See [`connect_through`].
pub async fn ask(stream: TcpStream, hop: &Hop, passage: &Passage<'_>) -> Result<Opened> {
    let target = passage.target;
    let token = mint(
        &hop.secret,
        Some(target),
        clock::unix_secs() + TOKEN_LIFETIME_S,
    );
    let mut head = format!(
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Bearer {token}\r\n"
    );
    if !passage.path.is_empty() {
        head += &format!("Posthaste-Path: {}\r\n", passage.path.join(","));
    }
    if let Some(reserved) = passage.reservation {
        head += &format!("Posthaste-Reservation: {reserved}\r\n");
    }
    if passage.connections > 1 {
        head += &format!("{CONNECTIONS_HEADER}: {}\r\n", passage.connections);
    }
    let answered = exchange(stream, &hop.address, head).await;
    let (stream, early, braid) = answered.map_err(|error| error.with("target", target))?;
    Ok(Opened {
        stream,
        early,
        // An offer that was not requested is not understood either.
        braid: braid.filter(|_| passage.connections > 1),
    })
}

/// Sends a head without its empty line, and reads the answer and the braid it offers.
pub(super) async fn exchange(
    mut stream: TcpStream,
    gateway: &Target,
    mut head: String,
) -> Result<(TcpStream, Vec<u8>, Option<Braid>)> {
    head += "\r\n";
    let failed =
        |kind| Error::new(kind, "go through the gateway", gateway.to_string()).at(Locus::Network);
    let exchange = async {
        stream.write_all(head.as_bytes()).await?;
        read_head(&mut stream, Vec::new()).await
    };
    let (head, early) = timeout(ANSWER_TIMEOUT, exchange)
        .await
        .map_err(|_| failed(ErrorKind::TimedOut))?
        .map_err(|cause| failed(ErrorKind::Unreachable).cause(cause))?;
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let status = match response.parse(&head) {
        Ok(httparse::Status::Complete(_)) => response.code.unwrap_or(0),
        Ok(httparse::Status::Partial) | Err(_) => 0,
    };
    let kind = match status {
        200 => return Ok((stream, early, Braid::of(response.headers))),
        403 => ErrorKind::PermissionDenied,
        407 => ErrorKind::Unauthenticated,
        502 => ErrorKind::Unreachable,
        503 => ErrorKind::Busy,
        504 => ErrorKind::TimedOut,
        508 => ErrorKind::Conflict,
        _ => ErrorKind::Other,
    };
    let said = response.reason.filter(|reason| !reason.is_empty());
    let said = said
        .unwrap_or("it does not speak as a gateway does")
        .to_owned();
    Err(failed(kind).cause(said))
}

/// Connects to `target` through gateways, the nearest first; directly without any.
///
/// # Errors
/// [`ErrorKind::Unreachable`] and [`ErrorKind::TimedOut`] of the network; the gateway's refusal:
/// [`ErrorKind::PermissionDenied`], [`ErrorKind::Unauthenticated`], [`ErrorKind::Busy`],
/// [`ErrorKind::Conflict`] for a loop.
pub async fn connect_through(hops: &[Hop], target: &Target) -> Result<(TcpStream, Vec<u8>)> {
    connect_reserved(hops, target, None).await
}

/// Connects as [`connect_through`] does, as one of a reservation's streams at each gateway that
/// reserves.
///
/// # Errors
/// The errors of [`connect_through`]; [`ErrorKind::PermissionDenied`] also for a reservation that a
/// gateway doesn't know, unless it is optional.
pub async fn connect_reserved(
    hops: &[Hop],
    target: &Target,
    reservation: Option<&Reserved>,
) -> Result<(TcpStream, Vec<u8>)> {
    let segment = Segment::default();
    let first = hops.first().map_or(target, |hop| &hop.address);
    let addresses = resolve(first).await?;
    let stream = connect(first, &addresses, &segment).await?;
    let mut end = (stream, Vec::new());
    for (at, hop) in hops.iter().enumerate() {
        if !end.1.is_empty() {
            return Err(Error::new(
                ErrorKind::Other,
                "go through the gateway",
                hop.address.to_string(),
            )
            .cause("it speaks before it is asked"));
        }
        let next = hops.get(at + 1).map_or(target, |next| &next.address);
        let passage = Passage {
            target: next,
            path: &[],
            reservation,
            connections: 1,
        };
        let opened = ask(end.0, hop, &passage).await?;
        end = (opened.stream, opened.early);
    }
    Ok(end)
}
