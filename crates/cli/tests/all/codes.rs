//! Failures of commands: exit codes, codes in JSON, one line of one form, and nothing that a
//! terminal would obey.

use std::{fs, process::Output};

use crate::support::processes::{Relay, Service, binary, failure, text};
use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    binary()
        .env("HOME", home.path())
        .args(arguments)
        .output()
        .unwrap()
}

/// Returns the last line of a program's output.
fn last(output: &Output) -> Value {
    let said = text(&output.stdout);
    serde_json::from_str(said.lines().last().unwrap_or_default()).unwrap_or_default()
}

#[test]
fn what_the_parser_refuses_is_one_line_of_the_form_of_all_others() {
    for (arguments, what, tip) in [
        (
            &["cp", "--nonsense", "a", "b"][..],
            "unexpected argument '--nonsense' found",
            "cp --help",
        ),
        (
            &["cp"],
            "required arguments were not provided: <SRC>...",
            "cp --help",
        ),
        (&["ofload"], "unrecognized subcommand 'ofload'", "'offload'"),
        (
            &["cp", "--max-duration", "x", "a", "b"],
            "invalid value 'x' for",
            "cp --help",
        ),
        (
            &["depot", "add", "a"],
            "required arguments were not provided",
            "depot add --help",
        ),
        (
            &["cp", "--links", "kep", "a", "b"],
            "[possible values: keep, follow, skip]",
            "'keep'",
        ),
        (
            &["\u{1b}[31m"],
            "unrecognized subcommand",
            "posthaste --help",
        ),
    ] {
        let (code, said) = failure(&run(arguments));
        assert_eq!(code, 2, "{arguments:?}: {said}");
        assert!(
            said.starts_with("posthaste: can't understand `posthaste"),
            "{said}"
        );
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        assert!(said.contains(what) && said.contains(tip), "{said}");
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
    assert_eq!(run(&["cp", "--help"]).status.code(), Some(0));
}

#[test]
fn each_error_in_json_has_its_code() {
    for (arguments, exit, code) in [
        (&["cp", "--json"][..], 2, "invalid"),
        (&["cp", "--json", "/none", "x"], 4, "not-found"),
        (&["ls", "--json", "/none"], 3, "not-found"),
        (
            &["status", "--json", "--service", "http://127.0.0.1:1"],
            7,
            "unauthenticated",
        ),
        (&["explain", "last", "--json"], 4, "not-found"),
    ] {
        let output = run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {said}");
        assert_eq!(last(&output)["code"], code, "{arguments:?}: {said}");
    }
}

#[test]
fn a_file_that_is_not_there_ends_each_command_alike() {
    for arguments in [
        &["check-config", "/none"][..],
        &["serve", "--config", "/none"],
        &["simulate", "/none.toml"],
        &["migrate", "--from", "/none", "--to", "postgres:///none"],
        &["check", "/none"],
        &["purge-report", "/none", "--policy", "/none"],
    ] {
        let (code, said) = failure(&run(arguments));
        assert_eq!(code, 4, "{arguments:?}: {said}");
        assert!(said.contains("/none"), "{said}");
    }
    let (code, said) = failure(&run(&["simulate", "/proc/self/status"]));
    assert_eq!(code, 2, "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
}

#[test]
fn a_limit_that_ended_a_copy_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    fs::create_dir(&from).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(from.join(name), [7; 4096]).unwrap();
    }
    let (from, to) = (from.to_str().unwrap(), folder.path().join("to"));
    let to = to.to_str().unwrap();
    let (code, said) = failure(&run(&[
        "cp",
        "-q",
        "--transfers",
        "1",
        from,
        to,
        "--max-transfer",
        "4K",
    ]));
    assert_eq!(code, 8, "{said}");
    assert!(said.contains("--max-transfer 4.0 KiB ended it"), "{said}");
    let slow = [
        "cp",
        from,
        to,
        "--ignore-times",
        "--bwlimit",
        "1",
        "--max-duration",
        "1s",
        "-q",
    ];
    let (code, said) = failure(&run(&slow));
    assert_eq!(code, 10, "{said}");
    assert!(said.contains("--max-duration 1s ended it"), "{said}");
}

#[test]
fn what_failed_at_the_service_says_how() {
    let folder = tempfile::tempdir().unwrap();
    let relay = Relay::start(folder.path(), "ash", "1G", "60M");
    let service = Service::start(folder.path());
    service.add(&relay);
    let run = folder.path().join("run");
    fs::create_dir(&run).unwrap();
    fs::write(run.join("f"), "f").unwrap();
    let to = folder.path().join("to").to_str().unwrap().to_owned();
    let odd = folder.path().join("odd").to_str().unwrap().to_owned();
    fs::write(&odd, [0xff, b'\n']).unwrap();
    let run = run.to_str().unwrap();
    let stage_in = ["stage-in", "--deadline", "1h", "--json"];
    let offload = ["offload", run, "--via", "ash", "--deadline", "1h", "--json"];
    for (command, more, exit, code) in [
        (&stage_in[..], &["/none", &to][..], 4, "not-found"),
        (&stage_in, &["http://127.0.0.1:1/x", &to], 5, "unreachable"),
        (&stage_in, &[run, "/proc/none/x"], 4, "not-found"),
        (
            &offload,
            &["--to", "home", "--files-from", "/"],
            2,
            "invalid",
        ),
        (
            &offload,
            &["--to", "home", "--files-from", &odd],
            4,
            "not-found",
        ),
        (&offload, &["--to", "h\u{1b}[31mome"], 2, "invalid"),
        (&["status", "--json"], &["r99"], 4, "not-found"),
    ] {
        let output = service.run(&[command, more].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(exit), "{more:?}: {said}");
        let told = last(&output);
        let field = if told["state"] == "failed" {
            "error_code"
        } else {
            "code"
        };
        assert_eq!(told[field], code, "{more:?}: {said}: {told}");
        assert!(!said.contains("can't reach the service"), "{said}");
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
    // What a stage-in brought is where it was to be, and nowhere else.
    let there = folder.path().join("there");
    let there = there.to_str().unwrap();
    let brought = service.json(&[&stage_in[..], &[run, there, "--wait"]].concat());
    let id = brought["id"].as_str().unwrap();
    let back = folder.path().join("back");
    let back = back.to_str().unwrap();
    for command in [&["pull", id, back][..], &["forget", id]] {
        let output = service.run(command);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        assert!(
            said.contains(&format!("its files go to {there} themselves")),
            "{said}"
        );
    }
}
