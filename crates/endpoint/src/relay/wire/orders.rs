//! Orders to relays that involve others, and their ends.

use serde::{Deserialize, Serialize};

/// Body of a request to forward a fragment. It holds a token, so it is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardBody {
    /// URL of the other relay.
    pub url: String,
    /// Fingerprint of the key that it must show.
    pub fingerprint: String,
    /// Token for it.
    pub token: String,
    /// Time until which the dataset is wanted there, in seconds since the Unix epoch.
    pub expires_unix_s: u64,
    /// Rate at which it accepts bodies, if known.
    #[serde(default)]
    pub rate_limit_bytes_per_s: Option<u64>,
    /// True if it hands out presigned URLs to a store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lets_through: bool,
    /// BLAKE3 of the fragment, 64 hexadecimal digits, if it need not be complete yet: bytes
    /// received with this digest are forwarded as they arrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow: Option<String>,
}

/// End of a forward. White space may come before it: the relay is still working.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardEnd {
    /// Answer of the other relay, as an HTTP status.
    pub status: u16,
    /// True if the sending relay is at fault, not the other one or the path.
    pub is_of_sender: bool,
    /// Error message; empty on success.
    pub message: String,
}

impl ForwardEnd {
    /// Returns whether the other relay holds the fragment now, its digest checked.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        matches!(self.status, 200 | 201)
    }
}

/// Body of a request to measure the path to another relay. It holds a token, so it is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasureBody {
    /// URL of the other relay.
    pub url: String,
    /// Fingerprint of the key that it must show.
    pub fingerprint: String,
    /// Token for it.
    pub token: String,
    /// Most bytes to send.
    pub budget_bytes: u64,
    /// True if it hands out presigned URLs to a store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lets_through: bool,
}

/// End of a measurement. White space may come before it: the relay is still working.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasureEnd {
    /// Answer of the other relay, as an HTTP status.
    pub status: u16,
    /// Error message; empty on success.
    pub message: String,
    /// Duration of a TCP handshake, in microseconds; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_micros: Option<u64>,
    /// Bytes that the other relay received in all.
    #[serde(default)]
    pub sent_bytes: u64,
    /// Bytes that arrived during the averaging window.
    #[serde(default)]
    pub averaged_bytes: u64,
    /// Length of the averaging window, in microseconds; zero without a result.
    #[serde(default)]
    pub averaged_micros: u64,
    /// True if the probe ended before the window was long enough: the result is a lower bound.
    #[serde(default)]
    pub is_bound: bool,
}

/// Body of a request to gather a chunk. It holds tokens, so it is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatherBody {
    /// Bytes of the chunk.
    pub size: u64,
    /// The chunk's BLAKE3, 64 hexadecimal digits.
    pub digest: String,
    /// Erasure code, `k+m`.
    pub code: String,
    /// Time until which the dataset is wanted here, in seconds since the Unix epoch.
    pub expires_unix_s: u64,
    /// Relays with its fragments: those asked first, then those in reserve.
    pub from: Vec<GatherSender>,
    /// BLAKE3 of the fragment to keep, 64 hexadecimal digits, unless the whole chunk is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<String>,
    /// True if all of them have the fragment itself and nothing is rebuilt: size and digest are
    /// then the fragment's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_it_is: bool,
}

/// Relay that has a fragment.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatherSender {
    /// URL of the relay.
    pub url: String,
    /// Fingerprint of the key that it must show.
    pub fingerprint: String,
    /// Token of its own that reads this dataset.
    pub token: String,
    /// Index of the fragment.
    pub fragment: u8,
    /// The fragment's BLAKE3, 64 hexadecimal digits.
    pub digest: String,
}

/// End of a gather. White space may come before it: the relay is still working.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatherEnd {
    /// Outcome as an HTTP status: 200 and 201 if the chunk, or the fragment to keep, is stored
    /// here.
    pub status: u16,
    /// Error message; empty on success.
    pub message: String,
    /// Results of the senders asked, in the order in which they ended; those not waited for are
    /// left out.
    pub senders: Vec<SenderEnd>,
}

/// Result of one sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderEnd {
    /// Index of the fragment that it was asked for.
    pub fragment: u8,
    /// 200, or its failure as an HTTP status.
    pub status: u16,
    /// Duration, in microseconds.
    pub micros: u64,
}

impl GatherEnd {
    /// Returns whether the chunk or fragment to keep is stored, its digest checked.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        matches!(self.status, 200 | 201)
    }
}

/// Order to code a chunk, one line before the chunk. It holds tokens, so it is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScatterBody {
    /// Bytes of the chunk.
    pub size: u64,
    /// The chunk's BLAKE3, 64 hexadecimal digits.
    pub digest: String,
    /// Erasure code, `k+m`.
    pub code: String,
    /// Time until which the dataset is wanted, in seconds since the Unix epoch.
    pub expires_unix_s: u64,
    /// Fragment to keep.
    pub keep: ScatterPiece,
    /// Relays that get the others.
    pub to: Vec<ScatterTaker>,
}

/// Fragment that must result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScatterPiece {
    /// Index of the fragment.
    pub fragment: u8,
    /// Its BLAKE3, 64 hexadecimal digits.
    pub digest: String,
}

/// Relay that gets a fragment.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScatterTaker {
    /// URL of the relay.
    pub url: String,
    /// Fingerprint of the key that it must show.
    pub fingerprint: String,
    /// Token of its own that writes this dataset.
    pub token: String,
    /// Index of the fragment.
    pub fragment: u8,
    /// The fragment's BLAKE3, 64 hexadecimal digits.
    pub digest: String,
    /// Rate at which it accepts bodies, if known.
    #[serde(default)]
    pub rate_limit_bytes_per_s: Option<u64>,
    /// True if it hands out presigned URLs to a store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lets_through: bool,
}

/// Outcome of one fragment of a coded chunk: a line of the answer. Empty lines mean that the relay
/// is still working.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PieceEnd {
    /// Index of the fragment.
    pub fragment: u8,
    /// Outcome as an HTTP status: 200 and 201 if it is stored at its destination.
    pub status: u16,
    /// Error message; empty on success.
    pub message: String,
    /// Time since the chunk was coded, in microseconds.
    pub micros: u64,
}

impl PieceEnd {
    /// Returns whether it is stored, its digest checked there.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        matches!(self.status, 200 | 201)
    }
}
