//! Real posthaste processes for tests: started, killed with SIGKILL, and removed.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use posthaste_endpoint::{
    gateway::mint,
    relay::{Credential, RelayAddress, RelayClient, RelayStatus, read_secret_file},
};
pub use posthaste_testbed::noise;
use serde_json::Value;

/// Interval between two looks: most looks start a program, which costs more than the wait.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Longest wait of these tests, on any machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Time zone of relays, as `TZ` writes it and in minutes ahead of UTC: no relay's hours are those
/// of the service.
const RELAY_ZONE: &str = "<+0545>-05:45";
pub const RELAY_AHEAD_MIN: i32 = 345;

/// Returns an address that stays free while its listener is killed and restarts: the kernel gives
/// its port to no connection meanwhile.
fn listen() -> String {
    format!("127.0.0.1:{}", posthaste_testbed::free_port().unwrap())
}

pub fn binary() -> Command {
    Command::new(env!("CARGO_BIN_EXE_posthaste"))
}

/// Builds a call of the binary in a network namespace.
pub fn binary_in(host: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", host, env!("CARGO_BIN_EXE_posthaste")]);
    command
}

/// Running `posthaste relay` or `posthaste serve`; killed when dropped.
pub struct Process {
    child: Child,
    pub ready: Value,
}

impl Process {
    fn start(arguments: &[&str], log: &Path) -> Self {
        Self::run(binary().args(arguments), log)
    }

    /// Starts a program that prints a line of JSON when it is ready. A wrapper must exec it in the
    /// same process.
    pub fn run(command: &mut Command, log: &Path) -> Self {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .unwrap();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("{command:?} did not start: {line:?}"));
        Self { child, ready }
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, by its name.
    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(told.unwrap().success());
    }

    /// Waits for the process to end by itself; returns its exit code.
    pub fn ended(&mut self) -> i32 {
        let start = now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap();
            }
            assert!(start.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Asks the process to end, and waits for that.
    pub fn end(&mut self) {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(told.unwrap().success());
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Relay that can be killed and restarted at the same place.
pub struct Relay {
    pub name: String,
    pub directory: PathBuf,
    capacity: String,
    listen: String,
    more: Vec<String>,
    /// Keys of its store.
    environment: Vec<(&'static str, String)>,
    pub process: Process,
}

impl Relay {
    pub fn start(folder: &Path, name: &str, capacity: &str, rate: &str) -> Self {
        Self::start_with(folder, name, capacity, rate, &[])
    }

    /// Starts with more arguments, which a restart repeats.
    pub fn start_with(
        folder: &Path,
        name: &str,
        capacity: &str,
        rate: &str,
        more: &[&str],
    ) -> Self {
        let more = [&["--rate", rate], more].concat();
        Self::begin(folder, name, capacity, &more, Vec::new())
    }

    /// Starts a relay that keeps its bytes in an object store.
    pub fn start_backed(
        folder: &Path,
        name: &str,
        capacity: &str,
        bucket: &str,
        environment: Vec<(&'static str, String)>,
    ) -> Self {
        Self::begin(folder, name, capacity, &["--bucket", bucket], environment)
    }

    fn begin(
        folder: &Path,
        name: &str,
        capacity: &str,
        more: &[&str],
        environment: Vec<(&'static str, String)>,
    ) -> Self {
        let directory = folder.join(name);
        let more: Vec<String> = more.iter().copied().map(str::to_owned).collect();
        let what = (capacity, &*more, &*environment);
        let process = start_relay(&directory, name, &listen(), what);
        let url = process.ready["url"].as_str().unwrap();
        let listen = url.trim_start_matches("https://").to_owned();
        Self {
            name: name.into(),
            directory,
            capacity: capacity.into(),
            listen,
            more,
            environment,
            process,
        }
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Restarts it at another port, with its own state.
    pub fn restart_elsewhere(&mut self) {
        // The rate stays.
        self.more.truncate(2);
        let before = std::mem::replace(&mut self.listen, listen());
        self.restart();
        let url = self.process.ready["url"].as_str().unwrap();
        self.listen = url.trim_start_matches("https://").to_owned();
        assert_ne!(self.listen, before);
    }

    /// Restarts it at the same place, with other arguments.
    pub fn restart_with(&mut self, more: &[&str]) {
        self.more.truncate(2);
        self.more.extend(more.iter().copied().map(str::to_owned));
        self.restart();
    }

    /// Kills it and restarts it at the same place, with another rate.
    pub fn restart_at(&mut self, rate: &str) {
        self.kill();
        rate.clone_into(&mut self.more[1]);
        self.restart();
    }

    pub fn restart(&mut self) {
        let what = (&*self.capacity, &*self.more, &*self.environment);
        self.process = start_relay(&self.directory, &self.name, &self.listen, what);
    }
}

/// Gateway to this machine that can be killed and restarted at the same place.
pub struct Gateway {
    directory: PathBuf,
    process: Process,
    more: Vec<String>,
}

impl Gateway {
    pub fn start(directory: &Path) -> Self {
        Self::start_with(directory, &[])
    }

    /// Starts with more arguments, which a restart repeats.
    pub fn start_with(directory: &Path, more: &[&str]) -> Self {
        let more: Vec<String> = more.iter().copied().map(str::to_owned).collect();
        Self {
            directory: directory.to_owned(),
            process: start_gateway(directory, &listen(), &more),
            more,
        }
    }

    pub fn address(&self) -> &str {
        self.process.ready["address"].as_str().unwrap()
    }

    pub fn secret_file(&self) -> &str {
        self.process.ready["secret_file"].as_str().unwrap()
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops it with SIGSTOP: its connections stay, and nothing moves on them.
    pub fn stop(&self) {
        let pid = self.process.child.id().to_string();
        let told = Command::new("kill").args(["-STOP", &pid]).status();
        assert!(told.unwrap().success());
    }

    pub fn restart(&mut self) {
        self.process = start_gateway(&self.directory, self.address(), &self.more);
    }

    /// Returns the bytes that it carried, both directions together.
    pub fn carried(&self) -> u64 {
        let secret = read_secret_file(Path::new(self.secret_file())).unwrap();
        let token = mint(&secret, None, u64::MAX);
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let ask = format!("GET /v1/status HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n");
        stream.write_all(ask.as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        let status: Value = serde_json::from_str(said.split_once("\r\n\r\n").unwrap().1).unwrap();
        status["carried_bytes"].as_u64().unwrap()
    }
}

fn start_gateway(directory: &Path, listen: &str, more: &[String]) -> Process {
    let log = directory.with_extension("log");
    let mut arguments = vec![
        "gateway",
        "--json",
        "--dir",
        directory.to_str().unwrap(),
        "--listen",
        listen,
        "--allow",
        "127.0.0.1:*",
    ];
    arguments.extend(more.iter().map(String::as_str));
    Process::start(&arguments, &log)
}

/// Returns a relay's own status.
pub fn said_by(relay: &Relay) -> RelayStatus {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ready = &relay.process.ready;
    let address = RelayAddress {
        url: ready["url"].as_str().unwrap().into(),
        fingerprint: ready["fingerprint"].as_str().unwrap().parse().unwrap(),
    };
    let secret = Path::new(ready["secret_file"].as_str().unwrap());
    let credential = Credential::Secret(read_secret_file(secret).unwrap());
    runtime.block_on(async {
        let client = RelayClient::new(address, credential).unwrap();
        let start = now();
        loop {
            match client.status().await {
                Ok(status) => return status,
                // One that has no processor for some seconds answers late.
                Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    })
}

/// Returns the bytes of bodies that relays received since they started, from any sender, by their
/// own count.
pub fn received(relays: &[Relay]) -> u64 {
    let all = relays.iter().map(|relay| said_by(relay).received.get());
    all.sum()
}

fn start_relay(
    directory: &Path,
    name: &str,
    listen: &str,
    (capacity, more, environment): (&str, &[String], &[(&'static str, String)]),
) -> Process {
    let log = directory.with_extension("log");
    let directory = directory.to_str().unwrap();
    let mut arguments = vec!["relay", "--json", "--dir", directory, "--name", name];
    arguments.extend(["--capacity", capacity, "--listen", listen]);
    arguments.extend(more.iter().map(String::as_str));
    let mut command = binary();
    let command = command.env("TZ", RELAY_ZONE).args(&arguments);
    // As for services.
    let clock = Path::new(directory).with_file_name("clock of relays");
    if clock.exists() {
        command.envs(posthaste_testbed::wall_clock(&clock));
    }
    Process::run(command.envs(environment.iter().cloned()), &log)
}

/// Service that can be killed and restarted with the same state.
pub struct Service {
    pub state: PathBuf,
    pub url: String,
    pub process: Process,
    more: Vec<String>,
    /// User of the process, if not the one who runs the test.
    user: Option<u32>,
    /// Network namespace of the service and its clients.
    host: Option<String>,
}

impl Service {
    pub fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[])
    }

    /// Starts with more arguments, which a restart repeats.
    pub fn start_with(folder: &Path, more: &[&str]) -> Self {
        Self::start_at(None, folder, more)
    }

    /// Starts it in a network namespace.
    pub fn start_in(host: &str, folder: &Path, more: &[&str]) -> Self {
        Self::start_at(Some(host.to_owned()), folder, more)
    }

    fn start_at(host: Option<String>, folder: &Path, more: &[&str]) -> Self {
        let state = folder.join("service");
        let mut more: Vec<String> = more.iter().copied().map(str::to_owned).collect();
        // Tests run as root where accounts matter, and mean it.
        if !more.iter().any(|word| word == "--as-owners") {
            more.push("--as-root".to_owned());
        }
        allow_loopback(&mut more);
        let process = start_service(host.as_deref(), &state, &listen(), &more);
        let url = process.ready["url"].as_str().unwrap().to_owned();
        Self {
            state,
            url,
            process,
            more,
            user: None,
            host,
        }
    }

    /// Starts it as another user, with its state in `folder`.
    pub fn start_as(user: u32, folder: &Path, more: &[&str]) -> Self {
        // Where the test was built may be closed to that user.
        let program = folder.join("posthaste");
        let built = env!("CARGO_BIN_EXE_posthaste");
        fs::hard_link(built, &program)
            .or_else(|_| fs::copy(built, &program).map(|_| ()))
            .unwrap();
        let state = folder.join("service");
        fs::create_dir(&state).unwrap();
        std::os::unix::fs::chown(&state, Some(user), Some(user)).unwrap();
        let mut more: Vec<String> = more.iter().copied().map(str::to_owned).collect();
        allow_loopback(&mut more);
        let process = start_service_as(user, &state, &listen(), &more);
        let url = process.ready["url"].as_str().unwrap().to_owned();
        Self {
            state,
            url,
            process,
            more,
            user: Some(user),
            host: None,
        }
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    pub fn restart(&mut self) {
        let listen = self.url.trim_start_matches("http://");
        self.process = match self.user {
            Some(user) => start_service_as(user, &self.state, listen, &self.more),
            None => start_service(self.host.as_deref(), &self.state, listen, &self.more),
        };
    }

    /// Restarts it without one of its options.
    pub fn restart_without(&mut self, option: &str) {
        self.more.retain(|word| word != option);
        self.restart();
    }

    /// Runs a client command against this service.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.host
            .as_deref()
            .map_or_else(binary, binary_in)
            .args(arguments)
            .args(["--service", &self.url, "--token-file"])
            .arg(self.state.join("token"))
            .output()
            .unwrap()
    }

    /// Returns the last lines of its log: if it is gone, they give the reason.
    fn end_of_log(&self) -> String {
        let log = fs::read_to_string(self.state.with_extension("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(100)..].join("\n")
    }

    /// Runs a client command that must succeed, and reads the JSON it prints.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}\n{}",
            text(&output.stderr),
            self.end_of_log()
        );
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{arguments:?} printed {}", text(&output.stdout)))
    }

    /// Returns whether a mover was silent so long that others got its work. Its work is then
    /// counted anew.
    pub fn has_lost_a_mover(&self) -> bool {
        let log = fs::read_to_string(self.state.with_extension("log")).unwrap();
        log.contains(" is silent: its work is given to others")
    }

    pub fn add(&self, relay: &Relay) {
        self.lend(relay, &[]);
    }

    /// Adds a depot on these terms.
    pub fn lend(&self, relay: &Relay, terms: &[&str]) {
        let output = self.try_to_lend(relay, terms);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    /// Lends the service a relay, which it may refuse.
    pub fn try_to_lend(&self, relay: &Relay, terms: &[&str]) -> Output {
        let ready = &relay.process.ready;
        let mut arguments = vec![
            "depot",
            "add",
            &relay.name,
            ready["url"].as_str().unwrap(),
            "--fingerprint",
            ready["fingerprint"].as_str().unwrap(),
            "--secret-file",
            ready["secret_file"].as_str().unwrap(),
        ];
        arguments.extend_from_slice(terms);
        self.run(&arguments)
    }

    pub fn status(&self, id: &str) -> Value {
        self.json(&["status", id, "--json"])
    }

    /// Looks at a request without starting a program for each look.
    fn look_at(&self, id: &str) -> Value {
        let looked = self
            .host
            .is_none()
            .then(|| self.get(&format!("/v1/requests/{id}")));
        looked.flatten().unwrap_or_else(|| self.status(id))
    }

    /// Returns the answer, if there is one and it is good.
    fn get(&self, path: &str) -> Option<Value> {
        let token = fs::read_to_string(self.state.join("token")).ok()?;
        let mut connection = TcpStream::connect(self.url.strip_prefix("http://")?).ok()?;
        connection.set_read_timeout(Some(PATIENCE)).ok()?;
        let token = token.trim();
        write!(
            connection,
            "GET {path} HTTP/1.0\r\nAuthorization: Bearer {token}\r\n\r\n"
        )
        .ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.contains(" 200 ")
            .then(|| serde_json::from_str(body).ok())?
    }

    /// Waits until every depot satisfies `wanted`.
    pub fn wait_for_depots(&self, wanted: impl Fn(&Value) -> bool) {
        let start = now();
        loop {
            let looked = self
                .host
                .is_none()
                .then(|| self.get("/v1/depots"))
                .flatten();
            let depots = looked.unwrap_or_else(|| self.json(&["depot", "list", "--json"]));
            if depots.as_array().unwrap().iter().all(&wanted) {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "depots are still {depots}\n{}",
                text(&self.run(&["explain", "r1"]).stdout)
            );
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until the request satisfies `wanted`.
    pub fn wait_until(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let start = now();
        loop {
            let request = self.look_at(id);
            if wanted(&request) {
                return request;
            }
            let log = self.state.with_extension("log");
            assert!(
                start.elapsed() < PATIENCE,
                "{id} is still {request}\n{}",
                fs::read_to_string(log).unwrap_or_default()
            );
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Returns the share of a request with the most fragments: its place among the depots, and the
/// number of the request's fragments stored anywhere. A depot kept in reserve holds none;
/// measurements decide which one that is.
pub fn fullest(request: &Value) -> (usize, u64) {
    let shares = request["shares"].as_array().unwrap().iter();
    let stored: Vec<u64> = shares
        .map(|share| share["stored"].as_u64().unwrap())
        .collect();
    let fullest = (0..stored.len())
        .max_by_key(|&place| stored[place])
        .unwrap();
    (fullest, stored.iter().sum())
}

/// Servers of tests listen on loopback, also those that users name.
fn allow_loopback(more: &mut Vec<String>) {
    if !more.iter().any(|word| word == "--allow-address") {
        let allowed = ["--allow-address", "127.0.0.0/8:*"];
        more.extend(allowed.map(str::to_owned));
    }
}

fn start_service(host: Option<&str>, state: &Path, listen: &str, more: &[String]) -> Process {
    let log = state.with_extension("log");
    let mut arguments = vec![
        "serve",
        "--json",
        "--listen",
        listen,
        "--state",
        state.to_str().unwrap(),
    ];
    arguments.extend(more.iter().map(String::as_str));
    // The profiles of a test are its own, and never those of who runs it.
    let config = state.with_file_name("config");
    // Programs that a test brings with it are found before others.
    let programs = state.with_file_name("bin");
    #[expect(clippy::disallowed_methods, reason = "the programs of the machine")]
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::iter::once(programs).chain(std::env::split_paths(&path));
    let mut command = host.map_or_else(binary, binary_in);
    command
        .env("PATH", std::env::join_paths(places).unwrap())
        .env("XDG_CONFIG_HOME", config)
        .env("SLURM_CONF", state.with_file_name("slurm.conf"));
    // Where a test has laid a clock, that is its wall clock.
    let clock = state.with_file_name("clock");
    if clock.exists() {
        command.envs(posthaste_testbed::wall_clock(&clock));
    }
    Process::run(command.args(&arguments), &log)
}

/// Starts the service as another user, with the program that lies beside its state.
fn start_service_as(user: u32, state: &Path, listen: &str, more: &[String]) -> Process {
    let id = user.to_string();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &id, "--regid", &id, "--clear-groups"])
        .arg(state.with_file_name("posthaste"))
        .args(["serve", "--json", "--listen", listen, "--state"])
        .arg(state)
        .args(more)
        .env("XDG_CONFIG_HOME", state.with_file_name("config"))
        .env("SLURM_CONF", state.with_file_name("slurm.conf"))
        .env("HOME", state.with_file_name(""));
    Process::run(&mut command, &state.with_extension("log"))
}

#[expect(clippy::disallowed_methods, reason = "tests wait for real processes")]
pub fn now() -> Instant {
    Instant::now()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the one line with which a command failed, and its code.
pub fn failure(output: &Output) -> (i32, String) {
    let said = text(&output.stderr);
    assert_eq!(said.trim_end().lines().count(), 1, "not one line: {said}");
    (output.status.code().unwrap(), said.trim_end().to_owned())
}

/// Small deterministic generator, so that a failing round can be repeated.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }
}

/// Makes a tree of `megabytes` with large and small files, odd names, modes, links and times.
pub fn make_tree(root: &Path, megabytes: usize, seed: u64) {
    fs::create_dir_all(root.join("deep/er/empty")).unwrap();
    let large = noise(seed, (megabytes << 20) * 3 / 4);
    fs::write(root.join("large.bin"), large).unwrap();
    for number in 0..40 {
        let content = noise(seed << 8 | (number + 1), (megabytes << 20) / 160);
        fs::write(root.join(format!("deep/file {number}")), content).unwrap();
    }
    fs::write(root.join("zero"), b"").unwrap();
    fs::write(root.join("line\nbreak"), b"odd").unwrap();
    let invalid = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"inv\xffalid");
    fs::write(root.join(invalid), b"odder").unwrap();
    symlink("large.bin", root.join("link")).unwrap();
    symlink("/nowhere/at all", root.join("deep/dangling")).unwrap();
    let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o750);
    fs::set_permissions(root.join("large.bin"), mode).unwrap();
    let past = std::time::UNIX_EPOCH + Duration::new(1_000_000_007, 123_456_789);
    let times = fs::FileTimes::new().set_modified(past);
    fs::File::open(root.join("large.bin"))
        .unwrap()
        .set_times(times)
        .unwrap();
    fs::File::open(root.join("deep"))
        .unwrap()
        .set_times(times)
        .unwrap();
}

/// Returns everything of a tree that must survive: names, kinds, modes, times, bytes, link targets.
pub fn picture(root: &Path) -> Vec<String> {
    use std::os::unix::{ffi::OsStrExt, fs::MetadataExt};
    let mut lines = Vec::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let found = fs::symlink_metadata(&path).unwrap();
            let name = path
                .strip_prefix(root)
                .unwrap()
                .as_os_str()
                .as_bytes()
                .escape_ascii();
            let content = if found.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if found.is_dir() {
                waiting.push(path.clone());
                format!(
                    "{:o} {}.{}",
                    found.mode(),
                    found.mtime(),
                    found.mtime_nsec()
                )
            } else {
                let digest = blake3::hash(&fs::read(&path).unwrap());
                format!(
                    "{:o} {}.{} {digest}",
                    found.mode(),
                    found.mtime(),
                    found.mtime_nsec()
                )
            };
            lines.push(format!("{name} {content}"));
        }
    }
    lines.sort();
    lines
}

/// Returns every file below, with its bytes.
pub fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut found, mut waiting) = (Vec::new(), vec![directory.to_path_buf()]);
    while let Some(directory) = waiting.pop() {
        // Who still works puts drafts away, and evicts.
        let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let entries = match fs::read_dir(&directory) {
            Err(error) if is_gone(&error) => continue,
            entries => entries.unwrap(),
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
                continue;
            }
            match fs::read(&path) {
                Err(error) if is_gone(&error) => {}
                read => found.push((path.clone(), read.unwrap())),
            }
        }
    }
    found
}
