//! Speed of the mind with a hundred thousand chunks.

use posthaste_sim::{Fate, Scenario, simulate};

#[test]
fn a_hundred_thousand_chunks_are_decided_on_in_seconds() {
    let path =
        std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/large.toml");
    let scenario = Scenario::load(&path).unwrap();
    let report = simulate(&scenario, 1);
    assert!(report.is_clean(), "{}", report.to_text());
    assert_eq!(report.count(Fate::Met), 1);
    // A stored fragment costs about one step, so nothing visits every chunk each time.
    assert!(report.steps < 700_000, "{} steps", report.steps);
}
