//! A service on a machine whose wall clock is set wrong, and set right again.

use std::{
    fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use crate::support::processes::{PATIENCE, Relay, Service, binary, failure, make_tree, now, text};
use serde_json::Value;

struct Centre {
    folder: tempfile::TempDir,
    _relay: Relay,
    service: Service,
}

/// Sets the service's wall clock off by this much.
fn set_clock(folder: &Path, by: &str) {
    let new = folder.join("clock.new");
    fs::write(&new, format!("{by}\n")).unwrap();
    fs::rename(new, folder.join("clock")).unwrap();
}

impl Centre {
    fn new(clock: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        set_clock(folder.path(), clock);
        make_tree(&folder.path().join("run"), 2, 1);
        let relay = Relay::start(folder.path(), "ash", "1G", "60M");
        let service = Service::start(folder.path());
        service.add(&relay);
        Self {
            folder,
            _relay: relay,
            service,
        }
    }

    /// Offloads, and says what is told of it once it is safe.
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

    /// Waits until the log has this.
    fn wait_for_log(&self, words: &str) {
        let (start, log) = (now(), self.service.state.with_extension("log"));
        while !fs::read_to_string(&log).unwrap().contains(words) {
            assert!(start.elapsed() < PATIENCE, "nothing is said of `{words}`");
            sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn a_step_of_the_clock_is_told_and_makes_nothing_late() {
    let mut centre = Centre::new("+0");
    centre.offload();
    set_clock(centre.folder.path(), "+365d");
    centre.wait_for_log("ahead");
    let request = centre.offload();
    assert_eq!(request["missed"], false, "{request}");
    set_clock(centre.folder.path(), "+0");
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
