//! Space promised on depots is there for its owner; all checkers are on.

use posthaste_core::Settings;
use posthaste_sim::{Fate, deadlines::score_with, simulate};

use crate::support::playing;

use playing::{load, share_of};

#[test]
fn who_is_more_urgent_does_not_take_space_that_was_promised() {
    for seed in share_of(0..20) {
        let report = simulate(&load("tight-space"), seed);
        assert!(report.is_clean(), "seed {seed}\n{}", report.to_text());
        let fates: Vec<&Fate> = report.fates.iter().map(|(_, fate)| fate).collect();
        assert_eq!(fates[0], &Fate::Met, "seed {seed}\n{}", report.to_text());
    }
}

#[test]
fn depots_are_rid_of_what_goes_on_before_others_take_its_space() {
    for seed in share_of(0..10) {
        let report = simulate(&load("full-destination"), seed);
        assert!(report.is_clean(), "seed {seed}\n{}", report.to_text());
        let met = report.fates.iter().filter(|(_, fate)| *fate == Fate::Met);
        assert_eq!(met.count(), 3, "seed {seed}\n{}", report.to_text());
    }
}

#[test]
fn hardly_anybody_who_is_taken_where_space_lacks_is_late() {
    let scenario = load("deadlines/storage");
    let (mut met, mut late) = (0, Vec::new());
    for seed in 1..=50 {
        let report = score_with(&scenario, seed, Settings::default()).report;
        assert!(report.is_clean(), "seed {seed}\n{}", report.to_text());
        for (request, fate) in &report.fates {
            match fate {
                Fate::Met => met += 1,
                Fate::Refused => {}
                Fate::Late => late.push((seed, *request)),
                Fate::Unsafe | Fate::Cancelled | Fate::Failed => {
                    panic!(
                        "seed {seed}: {request} is {}\n{}",
                        fate.name(),
                        report.to_text()
                    );
                }
            }
        }
    }
    // Others may take the promised space: of 150 promises one may break, and by little.
    assert!(
        met > 318 && late.len() * 150 <= met,
        "{met} met, late {late:?}"
    );
}
