//! Bad input: one line with the mistake, the action, its object and a remedy; the documented code;
//! nothing half-written.

use std::{
    fs,
    io::Write,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use posthaste_testbed::{S3Server, SshServer, share_of};

use crate::copy::world::{World, leftovers, lines_of, make_tree, noise};

/// Returns the lines about errors.
fn complaints(output: &Output) -> Vec<String> {
    lines_of(output)
        .lines()
        .filter_map(|line| line.strip_prefix("posthaste: "))
        .map(str::to_owned)
        .collect()
}

#[test]
fn each_mistake_gets_one_line_and_its_code() {
    let (s3, ssh) = (S3Server::start().unwrap(), SshServer::start().unwrap());
    let world = World::new().with_s3(&s3).with_ssh(&ssh);
    fs::write(world.path("file"), "x").unwrap();
    fs::create_dir(world.path("folder")).unwrap();
    fs::write(world.path("folder/file"), "x").unwrap();
    fs::create_dir_all(world.path("taken/file")).unwrap();
    let absent = ssh.address("/no/such/path");
    let table: &[(&[&str], i32, &str)] = &[
        (
            &["missing", "there"],
            4,
            "can't read missing: no such file or directory (check the path)",
        ),
        (
            &["missing/", "there"],
            3,
            "can't read missing: no such directory (check the path)",
        ),
        (
            &["file/", "there"],
            3,
            "can't read file: not a directory (leave out the trailing slash to copy a file)",
        ),
        (
            &["gopher://host/x", "there"],
            2,
            "can't understand gopher://…: unknown scheme (use a local path, \
             s3://bucket/prefix or sftp://user@host/path, or install posthaste-plugin-gopher)",
        ),
        (
            &["file", "s3://"],
            2,
            "can't understand s3://: no bucket (write s3://bucket/prefix)",
        ),
        (
            &["file", "folder", "file"],
            1,
            "can't copy into file: it is not a directory (name a directory, or one source for that \
             name)",
        ),
        (
            &["file", "file"],
            1,
            "can't copy file: it is the same file as the destination (give the copy another name)",
        ),
        (
            &["folder", "file"],
            1,
            "can't copy a directory onto file: a file has that name",
        ),
        (
            &["file", "taken/"],
            6,
            "can't write taken/file: a directory has that name",
        ),
        (
            &["file", "there", "--include", "a["],
            2,
            "can't read the pattern a[: unclosed character class; missing ']' (write patterns as \
             rclone does, like '*.nc' or '/logs/**')",
        ),
        (
            &["s3://nosuchbucket/x", "there"],
            3,
            "can't list s3://nosuchbucket: NoSuchBucket: The specified bucket does not exist \
             (create the bucket first)",
        ),
        (
            &["s3://testbed/missing", "there"],
            4,
            "can't read s3://testbed/missing: no such file or directory (check the path)",
        ),
        (
            &["--profile", "nobody", "file", "s3://testbed/x"],
            2,
            "can't use profile nobody: no such profile (name one of \
             ~/.config/posthaste/profiles.toml or ~/.aws/config)",
        ),
        (
            &[&absent, "there"],
            4,
            &format!("can't read {absent}: no such file or directory (check the path)"),
        ),
        (
            &["file", "my host:x"],
            2,
            "can't understand my host:x: no host has ' ' in its name (write user@host:path, or \
             ./NAME for a local file with a colon in its name)",
        ),
        (
            &["file", "/proc/self/x"],
            1,
            "can't write to /proc/self/x: its files are the system's own, as those of /proc (name \
             a path where files lie)",
        ),
        (
            &["--preserve=mode,garbage", "file", "there"],
            2,
            "can't preserve 'garbage': it is none of mode, timestamps, ownership, links, xattr, \
             context, all",
        ),
        (
            &["file", "sftp://u:pw@host/x"],
            2,
            "can't understand sftp://…@host: passwords don't belong into addresses (use a key, \
             ssh-agent or a profile)",
        ),
        (
            &["s3://bob:pw/x@bucket/x", "there"],
            2,
            "can't understand s3://…@bucket/x: credentials don't belong into addresses (use a \
             profile, or the environment)",
        ),
    ];
    for (arguments, code, line) in table {
        let output = world.cp(*arguments).output().unwrap();
        assert_eq!(complaints(&output), [*line], "{arguments:?}");
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}");
        assert!(
            !world.path("there").exists(),
            "{arguments:?} left something"
        );
    }
    let usage = world.cp(["file"]).output().unwrap();
    let line = "nothing says where it goes: posthaste cp [OPTIONS] <SRC>... <DST>";
    assert_eq!(complaints(&usage), [line]);
    assert_eq!(usage.status.code(), Some(2));
    // Options may stand anywhere.
    let between = world.cp(["file", "--ignore-times", "there"]).output();
    assert!(between.unwrap().status.success());
    assert_eq!(fs::read(world.path("there")).unwrap(), b"x");
}

#[test]
fn wrong_credentials_and_dead_hosts_are_named() {
    let (s3, ssh) = (S3Server::start().unwrap(), SshServer::start().unwrap());
    let world = World::new().with_s3(&s3).with_ssh(&ssh);
    fs::write(world.path("file"), "x").unwrap();
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        let lines = complaints(&output);
        assert_eq!(lines.len(), 1, "{lines:?}");
        (output.status.code().unwrap(), lines[0].clone())
    };
    let (code, line) = run(world
        .cp(["file", "s3://testbed/x"])
        .env("AWS_SECRET_ACCESS_KEY", "wrong-secret"));
    assert_eq!(code, 7, "{line}");
    assert!(
        line.starts_with("can't list s3://testbed: SignatureDoesNotMatch: "),
        "{line}"
    );
    assert!(
        line.ends_with(" (check the access key and its secret)"),
        "{line}"
    );
    assert!(!line.contains("wrong-secret"), "{line}");
    let (code, line) = run(world
        .cp(["file", "s3://testbed/x"])
        .env("AWS_ENDPOINT_URL", "http://127.0.0.1:9"));
    assert_eq!(code, 5, "{line}");
    assert!(
        line.contains("Connection refused") && line.contains("check the address"),
        "{line}"
    );
    let elsewhere = format!("sftp://{}@127.0.0.1:9/x", ssh.user());
    let (code, line) = run(&mut world.cp(["file", &elsewhere]));
    assert_eq!(code, 5, "{line}");
    assert!(line.contains("Connection refused"), "{line}");
    let stranger = format!("sftp://nobody-at-all@127.0.0.1:{}/x", ssh.port());
    let (code, line) = run(&mut world.cp(["file", &stranger]));
    assert_eq!(code, 7, "{line}");
    assert!(
        line.contains("Permission denied") && line.contains("check user and key"),
        "{line}"
    );
}

#[test]
fn a_full_destination_is_one_line_and_can_be_continued() {
    let world = World::new();
    fs::create_dir(world.path("source")).unwrap();
    fs::write(world.path("source/large"), noise(3, 48 << 20)).unwrap();
    fs::create_dir(world.path("small")).unwrap();
    // A mount of our own, seen by nobody else and gone with the shell.
    let script = "mount -t tmpfs -o size=40m posthaste-test small || exit 99; \
        \"$0\" cp source/ small; echo \"code $?\"; ls -A small; \
        mount -o remount,size=100m small; \"$0\" cp source/ small --json 2>/dev/null; \
        cmp source/large small/large && echo same; ls -A small";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(env!("CARGO_BIN_EXE_posthaste"))
        .current_dir(world.path(""))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_ne!(
        output.status.code(),
        Some(99),
        "no mount: {}",
        lines_of(&output)
    );
    let complaints = complaints(&output);
    assert_eq!(
        complaints,
        [
            "can't write small/large: No space left on device (os error 28) (free space there, then \
          run the same command to continue)"
        ]
    );
    assert!(text.starts_with("code 7\n.large."), "{text}");
    assert!(
        !text.contains("\"resumedBytes\":0,"),
        "nothing was continued: {text}"
    );
    assert!(text.ends_with("same\nlarge\n"), "{text}");
}

/// Runs the executable as a user without rights.
fn as_nobody(world: &World, arguments: &[&str]) -> Output {
    let program = world.path("posthaste");
    fs::copy(env!("CARGO_BIN_EXE_posthaste"), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(world.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(program);
    command
        .arg("cp")
        .args(arguments)
        .current_dir(world.path(""))
        .env("HOME", world.path(""));
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    if is_root {
        command.uid(65534).gid(65534);
    }
    command.output().unwrap()
}

#[test]
fn what_can_not_be_read_is_left_out() {
    let world = World::new();
    fs::create_dir(world.path("source")).unwrap();
    fs::write(world.path("source/fine"), "x").unwrap();
    fs::write(world.path("source/closed"), "x").unwrap();
    fs::set_permissions(
        world.path("source/closed"),
        fs::Permissions::from_mode(0o000),
    )
    .unwrap();
    fs::create_dir(world.path("open")).unwrap();
    fs::set_permissions(world.path("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let output = as_nobody(&world, &["source/", "open/there"]);
    assert_eq!(
        complaints(&output),
        ["can't read source/closed: Permission denied (os error 13)"]
    );
    assert_eq!(output.status.code(), Some(6));
    assert!(world.path("open/there/fine").exists(), "the others went on");
    assert!(!world.path("open/there/closed").exists());
}

#[test]
fn a_destination_nobody_may_write_to_ends_the_copy() {
    let world = World::new();
    fs::create_dir(world.path("source")).unwrap();
    for index in 0..50 {
        fs::write(world.path(&format!("source/{index}")), "x").unwrap();
    }
    fs::create_dir(world.path("closed")).unwrap();
    fs::set_permissions(world.path("closed"), fs::Permissions::from_mode(0o555)).unwrap();
    let output = as_nobody(&world, &["source", "closed"]);
    assert_eq!(
        complaints(&output),
        ["can't make directory closed/source: Permission denied (os error 13)"]
    );
    assert_eq!(output.status.code(), Some(7));
    fs::set_permissions(world.path("closed"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Waits until a draft of this file lies below `folder`: the file is being read.
fn wait_for_draft(folder: &Path, name: &str) {
    let is_begun = |path: &PathBuf| {
        let is_it = path.file_name().unwrap().to_string_lossy().contains(name);
        is_it && fs::metadata(path).is_ok_and(|found| found.blocks() > 0)
    };
    for _ in 0..15_000 {
        if leftovers(folder).iter().any(is_begun) {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("nothing of {name} was copied in five minutes");
}

#[test]
fn a_file_that_changes_or_vanishes_is_never_half_there() {
    let world = World::new();
    // Each is still being read when somebody comes to see it.
    for (name, len) in [("changing", 24), ("vanishing", 1), ("shrinking", 120)] {
        fs::write(world.path(name), noise(5, len << 20)).unwrap();
    }
    fs::write(world.path("limit"), "500K").unwrap();
    fs::write(world.path("fine"), "x").unwrap();
    fs::create_dir(world.path("there")).unwrap();
    let child = world
        .cp(["changing", "shrinking", "vanishing", "fine", "there"])
        .args(["--bwlimit", "@limit", "--transfers", "1"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_draft(&world.path("there"), "changing");
    let mut changing = fs::File::options()
        .append(true)
        .open(world.path("changing"))
        .unwrap();
    changing.write_all(b"more").unwrap();
    fs::remove_file(world.path("vanishing")).unwrap();
    // At once, as it is read meanwhile.
    fs::write(world.path("new"), "6M").unwrap();
    fs::rename(world.path("new"), world.path("limit")).unwrap();
    wait_for_draft(&world.path("there"), "shrinking");
    fs::File::options()
        .write(true)
        .open(world.path("shrinking"))
        .unwrap()
        .set_len(10)
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        complaints(&output),
        [
            "can't copy changing: it changed while it was read (copy it again when nothing \
             writes to it)",
            "can't copy shrinking: it became shorter while it was read (copy it again when \
             nothing writes to it)",
            "can't read vanishing: No such file or directory (os error 2)",
        ]
    );
    assert_eq!(output.status.code(), Some(6));
    assert!(world.path("there/fine").exists(), "the others went on");
    for name in ["changing", "vanishing", "shrinking"] {
        assert!(
            !world.path("there").join(name).exists(),
            "{name} is half there"
        );
    }
    assert!(leftovers(&world.path("there")).is_empty());
}

#[test]
fn a_hundred_thousand_tiny_files_take_little_memory() {
    const FOLDERS: u64 = 100;
    const FILES_PER_FOLDER: u64 = 1_000;
    const MEMORY_KIB_MAX: u64 = 200 * 1024;
    let world = World::new();
    let folders = share_of(FOLDERS);
    for folder in 0..folders {
        let folder = world.path(&format!("source/{folder}"));
        fs::create_dir_all(&folder).unwrap();
        for file in 0..FILES_PER_FOLDER {
            fs::write(folder.join(format!("{file}")), "tiny").unwrap();
        }
    }
    let mut child = world.cp(["source/", "there", "--quiet"]).spawn().unwrap();
    let status_file = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0;
    let status = loop {
        peak_kib = peak_kib.max(memory_peak_kib(Path::new(&status_file)));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success());
    assert!((1..MEMORY_KIB_MAX).contains(&peak_kib), "{peak_kib} KiB");
    let again = world.copy(["source/", "there"]);
    assert_eq!(
        (&again["checks"], &again["transfers"]),
        (&(folders * FILES_PER_FOLDER).into(), &0.into())
    );
}

fn memory_peak_kib(status: &Path) -> u64 {
    let text = fs::read_to_string(status).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}

#[test]
fn special_files_are_left_out_and_named() {
    let world = World::new();
    make_tree(&world.path("source"), false);
    let made = Command::new("mkfifo")
        .arg(world.path("source/pipe"))
        .status()
        .unwrap();
    assert!(made.success());
    let output = world.cp(["-v", "source/", "there"]).output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", lines_of(&output));
    assert!(lines_of(&output).contains("source/pipe: it is a device, a pipe or a socket"));
    assert!(!world.path("there/pipe").exists());
}
