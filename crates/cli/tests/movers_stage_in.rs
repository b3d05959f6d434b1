//! Real movers fetch a tree to scratch from real servers.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[path = "support/sources.rs"]
mod sources;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use sources::{Centre, chunks, command, picture, text};

/// A mover that is killed when dropped.
struct Mover(Child);

impl Mover {
    fn start(centre: &Centre, token: &PathBuf, name: &str) -> Self {
        let folder = centre.folder.path();
        let log = fs::File::create(folder.join(name).with_extension("log")).unwrap();
        let mut mover = command(folder, &centre.s3)
            .args(["mover", "--json", "--slots", "4", "--name", name])
            .args(["--server", &centre.url, "--token-file"])
            .arg(token)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(mover.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.contains(name), "it did not start: {line:?}");
        Self(mover)
    }

    fn signal(&self, signal: &str) {
        let pid = self.0.id().to_string();
        let told = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(told.unwrap().success());
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn token(centre: &Centre) -> PathBuf {
    let token = centre.folder.path().join("movers.token");
    let add = ["token", "add", "movers", "--scope", "move", "--output"];
    let made = centre.run(&[&add[..], &[token.to_str().unwrap()]].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    token
}

fn done(centre: &Centre, name: &str) -> u64 {
    let movers = centre.json(&["movers", "--json"]);
    let mut movers = movers.as_array().unwrap().iter();
    let mover = movers.find(|mover| mover["name"] == name);
    mover.map_or(0, |mover| mover["done"].as_u64().unwrap())
}

fn check_whole(centre: &Centre) {
    let whole = picture(&centre.web.files().join("run"));
    assert!(picture(&centre.scratch("input")) == whole);
    assert!(centre.holds_only(&["input"]));
}

#[test]
fn movers_fetch_one_tree_together_and_none_that_dies_or_hangs_loses_any_of_it() {
    let mut centre = Centre::with("8M", "8M", 160);
    let token = token(&centre);
    let mut dying = Mover::start(&centre, &token, "dying");
    let hanging = Mover::start(&centre, &token, "hanging");
    let _living = Mover::start(&centre, &token, "living");
    let request = centre.stage_in("input", &["--deadline", "20m"]);
    let id = request["id"].as_str().unwrap().to_owned();
    let works = |centre: &Centre| {
        let names = ["dying", "hanging", "living"];
        names.iter().all(|name| done(centre, name) > 0)
    };
    centre.wait_until(&id, |_| works(&centre));
    dying.kill();
    hanging.signal("STOP");
    let here = |request: &Value| chunks(request, "chunks_safe");
    let before = centre.wait_until(&id, |request| here(request) >= 12);
    centre.kill();
    centre.restart();
    let after = centre.json(&["status", &id, "--json"]);
    assert!(here(&after) >= here(&before));
    hanging.signal("CONT");
    centre.wait_until(&id, |request| request["state"] == "arrived");
    check_whole(&centre);
    assert!(done(&centre, "living") > 0, "{}", centre.log());
}

#[test]
fn what_a_mover_has_no_profile_for_the_service_fetches_itself() {
    let centre = Centre::with("20M", "20M", 24);
    let token = token(&centre);
    let lacking = centre.folder.path().join("other");
    fs::create_dir_all(&lacking).unwrap();
    let mover = command(&lacking, &centre.s3)
        .args(["mover", "--name", "lacking", "--server", &centre.url])
        .arg("--token-file")
        .arg(&token)
        .stderr(Stdio::null())
        .spawn();
    let _mover = Mover(mover.unwrap());
    let start = sources::now();
    while centre
        .json(&["movers", "--json"])
        .as_array()
        .unwrap()
        .is_empty()
    {
        assert!(start.elapsed() < sources::PATIENCE);
    }
    let request = centre.stage_in("input", &["--deadline", "10m"]);
    let id = request["id"].as_str().unwrap();
    centre.wait_until(id, |request| request["state"] == "arrived");
    check_whole(&centre);
    assert_eq!(done(&centre, "lacking"), 0);
    assert!(centre.log().contains("mover lacking: "), "{}", centre.log());
}
