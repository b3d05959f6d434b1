//! A service starts from a backup made while it ran, although work went on elsewhere since.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use crate::support::processes::{
    PATIENCE, Relay, Service, binary, failure, make_tree, now, picture, said_by, text,
};
use posthaste_testbed::PostgresServer;
use serde_json::Value;

const RATE: &str = "2M";
/// Options of the earlier request. Both are so slow that a backup is made in the middle, until the
/// limit is lifted.
const SOON: [&str; 4] = ["--deadline", "1h", "--bwlimit", SLOW];
const LATE: [&str; 4] = ["--deadline", "2h", "--bwlimit", SLOW];
const SLOW: &str = "300k";

fn relays(folder: &Path) -> Vec<Relay> {
    let names = ["ash", "birch", "cedar"];
    let started = names.map(|name| Relay::start(folder, name, "1G", RATE));
    started.into()
}

/// Offloads a tree to the relays, and returns the request's id.
fn offload(service: &Service, source: &Path, release: &str, more: &[&str]) -> String {
    let source = source.to_str().unwrap();
    let base = ["offload", source, "--to", "home", "--json", "--code", "2+1"];
    let base = [
        &base[..],
        &["--via", "ash,birch,cedar", "--release", release],
    ]
    .concat();
    let request = service.json(&[&base[..], more].concat());
    request["id"].as_str().unwrap().to_owned()
}

/// Lifts the limit of a request.
fn let_go(service: &Service, id: &str) {
    let changed = service.run(&["modify", id, "--bwlimit", "off"]);
    assert!(changed.status.success(), "{}", text(&changed.stderr));
}

/// Returns whether each depot has some of the request.
fn is_on_all(request: &Value) -> bool {
    let mut shares = request["shares"].as_array().unwrap().iter();
    shares.all(|share| share["stored"].as_u64() > Some(0))
}

fn back_up(state: &Path, to: &Path, more: &[&str]) -> Output {
    let mut command = binary();
    command.arg("backup").arg("--state").arg(state);
    command.arg("--to").arg(to).args(more).output().unwrap()
}

/// Starts a service from a copy of a backup, as `docs/operating/backup.md` says.
fn restore(backup: &Path, folder: &Path) -> Service {
    fs::create_dir(folder).unwrap();
    let state = folder.join("service");
    let copied = Command::new("cp").arg("-a").args([backup, &state]).status();
    assert!(copied.unwrap().success());
    Service::start_with(folder, &["--source-listen", "127.0.0.1:0"])
}

fn log_of(folder: &Path) -> String {
    fs::read_to_string(folder.join("service.log")).unwrap()
}

/// Waits until the log of a service contains all of these words.
fn wait_for_words(folder: &Path, words: &[&str]) {
    let start = now();
    loop {
        let log = log_of(folder);
        if words.iter().all(|word| log.contains(word)) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{log}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Lists the files below a folder, by name.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path.clone());
            }
            found.push(path.strip_prefix(folder).unwrap().to_owned());
        }
    }
    found.sort();
    found
}

/// Lists a tree without its directories.
fn files_of(root: &Path) -> Vec<String> {
    let mut lines = picture(root);
    // Their modes begin so, in octal digits.
    lines.retain(|line| !line.contains(" 40"));
    lines
}

fn check_copy(state: &Path, backup: &Path) {
    let copied = files_below(backup);
    for name in files_below(state) {
        // What SQLite and its lock need while the file is open.
        let is_passing = name.to_string_lossy().starts_with("journal.db-");
        assert!(is_passing || copied.contains(&name), "no {name:?}");
    }
    for name in [PathBuf::new()].iter().chain(&copied) {
        let path = backup.join(name);
        let wanted = if path.is_dir() { 0o700 } else { 0o600 };
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, wanted, "{name:?}");
    }
}

#[test]
fn a_service_goes_on_from_a_copy_that_was_made_while_it_ran() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let relays = relays(folder);
    let mut service = Service::start_with(folder, &["--source-listen", "127.0.0.1:0"]);
    relays.iter().for_each(|relay| service.add(relay));
    let (one, two) = (folder.join("one"), folder.join("two"));
    make_tree(&one, 4, 1);
    make_tree(&two, 32, 2);
    let first = offload(&service, &one, "never", &LATE);
    let_go(&service, &first);
    service.wait_until(&first, |request| request["state"] == "safe");
    let second = offload(&service, &two, "never", &LATE);
    service.wait_until(&second, is_on_all);

    let backup = folder.join("backup");
    let would = back_up(&service.state, &backup, &["--dry-run"]);
    assert!(text(&would.stdout).starts_with("would copy "), "{would:?}");
    assert!(!backup.exists());
    let made = back_up(&service.state, &backup, &["--json"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(made["journal_copied"], true, "{made}");
    assert_eq!(service.status(&second)["state"], "moving");
    check_copy(&service.state, &backup);
    let (code, line) = failure(&back_up(&service.state, &backup, &[]));
    assert!(code == 1 && line.contains("it is there already"), "{line}");
    make_tree(&folder.join("three"), 1, 3);
    let third = offload(&service, &folder.join("three"), "never", &LATE);
    service.kill();

    let restored = restore(&backup, &folder.join("elsewhere"));
    let_go(&restored, &second);
    for (id, source) in [(&first, &one), (&second, &two)] {
        restored.wait_until(id, |request| request["state"] == "safe");
        let home = folder.join(format!("home-{id}"));
        restored.json(&["pull", id, home.to_str().unwrap(), "--json"]);
        assert!(picture(&home) == picture(source), "{id} differs");
    }
    // What came after the copy is not known, and its number is nobody else's.
    let (code, line) = failure(&restored.run(&["status", &third, "--json"]));
    assert!(code == 4 && line.contains(&third), "{code} {line}");
    let again = offload(&restored, &folder.join("three"), "never", &LATE);
    assert_ne!(again, third);
}

#[test]
fn what_was_released_after_the_copy_is_pulled_and_nothing_is_removed_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let relays = relays(folder);
    let mut service = Service::start(folder);
    relays.iter().for_each(|relay| service.add(relay));
    let (one, two) = (folder.join("one"), folder.join("two"));
    make_tree(&one, 24, 1);
    make_tree(&two, 24, 2);
    let before = picture(&one);
    let first = offload(&service, &one, "when-safe", &LATE);
    service.wait_until(&first, is_on_all);
    let second = offload(&service, &two, "never", &SOON);
    service.wait_until(&second, is_on_all);
    let backup = folder.join("backup");
    let made = back_up(&service.state, &backup, &[]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    for id in [&first, &second] {
        assert_eq!(service.status(id)["state"], "moving");
        let_go(&service, id);
    }
    service.wait_until(&first, |request| request["state"] == "released");
    service.kill();
    // Others come to lie where both were, of which the backup does not have all digests either: for
    // the first in another directory, as its own was released.
    for name in ["deep", "large.bin", "link"] {
        fs::rename(two.join(name), folder.join(name)).unwrap();
    }
    for (place, seed) in [(&one, 3), (&two, 4)] {
        make_tree(place, 24, seed);
    }
    let others = [one.as_path(), two.as_path()].map(files_of);
    let held = |relay: &Relay| said_by(relay).used.get();
    let held_before: Vec<u64> = relays.iter().map(held).collect();

    let elsewhere = folder.join("elsewhere");
    let restored = restore(&backup, &elsewhere);
    restored.wait_until(&first, |request| request["state"] == "safe");
    let home = folder.join("home");
    restored.json(&["pull", &first, home.to_str().unwrap(), "--json"]);
    assert!(picture(&home) == before, "what was pulled differs");
    restored.wait_until(&second, |request| request["state"] == "failed");
    let left = [one.as_path(), two.as_path()].map(files_of);
    assert!(others == left, "others were removed");
    let log = log_of(&elsewhere);
    assert!(
        log.contains("depots told what the backup does not"),
        "{log}"
    );
    assert!(
        log.contains("keeps what it holds until that expires"),
        "{log}"
    );
    let held_after: Vec<u64> = relays.iter().map(held).collect();
    let is_kept = |(before, after): (&u64, &u64)| after >= before;
    assert!(
        held_before.iter().zip(&held_after).all(is_kept),
        "{held_before:?} {held_after:?}"
    );
}

#[test]
fn one_depot_of_what_is_encrypted_is_believed_and_for_the_rest_a_fresh_copy_asks_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut relays = relays(folder);
    let mut service = Service::start(folder);
    relays.iter().for_each(|relay| service.add(relay));
    let identity = folder.join("alice");
    let made = binary().arg("keygen").arg("-o").arg(&identity).output();
    let alice = text(&made.unwrap().stdout);
    let encrypt = [&SOON[..], &["--encrypt-for", alice.trim()]].concat();
    let sources = ["plain", "secret"].map(|name| folder.join(name));
    let mut sent = Vec::new();
    for ((source, more), seed) in sources.iter().zip([&LATE[..], &encrypt]).zip(5..) {
        make_tree(source, 24, seed);
        let before = picture(source);
        let id = offload(&service, source, "when-safe", more);
        service.wait_until(&id, is_on_all);
        sent.push((id, before));
    }
    let backup = folder.join("backup");
    let made = back_up(&service.state, &backup, &[]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    for (id, _) in &sent {
        assert_eq!(service.status(id)["state"], "moving");
        let_go(&service, id);
    }
    for (id, _) in &sent {
        service.wait_until(id, |request| request["state"] == "released");
    }
    service.kill();
    relays[1..].iter_mut().for_each(Relay::kill);

    let alone = folder.join("alone");
    let mut restored = restore(&backup, &alone);
    let (plain, secret) = (&sent[0].0, &sent[1].0);
    let few = format!(
        "{plain}: can't believe the manifest of {plain}: too few depots keep the same: 1 of 2"
    );
    let told = format!("{secret}: depots told what the backup does not know");
    wait_for_words(&alone, &[&few, &told]);
    restored.kill();

    relays[1..].iter_mut().for_each(Relay::restart);
    let restored = restore(&backup, &folder.join("again"));
    for (id, before) in &sent {
        restored.wait_until(id, |request| request["state"] == "released");
        let home = folder.join(format!("home-{id}"));
        let (home_, identity) = (home.to_str().unwrap(), identity.to_str().unwrap());
        restored.json(&["pull", id, home_, "--json", "--identity", identity]);
        assert!(picture(&home) == *before, "{id} differs");
    }
}

#[test]
fn what_can_not_be_copied_is_said_in_one_line_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let service = Service::start(folder);
    let state = &service.state;
    let (code, line) = failure(&back_up(folder, &folder.join("x"), &[]));
    assert!(
        code == 4 && line.contains("no service keeps anything"),
        "{code} {line}"
    );
    let (code, line) = failure(&back_up(state, &state.join("x"), &[]));
    assert!(
        code == 2 && line.contains("in the state directory"),
        "{code} {line}"
    );
    for nowhere in ["/proc/backup", "/nowhere/backup"] {
        let (_, line) = failure(&back_up(state, Path::new(nowhere), &[]));
        assert!(line.starts_with("posthaste: can't "), "{line}");
    }
    // A disk that is full after a kilobyte.
    let full = folder.join("full");
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 2; exec \"$@\"", "sh"])
        .arg(binary().get_program())
        .args(["backup", "--state"])
        .arg(state)
        .arg("--to")
        .arg(&full)
        .output()
        .unwrap();
    let (_, line) = failure(&output);
    assert!(line.starts_with("posthaste: can't "), "{line}");
    let left = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(
        left.iter()
            .all(|name| !name.to_string_lossy().contains("full")),
        "{left:?}"
    );
    assert_eq!(service.json(&["list", "--json"]), serde_json::json!([]));
}

#[test]
fn of_a_journal_in_a_database_all_else_is_copied_and_no_second_one_is_begun_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = PostgresServer::shared().unwrap();
    let url = server.url(&server.new_database().unwrap());
    let mut service = Service::start_with(folder, &["--database", &url]);
    let backup = folder.join("backup");
    let made = back_up(&service.state, &backup, &[]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let said = text(&made.stdout);
    assert!(
        said.contains("pg_dump") && said.contains("postgres://"),
        "{said}"
    );
    assert!(!backup.join("journal.db").exists());
    check_copy(&service.state, &backup);
    service.kill();
    let output = binary()
        .args(["serve", "--listen", "127.0.0.1:0", "--state"])
        .arg(&backup)
        .output()
        .unwrap();
    let (code, line) = failure(&output);
    assert!(
        code == 1 && line.contains("give --database"),
        "{code} {line}"
    );
    drop(service);
    fs::create_dir(folder.join("elsewhere")).unwrap();
    fs::rename(&backup, folder.join("elsewhere/service")).unwrap();
    let restored = Service::start_with(&folder.join("elsewhere"), &["--database", &url]);
    assert_eq!(restored.json(&["list", "--json"]), serde_json::json!([]));
}
