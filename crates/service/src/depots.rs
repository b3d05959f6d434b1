//! Registered depots: their connections, their status, their intake.

mod fault;
mod known;

pub(crate) use fault::{fault_of, fault_of_forward, fault_of_kind, fault_of_ours, fault_of_source};
pub(crate) use known::{Viewer, name_of_owners, split_owner};

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use posthaste_core::contract::{Input, Windows};
use posthaste_endpoint::{
    Error, ErrorKind, Reach, Result,
    gateway::Gateways,
    relay::{Credential, Haste, RelayAddress, RelayClient, RelayStatus, wire::HoursBody},
};
use posthaste_journal::DepotRecord;
use posthaste_types::{ByteRate, Bytes, DepotId};
use tokio::sync::Notify;

use crate::{
    meter::{Carried, Meter, Sample},
    secrets,
};

/// Silence after which a depot that reports by itself is asked: three reporting periods.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(90);

/// Longest part of unreadable hours that is shown, in characters.
const WORD_CHARS_MAX: usize = 64;

/// Reservations whose connections to a depot are kept: more than are up at once on the way to one.
const RESERVED_MAX: usize = 16;

/// Relation of a send to other traffic on its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Share {
    /// Shares the path with others.
    Ordinary,
    /// Takes only what others leave.
    GivesWay,
    /// Uses the rate reserved under this name at gateways, and gives way to nobody.
    Reserved(String),
}

/// Relation of the sends for a command to all other sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manner {
    pub(crate) share: Share,
    pub(crate) haste: Haste,
    /// Rate limit of a direct export, if one was requested.
    pub(crate) rate_max: Option<ByteRate>,
}

impl Manner {
    pub(crate) fn gives_way(&self) -> bool {
        self.share == Share::GivesWay
    }
}

/// Depot with its connections.
pub(crate) struct Depot {
    pub(crate) record: DepotRecord,
    pub(crate) client: RelayClient,
    /// Client for sends that give way.
    humble: RelayClient,
    /// Clients for streams of reservations, by their names at gateways; the last used is last.
    reserved: Mutex<Vec<(String, RelayClient)>>,
    pub(crate) secret: [u8; secrets::SECRET_BYTES],
    pub(crate) meter: Meter,
    /// Bytes that movers sent to it, and how many of those arrived.
    by_movers: (AtomicU64, AtomicU64),
    /// Way that was last reported to the mind.
    told_way: AtomicUsize,
    /// Set if it reported that it can push its fragments.
    pub(crate) forwards: AtomicBool,
    /// Set if it reported that it can push fragments that it still receives.
    pub(crate) follows: AtomicBool,
    /// Set if it reported that it can gather fragments of others.
    pub(crate) gathers: AtomicBool,
    /// Set if it reported that it can rebuild one fragment of a chunk.
    pub(crate) mends: AtomicBool,
    /// Set if it reported that it can measure the path to another depot.
    pub(crate) measures: AtomicBool,
    /// Set if it reported that it can code chunks.
    pub(crate) scatters: AtomicBool,
    /// Set if it reported that it can copy a fragment unchanged from another depot.
    pub(crate) takes: AtomicBool,
    /// Set if it reported that it redirects clients to a store, and handles no bytes itself.
    pub(crate) lets_through: AtomicBool,
    heard: Mutex<Heard>,
    pub(crate) beaten: Notify,
}

/// Reports received from a depot.
#[derive(Default)]
struct Heard {
    /// Last report, until it is read.
    beat: Option<Beat>,
    /// Time of that report.
    beat_at: Option<Instant>,
    joined: bool,
    at: Option<Instant>,
    version: Option<String>,
    connections: Option<u32>,
    /// Last reported load of its machine.
    load_permille: Option<u32>,
    /// Store that holds everything; none if the depot stores data itself.
    store: Option<String>,
    /// Reported lending hours; none if always lent.
    hours: Option<HoursBody>,
    /// Parsed lending hours.
    windows: Windows,
}

/// Report that a relay sends by itself.
pub(crate) enum Beat {
    /// Status of the relay.
    Lives(Box<RelayStatus>),
    /// Announcement that the relay stops.
    Leaves,
}

/// Facts of a depot that the mind does not know.
pub(crate) struct Acquaintance {
    pub(crate) joined: bool,
    pub(crate) version: Option<String>,
    pub(crate) connections: Option<u32>,
    pub(crate) heard_ago: Option<Duration>,
    /// Reported lending hours; none if always lent.
    pub(crate) hours: Option<HoursBody>,
}

impl Depot {
    /// Returns the client for a send. Streams of a reservation share no connection with others.
    pub(crate) fn sender(&self, manner: &Manner) -> RelayClient {
        let sender = match &manner.share {
            Share::Ordinary => self.client.clone(),
            Share::GivesWay => self.humble.clone(),
            // A reservation without a name gets best effort.
            Share::Reserved(name) => self
                .reserved_sender(name)
                .unwrap_or_else(|_| self.client.clone()),
        };
        sender.hasty(manner.haste)
    }

    fn reserved_sender(&self, name: &str) -> Result<RelayClient> {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let place = reserved.iter().position(|(known, _)| known == name);
        let (name, client) = match place {
            Some(place) => reserved.remove(place),
            None => (name.to_owned(), self.client.reserved(name)?),
        };
        if reserved.len() >= RESERVED_MAX {
            // Transfers under way over its connections continue.
            reserved.remove(0);
        }
        reserved.push((name, client.clone()));
        Ok(client)
    }

    /// Directs later sends over this way, as long as it opens.
    pub(crate) fn take_way(&self, way: usize, now: Instant) {
        self.client.take_way(way);
        self.told_way.store(way, Ordering::Relaxed);
        self.meter.turn(now);
    }

    /// Returns the bytes received since the last sample, once there are enough.
    pub(crate) fn sample(&self, now: Instant) -> Option<Sample> {
        // Most depots are usually idle: the kernel isn't asked about each of their connections.
        if self.meter.is_at_rest() {
            return None;
        }
        let (sent, arrived) = &self.by_movers;
        let [sent, arrived] = [sent, arrived].map(|by| Bytes::new(by.load(Ordering::Relaxed)));
        let carried = Carried {
            sent: self.client.sent() + sent,
            arrived: self.client.arrived().map(|own| own + arrived),
            is_held_back: self.client.is_held_back(),
        };
        self.meter.sample(now, carried)
    }

    /// Notes bytes that a mover sent and bytes that arrived.
    pub(crate) fn moved(&self, sent: u64, arrived: u64) {
        self.by_movers.0.fetch_add(sent, Ordering::Relaxed);
        self.by_movers.1.fetch_add(arrived, Ordering::Relaxed);
    }

    /// Returns the input for the mind if connections changed their way by themselves.
    pub(crate) fn turned(&self, now: Instant) -> Option<Input> {
        let way = self.client.way()?;
        if self.told_way.swap(way, Ordering::Relaxed) == way {
            return None;
        }
        self.meter.turn(now);
        Some(Input::WayTold {
            depot: self.record.id,
            way: u8::try_from(way).ok()?,
        })
    }

    /// Returns the input with the known ways, if there are or were several.
    pub(crate) fn ways_found(&self, knows_several: bool) -> Option<Input> {
        let ways = self.client.ways();
        (ways.len() > 1 || knows_several).then_some(Input::WaysFound {
            depot: self.record.id,
            ways,
        })
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that it registered and will report its status.
    pub(crate) fn joined(&self) {
        self.heard().joined = true;
    }

    /// Records a report.
    pub(crate) fn beat(&self, beat: Beat) {
        let mut heard = self.heard();
        heard.joined = true;
        heard.beat_at = matches!(beat, Beat::Lives(_)).then(crate::monotonic);
        heard.beat = Some(beat);
        drop(heard);
        self.beaten.notify_one();
    }

    /// Returns whether it reports often enough that it need not be asked.
    pub(crate) fn speaks(&self, now: Instant) -> bool {
        let beat_at = self.heard().beat_at;
        beat_at.is_some_and(|at| now.duration_since(at) < SILENT_AFTER)
    }

    /// Returns its status: its own report, or else its answer.
    pub(crate) async fn ask(&self) -> Result<RelayStatus> {
        let beat = self.heard().beat.take();
        match beat {
            Some(Beat::Lives(status)) => Ok(*status),
            Some(Beat::Leaves) => Err(Error::new(
                ErrorKind::Unreachable,
                "use",
                format!("depot {}", self.record.name),
            )
            .cause("it said that it ends")),
            None => self.client.status().await,
        }
    }

    /// Returns the facts that the mind does not know.
    pub(crate) fn acquaintance(&self, now: Instant) -> Acquaintance {
        let heard = self.heard();
        let hours = heard.hours.as_ref().filter(|_| !heard.windows.is_always());
        Acquaintance {
            joined: heard.joined,
            version: heard.version.clone(),
            connections: heard.connections,
            heard_ago: heard.at.map(|at| now.duration_since(at)),
            hours: hours.map(|hours| HoursBody {
                open: heard.windows.to_string(),
                ahead_of_utc_min: hours.ahead_of_utc_min,
            }),
        }
    }

    /// Returns the lending hours that it reported itself.
    pub(crate) fn own_windows(&self) -> Windows {
        self.heard().windows.clone()
    }

    /// Returns the last reported load of its machine, in thousandths of a core per core.
    pub(crate) fn load_permille(&self) -> Option<u32> {
        self.heard().load_permille
    }

    /// Returns the failure domain of all depots that keep everything in the same store, as last
    /// reported; none if it stores data itself.
    pub(crate) fn domain_of_store(&self) -> Option<String> {
        let store = self.heard().store.clone()?;
        Some(format!("store-{store}"))
    }

    /// Returns whether it redirects clients to a store; none before its first report.
    pub(crate) fn is_known_to_let_through(&self) -> Option<bool> {
        let is_known = self.heard().at.is_some();
        is_known.then(|| self.lets_through.load(Ordering::Relaxed))
    }

    /// Records its report.
    pub(crate) fn heed(&self, status: &RelayStatus) {
        self.lets_through
            .store(status.lets_through, Ordering::Relaxed);
        let mut heard = self.heard();
        heard.at = Some(crate::monotonic());
        heard.version = Some(status.version.clone());
        heard.connections = Some(status.connections);
        heard.load_permille = status.load_permille;
        heard.store.clone_from(&status.store);
        if heard.hours != status.hours {
            heard.hours.clone_from(&status.hours);
            let said = status.hours.as_ref();
            heard.windows = said.map_or_else(Windows::default, |said| self.read_hours(said));
        }
        drop(heard);
        self.forwards.store(status.forwards, Ordering::Relaxed);
        self.follows.store(status.follows, Ordering::Relaxed);
        self.gathers.store(status.gathers, Ordering::Relaxed);
        self.mends.store(status.mends, Ordering::Relaxed);
        self.scatters.store(status.scatters, Ordering::Relaxed);
        self.takes.store(status.takes, Ordering::Relaxed);
        // A relay that reports by itself was not asked.
        self.client.expect_passes(status.lets_through);
        self.measures.store(status.measures, Ordering::Relaxed);
    }

    /// Parses the reported hours. Ignores unreadable ones: a later release may have other forms.
    fn read_hours(&self, said: &HoursBody) -> Windows {
        let (name, open) = (&self.record.name, &said.open);
        let Ok(windows) = open.parse::<Windows>() else {
            let subject = format!("the hours of depot {name}, `{open:.WORD_CHARS_MAX$}`");
            let error = Error::new(ErrorKind::Invalid, "read", subject)
                .hint("they are ignored; a newer release of the service may know what they mean");
            tracing::warn!("{error}");
            return Windows::default();
        };
        windows.ahead_of_utc(said.ahead_of_utc_min)
    }
}

/// All registered depots.
#[derive(Default)]
pub(crate) struct Depots {
    by_id: RwLock<BTreeMap<DepotId, Arc<Depot>>>,
}

impl Depots {
    pub(crate) fn get(&self, depot: DepotId) -> Option<Arc<Depot>> {
        self.by_id
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&depot)
            .cloned()
    }

    pub(crate) fn named(&self, name: &str) -> Option<Arc<Depot>> {
        let depots = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        depots
            .values()
            .find(|depot| depot.record.name == name)
            .cloned()
    }

    pub(crate) fn name(&self, depot: DepotId) -> String {
        self.get(depot)
            .map_or_else(|| depot.to_string(), |depot| depot.record.name.clone())
    }

    pub(crate) fn all(&self) -> Vec<Arc<Depot>> {
        self.by_id
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    pub(crate) fn insert(&self, depot: Arc<Depot>) {
        let mut depots = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        depots.insert(depot.record.id, depot);
    }

    pub(crate) fn remove(&self, depot: DepotId) {
        self.by_id
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&depot);
    }
}

/// Returns the path of the secret of the depot called `name`.
pub(crate) fn secret_path(state: &std::path::Path, name: &str) -> PathBuf {
    state.join("secrets").join(name)
}

/// Reads a secret's hexadecimal digits.
///
/// # Errors
/// [`ErrorKind::Invalid`] when they are none; the digits are never shown.
pub(crate) fn parse_secret(text: &str, depot: &str) -> Result<[u8; secrets::SECRET_BYTES]> {
    text.trim()
        .parse::<posthaste_types::Digest>()
        .map(|digest| *digest.as_bytes())
        .map_err(|_| {
            Error::new(
                ErrorKind::Invalid,
                "use",
                format!("the secret of depot {depot}"),
            )
            .cause("it is not 64 hexadecimal digits")
            .hint("give the file that `posthaste relay` names as --secret-file")
        })
}

/// Makes the client, without connecting. That of an owner's depot connects only where `reach`
/// permits.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an invalid address; those of reading a gateway's secret.
pub(crate) fn open(
    record: DepotRecord,
    secret: [u8; secrets::SECRET_BYTES],
    (gateways, reach): (&Gateways, &Reach),
    now: Instant,
) -> Result<Depot> {
    let address = RelayAddress {
        url: record.url.clone(),
        fingerprint: record.fingerprint.parse().map_err(|cause| {
            Error::new(
                ErrorKind::Invalid,
                "use",
                format!("fingerprint {}", record.fingerprint),
            )
            .cause(cause)
        })?,
    };
    let ways = gateways.ways_to_relay(&address)?;
    // What an operator registers lies where the operator says.
    let reach = match record.owner {
        Some(_) => reach.clone(),
        None => Reach::default(),
    };
    let secret_of = Credential::Secret(secret);
    let client = RelayClient::by_ways_within(address, secret_of, ways, reach)?;
    Ok(Depot {
        record,
        humble: client.humble(),
        reserved: Mutex::default(),
        client,
        secret,
        meter: Meter::new(now),
        by_movers: Default::default(),
        told_way: AtomicUsize::new(0),
        forwards: AtomicBool::new(false),
        follows: AtomicBool::new(false),
        gathers: AtomicBool::new(false),
        mends: AtomicBool::new(false),
        scatters: AtomicBool::new(false),
        takes: AtomicBool::new(false),
        lets_through: AtomicBool::new(false),
        measures: AtomicBool::new(false),
        heard: Mutex::default(),
        beaten: Notify::new(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on fails")]
pub(crate) mod tests {
    use posthaste_core::contract::{DepotPrices, DepotTerms};

    use super::*;

    /// Returns a depot that nobody answers for.
    pub(crate) fn depot() -> Depot {
        let record = DepotRecord {
            id: DepotId::new(1),
            name: "campus".into(),
            url: "https://campus.example:7421".into(),
            fingerprint: format!("sha256:{}", "07".repeat(32)),
            capacity: Bytes::mebi(1),
            rate_max: None,
            terms: DepotTerms {
                domain: "campus".into(),
                ..DepotTerms::default()
            },
            prices: DepotPrices::default(),
            load_max_permille: None,
            level: 1,
            owner: None,
        };
        let network = (&Gateways::default(), &Reach::default());
        open(record, [7; 32], network, crate::monotonic()).unwrap()
    }
}
