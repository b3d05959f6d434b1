//! `posthaste stage-in` against a real service and real servers, with everything that goes wrong.

mod damaged;
mod left_out;
mod replicas;

use std::{
    fs,
    os::unix::fs::{FileExt, symlink},
    path::PathBuf,
    process::Output,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::support::sources::{Centre, PATIENCE, chunks, make_tree, now, picture, shares, text};
use posthaste_testbed::odd::{Deed, Files, Habits};
use serde_json::Value;

#[test]
fn two_sources_give_as_much_as_each_can_and_the_tree_appears_whole() {
    let centre = Centre::with("12M", "3M", 120);
    let request = centre.stage_in("input", &["--deadline", "10m"]);
    let id = request["id"].as_str().unwrap();
    assert!(!centre.scratch("input").exists(), "it appears only whole");
    let request = centre.wait_until(id, |request| request["state"] == "arrived");
    assert_eq!(
        picture(&centre.scratch("input")),
        picture(&centre.web.files().join("run"))
    );
    assert!(centre.holds_only(&["input"]));
    let shares = shares(&request);
    assert!(shares[0] > shares[1] && shares[1] > 2, "{request}");
    assert_eq!(request["missed"], false);
    let story = text(&centre.run(&["explain", id]).stdout);
    assert!(
        story.contains("came from archive") && story.contains("came from mirror"),
        "{story}"
    );
    let listed = text(&centre.run(&["list"]).stdout);
    assert!(
        listed.contains("arrived") && listed.contains("100 %"),
        "{listed}"
    );
    let output = centre.run(&["cancel", id]);
    assert!(
        !output.status.success(),
        "what is here is no longer cancelled"
    );
}

#[test]
fn a_source_that_dies_and_a_killed_service_cost_no_chunk_that_was_here() {
    let mut centre = Centre::with("8M", "8M", 160);
    let request = centre.stage_in("input", &["--deadline", "20m"]);
    let id = request["id"].as_str().unwrap();
    centre.wait_until(id, |request| chunks(request, "chunks_safe") >= 8);
    centre.s3.kill();
    centre.wait_until(id, |request| {
        request["stage_in"]["sources"][0]["state"] == "down"
    });
    let before = centre.wait_until(id, |request| chunks(request, "chunks_safe") >= 14);
    centre.kill();
    centre.restart();
    let after = centre.json(&["status", id, "--json"]);
    assert!(chunks(&after, "chunks_safe") >= chunks(&before, "chunks_safe"));
    let asked = centre.web.log().matches("GET /run/deep/file").count();
    centre.s3.restart().unwrap();
    let request = centre.wait_until(id, |request| request["state"] == "arrived");
    assert_eq!(
        picture(&centre.scratch("input")),
        picture(&centre.web.files().join("run"))
    );
    let asked = centre.web.log().matches("GET /run/deep/file").count() - asked;
    let missing = chunks(&after, "chunks") - chunks(&after, "chunks_safe");
    // Four files to a chunk, and one that both its chunks read; duplicates are few.
    let most = usize::try_from(5 * (missing + 6)).unwrap();
    assert!(
        asked <= most,
        "{asked} files were read for {missing} chunks: {request}"
    );
    assert!(centre.holds_only(&["input"]));
}

#[test]
fn what_is_not_welcome_yet_waits_and_then_is_in_time() {
    let centre = Centre::with("40M", "40M", 16);
    let to = centre.scratch("input");
    let more = ["--deadline", "90s", "--not-before", "30s"];
    let request = centre.stage_in("input", &more);
    let id = request["id"].as_str().unwrap();
    assert_eq!(request["state"], "waiting");
    assert!(request["stage_in"]["begin_by"].is_string(), "{request}");
    let dry = ["--deadline", "5m", "--dry-run"];
    let rehearsed = centre.stage_in("other", &dry);
    assert_eq!(rehearsed["id"], "r0");
    assert!(!to.exists() && centre.holds_only(&[]));
    let request = centre.wait_until(id, |request| request["state"] == "arrived");
    assert_eq!(request["missed"], false, "{request}\n{}", centre.log());
    let after = request["safe_after_s"].as_f64().unwrap();
    assert!(after > 15.0, "{after}: {request}");
}

#[test]
fn a_source_that_costs_something_gives_what_the_deadline_needs_and_the_budget_pays() {
    let centre = Centre::with("40M", "4M", 60);
    centre.price_archive("usd_per_gb_out = 1.0\nusd_per_1000_gets = 0.4");
    let number = |request: &Value, key: &str| request[key].as_f64().unwrap();
    // Without a budget both give what they can, and that is counted: four MiB a chunk, and a GET
    // for each of some sixteen pieces.
    let request = centre.stage_in("fast", &["--deadline", "10m"]);
    assert!(number(&request, "cost_usd") > 0.0, "{request}");
    let id = request["id"].as_str().unwrap();
    let request = centre.wait_until(id, |request| request["state"] == "arrived");
    let read = shares(&request)[0];
    assert!(read > 0, "{request}");
    let least = 0.0042 * f64::from(u32::try_from(read).unwrap()) * 0.9;
    assert!(number(&request, "spent_usd") > least, "{request}");
    // With one, what there is time for comes for nothing.
    let request = centre.stage_in("cheap", &["--deadline", "10m", "--budget", "0.2"]);
    let id = request["id"].as_str().unwrap();
    let request = centre.wait_until(id, |request| request["state"] == "arrived");
    assert_eq!(number(&request, "spent_usd"), 0.0, "{request}");
    assert_eq!(shares(&request)[0], 0, "{request}");
    assert_eq!(request["wishes"]["budget_usd"], 0.2);
    // The mirror alone takes fifteen seconds.
    let hurried = centre.scratch("hurried");
    let hurry = ["stage-in", "archive:run", "mirror:run", "--deadline", "12s"];
    let more = ["--best-effort", "--budget", "0.2", "--json"];
    let hurry = [&hurry[..], &more, &[hurried.to_str().unwrap()]].concat();
    let request: Value = loop {
        let asked = centre.run(&hurry);
        if asked.status.success() {
            break serde_json::from_slice(&asked.stdout).unwrap();
        }
        // On a busy machine it may be over before it is looked at.
        let why = text(&asked.stderr);
        assert!(why.contains("passed"), "{why}");
    };
    let id = request["id"].as_str().unwrap();
    let request = centre.wait_until(id, |request| request["state"] == "arrived");
    let spent = number(&request, "spent_usd");
    assert!(0.0 < spent && spent <= 0.2, "{request}");
    let story = text(&centre.run(&["explain", id]).stdout);
    assert!(story.contains("of its budget of $0.2"), "{story}");
    let to = centre.scratch("other");
    let asked = ["stage-in", "archive:run", to.to_str().unwrap()];
    let ask = |more: &[&str]| centre.run(&[&asked[..], more].concat());
    let told = text(&ask(&["--deadline", "10m", "--dry-run"]).stdout);
    assert!(told.contains("  costs    $0.0"), "{told}");
    let refused = ask(&["--deadline", "10m", "--budget", "0.001"]);
    assert_eq!(refused.status.code(), Some(11));
    let (offered, why) = (text(&refused.stdout), text(&refused.stderr));
    assert!(why.contains("$0.0010 does not pay it"), "{why}");
    assert!(offered.contains("the same with --budget 0.0"), "{offered}");
    let wrong = ask(&["--deadline", "10m", "--budget", "-1"]);
    assert!(!wrong.status.success());
    centre.price_archive("usd_per_gb_out = -1");
    let wrong = text(&ask(&["--deadline", "10m", "--dry-run"]).stderr);
    assert!(
        wrong.contains("not understood") && !wrong.contains(".rs"),
        "{wrong}"
    );
    assert!(centre.holds_only(&["fast", "cheap", "hurried"]));
}

#[test]
fn cancelling_and_changed_sources_leave_nothing_behind() {
    let centre = Centre::with("4M", "4M", 100);
    let request = centre.stage_in("input", &["--deadline", "10m"]);
    let id = request["id"].as_str().unwrap();
    centre.wait_until(id, |request| chunks(request, "chunks_safe") >= 2);
    assert!(!centre.holds_only(&[]), "a draft is there");
    assert!(centre.run(&["cancel", id]).status.success());
    centre.wait_until(id, |request| request["state"] == "cancelled");
    let start = now();
    while !centre.holds_only(&[]) {
        assert!(start.elapsed() < PATIENCE, "{}", centre.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    let request = centre.stage_in("input", &["--deadline", "10m"]);
    let id = request["id"].as_str().unwrap();
    centre.wait_until(id, |request| chunks(request, "chunks_safe") >= 2);
    for number in 90..100 {
        let path = format!("run/deep/file {number:04}");
        for root in [centre.s3.bucket_folder(), centre.web.files()] {
            fs::write(root.join(&path), b"something else").unwrap();
        }
    }
    let request = centre.wait_until(id, |request| request["state"] == "failed");
    let reason = request["reason"].as_str().unwrap();
    assert!(reason.contains("changed"), "{reason}\n{}", centre.log());
    assert!(!centre.scratch("input").exists());
}

#[test]
fn what_makes_no_sense_is_refused_in_one_line_and_leaves_nothing() {
    let centre = Centre::with("40M", "1M", 60);
    fs::create_dir(centre.scratch("taken")).unwrap();
    fs::write(centre.web.files().join("run/deep/er/small"), b"other").unwrap();
    make_tree(&centre.web.files().join("less"), 2);
    fs::write(centre.web.files().join("less/deep/file 0001"), b"1").unwrap();
    let to = centre.scratch("input");
    let (to, taken) = (to.to_str().unwrap(), centre.scratch("taken"));
    let nowhere = centre.scratch("no/where");
    let whole = centre.web.files().join("run");
    let inside = whole.join("deep/in");
    let (whole, inside) = (whole.to_str().unwrap(), inside.to_str().unwrap());
    let wrong: [(&[&str], &str); 9] = [
        (
            &[whole, inside, "--deadline", "5m"],
            "it lies in the source",
        ),
        (
            &["archive:none", to, "--deadline", "5m"],
            "nothing is there",
        ),
        (
            &["archive:run", "mirror:less", to, "--deadline", "5m"],
            "archive:run holds: deep/file 0001 has 1048576 bytes at one and 1 at the other",
        ),
        (
            &["archive:run", "mirror:run", to, "--deadline", "5m"],
            "the data itself differs",
        ),
        (
            &["archive:run", taken.to_str().unwrap(), "--deadline", "5m"],
            "something is there already",
        ),
        (
            &["archive:run", nowhere.to_str().unwrap(), "--deadline", "5m"],
            "scratch/no",
        ),
        (&["mirror:run", to, "--deadline", "15s"], "can't be met"),
        (
            &["archive:run", "archive:run", to, "--deadline", "5m"],
            "named twice",
        ),
        (
            &["archive:run", to, "--deadline", "5m", "--not-before", "6m"],
            "welcome only when",
        ),
    ];
    for (arguments, said) in wrong {
        let mut all = vec!["stage-in"];
        all.extend_from_slice(arguments);
        let output = centre.run(&all);
        let error = text(&output.stderr);
        assert!(
            !output.status.success() && error.contains(said),
            "{arguments:?}: {error}"
        );
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    }
    assert!(centre.holds_only(&["taken"]));
}

/// Writes trees of which the S3 server holds the first part and the web server the last, and both a
/// little. Returns their whole content.
fn make_halves(centre: &Centre) -> Vec<(PathBuf, Vec<u8>)> {
    let roots = [centre.s3.bucket_folder(), centre.web.files()];
    let [left, right] = roots.map(|root| root.join("half"));
    make_tree(&left, 60);
    make_tree(&right, 140);
    for number in 0..40 {
        fs::remove_file(right.join(format!("deep/file {number:04}"))).unwrap();
    }
    fs::write(left.join("left"), b"only here").unwrap();
    fs::write(right.join("deep/er/empty"), b"").unwrap();
    let mut all = picture(&left);
    all.extend(picture(&right));
    all.sort();
    all.dedup();
    all
}

fn ask_for_halves(centre: &Centre, deadline: &str) -> Output {
    let to = centre.scratch("input");
    let to = to.to_str().unwrap();
    centre.run(&[
        "stage-in",
        "archive:half",
        "mirror:half",
        to,
        "--deadline",
        deadline,
        "--json",
    ])
}

#[test]
fn what_lies_apart_comes_together_whoever_dies_meanwhile() {
    let mut centre = Centre::with("3M", "12M", 1);
    let whole = make_halves(&centre);
    let answer = ask_for_halves(&centre, "20m");
    assert!(answer.status.success(), "{}", text(&answer.stderr));
    let request: Value = serde_json::from_slice(&answer.stdout).unwrap();
    let id = request["id"].as_str().unwrap();
    let source = |request: &Value, place: usize, key: &str| {
        request["stage_in"]["sources"][place][key].as_u64().unwrap()
    };
    assert_eq!(
        source(&request, 0, "alone_bytes"),
        (40 << 20) + 9,
        "{request}"
    );
    assert_eq!(source(&request, 1, "alone_bytes"), 80 << 20, "{request}");
    centre.wait_until(id, |request| {
        source(request, 0, "chunks") >= 2 && source(request, 1, "chunks") >= 2
    });
    // The one that alone holds something dies: the other gives what it holds, and then it is at
    // risk.
    centre.s3.kill();
    centre.wait_until(id, |request| {
        request["stage_in"]["sources"][0]["state"] == "down"
    });
    centre.kill();
    centre.restart();
    let left = |request: &Value| chunks(request, "chunks") - chunks(request, "chunks_safe");
    let request = centre.wait_until(id, |request| {
        left(request) <= 10 && request["at_risk"] == true
    });
    let binding = &request["stage_in"]["binding"];
    assert_eq!(binding["sources"][0], "archive", "{request}");
    centre.s3.restart().unwrap();
    let request = centre.wait_until(id, |request| request["state"] == "arrived");
    assert_eq!(picture(&centre.scratch("input")), whole);
    assert!(centre.holds_only(&["input"]));
    assert_eq!(request["missed"], false);
    let web = centre.web.log();
    let was_asked = |number: u32| {
        let forms = [
            format!("deep/file {number:04}"),
            format!("deep/file%20{number:04}"),
        ];
        forms.iter().any(|form| web.contains(form))
    };
    assert!((60..140).all(was_asked) && !(0..40).any(was_asked));
    let story = text(&centre.run(&["explain", id]).stdout);
    assert!(story.contains("that lie only at archive"), "{story}");
}

#[test]
fn a_slow_source_that_alone_holds_something_binds_and_the_refusal_names_it() {
    let centre = Centre::with("400M", "2M", 1);
    let whole = make_halves(&centre);
    // 80 MiB that only the mirror holds, at 2 MB/s.
    let answer = ask_for_halves(&centre, "20s");
    let error = text(&answer.stderr);
    assert!(
        answer.status.code() == Some(11) && error.contains("that lie only at mirror"),
        "{error}"
    );
    let to = centre.scratch("input");
    let to = to.to_str().unwrap();
    let dry = [
        "stage-in",
        "archive:half",
        "mirror:half",
        to,
        "--deadline",
        "10m",
        "--dry-run",
    ];
    let said = text(&centre.run(&dry).stdout);
    assert!(
        said.contains("80.0 MiB only there") && said.contains("that only mirror holds"),
        "{said}"
    );
    assert_eq!(whole.len(), 144);
    // A single file beside a tree is one more file of it.
    let file = centre.scratch("note.txt");
    fs::write(&file, b"mine").unwrap();
    let to = centre.scratch("both");
    let arguments = [
        "stage-in",
        file.to_str().unwrap(),
        "archive:half/deep/er",
        to.to_str().unwrap(),
    ];
    let mut arguments = arguments.to_vec();
    arguments.extend(["--deadline", "5m", "--json"]);
    let request = centre.json(&arguments);
    centre.wait_until(request["id"].as_str().unwrap(), |request| {
        request["state"] == "arrived"
    });
    let names: Vec<PathBuf> = picture(&to).into_iter().map(|(path, _)| path).collect();
    assert_eq!(names, [PathBuf::from("note.txt"), PathBuf::from("small")]);
}

#[test]
fn what_has_no_room_is_refused_in_one_line_and_leaves_nothing() {
    let centre = Centre::with("40M", "40M", 1);
    let vast = centre.folder.path().join("vast");
    fs::create_dir(&vast).unwrap();
    // More than any disk of a test has; it takes nothing itself.
    fs::File::create(vast.join("hole"))
        .unwrap()
        .set_len(1 << 43)
        .unwrap();
    let to = centre.scratch("input");
    let base = [
        "stage-in",
        vast.to_str().unwrap(),
        to.to_str().unwrap(),
        "--deadline",
        "99d",
    ];
    for more in [&[][..], &["--best-effort", "--dry-run"]] {
        let output = centre.run(&[&base[..], more].concat());
        let error = text(&output.stderr);
        assert!(
            !output.status.success() && error.contains("it takes 8.0 TiB, and"),
            "{error}"
        );
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    }
    assert!(centre.holds_only(&[]));
}

#[test]
fn modes_and_times_that_a_bucket_tells_of_each_object_alone_come_along() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let centre = Centre::with("40M", "40M", 1);
    let source = centre.folder.path().join("sec");
    make_tree(&source, 3);
    for (name, mode, bytes) in [("key", 0o600, 5), ("run.sh", 0o755, 9), ("empty", 0o640, 0)] {
        let path = source.join(name);
        fs::write(&path, vec![7; bytes]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        let then = std::time::UNIX_EPOCH + Duration::from_secs(1_300_000_000);
        file.set_modified(then).unwrap();
    }
    let copied = centre.run_alone(&["cp", "sec", "archive:sec"]);
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    let to = centre.scratch("input");
    let asked = [
        "stage-in",
        "archive:sec",
        to.to_str().unwrap(),
        "--deadline",
        "10m",
        "--json",
    ];
    let request = centre.json(&asked);
    centre.wait_until(request["id"].as_str().unwrap(), |request| {
        request["state"] == "arrived"
    });
    for name in ["key", "run.sh", "empty"] {
        let [was, is] = [source.join(name), to.join(name)].map(|path| fs::metadata(path).unwrap());
        assert_eq!((is.mode(), is.mtime()), (was.mode(), was.mtime()), "{name}");
    }
}

#[test]
fn what_a_service_has_open_is_no_source() {
    let centre = Centre::with("40M", "40M", 0);
    symlink("/proc/self/fd", centre.folder.path().join("link")).unwrap();
    let link = format!("{}/link/1", centre.folder.path().display());
    for from in [
        "/proc/self/fd/1",
        "/proc/self/fd",
        "/proc/self/environ",
        "/sys/kernel",
        &link,
    ] {
        let to = centre.scratch("input");
        let output = centre.run(&["stage-in", from, to.to_str().unwrap(), "--deadline", "10m"]);
        let said = text(&output.stderr);
        assert!(
            !output.status.success() && said.contains("the system's own"),
            "{from}: {said}"
        );
    }
    assert!(centre.holds_only(&[]));
}

#[test]
fn a_tree_comes_over_ssh_with_the_options_of_a_profile() {
    let centre = Centre::with("40M", "40M", 1);
    let ssh = posthaste_testbed::SshServer::start().unwrap();
    let tree = centre.folder.path().join("far");
    make_tree(&tree, 12);
    let profiles = centre
        .folder
        .path()
        .join("home/.config/posthaste/profiles.toml");
    let text = fs::read_to_string(&profiles).unwrap();
    let options: Vec<String> = ssh
        .options()
        .iter()
        .map(|option| format!("{option:?}"))
        .collect();
    let url = ssh.address(tree.to_str().unwrap());
    let options = options.join(", ");
    let text = format!("{text}\n[tape]\nurl = \"{url}\"\nssh_options = [{options}]\n");
    fs::write(&profiles, text).unwrap();
    let to = centre.scratch("input");
    let to = to.to_str().unwrap();
    // One by its name, one by its address with the profile: the same place, and one more with less.
    let deep = format!("{url}/deep");
    let request = centre.json(&["stage-in", "tape:", to, "--deadline", "10m", "--json"]);
    centre.wait_until(request["id"].as_str().unwrap(), |request| {
        request["state"] == "arrived"
    });
    assert_eq!(picture(&centre.scratch("input")), picture(&tree));
    let other = centre.scratch("other");
    let other = other.to_str().unwrap();
    let arguments = [
        "stage-in",
        &deep,
        other,
        "--profile",
        "tape",
        "--deadline",
        "10m",
        "--json",
    ];
    let request = centre.json(&arguments);
    centre.wait_until(request["id"].as_str().unwrap(), |request| {
        request["state"] == "arrived"
    });
    assert_eq!(
        picture(&centre.scratch("other")),
        picture(&tree.join("deep"))
    );
    let output = centre.run(&["stage-in", &deep, &format!("{to}2"), "--deadline", "10m"]);
    assert!(
        !output.status.success(),
        "without the profile nobody lets it in"
    );
}

/// Requests a file of so many bytes on a file system of these habits; returns its destination, and
/// the request's number.
fn stage_to(centre: &Centre, files: &Files, size: usize) -> (PathBuf, String) {
    let source = centre.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), vec![7; size]).unwrap();
    let to = files.path().join("input");
    let request = centre.json(&[
        "stage-in",
        source.to_str().unwrap(),
        to.to_str().unwrap(),
        "--deadline",
        "20m",
        "--json",
    ]);
    (to, request["id"].as_str().unwrap().to_owned())
}

#[test]
fn what_arrives_without_modes_and_times_arrives_and_that_is_said() {
    const EPERM: i32 = 1;
    let centre = Centre::with("40M", "40M", 1);
    let files = Files::mount(Habits::refusing(|call| {
        matches!(call.deed, Deed::SetMode | Deed::SetTimes).then_some(EPERM)
    }));
    let (to, id) = stage_to(&centre, &files, 900_000);
    centre.wait_until(&id, |request| request["state"] == "arrived");
    assert_eq!(fs::read(to.join("file")).unwrap(), vec![7; 900_000]);
    let story = text(&centre.run(&["explain", &id]).stdout);
    // The file, and the directory that it is in.
    let said = "its destination refuses: the mode of 2 and the modification time of 2 of its files and directories";
    assert!(story.contains(said), "{story}");
}

#[test]
fn a_destination_that_refuses_is_why_it_is_late_and_it_arrives_once_it_does_not() {
    const EDQUOT: i32 = 122;
    let centre = Centre::with("40M", "40M", 1);
    let is_full = Arc::new(AtomicBool::new(true));
    let fails = Arc::clone(&is_full);
    let files = Files::mount(Habits::refusing(move |call| {
        let is_large = call.deed == Deed::Close && call.end > 50_000;
        (is_large && fails.load(Ordering::Relaxed)).then_some(EDQUOT)
    }));
    let (to, id) = stage_to(&centre, &files, 900_000);
    let story = || text(&centre.run(&["explain", &id]).stdout);
    centre.wait_until(&id, |_| story().contains("it was said to be at risk: "));
    let told = story();
    for words in [
        "at risk: its destination refuses it: can't write ",
        "/file: Disk quota exceeded (os error 122)",
    ] {
        assert!(told.contains(words), "{words} not in {told}");
    }
    assert!(!told.contains("was left"), "{told}");
    is_full.store(false, Ordering::Relaxed);
    centre.wait_until(&id, |request| request["state"] == "arrived");
    assert_eq!(fs::read(to.join("file")).unwrap(), vec![7; 900_000]);
}

// In docs/reference/edges.md: "that a write failed is told once, by whichever descriptor is closed
// first"
#[test]
fn what_is_lost_of_a_file_and_told_once_is_fetched_again() {
    const EIO: i32 = 5;
    const SIZE: usize = 20 << 20;
    let centre = Centre::with("40M", "40M", 1);
    let behind: Arc<OnceLock<PathBuf>> = Arc::default();
    let (known, closed) = (Arc::clone(&behind), AtomicU32::new(0));
    let files = Files::mount(Habits::refusing(move |call| {
        let is_large = call.deed == Deed::Close && call.end == SIZE as u64;
        // Chunks that came first are noted by then.
        let is_lost = is_large && closed.fetch_add(1, Ordering::Relaxed) == 20;
        is_lost.then(|| {
            let file = known.get().unwrap().join(call.path);
            let file = fs::File::options().write(true).open(file).unwrap();
            file.write_all_at(&vec![0; 2_000_000], 100_000).unwrap();
            EIO
        })
    }));
    behind.set(files.behind().to_owned()).unwrap();
    let (to, id) = stage_to(&centre, &files, SIZE);
    centre.wait_until(&id, |request| request["state"] == "arrived");
    assert!(fs::read(to.join("file")).unwrap() == vec![7; SIZE]);
    let left: Vec<_> = fs::read_dir(files.behind()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let story = text(&centre.run(&["explain", &id]).stdout);
    assert!(story.contains("/file: Input/output error"), "{story}");
}

// In docs/reference/edges.md: "a time is taken only with the other one, and else dropped without a
// word"
#[test]
fn times_arrive_where_both_are_taken_or_none() {
    let centre = Centre::with("40M", "40M", 1);
    let files = Files::mount(Habits {
        both_times_or_none: true,
        ..Habits::default()
    });
    let (to, id) = stage_to(&centre, &files, 900_000);
    centre.wait_until(&id, |request| request["state"] == "arrived");
    let modified = |path: PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    let source = centre.folder.path().join("source/file");
    assert_eq!(modified(to.join("file")), modified(source));
}

// In docs/reference/edges.md: "two names are one there"
#[test]
fn two_names_that_are_one_there_are_refused_in_one_line() {
    let centre = Centre::with("40M", "40M", 1);
    let files = Files::mount(Habits {
        folds_names: |_| true,
        ..Habits::default()
    });
    let source = centre.folder.path().join("source");
    for folder in ["D", "d"] {
        fs::create_dir_all(source.join(folder)).unwrap();
        fs::write(source.join(folder).join("f"), folder).unwrap();
    }
    let to = files.path().join("input");
    let (source, shown) = (source.to_str().unwrap(), to.to_str().unwrap());
    let output = centre.run(&["stage-in", source, shown, "--deadline", "20m"]);
    let error = text(&output.stderr);
    let said = format!("{shown}/d: \"D\" has a name that is the same there");
    assert!(!output.status.success() && error.contains(&said), "{error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    assert_eq!(fs::read_dir(files.behind()).unwrap().count(), 0);
    // Where they are two, both arrive.
    let to = centre.scratch("input");
    let shown = to.to_str().unwrap();
    let request = centre.json(&["stage-in", source, shown, "--deadline", "20m", "--json"]);
    let id = request["id"].as_str().unwrap();
    centre.wait_until(id, |request| request["state"] == "arrived");
    assert_eq!(fs::read(to.join("d/f")).unwrap(), b"d");
}

#[test]
fn directories_are_as_private_as_those_that_they_come_from_and_as_old() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let centre = Centre::with("40M", "40M", 1);
    let source = centre.folder.path().join("source");
    fs::create_dir_all(source.join("open/private")).unwrap();
    fs::write(source.join("open/private/f"), "secret").unwrap();
    let names = ["", "open", "open/private"];
    let modes = [0o750, 0o775, 0o700];
    let of = |root: &std::path::Path| {
        names.map(|name| {
            let found = fs::metadata(root.join(name)).unwrap();
            (found.mode() & 0o7777, found.mtime(), found.mtime_nsec())
        })
    };
    for (place, (name, mode)) in names.iter().zip(modes).enumerate().rev() {
        let path = source.join(name);
        let then = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + place as u64);
        fs::File::open(&path).unwrap().set_modified(then).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let to = centre.scratch("input");
    let (from, shown) = (source.to_str().unwrap(), to.to_str().unwrap());
    let request = centre.json(&["stage-in", from, shown, "--deadline", "20m", "--json"]);
    let id = request["id"].as_str().unwrap();
    centre.wait_until(id, |request| request["state"] == "arrived");
    assert_eq!(of(&to), of(&source));
    assert_eq!(of(&to).map(|(mode, ..)| mode), modes);
}

// In docs/reference/edges.md: "two names are one in one directory alone"
#[test]
fn two_names_that_are_one_in_a_directory_that_comes_with_them_are_not_mixed() {
    let centre = Centre::with("40M", "40M", 1);
    let files = Files::mount(Habits {
        folds_names: |directory| directory.ends_with("deep"),
        ..Habits::default()
    });
    let source = centre.folder.path().join("source");
    fs::create_dir_all(source.join("deep")).unwrap();
    for (name, bytes) in [("Run", "one"), ("run", "another")] {
        fs::write(source.join("deep").join(name), bytes).unwrap();
    }
    let to = files.path().join("input");
    let (source, shown) = (source.to_str().unwrap(), to.to_str().unwrap());
    centre.run(&["stage-in", source, shown, "--deadline", "20m"]);
    let request = centre.wait_until("r1", |request| request["state"] == "failed");
    assert_eq!(request["error_code"], "conflict", "{request}");
    let told = text(&centre.run(&["explain", "r1"]).stdout);
    assert!(told.contains("a name that is the same there"), "{told}");
    assert!(!to.exists());
}
