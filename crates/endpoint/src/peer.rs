//! Files at another posthaste: a relay that lends a folder, or one started over SSH.
//!
//! Requests are HTTP/1.1 over TLS 1.3 with the server's key pinned, as with depots. On a long path
//! every question costs a round trip, so the protocol asks few. The greeting looks at the root, and
//! a listing shows which files can be opened and started without a question. The receiver makes
//! directories itself, and small files share a request. Connections are opened ahead, more of them
//! the longer the path. `docs/reference/peer-protocol.md` specifies the protocol.

mod body;
mod bundle;
mod connection;
mod direct;
mod directories;
mod executor;
mod file;
pub mod frame;
mod invitation;
mod knowledge;
mod listing;
mod notices;
mod pool;
mod remote;
mod started;
mod ways;
pub mod wire;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    Capabilities, Checksum, Result,
    endpoint::{Boxed, Endpoint, Entry, FileSpec, Listing, Parcel, Reader, Whole, Writer},
    gateway::{Gateways, Way},
    posix::DraftRules,
    relay::{Credential, Fingerprint},
    sftp::Host,
    unkept::Unkept,
};
pub use executor::Owned;
pub(crate) use frame::try_frames;
pub use invitation::Invitation;
pub use notices::{Note, Notices};
pub use started::StartOptions;

use connection::Target;
use directories::Directories;
use file::{PeerReader, PeerWriter};
use listing::PeerListing;
use pool::Pool;
use remote::Remote;
use started::{NotStarted, Started};
use ways::Ways;
use wire::{
    DIRECTORIES_MAX, Done, MakeDirectories, MakeDirectory, MakeLink, Name, Operation, Outcomes,
    Stat,
};

/// Default port of a relay.
pub const PORT: u16 = 7421;

/// Largest file that travels whole, several in a request.
const SMALL_BYTES_MAX: u64 = 8 << 20;

/// Most bytes of a segment of a large file, and so the loss per lane after a crash.
const SEGMENT_BYTES_MAX: u64 = 16 << 20;

/// Fewest bytes of a segment: enough that the answer's latency is short beside it.
const SEGMENT_BYTES_MIN: u64 = 512 << 10;

/// Segments of a file between those sizes. Near the end connections become idle one by one, for
/// longer with larger segments.
const SEGMENTS: u64 = 2048;

/// Most small files in flight per lane if the other end accepts no bundles.
const REQUESTS_AHEAD_MAX: u16 = 16;

/// Least round trip from which a bundle is spread over several connections.
const FAR: Duration = Duration::from_millis(2);

/// Bytes of each request that a bundle is spread over: many compared with the cost of a request.
const FAR_BUNDLE_BYTES: u64 = 1 << 20;

/// Address of a relay, and the credentials for it.
#[derive(Debug, Clone)]
pub struct Address {
    /// Host name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Fingerprint of the key that it must have.
    pub fingerprint: Fingerprint,
    /// Credential to show.
    pub credential: Credential,
    /// Routes to it, the preferred one first.
    pub ways: Vec<Way>,
}

/// Files below a root at a peer.
pub struct Peer {
    remote: Arc<Remote>,
    directories: Arc<Directories>,
}

impl Peer {
    /// Connects to a relay and opens `root` in what it lends.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unreachable`] and [`crate::ErrorKind::TimedOut`], which may be
    /// temporary; [`crate::ErrorKind::Unauthenticated`] if its key is not the pinned one or it
    /// rejects the credential; [`crate::ErrorKind::Unsupported`] if it is too old or too new.
    pub async fn open(address: Address, root: &[u8], rules: DraftRules) -> Result<Self> {
        let shown = if address.host.contains(':') {
            format!("posthaste://[{}]:{}", address.host, address.port)
        } else {
            format!("posthaste://{}:{}", address.host, address.port)
        };
        let Address { fingerprint, .. } = address;
        let target = Target::new(
            &address.host,
            address.port,
            fingerprint,
            &shown,
            address.ways,
        )?;
        let mut root = root;
        while let Some(rest) = root.strip_prefix(b"/") {
            root = rest;
        }
        let remote = Remote::new(
            Ways::Direct(Pool::new(target), address.credential),
            format!("{shown}/"),
            root.to_vec(),
            rules.fsync,
        );
        Self::greeted(Arc::new(remote)).await
    }

    /// Starts posthaste on `host` over SSH and opens `root` there, absolute or relative to the
    /// login directory. If gateways lead to an address of the host, data goes through them. `Err`
    /// of a text says why no posthaste could be started on the host.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unauthenticated`], [`crate::ErrorKind::Unreachable`],
    /// [`crate::ErrorKind::TimedOut`]; [`crate::ErrorKind::Unsupported`] if it is too old or too
    /// new; errors of reading a gateway's secret.
    pub async fn start(
        host: Host,
        root: &[u8],
        rules: DraftRules,
        options: StartOptions,
        gateways: Arc<Gateways>,
    ) -> Result<Result<Self, String>> {
        let prefix = started::prefix(&host);
        let started = Started::new(host, options, gateways);
        match started.start_first().await {
            Ok(()) => {}
            Err(NotStarted::Missing(why)) => return Ok(Err(why)),
            Err(NotStarted::Failed(error)) => return Err(error),
        }
        let ways = Ways::Started(started);
        let remote = Remote::new(ways, prefix, root.to_vec(), rules.fsync);
        Self::greeted(Arc::new(remote)).await.map(Ok)
    }

    fn greeted(remote: Arc<Remote>) -> Boxed<'static, Result<Self>> {
        Box::pin(async move {
            let asked = tokio::time::Instant::now();
            let welcome = remote.greet().await?;
            if let Ways::Started(started) = &remote.ways {
                started.answered_after(asked.elapsed());
            }
            remote.learn(welcome);
            Ok(Self {
                directories: Directories::new(Arc::clone(&remote)),
                remote,
            })
        })
    }

    /// Opens up to `streams` connections in the background.
    pub fn warm_up(&self, streams: usize) {
        if let Some(pool) = self.remote.ways.pool() {
            pool.warm_up(streams);
        }
    }

    /// Returns the round trip time, as measured on the first connection.
    #[must_use]
    pub fn rtt(&self) -> Duration {
        self.remote.ways.rtt()
    }

    /// Returns the bytes of one request of a bundle.
    fn share(&self) -> u64 {
        if self.rtt() < FAR {
            wire::BUNDLE_BYTES_MAX
        } else {
            FAR_BUNDLE_BYTES
        }
    }

    async fn make_directory_now(&self, path: &[u8]) -> Result<bool> {
        let message = MakeDirectories {
            directories: vec![self.directory(path)],
        };
        let operation = Operation::MakeDirectories;
        let outcomes: Outcomes<bool> = self.remote.ask(operation, path, &message).await?;
        let outcome = outcomes.0.into_iter().next();
        let outcome =
            outcome.ok_or_else(|| self.remote.nonsense(operation, "the answer says nothing"))?;
        outcome.map_err(|refusal| self.remote.refused(operation, path, refusal))
    }

    fn directory(&self, path: &[u8]) -> MakeDirectory {
        MakeDirectory {
            path: self.remote.name(path),
            follow: path.is_empty(),
        }
    }
}

/// Returns the bytes of a segment of a file of `size` bytes: the same in every run.
fn segment_bytes(size: u64) -> u64 {
    (size / SEGMENTS)
        .clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
        .next_power_of_two()
}

/// Capabilities of a peer.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    byte_names: true,
    lists: true,
    ranges: true,
    writes: true,
    removes: true,
    segments_in_any_order: true,
    resumes: true,
    open_ended: true,
    mtime_step_ns: Some(1),
    mtimes_listed: true,
    modes: true,
    links: true,
    directory_attributes: true,
    segment_size_min: SMALL_BYTES_MAX,
    piece_bytes_min: SEGMENT_BYTES_MIN,
    bundle_bytes_max: wire::BUNDLE_BYTES_MAX,
    requests_ahead_max: REQUESTS_AHEAD_MAX,
    segments_held: false,
    ..Capabilities::least("posthaste")
};

impl Endpoint for Peer {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            bundle_bytes_max: self.share(),
            ..CAPABILITIES
        }
    }

    fn show(&self, path: &[u8]) -> String {
        self.remote.show(path)
    }

    fn unkept(&self) -> Unkept {
        self.remote.unkept()
    }

    fn round_trip(&self) -> Option<Duration> {
        Some(self.rtt())
    }

    fn locate(&self, path: &[u8]) -> Vec<u8> {
        self.remote.full(path)
    }

    fn system(&self) -> Option<String> {
        let can = self.remote.can(wire::FEATURE_REAL_PATHS);
        can.then(|| self.remote.prefix().to_owned())
    }

    fn real_path<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        Box::pin(async move {
            if !self.remote.can(wire::FEATURE_REAL_PATHS) {
                return Ok(self.locate(path));
            }
            let message = self.remote.named(path);
            let found = self.remote.ask(Operation::RealPath, path, &message);
            found.await.map(|Name(found)| found)
        })
    }

    fn learn_time_step_ns<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Option<u32>>> {
        Box::pin(async move {
            if !self.remote.can(wire::FEATURE_CLOCKS) {
                return Ok(CAPABILITIES.mtime_step_ns);
            }
            let message = self.remote.named(path);
            self.remote.ask(Operation::TimeStep, path, &message).await
        })
    }

    fn stat<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Option<Entry>>> {
        Box::pin(async move {
            self.directories.settle().await;
            if path.is_empty()
                && let Some(looked) = self.remote.knowledge.take_root(follow)
            {
                return Ok(looked.entry);
            }
            let message = Stat {
                path: self.remote.name(path),
                follow,
            };
            let looked = self.remote.ask(Operation::Stat, path, &message);
            let looked: wire::Looked = looked.await?;
            Ok(looked.entry)
        })
    }

    fn list<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Box<dyn Listing>>> {
        Box::pin(async move {
            self.directories.settle().await;
            let remote = Arc::clone(&self.remote);
            let listing = PeerListing::start(remote, path, follow, false, SMALL_BYTES_MAX);
            let listing: Box<dyn Listing> = Box::new(listing.await?);
            Ok(listing)
        })
    }

    fn list_tree<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Option<Box<dyn Listing>>>> {
        Box::pin(async move {
            self.directories.settle().await;
            let remote = Arc::clone(&self.remote);
            let listing = PeerListing::start(remote, path, false, true, SMALL_BYTES_MAX);
            let listing: Box<dyn Listing> = Box::new(listing.await?);
            Ok(Some(listing))
        })
    }

    fn get<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Whole>> {
        Box::pin(async move {
            let wanted = [(path.to_vec(), entry.clone())];
            let found = bundle::get_all(&self.remote, &wanted, self.share()).await;
            bundle::only(found, || self.show(path))
        })
    }

    fn get_all<'a>(&'a self, wanted: &'a [(Vec<u8>, Entry)]) -> Boxed<'a, Vec<Result<Whole>>> {
        Box::pin(bundle::get_all(&self.remote, wanted, self.share()))
    }

    fn open<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>> {
        Box::pin(async move {
            let remote = Arc::clone(&self.remote);
            let reader = PeerReader::open(remote, path.to_vec(), entry).await?;
            let reader: Arc<dyn Reader> = Arc::new(reader);
            Ok(reader)
        })
    }

    fn read_link<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        Box::pin(async move {
            let message = self.remote.named(path);
            let target = self.remote.ask(Operation::ReadLink, path, &message);
            target.await.map(|Name(target)| target)
        })
    }

    fn put<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            let parcel = Parcel {
                path: path.to_vec(),
                spec: spec.clone(),
                data,
                sum,
            };
            bundle::only(self.put_all(vec![parcel]).await, || self.show(path))
        })
    }

    fn put_all(&self, parcels: Vec<Parcel>) -> Boxed<'_, Vec<Result<()>>> {
        self.remote.knowledge.forget_root();
        Box::pin(bundle::put_all(&self.remote, parcels, self.share()))
    }

    fn create<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        self.remote.knowledge.forget_root();
        Box::pin(async move {
            let remote = Arc::clone(&self.remote);
            let writer =
                PeerWriter::start(remote, path.to_vec(), spec, segment_bytes(spec.size)).await?;
            let writer: Arc<dyn Writer> = Arc::new(writer);
            Ok(writer)
        })
    }

    fn create_open_ended<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        self.remote.knowledge.forget_root();
        Box::pin(async move {
            let remote = Arc::clone(&self.remote);
            let path = path.to_vec();
            let writer =
                PeerWriter::start_open_ended(remote, path, spec, SEGMENT_BYTES_MAX).await?;
            let writer: Arc<dyn Writer> = Arc::new(writer);
            Ok(writer)
        })
    }

    fn make_link<'a>(
        &'a self,
        path: &'a [u8],
        target: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        self.remote.knowledge.forget_root();
        Box::pin(async move {
            let message = MakeLink {
                path: self.remote.name(path),
                target: Name(target.to_vec()),
                spec: spec.clone(),
            };
            let made = self.remote.ask(Operation::MakeLink, path, &message);
            made.await.map(|Done| ())
        })
    }

    /// The receiver makes all missing parent directories.
    fn make_parents(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn make_directory<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<bool>> {
        self.remote.knowledge.forget_root();
        Box::pin(async move {
            if self.remote.knowledge.is_made(path) {
                return Ok(false);
            }
            if self.remote.knowledge.is_surely_new(path) {
                self.directories.make(self.directory(path));
                return Ok(true);
            }
            let is_new = self.make_directory_now(path).await?;
            if is_new {
                self.remote.knowledge.made(path);
            }
            Ok(is_new)
        })
    }

    fn seal_directory<'a>(
        &'a self,
        path: &'a [u8],
        entry: &'a Entry,
        empty: bool,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            let wanted = [(path.to_vec(), entry.clone(), empty)];
            bundle::only(self.seal_directories(&wanted).await, || self.show(path))
        })
    }

    fn seal_directories<'a>(
        &'a self,
        wanted: &'a [(Vec<u8>, Entry, bool)],
    ) -> Boxed<'a, Vec<Result<()>>> {
        Box::pin(async move {
            let mut sealed = Vec::with_capacity(wanted.len());
            for wanted in wanted.chunks(DIRECTORIES_MAX) {
                sealed.extend(self.directories.seal(wanted).await);
            }
            sealed
        })
    }

    fn remove<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<()>> {
        self.remote.knowledge.forget_root();
        Box::pin(async move {
            let message = self.remote.named(path);
            let removed = self.remote.ask(Operation::Remove, path, &message);
            removed.await.map(|Done| ())
        })
    }
}
