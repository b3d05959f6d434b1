//! What PBS says of its queue: `qstat -f -F json` of OpenPBS and PBS Professional.

use std::{collections::BTreeMap, time::Duration};

use jiff::{civil::DateTime, tz::TimeZone};
use posthaste_types::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::queue::{Job, Queue, State, Unreadable};

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "Jobs", default)]
    jobs: BTreeMap<String, Value>,
}

/// Reads `qstat -f -F json`, with `-x` for history; local times are of `zone`. An empty queue has no jobs and is no error.
///
/// # Errors
/// [`Unreadable`] when it is no JSON; jobs that make no sense are counted.
pub fn queue(bytes: &[u8], zone: &TimeZone) -> Result<Queue, Unreadable> {
    let answer: Answer = serde_json::from_slice(bytes)
        .map_err(|cause| Unreadable::new("the queue of PBS", &cause.to_string()))?;
    let mut queue = Queue::default();
    for (id, fields) in &answer.jobs {
        queue.take(job(id, fields, zone));
    }
    Ok(queue)
}

fn job(id: &str, fields: &Value, zone: &TimeZone) -> Option<Job> {
    let word = |name: &str| fields.get(name).and_then(Value::as_str);
    let at = |name: &str| fields.get(name).and_then(|value| moment(value, zone));
    let asked = fields.get("Resource_List")?;
    let started = at("stime");
    let estimated = fields
        .get("estimated")
        .and_then(|found| moment(found.get("start_time")?, zone));
    let state = match (word("job_state")?, started) {
        ("Q", _) => State::Waiting,
        ("H" | "W" | "T" | "M", _) => State::Held,
        ("R" | "S" | "E" | "B" | "U", _) => State::Running,
        (_, Some(_)) => State::Over,
        (_, None) => State::Cancelled,
    };
    let start = if state == State::Waiting {
        estimated
    } else {
        started
    };
    Some(Job {
        id: id.to_owned(),
        // alice@login1
        user: word("Job_Owner")?.split('@').next()?.to_owned(),
        state,
        reason: word("comment").unwrap_or_default().to_owned(),
        procs: asked
            .get("ncpus")
            .and_then(number)
            .and_then(|count| u32::try_from(count).ok())?,
        walltime: asked.get("walltime").and_then(Value::as_str).and_then(span),
        // A negative priority comes last.
        priority: fields.get("Priority").and_then(number).unwrap_or(0),
        submitted: at("qtime").or_else(|| at("ctime")),
        start,
        end: None,
    })
}

/// A number, also one in quotes.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// `Tue Nov 24 10:00:00 2026` in local time, or seconds since 1970.
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

/// `100:30:00`, or seconds alone.
fn span(word: &str) -> Option<Duration> {
    word.split(':')
        .try_fold(0u64, |sum, one| {
            sum.checked_mul(60)?.checked_add(one.parse().ok()?)
        })
        .map(Duration::from_secs)
}

#[cfg(test)]
mod tests;
