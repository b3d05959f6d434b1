//! Capacity of the network alone: iperf3 with itself over loopback.

use std::{
    net::TcpListener,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::Context;
use posthaste_testbed::install::{self, IPERF3};

use super::super::site::{figure, output};

/// The server listens within this time.
const STARTS_WITHIN: Duration = Duration::from_millis(500);

/// Length of the measurement, in seconds.
const SECONDS: &str = "3";

/// Returns GB of payload a second, on one connection.
///
/// # Errors
/// Fails if iperf3 is missing or fails.
pub fn measure() -> anyhow::Result<f64> {
    let program = install::ensure_debian_program(IPERF3)?;
    let listener = TcpListener::bind("127.0.0.1:0").context("find a free port")?;
    let port = listener.local_addr()?.port().to_string();
    drop(listener);
    let mut server = Command::new(&program)
        .args(["--server", "--one-off", "--port", &port])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("start iperf3")?;
    thread::sleep(STARTS_WITHIN);
    let mut client = Command::new(&program);
    client.args(["--json", "--client", "127.0.0.1", "--port", &port]);
    let said = output(client.args(["--time", SECONDS]));
    // One that has served has ended.
    let _ = server.kill();
    server.wait()?;
    let bits = figure(&said?, &["end", "sum_received", "bits_per_second"])?;
    Ok(bits / 8e9)
}
