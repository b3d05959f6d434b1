//! Hosts of the chaos test: processes that are restarted when they end, and a network that can be
//! cut.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use posthaste_testbed::{PostgresServer, free_port};
use serde_json::Value;

use crate::support::processes::{binary, now, text};

/// Size of the depot that has less space than it claims.
const TIGHT: &str = "size=24m";

/// Process that is restarted the same way when it ends.
pub struct Host {
    arguments: Vec<String>,
    log: PathBuf,
    child: Child,
    namespace: Option<String>,
}

impl Host {
    fn start(arguments: Vec<String>, log: PathBuf, namespace: Option<String>) -> Self {
        let child = run(&arguments, &log, namespace.as_deref());
        Self {
            arguments,
            log,
            child,
            namespace,
        }
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn revive(&mut self) {
        if self.child.try_wait().unwrap().is_some() {
            self.child = run(&self.arguments, &self.log, self.namespace.as_deref());
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}

fn run(arguments: &[String], log: &Path, namespace: Option<&str>) -> Child {
    let append = |path: &Path| {
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap()
    };
    let (ready, log) = (append(&log.with_extension("ready")), append(log));
    let mut command = namespace.map_or_else(binary, crate::support::processes::binary_in);
    let command = command.args(arguments).env("XDG_CONFIG_HOME", "/nowhere");
    let command = command.stdin(Stdio::null()).stdout(ready).stderr(log);
    command.spawn().unwrap()
}

/// Stops a process for so many seconds, while others continue.
pub fn stop_for(host: &Host, seconds: u64) {
    let pid = host.child.id().to_string();
    signal(&pid, "STOP");
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(seconds));
        signal(&pid, "CONT");
    });
}

/// Sends a signal to a process, which may be gone by then.
fn signal(pid: &str, signal: &str) {
    let _ = Command::new("kill")
        .args(["-s", signal, pid])
        .stderr(Stdio::null())
        .status();
}

/// Network namespace behind a cable.
pub struct Namespace {
    pub name: String,
    net: String,
}

impl Namespace {
    pub fn make() -> Self {
        let first = std::process::id();
        // Another of these tests may run, or have ended a moment ago.
        let mut numbers = (0..250).map(|turn| first.wrapping_add(turn) % 250);
        let made = numbers.find_map(Self::claim).unwrap();
        let (name, net) = (&made.name, &made.net);
        ip(&format!("addr add {net}.1/24 dev {name}"));
        ip(&format!("link set {name} up"));
        for inside in [
            format!("addr add {net}.2/24 dev far"),
            "link set far up".into(),
            "link set lo up".into(),
        ] {
            ip(&format!("-n {name} {inside}"));
        }
        made
    }

    /// Creates the namespace of this number and its cable, if nobody has them.
    fn claim(number: u32) -> Option<Self> {
        let (name, net) = (format!("phchaos{number}"), format!("10.213.{number}"));
        let tried = |words: &str| {
            let said = Command::new("ip").args(words.split(' ')).output();
            said.unwrap().status.success()
        };
        if !tried(&format!("netns add {name}")) {
            return None;
        }
        let made = Self { name, net };
        let name = &made.name;
        let cable = format!("link add {name} type veth peer name far netns {name}");
        tried(&cable).then_some(made)
    }

    /// Returns the address of hosts on this side, and of those behind the cable.
    fn addresses(&self) -> (String, String) {
        (format!("{}.1", self.net), format!("{}.2", self.net))
    }

    pub fn cut_for(&self, span: Duration) {
        let name = self.name.clone();
        ip(&format!("link set {name} down"));
        thread::spawn(move || {
            thread::sleep(span);
            ip(&format!("link set {name} up"));
        });
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .output();
    }
}

fn ip(words: &str) {
    let said = Command::new("ip").args(words.split(' ')).output().unwrap();
    // It may be gone when a cable is put back.
    let is_late = words.ends_with(" up") && words.starts_with("link");
    assert!(
        said.status.success() || is_late,
        "ip {words}: {}",
        text(&said.stderr)
    );
}

/// File system of its own, which is full early.
struct Tight(PathBuf);

impl Tight {
    fn mount(at: PathBuf) -> Self {
        fs::create_dir(&at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", TIGHT, "none"])
            .arg(&at)
            .status();
        assert!(mounted.unwrap().success());
        Self(at)
    }
}

impl Drop for Tight {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// All hosts. Processes end before the file system and the network that they use.
pub struct Hosts {
    pub services: Vec<Host>,
    pub movers: Vec<Host>,
    pub relays: Vec<Host>,
    pub database: PostgresServer,
    addresses: Vec<String>,
    token: String,
    token_file: PathBuf,
    root: PathBuf,
    _tight: Tight,
    pub namespace: Namespace,
}

impl Hosts {
    pub fn start(root: &Path, namespace: Namespace) -> Self {
        let database = PostgresServer::start().unwrap();
        let url = database.url(&database.new_database().unwrap());
        let tight = Tight::mount(root.join("tight"));
        let addresses = [0, 1].map(|_| format!("127.0.0.1:{}", free_port().unwrap()));
        let state = root.join("state");
        let service = |listen: &String| {
            let words = [
                "serve",
                "--listen",
                listen,
                "--state",
                state.to_str().unwrap(),
                "--database",
                &url,
            ];
            Host::start(
                words.map(str::to_owned).to_vec(),
                root.join("services.log"),
                None,
            )
        };
        let services: Vec<Host> = addresses.iter().map(service).collect();
        let token_file = state.join("token");
        let mut hosts = Self {
            services,
            movers: Vec::new(),
            relays: Vec::new(),
            database,
            token: String::new(),
            token_file,
            addresses: addresses.to_vec(),
            root: root.to_owned(),
            _tight: tight,
            namespace,
        };
        hosts.wait_for_leader();
        hosts.lend();
        hosts.add_movers();
        hosts
    }

    fn wait_for_leader(&mut self) {
        let start = now();
        loop {
            self.token = fs::read_to_string(&self.token_file)
                .unwrap_or_default()
                .trim()
                .to_owned();
            if self
                .ask("GET", "/v1/movers", &Value::Null)
                .is_some_and(|(status, _)| status == 200)
            {
                return;
            }
            assert!(
                start.elapsed() < crate::support::processes::PATIENCE,
                "{}",
                self.said()
            );
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn lend(&mut self) {
        let (near, far) = self.namespace.addresses();
        for name in ["a", "b", "c", "far", "tight"] {
            let (address, namespace) = match name {
                "far" => (&far, Some(self.namespace.name.clone())),
                _ => (&near, None),
            };
            let (dir, listen) = (
                self.root.join(name).join("relay"),
                format!("{address}:{}", free_port().unwrap()),
            );
            fs::create_dir_all(&dir).unwrap();
            let words = [
                "relay",
                "--json",
                "--dir",
                dir.to_str().unwrap(),
                "--name",
                name,
                "--capacity",
                "20G",
                "--rate",
                "8M",
                "--listen",
                &listen,
            ];
            let words = words.map(str::to_owned).to_vec();
            let log = self.root.join(format!("{name}.log"));
            self.relays.push(Host::start(words, log, namespace));
            let ready = wait_for_line(&self.root.join(format!("{name}.ready")));
            let said = |key: &str| ready[key].as_str().unwrap().to_owned();
            let (url, fingerprint, secret) =
                (said("url"), said("fingerprint"), said("secret_file"));
            let added = self.client(&[
                "depot",
                "add",
                name,
                &url,
                "--fingerprint",
                &fingerprint,
                "--secret-file",
                &secret,
            ]);
            assert!(added.status.success(), "{}", text(&added.stderr));
        }
    }

    fn add_movers(&mut self) {
        let token = self.root.join("movers.token");
        let made = self.client(&[
            "token",
            "add",
            "movers",
            "--scope",
            "move",
            "--output",
            token.to_str().unwrap(),
        ]);
        assert!(made.status.success(), "{}", text(&made.stderr));
        let servers = self
            .addresses
            .iter()
            .map(|address| format!("http://{address}"));
        let servers = servers.collect::<Vec<_>>().join(",");
        for number in 0..4 {
            let name = format!("mover{number}");
            let words = [
                "mover",
                "--server",
                &servers,
                "--token-file",
                token.to_str().unwrap(),
                "--name",
                &name,
                "--slots",
                "4",
            ];
            let log = self.root.join("movers.log");
            self.movers
                .push(Host::start(words.map(str::to_owned).to_vec(), log, None));
        }
    }

    /// Restarts every host that has ended.
    pub fn revive(&mut self) {
        let all = self
            .services
            .iter_mut()
            .chain(&mut self.movers)
            .chain(&mut self.relays);
        all.for_each(Host::revive);
    }

    fn client(&self, words: &[&str]) -> std::process::Output {
        let start = now();
        loop {
            for address in &self.addresses {
                let service = format!("http://{address}");
                let mut command = binary();
                let command = command
                    .args(words)
                    .args(["--service", &service, "--token-file"]);
                let done = command.arg(&self.token_file).output().unwrap();
                // A connection that is refused is a host that waits to lead, or is dead.
                if done.status.success() || start.elapsed() > crate::support::processes::PATIENCE {
                    return done;
                }
            }
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// Pulls the dataset of a request.
    pub fn pull(&self, id: &str, to: &Path) {
        let pulled = self.client(&["pull", id, to.to_str().unwrap()]);
        assert!(
            pulled.status.success(),
            "{}\n{}",
            text(&pulled.stderr),
            self.said()
        );
    }

    /// Calls any host that answers; `None` if none does.
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
        let mut addresses = self.addresses.iter();
        addresses.find_map(|address| ask(address, &self.token, (method, path), body))
    }

    /// Returns the logs of all services.
    pub fn all_said(&self) -> String {
        fs::read_to_string(self.root.join("services.log")).unwrap()
    }

    /// Returns the end of the logs.
    pub fn said(&self) -> String {
        let said = self.all_said();
        let lines: Vec<&str> = said.lines().rev().take(200).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// Returns the first line of a process, printed once it is ready.
fn wait_for_line(path: &Path) -> Value {
    let start = now();
    loop {
        let said = fs::read_to_string(path).unwrap_or_default();
        if let Some(line) = said.lines().next()
            && let Ok(ready) = serde_json::from_str(line)
        {
            return ready;
        }
        assert!(
            start.elapsed() < crate::support::processes::PATIENCE,
            "{} says nothing",
            path.display()
        );
        thread::sleep(Duration::from_millis(50));
    }
}

fn ask(
    address: &str,
    token: &str,
    (method, path): (&str, &str),
    body: &Value,
) -> Option<(u16, Value)> {
    let address = address.parse().unwrap();
    let mut connection = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
    connection
        .set_read_timeout(Some(Duration::from_secs(5)))
        .ok()?;
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let question = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(question.as_bytes()).ok()?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).ok()?;
    let answer = text(&answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = if head.to_lowercase().contains("transfer-encoding: chunked") {
        unchunked(body)
    } else {
        body.to_owned()
    };
    Some((status, serde_json::from_str(&body).unwrap_or(Value::Null)))
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}
