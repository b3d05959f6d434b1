//! Real relays measure the paths between each other, and depots are sorted by their distances.

use crate::support::processes;

use std::{path::Path, thread};

use crate::support::processes::{Relay, Service, failure, make_tree, text};
use serde_json::Value;

/// Returns the path between two depots, as the service reports it.
fn crossing(service: &Service, from: &str, to: &str) -> Option<Value> {
    let paths = service.json(&["paths", "--json"]);
    let paths = paths.as_array().unwrap().clone();
    let is_it = |path: &Value| path["from"] == from && path["to"] == to;
    paths.into_iter().find(is_it)
}

fn p50(path: &Value) -> u64 {
    path["rate_p50_bytes_per_s"].as_u64().unwrap()
}

/// Lets one depot measure its path to another. Returns the printed table.
fn probe(service: &Service, from: &str, to: &str) -> String {
    let probed = service.run(&["paths", "--probe", to, "--from", from]);
    assert!(probed.status.success(), "{}", text(&probed.stderr));
    text(&probed.stdout)
}

fn is_up(depot: &Value) -> bool {
    depot["state"] == "up"
}

/// Starts a service and three relays, the last of which is slow.
fn start(folder: &Path) -> (Service, [Relay; 3]) {
    let relays = [("ash", "64M"), ("birch", "64M"), ("cedar", "400k")];
    let relays = relays.map(|(name, rate)| Relay::start(folder, name, "1G", rate));
    let service = Service::start(folder);
    service.lend(&relays[0], &[]);
    service.lend(&relays[1], &["--landmark"]);
    service.lend(&relays[2], &["--level", "auto"]);
    (service, relays)
}

#[test]
fn relays_measure_each_other_and_are_ranked_by_what_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let (mut service, _relays) = start(folder.path());
    assert!(crossing(&service, "ash", "cedar").is_none());

    let table = probe(&service, "ash", "cedar");
    let shown = table.lines().find(|line| line.starts_with("ash "));
    assert!(shown.is_some_and(|line| line.contains("cedar")), "{table}");
    probe(&service, "ash", "birch");
    let slow = crossing(&service, "ash", "cedar").unwrap();
    let fast = crossing(&service, "ash", "birch").unwrap();
    assert_eq!(slow["known_by"], "probe");
    assert!(p50(&slow) < 800 << 10, "{slow}");
    assert!(p50(&fast) > 2 * p50(&slow), "{fast} and {slow}");
    assert!(slow["round_trip_ms"].as_f64().unwrap() > 0.0);

    // It is known after a kill too, and the centre's own distances.
    service.kill();
    service.restart();
    service.wait_for_depots(is_up);
    assert_eq!(
        p50(&crossing(&service, "ash", "cedar").unwrap()),
        p50(&slow)
    );
    let ranked = service.json(&["depot", "rank", "--to", "cedar", "--json"]);
    let names: Vec<&str> = ranked
        .as_array()
        .unwrap()
        .iter()
        .map(|depot| depot["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["ash", "birch"], "landmarks come last");
    assert!(ranked[0]["from_centre_ms"].as_f64().unwrap() > 0.0);
    assert!(ranked[0]["to_destination_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(ranked[0]["onward_p50_bytes_per_s"], p50(&slow));
    assert!(ranked[1]["to_destination_ms"].is_null(), "{ranked}");

    // What makes no sense is refused in one line.
    for (arguments, why) in [
        (["paths", "--probe", "ash", "--from", "ash"], "to itself"),
        (
            ["paths", "--probe", "ash", "--from", "elm"],
            "the path to elm",
        ),
        (
            ["depot", "rank", "--to", "elm", "--json"],
            "the path to elm",
        ),
    ] {
        let (_, message) = failure(&service.run(&arguments));
        assert!(message.contains(why), "{message}");
    }
}

/// Kills a relay once it sends to the last one; returns whether it had not measured that path by
/// then.
fn is_killed_while_it_measures(
    service: &Service,
    relays: &mut [Relay; 3],
    (place, from): (usize, &str),
) -> bool {
    let before = processes::received(&relays[2..]);
    thread::scope(|scope| {
        let probing = scope.spawn(|| probe(service, from, "cedar"));
        while processes::received(&relays[2..]) == before {
            if probing.is_finished() {
                break;
            }
            thread::yield_now();
        }
        relays[place].kill();
        probing.join().unwrap();
    });
    let told = crossing(service, from, "cedar").unwrap();
    assert!(!told["probed"].is_null(), "{told}");
    told["measured"].is_null()
}

#[test]
fn a_relay_that_is_killed_while_it_measures_hurts_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (service, mut relays) = start(folder.path());
    service.wait_for_depots(is_up);
    // Where the test had no processor for as long as it measures, it is killed too late: then once
    // more, on another path.
    let is_met = [(1, "birch"), (0, "ash")].into_iter().any(|(place, from)| {
        let is_met = is_killed_while_it_measures(&service, &mut relays, (place, from));
        relays[place].restart();
        service.wait_for_depots(is_up);
        is_met
    });
    assert!(is_met, "each had measured");

    // Data goes through them as before.
    let scratch = folder.path().join("scratch");
    make_tree(&scratch, 2, 5);
    let path = scratch.to_str().unwrap();
    service.json(&[
        "offload",
        path,
        "--to",
        "home",
        "--deadline",
        "10m",
        "--via",
        "ash,birch",
        "--code",
        "1+1",
        "--json",
    ]);
    service.wait_until("r1", |request| request["state"] == "safe");
}
