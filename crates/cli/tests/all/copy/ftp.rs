//! FTP servers, as people use them.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, UNIX_EPOCH},
};

use posthaste_testbed::{FtpFace, FtpServer};

use crate::copy::{
    directions::copy_twice,
    killed::{SEED, survives_kills},
    world::{EXACT, Exactness, World, assert_same, leftovers, lines_of, noise, set_mtime},
};

const SECONDS: Exactness = Exactness {
    mtime_step: Duration::from_secs(1),
    ..EXACT
};

/// Makes a tree of everything that FTP can keep.
fn make_tree(world: &World) {
    let root = world.path("source");
    for folder in ["empty/below", "deep/er/est", "names", "many"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("zero"), "").unwrap();
    fs::write(root.join("deep/er/est/small"), "small\n").unwrap();
    for name in ["a b+c%20d&e<f>", "\u{e9}\u{1f600}", " lead and trail "] {
        fs::write(root.join("names").join(name), name).unwrap();
    }
    for index in 0..60 {
        fs::write(root.join(format!("many/{index}")), noise(index, 20_000)).unwrap();
    }
    fs::write(root.join("large"), noise(1, 40_000_001)).unwrap();
    set_mtime(&root.join("large"), 1_577_934_245, 123_456_789);
    let mode = |name: &str, mode| {
        let path = root.join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("zero", 0o600);
    mode("deep/er/est/small", 0o755);
    mode("deep/er", 0o751);
    set_mtime(&root.join("deep/er"), 1_500_000_000, 0);
}

fn named(server: &FtpServer, caps: &str) -> String {
    let url = server.address_below("");
    format!("{}url = \"{url}\"\n{caps}", server.profile())
}

#[test]
fn trees_go_there_and_back() {
    for face in [FtpFace::Plain, FtpFace::Explicit] {
        let server = FtpServer::start(face).unwrap();
        let world = World::new().with_profiles(&named(&server, ""));
        make_tree(&world);
        copy_twice(&world, "source/", "ftp:there");
        assert_same(
            &world.path("source"),
            &server.files().join("there"),
            SECONDS,
        );
        assert!(leftovers(&server.files()).is_empty());
        copy_twice(&world, "ftp:there/", "back");
        assert_same(&world.path("source"), &world.path("back"), SECONDS);
    }
}

#[test]
fn a_file_from_before_1970_is_copied_once() {
    let server = FtpServer::start(FtpFace::Plain).unwrap();
    let world = World::new().with_profiles(&named(&server, ""));
    fs::create_dir(world.path("source")).unwrap();
    fs::write(world.path("source/old"), "old").unwrap();
    let old = UNIX_EPOCH - Duration::from_secs(631_152_000);
    let file = fs::File::open(world.path("source/old")).unwrap();
    file.set_modified(old).unwrap();
    for transfers in [1, 0] {
        let copied = world.copy(["source/", "ftp:there"]);
        assert_eq!(copied["transfers"], transfers, "{copied}");
    }
}

#[test]
fn a_server_that_allows_few_sessions_is_kept_to() {
    let server = FtpServer::start(FtpFace::Few).unwrap();
    let few = FtpServer::FEW_SESSIONS;
    let caps = format!("connections_max = {few}\n");
    let world = World::new().with_profiles(&named(&server, &caps));
    make_tree(&world);
    let there = world.copy(["source/", "ftp:there"]);
    assert_eq!(there["retries"], 0, "{there}");
    server.wait_until_left().unwrap();
    let back = world.copy(["ftp:there/", "back"]);
    assert_eq!(back["retries"], 0, "{back}");
    assert_same(&world.path("source"), &world.path("back"), SECONDS);
    assert!(
        !server.commands().contains("PASS 530"),
        "one session too many was tried"
    );
    // Where the profile doesn't say so, the server's refusals do.
    world.set_profiles(&named(&server, ""));
    world.copy(["ftp:there/", "again"]);
    assert_same(&world.path("source"), &world.path("again"), SECONDS);
}

#[test]
fn an_upload_to_ftp_survives_kills() {
    let server = FtpServer::start(FtpFace::Plain).unwrap();
    let world = World::new().with_profiles(&named(&server, ""));
    survives_kills(&world, SEED + 7, "ftp:run", None, SECONDS);
    assert!(
        server.commands().contains("REST 350"),
        "nothing was continued"
    );
}

#[test]
fn passwords_come_from_netrc_and_wrong_ones_end_the_copy() {
    let server = FtpServer::start(FtpFace::Plain).unwrap();
    let world = World::new();
    fs::write(world.path("file"), "x").unwrap();
    let netrc = world.path("home/.netrc");
    fs::create_dir_all(world.path("home")).unwrap();
    let to = server.address_below("file");
    let run = |password: &str| {
        let user = FtpServer::USER;
        let text = format!("machine 127.0.0.1 login {user} password {password}\n");
        fs::write(&netrc, text).unwrap();
        fs::set_permissions(&netrc, fs::Permissions::from_mode(0o600)).unwrap();
        world.cp(["file", &to]).output().unwrap()
    };
    let output = run("hush-hush");
    assert_eq!(output.status.code(), Some(7), "{}", lines_of(&output));
    let told = lines_of(&output);
    assert!(
        told.contains("Login incorrect") && !told.contains("hush"),
        "{told}"
    );
    let output = run(FtpServer::PASSWORD);
    assert!(output.status.success(), "{}", lines_of(&output));
    assert_eq!(fs::read(server.files().join("file")).unwrap(), b"x");
}
