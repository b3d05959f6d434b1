use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Changes of a running request; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Time by which it must be safe, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub deadline: Option<String>,
    /// Time of the purge of the first file of its source, RFC 3339: it must be safe before that too. No rule of the purge counts for
    /// it from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub purge_at: Option<String>,
    /// Time by which every destination is to have all of it, RFC 3339; `any` for any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_by: Option<String>,
    /// Most that may be sent for it from here; 0 for no limit.
    #[serde(default, alias = "rate_max", skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_s_max: Option<u64>,
    /// Priority beside others when not all can be served in time: `low`, `normal`, `high`, `urgent`, or a number from -9
    /// to 9.
    #[schema(example = "high")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
}
