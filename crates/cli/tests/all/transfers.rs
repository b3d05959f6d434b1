//! `posthaste status --transfers` while real data is in transit: to depots, to a destination that
//! gathers, from sources, to a bucket.

use std::{fs, time::Duration};

use crate::support::processes::{PATIENCE, Relay, Service, failure, make_tree, now, text};
use crate::support::sources::Centre;
use serde_json::Value;

/// Polls the transfers of a request until they are as wanted.
fn wait_for(look: impl Fn() -> Value, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let start = now();
    loop {
        let Value::Array(rows) = look() else {
            panic!("no list");
        };
        if wanted(&rows) {
            return rows;
        }
        assert!(start.elapsed() < PATIENCE, "they are still {rows:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn number(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or(0)
}

/// Returns whether some of it came, some is on its way, and that has a rate and an end.
fn is_under_way(row: &Value) -> bool {
    row["state"] == "running"
        && number(row, "done_bytes") > 0
        && number(row, "left_bytes") > 0
        && number(row, "in_flight") > 0
        && row["finish"]["p90"].is_string()
}

fn sum(rows: &[Value], name: &str) -> u64 {
    rows.iter().map(|row| number(row, name)).sum()
}

fn ends<'a>(rows: &'a [Value]) -> Vec<(&'a str, &'a str, &'a str)> {
    let word = |row: &'a Value, name: &str| row[name].as_str().unwrap();
    let ends = rows
        .iter()
        .map(|row| (word(row, "kind"), word(row, "from"), word(row, "to")));
    ends.collect()
}

#[test]
fn each_depot_and_a_destination_that_gathers_say_how_far_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let start = |name: &str| {
        // So slow that somebody comes to see it on its way to both.
        Relay::start(folder.path(), name, "1G", "2M")
    };
    let mut relays = ["d1", "d2", "home"].map(start);
    let service = Service::start(folder.path());
    relays.iter().for_each(|relay| service.add(relay));
    relays[2].kill();
    service.wait_for_depots(|depot| (depot["state"] == "down") == (depot["name"] == "home"));
    let scratch = folder.path().join("scratch");
    make_tree(&scratch, 48, 5);
    let words = ["offload", scratch.to_str().unwrap(), "--to", "home"];
    let more = ["--via", "d1,d2", "--code", "1+1", "--deadline", "10m"];
    service.json(&[&words[..], &more, &["--json"]].concat());
    let look = || service.json(&["status", "r1", "--transfers", "--json"]);

    let rows = wait_for(look, |rows| {
        rows.len() == 3
            && rows[..2]
                .iter()
                .all(|row| is_under_way(row) && number(row, "rate_bytes_per_s") > 1 << 19)
    });
    assert_eq!(
        ends(&rows),
        [
            ("depot", "centre", "d1"),
            ("depot", "centre", "d2"),
            ("destination", "depots", "home")
        ]
    );
    let bytes = number(&service.status("r1"), "bytes");
    for row in &rows[..2] {
        let all = number(row, "done_bytes") + number(row, "left_bytes");
        // Each gets a copy of all, but for what was stored between two looks.
        assert!(all > bytes / 2 && all < bytes * 5 / 4, "{bytes}: {row}");
        let rate = number(row, "rate_bytes_per_s");
        assert!(rate < 12 << 20, "{row}");
        let finish = &row["finish"];
        assert!(finish["p50"].as_str() <= finish["p90"].as_str(), "{row}");
    }
    assert_eq!(rows[2]["state"], "parked");
    assert_eq!(rows[2]["reason"], "it is away");
    assert_eq!(number(&rows[2], "left_bytes"), bytes);

    tables_and_formats_say_the_same(&service);

    service.wait_until("r1", |request| request["state"] == "safe");
    relays[2].restart();
    let rows = wait_for(look, |rows| rows.len() == 3 && is_under_way(&rows[2]));
    let (kind, from, _) = ends(&rows)[2];
    assert!(
        kind == "destination" && ["d1", "d2", "depots"].contains(&from),
        "{rows:?}"
    );
    assert!(rows[2].get("rate_bytes_per_s").is_none(), "{rows:?}");
    for row in &rows[..2] {
        assert_eq!(row["state"], "done");
    }
    let rows = wait_for(look, |rows| rows.iter().all(|row| row["state"] == "done"));
    assert_eq!(sum(&rows, "left_bytes"), 0, "{rows:?}");
    // Depots may forget what they held by then.
    assert_eq!(number(rows.last().unwrap(), "done_bytes"), bytes);
}

/// Checks tables and formats while nothing is at `home`, which is away.
fn tables_and_formats_say_the_same(service: &Service) {
    let format = "{to}|{percent}|{state}";
    let shown = service.run(&["status", "r1", "--transfers", "--format", format]);
    let shown = text(&shown.stdout);
    assert!(shown.contains("home|0|parked"), "{shown}");
    let table = text(&service.run(&["status", "r1", "--transfers"]).stdout);
    for said in ["KIND", "depot", "d1", "d2", "home", "it is away"] {
        assert!(table.contains(said), "{said}: {table}");
    }
    let (code, said) = failure(&service.run(&["status", "r1", "--transfers", "-o", "{id}"]));
    assert!(
        code == 2 && said.contains("nothing is called `id`; there are kind"),
        "{code}: {said}"
    );
    let (_, said) = failure(&service.run(&["status", "r9", "--transfers"]));
    assert!(said.contains("r9"), "{said}");
}

#[test]
fn each_source_of_a_stage_in_and_the_bucket_of_a_stage_out_say_how_far_they_are() {
    let centre = Centre::with("6M", "3M", 120);
    let request = centre.stage_in("input", &["--deadline", "10m"]);
    let id = request["id"].as_str().unwrap();
    let look = || centre.json(&["status", id, "--transfers", "--json"]);
    let rows = wait_for(look, |rows| {
        rows.iter()
            .all(|row| is_under_way(row) && number(row, "rate_bytes_per_s") > 0)
    });
    assert_eq!(
        ends(&rows),
        [
            ("source", "archive", "centre"),
            ("source", "mirror", "centre")
        ]
    );
    let bytes = number(&centre.json(&["status", id, "--json"]), "bytes");
    let all = sum(&rows, "done_bytes") + sum(&rows, "left_bytes");
    assert!(all > bytes * 3 / 4 && all <= bytes, "{bytes}: {rows:?}");
    centre.wait_until(id, |request| request["state"] == "arrived");
    let rows = wait_for(look, |rows| rows.iter().all(|row| row["state"] == "done"));
    assert_eq!(sum(&rows, "done_bytes"), bytes, "{rows:?}");

    fs::rename(centre.scratch("input"), centre.scratch("out")).unwrap();
    let from = centre.scratch("out");
    let words = ["offload", from.to_str().unwrap(), "--to", "archive:back"];
    let request = centre.json(&[&words[..], &["--deadline", "10m", "--json"]].concat());
    let id = request["id"].as_str().unwrap();
    let look = || centre.json(&["status", id, "--transfers", "--json"]);
    let rows = wait_for(look, |rows| rows.len() == 1 && is_under_way(&rows[0]));
    assert_eq!(ends(&rows), [("address", "centre", "archive")]);
    centre.wait_until(id, |request| request["state"] == "arrived");
    let rows = wait_for(look, |rows| rows[0]["state"] == "done");
    assert_eq!(number(&rows[0], "done_bytes"), bytes);
}
