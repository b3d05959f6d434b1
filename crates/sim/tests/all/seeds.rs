//! Hundreds of seeds of the named scenarios, under all checkers. A failing seed is printed with the
//! command that replays it.

use std::path::PathBuf;

use posthaste_core::Settings;
use posthaste_sim::{Fate, Report, Scenario, simulate, simulate_with};

use crate::support::playing;

use playing::{load, play, share_of};

#[test]
fn the_demo_meets_its_deadline_with_every_seed() {
    for report in play("demo", 0..50) {
        assert_eq!(report.count(Fate::Met), 1);
        let is_repaired = report
            .timeline
            .iter()
            .any(|entry| entry.what.to_string().contains("repairing"));
        assert!(is_repaired, "the depot that died held nothing");
    }
}

#[test]
fn who_is_in_a_hurry_waits_for_what_is_under_way_and_nothing_else() {
    for report in play("in-a-hurry", 0..20) {
        assert_eq!(report.count(Fate::Met), 4);
    }
}

#[test]
fn what_lies_on_a_dead_depot_hides_no_finish() {
    for report in play("figure-6", 0..20) {
        assert_eq!(report.count(Fate::Met), 1);
        let mut said = report.timeline.iter().map(|entry| entry.what.to_string());
        assert!(
            !said.any(|said| said.contains("no finish")),
            "{}",
            report.seed
        );
    }
}

#[test]
fn what_depots_bring_is_not_sent_a_second_time_as_well() {
    play("gathered-at-the-end", 3675..3695);
}

#[test]
fn encryption_costs_a_tag_for_each_chunk_and_nothing_else() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/demo.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let encrypted = text.replace("[[request]]", "[[request]]\nencrypted = true");
    assert_ne!(encrypted, text);
    let encrypted = Scenario::parse(&encrypted).unwrap();
    for seed in share_of(0..20) {
        let report = simulate(&encrypted, seed);
        assert!(report.is_clean(), "seed {seed}\n{}", report.to_text());
        assert_eq!(report.count(Fate::Met), 1);
    }
}

#[test]
fn depots_lent_by_the_hour_go_and_come_back_with_what_they_hold() {
    for report in play("night-shift", 0..1) {
        assert_eq!(report.count(Fate::Met), 5);
        assert_eq!(report.sent, report.stored, "something was sent again");
    }
}

#[test]
fn one_copy_at_a_destination_is_no_code() {
    for report in play("destination-lost", 0..30) {
        assert_eq!(report.count(Fate::Met), 2, "{}", report.to_text());
    }
}

#[test]
fn a_destination_alone_is_no_code_and_is_not_called_one() {
    for report in play("destination-alone", 0..30) {
        assert_eq!(report.count(Fate::Unsafe), 1, "{}", report.to_text());
    }
}

#[test]
fn depots_of_one_hall_are_no_way_past_a_slow_destination() {
    play("one-domain-with-destination", 0..30);
}

#[test]
fn depots_of_one_hall_do_where_no_loss_is_to_be_survived() {
    for report in play("one-domain-without-losses", 0..30) {
        assert_eq!(report.count(Fate::Met), 1, "{}", report.to_text());
    }
}

#[test]
fn providers_that_fail_across_sites_lose_nothing() {
    for report in play("two-domains", 0..30) {
        assert_eq!(report.count(Fate::Late) + report.count(Fate::Unsafe), 0);
        assert_eq!(report.count(Fate::Met), 4);
    }
}

#[test]
fn sites_that_fail_as_a_whole_lose_nothing() {
    for report in play("site-failure", 0..30) {
        assert_eq!(report.count(Fate::Late) + report.count(Fate::Unsafe), 0);
        assert!(report.count(Fate::Met) >= 2);
    }
}

#[test]
fn what_a_destination_took_does_not_count_while_it_is_gone() {
    for report in play("destination-wiped", 0..20) {
        assert_eq!(report.count(Fate::Unsafe), 0);
    }
}

#[test]
fn a_site_takes_more_than_it_should_rather_than_nobody() {
    for report in play("tight-sites", 530..550) {
        assert_eq!(report.count(Fate::Unsafe), 0, "{}", report.to_text());
    }
}

#[test]
fn a_site_that_has_to_hold_more_than_it_should_is_said_once() {
    for report in play("crowded-site", 0..10) {
        assert_eq!(report.count(Fate::Met), 1, "{}", report.to_text());
        let said = report.timeline.iter();
        let said = said.filter(|entry| entry.what.name() == "crowded").count();
        assert_eq!(said, 1, "{}", report.to_text());
    }
}

#[test]
fn flapping_depots_lose_nothing() {
    play("flapping-depots", 0..50);
}

#[test]
fn what_is_paused_waits_and_is_told_when_that_costs_its_deadline() {
    for report in play("paused", 0..30) {
        assert_eq!(report.count(Fate::Met), 2, "{}", report.to_text());
        assert_eq!(report.count(Fate::Late), 1, "{}", report.to_text());
    }
}

#[test]
fn a_crowd_is_served_or_told() {
    let reports = play("crowded", 0..30);
    let refused: usize = reports
        .iter()
        .map(|report| report.count(Fate::Refused))
        .sum();
    let met: usize = reports.iter().map(|report| report.count(Fate::Met)).sum();
    assert!(refused > 0, "the crowd is no crowd");
    assert!(met > refused, "{met} met, {refused} refused");
}

/// By turns, the second request would be refused, because the first would get its only depot.
#[test]
fn a_plan_over_time_keeps_a_deadline_that_turns_would_not() {
    for report in play("squeezed", 0..30) {
        assert_eq!(report.count(Fate::Met), 2, "{}", report.to_text());
    }
    let turns = Settings {
        plan_requests_max: 0,
        ..Settings::default()
    };
    let scenario = load("squeezed");
    for seed in 0..30 {
        let report = simulate_with(&scenario, seed, turns.clone());
        assert!(report.is_clean(), "{}", report.to_text());
        assert_eq!(report.count(Fate::Refused), 1, "{}", report.to_text());
    }
}

/// A plan also respects limits besides single depots: hours of one request, and pins.
#[test]
fn a_plan_over_time_knows_hours_and_pins_of_one_request() {
    for report in play("squeezed-bound", 0..30) {
        assert_eq!(report.count(Fate::Met), 4, "{}", report.to_text());
    }
    let turns = Settings {
        plan_requests_max: 0,
        ..Settings::default()
    };
    let scenario = load("squeezed-bound");
    for seed in 0..30 {
        let report = simulate_with(&scenario, seed, turns.clone());
        assert!(report.is_clean(), "{}", report.to_text());
        assert_eq!(report.count(Fate::Refused), 2, "{}", report.to_text());
    }
}

/// A request accepted by a plan also goes directly to its destinations.
#[test]
fn a_plan_over_time_feeds_the_destinations_of_a_newcomer() {
    for report in play("squeezed-home", 0..10) {
        assert_eq!(report.count(Fate::Met), 2, "{}", report.to_text());
    }
}

/// An answer lost with the service is requested again, and no request waits in silence.
#[test]
fn a_driver_killed_while_a_plan_is_solved_answers_in_the_end() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/squeezed.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let killed = format!("{text}\n[[fault]]\nkind = \"driver-crash\"\nat_s = [61.9, 62.1]\n");
    let scenario = Scenario::parse(&killed).unwrap();
    for seed in share_of(0..100) {
        let report = simulate(&scenario, seed);
        assert!(report.is_clean(), "seed {seed}\n{}", report.to_text());
        assert_eq!(report.fates.len(), 2, "{}", report.to_text());
    }
}

#[test]
fn what_is_infeasible_is_said_at_once() {
    play("infeasible", 0..5);
}

#[test]
fn a_file_that_changes_is_left_out_and_all_else_is_safe() {
    let reports = play("left-out", 0..200);
    let (mut omitted, played) = (0, reports.len());
    for report in reports {
        assert_eq!(report.count(Fate::Met), 3, "{}", report.to_text());
        omitted += usize::from(report.to_text().contains("left out"));
    }
    assert!(
        omitted * 2 > played,
        "it changed before its end in {omitted} of {played} only"
    );
}

#[test]
fn a_driver_killed_at_any_moment_goes_on() {
    play("driver-crashes", 0..60);
}

#[test]
fn whichever_optimizer_is_asked_for_promises_are_kept() {
    for report in play("optimizers", 0..20) {
        assert_eq!(report.count(Fate::Met), 9, "{}", report.to_text());
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/optimizers.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let one = |name: &str| {
        let same = text
            .lines()
            .map(|line| match line.starts_with("optimizer") {
                true => format!("optimizer = \"{name}\"\n"),
                false => format!("{line}\n"),
            });
        let scenario = Scenario::parse(&same.collect::<String>()).unwrap();
        simulate(&scenario, 1).fingerprint
    };
    assert_ne!(
        one("fixed:1,1,1"),
        one("fixed:6,1,1"),
        "the name changes nothing"
    );
}

#[test]
fn a_driver_killed_with_no_depot_to_spare_places_every_fragment() {
    play("crashes-without-spare", 0..60);
}

#[test]
fn a_direct_path_that_hangs_gives_way_to_depots_after_the_deadline_too() {
    play("direct-hangs", 0..40);
}

#[test]
fn staging_that_cannot_go_on_gives_way_to_the_direct_path() {
    play("staged-ends", 0..10);
}

#[test]
fn the_direct_path_gives_way_to_depots() {
    let is_rerouted = |report: &&Report| {
        report
            .timeline
            .iter()
            .any(|entry| entry.what.to_string().contains("rerouted"))
    };
    let reports = play("direct-to-staged", 0..40);
    let rerouted = reports.iter().filter(is_rerouted).count();
    // A link can slow so late that the rest still arrives in time.
    let all = reports.len();
    assert!(
        4 * rerouted >= 3 * all,
        "only {rerouted} of {all} were rerouted"
    );
}

/// Acceptance target 7 of the algorithm notes: the paper's SLA experiment meets 600 s. Its fan-out
/// grows from none to two and three, and to four if needed. Here the slow direct path stays in use:
/// the end site counts as one more. Fewer depots may suffice, and one may be dropped in between.
#[test]
fn the_papers_sla_experiment_meets_its_deadline_with_a_growing_fan_out() {
    for report in play("slowdown", 0..5) {
        let mut grown = vec![0];
        for &fan_out in &report.fan_outs {
            if fan_out > grown[grown.len() - 1] {
                grown.push(fan_out);
            }
        }
        assert!(grown.starts_with(&[0, 1, 3, 4]), "{}", report.to_text());
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for name in ["demo", "flapping-depots", "crowded", "driver-crashes"] {
        let scenario = load(name);
        for seed in 0..3 {
            assert_eq!(
                simulate(&scenario, seed),
                simulate(&scenario, seed),
                "{name} {seed}"
            );
        }
        let differ = simulate(&scenario, 1).fingerprint != simulate(&scenario, 2).fingerprint;
        assert!(differ, "{name}: the seed changes nothing");
    }
}

/// The naive baseline keeps the depots chosen at admission, whatever the forecast says.
#[test]
fn a_fan_out_that_never_changes_misses_the_papers_deadline() {
    let fixed = Settings {
        behind_ticks: u32::MAX,
        ahead_ticks: u32::MAX,
        restless_of: 0,
        ..Settings::default()
    };
    let scenario = load("slowdown");
    for seed in 0..3 {
        let report = simulate_with(&scenario, seed, fixed.clone());
        assert_eq!(report.count(Fate::Met), 0, "{}", report.to_text());
    }
}

#[test]
fn whatever_the_weather_promises_are_kept_or_the_danger_said() {
    let reports = play("weather", 0..60);
    let count = |fate| {
        reports
            .iter()
            .map(|report| report.count(fate))
            .sum::<usize>()
    };
    let (met, all) = (count(Fate::Met), 7 * reports.len());
    assert!(7 * met > 5 * all, "{met} met of {all}");
    let saw = |what: &str| {
        let said = |report: &&Report| {
            let mut entries = report.timeline.iter();
            entries.any(|entry| entry.what.to_string().contains(what))
        };
        assert!(reports.iter().any(|report| said(&report)), "never: {what}");
    };
    for what in ["north-1 dies", "home goes offline", "is back empty"] {
        saw(what);
    }
}

/// Probes run in gaps and within their budget, under all faults of depots and driver.
#[test]
fn paths_that_nobody_measured_are_probed_within_their_budget() {
    let reports = play("stale-paths", 0..20);
    for report in &reports {
        assert!(report.probes >= 3, "{}", report.to_text());
        assert!(
            report.probed.times(100) <= report.sent,
            "{}",
            report.to_text()
        );
    }
}

#[test]
fn probes_keep_to_hours_and_to_what_a_request_pays() {
    for report in play("priced-paths", 0..10) {
        let probed = |name: &str| {
            let said = format!("{name} is probed");
            let told = report.timeline.iter();
            told.filter(|entry| entry.what.to_string().contains(&said))
                .map(|entry| entry.at.as_secs())
                .collect::<Vec<_>>()
        };
        let text = report.to_text();
        assert!(!probed("even").is_empty(), "{text}");
        assert!(probed("dear").is_empty(), "{text}");
        // The depot is lent from 08:15 on, and the run begins at 08:00.
        let early = probed("early");
        assert!(
            !early.is_empty() && early.iter().all(|at| *at >= 900),
            "{text}"
        );
    }
}

/// A checker verifies the reported losses; remaining data is sent again.
#[test]
fn what_more_losses_than_the_code_survives_take_is_said_to_be_out_of_reach() {
    for report in play("lost", 0..20) {
        let text = report.to_text();
        assert_eq!(report.count(Fate::Met), 3, "{text}");
        assert!(text.contains("chunks no longer safe"), "{text}");
    }
}

/// The mind accepts requests over unmeasured paths, and reports them at risk until transfers show
/// the rates.
#[test]
fn what_nobody_measured_is_taken_where_it_may_be_in_time_and_refused_else() {
    for report in play("assumed", 0..10) {
        let text = report.to_text();
        assert_eq!(report.count(Fate::Met), 3, "{text}");
        assert_eq!(report.count(Fate::Refused), 2, "{text}");
        for taken in ["r3", "r4"] {
            assert!(text.contains(&format!("{taken} at risk, p90")), "{text}");
        }
        assert!(
            text.contains("r4 admitted: from 1 source: if paths of which little is known"),
            "{text}"
        );
    }
}

#[test]
fn what_a_depot_says_of_its_load_is_told_as_it_is_when_the_service_starts() {
    play("loads-while-down", 0..10);
}

#[test]
fn what_befalls_a_depot_outside_its_hours_ends_no_earlier_than_they_begin() {
    play("vanishes-by-day", 0..10);
}

/// The request's only file changed, and no depot may rebuild it. That is reported, and nothing
/// waits for ever.
#[test]
fn a_chunk_is_left_to_depots_only_where_the_budget_lets_them_rebuild_it() {
    for report in play("left-out-of-budget", 0..10) {
        assert_eq!(report.count(Fate::Failed), 1, "{}", report.to_text());
    }
}

#[test]
fn what_comes_twice_while_nobody_can_take_what_lacks_makes_room_for_it() {
    for report in play("parked", 261_129_191_102_481..261_129_191_102_486) {
        assert_eq!(report.count(Fate::Unsafe), 0, "{}", report.to_text());
    }
}

#[test]
fn what_is_another_chunk_now_is_sent_once_to_a_depot_that_comes_back() {
    play(
        "renewed-while-away",
        261_129_221_500_588..261_129_221_500_591,
    );
}

#[test]
fn a_chunk_is_not_left_to_depots_that_can_not_rebuild_it() {
    play("left-to-too-few", 0..20);
    play("left-without-room", 0..20);
}

#[test]
fn keeping_is_paid_from_the_purge_that_binds_on() {
    play(
        "paid-until-its-purge",
        261_130_105_406_338..261_130_105_406_341,
    );
}

/// Fragments alone are paid by a budget: it is at risk, and nobody promises more.
#[test]
fn no_whole_copy_stands_in_for_a_fragment_where_a_budget_pays() {
    play(
        "no-stand-in-for-money",
        261_130_105_404_041..261_130_105_404_044,
    );
}

/// What a depot still holds counts again, and takes no room that nobody knows of.
#[test]
fn a_depot_that_was_to_evict_is_asked_once_a_destination_lost_all() {
    play(
        "lost-while-others-evict",
        261_130_105_406_877..261_130_105_406_880,
    );
}
