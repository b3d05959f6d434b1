//! Options of an offload beyond its deadline, with a real service and real relays.

use std::fs;

use crate::support::processes::{Relay, Service, failure, make_tree, text};
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
    let slow = centre.offload(&["--code", "2+1", "--bwlimit", "40k"]);
    let id = slow["id"].as_str().unwrap();
    let wrong = centre.service.run(&["modify", id, "--bwlimit", "much"]);
    assert_eq!(wrong.status.code(), Some(2));
    let (_, said) = centre.refused(&["modify", id, "--purge-at", "2001-01-01T00:00:00Z"]);
    assert!(said.contains("the purge"), "{said}");
    let (_, said) = centre.refused(&["modify", id, "--priority", "most"]);
    assert!(said.contains("low, normal, high, urgent"), "{said}");
    let ranked = centre.service.run(&["modify", id, "--priority", "-9"]);
    assert!(ranked.status.success(), "{}", text(&ranked.stderr));
    assert_eq!(centre.service.status(id)["wishes"]["priority"], "-9");
    let lifted = centre.service.run(&["modify", id, "--bwlimit", "50M"]);
    assert!(lifted.status.success(), "{}", text(&lifted.stderr));
    // At the old limit this would take more than seven minutes.
    let done = centre
        .service
        .wait_until(id, |request| request["state"] == "safe");
    assert!(done["safe_after_s"].as_f64().unwrap() < 400.0, "{done}");
    let story = text(&centre.service.run(&["explain", id]).stdout);
    assert!(
        story.contains("was changed from 40.0 KiB/s to 50.0 MiB/s"),
        "{story}"
    );
    assert!(story.contains("priority changed"), "{story}");
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
    // Whatever it does not pay is said before anything moves.
    let scratch = centre.folder.path().join("scratch");
    let to_depot = ["offload", scratch.to_str().unwrap(), "--to", "ash"];
    let over = ["--via", "birch,cedar", "--code", "1+1", "--dry-run"];
    let ask = |more: &[&str]| {
        let output = centre.service.run(&[&to_depot[..], &over, more].concat());
        text(&output.stdout) + &text(&output.stderr)
    };
    let dear = ["--deadline", "10m", "--budget", "1"];
    let said = ask(&dear);
    assert!(
        said.contains("nothing is delivered to ash: it charges"),
        "{said}"
    );
    let said = ask(&[&dear[..], &["--deliver-by", "20m"]].concat());
    assert!(said.contains("no budget pays that"), "{said}");
    let said = ask(&["--deadline", "10m"]);
    assert!(!said.contains("nothing is delivered"), "{said}");
}

#[test]
fn one_depot_survives_no_loss_and_that_is_said() {
    let centre = Centre::new(36);
    let scratch = centre.folder.path().join("scratch");
    let offload = [
        "offload",
        scratch.to_str().unwrap(),
        "--to",
        "home",
        "--dry-run",
    ];
    let ask = |more: &[&str]| {
        let more = [&["--deadline", "10m"], more].concat();
        text(&centre.service.run(&[&offload[..], &more].concat()).stdout)
    };
    let lone = "with one depot no loss is survived";
    assert!(ask(&["--via", "ash"]).contains(lone));
    assert!(
        !ask(&["--via", "ash", "--code", "1+0"]).contains(lone),
        "it was asked for"
    );
    assert!(!ask(&["--via", "ash,birch"]).contains(lone));
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

#[test]
fn what_requests_to_a_depot_and_what_leaves_it_cost_is_counted() {
    let centre = Centre::new(34);
    let prices = ["--usd-per-1000-puts", "1", "--usd-per-1000-gets", "2"];
    let out = ["--usd-per-gb-out", "3", "--usd-per-gb-out-to", "edge=0.5"];
    let prices = [&prices[..], &out].concat();
    for relay in &centre.relays {
        centre.service.lend(relay, &prices);
    }
    let request = centre.offload(&["--code", "2+1", "--wait"]);
    assert_eq!(request["state"], "safe");
    let number = |name: &str| request[name].as_f64().unwrap();
    // A fragment is one PUT, a tenth of a cent: three of each chunk, and nothing else costs.
    let puts = request["chunks"].as_f64().unwrap() * 3.0 * 0.001;
    assert!((number("spent_usd") - puts).abs() < 1e-9, "{request}");
    // Two of them are read again, by a GET each, and twelve megabytes go home.
    let read = request["chunks"].as_f64().unwrap() * 2.0 * 0.002 + 0.012 * 3.0;
    assert!(
        (read * 0.9..read * 1.2).contains(&number("cost_usd_to_read")),
        "{read}: {request}"
    );
    let listed = text(&centre.service.run(&["depot", "list"]).stdout);
    assert!(listed.contains("$0.5/GB to edge"), "{listed}");
    for wrong in ["edge", "edge=much", "edge=-1"] {
        let invite = ["depot", "invite", "new", "--output", "-"];
        let arguments = [&invite[..], &["--usd-per-gb-out-to", wrong]].concat();
        let output = centre.service.run(&arguments);
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains(wrong),
            "{said}"
        );
    }
}

#[test]
fn a_pinned_depot_holds_its_share_before_anything_is_called_safe() {
    let mut centre = Centre::new(35);
    centre
        .relays
        .iter()
        .for_each(|relay| centre.service.add(relay));
    centre
        .service
        .wait_for_depots(|depot| depot["state"] == "up");
    for (wrong, named) in [
        (&["--pin", "nobody"][..], "nobody"),
        (&["--pin", "cedar", "--without", "cedar"], "cedar"),
        (&["--pin", "cedar,birch,ash"], "1+1"),
    ] {
        let arguments = centre.arguments(&[&["--code", "1+1"], wrong].concat());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (code, said) = centre.refused(&arguments);
        assert!(code != 0 && said.contains(named), "{code}: {said}");
    }

    // While it is away, two copies lie elsewhere, and that is not enough.
    let request = centre.offload(&["--code", "1+1", "--pin", "cedar", "--bwlimit", "2M"]);
    let id = request["id"].as_str().unwrap();
    centre.relays[2].kill();
    let stored = |request: &Value, name: &str| {
        let shares = request["shares"].as_array().unwrap().iter();
        let share = shares.clone().find(|share| share["depot"] == name);
        share.unwrap()["stored"].as_u64().unwrap()
    };
    let chunks = request["chunks"].as_u64().unwrap();
    centre.service.run(&["modify", id, "--bwlimit", "50M"]);
    let elsewhere = |request: &Value| stored(request, "ash") + stored(request, "birch");
    let waits = |request: &Value| elsewhere(request) + stored(request, "cedar") >= 2 * chunks;
    let waiting = centre.service.wait_until(id, waits);
    assert_eq!(waiting["state"], "moving", "{waiting}");
    let story = text(&centre.service.run(&["explain", id]).stdout);
    assert!(story.contains("cedar"), "{story}");
    centre.relays[2].restart();
    let safe = centre
        .service
        .wait_until(id, |request| request["state"] == "safe");
    assert_eq!(stored(&safe, "cedar"), chunks, "{safe}");
}

#[test]
fn a_name_that_is_nearly_that_of_a_depot_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let relay = Relay::start(folder.path(), "ash", "1G", "60M");
    let service = Service::start(folder.path());
    service.add(&relay);
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("file"), "bytes").unwrap();
    let from = out.to_str().unwrap();
    for asked in [
        &["offload", from, "--to", "ahs", "--deadline", "1h"][..],
        &["plan", from, "--to", "ahs", "--deadline", "1h"],
        &["depot", "remove", "ahs"],
        &["depot", "drain", "ahs"],
    ] {
        let output = service.run(asked);
        let said = text(&output.stderr);
        assert!(said.contains("did you mean `ash`?"), "{asked:?}: {said}");
        assert_eq!(output.status.code(), Some(4), "{asked:?}: {said}");
    }
    let far = service.run(&["offload", from, "--to", "elsewhere", "--deadline", "1h"]);
    let said = text(&far.stderr);
    assert!(said.contains("--via is missing"), "{said}");
}
