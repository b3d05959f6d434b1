//! What is said about space that a relay reserves.

use serde::{Deserialize, Serialize};

use crate::relay::DatasetId;

/// The body of a request for space: what the dataset is to have reserved from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceBody {
    /// How many bytes, all that it stores counted in.
    pub bytes: u64,
    /// From when, in seconds since the Unix epoch; absent: from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_unix_s: Option<u64>,
    /// Until when, in seconds since the Unix epoch.
    pub until_unix_s: u64,
    /// For how many seconds it is only held; absent: it is committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_s: Option<u32>,
}

/// What is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceGrant {
    /// How many bytes.
    pub bytes: u64,
    /// From when, in seconds since the Unix epoch.
    pub from_unix_s: u64,
    /// Until when, in seconds since the Unix epoch.
    pub until_unix_s: u64,
    /// When it is gone unless it is committed before; absent once it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until_unix_s: Option<u64>,
}

/// One line of `/v1/spaces`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceHeld {
    /// For which dataset.
    pub dataset: DatasetId,
    /// What is stored of it, and under way.
    pub stored_bytes: u64,
    /// What is reserved.
    #[serde(flatten)]
    pub grant: SpaceGrant,
}
