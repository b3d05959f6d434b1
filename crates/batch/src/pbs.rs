//! Queues of OpenPBS and PBS Professional, from `qstat -f`. It is read as JSON, or as text where
//! that JSON is invalid: PBS leaves variables unquoted that look like numbers, such as `005`.
//!
//! Functions here take bytes and run nothing. The caller decides when to ask PBS.

mod text;

use std::{collections::BTreeMap, time::Duration};

use jiff::{civil::DateTime, tz::TimeZone};
use posthaste_types::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::queue::{Call, Job, Queue, State, Unreadable};
pub use text::queue_text;

/// Locale in which PBS prints names of months and days as this module reads them.
const ENVIRONMENT: (&str, &str) = ("LC_ALL", "C");

/// Prints the queue as [`queue`] reads it, with each job of an array by itself.
pub const QUEUE: Call = Call {
    program: "qstat",
    arguments: &["-f", "-t", "-F", "json"],
    environment: ENVIRONMENT,
};
/// Prints the queue as [`queue_text`] reads it.
pub const QUEUE_TEXT: Call = Call {
    program: "qstat",
    arguments: &["-f", "-t"],
    environment: ENVIRONMENT,
};
/// Prints the jobs of [`QUEUE`] and the finished ones that the server still knows: two weeks of
/// them, unless configured otherwise.
pub const HISTORY: Call = Call {
    program: "qstat",
    arguments: &["-x", "-f", "-t", "-F", "json"],
    environment: ENVIRONMENT,
};
/// Prints the jobs of [`QUEUE_TEXT`] and the finished ones.
pub const HISTORY_TEXT: Call = Call {
    program: "qstat",
    arguments: &["-x", "-f", "-t"],
    environment: ENVIRONMENT,
};
/// Prints the nodes as [`processors`] reads them.
pub const PROCESSORS: Call = Call {
    program: "pbsnodes",
    arguments: &["-a", "-F", "json"],
    environment: ENVIRONMENT,
};

/// States in which a node accepts no jobs.
const AWAY: [&str; 6] = [
    "down",
    "offline",
    "stale",
    "state-unknown",
    "unresolvable",
    "maintenance",
];

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "Jobs", default)]
    jobs: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct Nodes {
    #[serde(default)]
    nodes: BTreeMap<String, Value>,
}

/// Counts the processors of the nodes that accept jobs, now or once they are free.
///
/// # Errors
/// [`Unreadable`] if the answer is not JSON or reports no processor.
pub fn processors(bytes: &[u8]) -> Result<u32, Unreadable> {
    let unreadable = |why: &str| Unreadable::new("the nodes of PBS", why);
    let answer: Nodes =
        serde_json::from_slice(bytes).map_err(|cause| unreadable(&cause.to_string()))?;
    let usable = answer.nodes.values().filter(|node| {
        // `down,offline`
        let mut states = node.get("state").and_then(Value::as_str).into_iter();
        !states.any(|states| {
            let mut states = states.split(',').map(str::trim);
            states.any(|state| AWAY.contains(&state.to_ascii_lowercase().as_str()))
        })
    });
    let counts = usable.filter_map(|node| number(node.get("resources_available")?.get("ncpus")?));
    let all = counts.fold(0u64, u64::saturating_add);
    match u32::try_from(all) {
        Ok(0) | Err(_) => Err(unreadable("no node that is up has processors")),
        Ok(all) => Ok(all),
    }
}

/// Reads [`QUEUE`] and [`HISTORY`]; local times are in `zone`. An empty queue has no jobs and is no
/// error.
///
/// # Errors
/// [`Unreadable`] if the answer is not JSON. Invalid jobs are counted.
pub fn queue(bytes: &[u8], zone: &TimeZone) -> Result<Queue, Unreadable> {
    let answer: Answer = serde_json::from_slice(bytes)
        .map_err(|cause| Unreadable::new("the queue of PBS", &cause.to_string()))?;
    Ok(queue_of(&answer.jobs, zone))
}

/// Builds the queue from jobs by id. An array appears beside its jobs and is no job itself. A hold
/// on the array also holds its jobs that are shown as queued.
fn queue_of(jobs: &BTreeMap<String, Value>, zone: &TimeZone) -> Queue {
    let mut queue = Queue::default();
    for (id, fields) in jobs.iter().filter(|(id, _)| !id.contains("[]")) {
        let array = array(id);
        let whole = array.as_ref().and_then(|array| jobs.get(array));
        let is_held = whole.is_some_and(|whole| state(whole, None) == Some(State::Held));
        let found = job(id, fields, zone).map(|job| Job {
            state: if is_held && job.state == State::Waiting {
                State::Held
            } else {
                job.state
            },
            is_dependent: job.is_dependent || whole.is_some_and(is_dependent),
            number: array,
            ..job
        });
        queue.take(found);
    }
    queue
}

/// Returns the array `5[].server` of the job `5[1].server`; `None` for jobs outside arrays.
fn array(id: &str) -> Option<String> {
    let (array, number) = id.split_once('[')?;
    let (_, server) = number.split_once(']')?;
    Some(format!("{array}[]{server}"))
}

/// Returns whether PBS itself holds a job until others have begun or ended. `depend` also lists
/// jobs that wait for this one: `beforeok:…`.
fn is_dependent(fields: &Value) -> bool {
    let word = |name: &str| fields.get(name).and_then(Value::as_str);
    let mut kinds = word("depend").unwrap_or_default().split(',');
    let is_held = word("Hold_Types").is_some_and(|holds| holds.contains('s'));
    is_held && kinds.any(|kind| kind.starts_with("after") || kind.starts_with("on:"))
}

/// Returns the state of a job with this start time; `None` if PBS reports no known one.
fn state(fields: &Value, started: Option<Timestamp>) -> Option<State> {
    Some(match (fields.get("job_state")?.as_str()?, started) {
        ("Q", _) => State::Waiting,
        ("H" | "W" | "T" | "M", _) => State::Held,
        ("R" | "S" | "E" | "B" | "U", _) => State::Running,
        (_, Some(_)) => State::Over,
        (_, None) => State::Cancelled,
    })
}

fn job(id: &str, fields: &Value, zone: &TimeZone) -> Option<Job> {
    let word = |name: &str| fields.get(name).and_then(Value::as_str);
    let at = |name: &str| fields.get(name).and_then(|value| moment(value, zone));
    let asked = fields.get("Resource_List")?;
    let started = at("stime");
    let estimated = fields
        .get("estimated")
        .and_then(|found| moment(found.get("start_time")?, zone));
    let state = state(fields, started)?;
    let ran = fields.get("resources_used");
    let ran = ran.and_then(|used| span(used.get("walltime")?.as_str()?));
    let end = ran.and_then(|ran| Some(started.filter(|_| state == State::Over)? + ran));
    let start = if state == State::Waiting {
        estimated
    } else {
        started
    };
    Some(Job {
        id: id.to_owned(),
        number: None,
        is_dependent: is_dependent(fields),
        // `alice@login1`
        user: word("Job_Owner")?.split('@').next()?.to_owned(),
        state,
        reason: word("comment").unwrap_or_default().to_owned(),
        procs: asked
            .get("ncpus")
            .and_then(number)
            .and_then(|count| u32::try_from(count).ok())?,
        walltime: asked.get("walltime").and_then(Value::as_str).and_then(span),
        // Jobs with a negative priority come last.
        priority: fields.get("Priority").and_then(number).unwrap_or(0),
        submitted: at("qtime").or_else(|| at("ctime")),
        start,
        end,
    })
}

/// Reads a number, quoted or not.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Reads `Tue Nov 24 10:00:00 2026` in local time, or seconds since 1970.
fn moment(value: &Value, zone: &TimeZone) -> Option<Timestamp> {
    let secs = match number(value) {
        Some(secs) => secs,
        None => {
            let local = DateTime::strptime("%a %b %e %H:%M:%S %Y", value.as_str()?).ok()?;
            let moment = local.to_zoned(zone.clone()).ok()?.timestamp();
            u64::try_from(moment.as_second()).ok()?
        }
    };
    (secs > 0).then_some(Timestamp::from_secs(secs))
}

/// Reads `100:30:00`, or seconds alone.
fn span(word: &str) -> Option<Duration> {
    word.split(':')
        .try_fold(0u64, |sum, one| {
            sum.checked_mul(60)?.checked_add(one.parse().ok()?)
        })
        .map(Duration::from_secs)
}

#[cfg(test)]
mod tests;
