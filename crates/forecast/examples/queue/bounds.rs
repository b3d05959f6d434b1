//! Accuracy and tightness of the bounds of waits.

use std::collections::BTreeMap;

use posthaste_forecast::queue::Waits;
use posthaste_types::Timestamp;

use super::swf::Log;

/// Jobs of a window that is examined by itself.
const WINDOW: usize = 1000;

/// Time between two searches for late jobs, in seconds.
const REVIEW_EVERY: u64 = 60;

/// Class borders by processors, as in the forecast.
const PROCS: [u32; 4] = [4, 16, 64, 256];

/// Accuracy of bounds.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Share of waits that were not over the upper bound, and of those not under the lower.
    pub upper: f64,
    pub lower: f64,
    /// Share under the upper bound by class of processors, if there are jobs, with their number.
    pub classes: Vec<(usize, f64)>,
    /// Share of windows of a thousand jobs in which 95 % were under the upper bound.
    pub windows: f64,
    /// Median of wait by upper bound, and their means in seconds.
    pub tightness: f64,
    pub mean_bound: f64,
    pub mean_wait: f64,
}

pub fn play(log: &Log, mut waits: Waits) -> Outcome {
    let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(log.jobs.len() * 2);
    for (place, job) in log.jobs.iter().enumerate() {
        events.push((job.submit, false, place));
        events.push((job.start, true, place));
    }
    events.sort_unstable();
    let mut reviewed = 0;
    let mut held: Vec<Held> = Vec::new();
    for (at, is_start, place) in events {
        let now = Timestamp::from_secs(at);
        if at >= reviewed + REVIEW_EVERY {
            reviewed = at;
            waits.review(now);
        }
        let job = &log.jobs[place];
        if is_start {
            waits.on_start(place as u64, now);
            continue;
        }
        if let Some(bounds) = waits.bounds(job.shape) {
            held.push(Held {
                class: PROCS.partition_point(|most| *most < job.shape.procs),
                wait: job.wait(),
                upper: bounds.upper.as_secs(),
                lower: bounds.lower.as_secs(),
            });
        }
        waits.on_submit(place as u64, job.shape, now);
    }
    outcome(&held)
}

struct Held {
    class: usize,
    wait: u64,
    upper: u64,
    lower: u64,
}

fn share(held: &[&Held], holds: impl Fn(&Held) -> bool) -> f64 {
    held.iter().filter(|one| holds(one)).count() as f64 / held.len().max(1) as f64
}

fn outcome(held: &[Held]) -> Outcome {
    let all: Vec<&Held> = held.iter().collect();
    let is_under = |one: &Held| one.wait <= one.upper;
    let mut classes: BTreeMap<usize, Vec<&Held>> =
        (0..=PROCS.len()).map(|class| (class, Vec::new())).collect();
    all.iter()
        .for_each(|one| classes.entry(one.class).or_default().push(one));
    let windows: Vec<bool> = all
        .chunks(WINDOW)
        .map(|window| share(window, is_under) >= 0.95)
        .collect();
    let mut ratios: Vec<f64> = held
        .iter()
        .map(|one| one.wait as f64 / one.upper.max(1) as f64)
        .collect();
    ratios.sort_by(f64::total_cmp);
    let mean =
        |of: fn(&Held) -> u64| held.iter().map(of).sum::<u64>() as f64 / held.len().max(1) as f64;
    Outcome {
        upper: share(&all, is_under),
        lower: share(&all, |one| one.wait >= one.lower),
        classes: classes
            .values()
            .map(|class| (class.len(), share(class, is_under)))
            .collect(),
        windows: windows.iter().filter(|is_held| **is_held).count() as f64
            / windows.len().max(1) as f64,
        tightness: ratios.get(ratios.len() / 2).copied().unwrap_or(0.0),
        mean_bound: mean(|one| one.upper),
        mean_wait: mean(|one| one.wait),
    }
}
