//! File systems that refuse, round or fail: the copy's result, its messages, and its exit code.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    process::Output,
};

use posthaste_testbed::odd::{Call, Deed, Files, Habits};

use crate::copy::{
    table::{End, shown},
    world::{World, leftovers, lines_of, noise, set_mtime},
};

const EPERM: i32 = 1;
const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;
const ESTALE: i32 = 116;
const EDQUOT: i32 = 122;

/// Small and large files, directories and links.
const NAMES: [&str; 5] = ["a", "bad", "large", "sub/b", "sub/c:d"];

fn make_source(world: &World) {
    let source = world.path("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    for name in NAMES {
        let bytes = if name == "large" { 20 << 20 } else { 70_000 };
        fs::write(source.join(name), noise(name.len() as u64, bytes)).unwrap();
        set_mtime(&source.join(name), 1_600_000_001, 700_000_000);
    }
    fs::set_permissions(source.join("a"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("a", source.join("link")).unwrap();
    symlink("b", source.join("sub/link")).unwrap();
}

struct Run {
    world: World,
    files: Files,
}

impl Run {
    fn new(habits: Habits) -> Self {
        let world = World::new();
        make_source(&world);
        let files = Files::mount(habits);
        Self { world, files }
    }

    fn refusing(refuses: impl Fn(&Call) -> Option<i32> + Send + Sync + 'static) -> Self {
        Self::new(Habits::refusing(refuses))
    }

    fn cp(&self, more: &[&str]) -> (Output, String) {
        let there = self.files.path().join("there");
        let mut command = self.world.cp(["source/"]);
        let output = command.arg(there).args(more).output().unwrap();
        let lines = lines_of(&output);
        (output, lines)
    }

    /// Copies, and checks the exit code and these words on standard error.
    fn ends(&self, more: &[&str], code: i32, words: &[&str]) -> String {
        let (output, lines) = self.cp(more);
        assert_eq!(output.status.code(), Some(code), "{lines}");
        for words in words {
            assert!(lines.contains(words), "{words} not in {lines}");
        }
        lines
    }

    fn there(&self, name: &str) -> std::path::PathBuf {
        self.files.behind().join("there").join(name)
    }

    /// Checks that all files are unchanged, and those left out are missing.
    fn holds_all_but(&self, left_out: &[&str]) {
        for name in NAMES {
            if left_out.contains(&name) {
                assert!(fs::symlink_metadata(self.there(name)).is_err(), "{name}");
                continue;
            }
            let wanted = fs::read(self.world.path("source").join(name)).unwrap();
            assert!(fs::read(self.there(name)).unwrap() == wanted, "{name}");
        }
    }
}

fn is_bad(call: &Call) -> bool {
    call.has("bad")
}

#[test]
fn a_quota_told_at_close_ends_the_copy_and_leaves_no_file() {
    for errno in [EDQUOT, ENOSPC] {
        let run = Run::refusing(move |call| {
            (call.deed == Deed::Close && call.end > 1_000_000).then_some(errno)
        });
        for transfers in ["1", "4"] {
            run.ends(
                &["--transfers", transfers],
                7,
                &["/there/large: ", "free space there"],
            );
            assert!(!run.there("large").exists());
        }
    }
    let run = Run::refusing(|call| (call.deed == Deed::Sync).then_some(EDQUOT));
    run.ends(&["--fsync"], 7, &["Disk quota exceeded"]);
    run.holds_all_but(&NAMES);
}

#[test]
fn an_upload_that_fails_at_close_fails_one_file() {
    let run = Run::refusing(|call| (call.deed == Deed::Close && is_bad(call)).then_some(EIO));
    run.ends(
        &[],
        6,
        &["can't write ", "/there/bad: Input/output error", "1 failed"],
    );
    run.holds_all_but(&["bad"]);
    assert_eq!(
        leftovers(run.files.behind()),
        Vec::<std::path::PathBuf>::new()
    );
}

#[test]
fn one_file_that_fails_leaves_the_others() {
    for (deed, errno, text) in [
        (Deed::Write, EIO, "Input/output error"),
        (Deed::Write, ESTALE, "Stale file handle"),
        (Deed::Create, EINVAL, "Invalid argument"),
        (Deed::Create, EPERM, "Operation not permitted"),
        (Deed::Rename, EPERM, "Operation not permitted"),
        (Deed::SetMode, EIO, "Input/output error"),
    ] {
        let run = Run::refusing(move |call| (call.deed == deed && is_bad(call)).then_some(errno));
        run.ends(&[], 6, &["can't write ", &format!("/there/bad: {text}")]);
        run.holds_all_but(&["bad"]);
    }
}

#[test]
fn what_concerns_everything_ends_everything() {
    let run = Run::refusing(|call| (call.deed == Deed::Create).then_some(EROFS));
    let lines = run.ends(&["--transfers", "1"], 7, &["Read-only file system"]);
    assert_eq!(lines.lines().count(), 1, "{lines}");
    // What is refused of each file is told a few times at most.
    let run = Run::refusing(|call| (call.deed == Deed::Create).then_some(EPERM));
    for index in 0..100 {
        fs::write(run.world.path(&format!("source/{index}")), "x").unwrap();
    }
    fs::remove_file(run.world.path("source/link")).unwrap();
    fs::remove_file(run.world.path("source/sub/link")).unwrap();
    let lines = run.ends(&["--transfers", "1"], 7, &["Operation not permitted"]);
    assert!(lines.lines().count() <= 16, "{lines}");
}

#[test]
fn modes_that_are_not_kept_are_told_once() {
    for errno in [EPERM, ENOSYS, EOPNOTSUPP] {
        let run = Run::refusing(move |call| (call.deed == Deed::SetMode).then_some(errno));
        let lines = run.ends(&[], 0, &["not kept, as the destination refuses: 7 modes"]);
        assert_eq!(lines.lines().count(), 2, "{lines}");
        run.holds_all_but(&[]);
        run.ends(&[], 0, &["copied 0 files", "5 unchanged"]);
    }
    let run = Run::refusing(|call| (call.deed == Deed::SetMode).then_some(EPERM));
    run.ends(
        &["-p", "-q"],
        6,
        &["not kept, as the destination refuses: 7 modes"],
    );
    let run = Run::new(Habits {
        fixed_modes: true,
        ..Habits::default()
    });
    run.ends(&[], 0, &["copied 5 files"]);
    run.ends(&[], 0, &["copied 0 files", "5 unchanged"]);
}

#[test]
fn links_that_are_not_kept_are_named_once_and_counted() {
    for errno in [EPERM, ENOSYS, EOPNOTSUPP] {
        let run = Run::refusing(move |call| (call.deed == Deed::MakeLink).then_some(errno));
        let words = ["can't make link ", "refuses: 2 symbolic links", "2 failed"];
        let lines = run.ends(&[], 6, &words);
        assert_eq!(lines.lines().count(), 3, "{lines}");
        run.holds_all_but(&[]);
        assert_eq!(
            leftovers(run.files.behind()),
            Vec::<std::path::PathBuf>::new()
        );
    }
}

#[test]
fn names_that_can_t_be_are_left_out() {
    let run = Run::refusing(|call| {
        let makes = matches!(call.deed, Deed::Create | Deed::MakeDirectory);
        (makes && call.has(":")).then_some(EINVAL)
    });
    run.ends(&[], 6, &["/there/sub/c:d: Invalid argument", "1 failed"]);
    run.holds_all_but(&["sub/c:d"]);
}

#[test]
fn a_name_that_is_cut_is_no_file_of_that_name() {
    let world = World::new();
    let files = Files::mount(Habits {
        cuts_names: 60,
        ..Habits::default()
    });
    let long = "x".repeat(80);
    for name in [&long, "short"] {
        fs::create_dir_all(world.path("source")).unwrap();
        fs::write(world.path("source").join(name), name).unwrap();
    }
    let to = files.path().join("out");
    let output = world
        .cp([world.path("source").as_os_str(), to.as_os_str()])
        .output()
        .unwrap();
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(6), "{lines}");
    assert!(
        lines.contains(&long) && lines.contains("it may cut long names"),
        "{lines}"
    );
    assert_eq!(fs::read(to.join("short")).unwrap(), b"short");
    shown("files", "a long name is cut", End::LeftOut);
}

/// Overwrites a file with the same size.
fn change(run: &Run, name: &str, secs: u64, nanos: u32) {
    let path = run.world.path("source").join(name);
    fs::write(&path, noise(99, 70_000)).unwrap();
    set_mtime(&path, secs, nanos);
}

#[test]
fn whole_seconds_are_no_change_and_a_change_is_one() {
    for step_s in [1, 2] {
        let run = Run::new(Habits {
            step_s,
            ..Habits::default()
        });
        run.ends(&[], 0, &["copied 5 files"]);
        run.ends(&["-n"], 0, &["0 unchanged"]);
        run.ends(&[], 0, &["copied 0 files", "5 unchanged"]);
        change(&run, "a", 1_600_000_001 + step_s, 700_000_000);
        run.ends(&[], 0, &["copied 1 file", "4 unchanged"]);
        run.holds_all_but(&[]);
        assert_eq!(
            leftovers(run.files.behind()),
            Vec::<std::path::PathBuf>::new()
        );
    }
    // Where nanoseconds are kept, less than a second is a change.
    let run = Run::new(Habits::default());
    run.ends(&[], 0, &["copied 5 files"]);
    change(&run, "a", 1_600_000_001, 700_000_001);
    run.ends(&[], 0, &["copied 1 file", "4 unchanged"]);
    run.holds_all_but(&[]);
}

#[test]
fn where_no_times_are_kept_sizes_are_compared_and_that_is_told_once() {
    let refusing = Habits::refusing(|call| (call.deed == Deed::SetTimes).then_some(EPERM));
    let forgetting = Habits {
        forgets_times: true,
        ..Habits::default()
    };
    for habits in [refusing, forgetting] {
        let run = Run::new(habits);
        run.ends(&[], 0, &["copied 5 files"]);
        let lines = run.ends(&[], 0, &["copied 0 files", "by size alone"]);
        assert_eq!(lines.matches("by size alone").count(), 1, "{lines}");
        // A file that was written after its copy has changed.
        let now = fs::metadata(run.there("a")).unwrap().mtime();
        change(&run, "a", now.unsigned_abs() + 1, 0);
        run.ends(&[], 0, &["copied 1 file", "4 unchanged"]);
        run.holds_all_but(&[]);
        run.ends(&["--ignore-times"], 0, &["copied 5 files"]);
    }
}

#[test]
fn a_source_that_fails_here_and_there_gives_the_rest() {
    let world = World::new();
    let faults = [
        (Deed::Look, "hidden", ESTALE),
        (Deed::Read, "torn", EIO),
        (Deed::List, "closed", EIO),
    ];
    let files = Files::mount(Habits::refusing(move |call| {
        let mut faults = faults.iter();
        let fault = faults.find(|(deed, name, _)| call.deed == *deed && call.has(name));
        fault.map(|&(_, _, errno)| errno)
    }));
    for name in ["fine", "hidden", "torn", "sub/closed/x", "sub/fine"] {
        let path = files.behind().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    let output = world
        .cp([files.path(), Path::new("there")])
        .output()
        .unwrap();
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(6), "{lines}");
    for words in [
        "/hidden: Stale",
        "/torn: Input",
        "/closed: Input",
        "3 failed",
    ] {
        assert!(lines.contains(words), "{words} not in {lines}");
    }
    assert_eq!(fs::read(world.path("there/fine")).unwrap(), b"fine");
    assert_eq!(fs::read(world.path("there/sub/fine")).unwrap(), b"sub/fine");
}

#[test]
fn a_file_system_that_loses_what_it_took_is_found_out_when_it_is_read_back() {
    let run = Run::new(Habits {
        loses_writes: true,
        ..Habits::default()
    });
    // What is compared as it is written may find some of it: here nothing is.
    let lines = run.ends(&["--verify", "--ignore-checksum"], 6, &["5 failed"]);
    for name in NAMES {
        let line = format!("/{name}: what was read back is not what was written");
        assert!(lines.contains(&line), "{line} not in {lines}");
    }
    shown(
        "files",
        "what is written is lost, and `--verify` reads it back",
        End::Refused,
    );
    let run = Run::new(Habits::default());
    run.ends(&["--verify"], 0, &["copied 5 files"]);
}

#[test]
fn links_that_lead_back_end_when_followed() {
    let world = World::new();
    fs::create_dir_all(world.path("source/sub")).unwrap();
    fs::write(world.path("source/file"), "x").unwrap();
    symlink(".", world.path("source/here")).unwrap();
    symlink("..", world.path("source/sub/above")).unwrap();
    symlink("two", world.path("source/one")).unwrap();
    symlink("one", world.path("source/two")).unwrap();
    symlink("sub", world.path("source/again")).unwrap();
    let output = world
        .cp(["source", "there", "--links", "follow"])
        .output()
        .unwrap();
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(6), "{lines}");
    for name in ["here", "sub/above", "again/above"] {
        let line = format!("can't list source/{name}: a followed link leads back to");
        assert!(lines.contains(&line), "{line} not in {lines}");
    }
    for name in ["one", "two"] {
        assert!(lines.contains(&format!("source/{name}: ")), "{lines}");
    }
    assert!(lines.contains("copied 1 file, "), "{lines}");
    assert!(world.path("there/again").is_dir());
    assert!(!world.path("there/here").exists());
}

#[test]
fn of_two_sources_with_one_name_the_second_is_told() {
    let world = World::new();
    for (folder, text) in [("one", "1"), ("two", "2")] {
        fs::create_dir_all(world.path(folder).join("sub")).unwrap();
        fs::write(world.path(folder).join("sub/x"), text).unwrap();
        fs::write(world.path(folder).join(folder), text).unwrap();
    }
    for sources in [
        ["one/sub/x", "two/sub/x"],
        ["one/", "two/"],
        ["one/sub", "two/sub"],
    ] {
        let output = world.cp(sources).arg("to/").output().unwrap();
        let lines = lines_of(&output);
        assert_eq!(output.status.code(), Some(6), "{lines}");
        assert!(
            lines.contains("something else that is copied has this name"),
            "{lines}"
        );
        fs::remove_dir_all(world.path("to")).unwrap();
    }
    let output = world
        .cp(["one/one", "two/two", "one/sub"])
        .arg("to/")
        .output();
    assert!(output.unwrap().status.success());
}

#[test]
fn a_link_that_can_t_be_followed_says_why() {
    let world = World::new();
    let tree = world.path("t");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), "a").unwrap();
    symlink("gone", tree.join("gone-link")).unwrap();
    symlink("loop", tree.join("loop")).unwrap();
    let output = world.cp(["-rL", "t/", "there"]).output().unwrap();
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(6), "{lines}");
    let line_of = |name: &str| lines.lines().find(|line| line.contains(name)).unwrap();
    assert!(line_of("gone-link").contains("points nowhere"), "{lines}");
    let of_loop = line_of("t/loop");
    assert!(!of_loop.contains("points nowhere"), "{lines}");
    assert!(of_loop.contains("symbolic links"), "{lines}");
    assert!(world.path("there/a").exists());
}
