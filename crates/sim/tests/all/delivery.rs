//! Several destinations that share data the centre sends once.

use posthaste_sim::{Fate, Report};

use crate::support::playing;

use playing::{play, play_written, told_s, written};

#[test]
fn what_lies_coded_is_gathered_by_who_comes_later() {
    let reports = play("delivery", 0..60);
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
    for report in play("several-destinations", 0..60) {
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
    for report in play("small-destination", 0..10) {
        assert_eq!(report.fates[0].1, Fate::Met, "{}", report.to_text());
    }
}

#[test]
fn what_is_due_first_is_delivered_first_and_no_delay_is_silent() {
    let reports = play("deliver-by", 0..60);
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

#[test]
fn what_was_promised_is_kept_where_nothing_goes_wrong() {
    let text = written("deliver-by").replace("offline_s = [[60, 90]]\n", "");
    let (calm, _) = text.split_once("[[fault]]").unwrap();
    for report in play_written("deliver-by", calm, 0..60) {
        let told = report.timeline.iter().map(|entry| entry.what.to_string());
        let told: Vec<String> = told.collect();
        let count = |what: &str| told.iter().filter(|told| told.contains(what)).count();
        let refused = count("refused: ");
        let in_time = count("in time: it was wanted by");
        assert_eq!(refused + in_time, 2, "{}", report.to_text());
        assert_eq!(count("not delivered in time"), 0, "{}", report.to_text());
    }
}

#[test]
fn who_would_make_another_late_at_its_destination_is_refused_with_what_can_be_kept() {
    const NARROW: &str = r#"
        name = "narrow"
        summary = "Two requests at a destination that is too narrow for both."
        horizon_s = 1000
        egress_mib_per_s = 40
        [[depot]]
        name = "near"
        count = 4
        rate_mib_per_s = 8
        capacity_mib = 4000
        way_out_mib_per_s = 8
        [[depot]]
        name = "home"
        rate_mib_per_s = 0.5
        capacity_mib = 4000
        way_in_mib_per_s = 2
        [[request]]
        size_mib = 200
        chunk_mib = 2
        deadline_s = 160
        deliver_by_s = 160
        code = "3+0"
        via = ["near"]
        destination = "home"
        [[request]]
        at_s = 50
        size_mib = 120
        chunk_mib = 2
        deadline_s = 60
        deliver_by_s = 85
        code = "3+0"
        via = ["near"]
        destination = "home"
    "#;
    for report in play_written("narrow", NARROW, 0..10) {
        let text = report.to_text();
        assert!(text.contains("it would make r1 late"), "{text}");
        assert!(text.contains("being wanted there by"), "{text}");
    }
}

/// A checker compares deliveries at the end with the world; the story reports the loss before.
#[test]
fn what_a_destination_loses_after_delivery_is_sent_again_or_said_to_be_lost() {
    for report in play("delivered-lost", 0..20) {
        let text = report.to_text();
        assert_eq!(report.count(Fate::Met), 3, "{text}");
        let told = |what: &str| {
            report
                .timeline
                .iter()
                .filter(|entry| entry.what.to_string().contains(what))
                .count()
        };
        assert_eq!(told("delivered: every chunk"), 5, "two come again\n{text}");
        assert_eq!(told("chunks no longer safe"), 3, "{text}");
    }
}
