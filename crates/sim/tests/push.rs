//! Depots near the centre push on to those near the destination, with everything that can fail.
#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use std::path::PathBuf;

use posthaste_sim::{Fate, Report, Scenario, simulate};

fn load(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../scenarios")
        .join(format!("{name}.toml"));
    std::fs::read_to_string(path).unwrap()
}

fn play(name: &str, text: &str, seeds: std::ops::Range<u64>) -> Vec<Report> {
    let scenario = Scenario::parse(text).unwrap();
    seeds
        .map(|seed| {
            let report = simulate(&scenario, seed);
            assert!(
                report.is_clean(),
                "play it again with: posthaste simulate scenarios/{name}.toml --seed {seed}\n{}",
                report.to_text()
            );
            report
        })
        .collect()
}

/// Seconds from the start at which a line of the story that says `what` is told last.
fn told_s(report: &Report, what: &str) -> Option<f64> {
    let entries = report.timeline.iter().rev();
    let told = entries
        .into_iter()
        .find(|entry| entry.what.to_string().contains(what));
    Some(told?.at.as_secs_f64())
}

#[test]
fn what_fails_on_the_way_on_costs_no_safety() {
    for report in play("push", &load("push"), 0..60) {
        assert_eq!(report.count(Fate::Met), 2, "{}", report.to_text());
        let pushed = told_s(&report, "pushed on to");
        assert!(pushed.is_some(), "{}", report.to_text());
    }
}

#[test]
fn depots_go_on_while_the_service_is_dead() {
    let reports = play("push-crashes", &load("push-crashes"), 0..60);
    let pushed = reports
        .iter()
        .filter(|report| told_s(report, "all is pushed on").is_some());
    assert!(
        pushed.count() > 10,
        "hardly anything is ever pushed on whole"
    );
    for report in &reports {
        assert_eq!(report.count(Fate::Unsafe), 0, "{}", report.to_text());
    }
}

#[test]
fn pushing_on_makes_nothing_safe_later() {
    // The same world, with and without anything nearer: only the ways among depots are used for it.
    let text = load("push");
    let text = text.split("[[fault]]").next().unwrap();
    let without = text.replace("level = 2\n", "");
    let (with, without) = (play("push", text, 0..20), play("push", &without, 0..20));
    for (with, without) in with.iter().zip(&without) {
        let (a, b) = (
            told_s(with, "every chunk survives"),
            told_s(without, "every chunk survives"),
        );
        let (a, b) = (a.unwrap(), b.unwrap());
        assert!(
            a <= b * 1.05 + 1.0,
            "seed {}: {a} s with, {b} s without",
            with.seed
        );
    }
}
