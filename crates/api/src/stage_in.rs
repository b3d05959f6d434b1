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
    /// Time by which all of it must be there, RFC 3339.
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
    /// True if it is to be taken even if the deadline can't be met.
    #[serde(default)]
    pub best_effort: bool,
    /// An id of the submitter's own: submitting it twice is submitting it once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission_id: Option<String>,
}

/// Fields that a stage-in has beyond those of every request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StageIn {
    /// True if it goes the other way: a stage-out to an address.
    #[serde(default)]
    pub goes_out: bool,
    /// True if what it read is still to be removed, once all of it is there.
    #[serde(default)]
    pub releases: bool,
    /// Since when it is welcome, RFC 3339.
    #[schema(format = DateTime)]
    pub not_before: Option<String>,
    /// The latest moment to begin, or to go on, that still holds the deadline with its margin, RFC 3339.
    #[schema(format = DateTime)]
    pub begin_by: Option<String>,
    /// Time at which its first chunk was asked for, RFC 3339.
    #[schema(format = DateTime)]
    pub begun: Option<String>,
    /// Files that are forecast to be there last, if they lie at some of the sources only.
    pub binding: Option<Binding>,
    /// Chunks that were asked for a second time because the first source was late.
    pub chunks_twice: u32,
    /// Part of each source in it.
    pub sources: Vec<Source>,
}

/// Part of a stage-in that only some of its sources hold, and that is forecast to be there last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Binding {
    /// Names of those sources.
    pub sources: Vec<String>,
    /// Bytes of it that are not there yet.
    pub missing_bytes: u64,
}

/// Part of one source in one stage-in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Source {
    /// Its name: the endpoint.
    pub name: String,
    /// Its state.
    pub state: SourceState,
    /// Chunks that came from it first.
    pub chunks: u32,
    /// Bytes of those.
    pub bytes: u64,
    /// True if it is a depot near the centre on which the stage-in waits.
    #[serde(default)]
    pub near: bool,
    /// Bytes of the stage-in that it holds; of a depot near the centre, what is not here yet.
    pub holds_bytes: u64,
    /// Bytes of these that no other source holds.
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
