//! Start of the staging of each job, by a policy that sees only the queue.

use std::{collections::BTreeSet, time::Duration};

use posthaste_forecast::queue::{
    Calibration, DEPTH_MAX, Data, Queued, Running, Said, Site, Starts, Wake, starts,
};
use posthaste_types::Timestamp;

use super::swf::Log;

/// Time between two looks at a queue without submissions, in seconds, as in the service.
const LOOK_EVERY: u64 = 30;

/// Longest use of a forecast while the queue does not change, in seconds.
const STALE: u64 = 1800;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// At the submission of the job.
    Submit,
    /// Before the start that the simulated queue forecasts.
    Queue,
    /// Before this quantile, in thousandths, of the outcomes of such forecasts.
    Calibrated(u16),
}

/// State of a policy during the replay of a log.
pub struct Staging<'a> {
    log: &'a Log,
    policy: Policy,
    calibration: Calibration,
    /// Start of the staging of each job.
    begun: Vec<Option<u64>>,
    wakes: BTreeSet<(u64, usize)>,
    wake_of: Vec<Option<u64>>,
    looked: u64,
    is_changed: bool,
}

impl<'a> Staging<'a> {
    pub fn new(log: &'a Log, policy: Policy) -> Self {
        Self {
            log,
            policy,
            calibration: Calibration::default(),
            begun: vec![None; log.jobs.len()],
            wakes: BTreeSet::new(),
            wake_of: vec![None; log.jobs.len()],
            looked: 0,
            is_changed: false,
        }
    }

    /// Returns when the staging of a job began.
    pub fn begun(&self, job: usize) -> Option<u64> {
        self.begun[job]
    }

    /// Returns when the policy must act next if nothing happens before.
    pub fn next(&self) -> Option<u64> {
        let wake = self.wakes.first().map(|(at, _)| *at);
        let every = if self.is_changed { LOOK_EVERY } else { STALE };
        match self.policy {
            Policy::Submit => None,
            Policy::Queue | Policy::Calibrated(_) => {
                wake.into_iter().chain([self.looked + every]).min()
            }
        }
    }

    /// Records the start of a job, which may have waited for its data if it is gated.
    pub fn on_start(&mut self, job: usize, now: u64, is_gated: bool) {
        let begun = self.begun[job].filter(|_| is_gated);
        let data = begun.map(|begun| Data {
            begun: Timestamp::from_secs(begun),
            ready: Timestamp::from_secs(begun + self.log.jobs[job].lead),
        });
        self.calibration
            .on_start(job as u64, Timestamp::from_secs(now), data);
        self.begin(job, now);
        self.is_changed = true;
    }

    fn begin(&mut self, job: usize, now: u64) {
        self.begun[job].get_or_insert(now);
        if let Some(wake) = self.wake_of[job].take() {
            self.wakes.remove(&(wake, job));
        }
    }

    /// Looks at the queue when it is time, and begins the staging that is due. Waiting jobs, and
    /// running jobs with their starts, are given in the order of the queue. Returns the jobs whose
    /// staging begins.
    pub fn look(
        &mut self,
        now: u64,
        is_submit: bool,
        running: &BTreeSet<(usize, u64)>,
        waiting: &BTreeSet<usize>,
    ) -> Vec<usize> {
        let before: Vec<usize> = waiting
            .iter()
            .copied()
            .filter(|job| self.begun[*job].is_none())
            .collect();
        if self.policy == Policy::Submit {
            before.iter().for_each(|job| self.begin(*job, now));
            return before;
        }
        let every = if self.is_changed { LOOK_EVERY } else { STALE };
        if is_submit || now >= self.looked + every {
            self.looked = now;
            self.is_changed = false;
            if !before.is_empty() {
                self.forecast(now, running, waiting);
            }
        } else {
            self.is_changed = true;
        }
        while let Some((at, job)) = self.wakes.first().copied()
            && at <= now
        {
            self.begin(job, now);
        }
        before
            .into_iter()
            .filter(|job| self.begun[*job].is_some())
            .collect()
    }

    fn forecast(&mut self, now: u64, running: &BTreeSet<(usize, u64)>, waiting: &BTreeSet<usize>) {
        let running: Vec<Running> = running
            .iter()
            .map(|(job, since)| Running {
                shape: self.log.jobs[*job].shape,
                since: Timestamp::from_secs(*since),
            })
            .collect();
        let queue: Vec<Queued> = waiting
            .iter()
            .map(|job| Queued {
                job: *job as u64,
                shape: self.log.jobs[*job].shape,
            })
            .collect();
        let site = Site {
            procs: self.log.procs,
            running: &running,
            queue: &queue,
            used_permille: [1000; 3],
        };
        let now = Timestamp::from_secs(now);
        let found = starts(&site, now);
        if let Some(last) = found.last() {
            self.forecast_deep(&self.said(last, now), &queue);
        }
        for found in found {
            let job = found.job as usize;
            let said = self.said(&found, now);
            self.calibration.on_forecast(said);
            if self.begun[job].is_some() {
                continue;
            }
            let lead = Duration::from_secs(self.log.jobs[job].lead);
            let wake = match self.policy {
                Policy::Submit | Policy::Queue => Wake::before(found.p50, lead, now),
                Policy::Calibrated(permille) => self.calibration.wake(&said, lead, permille),
            };
            self.wake(job, wake, now);
        }
    }

    fn said(&self, found: &Starts, now: Timestamp) -> Said {
        let job = found.job as usize;
        Said {
            job: found.job,
            walltime: self.log.jobs[job].shape.walltime,
            share_permille: self.share_permille(job),
            submitted: Timestamp::from_secs(self.log.jobs[job].submit),
            start: found.p50,
            now,
        }
    }

    /// Gives jobs too deep in the queue for a forecast the start of the last one with a forecast,
    /// as in the service.
    fn forecast_deep(&mut self, last: &Said, queue: &[Queued]) {
        let known = match self.policy {
            Policy::Calibrated(permille) => self.calibration.start(last, permille),
            Policy::Submit | Policy::Queue => None,
        };
        let (start, now) = (known.unwrap_or(last.start), last.now);
        let deep = queue.iter().skip(DEPTH_MAX);
        for job in deep.map(|queued| queued.job as usize) {
            if self.begun[job].is_none() {
                let lead = Duration::from_secs(self.log.jobs[job].lead);
                self.wake(job, Wake::before(start, lead, now), now);
            }
        }
    }

    fn share_permille(&self, job: usize) -> u32 {
        let share = u64::from(self.log.jobs[job].shape.procs) * 1000 / u64::from(self.log.procs);
        u32::try_from(share).unwrap_or(u32::MAX)
    }

    fn wake(&mut self, job: usize, wake: Wake, now: Timestamp) {
        let at = match wake {
            Wake::Now => Some(now),
            Wake::At(at) => Some(at),
            Wake::Later => None,
        };
        let at = at.map(|at| at.as_micros() / 1_000_000);
        if let Some(old) = std::mem::replace(&mut self.wake_of[job], at) {
            self.wakes.remove(&(old, job));
        }
        self.wakes.extend(at.map(|at| (at, job)));
    }
}
