//! Datasets: what depots hold of requests.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{DepotState, RequestState};

/// Dataset that a request makes of its files: cut into chunks, coded, and held by depots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Dataset {
    /// The name that depots know it by.
    pub id: String,
    /// The request that it belongs to, like `r7`.
    pub request: String,
    /// Where it came from.
    pub source: String,
    /// Where its request stands.
    pub state: RequestState,
    /// Size of all of it.
    pub bytes: u64,
    /// Files, directories and links in it.
    pub files: u64,
    /// Chunks that it is cut into.
    pub chunks: u32,
    /// Bytes of each chunk but the last.
    pub chunk_bytes: u64,
    /// Chunks that survive the loss of as many depots as the code has parity.
    pub chunks_safe: u32,
    /// Code of its chunks on depots.
    pub code: String,
    /// For whom it is encrypted; nobody when it is not.
    pub encrypt_for: Vec<String>,
    /// Depots and destinations that hold something of it, as was last heard.
    pub holders: Vec<Holding>,
    /// Path of its manifest, for whoever may have its data.
    pub manifest: String,
}

/// Part of a dataset that one depot holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Holding {
    /// The depot's name.
    pub depot: String,
    /// State of the depot.
    pub state: DepotState,
    /// Fragments, or whole chunks at a destination, verified.
    pub fragments: u32,
    /// Bytes of those.
    pub bytes: u64,
}
