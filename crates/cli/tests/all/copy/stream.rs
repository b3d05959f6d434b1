//! Sources that can be read once: standard input and named pipes, to every kind of place.

use std::{
    fs,
    io::Write,
    process::{Child, Command, Output, Stdio},
    thread,
};

use posthaste_testbed::{S3Server, SshServer};

use crate::copy::{
    relay::Relay,
    world::{World, leftovers, lines_of, noise},
};

/// Sizes on both sides of the largest single segment, and several segments.
const SIZES: [usize; 5] = [0, 1, 5_000_000, 17_000_001, 70_000_000];

/// Starts a command and writes `bytes` to its standard input on another thread.
pub fn feed(mut command: Command, bytes: Vec<u8>) -> Child {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    thread::spawn(move || {
        // Who ends early says so itself.
        let _ = input.write_all(&bytes);
    });
    child
}

fn pour(world: &World, arguments: &[&str], bytes: Vec<u8>) -> Output {
    feed(world.cp(arguments), bytes).wait_with_output().unwrap()
}

/// Streams all sizes to `there`; `read` returns the content there.
fn pour_all(world: &World, there: &str, read: impl Fn(&str) -> Vec<u8>) {
    for size in SIZES {
        let (bytes, name) = (noise(size as u64, size), format!("out-{size}"));
        let output = pour(
            world,
            &["-", &format!("{there}{name}"), "--json"],
            bytes.clone(),
        );
        assert!(output.status.success(), "{size}: {}", lines_of(&output));
        assert!(read(&name) == bytes, "{size} bytes differ");
        let figures: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&figures["bytes"], &figures["transfers"]),
            (&size.into(), &1.into())
        );
    }
}

#[test]
fn what_goes_to_standard_output_is_written_where_that_stands() {
    let world = World::new();
    let path = world.path("output");
    let mut output = fs::File::create(&path).unwrap();
    output.write_all(b"before\n").unwrap();
    for name in ["/dev/stdout", "/dev/fd/1"] {
        let mut command = world.cp(["-", name]);
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.stdout(output.try_clone().unwrap()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"copied\n").unwrap();
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success(), "{}", lines_of(&ended));
    }
    fs::write(world.path("file"), "a file\n").unwrap();
    let mut command = world.cp(["file", "/dev/stdout"]);
    let ended = command
        .stdout(output.try_clone().unwrap())
        .output()
        .unwrap();
    assert!(ended.status.success(), "{}", lines_of(&ended));
    output.write_all(b"after\n").unwrap();
    let all = b"before\ncopied\ncopied\na file\nafter\n";
    assert_eq!(fs::read(&path).unwrap(), all);
    assert!(fs::symlink_metadata("/dev/stdout").unwrap().is_symlink());
}

#[test]
fn a_file_goes_into_a_pipe_and_one_that_nobody_reads_is_said_as_others_do() {
    let world = World::new();
    let bytes = noise(3, 3_000_000);
    fs::write(world.path("file"), &bytes).unwrap();
    for name in ["-", "/dev/stdout"] {
        let output = world.cp(["file", name]).output().unwrap();
        assert!(output.status.success(), "{}", lines_of(&output));
        assert!(output.stdout == bytes);
    }
    assert!(!world.path("-").exists());
    let mut command = world.cp(["file", "-"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(141));
}

#[test]
fn standard_input_becomes_a_file() {
    let world = World::new();
    fs::write(world.path("out-1"), "what was there before").unwrap();
    pour_all(&world, "", |name| fs::read(world.path(name)).unwrap());
    assert!(leftovers(&world.path("")).is_empty());
}

#[test]
fn standard_input_becomes_an_object() {
    let server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    pour_all(&world, "s3://testbed/deep/", |name| {
        fs::read(server.bucket_folder().join("deep").join(name)).unwrap()
    });
}

#[test]
fn standard_input_becomes_a_file_on_a_server() {
    let server = SshServer::start().unwrap();
    let world = World::new().with_ssh(&server);
    let there = server.address(&format!("{}/", world.path("far").display()));
    pour_all(&world, &there, |name| {
        fs::read(world.path("far").join(name)).unwrap()
    });
    assert!(leftovers(&world.path("far")).is_empty());
}

#[test]
fn standard_input_becomes_a_file_at_a_relay() {
    let world = World::new();
    let relay = Relay::start(&world, "1G");
    relay.introduce(&world, "127.0.0.1");
    let lent = world.path("relay/files/far");
    pour_all(&world, &relay.address("far/"), |name| {
        fs::read(lent.join(name)).unwrap()
    });
    assert!(leftovers(&lent).is_empty());
}

#[test]
fn a_named_pipe_is_read_to_its_end() {
    let server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    let pipe = world.path("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let bytes = noise(5, 40_000_000);
    let (written, place) = (bytes.clone(), pipe.clone());
    let writing = thread::spawn(move || fs::write(place, written).unwrap());
    world.copy(["pipe", "s3://testbed/out"]);
    writing.join().unwrap();
    assert!(fs::read(server.bucket_folder().join("out")).unwrap() == bytes);
}

#[test]
fn what_makes_no_sense_for_a_stream_is_said_in_a_line() {
    let world = World::new();
    fs::create_dir(world.path("folder")).unwrap();
    fs::write(world.path("file"), "x").unwrap();
    for (arguments, code, said) in [
        (&["-", "file", "folder"][..], 2, "beside other sources"),
        (&["folder", "-"], 2, "can't copy that to standard output"),
        (&["s3://b/x", "-"], 2, "copy it to a file first"),
        (
            &["file", "file", "-"],
            2,
            "can't copy that to standard output",
        ),
        (&["-", "folder/"], 2, "it has no name"),
        (
            &["-", "folder"],
            1,
            "it is a directory (give the file a name)",
        ),
        (&["-n", "-", "file"], 2, "leave out -n"),
        (
            &["-", "file", "--optimizer", "auto"],
            2,
            "--optimizer on a stream",
        ),
        (
            &["-", "file", "--max-duration", "1h"],
            2,
            "the rest would be lost",
        ),
        (&["-", "file", "--include", "*.h5"], 2, "no files to choose"),
        (
            &["file", "copy", "--park", "place"],
            2,
            "--park is for streams",
        ),
        (&["-", "nowhere://x/y"], 2, "unknown scheme"),
        (
            &["-", "file", "--park", "http://127.0.0.1:9/x"],
            1,
            "can't write, list and remove",
        ),
        (&["-", "http://127.0.0.1:9/x"], 1, "only read from"),
    ] {
        let output = pour(&world, arguments, b"bytes".to_vec());
        let lines = lines_of(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {lines}");
        assert!(lines.contains(said), "{arguments:?}: {lines}");
        assert_eq!(lines.lines().count(), 1, "{arguments:?}: {lines}");
    }
    assert_eq!(fs::read(world.path("file")).unwrap(), b"x");
}

#[test]
fn a_closed_standard_input_replaces_nothing() {
    let world = World::new();
    fs::write(world.path("kept"), "precious").unwrap();
    let by_shell = |input: &str| {
        let cp = world.cp(["-", "kept"]);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec \"$0\" \"$@\" {input}")]);
        shell.arg(cp.get_program()).args(cp.get_args());
        shell.current_dir(cp.get_current_dir().unwrap_or(&world.path("")));
        shell.envs(
            cp.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        shell.output().unwrap()
    };
    let closed = by_shell("<&-");
    assert!(!closed.status.success(), "{}", lines_of(&closed));
    assert_eq!(fs::read(world.path("kept")).unwrap(), b"precious");
    let empty = by_shell("</dev/null");
    assert!(empty.status.success(), "{}", lines_of(&empty));
    assert_eq!(fs::read(world.path("kept")).unwrap(), b"");
}
