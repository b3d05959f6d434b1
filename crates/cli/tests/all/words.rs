//! Words of `status`, `list` and answers about depots that are gone, unknown or all one store.

use crate::support::processes::{Relay, Service, failure, make_tree, text};
use posthaste_testbed::S3Server;

/// Starts relays of these names, registered with a service.
fn world(folder: &std::path::Path, names: &[&str]) -> (Vec<Relay>, Service) {
    let start = |name: &&str| Relay::start(folder, name, "1G", "60M");
    let relays: Vec<Relay> = names.iter().map(start).collect();
    let service = Service::start(folder);
    relays.iter().for_each(|relay| service.add(relay));
    service.wait_for_depots(|depot| depot["state"] == "up");
    (relays, service)
}

#[test]
fn what_is_lost_with_its_depots_is_out_of_reach_until_they_are_back() {
    let folder = tempfile::tempdir().unwrap();
    let (mut relays, service) = world(folder.path(), &["ash", "birch", "cedar"]);
    let scratch = folder.path().join("scratch");
    make_tree(&scratch, 6, 3);
    let scratch = scratch.to_str().unwrap();
    let submit = [
        "offload",
        scratch,
        "--to",
        "work",
        "--deadline",
        "10m",
        "--json",
    ];
    let ways = [
        "--via",
        "ash,birch,cedar",
        "--code",
        "2+1",
        "--release",
        "when-safe",
    ];
    service.json(&[&submit[..], &ways].concat());
    service.wait_until("r1", |request| request["state"] == "released");
    relays[0].kill();
    relays[1].kill();
    let lost = service.wait_until("r1", |request| {
        request["chunks_out_of_reach"] == request["chunks"]
    });
    assert_eq!(
        (lost["chunks_safe"].as_u64(), lost["at_risk"].as_bool()),
        (Some(0), Some(true))
    );
    assert!(
        lost["slack_s"].is_null() && lost["safe_after_s"].is_null(),
        "{lost}"
    );
    let warning = lost["warnings"][0].as_str().unwrap();
    assert!(warning.contains("unless ash, birch come back"), "{warning}");
    assert_eq!(lost["out_of_reach"], true, "{lost}");
    assert!(lost["kept_until"].is_string(), "{lost}");
    let watched = service.run(&["watch", "r1", "--json"]);
    assert_eq!(watched.status.code(), Some(6));
    let last = text(&watched.stderr);
    assert!(last.contains("r1: OUT OF REACH: "), "{last}");
    let said = |arguments: &[&str]| text(&service.run(arguments).stdout);
    for told in [
        said(&["status", "r1"]),
        said(&["status"]),
        said(&["list", "--state", "open"]),
    ] {
        assert!(
            told.contains("OUT OF REACH") && !told.contains("on time"),
            "{told}"
        );
    }
    assert_eq!(said(&["list", "--format", "{flag}"]).trim(), "out-of-reach");
    relays[0].restart();
    relays[1].restart();
    service.wait_until("r1", |request| {
        request["chunks_safe"] == request["chunks"] && request["at_risk"] == false
    });
    let told = said(&["status", "r1"]);
    assert!(
        told.contains("on time") && !told.contains("OUT OF REACH"),
        "{told}"
    );
    assert!(told.contains("depots keep it until "), "{told}");
    removal_is_refused_and_said(&service);
}

/// Checks what is said where depots are removed that released `r1` needs.
fn removal_is_refused_and_said(service: &Service) {
    let (code, refused) = failure(&service.run(&["depot", "remove", "ash"]));
    assert!(
        code == 1 && refused.contains("r1 would not be safe") && refused.contains("--move"),
        "{refused}"
    );
    for name in ["ash", "birch"] {
        let removed = service.run(&["depot", "remove", name, "--force"]);
        assert!(removed.status.success(), "{}", text(&removed.stderr));
    }
    let told = text(&service.run(&["status", "r1"]).stdout);
    assert!(
        told.contains("OUT OF REACH") && told.contains("depots that held them were removed"),
        "{told}"
    );
}

#[test]
fn depots_that_are_down_and_paths_that_nobody_measured_are_named_in_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["ash", "birch", "cedar"];
    let (mut relays, service) = world(folder.path(), &names);
    relays[1].kill();
    service.wait_for_depots(|depot| (depot["state"] == "down") == (depot["name"] == "birch"));
    let scratch = folder.path().join("scratch");
    make_tree(&scratch, 6, 3);
    let scratch = scratch.to_str().unwrap();
    let ways = ["--via", "ash,birch,cedar", "--code", "2+1"];
    let wanted = |deadline| {
        [
            &["plan", scratch, "--to", "work", "--deadline", deadline][..],
            &ways,
        ]
        .concat()
    };
    let told = text(&service.run(&wanted("10m")).stdout);
    assert!(
        told.contains("birch is down, and counted on to be back"),
        "{told}"
    );
    relays[1].restart();
    service.wait_for_depots(|depot| depot["state"] == "up");
    let shown = text(&service.run(&wanted("10m")).stdout);
    assert!(!shown.contains("counted on"), "{shown}");
}

#[test]
fn two_prefixes_of_one_bucket_are_one_failure_domain() {
    let folder = tempfile::tempdir().unwrap();
    let store = S3Server::start().unwrap();
    let start =
        |name, bucket| Relay::start_backed(folder.path(), name, "1G", bucket, store.environment());
    let relays = [
        start("one", "s3://testbed/one"),
        start("two", "s3://testbed/two"),
    ];
    let home = Relay::start(folder.path(), "home", "1G", "60M");
    let service = Service::start(folder.path());
    relays
        .iter()
        .chain([&home])
        .for_each(|relay| service.add(relay));
    service.wait_for_depots(|depot| depot["state"] == "up");
    let depots = service.json(&["depot", "list", "--json"]);
    let domain = |place: usize| depots[place]["domain"].as_str().unwrap().to_owned();
    assert!(
        domain(0).starts_with("store-") && domain(0) == domain(1),
        "{depots}"
    );
    assert_eq!(domain(2), "");
    let scratch = folder.path().join("scratch");
    make_tree(&scratch, 6, 3);
    let scratch = scratch.to_str().unwrap();
    let submit = [
        "offload",
        scratch,
        "--deadline",
        "10m",
        "--release",
        "when-safe",
    ];
    let refused = service.run(
        &[
            &submit[..],
            &["--to", "work", "--via", "one,two", "--code", "1+1"],
        ]
        .concat(),
    );
    let said = text(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("the loss of one could lose data"),
        "{said}"
    );
    // A relay with a disk beside one of them is no such thing, and a store gathers nothing.
    let refused = service.run(
        &[
            &submit[..],
            &["--to", "one", "--via", "home,two", "--code", "1+1"],
        ]
        .concat(),
    );
    let said = text(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("gathers nothing"),
        "{said}"
    );
    assert!(std::path::Path::new(scratch).exists());
    service.run(
        &[
            &submit[..],
            &["--to", "work", "--via", "home,two", "--code", "1+1"],
        ]
        .concat(),
    );
    service.wait_until("r3", |request| request["state"] == "released");
}
