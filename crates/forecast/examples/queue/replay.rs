//! Replay of a log: jobs start at their logged times, whatever their data does.

use std::collections::BTreeSet;

use super::{
    staging::{Policy, Staging},
    swf::Log,
};

/// Delay of a job by its data, in seconds, from which it counts as late.
const LATE: u64 = 60;

/// Result of a policy.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Reduction of the time that data lies on scratch, against staging at submission; plain and
    /// weighted by bytes.
    pub cut: f64,
    pub cut_weighted: f64,
    /// Share of jobs whose data is late however early it begins.
    pub unavoidable: f64,
    /// Share of jobs whose data is over a minute later than that.
    pub late: f64,
    /// Mean delay over all jobs, in seconds.
    pub delay: f64,
}

/// Kind of an event, in the order of events at one moment: a job that starts at once is seen first,
/// and one that takes no time ends after its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    End,
    Submit,
    Start,
    EndAtOnce,
}

pub fn play(log: &Log, policy: Policy) -> Outcome {
    let mut staging = Staging::new(log, policy);
    let mut events = events(log).into_iter().peekable();
    let (mut running, mut waiting) = (BTreeSet::new(), BTreeSet::new());
    while let Some(next) = events.peek().map(|event| event.0) {
        let wake = staging.next().filter(|_| !waiting.is_empty());
        let now = wake.map_or(next, |wake| wake.min(next));
        let mut is_submit = false;
        while let Some((_, kind, job)) =
            events.next_if(|event| event.0 == now && event.1 < Kind::Start)
        {
            if kind == Kind::Submit {
                is_submit = true;
                waiting.insert(job);
            } else {
                running.remove(&(job, log.jobs[job].start));
            }
        }
        staging.look(now, is_submit, &running, &waiting);
        while let Some((_, kind, job)) = events.next_if(|event| event.0 == now) {
            if kind == Kind::Start {
                waiting.remove(&job);
                running.insert((job, now));
                staging.on_start(job, now, false);
            } else {
                running.remove(&(job, now));
            }
        }
    }
    outcome(log, &staging)
}

fn events(log: &Log) -> Vec<(u64, Kind, usize)> {
    let mut events = Vec::with_capacity(log.jobs.len() * 3);
    for (place, job) in log.jobs.iter().enumerate() {
        let end = if job.run == 0 {
            Kind::EndAtOnce
        } else {
            Kind::End
        };
        events.push((job.submit, Kind::Submit, place));
        events.push((job.start, Kind::Start, place));
        events.push((job.start + job.run, end, place));
    }
    events.sort_unstable();
    events
}

fn outcome(log: &Log, staging: &Staging<'_>) -> Outcome {
    let (mut plain, mut weighted) = ([0.0; 2], [0.0; 2]);
    let mut found = Outcome::default();
    for (place, job) in log.jobs.iter().enumerate() {
        let arrivals =
            [job.submit, staging.begun(place).unwrap_or(job.start)].map(|from| from + job.lead);
        for (which, arrival) in arrivals.into_iter().enumerate() {
            let exposed = job.start.saturating_sub(arrival) as f64;
            plain[which] += exposed;
            weighted[which] += exposed * job.bytes;
        }
        let [least, late] = arrivals.map(|arrival| arrival.saturating_sub(job.start));
        found.unavoidable += f64::from(least > 0);
        found.late += f64::from(late > least + LATE);
        found.delay += (late - least) as f64;
    }
    let jobs = log.jobs.len() as f64;
    Outcome {
        cut: 1.0 - plain[1] / plain[0],
        cut_weighted: 1.0 - weighted[1] / weighted[0],
        unavoidable: found.unavoidable / jobs,
        late: found.late / jobs,
        delay: found.delay / jobs,
    }
}
