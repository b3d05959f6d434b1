//! Stage-ins in whole worlds.

use std::{path::PathBuf, time::Duration};

use posthaste_core::contract::Happening;
use posthaste_sim::{Fate, Report, Scenario, What, simulate, simulate_explained};
use posthaste_types::RequestId;

use crate::support::playing;

use playing::{play, share_of};

fn load() -> Scenario {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/stage-in.toml");
    Scenario::load(&path).unwrap()
}

/// Returns the time of an event of a request.
fn when(report: &Report, request: u64, is_it: impl Fn(&Happening) -> bool) -> Option<Duration> {
    let request = Some(RequestId::new(request));
    let mut entries = report.timeline.iter();
    let entry = entries.find(|entry| {
        let What::Said { happening, .. } = &entry.what else {
            return false;
        };
        entry.request == request && is_it(happening)
    });
    entry.map(|entry| entry.at)
}

#[test]
fn stage_ins_come_in_time_and_not_before_with_every_seed() {
    let scenario = load();
    for seed in share_of(0..40) {
        let report = simulate(&scenario, seed);
        assert!(report.is_clean(), "seed {seed}\n{}", report.to_text());
        assert_eq!(report.count(Fate::Met), 2, "seed {seed}");
        let arrived = |happening: &Happening| matches!(happening, Happening::Arrived { .. });
        let begun = |happening: &Happening| matches!(happening, Happening::Fetching);
        let second = when(&report, 2, arrived).unwrap();
        assert!(
            second >= Duration::from_secs(1720),
            "seed {seed}: {second:?}"
        );
        // 6000 MiB at 40 to 54 MiB/s take 111 to 150 s; it begins some minutes before, not hours.
        let begun = when(&report, 2, begun).unwrap();
        let lead = Duration::from_secs(1820).saturating_sub(begun);
        assert!(lead < Duration::from_secs(420), "seed {seed}: {lead:?}");
    }
}

#[test]
fn what_is_wanted_at_a_moment_that_moves_comes_just_before_it_with_every_seed() {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/stage-in-moves.toml");
    let scenario = Scenario::load(&path).unwrap();
    for seed in share_of(0..40) {
        let report = simulate(&scenario, seed);
        assert!(report.is_clean(), "seed {seed}\n{}", report.to_text());
        assert_eq!(report.count(Fate::Met), 2, "seed {seed}");
        let begun = |happening: &Happening| matches!(happening, Happening::Fetching);
        // 3000 MiB at 30 to 40 MiB/s take 75 to 100 s: the first begins some minutes before 4005 s.
        for (request, range) in [(1, 3600..3905), (2, 620..630)] {
            let begun = when(&report, request, begun).unwrap().as_secs();
            assert!(range.contains(&begun), "seed {seed}: {request}: {begun} s");
        }
    }
}

#[test]
fn its_story_is_told() {
    let (_, story) = simulate_explained(&load(), 1, RequestId::new(1));
    let story = story.unwrap().join("\n");
    for said in ["archive was left", "all of it was here", "came from mirror"] {
        assert!(story.contains(said), "{said}\n{story}");
    }
}

#[test]
fn what_lies_apart_comes_in_time_with_every_seed_and_the_source_that_binds_is_named() {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/stage-in-parts.toml");
    let scenario = Scenario::load(&path).unwrap();
    for seed in share_of(0..40) {
        let report = simulate(&scenario, seed);
        assert!(report.is_clean(), "seed {seed}\n{}", report.to_text());
        assert_eq!(report.count(Fate::Met), 2, "seed {seed}");
        let begun = |happening: &Happening| matches!(happening, Happening::Fetching);
        let begun = when(&report, 3, begun).unwrap();
        // 1000 MiB from the archive take 70 to 100 s, and only its p10 is known.
        let lead = Duration::from_secs(2100).saturating_sub(begun);
        let range = Duration::from_secs(70)..Duration::from_secs(300);
        assert!(range.contains(&lead), "seed {seed}: {lead:?}");
    }
    let (_, story) = simulate_explained(&scenario, 1, RequestId::new(1));
    let story = story.unwrap().join("\n");
    for said in [
        "archive holds 1.9 GiB of it, and no other does 1000.0 MiB",
        "that lie only at archive",
        "archive was left",
        "all of it was here",
    ] {
        assert!(story.contains(said), "{said}\n{story}");
    }
    let (_, story) = simulate_explained(&scenario, 1, RequestId::new(2));
    let story = story.unwrap().join("\n");
    assert!(
        story.contains("refused") && story.contains("that lie only at archive"),
        "{story}"
    );
}

#[test]
fn what_comes_slowly_gathers_near_the_centre_and_comes_late_with_every_seed() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/stage-in-near.toml");
    let scenario = Scenario::load(&path).unwrap();
    for seed in share_of(0..40) {
        let report = simulate(&scenario, seed);
        assert!(report.is_clean(), "seed {seed}\n{}", report.to_text());
        assert_eq!(report.count(Fate::Met), 1, "seed {seed}");
        let gathered = |happening: &Happening| matches!(happening, Happening::Prestaging);
        assert!(when(&report, 1, gathered).unwrap() < Duration::from_secs(10));
        // 10000 MiB at 8 to 12 MiB/s take 14 to 21 min; from near the centre less than one.
        let begun = |happening: &Happening| matches!(happening, Happening::Fetching);
        let lead = Duration::from_secs(3005).saturating_sub(when(&report, 1, begun).unwrap());
        let range = Duration::from_secs(50)..Duration::from_secs(180);
        assert!(range.contains(&lead), "seed {seed}: {lead:?}");
    }
    let (_, story) = simulate_explained(&scenario, 1, RequestId::new(1));
    let story = story.unwrap().join("\n");
    for said in ["gathered near the centre", "came from cache"] {
        assert!(story.contains(said), "{said}\n{story}");
    }
}

#[test]
fn what_goes_out_leaves_scratch_once_all_of_it_is_there_with_every_seed() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/stage-out.toml");
    let scenario = Scenario::load(&path).unwrap();
    let mut retried = 0;
    for seed in share_of(0..40) {
        let report = simulate(&scenario, seed);
        assert!(report.is_clean(), "seed {seed}\n{}", report.to_text());
        assert_eq!(report.count(Fate::Met), 2, "seed {seed}");
        let arrived = |happening: &Happening| matches!(happening, Happening::Arrived { .. });
        let released = |happening: &Happening| *happening == Happening::Released;
        let kept = |happening: &Happening| *happening == Happening::ReleaseFailed;
        // The second one keeps the world running until the first has left scratch.
        let arrived = when(&report, 1, arrived).unwrap();
        assert!(
            when(&report, 1, released).unwrap() >= arrived,
            "seed {seed}"
        );
        retried += u32::from(when(&report, 1, kept).is_some());
    }
    assert!(retried > 0, "no removal was ever tried again");
}

#[test]
fn what_goes_over_depots_to_an_address_leaves_scratch_while_that_is_away_with_every_seed() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/onward.toml");
    let scenario = Scenario::load(&path).unwrap();
    for seed in share_of(0..40) {
        let report = simulate(&scenario, seed);
        assert!(report.is_clean(), "seed {seed}\n{}", report.to_text());
        assert_eq!(report.count(Fate::Met), 2, "seed {seed}");
        let first = |request, is_it: fn(&Happening) -> bool| when(&report, request, is_it);
        let released = first(1, |happening| *happening == Happening::Released).unwrap();
        // The bucket is up from 903 s on.
        assert!(
            released < Duration::from_secs(800),
            "seed {seed}: {released:?}"
        );
        let arrived = first(2, |happening| {
            matches!(happening, Happening::Arrived { .. })
        });
        let delivered = first(1, |happening| *happening == Happening::Delivered);
        assert!(arrived.unwrap() > Duration::from_secs(903), "seed {seed}");
        assert_eq!(arrived, delivered, "seed {seed}");
    }
    let (_, story) = simulate_explained(&scenario, 1, RequestId::new(1));
    let story = story.unwrap().join("\n");
    assert!(
        story.contains("brought all of it to its address"),
        "{story}"
    );
}

#[test]
fn what_can_be_safe_but_not_at_its_address_in_time_is_refused_with_both_numbers() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/onward.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    // 8000 MiB at 4 MiB/s (p10) take half an hour.
    let text = text.replace("deadline_s = 4000", "deadline_s = 600");
    let text = text.replace("expect = [\"met\"]", "expect = [\"refused\"]");
    let scenario = Scenario::parse(&text).unwrap();
    let report = simulate(&scenario, 1);
    assert!(report.is_clean(), "{}", report.to_text());
    assert_eq!(report.count(Fate::Refused), 2);
    let sent = |happening: &Happening| *happening == Happening::DepotActivated;
    assert_eq!(when(&report, 1, sent), None);
}

#[test]
fn what_is_left_of_a_source_is_shared_by_priority_project_and_user() {
    let arrived = |happening: &Happening| matches!(happening, Happening::Arrived { .. });
    for report in play("fair-stage-ins", 0..20) {
        let at = |request| when(&report, request, arrived).unwrap();
        // Request 1 is punctual's, 2 to 9 are ann's, 10 and 11 ben's.
        let (eve, urgent) = (at(12), at(13));
        let of_ann: Vec<Duration> = (2..=9).map(at).collect();
        let of_ben = at(10).max(at(11));
        let last = of_ann.iter().max().unwrap();
        let text = report.to_text();
        let before = of_ann.iter().filter(|&&done| done < eve).count();
        assert!(before <= 3, "{before} before eve\n{text}");
        assert!(of_ben < *last * 3 / 4, "{of_ben:?} of {last:?}\n{text}");
        assert!(urgent < Duration::from_secs(100), "{urgent:?}\n{text}");
    }
}

#[test]
fn what_costs_something_gives_what_the_deadline_needs_and_the_budget_pays() {
    for report in play("priced-stage-in", 0..40) {
        let fate = |request: usize| report.fates[request - 1].1;
        let text = report.to_text();
        assert_eq!(fate(3), Fate::Refused, "{text}");
        // Its punctuality depends on the mirror's return.
        assert_ne!(fate(6), Fate::Refused, "{text}");
        let refused = |happening: &Happening| matches!(happening, Happening::Refused);
        assert!(when(&report, 3, refused).is_some(), "{text}");
    }
}

#[test]
fn a_source_that_dies_while_depots_near_the_centre_get_its_chunks_gives_each_once() {
    play("dies-while-prestaging", 0..20);
}
