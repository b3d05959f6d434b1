//! `posthaste offload --to ADDRESS` against a real service and a real store, with everything that
//! goes wrong.

mod places;

use crate::support::sources;

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt, path::Path, sync::Mutex};

use crate::support::sources::{Centre, chunks, make_tree, picture, text};
use posthaste_testbed::odd::{Answer, Files, Habits, Server};
use serde_json::Value;

/// Starts a centre with results on scratch, and returns their content.
fn with_results(rate: &str, files: usize) -> (Centre, Vec<(std::path::PathBuf, Vec<u8>)>) {
    let centre = Centre::with(rate, "40M", 0);
    make_tree(&centre.scratch("out"), files);
    let whole = picture(&centre.scratch("out"));
    (centre, whole)
}

fn offload(centre: &Centre, more: &[&str]) -> Value {
    let from = centre.scratch("out");
    let mut arguments = vec!["offload", from.to_str().unwrap(), "--json"];
    arguments.extend_from_slice(more);
    centre.json(&arguments)
}

fn refused(centre: &Centre, more: &[&str]) -> (Option<i32>, String) {
    let from = centre.scratch("out");
    let mut arguments = vec!["offload", from.to_str().unwrap(), "--deadline", "10m"];
    arguments.extend_from_slice(more);
    let output = centre.run(&arguments);
    assert!(!output.status.success(), "{more:?}");
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    (output.status.code(), said)
}

fn is_state(state: &str) -> impl Fn(&Value) -> bool {
    move |request| request["state"] == state
}

#[test]
fn results_reach_a_bucket_as_they_are_and_leave_scratch_once_they_are_there() {
    let (centre, whole) = with_results("40M", 40);
    let there = centre.s3.bucket_folder().join("results/run7");
    let more = ["--to", "archive:results/run7", "--deadline", "10m"];
    let rehearsed = offload(&centre, &[&more[..], &["--dry-run"]].concat());
    assert_eq!(rehearsed["id"], "r0");
    assert!(!there.exists(), "nothing moves for a rehearsal");
    let request = offload(&centre, &[&more[..], &["--release", "when-safe"]].concat());
    let id = request["id"].as_str().unwrap();
    assert_eq!(request["stage_in"]["goes_out"], true);
    let request = centre.wait_until(id, is_state("released"));
    assert_eq!(picture(&there), whole);
    assert!(!centre.scratch("out").exists(), "scratch is free");
    assert_eq!(request["missed"], false);
    assert_eq!(chunks(&request, "chunks"), chunks(&request, "chunks_safe"));
    let story = text(&centre.run(&["explain", id]).stdout);
    let unkept =
        "not kept, as its destination refuses: the mode of 3 and the modification time of 3";
    for said in [
        "from here to archive",
        "all of it was there",
        "released",
        unkept,
    ] {
        assert!(story.contains(said), "{said}: {story}");
    }
    let listed = text(&centre.run(&["list"]).stdout);
    assert!(listed.contains("archive:results/run7"), "{listed}");
}

#[test]
fn an_address_that_nobody_has_is_refused_with_the_one_that_was_meant() {
    let (centre, _) = with_results("40M", 1);
    for (address, said) in [
        (
            "archvie:x",
            "no profile `archvie`, and no host of that name",
        ),
        ("archvie:x", "did you mean `archive`?"),
        ("sftp://typo.invalid/x", "no host has that name"),
        ("webdav://typo.invalid/x", "no host has that name"),
        ("s3://no-such-bucket/x", "create the bucket first"),
    ] {
        for more in [&["--dry-run"][..], &[]] {
            let (code, line) = refused(&centre, &[&["--to", address], more].concat());
            assert!(line.contains(said), "{address} {more:?}: {line}");
            assert_eq!(code, Some(4), "{line}");
        }
        let to = centre.scratch("in");
        let from = ["stage-in", address, to.to_str().unwrap()];
        let staged = centre.run(&[&from[..], &["--deadline", "10m"]].concat());
        let line = text(&staged.stderr);
        assert!(line.contains(said) || address.starts_with("s3"), "{line}");
        assert_eq!(staged.status.code(), Some(4), "{line}");
    }
    for command in [&["ls", "archvie:x"][..], &["cp", "archvie:x", "here"]] {
        let mut local = sources::command(centre.folder.path(), &centre.s3);
        let output = local.args(command).output().unwrap();
        let line = text(&output.stderr);
        assert!(line.contains("did you mean `archive`?"), "{line}");
        assert_eq!(output.status.code(), Some(4), "{line}");
    }
    let home = centre.folder.path().join("home");
    let profiles = home.join(".config/posthaste/profiles.toml");
    let known = fs::read_to_string(&profiles).unwrap();
    fs::write(&profiles, format!("{known}\n[keysalone]\nuser = \"me\"\n")).unwrap();
    let (code, line) = refused(&centre, &["--to", "keysalone:x"]);
    assert!(
        line.contains("the profile `keysalone` has no url"),
        "{line}"
    );
    assert!(
        line.contains("--profile keysalone") && code == Some(4),
        "{line}"
    );
}

#[test]
fn an_address_that_does_not_answer_now_is_a_warning() {
    let (centre, _) = with_results("40M", 1);
    let port = posthaste_testbed::free_port().unwrap();
    let to = format!("webdav://127.0.0.1:{port}/x");
    for more in [&["--dry-run"][..], &[]] {
        let asked = [&["--to", &to, "--deadline", "10m"], more].concat();
        let request = offload(&centre, &asked);
        let warning = request["warnings"][0].as_str().unwrap_or_default();
        assert!(warning.contains("refused"), "{request}");
    }
}

/// Returns the known path to the bucket.
fn path_to_archive(centre: &Centre) -> Value {
    let paths = centre.json(&["paths", "--json"]);
    let mut paths = paths.as_array().unwrap().iter();
    let found = paths.find(|path| path["to"] == "archive");
    found.cloned().unwrap_or_default()
}

#[test]
fn a_path_is_measured_before_a_large_dataset_is_refused_for_what_is_assumed() {
    let (centre, _) = with_results("64M", 1);
    let large = fs::File::create(centre.scratch("out/large")).unwrap();
    // 4 MiB/s, which are assumed where nothing is known, take eight minutes and a half.
    large.set_len(2 << 30).unwrap();
    let more = ["--to", "archive:run7", "--deadline", "4m", "--dry-run"];
    let request = offload(&centre, &more);
    assert_eq!(request["state"], "moving", "{request}");
    assert_eq!(request["at_risk"], false, "{request}");
    let there = centre.s3.bucket_folder();
    let left = picture(&there);
    assert!(
        left.iter().all(|(path, _)| path.starts_with("run")),
        "{left:?}"
    );
    // A rehearsal changes nothing, so nothing is known yet.
    assert_eq!(path_to_archive(&centre), Value::Null);
    centre.json(&["paths", "--probe", "archive:run7", "--json"]);
    let known = path_to_archive(&centre);
    assert_eq!(known["known_by"], "transfers", "{known}");
    let unknown = centre.run(&["paths", "--probe", "archvie:run7"]);
    assert!(text(&unknown.stderr).contains("archvie"));
    assert_eq!(unknown.status.code(), Some(5));
}

#[test]
fn a_deadline_that_can_not_be_kept_is_said_when_it_is_moved() {
    // By its own limit it takes six minutes and a half.
    let (centre, _) = with_results("40M", 40);
    let more = ["--to", "archive:run8", "--deadline", "20m"];
    let request = offload(&centre, &[&more[..], &["--bwlimit", "100k"]].concat());
    let id = request["id"].as_str().unwrap();
    for moved in [
        &["deadline", id, "10s"][..],
        &["modify", id, "--deadline", "10s"],
    ] {
        let said = text(&centre.run(moved).stdout);
        assert!(said.contains("AT RISK, nine times in ten by"), "{said}");
    }
}

#[test]
fn what_takes_longer_than_a_stall_by_its_cap_is_none() {
    // A file has a MiB, and so takes fifteen seconds.
    let (centre, whole) = with_results("70k", 1);
    let asked = offload(
        &centre,
        &["--to", "archive:results/slow", "--deadline", "10m"],
    );
    let id = asked["id"].as_str().unwrap();
    centre.wait_until(id, is_state("arrived"));
    let there = centre.s3.bucket_folder().join("results/slow");
    assert_eq!(picture(&there), whole);
    let told = text(&centre.run(&["explain", id]).stdout);
    assert!(!told.contains("was left"), "{told}");
}

#[test]
fn a_killed_service_and_a_store_that_is_away_lose_nothing() {
    let (mut centre, whole) = with_results("5M", 100);
    let request = offload(&centre, &["--to", "archive:run7", "--deadline", "20m"]);
    let id = request["id"].as_str().unwrap();
    let before = centre.wait_until(id, |request| chunks(request, "chunks_safe") >= 4);
    centre.kill();
    centre.restart();
    let after = centre.json(&["status", id, "--json"]);
    assert!(chunks(&after, "chunks_safe") >= chunks(&before, "chunks_safe"));
    centre.wait_until(id, |request| chunks(request, "chunks_safe") >= 8);
    centre.s3.kill();
    centre.wait_until(id, |request| {
        request["stage_in"]["sources"][0]["state"] == "down"
    });
    centre.s3.restart().unwrap();
    let request = centre.wait_until(id, is_state("arrived"));
    assert_eq!(picture(&centre.s3.bucket_folder().join("run7")), whole);
    assert_eq!(
        picture(&centre.scratch("out")),
        whole,
        "nobody asked for its removal"
    );
    assert_eq!(request["missed"], false);
}

#[test]
fn what_goes_under_a_limit_of_its_own_does_not_make_its_path_look_slow() {
    const LIMIT: u64 = 2 << 20;
    let (mut centre, _) = with_results("40M", 40);
    let to = centre.folder.path().join("archive");
    let more = [
        "--to",
        to.to_str().unwrap(),
        "--deadline",
        "30m",
        "--bwlimit",
        "2M",
    ];
    let request = offload(&centre, &more);
    let id = request["id"].as_str().unwrap();
    let look = |centre: &Centre| {
        let paths = centre.json(&["paths", "--json"]);
        let paths = paths.as_array().unwrap().iter();
        for path in paths.filter(|path| path["from"] == "centre") {
            let rate = path["rate_p50_bytes_per_s"].as_u64().unwrap();
            assert!(rate > 4 * LIMIT, "{path}");
        }
    };
    let before = centre.wait_until(id, |request| chunks(request, "chunks_safe") >= 3);
    look(&centre);
    centre.kill();
    centre.restart();
    let more = chunks(&before, "chunks_safe") + 3;
    centre.wait_until(id, |request| chunks(request, "chunks_safe") >= more);
    look(&centre);
}

#[test]
fn what_changed_after_it_was_listed_stays_on_scratch() {
    let (centre, whole) = with_results("4M", 60);
    let more = [
        "--to",
        "archive:run7",
        "--deadline",
        "20m",
        "--release",
        "when-safe",
    ];
    let request = offload(&centre, &more);
    let id = request["id"].as_str().unwrap();
    centre.wait_until(id, |request| chunks(request, "chunks_safe") >= 4);
    // Small files go first, or are there by now.
    let changed = centre.scratch("out/deep/er/small");
    fs::write(&changed, "something else").unwrap();
    centre.wait_until(id, |request| {
        request["state"] == "arrived" && request["stage_in"]["releases"] == false
    });
    assert_eq!(fs::read(&changed).unwrap(), b"something else");
    let left = picture(&centre.scratch("out"));
    assert_eq!(left.len(), 1, "the others were removed: {left:?}");
    assert_eq!(
        picture(&centre.s3.bucket_folder().join("run7")).len(),
        whole.len()
    );
    let story = text(&centre.run(&["explain", id]).stdout);
    assert!(
        story.contains("scratch not released") && story.contains("changed"),
        "{story}"
    );
}

#[test]
fn nothing_is_replaced_and_what_makes_no_sense_is_refused() {
    let (centre, whole) = with_results("2M", 40);
    let bucket = centre.s3.bucket_folder();
    fs::create_dir_all(bucket.join("old/deep")).unwrap();
    fs::write(bucket.join("old/deep/theirs"), "theirs").unwrap();
    let (_, said) = refused(&centre, &["--to", "archive:old"]);
    assert!(
        said.contains("already") && said.contains("nothing is ever replaced"),
        "{said}"
    );
    let inside = centre.scratch("out/deep/in");
    let inside = ["--to", inside.to_str().unwrap()];
    for (more, what) in [
        (&inside[..], "it lies in the source"),
        (&["--to", "/dev/null/x"][..], "/dev/null is no directory"),
        (
            &["--to", "/dev/null/x", "--dry-run"],
            "/dev/null is no directory",
        ),
        (&["--to", "s3://x/../y"], "without them"),
        (&["--to", "archive:x", "--code", "2+1"][..], "erasure code"),
        (&["--to", "archive:x,home"], "more than one destination"),
        (&["--to", "archive:x", "--keep", "1d"], "depots keep it"),
        (&["--to", "home"], "--via"),
        (&["--to", "s3://"], "s3://"),
        (&["--to", "s3://x/y", "--profile", "nobody"], "nobody"),
    ] {
        let (_, said) = refused(&centre, more);
        assert!(said.contains(what), "{what}: {said}");
    }
    let request = offload(&centre, &["--to", "archive:new", "--deadline", "10m"]);
    let id = request["id"].as_str().unwrap();
    let (code, said) = refused(&centre, &["--to", "archive:new/deep"]);
    assert!(said.contains("goes there too"), "{code:?} {said}");
    centre.wait_until(id, |request| chunks(request, "chunks_safe") >= 1);
    assert!(centre.run(&["cancel", id]).status.success());
    centre.wait_until(id, is_state("cancelled"));
    assert_eq!(picture(&centre.scratch("out")), whole, "its source stays");
    // What it left there is in the way of nobody who brings the same.
    let again = offload(&centre, &["--to", "archive:new", "--deadline", "10m"]);
    assert_ne!(again["state"], "failed", "{again}");
}

// In docs/reference/edges.md: "two names are one there, and it goes straight there"
#[test]
fn two_names_that_are_one_there_end_it_and_are_named() {
    let (centre, _) = with_results("40M", 2);
    for name in ["Run", "run"] {
        fs::write(centre.scratch("out/deep").join(name), name).unwrap();
    }
    let files = Files::mount(Habits {
        folds_names: |_| true,
        ..Habits::default()
    });
    let to = files.path().join("archive");
    let from = centre.scratch("out");
    let offload = ["offload", from.to_str().unwrap(), "--to"];
    // It may have failed before the command that asked for it ends.
    centre.run(&[&offload[..], &[to.to_str().unwrap(), "--deadline", "20m"]].concat());
    let request = centre.wait_until("r1", is_state("failed"));
    let why = request["reason"].as_str().unwrap();
    let is_named = why.contains("deep/Run") || why.contains("deep/run");
    assert!(
        is_named && why.contains("a name that is the same there"),
        "{why}"
    );
    assert_eq!(request["error_code"], "conflict");
}

#[test]
fn one_file_goes_to_a_directory_of_this_machine() {
    let (centre, _) = with_results("40M", 2);
    let archive = centre.folder.path().join("archive");
    fs::create_dir(&archive).unwrap();
    let from = centre.scratch("out/deep/file 0001");
    let bytes = fs::read(&from).unwrap();
    let to = archive.join("results");
    let arguments = [
        "offload",
        from.to_str().unwrap(),
        "--to",
        to.to_str().unwrap(),
        "--deadline",
        "5m",
        "--release",
        "when-safe",
        "--wait",
    ];
    let output = centre.run(&arguments);
    assert!(
        output.status.success(),
        "{}\n{}",
        text(&output.stderr),
        centre.log()
    );
    assert_eq!(fs::read(to.join("file 0001")).unwrap(), bytes);
    assert!(!from.exists() && centre.scratch("out/deep/file 0000").exists());
}

#[test]
fn a_directory_of_this_machine_has_its_mode_though_the_service_was_killed() {
    let (mut centre, whole) = with_results("40M", 12);
    let to = centre.folder.path().join("archive/run7");
    let there = to.to_str().unwrap();
    let request = offload(
        &centre,
        &["--to", there, "--deadline", "20m", "--bwlimit", "2M"],
    );
    let id = request["id"].as_str().unwrap();
    centre.wait_until(id, |request| chunks(request, "chunks_safe") >= 1);
    centre.kill();
    centre.restart();
    centre.wait_until(id, is_state("arrived"));
    assert_eq!(picture(&to), whole);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&to), mode(&centre.scratch("out")));
}

#[test]
fn what_somebody_changed_there_is_noticed_before_scratch_lets_go() {
    let (mut centre, whole) = with_results("40M", 60);
    let archive = centre.folder.path().join("archive");
    let to = archive.to_str().unwrap().to_owned();
    let more = [
        "--to",
        &to,
        "--deadline",
        "20m",
        "--bwlimit",
        "3M",
        "--release",
        "when-safe",
    ];
    let request = offload(&centre, &more);
    let id = request["id"].as_str().unwrap();
    centre.wait_until(id, |request| chunks(request, "chunks_safe") >= 4);
    centre.kill();
    // Of the same size and time: a copy that looks at these takes it for its own.
    let names = fs::read_dir(archive.join("deep")).unwrap();
    let mut there = names.map(|found| found.unwrap().path());
    let there = there.find(|path| path.to_string_lossy().contains("deep/file "));
    let there = there.unwrap();
    let then = fs::metadata(&there).unwrap().modified().unwrap();
    fs::write(&there, vec![7; 1 << 20]).unwrap();
    let file = fs::File::options().write(true).open(&there).unwrap();
    file.set_modified(then).unwrap();
    centre.restart();
    let lifted = centre.run(&["modify", id, "--bwlimit", "off"]);
    assert!(lifted.status.success(), "{}", text(&lifted.stderr));
    centre.wait_until(id, |request| {
        request["state"] == "arrived" && request["stage_in"]["releases"] == false
    });
    let story = text(&centre.run(&["explain", id]).stdout);
    assert!(
        story.contains("scratch not released") && story.contains("damaged"),
        "{story}"
    );
    assert_eq!(picture(&centre.scratch("out")), whole, "all of it stays");
    let said = "what is there is not what is on scratch";
    assert!(centre.log().contains(said), "{}", centre.log());
}

/// Starts a store that returns the checksum of each write, keeps other bytes of large ones, and
/// gives them versions that say nothing.
async fn careless_store() -> Server {
    let objects = Mutex::new(BTreeMap::new());
    Server::start(move |asked| {
        let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        let mut objects = objects.lock().unwrap();
        match &*asked.method {
            "GET" if query.contains("list-type") => {
                let none = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
                Answer::sized(200, "", none)
            }
            "PUT" => {
                let mut told = format!("etag: \"version-{}\"\r\n", objects.len());
                for (name, value) in &asked.headers {
                    if name == "x-amz-checksum-crc64nvme" || name.starts_with("x-amz-meta-") {
                        told += &format!("{name}: {value}\r\n");
                    }
                }
                let mut bytes = asked.body.clone();
                if let Some(byte) = bytes.get_mut(1 << 19) {
                    *byte ^= 1;
                }
                objects.insert(path.to_owned(), (bytes, told.clone()));
                Answer::sized(200, &told, "")
            }
            "DELETE" => {
                objects.remove(path);
                Answer::sized(204, "", "")
            }
            _ => match objects.get(path) {
                Some((bytes, told)) => Answer::sized(200, told, &**bytes),
                None => Answer::sized(404, "", "<Error><Code>NoSuchKey</Code></Error>"),
            },
        }
    })
    .await
}

// In docs/reference/edges.md: "other bytes are kept than were sent, and nothing but their own checksum is returned"
#[tokio::test(flavor = "multi_thread")]
async fn what_a_store_only_says_to_hold_is_read_before_scratch_lets_go() {
    let store = careless_store().await;
    tokio::task::block_in_place(|| {
        let (centre, whole) = with_results("40M", 2);
        centre.move_archive(&store.url());
        let to = ["--to", "archive:results", "--deadline", "10m"];
        let request = offload(&centre, &[&to[..], &["--release", "when-safe"]].concat());
        let id = request["id"].as_str().unwrap();
        let has_ended = |request: &Value| {
            let is_released = request["state"] == "released";
            is_released || request["stage_in"]["releases"] == false
        };
        let request = centre.wait_until(id, has_ended);
        assert_eq!(picture(&centre.scratch("out")), whole, "{request}");
        let said = "what is there is not what is on scratch";
        assert!(centre.log().contains(said), "{}", centre.log());
    });
}

#[test]
fn what_lies_elsewhere_goes_elsewhere() {
    let centre = Centre::with("40M", "40M", 12);
    let bucket = centre.s3.bucket_folder();
    let far = |from: &str, to: &str| {
        let arguments = ["offload", from, "--to", to, "--deadline", "10m", "--json"];
        let request = centre.json(&arguments);
        centre.wait_until(request["id"].as_str().unwrap(), is_state("arrived"))
    };
    let request = far("mirror:run", "archive:copies/run");
    let run = picture(&bucket.join("run"));
    assert_eq!(picture(&bucket.join("copies/run")), run);
    let path = &request["stage_in"]["sources"][0]["name"];
    assert_eq!(path, "mirror to archive");
    let here = centre.folder.path().join("here");
    far("archive:copies/run", here.to_str().unwrap());
    assert_eq!(picture(&here), run);
    far("archive:copies/run/deep/er/small", "archive:one");
    assert_eq!(fs::read(bucket.join("one/small")).unwrap(), b"small");
    let release = ["--deadline", "10m", "--release", "when-safe"];
    for (from, more, what) in [
        ("archive:run", &release[..], "lies on this machine"),
        ("archive:none", &release[..2], "nothing is there"),
        (
            "archive:run",
            &["--deadline", "10m", "--code", "2+1"],
            "erasure code",
        ),
    ] {
        let arguments = [&["offload", from, "--to", "archive:other"], more].concat();
        let output = centre.run(&arguments);
        let said = text(&output.stderr);
        assert!(
            !output.status.success() && said.contains(what),
            "{what}: {said}"
        );
    }
}
