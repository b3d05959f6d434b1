//! Tests of `posthaste ls`: the whole program against real files and servers.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs,
    io::{BufRead, BufReader},
    os::unix::{ffi::OsStringExt, fs::symlink},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, UNIX_EPOCH},
};

use posthaste_testbed::{S3Server, SshServer, make_empty_files};
use serde_json::Value;

/// Folder with its own home.
struct World {
    folder: tempfile::TempDir,
    environment: Vec<(&'static str, String)>,
}

impl World {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            environment: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
        command.env_clear().env("HOME", self.folder.path());
        command
    }

    fn ls<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.folder.path())
            .arg("ls")
            .args(arguments);
        command
    }

    /// Returns the lines of a listing that must succeed.
    fn lines<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Vec<String> {
        let output = self.ls(arguments).output().unwrap();
        assert!(output.status.success(), "{}", errors_of(&output));
        lines_of(&output)
    }

    fn write(&self, name: &str, bytes: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn errors_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn lines_of(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[test]
fn names_sizes_and_times_of_local_files() {
    let world = World::new();
    world.write("tree/b", "12345");
    world.write("tree/a.txt", "");
    world.write("tree/sub/deep/file", "x");
    symlink("b", world.path("tree/link")).unwrap();
    let time = UNIX_EPOCH + Duration::new(1_255_369_830, 250_000_000);
    let b = fs::File::open(world.path("tree/b")).unwrap();
    b.set_modified(time).unwrap();
    assert_eq!(world.lines(["tree"]), ["a.txt", "b", "link", "sub/"]);
    let all = ["a.txt", "b", "link", "sub/", "sub/deep/", "sub/deep/file"];
    assert_eq!(sorted(world.lines(["-R", "tree"])), all);
    let files = ["a.txt", "b", "link", "sub/deep/file"];
    assert_eq!(sorted(world.lines(["-R", "--files-only", "tree"])), files);
    assert_eq!(
        sorted(world.lines(["-R", "--dirs-only", "tree"])),
        ["sub/", "sub/deep/"]
    );
    let filtered = world.lines(["-R", "--include", "*.txt", "--files-only", "tree"]);
    assert_eq!(filtered, ["a.txt"]);
    let long = world.lines(["-l", "tree/"]);
    assert_eq!(long[1], "              5 2009-10-12T17:50:30Z b");
    assert!(
        long[3].starts_with("              - 2") && long[3].ends_with("Z sub/"),
        "{long:?}"
    );
    assert_eq!(world.lines(["-l", "tree/b"]), [long[1].clone()]);
    let null = world.ls(["-0", "tree"]).output().unwrap();
    assert_eq!(null.stdout, b"a.txt\0b\0link\0sub/\0");
    let json: Vec<Value> = world
        .lines(["--json", "tree"])
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let b = serde_json::json!({
        "Path": "b", "Name": "b", "Size": 5, "ModTime": "2009-10-12T17:50:30.25Z", "IsDir": false
    });
    assert_eq!(json[1], b);
    assert_eq!(
        (&json[2]["IsLink"], &json[3]["Size"]),
        (&true.into(), &(-1).into())
    );
    assert_eq!(json[3]["IsDir"], true);
    let followed = world.lines(["--json", "--follow", "tree"]);
    assert!(followed[2].contains("\"Size\":5"), "{followed:?}");
}

#[test]
fn bytes_that_are_no_text_are_shown_as_they_are() {
    let world = World::new();
    fs::create_dir(world.path("odd")).unwrap();
    let name = OsString::from_vec(b"caf\xe9\nx".to_vec());
    fs::write(world.path("odd").join(name), "").unwrap();
    let plain = world.ls(["odd"]).output().unwrap();
    assert_eq!(plain.stdout, b"caf\xe9\nx\n");
    let json: Value = serde_json::from_str(&world.lines(["--json", "odd"])[0]).unwrap();
    assert_eq!(json["PathEncoded"], "caf%E9%0Ax");
}

#[test]
fn what_can_not_be_listed_has_its_code() {
    let world = World::new();
    let code = |arguments: &[&str]| {
        let output = world.ls(arguments).output().unwrap();
        let errors = errors_of(&output);
        assert!(
            errors.lines().count() <= 1 || output.status.code() == Some(2),
            "{errors}"
        );
        output.status.code().unwrap()
    };
    assert_eq!(code(&["none"]), 3);
    assert_eq!(code(&["-R", "none"]), 3);
    assert_eq!(code(&["--nonsense"]), 2);
    assert_eq!(code(&["--checkpoint", "x", "."]), 2);
    // A directory too deep is the one thing root can't list.
    let mut deep = world.path("deep");
    fs::create_dir(&deep).unwrap();
    world.write("deep/shallow", "");
    for _ in 0..300 {
        deep.push("d");
        fs::create_dir(&deep).unwrap();
    }
    assert_eq!(code(&["-R", "deep"]), 6);
    assert_eq!(code(&["-R", "--checkpoint", "spool", "deep"]), 6);
}

#[test]
fn a_reader_that_goes_away_ends_it() {
    let world = World::new();
    for folder in 0..40 {
        let folder = world.path(&format!("tree/{folder}"));
        fs::create_dir_all(&folder).unwrap();
        let names = (0..100).map(|file| format!("a-rather-long-name-{file}"));
        make_empty_files(&folder, names).unwrap();
    }
    for arguments in [
        &["-R", "tree"][..],
        &["-R", "--checkpoint", "spool", "tree"],
    ] {
        let mut child = world.ls(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut reader = BufReader::with_capacity(64, child.stdout.take().unwrap());
        reader.read_line(&mut line).unwrap();
        drop(reader);
        assert!(line.ends_with('\n'), "{line}");
        assert!(child.wait().unwrap().success());
    }
    let again = world.lines(["-R", "--checkpoint", "spool", "tree"]);
    assert_eq!(again.len(), 40 * 101, "what nobody read is still there");
    assert!(!world.path("spool").exists());
}

#[test]
fn objects_are_listed_as_files_are() {
    let server = S3Server::start().unwrap();
    let mut world = World::new();
    world.environment = server.environment();
    let bucket = server.bucket_folder();
    for number in 0..2_300 {
        let path = bucket.join(format!("run/{}/img-{number:05}", number % 3));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "xy").unwrap();
    }
    assert_eq!(world.lines(["s3://testbed/run"]), ["0/", "1/", "2/"]);
    let all = sorted(world.lines(["-R", "s3://testbed/run/"]));
    let mut wanted: Vec<String> = (0..2_300)
        .map(|n| format!("{}/img-{n:05}", n % 3))
        .collect();
    wanted.extend((0..3).map(|n| format!("{n}/")));
    assert_eq!(all, sorted(wanted));
    let json = world.lines(["-R", "--json", "--files-only", "s3://testbed"]);
    assert_eq!(json.len(), 2_300);
    let first: Value = serde_json::from_str(&json[0]).unwrap();
    assert_eq!(first["Size"], 2);
    assert!(
        first["ModTime"].as_str().unwrap().starts_with("20"),
        "{first}"
    );
    assert_eq!(world.lines(["-l", "s3://testbed/run/0/img-00003"]).len(), 1);
    let output = world.ls(["s3://testbed/none"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", errors_of(&output));
}

#[test]
fn trees_over_ssh_are_listed() {
    let server = SshServer::start().unwrap();
    let world = World::new();
    world.write("tree/a/b/c", "123");
    world.write("tree/d", "");
    let address = server.address(&world.path("tree").display().to_string());
    let mut arguments = vec!["-R".to_owned(), address];
    for option in server.options() {
        arguments.extend(["--ssh-option".to_owned(), option]);
    }
    assert_eq!(sorted(world.lines(arguments)), ["a/", "a/b/", "a/b/c", "d"]);
}

/// Runs it and kills it, each time a little later, until one run lives to its end.
fn killed_until_done(world: &World, address: &str) -> (Vec<String>, u32) {
    let mut kills = 0;
    // One that ends before it could be killed even once is told to begin anew, for a while.
    for runs in 0.. {
        assert!(runs < 200, "it never ends, or can't be killed");
        let mut child = world
            .ls(["-R", "--checkpoint", "spool", address])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        let reading = thread::spawn(move || {
            BufReader::new(out)
                .lines()
                .map_while(Result::ok)
                .collect::<Vec<String>>()
        });
        // It has printed nothing before it has found everything.
        thread::sleep(Duration::from_millis(u64::from(kills * 25)));
        let done = child.try_wait().unwrap();
        if done.is_none() && world.path("spool/checkpoint").exists() && kills % 3 == 2 {
            // Some are let go on, so that the last kill may come at any moment.
            let status = child.wait().unwrap();
            assert!(status.success());
            return (reading.join().unwrap(), kills);
        }
        if let Some(status) = done {
            assert!(status.success(), "{status}");
            let lines = reading.join().unwrap();
            if kills > 0 {
                return (lines, kills);
            }
            continue;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let _ = reading.join().unwrap();
        kills += 1;
    }
    unreachable!("the loop returns")
}

fn everything_once(lines: Vec<String>, wanted: &BTreeSet<String>) {
    let count = lines.len();
    let found: BTreeSet<String> = lines.into_iter().collect();
    assert_eq!(found.len(), count, "something is there twice");
    assert!(found == *wanted, "{} of {}", found.len(), wanted.len());
}

fn make_many(root: &Path, directories: usize, files: usize) -> BTreeSet<String> {
    let mut wanted = BTreeSet::new();
    for directory in 0..directories {
        fs::create_dir_all(root.join(format!("d{directory}/sub"))).unwrap();
        wanted.extend([format!("d{directory}/"), format!("d{directory}/sub/")]);
        let names = (0..files).map(|file| format!("d{directory}/sub/file{file}"));
        make_empty_files(root, names.clone()).unwrap();
        wanted.extend(names);
    }
    wanted
}

#[test]
fn a_killed_listing_of_files_goes_on() {
    let world = World::new();
    let wanted = make_many(&world.path("tree"), 60, 100);
    let (lines, kills) = killed_until_done(&world, "tree");
    assert!(kills > 0, "it was never killed");
    everything_once(lines, &wanted);
    assert!(!world.path("spool").exists());
    let another = world
        .ls(["-R", "--checkpoint", "tree", "tree"])
        .output()
        .unwrap();
    assert!(
        another.status.success(),
        "a folder that is not empty may be used"
    );
    assert!(world.path("tree/d0").exists(), "what is not its own stays");
}

#[test]
fn a_killed_listing_of_objects_goes_on() {
    let server = S3Server::start().unwrap();
    let mut world = World::new();
    world.environment = server.environment();
    let wanted = make_many(&server.bucket_folder(), 4, 2_500);
    let (lines, kills) = killed_until_done(&world, "s3://testbed");
    assert!(kills > 0, "it was never killed");
    everything_once(lines, &wanted);
}

#[test]
fn what_can_not_be_printed_is_no_success_and_nobody_has_to_listen() {
    let world = World::new();
    let folder = world.folder.path();
    fs::write(folder.join("a"), "x").unwrap();
    let full = || {
        fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let copy = folder.join("b");
    let file = folder.join("a");
    for words in [
        vec![OsStr::new("ls"), folder.as_os_str()],
        vec![
            OsStr::new("cp"),
            OsStr::new("--json"),
            file.as_os_str(),
            copy.as_os_str(),
        ],
    ] {
        let output = world.run().args(&words).stdout(full()).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(7), "{words:?} {told}");
        assert!(told.contains("can't write to standard output"), "{told}");
    }
    let mut child = world
        .run()
        .args(["ls", "/nowhere/at/all"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(3));
}
