//! Real relays gather at two destinations what lies coded on others, while some of them, and the service, are
//! killed.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[path = "support/processes.rs"]
mod processes;

use processes::{Relay, Service, make_tree, picture, text};
use serde_json::Value;

/// The names of all relays, the destinations last.
const NAMES: [&str; 5] = ["d1", "d2", "d3", "home", "lab"];

fn stored(request: &Value, depot: &str) -> u64 {
    let shares = request["shares"].as_array().unwrap();
    let share = shares.iter().find(|share| share["depot"] == depot);
    share.unwrap()["stored"].as_u64().unwrap()
}

#[test]
fn what_lies_coded_is_whole_at_both_destinations_whoever_is_killed_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let start = |name: &str| {
        let rate = if name.starts_with('d') { "60M" } else { "4M" };
        Relay::start(folder.path(), name, "1G", rate)
    };
    let mut relays = NAMES.map(start);
    let mut service = Service::start(folder.path());
    relays.iter().for_each(|relay| service.add(relay));
    // Both destinations are away when scratch has to be free.
    relays[3].kill();
    relays[4].kill();
    service.wait_for_depots(|depot| {
        let is_end = depot["name"] == "home" || depot["name"] == "lab";
        (depot["state"] == "down") == is_end
    });
    let scratch = folder.path().join("scratch");
    make_tree(&scratch, 24, 5);
    let before = picture(&scratch);
    let request = service.json(&[
        "offload",
        scratch.to_str().unwrap(),
        "--to",
        "home,lab",
        "--deadline",
        "10m",
        "--json",
        "--via",
        "d1,d2,d3",
        "--code",
        "2+1",
        "--release",
        "when-safe",
    ]);
    let chunks = request["chunks"].as_u64().unwrap();
    assert_eq!(request["to"], "home,lab");
    service.wait_until("r1", |request| request["state"] == "released");
    assert!(!scratch.exists(), "scratch is free");

    // In the middle of gathering one that sends, one that gets, and the service are killed.
    relays[3].restart();
    relays[4].restart();
    service.wait_until("r1", |request| {
        stored(request, "home") >= 2 && stored(request, "lab") >= 2
    });
    relays[0].kill();
    relays[3].kill();
    service.kill();
    service.restart();
    relays[3].restart();
    service.wait_until("r1", |request| request["state"] == "delivered");
    let delivered = service.status("r1");
    let whole = ["home", "lab"].map(|name| stored(&delivered, name));
    assert_eq!(whole, [chunks; 2], "{delivered}");
    let explained = text(&service.run(&["explain", "r1"]).stdout);
    assert!(
        explained.contains("whole at all 2 destinations"),
        "{explained}"
    );

    // Each destination alone has every byte.
    relays[1].kill();
    relays[2].kill();
    for (other, name) in [(4, "home"), (3, "lab")] {
        relays[other].kill();
        let arrived = folder.path().join(name).with_extension("arrived");
        service.json(&["pull", "r1", arrived.to_str().unwrap(), "--json"]);
        let after = picture(&arrived);
        let differs = |line: &&String| !after.contains(line) || !before.contains(line);
        let differing: Vec<_> = after.iter().chain(&before).filter(differs).collect();
        assert!(differing.is_empty(), "{name}: {differing:#?}");
        relays[other].restart();
    }
}
