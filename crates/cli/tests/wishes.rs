//! What may be wished of an offload beyond its deadline, with a real service and real relays.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[path = "support/processes.rs"]
mod processes;

use processes::{Relay, Service, failure, make_tree, text};
use serde_json::Value;

/// Three relays, a service that knows them, and twelve megabytes on scratch.
struct Centre {
    folder: tempfile::TempDir,
    relays: Vec<Relay>,
    service: Service,
}

impl Centre {
    fn new(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let start = |name: &&str| Relay::start(folder.path(), name, "1G", "60M");
        let relays: Vec<Relay> = ["ash", "birch", "cedar"].iter().map(start).collect();
        let service = Service::start(folder.path());
        relays.iter().for_each(|relay| service.add(relay));
        make_tree(&folder.path().join("scratch"), 12, seed);
        Self {
            folder,
            relays,
            service,
        }
    }

    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let scratch = self.folder.path().join("scratch");
        let scratch = scratch.to_str().unwrap();
        let always = ["offload", scratch, "--to", "home", "--deadline", "10m"];
        let always = always.iter().chain(&["--via", "ash,birch,cedar", "--json"]);
        always.chain(more).map(ToString::to_string).collect()
    }

    fn offload(&self, more: &[&str]) -> Value {
        let arguments = self.arguments(more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.service.json(&arguments)
    }

    fn refused(&self, arguments: &[&str]) -> (i32, String) {
        failure(&self.service.run(arguments))
    }
}

#[test]
fn a_limit_holds_over_all_relays_and_can_be_lifted() {
    let centre = Centre::new(31);
    // Eighteen megabytes with the code: nine seconds, or more on a busy machine, never less.
    let limited = centre.offload(&["--code", "2+1", "--bwlimit", "2M", "--wait"]);
    assert_eq!(limited["state"], "safe");
    let took = limited["safe_after_s"].as_f64().unwrap();
    assert!(took > 6.0, "{took} s: {limited}");
    let slow = centre.offload(&["--code", "2+1", "--bwlimit", "100k"]);
    let id = slow["id"].as_str().unwrap();
    let wrong = centre.service.run(&["modify", id, "--bwlimit", "much"]);
    assert_eq!(wrong.status.code(), Some(2));
    let (_, said) = centre.refused(&["modify", id, "--purge-at", "2001-01-01T00:00:00Z"]);
    assert!(said.contains("the purge"), "{said}");
    let lifted = centre.service.run(&["modify", id, "--bwlimit", "50M"]);
    assert!(lifted.status.success(), "{}", text(&lifted.stderr));
    // At the old limit this would take three minutes.
    let done = centre
        .service
        .wait_until(id, |request| request["state"] == "safe");
    assert!(done["safe_after_s"].as_f64().unwrap() < 150.0, "{done}");
    let story = text(&centre.service.run(&["explain", id]).stdout);
    assert!(
        story.contains("was changed from 100.0 KiB/s to 50.0 MiB/s"),
        "{story}"
    );
}

#[test]
fn a_budget_is_kept_and_what_it_would_take_is_said() {
    let centre = Centre::new(32);
    for relay in &centre.relays {
        centre.service.lend(relay, &["--usd-per-gb", "1"]);
    }
    let little = centre.arguments(&["--code", "2+1", "--budget", "0.001"]);
    let little: Vec<&str> = little.iter().map(String::as_str).collect();
    let (code, said) = centre.refused(&little);
    assert_eq!(code, 11, "{said}");
    assert!(said.contains('$'), "{said}");
    let request = centre.offload(&["--code", "2+1", "--budget", "0.03", "--wait"]);
    assert_eq!(request["state"], "safe");
    let spent = request["spent_usd"].as_f64().unwrap();
    // Eighteen megabytes at a dollar a gigabyte.
    assert!((0.015..=0.03).contains(&spent), "{spent}: {request}");
}

#[test]
fn the_purge_of_a_source_binds_where_it_comes_before_the_deadline() {
    let centre = Centre::new(33);
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(5);
    let request = centre.offload(&["--code", "2+1", "--purge-at", &soon.to_string(), "--wait"]);
    let id = request["id"].as_str().unwrap();
    let due: jiff::Timestamp = request["deadline"].as_str().unwrap().parse().unwrap();
    assert!(due <= soon, "{request}");
    let story = text(&centre.service.run(&["explain", id]).stdout);
    assert!(story.contains("purge"), "{story}");
    let past = jiff::Timestamp::now() - jiff::SignedDuration::from_mins(5);
    let past = centre.arguments(&["--code", "2+1", "--purge-at", &past.to_string()]);
    let past: Vec<&str> = past.iter().map(String::as_str).collect();
    let (_, said) = centre.refused(&past);
    assert!(
        said.contains("the purge") && said.contains("has passed"),
        "{said}"
    );
}
