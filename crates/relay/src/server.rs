//! Server: listens, accepts, and ends in good order.

use std::{
    future::Future,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use http::{HeaderValue, Response, StatusCode, header};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use posthaste_endpoint::{
    Boxed, Error, Guest, Lobby, Result,
    line::{Counted, Fleets, Line},
    new_word,
    relay::{Fingerprint, RelayAddress},
};
use posthaste_types::{ByteRate, Bytes};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{AcquireError, OnceCell, OwnedSemaphorePermit, Semaphore, watch},
    task::{JoinSet, spawn_blocking},
    time::{interval, timeout},
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

use crate::{
    RelayOptions,
    bucket::{Backing, Bucket, check_dir},
    clock,
    files::{Files, Ground, Space, beyond_disk, disk_free},
    forward::Forwards,
    gather::Gathers,
    identity::Identity,
    join::Member,
    measure::Measures,
    others::Others,
    rate::RateLimit,
    request::{CONNECTIONS_MAX, Service},
    scatter::Scatters,
    store::Store,
};

/// Probes received at once: several measure each other.
const PROBES_MAX: usize = 2;
/// Connections that the kernel keeps waiting.
const BACKLOG: u32 = 1024;
/// Time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which a connection closes if no request begins, or no request's head ends.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of checks for expired datasets.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(10);
/// Time for requests under way at the end to finish.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Relay that has its directory and its port, and is ready to run.
pub struct Relay {
    listener: TcpListener,
    local: SocketAddr,
    identity: Identity,
    service: Arc<Service>,
    permits: Arc<Semaphore>,
    member: Option<Member>,
    dir: PathBuf,
}

impl Relay {
    /// Makes or opens the directory, counts what it holds, removes what has expired, and takes the
    /// port.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](posthaste_endpoint::ErrorKind::Conflict) if the port or the
    /// directory is in use; `PermissionDenied`, `Full` and others of the directory; `Invalid` for
    /// an identity that can't be read.
    pub async fn open(options: RelayOptions) -> Result<Self> {
        let RelayOptions {
            dir,
            listen,
            bucket,
            capacity,
            rate,
            name,
            flush,
            join,
            advertise,
            hours,
            load_from,
        } = options;
        let (identity, store, ground) = open_all(&dir, bucket.as_ref(), capacity, flush).await?;
        let another = "choose another with --listen";
        let failed = |cause| Error::listening(listen, cause, another);
        let listener = bind(listen, rate).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let (store, rate) = (Arc::new(store), Arc::new(RateLimit::new(rate)));
        let backing = bucket.map(|bucket| Backing::new(bucket, &store));
        let files = Files::new(
            ground,
            Space::Lent(Arc::clone(&store)),
            identity.secret,
            Some(Arc::clone(&rate)),
            flush,
        );
        let others: Arc<Others> = Arc::default();
        let gathers = Gathers::new(Arc::clone(&others), Arc::clone(&rate));
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let service = Arc::new(Service {
            dir: dir.clone(),
            name,
            instance: new_word(),
            hours,
            load_from,
            secret: identity.secret,
            store,
            backing,
            rate,
            files,
            scatters: Scatters::new(Arc::clone(&others)),
            measures: Measures::new(Arc::clone(&others)),
            forwards: Forwards::new(others),
            gathers,
            probes: Semaphore::new(PROBES_MAX),
            free_connections: Arc::clone(&permits),
        });
        let address = RelayAddress {
            url: advertise.unwrap_or_else(|| format!("https://{local}")),
            fingerprint: identity.fingerprint,
        };
        let member = Member::open(&dir, &service, address, join)?;
        Ok(Self {
            listener,
            local,
            identity,
            service,
            permits,
            member,
            dir,
        })
    }

    /// Returns the address at which it listens.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the address at which this machine reaches it, and its key.
    #[must_use]
    pub fn address(&self) -> RelayAddress {
        RelayAddress {
            url: format!("https://{}", self.local),
            fingerprint: self.fingerprint(),
        }
    }

    /// Its key.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.identity.fingerprint
    }

    /// Returns the file with the secret from which tokens are minted.
    #[must_use]
    pub fn secret_file(&self) -> &Path {
        &self.identity.secret_file
    }

    /// Returns the directory of everything it keeps.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Serves until `shutdown`, then lets requests under way finish for 5 s.
    ///
    /// # Errors
    /// The invitation with which it was started is of no use. Otherwise a running relay goes on
    /// whatever clients do.
    pub fn run(
        self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Boxed<'static, Result<()>> {
        self.run_until(Box::pin(shutdown))
    }

    /// Runs until `shutdown`. It is compiled here, not again in every crate that waits for it.
    fn run_until(mut self, mut shutdown: Boxed<'static, ()>) -> Boxed<'static, Result<()>> {
        Box::pin(async move {
            let door = Door::new(Arc::clone(&self.identity.tls));
            let (permits, mut member) = (Arc::clone(&self.permits), self.member.take());
            let (ending, ended) = watch::channel(false);
            let (mut lobby, mut connections) = (Lobby::default(), JoinSet::new());
            let mut expiry = interval(EXPIRY_INTERVAL);
            {
                let mut membership = pin!(async {
                    match &mut member {
                        Some(member) => member.keep().await,
                        None => std::future::pending().await,
                    }
                });
                loop {
                    tokio::select! {
                        () = &mut shutdown => break,
                        ended = &mut membership => return ended,
                        _ = expiry.tick() => self.remove_expired(&mut connections),
                        () = self.service.doomed() => {
                            let service = Arc::clone(&self.service);
                            connections.spawn(async move { service.tidy_bucket().await });
                        }
                        Some(_) = connections.join_next() => {}
                        (stream, guest) = lobby.accept(&self.listener) => {
                            let place = Place::new(guest.clone(), &permits);
                            let (door, service) = (door.clone(), Arc::clone(&self.service));
                            let serving = serve(stream, place, door, service, ended.clone());
                            lobby.add(guest, connections.spawn(serving));
                        }
                    }
                }
            }
            drop(self.listener);
            if let Some(member) = &member {
                member.leave().await;
            }
            let _ = ending.send(true);
            let all = async { while connections.join_next().await.is_some() {} };
            // Requests that do not end by then are dropped, and their uploads with them.
            let _ = timeout(SHUTDOWN_TIMEOUT, all).await;
            Ok(())
        })
    }

    fn remove_expired(&self, connections: &mut JoinSet<()>) {
        let store = Arc::clone(&self.service.store);
        connections.spawn_blocking(move || {
            // A dataset that can't be removed now is retried in the next turn.
            let _ = store.remove_expired(clock::unix_s());
        });
        let service = Arc::clone(&self.service);
        if service.backing.is_some() {
            connections.spawn(async move { service.tidy_bucket().await });
        }
    }
}

/// Makes or opens everything in a relay's directory, and checks that it and the bucket belong
/// together.
async fn open_all(
    dir: &Path,
    bucket: Option<&Bucket>,
    capacity: Bytes,
    flush: bool,
) -> Result<(Identity, Store, Ground)> {
    let (opened_dir, store) = (dir.to_owned(), bucket.cloned());
    let opened = spawn_blocking(move || open_dir(&opened_dir, store.as_ref(), capacity, flush));
    let opened = opened.await.map_err(|cause| {
        let shown = dir.display().to_string();
        Error::io("open", shown, std::io::Error::other(cause))
    })??;
    if let Some(bucket) = bucket {
        bucket.claim(dir, opened.0.fingerprint).await?;
    }
    Ok(opened)
}

/// Makes or opens everything in a relay's directory, and removes what has expired.
fn open_dir(
    dir: &Path,
    bucket: Option<&Bucket>,
    capacity: Bytes,
    flush: bool,
) -> Result<(Identity, Store, Ground)> {
    let ground = Ground::beneath(&dir.join("files"))?;
    let store = Store::open(dir, capacity.get(), flush, bucket.is_some())?;
    check_dir(dir, bucket)?;
    let failed = |refusal: crate::store::Refusal| {
        Error::new(refusal.kind, "clean", dir.display().to_string()).cause(refusal.message)
    };
    store.remove_expired(clock::unix_s()).map_err(failed)?;
    let disk_free = disk_free(dir).filter(|_| bucket.is_none());
    if let Some(line) = disk_free.and_then(|free| beyond_disk(store.usage(), free)) {
        tracing::warn!("{line}");
    }
    Ok((Identity::open(&dir.join("identity"))?, store, ground))
}

/// Returns a listener. If the rate is limited, its connections buffer little unread data, so that
/// clients see the real rate.
pub(crate) fn bind(listen: SocketAddr, rate: Option<ByteRate>) -> std::io::Result<TcpListener> {
    const BUFFER_BYTES: std::ops::RangeInclusive<u64> = (64 << 10)..=(4 << 20);
    let socket = match listen {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    if let Some(rate) = rate {
        let quarter_second = (rate.get() / 4).clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end());
        socket.set_recv_buffer_size(u32::try_from(quarter_second).unwrap_or(u32::MAX))?;
    }
    socket.bind(listen)?;
    socket.listen(BACKLOG)
}

pub(crate) type Stream = TokioIo<tokio_rustls::server::TlsStream<Counted<Line>>>;

/// Entrance for clients.
#[derive(Clone)]
pub(crate) struct Door {
    tls: TlsAcceptor,
    fleets: Arc<Fleets>,
}

impl Door {
    pub(crate) fn new(tls: Arc<ServerConfig>) -> Self {
        Self {
            tls: TlsAcceptor::from(tls),
            fleets: Arc::default(),
        }
    }

    /// Greets a client; returns `None` if it is none.
    pub(crate) async fn greet(&self, stream: TcpStream) -> Option<Stream> {
        let host = stream.peer_addr().ok()?.ip();
        let line = Counted::new(self.fleets.accepted(stream, host), Arc::default());
        let greeted = timeout(HANDSHAKE_TIMEOUT, self.tls.accept(line)).await;
        greeted.ok()?.ok().map(TokioIo::new)
    }
}

pub(crate) fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .half_close(true)
        .writev(true);
    http
}

/// Place of a client among those that are served. A client gets it with its first request, and
/// keeps it if it shows a good token.
#[derive(Clone)]
pub(crate) struct Place {
    guest: Guest,
    places: Arc<Semaphore>,
    taken: Arc<OnceCell<OwnedSemaphorePermit>>,
}

impl Place {
    pub(crate) fn new(guest: Guest, places: &Arc<Semaphore>) -> Self {
        Self {
            guest,
            places: Arc::clone(places),
            taken: Arc::default(),
        }
    }

    /// Answers a request once one more client may be served. A client without a good token starts
    /// again behind others.
    pub(crate) async fn answer<B>(
        &self,
        answer: impl Future<Output = Response<B>>,
    ) -> std::result::Result<Response<B>, AcquireError> {
        let take = || Arc::clone(&self.places).acquire_owned();
        self.taken.get_or_try_init(take).await?;
        self.guest.let_in();
        let mut response = answer.await;
        if response.status() == StatusCode::UNAUTHORIZED {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        Ok(response)
    }
}

/// Serves one connection to its end. The worst that any input can do is close it.
async fn serve(
    stream: TcpStream,
    place: Place,
    door: Door,
    service: Arc<Service>,
    mut ended: watch::Receiver<bool>,
) {
    let Some(stream) = door.greet(stream).await else {
        return;
    };
    let answer = service_fn(move |request| {
        let (place, service) = (place.clone(), Arc::clone(&service));
        async move { place.answer(service.answer(request)).await }
    });
    let mut connection = pin!(http().serve_connection(stream, answer));
    tokio::select! {
        _ = &mut connection => return,
        _ = ended.wait_for(|&ended| ended) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Serves files alone, otherwise like [`serve`], for a caller that ends it by dropping it.
pub(crate) async fn serve_files(stream: TcpStream, place: Place, door: Door, files: Arc<Files>) {
    let Some(stream) = door.greet(stream).await else {
        return;
    };
    let answer = service_fn(move |request| {
        let (place, files) = (place.clone(), Arc::clone(&files));
        async move { place.answer(files.answer(request)).await }
    });
    let _ = http().serve_connection(stream, answer).await;
}
