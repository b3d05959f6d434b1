//! The demo on a tree of ours, as a program sees it.

use crate::support::processes::{binary, failure, make_tree, picture, text};
use serde_json::Value;

#[test]
fn the_demo_holds_what_it_promises() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    make_tree(&tree, 12, 1);
    let before = picture(&tree);
    let output = binary()
        .arg("demo")
        .arg(&tree)
        .args(["--json", "--deadline", "300s"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    for held in ["deadline_met", "source_released", "verified"] {
        assert_eq!(summary[held], true, "{held} in {summary}");
    }
    assert_eq!(summary["depots_lost"], 1, "{summary}");
    assert_eq!(summary["deadline_s"], 300, "{summary}");
    assert!(
        summary["safe_after_s"].as_f64().unwrap() < 300.0,
        "{summary}"
    );
    let chunks = |name: &str| summary[name].as_u64().unwrap();
    let mended = chunks("repaired_chunks") + chunks("rebuilt_chunks");
    assert!(mended > 0, "{summary}");
    assert!(summary["bytes"].as_u64().unwrap() > 10 << 20, "{summary}");
    let events = summary["events"].as_array().unwrap();
    for name in ["admitted", "depot-down", "safe", "released"] {
        let said = events.iter().any(|event| event["name"] == name);
        assert!(said, "{name} is missing in {events:#?}");
    }
    assert_eq!(
        picture(&tree),
        before,
        "the demo touched the user's own tree"
    );
}

#[test]
fn the_demo_refuses_a_tree_that_is_not_there_in_one_line() {
    let (code, line) = failure(&binary().args(["demo", "/no/such/tree"]).output().unwrap());
    assert_eq!(code, 3, "{line}");
    assert!(line.contains("/no/such/tree"), "{line}");
}
