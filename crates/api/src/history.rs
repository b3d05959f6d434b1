//! What was moved, and when.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Bytes moved in a span of time, cut into steps of one length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// Where the first step begins.
    #[schema(format = DateTime, example = "2026-11-20T12:00:00.000Z")]
    pub from: String,
    /// Where the last one ends.
    #[schema(format = DateTime, example = "2026-11-20T18:00:00.000Z")]
    pub to: String,
    /// Length of each step, in seconds.
    pub step_s: u64,
    /// Time before which all figures are in the journal, and survive whatever happens to the service.
    #[schema(format = DateTime, example = "2026-11-20T17:59:40.000Z")]
    pub kept_to: String,
    /// Bytes moved in each step, all paths together.
    pub total: Vec<u64>,
    /// Bytes moved on each path on which there were any, in the order of their names.
    pub paths: Vec<MovedOnPath>,
}

/// Bytes moved on one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MovedOnPath {
    /// The depot where it went, or the source where it came from; `others` where there were too many to tell apart.
    #[schema(example = "ash")]
    pub path: String,
    /// Bytes in each step.
    pub bytes: Vec<u64>,
}
