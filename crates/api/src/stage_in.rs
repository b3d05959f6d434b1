//! Stage-ins: what is asked for, and what a request shows of one.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::SourceState;

/// A stage-in to submit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewStageIn {
    /// Addresses of files or trees, as the service's host sees them. What they hold together is wanted; what
    /// several hold comes from all of these. Paths are absolute.
    pub sources: Vec<String>,
    /// Absolute path of the directory that it becomes. There is nothing there yet.
    #[schema(example = "/scratch/alice/input")]
    pub to: String,
    /// When all of it must be there, RFC 3339.
    #[schema(format = DateTime, example = "2026-11-20T18:00:00Z")]
    pub deadline: String,
    /// Since when it is welcome, RFC 3339: before, it comes only as far as the deadline needs it. At once
    /// when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub not_before: Option<String>,
    /// Names of depots near the centre on which it may wait until it is welcome, where it would have to come earlier
    /// straight from its sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<String>,
    /// `low`, `normal`, `high`, `urgent`, or a number from -9 to 9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// Whose it is: users of a project share evenly what is left over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// On whose account it goes: projects share evenly what is left over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Most that may be read for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_s_max: Option<u64>,
    /// Most that reading its sources may cost in dollars, by the prices in their profiles.
    #[schema(example = 1.5)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_usd: Option<f64>,
    /// The profile of the service's user whose credentials open the sources; those of the environment
    /// when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Whether to take it even if the deadline can't be met.
    #[serde(default)]
    pub best_effort: bool,
    /// An id of the submitter's own: submitting it twice is submitting it once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission_id: Option<String>,
}

/// What a stage-in has beyond what every request has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StageIn {
    /// Whether it goes the other way: a stage-out to an address.
    #[serde(default)]
    pub goes_out: bool,
    /// Whether what it read is still to be removed, once all of it is there.
    #[serde(default)]
    pub releases: bool,
    /// Since when it is welcome, RFC 3339.
    #[schema(format = DateTime)]
    pub not_before: Option<String>,
    /// The latest moment to begin, or to go on, that still holds the deadline with its margin, RFC 3339.
    #[schema(format = DateTime)]
    pub begin_by: Option<String>,
    /// When its first chunk was asked for, RFC 3339.
    #[schema(format = DateTime)]
    pub begun: Option<String>,
    /// What is forecast to be there last, if it lies at some of the sources only.
    pub binding: Option<Binding>,
    /// Chunks that were asked for a second time because the first source was late.
    pub chunks_twice: u32,
    /// What each source does for it.
    pub sources: Vec<Source>,
}

/// What only some of the sources of a stage-in hold, and is forecast to be there last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Binding {
    /// Names of those sources.
    pub sources: Vec<String>,
    /// How much of it is not there yet.
    pub missing_bytes: u64,
}

/// What one source does for one stage-in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Source {
    /// Its name: the endpoint.
    pub name: String,
    /// How it is.
    pub state: SourceState,
    /// Chunks that came from it first.
    pub chunks: u32,
    /// Bytes of those.
    pub bytes: u64,
    /// Whether it is a depot near the centre on which the stage-in waits.
    #[serde(default)]
    pub near: bool,
    /// How much of the stage-in it holds; of a depot near the centre, what is not here yet.
    pub holds_bytes: u64,
    /// Of that, what no other source holds.
    pub alone_bytes: u64,
    /// Chunks on their way from it.
    pub in_flight: u32,
    /// Measured rate over the last seconds, for all stage-ins together.
    pub rate_bytes_per_s: u64,
    /// Forecast rate: nine in ten are higher.
    pub rate_p10_bytes_per_s: u64,
    /// Forecast rate: as likely higher as lower.
    pub rate_p50_bytes_per_s: u64,
}
