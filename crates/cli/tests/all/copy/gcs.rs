//! `posthaste cp` to and from Google Cloud Storage.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
};

use posthaste_testbed::GcsServer;

use crate::copy::{
    directions::copy_twice,
    killed::{SEED, survives_kills},
    world::{EXACT, Exactness, World, assert_same, leftovers, lines_of, make_tree},
};

const OBJECTS: Exactness = Exactness {
    directory_attributes: false,
    ..EXACT
};

/// Returns the store's own list of its content.
fn objects(server: &GcsServer) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let request = b"GET /storage/v1/b/testbed/o HTTP/1.0\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn local_to_gcs_and_back() {
    let server = GcsServer::start().unwrap();
    let world = World::new().with_gcs(&server);
    make_tree(&world.path("source"), false);
    // No object can be called so.
    fs::remove_file(world.path("source/names/new\nline")).unwrap();
    copy_twice(&world, "source/", "gs://testbed/run");
    let held = objects(&server);
    assert!(held.contains("\"name\":\"run/large\""), "names are native");
    assert!(!held.contains("posthaste"), "something is left over");
    copy_twice(&world, "gs://testbed/run/", "back");
    assert_same(&world.path("source"), &world.path("back"), OBJECTS);
    copy_twice(&world, "gs://testbed/run/", "gs://testbed/copy");
    copy_twice(&world, "gcs://testbed/copy/", "again");
    assert_same(&world.path("source"), &world.path("again"), OBJECTS);
    assert!(leftovers(&world.path("back")).is_empty());
    let states = world.path("home/.local/state/posthaste/unfinished");
    let records = fs::read_dir(states).unwrap().count();
    assert_eq!(records, 0, "records of finished uploads stay");
}

#[test]
fn names_gcs_can_not_hold_are_left_out_with_a_line() {
    let server = GcsServer::start().unwrap();
    let world = World::new().with_gcs(&server);
    make_tree(&world.path("source"), true);
    let output = world.cp(["source/", "gs://testbed/run"]).output().unwrap();
    assert_eq!(output.status.code(), Some(6));
    let lines = lines_of(&output);
    assert_eq!(lines.matches("posthaste: ").count(), 2, "{lines}");
    assert!(lines.contains("its name is not UTF-8"), "{lines}");
    assert!(lines.contains("its name has a line break"), "{lines}");
    let held = objects(&server);
    assert!(
        held.contains("\"name\":\"run/large\""),
        "the others went on"
    );
}

#[test]
fn an_upload_to_gcs_survives_kills() {
    let server = GcsServer::start().unwrap();
    let world = World::new().with_gcs(&server);
    survives_kills(&world, SEED + 3, "gs://testbed/run", None, OBJECTS);
}

#[test]
fn what_is_wrong_with_gcs_is_one_line() {
    let server = GcsServer::start().unwrap();
    let world = World::new().with_gcs(&server);
    fs::write(world.path("file"), "x").unwrap();
    let closed = "http://127.0.0.1:9";
    for (to, variable, value, code, says) in [
        (
            "gs://nosuchbucket/x",
            "LANG",
            "C",
            3,
            "can't list gs://nosuchbucket/x/: notFound: Not Found (create the bucket first)",
        ),
        (
            "gs://testbed/x",
            "STORAGE_EMULATOR_HOST",
            closed,
            5,
            "Connection refused",
        ),
        (
            "gs://testbed/x",
            "STORAGE_EMULATOR_HOST",
            "",
            7,
            "there are no credentials (set GOOGLE_APPLICATION_CREDENTIALS or name a profile",
        ),
    ] {
        let mut command = world.cp(["file", to]);
        let output = command.env(variable, value).output().unwrap();
        let lines = lines_of(&output);
        assert_eq!(output.status.code(), Some(code), "{lines}");
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(lines.contains(says), "{lines}");
    }
    let mut command = world.cp(["file", "gs://testbed/x"]);
    command
        .env_remove("STORAGE_EMULATOR_HOST")
        .env("GOOGLE_APPLICATION_CREDENTIALS", "no/key.json");
    let output = command.output().unwrap();
    let lines = lines_of(&output);
    assert!(
        lines.contains("can't read the key in no/key.json"),
        "{lines}"
    );
    assert_eq!(output.status.code(), Some(4), "{lines}");
}
