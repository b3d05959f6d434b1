//! Reader of `squeue --json`, `sacct --json` and answers of slurmrestd. One reader suits all
//! versions: fields only ever changed their form, and absent fields are allowed.

use std::{collections::BTreeMap, io::Read};

use serde::{Deserialize, Deserializer};

use super::{
    JobState, Told,
    document::{self, What},
    is_open,
    job_state::standing,
    number::Number,
    places::Places,
    state,
};
use crate::queue::{JOBS_MAX, Job, Queue, Unreadable};

const QUEUE: What = What {
    name: "Slurm's queue",
    list: "jobs",
};
/// User of a job for which the accounting names none.
const UNKNOWN: &str = "unknown";

const HISTORY: What = What {
    name: "Slurm's accounting",
    list: "jobs",
};

/// Job of the controller.
#[derive(Deserialize)]
struct Live {
    #[serde(default)]
    job_id: Number,
    #[serde(default)]
    array_job_id: Number,
    #[serde(rename = "array_task_id", default)]
    array_place: Number,
    /// Places of the jobs that Slurm has not split off their array yet.
    #[serde(rename = "array_task_string")]
    array_places: Option<String>,
    #[serde(default)]
    het_job_id: Number,
    #[serde(default)]
    het_job_offset: Number,
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

/// Job of the accounting.
#[derive(Deserialize)]
struct Past {
    #[serde(default)]
    job_id: Number,
    #[serde(default)]
    array: Array,
    #[serde(default)]
    het: Het,
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
struct Array {
    #[serde(default)]
    job_id: Number,
    #[serde(rename = "task_id", default)]
    place: Number,
    /// Places of the jobs that are not split off yet: a list, or bits.
    #[serde(rename = "task")]
    places: Option<String>,
}

#[derive(Deserialize, Default)]
struct Het {
    #[serde(default)]
    job_id: Number,
    #[serde(default)]
    job_offset: Number,
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

/// Words: one, or a list of them in later releases; empty if absent.
#[derive(Default)]
pub(super) struct Words(Vec<String>);

/// Flags of an operation on a job, whatever its base state. The first one present counts, as in
/// Slurm's own lists.
const STATE_FLAGS: [&str; 9] = [
    "COMPLETING",
    "CONFIGURING",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "STOPPED",
    "REVOKED",
    "RESV_DEL_HOLD",
];

impl Words {
    /// Returns the first word.
    fn first(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// Returns the state that counts: the first operation flag, else the base state, as in Slurm's
    /// own lists.
    fn state(&self) -> &str {
        let flag = STATE_FLAGS.iter().find(|flag| self.has(flag));
        flag.copied().unwrap_or(self.first())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether this word is present, ignoring case.
    pub(super) fn has(&self, word: &str) -> bool {
        self.0.iter().any(|one| one.eq_ignore_ascii_case(word))
    }
}

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
            Shape::One(word) => vec![word],
            Shape::Many(words) => words,
            Shape::None(()) => Vec::new(),
        }))
    }
}

/// Returns the usual name of a job of an array, or of a component of a heterogeneous job; `None`
/// for others.
fn name(array: (Number, Number), het: (Number, Number)) -> Option<String> {
    let is_set = |(of, place): (Number, Number)| Some((of.0.filter(|of| *of > 0)?, place.0?));
    match (is_set(array), is_set(het)) {
        (Some((array, place)), _) => Some(format!("{array}_{place}")),
        (None, Some((first, place))) => Some(format!("{first}+{place}")),
        (None, None) => None,
    }
}

impl Live {
    fn told<'a>(&'a self, reason: &'a str) -> Told<'a> {
        Told {
            state: self.job_state.state(),
            reason,
            priority: self.priority.0,
            nodes: self.nodes.first(),
        }
    }

    /// Returns the job, or the first of the array's jobs for which this record stands.
    fn job(&self) -> Option<Job> {
        let number = self.job_id.0?.to_string();
        let named = name(
            (self.array_job_id, self.array_place),
            (self.het_job_id, self.het_job_offset),
        );
        let (id, number) = match named.filter(|name| *name != number) {
            Some(id) => (id, Some(number)),
            None => (number, None),
        };
        let reason = self.state_reason.clone().unwrap_or_default();
        let user = self.user_name.clone().filter(|name| !name.is_empty());
        Some(Job {
            number,
            is_dependent: self.dependency.as_deref().is_some_and(is_open),
            id,
            user: user.or_else(|| self.user_id.0.map(|user| user.to_string()))?,
            state: state(self.told(&reason)),
            reason,
            procs: self.cpus.count()?,
            walltime: self.time_limit.minutes(),
            priority: self.priority.0.unwrap_or(0),
            submitted: self.submit_time.moment(),
            start: self.start_time.moment(),
            end: self.end_time.moment(),
        })
    }

    /// Returns the array's jobs for which this record stands; `None` if it is one job.
    fn places(&self) -> Option<(u64, Places<'_>)> {
        let array = self.array_job_id.0.filter(|array| *array > 0)?;
        if self.array_place.0.is_some() {
            return None;
        }
        let places = Places::read(self.array_places.as_deref()?);
        Some((array, places)).filter(|(_, places)| places.count() > 0)
    }
}

/// Reads `squeue --json`, `scontrol show job --json`, or slurmrestd's answer at
/// `/slurm/v0.0.NN/jobs`, of every version since 21.08.
///
/// # Errors
/// [`Unreadable`] if it is not JSON or has no list of jobs. Invalid jobs are counted.
pub fn queue(from: impl Read) -> Result<Queue, Unreadable> {
    let mut queue = Queue::default();
    document::read(QUEUE, from, |live: Option<Live>| {
        let job = live.as_ref().and_then(Live::job);
        let places = live.as_ref().and_then(Live::places);
        let (Some(job), Some((array, places))) = (&job, places) else {
            return queue.take(job);
        };
        let room = JOBS_MAX.saturating_sub(queue.jobs.len());
        for place in places.iter().take(room) {
            queue.take(Some(Job {
                id: format!("{array}_{place}"),
                number: Some(array.to_string()),
                ..job.clone()
            }));
        }
        queue.leave_out(places.count().saturating_sub(room));
    })?;
    Ok(queue)
}

/// Reads the state of each job from the input of [`queue`].
///
/// # Errors
/// Errors of [`queue`]. Invalid jobs are left out.
pub fn job_states_json(from: impl Read) -> Result<BTreeMap<u64, JobState>, Unreadable> {
    let mut states = BTreeMap::new();
    document::read(QUEUE, from, |live: Option<Live>| {
        let Some((live, job)) = live.and_then(|live| live.job_id.0.map(|job| (live, job))) else {
            return;
        };
        if states.len() < JOBS_MAX {
            let reason = live.state_reason.as_deref().unwrap_or_default();
            states.insert(job, standing(live.told(reason)));
        }
    })?;
    Ok(states)
}

/// Reads `sacct --json`, or slurmrestd's answer at `/slurmdb/v0.0.NN/jobs`.
///
/// # Errors
/// [`Unreadable`] if it is not JSON or has no list of jobs. Invalid jobs are counted.
pub fn history(from: impl Read) -> Result<Queue, Unreadable> {
    let mut queue = Queue::default();
    document::read(HISTORY, from, |past: Option<Past>| {
        queue.take(past.and_then(Past::job))
    })?;
    Ok(queue)
}

impl Past {
    fn job(self) -> Option<Job> {
        let Self { array, het, .. } = &self;
        let named = name((array.job_id, array.place), (het.job_id, het.job_offset));
        let places = array.places.as_deref().filter(|places| !places.is_empty());
        let id = match (named, array.job_id.0.filter(|of| *of > 0), places) {
            (Some(name), _, _) => name,
            // Like the text: jobs that are not split off yet.
            (None, Some(array), Some(places)) => format!("{array}_[{places}]"),
            (None, _, _) => self.job_id.0?.to_string(),
        };
        let reason = self.state.reason.unwrap_or_default();
        Some(Job {
            id,
            number: None,
            is_dependent: false,
            // Until 22.05 the user is empty if the accounting knows no association of the
            // submitter.
            user: self
                .user
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| UNKNOWN.to_owned()),
            state: state(Told {
                state: self.state.current.state(),
                reason: &reason,
                priority: self.priority.0,
                nodes: self.nodes.first(),
            }),
            reason,
            procs: self.required.cpus.count()?,
            walltime: self.time.limit.minutes(),
            priority: self.priority.0.unwrap_or(0),
            submitted: self.time.submission.moment(),
            start: self.time.start.moment(),
            end: self.time.end.moment(),
        })
    }
}
