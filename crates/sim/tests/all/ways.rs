//! Several routes to one depot: the choice, and its benefit.

use crate::support::playing;

use playing::{play, play_written, told_s, written};
use posthaste_sim::{Fate, Report};

/// Returns the last route to a depot, as the story reports it.
fn taken(report: &Report, depot: &str) -> Option<String> {
    let start = format!("{depot}: takes the way ");
    let told = report.to_text();
    let (_, way) = told.rsplit_once(&start)?;
    Some(way.split(':').next()?.to_owned())
}

fn count(report: &Report, what: &str) -> usize {
    report.to_text().matches(what).count()
}

#[test]
fn gateways_are_taken_where_they_carry_more_and_left_where_they_buy_nothing() {
    for report in play("ways", 0..40) {
        let told = report.to_text();
        assert_eq!(report.count(Fate::Met), 3, "{told}");
        assert_eq!(
            taken(&report, "near").as_deref(),
            Some("straight"),
            "{told}"
        );
        // The gateway goes and comes back. Meanwhile data goes directly, and the depot is not
        // reported lost.
        assert_eq!(taken(&report, "north").as_deref(), Some("border"), "{told}");
        assert_eq!(count(&report, "depot down"), 0, "{told}");
        assert!(count(&report, "tries the way") <= 6, "{told}");
    }
}

/// Returns the scenario with one table replaced.
fn with(replaced: &str, by: &str) -> String {
    let text = written("ways");
    assert!(text.contains(replaced));
    text.replace(replaced, by)
}

#[test]
fn what_a_gateway_brings_is_there_far_earlier_than_without() {
    let bare = with(
        "depots = [\"north\", \"south\", \"near\"]",
        "depots = [\"near\"]",
    );
    let (with, without) = (play("ways", 0..20), play_written("ways", &bare, 0..20));
    for (with, without) in with.iter().zip(&without) {
        let all_there = |report| told_s(report, "delivered:").unwrap();
        let (with, without) = (all_there(with), all_there(without));
        assert!(with < 0.7 * without, "{with} s against {without} s");
    }
}

#[test]
fn where_a_gateway_carries_as_much_as_the_straight_way_nothing_is_relayed_for_long() {
    let even = with("rate_mib_per_s = 60\ngone_s", "rate_mib_per_s = 8\ngone_s");
    let even = even.replace("expect = [\"met\"]", "");
    for report in play_written("ways", &even, 0..20) {
        let told = report.to_text();
        for depot in ["north", "south", "near"] {
            assert_eq!(taken(&report, depot).as_deref(), Some("straight"), "{told}");
        }
    }
}
