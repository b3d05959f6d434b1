//! The queue of the batch system, and when its jobs are forecast to start.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A queue and what is forecast of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Queue {
    /// The batch system.
    #[schema(example = "slurm")]
    pub scheduler: String,
    /// When it was looked at last, in RFC 3339; none before the first time.
    #[schema(format = DateTime)]
    pub looked: Option<String>,
    /// Why the last look failed.
    pub trouble: Option<String>,
    /// Processors that may be used.
    pub procs: u32,
    /// What waits, first in priority first; of a long queue, the first 500, and of these those that whoever asks may see: who operates
    /// all, others those of the user that their token is for.
    pub jobs: Vec<QueuedJob>,
    /// Of the first 500, those that are not shown to whoever asks.
    #[serde(default)]
    pub jobs_of_others: u32,
    /// Jobs of the last look that made no sense or were too many: nothing is forecast of them.
    #[serde(default)]
    pub left_out: u64,
    /// How good forecasts were so far, by forecaster.
    pub scores: Vec<QueueScore>,
    /// Jobs of the accounting from which it was learned how long jobs wait.
    pub history_jobs: u32,
    /// Why the accounting taught nothing: many centres keep none.
    pub history_trouble: Option<String>,
}

/// A job that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueuedJob {
    /// Its id.
    #[schema(example = "4711")]
    pub job: String,
    /// Whose it is.
    pub user: String,
    /// Processors that it asks for.
    pub procs: u32,
    /// One in ten such jobs starts before, in RFC 3339.
    #[schema(format = DateTime)]
    pub start_p10: String,
    /// Half of such jobs start before.
    #[schema(format = DateTime)]
    pub start_p50: String,
    /// Nine in ten such jobs start before.
    #[schema(format = DateTime)]
    pub start_p90: String,
    /// Who says so: `outcomes` (what became of like forecasts) or, while those are too few, `simulated` (the queue as it stands).
    pub forecaster: String,
    /// 95 in 100 jobs of its class start before, by what others waited; none until 59 such waits are known.
    #[schema(format = DateTime)]
    pub start_bound: Option<String>,
    /// What the batch system itself thinks, where it thinks anything.
    #[schema(format = DateTime)]
    pub start_scheduler: Option<String>,
}

/// How good the first forecasts of jobs were that have started since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueScore {
    /// `outcomes`, `simulated`, `bounds` (what jobs of its class waited) or `scheduler` (the batch system itself).
    pub forecaster: String,
    /// Jobs whose start it forecast.
    pub scored: u32,
    /// How many of them started between p10 and p90; of `bounds`, between its bounds.
    pub within: u32,
    /// How far its p50 was off, on average, in seconds.
    pub mean_error_s: Option<u64>,
}
