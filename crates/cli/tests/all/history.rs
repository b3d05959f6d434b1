//! A service knows its transferred bytes by minute, hour and day, also after it was killed.

use std::{fs, path::Path, thread, time::Duration};

use crate::support::processes::{PATIENCE, Process, Relay, Service, binary, make_tree, now, text};
use serde_json::Value;

fn sum(bytes: &Value) -> u64 {
    let steps = bytes.as_array().unwrap().iter();
    steps.map(|step| step.as_u64().unwrap()).sum()
}

fn moved_on(history: &Value, path: &str) -> u64 {
    let mut paths = history["paths"].as_array().unwrap().iter();
    let path = paths.find(|on| on["path"] == path);
    path.map_or(0, |on| sum(&on["bytes"]))
}

/// Waits until so much was moved on two paths, and the journal has all of it.
fn wait_for(service: &Service, wanted: [(&str, u64); 2]) -> Value {
    let start = now();
    let asked = ["history", "--json", "--since", "1h"];
    let (mut seen, mut then) = (false, String::new());
    loop {
        let history = service.json(&asked);
        let kept_to = history["kept_to"].as_str().unwrap().to_owned();
        if seen && kept_to > then {
            return history;
        }
        if !seen
            && wanted
                .iter()
                .all(|(path, least)| moved_on(&history, path) >= *least)
        {
            (seen, then) = (true, kept_to);
        }
        assert!(start.elapsed() < PATIENCE, "{wanted:?}: {history}");
        thread::sleep(Duration::from_millis(200));
    }
}

fn start_mover(service: &Service, folder: &Path) -> Process {
    let token = folder.join("movers.token");
    let made = ["token", "add", "movers", "--scope", "move", "--output"];
    let made = service.run(&[&made[..], &[token.to_str().unwrap()]].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    let mut mover = binary();
    mover.args([
        "mover",
        "--json",
        "--name",
        "elm",
        "--server",
        &service.url,
        "--token-file",
    ]);
    Process::run(mover.arg(&token), &folder.join("elm.log"))
}

/// Stages in three mebibytes by the service itself; returns the name of their source.
fn staged_in(service: &Service, folder: &Path) -> String {
    let source = folder.join("archive");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("data"), vec![7; 3 << 20]).unwrap();
    let (from, to) = (source.to_str().unwrap(), folder.join("here"));
    let stage_in = [
        "stage-in",
        from,
        to.to_str().unwrap(),
        "--deadline",
        "10m",
        "--json",
    ];
    let came = service.json(&stage_in);
    let came = came["id"].as_str().unwrap();
    service.wait_until(came, |request| request["state"] == "arrived");
    let start = now();
    loop {
        let history = service.json(&["history", "--json"]);
        let mut paths = history["paths"].as_array().unwrap().iter();
        if let Some(other) = paths.find(|on| on["path"] != "ash") {
            return other["path"].as_str().unwrap().to_owned();
        }
        assert!(start.elapsed() < PATIENCE, "{history}");
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn what_movers_and_the_service_moved_is_known_after_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let relay = Relay::start(folder, "ash", "1G", "50M");
    let mut service = Service::start(folder);
    service.add(&relay);
    let mover = start_mover(&service, folder);
    let scratch = folder.join("run");
    make_tree(&scratch, 6, 1);
    let offload = [
        "offload",
        scratch.to_str().unwrap(),
        "--to",
        "home",
        "--via",
        "ash",
    ];
    let more = ["--deadline", "10m", "--code", "1+0", "--json"];
    let request = service.json(&[&offload[..], &more].concat());
    let id = request["id"].as_str().unwrap();
    let sent = service.wait_until(id, |request| request["state"] == "safe");
    let sent = sent["bytes"].as_u64().unwrap();
    let movers = service.json(&["movers", "--json"]);
    assert!(
        movers[0]["done"].as_u64() > Some(0) || service.has_lost_a_mover(),
        "{movers}"
    );
    drop(mover);
    let name = staged_in(&service, folder);

    let before = wait_for(&service, [("ash", sent), (&name, 3 << 20)]);
    service.kill();
    service.restart();
    let after = service.json(&["history", "--json", "--since", "1h"]);
    assert_eq!(moved_on(&after, "ash"), moved_on(&before, "ash"));
    // What a source that is slow to answer sends twice counts twice, and may come to its end after
    // the last look.
    assert!(
        moved_on(&after, &name) >= moved_on(&before, &name),
        "{after}"
    );
    assert_eq!(
        sum(&after["total"]),
        moved_on(&after, "ash") + moved_on(&after, &name)
    );
    let days = service.json(&["history", "ash", "--json", "--since", "400d"]);
    assert_eq!(
        (days["step_s"].as_u64(), moved_on(&days, "ash")),
        (Some(7 * 86400), moved_on(&after, "ash"))
    );
    assert_eq!(days["paths"].as_array().unwrap().len(), 1);

    let shown = text(&service.run(&["history"]).stdout);
    assert!(
        shown.contains("ash") && shown.contains('█') && shown.contains("total"),
        "{shown}"
    );
    let wrong = service.run(&["history", "--since", "long"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
    let wrong = service.run(&["history", "ashe"]);
    let said = text(&wrong.stderr);
    assert!(!wrong.status.success() && said.contains("ash"), "{said}");
}
