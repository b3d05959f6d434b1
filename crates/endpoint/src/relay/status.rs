use posthaste_types::{ByteRate, Bytes as Amount};

use super::wire::{self, HoursBody, StatusBody};

/// What becomes of what a relay holds that is going to be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draining {
    /// It stays there until it expires.
    Keep,
    /// It is to go on to others.
    Move,
}

impl Draining {
    /// The word for it on the wire and on disk.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Keep => wire::DRAINS_KEEP,
            Self::Move => wire::DRAINS_MOVE,
        }
    }

    /// Whatever a later release says beyond these two keeps.
    #[must_use]
    pub fn read(word: &str) -> Self {
        if word == wire::DRAINS_MOVE {
            Self::Move
        } else {
            Self::Keep
        }
    }
}

/// What a relay says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayStatus {
    /// Its own name, for people.
    pub name: String,
    /// What it lends in all.
    pub capacity: Amount,
    /// What is stored.
    pub used: Amount,
    /// What is neither stored nor promised to uploads under way, nor reserved.
    pub free: Amount,
    /// What is reserved now for datasets that have not filled it.
    pub reserved: Amount,
    /// The rate at which it takes bodies, all clients together.
    pub rate_limit: Option<ByteRate>,
    /// Bodies taken since it started, also of uploads that were not kept.
    pub received: Amount,
    /// The release it runs.
    pub version: String,
    /// Connections it serves now.
    pub connections: u32,
    /// Whether it is going to be switched off.
    pub draining: Option<Draining>,
    /// When it is lent, as it says; none where it always is.
    pub hours: Option<HoursBody>,
    /// How much its machine has to do, in thousandths of a core's for each core; none where it does not say.
    pub load_permille: Option<u32>,
    /// Whether it can send on to other relays what it holds.
    pub forwards: bool,
    /// Whether it can send on what it still receives.
    pub follows: bool,
    /// Whether it can gather fragments from other relays and rebuild a chunk.
    pub gathers: bool,
    /// Whether it can rebuild one fragment of a chunk from those.
    pub mends: bool,
    /// Whether it can code a chunk and send its fragments on to other relays.
    pub scatters: bool,
    /// Whether it can measure the path to another relay.
    pub measures: bool,
    /// Whether it reserves space for datasets.
    pub reserves: bool,
    /// Whether it can take a fragment as it is from another relay.
    pub takes: bool,
    /// Whether it lets those who send and read through to a store, and takes no bytes itself.
    pub lets_through: bool,
    /// Which store it keeps everything in; none where it keeps things itself. Relays of one store have one fate.
    pub store: Option<String>,
    /// Tells the process from those before it; none where it does not say.
    pub instance: Option<String>,
}

impl RelayStatus {
    /// Understands what it said.
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
