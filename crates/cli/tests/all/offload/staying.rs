//! Files that a release can't remove, or must not: each is named.

use std::{fs, path::Path};

use posthaste_testbed::odd::{Deed, Files, Habits};
use serde_json::Value;

use super::{Centre, state};
use crate::support::processes::{make_tree, text};

const EACCES: i32 = 13;
const EROFS: i32 = 30;

/// Offloads a directory over all depots of a centre, with more options.
fn offload(centre: &Centre, from: &Path, more: &[&str]) -> std::process::Output {
    let via = centre.relays.iter().map(|relay| relay.name.clone());
    let via = via.collect::<Vec<_>>().join(",");
    let base = [
        "offload",
        from.to_str().unwrap(),
        "--to",
        "home",
        "--deadline=10m",
        "--via",
        &via,
    ];
    centre.service.run(&[&base[..], more].concat())
}

#[test]
fn a_file_that_is_open_for_writing_stays_and_is_named_and_the_rest_goes() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M")], 4, 2);
    let (one, two) = (
        centre.scratch().join("deep/open"),
        centre.scratch().join("open"),
    );
    for path in [&one, &two] {
        fs::write(path, "first").unwrap();
    }
    let writers = [&one, &two].map(|path| fs::File::options().append(true).open(path).unwrap());
    centre.offload(&["--code", "1+1", "--release", "when-safe"]);
    let is_told = |request: &Value| request["warnings"].to_string().contains("tried again");
    let request = centre.service.wait_until("r1", is_told);
    assert_eq!(state(&request), "safe", "{request}");
    let shown = |command| text(&centre.service.run(&[command, "r1"]).stdout);
    for said in [shown("status"), shown("explain")] {
        for words in [
            "another process has it open for writing",
            "/deep/open",
            "/open",
        ] {
            assert!(said.contains(words), "{words} not in {said}");
        }
    }
    assert!(one.exists() && two.exists());
    assert!(
        !centre.scratch().join("large.bin").exists(),
        "the rest went"
    );
    drop(writers);
}

#[test]
fn what_can_never_be_removed_stays_at_once_and_is_named() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M")], 4, 2);
    for errno in [EACCES, EROFS] {
        let files = Files::mount(Habits::refusing(move |call| {
            (call.deed == Deed::Remove && call.has("deep")).then_some(errno)
        }));
        let run = files.path().join("run");
        make_tree(&run, 4, 3);
        let done = offload(&centre, &run, &["--release=when-safe", "--wait"]);
        let said = text(&done.stderr) + &text(&done.stdout);
        assert_eq!(done.status.code(), Some(6), "{said}");
        // The event, too.
        let event = said
            .lines()
            .find(|line| line.contains("scratch not released"));
        let event = event.unwrap_or_else(|| panic!("{said}"));
        assert!(event.contains("/run/deep/"), "{said}");
        assert!(event.contains("more stay: "), "{said}");
        assert!(!run.join("large.bin").exists(), "the rest went: {said}");
    }
}

#[test]
fn a_directory_that_may_not_be_listed_is_left_out_and_named_and_the_rest_goes() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M")], 4, 2);
    let files = Files::mount(Habits::refusing(|call| {
        (call.deed == Deed::List && call.has("closed")).then_some(EACCES)
    }));
    let run = files.path().join("run");
    make_tree(&run, 4, 3);
    fs::create_dir(run.join("closed")).unwrap();
    fs::write(run.join("closed/secret"), "x").unwrap();
    let to = centre.folder.path().join("straight");
    for more in [&["--code=1+1"][..], &["--release=when-safe"]] {
        let done = offload(&centre, &run, &[more, &["--wait"]].concat());
        let said = text(&done.stderr) + &text(&done.stdout);
        assert_eq!(done.status.code(), Some(6), "{said}");
        assert!(said.contains("/run/closed: it may not be listed"), "{said}");
        if more.len() == 1 && more[0] == "--code=1+1" {
            let straight = centre.service.run(&[
                "offload",
                run.to_str().unwrap(),
                "--to",
                to.to_str().unwrap(),
                "--deadline=10m",
                "--wait",
            ]);
            let said = text(&straight.stderr) + &text(&straight.stdout);
            assert_eq!(straight.status.code(), Some(6), "{said}");
            assert!(said.contains("/run/closed"), "{said}");
            assert!(to.join("deep").exists() && !to.join("closed").exists());
        }
    }
    assert!(run.join("closed").exists() && !run.join("deep").exists());
}

#[test]
fn what_holds_nothing_but_a_pipe_names_it() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M")], 1, 2);
    let run = centre.folder.path().join("run");
    fs::create_dir(&run).unwrap();
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    let pipe = run.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    for more in [&["--wait"][..], &["--wait", "--release=when-safe"]] {
        let done = offload(&centre, &run, more);
        let said = text(&done.stderr) + &text(&done.stdout);
        assert_eq!(done.status.code(), Some(6), "{said}");
        let line = format!("{}: it is a device, a pipe or a socket", pipe.display());
        assert!(said.contains(&line), "{said}");
    }
    assert!(pipe.exists(), "it stays");
}
