//! Alarms reach people: by webhook, e-mail and a program of theirs, also across a kill.

use crate::support::processes;

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use crate::support::processes::{PATIENCE, Relay, Service, binary, make_tree, text};
use posthaste_testbed::{MailFace, MailServer, install};
use serde_json::Value;

/// Secret that signs webhooks.
const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// Program that reads headers and a body, and fails if the signature is wrong.
const VERIFY: &str = "import json, sys
from standardwebhooks.webhooks import Webhook
head, body = json.load(sys.stdin)
Webhook(sys.argv[1]).verify(body, head)";

/// Request as a receiver of webhooks gets it.
#[derive(Debug, Clone)]
struct Heard {
    head: Vec<(String, String)>,
    body: String,
}

impl Heard {
    fn header(&self, name: &str) -> &str {
        let found = self.head.iter().find(|(of, _)| of == name);
        &found.unwrap_or_else(|| panic!("no {name} in {self:?}")).1
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Checks with the receivers' own library that we sent it.
    fn verify(&self) {
        let python = install::find_python_program(install::STANDARD_WEBHOOKS).unwrap();
        let mut reader = Command::new(python)
            .args(["-c", VERIFY, SECRET])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let head: serde_json::Map<_, _> = self
            .head
            .iter()
            .cloned()
            .map(|(name, value)| (name, value.into()))
            .collect();
        let told = serde_json::json!([head, self.body]).to_string();
        reader
            .stdin
            .take()
            .unwrap()
            .write_all(told.as_bytes())
            .unwrap();
        assert!(reader.wait().unwrap().success(), "{self:?} is not signed");
    }
}

/// Receiver of webhooks, which answers as set.
struct Receiver {
    address: String,
    status: Arc<AtomicU16>,
    heard: Arc<Mutex<Vec<Heard>>>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let receiver = Self {
            address: format!("http://{}/hook/hush", listener.local_addr().unwrap()),
            status: Arc::new(AtomicU16::new(200)),
            heard: Arc::default(),
        };
        let (status, heard) = (Arc::clone(&receiver.status), Arc::clone(&receiver.heard));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Whoever was killed while asking has ended its connection.
                if let Some(one) = hear(stream, status.load(SeqCst)) {
                    heard.lock().unwrap().push(one);
                }
            }
        });
        receiver
    }

    fn all(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    /// Waits for a request that satisfies `wanted`.
    fn wait_for(&self, wanted: impl Fn(&Heard) -> bool) -> Heard {
        wait(|| self.all().into_iter().find(&wanted))
    }
}

fn wait<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let start = processes::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "it never comes");
        thread::sleep(Duration::from_millis(50));
    }
}

fn hear(mut stream: TcpStream, status: u16) -> Option<Heard> {
    let mut bytes = Vec::new();
    let mut block = [0; 4096];
    let (head, len) = loop {
        let read = stream.read(&mut block).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&block[..read]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = text(&bytes[..end]);
        let lines = head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "));
        let head: Vec<_> = lines
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let len = head.iter().find(|(name, _)| name == "content-length");
        let len: usize = len.unwrap().1.parse().unwrap();
        bytes.drain(..end + 4);
        break (head, len);
    };
    while bytes.len() < len {
        let read = stream.read(&mut block).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&block[..read]);
    }
    let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).ok()?;
    Some(Heard {
        head,
        body: text(&bytes),
    })
}

/// Writes a file that only its owner may read.
fn private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Writes alarms of every kind in `folder`: a webhook, a mailbox and a program that keeps its
/// input.
fn write_alarms(folder: &Path, receiver: &Receiver, mail: &MailServer) -> PathBuf {
    private(&folder.join("hook.secret"), SECRET);
    private(&folder.join("mail.password"), MailServer::PASSWORD);
    let siren = folder.join("siren");
    let script = format!(
        "#!/bin/sh\ncat > {0}/siren.new && mv {0}/siren.new {0}/siren.$POSTHASTE_EVENT\n",
        folder.display()
    );
    fs::write(&siren, script).unwrap();
    fs::set_permissions(&siren, fs::Permissions::from_mode(0o755)).unwrap();
    let file = folder.join("alarms.toml");
    let (hook, smtp, ca_file, user) = (
        &receiver.address,
        mail.address(),
        mail.ca_file(),
        MailServer::USER,
    );
    let written = format!(
        r#"
        [[alarm]]
        name = "pager"
        webhook = "{hook}"
        secret_file = "hook.secret"

        [[alarm]]
        name = "ops"
        mail_to = ["ops@example.org", "night@example.org"]
        mail_from = "posthaste@example.org"
        smtp = "{smtp}"
        user = "{user}"
        password_file = "mail.password"
        ca_file = "{}"

        [[alarm]]
        name = "siren"
        command = ["{}"]
        "#,
        ca_file.display(),
        siren.display()
    );
    fs::write(&file, written).unwrap();
    file
}

/// Waits until these alarms have finished with a request, which is not sent again after a kill.
fn wait_for_marks(service: &Service, heard: &Heard, alarms: [&str; 2]) {
    let seq = heard.json()["data"]["event"]["seq"].to_string();
    for alarm in alarms {
        let mark = service.state.join("alarms").join(alarm);
        wait(|| {
            let mark = fs::read_to_string(&mark).ok()?;
            mark.trim_end().strip_suffix(&seq).map(drop)
        });
    }
}

#[test]
fn everybody_is_told_once_also_when_the_service_is_killed_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (receiver, mail) = (
        Receiver::start(),
        MailServer::start(MailFace::Started).unwrap(),
    );
    let alarms = write_alarms(folder, &receiver, &mail);
    let relay = Relay::start(folder, "ash", "1M", "8M");
    let mut service = Service::start_with(folder, &["--alarms", alarms.to_str().unwrap()]);
    service.add(&relay);
    let source = folder.join("run");
    make_tree(&source, 24, 1);
    receiver.status.store(503, SeqCst);
    let source = source.to_str().unwrap();
    let submit = [
        "offload",
        source,
        "--to",
        "home",
        "--via",
        "ash",
        "--deadline",
        "10m",
        "--code",
        "1+0",
    ];
    let refused = service.run(&submit);
    assert_eq!(refused.status.code(), Some(11), "{}", text(&refused.stderr));

    let first = receiver.wait_for(|_| true);
    let mails = wait(|| Some(mail.mails().unwrap()).filter(|mails| !mails.is_empty()));
    assert_eq!(mails.len(), 1);
    for line in [
        "Subject: posthaste: r1 refused",
        "To: <ops@example.org>",
        "Auto-Submitted: auto-generated",
        "`posthaste explain r1` tells more.",
    ] {
        assert!(mails[0].contains(line), "{line} is not in\n{}", mails[0]);
    }
    let heard = wait(|| fs::read(folder.join("siren.refused")).ok());
    let heard: Value = serde_json::from_slice(&heard).unwrap();
    assert_eq!(heard["data"]["request"]["id"], "r1");

    wait_for_marks(&service, &first, ["ops", "siren"]);
    service.kill();
    receiver.status.store(200, SeqCst);
    let before = receiver.all().len();
    service.restart();
    let again = wait(|| receiver.all().get(before).cloned());
    assert_eq!(again.header("webhook-id"), first.header("webhook-id"));
    assert_eq!(again.json()["data"]["event"], first.json()["data"]["event"]);
    assert_eq!(again.json()["type"], "refused");
    again.verify();
    let refused = service.run(&submit);
    assert_eq!(refused.status.code(), Some(11), "{}", text(&refused.stderr));
    let second = receiver.wait_for(|heard| heard.json()["data"]["request"]["id"] == "r2");
    assert_ne!(second.header("webhook-id"), again.header("webhook-id"));
    wait(|| (mail.mails().unwrap().len() == 2).then_some(()));
    let log = fs::read_to_string(service.state.with_extension("log")).unwrap();
    assert!(log.contains("alarm pager") && log.contains("503"), "{log}");
    for secret in [SECRET, MailServer::PASSWORD, "/hook/hush"] {
        assert!(!log.contains(secret), "the log tells {secret}");
    }
}

#[test]
fn a_miss_is_told_before_it_happens() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (receiver, mail) = (
        Receiver::start(),
        MailServer::start(MailFace::Plain).unwrap(),
    );
    let alarms = write_alarms(folder, &receiver, &mail);
    let without_mail = fs::read_to_string(&alarms).unwrap();
    let only_hook = without_mail.split("[[alarm]]").take(2).collect::<Vec<_>>();
    fs::write(&alarms, only_hook.join("[[alarm]]")).unwrap();
    let mut relay = Relay::start(folder, "ash", "1G", "1M");
    let service = Service::start_with(folder, &["--alarms", alarms.to_str().unwrap()]);
    service.add(&relay);
    let source = folder.join("run");
    make_tree(&source, 24, 1);
    let request = service.json(&[
        "offload",
        source.to_str().unwrap(),
        "--to",
        "home",
        "--via",
        "ash",
        "--deadline",
        "5m",
        "--code",
        "1+0",
        "--json",
    ]);
    let id = request["id"].as_str().unwrap();
    service.wait_until(id, |request| request["chunks_safe"].as_u64() > Some(0));
    relay.kill();
    let told = receiver.wait_for(|heard| heard.json()["type"] == "at-risk");
    told.verify();
    let told = told.json();
    let shown = &told["data"]["request"];
    assert_eq!(
        (&shown["id"], &shown["missed"]),
        (&request["id"], &Value::Bool(false))
    );
    assert!(
        told["timestamp"].as_str() < shown["deadline"].as_str(),
        "{told}"
    );
    relay.restart();
    receiver.wait_for(|heard| heard.json()["type"] == "on-time");
}

#[test]
fn alarms_can_be_tried() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (receiver, mail) = (
        Receiver::start(),
        MailServer::start(MailFace::Implicit).unwrap(),
    );
    let alarms = write_alarms(folder, &receiver, &mail);
    let alarms = alarms.to_str().unwrap();
    let run = |more: &[&str]| {
        let output = binary()
            .args(["test-alarms", alarms])
            .args(more)
            .output()
            .unwrap();
        (
            output.status.code(),
            text(&output.stdout) + &text(&output.stderr),
        )
    };
    let (code, said) = run(&["--dry-run"]);
    assert_eq!((code, receiver.all().len()), (Some(0), 0), "{said}");
    let (code, said) = run(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said, "pager: told\nops: told\nsiren: told\n");
    receiver
        .wait_for(|heard| heard.json()["type"] == "test")
        .verify();
    assert!(mail.mails().unwrap()[0].contains("alarm ops is being tried"));
    assert!(folder.join("siren.test").exists());

    receiver.status.store(404, SeqCst);
    let (code, said) = run(&["pager", "--json"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the receiver answered 404"), "{said}");
    let empty = folder.join("empty.toml");
    fs::write(&empty, "").unwrap();
    let none = binary().arg("test-alarms").arg(&empty).output().unwrap();
    assert!(
        text(&none.stdout).contains("there are no alarms in"),
        "{none:?}"
    );
    let (code, said) = run(&["beeper"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("there is no alarm beeper; there are: pager, ops, siren"),
        "{said}"
    );
    private(&folder.join("mail.password"), "wrong");
    let (code, said) = run(&["ops"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("Authentication failed") && !said.contains("wrong"),
        "{said}"
    );
    fs::set_permissions(
        folder.join("hook.secret"),
        fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    let (_, said) = run(&["pager"]);
    assert!(said.contains("others can read it"), "{said}");
}
