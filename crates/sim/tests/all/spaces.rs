//! Space reserved on depots that others also use: its benefit, and its return.

use crate::support::playing;

use playing::{play, play_written, written};
use posthaste_sim::{Fate, Report};

fn met(reports: &[Report]) -> usize {
    reports.iter().map(|report| report.count(Fate::Met)).sum()
}

#[test]
fn what_was_reserved_is_there_when_others_come() {
    for report in play("spaces", 0..40) {
        let told = report.to_text();
        assert_eq!(report.count(Fate::Met), 2, "{told}");
    }
}

#[test]
fn without_it_others_take_the_space_and_deadlines_are_missed() {
    let bare = written("spaces").replace("reserves = true\n", "");
    let bare = bare.replace("expect = [\"met\"]\n", "");
    let (with, without) = (play("spaces", 0..20), play_written("spaces", &bare, 0..20));
    assert_eq!(met(&with), 2 * with.len());
    let (met, most) = (met(&without), without.len());
    assert!(met <= most, "{met} of {}", 2 * most);
}

/// A request without reserved space continues normally, and asks again after others have left.
#[test]
fn who_comes_too_late_goes_elsewhere() {
    let late = written("spaces")
        .replace("at_s = 15", "at_s = 0.001")
        .replace("at_s = 20\n", "at_s = 0.001\n")
        .replace("deadline_s = 240", "deadline_s = 1500");
    for report in play_written("spaces", &late, 0..20) {
        assert_eq!(report.count(Fate::Met), 2, "{}", report.to_text());
    }
}
