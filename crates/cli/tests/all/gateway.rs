//! Ordinary programs through real gateways: `posthaste gateway` and `posthaste through`.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, sync_channel},
    thread,
    time::Duration,
};

use posthaste_testbed::install;
use serde_json::Value;

/// Program that reads everything and prints its length; a reset makes its exit code 9.
const READER: &str = "
import socket, sys
try:
    stream = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    count = 0
    while True:
        block = stream.recv(1 << 16)
        if not block:
            break
        count += len(block)
        if len(sys.argv) > 3 and count == len(block):
            open(sys.argv[3], 'w').close()
    print(count)
except ConnectionResetError:
    sys.exit(9)
";

/// Looks before a test gives up: five minutes.
const LOOKS_MAX: u32 = 15_000;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Gateway that is killed with its test.
struct Gateway {
    child: Child,
    ready: Value,
}

impl Gateway {
    fn start(folder: &Path, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_posthaste"))
            .args(["gateway", "--json", "--listen", "127.0.0.1:0", "--dir"])
            .arg(folder.join("gateway"))
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap();
        Self { child, ready }
    }

    fn address(&self) -> &str {
        self.ready["address"].as_str().unwrap()
    }

    fn secret_file(&self) -> &str {
        self.ready["secret_file"].as_str().unwrap()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn through(gateways: &[&Gateway]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
    let addresses: Vec<_> = gateways.iter().map(|gateway| gateway.address()).collect();
    command.args(["through", &addresses.join(",")]);
    for gateway in gateways {
        command.args(["--secret-file", gateway.secret_file()]);
    }
    command
}

fn read_with_python(command: &mut Command, from: SocketAddr) -> &mut Command {
    let (host, port) = (from.ip().to_string(), from.port().to_string());
    command.args(["--", "python3", "-c", READER, &host, &port])
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn assert_reads(output: &Output, bytes: usize) {
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).trim(), bytes.to_string());
}

/// Sends so many bytes to each client, on an address of this machine that is not 127.0.0.1. Reports
/// the clients.
fn source(bytes: usize, ends: bool) -> (SocketAddr, Receiver<SocketAddr>) {
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let local = listener.local_addr().unwrap();
    let (tell, told) = sync_channel(16);
    thread::spawn(move || {
        let mut kept: Vec<TcpStream> = Vec::new();
        while let Ok((mut stream, from)) = listener.accept() {
            let sent = stream.write_all(&vec![7; bytes]);
            if !ends && sent.is_ok() {
                kept.push(stream);
            }
            if tell.send(from).is_err() {
                return;
            }
        }
    });
    (local, told)
}

fn world() -> tempfile::TempDir {
    install::find_python().unwrap();
    install::find_debian_program(install::PROXYCHAINS).unwrap();
    tempfile::tempdir().unwrap()
}

#[test]
fn a_program_that_knows_nothing_goes_through_one_gateway_or_two() {
    let folder = world();
    let (local, _told) = source(3_000_000, true);
    let near = Gateway::start(&folder.path().join("near"), &["--allow", "127.0.0.0/8:*"]);
    let far = Gateway::start(&folder.path().join("far"), &["--allow", "127.0.0.2:*"]);
    let one = read_with_python(&mut through(&[&near]), local)
        .output()
        .unwrap();
    assert_reads(&one, 3_000_000);
    let two = read_with_python(&mut through(&[&near, &far]), local)
        .output()
        .unwrap();
    assert_reads(&two, 3_000_000);
    // The far one saw the second alone.
    let carried = |gateway: &Gateway| status(gateway)["carried_bytes"].as_u64().unwrap();
    assert_eq!(carried(&far), 3_000_000);
    assert!(carried(&near) > 6_000_000);
}

/// Returns a gateway's own status, asked with a token as any program would.
fn status(gateway: &Gateway) -> Value {
    let token = through(&[gateway])
        .args(["--token", "60s"])
        .output()
        .unwrap();
    assert!(token.status.success(), "{}", text(&token.stderr));
    let mut stream = TcpStream::connect(gateway.address()).unwrap();
    let ask = format!(
        "GET /v1/status HTTP/1.1\r\nAuthorization: Bearer {}\r\n\r\n",
        text(&token.stdout).trim()
    );
    stream.write_all(ask.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    serde_json::from_str(said.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn what_is_not_allowed_is_refused_with_the_reason_and_codes_are_the_commands() {
    let folder = world();
    let (local, told) = source(10, true);
    let gateway = Gateway::start(folder.path(), &["--allow", "*:*"]);
    let refused = read_with_python(&mut through(&[&gateway]), local)
        .output()
        .unwrap();
    assert!(!refused.status.success());
    let said = text(&refused.stderr);
    assert!(said.contains("no rule of this gateway allows it"), "{said}");
    assert!(told.try_recv().is_err(), "it came through");
    let seven = through(&[&gateway])
        .args(["--", "sh", "-c", "exit 7"])
        .output()
        .unwrap();
    assert_eq!(seven.status.code(), Some(7));
    let missing = through(&[&gateway])
        .args(["--", "./nothing"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(127));
    // What tells a program of the door is in nobody's arguments.
    let script = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; env";
    let shown = through(&[&gateway])
        .args(["--", "sh", "-c", script])
        .output()
        .unwrap();
    let shown = text(&shown.stdout);
    let (arguments, environment): (Vec<_>, Vec<_>) = shown
        .lines()
        .partition(|line| !line.contains("_PROXY=") && !line.contains("_proxy="));
    let url = environment
        .iter()
        .find(|line| line.starts_with("ALL_PROXY="))
        .unwrap();
    let password = url.split([':', '@']).nth(2).unwrap();
    assert_eq!(password.len(), 32, "{url}");
    assert!(!arguments.iter().any(|line| line.contains(password)));
}

#[test]
fn a_gateway_that_is_killed_in_mid_stream_breaks_it_and_never_ends_it() {
    let folder = world();
    let (local, told) = source(1_000_000, false);
    let mut gateway = Gateway::start(folder.path(), &["--allow", "127.0.0.2:*"]);
    let begun = folder.path().join("begun");
    let reading = read_with_python(&mut through(&[&gateway]), local)
        .arg(&begun)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    told.recv_timeout(LOOK_EVERY * LOOKS_MAX).unwrap();
    let mut looks = 0;
    while !begun.exists() {
        looks += 1;
        assert!(looks < LOOKS_MAX, "nothing came");
        thread::sleep(LOOK_EVERY);
    }
    gateway.kill();
    let output = reading.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(9), "{}", text(&output.stdout));
}

#[test]
fn a_chain_carries_a_stream_over_several_connections_and_breaks_it_when_a_gateway_is_killed() {
    let folder = world();
    let allow = ["--allow", "127.0.0.2:*"];
    for kills_far in [true, false] {
        let folder = folder.path().join(if kills_far { "one" } else { "other" });
        let mut far = Gateway::start(&folder.join("far"), &allow);
        let routes = folder.join("routes.toml");
        let table = format!(
            "allow = ['127.0.0.2:*']\n[[route]]\nto = ['127.0.0.2:*']\nvia = '{}'\nsecret_file = '{}'\nconnections = 4\n",
            far.address(),
            far.secret_file()
        );
        fs::write(&routes, table).unwrap();
        let mut near = Gateway::start(
            &folder.join("near"),
            &["--routes", routes.to_str().unwrap()],
        );
        let (local, _told) = source(30_000_000, true);
        let whole = read_with_python(&mut through(&[&near]), local)
            .output()
            .unwrap();
        assert_reads(&whole, 30_000_000);
        assert_eq!(status(&near)["braids"], 1);
        assert!(status(&far)["carried_bytes"].as_u64().unwrap() >= 30_000_000);

        let before = status(&far)["joined"].as_u64().unwrap();
        let (local, _told) = source(1_000_000, false);
        let begun = folder.join("begun");
        let reading = read_with_python(&mut through(&[&near]), local)
            .arg(&begun)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let has_begun = || begun.exists() && status(&far)["joined"].as_u64().unwrap() >= before + 3;
        let mut looks = 0;
        while !has_begun() {
            looks += 1;
            assert!(looks < LOOKS_MAX, "it did not begin with all connections");
            thread::sleep(LOOK_EVERY);
        }
        if kills_far { &mut far } else { &mut near }.kill();
        let output = reading.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(9), "{}", text(&output.stdout));
    }
}

#[test]
fn gateways_have_names_and_wrong_calls_say_what_to_write() {
    let folder = world();
    let (local, _told) = source(10, true);
    let gateway = Gateway::start(folder.path(), &["--allow", "127.0.0.2:*"]);
    let config = folder.path().join("config/posthaste");
    fs::create_dir_all(&config).unwrap();
    let known = format!(
        "[near]\naddress = '{}'\nsecret_file = '{}'\n",
        gateway.address(),
        gateway.secret_file()
    );
    fs::write(config.join("gateways.toml"), known).unwrap();
    let named = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
        command
            .args(["through", name])
            .env("XDG_CONFIG_HOME", folder.path().join("config"));
        command
    };
    let read = read_with_python(&mut named("near"), local)
        .output()
        .unwrap();
    assert_reads(&read, 10);
    let wrong = |command: &mut Command, said: &str| {
        let output = command.output().unwrap();
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(said), "{told}");
    };
    wrong(named("far").args(["--", "true"]), "no gateway `far`");
    wrong(
        named("gw:1").args(["--", "true"]),
        "no secret for the gateway",
    );
    wrong(&mut named("near"), "required");
    let dir: PathBuf = folder.path().join("other");
    let start = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
        command.arg("gateway").arg("--dir").arg(&dir).args(more);
        command
    };
    wrong(&mut start(&[]), "--allow");
    wrong(&mut start(&["--allow", "everything"]), "HOSTS:PORTS");
    wrong(&mut start(&["--forward", "1=2"]), "no address");
}
