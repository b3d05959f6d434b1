//! Short topologies, and results of ping and iperf3.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use posthaste_lab::{Lab, Topology};
use posthaste_testbed::install::{self, IPERF3, PING};
use serde_json::Value;

/// The executable under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_posthaste-lab");

/// Interval between two checks whether something happened, and most checks: two minutes.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);
pub const LOOKS_MAX: u32 = 6_000;

/// Measurements until a rate counts as wrong.
const MEASURED_MAX: u32 = 20;

/// Pause until a rejected client tries again.
const TURNED_AWAY_FOR: Duration = Duration::from_millis(500);

/// Ports of iperf3, each for one client: each host has its own ports.
pub const PORT: u16 = 5201;
pub const OTHER_PORT: u16 = 5202;

/// Returns two hosts, `a` and `b`, joined by `ab`, with these lines about it.
pub fn pair(link: &str) -> Lab {
    let sysctl = "{ \"net.ipv4.tcp_congestion_control\" = \"cubic\" }";
    build(&format!(
        "name = \"test\"\n\
         host = [{{ name = \"a\", sysctl = {sysctl} }}, {{ name = \"b\", sysctl = {sysctl} }}]\n\
         [[link]]\nname = \"ab\"\nends = [\"a\", \"b\"]\n{link}"
    ))
}

pub fn build(topology: &str) -> Lab {
    Lab::up(&Topology::parse(topology).unwrap()).unwrap()
}

/// Returns round trips in milliseconds, sorted.
pub fn ping(lab: &Lab, from: &str, to: &str, count: usize) -> Vec<f64> {
    let program = install::find_debian_program(PING).unwrap();
    let output = lab
        .command(from, program)
        .args(["-n", "-i", "0.1", "-W", "20", "-c", &count.to_string(), to])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let times = text
        .lines()
        .filter_map(|line| line.split_once("time=")?.1.strip_suffix(" ms"));
    let mut times: Vec<f64> = times.map(|time| time.parse().unwrap()).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Measures until `is_right`. A busy machine lowers any rate, and data held back before a
/// measurement arrives in it at once. Both happen now and then, but a wrong rate is always wrong.
pub fn measure_until<T: std::fmt::Debug>(
    is_right: impl Fn(&T) -> bool,
    mut measure: impl FnMut() -> T,
) {
    let mut measured = Vec::new();
    for _ in 0..MEASURED_MAX {
        let one = measure();
        if is_right(&one) {
            return;
        }
        measured.push(one);
    }
    panic!("measured {measured:?}");
}

/// Returns whether a socket listens on a port in the network of a process. A connection would show
/// it as well, but iperf3 rejects other clients while it examines that one.
fn listens(process: u32, port: u16) -> bool {
    ["tcp", "tcp6"].iter().any(|table| {
        let text = fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
        let own = format!(":{port:04X} ");
        // State LISTEN.
        text.lines()
            .any(|line| line.contains(&own) && line.contains(" 0A "))
    })
}

/// An iperf3 server that ends with its owner.
pub struct Server(Child);

impl Server {
    pub fn start(lab: &Lab, host: &str, port: u16) -> Self {
        let child = lab
            .command(host, install::find_debian_program(IPERF3).unwrap())
            .args(["--server", "--port", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self(child);
        for _ in 0..LOOKS_MAX {
            if listens(server.0.id(), port) {
                return server;
            }
            thread::sleep(LOOK_EVERY);
        }
        panic!("iperf3 does not listen on {host}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the command for a client on `to` that receives from a server on `from`, to which
/// arguments may be added.
pub fn iperf3(lab: &Lab, (from, port): (&str, u16), to: &str) -> Command {
    let mut command = lab.command(to, install::find_debian_program(IPERF3).unwrap());
    command.args(["--json", "--interval", "0.5", "--reverse"]);
    command.args(["--port", &port.to_string(), "--client", from]);
    command.stdout(Stdio::piped());
    command
}

/// Data received by a client, in Mbit/s of payload.
#[derive(Debug, Default)]
pub struct Received {
    /// Mean from the first byte that counts to the last.
    pub mean: f64,
    /// Rate in each half second.
    pub halves: Vec<f64>,
}

impl Received {
    /// Returns the received data once the client has ended; none if the server rejected it, as it
    /// does before it is done with the last client.
    pub fn of(client: Child) -> Self {
        let output = client.wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let Some(bits) = report["end"]["sum_received"]["bits_per_second"].as_f64() else {
            eprintln!("{}", report["error"]);
            thread::sleep(TURNED_AWAY_FOR);
            return Self::default();
        };
        let halves = report["intervals"].as_array().into_iter().flatten();
        let halves = halves.map(|half| &half["sum"]);
        let halves = halves.filter(|half| half["omitted"] == false);
        let rates = halves.filter_map(|half| half["bits_per_second"].as_f64());
        Self {
            mean: bits / 1e6,
            halves: rates.map(|bits| bits / 1e6).collect(),
        }
    }

    /// Returns whether it reached the lower rate in its best time, and stayed below the upper one
    /// overall. A flow that stands still for a while gives its share to the others.
    pub fn is_within(&self, lower: f64, upper: f64) -> bool {
        self.halves.iter().any(|rate| *rate > lower) && self.mean < upper
    }
}
