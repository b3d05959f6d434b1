//! `kill -9` at random moments: stored data is not sent again, and everything arrives.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use posthaste_testbed::{S3Server, SshServer, share_of};
use serde_json::Value;

use crate::copy::world::{EXACT, Exactness, World, assert_same, leftovers, noise};

/// Kills of each copy, by day a third of them.
const ROUNDS: u64 = 6;

/// Seed of the moments; a failing one is printed.
pub const SEED: u64 = 20_261_120;

/// Rate so slow that no copy ends while this test is not scheduled.
const RATE: u64 = 10 << 20;
/// Bytes left when a copy is killed: the copy continues for so long while this test is not
/// scheduled.
const SPARE: u64 = 6 * RATE;
const LANES: u64 = 2;
const LARGE: usize = 120 << 20;
/// Most bytes that a copy sends between two kills.
const ROUND_BYTES_MAX: u64 = 60 << 20;
const MIDDLE: usize = 40 << 20;
const SEGMENT_BYTES_MAX: u64 = 16 << 20;

/// Bytes sent and not yet noted at a kill: a segment in each lane.
const IN_FLIGHT_MAX: u64 = LANES * SEGMENT_BYTES_MAX;

/// Longest wait until a copy reports its progress.
const PATIENCE: Duration = Duration::from_secs(300);

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the copy and kills it after it has sent `enough`; returns the bytes sent.
pub fn run_and_kill(world: &World, from: &str, to: &str, enough: u64) -> u64 {
    run_at_and_kill(world, RATE, from, to, enough)
}

/// Runs a copy with another limit, in bytes a second, and kills it.
pub fn run_at_and_kill(world: &World, rate: u64, from: &str, to: &str, enough: u64) -> u64 {
    let (rate, lanes) = (rate.to_string(), LANES.to_string());
    let child = world
        .cp([
            from,
            to,
            "--json",
            "--bwlimit",
            &rate,
            "--transfers",
            &lanes,
        ])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut child = KillOnDrop(child);
    let lines = BufReader::new(child.0.stderr.take().unwrap()).lines();
    let (sender, receiver) = mpsc::sync_channel(1000);
    let reading = thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let figures: Value = serde_json::from_str(&line).unwrap_or_default();
            assert!(figures["error"].is_null(), "{line}");
            let _ = sender.send(figures["bytes"].as_u64().unwrap_or(0));
        }
    });
    let mut sent = 0;
    while sent < enough {
        match receiver.recv_timeout(PATIENCE) {
            Ok(figure) => sent = figure,
            Err(error) => panic!("only {sent} bytes of {enough} were sent: {error}"),
        }
    }
    child.0.kill().unwrap();
    drop(child);
    // The last line may be torn and read as nothing.
    sent = receiver.iter().max().unwrap_or(sent).max(sent);
    reading.join().unwrap();
    sent
}

pub fn survives_kills(
    world: &World,
    seed: u64,
    to: &str,
    back: Option<&str>,
    exactness: Exactness,
) {
    let source = world.path("source");
    let rounds = share_of(ROUNDS);
    let large = usize::try_from((rounds + 1) * ROUND_BYTES_MAX).unwrap();
    fs::create_dir_all(source.join("many")).unwrap();
    fs::write(source.join("large"), noise(seed, large)).unwrap();
    fs::write(source.join("middle"), noise(seed + 1, MIDDLE)).unwrap();
    for index in 0..200 {
        fs::write(source.join(format!("many/{index}")), noise(index, 50_000)).unwrap();
    }
    let total = (large + MIDDLE + 200 * 50_000) as u64;
    let mut random = seed;
    let (mut sent_before, mut arrived_min) = (0, 0);
    for round in 0..rounds {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let enough = (36 << 20) + (random >> 33) % (24 << 20);
        if sent_before + enough + SPARE > total {
            // A kill came late, and too little is left for another.
            break;
        }
        let sent = run_and_kill(world, "source/", to, enough);
        sent_before += sent;
        eprintln!("seed {seed} round {round}: killed after {sent} bytes");
        arrived_min += sent.saturating_sub(IN_FLIGHT_MAX);
        for (name, len) in [("large", large), ("middle", MIDDLE)] {
            if let Some(back) = back
                && let Ok(found) = fs::metadata(world.path(back).join(name))
            {
                assert_eq!(
                    found.len(),
                    len as u64,
                    "half a file has its final name, seed {seed}"
                );
            }
        }
    }
    let last = world.copy(["source/", to]);
    let sent = last["bytes"].as_u64().unwrap();
    assert!(
        sent <= total - arrived_min,
        "{sent} of {total} bytes were sent though {arrived_min} had arrived, seed {seed}: {last}"
    );
    match back {
        Some(back) => {
            assert_same(&source, &world.path(back), exactness);
            assert!(leftovers(&world.path(back)).is_empty());
        }
        None => {
            world.copy([&format!("{to}/"), "back"]);
            assert_same(&source, &world.path("back"), exactness);
        }
    }
    assert_eq!(world.copy(["source/", to])["bytes"], 0);
}

#[test]
fn a_local_copy_survives_kills() {
    let world = World::new();
    survives_kills(&world, SEED, "there", Some("there"), EXACT);
}

#[test]
fn the_same_line_goes_on_although_the_tree_it_makes_is_there() {
    let world = World::new();
    let source = world.path("source");
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("large"), noise(SEED, LARGE)).unwrap();
    fs::write(source.join("middle"), noise(SEED + 1, MIDDLE)).unwrap();
    run_and_kill(&world, "source", "new", 36 << 20);
    assert!(world.path("new").is_dir());
    world.copy(["source", "new"]);
    assert_same(&source, &world.path("new"), EXACT);
    assert!(leftovers(&world.path("new")).is_empty());
    // That copy has ended: the next goes into the directory, as with cp.
    world.copy(["source", "new"]);
    assert_same(&source, &world.path("new/source"), EXACT);
}

#[test]
fn an_upload_to_s3_survives_kills() {
    let server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    let exactness = Exactness {
        directory_attributes: false,
        ..EXACT
    };
    survives_kills(&world, SEED + 1, "s3://testbed/run", None, exactness);
}

#[test]
fn an_upload_to_sftp_survives_kills() {
    let server = SshServer::start().unwrap();
    let world = World::new().with_ssh(&server);
    let to = server.address(&world.path("there").display().to_string());
    let exactness = Exactness {
        mtime_step: Duration::from_secs(1),
        ..EXACT
    };
    survives_kills(&world, SEED + 2, &to, Some("there"), exactness);
}

#[test]
fn what_took_the_source_s_place_is_not_mixed_with_what_was_copied() {
    let world = World::new();
    fs::write(world.path("source"), noise(1, LARGE)).unwrap();
    crate::copy::world::set_mtime(&world.path("source"), 1_600_000_000, 7);
    run_and_kill(&world, "source", "there", 40 << 20);
    fs::write(world.path("other"), noise(2, LARGE)).unwrap();
    crate::copy::world::set_mtime(&world.path("other"), 1_600_000_000, 7);
    fs::rename(world.path("other"), world.path("source")).unwrap();
    world.copy(["source", "there"]);
    assert!(fs::read(world.path("there")).unwrap() == noise(2, LARGE));
    assert!(leftovers(&world.path(".")).is_empty());
}

#[test]
fn a_directory_of_the_user_s_own_is_not_what_a_killed_copy_began() {
    let world = World::new();
    fs::create_dir(world.path("tree")).unwrap();
    fs::write(world.path("tree/large"), noise(1, LARGE)).unwrap();
    run_and_kill(&world, "tree", "new", 20 << 20);
    fs::remove_dir_all(world.path("new")).unwrap();
    fs::create_dir(world.path("new")).unwrap();
    fs::write(world.path("new/large"), "precious").unwrap();
    world.copy(["tree", "new"]);
    assert_eq!(fs::read(world.path("new/large")).unwrap(), b"precious");
    assert!(fs::read(world.path("new/tree/large")).unwrap() == noise(1, LARGE));
}

#[test]
fn a_tree_that_is_continued_gets_its_own_mode_and_stays_private_meanwhile() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let mode = |path: &str| fs::metadata(world.path(path)).unwrap().permissions().mode() & 0o777;
    for folder in ["tree", "tree/private"] {
        fs::create_dir(world.path(folder)).unwrap();
        fs::set_permissions(world.path(folder), fs::Permissions::from_mode(0o700)).unwrap();
    }
    fs::write(world.path("tree/private/large"), noise(1, LARGE)).unwrap();
    run_and_kill(&world, "tree", "new", 20 << 20);
    assert_eq!((mode("new"), mode("new/private")), (0o700, 0o700));
    world.copy(["tree", "new"]);
    assert_eq!((mode("new"), mode("new/private")), (0o700, 0o700));
    assert!(fs::read(world.path("new/private/large")).unwrap() == noise(1, LARGE));
    let server = SshServer::start().unwrap();
    let world = world.with_ssh(&server);
    let there = server.address(&world.path("far").display().to_string());
    run_and_kill(&world, "tree", &there, 20 << 20);
    let mode = |path: &str| fs::metadata(world.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("far"), mode("far/private")), (0o700, 0o700));
}
