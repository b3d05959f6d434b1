//! Requests that wait because their user paused them, with a real service and real relays.

use std::{net::TcpListener, process::Stdio, time::Duration};

use crate::support::processes::{PATIENCE, Relay, Service, binary, failure, make_tree, now, text};
use serde_json::Value;

/// Time within which an unpaused request would move.
const A_WHILE: Duration = Duration::from_secs(3);

fn stored(request: &Value) -> u64 {
    number(request, "stored")
}

/// Sums a number over all depots.
fn number(request: &Value, key: &str) -> u64 {
    let shares = request["shares"].as_array().unwrap().iter();
    shares.map(|share| share[key].as_u64().unwrap()).sum()
}

#[test]
fn what_is_paused_waits_also_over_a_kill_and_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let start = |name: &&str| Relay::start(folder.path(), name, "1G", "60M");
    let relays: Vec<Relay> = ["ash", "birch", "cedar"].iter().map(start).collect();
    let mut service = Service::start(folder.path());
    relays.iter().for_each(|relay| service.add(relay));
    let scratch = folder.path().join("scratch");
    make_tree(&scratch, 24, 41);
    let scratch = scratch.to_str().unwrap();
    let purge = (jiff::Timestamp::now() + jiff::SignedDuration::from_mins(30)).to_string();
    let wanted = [
        "offload",
        scratch,
        "--to",
        "home",
        "--deadline",
        "10m",
        "--via",
        "ash,birch,cedar",
        "--code",
        "2+1",
        "--bwlimit",
        "2M",
        "--purge-at",
        &purge,
        "--json",
    ];
    let request = service.json(&wanted);
    let id = request["id"].as_str().unwrap();
    service.wait_until(id, |request| stored(request) > 0);

    let output = service.run(&["pause", id, "r999"]);
    let (code, said) = failure(&output);
    assert!(code != 0 && said.contains("r999"), "{said}");
    let said = text(&output.stdout);
    assert!(
        said.contains("may wait") && said.contains("purged"),
        "{said}"
    );
    let paused = service.json(&["pause", id, "--json"]);
    assert_eq!(paused[0]["state"], "paused", "{paused}");
    let by = paused[0]["paused"]["by"].as_str().unwrap();
    let since = paused[0]["paused"]["since"].clone();
    assert_eq!(by, "an operator");
    // What is under way ends.
    let rests = |request: &Value| number(request, "in_flight") == 0;
    let before = stored(&service.wait_until(id, rests));

    service.kill();
    service.restart();
    service.wait_for_depots(|depot| depot["state"] == "up");
    // Depots tell what they hold: of that too which was given up when it was paused.
    let held = stored(&service.status(id));
    assert!(held >= before, "{held} of {before}");
    std::thread::sleep(A_WHILE);
    let after = service.status(id);
    assert_eq!((stored(&after), &after["state"]), (held, &"paused".into()));
    assert_eq!(after["paused"]["since"], since);
    let listed = service.json(&["list", "--state", "paused", "--json"]);
    assert_eq!(listed.as_array().unwrap().len(), 1);
    let shown = text(&service.run(&["status", id]).stdout);
    assert!(shown.contains("paused by an operator since"), "{shown}");
    let story = text(&service.run(&["explain", id]).stdout);
    assert!(story.contains("paused by an operator"), "{story}");

    service.run(&["modify", id, "--bwlimit", "off"]);
    assert_eq!(stored(&service.status(id)), held);
    let resumed = service.run(&["resume", id]);
    let said = text(&resumed.stdout);
    assert!(said.contains("goes on"), "{said} {}", text(&resumed.stderr));
    let safe = service.wait_until(id, |request| request["state"] == "safe");
    assert!(safe["paused"].is_null(), "{safe}");
    service.run(&["cancel", id]);
    what_is_over_is_not_changed(&service, id);
}

fn what_is_over_is_not_changed(service: &Service, id: &str) {
    let (_, said) = failure(&service.run(&["pause", id]));
    assert!(said.contains("already cancelled"), "{said}");
    for change in [
        &["modify", id, "--bwlimit", "1M"][..],
        &["deadline", id, "1h"],
    ] {
        let (code, said) = failure(&service.run(change));
        let why = format!("can't change request {id}: it is already cancelled");
        assert!(code == 1 && said.contains(&why), "{change:?}: {said}");
    }
}

#[test]
fn who_changes_what_is_still_looked_at_is_told_to_try_again() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path());
    // Who connects is never answered.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let source = format!("http://{}/file", silent.local_addr().unwrap());
    let mut command = binary();
    command.args(["stage-in", &source, "--deadline", "10m"]);
    command.arg(folder.path().join("here"));
    command.args(["--service", &service.url, "--token-file"]);
    command.arg(service.state.join("token"));
    let silence = || Stdio::null();
    let mut submitting = command.stdout(silence()).spawn().unwrap();
    let start = now();
    while !service.run(&["status", "r1"]).status.success() {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(100));
    }
    // To cancel it is possible: `scans` tries that.
    let words: [&[&str]; 3] = [
        &["pause", "r1"],
        &["resume", "r1"],
        &["modify", "r1", "--bwlimit", "1M"],
    ];
    for words in words {
        let (code, said) = failure(&service.run(words));
        let is_early = said.contains("still being") && said.contains("(try again)");
        assert!(code == 5 && is_early, "{words:?}: {said}");
    }
    submitting.kill().unwrap();
    submitting.wait().unwrap();

    // It broke off, and nothing comes of it any more.
    drop(silent);
    service.wait_until("r1", |request| request["state"] == "failed");
    for words in words.into_iter().chain([&["cancel", "r1"][..]]) {
        let (code, said) = failure(&service.run(words));
        let is_over = said.contains("could not be") && !said.contains("again");
        assert!(code == 1 && is_over, "{words:?}: {said}");
    }
}
