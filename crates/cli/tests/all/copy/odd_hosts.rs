//! File systems of other hosts, by SFTP and by posthaste: their refusals, rounding and content
//! match those here.

use std::{
    fs::{self, File},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, UNIX_EPOCH},
};

use posthaste_testbed::{
    S3Server, SshServer, WebFace, WebServer,
    odd::{Call, Deed, Files, Habits},
};

use crate::copy::{
    host::{at, world_with},
    table::{End, shown},
    world::{World, leftovers, lines_of, noise, set_mtime},
};

const EPERM: i32 = 1;
const EIO: i32 = 5;
const EILSEQ: i32 = 84;
const ENAMETOOLONG: i32 = 36;
const EOPNOTSUPP: i32 = 95;

/// Route to another host.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Sftp,
    Host,
}

const WAYS: [Way; 2] = [Way::Sftp, Way::Host];
const BOTH: &str = "SFTP, host";

/// Host, and a world that reaches it.
struct Far {
    server: SshServer,
    world: World,
    way: Way,
}

impl Far {
    fn new(way: Way) -> Self {
        let server = SshServer::start().unwrap();
        let world = world_with(&server, env!("CARGO_BIN_EXE_posthaste"));
        Self { server, world, way }
    }

    /// Returns the address of a path there, which also exists on this machine.
    fn address(&self, path: &Path) -> String {
        match self.way {
            Way::Sftp => self.server.address(&path.display().to_string()),
            Way::Host => at(&self.server, path),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.path(name)
    }

    /// Copies, and checks the exit code and these words on standard error.
    fn ends(&self, arguments: &[&str], code: i32, words: &[&str]) -> String {
        let output = self.world.cp(arguments).output().unwrap();
        let lines = lines_of(&output);
        let way = self.way;
        assert_eq!(output.status.code(), Some(code), "{way:?}: {lines}");
        for words in words {
            assert!(lines.contains(words), "{way:?}: {words} not in {lines}");
        }
        lines
    }
}

fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

#[test]
fn a_file_that_is_said_to_be_empty_is_read_all_the_same() {
    for way in WAYS {
        let far = Far::new(way);
        let from = far.address(Path::new("/proc/version"));
        far.ends(&[&from, "version", "--verify"], 0, &["copied 1 file"]);
        let wanted = fs::read("/proc/version").unwrap();
        assert_eq!(fs::read(far.path("version")).unwrap(), wanted);
        let to = far.address(&far.path("there"));
        far.ends(&[&from, &to, "--verify"], 0, &["copied 1 file"]);
        assert_eq!(fs::read(far.path("there")).unwrap(), wanted);
    }
    shown(
        BOTH,
        "a file is said to be empty and is not, as in /proc",
        End::Right,
    );
}

#[test]
fn what_is_no_file_is_left_out_and_never_waited_for() {
    for way in WAYS {
        let far = Far::new(way);
        let source = far.path("source");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("file"), "x").unwrap();
        make_pipe(&source.join("pipe"));
        let _socket = UnixListener::bind(source.join("socket")).unwrap();
        symlink("pipe", source.join("link")).unwrap();
        let from = far.address(&source);
        let words = [
            "source/pipe: it is a device, a pipe",
            "source/socket: it is a",
        ];
        far.ends(&[&from, "there"], 6, &[&words[..], &["2 failed"]].concat());
        let follow = [&*from, "followed", "--links", "follow"];
        far.ends(&follow, 6, &["source/link: it is a", "3 failed"]);
        for name in ["there", "followed"] {
            assert_eq!(fs::read(far.path(name).join("file")).unwrap(), b"x");
        }
        for path in [&source.join("pipe"), Path::new("/dev/zero")] {
            let from = far.address(path);
            far.ends(&[&from, "alone"], 6, &["it is a device, a pipe"]);
            assert!(!far.path("alone").exists());
        }
    }
    shown(
        BOTH,
        "a device, a pipe or a socket is to be read",
        End::LeftOut,
    );
}

#[test]
fn what_is_no_file_is_not_replaced() {
    for way in WAYS {
        let far = Far::new(way);
        let (source, there) = (far.path("source"), far.path("there"));
        for folder in [&source, &there] {
            fs::create_dir(folder).unwrap();
        }
        for (name, len) in [("fine", 10), ("small", 10), ("large", 20 << 20)] {
            fs::write(source.join(name), noise(1, len)).unwrap();
        }
        symlink("fine", source.join("link")).unwrap();
        for name in ["small", "large", "link"] {
            make_pipe(&there.join(name));
        }
        let from = format!("{}/", source.display());
        let to = far.address(&there);
        let lines = far.ends(&[&from, &to], 6, &["copied 1 file", "3 failed"]);
        for name in ["small", "large", "link"] {
            let line = format!("there/{name}: a device, a pipe or a socket is there");
            assert!(lines.contains(&line), "{line} not in {lines}");
        }
        assert_eq!(fs::read(there.join("fine")).unwrap(), noise(1, 10));
        let to = far.address(&there.join("small"));
        far.ends(&["source/fine", &to], 6, &["a socket is there"]);
        // Behind a link, as /dev/stdout is one.
        symlink("small", there.join("behind")).unwrap();
        let local = there.join("behind");
        for to in [&far.address(&local), local.to_str().unwrap()] {
            for file in ["source/fine", "source/large"] {
                far.ends(&[file, to], 6, &["a socket is there"]);
            }
        }
        assert!(fs::symlink_metadata(&local).unwrap().is_symlink());
        assert!(leftovers(&there).is_empty());
    }
    shown(
        BOTH,
        "a device, a pipe or a socket has the name",
        End::LeftOut,
    );
}

/// Runs a copy that must be refused before anything is done.
fn refuses(world: &World, from: &str, to: &str) {
    let output = world.cp([from, to]).output().unwrap();
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(1), "{from} {to}: {lines}");
    let says = |words: &str| lines.contains(words);
    let is_told = says("it can't be copied into itself") || says("it is the same file as");
    assert!(is_told && says("copied 0 files"), "{from} {to}: {lines}");
}

#[test]
fn a_followed_link_to_where_the_copy_goes_is_left_out() {
    let world = World::new();
    fs::create_dir_all(world.path("run/from")).unwrap();
    symlink("..", world.path("run/from/up")).unwrap();
    fs::write(world.path("run/from/x"), "x").unwrap();
    let output = world.cp(["-L", "run/from", "run/to"]).output().unwrap();
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(6), "{lines}");
    assert!(lines.contains("leads to where the copy goes"), "{lines}");
    assert!(world.path("run/to/x").exists(), "{lines}");
    assert!(!world.path("run/to/up/to/x").exists(), "{lines}");
}

#[test]
fn nothing_goes_into_itself() {
    for way in WAYS {
        let far = Far::new(way);
        let tree = far.path("tree");
        fs::create_dir_all(tree.join("sub")).unwrap();
        fs::write(tree.join("file"), "x").unwrap();
        symlink(&tree, far.path("link")).unwrap();
        let address = |name: &str| far.address(&far.path(name));
        for (from, to) in [
            ("tree", "tree/in"),
            ("tree", "tree/sub/in"),
            ("tree", "tree"),
            ("tree", "link/in"),
            ("tree/", "tree/in/deeper"),
            ("tree/file", "tree/file"),
            ("tree/file", "link/file"),
        ] {
            refuses(&far.world, &address(from), &address(to));
        }
        assert_eq!(fs::read_dir(&tree).unwrap().count(), 2);
        far.ends(
            &[&address("tree"), &address("tree2")],
            0,
            &["copied 1 file"],
        );
    }
    let server = S3Server::start().unwrap();
    let world = World::new().with_s3(&server);
    fs::create_dir(world.path("tree")).unwrap();
    fs::write(world.path("tree/file"), "x").unwrap();
    world.copy(["tree", "s3://testbed/tree"]);
    for (from, to) in [
        ("s3://testbed/tree", "s3://testbed/tree/in"),
        ("s3://testbed/tree", "s3://testbed/tree"),
        ("s3://testbed/", "s3://testbed/in"),
        ("s3://testbed/tree/file", "s3://testbed/tree/file"),
    ] {
        refuses(&world, from, to);
    }
    world.copy(["s3://testbed/tree", "s3://testbed/tree2"]);
    let server = WebServer::start().unwrap();
    let dav = |path: &str| server.address(WebFace::Dav, path);
    world.copy(["tree", &dav("tree")]);
    refuses(&world, &dav("tree"), &dav("tree/in"));
    refuses(&world, &dav("tree"), &dav("tree"));
    shown(
        "S3, WebDAV, SFTP, host",
        "a tree goes into itself, or a file onto itself",
        End::Refused,
    );
}

#[test]
fn a_tree_goes_neither_into_itself_nor_onto_itself_by_another_way() {
    for way in WAYS {
        let far = Far::new(way);
        let tree = far.path("tree");
        fs::create_dir_all(tree.join("sub")).unwrap();
        fs::write(tree.join("sub/file"), "x").unwrap();
        let here = tree.display().to_string();
        let in_it = |name: &str| tree.join(name).display().to_string();
        let there = |name: &str| far.address(&tree.join(name));
        for (from, to) in [
            (&here, &there("in")),
            (&here, &there("sub")),
            (&(here.clone() + "/"), &there("sub/in/deeper")),
            (&(here.clone() + "/"), &far.address(&tree)),
            (&far.address(&tree), &in_it("in2")),
            (&(far.address(&tree) + "/"), &here),
        ] {
            refuses(&far.world, from, to);
        }
        let found = std::process::Command::new("find")
            .arg(&tree)
            .arg("-mindepth")
            .arg("1")
            .output();
        let found = String::from_utf8(found.unwrap().stdout).unwrap();
        let shown = tree.display();
        let left = format!("{shown}/sub\n{shown}/sub/file\n");
        assert_eq!(found, left, "{way:?}: what was made is gone");
        // Into another of the same names, twice.
        let other = far.address(&far.path("other/tree"));
        let from = here + "/";
        far.ends(&[&from, &other], 0, &["copied 1 file"]);
        far.ends(&[&from, &other], 0, &["copied 0 files"]);
    }
}

#[test]
fn a_tree_goes_no_further_into_itself_by_another_way() {
    for way in WAYS {
        let far = Far::new(way);
        for (name, is_far) in [("one", false), ("two", true)] {
            let tree = far.path(name);
            fs::create_dir_all(tree.join("sub")).unwrap();
            fs::write(tree.join("sub/file"), "x").unwrap();
            // Where it is there already it is listed for certain.
            fs::create_dir(tree.join("in")).unwrap();
            let (here, there) = (tree.display().to_string(), far.address(&tree.join("in")));
            let (from, to) = match is_far {
                false => (here, there),
                true => (far.address(&tree), tree.join("in").display().to_string()),
            };
            let from = from + "/";
            let output = far.world.cp([&*from, &to]).output().unwrap();
            let lines = lines_of(&output);
            assert!(!output.status.success(), "{way:?} {name}: {lines}");
            assert!(
                lines.contains("it can't be copied into itself"),
                "{way:?} {name}: {lines}"
            );
            assert!(!tree.join("in/in").exists(), "{way:?} {name}: {lines}");
            let found = fs::read_dir(&tree).unwrap().count();
            assert_eq!(found, 2, "the trial is gone");
        }
        // One that is only called so is none.
        let (other, there) = (far.path("other"), far.path("there/in"));
        fs::create_dir_all(other.join("in/deep")).unwrap();
        far.ends(
            &[&other.display().to_string(), &far.address(&there)],
            0,
            &[],
        );
        assert!(there.join("in/deep").is_dir());
        assert_eq!(fs::read_dir(&there).unwrap().count(), 1);
    }
}

#[test]
fn links_that_lead_back_end_when_followed() {
    for way in WAYS {
        let far = Far::new(way);
        let source = far.path("source");
        fs::create_dir_all(source.join("sub")).unwrap();
        fs::write(source.join("file"), "x").unwrap();
        symlink(".", source.join("here")).unwrap();
        symlink("..", source.join("sub/above")).unwrap();
        symlink("sub", source.join("again")).unwrap();
        let from = far.address(&source);
        let lines = far.ends(
            &[&from, "there", "--links", "follow"],
            6,
            &["copied 1 file, "],
        );
        for name in ["here", "sub/above", "again/above"] {
            let line = format!("source/{name}: a followed link leads back to");
            assert!(lines.contains(&line), "{way:?}: {line} not in {lines}");
        }
        assert!(far.path("there/again").is_dir());
        assert!(!far.path("there/here").exists());
    }
    shown(BOTH, "a followed link leads back", End::LeftOut);
}

/// Year 1950.
const OLD_SECS: u64 = 631_152_000;

#[test]
fn times_before_1970_are_read_and_counted_where_they_are_not_kept() {
    for way in WAYS {
        let far = Far::new(way);
        let source = far.path("source");
        fs::create_dir(&source).unwrap();
        for (name, len) in [("new", 10), ("old", 10), ("older", 20 << 20)] {
            fs::write(source.join(name), noise(1, len)).unwrap();
        }
        let old = UNIX_EPOCH - Duration::from_secs(OLD_SECS);
        for name in ["old", "older", ""] {
            File::open(source.join(name))
                .unwrap()
                .set_modified(old)
                .unwrap();
        }
        let mtime = |path: &str| fs::metadata(far.path(path)).unwrap().mtime();
        let from = far.address(&source);
        far.ends(&[&format!("{from}/"), "here", "-p"], 0, &["copied 3 files"]);
        let to = far.address(&far.path("there"));
        let (code, words, kept) = match way {
            Way::Sftp => (6, &["refuses: 3 modification times"][..], 0),
            Way::Host => (0, &[][..], -OLD_SECS.cast_signed()),
        };
        far.ends(&["source/", &to, "-p"], code, words);
        far.ends(&["source/", &to], 0, &["3 unchanged"]);
        for name in ["old", "older", ""] {
            assert_eq!(mtime(&format!("here/{name}")), -OLD_SECS.cast_signed());
            assert_eq!(mtime(&format!("there/{name}")), kept, "{name}");
        }
    }
    shown(BOTH, "a time is before 1970", End::Right);
}

/// Small and large files, directories and links.
const NAMES: [&str; 5] = ["a", "bad", "large", "sub/b", "sub/c:d"];

/// Host with a file system of these habits.
struct Run {
    far: Far,
    files: Files,
}

impl Run {
    fn new(way: Way, habits: Habits) -> Self {
        let far = Far::new(way);
        let source = far.path("source");
        fs::create_dir_all(source.join("sub")).unwrap();
        for name in NAMES {
            let bytes = if name == "large" { 20 << 20 } else { 70_000 };
            fs::write(source.join(name), noise(name.len() as u64, bytes)).unwrap();
            set_mtime(&source.join(name), 1_600_000_001, 0);
        }
        fs::set_permissions(source.join("a"), fs::Permissions::from_mode(0o600)).unwrap();
        symlink("a", source.join("link")).unwrap();
        symlink("b", source.join("sub/link")).unwrap();
        let files = Files::mount(habits);
        Self { far, files }
    }

    fn refusing(way: Way, refuses: impl Fn(&Call) -> Option<i32> + Send + Sync + 'static) -> Self {
        Self::new(way, Habits::refusing(refuses))
    }

    fn ends(&self, more: &[&str], code: i32, words: &[&str]) -> String {
        let to = self.far.address(&self.files.path().join("there"));
        let arguments = [&["source/", &*to][..], more].concat();
        self.far.ends(&arguments, code, words)
    }

    fn holds_all_but(&self, left_out: &[&str]) {
        let there = self.files.behind().join("there");
        for name in NAMES {
            if left_out.contains(&name) {
                assert!(fs::symlink_metadata(there.join(name)).is_err(), "{name}");
                continue;
            }
            let wanted = fs::read(self.far.path("source").join(name)).unwrap();
            assert!(fs::read(there.join(name)).unwrap() == wanted, "{name}");
        }
        let left = leftovers(self.files.behind());
        assert_eq!(left, Vec::<PathBuf>::new(), "{:?}", self.far.way);
    }
}

#[test]
fn coarse_clocks_are_learnt_and_a_change_is_one() {
    for way in WAYS {
        for step_s in [1, 2] {
            let run = Run::new(
                way,
                Habits {
                    step_s,
                    ..Habits::default()
                },
            );
            let source = run.far.path("source/a");
            set_mtime(&source, 1_600_000_001, 700_000_000);
            run.ends(&["-p"], 0, &["copied 5 files"]);
            run.ends(&[], 0, &["copied 0 files", "5 unchanged"]);
            fs::write(&source, noise(99, 70_000)).unwrap();
            set_mtime(&source, 1_600_000_001 + step_s, 700_000_000);
            run.ends(&[], 0, &["copied 1 file", "4 unchanged"]);
            run.holds_all_but(&[]);
        }
    }
    shown(
        BOTH,
        "a clock knows whole seconds, or every other one",
        End::Right,
    );
}

#[test]
fn one_file_that_is_refused_leaves_the_others() {
    for way in WAYS {
        for (deed, name, errno) in [
            (Deed::Create, "c:d", EILSEQ),
            (Deed::Create, "c:d", ENAMETOOLONG),
            (Deed::Write, "bad", EIO),
            (Deed::Rename, "bad", EIO),
        ] {
            let refuses = move |call: &Call| (call.deed == deed && call.has(name)).then_some(errno);
            let run = Run::refusing(way, refuses);
            let lines = run.ends(&[], 6, &["can't write ", "1 failed"]);
            let named = NAMES.into_iter().find(|full| full.ends_with(name)).unwrap();
            assert!(
                lines.contains(&format!("/there/{named}: ")),
                "{way:?}: {lines}"
            );
            assert!(!lines.contains("posthaste-partial"), "{way:?}: {lines}");
            run.holds_all_but(&[named]);
        }
        let refuses =
            |call: &Call| (call.deed == Deed::MakeDirectory && call.has("sub")).then_some(EILSEQ);
        let run = Run::refusing(way, refuses);
        run.ends(&[], 6, &["/there/sub: "]);
        run.holds_all_but(&["sub/b", "sub/c:d"]);
        // A file that can't be read is one too.
        let files = Files::mount(Habits::refusing(|call: &Call| {
            (call.deed == Deed::Read && call.has("bad")).then_some(EIO)
        }));
        fs::write(files.behind().join("bad"), noise(1, 9_000)).unwrap();
        fs::write(files.behind().join("fine"), "x").unwrap();
        let from = format!("{}/", run.far.address(files.path()));
        run.far.ends(&[&from, "back"], 6, &["/bad: ", "1 failed"]);
        assert_eq!(fs::read(run.far.path("back/fine")).unwrap(), b"x");
        assert!(!run.far.path("back/bad").exists());
    }
    shown(
        BOTH,
        "the file system refuses a name, or fails for one file",
        End::LeftOut,
    );
}

#[test]
fn one_file_that_a_host_can_t_look_at_hides_no_others() {
    let far = Far::new(Way::Host);
    let files = Files::mount(Habits::refusing(|call: &Call| {
        let is_look = call.deed == Deed::Look && call.has("hidden");
        let is_list = call.deed == Deed::List && call.has("closed");
        (is_look || is_list).then_some(EIO)
    }));
    for name in ["a", "hidden1", "hidden2", "closed/x", "sub/z"] {
        let path = files.behind().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    let from = far.address(files.path());
    for more in [&["--links", "keep"], &["--links", "follow"]] {
        let arguments = [&[&*from, more[1]][..], more].concat();
        far.ends(&arguments, 6, &["Input/output error", "more there"]);
        for name in ["a", "sub/z"] {
            assert_eq!(fs::read(far.path(more[1]).join(name)).unwrap(), b"x");
        }
    }
    shown("host", "one file can't be looked at", End::LeftOut);
}

#[test]
fn links_that_are_refused_are_named_once_and_counted() {
    for way in WAYS {
        for errno in [EPERM, EOPNOTSUPP] {
            let refuses = move |call: &Call| (call.deed == Deed::MakeLink).then_some(errno);
            let run = Run::refusing(way, refuses);
            let words = ["can't make link ", "refuses: 2 symbolic links", "2 failed"];
            let lines = run.ends(&[], 6, &words);
            assert_eq!(lines.lines().count(), 3, "{way:?}: {lines}");
            run.holds_all_but(&[]);
        }
    }
    shown(BOTH, "the file system has no symbolic links", End::LeftOut);
}

#[test]
fn modes_that_are_not_kept_are_counted() {
    for way in WAYS {
        let refusing = Habits::refusing(|call| (call.deed == Deed::SetMode).then_some(EPERM));
        let run = Run::new(way, refusing);
        run.ends(&["-p"], 6, &["refuses: 7 modes"]);
        run.holds_all_but(&[]);
        let keeping_its_own = Habits {
            fixed_modes: true,
            ..Habits::default()
        };
        let run = Run::new(way, keeping_its_own);
        run.ends(&["-p"], 6, &["refuses: 1 mode"]);
        // What has a profile, and perhaps caps, tells the same.
        let url = run.far.address(run.files.path());
        let profile = format!("[far]\nurl = \"{url}\"\n");
        run.far.world.set_profiles(&profile);
        let again = ["source/", "far:again", "-p"];
        run.far.ends(&again, 6, &["refuses: 1 mode"]);
        run.ends(&[], 0, &["copied 0 files", "5 unchanged"]);
        // What is there and can't have its mode stays, and is told each time.
        run.ends(&["-p"], 6, &["refuses: 1 mode", "copied 0 files"]);
        let alone = run.far.address(&run.files.path().join("alone"));
        for copied in ["copied 1 file", "copied 0 files"] {
            let words = ["refuses: 1 mode", copied];
            run.far.ends(&["source/a", &alone, "-p"], 6, &words);
        }
        run.holds_all_but(&[]);
    }
    let world = World::new();
    fs::create_dir(world.path("source")).unwrap();
    for (name, mode) in [("a", 0o600), ("b", 0o644)] {
        let path = world.path("source").join(name);
        fs::write(&path, name).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let files = Files::mount(Habits {
        fixed_modes: true,
        ..Habits::default()
    });
    let there = files.path().join("there");
    for (source, copied) in [
        ("source/", 2),
        ("source/", 0),
        ("source/a", 1),
        ("source/a", 0),
    ] {
        let to = there.with_extension(source.len().to_string());
        let mut cp = world.cp([source.as_ref(), to.as_path(), "-p".as_ref()]);
        let output = cp.output().unwrap();
        let lines = lines_of(&output);
        assert_eq!(output.status.code(), Some(6), "{lines}");
        assert!(lines.contains("refuses: 1 mode"), "{lines}");
        assert!(lines.contains(&format!("copied {copied} file")), "{lines}");
    }
    assert_eq!(leftovers(files.behind()), Vec::<PathBuf>::new());
    shown(
        "files, SFTP, host",
        "modes are refused, or taken and not kept",
        End::Right,
    );
}

#[test]
fn of_two_names_that_are_one_there_the_second_is_told() {
    /// Pairs of names that fold into one: in each place of `sub`, and at the top.
    const TWINS: [[&str; 2]; 4] = [
        ["file", "FILE"],
        ["\u{e4}", "a\u{308}"],
        ["end", "end. "],
        ["Folder/x", "folder/x"],
    ];
    // Everywhere, or in one directory alone.
    let folds: [fn(&Path) -> bool; 2] = [|_| true, |directory| directory.ends_with("sub")];
    for (way, folds_names) in WAYS
        .into_iter()
        .flat_map(|way| folds.map(|folds| (way, folds)))
    {
        let far = Far::new(way);
        let is_all = folds_names(Path::new(""));
        let there = Files::mount(Habits {
            folds_names,
            ..Habits::default()
        });
        for (name, text) in TWINS.as_flattened().iter().zip("12345678".chars()) {
            for folder in ["source", "source/sub"] {
                let path = far.path(folder).join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text.to_string()).unwrap();
            }
        }
        let local = there.path().join("local");
        let address = far.address(&there.path().join("far"));
        for (to, here) in [(local.to_str().unwrap(), "local"), (&address, "far")] {
            // What is there already is told again.
            for _ in 0..2 {
                let failed = if is_all { "8 failed" } else { "4 failed" };
                let words = ["a name that is the same there", failed];
                far.ends(&["source/", to], 6, &words);
            }
            for folder in ["source", "source/sub"] {
                let below = folder.strip_prefix("source").unwrap();
                let here = there.path().join(here).join(below.trim_start_matches('/'));
                let count = fs::read_dir(&here).unwrap().count();
                let read = |folder: &Path, name| fs::read(folder.join(name)).unwrap();
                if !is_all && below.is_empty() {
                    assert_eq!(count, 9, "{here:?}: eight names, and sub");
                    for name in TWINS.as_flattened() {
                        assert_eq!(read(&here, *name), read(&far.path(folder), *name));
                    }
                    continue;
                }
                assert_eq!(count, 5 - below.len() / 4, "{here:?}: four names, and sub");
                for twins in TWINS {
                    let found = read(&here, twins[0]);
                    let [one, other] = twins.map(|name| read(&far.path(folder), name));
                    assert!(found == one || found == other, "{twins:?}");
                }
            }
        }
    }
    shown(
        "files, SFTP, host",
        "the file system, or one of its directories alone, takes two names for one",
        End::LeftOut,
    );
}
