//! `posthaste pull`, killed with SIGKILL at random moments and run again.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use crate::support::processes::{Dice, PATIENCE, Relay, Service, binary, make_tree, now, picture};

const ROUNDS: u64 = 7;
/// Size beyond the data that is unfinished when a pull is killed.
const ENOUGH_BYTES: u64 = 40 << 20;

/// Pull that ends with its test.
struct Pulling(Child);

impl Pulling {
    fn ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Pulling {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(service: &Service, home: &Path) -> Pulling {
    let child = binary()
        .args(["pull", "r1", "--service", &service.url, "--token-file"])
        .arg(service.state.join("token"))
        .arg(home)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Pulling(child)
}

/// Returns the lines of a picture about regular files: they end in a digest.
fn files(lines: Vec<String>) -> BTreeSet<String> {
    let is_file = |line: &String| line.rsplit(' ').next().is_some_and(|word| word.len() == 64);
    lines.into_iter().filter(is_file).collect()
}

/// Returns the bytes that files below use on the disk.
fn bytes_below(directory: &Path) -> u64 {
    let items = fs::read_dir(directory).into_iter().flatten().flatten();
    items
        .map(|item| match item.metadata() {
            Ok(found) if found.is_dir() => bytes_below(&item.path()),
            Ok(found) => found.blocks() * 512,
            // It has another name by now.
            Err(_) => 0,
        })
        .sum()
}

#[test]
fn a_pull_killed_at_any_moment_goes_on_and_shows_no_half_file() {
    let folder = tempfile::tempdir().unwrap();
    let relays: Vec<Relay> = ["ash", "birch", "cedar"]
        .iter()
        .map(|name| Relay::start(folder.path(), name, "1G", "200M"))
        .collect();
    let service = Service::start(folder.path());
    relays.iter().for_each(|relay| service.add(relay));
    let (scratch, home) = (folder.path().join("scratch"), folder.path().join("home"));
    make_tree(&scratch, 160, 11);
    let before = picture(&scratch);
    let request = service.json(&[
        "offload",
        scratch.to_str().unwrap(),
        "--to",
        "home",
        "--deadline",
        "10m",
        "--via",
        "ash,birch,cedar",
        "--code",
        "2+1",
        "--json",
        "--wait",
    ]);
    assert_eq!(request["missed"], false, "{request}");
    let whole = files(before.clone());
    let mut dice = Dice::new(5);
    for round in 0..ROUNDS {
        let mut pulling = start(&service, &home);
        let millis = 30 + dice.roll(300);
        std::thread::sleep(Duration::from_millis(millis));
        // The last kill finds something of which the next run can say that it was there.
        let begun = now();
        while round + 1 == ROUNDS && !pulling.ended() && bytes_below(&home) < ENOUGH_BYTES {
            assert!(begun.elapsed() < PATIENCE, "nothing is pulled");
            std::thread::sleep(Duration::from_millis(5));
        }
        pulling.0.kill().unwrap();
        pulling.0.wait().unwrap();
        if !home.exists() {
            continue;
        }
        let shown = files(
            picture(&home)
                .into_iter()
                .filter(|line| !line.starts_with('.'))
                .collect(),
        );
        let wrong: Vec<_> = shown.difference(&whole).collect();
        assert!(
            wrong.is_empty(),
            "round {round}, killed after {millis} ms: {wrong:#?}"
        );
    }
    let report = service.json(&["pull", "r1", home.to_str().unwrap(), "--json"]);
    assert!(report["skipped_chunks"].as_u64().unwrap() > 0, "{report}");
    let after = picture(&home);
    let differing: Vec<_> = after
        .iter()
        .chain(&before)
        .filter(|line| !after.contains(line) || !before.contains(line))
        .collect();
    assert!(differing.is_empty(), "{differing:#?}");
    let left = fs::read_dir(&home).unwrap().filter(|item| {
        let name = item.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with(".posthaste")
    });
    assert_eq!(left.count(), 0, "something unfinished was left");
}
