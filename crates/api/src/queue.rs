//! The queue of the batch system, and when its jobs are forecast to start.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A queue and what is forecast of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Queue {
    /// The batch system.
    #[schema(example = "slurm")]
    pub scheduler: String,
    /// Time of the last look at it, in RFC 3339; none before the first.
    #[schema(format = DateTime)]
    pub looked: Option<String>,
    /// Why the last look failed.
    pub trouble: Option<String>,
    /// Processors that may be used.
    pub procs: u32,
    /// Jobs that wait, first in priority first; of a long queue, the first 500, and of these those that whoever asks may see: who operates
    /// all, others those of the user that their token is for.
    pub jobs: Vec<QueuedJob>,
    /// Number of jobs among the first 500 that are not shown to whoever asks.
    #[serde(default)]
    pub jobs_of_others: u32,
    /// Jobs of the last look that made no sense or were too many: nothing is forecast of them.
    #[serde(default)]
    pub left_out: u64,
    /// Quality of forecasts so far, by forecaster.
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
    /// Time before which one in ten such jobs starts, in RFC 3339.
    #[schema(format = DateTime)]
    pub start_p10: String,
    /// Half of such jobs start before.
    #[schema(format = DateTime)]
    pub start_p50: String,
    /// Nine in ten such jobs start before.
    #[schema(format = DateTime)]
    pub start_p90: String,
    /// Source: `outcomes` (what became of like forecasts) or, while those are too few, `simulated` (the queue as it stands).
    pub forecaster: String,
    /// 95 in 100 jobs of its class start before, by what others waited; none until 59 such waits are known.
    #[schema(format = DateTime)]
    pub start_bound: Option<String>,
    /// Forecast of the batch system itself, where it has one.
    #[schema(format = DateTime)]
    pub start_scheduler: Option<String>,
}

/// Quality of the first forecasts of jobs that have started since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueScore {
    /// `outcomes`, `simulated`, `bounds` (what jobs of its class waited) or `scheduler` (the batch system itself).
    pub forecaster: String,
    /// Jobs whose start it forecast.
    pub scored: u32,
    /// Number of them that started between p10 and p90; of `bounds`, between its bounds.
    pub within: u32,
    /// Mean error of its p50, in seconds.
    pub mean_error_s: Option<u64>,
}
