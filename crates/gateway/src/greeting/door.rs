//! SOCKS5 port on this machine for one command that uses gateways.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use posthaste_endpoint::{
    Error, Result,
    gateway::{Hop, Reserved, connect_reserved},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{Greeting, accept, read, refuse};
use crate::carry::{End, Pipes, carry};

/// Most streams of one command at once.
const STREAMS_MAX: usize = 512;
/// Time for a client to send its greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept: the process has too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// SOCKS5 port on loopback that leads clients with its password through the gateways.
pub struct LocalDoor {
    listener: TcpListener,
    local: SocketAddr,
    password: String,
    hops: Arc<[Hop]>,
    reservation: Option<Arc<Reserved>>,
}

impl LocalDoor {
    /// Opens the port; the kernel chooses a free one.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub async fn open(hops: Vec<Hop>) -> Result<Self> {
        let failed = |cause| Error::io("listen on", "127.0.0.1", cause);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|cause| failed(io::Error::other(cause.to_string())))?;
        Ok(Self {
            listener,
            local,
            password: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            hops: hops.into(),
            reservation: None,
        })
    }

    /// Assigns the streams to a reservation of the gateways.
    #[must_use]
    pub fn reserved(self, reservation: Option<Reserved>) -> Self {
        let reservation = reservation.map(Arc::new);
        Self {
            reservation,
            ..self
        }
    }

    /// Returns the address on which it listens.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the password, which is valid with any user name.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }

    /// Serves until it is dropped. `failed` receives the reason if a stream can't be opened.
    pub async fn run(self, failed: impl Fn(&Error) + Send + Sync + Clone + 'static) {
        let (pipes, password) = (Arc::new(Pipes::default()), Arc::<str>::from(self.password));
        let permits = Arc::new(Semaphore::new(STREAMS_MAX));
        let mut streams = JoinSet::new();
        loop {
            while streams.try_join_next().is_some() {}
            let permit = Arc::clone(&permits).acquire_owned().await;
            let (Ok((stream, _)), Ok(permit)) = (self.listener.accept().await, permit) else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (pipes, password) = (Arc::clone(&pipes), Arc::clone(&password));
            let (hops, failed) = (Arc::clone(&self.hops), failed.clone());
            let reservation = self.reservation.clone();
            streams.spawn(async move {
                let _permit = permit;
                // The client sees any break as a break.
                let hops = (&*hops, reservation.as_deref());
                let _ = lead(stream, hops, &password, &pipes, &failed).await;
            });
        }
    }
}

async fn lead(
    stream: TcpStream,
    (hops, reservation): (&[Hop], Option<&Reserved>),
    password: &str,
    pipes: &Pipes,
    failed: &(dyn Fn(&Error) + Send + Sync),
) -> io::Result<()> {
    let is_ours = |shown: &str| blake3::hash(shown.as_bytes()) == blake3::hash(password.as_bytes());
    let greeted = timeout(GREETING_TIMEOUT, read(stream, &is_ours)).await?;
    let Greeting::Stream(wish, mut client) = greeted? else {
        return Ok(());
    };
    if !wish.token.as_deref().is_some_and(is_ours) {
        return super::http::ask_for_token(&mut client.stream, "no password").await;
    }
    match connect_reserved(hops, &wish.target, reservation).await {
        Ok((stream, early)) => {
            accept(wish.speech, &mut client.stream).await?;
            carry(client, End { stream, early }, pipes, &Default::default()).await
        }
        Err(error) => {
            failed(&error);
            refuse(wish.speech, &mut client.stream, &error).await
        }
    }
}
