//! What a service can open.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Kinds of addresses, and their capabilities.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Endpoints {
    /// Each kind of storage that is built in.
    pub kinds: Vec<EndpointKind>,
    /// Profiles of the service's user that whoever asks may name, like `NAME:path`.
    pub profiles: Vec<String>,
    /// Credentials that they gave themselves, named alike.
    pub credentials: Vec<String>,
}

/// A kind of storage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EndpointKind {
    /// The scheme of its addresses; `file` for local paths.
    pub scheme: String,
    /// Forms of its addresses, with commas between.
    pub addresses: String,
    /// Capabilities: the keys that `posthaste endpoints --json` shows.
    #[schema(value_type = Object)]
    pub can: BTreeMap<String, Value>,
}
