//! Azure Blob Storage: every direction, kills, and what is refused.

use std::fs;

use posthaste_testbed::{AzureServer, S3Server};

use crate::copy::{
    directions::copy_twice,
    killed::{SEED, survives_kills},
    world::{EXACT, Exactness, World, assert_same, leftovers, lines_of, make_tree},
};

const OBJECTS: Exactness = Exactness {
    directory_attributes: false,
    ..EXACT
};

/// Makes a tree whose names Azure can all keep.
fn make_plain_tree(world: &World) {
    make_tree(&world.path("source"), false);
    fs::remove_file(world.path("source/names/new\nline")).unwrap();
}

#[test]
fn local_to_azure_and_back() {
    let server = AzureServer::start().unwrap();
    let world = World::new().with_azure(&server);
    make_plain_tree(&world);
    copy_twice(&world, "source/", "azblob://testbed/run");
    copy_twice(&world, "az://testbed/run/", "back");
    assert_same(&world.path("source"), &world.path("back"), OBJECTS);
    assert!(leftovers(&world.path("back")).is_empty());
    // Among its own files the server copies.
    copy_twice(&world, "az://testbed/run/", "az://testbed/copy");
    copy_twice(&world, "az://testbed/copy/", "again");
    assert_same(&world.path("source"), &world.path("again"), OBJECTS);
    let states = world.path("home/.local/state/posthaste/unfinished");
    assert_eq!(
        fs::read_dir(states).unwrap().count(),
        0,
        "records of finished uploads stay"
    );
}

#[test]
fn between_azure_and_s3() {
    let (azure, s3) = (AzureServer::start().unwrap(), S3Server::start().unwrap());
    let world = World::new().with_s3(&s3).with_azure(&azure);
    make_plain_tree(&world);
    copy_twice(&world, "source/", "s3://testbed/run");
    copy_twice(&world, "s3://testbed/run/", "az://testbed/run");
    copy_twice(&world, "az://testbed/run/", "s3://testbed/back");
    copy_twice(&world, "s3://testbed/back/", "back");
    assert_same(&world.path("source"), &world.path("back"), OBJECTS);
}

#[test]
fn names_azure_can_not_hold_are_left_out_with_a_line() {
    let server = AzureServer::start().unwrap();
    let world = World::new().with_azure(&server);
    make_tree(&world.path("source"), true);
    let output = world.cp(["source/", "az://testbed/run"]).output().unwrap();
    assert_eq!(output.status.code(), Some(6));
    let lines = lines_of(&output);
    assert_eq!(lines.matches("posthaste: ").count(), 2, "{lines}");
    assert!(lines.contains("its name is not UTF-8"), "{lines}");
    assert!(lines.contains("no names with a backslash or control characters (rename it)"));
    world.copy(["az://testbed/run/large", "large"]);
    assert!(world.path("large").exists(), "the others went on");
}

#[test]
fn wrong_azure_credentials_end_a_copy_with_one_line() {
    let server = AzureServer::start().unwrap();
    let world = World::new();
    fs::write(world.path("file"), "x").unwrap();
    let with = |variables: &[(&str, &str)], code: i32| {
        let mut command = world.cp(["file", "az://testbed/file"]);
        command.envs(variables.iter().copied());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", lines_of(&output));
        let lines = lines_of(&output);
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(!lines.contains("d3Jvbmc"), "{lines}");
        lines
    };
    assert!(with(&[], 2).contains("no storage account"));
    let account = ("AZURE_STORAGE_ACCOUNT", AzureServer::ACCOUNT);
    assert!(with(&[account], 7).contains("AZURE_STORAGE_KEY"));
    let endpoint = server.endpoint();
    let endpoint = ("AZURE_STORAGE_SERVICE_ENDPOINT", &*endpoint);
    let wrong = [account, endpoint, ("AZURE_STORAGE_KEY", "d3Jvbmctc2VjcmV0")];
    let lines = with(&wrong, 7);
    assert!(lines.contains("check the account"), "{lines}");
    let right = world
        .cp(["file", "az://testbed/file"])
        .envs([
            account,
            endpoint,
            ("AZURE_STORAGE_KEY", AzureServer::ACCOUNT_KEY),
        ])
        .status();
    assert!(right.unwrap().success());
}

#[test]
fn an_upload_to_azure_survives_kills() {
    let server = AzureServer::start().unwrap();
    let world = World::new().with_azure(&server);
    survives_kills(&world, SEED + 3, "az://testbed/run", None, OBJECTS);
}
