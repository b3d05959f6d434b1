//! Many depots and many requests in one run. `cargo xtask bench world` plays the whole scenario,
//! with a hundred thousand requests.

use posthaste_sim::{Fate, Scenario, simulate};

#[test]
fn a_thousand_failing_depots_serve_thousands_of_requests() {
    let path =
        std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/scale.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let fewer = text
        .replace("count = 100000", "count = 2000")
        .replace("at_s = [0, 100000]", "at_s = [0, 2000]");
    let scenario = Scenario::parse(&fewer).unwrap();
    let report = simulate(&scenario, 1);
    assert!(report.is_clean(), "{:?}", report.violations);
    // The mind has forgotten half of them; the report has not.
    assert_eq!(report.fates.len(), 2000);
    assert!(
        report.count(Fate::Met) >= 1990,
        "{}",
        report.count(Fate::Met)
    );
    assert!(report.fates.iter().all(|(_, fate)| *fate != Fate::Unsafe));
}
