//! A dataset's whole way through real relays and a real service, with everything that goes wrong.

use crate::support::processes;

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::support::processes::{
    Dice, Relay, Service, failure, fullest, make_tree, picture, received, text,
};
use posthaste_testbed::odd::{Deed, Files, Habits};
use serde_json::Value;

/// Three or four relays, a service that knows them, and a tree on scratch.
struct Centre {
    folder: tempfile::TempDir,
    relays: Vec<Relay>,
    service: Service,
    before: Vec<String>,
}

impl Centre {
    fn with(relays: &[(&str, &str)], megabytes: usize, seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let relays: Vec<Relay> = relays
            .iter()
            .map(|(name, rate)| Relay::start(folder.path(), name, "1G", rate))
            .collect();
        let service = Service::start(folder.path());
        relays.iter().for_each(|relay| service.add(relay));
        let scratch = folder.path().join("scratch");
        make_tree(&scratch, megabytes, seed);
        let before = picture(&scratch);
        Self {
            folder,
            relays,
            service,
            before,
        }
    }

    fn scratch(&self) -> PathBuf {
        self.folder.path().join("scratch")
    }

    fn offload(&self, more: &[&str]) -> Value {
        let scratch = self.scratch();
        let names: Vec<&str> = self
            .relays
            .iter()
            .map(|relay| relay.name.as_str())
            .collect();
        let via = names.join(",");
        let mut arguments = vec![
            "offload",
            scratch.to_str().unwrap(),
            "--to",
            "home",
            "--deadline",
            "10m",
            "--json",
            "--via",
            &via,
        ];
        arguments.extend_from_slice(more);
        self.service.json(&arguments)
    }

    /// Pulls to a fresh folder and checks that all that left arrived.
    fn pull_and_compare(&self, id: &str) -> Value {
        self.pull_rest(id, &[]).0
    }

    /// Pulls what lacks these files, and compares it with the rest. Returns the report, and what was said.
    fn pull_rest(&self, id: &str, left_out: &[&str]) -> (Value, String) {
        let home = self.folder.path().join("arrived");
        let pull = ["pull", id, home.to_str().unwrap(), "--json"];
        let pulled = self.service.run(&pull);
        let said = text(&pulled.stderr);
        let code = if left_out.is_empty() { 0 } else { 6 };
        assert_eq!(pulled.status.code(), Some(code), "{said}");
        for name in left_out {
            assert!(said.contains(&format!("not in it: {name}\n")), "{said}");
        }
        let report = serde_json::from_slice(&pulled.stdout).unwrap();
        let after = picture(&home);
        let differs = |line: &&String| !after.contains(line) || !self.before.contains(line);
        let differing: Vec<_> = after.iter().chain(&self.before).filter(differs).collect();
        assert!(differing.is_empty(), "{differing:#?}");
        (report, said)
    }

    /// Total bytes of bodies the relays took since they started, counted by the relays.
    fn received(&self) -> u64 {
        received(&self.relays)
    }
}

/// Most that may be sent twice for each kill: three depots with eight connections each, a fragment
/// of 512 KiB on every one, and a manifest for each.
const IN_FLIGHT_MAX: u64 = 3 * 8 * (512 << 10) + 3 * (64 << 10);

fn stored_bytes(directory: &Path) -> u64 {
    let mut total = 0;
    let mut waiting = vec![directory.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else {
                continue;
            };
            if found.is_dir() {
                waiting.push(entry.path());
            } else {
                total += found.len();
            }
        }
    }
    total
}

fn state(request: &Value) -> &str {
    request["state"].as_str().unwrap()
}

#[test]
fn a_dataset_leaves_scratch_and_comes_home_whole() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "50M"), ("cedar", "40M")], 24, 1);
    let request = centre.offload(&["--code", "2+1", "--release", "when-safe", "--wait"]);
    assert_eq!(state(&request), "released");
    assert_eq!(request["missed"], false);
    assert!(!centre.scratch().exists(), "scratch was not released");
    let report = centre.pull_and_compare("r1");
    assert_eq!(report["rebuilt_chunks"], 0);
    let explained = text(&centre.service.run(&["explain", "r1"]).stdout);
    for said in [
        " r1 was asked for: ",
        "as 2+1 over ash, birch or cedar; scratch is to be released then.",
        "It was taken: 3 depots at once: p90 finish",
        " it was safe, ",
        " scratch was released.",
        "It lay on scratch for",
    ] {
        assert!(
            explained.contains(said),
            "`{said}` is missing in\n{explained}"
        );
    }
    let decisions = centre.service.json(&["explain", "r1", "--json"]);
    assert_eq!(decisions[0]["what"], "admitted", "{decisions}");
    centre
        .service
        .wait_until("r1", |request| state(request) == "delivered");
}

#[test]
fn a_relay_that_dies_half_way_costs_nothing() {
    let relays = [
        ("ash", "4M"),
        ("birch", "4M"),
        ("cedar", "4M"),
        ("dune", "4M"),
    ];
    let mut centre = Centre::with(&relays, 24, 2);
    // Half way is long: somebody must come to see it.
    let limit = ["--bwlimit", "1500K"];
    let more = ["--code", "2+1", "--release", "when-safe"];
    centre.offload(&[&more[..], &limit].concat());
    let request = centre
        .service
        .wait_until("r1", |request| fullest(request).1 > 12);
    centre.relays[fullest(&request).0].kill();
    let lifted = centre.service.run(&["modify", "r1", "--bwlimit", "off"]);
    assert!(lifted.status.success(), "{}", text(&lifted.stderr));
    let request = centre
        .service
        .wait_until("r1", |request| state(request) == "released");
    assert!(
        request["chunks_repaired"].as_u64().unwrap() > 0,
        "{request}"
    );
    centre.pull_and_compare("r1");
}

#[test]
fn a_service_killed_at_any_moment_goes_on_where_it_was() {
    let seed = 7;
    for round in 0..7 {
        let mut dice = Dice::new(seed * 100 + round);
        let relays = [("ash", "8M"), ("birch", "8M"), ("cedar", "8M")];
        let mut centre = Centre::with(&relays, 16, round);
        centre.offload(&["--code", "2+1", "--release", "when-safe"]);
        let kills = 2;
        for _ in 0..kills {
            std::thread::sleep(std::time::Duration::from_millis(dice.roll(1500)));
            centre.service.kill();
            centre.service.restart();
        }
        let request = centre
            .service
            .wait_until("r1", |request| state(request) == "released");
        assert_eq!(
            request["missed"], false,
            "seed {seed} round {round}: {request}"
        );
        centre.pull_and_compare("r1");
        let coded = request["bytes"].as_u64().unwrap() * 3 / 2;
        let twice = centre.received().saturating_sub(coded);
        assert!(
            twice <= IN_FLIGHT_MAX * kills,
            "seed {seed} round {round}: {twice} B sent twice"
        );
    }
}

#[test]
fn a_relay_killed_at_any_moment_and_started_again_is_used_again() {
    // A lost depot is left alone for seconds, so rounds mostly wait: they do so side by side.
    std::thread::scope(|scope| {
        for round in 0..3 {
            scope.spawn(move || kill_and_restart_a_relay(11, round));
        }
    });
}

fn kill_and_restart_a_relay(seed: u64, round: u64) {
    let mut dice = Dice::new(seed * 100 + round);
    let relays = [("ash", "8M"), ("birch", "8M"), ("cedar", "8M")];
    let mut centre = Centre::with(&relays, 16, round);
    centre.offload(&["--code", "2+1", "--release", "when-safe"]);
    std::thread::sleep(std::time::Duration::from_millis(dice.roll(1500)));
    let victim = usize::try_from(dice.roll(3)).unwrap();
    centre.relays[victim].kill();
    std::thread::sleep(std::time::Duration::from_millis(dice.roll(1500)));
    centre.relays[victim].restart();
    let request = centre
        .service
        .wait_until("r1", |request| state(request) == "released");
    assert_eq!(
        request["missed"], false,
        "seed {seed} round {round}: {request}"
    );
    centre.pull_and_compare("r1");
}

#[test]
fn a_corrupted_fragment_is_noticed_and_rebuilt() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M"), ("cedar", "60M")], 8, 3);
    centre.offload(&["--code", "2+1", "--wait"]);
    // One fragment of each chunk, wherever it lies: whichever depots are read, some of it is found there.
    for (place, relay) in (0..).zip(&centre.relays) {
        let is_chosen = |chunk: usize| (chunk / 2) % centre.relays.len() == place;
        assert!(corrupt_fragments(&relay.directory, is_chosen) > 1);
    }
    let report = centre.pull_and_compare("r1");
    assert!(
        report["corrupt_fragments"].as_u64().unwrap() > 0,
        "{report}"
    );
    assert!(report["rebuilt_chunks"].as_u64().unwrap() > 0, "{report}");
}

/// Flips a byte in the middle of every large file below `directory` that is of such a chunk.
fn corrupt_fragments(directory: &Path, is_chosen: impl Fn(usize) -> bool) -> usize {
    let mut count = 0;
    let mut waiting = vec![directory.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if entry.metadata().unwrap().len() > 10_000
                && chunk_of(&path).is_some_and(&is_chosen)
            {
                let mut bytes = fs::read(&path).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0x55;
                fs::write(&path, bytes).unwrap();
                count += 1;
            }
        }
    }
    count
}

/// The chunk of which a relay keeps a fragment in this file, as its name says.
fn chunk_of(path: &Path) -> Option<usize> {
    let name = path.file_name()?.to_str()?;
    name.split('.').next()?.parse().ok()
}

#[test]
fn files_that_change_or_vanish_meanwhile_are_left_out_and_named_and_the_rest_goes() {
    use std::os::unix::fs::PermissionsExt;
    // So slow that it can't be done before they do.
    let relays = [("ash", "500K"), ("birch", "500K"), ("cedar", "500K")];
    let mut centre = Centre::with(&relays, 12, 4);
    let (large, gone) = (
        centre.scratch().join("large.bin"),
        centre.scratch().join("gone"),
    );
    fs::write(&gone, vec![7; 300_000]).unwrap();
    let lends = centre.scratch().join("deep/file 1");
    let mode = fs::metadata(&lends).unwrap().permissions().mode();
    fs::set_permissions(&lends, fs::Permissions::from_mode(mode | 0o4000)).unwrap();
    centre.offload(&["--code", "2+1", "--release", "when-safe"]);
    fs::remove_file(&gone).unwrap();
    let mut bytes = fs::read(&large).unwrap();
    bytes.push(1);
    fs::write(&large, &bytes).unwrap();
    let watched = centre.service.run(&["watch", "r1"]);
    assert_eq!(watched.status.code(), Some(6), "{}", text(&watched.stderr));
    let request = centre.service.status("r1");
    assert_eq!(state(&request), "released", "{request}");
    assert_eq!(request["left_out"]["files"], 2, "{request}");
    // Which files those were is said wherever somebody looks.
    let shown = |command| text(&centre.service.run(&[command, "r1"]).stdout);
    let log = fs::read_to_string(centre.service.state.with_extension("log")).unwrap();
    let named = request["left_out"]["named"].to_string();
    for said in [named, shown("status"), shown("explain"), log] {
        for file in [&large, &gone] {
            assert!(said.contains(file.to_str().unwrap()), "{said}");
        }
        assert!(said.contains("changed after it was listed"), "{said}");
    }
    assert_eq!(fs::read(&large).unwrap(), bytes, "it stays");
    assert!(!centre.scratch().join("deep").exists(), "the rest went");
    let is_large = |line: &String| line.contains("large.bin") && !line.contains("link");
    centre.before.retain(|line| !is_large(line));
    let (_, said) = centre.pull_rest("r1", &["gone", "large.bin"]);
    let lent = "set-user-ID and set-group-ID bits of 1 file,";
    assert_eq!(said.matches(lent).count(), 1, "{said}");
}

#[test]
fn what_a_relay_has_of_a_file_as_it_was_makes_way_for_its_chunks_without_it() {
    let relays = [("ash", "60M"), ("birch", "60M"), ("cedar", "60M")];
    let mut centre = Centre::with(&relays, 12, 4);
    centre.relays[1..].iter_mut().for_each(Relay::kill);
    let request = centre.offload(&["--code=2+1", "--release=when-safe", "--best-effort"]);
    assert_eq!(state(&request), "moving", "{request}");
    // One fragment of each chunk is of no use to anybody without a second.
    let is_on_ash = |request: &Value| request["shares"][0]["stored"] == request["chunks"];
    centre.service.wait_until("r1", is_on_ash);
    let large = centre.scratch().join("large.bin");
    let mut bytes = fs::read(&large).unwrap();
    bytes.push(1);
    fs::write(&large, &bytes).unwrap();
    centre.relays[1..].iter_mut().for_each(Relay::restart);
    let watched = centre.service.run(&["watch", "r1"]);
    assert_eq!(watched.status.code(), Some(6), "{}", text(&watched.stderr));
    let request = centre.service.status("r1");
    assert_eq!(request["left_out"]["files"], 1, "{request}");
    assert_eq!(fs::read(&large).unwrap(), bytes, "it stays");
    let is_large = |line: &String| line.contains("large.bin") && !line.contains("link");
    centre.before.retain(|line| !is_large(line));
    centre.pull_rest("r1", &["large.bin"]);
}

/// What a file is besides its bytes: owner, group, how many names, which inode, and its attributes of these names.
fn extras(path: &Path) -> (u32, u32, u64, Vec<Vec<u8>>) {
    use std::os::unix::fs::MetadataExt;
    let found = fs::symlink_metadata(path).unwrap();
    let names = [
        "user.kind",
        "system.posix_acl_access",
        "system.posix_acl_default",
    ];
    let values = names.iter().map(|name| {
        let mut value = vec![0; 1000];
        let size = rustix::fs::lgetxattr(path, *name, &mut value[..]).unwrap_or(0);
        value.truncate(size);
        value
    });
    (found.uid(), found.gid(), found.nlink(), values.collect())
}

#[test]
fn owners_other_names_attributes_and_access_lists_come_home_before_their_source_is_gone_for_good() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let relays = [("ash", "60M"), ("birch", "50M"), ("cedar", "40M")];
    let mut centre = Centre::with(&relays, 4, 12);
    let deep = centre.scratch().join("deep");
    fs::hard_link(deep.join("file 1"), centre.scratch().join("again")).unwrap();
    let set = |path: &Path, name: &str, value: &[u8]| {
        rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    // Its owner may write, one more and the group read, others nothing.
    let mut list = vec![2, 0, 0, 0];
    for (tag, rights, id) in [
        (1u16, 6u16, u32::MAX),
        (2, 4, 1234),
        (4, 4, u32::MAX),
        (16, 4, u32::MAX),
        (32, 0, u32::MAX),
    ] {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&rights.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    }
    set(&deep.join("file 2"), "system.posix_acl_access", &list);
    set(&deep, "system.posix_acl_default", &list);
    set(&deep.join("file 3"), "user.kind", b"raw\0\xff");
    set(&centre.scratch().join("zero"), "user.kind", b"");
    let read_only = fs::Permissions::from_mode(0o444);
    fs::set_permissions(deep.join("file 3"), read_only).unwrap();
    if rustix::process::geteuid().is_root() {
        for name in ["deep/file 4", "deep/dangling", "deep/er"] {
            std::os::unix::fs::lchown(centre.scratch().join(name), Some(1234), Some(4321)).unwrap();
        }
        chown(&deep, Some(1234), None).unwrap();
    }
    centre.before = picture(&centre.scratch());
    let names = [
        "again",
        "zero",
        "deep",
        "deep/er",
        "deep/dangling",
        "deep/file 1",
        "deep/file 2",
        "deep/file 3",
        "deep/file 4",
    ];
    let all = |root: &Path| names.map(|name| extras(&root.join(name)));
    let before = all(&centre.scratch());
    let request = centre.offload(&["--code", "2+1", "--release", "when-safe", "--wait"]);
    assert_eq!(state(&request), "released", "{request}");
    // What the destination gives to new files would let one more read them.
    let home = centre.folder.path().join("arrived");
    fs::create_dir(&home).unwrap();
    set(&home, "system.posix_acl_default", &list);
    centre.pull_and_compare("r1");
    assert_eq!(all(&home), before);
    let inode = |name: &str| fs::metadata(home.join(name)).unwrap().ino();
    assert_eq!(inode("again"), inode("deep/file 1"));
}

#[test]
fn what_no_address_keeps_is_said_and_removed_only_where_that_is_asked_for() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M")], 4, 12);
    let (scratch, folder) = (centre.scratch(), centre.folder.path());
    fs::hard_link(scratch.join("deep/file 1"), scratch.join("zz")).unwrap();
    let to = |name: &str| folder.join(name).display().to_string();
    let ask = |to: &str, more: &[&str]| {
        let base = [
            "offload",
            scratch.to_str().unwrap(),
            "--to",
            to,
            "--deadline=10m",
        ];
        centre.service.run(&[&base[..], more].concat())
    };
    for more in [
        &["--release=when-safe", "--wait"][..],
        &["--release=when-safe", "--dry-run"],
        &["--release=when-safe", "--dry-run", "--via=ash,birch"],
    ] {
        let (_, said) = failure(&ask(&to("refused"), more));
        let names_it = said.contains("/zz") && said.contains("which an address does not keep");
        assert!(names_it, "{more:?}: {said}");
    }
    assert!(scratch.join("zz").exists() && !folder.join("refused").exists());
    let done = ask(&to("kept"), &["--release=anyway", "--wait"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(folder.join("kept/zz").exists() && !scratch.exists());
}

#[test]
fn what_is_excluded_stays_and_the_rest_goes() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M")], 4, 11);
    let log = centre.scratch().join("log");
    fs::create_dir(&log).unwrap();
    for name in ["still.written", "other.written", "done.nc"] {
        fs::write(log.join(name), name).unwrap();
    }
    let (code, said) = failure(&centre.service.run(&[
        "offload",
        log.to_str().unwrap(),
        "--to=home",
        "--deadline=10m",
        "--via=ash",
        "--include=*.tif",
        "--dry-run",
    ]));
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("no file of it passes"), "{said}");
    let more = ["--exclude", "*.written", "--release", "when-safe", "--wait"];
    let request = centre.offload(&more);
    assert_eq!(request["state"], "released", "{request}");
    assert!(log.join("still.written").exists() && log.join("other.written").exists());
    assert!(!log.join("done.nc").exists(), "it was taken");
    let back = centre.folder.path().join("back");
    let pulled = centre.service.run(&["pull", "r1", back.to_str().unwrap()]);
    assert!(pulled.status.success(), "{}", text(&pulled.stderr));
    assert!(back.join("log/done.nc").exists() && !back.join("log/still.written").exists());
}

#[test]
fn what_a_destination_refuses_is_named_and_kept_until_all_of_it_is_pulled() {
    const EPERM: i32 = 1;
    let relays = [("ash", "60M"), ("birch", "50M"), ("cedar", "40M")];
    let centre = Centre::with(&relays, 4, 7);
    let request = centre.offload(&["--code", "2+1", "--wait"]);
    assert_eq!(request["missed"], false, "{request}");
    let files = Files::mount(Habits {
        hides_open: true,
        ..Habits::refusing(|call| {
            let is_refused = matches!(call.deed, Deed::MakeLink | Deed::SetMode)
                || call.deed == Deed::Rename && call.has("file 7");
            is_refused.then_some(EPERM)
        })
    });
    let home = files.path().join("home");
    let pulled = centre.service.run(&["pull", "r1", home.to_str().unwrap()]);
    let (told, said) = (text(&pulled.stdout), text(&pulled.stderr));
    assert_eq!(pulled.status.code(), Some(6), "{said}");
    assert!(told.contains(" in 43 files pulled and verified"), "{told}");
    for words in [
        "/home/deep/file 7: Operation not permitted",
        "can't make link ",
        ", 2 symbolic links",
        "3 entries left out; depots keep r1 until",
    ] {
        assert!(said.contains(words), "{words} not in {said}");
    }
    assert!(!said.contains("can't clean"), "{said}");
    assert!(home.join("deep/file 8").exists() && !home.join("deep/file 7").exists());
    assert_eq!(state(&centre.service.status("r1")), "safe");
    centre.pull_and_compare("r1");
    assert_eq!(state(&centre.service.status("r1")), "delivered");
}

#[test]
fn a_file_that_appears_after_the_seal_is_not_removed() {
    // So slow that it can't be released before the file is there.
    let relays = [("ash", "500K"), ("birch", "500K"), ("cedar", "500K")];
    let centre = Centre::with(&relays, 8, 5);
    centre.offload(&["--code", "2+1", "--release", "when-safe"]);
    let late = centre.scratch().join("deep/late");
    fs::write(&late, b"written after the dataset was sealed").unwrap();
    centre.service.wait_until("r1", |request| {
        matches!(state(request), "released" | "safe")
    });
    assert!(late.exists());
}

#[test]
fn a_cancelled_request_leaves_its_source_and_nothing_at_the_depots() {
    let centre = Centre::with(&[("ash", "1M"), ("birch", "1M"), ("cedar", "1M")], 48, 6);
    centre.offload(&["--code", "2+1", "--release", "when-safe"]);
    centre.service.wait_until("r1", |request| {
        request["shares"][0]["stored"]
            .as_u64()
            .is_some_and(|stored| stored > 1)
    });
    let output = centre.service.run(&["cancel", "r1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    centre
        .service
        .wait_until("r1", |request| state(request) == "cancelled");
    assert_eq!(picture(&centre.scratch()), centre.before);
    let start = processes::now();
    while centre
        .relays
        .iter()
        .any(|relay| stored_bytes(&relay.directory) > 1 << 20)
    {
        assert!(
            start.elapsed() < processes::PATIENCE,
            "the depots did not forget"
        );
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let (code, line) = failure(&centre.service.run(&["cancel", "r1"]));
    assert_eq!(
        (code, line.contains("already cancelled")),
        (1, true),
        "{line}"
    );
}

#[test]
fn what_can_not_work_is_refused_in_one_line_with_what_would() {
    let relays = [("ash", "200K"), ("birch", "200K"), ("cedar", "200K")];
    let centre = Centre::with(&relays, 48, 8);
    let scratch = centre.scratch();
    let scratch = scratch.to_str().unwrap();
    let base = ["offload", scratch, "--to", "home"];
    let try_with = |more: &[&str]| failure(&centre.service.run(&[&base[..], more].concat()));
    for (more, exit, said) in [
        (
            &[
                "--deadline",
                "1m",
                "--via",
                "ash,birch,cedar",
                "--code",
                "2+1",
            ][..],
            11,
            "earliest finish",
        ),
        (
            &[
                "--deadline",
                "10m",
                "--via",
                "ash,birch,cedar",
                "--code",
                "4+1",
            ],
            11,
            "needs 5 depots",
        ),
        (
            &["--deadline", "10m", "--via", "ash,nobody"],
            4,
            "no depot of that name",
        ),
        (&["--deadline", "-5m", "--via", "ash"], 2, "has passed"),
        (
            &["--deadline", "2001-01-01T00:00:00Z", "--via", "ash"],
            2,
            "has passed",
        ),
        (&["--deadline", "soon", "--via", "ash"], 2, "write 10m"),
    ] {
        let (code, line) = try_with(more);
        assert_eq!(code, exit, "{more:?}: {line}");
        assert!(line.contains(said), "{more:?}: {line}");
    }
    let (code, line) = failure(&centre.service.run(&[
        "offload",
        "/no/such/place",
        "--to",
        "home",
        "--deadline",
        "10m",
        "--via",
        "ash",
    ]));
    assert_eq!(code, 4, "{line}");
    assert_eq!(picture(&centre.scratch()), centre.before);
}

#[test]
fn a_slip_in_a_name_is_refused_with_the_name_that_was_meant() {
    let relays = [("ash", "200K"), ("birch", "200K"), ("cedar", "200K")];
    let centre = Centre::with(&relays, 48, 8);
    let scratch = centre.scratch();
    let scratch = scratch.to_str().unwrap();
    let base = ["offload", scratch, "--deadline", "10m", "--dry-run"];
    for more in [
        &["--to", "home", "--via", "ash,brich"][..],
        &["--to", "home", "--via", "ash", "--without", "brich"],
        // A name that nobody has is that of whoever pulls it, but for a slip.
        &["--to", "brich", "--via", "ash,cedar"],
    ] {
        let (code, line) = failure(&centre.service.run(&[&base[..], more].concat()));
        assert_eq!(code, 4, "{line}");
        assert!(line.contains("did you mean `birch`?"), "{line}");
    }
}

#[test]
fn a_dry_run_decides_the_same_and_changes_nothing() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M"), ("cedar", "60M")], 8, 9);
    let would = centre.offload(&["--code", "2+1", "-n"]);
    assert_eq!(state(&would), "moving");
    assert_eq!(
        centre.service.json(&["list", "--json"]),
        Value::Array(vec![])
    );
    let scratch = centre.scratch();
    let refused = centre.service.run(&[
        "offload",
        scratch.to_str().unwrap(),
        "--to",
        "home",
        "--deadline",
        "10m",
        "-n",
        "--via",
        "ash,birch",
        "--code",
        "4+1",
    ]);
    assert_eq!(refused.status.code(), Some(11));
}

/// A refusal of a request over `ash`, which is closed, offers another depot and other hours.
fn expect_offers(offered: &str) {
    for row in [
        "it would be possible with",
        "depot birch as well (safe by ",
        "the same with --via ash,birch",
        "depot ash outside its hours",
    ] {
        assert!(offered.contains(row), "`{row}` is missing in\n{offered}");
    }
}

/// Two depots take two fragments of a chunk only while they share no domain.
fn expect_domains_to_count(centre: &Centre, plan: impl Fn() -> std::process::Output) {
    let [_, birch, cedar] = &centre.relays[..] else {
        panic!("three relays were started");
    };
    let expect_kin = || {
        let (code, said) = failure(&plan());
        assert_eq!(code, 11);
        assert!(said.contains("on 1 site the loss of one"), "{said}");
    };
    centre.service.lend(birch, &["--domain", "hall"]);
    centre.service.lend(cedar, &["--domain", "hall"]);
    expect_kin();
    // Two halls of one provider fail together all the same.
    let service = &centre.service;
    service.lend(birch, &["--domain", "hall, north,aws"]);
    service.lend(cedar, &["--domain", "yard", "--domain", "aws"]);
    expect_kin();
    let listed = text(&service.run(&["depot", "list"]).stdout);
    assert!(listed.contains("domain hall,north,aws"), "{listed}");
    assert!(listed.contains("domain yard,aws"), "{listed}");
    service.lend(cedar, &["--domain", "yard,ovh"]);
    assert!(plan().status.success());
    let many = ["--domain", "a,b,c,d,e,f,g,h,i"];
    let (_, said) = failure(&service.try_to_lend(cedar, &many));
    assert!(said.contains("a depot has at most 8"), "{said}");
}

#[test]
fn depots_are_lent_on_terms_and_a_plan_says_what_comes_of_them() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M"), ("cedar", "60M")], 8, 12);
    let [ash, birch, cedar] = &centre.relays[..] else {
        panic!("three relays were started");
    };
    // Two hours from now, in the time zone the service runs in.
    let now = jiff::Zoned::now().hour();
    let closed = format!("{:02}-{:02}", (now + 2) % 24, (now + 3) % 24);
    centre.service.lend(ash, &["--hours", &closed]);
    let prices = ["--usd-per-gb", "0.5", "--usd-per-gb-month", "0.02"];
    centre.service.lend(birch, &prices);
    centre.service.lend(cedar, &["--landmark"]);
    let listed = text(&centre.service.run(&["depot", "list"]).stdout);
    for said in [closed.as_str(), "$0.5/GB, $0.02/GB a month", "landmark"] {
        assert!(listed.contains(said), "{listed}");
    }
    let plan = |via: &str, code: &str, more: &[&str]| {
        let scratch = centre.scratch();
        let mut arguments = vec!["plan", scratch.to_str().unwrap(), "--to", "home"];
        arguments.extend_from_slice(&["--deadline", "10m", "--via", via, "--code", code]);
        arguments.extend_from_slice(more);
        centre.service.run(&arguments)
    };
    let taken = plan("ash,birch,cedar", "1+1", &[]);
    let said = text(&taken.stdout);
    assert!(taken.status.success(), "{}", text(&taken.stderr));
    for row in [
        "would be safe in time",
        "nine times in ten by",
        "is needed for",
        "depots   birch, cedar",
        "spare    ash",
        "$0.00 to send",
    ] {
        assert!(said.contains(row), "`{row}` is missing in\n{said}");
    }
    let json: Value =
        serde_json::from_slice(&plan("birch,cedar", "1+1", &["--json"]).stdout).unwrap();
    // Eight megabytes for half a dollar a gigabyte, on one of two depots.
    let exposure = &json["exposure"];
    let exposure = |of: &str| exposure[of].as_f64().unwrap();
    assert!(exposure("gb_hours_p50") <= exposure("gb_hours_p90") && exposure("hours_p90") > 0.0);
    let cost = json["cost_usd"].as_f64().unwrap();
    assert!((0.003..0.006).contains(&cost), "{cost}");
    let refused = plan("ash", "1+0", &[]);
    let (code, said) = failure(&refused);
    assert_eq!(code, 11);
    assert!(said.contains("earliest finish"), "{said}");
    expect_offers(&text(&refused.stdout));
    assert!(plan("ash,birch", "1+0", &[]).status.success());
    expect_domains_to_count(&centre, || plan("birch,cedar", "1+1", &[]));
    assert_eq!(
        centre.service.json(&["list", "--json"]),
        Value::Array(vec![]),
        "a plan was submitted"
    );
    let wrong = centre
        .service
        .run(&["depot", "add", "x", "y", "--hours", "whenever"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong.stderr).contains("20-06"),
        "{}",
        text(&wrong.stderr)
    );
}

#[test]
fn the_destination_takes_chunks_itself_when_that_is_fast_enough() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M"), ("home", "60M")], 8, 10);
    let scratch = centre.scratch();
    let request = centre.service.json(&[
        "offload",
        scratch.to_str().unwrap(),
        "--to",
        "home",
        "--deadline",
        "10m",
        "--via",
        "ash,birch",
        "--code",
        "1+0",
        "--wait",
        "--json",
    ]);
    let is_delivered = |request: &Value| state(request) == "delivered";
    assert!(matches!(state(&request), "safe" | "delivered"), "{request}");
    centre.service.wait_until("r1", is_delivered);
    let explained = text(&centre.service.run(&["explain", "r1"]).stdout);
    assert!(explained.contains("direct path suffices"), "{explained}");
    centre.pull_and_compare("r1");
}

#[test]
fn with_a_code_a_fast_destination_may_be_lost_as_any_depot() {
    let depots = ["ash", "birch", "cedar"].map(|name| (name, "20M"));
    let mut centre = Centre::with(&[&depots[..], &[("home", "200M")]].concat(), 8, 21);
    let scratch = centre.scratch();
    let asked = [
        "offload",
        scratch.to_str().unwrap(),
        "--to",
        "home",
        "--via",
        "ash,birch,cedar",
    ];
    let more = [
        "--code",
        "2+1",
        "--deadline",
        "10m",
        "--keep",
        "1d",
        "--release",
        "when-safe",
    ];
    let request = centre
        .service
        .json(&[&asked[..], &more, &["--wait", "--json"]].concat());
    let is_gone = matches!(state(&request), "released" | "delivered");
    assert!(is_gone && !scratch.exists(), "{request}");
    centre.relays[3].kill();
    let home = centre.relays[3].directory.clone();
    fs::remove_dir_all(home).unwrap();
    centre.pull_and_compare("r1");
}

#[test]
fn an_optimizer_by_name_governs_the_request_and_is_explained() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M"), ("cedar", "60M")], 8, 12);
    let fixed = ["--code", "2+1", "--optimizer", "fixed:2,1,1", "--wait"];
    let request = centre.offload(&fixed);
    assert_eq!(state(&request), "safe");
    let shown = centre.service.json(&["status", "r1", "--json"]);
    assert_eq!(shown["optimizer"], "fixed:2,1,1");
    let explained = text(&centre.service.run(&["explain", "r1"]).stdout);
    for said in [
        "optimizer fixed:2,1,1: the user asked for it.",
        "how many fragments were on their way at once: ash 2",
    ] {
        assert!(explained.contains(said), "{explained}");
    }
    let decisions = centre.service.json(&["explain", "r1", "--json"]);
    let is_choice = |decision: &Value| {
        decision["what"] == "ash: 2 fragments at once" && decision["reason"] == "asked for"
    };
    assert!(
        decisions.as_array().unwrap().iter().any(is_choice),
        "{decisions}"
    );
    centre.pull_and_compare("r1");
    assert_eq!(centre.offload(&["--code", "2+1"])["optimizer"], "auto");
    let scratch = centre.scratch();
    let wrong = [
        "offload",
        scratch.to_str().unwrap(),
        "--to",
        "home",
        "--deadline",
        "10m",
    ];
    let wrong = [&wrong[..], &["--via", "ash", "--optimizer", "best"]].concat();
    let output = centre.service.run(&wrong);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("`best` is no optimizer: there are auto, scc"),
        "{said}"
    );
}

#[test]
fn submitting_twice_with_one_id_is_submitting_once() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M")], 2, 11);
    let more = ["--code", "1+1", "--submission-id", "run-7"];
    let (first, second) = (centre.offload(&more), centre.offload(&more));
    assert_eq!(first["id"], second["id"]);
    assert_eq!(
        centre
            .service
            .json(&["list", "--json"])
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn an_empty_dataset_is_safe_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let relay = Relay::start(folder.path(), "ash", "10M", "10M");
    let service = Service::start(folder.path());
    service.add(&relay);
    let scratch = folder.path().join("scratch");
    fs::create_dir_all(scratch.join("empty")).unwrap();
    fs::write(scratch.join("zero"), b"").unwrap();
    let before = picture(&scratch);
    let request = service.json(&[
        "offload",
        scratch.to_str().unwrap(),
        "--to",
        "home",
        "--deadline",
        "10m",
        "--via",
        "ash",
        "--release",
        "when-safe",
        "--wait",
        "--json",
    ]);
    assert_eq!(state(&request), "released");
    let home = folder.path().join("home");
    service.json(&["pull", "r1", home.to_str().unwrap(), "--json"]);
    assert_eq!(picture(&home), before);
}
