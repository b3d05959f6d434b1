//! `posthaste paths` against a real service and real relays.

use std::{fs, time::Duration};

use crate::support::processes::{PATIENCE, Relay, Service, binary, failure, make_tree, now, text};
use serde_json::Value;

/// Probes of a path before a wrong result counts as a failure.
const PROBES_MAX: u64 = 20;

/// Returns the path to a depot, as the service reports it.
fn path(service: &Service, to: &str) -> Value {
    let paths = service.json(&["paths", "--json"]);
    let paths = paths.as_array().unwrap().clone();
    paths.into_iter().find(|path| path["to"] == to).unwrap()
}

fn p50(path: &Value) -> u64 {
    path["rate_p50_bytes_per_s"].as_u64().unwrap()
}

/// Probes the path to a depot. Returns the printed table.
fn probe(service: &Service, to: &str) -> String {
    let probed = service.run(&["paths", "--probe", to]);
    assert!(probed.status.success(), "{}", text(&probed.stderr));
    text(&probed.stdout)
}

#[test]
fn a_path_is_known_by_its_advert_then_by_a_probe_then_by_transfers() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path());
    let relays = [("ash", "8M"), ("birch", "6M")];
    let relays = relays.map(|(name, rate)| Relay::start(folder.path(), name, "1G", rate));
    relays.iter().for_each(|relay| service.add(relay));

    let told = path(&service, "ash");
    assert_eq!(
        (&told["from"], &told["known_by"]),
        (&"centre".into(), &"advertised".into())
    );
    assert!(
        told["measured"].is_null() && told["error"].is_null(),
        "{told}"
    );
    let limit = told["rate_p90_bytes_per_s"].as_u64().unwrap();

    let table = probe(&service, "ash");
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[0].starts_with("FROM") && lines[0].ends_with("KNOWN BY"),
        "{table}"
    );
    assert!(
        lines[1].starts_with("centre  ash") && lines[1].ends_with("probe"),
        "{table}"
    );
    assert!(lines[2].ends_with("advertised"), "{table}");
    let mut told = path(&service, "ash");
    let mut probes = 1;
    // The relay holds its rate back, and that is what the probe saw; on a busy machine, what some
    // see.
    while p50(&told) * 10 <= limit * 8 && probes < PROBES_MAX {
        probe(&service, "ash");
        told = path(&service, "ash");
        probes += 1;
    }
    assert!(p50(&told) * 10 > limit * 8 && p50(&told) <= limit, "{told}");
    assert_eq!(
        (&told["probes"], &told["transfers"]),
        (&probes.into(), &0.into())
    );
    assert!(told["age_s"].as_f64().unwrap() < 60.0, "{told}");
    // Nothing of it is kept there.
    let datasets = fs::read_dir(relays[0].directory.join("datasets")).unwrap();
    assert_eq!(datasets.count(), 0);

    let source = folder.path().join("source");
    make_tree(&source, 60, 1);
    let source = source.to_str().unwrap();
    let offload = [
        "offload",
        source,
        "--to",
        "home",
        "--deadline",
        "10m",
        "--code",
        "1+1",
    ];
    let submitted = service.json(&[&offload[..], &["--via", "ash,birch", "--json"]].concat());
    let id = submitted["id"].as_str().unwrap().to_owned();
    service.wait_until(&id, |request| request["state"] == "safe");
    for name in ["ash", "birch"] {
        let told = path(&service, name);
        assert_eq!(told["known_by"], "transfers", "{told}");
        assert!(told["transfers"].as_u64().unwrap() > 0, "{told}");
        // How large it is tells how busy the machine was.
        let is_judged = told["judged"].as_u64().unwrap() > 0;
        assert_eq!(told["error"].is_f64(), is_judged, "{told}");
    }
}

#[test]
fn a_path_that_can_not_be_probed_is_said_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path());
    let (code, said) = failure(&service.run(&["paths", "--probe", "nobody"]));
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("the path to nobody"), "{said}");
    let mut relay = Relay::start(folder.path(), "ash", "1G", "8M");
    service.add(&relay);
    relay.kill();
    let start = now();
    loop {
        let depots = service.json(&["depot", "list", "--json"]);
        if depots[0]["state"] == "down" {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{depots}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let (_, said) = failure(&service.run(&["paths", "--probe", "ash"]));
    assert!(said.contains("does not answer"), "{said}");
}

#[test]
fn who_operates_sees_the_paths_of_what_comes_in_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path());
    let source = folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("one"), vec![7; 4 << 20]).unwrap();
    let (source, to) = (source.to_str().unwrap(), folder.path().join("here"));
    let stage_in = ["stage-in", source, to.to_str().unwrap()];
    let stage_in = [&stage_in[..], &["--deadline", "10m", "--wait", "--json"]].concat();
    assert_eq!(service.json(&stage_in)["state"], "arrived");
    let told = path(&service, "centre");
    assert_eq!(told["from"], source, "{told}");
    assert!(told["rate_p50_bytes_per_s"].as_u64().unwrap() > 0, "{told}");
    assert_eq!(told["transfers"] == 0, told["age_s"].is_null(), "{told}");

    let reader = folder.path().join("reader");
    let output = ["--output", reader.to_str().unwrap()];
    let made = service.run(&[&["token", "add", "reader", "--scope", "read"][..], &output].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    let read = binary()
        .args(["paths", "--json", "--service", &service.url, "--token-file"])
        .arg(reader)
        .output()
        .unwrap();
    assert_eq!(text(&read.stdout).trim(), "[]", "{}", text(&read.stderr));
}
