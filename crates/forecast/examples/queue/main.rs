//! Value of queue forecasts on real logs: `queue LOG.swf[.gz]…`.
//!
//! Prints a line of figures for each question, separated by tabs.

#![allow(
    missing_docs,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a measuring program, whose numbers are small"
)]

mod bounds;
mod closed;
mod replay;
mod staging;
mod swf;

use std::{io::Error, path::Path};

use posthaste_forecast::queue::Waits;

use closed::{Gate, Outcome};
use staging::Policy;
use swf::Log;

/// Most jobs of a log that are replayed and played in the closed loop: both run with every policy,
/// which takes minutes. Bounds are computed for all jobs.
const PLAYED_MAX: usize = 30_000;

/// Seeds of the sizes of data in the closed loop: a job that starts a second later moves all later
/// ones, so a single run tells little.
const SEEDS: u64 = 8;

/// Mean wait of a stalled draw, in waits of the same draw with data staged at submission. There the
/// queue grew until the log ended, which says nothing of how much longer jobs wait.
const STALLED: f64 = 5.0;

/// Policies to compare, by their names in the report.
const POLICIES: [(&str, Policy); 7] = [
    ("queue", Policy::Queue),
    ("q .50", Policy::Calibrated(500)),
    ("q .40", Policy::Calibrated(400)),
    ("q .30", Policy::Calibrated(300)),
    ("q .20", Policy::Calibrated(200)),
    ("q .10", Policy::Calibrated(100)),
    ("q .05", Policy::Calibrated(50)),
];

fn main() -> Result<(), Error> {
    for path in std::env::args().skip(1) {
        let mut log = swf::read(Path::new(&path))?;
        println!("log\t{}\t{}\t{}", log.name, log.jobs.len(), log.procs);
        for (name, waits) in [("trimmed", Waits::default()), ("whole", Waits::untrimmed())] {
            let found = bounds::play(&log, waits);
            print!(
                "bounds\t{name}\t{}\t{}\t{}\t{}\t{}\t{}",
                found.upper,
                found.lower,
                found.windows,
                found.tightness,
                found.mean_bound,
                found.mean_wait
            );
            for (jobs, share) in found.classes {
                print!("\t{jobs}\t{share}");
            }
            println!();
        }
        log.jobs.truncate(PLAYED_MAX);
        println!("staged\t{}", log.jobs.len());
        for (name, policy) in POLICIES {
            let found = replay::play(&log, policy);
            println!(
                "replay\t{name}\t{}\t{}\t{}\t{}\t{}",
                found.cut, found.cut_weighted, found.unavoidable, found.late, found.delay
            );
        }
        for (kind, gate) in [("held", Gate::Held), ("kept", Gate::Kept)] {
            close(&log, kind, gate);
        }
    }
    Ok(())
}

/// Plays a log in the closed loop, with data of each seed.
fn close(log: &Log, kind: &str, gate: Gate) {
    let none = closed::play(log, gate, None);
    let logs: Vec<Log> = (0..SEEDS).map(|seed| log.drawn(seed)).collect();
    let of_all = |policy| -> Vec<Outcome> {
        let play = |log| closed::play(log, gate, Some(policy));
        let halves = logs.split_at(logs.len() / 2);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| halves.0.iter().map(play).collect::<Vec<_>>());
            let second: Vec<Outcome> = halves.1.iter().map(play).collect();
            let first = first.join().into_iter().flatten();
            first.chain(second).collect()
        })
    };
    let submit = of_all(Policy::Submit);
    let (wait, _) = mean(submit.iter().map(|one| one.wait));
    println!("base\t{kind}\t{}\t{wait}", none.wait);
    for (name, policy) in POLICIES {
        let found = of_all(policy);
        let all = found.iter().zip(&submit);
        let of_each: Vec<(&Outcome, &Outcome)> = all
            .filter(|(one, base)| one.wait < STALLED * base.wait)
            .collect();
        let stalled = found.len() - of_each.len();
        let of_each = || of_each.iter();
        let (cut, _) = mean(of_each().map(|(one, base)| 1.0 - one.exposure / base.exposure));
        let (growth, error) = mean(of_each().map(|(one, base)| one.wait / base.wait - 1.0));
        let classes = [0, 1, 2].map(|class| {
            let of_class = of_each().map(|(one, base)| one.waits[class] / base.waits[class] - 1.0);
            mean(of_class).0
        });
        let [narrow, middle, wide] = classes;
        println!("{kind}\t{name}\t{cut}\t{growth}\t{error}\t{narrow}\t{middle}\t{wide}\t{stalled}");
    }
}

/// Returns the mean and its standard error.
fn mean(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values: Vec<f64> = values.collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0) / count).sqrt())
}
