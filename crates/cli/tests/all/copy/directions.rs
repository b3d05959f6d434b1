//! Every direction; a second run has nothing to do.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    time::Duration,
};

use posthaste_testbed::{S3Kind, S3Server, SshServer, StoreLooks, StoreMask};

use crate::copy::world::{
    EXACT, Exactness, World, assert_same, leftovers, lines_of, make_tree, noise,
};

const SECONDS: Exactness = Exactness {
    mtime_step: Duration::from_secs(1),
    ..EXACT
};
const OBJECTS: Exactness = Exactness {
    directory_attributes: false,
    ..EXACT
};
const BOTH: Exactness = Exactness {
    mtime_step: Duration::from_secs(1),
    ..OBJECTS
};

/// Copies twice; the second run must find everything unchanged.
pub fn copy_twice(world: &World, from: &str, to: &str) {
    let first = world.copy([from, to]);
    assert!(first["transfers"].as_u64().unwrap() > 5, "{first}");
    let again = world.copy([from, to]);
    assert_eq!(again["transfers"], 0, "{again}");
    assert_eq!(again["bytes"], 0, "{again}");
    assert_eq!(again["checks"], first["transfers"], "{again}");
}

#[test]
fn local_to_local_keeps_everything() {
    let world = World::new();
    make_tree(&world.path("source"), true);
    copy_twice(&world, "source/", "there");
    assert_same(&world.path("source"), &world.path("there"), EXACT);
    assert!(leftovers(&world.path("there")).is_empty());
    let blocks = |name: &str| {
        fs::metadata(world.path(name).join("sparse"))
            .unwrap()
            .blocks()
    };
    assert!(
        blocks("there") <= blocks("source") + 64,
        "the hole was filled"
    );
}

#[test]
fn destinations_are_named_as_cp_and_rsync_do() {
    let world = World::new();
    fs::create_dir_all(world.path("tree")).unwrap();
    fs::write(world.path("tree/file"), "x").unwrap();
    fs::write(world.path("one"), "1").unwrap();
    fs::create_dir(world.path("there")).unwrap();
    let exists = |name: &str| world.path(name).is_file();
    world.copy(["tree", "new"]);
    assert!(exists("new/file"), "a new name becomes the tree");
    world.copy(["tree", "there"]);
    assert!(exists("there/tree/file"), "into a directory that is there");
    world.copy(["tree/", "there"]);
    assert!(exists("there/file"), "a slash gives the content");
    world.copy(["one", "renamed"]);
    assert!(exists("renamed"), "a file becomes the name");
    world.copy(["one", "fresh/"]);
    assert!(exists("fresh/one"), "a slash makes a directory");
    world.copy(["one", "tree", "several"]);
    assert!(
        exists("several/one") && exists("several/tree/file"),
        "several go inside"
    );
    world.copy(["one", "deep/er/name"]);
    assert!(exists("deep/er/name"), "parents are made");
    world.copy(["file:tree", "odd"].map(|text| text.replace("file:", "")));
}

#[test]
fn filters_links_and_dry_runs_do_what_they_say() {
    let world = World::new();
    make_tree(&world.path("source"), false);
    let output = world.cp(["-n", "source/", "dry"]).output().unwrap();
    assert!(output.status.success());
    assert!(
        lines_of(&output).contains("would copy dry/large\n"),
        "{}",
        lines_of(&output)
    );
    assert!(!world.path("dry").exists(), "a dry run made something");
    world.copy([
        "source/",
        "some",
        "--include",
        "*mall",
        "--include",
        "/bin/**",
        "--exclude",
        "link",
    ]);
    assert!(world.path("some/deep/er/est/small").exists());
    assert!(world.path("some/bin/script").exists());
    assert!(!world.path("some/large").exists() && !world.path("some/empty").exists());
    world.copy(["source/", "skipped", "--links", "skip"]);
    assert!(fs::symlink_metadata(world.path("skipped/link")).is_err());
    let output = world
        .cp(["source/", "followed", "--links", "follow"])
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(6),
        "a dangling link can't be followed"
    );
    assert_eq!(fs::read(world.path("followed/link")).unwrap(), b"small\n");
    assert!(world.path("followed/large").exists(), "the others went on");
}

#[test]
fn limits_end_a_copy_with_their_codes() {
    let world = World::new();
    make_tree(&world.path("source"), false);
    let code = |arguments: &[&str]| world.cp(arguments).output().unwrap().status.code();
    let slow = ["source/", "slow", "--bwlimit", "4M", "--max-duration", "1s"];
    assert_eq!(code(&slow), Some(10));
    assert_eq!(
        code(&[
            "source/",
            "little",
            "--max-transfer",
            "1",
            "--transfers",
            "1"
        ]),
        Some(8)
    );
    world.copy(["source/", "all"]);
    assert_eq!(code(&["source/", "all", "--error-on-no-transfer"]), Some(9));
}

#[test]
fn local_to_s3_and_back() {
    let server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    make_tree(&world.path("source"), false);
    copy_twice(&world, "source/", "s3://testbed/run");
    assert_eq!(
        fs::read(server.bucket_folder().join("run/large")).unwrap(),
        fs::read(world.path("source/large")).unwrap(),
        "other tools read native names"
    );
    copy_twice(&world, "s3://testbed/run/", "back");
    assert_same(&world.path("source"), &world.path("back"), OBJECTS);
    copy_twice(&world, "s3://testbed/run/", "s3://testbed/copy");
    copy_twice(&world, "s3://testbed/copy/", "again");
    assert_same(&world.path("source"), &world.path("again"), OBJECTS);
    assert!(leftovers(&world.path("back")).is_empty());
    let states = world.path("home/.local/state/posthaste/unfinished");
    assert_eq!(
        fs::read_dir(states).unwrap().count(),
        0,
        "records of finished uploads stay"
    );
}

#[test]
fn minio_keeps_everything_too() {
    let server = S3Server::start_as(S3Kind::Minio).unwrap();
    let world = World::new().with_s3(&server);
    make_tree(&world.path("source"), false);
    copy_twice(&world, "source/", "s3://testbed/run");
    copy_twice(&world, "s3://testbed/run/", "back");
    assert_same(&world.path("source"), &world.path("back"), OBJECTS);
}

/// Size that a store copies in several requests.
const SEGMENTS_BYTES: usize = (64 << 20) + 12_345;

#[test]
fn a_store_copies_among_its_own_objects() {
    copies_among_its_own(S3Kind::Versity);
}

#[test]
fn minio_copies_among_its_own_objects() {
    copies_among_its_own(S3Kind::Minio);
}

fn copies_among_its_own(kind: S3Kind) {
    let server = S3Server::start_as(kind).unwrap();
    let mask = StoreMask::start(server.address(), StoreLooks::Same).unwrap();
    let world = World::new().with_s3(&server);
    make_tree(&world.path("source"), false);
    fs::write(world.path("source/larger"), noise(2, SEGMENTS_BYTES)).unwrap();
    world.copy(["source/", "s3://testbed/run"]);
    let copying = world
        .cp(["s3://testbed/run/", "s3://testbed/copy", "--json"])
        .env("AWS_ENDPOINT_URL", mask.endpoint())
        .output()
        .unwrap();
    assert!(copying.status.success(), "{}", lines_of(&copying));
    let figures: serde_json::Value = serde_json::from_slice(&copying.stdout).unwrap();
    assert_eq!(figures["serverSideCopies"], figures["transfers"]);
    assert_eq!(figures["serverSideCopyBytes"], figures["bytes"]);
    let bytes = figures["bytes"].as_u64().unwrap();
    assert!(bytes > 100_000_000, "{figures}");
    assert!(mask.passed() < 1_000_000, "{} passed", mask.passed());
    world.copy(["s3://testbed/copy/", "back"]);
    assert_same(&world.path("source"), &world.path("back"), OBJECTS);
    let again = world.copy(["s3://testbed/run/", "s3://testbed/copy"]);
    assert_eq!(again["transfers"], 0, "{again}");
}

#[test]
fn an_ssh_server_copies_among_its_own_files() {
    let server = SshServer::start().unwrap();
    let world = World::new().with_ssh(&server);
    make_tree(&world.path("far"), true);
    fs::write(world.path("far/larger"), noise(2, SEGMENTS_BYTES)).unwrap();
    let far = |name: &str| server.address(&world.path(name).display().to_string());
    let figures = world.copy([&far("far/"), &far("there")]);
    assert_eq!(figures["serverSideCopies"], figures["transfers"]);
    assert_same(&world.path("far"), &world.path("there"), SECONDS);
    assert!(leftovers(&world.path("there")).is_empty());
    let figures = world.copy([&far("far/"), &far("checked"), &"--verify".to_owned()]);
    assert_eq!(figures["serverSideCopies"], 0, "nobody summed those");
    assert_same(&world.path("far"), &world.path("checked"), SECONDS);
}

#[test]
fn names_s3_can_not_hold_are_left_out_with_a_line() {
    let server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    make_tree(&world.path("source"), true);
    let output = world.cp(["source/", "s3://testbed/run"]).output().unwrap();
    assert_eq!(output.status.code(), Some(6));
    let lines = lines_of(&output);
    assert_eq!(lines.matches("posthaste: ").count(), 1, "{lines}");
    assert!(lines.contains("its name is not UTF-8, which the destination needs (rename it)"));
    assert!(
        server.bucket_folder().join("run/large").exists(),
        "the others went on"
    );
}

#[test]
fn local_to_sftp_and_back() {
    let server = SshServer::start().unwrap();
    let world = World::new().with_ssh(&server);
    make_tree(&world.path("source"), true);
    let there = server.address(&world.path("far/away").display().to_string());
    copy_twice(&world, "source/", &there);
    assert_same(&world.path("source"), &world.path("far/away"), SECONDS);
    copy_twice(&world, &format!("{there}/"), "back");
    assert_same(&world.path("source"), &world.path("back"), SECONDS);
    assert!(leftovers(&world.path("far")).is_empty());
}

#[test]
fn between_two_remote_ends() {
    let (s3, ssh) = (S3Server::start().unwrap(), SshServer::start().unwrap());
    let world = World::new().with_s3(&s3).with_ssh(&ssh);
    make_tree(&world.path("source"), false);
    let far = |name: &str| ssh.address(&world.path(name).display().to_string());
    copy_twice(&world, "source/", "s3://testbed/run");
    copy_twice(&world, "s3://testbed/run/", &far("far"));
    assert_same(&world.path("source"), &world.path("far"), BOTH);
    copy_twice(&world, &format!("{}/", far("far")), "s3://testbed/returned");
    copy_twice(&world, "s3://testbed/returned/", "back");
    assert_same(&world.path("source"), &world.path("back"), BOTH);
    copy_twice(&world, &format!("{}/", far("far")), &far("farther"));
    assert_same(&world.path("source"), &world.path("farther"), BOTH);
}

#[test]
fn profiles_bring_endpoint_and_keys() {
    let server = S3Server::start().unwrap();
    let world = World::new();
    fs::write(world.path("file"), "x").unwrap();
    let folder = world.path("home/.config/posthaste");
    fs::create_dir_all(&folder).unwrap();
    let profile = format!(
        "[site]\nendpoint = \"{}\"\naccess_key_id = \"{}\"\nsecret_access_key = \"{}\"\n",
        server.endpoint(),
        S3Server::ACCESS_KEY,
        S3Server::SECRET_KEY
    );
    write_private(&folder.join("profiles.toml"), &profile, 0o644);
    let arguments = ["--profile", "site", "file", "s3://testbed/file"];
    let refused = world.cp(arguments).output().unwrap();
    assert_eq!(refused.status.code(), Some(7));
    assert!(lines_of(&refused).contains("others may read it (run chmod 600 on it)"));
    write_private(&folder.join("profiles.toml"), &profile, 0o600);
    world.copy(arguments);
    let aws = world.path("home/.aws");
    fs::create_dir_all(&aws).unwrap();
    let config = format!(
        "[profile far]\nendpoint_url = {}\nregion = us-east-1\n",
        server.endpoint()
    );
    fs::write(aws.join("config"), config).unwrap();
    let keys = format!(
        "[far]\naws_access_key_id = {}\naws_secret_access_key = {}\n",
        S3Server::ACCESS_KEY,
        S3Server::SECRET_KEY
    );
    fs::write(aws.join("credentials"), keys).unwrap();
    world.copy(["--profile", "far", "s3://testbed/file", "back"]);
    assert_eq!(fs::read(world.path("back")).unwrap(), b"x");
}

fn write_private(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn no_right_of_an_owner_is_lent_where_the_owner_is_not_kept() {
    let (s3, ssh) = (S3Server::start().unwrap(), SshServer::start().unwrap());
    let world = World::new().with_s3(&s3).with_ssh(&ssh);
    let mode = |name: &str| fs::metadata(world.path(name)).unwrap().permissions().mode() & 0o7777;
    fs::write(world.path("small"), b"#!/bin/sh").unwrap();
    fs::write(world.path("large"), noise(31, 20 << 20)).unwrap();
    for name in ["small", "large"] {
        fs::set_permissions(world.path(name), fs::Permissions::from_mode(0o6755)).unwrap();
        let far = world.path(&format!("far/{name}"));
        let far = ssh.address(&far.display().to_string());
        let stored = format!("s3://testbed/{name}");
        for (from, to) in [
            (name, &*far),
            (&*far, "back"),
            (name, &*stored),
            (&*stored, "again"),
        ] {
            world.copy([from, to]);
        }
        assert_eq!(mode(&format!("far/{name}")), 0o755);
        assert_eq!((mode("back"), mode("again")), (0o755, 0o755));
    }
}
