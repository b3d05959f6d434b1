//! What movers and the service say to each other (`docs/algorithms/movers.md`), and how movers are shown to people.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::MoverState;

/// The newest protocol between movers and the service that this release speaks.
pub const MOVER_PROTOCOL: u32 = 1;

/// A mover that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewMover {
    /// Name of it: one of the same name that was there before is gone.
    #[schema(example = "dtn3-4711")]
    pub name: String,
    /// The host it runs on.
    #[schema(example = "dtn3")]
    pub host: String,
    /// Its release.
    #[schema(example = "0.1.0")]
    pub version: String,
    /// The protocols that it speaks.
    pub protocols: Vec<u32>,
    /// Pieces of work that it may have at once.
    pub slots: u32,
}

/// Answer to a mover that joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinedMover {
    /// Its number, for all it says from now on.
    pub id: u64,
    /// The protocol to be spoken.
    pub protocol: u32,
    /// Its work is given to others when it was not heard for so long.
    pub lease_ms: u64,
    /// True if the service runs as root: a mover that does lends its rights to no service that has less.
    #[serde(default)]
    pub is_root: bool,
}

/// Report of a mover: it lives, what it has done, and how much it may take. It says all of this again until it is answered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct MoverTurn {
    /// The number of this turn, higher than those before.
    pub number: u64,
    /// Pieces of work that it may take now.
    pub free: u32,
    /// Longest time for which the answer may wait for work; at most some seconds.
    #[serde(default)]
    pub wait_ms: u64,
    /// True if it takes nothing more, and ends when it has done what it has.
    #[serde(default)]
    pub leaves: bool,
    /// The leases that it has, but for those that have ended.
    #[serde(default)]
    pub holds: Vec<u64>,
    /// Work that is on its way.
    #[serde(default)]
    pub begun: Vec<BegunWork>,
    /// Work that has ended.
    #[serde(default)]
    pub ended: Vec<EndedWork>,
    /// Bytes that it moved since it joined.
    #[serde(default)]
    pub bytes: u64,
    /// Progress of fetches.
    #[serde(default)]
    pub fetched: Vec<FetchedBytes>,
    /// Fragments that went to depots.
    #[serde(default)]
    pub carried: Vec<CarriedBytes>,
}

/// A fragment that is on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BegunWork {
    /// The right to do it.
    pub lease: u64,
    /// The fragment's digest.
    pub digest: String,
}

/// A piece of work that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EndedWork {
    /// The right to do it.
    pub lease: u64,
    /// Where it was done, the digests of its chunk: of the whole and, where it was sent, of each fragment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub digests: Vec<String>,
    /// Parts that a store holds now, where they were copied there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<StoredPiece>,
    /// Why it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Outcome of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FetchedBytes {
    /// The right to do it.
    pub lease: u64,
    /// Bytes since it began.
    pub bytes: u64,
}

/// Fragment that a mover sent to a depot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CarriedBytes {
    /// The depot's name.
    pub depot: String,
    /// Bytes given to the network since it joined.
    pub sent: u64,
    /// Those of them that have arrived at the depot's machine, as far as is known.
    pub arrived: u64,
}

/// Answer to a mover: its work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct MoverOrders {
    /// State that it is to take from now on.
    pub work: Vec<Work>,
    /// Leases of which nobody waits for the end any more.
    pub stop: Vec<u64>,
}

/// A piece of work, and the right to do it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Work {
    /// The right.
    pub lease: u64,
    /// Work to be done.
    pub chore: Chore,
}

/// Work to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Chore {
    /// A fragment is to be sent to a depot.
    Send(SendChore),
    /// A chunk is to be fetched from a source.
    Fetch(FetchChore),
    /// A file, or a segment of one, is to be copied to where a stage-out goes.
    Carry(Box<CarryChore>),
}

/// A fragment of a sealed dataset that is to be sent to a depot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SendChore {
    /// The request: what its dataset is, is asked for by this.
    pub request: String,
    /// The chunk.
    pub chunk: u32,
    /// The fragment of it; 255 is the whole.
    pub fragment: u8,
    /// The chunk's digests, where somebody read it before.
    #[serde(default)]
    pub known: Vec<String>,
    /// The depot.
    pub depot: ChoreDepot,
    /// Time at which it should be there, in microseconds since the Unix epoch; whenever there is time, without.
    #[serde(default)]
    pub due_us: Option<u64>,
    /// True if it takes only what others leave.
    #[serde(default)]
    pub gives_way: bool,
    /// Number of files that were left out of the dataset: a list of files with fewer is out of date.
    #[serde(default)]
    pub left_out: usize,
    /// The span of a trace that this belongs to, as W3C's Trace Context writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// The depot that something is sent to.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChoreDepot {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub url: String,
    /// The fingerprint of its key.
    pub fingerprint: String,
    /// Leave to read that is shown to it: good for this dataset, for some minutes.
    pub token: String,
    /// True if it lets those who send through to a store, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lets_through: Option<bool>,
}

impl fmt::Debug for ChoreDepot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChoreDepot")
            .field("name", &self.name)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// Description of a sealed dataset, for whoever sends its chunks. Its files are asked for by themselves.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SealedDataset {
    /// Its name at depots.
    pub dataset: String,
    /// Where its files lie.
    pub root: String,
    /// Code of its chunks.
    #[schema(example = "4+1")]
    pub code: String,
    /// Length of each.
    pub chunk_bytes: u64,
    /// Until when depots keep it, in microseconds since the Unix epoch.
    pub expires_us: u64,
    /// The account with whose rights its files are read; those of the mover's own user without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The key that encrypts it, where it is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

impl fmt::Debug for SealedDataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedDataset")
            .field("dataset", &self.dataset)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

/// A credential that belongs to the owner of a request, for as long as a piece of work of it lasts. It is kept on no disk.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub struct ChoreCredential {
    /// Address that `~NAME:path` stands for.
    pub url: String,
    /// Keys of profiles, and their values.
    pub settings: BTreeMap<String, String>,
}

impl fmt::Debug for ChoreCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChoreCredential")
    }
}

/// A place that work reads from or writes to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub struct ChorePlace {
    /// Its address.
    pub address: String,
    /// The profile of the mover's user that opens it.
    #[serde(default)]
    pub profile: Option<String>,
    /// Credential that opens it, where it is an address of the owner's own credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<ChoreCredential>,
}

/// A chunk of a stage-in that is to be fetched from one source, into the files of its draft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FetchChore {
    /// The request.
    pub request: String,
    /// The chunk.
    pub chunk: u32,
    /// Its source.
    pub source: ChorePlace,
    /// The account with whose rights files are read and written; those of the mover's own user without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The directory of the draft.
    pub draft: String,
    /// Parts of it, in order.
    pub pieces: Vec<FetchPiece>,
    /// The span of a trace that this belongs to, as W3C's Trace Context writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// Some bytes of a file that are to be fetched or copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FetchPiece {
    /// The file, below the draft or the destination.
    pub path: String,
    /// Path below the source; empty where that is the file.
    pub source_path: String,
    /// The file's bytes.
    pub size: u64,
    /// Time of its last change, as its source said: whole seconds since the Unix epoch.
    #[serde(default)]
    pub mtime_s: Option<i64>,
    /// Nanoseconds after that.
    #[serde(default)]
    pub mtime_ns: u32,
    /// Version that its source tells of it.
    #[serde(default)]
    pub version: Option<String>,
    /// The first byte.
    pub from: u64,
    /// The one after the last.
    pub to: u64,
}

/// A file of a stage-out, or a segment of one, that is to be copied to where that goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CarryChore {
    /// The request.
    pub request: String,
    /// Directory below which the source of what is copied lies…
    pub source: ChorePlace,
    /// …and goes below that.
    pub destination: ChorePlace,
    /// The account with whose rights files are read; those of the mover's own user without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The file, and which of its bytes.
    pub piece: FetchPiece,
    /// Its permission bits, where its source has some.
    #[serde(default)]
    pub mode: Option<u32>,
    /// Something that has its name already stays, and the mover fails.
    #[serde(default)]
    pub only_new: bool,
    /// Source of which it is a copy, as the service names it.
    pub origin: String,
    /// The segment that is meant; the whole file, all or nothing, without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<ChoreSegment>,
    /// The span of a trace that this belongs to, as W3C's Trace Context writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// A segment of a file that the service began to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChoreSegment {
    /// Name of the unfinished file at the store. Never a secret.
    pub token: String,
    /// Which segment it is, from 0.
    pub index: u64,
}

/// Part of a file that a store holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoredPiece {
    /// Its CRC-64/NVME, in hexadecimal.
    pub checksum: String,
    /// Answer of the store about it; empty of a whole file.
    #[serde(default)]
    pub receipt: String,
}

/// State of a mover.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Mover {
    /// Name of it.
    pub name: String,
    /// The host it runs on.
    pub host: String,
    /// Its release.
    pub version: String,
    /// True if it takes work.
    pub state: MoverState,
    /// Pieces of work that it may have at once.
    pub slots: u32,
    /// Number of orders it has.
    pub working: u64,
    /// Number of orders it has done.
    pub done: u64,
    /// Number of orders it could not do.
    pub failed: u64,
    /// Bytes it moved.
    pub bytes: u64,
    /// For how long it has been there, in seconds.
    pub age_s: f64,
    /// Time since it was heard last, in seconds.
    pub heard_s: f64,
    /// Why it could not do what it could not do last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}
