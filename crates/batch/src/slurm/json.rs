//! `squeue --json`, `sacct --json` and what slurmrestd answers: one reader for all versions, as fields only ever changed their
//! shape, and no field is missed that is not there.

use serde::{Deserialize, Deserializer};

use super::{Told, is_open, number::Number, state};
use crate::queue::{Job, Queue, Unreadable};

/// A list of jobs, each read on its own: one that makes no sense costs only itself.
#[derive(Deserialize)]
struct Answer<T> {
    jobs: Option<Vec<Perhaps<T>>>,
    #[serde(default)]
    errors: Vec<Trouble>,
    meta: Option<Meta>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Perhaps<T> {
    Sense(T),
    Nonsense(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Trouble {
    Told {
        error: Option<String>,
        description: Option<String>,
    },
    Other(serde::de::IgnoredAny),
}

#[derive(Deserialize, Default)]
struct Meta {
    #[serde(default)]
    plugin: Plugin,
}

/// Until 23.02 `type` has the version, from then on `data_parser`.
#[derive(Deserialize, Default)]
struct Plugin {
    r#type: Option<String>,
    data_parser: Option<String>,
}

/// A job of the controller.
#[derive(Deserialize)]
struct Live {
    #[serde(default)]
    job_id: Number,
    #[serde(default)]
    array_job_id: Number,
    #[serde(rename = "array_task_id", default)]
    array_place: Number,
    user_name: Option<String>,
    #[serde(default)]
    user_id: Number,
    #[serde(default)]
    job_state: Words,
    state_reason: Option<String>,
    dependency: Option<String>,
    #[serde(default)]
    nodes: Words,
    #[serde(default)]
    cpus: Number,
    #[serde(default)]
    time_limit: Number,
    #[serde(default)]
    priority: Number,
    #[serde(default)]
    submit_time: Number,
    #[serde(default)]
    start_time: Number,
    #[serde(default)]
    end_time: Number,
}

/// A job of the accounting.
#[derive(Deserialize)]
struct Past {
    #[serde(default)]
    job_id: Number,
    user: Option<String>,
    #[serde(default)]
    nodes: Words,
    #[serde(default)]
    state: PastState,
    #[serde(default)]
    required: Required,
    #[serde(default)]
    time: Times,
    #[serde(default)]
    priority: Number,
}

#[derive(Deserialize, Default)]
struct PastState {
    #[serde(default)]
    current: Words,
    reason: Option<String>,
}

#[derive(Deserialize, Default)]
struct Required {
    #[serde(rename = "CPUs", default)]
    cpus: Number,
}

#[derive(Deserialize, Default)]
struct Times {
    #[serde(default)]
    submission: Number,
    #[serde(default)]
    start: Number,
    #[serde(default)]
    end: Number,
    #[serde(default)]
    limit: Number,
}

/// A word, or from 23.11 on a list of them, of which the first counts; none where nothing is said.
#[derive(Default)]
struct Words(String);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Shape {
            One(String),
            Many(Vec<String>),
            None(()),
        }
        Ok(Self(match Shape::deserialize(input)? {
            Shape::One(word) => word,
            Shape::Many(words) => words.into_iter().next().unwrap_or_default(),
            Shape::None(()) => String::new(),
        }))
    }
}

impl<T> Answer<T> {
    /// The jobs, or what Slurm says instead.
    fn jobs(self, what: &'static str) -> Result<Vec<Perhaps<T>>, Unreadable> {
        if let Some(jobs) = self.jobs {
            return Ok(jobs);
        }
        let told = self.errors.into_iter().find_map(|trouble| match trouble {
            Trouble::Told { error, description } => error.or(description),
            Trouble::Other(_) => None,
        });
        let plugin = self.meta.unwrap_or_default().plugin;
        let by = plugin.data_parser.or(plugin.r#type);
        let by = by.map_or_else(String::new, |by| format!(" (by {by})"));
        let why = told.unwrap_or_else(|| "it has no list of jobs".to_owned());
        Err(Unreadable::new(what, &format!("{why}{by}")))
    }
}

fn read<'a, T: Deserialize<'a>>(
    what: &'static str,
    bytes: &'a [u8],
    job: impl Fn(T) -> Option<Job>,
) -> Result<Queue, Unreadable> {
    let answer: Answer<T> =
        serde_json::from_slice(bytes).map_err(|cause| Unreadable::new(what, &cause.to_string()))?;
    let mut queue = Queue::default();
    for found in answer.jobs(what)? {
        queue.take(match found {
            Perhaps::Sense(found) => job(found),
            Perhaps::Nonsense(_) => None,
        });
    }
    Ok(queue)
}

/// Reads `squeue --json`, or what slurmrestd answers at `/slurm/v0.0.NN/jobs`: every version since 21.08.
///
/// # Errors
/// [`Unreadable`] when it is no JSON or has no jobs; jobs that make no sense are counted.
pub fn queue(bytes: &[u8]) -> Result<Queue, Unreadable> {
    read("Slurm's queue", bytes, |live: Live| {
        let id = match (live.array_job_id.0, live.array_place.0) {
            (Some(array), Some(one)) if array > 0 => format!("{array}_{one}"),
            _ => live.job_id.0?.to_string(),
        };
        let number = live.job_id.0.map(|number| number.to_string());
        let reason = live.state_reason.unwrap_or_default();
        let user = live.user_name.filter(|name| !name.is_empty());
        Some(Job {
            number: number.filter(|number| *number != id),
            is_dependent: live.dependency.is_some_and(|on| is_open(&on)),
            id,
            user: user.or_else(|| live.user_id.0.map(|user| user.to_string()))?,
            state: state(Told {
                state: &live.job_state.0,
                reason: &reason,
                priority: live.priority.0,
                nodes: &live.nodes.0,
            }),
            reason,
            procs: live.cpus.count()?,
            walltime: live.time_limit.minutes(),
            priority: live.priority.0.unwrap_or(0),
            submitted: live.submit_time.moment(),
            start: live.start_time.moment(),
            end: live.end_time.moment(),
        })
    })
}

/// Reads `sacct --json`, or what slurmrestd answers at `/slurmdb/v0.0.NN/jobs`.
///
/// # Errors
/// [`Unreadable`] when it is no JSON or has no jobs; jobs that make no sense are counted.
pub fn history(bytes: &[u8]) -> Result<Queue, Unreadable> {
    read("Slurm's accounting", bytes, |past: Past| {
        let reason = past.state.reason.unwrap_or_default();
        Some(Job {
            id: past.job_id.0?.to_string(),
            number: None,
            is_dependent: false,
            user: past.user?,
            state: state(Told {
                state: &past.state.current.0,
                reason: &reason,
                priority: past.priority.0,
                nodes: &past.nodes.0,
            }),
            reason,
            procs: past.required.cpus.count()?,
            walltime: past.time.limit.minutes(),
            priority: past.priority.0.unwrap_or(0),
            submitted: past.time.submission.moment(),
            start: past.time.start.moment(),
            end: past.time.end.moment(),
        })
    })
}
