//! Real relays push to others while some of them, and the service, are killed.

use crate::support::processes::{Relay, Service, make_tree, picture, text};
use serde_json::Value;

/// Names of all depots, those near the centre first.
const NAMES: [&str; 4] = ["near-1", "near-2", "far-1", "far-2"];

fn stored(request: &Value, depot: &str) -> u64 {
    let shares = request["shares"].as_array().unwrap();
    let share = shares.iter().find(|share| share["depot"] == depot);
    share.unwrap()["stored"].as_u64().unwrap()
}

#[test]
fn what_lies_near_the_centre_goes_on_and_is_pulled_whole_whoever_is_killed_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let start = |name: &str| {
        let rate = if name.starts_with("near") {
            "60M"
        } else {
            "4M"
        };
        Relay::start(folder.path(), name, "1G", rate)
    };
    let mut relays = NAMES.map(start);
    let mut service = Service::start(folder.path());
    for relay in &relays {
        let level = if relay.name.starts_with("far") {
            "2"
        } else {
            "1"
        };
        service.lend(relay, &["--level", level]);
    }
    let listed = text(&service.run(&["depot", "list"]).stdout);
    assert_eq!(listed.matches("level 2").count(), 2, "{listed}");
    let scratch = folder.path().join("scratch");
    make_tree(&scratch, 24, 5);
    let before = picture(&scratch);
    let via = NAMES.join(",");
    let request = service.json(&[
        "offload",
        scratch.to_str().unwrap(),
        "--to",
        "home",
        "--deadline",
        "10m",
        "--json",
        "--via",
        &via,
        "--code",
        "1+1",
        "--wait",
    ]);
    let chunks = request["chunks"].as_u64().unwrap();
    assert_eq!(stored(&request, "near-1"), chunks, "{request}");

    // In the middle of it: one that sends and one that gets are killed, and then the service.
    service.wait_until("r1", |request| {
        stored(request, "far-1") >= 2 && stored(request, "far-2") >= 2
    });
    relays[0].kill();
    relays[2].kill();
    service.kill();
    service.restart();
    relays[2].restart();
    service.wait_until("r1", |request| {
        ["far-1", "far-2"].map(|name| stored(request, name)) == [chunks; 2]
            && request["state"] == "safe"
    });
    let explained = text(&service.run(&["explain", "r1"]).stdout);
    assert!(
        explained.contains("level 2 is nearer to the destination"),
        "{explained}"
    );

    // What is near the destination suffices.
    relays[1].kill();
    let home = folder.path().join("arrived");
    service.json(&["pull", "r1", home.to_str().unwrap(), "--json"]);
    let after = picture(&home);
    let differs = |line: &&String| !after.contains(line) || !before.contains(line);
    let differing: Vec<_> = after.iter().chain(&before).filter(differs).collect();
    assert!(differing.is_empty(), "{differing:#?}");
}
