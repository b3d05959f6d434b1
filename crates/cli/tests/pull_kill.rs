//! `posthaste pull`, killed with SIGKILL at random moments and run again.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[path = "support/processes.rs"]
mod processes;

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use processes::{Dice, Relay, Service, binary, make_tree, picture};

const ROUNDS: u64 = 7;

/// A pull that ends with its test.
struct Pulling(Child);

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

/// Lines of a picture that tell of regular files: they end in a digest.
fn files(lines: Vec<String>) -> BTreeSet<String> {
    let is_file = |line: &String| line.rsplit(' ').next().is_some_and(|word| word.len() == 64);
    lines.into_iter().filter(is_file).collect()
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
