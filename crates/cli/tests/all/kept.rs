//! Data that stays for whoever waits and pulls: a service that restarts, files that exist, space of
//! depots.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Stdio},
    sync::mpsc,
    time::Duration,
};

use crate::support::processes::{Process, Relay, Service, binary, failure, text};

/// Starts a command against a service without waiting for it.
fn begin(service: &Service, arguments: &[&str]) -> Child {
    let mut command = binary();
    command
        .args(arguments)
        .args(["--service", &service.url, "--token-file"]);
    let command = command
        .arg(service.state.join("token"))
        .stdout(Stdio::piped());
    command.stderr(Stdio::null()).spawn().unwrap()
}

fn offload(service: &Service, run: &Path, more: &[&str]) {
    let fixed = [
        "offload",
        run.to_str().unwrap(),
        "--to",
        "home",
        "--via",
        "ash",
    ];
    let taken = service.run(&[&fixed, &["--deadline", "1h"][..], more].concat());
    assert!(taken.status.success(), "{}", text(&taken.stderr));
}

#[test]
fn who_watches_rides_out_a_restart_of_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let mut relay = Relay::start(folder.path(), "ash", "1G", "20K");
    let mut service = Service::start(folder.path());
    service.add(&relay);
    let run = folder.path().join("run");
    fs::write(&run, vec![7; 1 << 20]).unwrap();
    offload(&service, &run, &["--best-effort"]);
    let paused = service.run(&["pause", "r1"]);
    assert!(paused.status.success(), "{}", text(&paused.stderr));
    let mut waiting = [&["watch", "r1", "--json"][..], &["watch", "--json"]];
    let mut waiting = waiting
        .each_mut()
        .map(|arguments| begin(&service, arguments));
    let [mut said, whole] = waiting
        .each_mut()
        .map(|child| BufReader::new(child.stdout.take().unwrap()));
    let mut first = String::new();
    said.read_line(&mut first).unwrap();
    assert!(first.contains("\"seq\""), "{first}");
    let (tell, told) = mpsc::sync_channel(1_000);
    std::thread::spawn(move || {
        for line in whole.lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                break;
            }
        }
    });
    // Who watches the service hears nothing of before: something happens until it hears.
    while told.recv_timeout(Duration::from_secs(1)).is_err() {
        service.run(&["resume", "r1"]);
        service.run(&["pause", "r1"]);
    }
    service.kill();
    service.restart();
    relay.restart_at("60M");
    let resumed = service.run(&["resume", "r1"]);
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(waiting[0].wait().unwrap().success(), "{rest}");
    assert_eq!(
        rest.lines()
            .filter(|line| line.contains(r#""name":"safe""#))
            .count(),
        1,
        "{rest}"
    );
    let mut lines = told.iter();
    assert!(
        lines.any(|line| line.contains(r#""name":"safe""#)),
        "the service went away for good"
    );
    waiting[1].kill().unwrap();
    waiting[1].wait().unwrap();
}

#[test]
fn a_pull_replaces_nothing_unasked_and_space_is_given_back_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let relay = Relay::start(folder.path(), "ash", "1G", "60M");
    let service = Service::start(folder.path());
    service.add(&relay);
    let (run, home) = (folder.path().join("run"), folder.path().join("home"));
    for root in [&run, &home] {
        fs::create_dir(root).unwrap();
        fs::write(root.join("same"), "same").unwrap();
    }
    for (name, ours, theirs) in [("size", "longer", "s"), ("content", "ours", "mine")] {
        fs::write(run.join(name), ours).unwrap();
        fs::write(home.join(name), theirs).unwrap();
    }
    fs::write(run.join("new"), "new").unwrap();
    std::os::unix::fs::symlink("same", run.join("link")).unwrap();
    fs::write(home.join("link"), "no link").unwrap();
    offload(&service, &run, &["--wait"]);
    let home = home.to_str().unwrap();
    let pulled = service.run(&["pull", "r1", home]);
    let said = text(&pulled.stderr);
    assert_eq!(pulled.status.code(), Some(6), "{said}");
    let stays = "another one is there (--overwrite replaces it)";
    assert_eq!(said.matches(stays).count(), 3, "{said}");
    let content = |name: &str| fs::read_to_string(Path::new(home).join(name)).unwrap();
    for (name, there) in [
        ("size", "s"),
        ("content", "mine"),
        ("link", "no link"),
        ("new", "new"),
    ] {
        assert_eq!(content(name), there);
    }
    let (code, refused) = failure(&service.run(&["forget", "r1"]));
    assert!(
        code == 1 && refused.contains("nobody pulled all of it yet"),
        "{refused}"
    );
    let pulled = service.run(&["pull", "r1", home, "--overwrite"]);
    assert!(pulled.status.success(), "{}", text(&pulled.stderr));
    assert!(
        text(&pulled.stdout).contains("`posthaste forget r1`"),
        "{}",
        text(&pulled.stdout)
    );
    for (name, there) in [("size", "longer"), ("content", "ours"), ("link", "same")] {
        assert_eq!(content(name), there);
    }
    assert!(files_in(&relay.directory.join("datasets")) > 0);
    let forgotten = service.run(&["forget", "r1"]);
    assert!(forgotten.status.success(), "{}", text(&forgotten.stderr));
    service.wait_until("r1", |request| {
        let mut shares = request["shares"].as_array().unwrap().iter();
        shares.all(|share| share["stored_bytes"] == 0)
    });
    service.wait_for_depots(|_| files_in(&relay.directory.join("datasets")) == 0);
    let (code, said) = failure(&service.run(&["pull", "r1", home]));
    assert!(
        code == 4 && said.contains("depots removed it, as `posthaste forget` asked"),
        "{said}"
    );
}

#[test]
fn a_service_without_its_journal_begins_anew_only_where_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let relay = Relay::start(folder.path(), "ash", "1G", "60M");
    let mut service = Service::start(folder.path());
    service.add(&relay);
    service.kill();
    let state = service.state.clone();
    let start = |more: &[&str]| {
        let mut command = binary();
        command.args(["serve", "--json", "--listen", "127.0.0.1:0", "--state"]);
        command.arg(&state).args(more);
        command
    };
    let log = folder.path().join("log");
    drop(Process::run(&mut start(&[]), &log));
    remove_journal(&state);
    let (code, said) = failure(&start(&[]).output().unwrap());
    assert!(
        code == 1 && said.contains("its journal is empty or missing"),
        "{said}"
    );
    assert!(said.contains("--new"), "{said}");
    assert!(!state.join("journal.db").exists());
    let (_, again) = failure(&start(&[]).output().unwrap());
    assert_eq!(
        again, said,
        "a start that was refused leaves no journal that would be taken"
    );
    drop(Process::run(&mut start(&["--new"]), &log));
    // It has begun, though nothing was asked of it.
    drop(Process::run(&mut start(&[]), &log));
    remove_journal(&state);
    fs::remove_dir_all(state.join("secrets")).unwrap();
    fs::write(state.join("datasets/r1.list"), "").unwrap();
    let (code, said) = failure(&start(&[]).output().unwrap());
    assert!(code == 1 && said.contains("datasets/ there has"), "{said}");
}

fn remove_journal(state: &Path) {
    for file in fs::read_dir(state).unwrap() {
        let file = file.unwrap().path();
        let name = file.file_name().unwrap().to_str().unwrap();
        if name.starts_with("journal.db") {
            fs::remove_file(file).unwrap();
        }
    }
}

fn files_in(folder: &Path) -> usize {
    let all = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    all.map(|path| if path.is_dir() { files_in(&path) } else { 1 })
        .sum()
}
