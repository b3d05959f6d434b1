//! Services whose journal is in a PostgreSQL: one leads, another takes over, and nothing is lost in
//! either migration.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::support::processes::{PATIENCE, Relay, Service, binary, failure, make_tree, now, text};
use posthaste_testbed::PostgresServer;
use serde_json::Value;

/// Returns the server of all these tests, and the address of a new database there.
fn database() -> (&'static PostgresServer, String) {
    let server = PostgresServer::shared().unwrap();
    let name = server.new_database().unwrap();
    (server, server.url(&name))
}

/// Starts a service that must wait until another ends.
fn start_standby(folder: &Path, url: &str) -> JoinHandle<Service> {
    let (folder, url) = (folder.to_owned(), url.to_owned());
    let log = folder.join("service.log");
    let before = fs::read_to_string(&log).unwrap_or_default();
    let standby = thread::spawn({
        let folder = folder.clone();
        move || Service::start_with(&folder, &["--database", &url])
    });
    let start = now();
    let said = || {
        let log = fs::read_to_string(&log).unwrap();
        log[before.len()..].to_owned()
    };
    while !said().contains("waits while process ") {
        assert!(!standby.is_finished(), "it did not wait: {}", said());
        assert!(start.elapsed() < PATIENCE, "it says nothing: {}", said());
        thread::sleep(Duration::from_millis(20));
    }
    standby
}

/// Offloads a tree to the relay, and returns the request's id.
fn offload(service: &Service, scratch: &Path) -> String {
    make_tree(scratch, 8, 7);
    let scratch = scratch.to_str().unwrap();
    let request = service.json(&[
        "offload",
        scratch,
        "--to",
        "home",
        "--deadline",
        "10m",
        "--json",
        "--via",
        "ash",
        "--code",
        "1+0",
    ]);
    request["id"].as_str().unwrap().to_owned()
}

fn stored(request: &Value) -> u64 {
    request["shares"][0]["stored"].as_u64().unwrap()
}

#[test]
fn a_standby_takes_over_from_a_leader_that_is_killed_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (_, url) = database();
    let relay = Relay::start(folder, "ash", "1G", "2M");
    let mut first = Service::start_with(folder, &["--database", &url]);
    first.add(&relay);
    let id = offload(&first, &folder.join("scratch"));
    let standby = start_standby(folder, &url);
    first.wait_until(&id, |request| stored(request) > 0);
    first.kill();

    let second = standby.join().unwrap();
    let request = second.wait_until(&id, |request| request["state"] == "safe");
    assert!(stored(&request) > 0, "{request}");
    let explained = text(&second.run(&["explain", &id]).stdout);
    assert!(
        explained.contains("It was taken"),
        "what the first said is lost: {explained}"
    );

    // A leader that is told to end hands over at once.
    let standby = start_standby(folder, &url);
    let mut second = second;
    second.process.end();
    let third = standby.join().unwrap();
    assert_eq!(third.status(&id)["state"], "safe");
    assert!(
        !third.state.join("journal.db").exists(),
        "there are two journals"
    );
}

#[test]
fn a_leader_that_slept_too_long_ends_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (_, url) = database();
    let mut first = Service::start_with(folder, &["--database", &url]);
    let standby = start_standby(folder, &url);
    // Again and again, as somebody else may let it go on.
    while !standby.is_finished() {
        first.process.signal("STOP");
        thread::sleep(Duration::from_millis(100));
    }
    let second = standby.join().unwrap();
    first.process.signal("CONT");
    assert_eq!(first.process.ended(), 1);
    let log = fs::read_to_string(folder.join("service.log")).unwrap();
    let line = log
        .lines()
        .find(|line| line.contains("another service has its lease"));
    let line = line.unwrap_or_else(|| panic!("it does not say why: {log}"));
    assert!(line.starts_with("posthaste: can't "), "{line}");
    assert_eq!(second.json(&["list", "--json"]), serde_json::json!([]));
}

fn serve(folder: &Path, url: &str, password_file: &Path) -> Output {
    let state = folder.join("state");
    let state = state.to_str().unwrap();
    binary()
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--state",
            state,
            "--database",
            url,
        ])
        .env_remove("PGPASSWORD")
        .env("PGPASSFILE", password_file)
        .output()
        .unwrap()
}

#[test]
fn the_password_comes_from_where_psql_takes_it_and_never_from_an_argument() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = PostgresServer::shared().unwrap();
    let url = server.loopback_url(&server.new_database().unwrap());
    let file = folder.join("pgpass");

    let (code, line) = failure(&serve(folder, "postgres://ann:hunter2@localhost/x", &file));
    assert!(code == 2 && line.contains(".pgpass"), "{code} {line}");
    assert!(!line.contains("hunter2"), "{line}");
    let (code, line) = failure(&serve(folder, &url, &file));
    assert!(code == 7 && line.contains(".pgpass"), "{code} {line}");
    fs::write(&file, format!("*:{}:*:*:wrong\n", server.port())).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, line) = failure(&serve(folder, &url, &file));
    assert!(code == 7 && line.contains("chmod 600"), "{code} {line}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let (code, line) = failure(&serve(folder, &url, &file));
    assert!(
        code == 7 && line.contains("password authentication failed"),
        "{code} {line}"
    );
    let nowhere = format!("postgres:///x?host={}", folder.display());
    let (code, line) = failure(&serve(folder, &nowhere, &file));
    assert!(
        code == 5 && line.contains("is PostgreSQL running"),
        "{code} {line}"
    );

    let password = PostgresServer::PASSWORD
        .replace('\\', "\\\\")
        .replace(':', "\\:");
    fs::write(&file, format!("127.0.0.1:*:*:*:{password}\n")).unwrap();
    let output = binary()
        .args(["migrate", "--dry-run", "--json", "--to", &url, "--from"])
        .arg(file_journal(folder))
        .env("PGPASSFILE", &file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Makes the journal file of a service that has ended.
fn file_journal(folder: &Path) -> PathBuf {
    let mut service = Service::start(folder);
    service.process.end();
    service.state.join("journal.db")
}

fn migrate(file: &Path, url: &str, more: &[&str]) -> Output {
    let mut command = binary();
    command.args(["migrate", "--to", url, "--from"]).arg(file);
    command.args(more).output().unwrap()
}

#[test]
fn a_service_goes_on_in_a_database_and_in_what_was_restored_from_its_backup() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (server, url) = database();
    let relay = Relay::start(folder, "ash", "1G", "100M");
    let mut service = Service::start(folder);
    service.add(&relay);
    let id = offload(&service, &folder.join("scratch"));
    service.wait_until(&id, |request| request["state"] == "safe");
    let file = service.state.join("journal.db");
    let (code, line) = failure(&migrate(&file, &url, &[]));
    assert!(code == 1 && line.contains("locked"), "{code} {line}");
    service.kill();
    // What a snapshot of the file system has is what is there after a kill.
    let copies = folder.join("backup");
    fs::create_dir(&copies).unwrap();
    let copied = Command::new("cp")
        .arg("-a")
        .arg(&service.state)
        .arg(&copies)
        .status();
    assert!(copied.unwrap().success());
    let restored = Service::start(&copies);
    assert_eq!(restored.status(&id)["state"], "safe");
    drop(restored);

    let tried = migrate(&file, &url, &["--dry-run"]);
    assert!(tried.status.success(), "{}", text(&tried.stderr));
    assert!(
        text(&tried.stdout).contains("would copy"),
        "{}",
        text(&tried.stdout)
    );
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    let name = url.split(['/', '?']).nth(3).unwrap();
    assert_eq!(server.ask(name, tables).unwrap(), "0\n");
    let moved = migrate(&file, &url, &["--json"]);
    assert!(moved.status.success(), "{}", text(&moved.stderr));
    let moved: Value = serde_json::from_slice(&moved.stdout).unwrap();
    assert_eq!(moved["rows"]["request"], 1, "{moved}");
    for more in [&[][..], &["--dry-run"]] {
        let (code, line) = failure(&migrate(&file, &url, more));
        assert!(code == 1 && line.contains("not empty"), "{code} {line}");
    }

    let kept = fs::canonicalize(&file).unwrap().with_extension("kept");
    fs::rename(&file, kept).unwrap();
    let mut service = Service::start_with(folder, &["--database", &url]);
    assert_eq!(service.status(&id)["state"], "safe");
    // The backup of `docs/operating/database.md`, made while the service runs.
    let backup = folder.join("journal.dump");
    let backup = backup.to_str().unwrap();
    server
        .said("pg_dump", &["--format=custom", "--file", backup, name])
        .unwrap();
    service.kill();
    let restored = server.new_database().unwrap();
    server
        .said("pg_restore", &["--exit-on-error", "-d", &restored, backup])
        .unwrap();
    let service = Service::start_with(folder, &["--database", &server.url(&restored)]);
    assert_eq!(service.status(&id)["state"], "safe");
    let home = folder.join("home");
    service.json(&["pull", &id, home.to_str().unwrap(), "--json"]);
    let (large, arrived) = ("scratch/large.bin", "home/large.bin");
    let read = |path| fs::read(folder.join(path)).unwrap();
    assert!(read(large) == read(arrived), "what arrived differs");
}
