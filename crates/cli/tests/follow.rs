//! Real relays send on what they still receive, while they and the service are killed.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[path = "support/processes.rs"]
mod processes;

use std::time::Duration;

use processes::{Relay, Service, make_tree, picture, text};
use serde_json::Value;

fn stored(request: &Value, depot: &str) -> u64 {
    let shares = request["shares"].as_array().unwrap();
    let share = shares.iter().find(|share| share["depot"] == depot);
    share.unwrap()["stored"].as_u64().unwrap()
}

/// Bytes of bodies that a depot took, as it says itself.
fn received(relay: &Relay) -> u64 {
    processes::received(std::slice::from_ref(relay))
}

/// Asks it alone, and often: a chunk is under way for some seconds only.
fn wait_for_more(relay: &Relay, bytes: u64) {
    let start = processes::now();
    while received(relay) <= bytes {
        let waited = start.elapsed();
        assert!(waited < processes::PATIENCE, "nothing goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn bytes_are_beyond_before_the_first_relay_has_all_and_everything_is_right_whoever_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    // A chunk takes some seconds to the first, and the second lags behind.
    let mut near = Relay::start(folder.path(), "near", "1G", "500k");
    let mut far = Relay::start(folder.path(), "far", "1G", "400k");
    let mut service = Service::start(folder.path());
    service.lend(&near, &["--level", "1"]);
    service.lend(&far, &["--level", "2"]);
    let scratch = folder.path().join("scratch");
    make_tree(&scratch, 4, 11);
    let before = picture(&scratch);
    let offload = [
        "offload",
        scratch.to_str().unwrap(),
        "--to",
        "home",
        "--deadline",
        "10m",
        "--json",
        "--via",
        "near,far",
        "--code",
        "1+0",
    ];
    let goes_on = |id: &str, before: u64, far: &Relay, service: &Service| {
        wait_for_more(far, before + (64 << 10));
        let request = service.status(id);
        let why = || text(&service.run(&["explain", id]).stdout);
        assert_eq!(stored(&request, "near"), 0, "{id}: {request:#}\n{}", why());
    };
    service.json(&offload);
    goes_on("r1", 0, &far, &service);
    // The one that sends on is killed in the middle of it: neither counts anything.
    near.kill();
    let status = service.status("r1");
    assert_eq!([stored(&status, "near"), stored(&status, "far")], [0, 0]);
    near.restart();
    let chunks = status["chunks"].as_u64().unwrap();
    let all = |request: &Value| {
        request["state"] == "safe"
            && [stored(request, "near"), stored(request, "far")] == [chunks; 2]
    };
    service.wait_until("r1", all);
    let explained = text(&service.run(&["explain", "r1"]).stdout);
    let why = "goes on while it still arrives";
    assert!(explained.contains(why), "{explained}");

    // The one that gets it.
    let had = received(&far);
    service.json(&offload);
    goes_on("r2", had, &far, &service);
    far.kill();
    service.wait_until("r2", |request| stored(request, "near") > 0);
    assert_eq!(stored(&service.status("r2"), "far"), 0);
    far.restart();
    service.wait_until("r2", all);

    // The service: nothing is asked twice wrongly.
    let had = received(&far);
    service.json(&offload);
    goes_on("r3", had, &far, &service);
    service.kill();
    service.restart();
    service.wait_until("r3", all);

    // What lies beyond suffices.
    near.kill();
    for id in ["r1", "r2", "r3"] {
        let home = folder.path().join(id);
        service.json(&["pull", id, home.to_str().unwrap(), "--json"]);
        let after = picture(&home);
        let differs = |line: &&String| !after.contains(line) || !before.contains(line);
        let differing: Vec<_> = after.iter().chain(&before).filter(differs).collect();
        assert!(differing.is_empty(), "{id}: {differing:#?}");
    }
}
