//! What forecasts of a queue are worth, on logs of real ones: `queue LOG.swf[.gz]…`.
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

use closed::Gate;
use staging::Policy;

/// Jobs of a log that are replayed, and for which the loop is closed: both are played with every policy, which takes minutes.
/// Bounds are drawn for all of them.
const PLAYED_MAX: usize = 30_000;

/// What is compared, by the names they have in the report.
const POLICIES: [(&str, Policy); 8] = [
    ("queue", Policy::Queue),
    ("q .50", Policy::Calibrated(500, 0)),
    ("q .40", Policy::Calibrated(400, 0)),
    ("q .30", Policy::Calibrated(300, 0)),
    ("q .20", Policy::Calibrated(200, 0)),
    ("q .10", Policy::Calibrated(100, 0)),
    ("q .10, 10 min", Policy::Calibrated(100, 600)),
    ("q .10, 30 min", Policy::Calibrated(100, 1800)),
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
        let submit = [("none", None), ("submit", Some(Policy::Submit))];
        let policies = POLICIES.map(|(name, policy)| (name, Some(policy)));
        for (kind, gate) in [("held", Gate::Held), ("passed", Gate::PassedOver)] {
            for (name, policy) in submit.into_iter().chain(policies) {
                let found = closed::play(&log, gate, policy);
                println!(
                    "{kind}\t{name}\t{}\t{}\t{}",
                    found.wait, found.exposure, found.weighted
                );
            }
        }
    }
    Ok(())
}
