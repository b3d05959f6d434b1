//! Every command that the README, the pages of `docs` and the help print is run: by a stage here,
//! or by another named test.

mod printed;
mod stage;

use std::{collections::BTreeSet, fs, path::Path};

use printed::{Help, one_line, pages};

/// Files of tests, below `crates/cli/tests/all/pages/`, that run the printed commands.
const STAGES: [&str; 5] = ["copy", "offload", "arrive", "operate", "gateway"];

#[test]
fn what_copies_streams_and_lists_is_so() {
    stage::play("copy");
}

#[test]
fn what_leaves_by_a_deadline_is_so() {
    stage::play("offload");
}

#[test]
fn what_comes_by_a_deadline_is_so() {
    stage::play("arrive");
}

#[test]
fn what_operators_type_is_so() {
    stage::play("operate");
}

#[test]
fn what_goes_through_gateways_is_so() {
    stage::play("gateway");
}

#[test]
fn each_command_that_is_printed_is_run() {
    let help = Help::read();
    let mut printed: BTreeSet<String> = help.examples().collect();
    printed.extend(pages().flat_map(|page| page.commands()));
    let mut run: BTreeSet<String> = STAGES
        .iter()
        .flat_map(|name| stage::commands(name))
        .collect();
    run.extend(elsewhere());
    let missing: Vec<&String> = printed.difference(&run).collect();
    let stale: Vec<&String> = run.difference(&printed).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "no stage runs, and elsewhere.txt does not name: {missing:#?}\nno page prints: {stale:#?}"
    );
}

#[test]
fn each_option_that_a_sentence_names_exists() {
    let help = Help::read();
    let wrong: Vec<String> = pages()
        .flat_map(|page| page.spans())
        .filter_map(|span| help.mistake_of(&span))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the commands that other tests run, each with its test.
fn elsewhere() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("tests/all/pages/elsewhere.txt")).unwrap();
    let mut commands = Vec::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("# ") {
            let file = heading.split(':').next().unwrap();
            assert!(root.join(file).exists(), "there is no {file}");
        } else if !line.is_empty() {
            commands.push(one_line(line));
        }
    }
    commands
}
