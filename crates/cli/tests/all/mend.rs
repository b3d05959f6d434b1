//! Relays rebuild their fragments of a released dataset when relays are lost, while the service and
//! the rebuilding relays are killed.

use crate::support::processes::{Relay, Service, make_tree, picture, text};
use serde_json::Value;

fn is_whole(request: &Value) -> bool {
    request["state"] == "released" && request["chunks_safe"] == request["chunks"]
}

/// Returns the place of a running relay that holds some of it.
fn holder(request: &Value, relays: &[Relay], gone: &[usize]) -> usize {
    let shares = request["shares"].as_array().unwrap();
    let holds = |name: &str| {
        let share = shares.iter().find(|share| share["depot"] == *name);
        share.is_some_and(|share| share["stored"].as_u64().unwrap() > 0)
    };
    let mut places = (0..relays.len()).filter(|place| !gone.contains(place));
    places.find(|&place| holds(&relays[place].name)).unwrap()
}

#[test]
fn what_is_lost_after_the_source_was_released_is_made_again_by_the_other_relays() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["d1", "d2", "d3", "d4", "d5"];
    let mut relays: Vec<Relay> = names
        .iter()
        .map(|name| Relay::start(folder.path(), name, "1G", "20M"))
        .collect();
    let mut service = Service::start(folder.path());
    relays.iter().for_each(|relay| service.add(relay));
    service.wait_for_depots(|depot| depot["state"] == "up");
    let scratch = folder.path().join("scratch");
    make_tree(&scratch, 24, 5);
    let before = picture(&scratch);
    let (scratch, via) = (scratch.to_str().unwrap(), names.join(","));
    service.json(&[
        "offload",
        scratch,
        "--to",
        "home",
        "--deadline",
        "10m",
        "--json",
        "--via",
        &via,
        "--code",
        "2+1",
        "--release",
        "when-safe",
    ]);
    let mut request = service.wait_until("r1", is_whole);
    assert!(!std::path::Path::new(scratch).exists());
    let mut gone = Vec::new();
    // 2+1 survives one: three are lost, one after the other.
    for round in 0..3 {
        let lost = holder(&request, &relays, &gone);
        relays[lost].kill();
        gone.push(lost);
        let lacks = |request: &Value| request["chunks_safe"] != request["chunks"];
        // Much of it may be made again before anybody looks.
        let repaired = |request: &Value| request["chunks_repaired"].as_u64().unwrap();
        let before = repaired(&request);
        service.wait_until("r1", |request| {
            lacks(request) || (round < 2 && repaired(request) > before)
        });
        if round == 1 {
            service.kill();
            service.restart();
        }
        if round < 2 {
            request = service.wait_until("r1", |request| {
                is_whole(request) && repaired(request) > before
            });
        }
    }
    let told = text(&service.run(&["explain", "r1"]).stdout);
    assert!(told.contains("made again"), "{told}");
    let home = folder.path().join("arrived");
    service.json(&["pull", "r1", home.to_str().unwrap(), "--json"]);
    let after = picture(&home);
    let differs = |line: &&String| !after.contains(line) || !before.contains(line);
    let differing: Vec<_> = after.iter().chain(&before).filter(differs).collect();
    assert!(differing.is_empty(), "{differing:#?}");
}
