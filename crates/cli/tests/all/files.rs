//! Progress of each file of a request, with a real service and a real relay.

use crate::support::processes;

use std::{collections::BTreeMap, fs, path::Path, thread::sleep, time::Duration};

use crate::support::processes::{PATIENCE, Relay, Service, failure, now, text};
use serde_json::Value;

const MIB: usize = 1 << 20;
/// Destination of all files.
const TO: [&str; 8] = [
    "--to",
    "home",
    "--via",
    "ash",
    "--code",
    "1+0",
    "--deadline",
    "1h",
];

fn make_source(root: &Path) {
    fs::create_dir_all(root.join("sub")).unwrap();
    fs::write(root.join("a-large"), vec![7; 12 * MIB]).unwrap();
    fs::write(root.join("sub/empty"), b"").unwrap();
    fs::write(root.join("sub/last"), vec![9; MIB]).unwrap();
    fs::write(root.join("sub/odd\nname"), b"x").unwrap();
}

/// Returns state and finished bytes of each file, by name, from the command's JSON.
fn files(service: &Service, id: &str) -> BTreeMap<String, (String, u64, u64)> {
    let output = service.run(&["status", id, "--files", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let files = said.lines().map(|line| {
        let file: Value = serde_json::from_str(line).unwrap();
        let word = |key: &str| file[key].as_str().unwrap().to_owned();
        let number = |key: &str| file[key].as_u64().unwrap();
        (
            word("path"),
            (word("state"), number("done"), number("size")),
        )
    });
    files.collect()
}

#[test]
fn each_file_is_as_far_as_its_chunks_are_safe() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("run");
    make_source(&source);
    let relay = Relay::start(folder.path(), "ash", "1G", "60M");
    let mut service = Service::start(folder.path());
    service.add(&relay);
    let run = source.to_str().unwrap();
    // So slow that it is on its way when somebody comes to see it.
    let offload = ["offload", run, "--bwlimit", "300k", "--json"];
    let request = service.json(&[&offload[..], &TO].concat());
    let id = request["id"].as_str().unwrap();

    // On its way some of it is safe, and never more than the request says.
    let start = now();
    loop {
        let found = files(&service, id);
        let (state, done, size) = &found["a-large"];
        assert_eq!(*size, 12 * MIB as u64);
        if state == "moving" {
            assert!((1..*size).contains(done), "{found:?}");
            break;
        }
        assert_eq!(
            (state.as_str(), *done),
            ("waiting", 0),
            "it was not seen on its way"
        );
        assert!(start.elapsed() < PATIENCE, "{found:?}");
        sleep(Duration::from_millis(50));
    }
    let faster = service.run(&["modify", id, "--bwlimit", "off"]);
    assert!(faster.status.success(), "{}", text(&faster.stderr));
    service.wait_until(id, |request| request["state"] == "safe");
    let all_done = |service: &Service| {
        let found = files(service, id);
        assert_eq!(found.len(), 4);
        for (name, (state, done, size)) in &found {
            assert_eq!((state.as_str(), done), ("done", size), "{name}");
        }
    };
    all_done(&service);
    service.kill();
    service.restart();
    all_done(&service);
    let shown = text(&service.run(&["status", id, "--files"]).stdout);
    assert!(shown.contains("done    100 %"), "{shown}");
    assert!(
        shown.contains("sub/odd\\nname"),
        "one line for each: {shown}"
    );

    // What depots forget is not safe any more, and is not said to be.
    service.run(&["cancel", id]);
    service.wait_until(id, |request| request["state"] == "cancelled");
    let found = files(&service, id);
    assert!(found.values().all(|(_, done, _)| *done == 0), "{found:?}");
}

#[test]
fn files_are_shown_to_who_may_have_them_and_where_they_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("run");
    make_source(&source);
    let relay = Relay::start(folder.path(), "ash", "1G", "60M");
    let service = Service::start(folder.path());
    service.add(&relay);
    let run = source.to_str().unwrap();
    let owned = service.json(&[&["offload", run, "--json", "--owner", "ada"][..], &TO].concat());
    let id = owned["id"].as_str().unwrap();
    service.wait_until(id, |request| request["state"] == "safe");
    let token = |name: &str, scope: &str| {
        let path = folder.path().join(name).display().to_string();
        let words = ["token", "add", name, "--scope", scope, "--output", &path];
        let below = folder.path().to_str().unwrap();
        let whose = ["--owner", name, "--below", below];
        let more: &[&str] = if scope == "submit" { &whose } else { &[] };
        let made = service.run(&[&words[..], more].concat());
        assert!(made.status.success(), "{}", text(&made.stderr));
        path
    };
    let as_somebody = |token: &str| {
        let mut command = processes::binary();
        command.args(["status", id, "--files", "--service", &service.url]);
        command.args(["--token-file", token]);
        command.output().unwrap()
    };
    assert!(as_somebody(&token("ada", "submit")).status.success());
    for (name, scope) in [("bob", "submit"), ("eve", "read")] {
        let (code, said) = failure(&as_somebody(&token(name, scope)));
        assert_eq!(code, 7, "{name}: {said}");
    }

    let refused = |id: &str, words: &str| {
        let (_, said) = failure(&service.run(&["status", id, "--files"]));
        assert!(said.contains(words), "{said}");
    };
    refused("r999", "can't find request r999");
    let archive = folder.path().join("archive").display().to_string();
    let straight = [
        "offload",
        run,
        "--to",
        &archive,
        "--deadline",
        "1h",
        "--json",
    ];
    let straight = service.json(&straight);
    refused(straight["id"].as_str().unwrap(), "posthaste ls");
    let into = folder.path().join("in").display().to_string();
    let stage_in = service.json(&["stage-in", run, &into, "--deadline", "1h", "--json"]);
    let stage_in = stage_in["id"].as_str().unwrap();
    service.wait_until(stage_in, |request| request["state"] == "arrived");
    refused(stage_in, "not kept once it is over");
}
