use posthaste_types::{ByteRate, Bytes as Amount};

use super::wire::{self, HoursBody, StatusBody};

/// Treatment of the data at a relay that will be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draining {
    /// Data stays until it expires.
    Keep,
    /// Data is to be moved to other depots.
    Move,
}

impl Draining {
    /// Returns the word for it on the wire and on disk.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Keep => wire::DRAINS_KEEP,
            Self::Move => wire::DRAINS_MOVE,
        }
    }

    /// Parses the word. An unknown word of a later release means keep.
    #[must_use]
    pub fn read(word: &str) -> Self {
        if word == wire::DRAINS_MOVE {
            Self::Move
        } else {
            Self::Keep
        }
    }
}

/// Status that a relay reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayStatus {
    /// Relay's own name, for people.
    pub name: String,
    /// Capacity lent in all.
    pub capacity: Amount,
    /// Bytes stored.
    pub used: Amount,
    /// Bytes neither stored, nor promised to uploads in progress, nor reserved.
    pub free: Amount,
    /// Bytes reserved now for datasets that have not filled them.
    pub reserved: Amount,
    /// Rate at which it accepts bodies, all clients together.
    pub rate_limit: Option<ByteRate>,
    /// Bytes of bodies received since it started, including uploads that were not kept.
    pub received: Amount,
    /// Release that it runs.
    pub version: String,
    /// Connections that it serves now.
    pub connections: u32,
    /// Set if it will be switched off.
    pub draining: Option<Draining>,
    /// Hours in which it is lent; none if always.
    pub hours: Option<HoursBody>,
    /// Load of its machine, in thousandths of a core per core; none if not reported.
    pub load_permille: Option<u32>,
    /// True if it can forward fragments to other relays.
    pub forwards: bool,
    /// True if it can forward a fragment that it still receives.
    pub follows: bool,
    /// True if it can gather fragments from other relays and rebuild a chunk.
    pub gathers: bool,
    /// True if it can rebuild one fragment of a chunk.
    pub mends: bool,
    /// True if it can code a chunk and send its fragments to other relays.
    pub scatters: bool,
    /// True if it can measure the path to another relay.
    pub measures: bool,
    /// True if it reserves space for datasets.
    pub reserves: bool,
    /// True if it can copy a fragment as it is from another relay.
    pub takes: bool,
    /// True if it hands out presigned URLs to a store and accepts no bytes itself.
    pub lets_through: bool,
    /// Store in which it keeps everything; none if it keeps data itself. Relays of one store share
    /// its fate.
    pub store: Option<String>,
    /// Identifier that distinguishes the process from earlier ones; none if not reported.
    pub instance: Option<String>,
}

impl RelayStatus {
    /// Converts the reported body.
    #[must_use]
    pub fn read(body: StatusBody) -> Self {
        let can = |what: &str| body.features.iter().any(|known| known == what);
        let (forwards, gathers) = (can(wire::FORWARD), can(wire::GATHER));
        Self {
            name: body.name,
            capacity: Amount::new(body.capacity_bytes),
            used: Amount::new(body.used_bytes),
            free: Amount::new(body.free_bytes),
            reserved: Amount::new(body.reserved_bytes),
            rate_limit: body.rate_limit_bytes_per_s.map(ByteRate::new),
            received: Amount::new(body.received_bytes),
            version: body.version,
            connections: body.connections,
            draining: body.draining.as_deref().map(Draining::read),
            hours: body.hours,
            load_permille: body.load_permille,
            forwards,
            follows: can(wire::FOLLOW),
            gathers,
            mends: can(wire::MEND),
            scatters: can(wire::SCATTER),
            measures: can(wire::MEASURE),
            reserves: can(wire::SPACE),
            takes: can(wire::TAKE),
            lets_through: can(wire::PASS),
            store: body.store.filter(|store| wire::is_store_name(store)),
            instance: body.instance,
        }
    }
}
