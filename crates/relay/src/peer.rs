//! Other end of a copy: serves what its user may reach, for as long as its one client lives.
//!
//! `posthaste cp` starts it over SSH. The peer makes a key and a secret that nobody else ever sees,
//! and listens on a free port. It reports all that in one line on standard output. The client
//! connects to that port or, if a firewall forbids that, speaks HTTP/2 through standard input and
//! output. The peer ends with its standard input, whatever ended that.

mod channel;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    os::fd::OwnedFd,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use hyper::{server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use posthaste_endpoint::{
    Error, ErrorKind, Guest, Lobby, Result,
    peer::{Invitation, Owned},
};
use rcgen::KeyPair;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::sleep,
};

use crate::{
    files::{Files, Ground, Space},
    identity::tls_config,
    server::{self, Door, Place},
};
use channel::Channel;

/// Connections served at once: those of one client.
const CONNECTIONS_MAX: usize = 128;

/// Connections that the kernel keeps waiting: a client opens all of its at once.
const BACKLOG: u32 = 256;

/// Maximum of ports tried of a range.
const PORTS_MAX: usize = 4096;

/// Silence after which a client counts as gone, without a report from the network. It shows a sign
/// of life every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// Bytes of one request or answer that may be under way through the channel.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 4 << 20;

/// Bytes of all of them together.
pub(crate) const CHANNEL_WINDOW_BYTES: u32 = 16 << 20;

/// Requests under way through the channel at once.
const STREAMS_MAX: u32 = 256;

/// Bytes of one frame of the channel.
const FRAME_BYTES_MAX: u32 = 256 << 10;

/// Options of a peer.
#[derive(Debug, Clone, Default)]
pub struct PeerOptions {
    /// Address at which to listen; nowhere if `None`.
    pub listen: Option<IpAddr>,
    /// Ports to choose from; any free one if `None`.
    pub ports: Option<RangeInclusive<u16>>,
}

/// Peer that has its port and is ready to run.
pub struct Peer {
    listener: Option<TcpListener>,
    invitation: Invitation,
    files: Arc<Files>,
    door: Door,
}

impl Peer {
    /// Makes the key and the secret and takes a port. If it gets no port, everything goes through
    /// the channel.
    ///
    /// # Errors
    /// [`ErrorKind::Other`] if there is no randomness.
    pub fn open(options: &PeerOptions) -> Result<Self> {
        let failed = |cause: Box<dyn std::error::Error + Send + Sync>| {
            Error::new(ErrorKind::Other, "start", "a peer").cause(cause)
        };
        let key = KeyPair::generate().map_err(|cause| failed(cause.into()))?;
        let (fingerprint, tls) = tls_config(&key).map_err(failed)?;
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|cause| failed(cause.to_string().into()))?;
        let listener = options
            .listen
            .and_then(|address| listen(address, options.ports.as_ref()).ok());
        let local = listener
            .as_ref()
            .and_then(|listener| listener.local_addr().ok());
        let listens = local.map(|local| (local.ip(), local.port()));
        Ok(Self {
            listener,
            invitation: Invitation::new(listens, fingerprint, &secret),
            files: Files::new(Ground::of_user(), Space::Disk, secret, None, false),
            door: Door::new(tls),
        })
    }

    /// Returns the invitation, which only the client must get.
    #[must_use]
    pub fn invitation(&self) -> &Invitation {
        &self.invitation
    }

    /// Serves until `input` ends, or nothing came from it for 90 s.
    ///
    /// # Errors
    /// `input` and `output` are no pipes or sockets.
    pub async fn run(self, input: OwnedFd, output: OwnedFd) -> Result<()> {
        let failed = |cause| {
            Error::io("use", "standard input and output", cause)
                .hint("posthaste cp starts this by itself")
        };
        let channel = Channel::new(input, output).map_err(failed)?;
        let activity = channel.activity();
        let files = Arc::clone(&self.files);
        let answer = service_fn(move |request| {
            let files = Arc::clone(&files);
            async move { Ok::<_, std::convert::Infallible>(files.answer(request).await) }
        });
        let mut channel = pin!(
            http2::Builder::new(Owned::default())
                .timer(TokioTimer::new())
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CHANNEL_WINDOW_BYTES)
                .max_frame_size(FRAME_BYTES_MAX)
                .max_concurrent_streams(STREAMS_MAX)
                .serve_connection(TokioIo::new(channel), answer)
        );
        let (mut lobby, mut connections) = (Lobby::default(), JoinSet::new());
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut silent = pin!(silence(&activity));
        loop {
            tokio::select! {
                // However it ended, the client is gone.
                _ = &mut channel => break,
                () = &mut silent => break,
                Some(_) = connections.join_next() => {}
                (stream, guest) = self.accept(&mut lobby) => {
                    let place = Place::new(guest.clone(), &permits);
                    let (door, files) = (self.door.clone(), Arc::clone(&self.files));
                    let serving = server::serve_files(stream, place, door, files);
                    lobby.add(guest, connections.spawn(serving));
                }
            }
        }
        connections.shutdown().await;
        Ok(())
    }

    async fn accept(&self, lobby: &mut Lobby) -> (TcpStream, Guest) {
        match &self.listener {
            Some(listener) => lobby.accept(listener).await,
            None => std::future::pending().await,
        }
    }
}

/// Returns when the counter has not moved for too long.
async fn silence(activity: &std::sync::atomic::AtomicU64) {
    use std::sync::atomic::Ordering::Relaxed;
    loop {
        let before = activity.load(Relaxed);
        sleep(SILENCE_MAX).await;
        if activity.load(Relaxed) == before {
            return;
        }
    }
}

/// Returns a listener on a free port of the range.
fn listen(address: IpAddr, ports: Option<&RangeInclusive<u16>>) -> io::Result<TcpListener> {
    let bind = |port| {
        let socket = match address {
            IpAddr::V4(_) => TcpSocket::new_v4()?,
            IpAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.bind(SocketAddr::new(address, port))?;
        socket.listen(BACKLOG)
    };
    let Some(ports) = ports else {
        return bind(0);
    };
    let mut failed = io::Error::from(io::ErrorKind::AddrInUse);
    for port in ports.clone().take(PORTS_MAX) {
        match bind(port) {
            Ok(listener) => return Ok(listener),
            Err(cause) => failed = cause,
        }
    }
    Err(failed)
}
