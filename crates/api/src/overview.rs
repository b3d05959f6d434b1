//! All requests at a glance.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of all requests in the books.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Overview {
    /// Time of which this is true, RFC 3339: a second ago or more, where there are many.
    #[schema(format = DateTime)]
    pub as_of: String,
    /// Number of stage-outs in each state.
    pub stage_outs: BTreeMap<String, u64>,
    /// Number of stage-ins, and of stage-outs to addresses, in each state.
    pub stage_ins: BTreeMap<String, u64>,
    /// Those under way: what `GET /v1/requests?sort=slack` lists.
    pub under_way: u64,
    /// Those of them that are forecast to be late.
    pub at_risk: u64,
    /// Those of them whose deadline has passed.
    pub missed: u64,
    /// Bytes that are not safe yet, or not here yet.
    pub waiting_bytes: u64,
    /// The least slack of those under way, in seconds; negative where one would be late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_slack_s: Option<f64>,
    /// The number of the newest event: `GET /v1/events?after=` that goes on from here.
    pub newest_event: u64,
}
