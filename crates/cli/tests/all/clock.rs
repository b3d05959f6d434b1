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

/// Returns the code and the words of a command.
fn said(service: &Service, arguments: &[&str]) -> (Option<i32>, String) {
    let done = service.run(arguments);
    let words = text(&done.stdout) + &text(&done.stderr);
    (done.status.code(), words)
}

#[test]
fn what_depots_keep_no_longer_is_told_alike_everywhere() {
    let mut centre = Centre::new("+0");
    let folder = centre.folder.path().to_owned();
    let run = folder.join("run");
    let other = folder.join("other");
    make_tree(&other, 2, 1);
    let how = "--to home --deadline 10m --via ash --code 1+0 --keep 1d --json";
    for (source, release) in [(&run, "when-safe"), (&other, "never")] {
        let mut asked = vec!["offload", source.to_str().unwrap(), "--release", release];
        asked.extend(how.split(' '));
        centre.service.json(&asked);
    }
    let is = |state: &'static str| move |request: &Value| request["state"] == state;
    centre.service.wait_until("r1", is("released"));
    centre.service.wait_until("r2", is("safe"));
    centre.service.kill();
    set_clock(&folder, OF_SERVICE, "+3d");
    centre.service.restart();
    let service = &centre.service;
    for (id, flag, why) in [
        ("r1", "OUT OF REACH", "and its source was released"),
        ("r2", "KEPT NO LONGER", "only its source has it"),
    ] {
        let request = service.json(&["status", id, "--json"]);
        assert_eq!(
            (&request["keep_ended"], &request["chunks_safe"]),
            (&true.into(), &0.into())
        );
        let (code, words) = said(service, &["watch", id]);
        assert_eq!(code, Some(6), "{words}");
        assert!(words.contains(why) && !words.contains("on time"), "{words}");
        let (_, words) = said(service, &["list"]);
        let line = words.lines().find(|line| line.starts_with(id)).unwrap();
        assert!(line.contains(flag), "{words}");
        let (code, words) = said(service, &["pull", id, folder.join("to").to_str().unwrap()]);
        assert_eq!(code, Some(4), "{words}");
        assert!(words.contains("depots keep it no longer"), "{words}");
        let (_, words) = said(service, &["datasets", id]);
        assert!(words.contains("0 of ") && !words.contains("ash"), "{words}");
    }
    let (code, words) = said(service, &["cancel", "r1"]);
    assert_eq!(code, Some(1), "{words}");
    assert!(
        words.contains("depots keep it no longer") && !words.contains("cancelled:"),
        "{words}"
    );
    let (code, words) = said(service, &["cancel", "r2"]);
    assert_eq!(code, Some(0), "{words}");
    service.wait_until("r2", is("cancelled"));
}
