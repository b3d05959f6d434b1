//! Closed loop: a scheduler with EASY backfill starts jobs, but none before its data is there.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    staging::{Policy, Staging},
    swf::Log,
};

/// Treatment of a job whose data is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Held: the scheduler does not plan for the job.
    Held,
    /// Planned for, as Slurm does: the pass at each change of the queue skips jobs without data,
    /// and stops at the first job that has to wait for processors. Backfill keeps the processors of
    /// a job that could start until its data is there.
    Kept,
}

/// Result of a policy.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Mean seconds that jobs waited, and that their data lay on scratch meanwhile.
    pub wait: f64,
    pub exposure: f64,
    /// Mean wait in seconds of jobs that request up to a sixteenth, up to a quarter, and more of
    /// the machine.
    pub waits: [f64; 3],
}

/// A centre during the replay of a log.
struct Centre<'a> {
    log: &'a Log,
    gate: Gate,
    free: u32,
    running: BTreeSet<(usize, u64)>,
    /// Running jobs by requested end, then place.
    limits: BTreeSet<(u64, usize)>,
    ends: BTreeSet<(u64, usize)>,
    waiting: BTreeSet<usize>,
    /// Arrival of the data of each waiting job; none before its transfer has begun.
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
    let mut jobs = [0.0; 3];
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
            let waited = (now - one.submit) as f64;
            let class = width(one.shape.procs, log.procs);
            jobs[class] += 1.0;
            found.waits[class] += waited;
            found.wait += waited;
            found.exposure += exposed as f64;
            if let Some(staging) = &mut staging {
                staging.on_start(job, now, true);
            }
        }
    }
    let all = log.jobs.len() as f64;
    Outcome {
        wait: found.wait / all,
        exposure: found.exposure / all,
        waits: [0, 1, 2].map(|class| found.waits[class] / jobs[class]),
    }
}

/// Returns the class of a job by the share of the machine it requests.
fn width(procs: u32, all: u32) -> usize {
    [all / 16, all / 4].partition_point(|most| *most < procs)
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

    fn is_ready(&self, job: usize, now: u64) -> bool {
        self.ready.get(&job).is_some_and(|ready| *ready <= now)
    }

    fn schedule(&mut self, now: u64) -> Vec<usize> {
        let mut started = match self.gate {
            Gate::Kept => self.start_first(now),
            Gate::Held => Vec::new(),
        };
        started.extend(self.backfill(now));
        started
    }

    /// Starts jobs in the order of the queue until one that has its data must wait for processors.
    fn start_first(&mut self, now: u64) -> Vec<usize> {
        let waiting: Vec<usize> = self.waiting.iter().copied().collect();
        let ready = waiting.into_iter().filter(|job| self.is_ready(*job, now));
        let mut free = self.free;
        let fits = |job: &usize| {
            let left = free.checked_sub(self.log.jobs[*job].shape.procs);
            free = left.unwrap_or(free);
            left.is_some()
        };
        let started: Vec<usize> = ready.take_while(fits).collect();
        started.iter().for_each(|job| self.start(*job, now));
        started
    }

    /// Starts jobs in the order of the queue until one must wait for processors, and after it all
    /// jobs that do not delay that one (EASY). A job without its data does not start; the gate
    /// decides how it is planned for.
    fn backfill(&mut self, now: u64) -> Vec<usize> {
        let mut started = Vec::new();
        let mut reserved: Option<(u64, u32)> = None;
        // Free processors, less those kept for other jobs.
        let mut kept = 0;
        for job in self.waiting.clone() {
            let free = self.free - kept;
            if free == 0 {
                break;
            }
            let shape = self.log.jobs[job].shape;
            let (procs, length) = (shape.procs, shape.walltime.as_secs());
            let is_ready = self.is_ready(job, now);
            let fits = procs <= free;
            if !is_ready && self.gate == Gate::Held {
                continue;
            }
            match &mut reserved {
                None if fits => {}
                None => {
                    reserved = Some(self.reserve(procs, free, now));
                    continue;
                }
                Some((shadow, extra)) if fits && (now + length <= *shadow || procs <= *extra) => {
                    if now + length > *shadow {
                        *extra -= procs;
                    }
                }
                Some(_) => continue,
            }
            if is_ready {
                self.start(job, now);
                started.push(job);
            } else {
                kept += procs;
            }
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

    /// Returns when this many processors are free if all jobs run to their limit and `free` are
    /// free now, and how many are left over.
    fn reserve(&self, procs: u32, mut free: u32, now: u64) -> (u64, u32) {
        let mut at = now;
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
