//! A dataset's whole way through real relays and a real service, with everything that goes wrong.

mod left_out;
mod staying;
mod terms;

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::support::processes::{
    Dice, PATIENCE, Relay, Service, failure, fullest, make_tree, now, picture, received, text,
};
use serde_json::Value;

/// Three or four relays, a service that knows them, and a tree on scratch.
struct Centre {
    folder: tempfile::TempDir,
    relays: Vec<Relay>,
    service: Service,
    before: Vec<String>,
}

impl Centre {
    fn with(relays: &[(&str, &str)], megabytes: usize, seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let relays: Vec<Relay> = relays
            .iter()
            .map(|(name, rate)| Relay::start(folder.path(), name, "1G", rate))
            .collect();
        let service = Service::start(folder.path());
        relays.iter().for_each(|relay| service.add(relay));
        let scratch = folder.path().join("scratch");
        make_tree(&scratch, megabytes, seed);
        let before = picture(&scratch);
        Self {
            folder,
            relays,
            service,
            before,
        }
    }

    fn scratch(&self) -> PathBuf {
        self.folder.path().join("scratch")
    }

    fn offload(&self, more: &[&str]) -> Value {
        let scratch = self.scratch();
        let names: Vec<&str> = self
            .relays
            .iter()
            .map(|relay| relay.name.as_str())
            .collect();
        let via = names.join(",");
        let mut arguments = vec![
            "offload",
            scratch.to_str().unwrap(),
            "--to",
            "home",
            "--deadline",
            "10m",
            "--json",
            "--via",
            &via,
        ];
        arguments.extend_from_slice(more);
        self.service.json(&arguments)
    }

    /// Pulls to a fresh folder and checks that everything arrived.
    fn pull_and_compare(&self, id: &str) -> Value {
        self.pull_rest(id, &[]).0
    }

    /// Pulls a dataset without these files, and compares it with the rest. Returns the report, and
    /// the messages.
    fn pull_rest(&self, id: &str, left_out: &[&str]) -> (Value, String) {
        let home = self.folder.path().join("arrived");
        let pull = ["pull", id, home.to_str().unwrap(), "--json"];
        let pulled = self.service.run(&pull);
        let said = text(&pulled.stderr);
        let code = if left_out.is_empty() { 0 } else { 6 };
        assert_eq!(pulled.status.code(), Some(code), "{said}");
        for name in left_out {
            assert!(said.contains(&format!("not in it: {name}\n")), "{said}");
        }
        let report = serde_json::from_slice(&pulled.stdout).unwrap();
        let after = picture(&home);
        let differs = |line: &&String| !after.contains(line) || !self.before.contains(line);
        let differing: Vec<_> = after.iter().chain(&self.before).filter(differs).collect();
        assert!(differing.is_empty(), "{differing:#?}");
        (report, said)
    }

    /// Returns the total bytes of bodies that the relays received since they started, by their own
    /// count.
    fn received(&self) -> u64 {
        received(&self.relays)
    }
}

/// Most bytes sent twice for each kill: three depots with eight connections each, a fragment of 512
/// KiB on every one, and a manifest for each.
const IN_FLIGHT_MAX: u64 = 3 * 8 * (512 << 10) + 3 * (64 << 10);

fn stored_bytes(directory: &Path) -> u64 {
    let mut total = 0;
    let mut waiting = vec![directory.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else {
                continue;
            };
            if found.is_dir() {
                waiting.push(entry.path());
            } else {
                total += found.len();
            }
        }
    }
    total
}

fn state(request: &Value) -> &str {
    request["state"].as_str().unwrap()
}

#[test]
fn a_dataset_leaves_scratch_and_comes_home_whole() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "50M"), ("cedar", "40M")], 24, 1);
    let request = centre.offload(&["--code", "2+1", "--release", "when-safe", "--wait"]);
    assert_eq!(state(&request), "released");
    assert_eq!(request["missed"], false);
    assert!(!centre.scratch().exists(), "scratch was not released");
    let report = centre.pull_and_compare("r1");
    assert_eq!(report["rebuilt_chunks"], 0);
    let explained = text(&centre.service.run(&["explain", "r1"]).stdout);
    for said in [
        " r1 was asked for: ",
        "as 2+1 over ash, birch or cedar; scratch is to be released then.",
        "It was taken: 3 depots at once: p90 finish",
        " it was safe, ",
        " scratch was released.",
        "It lay on scratch for",
    ] {
        assert!(
            explained.contains(said),
            "`{said}` is missing in\n{explained}"
        );
    }
    let decisions = centre.service.json(&["explain", "r1", "--json"]);
    assert_eq!(decisions[0]["what"], "admitted", "{decisions}");
    centre
        .service
        .wait_until("r1", |request| state(request) == "delivered");
}

#[test]
fn a_relay_that_dies_half_way_costs_nothing() {
    let relays = [
        ("ash", "4M"),
        ("birch", "4M"),
        ("cedar", "4M"),
        ("dune", "4M"),
    ];
    let mut centre = Centre::with(&relays, 24, 2);
    // Half way is long: somebody must come to see it.
    let limit = ["--bwlimit", "1500K"];
    let more = ["--code", "2+1", "--release", "when-safe"];
    centre.offload(&[&more[..], &limit].concat());
    let request = centre
        .service
        .wait_until("r1", |request| fullest(request).1 > 12);
    centre.relays[fullest(&request).0].kill();
    let lifted = centre.service.run(&["modify", "r1", "--bwlimit", "off"]);
    assert!(lifted.status.success(), "{}", text(&lifted.stderr));
    let request = centre
        .service
        .wait_until("r1", |request| state(request) == "released");
    assert!(
        request["chunks_repaired"].as_u64().unwrap() > 0,
        "{request}"
    );
    centre.pull_and_compare("r1");
}

#[test]
fn a_service_killed_at_any_moment_goes_on_where_it_was() {
    let seed = 7;
    for round in 0..7 {
        let mut dice = Dice::new(seed * 100 + round);
        let relays = [("ash", "8M"), ("birch", "8M"), ("cedar", "8M")];
        let mut centre = Centre::with(&relays, 16, round);
        centre.offload(&["--code", "2+1", "--release", "when-safe"]);
        let kills = 2;
        for _ in 0..kills {
            std::thread::sleep(std::time::Duration::from_millis(dice.roll(1500)));
            centre.service.kill();
            centre.service.restart();
        }
        let request = centre
            .service
            .wait_until("r1", |request| state(request) == "released");
        assert_eq!(
            request["missed"], false,
            "seed {seed} round {round}: {request}"
        );
        centre.pull_and_compare("r1");
        let coded = request["bytes"].as_u64().unwrap() * 3 / 2;
        let twice = centre.received().saturating_sub(coded);
        assert!(
            twice <= IN_FLIGHT_MAX * kills,
            "seed {seed} round {round}: {twice} B sent twice"
        );
    }
}

#[test]
fn a_relay_killed_at_any_moment_and_started_again_is_used_again() {
    // A lost depot is left alone for seconds, so rounds mostly wait: they do so side by side.
    std::thread::scope(|scope| {
        for round in 0..3 {
            scope.spawn(move || kill_and_restart_a_relay(11, round));
        }
    });
}

fn kill_and_restart_a_relay(seed: u64, round: u64) {
    let mut dice = Dice::new(seed * 100 + round);
    let relays = [("ash", "8M"), ("birch", "8M"), ("cedar", "8M")];
    let mut centre = Centre::with(&relays, 16, round);
    centre.offload(&["--code", "2+1", "--release", "when-safe"]);
    std::thread::sleep(std::time::Duration::from_millis(dice.roll(1500)));
    let victim = usize::try_from(dice.roll(3)).unwrap();
    centre.relays[victim].kill();
    std::thread::sleep(std::time::Duration::from_millis(dice.roll(1500)));
    centre.relays[victim].restart();
    let request = centre
        .service
        .wait_until("r1", |request| state(request) == "released");
    assert_eq!(
        request["missed"], false,
        "seed {seed} round {round}: {request}"
    );
    centre.pull_and_compare("r1");
}

#[test]
fn a_corrupted_fragment_is_noticed_and_rebuilt() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M"), ("cedar", "60M")], 8, 3);
    centre.offload(&["--code", "2+1", "--wait"]);
    // One fragment of each chunk, wherever it lies: whichever depots are read, some of it is found
    // there.
    for (place, relay) in (0..).zip(&centre.relays) {
        let is_chosen = |chunk: usize| (chunk / 2) % centre.relays.len() == place;
        assert!(corrupt_fragments(&relay.directory, is_chosen) > 1);
    }
    let report = centre.pull_and_compare("r1");
    assert!(
        report["corrupt_fragments"].as_u64().unwrap() > 0,
        "{report}"
    );
    assert!(report["rebuilt_chunks"].as_u64().unwrap() > 0, "{report}");
}

/// Flips a byte in the middle of every large file below `directory` of a chosen chunk.
fn corrupt_fragments(directory: &Path, is_chosen: impl Fn(usize) -> bool) -> usize {
    let mut count = 0;
    let mut waiting = vec![directory.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if entry.metadata().unwrap().len() > 10_000
                && chunk_of(&path).is_some_and(&is_chosen)
            {
                let mut bytes = fs::read(&path).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0x55;
                fs::write(&path, bytes).unwrap();
                count += 1;
            }
        }
    }
    count
}

/// Returns the chunk whose fragment a relay keeps in this file, by its name.
fn chunk_of(path: &Path) -> Option<usize> {
    let name = path.file_name()?.to_str()?;
    name.split('.').next()?.parse().ok()
}

#[test]
fn a_cancelled_request_leaves_its_source_and_nothing_at_the_depots() {
    let centre = Centre::with(&[("ash", "1M"), ("birch", "1M"), ("cedar", "1M")], 48, 6);
    centre.offload(&["--code", "2+1", "--release", "when-safe"]);
    centre.service.wait_until("r1", |request| {
        request["shares"][0]["stored"]
            .as_u64()
            .is_some_and(|stored| stored > 1)
    });
    let output = centre.service.run(&["cancel", "r1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    centre
        .service
        .wait_until("r1", |request| state(request) == "cancelled");
    assert_eq!(picture(&centre.scratch()), centre.before);
    let start = now();
    while centre
        .relays
        .iter()
        .any(|relay| stored_bytes(&relay.directory) > 1 << 20)
    {
        assert!(start.elapsed() < PATIENCE, "the depots did not forget");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let (code, line) = failure(&centre.service.run(&["cancel", "r1"]));
    assert_eq!(
        (code, line.contains("already cancelled")),
        (1, true),
        "{line}"
    );
}

#[test]
fn the_destination_takes_chunks_itself_when_that_is_fast_enough() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M"), ("home", "60M")], 8, 10);
    let scratch = centre.scratch();
    let request = centre.service.json(&[
        "offload",
        scratch.to_str().unwrap(),
        "--to",
        "home",
        "--deadline",
        "10m",
        "--via",
        "ash,birch",
        "--code",
        "1+0",
        "--wait",
        "--json",
    ]);
    let is_delivered = |request: &Value| state(request) == "delivered";
    assert!(matches!(state(&request), "safe" | "delivered"), "{request}");
    centre.service.wait_until("r1", is_delivered);
    let explained = text(&centre.service.run(&["explain", "r1"]).stdout);
    assert!(explained.contains("direct path suffices"), "{explained}");
    centre.pull_and_compare("r1");
}

#[test]
fn with_a_code_a_fast_destination_may_be_lost_as_any_depot() {
    let depots = ["ash", "birch", "cedar"].map(|name| (name, "20M"));
    let mut centre = Centre::with(&[&depots[..], &[("home", "200M")]].concat(), 8, 21);
    let scratch = centre.scratch();
    let asked = [
        "offload",
        scratch.to_str().unwrap(),
        "--to",
        "home",
        "--via",
        "ash,birch,cedar",
    ];
    let more = [
        "--code",
        "2+1",
        "--deadline",
        "10m",
        "--keep",
        "1d",
        "--release",
        "when-safe",
    ];
    let request = centre
        .service
        .json(&[&asked[..], &more, &["--wait", "--json"]].concat());
    let is_gone = matches!(state(&request), "released" | "delivered");
    assert!(is_gone && !scratch.exists(), "{request}");
    centre.relays[3].kill();
    let home = centre.relays[3].directory.clone();
    fs::remove_dir_all(home).unwrap();
    centre.pull_and_compare("r1");
}

#[test]
fn an_optimizer_by_name_governs_the_request_and_is_explained() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M"), ("cedar", "60M")], 8, 12);
    let fixed = ["--code", "2+1", "--optimizer", "fixed:2,1,1", "--wait"];
    let request = centre.offload(&fixed);
    assert_eq!(state(&request), "safe");
    let shown = centre.service.json(&["status", "r1", "--json"]);
    assert_eq!(shown["optimizer"], "fixed:2,1,1");
    let explained = text(&centre.service.run(&["explain", "r1"]).stdout);
    for said in [
        "optimizer fixed:2,1,1: the user asked for it.",
        "how many fragments were on their way at once: ash 2",
    ] {
        assert!(explained.contains(said), "{explained}");
    }
    let decisions = centre.service.json(&["explain", "r1", "--json"]);
    let is_choice = |decision: &Value| {
        decision["what"] == "ash: 2 fragments at once" && decision["reason"] == "asked for"
    };
    assert!(
        decisions.as_array().unwrap().iter().any(is_choice),
        "{decisions}"
    );
    centre.pull_and_compare("r1");
    assert_eq!(centre.offload(&["--code", "2+1"])["optimizer"], "auto");
    let scratch = centre.scratch();
    let wrong = [
        "offload",
        scratch.to_str().unwrap(),
        "--to",
        "home",
        "--deadline",
        "10m",
    ];
    let wrong = [&wrong[..], &["--via", "ash", "--optimizer", "best"]].concat();
    let output = centre.service.run(&wrong);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("`best` is no optimizer: there are auto, scc"),
        "{said}"
    );
}

#[test]
fn submitting_twice_with_one_id_is_submitting_once() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M")], 2, 11);
    let more = ["--code", "1+1", "--submission-id", "run-7"];
    let (first, second) = (centre.offload(&more), centre.offload(&more));
    assert_eq!(first["id"], second["id"]);
    assert_eq!(
        centre
            .service
            .json(&["list", "--json"])
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn an_empty_dataset_is_safe_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let relay = Relay::start(folder.path(), "ash", "10M", "10M");
    let service = Service::start(folder.path());
    service.add(&relay);
    let scratch = folder.path().join("scratch");
    fs::create_dir_all(scratch.join("empty")).unwrap();
    fs::write(scratch.join("zero"), b"").unwrap();
    let before = picture(&scratch);
    let request = service.json(&[
        "offload",
        scratch.to_str().unwrap(),
        "--to",
        "home",
        "--deadline",
        "10m",
        "--via",
        "ash",
        "--release",
        "when-safe",
        "--wait",
        "--json",
    ]);
    assert_eq!(state(&request), "released");
    let home = folder.path().join("home");
    service.json(&["pull", "r1", home.to_str().unwrap(), "--json"]);
    assert_eq!(picture(&home), before);
}
