//! Streams whose destination fails: parked elsewhere, completed without their source.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Output, Stdio},
    thread,
    time::Duration,
};

use posthaste_testbed::{Place, S3Server, SshServer};
use serde_json::Value;

use crate::copy::{
    relay::Relay,
    stream::feed,
    world::{World, leftovers, lines_of, noise},
};

const MEBI: usize = 1 << 20;
/// Length of a stream of several segments, the last of which is short.
const STREAM_BYTES: usize = 100 * MEBI + 12_345;
/// Bytes written before the destination dies: three segments are whole.
const BEFORE_BYTES: usize = 60 * MEBI;
/// Bytes written before the first two segments are confirmed: no third one is whole.
const FIRST_BYTES: usize = 33 * MEBI;
/// Interval between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Looks before a test gives up: five minutes.
const LOOKS_MAX: u32 = 6_000;

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS_MAX {
        if is_so() {
            return;
        }
        thread::sleep(LOOK_EVERY);
    }
    panic!("{what} did not happen");
}

/// Stream on its way to an S3 server.
struct Pouring {
    child: Child,
    input: ChildStdin,
}

impl Pouring {
    /// Starts the stream with `bytes`, and waits until the store has confirmed two segments.
    fn start(world: &World, park: &[&str], bytes: &[u8]) -> Self {
        let mut child = world
            .cp(["-", "s3://testbed/run/out", "--json"])
            .args(park)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        // Of more segments any two might be confirmed: what comes before a hole is all that can be
        // completed without the source.
        let (first, rest) = bytes.split_at(FIRST_BYTES);
        input.write_all(first).unwrap();
        wait_until("two confirmed segments", || confirmed(world) >= 2);
        input.write_all(rest).unwrap();
        Self { child, input }
    }

    /// Writes the rest and waits for the end.
    fn finish(mut self, bytes: &[u8]) -> Output {
        let _ = self.input.write_all(bytes);
        drop(self.input);
        self.child.wait_with_output().unwrap()
    }
}

/// Counts the segments in the ledgers of unfinished uploads.
fn confirmed(world: &World) -> usize {
    let state = fs::read_dir(world.path("home/.local/state/posthaste/unfinished"));
    let ledgers = state
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let lines = |path: PathBuf| {
        let is_ledger = path
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("s3-");
        let text = is_ledger.then(|| fs::read_to_string(path).unwrap_or_default());
        text.map_or(0, |text| text.lines().count().saturating_sub(1))
    };
    ledgers.map(lines).sum()
}

fn parked(world: &World, arguments: &[&str]) -> Output {
    world
        .posthaste(["parked"])
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs `posthaste parked` with JSON, which must succeed.
fn parked_json(world: &World, arguments: &[&str]) -> Value {
    let output = parked(world, &[arguments, &["--json"]].concat());
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        lines_of(&output)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the id of the only parked stream, which must be in this state.
fn only(world: &World, state: &str) -> (String, Value) {
    let list = parked_json(world, &["list"]);
    let [one] = &list.as_array().unwrap()[..] else {
        panic!("not one stream: {list}");
    };
    assert_eq!(one["state"], state, "{one}");
    (one["id"].as_str().unwrap().to_owned(), one.clone())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

/// Parks a stream's rest at `place`, after the store accepted the first segments and died.
fn park_half(server: &mut S3Server, world: &World, place: &str) -> (Vec<u8>, String) {
    let bytes = noise(21, STREAM_BYTES);
    let pouring = Pouring::start(world, &["--park", place], &bytes[..BEFORE_BYTES]);
    server.kill();
    let output = pouring.finish(&bytes[BEFORE_BYTES..]);
    assert_eq!(output.status.code(), Some(12), "{}", lines_of(&output));
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (id, listed) = only(world, "whole");
    assert_eq!(figures["parked"]["id"], id.as_str());
    let there = listed["confirmed_bytes"].as_u64().unwrap();
    let elsewhere = listed["parked_bytes"].as_u64().unwrap();
    assert!(there >= 32 << 20, "{listed}");
    assert_eq!(there + elsewhere, STREAM_BYTES as u64, "{listed}");
    (bytes, id)
}

#[test]
fn a_stream_whose_store_dies_is_parked_and_completed_without_its_source() {
    let mut server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    let (bytes, id) = park_half(&mut server, &world, "place");
    for name in names(&world.path("place")) {
        let written = fs::read(world.path("place").join(name)).unwrap();
        let secret = S3Server::SECRET_KEY.as_bytes();
        let tells = written.windows(secret.len()).any(|window| window == secret);
        assert!(!tells, "a secret was parked");
    }
    // Nothing is given up while the store is away.
    let early = parked(&world, &["resume", &id]);
    assert_eq!(early.status.code(), Some(5), "{}", lines_of(&early));
    server.restart().unwrap();
    let resumed = parked_json(&world, &["resume", &id]);
    assert!(
        resumed["kept_bytes"].as_u64().unwrap() >= 32 << 20,
        "{resumed}"
    );
    assert!(fs::read(server.bucket_folder().join("run/out")).unwrap() == bytes);
    assert_eq!(names(&world.path("place")), Vec::<String>::new());
    assert_eq!(parked_json(&world, &["list"]), Value::Array(vec![]));
}

#[test]
fn another_machine_completes_what_was_parked_at_a_relay() {
    let mut server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    let relay = Relay::start(&world, "1G");
    relay.introduce(&world, "127.0.0.1");
    let place = relay.address("parked");
    let (bytes, id) = park_half(&mut server, &world, &place);
    server.restart().unwrap();
    // It knows nothing but where the place is.
    fs::remove_dir_all(world.path("home/.local")).unwrap();
    assert_eq!(parked(&world, &["resume", &id]).status.code(), Some(4));
    let resumed = parked_json(&world, &["resume", &id, "--at", &place]);
    assert!(
        resumed["kept_bytes"].as_u64().unwrap() >= 32 << 20,
        "{resumed}"
    );
    assert!(fs::read(server.bucket_folder().join("run/out")).unwrap() == bytes);
    assert_eq!(
        names(&world.path("relay/files/parked")),
        Vec::<String>::new()
    );
}

#[test]
fn what_the_destination_lost_is_said_and_nothing_is_published() {
    let mut server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    let (_, id) = park_half(&mut server, &world, "place");
    // Somebody cleans up unfinished uploads.
    let uploads = server.bucket_folder().join(".sgwtmp");
    assert!(uploads.is_dir(), "no unfinished upload");
    fs::remove_dir_all(uploads).unwrap();
    server.restart().unwrap();
    let output = parked(&world, &["resume", &id]);
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(1), "{lines}");
    assert!(
        lines.contains("had confirmed are gone there and were not parked: bytes 0 to "),
        "{lines}"
    );
    assert!(!server.bucket_folder().join("run/out").exists());
    only(&world, "whole");
    // A half-written piece goes too.
    let half =
        format!(".parked-{id}.0000000000000000-00000001-0000000000000000.0123.posthaste-partial");
    fs::write(world.path("place").join(half), "x").unwrap();
    fs::write(world.path("place/somebody-elses"), "x").unwrap();
    let dropped = parked_json(&world, &["drop", &id]);
    assert_eq!(dropped["left"], Value::Null);
    assert_eq!(names(&world.path("place")), ["somebody-elses"]);
}

#[test]
fn a_stream_killed_while_it_is_parked_is_found_and_cut_short_only_when_asked() {
    let mut server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    let bytes = noise(22, STREAM_BYTES);
    let mut pouring = Pouring::start(&world, &["--park", "place"], &bytes[..BEFORE_BYTES]);
    server.kill();
    let place = world.path("place");
    let pieces = || {
        names(&place)
            .iter()
            .filter(|name| {
                name.contains('-') && !name.ends_with(".json") && !name.ends_with(".note")
            })
            .count()
    };
    let mut input = pouring.input;
    let rest = bytes[BEFORE_BYTES..].to_vec();
    let feeding = thread::spawn(move || {
        // The end is not written: whoever kept it open is killed with the rest.
        let _ = input.write_all(&rest);
        input
    });
    wait_until("a parked piece", || pieces() >= 2);
    pouring.child.kill().unwrap();
    pouring.child.wait().unwrap();
    drop(feeding.join().unwrap());
    let (id, _) = only(&world, "open");
    server.restart().unwrap();
    for (verb, said) in [("resume", "--cut-short"), ("drop", "--force")] {
        let output = parked(&world, &[verb, &id]);
        let lines = lines_of(&output);
        assert_eq!(output.status.code(), Some(2), "{lines}");
        assert!(
            lines.contains("its end was never seen") && lines.contains(said),
            "{lines}"
        );
    }
    let resumed = parked_json(&world, &["resume", &id, "--cut-short"]);
    let size = usize::try_from(resumed["size_bytes"].as_u64().unwrap()).unwrap();
    assert!((32 * MEBI..=STREAM_BYTES).contains(&size), "{resumed}");
    let found = fs::read(server.bucket_folder().join("run/out")).unwrap();
    assert!(found == bytes[..size], "{} bytes differ", found.len());
    assert_eq!(names(&world.path("place")), Vec::<String>::new());
}

#[test]
fn a_destination_that_was_down_from_the_start_gets_all_of_it_later() {
    let mut server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    server.kill();
    let small = noise(23, 100_000);
    let command = world.cp(["-", "s3://testbed/small", "--park", "place"]);
    let output = feed(command, small.clone()).wait_with_output().unwrap();
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(12), "{lines}");
    let (id, listed) = only(&world, "whole");
    assert!(
        lines.contains(&format!("`posthaste parked resume {id}` completes it")),
        "{lines}"
    );
    assert_eq!(listed["parked_bytes"], small.len());
    server.restart().unwrap();
    parked_json(&world, &["resume", &id]);
    assert!(fs::read(server.bucket_folder().join("small")).unwrap() == small);
}

#[test]
fn what_a_server_can_not_promise_to_keep_is_parked_as_well() {
    let server = SshServer::start_refusing(&Place::default(), "fsync").unwrap();
    let world = World::new().with_ssh(&server);
    let bytes = noise(27, STREAM_BYTES);
    let there = server.address(&world.path("far/out").display().to_string());
    let mut pouring = world.cp(["-", &there, "--park", "place"]);
    let mut pouring = pouring.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = pouring.stdin.take().unwrap();
    input.write_all(&bytes[..BEFORE_BYTES]).unwrap();
    let place = world.path("place");
    let held = |name: &String| fs::metadata(place.join(name)).map_or(0, |found| found.len());
    let is_piece = |name: &&String| name.starts_with("parked-") && !name.ends_with(".json");
    let parked_bytes = || -> u64 { names(&place).iter().filter(is_piece).map(held).sum() };
    wait_until("three segments at both places", || {
        parked_bytes() >= 48 << 20
    });
    // The server's machine goes down and comes back without them; so does this one.
    pouring.kill().unwrap();
    pouring.wait().unwrap();
    drop(input);
    let lost = leftovers(&world.path("far"));
    assert_eq!(lost.len(), 1, "{lost:?}");
    fs::remove_file(&lost[0]).unwrap();
    let (id, _) = only(&world, "open");
    let mut resuming = vec!["resume".to_owned(), id, "--cut-short".to_owned()];
    for option in server.options() {
        resuming.extend(["--ssh-option".to_owned(), option]);
    }
    let resuming: Vec<&str> = resuming.iter().map(String::as_str).collect();
    let resumed = parked_json(&world, &resuming);
    assert_eq!(resumed["kept_bytes"], 0, "{resumed}");
    let size = usize::try_from(resumed["size_bytes"].as_u64().unwrap()).unwrap();
    assert!((48 * MEBI..=BEFORE_BYTES).contains(&size), "{resumed}");
    assert!(fs::read(world.path("far/out")).unwrap() == bytes[..size]);
    assert_eq!(names(&place), Vec::<String>::new());
    let unfinished = leftovers(&world.path("far"));
    assert!(unfinished.is_empty(), "{unfinished:?}");
}

#[test]
fn a_damaged_piece_is_noticed_before_anything_is_published() {
    let mut server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    server.kill();
    let command = world.cp(["-", "s3://testbed/out", "--park", "place"]);
    let output = feed(command, noise(24, 100_000))
        .wait_with_output()
        .unwrap();
    assert_eq!(output.status.code(), Some(12), "{}", lines_of(&output));
    let (id, _) = only(&world, "whole");
    let place = world.path("place");
    let piece = names(&place)
        .into_iter()
        .find(|name| !name.ends_with(".json"))
        .unwrap();
    let mut bytes = fs::read(place.join(&piece)).unwrap();
    bytes[50_000] ^= 1;
    fs::write(place.join(&piece), bytes).unwrap();
    server.restart().unwrap();
    let output = parked(&world, &["resume", &id]);
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(1), "{lines}");
    assert!(
        lines.contains("its bytes are not those that were parked"),
        "{lines}"
    );
    assert!(!server.bucket_folder().join("out").exists());
}

#[test]
fn a_stream_that_arrives_leaves_nothing_at_its_parking_place() {
    let server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    let bytes = noise(25, 40 * MEBI);
    let command = world.cp(["-", "s3://testbed/out", "--park", "place"]);
    let output = feed(command, bytes.clone()).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", lines_of(&output));
    assert!(fs::read(server.bucket_folder().join("out")).unwrap() == bytes);
    assert_eq!(names(&world.path("place")), Vec::<String>::new());
}

#[test]
fn without_a_parking_place_the_line_says_what_is_lost_and_what_would_have_kept_it() {
    let mut server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    let bytes = noise(26, STREAM_BYTES);
    let pouring = Pouring::start(&world, &[], &bytes[..BEFORE_BYTES]);
    server.kill();
    let output = pouring.finish(&bytes[BEFORE_BYTES..]);
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(5), "{lines}");
    assert!(
        lines.contains("that were read are lost, and can't be read again"),
        "{lines}"
    );
    assert!(
        lines.contains("with --park URL they would have been kept"),
        "{lines}"
    );
    assert_eq!(parked(&world, &["list"]).status.code(), Some(0));
}

#[test]
fn what_names_no_parked_stream_is_refused_in_a_line() {
    let world = World::new();
    fs::create_dir(world.path("place")).unwrap();
    for (arguments, code, said) in [
        (&["resume", "banana"][..], 2, "12 hexadecimal digits"),
        (&["resume", "0123456789ab"], 4, "name another with --at"),
        (
            &["resume", "0123456789ab", "--at", "place"],
            4,
            "name another with --at",
        ),
        (
            &["drop", "0123456789ab", "--at", "nowhere"],
            4,
            "name another with --at",
        ),
    ] {
        let output = parked(&world, arguments);
        let lines = lines_of(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {lines}");
        assert!(lines.contains(said), "{arguments:?}: {lines}");
    }
    let id = "0123456789ab";
    fs::write(world.path(&format!("place/parked-{id}.json")), "{").unwrap();
    let output = parked(&world, &["list", "--at", "place"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        lines_of(&output).contains("it is no record"),
        "{}",
        lines_of(&output)
    );
}
