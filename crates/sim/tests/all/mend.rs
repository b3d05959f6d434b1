//! Repair by depots of datasets whose source is gone, with all kinds of faults.

use posthaste_sim::{Fate, Report};
use posthaste_types::RequestId;

use crate::support::playing;

use playing::play;

/// Time when the last depot leaves for a moment, in seconds. All repairs end long before.
const LAST_S: u64 = 2400;

/// Returns the number of repairs reported for a request, and the last report of its safety before
/// the last depot left.
fn told(report: &Report, request: RequestId) -> (usize, String) {
    let entries = report.timeline.iter();
    let told =
        entries.filter(|entry| entry.request == Some(request) && entry.at.as_secs() < LAST_S);
    let told: Vec<String> = told.map(|entry| entry.what.to_string()).collect();
    let repairs = told.iter().filter(|line| line.contains("repairing "));
    let of_safety = |line: &&String| line.contains("no longer safe") || line.starts_with("safe, ");
    (
        repairs.count(),
        told.iter().rev().find(of_safety).unwrap().clone(),
    )
}

#[test]
fn what_is_lost_after_the_source_left_is_made_again() {
    for report in play("mend", 0..30) {
        assert_eq!(report.count(Fate::Met), 2, "{}", report.to_text());
        let told = [1, 2].map(|number| told(&report, RequestId::new(number)));
        for (_, last) in &told {
            assert!(last.starts_with("safe, "), "{last}\n{}", report.to_text());
        }
        // Four of eight depots are lost, and five hold some of each chunk.
        let repairs: usize = told.iter().map(|(repairs, _)| repairs).sum();
        assert!(repairs >= 3, "{repairs} times\n{}", report.to_text());
    }
}
