//! Copies through plug-ins: both directions, killed, and with nothing left running.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, thread, time::Duration};

use posthaste_testbed::{GridFtpServer, install};

use crate::copy::{
    directions::copy_twice,
    killed::{SEED, run_and_kill, survives_kills},
    world::{
        EXACT, Exactness, World, assert_same, leftovers, lines_of, make_tree, noise, set_mtime,
    },
};

const DIRSTORE: &str = "python/posthaste-plugin-dirstore";

/// Looks, 20 ms apart, until a plug-in and its processes must have noticed that posthaste is gone:
/// two minutes.
const LOOKS_MAX: u32 = 6_000;

/// Panics unless all started plug-ins end soon; returns their number.
fn are_gone(world: &World) -> usize {
    let noted = fs::read_to_string(world.path("plug-ins")).unwrap();
    for process in noted.lines() {
        let command = PathBuf::from(format!("/proc/{process}/cmdline"));
        // What is dead and not yet buried has an empty command line.
        let is_running = || fs::read(&command).is_ok_and(|line| !line.is_empty());
        let mut looks = 0;
        while is_running() {
            looks += 1;
            assert!(looks < LOOKS_MAX, "the plug-in {process} still runs");
            thread::sleep(Duration::from_millis(20));
        }
    }
    noted.lines().count()
}

/// Counts the processes with this text in their arguments.
fn mentions(text: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(text))
        .count()
}

fn address(world: &World, name: &str) -> String {
    format!("dirstore://{}", world.path(name).display())
}

#[test]
fn local_to_a_plugin_and_back() {
    let world = World::new().with_plugin("dirstore", DIRSTORE);
    make_tree(&world.path("source"), true);
    let there = address(&world, "far/away");
    copy_twice(&world, "source/", &there);
    assert_same(&world.path("source"), &world.path("far/away"), EXACT);
    copy_twice(&world, &format!("{there}/"), "back");
    assert_same(&world.path("source"), &world.path("back"), EXACT);
    let other = address(&world, "other");
    copy_twice(&world, &format!("{there}/"), &other);
    assert_same(&world.path("source"), &world.path("other"), EXACT);
    assert!(leftovers(&world.path("far")).is_empty());
    assert_eq!(are_gone(&world), 8, "one process for each address");
    let states = world.path("home/.local/state/posthaste/unfinished");
    let states = fs::read_dir(states).map_or(0, Iterator::count);
    assert_eq!(states, 0, "records of finished uploads stay");
}

#[test]
fn an_upload_through_a_plugin_survives_kills_and_leaves_no_process() {
    let world = World::new().with_plugin("dirstore", DIRSTORE);
    let to = address(&world, "there");
    survives_kills(&world, SEED + 3, &to, Some("there"), EXACT);
    assert!(are_gone(&world) >= 4);
}

#[test]
fn local_to_gridftp_and_back() {
    install::find_debian_program(install::GLOBUS_URL_COPY).unwrap();
    let server = GridFtpServer::start().unwrap();
    let world = World::new().with_plugin("gsiftp", "gridftp/posthaste-plugin-gsiftp");
    let source = world.path("source");
    fs::create_dir_all(source.join("deep/er/empty")).unwrap();
    fs::write(source.join("zero"), "").unwrap();
    fs::write(source.join("a b+c%20d&e"), "odd").unwrap();
    fs::write(source.join("deep/large"), noise(1, 50_000_001)).unwrap();
    for index in 0..100 {
        fs::write(source.join(format!("deep/er/{index}")), noise(index, 3_000)).unwrap();
    }
    let script = source.join("script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    set_mtime(&source.join("deep/large"), 1_577_934_245, 123_456_789);
    let seconds = Exactness {
        mtime_step: Duration::from_secs(1),
        ..EXACT
    };
    let there = format!("gsiftp://{}", server.address("far/away"));
    copy_twice(&world, "source/", &there);
    assert_same(&source, &server.files().join("far/away"), seconds);
    copy_twice(&world, &format!("{there}/"), "back");
    assert_same(&source, &world.path("back"), seconds);
    let other = format!("gsiftp://{}", server.address("other"));
    copy_twice(&world, &format!("{there}/"), &other);
    assert_same(&source, &server.files().join("other"), seconds);
    assert!(leftovers(&server.files()).is_empty());
    are_gone(&world);
}

#[test]
fn an_upload_to_gridftp_survives_kills_and_leaves_no_process() {
    let server = GridFtpServer::start().unwrap();
    let world = World::new().with_plugin("gsiftp", "gridftp/posthaste-plugin-gsiftp");
    fs::create_dir(world.path("source")).unwrap();
    fs::write(world.path("source/large"), noise(3, 300 << 20)).unwrap();
    let to = format!("gsiftp://{}", server.address("there"));
    run_and_kill(&world, "source/", &to, 120 << 20);
    are_gone(&world);
    let mut looks = 0;
    while mentions(&server.url("")) > 0 {
        looks += 1;
        assert!(looks < LOOKS_MAX, "globus-url-copy still runs");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(!server.files().join("there/large").exists());
    let last = world.copy(["source/", &to]);
    let sent = last["bytes"].as_u64().unwrap();
    assert!(sent < 300 << 20, "all was sent again: {last}");
    let second = Exactness {
        mtime_step: Duration::from_secs(1),
        ..EXACT
    };
    assert_same(&world.path("source"), &server.files().join("there"), second);
}

#[test]
fn a_scheme_without_plugin_is_said_to_have_none() {
    let world = World::new();
    let output = world.cp(["tape://silo/a", "here"]).output().unwrap();
    assert!(!output.status.success());
    let lines = lines_of(&output);
    assert!(lines.contains("posthaste-plugin-tape"), "{lines}");
}
