//! Real depots are drained and switched off without any loss.

use crate::support::processes;

use crate::support::processes::{Relay, Service, binary, make_tree, picture, text};
use serde_json::Value;

fn stored(request: &Value, depot: &str) -> u64 {
    let shares = request["shares"].as_array().unwrap();
    let share = shares.iter().find(|share| share["depot"] == depot);
    share.unwrap()["stored"].as_u64().unwrap()
}

#[test]
fn a_drained_depot_is_emptied_switched_off_and_nothing_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let start = |name: &str| Relay::start(folder.path(), name, "1G", "40M");
    let mut relays = ["a", "b", "c", "d"].map(start);
    let mut service = Service::start(folder.path());
    relays.iter().for_each(|relay| service.add(relay));
    let scratch = folder.path().join("scratch");
    make_tree(&scratch, 12, 7);
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
        "a,b,c,d",
        "--code",
        "2+1",
        "--wait",
    ];
    let request = service.json(&offload);
    let holders = ["a", "b", "c", "d"].map(|name| stored(&request, name));
    let fullest = (0..4).max_by_key(|&place| holders[place]).unwrap();
    let name = relays[fullest].name.clone();

    let said = service.run(&["depot", "drain", &name, "--move"]);
    assert!(said.status.success(), "{}", text(&said.stderr));
    // The service is killed as soon as it has said yes, and remembers.
    service.kill();
    service.restart();
    service.wait_for_depots(|depot| {
        depot["name"] != name.as_str() || depot["drain"]["is_empty"] == true
    });
    let listed = text(&service.run(&["depot", "list"]).stdout);
    assert!(listed.contains(", empty"), "{listed}");
    assert_eq!(service.status("r1")["state"], "safe");

    // A request that comes now gets nothing there.
    let request = service.json(&offload);
    assert_eq!(stored(&request, &name), 0, "{request}");
    let explained = text(&service.run(&["explain", "r2"]).stdout);
    assert!(
        explained.contains("it is to be switched off"),
        "{explained}"
    );

    relays[fullest].kill();
    let removed = service.run(&["depot", "remove", &name]);
    assert!(removed.status.success(), "{}", text(&removed.stderr));
    assert!(text(&removed.stdout).contains("is removed"));
    let home = folder.path().join("arrived");
    service.json(&["pull", "r1", home.to_str().unwrap(), "--json"]);
    let after = picture(&home);
    let differs = |line: &&String| !after.contains(line) || !before.contains(line);
    let differing: Vec<_> = after.iter().chain(&before).filter(differs).collect();
    assert!(differing.is_empty(), "{differing:#?}");
}

#[test]
fn a_relay_says_itself_that_it_ends_and_goes_on_saying_so_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut relay = Relay::start(folder.path(), "lent", "1G", "40M");
    let mut service = Service::start(folder.path());
    let dir = relay.directory.to_str().unwrap().to_owned();
    let drain = |more: &[&str]| {
        let output = binary()
            .args(["relay", "drain", "--dir", &dir])
            .args(more)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    drain(&["--move"]);
    service.add(&relay);
    service.wait_for_depots(|depot| depot["drain"]["says_itself"] == true);
    let said = text(&service.run(&["depot", "undrain", "lent"]).stdout);
    assert!(said.contains("says itself that it ends"), "{said}");
    relay.kill();
    relay.restart();
    service.wait_for_depots(|depot| depot["state"] == "up" && depot["drain"]["moves"] == true);
    drain(&["--off"]);
    service.wait_for_depots(|depot| depot["drain"].is_null());
    // What somebody is told is so already.
    for _ in 0..5 {
        let drained = service.run(&["depot", "drain", "lent"]);
        assert!(drained.status.success(), "{}", text(&drained.stderr));
        let said = text(&service.run(&["depot", "undrain", "lent"]).stdout);
        assert!(said.contains("is used again"), "{said}");
    }
    let drained = service.run(&["depot", "drain", "lent"]);
    service.kill();
    assert!(drained.status.success(), "{}", text(&drained.stderr));
    service.restart();
    let depots = service.json(&["depot", "list", "--json"]);
    assert!(!depots[0]["drain"].is_null(), "{depots}");
    let unknown = service.run(&["depot", "drain", "nobody"]);
    let (code, line) = processes::failure(&unknown);
    assert!(code != 0 && line.contains("depot nobody"), "{line}");
}
