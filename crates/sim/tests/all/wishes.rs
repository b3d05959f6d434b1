//! Options beyond a deadline, in whole worlds and with many seeds, under all checkers.

use std::{path::PathBuf, time::Duration};

use posthaste_core::contract::Happening;
use posthaste_sim::{Fate, Report, Scenario, What, simulate};
use posthaste_types::RequestId;

use crate::support::playing;

use playing::{play, share_of};

/// Returns the time when a request was safe.
fn safe_after(report: &Report, request: u64) -> Duration {
    let entry = report.timeline.iter().find(|entry| {
        entry.request == Some(RequestId::new(request))
            && matches!(
                &entry.what,
                What::Said {
                    happening: Happening::Safe { .. },
                    ..
                }
            )
    });
    entry.unwrap().at
}

#[test]
fn what_is_left_over_is_shared_by_priority_project_and_user() {
    for report in play("fair-shares", 0..20) {
        let at = |request| safe_after(&report, request);
        // Numbers continue from table to table: 1 is punctual, 2 to 9 are ann's, 10 and 11 ben's.
        let (punctual, eve, low, urgent) = (1, 12, 13, 14);
        assert_eq!(report.fates[0].1, Fate::Met, "{punctual}");
        let of_ann: Vec<Duration> = (2..=9).map(at).collect();
        let of_ben = at(10).max(at(11));
        let last = of_ann.iter().max().unwrap();
        let text = report.to_text();
        // The project with little data gets half of the capacity and finishes with the other's
        // first third.
        let before = of_ann.iter().filter(|&&done| done < at(eve)).count();
        assert!(before <= 3, "{before} before eve\n{text}");
        // Ben's two requests don't come after all of Ann's eight.
        assert!(of_ben < *last * 3 / 4, "{of_ben:?} of {last:?}\n{text}");
        // The urgent request gets nearly all capacity. The low one waits, but not until all others
        // are done.
        assert!(
            at(urgent) < Duration::from_secs(200),
            "{:?}\n{text}",
            at(urgent)
        );
        assert!(
            at(low) > at(urgent) && at(low) < *last * 3 / 4,
            "{:?}\n{text}",
            at(low)
        );
    }
}

/// Returns the code chosen for a request, if it was reported.
fn code_of(report: &Report, request: u64) -> Option<String> {
    report.timeline.iter().find_map(|entry| match &entry.what {
        What::Said {
            happening: Happening::CodeChosen { code },
            ..
        } if entry.request == Some(RequestId::new(request)) => Some(code.to_string()),
        What::Said { .. } | What::World(_) | What::Driver(_) | What::User(_) => None,
    })
}

#[test]
fn what_must_be_survived_chooses_the_code() {
    for report in play("survive", 0..20) {
        let text = report.to_text();
        let code = |request| code_of(&report, request);
        assert_eq!(code(1).as_deref(), Some("3+2"), "{text}");
        assert_eq!(code(2).as_deref(), Some("1+2"), "{text}");
        // The five free depots suffice: the stores would save bytes and cost money.
        assert_eq!(code(3).as_deref(), Some("4+1"), "{text}");
        assert_eq!(
            (code(4), report.fates[3].1),
            (None, Fate::Refused),
            "{text}"
        );
        // Just before, one of the five lost all its data.
        assert_eq!(code(5).as_deref(), Some("3+1"), "{text}");
        assert!(
            text.contains("r1 code 3+2 chosen: 3+2 on 5 depots: any 2 may be lost"),
            "{text}"
        );
    }
}

#[test]
fn a_limited_request_takes_the_time_its_limit_says_and_others_take_none_of_it() {
    for report in play("limited", 0..20) {
        let text = report.to_text();
        let limited = safe_after(&report, 1).as_secs();
        assert!((74..=80).contains(&limited), "{limited} s\n{text}");
        let free = safe_after(&report, 2).as_secs();
        assert!(free < 30, "{free} s\n{text}");
        assert!(text.contains("a limit of 5.0 MiB/s or more"), "{text}");
    }
}

/// No later event would show that sufficient redundancy is there already.
#[test]
fn what_suffices_may_be_there_in_the_moment_it_is_asked_for() {
    for report in play("less-at-once", 0..5) {
        assert_eq!(report.count(Fate::Met), 2, "{}", report.to_text());
    }
}

/// Returns the times and reasons of a request's safety reports.
fn said_safe(report: &Report, request: u64) -> Vec<(Duration, String)> {
    let of = Some(RequestId::new(request));
    let entries = report.timeline.iter().filter(|entry| entry.request == of);
    let safe = entries.filter_map(|entry| match &entry.what {
        What::Said {
            happening: Happening::Safe { .. },
            reason,
        } => Some((entry.at, reason.to_string())),
        What::Said { .. } | What::World(_) | What::Driver(_) | What::User(_) => None,
    });
    safe.collect()
}

/// A destination with a whole copy counts as one holder. With three depots beside it nothing lacks.
#[test]
fn what_sufficed_at_a_destination_alone_gets_the_rest_of_its_code_beside_it() {
    for report in play("less-straight", 0..20) {
        let text = report.to_text();
        let said = said_safe(&report, 1);
        let [first, all] = &said[..] else {
            panic!("{said:?}\n{text}");
        };
        assert!(first.1.contains("any 0 of its depots"), "{first:?}");
        assert!(all.1.contains("any 2 depots"), "{all:?}");
        assert!(text.contains("r1 rerouted"), "{text}");
        assert!(text.contains("r1 scratch released"), "{text}");
    }
}

#[test]
fn redundancy_beyond_what_suffices_by_the_deadline_follows_it() {
    for report in play("less-first", 0..20) {
        let text = report.to_text();
        assert_eq!(report.fates[0].1, Fate::Met, "{text}");
        assert_eq!(report.fates[1].1, Fate::Met, "{text}");
        for request in [1, 2] {
            let said = said_safe(&report, request);
            let [first, all] = &said[..] else {
                panic!("{said:?}\n{text}");
            };
            assert!(first.0 < all.0, "{text}");
            assert!(
                first.1.contains("the loss of any 1 of its depots"),
                "{first:?}"
            );
            assert!(all.1.contains("any 3 depots"), "{all:?}");
            // The additional redundancy has no deadline.
            let kept = text.find(&format!("r{request} safe, ")).unwrap();
            let danger = format!("r{request} at risk");
            assert!(!text[kept..].contains(&danger), "{text}");
        }
    }
}

#[test]
fn no_more_is_spent_than_a_budget_allows() {
    for report in play("budget", 0..20) {
        let text = report.to_text();
        assert!(text.contains("does not pay it: with $"), "{text}");
        // Lost data was paid for once more.
        assert!(report.fates[3].1 == Fate::Met, "{text}");
    }
}

#[test]
fn lazy_repair_sends_less_again_than_eager_repair() {
    let lazy = play("lazy", 0..10);
    let text = std::fs::read_to_string(
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/lazy.toml"),
    );
    let eager = Scenario::parse(&text.unwrap().replace("lazy_repair = true", "")).unwrap();
    let sum = |reports: &[Report]| reports.iter().map(|report| report.sent.get()).sum::<u64>();
    let eager: Vec<Report> = (0..10).map(|seed| simulate(&eager, seed)).collect();
    let (less, more) = (sum(&lazy) >> 20, sum(&eager) >> 20);
    assert!(less * 10 < more * 9, "{less} MiB of {more} MiB");
}

#[test]
fn a_purge_binds_and_what_was_safe_before_outlives_it() {
    for report in play("purged", 0..20) {
        let text = report.to_text();
        assert!(text.contains("the source is gone"), "{text}");
    }
}

#[test]
fn a_dataset_lies_on_the_depots_it_is_pinned_to_before_it_is_safe() {
    for report in play("pinned", 0..20) {
        // 200 MiB at 4 MiB/s, and later than all fragments of the others.
        let took = safe_after(&report, 1);
        assert!(took > Duration::from_secs(45), "{took:?}");
        let text = report.to_text();
        assert!(text.contains("archive is pinned and has"), "{text}");
    }
}

#[test]
fn requests_count_in_budgets_and_in_the_choice_of_depots() {
    for report in play("requests-priced", 0..20) {
        let text = report.to_text();
        assert!(text.contains("with $0.0150 it would be safe"), "{text}");
    }
}

/// The user wants six fragments for any two losses; five for any one suffice by the deadline. Only
/// five exist when the source goes, and a sixth depot never comes back.
const SUFFICES: &str = r#"
name = "suffices"
summary = "What suffices is made again once the source is gone."
horizon_s = 750
depot = [
    { name = "a", capacity_mib = 1, rate_mib_per_s = 1.0 },
    { name = "b", capacity_mib = 1, rate_mib_per_s = 1.0 },
    { name = "c", capacity_mib = 1, rate_mib_per_s = 1.0 },
    { name = "d", capacity_mib = 1, rate_mib_per_s = 1.0 },
    { name = "e", capacity_mib = 1, rate_mib_per_s = 1.0, offline_s = [[286, 391]] },
    { name = "f", capacity_mib = 1, rate_mib_per_s = 1.0 },
]
fault = [
    { at_s = 1.0, depot = "e", kind = "wiped" },
    { at_s = 2.0, depot = "c", kind = "vanishes" },
]

[[request]]
at_s = 1.0
code = "4+2"
deadline_s = 1
purge_s = 1.0
release = false
safe_with = 1
size_mib = 1.0
"#;

#[test]
fn no_more_losses_are_promised_than_suffice_once_the_source_is_gone() {
    let scenario = Scenario::parse(SUFFICES).unwrap();
    for seed in share_of(0..20) {
        let report = simulate(&scenario, seed);
        assert!(report.is_clean(), "seed {seed}\n{}", report.to_text());
    }
    let told = simulate(&scenario, 0).to_text();
    let (_, after) = told.split_once("the source is gone").unwrap();
    assert!(after.contains("survives the loss of any depot"), "{told}");
}

#[test]
fn depots_lent_for_one_request_take_nothing_of_it_outside_their_hours_or_above_their_load() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/lent.toml");
    let scenario = Scenario::load(&path).unwrap();
    for seed in share_of(0..8) {
        let report = simulate(&scenario, seed);
        assert!(report.is_clean(), "seed {seed}\n{}", report.to_text());
        assert_eq!(report.count(Fate::Met), 4, "seed {seed}");
        assert_eq!(report.count(Fate::Refused), 1, "seed {seed}");
    }
}

#[test]
fn depots_of_an_owner_take_nothing_of_others_whatever_these_name() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/owned.toml");
    let scenario = Scenario::load(&path).unwrap();
    for seed in share_of(0..8) {
        let report = simulate(&scenario, seed);
        assert!(report.is_clean(), "seed {seed}\n{}", report.to_text());
        assert_eq!(report.count(Fate::Met), 2, "seed {seed}");
        assert_eq!(report.count(Fate::Refused), 3, "seed {seed}");
    }
}
