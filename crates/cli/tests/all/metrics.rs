//! Metrics of a service for monitoring, as Prometheus's own reader understands them.

use crate::support::processes;

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
};

use crate::support::processes::{PATIENCE, Relay, Service, make_tree, text};
use posthaste_testbed::install;
use serde_json::Value;

/// Program that reads the text of OpenMetrics and prints its samples; fails on what the format
/// forbids.
const READ: &str = "import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read
print(json.dumps([[sample.name, sample.labels, sample.value] for family in read(sys.stdin.read()) for sample in family.samples]))";

fn scrape(service: &Service) -> (String, String) {
    let token = fs::read_to_string(service.state.join("token")).unwrap();
    let address = service.url.trim_start_matches("http://");
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let ask = format!(
        "GET /v1/metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
        token.trim()
    );
    connection.write_all(ask.as_bytes()).unwrap();
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).unwrap();
    let answer = text(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Returns every sample of a scrape: its name, labels and value.
fn samples(service: &Service) -> Vec<(String, Value, f64)> {
    let (head, body) = scrape(service);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(
        head.contains("application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    let python = install::find_python_program(install::OPENMETRICS).unwrap();
    let mut reader = Command::new(python)
        .args(["-c", READ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = reader.stdin.take().unwrap();
    stdin.write_all(body.as_bytes()).unwrap();
    drop(stdin);
    let output = reader.wait_with_output().unwrap();
    assert!(output.status.success(), "it can't be read:\n{body}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the value of the one sample with this name and these labels; `None` without one.
fn value(samples: &[(String, Value, f64)], name: &str, labels: &Value) -> Option<f64> {
    let mut found = samples
        .iter()
        .filter(|(of, with, _)| of == name && with == labels);
    let value = found.next().map(|(_, _, value)| *value);
    assert!(found.next().is_none(), "{name} {labels} stands there twice");
    value
}

#[test]
fn monitoring_sees_requests_depots_and_what_happened() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut relay = Relay::start(folder, "ash", "1G", "8M");
    let service = Service::start(folder);
    let none = serde_json::json!({});
    let depot = serde_json::json!({ "depot": relay.name.as_str() });
    service.add(&relay);
    let empty = samples(&service);
    assert_eq!(value(&empty, "posthaste_waiting_bytes", &none), Some(0.0));
    assert_eq!(value(&empty, "posthaste_least_slack_seconds", &none), None);
    assert_eq!(
        value(&empty, "posthaste_depot_stored_bytes_total", &depot),
        Some(0.0)
    );

    let source = folder.join("run");
    make_tree(&source, 24, 1);
    let request = service.json(&[
        "offload",
        source.to_str().unwrap(),
        "--to",
        "home",
        "--via",
        "ash",
        "--deadline",
        "10m",
        "--code",
        "1+0",
        // It takes minutes until the limit is lifted.
        "--bwlimit",
        "100K",
        "--json",
    ]);
    let id = request["id"].as_str().unwrap();
    service.wait_until(id, |request| {
        request["state"] == "moving" && request["finish"]["p90"].is_string()
    });
    let moving = samples(&service);
    let of = |state: &str| serde_json::json!({ "kind": "stage-out", "state": state });
    assert_eq!(
        value(&moving, "posthaste_requests", &of("moving")),
        Some(1.0)
    );
    let slack = value(&moving, "posthaste_least_slack_seconds", &none);
    assert!(
        slack.is_some_and(|slack| slack > 0.0 && slack < 600.0),
        "{slack:?}"
    );
    let waiting = value(&moving, "posthaste_waiting_bytes", &none).unwrap();
    assert!(waiting > 0.0 && waiting < 24e6 * 1.1, "{waiting}");

    let lifted = service.run(&["modify", id, "--bwlimit", "off"]);
    assert!(lifted.status.success(), "{}", text(&lifted.stderr));
    service.wait_until(id, |request| request["state"] == "safe");
    let safe = samples(&service);
    assert_eq!(value(&safe, "posthaste_requests", &of("moving")), None);
    assert_eq!(value(&safe, "posthaste_requests", &of("safe")), Some(1.0));
    let event = |name: &str| serde_json::json!({ "event": name });
    assert_eq!(
        value(&safe, "posthaste_events_total", &event("safe")),
        Some(1.0)
    );
    let bytes = service.status(id)["bytes"].as_f64().unwrap();
    let stored = value(&safe, "posthaste_depot_stored_bytes_total", &depot).unwrap();
    assert!(stored >= bytes, "{stored} of {bytes}");
    assert_eq!(value(&safe, "posthaste_depot_up", &depot), Some(1.0));

    relay.kill();
    let start = processes::now();
    while value(&samples(&service), "posthaste_depot_up", &depot) != Some(0.0) {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}
