use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The service is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Always `ok`.
    pub status: String,
    /// The version of posthaste.
    pub version: String,
}
