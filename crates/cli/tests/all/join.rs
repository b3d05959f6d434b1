//! Relays register themselves: an invitation, a registration, and their reports from then on, with
//! real processes that are killed, move and end.

use crate::support::processes;

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Output, time::Duration};

use crate::support::processes::{
    RELAY_AHEAD_MIN, Relay, Service, binary, failure, make_tree, now, picture, text,
};
use jiff::ToSpan;
use serde_json::{Value, json};

const OUTLET: [&str; 2] = ["--source-listen", "127.0.0.1:0"];

/// Exit code for failures that a retry can't help.
const FATAL: i32 = 7;

/// Writes an invitation and reads it.
fn invite(service: &Service, folder: &Path, name: &str) -> (String, String) {
    let file = folder.join(format!("{name}.invite"));
    let file = file.to_str().unwrap().to_owned();
    let said = service.run(&["depot", "invite", name, "--output", &file, "--domain", name]);
    assert!(said.status.success(), "{}", text(&said.stderr));
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let written = fs::read_to_string(&file).unwrap();
    let token = written.split("token = \"").nth(1).unwrap();
    (file, token.split('"').next().unwrap().to_owned())
}

/// Runs a relay that can't join by its file, and returns its output.
fn join(folder: &Path, name: &str, file: &str) -> Output {
    binary()
        .args([
            "relay",
            "--capacity",
            "1G",
            "--listen",
            "127.0.0.1:0",
            "--dir",
        ])
        .arg(folder.join(name))
        .args(["--join", file])
        .output()
        .unwrap()
}

fn is_known(depot: &Value) -> bool {
    depot["state"] == "up" && depot["joined"] == true
}

/// Starts a service, and a relay that has joined it as `campus` with an invitation; returns them
/// with the invitation's file, and its token.
fn joined(folder: &Path, rate: &str) -> (Service, Relay, (String, String)) {
    joined_with(folder, rate, &[])
}

/// Starts a service and a relay that joins it with more arguments.
fn joined_with(folder: &Path, rate: &str, more: &[&str]) -> (Service, Relay, (String, String)) {
    // Where relays come in stays the same when the service is started again.
    let free = format!("127.0.0.1:{}", posthaste_testbed::free_port().unwrap());
    let service = Service::start_with(folder, &["--source-listen", &free]);
    let (file, token) = invite(&service, folder, "campus");
    let relay = Relay::start_with(
        folder,
        "lent",
        "1G",
        rate,
        &[&["--join", &file], more].concat(),
    );
    let start = now();
    loop {
        let depots = service.json(&["depot", "list", "--json"]);
        if depots.as_array().unwrap().iter().any(is_known) {
            return (service, relay, (file, token));
        }
        assert!(start.elapsed() < processes::PATIENCE, "{depots}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_invited_relay_is_in_the_books_and_stays_there_when_it_moves() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let source = folder.join("results");
    make_tree(&source, 24, 3);
    let before = picture(&source);
    let (service, mut relay, (file, _)) = joined(folder, "6M");
    let depot = &service.json(&["depot", "list", "--json"])[0];
    assert_eq!(
        (&depot["name"], &depot["domain"]),
        (&"campus".into(), &"campus".into())
    );
    assert_eq!(depot["version"], env!("CARGO_PKG_VERSION"));

    // Somebody else got hold of the invitation.
    let (code, line) = failure_after_ready(&join(folder, "thief", &file));
    let is_told = line.contains("another relay has used");
    assert!(code == FATAL && is_told, "{code} {line}");
    let after = &service.json(&["depot", "list", "--json"])[0];
    for fact in ["url", "fingerprint"] {
        assert_eq!(after[fact], depot[fact]);
    }

    let source = source.to_str().unwrap();
    let words = "offload SOURCE --to elsewhere --via campus --code 1+0 --deadline 5m --json";
    let words = words.split(' ');
    let words = words.map(|word| if word == "SOURCE" { source } else { word });
    service.json(&words.collect::<Vec<_>>());
    service.wait_until("r1", |request| {
        request["shares"][0]["stored"].as_u64() > Some(1)
    });
    relay.kill();
    relay.restart_elsewhere();
    service.wait_until("r1", |request| request["state"] == "safe");
    let url = relay.process.ready["url"].as_str().unwrap();
    service.wait_for_depots(|depot| depot["url"] == url && is_known(depot));
    let home = folder.join("arrived");
    service.json(&["pull", "r1", home.to_str().unwrap(), "--json"]);
    assert_eq!(picture(&home), before);
}

#[test]
fn a_relay_says_how_it_is_to_a_service_that_was_killed_and_says_good_bye() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (mut service, mut relay, (_, token)) = joined(folder, "60M");
    service.kill();
    service.restart();
    let directory = relay.directory.to_str().unwrap().to_owned();
    let drain = |more: &[&str]| {
        let mut command = binary();
        let told = command.args(["relay", "drain", "--dir", &directory]);
        assert!(told.args(more).output().unwrap().status.success());
    };
    // It is heard as soon as it has something to say.
    drain(&[]);
    service.wait_for_depots(|depot| is_known(depot) && depot["drain"]["says_itself"] == true);
    drain(&["--off"]);
    service.wait_for_depots(|depot| is_known(depot) && depot["drain"].is_null());

    // It is asked nothing for a minute and a half after it spoke last: a good-bye is heard at once.
    let left = now();
    relay.process.end();
    service.wait_for_depots(|depot| depot["state"] == "down");
    assert!(left.elapsed() < Duration::from_secs(75));

    for log in ["service.log", "lent.log"] {
        let log = fs::read_to_string(folder.join(log)).unwrap();
        assert!(!log.contains(&token), "{log}");
    }
    for process in fs::read_dir("/proc").unwrap() {
        let words = fs::read(process.unwrap().path().join("cmdline")).unwrap_or_default();
        assert!(!text(&words).contains(&token));
    }
}

/// Returns the one line after the line about adding the relay by hand.
fn failure_after_ready(output: &Output) -> (i32, String) {
    assert!(text(&output.stdout).contains("posthaste depot add"));
    failure(output)
}

/// Returns hours by the clock of relays, from some minutes from now until some later.
fn hours(from_min: i64, until_min: i64) -> String {
    let there = jiff::tz::Offset::from_seconds(RELAY_AHEAD_MIN * 60).unwrap();
    let now = there.to_datetime(jiff::Timestamp::now());
    let at = |minutes: i64| (now + minutes.minutes()).strftime("%H:%M").to_string();
    format!("{}-{}", at(from_min), at(until_min))
}

fn says(depot: &Value, hours: &str) -> bool {
    depot["name"] == "campus"
        && depot["own_hours"] == json!({"open": hours, "ahead_of_utc_min": RELAY_AHEAD_MIN})
}

fn stored_at(request: &Value, depot: &str) -> u64 {
    let mut shares = request["shares"].as_array().unwrap().iter();
    let share = shares.find(|share| share["depot"] == depot);
    share.map_or(0, |share| share["stored"].as_u64().unwrap())
}

#[test]
fn a_relay_is_used_in_the_hours_it_says_and_not_at_others() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let source = folder.join("results");
    make_tree(&source, 8, 3);
    let source = source.to_str().unwrap();
    let (closed, open) = (hours(120, 240), hours(-60, 180));
    let (mut service, mut relay, _) = joined_with(folder, "60M", &["--hours", &closed]);
    assert_eq!(relay.process.ready["hours"], closed.as_str());
    service.wait_for_depots(|depot| says(depot, &closed) && depot["hours"] == "always");
    let listed = text(&service.run(&["depot", "list"]).stdout);
    assert!(
        listed.contains(&format!("says {closed} (UTC+05:45)")),
        "{listed}"
    );

    // It is open too late for this, in time for that, and another one is open now.
    let ask = |verb: &str, via: &str, deadline: &str| {
        let words = "--to elsewhere --code 1+0 --json --via".split(' ');
        let asked = [verb, source].into_iter().chain(words);
        let asked = asked.chain([via, "--deadline", deadline]);
        service.run(&asked.collect::<Vec<_>>())
    };
    let refused = ask("plan", "campus", "30m");
    assert_eq!(refused.status.code(), Some(11), "{}", text(&refused.stderr));
    assert!(ask("offload", "campus", "6h").status.success());
    let spare = Relay::start(folder, "spare", "1G", "60M");
    service.add(&spare);
    assert!(ask("offload", "campus,spare", "30m").status.success());
    let other = service.wait_until("r2", |request| request["state"] == "safe");
    assert!(stored_at(&other, "spare") > 0 && stored_at(&other, "campus") == 0);
    let waits = service.status("r1");
    assert!(
        waits["state"] == "moving" && stored_at(&waits, "campus") == 0,
        "{waits}"
    );

    // The service is started again, and hears it again; then the hours are others.
    service.kill();
    service.restart();
    service.wait_for_depots(|depot| depot["name"] == "spare" || says(depot, &closed));
    assert_eq!(stored_at(&service.status("r1"), "campus"), 0);
    relay.kill();
    relay.restart_with(&["--hours", &open]);
    let done = service.wait_until("r1", |request| request["state"] == "safe");
    assert!(stored_at(&done, "campus") > 0);
    service.wait_for_depots(|depot| depot["name"] == "spare" || says(depot, &open));
    relay.kill();
    relay.restart_with(&[]);
    service.wait_for_depots(|depot| depot["own_hours"].is_null());
}

#[test]
fn what_are_no_hours_ends_a_relay_before_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("lent");
    let mut command = binary();
    command.args(["relay", "--capacity", "1G", "--hours", "20-26", "--dir"]);
    let output = command.arg(&dir).output().unwrap();
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(
        line.contains("`20-26` are no hours: write 20-06") && !dir.exists(),
        "{line}"
    );
}

#[test]
fn what_is_no_good_invitation_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let service = Service::start_with(folder, &OUTLET);
    let (file, token) = invite(&service, folder, "campus");
    assert!(
        service
            .run(&["depot", "invite", "campus", "--withdraw"])
            .status
            .success()
    );
    let (code, line) = failure_after_ready(&join(folder, "late", &file));
    assert!(
        code == FATAL && line.contains("withdrawn") && !line.contains(&token),
        "{code} {line}"
    );
    let (code, line) = failure(&service.run(&["depot", "invite", "campus", "--withdraw"]));
    assert!(
        code == 4 && line.contains("the invitation of campus"),
        "{code} {line}"
    );

    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("token = ", "tokn = ")).unwrap();
    let (code, line) = failure(&join(folder, "garbled", &file));
    assert!(
        code != 0 && line.contains("the invitation") && !line.contains(&token),
        "{line}"
    );
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (_, line) = failure(&join(folder, "open", &file));
    assert!(line.contains("others can read it"), "{line}");

    let (code, line) = failure(&service.run(&["depot", "invite", "../token"]));
    assert!(code != 0, "{line}");
    let (code, line) = failure(&service.run(&["depot", "invite", "campus", "--level", "12"]));
    assert!(code != 0 && line.contains("1 to 9"), "{line}");
}

#[test]
fn a_service_that_relays_can_not_reach_invites_none() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path());
    let (code, line) = failure(&service.run(&["depot", "invite", "campus"]));
    assert!(code != 0 && line.contains("--source-listen"), "{line}");
}

#[test]
fn another_relay_takes_no_name_of_one_that_released_data_needs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let source = folder.join("results");
    make_tree(&source, 3, 1);
    let (service, _campus, _) = joined(folder, "60M");
    let words = "--to elsewhere --via campus --code 1+0 --deadline 5m --release when-safe --json";
    let mut asked = vec!["offload", source.to_str().unwrap()];
    asked.extend(words.split(' '));
    service.json(&asked);
    service.wait_until("r1", |request| request["state"] == "released");
    let before = service.json(&["depot", "list", "--json"])[0]["fingerprint"].clone();
    let other = Relay::start(folder, "other", "1G", "60M");
    let word = |key: &str| other.process.ready[key].as_str().unwrap().to_owned();
    let (url, key, secret) = (word("url"), word("fingerprint"), word("secret_file"));
    let added = ["depot", "add", "campus", &url, "--fingerprint", &key];
    let output = service.run(&[&added[..], &["--secret-file", &secret]].concat());
    let said = text(&output.stderr);
    assert!(
        !output.status.success() && said.contains("r1 would not be safe"),
        "{said}"
    );
    // Nor by an invitation.
    let (file, _) = invite(&service, folder, "campus");
    let (code, line) = failure_after_ready(&join(folder, "third", &file));
    assert!(
        code == 1 && line.contains("r1 would not be safe"),
        "{code} {line}"
    );
    let after = service.json(&["depot", "list", "--json"]);
    assert_eq!(after[0]["fingerprint"], before, "{after}");
    assert_eq!(
        service.json(&["status", "r1", "--json"])["state"],
        "released"
    );
}
