//! Streams of `iperf3` between hosts of a laboratory, direct or through gateways.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};
use posthaste_testbed::install::{self, IPERF3};

use super::{
    site::{Site, figure, output},
    stage,
};

/// Port of `iperf3`, which gateways forward from and to.
pub const PORT: u16 = 5201;
/// Longest time for a server to listen.
const STARTS_WITHIN: Duration = Duration::from_millis(300);
/// Clock ticks of `/proc/PID/stat` in a second, on every Linux.
const TICKS_PER_S: f64 = 100.0;

/// A process that ends with its owner.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // One that has served has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Returns the first line that it prints.
    pub fn first_line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let out = self.0.stdout.as_mut().context("its output is kept")?;
        BufReader::new(out).read_line(&mut line)?;
        ensure!(!line.is_empty(), "it did not start");
        Ok(line)
    }

    /// Returns its processor time so far, in seconds.
    pub fn cpu_s(&self) -> anyhow::Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let (_, fields) = stat.rsplit_once(") ").context("a stat without a name")?;
        let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<f64>);
        Ok(ticks.sum::<Result<f64, _>>()? / TICKS_PER_S)
    }
}

/// Starts a gateway on `host` that forwards its clients to `next`: to its server, or to the gateway
/// there.
pub fn gateway(
    site: &Site,
    posthaste: &Path,
    host: &str,
    next: &str,
    congestion: &str,
) -> anyhow::Result<Running> {
    let address = address(site, host, next)?;
    let mut command = site.command(host, posthaste);
    command.args(["gateway", "--json", "--congestion", congestion]);
    command
        .arg("--dir")
        .arg(stage::target_folder()?.join("bench-relay").join(host));
    command
        .arg("--forward")
        .arg(format!("0.0.0.0:{PORT}={address}:{PORT}"));
    let mut running = Running(command.stdout(Stdio::piped()).spawn()?);
    running.first_line().context("the gateway")?;
    Ok(running)
}

/// Returns the address of a host, by another one's names file.
pub fn address(site: &Site, on: &str, host: &str) -> anyhow::Result<String> {
    let text = output(site.command(on, "getent").args(["ahostsv4", host]))?;
    let address = text.split_whitespace().next();
    Ok(address
        .with_context(|| format!("{host} has no address"))?
        .to_owned())
}

/// Stream from one host to another.
#[derive(Debug, Clone, Copy)]
pub struct Stream<'a> {
    /// The host that sends.
    pub from: &'a str,
    /// The host it connects to: that of the server, or of a gateway that leads there.
    pub to: &'a str,
    /// The host that receives.
    pub server: &'a str,
    /// The sender's congestion control, if it is not the host's.
    pub congestion: Option<&'a str>,
    /// Connections side by side.
    pub count: u32,
    /// Seconds that do not count: a stream needs them to find the path's rate.
    pub skip_s: u64,
    /// Seconds that count.
    pub seconds: u64,
}

impl Stream<'_> {
    /// Returns the received rate in Mbit/s, without headers.
    pub fn mbit_per_s(&self, site: &Site) -> anyhow::Result<f64> {
        let iperf3 = install::find_debian_program(IPERF3)?;
        let mut server = site.command(self.server, &iperf3);
        server.args(["--server", "--one-off"]).stdout(Stdio::null());
        let mut server = Running(server.spawn()?);
        thread::sleep(STARTS_WITHIN);
        let mut client = site.command(self.from, &iperf3);
        client.args(["--json", "--client", self.to]);
        client.args(["-P", &self.count.to_string()]);
        client.args(["-O", &self.skip_s.to_string()]);
        client.args(["-t", &self.seconds.to_string()]);
        if let Some(congestion) = self.congestion {
            client.args(["-C", congestion]);
        }
        let json = output(&mut client)?;
        server.0.wait()?;
        Ok(figure(&json, &["end", "sum_received", "bits_per_second"])? / 1e6)
    }
}
