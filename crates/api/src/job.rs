//! Jobs of batch systems: what their scripts ask for, and how far it is.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{JobHold, JobPhase, RequestState};

/// A job that asks for data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewJob {
    /// Its script, or at least the lines with directives.
    pub script: String,
    /// Owner: the user as whom the service runs.
    pub uid: u32,
    /// The group of what is written for it.
    pub gid: u32,
    /// True if it was submitted held: then the service releases it when its data is here, and sees when it ends.
    #[serde(default)]
    pub held: bool,
}

/// End of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobEnd {
    /// True if it ended well: neither failed nor ran out of time.
    pub well: bool,
}

/// A job and what is moved for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// The batch system.
    #[schema(example = "slurm")]
    pub scheduler: String,
    /// Its id there.
    #[schema(example = "4711")]
    pub job: String,
    /// Owner.
    pub uid: u32,
    /// State of it.
    pub phase: JobPhase,
    /// Reason why it does not start without its data.
    pub hold: JobHold,
    /// True if all that it must have before it starts is there, whole.
    pub ready: bool,
    /// True if all that was to leave when it ended is safe elsewhere.
    pub safe: bool,
    /// Why something that it needs can't be there, or something can't leave.
    pub trouble: Option<String>,
    /// Requests for what it reads.
    pub stage_ins: Vec<Moved>,
    /// Requests for what it leaves, once it has ended.
    pub stage_outs: Vec<Moved>,
}

/// A job without what is moved for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobName {
    /// The batch system.
    #[schema(example = "slurm")]
    pub scheduler: String,
    /// Its id there.
    #[schema(example = "4711")]
    pub job: String,
    /// State of it.
    pub phase: JobPhase,
}

/// Request that moves something for a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Moved {
    /// The line of the script that asks for it.
    pub line: usize,
    /// Where it comes from.
    pub source: String,
    /// Where it goes.
    pub destination: String,
    /// The request that moves it, once there is one.
    pub request: Option<String>,
    /// The request's state; waiting without a request.
    pub state: RequestState,
    /// Why it failed.
    pub reason: Option<String>,
    /// True if the job starts without it too.
    pub optional: bool,
}

/// A directory below which jobs may have data moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Scratch {
    /// Its path.
    pub path: String,
    /// Bytes free in it for jobs, with what was brought there for jobs that have not ended.
    pub usable_bytes: u64,
    /// The size of its file system.
    pub size_bytes: u64,
}
