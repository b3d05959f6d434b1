//! From `up` to `down`, and the remains after a kill: none.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
};

use crate::support::{LOOK_EVERY, LOOKS_MAX, PROGRAM, pair, ping};

fn program(arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns a topology file, and a unique name.
fn topology(about: &str) -> (tempfile::TempDir, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pair.toml");
    let hosts = "host = [{ name = \"a\" }, { name = \"b\" }]";
    let link = "link = [{ name = \"ab\", ends = [\"a\", \"b\"], delay = \"5ms\" }]";
    fs::write(&path, format!("name = \"pair\"\n{hosts}\n{link}\n")).unwrap();
    let name = format!("{about}-{}", std::process::id());
    (folder, path.display().to_string(), name)
}

/// Starts `up`, and returns once it reports that it is up.
fn up(path: &str, name: &str) -> Child {
    let mut child = Command::new(PROGRAM)
        .args(["up", path, "--name", name])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.starts_with(&format!("{name} is up: a 10.")), "{line}");
    child
}

/// Returns the namespaces of the laboratory, and its folder.
fn left(name: &str) -> Vec<String> {
    let mut left: Vec<String> = fs::read_dir("/run/netns")
        .map(|entries| {
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names
                .filter(|entry| entry.contains(&format!(".{name}.")))
                .collect()
        })
        .unwrap_or_default();
    if Path::new("/run/posthaste-lab").join(name).exists() {
        left.push("the folder".to_owned());
    }
    left
}

fn is_alive(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_none()
}

/// Returns whether it ends with no further action: it is not to end by itself.
fn ends(child: &mut Child) -> bool {
    (0..LOOKS_MAX).any(|_| {
        thread::sleep(LOOK_EVERY);
        !is_alive(child)
    })
}

/// Starts a shell that runs these words on the host, and returns once it reports that it is there.
fn shell(name: &str, host: &str, words: &str) -> Child {
    let mut inside = Command::new(PROGRAM)
        .args(["exec", "--lab", name, host, "--", "sh", "-c"])
        .arg(format!("{words}; echo here; exec sleep 600"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(inside.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "here\n");
    inside
}

#[test]
fn commands_run_on_hosts_with_their_names_and_exit_codes() {
    let (_folder, path, name) = topology("exec");
    let mut owner = up(&path, &name);
    let exec = |host: &str, command: &[&str]| {
        let mut words = vec!["exec", "--lab", &name, host, "--"];
        words.extend(command);
        program(&words)
    };
    assert_eq!(text(&exec("a", &["uname", "-n"]).stdout), "a\n");
    assert_eq!(
        text(&exec("b", &["getent", "hosts", "a"]).stdout),
        "10.117.0.1      a\n"
    );
    assert_eq!(exec("a", &["sh", "-c", "exit 42"]).status.code(), Some(42));
    assert_eq!(exec("a", &["no-such-program"]).status.code(), Some(127));
    assert_eq!(exec("a", &["/etc/hosts"]).status.code(), Some(126));
    let stranger = exec("c", &["true"]);
    assert_eq!(stranger.status.code(), Some(125));
    assert!(text(&stranger.stderr).contains("has no host \"c\"; it has: a, b"));

    let devices = text(&exec("a", &["ip", "-oneline", "link"]).stdout);
    assert_eq!(
        devices.lines().count(),
        2,
        "only lo and the link: {devices}"
    );
    assert!(
        devices.contains(": lo:") && devices.contains(": ab:"),
        "{devices}"
    );
    assert!(
        devices
            .lines()
            .any(|line| line.contains(": ab:") && line.contains("mtu 1500"))
    );
    let outside = exec("a", &["ip", "route", "get", "192.0.2.1"]);
    assert!(
        !outside.status.success(),
        "a way out: {}",
        text(&outside.stdout)
    );

    let twice = program(&["up", &path, "--name", &name]);
    assert_eq!(twice.status.code(), Some(125));
    assert!(
        text(&twice.stderr).contains("is up already"),
        "{}",
        text(&twice.stderr)
    );

    let status = program(&["status", "--lab", &name, "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status[0]["links"][0]["forth"]["delay"], "5ms");
    assert_eq!(status[0]["hosts"][1]["address"], "10.117.0.2");

    let changed = program(&["change", "--lab", &name, "ab", "delay=20ms"]);
    assert!(changed.status.success(), "{}", text(&changed.stderr));
    let shown = text(&program(&["status", "--lab", &name]).stdout);
    assert!(
        shown.contains("link ab a to b: unlimited, 20ms one way"),
        "{shown}"
    );
    let refused = program(&["change", "--lab", &name, "ab", "jitter=1s"]);
    assert_eq!(refused.status.code(), Some(125));
    assert_eq!(
        text(&refused.stderr),
        "posthaste-lab: jitter (1s) is more than the delay (20ms)\n"
    );

    let down = program(&["down", "--lab", &name]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    assert!(owner.wait().unwrap().success());
    assert_eq!(left(&name), [""; 0]);
}

#[test]
fn a_signal_ends_everything() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let (_folder, path, name) = topology(&format!("sig{}", signal.to_lowercase()));
        let mut owner = up(&path, &name);
        let mut inside = shell(&name, "b", ":");
        assert_eq!(left(&name).len(), 3);
        let sent = Command::new("kill")
            .args([signal, &owner.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        assert!(owner.wait().unwrap().success());
        assert_eq!(left(&name), [""; 0]);
        assert!(ends(&mut inside), "what ran in it has ended");
    }
}

#[test]
fn what_a_killed_one_left_is_removed_by_down() {
    let (_folder, path, name) = topology("killed");
    let mut owner = up(&path, &name);
    let mut inside = shell(&name, "a", "trap '' TERM");
    // Any new laboratory would sweep, too.
    let nobody_sweeps = fs::File::create("/run/posthaste-lab/.lock").unwrap();
    nobody_sweeps.lock().unwrap();
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_eq!(left(&name).len(), 3, "nobody was there to remove it");
    assert!(is_alive(&mut inside));
    let refused = program(&["exec", "--lab", &name, "a", "--", "true"]);
    assert_eq!(refused.status.code(), Some(125), "it is not up any more");
    drop(nobody_sweeps);
    // Another test may be the one that sweeps: after a `down`, nothing must be left. One that names
    // no laboratory would end that of another test.
    let down = ["down", "--lab", &name];
    program(&down);
    assert_eq!(left(&name), [""; 0]);
    assert!(ends(&mut inside));
    let mut again = up(&path, &name);
    again.kill().unwrap();
    again.wait().unwrap();
    program(&down);
}

#[test]
fn run_builds_runs_and_removes() {
    let (_folder, path, name) = topology("run");
    let run = |words: &[&str]| {
        let mut all = vec!["run", &path, "--name", &name];
        all.extend(words);
        program(&all)
    };
    let first = run(&["--", "uname", "-n"]);
    assert_eq!(text(&first.stdout), "a\n", "{}", text(&first.stderr));
    assert_eq!(
        text(&run(&["--on", "b", "--", "uname", "-n"]).stdout),
        "b\n"
    );
    assert_eq!(run(&["--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(
        run(&["--", "sh", "-c", "kill -9 $$"]).status.code(),
        Some(137)
    );
    assert_eq!(run(&["--", "no-such-program"]).status.code(), Some(127));
    assert_eq!(left(&name), [""; 0]);
}

#[test]
fn a_signal_to_run_reaches_the_command() {
    let (_folder, path, name) = topology("run-signal");
    let mut owner = Command::new(PROGRAM)
        .args(["run", &path, "--name", &name, "--", "sh", "-c"])
        .arg("trap 'exit 9' TERM; echo here; while :; do sleep 0.05; done")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(owner.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "here\n");
    let sent = Command::new("kill")
        .args(["-TERM", &owner.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    assert_eq!(owner.wait().unwrap().code(), Some(9));
    assert_eq!(left(&name), [""; 0]);
}

#[test]
fn a_wrong_topology_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.toml");
    fs::write(
        &path,
        "name = \"wrong\"\nhost = [{ name = \"a\", speed = 3 }]\n",
    )
    .unwrap();
    let path = path.display().to_string();
    for command in ["up", "check"] {
        let refused = program(&[command, &path]);
        assert_eq!(refused.status.code(), Some(125));
        let message = text(&refused.stderr);
        assert!(
            message.starts_with(&format!(
                "posthaste-lab: {path}, line 2: unknown field `speed`"
            )),
            "{message}"
        );
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn all_topologies_of_the_project_are_sound_and_come_up() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let topology = posthaste_lab::Topology::read(&path).unwrap();
        let lab = posthaste_lab::Lab::up(&topology).unwrap();
        let (first, last) = (
            &topology.hosts()[0],
            &topology.hosts()[topology.hosts().len() - 1],
        );
        let times = ping(&lab, &first.name, &last.name, 3);
        assert!(!times.is_empty(), "{}", path.display());
    }
}

#[test]
fn a_laboratory_of_a_program_ends_with_it_and_is_not_for_down() {
    let lab = pair("");
    let name = lab.name().to_owned();
    assert_eq!(left(&name).len(), 3);
    let refused = program(&["down", "--lab", &name]);
    assert!(
        text(&refused.stderr).contains("belongs to a program"),
        "{}",
        text(&refused.stderr)
    );
    drop(lab);
    assert_eq!(left(&name), [""; 0]);
}
