//! Real relays forward fragments that they still receive, while they and the service are killed.

use crate::support::processes;

use std::time::Duration;

use crate::support::processes::{Relay, Service, make_tree, picture, text};
use serde_json::Value;

/// Requests until three were met on their way, at most.
const REQUESTS_MAX: usize = 8;
/// Rates at which a chunk takes some ten seconds to the first relay, and the second lags behind.
const SLOW: [&str; 2] = ["100k", "80k"];
/// Rates at which everything arrives soon.
const FAST: [&str; 2] = ["4M", "4M"];

fn stored(request: &Value, depot: &str) -> u64 {
    let shares = request["shares"].as_array().unwrap();
    let share = shares.iter().find(|share| share["depot"] == depot);
    share.unwrap()["stored"].as_u64().unwrap()
}

/// Returns the bytes of bodies that a depot received, by its own count.
fn received(relay: &Relay) -> u64 {
    processes::received(std::slice::from_ref(relay))
}

/// Returns whether all of it is stored at the far depot. Fragments that the near depot lost while
/// it was away need not come there again.
fn is_beyond(request: &Value) -> bool {
    let chunks = request["chunks"].as_u64().unwrap();
    request["state"] == "safe" && stored(request, "far") == chunks
}

/// Polls the relay alone, and often: a chunk is in transit for some seconds only.
fn wait_for_more(relay: &Relay, bytes: u64) {
    let start = processes::now();
    while received(relay) <= bytes {
        let waited = start.elapsed();
        assert!(waited < processes::PATIENCE, "nothing goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Two relays, one behind the other, and the requests over them.
struct Line {
    folder: tempfile::TempDir,
    relays: [Relay; 2],
    service: Service,
    ids: Vec<String>,
}

impl Line {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let start = |name, rate| Relay::start(folder.path(), name, "1G", rate);
        let relays = [start("near", SLOW[0]), start("far", SLOW[1])];
        let service = Service::start(folder.path());
        service.lend(&relays[0], &["--level", "1"]);
        service.lend(&relays[1], &["--level", "2"]);
        make_tree(&folder.path().join("scratch"), 4, 11);
        Self {
            folder,
            relays,
            service,
            ids: Vec::new(),
        }
    }

    fn set_rates(&mut self, rates: [&str; 2]) {
        for (relay, rate) in self.relays.iter_mut().zip(rates) {
            relay.restart_at(rate);
        }
        self.service.wait_for_depots(|depot| depot["state"] == "up");
    }

    fn finish(&mut self, id: &str) {
        self.set_rates(FAST);
        self.service.wait_until(id, is_beyond);
    }

    /// Offloads everything to both, and returns the request's id.
    fn offload(&mut self) -> String {
        let scratch = self.folder.path().join("scratch");
        let source = ["offload", scratch.to_str().unwrap(), "--to", "home"];
        let how = ["--deadline", "10m", "--json", "--code", "1+0"];
        let via = ["--via", "near,far"];
        let asked = self.service.json(&[&source[..], &how, &via].concat());
        let id = asked["id"].as_str().unwrap().to_owned();
        self.ids.push(id.clone());
        id
    }

    /// Submits a request, and kills processes once it is forwarded while it still arrives; returns
    /// its id. The mind may choose another way, and the test may come too late: then it submits
    /// another.
    fn meet(&mut self, kill: impl Fn(&mut Self)) -> String {
        while self.ids.len() < REQUESTS_MAX {
            self.set_rates(SLOW);
            let had = received(&self.relays[1]);
            let id = self.offload();
            wait_for_more(&self.relays[1], had + (64 << 10));
            kill(self);
            let request = self.service.status(&id);
            if [stored(&request, "near"), stored(&request, "far")] == [0, 0] {
                return id;
            }
            let why = text(&self.service.run(&["explain", &id]).stdout);
            eprintln!("{id} did not go on as it came: {request:#}\n{why}");
            self.finish(&id);
        }
        panic!("too few went on as they came");
    }
}

#[test]
fn bytes_are_beyond_before_the_first_relay_has_all_and_everything_is_right_whoever_is_killed() {
    let mut line = Line::start();
    let before = picture(&line.folder.path().join("scratch"));
    // The one that sends on is killed in the middle of it: neither counts anything.
    let first = line.meet(|line| line.relays[0].kill());
    line.finish(&first);
    let explained = text(&line.service.run(&["explain", &first]).stdout);
    let why = "goes on while it still arrives";
    assert!(explained.contains(why), "{explained}");

    // The one that gets it.
    let second = line.meet(|line| line.relays[1].kill());
    let request = line
        .service
        .wait_until(&second, |request| stored(request, "near") > 0);
    assert_eq!(stored(&request, "far"), 0);
    line.finish(&second);

    // The service: nothing is asked twice wrongly.
    let third = line.meet(|line| {
        line.service.kill();
        line.service.restart();
    });
    line.service
        .wait_until(&third, |request| stored(request, "near") > 0);
    line.finish(&third);

    // What lies beyond suffices.
    line.relays[0].kill();
    for id in &line.ids {
        let home = line.folder.path().join(id);
        line.service
            .json(&["pull", id, home.to_str().unwrap(), "--json"]);
        let after = picture(&home);
        let differs = |line: &&String| !after.contains(line) || !before.contains(line);
        let differing: Vec<_> = after.iter().chain(&before).filter(differs).collect();
        assert!(differing.is_empty(), "{id}: {differing:#?}");
    }
}
