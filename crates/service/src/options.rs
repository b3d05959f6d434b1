use std::{net::SocketAddr, path::PathBuf};

use posthaste_circuit::Circuit;
use posthaste_core::contract::Encode;
use posthaste_endpoint::gateway::{Gateways, Pattern};
use posthaste_journal::DatabaseUrl;
use posthaste_types::{ByteRate, Bytes};

use crate::{Alarm, LendingOptions, RestOptions, Scheduler, Site};

/// Options of the service.
#[derive(Debug, Clone)]
pub struct Options {
    /// Audit file: who requested changes, and what was decided and removed.
    pub audit: Option<PathBuf>,
    /// Directory of its journal, token and secrets.
    pub state: PathBuf,
    /// Set if an empty journal beside an older service's files is intended.
    pub is_new: bool,
    /// Database with the journal; several services may wait there for their turn to lead.
    pub database: Option<DatabaseUrl>,
    /// Listening address of the API; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Separate listening address of FTS's interface, beside its place below the API's.
    pub fts_listen: Option<SocketAddr>,
    /// Allows listening beyond loopback with plain HTTP, behind a TLS proxy.
    pub behind_tls: bool,
    /// Options of the source server; sources are not served without.
    pub lending: Option<LendingOptions>,
    /// Memory for directory listings.
    pub listing_cache: Bytes,
    /// Place where chunks are coded.
    pub encode: Encode,
    /// Rate of the uplink, all depots together; none if unknown.
    pub way_out: Option<ByteRate>,
    /// Gateways that lead to some depots.
    pub gateways: Gateways,
    /// Circuits on which rate can be reserved.
    pub circuits: Vec<Circuit>,
    /// Directories below which jobs may have data moved.
    pub scratch: Vec<PathBuf>,
    /// Rules of the site's purge, which bind sources on this machine; none without.
    pub purge_policy: Option<PathBuf>,
    /// Key file of users' credentials; by default `credentials.key` in the state directory.
    pub credentials_key: Option<PathBuf>,
    /// Makes the service touch files with the rights of each request's owner, which only root can.
    pub as_owners: bool,
    /// Lends root's rights to every token holder for some directories, if the service runs as root
    /// and not for owners.
    pub as_root: bool,
    /// Addresses of this machine, its link or its cloud that users may have it open all the same.
    pub allow_address: Vec<Pattern>,
    /// Receivers of alarms.
    pub alarms: Vec<Alarm>,
    /// Batch system whose queue is watched, if any.
    pub queue: Option<Scheduler>,
    /// REST client in place of Slurm's programs, if any.
    pub slurmrestd: Option<RestOptions>,
    /// Set if inputs of that queue's jobs arrive just before they start, rather than at once.
    pub just_in_time: bool,
    /// Logging options, which are not applied by the service.
    pub logs: Logs,
    /// Tables of the settings file beside the options.
    pub site: Site,
}

/// Logging options of a service. The program that runs it applies them, and asks here which of them
/// changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Logs {
    /// Log levels, by module.
    pub level: String,
    /// Format of log lines.
    pub format: String,
    /// Destination of traces, if any.
    pub traces: Option<String>,
}
