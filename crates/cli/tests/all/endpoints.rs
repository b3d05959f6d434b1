//! `posthaste endpoints`, and the page of the reference that is generated from it.

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

fn posthaste(arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_posthaste"))
        .env_clear()
        .env("HOME", home.path())
        .args(arguments)
        .output()
        .unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = posthaste(arguments);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_committed_page_is_what_the_program_says() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    assert!(
        posthaste(&["generate", "reference", place])
            .status
            .success()
    );
    let made = std::fs::read_to_string(folder.path().join("endpoints.md")).unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/endpoints.md");
    let committed = std::fs::read_to_string(page).unwrap();
    assert!(made == committed, "run `cargo xtask generate`");
}

#[test]
fn all_that_is_built_in_is_shown() {
    let output = posthaste(&["endpoints"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    let heading = shown.lines().next().unwrap();
    let all = json(&["endpoints", "--json"]);
    for endpoint in all.as_array().unwrap() {
        assert!(heading.contains(endpoint["scheme"].as_str().unwrap()));
        assert!(endpoint["addresses"].is_string() && endpoint["ranges"].is_boolean());
    }
    let ranges = shown.lines().find(|line| line.starts_with("ranges"));
    assert_eq!(
        ranges.unwrap().matches("yes").count(),
        all.as_array().unwrap().len()
    );
    assert!(shown.contains("reading can start anywhere"), "no legend");
}

#[test]
fn an_address_is_told_without_connecting() {
    // Nobody listens there: TEST-NET-1 (RFC 5737).
    let sftp = json(&["endpoints", "sftp://192.0.2.1/x", "--json"]);
    assert_eq!(sftp["scheme"], "sftp");
    assert_eq!(sftp["mtime_step_ns"], 1_000_000_000);
    assert_eq!(json(&["endpoints", "s3://b", "--json"])["resumes"], true);
    assert_eq!(
        json(&["endpoints", "https://h/x", "--json"])["writes"],
        false
    );
    let unknown = posthaste(&["endpoints", "nosuch://x"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    let line = String::from_utf8(unknown.stderr).unwrap();
    assert!(line.contains("posthaste-plugin-nosuch"), "{line}");
}
