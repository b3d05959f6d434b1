//! Two machines write one name on a server: each gets a true report, and the content is of one of
//! them.

use std::{
    fs,
    process::{Child, Stdio},
};

use posthaste_testbed::SshServer;

use crate::copy::{
    host::wait_until_moving,
    world::{World, leftovers, noise, set_mtime},
};

const SIZE: usize = 64 << 20;

/// Makes a home of its own, and a file that has the same name on each machine.
fn machine(server: &SshServer, seed: u64) -> World {
    let world = World::new().with_ssh(server);
    fs::write(world.path("large"), noise(seed, SIZE)).unwrap();
    // Servers tell whole seconds.
    set_mtime(&world.path("large"), 1_700_000_000 + seed, 0);
    // So slow that it would take minutes.
    fs::write(world.path("limit"), "256K").unwrap();
    world
}

fn begin(world: &World, there: &str) -> Child {
    let child = world
        .cp(["large", there, "--bwlimit", "@limit", "--json"])
        .stdout(Stdio::null())
        .stderr(fs::File::create(world.path("told")).unwrap())
        .spawn()
        .unwrap();
    wait_until_moving(&world.path("told"));
    child
}

/// Begins both copies, and lets the first end while the other is half way; returns the other.
fn first_ends(first: &World, second: &World, there: &str) -> Child {
    let mut copying = begin(first, there);
    let other = begin(second, there);
    fs::write(first.path("limit"), "off").unwrap();
    assert!(copying.wait().unwrap().success());
    other
}

#[test]
fn of_two_that_write_one_name_the_killed_one_harms_nothing() {
    let server = SshServer::start().unwrap();
    let (first, second) = (machine(&server, 1), machine(&server, 2));
    let there = server.address(&first.path("far/large").display().to_string());
    let mut other = first_ends(&first, &second, &there);
    other.kill().unwrap();
    other.wait().unwrap();
    let found = fs::read(first.path("far/large")).unwrap();
    assert!(found == noise(1, SIZE), "it is not what the first sent");
    // Continued, it replaces what it found when it began anew.
    second.copy(["large", &there]);
    let found = fs::read(first.path("far/large")).unwrap();
    assert!(found == noise(2, SIZE), "it is not what the second sent");
    assert!(leftovers(&first.path("far")).is_empty());
}

#[test]
fn of_two_that_write_one_name_the_later_one_is_told() {
    let server = SshServer::start().unwrap();
    let (first, second) = (machine(&server, 1), machine(&server, 2));
    let there = server.address(&first.path("far/large").display().to_string());
    let mut other = first_ends(&first, &second, &there);
    fs::write(second.path("limit"), "off").unwrap();
    assert!(!other.wait().unwrap().success());
    let told = fs::read_to_string(second.path("told")).unwrap();
    assert!(told.contains("another wrote it meanwhile"), "{told}");
    let found = fs::read(first.path("far/large")).unwrap();
    assert!(found == noise(1, SIZE), "it is not what the first sent");
}
