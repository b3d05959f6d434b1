//! Messages about space that a relay reserves.

use serde::{Deserialize, Serialize};

use crate::relay::DatasetId;

/// Body of a request for space: the reservation that the dataset is to have from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceBody {
    /// Bytes, including all that it already stores.
    pub bytes: u64,
    /// Start, in seconds since the Unix epoch; absent: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_unix_s: Option<u64>,
    /// End, in seconds since the Unix epoch.
    pub until_unix_s: u64,
    /// Seconds for which it is only held; absent: it is committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_s: Option<u32>,
}

/// Reservation granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceGrant {
    /// Bytes reserved.
    pub bytes: u64,
    /// Start, in seconds since the Unix epoch.
    pub from_unix_s: u64,
    /// End, in seconds since the Unix epoch.
    pub until_unix_s: u64,
    /// End of the hold unless it is committed before; absent once it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until_unix_s: Option<u64>,
}

/// Line of `/v1/spaces`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceHeld {
    /// Dataset of the reservation.
    pub dataset: DatasetId,
    /// Bytes stored of it, and in progress.
    pub stored_bytes: u64,
    /// Reservation granted.
    #[serde(flatten)]
    pub grant: SpaceGrant,
}
