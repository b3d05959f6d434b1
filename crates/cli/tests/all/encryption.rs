//! An encrypted dataset's whole way: real relays that must learn nothing but sizes, a real service
//! killed on the way, and the real age command.

use crate::support::processes;

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use crate::support::processes::{
    Dice, Relay, Service, binary, failure, files, fullest, make_tree, picture, text,
};
use posthaste_testbed::install;
use serde_json::Value;

/// Length of searched byte strings: too long to appear by chance.
const NEEDLE_BYTES: usize = 8;

/// Relays, a service, a tree on scratch, and two people with identities.
struct Centre {
    folder: tempfile::TempDir,
    relays: Vec<Relay>,
    service: Service,
    before: Vec<String>,
    alice: String,
    bob: String,
}

impl Centre {
    fn with(rates: &[&str], megabytes: usize, seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let names = ["ash", "birch", "cedar", "dune"].iter().zip(rates);
        let relays: Vec<Relay> = names
            .map(|(name, rate)| Relay::start(folder.path(), name, "1G", rate))
            .collect();
        let service = Service::start(folder.path());
        relays.iter().for_each(|relay| service.add(relay));
        let scratch = folder.path().join("scratch");
        make_tree(&scratch, megabytes, seed);
        let before = picture(&scratch);
        let [alice, bob] = ["alice", "bob"].map(|name| keygen(&folder.path().join(name)));
        Self {
            folder,
            relays,
            service,
            before,
            alice,
            bob,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn offload(&self, more: &[&str]) -> Value {
        let (scratch, names) = (self.path("scratch"), self.relays.iter());
        let via: Vec<&str> = names.map(|relay| relay.name.as_str()).collect();
        let via = via.join(",");
        let scratch = scratch.to_str().unwrap();
        let base = ["offload", scratch, "--to", "home", "--deadline", "10m"];
        let base = [&base[..], &["--json", "--via", &via, "--code", "2+1"], more];
        self.service.json(&base.concat())
    }

    fn pull(&self, as_whom: &str) -> Output {
        let (home, identity) = (self.path("arrived"), self.path(as_whom));
        let (home, identity) = (home.to_str().unwrap(), identity.to_str().unwrap());
        let pull = ["pull", "r1", home, "--json", "--identity", identity];
        self.service.run(&pull)
    }

    fn pull_and_compare(&self, as_whom: &str) -> Value {
        let output = self.pull(as_whom);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(picture(&self.path("arrived")), self.before);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns texts that a depot could look for: names, and pieces of the large file's and a small
    /// file's bytes.
    fn needles(&self) -> Vec<Vec<u8>> {
        let mut needles: Vec<Vec<u8>> = ["large.bin", "deep/file", "line\nbreak", "dangling"]
            .map(|name| name.as_bytes().to_vec())
            .to_vec();
        for file in ["large.bin", "deep/file 7"] {
            let bytes = fs::read(self.path("scratch").join(file)).unwrap();
            let pieces = bytes.chunks_exact(bytes.len() / 50);
            needles.extend(pieces.map(|piece| piece[..NEEDLE_BYTES].to_vec()));
        }
        needles
    }

    /// Lists the keys that the service has on disk.
    fn keys(&self) -> Vec<PathBuf> {
        let keys = fs::read_dir(self.service.state.join("keys")).unwrap();
        keys.map(|key| key.unwrap().path()).collect()
    }

    /// Waits until the service removed the key.
    fn wait_without_key(&self) {
        let start = processes::now();
        while !self.keys().is_empty() {
            assert!(start.elapsed() < processes::PATIENCE, "the key stays");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn keygen(path: &Path) -> String {
    let output = binary().arg("keygen").arg("-o").arg(path).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// Returns the needles in the bytes.
fn found_in(bytes: &[u8], needles: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let start = |bytes: &[u8]| usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    // The first bytes decide nearly always; a table of them keeps this fast.
    let mut starts = vec![false; 1 << 16];
    for needle in needles {
        starts[start(needle)] = true;
    }
    let pairs = bytes.windows(2).enumerate();
    let begun = pairs.filter(|(_, pair)| starts[start(pair)]);
    let places: Vec<usize> = begun.map(|(place, _)| place).collect();
    let is_there = |needle: &&Vec<u8>| {
        let mut places = places.iter();
        places.any(|&place| bytes[place..].starts_with(needle))
    };
    needles.iter().filter(is_there).cloned().collect()
}

/// Lifts the limit of the first request.
fn let_go(service: &Service) {
    let changed = service.run(&["modify", "r1", "--bwlimit", "off"]);
    assert!(changed.status.success(), "{}", text(&changed.stderr));
}

fn state(request: &Value) -> &str {
    request["state"].as_str().unwrap()
}

#[test]
fn depots_learn_nothing_and_a_relay_that_dies_costs_nothing() {
    let mut centre = Centre::with(&["2M", "2M", "2M", "2M"], 16, 1);
    let needles = centre.needles();
    let both = format!("{},{}", centre.alice, centre.bob);
    // So slow that it is half way when somebody comes to see it.
    let release = ["--release", "when-safe", "--bwlimit", "800k"];
    let request = centre.offload(&[&["--encrypt-for", &both], &release[..]].concat());
    assert_eq!(request["encrypt_for"].as_array().unwrap().len(), 2);
    let request = centre
        .service
        .wait_until("r1", |request| fullest(request).1 > 12);
    let killed = fullest(&request).0;
    centre.relays[killed].kill();
    let_go(&centre.service);
    let request = centre
        .service
        .wait_until("r1", |request| state(request) == "released");
    assert!(request["chunks_repaired"].as_u64() > Some(0), "{request}");
    let mut stored = 0;
    for relay in &centre.relays {
        let log = relay.directory.with_extension("log");
        let said = (log.clone(), fs::read(&log).unwrap());
        for (path, bytes) in files(&relay.directory).into_iter().chain([said]) {
            let found = found_in(&bytes, &needles);
            assert!(found.is_empty(), "{}: {found:?}", path.display());
            stored += bytes.len() as u64;
        }
    }
    // Of nothing, nothing can be found: it must be the dataset that was searched.
    assert!(
        stored > request["bytes"].as_u64().unwrap(),
        "{stored} B stored"
    );
    centre.pull_and_compare("bob");
    centre.wait_without_key();
    // The same search finds what is there in a dataset that is not encrypted.
    centre.relays.remove(killed);
    let via: Vec<&str> = centre.relays.iter().map(|relay| &*relay.name).collect();
    let via = via.join(",");
    let home = centre.path("arrived");
    let again = [
        "offload",
        home.to_str().unwrap(),
        "--to",
        "home",
        "--deadline",
        "10m",
    ];
    let plain = ["--via", &via, "--code", "2+1", "--json", "--wait"];
    centre.service.json(&[&again[..], &plain].concat());
    // Where one has nothing but parity, another has the bytes as they are.
    let relays = centre.relays.iter();
    let plain = relays.flat_map(|relay| files(&relay.directory.join("datasets")));
    let mut plain = plain.filter(|(_, bytes)| !found_in(bytes, &needles).is_empty());
    assert!(plain.next().is_some());
}

#[test]
fn a_service_killed_at_any_moment_goes_on_with_the_same_key() {
    let mut seen = 0;
    for round in 0..4 {
        let mut dice = Dice::new(900 + round);
        let mut centre = Centre::with(&["3M", "3M", "3M"], 16, round);
        centre.offload(&["--encrypt-for", &centre.alice, "--release", "when-safe"]);
        let mut keys = Vec::new();
        for _ in 0..2 {
            std::thread::sleep(std::time::Duration::from_millis(dice.roll(1200)));
            centre.service.kill();
            for path in centre.keys() {
                let mode = fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
                keys.push(fs::read_to_string(&path).unwrap());
            }
            centre.service.restart();
        }
        keys.dedup();
        assert!(keys.len() <= 1, "round {round}: the key changed");
        let request = centre
            .service
            .wait_until("r1", |request| state(request) == "released");
        assert_eq!(request["missed"], false, "round {round}: {request}");
        centre.wait_without_key();
        if let Some(key) = keys.first() {
            seen += 1;
            assert_is_nowhere(key.trim(), centre.folder.path());
        }
        // After the end the envelope alone is left, and it is enough.
        centre.pull_and_compare("alice");
    }
    assert!(seen > 0, "no kill met a key");
}

/// Checks that no file contains a key any more: neither the journal, nor a log, nor a depot.
fn assert_is_nowhere(key: &str, folder: &Path) {
    let digits = key.as_bytes().chunks(2);
    let digits = digits.map(|pair| std::str::from_utf8(pair).unwrap());
    let raw: Vec<u8> = digits
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect();
    for (path, bytes) in files(folder) {
        let found = found_in(&bytes, &[raw.clone(), key.as_bytes().to_vec()]);
        assert!(found.is_empty(), "a key is in {}", path.display());
    }
}

#[test]
fn a_cancelled_request_leaves_no_key() {
    let centre = Centre::with(&["200K", "200K", "200K"], 8, 7);
    centre.offload(&["--encrypt-for", &centre.alice, "--bwlimit", "50k"]);
    assert_eq!(centre.keys().len(), 1);
    assert!(centre.service.run(&["cancel", "r1"]).status.success());
    centre.wait_without_key();
    let (_, line) = failure(&centre.pull("alice"));
    assert!(line.starts_with("posthaste: can't"), "{line}");
}

#[test]
fn what_was_tampered_with_is_noticed_and_rebuilt() {
    let centre = Centre::with(&["60M", "60M", "60M"], 8, 3);
    centre.offload(&["--encrypt-for", &centre.alice, "--wait"]);
    // One fragment of each chunk, now here and now there: whichever of them are read, some of these
    // are.
    let chunk = |path: &Path| -> Option<usize> {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.split_once('.')?.0.parse().ok()
    };
    let mut tampered = 0;
    for (place, relay) in centre.relays.iter().enumerate() {
        for (path, mut bytes) in files(&relay.directory.join("datasets")) {
            if bytes.len() > 10_000 && chunk(&path).is_some_and(|chunk| chunk % 3 == place) {
                bytes[5_000] ^= 0x55;
                fs::write(&path, bytes).unwrap();
                tampered += 1;
            }
        }
    }
    assert!(tampered > 3);
    let report = centre.pull_and_compare("alice");
    assert!(report["corrupt_fragments"].as_u64() > Some(0), "{report}");
    assert!(report["rebuilt_chunks"].as_u64() > Some(0), "{report}");
}

#[test]
fn only_recipients_open_it_and_everybody_else_gets_one_clear_line() {
    let centre = Centre::with(&["60M", "60M", "60M"], 2, 4);
    centre.offload(&["--encrypt-for", &centre.alice, "--wait"]);
    let (exit, line) = failure(&centre.pull("bob"));
    assert_eq!(exit, 7, "{line}");
    assert!(
        line.contains(&centre.alice) && line.contains("/bob is another"),
        "{line}"
    );
    let (exit, line) = failure(&centre.pull("nobody"));
    assert_eq!(exit, 7, "{line}");
    assert!(line.contains("posthaste keygen"), "{line}");
    let alice = centre.path("alice");
    fs::set_permissions(&alice, fs::Permissions::from_mode(0o640)).unwrap();
    let (exit, line) = failure(&centre.pull("alice"));
    assert_eq!(exit, 7, "{line}");
    assert!(
        line.contains("others can read it") && line.contains("chmod 600"),
        "{line}"
    );
    fs::set_permissions(&alice, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!centre.path("arrived").exists(), "something was written");
    centre.pull_and_compare("alice");
}

#[test]
fn the_age_command_opens_the_key_at_the_depots() {
    let age = install::find_debian_program(install::AGE).unwrap();
    let centre = Centre::with(&["60M", "60M", "60M"], 2, 5);
    // So slow that the key is still there when somebody comes to see it.
    let release = ["--release", "when-safe", "--bwlimit", "20k"];
    let request = centre.offload(&[&["--encrypt-for", &centre.alice], &release[..]].concat());
    let keys = centre.keys();
    assert_eq!(keys.len(), 1, "{request}");
    let key = fs::read(&keys[0]).unwrap();
    let_go(&centre.service);
    centre
        .service
        .wait_until("r1", |request| state(request) == "released");
    let dataset = request["dataset"].as_str().unwrap();
    let depot = centre.relays[0].directory.join("datasets").join(dataset);
    let stored = files(&depot);
    let is_manifest = |path: &Path| path.to_string_lossy().contains("/manifest.");
    let (_, envelope) = stored.iter().find(|(path, _)| is_manifest(path)).unwrap();
    // As docs/reference/encryption.md says: the first line has the length of what follows it.
    let line = envelope.iter().position(|&byte| byte == b'\n').unwrap();
    let first = text(&envelope[..line]);
    let length = first.strip_prefix("posthaste-envelope-1 ").unwrap();
    let wrapped = &envelope[line + 1..][..length.parse::<usize>().unwrap()];
    for (whom, opens) in [("alice", true), ("bob", false)] {
        let mut child = Command::new(&age)
            .arg("--decrypt")
            .arg("--identity")
            .arg(centre.path(whom))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(wrapped).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.success(), opens, "{}", text(&output.stderr));
        assert_eq!(output.stdout == key, opens);
    }
}

#[test]
fn identities_and_recipients_are_those_of_the_age_command_and_never_shown() {
    let age = install::find_debian_program(install::AGE).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("identity.txt");
    let recipient = keygen(&path);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let shown = Command::new(age.with_file_name("age-keygen"))
        .arg("-y")
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(text(&shown.stdout).trim(), recipient);
    let again = binary()
        .arg("keygen")
        .arg("-o")
        .arg(&path)
        .output()
        .unwrap();
    let (exit, line) = failure(&again);
    assert!(exit == 1 && line.contains(&recipient), "{exit} {line}");
    let secret = fs::read_to_string(&path).unwrap();
    let secret = secret
        .lines()
        .find(|line| line.starts_with("AGE-"))
        .unwrap();
    assert!(!line.contains(secret));
    let home = binary()
        .args(["keygen", "--json"])
        .env("XDG_CONFIG_HOME", folder.path().join("config"))
        .output()
        .unwrap();
    let made: Value = serde_json::from_slice(&home.stdout).unwrap();
    let file = made["identity_file"].as_str().unwrap();
    assert!(file.ends_with("config/posthaste/identity.txt") && Path::new(file).exists());
}

/// Asks a centre with a configuration folder for the forecast of an offload.
fn rehearse(centre: &Centre, config: &Path, more: &[&str]) -> Output {
    binary()
        .args(["offload", centre.path("scratch").to_str().unwrap()])
        .args(["--to", "home", "-n", "--json", "--deadline", "10m"])
        .args(["--via", "ash,birch,cedar"])
        .args(["--service", &centre.service.url, "--token-file"])
        .arg(centre.service.state.join("token"))
        .args(more)
        .env("XDG_CONFIG_HOME", config)
        .output()
        .unwrap()
}

#[test]
fn recipients_are_named_by_key_by_name_and_by_file_and_never_by_secret() {
    let centre = Centre::with(&["60M", "60M", "60M"], 1, 6);
    let config = centre.path("config");
    fs::create_dir_all(config.join("posthaste")).unwrap();
    let (alice, bob) = (&centre.alice, &centre.bob);
    let book = format!("alice = \"{alice}\"\nlab = [\"{alice}\", \"{bob}\"]\nnone = []\n");
    fs::write(config.join("posthaste/recipients.toml"), book).unwrap();
    let (list, empty) = (centre.path("list"), centre.path("empty"));
    fs::write(&list, format!("# the lab\n\n{bob}\n")).unwrap();
    fs::write(&empty, "# nobody\n").unwrap();
    let (list, empty) = (list.to_str().unwrap(), empty.to_str().unwrap());
    for (more, count) in [
        (&["--encrypt-for", "alice"][..], 1),
        (&["--encrypt-for", "lab,alice"], 2),
        (&["-R", list, "--encrypt-for", alice], 2),
        (&["-R", list], 1),
        (&[], 0),
    ] {
        let output = rehearse(&centre, &config, more);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{more:?}: {said}");
        let request: Value = serde_json::from_slice(&output.stdout).unwrap();
        let recipients = request["encrypt_for"].as_array().unwrap();
        assert_eq!(recipients.len(), count, "{more:?}");
    }
    let secret = fs::read_to_string(centre.path("bob")).unwrap();
    let mut secret = secret.lines().filter(|line| line.starts_with("AGE-"));
    let secret = secret.next().unwrap();
    for (more, said) in [
        (&["--encrypt-for", "carol"][..], "no name in"),
        (&["--encrypt-for", "none"], "is empty"),
        (&["--encrypt-for", ""], "no recipient"),
        (&["--encrypt-for", &alice[..40]], "no recipient"),
        (&["--encrypt-for", secret], "secret identity"),
        (&["-R", empty], "names nobody"),
        (&["-R", "/no/such/file"], "No such file"),
    ] {
        let (exit, line) = failure(&rehearse(&centre, &config, more));
        assert_eq!(exit, 2, "{more:?}: {line}");
        let is_right = line.contains(said) && !line.contains(secret);
        assert!(is_right, "{more:?}: {line}");
    }
    assert!(centre.keys().is_empty(), "a dry run made a key");
}

/// Counts the bytes of datasets that a relay holds.
fn held(relay: &Relay) -> usize {
    let files = files(&relay.directory.join("datasets")).into_iter();
    files.map(|(_, bytes)| bytes.len()).sum()
}

#[test]
fn what_its_destination_lost_after_it_was_delivered_is_sent_again_with_the_same_key() {
    let mut centre = Centre::with(&["60M", "60M", "60M", "60M"], 8, 11);
    let scratch = centre.path("scratch");
    let what = ["offload", scratch.to_str().unwrap(), "--to", "dune"];
    let how = ["--via", "ash,birch,cedar", "--code", "2+1", "--json"];
    let whom = ["--deadline", "10m", "--encrypt-for", &centre.alice];
    centre.service.json(&[&what[..], &how, &whom].concat());
    let is_delivered = |request: &Value| state(request) == "delivered";
    centre.service.wait_until("r1", is_delivered);
    let before = held(&centre.relays[3]);
    // The key outlives a restart too.
    centre.service.kill();
    centre.service.restart();
    assert_eq!(centre.keys().len(), 1);
    let dune = &mut centre.relays[3];
    dune.kill();
    fs::remove_dir_all(dune.directory.join("datasets")).unwrap();
    dune.restart();
    centre.service.wait_until("r1", |request| {
        is_delivered(request) && held(&centre.relays[3]) >= before
    });
    for relay in &mut centre.relays[..3] {
        relay.kill();
    }
    centre.pull_and_compare("alice");
}
