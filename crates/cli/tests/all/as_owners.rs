//! A service and movers that run as root and touch files with the rights of each request's owner,
//! and never with more.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::ask::ask;
use crate::support::processes::{Process, Relay, Service, binary, failure, text};
use serde_json::Value;

/// Accounts on every machine.
const ALICE: &str = "nobody";
const BOB: &str = "daemon";

fn id_of(name: &str) -> u32 {
    let said = Command::new("id").args(["-u", name]).output().unwrap();
    text(&said.stdout).trim().parse().unwrap()
}

/// Service that acts for owners, a depot, and a directory that everybody may write to.
struct Centre {
    folder: tempfile::TempDir,
    service: Service,
    _relay: Relay,
    scratch: PathBuf,
    /// Token of Alice's.
    token: PathBuf,
}

impl Centre {
    fn start() -> Self {
        Self::start_by(|folder| Service::start_with(folder, &["--as-owners"]))
    }

    fn start_by(start: impl FnOnce(&Path) -> Service) -> Self {
        let folder = tempfile::tempdir().unwrap();
        set_mode(folder.path(), 0o755);
        let scratch = folder.path().join("scratch");
        fs::create_dir(&scratch).unwrap();
        set_mode(&scratch, 0o1777);
        let relay = Relay::start(folder.path(), "ash", "1G", "100M");
        let service = start(folder.path());
        service.add(&relay);
        let token = folder.path().join("alice.token");
        let words = [
            "token", "add", "alice", "--scope", "submit", "--owner", ALICE, "--below",
        ];
        let places = [
            scratch.to_str().unwrap(),
            "--output",
            token.to_str().unwrap(),
        ];
        let made = service.run(&[&words[..], &places].concat());
        assert!(made.status.success(), "{}", text(&made.stderr));
        Self {
            scratch,
            token,
            service,
            _relay: relay,
            folder,
        }
    }

    /// Runs Alice's client and returns its output.
    fn run(&self, words: &[&str]) -> std::process::Output {
        let mut command = binary();
        let command = command
            .args(words)
            .args(["--service", &self.service.url, "--token-file"]);
        command.arg(&self.token).output().unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let done = self.run(words);
        assert!(done.status.success(), "{words:?}: {}", text(&done.stderr));
        serde_json::from_slice(&done.stdout).unwrap()
    }

    /// Makes a directory that only this account may read.
    fn make(&self, name: &str, owner: &str) -> PathBuf {
        let folder = self.scratch.join(name);
        fs::create_dir(&folder).unwrap();
        for file in ["one", "two"] {
            fs::write(folder.join(file), vec![7; 3 << 20]).unwrap();
        }
        fs::create_dir(folder.join("sub")).unwrap();
        fs::write(folder.join("sub/file"), "data").unwrap();
        give(&folder, owner);
        set_mode(&folder, 0o700);
        folder
    }

    fn offload(&self, source: &Path, more: &[&str]) -> std::process::Output {
        let words = [
            "offload",
            source.to_str().unwrap(),
            "--to",
            "home",
            "--deadline",
            "10m",
            "--json",
        ];
        let depots = ["--via", "ash", "--code", "1+0"];
        self.run(&[&words[..], &depots, more].concat())
    }

    fn movers_token(&self) -> PathBuf {
        let token = self.folder.path().join("movers.token");
        let words = ["token", "add", "movers", "--scope", "move", "--output"];
        let made = self
            .service
            .run(&[&words[..], &[token.to_str().unwrap()]].concat());
        assert!(made.status.success(), "{}", text(&made.stderr));
        token
    }

    fn log(&self) -> String {
        fs::read_to_string(self.service.state.with_extension("log")).unwrap()
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn give(path: &Path, owner: &str) {
    let id = id_of(owner);
    let given = Command::new("chown")
        .args(["-R", &id.to_string()])
        .arg(path)
        .status();
    assert!(given.unwrap().success());
}

#[test]
fn what_an_owner_may_read_goes_out_and_is_released_and_nothing_else_is_read() {
    let centre = Centre::start();
    let own = centre.make("own", ALICE);
    let done = centre.offload(&own, &["--wait", "--release", "when-safe"]);
    assert!(
        done.status.success(),
        "{}\n{}",
        text(&done.stderr),
        centre.log()
    );
    centre
        .service
        .wait_until("r1", |request| request["state"] == "released");
    assert!(!own.exists(), "it was not released");
    // What is another's, or root's, is not even looked into.
    for owner in [BOB, "root"] {
        let other = centre.make(owner, owner);
        let refused = failure(&centre.offload(&other, &["--wait"])).1;
        assert!(refused.contains("Permission denied"), "{refused}");
    }
    // A directory of hers with a file that is not.
    let mixed = centre.make("mixed", ALICE);
    chown(mixed.join("two"), Some(0), Some(0)).unwrap();
    set_mode(&mixed.join("two"), 0o600);
    let done = centre.offload(&mixed, &["--wait"]);
    assert_eq!(done.status.code(), Some(6), "{}", text(&done.stderr));
    let request = centre
        .service
        .wait_until("r4", |request| request["state"] == "safe");
    assert_eq!(request["left_out"]["files"], 1, "{request}");
    let explained = text(&centre.run(&["explain", "r4"]).stdout);
    let is_named = explained.contains("mixed/two: it may not be read");
    assert!(is_named, "{explained}");
}

#[test]
fn a_way_that_is_changed_meanwhile_leads_nowhere_that_its_owner_may_not_go() {
    let centre = Centre::start();
    let secret = centre.folder.path().join("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("file"), "TOPS").unwrap();
    set_mode(&secret, 0o700);
    // Links from the start: they are kept as links, and a source that is one is followed with her
    // rights alone.
    let way = centre.scratch.join("way");
    symlink(&secret, &way).unwrap();
    let refused = failure(&centre.offload(&way, &["--wait"])).1;
    assert!(
        refused.contains("it is not below") || refused.contains("Permission denied"),
        "{refused}"
    );
    // A directory becomes a link after it was listed: what it leads to has the same name, size and
    // time.
    let run = centre.make("run", ALICE);
    let about = fs::metadata(run.join("sub/file")).unwrap();
    fs::File::open(secret.join("file"))
        .unwrap()
        .set_modified(about.modified().unwrap())
        .unwrap();
    centre.service.run(&["depot", "drain", "ash"]);
    centre.offload(&run, &["--best-effort"]);
    centre
        .service
        .wait_until("r1", |request| request["bytes"].as_u64() > Some(0));
    fs::rename(run.join("sub"), run.join("gone")).unwrap();
    symlink(&secret, run.join("sub")).unwrap();
    centre.service.run(&["depot", "undrain", "ash"]);
    let ended =
        |request: &Value| !["scanning", "moving"].contains(&request["state"].as_str().unwrap());
    let request = centre.service.wait_until("r1", ended);
    assert_ne!(request["state"], "safe", "{request}");
    let stored = Command::new("grep")
        .args(["-r", "TOPS"])
        .arg(centre.folder.path().join("ash"))
        .output();
    assert_eq!(text(&stored.unwrap().stdout), "", "it was read");
}

#[test]
fn what_arrives_is_its_owner_s_and_goes_where_that_one_may_write() {
    let centre = Centre::start();
    let source = centre.make("source", ALICE);
    let stage_in = |to: &Path| {
        let words = ["stage-in", source.to_str().unwrap(), to.to_str().unwrap()];
        centre.run(&[&words[..], &["--deadline", "10m", "--json", "--wait"]].concat())
    };
    let to = centre.scratch.join("input");
    let done = stage_in(&to);
    assert!(
        done.status.success(),
        "{}\n{}",
        text(&done.stderr),
        centre.log()
    );
    for path in [
        to.clone(),
        to.join("one"),
        to.join("sub"),
        to.join("sub/file"),
    ] {
        assert_eq!(
            fs::metadata(&path).unwrap().uid(),
            id_of(ALICE),
            "{}",
            path.display()
        );
    }
    let closed = centre.scratch.join("closed");
    fs::create_dir(&closed).unwrap();
    let refused = failure(&stage_in(&closed.join("input"))).1;
    assert!(
        refused.contains("Permission denied") || refused.contains("can't be written"),
        "{refused}"
    );
    assert_eq!(fs::read_dir(&closed).unwrap().count(), 0);
    // Straight to a path of this machine.
    let archive = centre.scratch.join("archive");
    let words = [
        "offload",
        source.to_str().unwrap(),
        "--to",
        archive.to_str().unwrap(),
    ];
    centre.json(
        &[
            &words[..],
            &[
                "--deadline",
                "10m",
                "--json",
                "--wait",
                "--release",
                "when-safe",
            ],
        ]
        .concat(),
    );
    assert_eq!(
        fs::metadata(archive.join("sub/file")).unwrap().uid(),
        id_of(ALICE)
    );
    assert!(!source.exists(), "it was not released");
}

#[test]
fn a_mover_takes_on_the_rights_of_owners_and_works_for_nobody_as_root() {
    let centre = Centre::start();
    let token = centre.movers_token();
    let words = |name: &'static str| {
        [
            "mover",
            "--json",
            "--name",
            name,
            "--server",
            &centre.service.url,
            "--token-file",
        ]
        .map(str::to_owned)
    };
    let log = centre.folder.path().join("movers.log");
    let mut command = binary();
    let root = Process::run(command.args(words("root")).arg(&token), &log);
    let own = centre.make("own", ALICE);
    let done = centre.offload(&own, &["--wait"]);
    assert!(
        done.status.success(),
        "{}\n{}",
        text(&done.stderr),
        centre.log()
    );
    let input = centre.scratch.join("input");
    let staged = [
        "stage-in",
        own.to_str().unwrap(),
        input.to_str().unwrap(),
        "--deadline",
        "10m",
    ];
    centre.json(&[&staged[..], &["--json", "--wait"]].concat());
    assert_eq!(fs::metadata(input.join("one")).unwrap().uid(), id_of(ALICE));
    let movers = centre.service.json(&["movers", "--json"]);
    let has_done_all = movers[0]["done"].as_u64() >= Some(3) && movers[0]["failed"] == 0;
    assert!(
        has_done_all || centre.service.has_lost_a_mover(),
        "{movers}"
    );
    drop(root);
    // One that is not root can't, and the service does it.
    let program = centre.folder.path().join("posthaste");
    let built = env!("CARGO_BIN_EXE_posthaste");
    fs::hard_link(built, &program)
        .or_else(|_| fs::copy(built, &program).map(|_| ()))
        .unwrap();
    let readable = centre.folder.path().join("bob.token");
    fs::copy(&token, &readable).unwrap();
    chown(&readable, Some(id_of(BOB)), None).unwrap();
    let mut command = Command::new("setpriv");
    let id = id_of(BOB).to_string();
    command
        .args(["--reuid", &id, "--regid", &id, "--clear-groups"])
        .arg(&program);
    let _bob = Process::run(command.args(words("bob")).arg(&readable), &log);
    let done = centre.offload(&own, &["--wait"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(
        centre
            .log()
            .contains("only a mover that runs as root can act for others")
            || centre.service.has_lost_a_mover(),
        "{}",
        centre.log()
    );
}

#[test]
fn a_mover_that_is_root_lends_its_rights_to_no_service_that_has_less() {
    let centre = Centre::start_by(|folder| Service::start_as(id_of(ALICE), folder, &[]));
    let token = centre.movers_token();
    let mut command = binary();
    let words = [
        "mover",
        "--json",
        "--server",
        &centre.service.url,
        "--token-file",
    ];
    let log = centre.folder.path().join("movers.log");
    let _root = Process::run(command.args(words).arg(&token), &log);
    let own = centre.make("own", ALICE);
    let done = centre.offload(&own, &["--wait"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let movers = centre.service.json(&["movers", "--json"]);
    assert_eq!(movers[0]["done"].as_u64().unwrap_or(0), 0, "{movers}");
    assert!(
        centre.log().contains("can't touch files as root") || centre.service.has_lost_a_mover(),
        "{}",
        centre.log()
    );
}

#[test]
fn nobody_s_requests_and_services_that_are_not_root_s_are_refused() {
    let centre = Centre::start();
    let own = centre.make("own", ALICE);
    let words = [
        "offload",
        own.to_str().unwrap(),
        "--to",
        "home",
        "--deadline",
        "10m",
        "--via",
        "ash",
    ];
    let (_, refused) = failure(&centre.service.run(&words));
    assert!(refused.contains("it has none"), "{refused}");
    let owned = |owner: &'static str| {
        centre
            .service
            .run(&[&words[..], &["--owner", owner, "--code", "1+0"]].concat())
    };
    let (_, refused) = failure(&owned("root"));
    assert!(refused.contains("it is root's"), "{refused}");
    let (_, refused) = failure(&owned("no-such-account"));
    assert!(refused.contains("knows none of that name"), "{refused}");
    // Who operates is nobody in particular: no directory is listed with root's rights.
    let listed = centre
        .service
        .run(&["ls", centre.scratch.to_str().unwrap()]);
    let (_, refused) = failure(&listed);
    assert!(refused.contains("it has none"), "{refused}");
    let program = centre.folder.path().join("posthaste");
    let built = env!("CARGO_BIN_EXE_posthaste");
    fs::hard_link(built, &program)
        .or_else(|_| fs::copy(built, &program).map(|_| ()))
        .unwrap();
    let id = id_of(BOB).to_string();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &id, "--regid", &id, "--clear-groups"])
        .arg(&program);
    let state = centre.scratch.join("state");
    let output = command
        .args(["serve", "--as-owners", "--listen", "127.0.0.1:0", "--state"])
        .arg(&state);
    let (_, refused) = failure(&output.output().unwrap());
    assert!(refused.contains("only root can"), "{refused}");
}

#[test]
fn a_service_of_root_s_lends_its_rights_only_where_that_is_said() {
    let mut centre = Centre::start_by(|folder| Service::start_with(folder, &[]));
    let place = centre.make("run", ALICE);
    let listed = centre.run(&["ls", place.to_str().unwrap()]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    centre.service.kill();
    centre.service.restart_without("--as-root");
    let (code, refused) = failure(&centre.run(&["ls", place.to_str().unwrap()]));
    assert_ne!(code, 0);
    for told in ["token alice", "runs as root", "--as-owners", "--as-root"] {
        assert!(refused.contains(told), "{refused}");
    }
    // Nor is one made, and one that is bound to nothing is as good as before.
    let token = |words: &[&str]| {
        let made = ["token", "add", "other", "--output"];
        let file = centre.folder.path().join("other.token");
        let made = [&made[..], &[file.to_str().unwrap()], words].concat();
        centre.service.run(&made)
    };
    let below = centre.scratch.to_str().unwrap();
    let words = ["--scope", "submit", "--owner", BOB, "--below", below];
    let (_, refused) = failure(&token(&words));
    assert!(refused.contains("runs as root"), "{refused}");
    let made = token(&["--scope", "read"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
}

/// Root's service has many files open that its owners may not read: none of them is a source for an
/// owner.
#[test]
fn what_the_service_has_open_is_no_source_for_an_owner() {
    let centre = Centre::start();
    let token = centre.folder.path().join("all.token");
    let made = ["token", "add", "all", "--scope", "submit", "--owner", ALICE];
    let made = [&made[..], &["--below", "/", "--output"]].concat();
    let made = [&made[..], &[token.to_str().unwrap()]].concat();
    let made = centre.service.run(&made);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let pid = centre.service.process.id();
    for source in [
        "/proc/self/fd/3".to_owned(),
        "/proc/self/environ".to_owned(),
        format!("/proc/{pid}/fd/3"),
        format!("/proc/{pid}/root/etc/shadow"),
        "/dev/fd/3".to_owned(),
    ] {
        let what = ["offload", &source, "--to", "home", "--deadline", "10m"];
        let how = ["--via", "ash", "--code", "1+0", "--service"];
        let mut command = binary();
        command.args(what).args(how).arg(&centre.service.url);
        let refused = command.arg("--token-file").arg(&token).output().unwrap();
        let (code, said) = failure(&refused);
        assert_ne!(code, 0, "{source}: {said}");
    }
    let listed = centre.service.json(&["list", "--json"]);
    for request in listed.as_array().unwrap() {
        let nothing = (&request["state"], &request["bytes"]);
        assert_eq!(nothing, (&"failed".into(), &0.into()), "{request}");
    }
}

#[test]
fn directories_are_listed_with_the_rights_of_whoever_asks_and_kept_apart() {
    let centre = Centre::start();
    let bobs = centre.folder.path().join("bob.token");
    let words = ["token", "add", "bob", "--scope", "submit", "--owner", BOB];
    let places = [
        "--below",
        centre.scratch.to_str().unwrap(),
        "--output",
        bobs.to_str().unwrap(),
    ];
    let made = centre.service.run(&[&words[..], &places].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    let listed = |token: &Path, folder: &Path| {
        let mut command = binary();
        let command = command.args(["ls", folder.to_str().unwrap(), "--service"]);
        let command = command.arg(&centre.service.url).arg("--token-file");
        command.arg(token).output().unwrap()
    };
    let folders = [(ALICE, &centre.token), (BOB, &bobs)]
        .map(|(owner, token)| (centre.make(&format!("of-{owner}"), owner), token));
    for _ in 0..2 {
        for (folder, token) in &folders {
            let theirs = listed(token, folder);
            assert!(theirs.status.success(), "{}", text(&theirs.stderr));
            assert!(text(&theirs.stdout).contains("one"));
            let sub = listed(token, &folder.join("sub"));
            assert!(text(&sub.stdout).contains("file"), "{}", text(&sub.stderr));
        }
        // What one was told a moment ago the other is not.
        for (place, (_, token)) in folders.iter().enumerate() {
            let other = &folders[1 - place].0;
            for path in [other.clone(), other.join("sub"), other.join("none")] {
                let (_, refused) = failure(&listed(token, &path));
                assert!(refused.contains("ermission denied"), "{refused}");
            }
        }
    }
    // A link leads no further than who asks may go.
    let link = centre.scratch.join("link");
    symlink(folders[1].0.join("sub"), &link).unwrap();
    let (_, refused) = failure(&listed(&centre.token, &link));
    assert!(refused.contains("ermission denied"), "{refused}");
}

#[test]
fn a_job_names_its_user_s_own_depots_and_nobody_else_s() {
    let centre = Centre::start();
    let relay = Relay::start(centre.folder.path(), "oak", "1G", "100M");
    let ready = |key: &str| relay.process.ready[key].as_str().unwrap();
    let added = centre.run(&[
        "depot",
        "add",
        "oak",
        ready("url"),
        "--fingerprint",
        ready("fingerprint"),
        "--secret-file",
        ready("secret_file"),
    ]);
    assert!(added.status.success(), "{}", text(&added.stderr));
    let token = fs::read_to_string(centre.service.state.join("token")).unwrap();
    let at = ready("url").trim_start_matches("https://");
    let oak = format!("oak@{ALICE}");
    for (number, name) in [at, &oak].into_iter().enumerate() {
        for (user, status) in [(ALICE, "200"), (BOB, "404")] {
            let (uid, gid) = (id_of(user), id_of(user));
            let script = format!("#InterNode {name}:1M\ntrue\n");
            let job = serde_json::json!({ "script": script, "uid": uid, "gid": gid });
            let path = format!("/v1/jobs/slurm/{uid}{number}");
            let answer = ask(
                &centre.service,
                "PUT",
                &path,
                Some(token.trim()),
                &job.to_string(),
            );
            let head = format!("HTTP/1.1 {status}");
            assert!(answer.starts_with(&head), "{user}: {name}: {answer}");
        }
    }
}
