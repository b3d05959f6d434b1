//! Host to host: posthaste starts itself at the other end over SSH, and nothing stays behind.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use posthaste_testbed::SshServer;

use crate::copy::{
    directions::copy_twice,
    killed::run_at_and_kill,
    world::{EXACT, World, assert_same, leftovers, lines_of, make_tree, noise},
};

/// Longest time until a started process is gone.
const GONE_WITHIN: Duration = Duration::from_secs(300);

/// Writes a program that runs posthaste with further arguments, so that its processes can be told
/// apart.
pub fn wrapper(world: &World, name: &str, arguments: &str) -> String {
    let path = world.path(name);
    let program = env!("CARGO_BIN_EXE_posthaste");
    fs::write(
        &path,
        format!("#!/bin/sh\ncommand=$1\nshift\nexec {program} \"$command\" {arguments} \"$@\"\n"),
    )
    .unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// Returns a port range that only this process writes this way, to find its peers by it. Others may
/// use some of its ports, never all.
fn own_ports() -> String {
    let id = std::process::id();
    format!("{}-{}", 20_000 + id % 5_000, 26_000 + id / 5_000)
}

/// Returns the peers that were started with these ports.
fn peers(ports: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        let is_peer = words.len() > 3 && words[1] == b"peer";
        if is_peer && words.contains(&ports.as_bytes()) {
            found.push(id);
        }
    }
    found
}

fn wait_until_gone(ports: &str) {
    let until = now() + GONE_WITHIN;
    while !peers(ports).is_empty() {
        assert!(now() < until, "{:?} still run", peers(ports));
        thread::sleep(Duration::from_millis(50));
    }
}

fn wait_for_peer(ports: &str) -> u32 {
    let until = now() + GONE_WITHIN;
    loop {
        if let Some(&id) = peers(ports).first() {
            return id;
        }
        assert!(now() < until, "no peer was started");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a copy reports in this file that bytes were sent.
pub fn wait_until_moving(told: &Path) {
    let until = now() + GONE_WITHIN;
    let has_sent = |line: &str| {
        let figures: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        figures["bytes"].as_u64() > Some(0)
    };
    while !fs::read_to_string(told).unwrap().lines().any(has_sent) {
        assert!(now() < until, "nothing is sent");
        thread::sleep(Duration::from_millis(50));
    }
}

#[expect(clippy::disallowed_methods, reason = "tests wait for real processes")]
fn now() -> Instant {
    Instant::now()
}

pub fn at(server: &SshServer, path: &Path) -> String {
    format!("{}@127.0.0.1:{}", server.user(), path.display())
}

/// Returns a world that reaches the server with this program.
pub fn world_with(server: &SshServer, program: &str) -> World {
    World::new()
        .with_ssh(server)
        .with_arguments(&["--ssh-option", &format!("Port={}", server.port())])
        .with_arguments(&["--posthaste-path", program])
}

#[test]
fn trees_go_there_and_back_as_they_are() {
    let server = SshServer::start().unwrap();
    let world = world_with(&server, env!("CARGO_BIN_EXE_posthaste"));
    let ports = own_ports();
    let world = world.with_arguments(&["--ports", &ports]);
    make_tree(&world.path("source"), true);
    let there = at(&server, &world.path("far/away"));
    copy_twice(&world, "source/", &there);
    assert_same(&world.path("source"), &world.path("far/away"), EXACT);
    copy_twice(&world, &format!("{there}/"), "back");
    assert_same(&world.path("source"), &world.path("back"), EXACT);
    copy_twice(
        &world,
        &format!("{there}/"),
        &at(&server, &world.path("third")),
    );
    assert_same(&world.path("source"), &world.path("third"), EXACT);
    assert!(leftovers(&world.path("far")).is_empty());
    wait_until_gone(&ports);
}

#[test]
fn closed_ports_cost_speed_and_a_line() {
    let server = SshServer::start().unwrap();
    let plain = World::new();
    // An address set aside for documents: nobody answers there.
    for (name, arguments) in [
        ("nowhere", "--announce 192.0.2.1"),
        ("portless", "--no-port"),
    ] {
        let program = wrapper(&plain, name, arguments);
        let world = world_with(&server, &program);
        make_tree(&world.path("source"), true);
        let there = at(&server, &world.path("far"));
        // The name of the host would still lead there.
        let output = world.cp(["-v", "source/", &there]).output().unwrap();
        assert!(output.status.success(), "{}", lines_of(&output));
        assert_same(&world.path("source"), &world.path("far"), EXACT);
        if name == "portless" {
            let line =
                "posthaste: ports to 127.0.0.1 are closed: going through ssh, which is slower";
            let lines = lines_of(&output);
            assert_eq!(lines.matches(line).count(), 1, "{lines}");
            world.copy([&format!("{there}/"), "back"]);
            assert_same(&world.path("source"), &world.path("back"), EXACT);
        }
    }
}

#[test]
fn a_host_without_posthaste_is_reached_by_sftp() {
    let server = SshServer::start().unwrap();
    let world = world_with(&server, "/no/such/posthaste");
    fs::write(world.path("file"), "x").unwrap();
    let there = at(&server, &world.path("copied"));
    let output = world.cp(["file", &there]).output().unwrap();
    let lines = lines_of(&output);
    assert!(output.status.success(), "{lines}");
    assert!(
        lines.starts_with("posthaste: no posthaste on 127.0.0.1 ("),
        "{lines}"
    );
    assert!(lines.contains("): using SFTP, which is slower"), "{lines}");
    assert_eq!(fs::read(world.path("copied")).unwrap(), b"x");
}

#[test]
fn versions_that_do_not_meet_are_refused_in_one_line() {
    let server = SshServer::start().unwrap();
    for (oldest, newest, who) in [
        (0, 0, "the other end is too old"),
        (7, 9, "this end is too old"),
    ] {
        let plain = World::new();
        let program = plain.path("other");
        let line = format!(
            "posthaste-peer {{\"oldest\":{oldest},\"newest\":{newest},\"release\":\"9.9\",\
             \"address\":null,\"port\":0,\"fingerprint\":\"?\",\"secret\":\"?\"}}"
        );
        fs::write(
            &program,
            format!("#!/bin/sh\necho '{line}'\ncat > /dev/null\n"),
        )
        .unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let world = world_with(&server, &program.display().to_string());
        fs::write(world.path("file"), "x").unwrap();
        let there = at(&server, &world.path("copied"));
        let output = world.cp(["file", &there]).output().unwrap();
        let lines = lines_of(&output);
        assert!(!output.status.success(), "{lines}");
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(
            lines.contains(who) && lines.contains("release 9.9"),
            "{lines}"
        );
        assert!(!world.path("copied").exists());
    }
}

#[test]
fn kills_at_either_end_leave_nothing_running_and_the_copy_goes_on() {
    let server = SshServer::start().unwrap();
    let world = world_with(&server, env!("CARGO_BIN_EXE_posthaste"));
    let ports = own_ports();
    let world = world.with_arguments(&["--ports", &ports]);
    let size = 160_u64 << 20;
    fs::write(world.path("large"), noise(4, 160 << 20)).unwrap();
    let there = at(&server, &world.path("far"));
    // More than what two lanes have on their way: some of it is there for good.
    run_at_and_kill(&world, 8 << 20, "large", &there, 64 << 20);
    wait_until_gone(&ports);
    assert!(!world.path("far").exists(), "half a file has its name");
    // Now the other end, while the client goes on and starts it again. At first it is so slow that
    // it can't be done by then.
    fs::write(world.path("limit"), "2M").unwrap();
    let told = world.path("told");
    let client = world
        .cp(["large", &there, "--bwlimit", "@limit", "--json"])
        .stdout(Stdio::piped())
        .stderr(fs::File::create(&told).unwrap())
        .spawn()
        .unwrap();
    let peer = wait_for_peer(&ports);
    wait_until_moving(&told);
    let killed = Command::new("kill")
        .args(["-9", &peer.to_string()])
        .status();
    assert!(killed.unwrap().success());
    fs::write(world.path("limit"), "off").unwrap();
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success());
    let figures: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let resumed = figures["resumedBytes"].as_u64().unwrap();
    assert!(resumed > 0 && resumed < size, "{figures}");
    assert!(
        fs::read(world.path("large")).unwrap() == fs::read(world.path("far")).unwrap(),
        "the copy differs"
    );
    wait_until_gone(&ports);
    let parent = world.path("");
    assert!(
        leftovers(&parent)
            .iter()
            .all(|path| path.starts_with(world.path("home")))
    );
}
