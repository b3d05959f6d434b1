//! A scenario in the simulator and with real processes in the laboratory: data takes the same way
//! and ends safe.
//!
//! `cargo xtask bench twins` measures how long it takes: a busy machine proves nothing about that.
//! Needs the laboratory's requirements: root, /dev/net/tun and ip.

use std::{
    fs,
    path::{Path, PathBuf},
};

use posthaste_core::Settings;
use posthaste_lab::Twin;
use posthaste_sim::{Fate, Report, Scenario, simulate, simulate_recorded};

const PROGRAM: &str = env!("CARGO_BIN_EXE_posthaste");

/// Scenario with deadlines that no machine misses: other load here must hurry nobody.
const DIRECT: &str = r#"
    name = "direct"
    summary = "The direct path suffices."
    horizon_s = 300
    [[depot]]
    name = "home"
    rate_mib_per_s = 6
    capacity_mib = 100
    advertises = true
    [[depot]]
    name = "alpha"
    rate_mib_per_s = 4
    capacity_mib = 100
    advertises = true
    [[request]]
    at_s = 1
    size_mib = 20
    chunk_mib = 1
    deadline_s = 200
    code = "1+0"
    destination = "home"
    expect = ["met"]
"#;

/// Scenario in which the depot dies after it got some fragments, and far from all.
const KILLED: &str = r#"
    name = "killed"
    summary = "Three depots of four are needed, and one is killed."
    horizon_s = 300
    [[depot]]
    name = "alpha"
    rate_mib_per_s = 3
    capacity_mib = 100
    advertises = true
    [[depot]]
    name = "beta"
    rate_mib_per_s = 3
    capacity_mib = 100
    advertises = true
    [[depot]]
    name = "gamma"
    rate_mib_per_s = 3
    capacity_mib = 100
    advertises = true
    [[depot]]
    name = "delta"
    rate_mib_per_s = 2
    capacity_mib = 100
    advertises = true
    [[request]]
    at_s = 1
    size_mib = 64
    chunk_mib = 1
    deadline_s = 200
    code = "2+1"
    release = false
    expect = ["met"]
    [[fault]]
    at_s = 4
    kind = "dies"
    depot = "beta"
"#;

fn is_clean(report: &Report) -> bool {
    report.is_clean() && report.fates.iter().all(|(_, fate)| *fate == Fate::Met)
}

/// Tries of a scenario. A machine that stands still for ten seconds loses depots, and data may then
/// go elsewhere.
const TRIES: usize = 3;

/// Plays the scenario in both worlds. Returns the content of each depot at the end, simulated and
/// real.
fn play(text: &str) -> Vec<(String, u64, u64)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scenario.toml");
    fs::write(&path, text).unwrap();
    let scenario = Scenario::load(&path).unwrap();
    let (report, recording) = simulate_recorded(&scenario, 0, Settings::default());
    assert!(is_clean(&report), "{}", report.to_text());
    let lost = text.matches("kind = \"dies\"").count();
    let twin = Twin::read(&path).unwrap();
    let mut log = String::new();
    for number in 0..TRIES {
        let stage = folder.path().join(number.to_string());
        fs::create_dir(&stage).unwrap();
        let real = twin.play(Path::new(PROGRAM), &stage).unwrap();
        for request in &real.requests {
            assert!(request.safe_after_s.is_some(), "{request:?}\n{}", real.log);
        }
        if real.log.matches(": depot down: ").count() == lost {
            let simulated = &recording.samples.last().unwrap().used;
            let held = real.held.into_iter().zip(simulated);
            return held
                .map(|((name, real), simulated)| (name, *simulated, real))
                .collect();
        }
        log = real.log;
    }
    panic!("in none of {TRIES} runs as many depots were lost as should be\n{log}");
}

#[test]
fn what_the_direct_path_carries_in_time_goes_nowhere_else() {
    let all = 20 << 20;
    assert_eq!(
        play(DIRECT),
        [("home".into(), all, all), ("alpha".into(), 0, 0)]
    );
}

#[test]
fn what_a_killed_depot_held_goes_to_the_one_in_reserve() {
    for (name, simulated, real) in play(KILLED) {
        // A fragment of each chunk on each depot that is left, and what was sent twice at the end;
        // how far the dead one came is chance.
        let wanted = 32 << 20;
        let is_whole = [simulated, real].map(|bytes| bytes >= wanted);
        assert_eq!(is_whole, [name != "beta"; 2], "{name}: {simulated} {real}");
    }
}

#[test]
fn both_worlds_can_play_every_scenario_that_is_compared() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/twins");
    let mut played = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let report = simulate(&Scenario::load(&path).unwrap(), 0);
        assert!(is_clean(&report), "{}", report.to_text());
        assert_eq!(Twin::read(&path).unwrap().name(), report.scenario);
        played += 1;
    }
    assert!(played >= 3);
}
