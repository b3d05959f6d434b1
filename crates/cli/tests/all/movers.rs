//! Real movers transfer a dataset off scratch, and everything goes wrong with them.

use crate::support::ask;
use crate::support::processes;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use crate::support::processes::{
    Process, Relay, Service, binary, failure, make_tree, now, picture, text,
};
use posthaste_testbed::TlsFront;
use serde_json::Value;

/// Service with three depots, a dataset and a token for movers.
struct Centre {
    folder: tempfile::TempDir,
    relays: Vec<Relay>,
    service: Service,
    scratch: PathBuf,
    token: PathBuf,
}

impl Centre {
    fn start(megabytes: usize) -> Self {
        Self::start_at("8M", megabytes)
    }

    /// Starts a centre whose depots accept so much a second each.
    fn start_at(rate: &str, megabytes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let start = |name: &str| Relay::start(folder.path(), name, "1G", rate);
        let relays = ["a", "b", "c"].map(start);
        let service = Service::start(folder.path());
        relays.iter().for_each(|relay| service.add(relay));
        let token = folder.path().join("movers.token");
        let made = ["token", "add", "movers", "--scope", "move", "--output"];
        let made = service.run(&[&made[..], &[token.to_str().unwrap()]].concat());
        assert!(made.status.success(), "{}", text(&made.stderr));
        let scratch = folder.path().join("scratch");
        make_tree(&scratch, megabytes, 11);
        Self {
            relays: relays.into(),
            service,
            scratch,
            token,
            folder,
        }
    }

    fn command(&self, name: &str) -> Command {
        let mut command = binary();
        command.args(self.arguments(name));
        command
    }

    fn arguments(&self, name: &str) -> Vec<String> {
        let token = self.token.to_str().unwrap();
        let words = [
            "mover",
            "--json",
            "--name",
            name,
            "--slots",
            "4",
            "--server",
            &self.service.url,
            "--token-file",
            token,
        ];
        words.map(str::to_owned).to_vec()
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    fn mover(&self, name: &str) -> Process {
        Process::run(&mut self.command(name), &self.log(name))
    }

    fn offload(&self, more: &[&str]) -> Value {
        let scratch = self.scratch.to_str().unwrap();
        let words = [
            "offload",
            scratch,
            "--to",
            "home",
            "--deadline",
            "10m",
            "--via",
            "a,b,c",
            "--code",
            "2+1",
            "--json",
        ];
        self.service.json(&[&words[..], more].concat())
    }

    fn lift_limit(&self) {
        let lifted = self.service.run(&["modify", "r1", "--bwlimit", "off"]);
        assert!(lifted.status.success(), "{}", text(&lifted.stderr));
    }

    fn movers(&self) -> Vec<Value> {
        let movers = self.service.json(&["movers", "--json"]);
        movers.as_array().unwrap().clone()
    }

    fn wait_for(&self, what: &str, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let start = now();
        loop {
            let movers = self.movers();
            if wanted(&movers) {
                return movers;
            }
            let waited = start.elapsed();
            assert!(
                waited < processes::PATIENCE,
                "{what}: {movers:#?}\n{}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn said(&self) -> String {
        fs::read_to_string(self.service.state.with_extension("log")).unwrap_or_default()
    }

    fn check_home(&self, id: &str, more: &[&str]) {
        let home = self.folder.path().join("home");
        let words = ["pull", id, home.to_str().unwrap(), "--json"];
        self.service.json(&[&words[..], more].concat());
        let (before, after) = (picture(&self.scratch), picture(&home));
        let differs = |line: &&String| !after.contains(line) || !before.contains(line);
        let differing: Vec<_> = after.iter().chain(&before).filter(differs).collect();
        assert!(differing.is_empty(), "{differing:#?}");
    }
}

fn number(mover: &Value, key: &str) -> u64 {
    mover[key].as_u64().unwrap()
}

fn named<'a>(movers: &'a [Value], name: &str) -> Option<&'a Value> {
    movers.iter().find(|mover| mover["name"] == name)
}

#[test]
fn movers_carry_one_dataset_together_and_none_that_dies_or_hangs_loses_any_of_it() {
    // So slow that there is work for all of them.
    let centre = Centre::start_at("4M", 96);
    let mut dying = centre.mover("dying");
    let hanging = centre.mover("hanging");
    let _living = centre.mover("living");
    centre.offload(&[]);
    let all_work = |movers: &[Value]| {
        let done = movers.iter().map(|mover| number(mover, "done"));
        movers.len() == 3 && done.min() >= Some(4)
    };
    let movers = centre.wait_for("all three work", all_work);
    let before = number(named(&movers, "living").unwrap(), "done");
    dying.kill();
    hanging.signal("STOP");
    centre.wait_for("two are gone", |movers| movers.len() == 1);
    // It wakes up, learns that its work is others', and joins anew.
    hanging.signal("CONT");
    centre.wait_for("it is there again", |movers| {
        named(movers, "hanging").is_some()
    });
    centre
        .service
        .wait_until("r1", |request| request["state"] == "safe");
    let movers = centre.movers();
    assert!(
        number(named(&movers, "living").unwrap(), "done") > before,
        "{movers:?}"
    );
    let failed: u64 = movers.iter().map(|mover| number(mover, "failed")).sum();
    assert_eq!(failed, 0, "{movers:?}");
    centre.check_home("r1", &[]);
    let said = centre.said();
    assert!(said.contains("mover dying is silent"), "{said}");
}

#[test]
fn a_killed_service_takes_up_its_movers_again_and_moves_itself_when_all_have_left() {
    let mut centre = Centre::start(160);
    let mut movers = [centre.mover("one"), centre.mover("two")];
    // So slow that something is left to do when they leave.
    centre.offload(&["--bwlimit", "3M"]);
    let work = |movers: &[Value]| movers.iter().any(|mover| number(mover, "done") > 8);
    centre.wait_for("they work", work);
    centre.service.kill();
    std::thread::sleep(Duration::from_millis(500));
    centre.service.restart();
    centre.wait_for("both joined again", |movers| {
        movers.len() == 2 && work(movers)
    });
    let before = centre.said().len();
    for mover in &mut movers {
        mover.signal("TERM");
        assert_eq!(mover.ended(), 0);
    }
    assert_eq!(centre.movers().len(), 0);
    let said = centre.said();
    assert!(!said[before..].contains("is silent"), "{said}");
    assert_ne!(
        centre.service.status("r1")["state"],
        "safe",
        "nothing is left to do"
    );
    centre.lift_limit();
    centre
        .service
        .wait_until("r1", |request| request["state"] == "safe");
    centre.check_home("r1", &[]);
}

#[test]
fn an_encrypted_dataset_goes_through_movers_and_nothing_secret_is_shown() {
    let centre = Centre::start(24);
    let key = centre.folder.path().join("alice.key");
    let made = binary().arg("keygen").arg("-o").arg(&key).output().unwrap();
    let recipient = text(&made.stdout).trim().to_owned();
    let mover = centre.mover("one");
    centre.offload(&["--encrypt-for", &recipient]);
    let keys = fs::read_dir(centre.service.state.join("keys")).unwrap();
    let keys = keys.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let keys: Vec<String> = keys.collect();
    assert!(!keys.is_empty());
    centre
        .service
        .wait_until("r1", |request| request["state"] == "safe");
    let movers = centre.movers();
    assert!(
        number(named(&movers, "one").unwrap(), "done") > 0,
        "{movers:?}"
    );
    let shown = fs::read_to_string(centre.log("one")).unwrap() + &centre.said();
    let words = fs::read(format!("/proc/{}/cmdline", mover.id())).unwrap();
    let shown = shown + &text(&words);
    let mut secrets = keys;
    secrets.push(fs::read_to_string(&centre.token).unwrap());
    for relay in &centre.relays {
        let secret = relay.process.ready["secret_file"].as_str().unwrap();
        secrets.push(fs::read_to_string(secret).unwrap());
    }
    for secret in secrets {
        assert!(!shown.contains(secret.trim()), "a secret is shown: {shown}");
    }
    assert!(!shown.contains("ph1."), "a depot's token is shown: {shown}");
    centre.check_home("r1", &["--identity", key.to_str().unwrap()]);
}

/// Starts a mover whose host has nothing at the source's path.
fn blind(centre: &Centre) -> Process {
    let mut command = Command::new("unshare");
    let scratch = centre.scratch.to_str().unwrap();
    let script = "mount -t tmpfs none \"$0\" && exec \"$@\"";
    command.args([
        "--mount",
        "sh",
        "-c",
        script,
        scratch,
        env!("CARGO_BIN_EXE_posthaste"),
    ]);
    command.args(centre.arguments("blind"));
    Process::run(&mut command, &centre.log("blind"))
}

#[test]
fn a_mover_that_sees_other_files_rests_and_the_source_does_not_count_as_gone() {
    let centre = Centre::start(48);
    let _blind = blind(&centre);
    centre.offload(&[]);
    let movers = centre.wait_for("it rests", |movers| {
        movers.first().is_some_and(|one| one["state"] == "rests")
    });
    assert_eq!(number(&movers[0], "done"), 0);
    let why = movers[0]["failure"].as_str().unwrap();
    assert!(why.contains("can't read"), "{why}");
    centre
        .service
        .wait_until("r1", |request| request["state"] == "safe");
    centre.check_home("r1", &[]);
}

#[test]
fn a_drained_mover_gets_nothing_new_until_that_is_taken_back() {
    let centre = Centre::start(48);
    let _movers = [centre.mover("one"), centre.mover("two")];
    let drained = centre.service.run(&["movers", "drain", "one"]);
    assert!(drained.status.success(), "{}", text(&drained.stderr));
    centre.offload(&["--wait"]);
    let movers = centre.movers();
    assert_eq!(number(named(&movers, "one").unwrap(), "done"), 0);
    assert_eq!(named(&movers, "one").unwrap()["state"], "drains");
    assert!(number(named(&movers, "two").unwrap(), "done") > 0);
    let drained = centre.service.run(&["movers", "drain", "one", "--off"]);
    assert!(drained.status.success());
    let listed = text(&centre.service.run(&["movers"]).stdout);
    assert!(!listed.contains("drains"), "{listed}");
    let (_, said) = failure(&centre.service.run(&["movers", "drain", "nobody"]));
    assert!(said.contains("mover nobody"), "{said}");
}

#[test]
fn only_a_mover_s_token_works_for_a_mover_and_it_for_nothing_else() {
    let centre = Centre::start(1);
    let refused = |token: &Path| {
        let mut command = binary();
        let output = command
            .args(["mover", "--server", &centre.service.url, "--token-file"])
            .arg(token)
            .output()
            .unwrap();
        failure(&output).1
    };
    let other = centre.folder.path().join("reader.token");
    let add = ["token", "add", "reader", "--scope", "read", "--output"];
    centre
        .service
        .run(&[&add[..], &[other.to_str().unwrap()]].concat());
    let said = refused(&other);
    assert!(said.contains("it needs the scope move"), "{said}");
    let token = fs::read_to_string(&centre.token).unwrap();
    let ask = |method: &str, path: &str, body: &str| {
        ask::ask(&centre.service, method, path, Some(token.trim()), body)
    };
    for path in ["/v1/requests", "/v1/depots", "/v1/movers", "/v1/tokens"] {
        let answer = ask("GET", path, "");
        assert!(answer.starts_with("HTTP/1.1 403"), "{path}: {answer}");
    }
    let join = |protocol: u32, name: &str| {
        let body = format!(
            r#"{{"name": "{name}", "host": "h", "version": "9", "protocols": [{protocol}], "slots": 2}}"#
        );
        ask("POST", "/v1/movers", &body)
    };
    let answer = join(99, "new");
    assert!(
        answer.starts_with("HTTP/1.1 409") && answer.contains("protocol 99"),
        "{answer}"
    );
    let answer = join(1, "a b");
    assert!(answer.starts_with("HTTP/1.1 422"), "{answer}");
    centre.offload(&["--wait"]);
    // Whoever says nothing for a while is forgotten.
    let joined = || {
        let answer = join(1, "plain");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let (_, id) = answer.split_once("\"id\":").unwrap();
        id.split(',').next().unwrap().to_owned()
    };
    // One that has no work of a request is not told what it is.
    for path in ["datasets/r1", "datasets/r1/files"] {
        let answer = ask("GET", &format!("/v1/movers/{}/{path}", joined()), "");
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    }
    let answer = ask("POST", "/v1/movers/5/turns", r#"{"number": 1, "free": 1}"#);
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let wrong = r#"{"number": 7, "free": 1, "ended": [{"lease": 1, "digests": ["x"]}]}"#;
    let answer = ask("POST", &format!("/v1/movers/{}/turns", joined()), wrong);
    assert!(answer.starts_with("HTTP/1.1 422"), "{answer}");
    let mut command = binary();
    command.args(["mover", "--server", "http://192.0.2.1:7420", "--token-file"]);
    let said = failure(&command.arg(&centre.token).output().unwrap()).1;
    assert!(said.contains("plain HTTP beyond this host"), "{said}");
}

/// The service is reachable over TLS alone, with a certificate of the site's own authority.
#[test]
fn a_mover_reaches_the_service_over_tls_and_trusts_nobody_else() {
    let centre = Centre::start(8);
    let front = TlsFront::start(&centre.service.url).unwrap();
    let words = [
        "mover",
        "--json",
        "--name",
        "far",
        "--server",
        &front.url(),
        "--token-file",
    ];
    let start = |more: &[&str]| {
        let mut command = binary();
        command.args(words).arg(&centre.token).args(more);
        command
    };
    let authority = front.authority();
    let trusting = ["--ca-file", authority.to_str().unwrap()];
    let _far = Process::run(&mut start(&trusting), &centre.log("far"));
    centre.offload(&["--wait"]);
    let movers = centre.movers();
    assert!(
        number(named(&movers, "far").unwrap(), "done") > 0,
        "{movers:?}"
    );
    let metrics = ask::ask(
        &centre.service,
        "GET",
        "/v1/metrics",
        Some(
            fs::read_to_string(centre.service.state.join("token"))
                .unwrap()
                .trim(),
        ),
        "",
    );
    assert!(
        metrics.contains("posthaste_movers{state=\"works\"} 1"),
        "{metrics}"
    );
    assert!(
        !metrics.contains("posthaste_mover_moved_bytes_total{host=\"\"}"),
        "{metrics}"
    );
    // Without that authority nothing is shown to whoever answers: it goes on trying, and is not
    // there.
    let log = fs::File::create(centre.log("wary")).unwrap();
    let mut wary = start(&["--until-stdin-closes"])
        .stdin(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let start = now();
    let said = || fs::read_to_string(centre.log("wary")).unwrap();
    while !said().contains("goes on trying") {
        assert!(start.elapsed() < processes::PATIENCE, "{}", said());
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(wary.stdin.take());
    assert!(wary.wait().unwrap().success());
    assert_eq!(centre.movers().len(), 1);
}
