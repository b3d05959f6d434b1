//! `cargo xtask bench lab`: throughput and cost of the laboratory itself.

use std::{
    fmt::Write,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};
use posthaste_testbed::install::{self, IP, IPERF3, PING};

use super::{
    figures::{self, Spread, machine},
    say,
    site::{Site, figure, output},
};

/// Measurements of each case, and the length of one.
const RUNS: usize = 3;
const SECONDS: u64 = 15;

/// Seconds that do not count: a stream needs them to find the link's rate.
const SLOW_START_S: u64 = 4;

/// Payload of a segment, and its size on the wire with headers and Ethernet's framing.
const PAYLOAD_BYTES: f64 = 1448.0;
const WIRE_BYTES: f64 = 1538.0;

/// Longest time for a server to listen.
const STARTS_WITHIN: Duration = Duration::from_millis(300);

/// Round trips measured.
const PINGS: &str = "20";

/// Way of loading the link of `wan-60ms`.
struct Case {
    title: &'static str,
    /// The rate in Mbit/s; none without limit.
    rate_mbit_per_s: Option<f64>,
    /// Change of the link before it.
    change: &'static [&'static str],
    /// Arguments of iperf3.
    iperf3: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        title: "1 Gbit/s, 60 ms, one stream, CUBIC",
        rate_mbit_per_s: Some(1000.0),
        change: &["rate=1Gbit/s", "delay=30ms", "loss=0%"],
        iperf3: &["-C", "cubic"],
    },
    Case {
        title: "the same, 8 streams",
        rate_mbit_per_s: Some(1000.0),
        change: &["loss=0%"],
        iperf3: &["-C", "cubic", "-P", "8"],
    },
    Case {
        title: "the same, one stream, BBR",
        rate_mbit_per_s: Some(1000.0),
        change: &["loss=0%"],
        iperf3: &["-C", "bbr"],
    },
    Case {
        title: "the same, 0.01 % loss, CUBIC",
        rate_mbit_per_s: Some(1000.0),
        change: &["loss=0.01%"],
        iperf3: &["-C", "cubic"],
    },
    Case {
        title: "the same, 0.01 % loss, BBR",
        rate_mbit_per_s: Some(1000.0),
        change: &["loss=0.01%"],
        iperf3: &["-C", "bbr"],
    },
    Case {
        title: "10 Gbit/s, 10 ms, 4 streams, CUBIC",
        rate_mbit_per_s: Some(10_000.0),
        change: &["rate=10Gbit/s", "delay=5ms", "loss=0%"],
        iperf3: &["-C", "cubic", "-P", "4"],
    },
    Case {
        title: "no limit, no delay, one stream",
        rate_mbit_per_s: None,
        change: &["rate=unlimited", "delay=0ms"],
        iperf3: &["-C", "cubic"],
    },
];

struct Sample {
    mbit_per_s: f64,
    /// Busy share of a core, while data flowed.
    emulator: f64,
}

/// Runs the benchmark; `--runs N` and `--seconds N` make it shorter or longer.
///
/// # Errors
/// Fails if the laboratory can't be built, or iperf3 fails in it.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let (runs, seconds) = figures::runs_and_seconds(arguments, (RUNS, SECONDS))?;
    for program in [IP, PING, IPERF3] {
        install::ensure_debian_program(program)?;
    }
    let site = Site::start("wan-60ms")?;
    let idle_ms = round_trips(&site)?;
    let mut samples: Vec<Vec<Sample>> = CASES.iter().map(|_| Vec::new()).collect();
    for turn in 1..=runs {
        for (case, samples) in CASES.iter().zip(&mut samples) {
            let sample = measure(&site, case, seconds).context(case.title)?;
            say(&format!(
                "{} {turn}/{runs}: {:.0} Mbit/s, {:.2} of a core",
                case.title, sample.mbit_per_s, sample.emulator
            ));
            samples.push(sample);
        }
    }
    super::publish("lab", &report(&site, idle_ms, &samples, runs, seconds)?)
}

/// Returns the median round trip of an idle link.
fn round_trips(site: &Site) -> anyhow::Result<Spread> {
    let ping = install::find_debian_program(PING)?;
    let text = output(
        site.command("near", ping)
            .args(["-n", "-i", "0.1", "-c", PINGS, "far"]),
    )?;
    let times = text
        .lines()
        .filter_map(|line| line.split_once("time=")?.1.strip_suffix(" ms"));
    let times: Vec<f64> = times.filter_map(|time| time.parse().ok()).collect();
    ensure!(!times.is_empty(), "no answer to ping: {text}");
    Ok(Spread::of(&times, |time| *time))
}

fn measure(site: &Site, case: &Case, seconds: u64) -> anyhow::Result<Sample> {
    site.change("wan", case.change)?;
    let iperf3 = install::find_debian_program(IPERF3)?;
    let mut server = Server(
        site.command("far", &iperf3)
            .args(["--server", "--one-off"])
            .stdout(Stdio::null())
            .spawn()?,
    );
    thread::sleep(STARTS_WITHIN);
    let mut client = site.command("near", &iperf3);
    client.args(["--json", "--client", "far", "-O", &SLOW_START_S.to_string()]);
    client.args(["-t", &seconds.to_string()]).args(case.iperf3);
    let before = site.status()?;
    let json = output(&mut client)?;
    let after = site.status()?;
    server.0.wait()?;
    let grown = |key| anyhow::Ok(figure(&after, &[key])? - figure(&before, &[key])?);
    Ok(Sample {
        mbit_per_s: figure(&json, &["end", "sum_received", "bits_per_second"])? / 1e6,
        emulator: grown("emulator_cpu_s")? / grown("uptime_s")?,
    })
}

/// A server that ends with its owner.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // One that has served has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn report(
    site: &Site,
    idle_ms: Spread,
    samples: &[Vec<Sample>],
    runs: usize,
    seconds: u64,
) -> anyhow::Result<String> {
    let mut text = format!(
        "# The laboratory's own limits\n\n\
         Written by `cargo xtask bench lab`; run it to get your machine's figures. `iperf3` between \
         two hosts of `wan-60ms`: {seconds} s after {SLOW_START_S} s that do not count, medians of \
         {runs}, ranges in parentheses. Of the limit: of what TCP's payload can get at that rate, \
         1448 of each 1538 bytes. The emulator's share of a core holds what the receiving kernel does \
         for each packet, because that happens while the emulator hands it over; `iperf3` runs on the \
         same machine beside it.\n\n"
    );
    text.push_str(&machine(super::site::memory()));
    let mut version = Command::new(install::find_debian_program(IPERF3)?);
    let version = output(version.arg("--version"))?;
    let _ = writeln!(text, "- {}", version.lines().next().unwrap_or("iperf3"));
    let memory = super::measure::peak_mib(site.process()).unwrap_or(0);
    let _ = writeln!(text, "- the emulator's memory at most: {memory} MiB");
    let _ = writeln!(text, "- round trip of 60 ms, idle: {idle_ms} ms\n");
    text.push_str("| case | Mbit/s | of the limit | emulator, of a core |\n|---|---|---|---|\n");
    for (case, samples) in CASES.iter().zip(samples) {
        let rate = Spread::of(samples, |sample| sample.mbit_per_s);
        let share = case.rate_mbit_per_s.map_or_else(String::new, |limit| {
            format!("{:.3}", rate.median / (limit * PAYLOAD_BYTES / WIRE_BYTES))
        });
        let _ = writeln!(
            text,
            "| {} | {:.0} ({:.0}-{:.0}) | {share} | {} |",
            case.title,
            rate.median,
            rate.least,
            rate.most,
            Spread::of(samples, |sample| sample.emulator)
        );
    }
    Ok(text)
}
