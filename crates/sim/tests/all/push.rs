//! Depots near the centre that push to those near the destination, with all kinds of faults.

use std::ops::Range;

use posthaste_sim::{Fate, Report};

use crate::support::playing;

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
    let (reports, mut emptied) = (play("drains", 0..40), 0);
    for report in &reports {
        assert_eq!(report.count(Fate::Unsafe), 0, "{}", report.to_text());
        emptied += usize::from(told_s(report, "empty, may be switched off").is_some());
    }
    let all = reports.len();
    assert!(
        emptied * 4 > all * 3,
        "only {emptied} of {all} were ever empty"
    );
}

#[test]
fn a_store_is_asked_for_nothing_that_it_can_not_do() {
    for name in ["push", "delivery", "mend", "scatter", "crossings"] {
        let text = written(name);
        let all = text.replace("[[depot]]\n", "[[depot]]\nstores = true\n");
        let some = text.replacen("[[depot]]\n", "[[depot]]\nstores = true\n", 1);
        for text in [all, some] {
            play_written(name, &text, 0..10);
        }
    }
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
    // Both worlds are equal, except that in the second no depot is nearer. Pushing uses only the
    // paths among depots.
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

/// Returns the time of the last push, in seconds.
fn all_pushed_s(report: &Report) -> Option<f64> {
    told_s(report, "all is pushed on")
}

/// Returns the seconds until all was pushed in each world, with following depots and without.
fn with_and_without(text: &str, seeds: Range<u64>) -> Vec<(f64, f64)> {
    let text = &text
        .replace("answer_lost_permille = 10\n", "")
        .replace("corrupt_permille = 5\n", "");
    let without = text.replace("follows = true\n", "");
    assert_ne!(&without, text);
    let (with, without) = (
        play_written("follow", text, seeds.clone()),
        play_written("follow", &without, seeds),
    );
    let both = with.iter().zip(&without);
    both.map(|(with, without)| (all_pushed_s(with).unwrap(), all_pushed_s(without).unwrap()))
        .collect()
}

#[test]
fn what_follows_is_given_up_with_what_it_follows_and_nothing_is_lost() {
    let (reports, mut told) = (play("follow", 0..60), 0);
    for report in &reports {
        assert_eq!(report.count(Fate::Unsafe), 0, "{}", report.to_text());
        told += usize::from(told_s(report, "while it still arrives").is_some());
    }
    let all = reports.len();
    assert!(
        told * 2 > all,
        "hardly anything went on as it came: {told} of {all}"
    );
}

#[test]
fn a_small_dataset_is_nearer_sooner_where_depots_follow() {
    let text = written("follow");
    let text = text.split("[[fault]]").next().unwrap();
    let text = text
        .replace("count = 6\nat_s = [0, 60]", "at_s = 0")
        .replace("size_mib = [16, 60]", "size_mib = [24, 32]");
    let both = with_and_without(&text, 0..20);
    let sum: (f64, f64) = both
        .iter()
        .fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let (with, without) = (sum.0 / 20.0, sum.1 / 20.0);
    assert!(
        with < without * 0.9,
        "{with} s with, {without} s without: {both:?}"
    );
}

#[test]
fn a_large_dataset_is_nearer_sooner_on_average_where_depots_follow() {
    let text = written("follow");
    let text = text.split("[[fault]]").next().unwrap();
    let text = text
        .replace("size_mib = [16, 60]", "size_mib = [200, 400]")
        .replace("count = 6", "count = 2")
        .replace("deadline_s = [200, 400]", "deadline_s = [1000, 2000]");
    let both = with_and_without(&text, 0..40);
    // Placement depends on the order of events, over links that vary: some worlds end later.
    for (seed, (with, without)) in both.iter().enumerate() {
        assert!(
            *with <= without * 1.25,
            "seed {seed}: {with} s with, {without} s without"
        );
    }
    let ratio: f64 = both.iter().map(|(with, without)| with / without).sum();
    let ratio = ratio / 40.0;
    assert!(ratio < 0.97, "{ratio} of the time without, on average");
}

#[test]
fn a_slow_path_between_depots_keeps_nothing_waiting() {
    let mut probed = 0;
    for report in play("crossings", 0..40) {
        assert_eq!(report.count(Fate::Unsafe), 0, "{}", report.to_text());
        probed += u32::from(told_s(&report, "is probed by").is_some());
    }
    assert!(probed > 0, "no path between depots was ever probed");
    let text = written("crossings");
    let text = text.split("[[fault]]").next().unwrap();
    let text = &text
        .replace("answer_lost_permille = 10\n", "")
        .replace("corrupt_permille = 5\n", "");
    let start = text.find("[[depot]]\nname = \"remote\"").unwrap();
    let without = text[start..].find("[[path]]").unwrap();
    let without = [&text[..start], &text[start + without..]].concat();
    let slow = without
        .find("[[path]]\nfrom = \"near\"\nto = \"remote\"")
        .unwrap();
    let rest = without[slow..].find("[[request]]").unwrap();
    let without = [&without[..slow], &without[slow + rest..]].concat();
    let with = play_written("crossings", text, 0..20);
    let without = play_written("crossings", &without, 0..20);
    let (mut sum, mut sum_without) = (0.0, 0.0);
    for (with, without) in with.iter().zip(&without) {
        let (a, b) = (all_pushed_s(with).unwrap(), all_pushed_s(without).unwrap());
        // Placement depends on the order of events: some worlds end later.
        assert!(
            a <= b * 1.25 + 30.0,
            "seed {}: {a} s with a slow path, {b} s without",
            with.seed
        );
        (sum, sum_without) = (sum + a, sum_without + b);
    }
    assert!(
        sum <= sum_without * 1.1,
        "{sum} s in all with a slow path, {sum_without} s without"
    );
}
