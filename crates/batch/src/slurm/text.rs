//! Text output of `squeue`, `scontrol`, `sacct` and `sinfo`: cheaper than JSON for a long queue,
//! and available in every version.

use std::time::Duration;

use jiff::{civil::DateTime, tz::TimeZone};
use posthaste_types::Timestamp;

use super::{Told, is_open, state};
use crate::queue::{Call, Job, Queue, Unreadable};

/// Prints the queue for [`queue_text`], each job of an array by itself. The reason is last, as it
/// may contain any character.
pub const QUEUE: Call = Call {
    program: "squeue",
    arguments: &[
        "--noheader",
        "--array",
        "--states=all",
        "--format=%i|%A|%u|%T|%C|%l|%Q|%V|%S|%e|%N|%E|%r",
    ],
    environment: TIME_FORMAT,
};

/// Prints the processors for [`processors`].
pub const PROCESSORS: Call = Call {
    program: "sinfo",
    arguments: &["--noheader", "--format=%C"],
    environment: TIME_FORMAT,
};

/// Prints the jobs of the last two weeks for [`history_text`], if Slurm keeps accounts.
pub const HISTORY: Call = Call {
    program: "sacct",
    arguments: &[
        "--allusers",
        "--allocations",
        "--parsable2",
        "--starttime=now-14days",
        "--format=JobID,User,State,ReqCPUS,Timelimit,Submit,Start,End,NodeList",
    ],
    environment: TIME_FORMAT,
};

/// Makes Slurm's programs print moments in seconds since 1970. Without it they print local times
/// without a zone.
const TIME_FORMAT: (&str, &str) = ("SLURM_TIME_FORMAT", "%s");

/// Fields of a line of [`QUEUE`].
const FIELDS: usize = 13;

/// Reads the output of [`QUEUE`]; local times are in `zone`.
#[must_use]
pub fn queue_text(bytes: &[u8], zone: &TimeZone) -> Queue {
    let text = String::from_utf8_lossy(bytes);
    let mut queue = Queue::default();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        queue.take(row(line, zone));
    }
    queue
}

fn row(line: &str, zone: &TimeZone) -> Option<Job> {
    let fields: Vec<&str> = line.splitn(FIELDS, '|').map(str::trim).collect();
    let [
        id,
        number,
        user,
        name,
        procs,
        limit,
        priority,
        submitted,
        start,
        end,
        nodes,
        dependency,
        reason,
    ] = <[&str; FIELDS]>::try_from(fields).ok()?;
    let priority = priority.parse().ok();
    Some(Job {
        id: id.to_owned(),
        number: (number != id).then(|| number.to_owned()),
        is_dependent: is_open(dependency),
        user: user.to_owned(),
        state: state(Told {
            state: name,
            reason,
            priority,
            nodes,
        }),
        reason: reason.to_owned(),
        procs: procs.parse().ok()?,
        walltime: span(limit),
        priority: priority.unwrap_or(0),
        submitted: moment(submitted, zone),
        start: moment(start, zone),
        end: moment(end, zone),
    })
}

/// Reads the output of `scontrol --oneliner show job`; local times are in `zone`. A job's name may
/// imitate a later field: that only spoils the forecast of that job.
#[must_use]
pub fn queue_records(bytes: &[u8], zone: &TimeZone) -> Queue {
    let text = String::from_utf8_lossy(bytes);
    let mut queue = Queue::default();
    for line in text.lines().filter(|line| line.starts_with("JobId=")) {
        queue.take(record(line, zone));
    }
    queue
}

fn record(line: &str, zone: &TimeZone) -> Option<Job> {
    let field = |name: &str| {
        let mut words = line.split(' ');
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    let array = field("ArrayJobId").zip(field("ArrayTaskId"));
    let id = match array {
        // `5-9%2` are jobs that are not split off yet.
        Some((array, one)) => format!("{array}_{one}"),
        None => field("JobId")?.to_owned(),
    };
    // `alice(1000)`
    let user = field("UserId")?.split('(').next()?;
    let reason = field("Reason").unwrap_or_default();
    let priority = field("Priority").and_then(|one| one.parse().ok());
    Some(Job {
        id,
        number: None,
        is_dependent: false,
        user: user.to_owned(),
        state: state(Told {
            state: field("JobState")?,
            reason,
            priority,
            nodes: field("NodeList").unwrap_or_default(),
        }),
        reason: reason.to_owned(),
        // `4`, or `4-8` if more would be accepted.
        procs: field("NumCPUs")?.split('-').next()?.parse().ok()?,
        walltime: field("TimeLimit").and_then(span),
        priority: priority.unwrap_or(0),
        submitted: field("SubmitTime").and_then(|at| moment(at, zone)),
        start: field("StartTime").and_then(|at| moment(at, zone)),
        end: field("EndTime").and_then(|at| moment(at, zone)),
    })
}

/// Reads the output of [`HISTORY`], or of `sacct --parsable2` with these fields in any order: the
/// first line names them. Local times are in `zone`.
///
/// # Errors
/// [`Unreadable`] if a field is missing. Invalid jobs are counted.
pub fn history_text(bytes: &[u8], zone: &TimeZone) -> Result<Queue, Unreadable> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split('|').collect();
    let place = |name: &str| {
        let found = head.iter().position(|one| *one == name);
        found.ok_or_else(|| {
            Unreadable::new("Slurm's accounting", &format!("there is no field {name}"))
        })
    };
    let [id, user, name, procs] = [
        place("JobID")?,
        place("User")?,
        place("State")?,
        place("ReqCPUS")?,
    ];
    let [limit, submit, start, end, nodes] = [
        place("Timelimit")?,
        place("Submit")?,
        place("Start")?,
        place("End")?,
        place("NodeList")?,
    ];
    let mut queue = Queue::default();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let job = || {
            let field = |place: usize| fields.get(place).copied();
            Some(Job {
                id: field(id)?.to_owned(),
                number: None,
                is_dependent: false,
                user: field(user)?.to_owned(),
                state: state(Told {
                    state: field(name)?,
                    reason: "",
                    priority: None,
                    nodes: field(nodes)?,
                }),
                reason: String::new(),
                procs: field(procs)?.parse().ok()?,
                walltime: span(field(limit)?),
                priority: 0,
                submitted: moment(field(submit)?, zone),
                start: moment(field(start)?, zone),
                end: moment(field(end)?, zone),
            })
        };
        queue.take(job());
    }
    Ok(queue)
}

/// Reads the usable processors from the output of [`PROCESSORS`]: in use, idle, out of use, all.
///
/// # Errors
/// [`Unreadable`] for any other output.
pub fn processors(bytes: &[u8]) -> Result<u32, Unreadable> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    let numbers: Option<Vec<u32>> = line.and_then(|line| line.split('/').map(count).collect());
    match numbers.as_deref() {
        Some([used, idle, _, _]) => Ok(used.saturating_add(*idle)),
        _ => Err(Unreadable::new(
            "Slurm's processors",
            line.unwrap_or("nothing was said"),
        )),
    }
}

/// Reads `1200` or `93K`.
fn count(word: &str) -> Option<u32> {
    match word.strip_suffix('K') {
        None => word.parse().ok(),
        Some(thousands) => thousands.parse::<u32>().ok()?.checked_mul(1000),
    }
}

/// Reads seconds since 1970, or a local time; `None` for `N/A`, `Unknown` and 0.
pub(super) fn moment(word: &str, zone: &TimeZone) -> Option<Timestamp> {
    let secs = match word.parse::<u64>() {
        Ok(secs) => secs,
        Err(_) => {
            let local: DateTime = word.parse().ok()?;
            let moment = local.to_zoned(zone.clone()).ok()?.timestamp();
            u64::try_from(moment.as_second()).ok()?
        }
    };
    (secs > 0).then_some(Timestamp::from_secs(secs))
}

/// Reads `30:00`, `1:30:00`, `2-00:00:00`, `2-12`, or minutes alone; `None` for `UNLIMITED` and
/// `Partition_Limit`.
pub(super) fn span(word: &str) -> Option<Duration> {
    let (days, clock) = match word.split_once('-') {
        Some((days, clock)) => (Some(days.parse::<u64>().ok()?), clock),
        None => (None, word),
    };
    let numbers: Option<Vec<u64>> = clock.split(':').map(|one| one.parse().ok()).collect();
    let (hours, minutes, seconds) = match (days, numbers?.as_slice()) {
        (Some(_), [hours]) => (*hours, 0, 0),
        (Some(_), [hours, minutes]) => (*hours, *minutes, 0),
        (None, [minutes]) => (0, *minutes, 0),
        (None, [minutes, seconds]) => (0, *minutes, *seconds),
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        _ => return None,
    };
    let hours = days.unwrap_or(0).checked_mul(24)?.checked_add(hours)?;
    let seconds = minutes.checked_mul(60)?.checked_add(seconds)?;
    Some(Duration::from_secs(
        hours.checked_mul(3600)?.checked_add(seconds)?,
    ))
}
