//! Baselines of the mind, and the clairvoyant that all are measured against.

use std::path::PathBuf;

use posthaste_sim::{
    Fate, Rival, Scenario,
    deadlines::{Prophecy, prophesy, score},
};
use posthaste_solve::{Effort, solve};

/// Returns a scenario of a user and depots with rates in MiB/s, and requests of `(at_s, size_mib,
/// deadline_s)`. The code is 1+1 if the user receives nothing; otherwise a whole copy there
/// suffices.
fn scenario(user: u64, depots: &[u64], requests: &[(u64, u64, u64)], more: &str) -> Scenario {
    let mut text = String::from("name = \"small\"\nsummary = \"small\"\nhorizon_s = 400\n");
    let rates = depots
        .iter()
        .enumerate()
        .map(|(place, rate)| (format!("depot{place}"), *rate));
    for (name, rate) in rates.chain([(String::from("user"), user)]) {
        text += &format!(
            "[[depot]]\nname = \"{name}\"\nrate_mib_per_s = {rate}\nadvertises = true\ncapacity_mib = 9000\n"
        );
    }
    let code = if user > 0 { "1+0" } else { "1+1" };
    for (at_s, size_mib, deadline_s) in requests {
        text += &format!(
            "[[request]]\nat_s = {at_s}\nsize_mib = {size_mib}\ndeadline_s = {deadline_s}\n\
             code = \"{code}\"\ndestination = \"user\"\n"
        );
    }
    Scenario::parse(&(text + more)).expect("a sound scenario")
}

fn fates(scenario: &Scenario, rival: Option<Rival>) -> Vec<Fate> {
    let report = score(scenario, 1, rival).report;
    report.fates.iter().map(|(_, fate)| *fate).collect()
}

fn foreseen(scenario: &Scenario, seed: u64) -> Prophecy {
    prophesy(scenario, seed).expect("a sound problem")
}

fn feasible(scenario: &Scenario, seed: u64) -> usize {
    let schedule = solve(&foreseen(scenario, seed).problem, Effort::default());
    let schedule = schedule.expect("a sound problem");
    schedule
        .shortfalls
        .iter()
        .filter(|shortfall| shortfall.is_none())
        .count()
}

#[test]
fn everybody_keeps_an_easy_deadline_the_same_every_time() {
    let scenario = scenario(10, &[10, 10, 10], &[(0, 100, 200), (50, 100, 200)], "");
    for rival in Rival::ALL.map(Some).into_iter().chain([None]) {
        assert_eq!(fates(&scenario, rival), [Fate::Met; 2], "{rival:?}");
        let (one, other) = (score(&scenario, 3, rival), score(&scenario, 3, rival));
        assert_eq!(one.report, other.report, "{rival:?}");
        assert!(one.report.sent.get() >= 200 << 20, "{rival:?}");
    }
    assert_eq!(fates(&scenario, Some(Rival::Idle)), [Fate::Unsafe; 2]);
    assert_eq!(feasible(&scenario, 1), 2);
}

#[test]
fn the_earliest_deadline_first_keeps_what_first_come_first_served_does_not() {
    let scenario = scenario(10, &[], &[(0, 1000, 200), (1, 200, 30)], "");
    assert_eq!(
        fates(&scenario, Some(Rival::Direct)),
        [Fate::Met, Fate::Late]
    );
    assert_eq!(
        fates(&scenario, Some(Rival::DirectByDeadline)),
        [Fate::Met; 2]
    );
    // In parallel the short one takes twice its time.
    assert_eq!(
        fates(&scenario, Some(Rival::Adaptive)),
        [Fate::Met, Fate::Late]
    );
    assert_eq!(feasible(&scenario, 1), 2);
}

#[test]
fn a_dead_depot_stops_the_static_split_only() {
    let dies = "[[fault]]\nkind = \"dies\"\ndepot = \"depot0\"\nat_s = 5\n";
    let scenario = scenario(0, &[10, 10, 10], &[(0, 300, 200)], dies);
    assert_eq!(fates(&scenario, Some(Rival::StaticSplit)), [Fate::Unsafe]);
    assert_eq!(fates(&scenario, Some(Rival::RoundRobin)), [Fate::Met]);
    assert_eq!(fates(&scenario, Some(Rival::Planned)), [Fate::Met]);
    assert_eq!(fates(&scenario, None), [Fate::Met]);
}

#[test]
fn the_clairvoyant_knows_when_links_fail_and_heal() {
    // 10 MiB/s for 60 s, then nothing for 100 s, then 10 MiB/s again.
    let fault = "[[fault]]\nkind = \"vanishes\"\ndepot = \"user\"\nat_s = 60\nfor_s = 100\n";
    for (size_mib, deadline_s, kept) in [
        (590, 60, 1),
        (605, 60, 0),
        (605, 159, 0),
        (690, 170, 1),
        (710, 170, 0),
    ] {
        let scenario = scenario(10, &[], &[(0, size_mib, deadline_s)], fault);
        assert_eq!(
            feasible(&scenario, 1),
            kept,
            "{size_mib} MiB in {deadline_s} s"
        );
    }
}

#[test]
fn the_families_of_the_benchmark_can_be_played() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/deadlines");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let scenario = Scenario::load(&entry.unwrap().path()).unwrap();
        let prophecy = foreseen(&scenario, 1);
        assert!(prophecy.asked.len() >= 8, "{}", scenario.name);
        let ours = score(&scenario, 1, None);
        assert!(ours.report.is_clean(), "{}", ours.report.to_text());
        assert!(ours.report.count(Fate::Met) > 0, "{}", scenario.name);
        assert!(!ours.reached.is_empty());
        names.push(scenario.name);
    }
    assert!(names.len() >= 6, "{names:?}");
}
