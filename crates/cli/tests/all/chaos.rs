//! Two service hosts, a PostgreSQL, four movers and five depots, with kills, stops, cuts and full
//! disks at any time. Afterwards every request is finished or reported, each byte is right, nothing
//! was done twice, and nobody holds a lease.
//!
//! `POSTHASTE_CHAOS_MINUTES` sets the duration of the faults (default 3), `POSTHASTE_CHAOS_SEED`
//! their seed.

use crate::support::chaos::hosts;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use crate::support::processes::{Dice, noise, now, picture};
use hosts::{Hosts, Namespace, stop_for};
use serde_json::{Value, json};

/// Interval between two faults.
const FAULT_EVERY: Duration = Duration::from_millis(1500);
/// Interval between two requests.
const SUBMIT_EVERY: Duration = Duration::from_secs(4);
/// Longest time from the last fault until all requests are finished.
const SETTLES_WITHIN: Duration = Duration::from_secs(480);
/// Largest file, in words of eight bytes. All sent data is kept to the end, so in a test that lasts
/// longer than so many minutes nine of ten files have a tenth of that.
const WORDS: u64 = 600_000;
const SHORT_MINUTES: u64 = 10;
/// Final states of requests, and of those from which nothing more follows.
const ENDS: [&str; 6] = [
    "safe",
    "delivered",
    "arrived",
    "refused",
    "failed",
    "cancelled",
];

#[expect(
    clippy::disallowed_methods,
    reason = "how long a test lasts is said outside"
)]
fn setting(name: &str, otherwise: u64) -> u64 {
    let said = std::env::var(name).ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(otherwise)
}

/// Returns the duration of the faults.
fn minutes() -> u64 {
    setting("POSTHASTE_CHAOS_MINUTES", 3)
}

/// Request of the test.
struct Wanted {
    source: PathBuf,
    /// Destination, for a stage-in.
    to: Option<PathBuf>,
}

/// Client that asks any host that answers, as often as needed.
struct User {
    folder: PathBuf,
    wanted: BTreeMap<String, Wanted>,
    ids: BTreeMap<String, String>,
}

impl User {
    fn make_source(&self, name: &str, dice: &mut Dice) -> PathBuf {
        let source = self.folder.join("data").join(name);
        fs::create_dir_all(&source).unwrap();
        let files = 1 + dice.roll(6);
        let is_long = minutes() > SHORT_MINUTES;
        for file in 0..files {
            let most = if is_long && dice.roll(10) > 0 {
                WORDS / 10
            } else {
                WORDS
            };
            let words = 1 + dice.roll(most);
            let bytes = noise(dice.roll(u64::MAX), usize::try_from(words).unwrap() * 8);
            fs::write(source.join(format!("file {file}")), bytes).unwrap();
        }
        source
    }

    fn submit(&mut self, hosts: &mut Hosts, dice: &mut Dice) {
        let name = format!("run{}", self.wanted.len());
        let source = self.make_source(&name, dice);
        let deadline = "2100-01-01T00:00:00Z";
        let is_stage_in = dice.roll(3) == 0;
        let to = is_stage_in.then(|| self.folder.join("scratch").join(&name));
        let (path, body) = match &to {
            Some(to) => (
                "/v1/stage-ins",
                json!({ "sources": [source], "to": to, "deadline": deadline, "submission_id": name }),
            ),
            None => (
                "/v1/requests",
                json!({ "source": source, "to": "home", "deadline": deadline, "submission_id": name,
                        "via": ["a", "b", "c", "far", "tight"], "code": "2+2" }),
            ),
        };
        self.wanted.insert(name.clone(), Wanted { source, to });
        // The answer may be lost and the request taken: it is asked for again by the same id.
        let start = now();
        let id = loop {
            if let Some((200 | 201, answer)) = hosts.ask("POST", path, &body) {
                break answer["id"].as_str().unwrap().to_owned();
            }
            assert!(
                start.elapsed() < SETTLES_WITHIN,
                "{name} is not taken\n{}",
                hosts.said()
            );
            sleep(Duration::from_millis(300));
            hosts.revive();
        };
        self.ids.insert(name, id);
    }

    /// Waits until nothing more happens to any request, and returns how each ended.
    fn settle(&self, hosts: &mut Hosts) -> BTreeMap<String, Value> {
        let start = now();
        loop {
            // One that had no processor for some seconds may have lost its lease, and ended.
            hosts.revive();
            let requests = hosts.ask("GET", "/v1/requests?limit=10000", &Value::Null);
            if let Some((200, Value::Array(requests))) = requests {
                let is_over = |request: &Value| {
                    let state = request["state"].as_str().unwrap();
                    ENDS.contains(&state)
                };
                if requests.iter().all(is_over) {
                    let id = |request: &Value| request["id"].as_str().unwrap().to_owned();
                    return requests
                        .iter()
                        .map(|request| (id(request), request.clone()))
                        .collect();
                }
                let open: Vec<_> = requests
                    .iter()
                    .filter(|request| !is_over(request))
                    .collect();
                let waited = start.elapsed();
                assert!(waited < SETTLES_WITHIN, "{open:#?}\n{}", hosts.said());
            }
            assert!(
                start.elapsed() < SETTLES_WITHIN * 2,
                "nobody answers\n{}",
                hosts.said()
            );
            sleep(Duration::from_millis(500));
        }
    }

    fn check(&self, hosts: &Hosts, ended: &BTreeMap<String, Value>) {
        assert_eq!(
            ended.len(),
            self.wanted.len(),
            "some were taken twice: {ended:#?}"
        );
        for (name, wanted) in &self.wanted {
            let (id, whole) = (&self.ids[name], picture(&wanted.source));
            let state = ended[id]["state"].as_str().unwrap();
            let arrived = match &wanted.to {
                Some(to) => {
                    assert_eq!(state, "arrived", "{}\n{}", ended[id], hosts.said());
                    to.clone()
                }
                None => {
                    assert_eq!(state, "safe", "{}\n{}", ended[id], hosts.said());
                    let home = self.folder.join("home").join(name);
                    hosts.pull(id, &home);
                    home
                }
            };
            assert!(picture(&arrived) == whole, "{name} is not what it was");
        }
        let scratch = fs::read_dir(self.folder.join("scratch")).unwrap();
        let names = scratch.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let drafts: Vec<String> = names.filter(|name| name.starts_with('.')).collect();
        assert!(drafts.is_empty(), "drafts were left: {drafts:?}");
    }
}

/// Inflicts a random fault.
fn befall(hosts: &mut Hosts, dice: &mut Dice) {
    let pick = |dice: &mut Dice, of: u64| usize::try_from(dice.roll(of)).unwrap();
    match dice.roll(10) {
        0 | 1 => hosts.services[pick(dice, 2)].kill(),
        2 => {
            let seconds = 1 + dice.roll(9);
            stop_for(&hosts.services[pick(dice, 2)], seconds);
        }
        3 | 4 => hosts.movers[pick(dice, 4)].kill(),
        5 => {
            let seconds = 1 + dice.roll(14);
            stop_for(&hosts.movers[pick(dice, 4)], seconds);
        }
        6 | 7 => hosts.relays[pick(dice, 5)].kill(),
        8 => {
            hosts.database.kill().unwrap();
            sleep(Duration::from_millis(200 + dice.roll(2000)));
            hosts.database.restart().unwrap();
        }
        _ => hosts
            .namespace
            .cut_for(Duration::from_millis(500 + dice.roll(4000))),
    }
}

fn whether_leases_are_free(hosts: &mut Hosts) {
    let start = now();
    loop {
        hosts.revive();
        if let Some((200, Value::Array(movers))) = hosts.ask("GET", "/v1/movers", &Value::Null) {
            let working: u64 = movers
                .iter()
                .map(|mover| mover["working"].as_u64().unwrap())
                .sum();
            if working == 0 && movers.len() == hosts.movers.len() {
                let done: u64 = movers
                    .iter()
                    .map(|mover| mover["done"].as_u64().unwrap())
                    .sum();
                eprintln!("movers did {done} pieces since they joined last");
                return;
            }
            assert!(
                start.elapsed() < SETTLES_WITHIN,
                "leases are held: {movers:#?}"
            );
        }
        sleep(Duration::from_millis(500));
    }
}

/// Returns whether enough faults struck and enough requests were made.
fn is_much(hosts: &Hosts, faults: u64, requests: usize) -> bool {
    let (said, seconds) = (hosts.all_said(), 60 * minutes());
    let signs = [" joined", "waits while process", "safe, "];
    signs.iter().all(|sign| said.matches(sign).count() > 4)
        && faults > seconds / 4
        && requests as u64 > seconds / 15
}

#[test]
fn whatever_befalls_it_each_request_is_done_or_told_and_each_byte_is_right() {
    let length = Duration::from_secs(60 * minutes());
    let seed = setting("POSTHASTE_CHAOS_SEED", 7);
    let mut dice = Dice::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let root: &Path = folder.path();
    for name in ["data", "scratch", "home"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    let mut hosts = Hosts::start(root, Namespace::make());
    let mut user = User {
        folder: root.to_owned(),
        wanted: BTreeMap::new(),
        ids: BTreeMap::new(),
    };
    let (start, mut faults) = (now(), 0_u64);
    let mut next_submission = Duration::ZERO;
    // On a machine that is busy otherwise less befalls it in the same time.
    while start.elapsed() < length
        || start.elapsed() < length * 2 && !is_much(&hosts, faults, user.wanted.len())
    {
        if start.elapsed() >= next_submission {
            user.submit(&mut hosts, &mut dice);
            next_submission = start.elapsed() + SUBMIT_EVERY;
        }
        befall(&mut hosts, &mut dice);
        faults += 1;
        sleep(FAULT_EVERY);
        hosts.revive();
    }
    // Whatever was stopped goes on by now, or soon.
    for _ in 0..15 {
        hosts.revive();
        sleep(Duration::from_secs(1));
    }
    let ended = user.settle(&mut hosts);
    whether_leases_are_free(&mut hosts);
    user.check(&hosts, &ended);
    eprintln!("{} requests, {faults} faults, seed {seed}", ended.len());
    let is_much = is_much(&hosts, faults, ended.len());
    assert!(is_much, "{}", hosts.all_said());
}
