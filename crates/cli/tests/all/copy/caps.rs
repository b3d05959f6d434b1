//! The caps of profiles, at servers that count.

use std::{
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

use posthaste_testbed::{S3Server, WebFace, WebServer};

use crate::copy::world::{EXACT, Exactness, World, assert_same, noise};

/// Exactness of WebDAV.
const BYTES: Exactness = Exactness {
    mtime_step: Duration::from_secs(1 << 40),
    directory_attributes: false,
};

/// Exactness of S3.
const OBJECTS: Exactness = Exactness {
    directory_attributes: false,
    ..EXACT
};

/// Longest time for a copy that a lost change or a deadlock would hold up for longer or for good.
const PATIENCE: Duration = Duration::from_secs(240);

/// Interval between two looks at a server or a copy.
const LOOK_EVERY: Duration = Duration::from_millis(20);

fn make_files(world: &World, (many, small): (usize, usize), large: usize) {
    let source = world.path("source");
    fs::create_dir_all(source.join("many")).unwrap();
    for index in 0..many {
        let bytes = noise(index as u64, small);
        fs::write(source.join(format!("many/{index}")), bytes).unwrap();
    }
    fs::write(source.join("large"), noise(7, large)).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "a test's clock")]
fn now() -> Instant {
    Instant::now()
}

/// Counts the calls that the server refused because too many came at once.
fn refused(server: &WebServer) -> usize {
    let log = server.log();
    log.lines().filter(|line| line.contains("\" 503 ")).count()
}

#[test]
fn no_more_requests_are_under_way_than_a_profile_allows() {
    let server = WebServer::start().unwrap();
    let most = WebServer::NARROW_REQUESTS;
    let address = server.address(WebFace::DavNarrow, "");
    let profile = |caps: &str| format!("[dav]\nurl = \"{address}\"\n{caps}");
    let world = World::new().with_profiles(&profile(&format!("connections_max = {most}\n")));
    make_files(&world, (12, 3_000_000), 9_000_000);
    let many = ["--transfers", "16"];
    let there = world.copy(["source/", "dav:there", many[0], many[1]]);
    assert_eq!(there["retries"], 0, "{there}");
    let back = world.copy(["dav:there/", "back", many[0], many[1]]);
    assert_eq!(back["retries"], 0, "{back}");
    assert_eq!(refused(&server), 0);
    assert_same(&world.path("source"), &world.path("back"), BYTES);
    // The server does count: without the cap it refuses.
    world.set_profiles(&profile(""));
    let begin = || {
        let mut copy = world.cp(["dav:there/", "free", many[0], many[1], "--ignore-times"]);
        copy.stdout(Stdio::null()).stderr(Stdio::null());
        copy.spawn().unwrap()
    };
    let mut free = begin();
    // However it would end: some files may be refused too often.
    let began = now();
    while refused(&server) == 0 {
        assert!(
            began.elapsed() < PATIENCE,
            "the server never refused anything"
        );
        if free.try_wait().unwrap().is_some() {
            free = begin();
        }
        std::thread::sleep(LOOK_EVERY);
    }
    free.kill().unwrap();
    free.wait().unwrap();
}

#[test]
fn a_rate_holds_and_follows_the_file() {
    let server = WebServer::start().unwrap();
    let address = server.address(WebFace::Dav, "");
    let profile = |rate: &str| format!("[dav]\nurl = \"{address}\"\nrate_max = \"{rate}\"\n");
    let world = World::new().with_profiles(&profile("4M"));
    make_files(&world, (20, 60_000), 12_000_000);
    let began = now();
    world.copy(["source/", "dav:there"]);
    let took = began.elapsed();
    // 13 MB at 4 MiB a second are 3 s.
    assert!(took > Duration::from_secs(2), "it took {took:?}");

    // At this rate it would take ten minutes, and the change is all that ends it sooner.
    world.set_profiles(&profile("20K"));
    let began = now();
    let mut child = world
        .cp(["dav:there/", "back"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert!(child.try_wait().unwrap().is_none(), "it was not held");
    world.set_profiles(&profile("1G"));
    assert!(child.wait().unwrap().success());
    let took = began.elapsed();
    assert!(took < PATIENCE, "the change was lost: {took:?}");
    assert_same(&world.path("source"), &world.path("back"), BYTES);
}

#[test]
fn a_cap_is_followed_that_was_not_there_at_first() {
    let server = WebServer::start().unwrap();
    let address = server.address(WebFace::Dav, "");
    let profile = |caps: &str| format!("[dav]\nurl = \"{address}\"\n{caps}");
    let world = World::new().with_profiles(&profile(""));
    make_files(&world, (2, 1_000), 6_000_000);
    // Until the cap is there, another limit keeps it from being done before.
    fs::write(world.path("limit"), "20K").unwrap();
    let mut child = world
        .cp(["source/", "dav:there", "--bwlimit", "@limit"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    world.set_profiles(&profile("rate_max = \"20K\"\nconnections_max = 2\n"));
    // Long enough that it sees the cap, also where it has no processor for some seconds.
    std::thread::sleep(Duration::from_secs(8));
    fs::write(world.path("limit"), "off").unwrap();
    std::thread::sleep(Duration::from_secs(4));
    assert!(child.try_wait().unwrap().is_none(), "it was not held");
    world.set_profiles(&profile(""));
    assert!(child.wait().unwrap().success());
    world.copy(["dav:there/", "back"]);
    assert_same(&world.path("source"), &world.path("back"), BYTES);
}

#[test]
fn a_copy_within_one_capped_place_comes_to_its_end() {
    let server = S3Server::start().unwrap();
    let (endpoint, key, secret) = (
        server.endpoint(),
        S3Server::ACCESS_KEY,
        S3Server::SECRET_KEY,
    );
    let capped = |name: &str| {
        format!(
            "[{name}]\nendpoint = \"{endpoint}\"\naccess_key_id = \"{key}\"\n\
             secret_access_key = \"{secret}\"\nconnections_max = 1\n"
        )
    };
    let profiles = [capped("one"), capped("other")].concat();
    let world = World::new().with_profiles(&profiles);
    make_files(&world, (10, 60_000), 20_000_000);
    let bucket = S3Server::BUCKET;
    let (from, to) = (format!("s3://{bucket}/from"), format!("s3://{bucket}/to"));
    world.copy(["source/", &from, "--profile", "one"]);
    // Where both ends are one place, what is read and what is written wait for the same turn.
    for (to, profiles) in [
        (format!("{to}/1"), &["--profile", "one"][..]),
        (
            format!("{to}/2"),
            &["--profile", "one", "--source-profile", "other"],
        ),
    ] {
        let from = format!("{from}/");
        let longest = ["--max-duration", "240s"];
        let arguments = [&[&*from, &*to][..], &longest, profiles].concat();
        let ended = world.copy(arguments);
        assert_eq!(ended["exitCode"], 0, "{ended}");
        world.copy([&format!("{to}/"), "back", "--profile", "one"]);
        assert_same(&world.path("source"), &world.path("back"), OBJECTS);
        fs::remove_dir_all(world.path("back")).unwrap();
    }
}

#[test]
fn each_end_has_the_profile_it_was_given() {
    let server = S3Server::start().unwrap();
    let (endpoint, key, secret) = (
        server.endpoint(),
        S3Server::ACCESS_KEY,
        S3Server::SECRET_KEY,
    );
    let profile = |name: &str, secret: &str| {
        format!(
            "[{name}]\nendpoint = \"{endpoint}\"\naccess_key_id = \"{key}\"\n\
             secret_access_key = \"{secret}\"\n"
        )
    };
    let profiles = [profile("good", secret), profile("bad", "wrong")].concat();
    let world = World::new().with_profiles(&profiles);
    fs::write(world.path("file"), "x").unwrap();
    let bucket = S3Server::BUCKET;
    let (from, to) = (format!("s3://{bucket}/a"), format!("s3://{bucket}/b"));
    world.copy(["file", &from, "--profile", "good"]);
    let run = |source: &str, profile: &str| {
        let ends = [&*from, &*to, "--source-profile", source];
        let output = world.cp(ends).args(["--profile", profile]).output();
        output.unwrap().status.code()
    };
    assert_eq!(run("bad", "good"), Some(7));
    assert_eq!(run("good", "bad"), Some(7));
    assert_eq!(run("good", "good"), Some(0));
    assert_eq!(run("none", "good"), Some(2), "a profile nobody knows");
}
