//! Speed of the mind with many chunks: a third of a hundred thousand by day, all at night.

use posthaste_sim::{Fate, Scenario, simulate};

use crate::support::playing::{share_of, written};

#[test]
fn a_hundred_thousand_chunks_are_decided_on_in_seconds() {
    let chunks = share_of(0..100_000).end;
    let size = format!("size_mib = {chunks}");
    let scenario = written("large").replace("size_mib = 100000", &size);
    assert!(scenario.contains(&size));
    let report = simulate(&Scenario::parse(&scenario).unwrap(), 1);
    assert!(report.is_clean(), "{}", report.to_text());
    assert_eq!(report.count(Fate::Met), 1);
    // A stored fragment costs about one step, so nothing visits every chunk each time.
    assert!(report.steps < 7 * chunks, "{} steps", report.steps);
}
