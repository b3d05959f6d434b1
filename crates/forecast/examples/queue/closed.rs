//! The loop closed: a scheduler with EASY backfill starts jobs, but none before its data is there.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    staging::{Policy, Staging},
    swf::Log,
};

/// What a scheduler makes of a job whose data is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// The job is held: nothing is planned for it.
    Held,
    /// The job is passed over when it could start. One that has to wait for processors is planned for all the same.
    PassedOver,
}

/// What became of a policy.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Seconds that jobs waited, and that their data lay on scratch meanwhile, on average.
    pub wait: f64,
    pub exposure: f64,
    /// The latter weighted by bytes, in byte-seconds a job.
    pub weighted: f64,
}

/// A centre while a log is played to it.
struct Centre<'a> {
    log: &'a Log,
    gate: Gate,
    free: u32,
    running: BTreeSet<(usize, u64)>,
    /// By requested end, then place.
    limits: BTreeSet<(u64, usize)>,
    ends: BTreeSet<(u64, usize)>,
    waiting: BTreeSet<usize>,
    /// When the data of each waiting job is there; none while it has not begun to come.
    ready: BTreeMap<usize, u64>,
}

/// Plays a log; without a policy no job has data.
pub fn play(log: &Log, gate: Gate, policy: Option<Policy>) -> Outcome {
    let mut centre = Centre {
        log,
        gate,
        free: log.procs,
        running: BTreeSet::new(),
        limits: BTreeSet::new(),
        ends: BTreeSet::new(),
        waiting: BTreeSet::new(),
        ready: BTreeMap::new(),
    };
    let mut staging = policy.map(|policy| Staging::new(log, policy));
    let mut arrivals: BTreeSet<u64> = BTreeSet::new();
    let mut found = Outcome::default();
    let (mut next, mut now) = (0, 0);
    while next < log.jobs.len() || !centre.waiting.is_empty() {
        let submit = log.jobs.get(next).map(|job| job.submit);
        let end = centre.ends.first().map(|(at, _)| *at);
        let wake = staging
            .as_ref()
            .filter(|_| !centre.waiting.is_empty())
            .and_then(Staging::next);
        let soonest = [submit, end, wake, arrivals.first().copied()];
        now = soonest.into_iter().flatten().min().unwrap_or(now).max(now);
        arrivals.remove(&now);
        centre.end(now);
        let from = next;
        while log.jobs.get(next).is_some_and(|job| job.submit == now) {
            centre.waiting.insert(next);
            next += 1;
        }
        match &mut staging {
            None => centre.ready.extend((from..next).map(|job| (job, now))),
            Some(staging) => {
                for job in staging.look(now, from < next, &centre.running, &centre.waiting) {
                    let ready = now + log.jobs[job].lead;
                    centre.ready.insert(job, ready);
                    arrivals.insert(ready);
                }
            }
        }
        for job in centre.schedule(now) {
            let one = &log.jobs[job];
            let exposed = now - centre.ready.remove(&job).unwrap_or(now);
            found.wait += (now - one.submit) as f64;
            found.exposure += exposed as f64;
            found.weighted += exposed as f64 * one.bytes;
            if let Some(staging) = &mut staging {
                staging.on_start(job, now, true);
            }
        }
    }
    let jobs = log.jobs.len() as f64;
    Outcome {
        wait: found.wait / jobs,
        exposure: found.exposure / jobs,
        weighted: found.weighted / jobs,
    }
}

impl Centre<'_> {
    fn end(&mut self, now: u64) {
        while let Some((at, job)) = self.ends.first().copied()
            && at <= now
        {
            let one = &self.log.jobs[job];
            let start = at - one.run.min(one.shape.walltime.as_secs());
            self.ends.pop_first();
            self.running.remove(&(job, start));
            self.limits
                .remove(&(start + one.shape.walltime.as_secs(), job));
            self.free += one.shape.procs;
        }
    }

    /// Starts what may start, in the order of the queue, until one has to wait for processors; after it whatever does
    /// not delay that one (EASY). A job whose data is not there is not started, and planned for as the gate says.
    fn schedule(&mut self, now: u64) -> Vec<usize> {
        let mut started = Vec::new();
        let mut reserved: Option<(u64, u32)> = None;
        for job in self.waiting.clone() {
            if self.free == 0 {
                break;
            }
            let (procs, length) = (
                self.log.jobs[job].shape.procs,
                self.log.jobs[job].shape.walltime.as_secs(),
            );
            let is_ready = self.ready.get(&job).is_some_and(|ready| *ready <= now);
            let fits = procs <= self.free;
            if !is_ready && (fits || self.gate == Gate::Held) {
                continue;
            }
            match &mut reserved {
                None if fits => {}
                None => {
                    reserved = Some(self.reserve(procs, now));
                    continue;
                }
                Some((shadow, extra)) if fits && (now + length <= *shadow || procs <= *extra) => {
                    if now + length > *shadow {
                        *extra -= procs;
                    }
                }
                Some(_) => continue,
            }
            self.start(job, now);
            started.push(job);
        }
        started
    }

    fn start(&mut self, job: usize, now: u64) {
        let one = &self.log.jobs[job];
        let limit = one.shape.walltime.as_secs();
        self.waiting.remove(&job);
        self.free -= one.shape.procs;
        self.running.insert((job, now));
        self.limits.insert((now + limit, job));
        self.ends.insert((now + one.run.min(limit), job));
    }

    /// When so many processors are free if all run as long as they may, and how many are left.
    fn reserve(&self, procs: u32, now: u64) -> (u64, u32) {
        let (mut at, mut free) = (now, self.free);
        for (limit, job) in &self.limits {
            if free >= procs && *limit > at {
                break;
            }
            free += self.log.jobs[*job].shape.procs;
            at = at.max(*limit);
        }
        (at, free.saturating_sub(procs))
    }
}
