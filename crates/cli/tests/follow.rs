//! Real relays send on what they still receive, while they and the service are killed.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[path = "support/processes.rs"]
mod processes;

use std::time::Duration;

use processes::{Relay, Service, make_tree, picture, text};
use serde_json::Value;

/// Requests that may be asked for until three went on as they came.
const REQUESTS_MAX: usize = 5;

fn stored(request: &Value, depot: &str) -> u64 {
    let shares = request["shares"].as_array().unwrap();
    let share = shares.iter().find(|share| share["depot"] == depot);
    share.unwrap()["stored"].as_u64().unwrap()
}

/// Bytes of bodies that a depot took, as it says itself.
fn received(relay: &Relay) -> u64 {
    processes::received(std::slice::from_ref(relay))
}

/// Whether all of it lies at both.
fn is_on_both(request: &Value) -> bool {
    let chunks = request["chunks"].as_u64().unwrap();
    request["state"] == "safe" && [stored(request, "near"), stored(request, "far")] == [chunks; 2]
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
    let mut ids = Vec::new();
    // Asks for one, and says which, once it goes on while it still arrives. The mind may find that it is better fed otherwise.
    let mut goes_on = |far: &Relay, service: &Service| -> String {
        while ids.len() < REQUESTS_MAX {
            let had = received(far);
            let asked = service.json(&offload);
            let id = asked["id"].as_str().unwrap().to_owned();
            ids.push(id.clone());
            wait_for_more(far, had + (64 << 10));
            let request = service.status(&id);
            if stored(&request, "near") == 0 {
                return id;
            }
            let why = text(&service.run(&["explain", &id]).stdout);
            println!("{id} did not go on as it came: {request:#}\n{why}");
            service.wait_until(&id, is_on_both);
        }
        panic!("too few went on as they came");
    };
    let first = goes_on(&far, &service);
    // The one that sends on is killed in the middle of it: neither counts anything.
    near.kill();
    let status = service.status(&first);
    assert_eq!([stored(&status, "near"), stored(&status, "far")], [0, 0]);
    near.restart();
    service.wait_until(&first, is_on_both);
    let explained = text(&service.run(&["explain", &first]).stdout);
    let why = "goes on while it still arrives";
    assert!(explained.contains(why), "{explained}");

    // The one that gets it.
    let second = goes_on(&far, &service);
    far.kill();
    service.wait_until(&second, |request| stored(request, "near") > 0);
    assert_eq!(stored(&service.status(&second), "far"), 0);
    far.restart();
    service.wait_until(&second, is_on_both);

    // The service: nothing is asked twice wrongly.
    let third = goes_on(&far, &service);
    service.kill();
    service.restart();
    service.wait_until(&third, is_on_both);

    // What lies beyond suffices.
    near.kill();
    for id in &ids {
        let home = folder.path().join(id);
        service.json(&["pull", id, home.to_str().unwrap(), "--json"]);
        let after = picture(&home);
        let differs = |line: &&String| !after.contains(line) || !before.contains(line);
        let differing: Vec<_> = after.iter().chain(&before).filter(differs).collect();
        assert!(differing.is_empty(), "{id}: {differing:#?}");
    }
}
