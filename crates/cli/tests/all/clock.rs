//! A service runs on a machine whose wall clock is wrong, and then corrected.

use std::{
    fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use crate::support::processes::{
    PATIENCE, Relay, Service, binary, failure, make_tree, now, picture, text,
};
use serde_json::Value;

struct Centre {
    folder: tempfile::TempDir,
    relay: Relay,
    service: Service,
}

/// Wall clocks of a test's programs.
const OF_SERVICE: &str = "clock";
const OF_RELAYS: &str = "clock of relays";

/// Sets such a clock off by this much.
fn set_clock(folder: &Path, clock: &str, by: &str) {
    let new = folder.join("clock.new");
    fs::write(&new, format!("{by}\n")).unwrap();
    fs::rename(new, folder.join(clock)).unwrap();
}

/// Waits until a program's log contains these words.
fn wait_for_log(state: &Path, words: &str) {
    let (start, log) = (now(), state.with_extension("log"));
    while !fs::read_to_string(&log).unwrap().contains(words) {
        assert!(start.elapsed() < PATIENCE, "nothing is said of `{words}`");
        sleep(Duration::from_millis(100));
    }
}

impl Centre {
    fn new(clock: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        set_clock(folder.path(), OF_SERVICE, clock);
        set_clock(folder.path(), OF_RELAYS, "+0");
        make_tree(&folder.path().join("run"), 2, 1);
        let relay = Relay::start(folder.path(), "ash", "1G", "60M");
        let service = Service::start(folder.path());
        service.add(&relay);
        Self {
            folder,
            relay,
            service,
        }
    }

    /// Pulls the dataset and checks that it is unchanged.
    fn pull(&self, before: &[String]) {
        let home = self.folder.path().join("home");
        let pulled = self.service.run(&["pull", "r1", home.to_str().unwrap()]);
        assert!(pulled.status.success(), "{}", text(&pulled.stderr));
        assert_eq!(picture(&home), before);
    }

    /// Offloads, and returns the request once it is safe.
    fn offload(&self) -> Value {
        let run: PathBuf = self.folder.path().join("run");
        let what = ["offload", run.to_str().unwrap(), "--to", "home"];
        let how = [
            "--deadline",
            "10m",
            "--via",
            "ash",
            "--code",
            "1+0",
            "--json",
        ];
        let taken = self.service.json(&[&what[..], &how].concat());
        let id = taken["id"].as_str().unwrap();
        self.service
            .wait_until(id, |request| request["state"] == "safe")
    }
}

#[test]
fn a_step_of_the_clock_is_told_and_makes_nothing_late() {
    let mut centre = Centre::new("+0");
    centre.offload();
    set_clock(centre.folder.path(), OF_SERVICE, "+365d");
    wait_for_log(&centre.service.state, "ahead");
    let request = centre.offload();
    assert_eq!(request["missed"], false, "{request}");
    set_clock(centre.folder.path(), OF_SERVICE, "+0");
    centre.service.kill();
    centre.service.restart();
    let request = centre.offload();
    assert_eq!(request["missed"], false, "{request}");
    let listed = text(&centre.service.run(&["list"]).stdout);
    assert!(!listed.contains("late"), "{listed}");
}

#[test]
fn a_journal_from_the_future_is_named_with_its_repair() {
    let mut centre = Centre::new("+2d");
    centre.service.kill();
    let mut command = binary();
    command.args(["serve", "--json", "--listen", "127.0.0.1:0", "--state"]);
    let started = command.arg(&centre.service.state).output().unwrap();
    let (_, said) = failure(&started);
    assert!(said.contains("clock"), "{said}");
}

#[test]
fn a_step_of_a_relay_s_clock_ends_nobody_s_time() {
    let centre = Centre::new("+0");
    let run = centre.folder.path().join("run");
    let before = picture(&run);
    centre.offload();
    set_clock(centre.folder.path(), OF_RELAYS, "+1100d");
    // It looks for what has expired every ten seconds.
    wait_for_log(&centre.folder.path().join("ash"), "ahead");
    set_clock(centre.folder.path(), OF_RELAYS, "+0");
    centre.pull(&before);
}

#[test]
fn a_relay_that_starts_with_a_clock_far_ahead_removes_nothing() {
    let mut centre = Centre::new("+0");
    let before = picture(&centre.folder.path().join("run"));
    centre.offload();
    centre.relay.kill();
    set_clock(centre.folder.path(), OF_RELAYS, "+1100d");
    centre.relay.restart();
    wait_for_log(&centre.folder.path().join("ash"), "nothing expires by that");
    centre.relay.kill();
    set_clock(centre.folder.path(), OF_RELAYS, "+0");
    centre.relay.restart();
    centre.pull(&before);
}
