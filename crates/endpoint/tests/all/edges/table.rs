//! Table of `docs/reference/edges.md`: each test covers rows of it.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Place of the page in the project.
const PAGE: &str = "docs/reference/edges.md";

/// Folders of the tests: of endpoints alone, and of the program.
const TESTS: [&str; 2] = [
    "crates/endpoint/tests/all/edges",
    "crates/cli/tests/all/copy",
];

/// Tests of pulls, stage-ins and offloads, which name their rows in a comment.
const OTHERS: [&str; 5] = [
    "crates/relay/tests/all/pull.rs",
    "crates/cli/tests/all/stage_in.rs",
    "crates/cli/tests/all/stage_in/damaged.rs",
    "crates/cli/tests/all/stage_in/replicas.rs",
    "crates/cli/tests/all/stage_out.rs",
];

/// Result of an unusual answer.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// Everything arrives unchanged.
    Right,
    /// Nothing counts as there; a line gives the reason.
    Refused,
    /// Other files arrive; the missing ones are named, and the exit code is 6.
    LeftOut,
}

/// Returns a path in the project: tests of several packages read this file.
fn at(path: &str) -> PathBuf {
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let root = above.find(|folder| folder.join("Cargo.lock").exists());
    root.unwrap().join(path)
}

/// Records what the calling test has shown of these endpoints. The page has the same row.
pub fn shown(endpoints: &str, situation: &str, end: End) {
    let end = match end {
        End::Right => "right",
        End::Refused => "refused",
        End::LeftOut => "left out",
    };
    let row = format!("| {situation} | {endpoints} | {end} |");
    let page = fs::read_to_string(at(PAGE)).unwrap();
    assert!(
        page.lines().any(|line| line == row),
        "{PAGE} lacks the row {row}"
    );
}

#[test]
fn each_row_is_shown_by_a_test() {
    let sources: Vec<String> = TESTS
        .into_iter()
        .flat_map(|folder| fs::read_dir(at(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .chain(OTHERS.map(at))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let page = fs::read_to_string(at(PAGE)).unwrap();
    let is_row = |line: &&str| line.starts_with("| ") && !line.starts_with("| situation |");
    for row in page.lines().filter(is_row) {
        let situation = row.split('|').nth(1).unwrap().trim();
        let quoted = format!("\"{situation}\"");
        assert!(
            sources.iter().any(|source| source.contains(&quoted)),
            "no test shows the row {row}"
        );
    }
}
