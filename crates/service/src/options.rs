use std::{net::SocketAddr, path::PathBuf};

use posthaste_circuit::Circuit;
use posthaste_core::contract::Encode;
use posthaste_endpoint::gateway::{Gateways, Pattern};
use posthaste_journal::DatabaseUrl;
use posthaste_types::{ByteRate, Bytes};

use crate::{Alarm, LendingOptions, RestOptions, Scheduler, Site};

/// How to run the service.
#[derive(Debug, Clone)]
pub struct Options {
    /// The file in which it is noted who asked for a change, and what was decided and removed.
    pub audit: Option<PathBuf>,
    /// Where it keeps its journal, token and secrets.
    pub state: PathBuf,
    /// Whether an empty journal beside what a service kept is meant.
    pub is_new: bool,
    /// The database where the journal is instead; several services may wait for their turn to lead there.
    pub database: Option<DatabaseUrl>,
    /// Where its API listens; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Where FTS's interface listens too, beside its place below the API's; nowhere else without.
    pub fts_listen: Option<SocketAddr>,
    /// Listen beyond loopback although the API speaks plain HTTP: a TLS proxy stands in front.
    pub behind_tls: bool,
    /// Where sources are handed out to whoever pulls, while they are there; nowhere without.
    pub lending: Option<LendingOptions>,
    /// Bytes of directory listings that are kept in memory.
    pub listing_cache: Bytes,
    /// Where chunks are coded.
    pub encode: Encode,
    /// What the way out carries, all depots together; none where nobody knows.
    pub way_out: Option<ByteRate>,
    /// The gateways that some depots are reached through.
    pub gateways: Gateways,
    /// The ways on which rate can be reserved.
    pub circuits: Vec<Circuit>,
    /// The directories below which jobs may have data moved.
    pub scratch: Vec<PathBuf>,
    /// The rules of the site's purge, which bind what leaves this machine; none without.
    pub purge_policy: Option<PathBuf>,
    /// The file with the key of credentials that users give; `credentials.key` in the state directory without.
    pub credentials_key: Option<PathBuf>,
    /// Touch files with the rights of the owner of each request, which only root can.
    pub as_owners: bool,
    /// Lend root's rights to everybody with a token for some directories, where it runs as root and not for owners.
    pub as_root: bool,
    /// Addresses of this machine, its link or its cloud that users may have it open all the same.
    pub allow_address: Vec<Pattern>,
    /// Who is told what happens.
    pub alarms: Vec<Alarm>,
    /// Whose queue is looked at; nobody's without.
    pub queue: Option<Scheduler>,
    /// What is asked in place of Slurm's programs; they are without.
    pub slurmrestd: Option<RestOptions>,
    /// Whether what jobs of that queue read comes just before they start, rather than at once.
    pub just_in_time: bool,
    /// How it says what happens, which is not for the service to do.
    pub logs: Logs,
    /// What the file of settings says beside options.
    pub site: Site,
}

/// How a service says what happens. Whoever runs it sees to that, and asks here what of it changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Logs {
    /// What is said, by module.
    pub level: String,
    /// How lines are written.
    pub format: String,
    /// Where traces are sent; nowhere without.
    pub traces: Option<String>,
}
