//! Relay: a depot that lends disk over HTTP/1.1 and TLS 1.3.
//!
//! A relay stores fragments of datasets it knows nothing about. A fragment counts as stored only
//! when its digest was verified and its bytes are on disk. The relay lends no more than its
//! capacity, and forgets a dataset when it expires. Its identity is a key made at first start. A
//! client that pins the key's fingerprint and holds the secret (or a token made from it) may use
//! it. `docs/reference/relay-protocol.md` has the protocol and the layout on disk.

mod answer;
mod bucket;
mod clock;
mod drain;
mod files;
mod forward;
#[doc(hidden)]
pub mod fuzzing;
mod gather;
mod identity;
mod join;
mod load;
mod measure;
mod order;
mod others;
mod outlet;
mod peer;
mod rate;
mod reception;
mod request;
mod rights;
mod scatter;
mod server;
mod space;
mod store;
mod traced;

use std::{future::Future, net::SocketAddr, path::PathBuf};

use posthaste_endpoint::{Result, relay::join::Invite};
use posthaste_types::{ByteRate, Bytes};

pub use bucket::Bucket;
pub use drain::{draining, set_draining};
pub use measure::probe;
pub use outlet::{Outlet, Position, Shelf};
pub use peer::{Peer, PeerOptions};
pub use server::Relay;

/// Options of a relay.
#[derive(Debug, Clone)]
pub struct RelayOptions {
    /// Directory of everything it keeps; made if missing.
    pub dir: PathBuf,
    /// Address at which it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Object store of the bytes; with `None` they lie in `dir`. Senders and readers reach it
    /// themselves, so `rate` does not limit them.
    pub bucket: Option<Bucket>,
    /// Maximum of bytes of fragments and manifests it stores.
    pub capacity: Bytes,
    /// Rate at which it receives bodies, all clients together.
    pub rate: Option<ByteRate>,
    /// Name for people.
    pub name: String,
    /// `stored` means that the disk has it. Without, a fragment survives the end of the relay but
    /// perhaps not that of its machine; with, each one costs two disk flushes.
    pub flush: bool,
    /// Invitation of a service with which it is to register. A service that knows it already gets
    /// heartbeats with and without one.
    pub join: Option<Invite>,
    /// Address at which services reach it, `https://host:port`, if not where it listens.
    pub advertise: Option<String>,
    /// Hours in which it is lent, by the clock of its machine, `20-06`; `None` for always. The
    /// relay reports them to services, which send nothing at other times, and refuses nothing
    /// itself.
    pub hours: Option<String>,
    /// File with the load of its machine, in the form of `/proc/loadavg`.
    pub load_from: PathBuf,
}

/// Opens a relay and runs it until `shutdown`.
///
/// # Errors
/// Errors of [`Relay::open`] and [`Relay::run`].
pub async fn serve(
    options: RelayOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    Relay::open(options).await?.run(shutdown).await
}
