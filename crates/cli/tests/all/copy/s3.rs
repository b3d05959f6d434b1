//! `posthaste cp` with S3 as AWS's own tools are set up for it, and with keys of few rights.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    process::Output,
    sync::{Arc, Mutex},
};

use posthaste_testbed::{
    S3Server,
    odd::{Answer, Server},
};
use tokio::task::block_in_place;

use crate::copy::{
    table::{End, shown},
    world::{World, lines_of},
};

#[test]
fn aws_settings_are_read_as_aws_does() {
    let server = S3Server::start().unwrap();
    let world = World::new().with_arguments(&["--profile", "far"]);
    fs::write(world.path("file"), "x").unwrap();
    let aws = world.path("home/.aws");
    fs::create_dir_all(&aws).unwrap();
    let program = world.path("home/a \"b\"/print keys");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    let (key, secret) = (S3Server::ACCESS_KEY, S3Server::SECRET_KEY);
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = 'two  words' ] || exit 1\n\
         echo '{{\"Version\":1,\"AccessKeyId\":\"{key}\",\"SecretAccessKey\":\"{secret}\"}}'\n"
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let quoted = program.to_str().unwrap().replace('"', "\\\"");
    let config = format!(
        "[profile far]\nservices = lab\nendpoint_url = http://127.0.0.1:1\n\
         credential_process = \"{quoted}\" 'two  words'\n\
         [services lab]\ns3 =\n  endpoint_url = {}\n",
        server.endpoint()
    );
    fs::write(aws.join("config"), config).unwrap();
    world.copy(["file", "s3://testbed/file"]);
    // What is empty in the environment says nothing.
    let mut command = world.cp(["s3://testbed/file", "back"]);
    for name in [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_ENDPOINT_URL",
        "AWS_REGION",
        "AWS_CA_BUNDLE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
    ] {
        command.env(name, "");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", lines_of(&output));
    assert_eq!(fs::read(world.path("back")).unwrap(), b"x");
}

#[test]
fn modes_and_times_of_directories_with_files_are_counted_where_they_are_asked_for() {
    let server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    fs::create_dir_all(world.path("t/d/empty")).unwrap();
    fs::create_dir(world.path("t/e")).unwrap();
    for name in ["t/a", "t/d/b", "t/e/c"] {
        fs::write(world.path(name), "x").unwrap();
    }
    let copy = |flag: &str, to: &str| {
        let output = world.cp([flag, "t", to]).output().unwrap();
        (output.status.code(), lines_of(&output))
    };
    for (flag, to) in [("-p", "s3://testbed/p"), ("-a", "s3://testbed/a")] {
        let (code, lines) = copy(flag, to);
        assert_eq!(code, Some(6), "{lines}");
        let words = "the destination refuses: 3 modes, 3 modification times";
        assert_eq!(lines.matches(words).count(), 1, "{lines}");
    }
    let (code, lines) = copy("-r", "s3://testbed/r");
    assert_eq!(code, Some(0), "{lines}");
    assert!(!lines.contains("not kept"), "{lines}");
    // What has none there lacks none.
    let back = world.cp(["-p", "s3://testbed/p", "s3://testbed/again"]);
    let output = { back }.output().unwrap();
    assert!(output.status.success(), "{}", lines_of(&output));
}

#[test]
fn a_profile_of_aws_that_is_not_there_is_named() {
    let world = World::new();
    fs::write(world.path("file"), "x").unwrap();
    let mut command = world.cp(["file", "s3://b/file"]);
    command
        .env("AWS_PROFILE", "nobody")
        .env("AWS_EC2_METADATA_DISABLED", "true");
    let output = command.output().unwrap();
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(7), "{lines}");
    assert!(lines.contains("no profile `nobody`"), "{lines}");
}

/// Starts a store whose keys may read `known`, write anything, and see nothing else.
async fn narrow_store() -> Server {
    Server::start(|asked| {
        let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        match (&*asked.method, path) {
            ("PUT", _) => Answer::sized(200, "etag: \"e\"\r\n", ""),
            ("HEAD" | "GET", "/b/known") if query.is_empty() => {
                Answer::sized(200, "etag: \"e\"\r\n", "bytes")
            }
            _ => Answer::sized(403, "", "<Error><Code>AccessDenied</Code></Error>"),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn set_user_id_bits_that_no_listing_tells_are_counted() {
    let server = Server::start(|asked| {
        let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        let about = "etag: \"e\"\r\nx-amz-meta-mode: 0104755\r\n";
        match (&*asked.method, path) {
            ("HEAD" | "GET", "/b/t/a") => Answer::sized(200, about, "bytes"),
            ("GET", _) if query.contains("list-type=2") => Answer::sized(
                200,
                "",
                "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>t/a</Key>\
                 <LastModified>2025-01-01T00:00:00.000Z</LastModified><ETag>\"e\"</ETag>\
                 <Size>5</Size></Contents></ListBucketResult>",
            ),
            _ => Answer::sized(404, "", ""),
        }
    })
    .await;
    let world = World::new();
    let mut command = world.cp(["-p", "s3://b/t", "t"]);
    command.env("AWS_ENDPOINT_URL", server.url());
    command.env("AWS_ACCESS_KEY_ID", "k");
    command.env("AWS_SECRET_ACCESS_KEY", "s");
    let output = block_in_place(|| command.output().unwrap());
    let lines = lines_of(&output);
    assert_eq!(
        fs::read_to_string(world.path("t/a")).unwrap(),
        "bytes",
        "{lines}"
    );
    assert_eq!(output.status.code(), Some(6), "{lines}");
    assert!(
        lines.contains("set-user-ID and set-group-ID bits of 1 file"),
        "{lines}"
    );
}

/// Runs `posthaste cp` to or from a server.
fn cp(world: &World, server: &Server, arguments: [&str; 2]) -> Output {
    let mut command = world.cp(arguments);
    command.env("AWS_ENDPOINT_URL", server.url());
    command.env("AWS_ACCESS_KEY_ID", "k");
    command.env("AWS_SECRET_ACCESS_KEY", "s");
    block_in_place(|| command.output().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_object_is_copied_by_keys_that_may_not_list() {
    let server = narrow_store().await;
    let world = World::new();
    fs::write(world.path("file"), "x").unwrap();
    for arguments in [
        ["s3://b/known", "back"],
        ["file", "s3://b/new"],
        ["file", "s3://b/folder/"],
        ["file", "s3://b"],
    ] {
        let output = cp(&world, &server, arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            lines_of(&output)
        );
    }
    assert_eq!(fs::read(world.path("back")).unwrap(), b"bytes");
    let refused = cp(&world, &server, ["s3://b/unknown", "other"]);
    assert_eq!(refused.status.code(), Some(7));
    let lines = lines_of(&refused);
    assert!(lines.contains("AccessDenied (is it there?"), "{lines}");
    assert!(!world.path("other").exists());
}

/// Starts a store whose file system ignores case in names, and returns it with the names written.
async fn folding_store() -> (Server, Arc<Mutex<Vec<String>>>) {
    let names = Arc::new(Mutex::new(Vec::new()));
    let (kept, written) = (Mutex::new(BTreeMap::new()), Arc::clone(&names));
    let server = Server::start(move |asked| {
        let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        let mut kept = kept.lock().unwrap();
        let key = path.to_ascii_lowercase();
        match &*asked.method {
            "GET" if query.contains("list-type") => Answer::sized(
                200,
                "",
                "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
            ),
            "PUT" => {
                written.lock().unwrap().push(path.to_owned());
                kept.insert(key, asked.body.clone());
                Answer::sized(200, "etag: \"e\"\r\n", "")
            }
            "DELETE" => {
                kept.remove(&key);
                Answer::sized(204, "", "")
            }
            _ => match kept.get(&key) {
                Some(body) => Answer::sized(200, "etag: \"e\"\r\n", body.clone()),
                None => Answer::sized(404, "", "<Error><Code>NoSuchKey</Code></Error>"),
            },
        }
    })
    .await;
    (server, names)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_names_that_a_store_takes_for_one_the_second_is_left_out() {
    let (server, names) = folding_store().await;
    let world = World::new();
    for name in ["tree/Run", "tree/run", "tree/other", "tree/D/x", "tree/d/y"] {
        let path = world.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    let output = cp(&world, &server, ["tree/", "s3://b/t/"]);
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(6), "{lines}");
    assert_eq!(
        lines.matches("a name that is the same there").count(),
        2,
        "{lines}"
    );
    let names = names.lock().unwrap();
    let mut names: Vec<_> = names.iter().filter(|name| !name.contains("/.")).collect();
    names.sort_unstable();
    assert_eq!(names.len(), 3, "{names:?}");
    shown("S3", "the store takes two names for one", End::LeftOut);
}
