//! Two services share a relay: space reserved by one for a dataset is closed to the other, despite
//! kills, and all of it is returned. Real processes.

use std::{path::Path, time::Duration};

use crate::support::processes::{PATIENCE, Relay, Service, make_tree, now, said_by, text};
use serde_json::Value;

/// Submits a tree of about so many MiB, to be stored on the relay once.
fn offload(service: &Service, scratch: &Path, mebi: usize) -> Result<String, String> {
    make_tree(scratch, mebi, 7);
    let mut arguments = vec!["offload", scratch.to_str().unwrap(), "--to", "home"];
    arguments.extend(["--deadline", "20m", "--json", "--via", "ash"]);
    arguments.extend(["--code", "1+0"]);
    let said = service.run(&arguments);
    if !said.status.success() {
        return Err(text(&said.stderr) + &text(&said.stdout));
    }
    let request: Value = serde_json::from_slice(&said.stdout).unwrap();
    Ok(request["id"].as_str().unwrap().to_owned())
}

fn reserved(request: &Value) -> u64 {
    request["shares"][0]["reserved_bytes"].as_u64().unwrap()
}

#[test]
fn what_one_service_reserved_another_can_not_take() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut relay = Relay::start(folder, "ash", "400M", "3M");
    let service = |name: &str| {
        let own = folder.join(name);
        std::fs::create_dir(&own).unwrap();
        let service = Service::start(&own);
        service.add(&relay);
        service
    };
    let (mut first, second) = (service("first"), service("second"));
    let id = offload(&first, &folder.join("one"), 96).unwrap();
    let request = first.wait_until(&id, |request| reserved(request) > 0);
    let all = reserved(&request);
    assert!(
        all >= request["bytes"].as_u64().unwrap(),
        "{all} of {request}"
    );
    let said = said_by(&relay);
    assert!(said.reserves && said.reserved.get() > all / 2, "{said:?}");
    assert!(said.free <= said.capacity - said.used - said.reserved);

    // What is left would not do, though little is stored yet. Who has not heard of that yet hears
    // it when it asks.
    if let Ok(early) = offload(&second, &folder.join("two"), 330) {
        second.wait_until(&early, |request| request["at_risk"] == true);
        assert!(second.run(&["cancel", &early]).status.success());
    }
    // And what it had reserved itself is given back a moment after it gave up.
    let is_told = |depot: &Value| {
        let free = depot["free_bytes"].as_u64().unwrap();
        (200 << 20..330 << 20).contains(&free)
    };
    second.wait_for_depots(is_told);
    let refused = offload(&second, &folder.join("later"), 330).unwrap_err();
    assert!(refused.contains("are needed on depots"), "{refused}");
    let other = offload(&second, &folder.join("three"), 96).unwrap();
    second.wait_until(&other, |request| reserved(request) > 0);

    // Whoever is killed: what was reserved is reserved.
    first.kill();
    relay.kill();
    relay.restart();
    let kept = said_by(&relay);
    // The last chunk takes less than was reserved for it.
    let both = 2 * request["bytes"].as_u64().unwrap();
    assert!((kept.used + kept.reserved).get() >= both, "{kept:?}");
    first.restart();
    for (service, id) in [(&first, &id), (&second, &other)] {
        service.wait_until(id, |request| request["state"] == "safe");
    }
    let story = text(&first.run(&["explain", &id]).stdout);
    assert!(story.contains("space is reserved"), "{story}");
    let start = now();
    while said_by(&relay).reserved.get() > 0 {
        assert!(start.elapsed() < PATIENCE, "{:?}", said_by(&relay));
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(reserved(&first.status(&id)), 0);
}
