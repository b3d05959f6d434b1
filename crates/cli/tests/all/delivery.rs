//! Real relays gather coded fragments of others at two destinations, while some of them, and the
//! service, are killed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::support::processes::{Relay, Service, failure, files, make_tree, picture, text};
use serde_json::Value;

/// Names of all relays, the destinations last.
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

/// Starts depots and a destination, and a service that knows them, and makes something to send.
fn stage(folder: &Path, rate: &str) -> (Vec<Relay>, Service, PathBuf) {
    let start = |name: &str| {
        let rate = if name == "home" { rate } else { "60M" };
        Relay::start(folder, name, "1G", rate)
    };
    let relays: Vec<Relay> = ["d1", "d2", "d3", "home"].map(start).into();
    let service = Service::start(folder);
    relays.iter().for_each(|relay| service.add(relay));
    service.wait_for_depots(|depot| depot["state"] == "up");
    let scratch = folder.join("scratch");
    make_tree(&scratch, 16, 7);
    (relays, service, scratch)
}

const WAYS: [&str; 6] = ["--to", "home", "--via", "d1,d2,d3", "--code", "2+1"];

#[test]
fn what_is_wanted_at_its_destination_by_a_moment_is_there_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (_relays, service, scratch) = stage(folder.path(), "60M");
    let scratch = scratch.to_str().unwrap();
    let submit = [&["offload", scratch, "--deliver-by", "5m"][..], &WAYS].concat();
    let taken = text(&service.run(&submit).stdout);
    assert!(
        taken.contains("arrives") && taken.contains("wanted by"),
        "{taken}"
    );
    let request = service.wait_until("r1", |request| request["state"] == "delivered");
    let delivery = &request["delivery"];
    assert!(delivery["deliver_by"].is_string() && delivery["delivered"].is_string());
    assert_eq!(
        (&delivery["missed"], &delivery["at_risk"]),
        (&false.into(), &false.into())
    );
    assert!(delivery["slack_s"].as_f64().unwrap() > 0.0, "{delivery}");
    // Where nobody says when it must be safe, being delivered says it.
    assert_eq!(
        request["deadline"].as_str(),
        delivery["deliver_by"].as_str()
    );
    let explained = text(&service.run(&["explain", "r1"]).stdout);
    assert!(
        explained.contains("in time: it was wanted by"),
        "{explained}"
    );
    assert!(text(&service.run(&["status", "r1"]).stdout).contains("in time"));
}

#[test]
fn what_can_not_be_there_in_time_is_refused_with_the_earliest_moment_that_can() {
    let folder = tempfile::tempdir().unwrap();
    let (mut relays, service, scratch) = stage(folder.path(), "60M");
    let scratch = scratch.to_str().unwrap();
    relays[3].kill();
    service.wait_for_depots(|depot| (depot["state"] == "down") == (depot["name"] == "home"));
    let wish = ["--deadline", "5m", "--deliver-by", "10s"];
    let plan = [&["plan", scratch][..], &wish, &WAYS].concat();
    let refused = service.run(&plan);
    let (code, said) = (refused.status.code().unwrap(), text(&refused.stderr));
    assert_eq!(code, 11, "{said}");
    assert!(
        said.contains("it can't be at home by") && said.contains("it is away"),
        "{said}"
    );
    let offered = text(&refused.stdout);
    assert!(
        offered.contains("--deliver-by") && offered.contains("start home again"),
        "{offered}"
    );

    // What makes no sense is refused in one line.
    for (wish, why) in [
        (
            ["--to", "elsewhere", "--deliver-by", "5m"],
            "which runs no relay",
        ),
        (
            ["--to", "home", "--deliver-by", "2020-01-01T00:00:00Z"],
            "it has passed",
        ),
    ] {
        let rest = ["--via", "d1,d2,d3", "--code", "2+1"];
        let submit = [&["offload", scratch][..], &wish, &rest].concat();
        let (_, said) = failure(&service.run(&submit));
        assert!(said.contains(why), "{said}");
    }

    // When it must be there may be moved while it runs.
    let submit = [
        &["offload", scratch, "--deadline", "5m", "--json"][..],
        &WAYS,
    ]
    .concat();
    let id = service.json(&submit)["id"].as_str().unwrap().to_owned();
    let moved = service.run(&["modify", &id, "--deliver-by", "15s"]);
    assert!(moved.status.success(), "{}", text(&moved.stderr));
    let late = service.wait_until(&id, |request| request["delivery"]["missed"] == true);
    assert_eq!(late["missed"], false);
    relays[3].restart();
    service.wait_until(&id, |request| request["state"] == "delivered");
    let explained = text(&service.run(&["explain", &id]).stdout);
    for told in [
        "delivery was said to be at risk",
        "it is away",
        "late: it was wanted by",
    ] {
        assert!(explained.contains(told), "{told}: {explained}");
    }
}

#[test]
fn a_delivery_is_missed_while_its_destination_is_off_and_what_was_to_be_safe_is() {
    let folder = tempfile::tempdir().unwrap();
    let (mut relays, service, scratch) = stage(folder.path(), "1M");
    let scratch = scratch.to_str().unwrap();
    let wish = [
        "--deadline",
        "5m",
        "--deliver-by",
        "25s",
        "--best-effort",
        "--json",
    ];
    let submit = [&["offload", scratch][..], &wish, &WAYS].concat();
    let id = service.json(&submit)["id"].as_str().unwrap().to_owned();
    relays[3].kill();
    let late = service.wait_until(&id, |request| request["delivery"]["missed"] == true);
    let safe = service.wait_until(&id, |request| request["state"] == "safe");
    assert_eq!(
        (&late["missed"], &safe["missed"]),
        (&false.into(), &false.into())
    );
    let waited = service.run(&["watch", &id]);
    assert_eq!(waited.status.code(), Some(10));
    let explained = text(&service.run(&["explain", &id]).stdout);
    let told = |words: &str| explained.find(words);
    let (at_risk, missed) = (
        told("delivery was said to be at risk"),
        told("not delivered when it was wanted"),
    );
    assert!(
        at_risk.is_some() && missed.is_some() && at_risk < missed,
        "{explained}"
    );
}

/// Changes one byte of each file, and puts its time back.
fn spoil(folder: &Path) {
    for (path, mut bytes) in files(folder) {
        let before = fs::metadata(&path).unwrap();
        let place = bytes.len() / 2;
        bytes[place] ^= 1;
        fs::write(&path, bytes).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(before.modified().unwrap()).unwrap();
    }
}

#[test]
fn a_depot_keeps_what_its_destination_had_and_spoiled() {
    let folder = tempfile::tempdir().unwrap();
    let mut relays =
        ["d1", "d2", "home"].map(|name| Relay::start(folder.path(), name, "1G", "60M"));
    let service = Service::start(folder.path());
    relays.iter().for_each(|relay| service.add(relay));
    relays[2].kill();
    service.wait_for_depots(|depot| (depot["state"] == "down") == (depot["name"] == "home"));
    let scratch = folder.path().join("scratch");
    make_tree(&scratch, 6, 5);
    let before = picture(&scratch);
    let ways = ["--to", "home", "--via", "d1,d2", "--code", "1+1"];
    let offload = [
        "offload",
        scratch.to_str().unwrap(),
        "--release",
        "when-safe",
    ];
    service.json(&[&offload[..], &ways, &["--deadline", "10m", "--json"]].concat());
    service.wait_until("r1", |request| request["state"] == "released");
    // One of them is away while the destination gets all of it.
    relays[0].kill();
    relays[2].restart();
    let is_delivered = |request: &Value| request["state"] == "delivered";
    service.wait_until("r1", |request| is_delivered(request));
    let held = |relay: &Relay| files(&relay.directory.join("datasets")).len();
    service.wait_until("r1", |_| held(&relays[1]) == 0);
    spoil(&relays[2].directory.join("datasets"));
    // It evicts its own once the destination has all of it again, made from them.
    relays[0].restart();
    service.wait_until("r1", |request| {
        is_delivered(request) && held(&relays[0]) == 0
    });
    let arrived = folder.path().join("arrived");
    service.json(&["pull", "r1", arrived.to_str().unwrap(), "--json"]);
    assert_eq!(picture(&arrived), before);
}

#[test]
fn who_pulls_elsewhere_does_not_keep_it_from_its_destination() {
    let folder = tempfile::tempdir().unwrap();
    let (mut relays, service, scratch) = stage(folder.path(), "60M");
    relays[3].kill();
    service.wait_for_depots(|depot| (depot["state"] == "down") == (depot["name"] == "home"));
    let scratch = scratch.to_str().unwrap();
    let submit = [
        &["offload", scratch, "--deadline", "10m", "--json"][..],
        &WAYS,
    ]
    .concat();
    service.json(&submit);
    service.wait_until("r1", |request| request["state"] == "safe");
    let elsewhere = folder.path().join("elsewhere");
    let pulled = service.run(&["pull", "r1", elsewhere.to_str().unwrap()]);
    let said = text(&pulled.stdout);
    assert!(said.contains("until all of it is at home too"), "{said}");
    assert_eq!(service.status("r1")["state"], "safe");
    relays[3].restart();
    let request = service.wait_until("r1", |request| request["state"] == "delivered");
    assert!(request["delivery"]["delivered"].is_string(), "{request}");
}
