//! Depots near the centre push on to those near the destination, with everything that can fail.
#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use posthaste_sim::Fate;

#[path = "support/playing.rs"]
mod playing;

use playing::{play, play_written, told_s, written};

#[test]
fn what_fails_on_the_way_on_costs_no_safety() {
    for report in play("push", 0..60) {
        assert_eq!(report.count(Fate::Met), 2, "{}", report.to_text());
        let pushed = told_s(&report, "pushed on to");
        assert!(pushed.is_some(), "{}", report.to_text());
    }
}

#[test]
fn a_depot_that_is_drained_and_moved_can_be_switched_off_and_nothing_is_lost() {
    let mut emptied = 0;
    for report in play("drains", 0..40) {
        assert_eq!(report.count(Fate::Unsafe), 0, "{}", report.to_text());
        emptied += u32::from(told_s(&report, "empty, may be switched off").is_some());
    }
    assert!(emptied > 30, "only {emptied} of 40 were ever empty");
}

#[test]
fn depots_go_on_while_the_service_is_dead() {
    let reports = play("push-crashes", 0..60);
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
    let text = written("push");
    let text = text.split("[[fault]]").next().unwrap();
    let without = text.replace("level = 2\n", "");
    let (with, without) = (
        play_written("push", text, 0..20),
        play_written("push", &without, 0..20),
    );
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
