//! Plays a scenario as fast as possible and prints how long that took. `world SCENARIO [EVENTS]`
//! plays the world alone; `world SCENARIO mind` plays it with the mind and all checkers.
#![allow(clippy::print_stdout, reason = "it says what it measured")]
#![allow(clippy::disallowed_methods, reason = "it measures the real clock")]

use std::{path::Path, time::Instant};

use posthaste_sim::{Fate, Scenario, rehearse, simulate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = arguments
        .first()
        .ok_or("write: world SCENARIO [EVENTS | mind]")?;
    let scenario = Scenario::load(Path::new(path))?;
    let started = Instant::now();
    if arguments.get(1).is_some_and(|word| word == "mind") {
        let report = simulate(&scenario, 1);
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "seconds={seconds:.3} events={} requests={} met={} span={:.0} violations={}",
            report.steps,
            report.fates.len(),
            report.count(Fate::Met),
            report.span.as_secs_f64(),
            report.violations.len(),
        );
    } else {
        let most = arguments.get(1).map_or(Ok(u64::MAX), |most| most.parse())?;
        let played = rehearse(&scenario, 1, most);
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "seconds={seconds:.3} events={} fragments={} failed={} span={:.0}",
            played.events,
            played.fragments,
            played.failed,
            played.span.as_secs_f64(),
        );
    }
    Ok(())
}
