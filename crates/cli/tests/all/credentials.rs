//! Users' credentials at a real service, for places at real stores: each reaches their own, and
//! nobody else's.

use crate::support::processes;

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use crate::support::ask::ask;
use crate::support::processes::{Process, Service, binary, failure, now, text};
use posthaste_testbed::{PostgresServer, S3Server};
use serde_json::Value;

/// Two people, a store each, and a service that has a profile of the same name as their
/// credentials.
struct World {
    folder: tempfile::TempDir,
    stores: [S3Server; 2],
    service: Service,
}

const PEOPLE: [&str; 2] = ["alice", "bob"];

impl World {
    fn with(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let stores = [(); 2].map(|()| S3Server::start().unwrap());
        let config = folder.path().join("config/posthaste");
        fs::create_dir_all(&config).unwrap();
        private(
            &config.join("profiles.toml"),
            "[archive]\nurl = \"https://nobody.invalid\"\n",
        );
        let audit = folder.path().join("audit");
        let audit = ["--audit", audit.to_str().unwrap()];
        let service = Service::start_with(folder.path(), &[&audit[..], more].concat());
        let world = Self {
            folder,
            stores,
            service,
        };
        for (person, store) in PEOPLE.iter().zip(&world.stores) {
            fs::create_dir_all(world.path(person)).unwrap();
            let run = store.bucket_folder().join("run");
            fs::create_dir_all(&run).unwrap();
            fs::write(run.join(format!("of {person}")), person.repeat(1 << 20)).unwrap();
            let words = [
                "token", "add", person, "--scope", "submit", "--owner", person,
            ];
            let (below, file) = (world.path(person), world.token_file(person));
            let places = [
                "--below",
                below.to_str().unwrap(),
                "--output",
                file.to_str().unwrap(),
            ];
            let made = world.service.run(&[&words[..], &places].concat());
            assert!(made.status.success(), "{}", text(&made.stderr));
        }
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("scratch").join(name)
    }

    fn token_file(&self, person: &str) -> PathBuf {
        self.folder.path().join(format!("{person}.token"))
    }

    /// Runs a command as somebody.
    fn run(&self, person: &str, arguments: &[&str]) -> Output {
        binary()
            .args(arguments)
            .args(["--service", &self.service.url, "--token-file"])
            .arg(self.token_file(person))
            .output()
            .unwrap()
    }

    fn succeed(&self, person: &str, arguments: &[&str]) -> String {
        let output = self.run(person, arguments);
        let why = || fs::read_to_string(self.service.state.with_extension("log")).unwrap();
        assert!(
            output.status.success(),
            "{}\n{}",
            text(&output.stderr),
            why()
        );
        text(&output.stdout)
    }

    fn give(&self, person: &str, more: &[&str]) -> Output {
        let place = PEOPLE.iter().position(|known| *known == person).unwrap();
        let secrets = self.folder.path().join("secrets");
        let secret = format!("secret_access_key = \"{}\"\n", S3Server::SECRET_KEY);
        private(&secrets, &secret);
        let url = format!("s3://{}", S3Server::BUCKET);
        let endpoint = format!("endpoint={}", self.stores[place].endpoint());
        let key = format!("access_key_id={}", S3Server::ACCESS_KEY);
        let words = [
            "credential",
            "add",
            "archive",
            "--url",
            &url,
            "--set",
            &endpoint,
            "--set",
            &key,
        ];
        let given = self.run(
            person,
            &[&words[..], &["--secrets", secrets.to_str().unwrap()], more].concat(),
        );
        fs::remove_file(secrets).unwrap();
        given
    }

    fn give_both(&self) {
        for person in PEOPLE {
            let given = self.give(person, &[]);
            assert!(given.status.success(), "{}", text(&given.stderr));
        }
    }

    /// Requests a stage-in, and returns its id.
    fn stage_in(&self, person: &str, name: &str) -> String {
        let to = self.path(person).join(name);
        let words = [
            "stage-in",
            "archive:run",
            to.to_str().unwrap(),
            "--deadline",
            "10m",
            "--json",
        ];
        let request: Value = serde_json::from_str(&self.succeed(person, &words)).unwrap();
        assert_eq!(request["source"], "~archive:run");
        request["id"].as_str().unwrap().to_owned()
    }

    fn check_came(&self, person: &str, name: &str) {
        let came = self.path(person).join(name).join(format!("of {person}"));
        assert_eq!(fs::read_to_string(came).unwrap(), person.repeat(1 << 20));
    }
}

impl World {
    /// Sends a user's staged data to another place of theirs.
    fn send_back(&self, person: &str) {
        let from = self.path(person).join("in");
        let words = [
            "offload",
            from.to_str().unwrap(),
            "--to",
            "archive:out",
            "--deadline",
            "10m",
            "--json",
        ];
        let request: Value = serde_json::from_str(&self.succeed(person, &words)).unwrap();
        let id = request["id"].as_str().unwrap();
        self.service.wait_until(id, is_state("arrived"));
    }

    /// Checks that each user's store has what they sent, and nothing else.
    fn check_went(&self) {
        for (person, store) in PEOPLE.iter().zip(&self.stores) {
            let out = store.bucket_folder().join("out");
            let names: Vec<_> = fs::read_dir(&out).unwrap().collect();
            assert_eq!(names.len(), 1, "only what {person} sent is there");
            let there = fs::read_to_string(out.join(format!("of {person}")));
            assert_eq!(there.unwrap(), person.repeat(1 << 20));
        }
    }
}

/// Returns the number of chores that the only mover has done.
fn done(service: &Service) -> u64 {
    let movers = service.json(&["movers", "--json"]);
    movers[0]["done"].as_u64().unwrap_or(0)
}

fn private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn is_state(state: &str) -> impl Fn(&Value) -> bool {
    move |request| request["state"] == state
}

#[test]
fn everybody_reaches_their_own_place_by_the_same_name() {
    let mut world = World::with(&[]);
    world.give_both();
    let ids = PEOPLE.map(|person| world.stage_in(person, "in"));
    world.service.kill();
    world.service.restart();
    for (person, id) in PEOPLE.iter().zip(&ids) {
        world.service.wait_until(id, is_state("arrived"));
        world.check_came(person, "in");
    }
    for person in PEOPLE {
        let listed = world.succeed(person, &["ls", "archive:run"]);
        assert!(listed.trim().ends_with(&format!("of {person}")), "{listed}");
        assert_eq!(listed.trim().lines().count(), 1, "{listed}");
        let checked = world.succeed(person, &["credential", "check", "archive"]);
        assert!(checked.contains("can open archive:"), "{checked}");
        world.send_back(person);
    }
    world.check_went();
    // A job of theirs is nobody's in particular: it has none of these.
    let known = world
        .service
        .json(&["credential", "list", "--owner", "", "--json"]);
    assert_eq!(known, serde_json::json!([]));
}

#[test]
fn nobody_sees_uses_or_removes_anothers() {
    let world = World::with(&[]);
    let given = world.give("alice", &[]);
    assert!(given.status.success(), "{}", text(&given.stderr));
    let (_, said) = failure(&world.give("alice", &[]));
    assert!(said.contains("there is one of that name"), "{said}");
    assert!(world.give("alice", &["--replace"]).status.success());
    let mine = world.succeed("alice", &["credential", "list"]);
    assert!(
        mine.contains("archive") && mine.contains("secret_access_key"),
        "{mine}"
    );
    assert!(
        !world
            .succeed("bob", &["credential", "list"])
            .contains("archive")
    );
    let refused = |arguments: &[&str]| {
        let (code, said) = failure(&world.run("bob", arguments));
        assert!(!said.contains(&world.stores[0].endpoint()), "{said}");
        (code, said)
    };
    let to = world.path("bob").join("in");
    let to = to.to_str().unwrap();
    for (address, why) in [
        ("archive:run", "profile that it may use"),
        ("~archive:run", "credential archive of bob"),
        ("alice~archive:run", "profile that it may use"),
    ] {
        let (_, said) = refused(&["stage-in", address, to, "--deadline", "10m"]);
        assert!(said.contains(why), "{address}: {said}");
        refused(&["ls", address]);
    }
    for verb in ["list", "remove", "check"] {
        let name: &[&str] = if verb == "list" { &[] } else { &["archive"] };
        let words = [&["credential", verb][..], name, &["--owner", "alice"]].concat();
        assert!(refused(&words).1.contains("another's credentials"));
    }
    assert!(
        refused(&["credential", "remove", "archive"])
            .1
            .contains("credential archive of bob")
    );
    assert!(
        refused(&["credential", "rekey"])
            .1
            .contains("scope operate")
    );
    // Alice's, once removed, does not come to mean the profile of that name.
    let id = world.stage_in("alice", "first");
    world.service.wait_until(&id, is_state("arrived"));
    world.succeed("alice", &["credential", "remove", "archive"]);
    let (_, said) = failure(&world.run("alice", &["ls", "archive:run"]));
    assert!(said.contains("profile that it may use"), "{said}");
    let (_, said) = failure(&world.run("alice", &["ls", "~archive:run"]));
    assert!(said.contains("credential archive of alice"), "{said}");
}

#[test]
fn an_operator_gives_lists_and_removes_anybodys() {
    let world = World::with(&[]);
    let url = ["--url", "https://data.example.org/bob", "--owner", "bob"];
    let mut adding = binary()
        .args(["credential", "add", "web", "--secrets", "-"])
        .args(url)
        .args(["--service", &world.service.url, "--token-file"])
        .arg(world.service.state.join("token"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(adding.stdin.as_mut().unwrap(), b"token = \"t0k3n\"\n").unwrap();
    assert!(adding.wait().unwrap().success());
    let known = world.service.json(&["credential", "list", "--json"]);
    assert_eq!(known[0]["owner"], "bob", "{known}");
    assert!(!known.to_string().contains("t0k3n"), "{known}");
    let removed = world
        .service
        .run(&["credential", "remove", "web", "--owner", "bob"]);
    assert!(removed.status.success());
}

#[test]
fn what_makes_no_sense_is_refused_in_one_line_that_tells_no_secret() {
    let world = World::with(&[]);
    let secrets = world.folder.path().join("secrets");
    private(&secrets, "secret_access_key = \"hidden\"\n");
    let add = |more: &[&str]| {
        let words = [
            "credential",
            "add",
            "archive",
            "--secrets",
            secrets.to_str().unwrap(),
        ];
        failure(&world.run("alice", &[&words[..], more].concat()))
    };
    for (more, why) in [
        (
            &["--url", "s3://b"][..],
            "access_key_id and secret_access_key",
        ),
        (&["--url", "/etc"], "nobody's own credential opens that"),
        (&["--url", "host:x"], "nobody's own credential opens that"),
        (
            &["--url", "s3://b", "--set", "ca_file=/etc/shadow"],
            "is no key of such a place",
        ),
        (
            &["--url", "s3://b", "--set", "secret_access_key=hidden"],
            "which others can see",
        ),
        (&["--url", "s3://b", "--set", "hidden"], "no KEY=VALUE"),
    ] {
        let (found, said) = add(more);
        assert!(found == 2 && said.contains(why), "{more:?}: {found} {said}");
        assert!(!said.contains("hidden"), "{said}");
    }
    private(&secrets, "hidden");
    let (_, said) = add(&["--url", "s3://b"]);
    assert!(
        said.contains("no lines of key") && !said.contains("hidden"),
        "{said}"
    );
    fs::set_permissions(&secrets, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(add(&["--url", "s3://b"]).1.contains("others can read it"));
}

/// Lists all files below a directory that contain a text.
fn holding(root: &Path, wanted: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            let bytes = match fs::read(&path) {
                // Who still works puts drafts away.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                read => read.unwrap(),
            };
            if bytes.windows(wanted.len()).any(|some| some == wanted) {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn secrets_are_nowhere_in_the_clear_and_another_key_opens_nothing() {
    let mut world = World::with(&[]);
    world.give_both();
    let id = world.stage_in("alice", "in");
    world.service.wait_until(&id, is_state("arrived"));
    let token = fs::read_to_string(world.service.state.join("token")).unwrap();
    let answer = |path: &str| ask(&world.service, "GET", path, Some(token.trim()), "");
    for path in [
        "/v1/credentials",
        &format!("/v1/requests/{id}"),
        "/v1/metrics",
    ] {
        assert!(!answer(path).contains(S3Server::SECRET_KEY), "{path}");
    }
    let process = format!("/proc/{}/cmdline", world.service.process.id());
    assert!(!text(&fs::read(process).unwrap()).contains(S3Server::SECRET_KEY));
    world.service.kill();
    // Its state, its log, the audit, and all else that it wrote.
    assert_eq!(
        holding(world.folder.path(), S3Server::SECRET_KEY.as_bytes()),
        [] as [PathBuf; 0]
    );
    assert_eq!(
        holding(world.folder.path(), S3Server::ACCESS_KEY.as_bytes()),
        [] as [PathBuf; 0]
    );
    let audit = fs::read_to_string(world.folder.path().join("audit")).unwrap();
    assert!(audit.contains("\"path\":\"/v1/credentials\"") && audit.contains("alice"));

    let key = world.service.state.join("credentials.key");
    assert_eq!(
        fs::metadata(&key).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let right = fs::read_to_string(&key).unwrap();
    let serve = |more: &[&str]| {
        let state = world.service.state.to_str().unwrap();
        let words = ["serve", "--listen", "127.0.0.1:0", "--state", state];
        failure(&binary().args(words).args(more).output().unwrap())
    };
    private(&key, &format!("{}\n", "0718".repeat(16)));
    let (_, said) = serve(&[]);
    assert!(
        said.contains("is not the key of credential archive of alice"),
        "{said}"
    );
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(serve(&[]).1.contains("others can read it"));
    fs::remove_file(&key).unwrap();
    assert!(serve(&[]).1.contains("it is not there"));
    private(&key, "nonsense");
    assert!(serve(&[]).1.contains("no key of 64 hexadecimal digits"));

    private(&key, &right);
    world.service.restart();
    let rekeyed = world.service.run(&["credential", "rekey"]);
    assert_eq!(text(&rekeyed.stdout).trim(), "2 credentials have a new key");
    assert_ne!(fs::read_to_string(&key).unwrap(), right);
    world.service.kill();
    world.service.restart();
    let id = world.stage_in("bob", "again");
    world.service.wait_until(&id, is_state("arrived"));
    world.check_came("bob", "again");
}

#[test]
fn backups_and_databases_carry_credentials_and_tell_none() {
    let mut world = World::with(&[]);
    world.give_both();
    let copy = world.folder.path().join("copy");
    let (state, to) = (world.service.state.clone(), copy.to_str().unwrap());
    let made = binary()
        .args(["backup", "--state", state.to_str().unwrap(), "--to", to])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert_eq!(
        holding(&copy, S3Server::SECRET_KEY.as_bytes()),
        [] as [PathBuf; 0]
    );
    world.service.kill();

    // The service goes on from the copy, and then in a database.
    fs::rename(&state, state.with_extension("lost")).unwrap();
    fs::rename(&copy, &state).unwrap();
    world.service.restart();
    let id = world.stage_in("alice", "restored");
    world.service.wait_until(&id, is_state("arrived"));
    world.check_came("alice", "restored");
    world.service.process.end();

    let server = PostgresServer::shared().unwrap();
    let name = server.new_database().unwrap();
    let (journal, url) = (state.join("journal.db"), server.url(&name));
    let moved = binary()
        .args(["migrate", "--from", journal.to_str().unwrap(), "--to", &url])
        .output()
        .unwrap();
    assert!(moved.status.success(), "{}", text(&moved.stderr));
    fs::remove_file(&journal).unwrap();
    world.service = Service::start_with(world.folder.path(), &["--database", &url]);
    let id = world.stage_in("bob", "moved");
    world.service.wait_until(&id, is_state("arrived"));
    world.check_came("bob", "moved");
    let dump = server.said("pg_dump", &[&name]).unwrap();
    assert!(dump.contains("COPY public.credential"), "{dump}");
    let hex: String = S3Server::SECRET_KEY
        .bytes()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert!(!dump.contains(S3Server::SECRET_KEY) && !dump.contains(&hex));
}

#[test]
fn movers_are_told_what_opens_their_chunk_and_write_it_nowhere() {
    let world = World::with(&[]);
    world.give_both();
    let token = world.folder.path().join("movers.token");
    let add = [
        "token",
        "add",
        "movers",
        "--scope",
        "move",
        "--output",
        token.to_str().unwrap(),
    ];
    assert!(world.service.run(&add).status.success());
    let home = world.folder.path().join("mover");
    fs::create_dir(&home).unwrap();
    let mut command: Command = binary();
    command
        .args([
            "mover",
            "--json",
            "--name",
            "dtn",
            "--server",
            &world.service.url,
            "--token-file",
        ])
        .arg(&token)
        .env("HOME", &home)
        .env("XDG_CONFIG_HOME", home.join("config"))
        .current_dir(&home);
    let mover = Process::run(&mut command, &home.join("log"));
    let start = now();
    while world.service.json(&["movers", "--json"]) == serde_json::json!([]) {
        assert!(start.elapsed() < processes::PATIENCE);
    }
    let ids = PEOPLE.map(|person| world.stage_in(person, "in"));
    for (person, id) in PEOPLE.iter().zip(&ids) {
        world.service.wait_until(id, is_state("arrived"));
        world.check_came(person, "in");
    }
    let fetched = done(&world.service);
    assert!(fetched > 0 || world.service.has_lost_a_mover());
    for person in PEOPLE {
        world.send_back(person);
    }
    world.check_went();
    let movers = world.service.json(&["movers", "--json"]);
    let has_done_more = done(&world.service) > fetched && movers[0]["failed"] == 0;
    assert!(
        has_done_more || world.service.has_lost_a_mover(),
        "{movers}"
    );
    let process = format!("/proc/{}/cmdline", mover.id());
    assert!(!text(&fs::read(process).unwrap()).contains(S3Server::SECRET_KEY));
    assert_eq!(
        holding(world.folder.path(), S3Server::SECRET_KEY.as_bytes()),
        [] as [PathBuf; 0]
    );
}
