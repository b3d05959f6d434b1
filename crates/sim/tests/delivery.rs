//! Several destinations share what the centre sends once.
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
fn what_lies_coded_is_gathered_by_who_comes_later() {
    let reports = play("delivery", &load("delivery"), 0..60);
    let gathered = reports.iter();
    let gathered = gathered.filter(|report| told_s(report, "takes what it lacks").is_some());
    assert_eq!(gathered.count(), reports.len());
    for report in &reports {
        let delivered = told_s(report, "whole at all 2 destinations");
        assert!(delivered.is_some(), "{}", report.to_text());
        assert_eq!(report.count(Fate::Unsafe), 0, "{}", report.to_text());
    }
}

#[test]
fn several_destinations_share_what_is_sent_once() {
    for report in play("several-destinations", &load("several-destinations"), 0..60) {
        assert_eq!(report.count(Fate::Met), 1, "{}", report.to_text());
        let delivered = told_s(&report, "whole at all 2 destinations");
        assert!(delivered.is_some(), "{}", report.to_text());
        assert!(
            told_s(&report, "takes what it lacks").is_some(),
            "{}",
            report.to_text()
        );
    }
}

#[test]
fn a_destination_without_room_keeps_nothing_from_the_other() {
    for report in play("small-destination", &load("small-destination"), 0..10) {
        assert_eq!(report.fates[0].1, Fate::Met, "{}", report.to_text());
    }
}

#[test]
fn what_is_due_first_is_delivered_first_and_no_delay_is_silent() {
    let reports = play("deliver-by", &load("deliver-by"), 0..60);
    let told = |report: &Report, what: &str| told_s(report, what).is_some();
    let in_time = reports
        .iter()
        .filter(|report| told(report, "in time: it was wanted by"));
    assert!(in_time.count() > reports.len() / 2);
    let at_risk = reports
        .iter()
        .filter(|report| told(report, "delivery at risk"));
    assert!(at_risk.count() > 0);
}
