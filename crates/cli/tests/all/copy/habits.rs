//! Options that people type by habit, and what each of them keeps.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
};

use posthaste_testbed::odd::{Answer, Server};
use rustix::fs::{XattrFlags, setxattr};
use tokio::task::block_in_place;

use crate::copy::world::{World, lines_of, set_mtime};

/// Runs a copy that must end with this code and these words; returns its output.
fn ends(world: &World, arguments: &[&str], code: i32, words: &[&str]) -> String {
    let output = world.cp(arguments).output().unwrap();
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {lines}");
    for words in words {
        assert!(lines.contains(words), "{arguments:?}: {lines}");
    }
    lines
}

#[test]
fn flags_of_cp_mean_what_they_mean_there() {
    let world = World::new();
    fs::create_dir(world.path("t")).unwrap();
    fs::write(world.path("t/a"), "x").unwrap();
    symlink("a", world.path("t/l")).unwrap();
    ends(&world, &["-rLf", "t", "followed"], 0, &[]);
    let found = fs::symlink_metadata(world.path("followed/l")).unwrap();
    assert!(found.is_file());
    ends(&world, &["-d", "t/l", "kept"], 0, &[]);
    assert!(
        fs::symlink_metadata(world.path("kept"))
            .unwrap()
            .is_symlink()
    );
    ends(
        &world,
        &["-L", "--links", "keep", "t", "x"],
        2,
        &["--links"],
    );
    for (now, there, is_copied) in [(200, 100, true), (100, 200, false), (100, 100, false)] {
        fs::write(world.path("new"), "source").unwrap();
        fs::write(world.path("old"), "there").unwrap();
        set_mtime(&world.path("new"), now, 0);
        set_mtime(&world.path("old"), there, 0);
        ends(&world, &["-u", "new", "old"], 0, &[]);
        let wanted = if is_copied { "source" } else { "there" };
        assert_eq!(fs::read_to_string(world.path("old")).unwrap(), wanted);
    }
}

#[test]
fn set_user_id_bits_that_are_not_kept_are_said_once() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    fs::create_dir(world.path("t")).unwrap();
    for (name, mode) in [("a", 0o4755), ("b", 0o2755), ("c", 0o755)] {
        fs::write(world.path("t").join(name), "x").unwrap();
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(world.path("t").join(name), mode).unwrap();
    }
    let words = "set-user-ID and set-group-ID bits of 2 files";
    for arguments in [["-p", "t", "one"], ["-a", "t", "two"]] {
        let lines = ends(&world, &arguments, 6, &[words]);
        assert_eq!(lines.matches("set-user-ID").count(), 1, "{lines}");
    }
    let lines = ends(&world, &["t", "three"], 0, &[]);
    assert!(!lines.contains("set-user-ID"), "{lines}");
    let found = fs::metadata(world.path("one/a")).unwrap().permissions();
    assert_eq!(found.mode() & 0o7777, 0o755);
}

#[test]
fn what_cp_knows_and_this_does_not_is_answered_with_what_to_use() {
    let world = World::new();
    fs::create_dir_all(world.path("into")).unwrap();
    fs::write(world.path("a"), "x").unwrap();
    fs::write(world.path("b"), "y").unwrap();
    ends(&world, &["-t", "into", "a", "b"], 0, &[]);
    ends(&world, &["--target-directory=new", "a"], 0, &[]);
    for (path, bytes) in [("into/a", "x"), ("into/b", "y"), ("new/a", "x")] {
        assert_eq!(fs::read_to_string(world.path(path)).unwrap(), bytes);
    }
    ends(&world, &["--preserve=mode,timestamps", "a", "c"], 0, &[]);
    ends(&world, &["--preserve", "a", "d"], 0, &[]);
    fs::hard_link(world.path("a"), world.path("into/hard")).unwrap();
    fs::hard_link(world.path("a"), world.path("into/link")).unwrap();
    ends(
        &world,
        &["--preserve=all", "into", "all"],
        6,
        &["hard link"],
    );
    for (option, words) in [
        ("-i", "--dry-run"),
        ("--no-clobber", "--update"),
        ("-T", "without a slash"),
        ("--backup=numbered", "no backups"),
        ("-l", "never linked"),
    ] {
        let lines = ends(&world, &[option, "a", "b"], 2, &[words]);
        assert_eq!(lines.trim_end().lines().count(), 1, "{lines}");
    }
}

#[test]
fn an_archive_of_plain_files_lacks_nothing() {
    let world = World::new();
    fs::create_dir_all(world.path("t/d")).unwrap();
    fs::write(world.path("t/d/a"), "x").unwrap();
    symlink("d/a", world.path("t/l")).unwrap();
    for _ in 0..2 {
        let lines = ends(&world, &["-a", "t/", "there"], 0, &[]);
        assert!(!lines.contains("not kept"), "{lines}");
    }
    let figures = world.copy(["-a", "t", "json"]);
    assert!(figures["notKept"].is_null(), "{figures}");
}

#[test]
fn an_archive_says_what_was_there_and_is_lost() {
    let world = World::new();
    fs::create_dir(world.path("t")).unwrap();
    fs::write(world.path("t/a"), "x").unwrap();
    fs::hard_link(world.path("t/a"), world.path("t/b")).unwrap();
    let lost = ["not kept, as -a asks for: 1 hard link"];
    // What is there already lacks the same.
    for _ in 0..2 {
        ends(&world, &["-a", "t/", "there"], 6, &lost);
    }
    ends(&world, &["-a", "-q", "t", "quiet"], 6, &lost);
    ends(&world, &["-a", "--exclude", "b", "t", "one"], 0, &[]);
    ends(&world, &["-r", "t", "plain"], 0, &[]);
    fs::remove_file(world.path("t/b")).unwrap();
    setxattr(world.path("t/a"), "user.note", b"x", XattrFlags::empty()).unwrap();
    ends(
        &world,
        &["-a", "t", "noted"],
        6,
        &["extended attributes of 1 file"],
    );
}

#[test]
fn what_is_no_file_is_said_to_be_none() {
    let world = World::new();
    let socket = world.path("socket");
    let _listening = UnixListener::bind(&socket).unwrap();
    for source in ["/dev/zero", "socket"] {
        ends(
            &world,
            &[source, "there"],
            6,
            &[&format!(
                "can't copy {source}: it is a device, a pipe or a socket ("
            )],
        );
        assert!(!world.path("there").exists());
    }
}

#[test]
fn a_name_of_an_unfinished_copy_is_left_out_and_named() {
    let world = World::new();
    let name = ".x.0123456789ab.posthaste-partial";
    fs::create_dir(world.path("t")).unwrap();
    fs::write(world.path("t/a"), "x").unwrap();
    fs::write(world.path("t").join(name), "half").unwrap();
    ends(&world, &["t", "there"], 6, &[name, "left unfinished"]);
    assert!(world.path("there/a").exists() && !world.path("there").join(name).exists());
    ends(
        &world,
        &["--exclude", "*.posthaste-partial", "t", "other"],
        0,
        &[],
    );
    assert!(world.path("other/a").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_is_copied_but_for_what_no_name_stands_for() {
    let page = "<html><a href=\"../\">up</a><a href=\"a\">a</a><a href=\"?C=N\">Name</a>\
        <a href=\"b%2fc\">b</a><a href=\"d?download=1\">d</a></html>";
    let server = Server::start(move |asked| match &*asked.target {
        "/t/" => Answer::sized(200, "content-type: text/html\r\n", page),
        "/t/a" => Answer::sized(200, "", "x"),
        _ => Answer::sized(404, "", ""),
    })
    .await;
    let world = World::new();
    let from = format!("{}/t/", server.url());
    let lines = block_in_place(|| ends(&world, &[&from, "there"], 6, &["b/c", "d?download=1"]));
    assert!(lines.contains("2 failed"), "{lines}");
    assert_eq!(fs::read(world.path("there/a")).unwrap(), b"x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_public_bucket_is_read_without_credentials() {
    let server = Server::start(|asked| {
        let is_signed = asked.header("authorization").is_some();
        match (is_signed, asked.target.split('?').next()) {
            (true, _) => Answer::sized(403, "", ""),
            (false, Some("/b/x")) => Answer::sized(200, "etag: \"e\"\r\n", "content"),
            (false, _) => Answer::sized(200, "", "<ListBucketResult></ListBucketResult>"),
        }
    })
    .await;
    let world = World::new();
    let run = |arguments: &[&str]| {
        let mut command = world.cp(arguments);
        command
            .env("AWS_ENDPOINT_URL", server.url())
            .env("AWS_ACCESS_KEY_ID", "key")
            .env("AWS_SECRET_ACCESS_KEY", "secret");
        block_in_place(|| command.output().unwrap())
    };
    let refused = run(&["s3://b/x", "there"]);
    assert_eq!(refused.status.code(), Some(7));
    assert!(
        lines_of(&refused).contains("requester_pays"),
        "{}",
        lines_of(&refused)
    );
    let read = run(&["--no-sign-request", "s3://b/x", "there"]);
    assert!(read.status.success(), "{}", lines_of(&read));
    assert_eq!(fs::read(world.path("there")).unwrap(), b"content");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_file_that_is_missing_is_a_matter_of_credentials() {
    let world = World::new().with_profiles("[p]\ntoken_file = \"/nowhere/token\"\n");
    for scheme in ["https", "webdavs"] {
        let from = format!("{scheme}://127.0.0.1:9/x");
        block_in_place(|| {
            let words = ["/nowhere/token", "check token_file in the profile"];
            ends(&world, &["--profile", "p", &from, "there"], 7, &words)
        });
    }
}
