//! What relays are ordered to do with others, and how that ended.

use serde::{Deserialize, Serialize};

/// The body of a request to send on a fragment. It holds a token, so it is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardBody {
    /// Where the other relay listens.
    pub url: String,
    /// The key it must show.
    pub fingerprint: String,
    /// What it is shown.
    pub token: String,
    /// Until when the dataset is wanted there, in seconds since the Unix epoch.
    pub expires_unix_s: u64,
    /// The rate at which it takes bodies, where that is known.
    #[serde(default)]
    pub rate_limit_bytes_per_s: Option<u64>,
    /// Whether it lets senders through to a store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lets_through: bool,
    /// BLAKE3 of the fragment, 64 hexadecimal digits, where it need not be there yet: what is received with this
    /// digest is sent on as it comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow: Option<String>,
}

/// How it ended. White space may come before it: it says that the relay is still at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardEnd {
    /// What the other relay answered, as a status of HTTP.
    pub status: u16,
    /// Whether the relay that sends is at fault, not the other one or the way there.
    pub is_of_sender: bool,
    /// What went wrong; empty where nothing did.
    pub message: String,
}

impl ForwardEnd {
    /// Whether the other relay holds the fragment now, its digest checked.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        matches!(self.status, 200 | 201)
    }
}

/// The body of a request to measure the path to another relay. It holds a token, so it is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasureBody {
    /// Where the other relay listens.
    pub url: String,
    /// The key it must show.
    pub fingerprint: String,
    /// What it is shown.
    pub token: String,
    /// Most bytes to send.
    pub budget_bytes: u64,
    /// Whether it lets senders through to a store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lets_through: bool,
}

/// How it ended. White space may come before it: it says that the relay is still at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasureEnd {
    /// What the other relay answered, as a status of HTTP.
    pub status: u16,
    /// What went wrong; empty where nothing did.
    pub message: String,
    /// How long a TCP handshake took, in microseconds; absent where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_micros: Option<u64>,
    /// Bytes that the other relay took in all.
    #[serde(default)]
    pub sent_bytes: u64,
    /// Bytes that arrived while it was averaged.
    #[serde(default)]
    pub averaged_bytes: u64,
    /// How long that was, in microseconds; zero where nothing was found.
    #[serde(default)]
    pub averaged_micros: u64,
    /// Whether it ended before it was averaged for long enough: then the path carries at least this.
    #[serde(default)]
    pub is_bound: bool,
}

/// The body of a request to gather a chunk. It holds tokens, so it is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatherBody {
    /// Bytes of the chunk.
    pub size: u64,
    /// The chunk's BLAKE3, 64 hexadecimal digits.
    pub digest: String,
    /// How it is coded, `k+m`.
    pub code: String,
    /// Until when the dataset is wanted here, in seconds since the Unix epoch.
    pub expires_unix_s: u64,
    /// Who has fragments of it: those that are asked first, then those in reserve.
    pub from: Vec<GatherSender>,
    /// BLAKE3 of the fragment that is kept, 64 hexadecimal digits, where that is not the whole chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<String>,
    /// Whether all of them have the fragment itself, and nothing is rebuilt: then the size and the digest are its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_it_is: bool,
}

/// A relay that has a fragment.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatherSender {
    /// Where it listens.
    pub url: String,
    /// The key it must show.
    pub fingerprint: String,
    /// What it is shown: a token of its own that reads this dataset.
    pub token: String,
    /// Which fragment.
    pub fragment: u8,
    /// The fragment's BLAKE3, 64 hexadecimal digits.
    pub digest: String,
}

/// How it ended. White space may come before it: it says that the relay is still at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatherEnd {
    /// How it ended, as a status of HTTP: 200 and 201 when the chunk, or the fragment of it that is kept, is stored here.
    pub status: u16,
    /// What went wrong; empty where nothing did.
    pub message: String,
    /// How each one did that was asked, in the order in which they ended; those that were not waited for
    /// are left out.
    pub senders: Vec<SenderEnd>,
}

/// How one sender did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderEnd {
    /// Which fragment it was asked for.
    pub fragment: u8,
    /// 200, or how it failed, as a status of HTTP.
    pub status: u16,
    /// How long it took, in microseconds.
    pub micros: u64,
}

impl GatherEnd {
    /// Whether what is kept of the chunk is stored, its digest checked.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        matches!(self.status, 200 | 201)
    }
}

/// The order to code a chunk, one line before the chunk. It holds tokens, so it is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScatterBody {
    /// Bytes of the chunk.
    pub size: u64,
    /// The chunk's BLAKE3, 64 hexadecimal digits.
    pub digest: String,
    /// How it is coded, `k+m`.
    pub code: String,
    /// Until when the dataset is wanted, in seconds since the Unix epoch.
    pub expires_unix_s: u64,
    /// The fragment that is kept.
    pub keep: ScatterPiece,
    /// Who gets which others.
    pub to: Vec<ScatterTaker>,
}

/// A fragment as it must come out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScatterPiece {
    /// Which fragment.
    pub fragment: u8,
    /// Its BLAKE3, 64 hexadecimal digits.
    pub digest: String,
}

/// A relay that gets a fragment.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScatterTaker {
    /// Where it listens.
    pub url: String,
    /// The key it must show.
    pub fingerprint: String,
    /// What it is shown: a token of its own that writes this dataset.
    pub token: String,
    /// Which fragment.
    pub fragment: u8,
    /// The fragment's BLAKE3, 64 hexadecimal digits.
    pub digest: String,
    /// The rate at which it takes bodies, where that is known.
    #[serde(default)]
    pub rate_limit_bytes_per_s: Option<u64>,
    /// Whether it lets senders through to a store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lets_through: bool,
}

/// What became of one fragment of a chunk that was coded: a line of the answer. Empty lines say that the relay
/// is still at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PieceEnd {
    /// Which fragment.
    pub fragment: u8,
    /// How it ended, as a status of HTTP: 200 and 201 when it is stored where it was to be.
    pub status: u16,
    /// What went wrong; empty where nothing did.
    pub message: String,
    /// How long it took since the chunk was coded, in microseconds.
    pub micros: u64,
}

impl PieceEnd {
    /// Whether it is stored, its digest checked there.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        matches!(self.status, 200 | 201)
    }
}
