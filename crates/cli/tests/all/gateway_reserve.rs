//! Reservations hold beside competitors, in real network namespaces: takes root, and the kernel's
//! HTB and u32.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use posthaste_testbed::{Hosts, install};
use serde_json::{Value, json};

/// Rate reserved for each of two streams, in bytes a second, of a link of 10 MB/s.
const RESERVED: u64 = 3_000_000;
/// Looks before a test gives up: five minutes.
const LOOKS_MAX: u32 = 3000;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Spans counted, at most, until each reservation gets its full rate: it can't while one of the
/// programs has no processor.
const SPANS_MAX: usize = 40;

/// Program that counts the bytes at ports 6000 (a flow), 6001 (a stream of the gateway's) and 7000
/// (everybody else). It starts in the third second after all have arrived, and prints the rates
/// every six seconds.
const SINK: &str = "
import json, selectors, socket, time
selector, counts, came = selectors.DefaultSelector(), {6000: 0, 6001: 0, 7000: 0}, 0
for port in counts:
    server = socket.create_server(('10.77.0.2', port), backlog=64)
    server.setblocking(False)
    selector.register(server, selectors.EVENT_READ, (port, True))
print('ready', flush=True)
begun = None
while True:
    for key, _ in selector.select(0.1):
        port, is_server = key.data
        if is_server:
            stream, _ = key.fileobj.accept()
            stream.setblocking(False)
            selector.register(stream, selectors.EVENT_READ, (port, False))
            came += 1
            if came == 10:
                begun = time.monotonic() + 2
        else:
            count = len(key.fileobj.recv(1 << 16))
            if begun and time.monotonic() > begun:
                counts[port] += count
    took = time.monotonic() - begun if begun else 0
    if took > 6:
        print(json.dumps({str(port): count / took for port, count in counts.items()}), flush=True)
        begun, counts = time.monotonic(), dict.fromkeys(counts, 0)
";

/// Program that sends all it can: eight streams to everybody's port, one to the flow's, and one
/// through the gateway.
const SENDER: &str = "
import socket, sys, threading, time
port, token = int(sys.argv[1]), sys.argv[2]
def send(stream):
    try:
        while True:
            stream.sendall(bytes(1 << 16))
    except OSError:
        pass
for _ in range(8):
    stream = socket.create_connection(('10.77.0.2', 7000))
    threading.Thread(target=send, args=[stream], daemon=True).start()
stream = socket.create_connection(('10.77.0.2', 6000))
threading.Thread(target=send, args=[stream], daemon=True).start()
stream = socket.create_connection(('127.0.0.1', port))
stream.sendall(f'CONNECT 10.77.0.2:6001 HTTP/1.1\\r\\nProxy-Authorization: Bearer {token}\\r\\nPosthaste-Reservation: stream\\r\\n\\r\\n'.encode())
assert b' 200 ' in stream.recv(4096)
threading.Thread(target=send, args=[stream], daemon=True).start()
time.sleep(3600)
";

/// Program that accepts a stream at each of its ports until its end, and prints its length.
const SINK_6: &str = "
import json, socket
servers, counts = [socket.create_server(('fd77::2', port), family=socket.AF_INET6) for port in (6000, 6001, 7000)], []
print('ready', flush=True)
for server in servers:
    stream, _ = server.accept()
    count = 0
    while block := stream.recv(1 << 16):
        count += len(block)
    counts.append(count)
print(json.dumps(counts), flush=True)
";

/// Program that sends to each of them, to the second through the gateway.
const SENDER_6: &str = "
import socket, sys
port, token, *sizes = sys.argv[1:]
flow, stream, other = map(int, sizes)
with socket.create_connection(('fd77::2', 6000)) as end:
    end.sendall(bytes(flow))
with socket.create_connection(('127.0.0.1', int(port))) as end:
    end.sendall(f'CONNECT [fd77::2]:6001 HTTP/1.1\\r\\nProxy-Authorization: Bearer {token}\\r\\nPosthaste-Reservation: stream\\r\\n\\r\\n'.encode())
    assert b' 200 ' in end.recv(4096)
    end.sendall(bytes(stream))
with socket.create_connection(('fd77::2', 7000)) as end:
    end.sendall(bytes(other))
";

/// Program that calls the gateway and prints the status and the body.
const ASK: &str = "
import sys, urllib.error, urllib.request
method, url, token, body = sys.argv[1:]
request = urllib.request.Request(url, body.encode() or None, {'Authorization': 'Bearer ' + token}, method=method)
try:
    answer = urllib.request.urlopen(request, timeout=30)
except urllib.error.HTTPError as refused:
    answer = refused
print(answer.status, answer.read().decode() or 'null')
";

/// Gateway's machine and one behind it, joined by a device each; removed with the test.
struct World {
    hosts: Hosts,
    folder: tempfile::TempDir,
    python: PathBuf,
}

fn must(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

impl World {
    /// Builds the world of one test, which has a name of its own.
    fn build(test: &str) -> Self {
        let hosts = Hosts::new(&format!("reserve-{test}"), &["gw", "far"]).unwrap();
        hosts
            .join([
                ("gw", "out", &["10.77.0.1/24", "fd77::1/64"]),
                ("far", "in", &["10.77.0.2/24", "fd77::2/64"]),
            ])
            .unwrap();
        Self {
            hosts,
            folder: tempfile::tempdir().unwrap(),
            python: install::find_python().unwrap(),
        }
    }

    /// Returns the output of `tc` about the gateway's device.
    fn tc(&self, what: &str) -> String {
        self.hosts.traffic("gw", what, "out").unwrap()
    }

    /// Returns the bytes that the kernel has sent for a class.
    fn sent(&self, class: &str) -> u64 {
        let shown = self.tc("class");
        let (_, of_class) = shown.split_once(&format!("htb {class} ")).unwrap();
        let (_, sent) = of_class.split_once("Sent ").unwrap();
        sent.split(' ').next().unwrap().parse().unwrap()
    }

    fn script(&self, host: &str, script: &str, arguments: &[&str]) -> Command {
        let mut command = self.hosts.command(host, &self.python);
        command.args(["-c", script]).args(arguments);
        command
    }
}

/// Process that ends with the test, and its first line.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> (Self, BufReader<std::process::ChildStdout>, String) {
        let mut running = Self(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut out = BufReader::new(running.0.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        (running, out, line)
    }

    /// Sends a signal and waits for the end.
    fn end(&mut self, signal: &str) {
        // `ip netns exec` has become the program itself.
        must(Command::new("kill").args([signal, &self.0.id().to_string()]));
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Running gateway with its token.
struct Gateway<'a> {
    world: &'a World,
    running: Running,
    address: String,
    token: String,
}

impl<'a> Gateway<'a> {
    fn start(world: &'a World) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_posthaste"));
        let mut command = world.hosts.command("gw", program);
        command.args([
            "gateway",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--allow",
            "10.77.0.2:*",
            "--allow",
            "[fd77::/64]:*",
        ]);
        command
            .args(["--reserve", "out=80Mbit", "--dir"])
            .arg(world.folder.path());
        let (running, _, line) = Running::start(&mut command);
        let ready: Value = serde_json::from_str(&line).unwrap();
        let address = ready["address"].as_str().unwrap().to_owned();
        let mut through = Command::new(program);
        through.args(["through", &address, "--token", "8h", "--secret-file"]);
        let token = must(through.arg(world.folder.path().join("secret"))).stdout;
        let token = String::from_utf8(token).unwrap().trim().to_owned();
        Self {
            world,
            running,
            address,
            token,
        }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let url = format!("http://{}/v1/reservations{path}", self.address);
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let said = must(
            &mut self
                .world
                .script("gw", ASK, &[method, &url, &self.token, &body]),
        );
        let said = String::from_utf8(said.stdout).unwrap();
        let (status, json) = said.split_once(' ').unwrap();
        (status.parse().unwrap(), serde_json::from_str(json).unwrap())
    }

    /// Waits until a reservation is in the kernel.
    fn until_in_force(&self, id: &str) {
        let is_in_force =
            || self.ask("GET", &format!("/{id}"), &Value::Null).1["in_force"] == json!(true);
        assert!(
            (0..LOOKS_MAX).any(|_| is_in_force() || pause()),
            "{:?}",
            self.ask("GET", "", &Value::Null)
        );
    }

    fn reserve(&self, id: &str, flows: &Value) {
        let asked = json!({
            "id": id, "flows": flows, "hold_s": 600,
            "fixed": { "rate_bytes_per_s": RESERVED, "end": "2100-01-01T00:00:00Z" },
        });
        // Nobody reserves so far ahead: a year and a month is the most.
        assert_eq!(self.ask("POST", "", &asked).0, 400);
        let asked = json!({
            "id": id, "flows": flows, "hold_s": 600,
            "fixed": { "rate_bytes_per_s": RESERVED, "end": in_an_hour() },
        });
        let (status, held) = self.ask("POST", "", &asked);
        assert_eq!((status, &held["state"]), (201, &json!("held")), "{held}");
        assert_eq!(
            self.ask("POST", "", &asked),
            (200, held),
            "asked twice is asked once"
        );
        let path = format!("/{id}/commit");
        assert_eq!(
            self.ask("POST", &path, &Value::Null).1["state"],
            json!("committed")
        );
        self.until_in_force(id);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the gateway has a real clock, and so its test"
)]
fn in_an_hour() -> String {
    let later = std::time::SystemTime::now() + Duration::from_secs(3600);
    jiff::Timestamp::try_from(later).unwrap().to_string()
}

fn pause() -> bool {
    thread::sleep(LOOK_EVERY);
    false
}

#[test]
fn what_is_reserved_is_had_beside_competitors_and_outlives_a_kill() {
    let world = World::build("four");
    let gateway = Gateway::start(&world);
    gateway.reserve("flow", &json!([{ "to": "10.77.0.2:6000" }]));
    gateway.reserve("stream", &json!([]));
    let more =
        json!({ "id": "more", "fixed": { "rate_bytes_per_s": 2 * RESERVED, "end": in_an_hour() } });
    let (status, refused) = gateway.ask("POST", "", &more);
    assert_eq!(
        (status, &refused["rate_bytes_per_s_most"]),
        (409, &json!(9_500_000 - 2 * RESERVED)),
        "{refused}"
    );

    let (_sink, counted, ready) = Running::start(&mut world.script("far", SINK, &[]));
    assert_eq!(ready, "ready\n");
    let port = gateway.address.rsplit(':').next().unwrap();
    let sender = world
        .script("gw", SENDER, &[port, &gateway.token])
        .spawn()
        .unwrap();
    let _sender = Running(sender);
    let mut spans = counted.lines().take(SPANS_MAX).map(|line| {
        let rates: Value = serde_json::from_str(&line.unwrap()).unwrap();
        println!("{rates}");
        ["6000", "6001", "7000"].map(|port| rates[port].as_f64().unwrap())
    });
    // Each of ten streams would have a tenth, a million, if nothing were reserved. The others have
    // what is left.
    let is_had = |[flow, stream, others]: [f64; 3]| {
        flow.min(stream) > 0.85 * RESERVED as f64 && others > 1_000_000.0
    };
    assert!(spans.any(is_had), "{}", world.tc("class"));

    let Gateway { mut running, .. } = gateway;
    running.end("-KILL");
    assert!(
        world.tc("class").contains("7e57:1 "),
        "a killed gateway can't clean up"
    );
    let mut gateway = Gateway::start(&world);
    for id in ["flow", "stream"] {
        gateway.until_in_force(id);
    }
    assert_eq!(
        gateway.ask("DELETE", "/flow", &Value::Null),
        (204, Value::Null)
    );
    assert_eq!(gateway.ask("GET", "/flow", &Value::Null).0, 404);
    let is_gone = || !world.tc("class").contains("7e57:1 ") && !world.tc("filter").contains("u32");
    assert!(
        (0..LOOKS_MAX).any(|_| is_gone() || pause()),
        "{}",
        world.tc("class")
    );
    assert!(world.tc("class").contains("7e57:2 "), "the other one stays");
    gateway.running.end("-TERM");
    assert!(
        world.tc("qdisc").contains("noqueue"),
        "the device is as it was: {}",
        world.tc("qdisc")
    );
}

#[test]
fn packets_of_an_ipv6_flow_and_of_an_ipv6_stream_leave_in_their_classes() {
    let world = World::build("six");
    let gateway = Gateway::start(&world);
    let flow = json!([{ "from": "fd77::/64", "to": "[fd77::2]:6000" }]);
    gateway.reserve("flow", &flow);
    gateway.reserve("stream", &json!([]));
    let (_sink, mut counted, ready) = Running::start(&mut world.script("far", SINK_6, &[]));
    assert_eq!(ready, "ready\n");
    let port = gateway.address.rsplit(':').next().unwrap();
    let sizes = [2_000_000, 4_000_000, 1_000_000];
    let shown = sizes.map(|size| size.to_string());
    let [flow, stream, other] = &shown;
    let arguments = [port, &gateway.token, flow, stream, other];
    must(&mut world.script("gw", SENDER_6, &arguments));
    let mut line = String::new();
    counted.read_line(&mut line).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), json!(sizes));
    // With headers and what was sent twice; nobody else sends as much as the least of them.
    for (class, size) in [
        ("7e57:1", sizes[0]),
        ("7e57:2", sizes[1]),
        ("7e57:ffff", sizes[2]),
    ] {
        let sent = world.sent(class);
        assert!(
            (size..size + 900_000).contains(&sent),
            "{class}: {sent} for {size}\n{}",
            world.tc("class")
        );
    }
    assert!(
        world.tc("filter").contains("protocol ipv6"),
        "{}",
        world.tc("filter")
    );
    assert_eq!(gateway.ask("DELETE", "/flow", &Value::Null).0, 204);
    let is_gone = || !world.tc("class").contains("7e57:1 ") && !world.tc("filter").contains("u32");
    assert!(
        (0..LOOKS_MAX).any(|_| is_gone() || pause()),
        "{}",
        world.tc("filter")
    );
}
