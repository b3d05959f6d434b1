//! `cargo xtask bench relay`: gain and cost of a gateway on a long path.

mod chain;
mod reserved;

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Context;
use posthaste_testbed::install::{self, IP, IPERF3};

use reserved::Kept;

use super::{
    figures::{self, Spread, machine},
    say,
    site::{Site, output},
    stage,
    streams::{self, Running, Stream},
};

/// Measurements of each case, and the length of one.
const RUNS: usize = 3;
const SECONDS: u64 = 15;
/// Seconds that do not count: a stream needs them to find the path's rate.
const SLOW_START_S: u64 = 4;
/// Streams of the last measurement.
const IDLE: u32 = 1000;
const BUSY: u32 = 200;

/// Script that opens streams through a port to a server of its own: some rest, some send all they
/// can. It reports when all are busy, and how many bytes have come after a while.
const CROWD: &str = "
import resource, selectors, socket, sys, time
idle, busy, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
server = socket.socket()
server.bind(('127.0.0.1', 0))
server.listen(1024)
print(server.getsockname()[1], flush=True)
port = int(sys.stdin.readline())
selector, block, kept, got = selectors.DefaultSelector(), bytes(1 << 16), [], 0
for number in range(idle + busy):
    client = socket.create_connection((address, port))
    other, _ = server.accept()
    kept += [client, other]
    if number >= idle:
        for end, event in ((client, selectors.EVENT_READ), (other, selectors.EVENT_WRITE)):
            end.setblocking(False)
            selector.register(end, event)
until = time.monotonic() + 10
while time.monotonic() < until:
    for key, event in selector.select(1):
        try:
            if event & selectors.EVENT_READ:
                got += len(key.fileobj.recv(1 << 16))
            else:
                key.fileobj.send(block)
        except BlockingIOError:
            pass
print(got, flush=True)
sys.stdin.readline()
";

/// Conditions of the two links.
struct Links {
    title: &'static str,
    first: [&'static str; 4],
    second: [&'static str; 4],
    /// Most data that the access carries, in Mbit/s, if the streams are to be compared with that:
    /// full frames are 1538 bytes with Ethernet's framing, and 1448 of them data.
    access_mbit: Option<f64>,
}

/// Pairs of links. Each also sets its queue: the bytes of a round trip, and at least 100 packets.
/// The queue of an access holds 50 ms, as home routers do.
const PATHS: [Links; 4] = [
    Links {
        title: "30 ms and 0.05 % loss on both segments",
        first: ["rate=1Gbit/s", "delay=15ms", "loss=0.05%", "queue=3.75MB"],
        second: ["rate=1Gbit/s", "delay=15ms", "loss=0.05%", "queue=3.75MB"],
        access_mbit: None,
    },
    Links {
        title: "1 ms without loss, then 60 ms and 0.1 % loss",
        first: ["rate=1Gbit/s", "delay=0.5ms", "loss=0%", "queue=0.15MB"],
        second: ["rate=1Gbit/s", "delay=30ms", "loss=0.1%", "queue=7.5MB"],
        access_mbit: None,
    },
    Links {
        title: "An access of 250 Mbit/s, then 60 ms of 250 Mbit/s reserved: without loss",
        first: ["rate=250Mbit/s", "delay=0.5ms", "loss=0%", "queue=1.5625MB"],
        second: ["rate=250Mbit/s", "delay=30ms", "loss=0%", "queue=1.875MB"],
        access_mbit: Some(250.0 * 1448.0 / 1538.0),
    },
    Links {
        title: "1 ms without loss on both",
        first: ["rate=1Gbit/s", "delay=0.5ms", "loss=0%", "queue=0.15MB"],
        second: ["rate=1Gbit/s", "delay=0.5ms", "loss=0%", "queue=0.15MB"],
        access_mbit: None,
    },
];

/// Route of a stream from end to end.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Way {
    title: &'static str,
    /// Congestion control of the ends.
    ends: &'static str,
    /// Congestion control of the gateway, if the stream goes through it.
    gateway: Option<&'static str>,
}

const WAYS: [Way; 5] = [
    Way {
        title: "direct, CUBIC",
        ends: "cubic",
        gateway: None,
    },
    Way {
        title: "gateway with CUBIC",
        ends: "cubic",
        gateway: Some("cubic"),
    },
    Way {
        title: "gateway with BBR",
        ends: "cubic",
        gateway: Some("bbr"),
    },
    Way {
        title: "direct, BBR at the ends",
        ends: "bbr",
        gateway: None,
    },
    Way {
        title: "gateway with BBR, BBR at the ends",
        ends: "bbr",
        gateway: Some("bbr"),
    },
];

struct Sample {
    mbit_per_s: f64,
    /// Busy share of a core, the gateway alone.
    gateway: f64,
}

/// Runs the benchmark; `--runs N` and `--seconds N` make it shorter or longer. `section NAME`
/// measures one section of the page alone and prints it: `1` and so on for a pair of links,
/// `chain`, or `reserved`.
///
/// # Errors
/// Fails if the laboratory can't be built, or a program fails in it.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let (chosen, options) = match arguments {
        [word, name, rest @ ..] if word == "section" => (Some(name.as_str()), rest),
        all => (None, all),
    };
    let (runs, seconds) = figures::runs_and_seconds(options, (RUNS, SECONDS))?;
    for program in [IP, IPERF3] {
        install::ensure_debian_program(program)?;
    }
    let posthaste = stage::build("posthaste-cli", "posthaste")?;
    if let Some(name) = chosen {
        let section = measure_section(name, &posthaste, runs, seconds)?;
        std::io::stdout().write_all(section.as_bytes())?;
        return Ok(());
    }
    let samples = measure_over(&posthaste, &PATHS, runs, seconds)?;
    let chained = chain::measure(&posthaste, runs, seconds).context("the chain")?;
    let reserved = measure_reserved(&posthaste, runs, seconds)?;
    let crowd = crowd(&posthaste)?;
    let mut text = report(&samples, &crowd, runs, seconds)?;
    text.push_str(&chained);
    text.push_str(&reserved);
    super::publish("relay", &text)
}

fn measure_section(
    name: &str,
    posthaste: &Path,
    runs: usize,
    seconds: u64,
) -> anyhow::Result<String> {
    match name {
        "chain" => chain::measure(posthaste, runs, seconds),
        "reserved" => measure_reserved(posthaste, runs, seconds),
        number => {
            let links = links(number)?;
            let samples = measure_over(posthaste, std::slice::from_ref(links), runs, seconds)?;
            Ok(section(links, &samples))
        }
    }
}

fn measure_reserved(posthaste: &Path, runs: usize, seconds: u64) -> anyhow::Result<String> {
    let mut kept = Vec::new();
    for turn in 1..=runs {
        let run = reserved::measure(posthaste, seconds).context("the reserved stream")?;
        say(&format!("reserved, {turn}/{runs}: {run:?}"));
        kept.push(run);
    }
    Ok(of_reserved(&kept))
}

/// Returns the pair of links of this number, from one.
fn links(number: &str) -> anyhow::Result<&'static Links> {
    let place = number.parse::<usize>().ok();
    let place = place.and_then(|number| number.checked_sub(1));
    place.and_then(|place| PATHS.get(place)).with_context(|| {
        format!(
            "there are links 1 to {}, `chain` and `reserved`, not `{number}`",
            PATHS.len()
        )
    })
}

/// Sends over each pair of links on every route, so many times. No other laboratory runs meanwhile:
/// they would slow each other down.
fn measure_over(
    posthaste: &Path,
    paths: &[Links],
    runs: usize,
    seconds: u64,
) -> anyhow::Result<Vec<Vec<Sample>>> {
    let site = Site::start("two-segments")?;
    let mut samples: Vec<Vec<Sample>> = Vec::new();
    samples.resize_with(paths.len() * WAYS.len(), Vec::new);
    for turn in 1..=runs {
        for (at, path) in paths.iter().enumerate() {
            site.change("first", &path.first)?;
            site.change("second", &path.second)?;
            for (number, way) in WAYS.iter().enumerate() {
                let sample = measure(&site, posthaste, *way, seconds).context(way.title)?;
                say(&format!(
                    "{}, {} {turn}/{runs}: {:.0} Mbit/s, {:.2} of a core",
                    path.title, way.title, sample.mbit_per_s, sample.gateway
                ));
                samples[at * WAYS.len() + number].push(sample);
            }
        }
    }
    Ok(samples)
}

fn measure(site: &Site, posthaste: &Path, way: Way, seconds: u64) -> anyhow::Result<Sample> {
    let between = way
        .gateway
        .map(|congestion| streams::gateway(site, posthaste, "middle", "far", congestion));
    let between = between.transpose()?;
    let stream = Stream {
        from: "near",
        to: if between.is_some() { "middle" } else { "far" },
        server: "far",
        congestion: Some(way.ends),
        count: 1,
        skip_s: SLOW_START_S,
        seconds,
    };
    let mbit_per_s = stream.mbit_per_s(site)?;
    let spent_s = between.as_ref().map_or(Ok(0.0), Running::cpu_s)?;
    Ok(Sample {
        mbit_per_s,
        gateway: spent_s / Duration::from_secs(SLOW_START_S + seconds).as_secs_f64(),
    })
}

/// A gateway with many streams.
struct Crowd {
    peak_mib: u64,
    mbit_per_s: f64,
}

fn crowd(posthaste: &Path) -> anyhow::Result<Crowd> {
    let python = install::ensure_python()?;
    let mut script = Command::new(python);
    script.args([
        "-c",
        CROWD,
        &IDLE.to_string(),
        &BUSY.to_string(),
        "127.0.0.1",
    ]);
    script.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut script = Running(script.spawn()?);
    let mut said = BufReader::new(script.0.stdout.take().context("its output is kept")?).lines();
    let mut next = || {
        said.next()
            .context("the crowd ended")?
            .context("the crowd broke")
    };
    let port = next()?;
    let mut command = Command::new(posthaste);
    command.args([
        "gateway",
        "--json",
        "--listen",
        "127.0.0.1:0",
        "--streams",
        "2000",
    ]);
    command
        .arg("--dir")
        .arg(stage::target_folder()?.join("bench-relay"));
    command
        .arg("--forward")
        .arg(format!("127.0.0.1:0=127.0.0.1:{port}"));
    let mut gateway = Running(command.stdout(Stdio::piped()).spawn()?);
    let ready = gateway.first_line()?;
    let (_, rest) = ready
        .split_once("\"forwards\":[\"127.0.0.1:")
        .with_context(|| format!("no port in {ready}"))?;
    let own = rest.split('"').next().unwrap_or_default();
    let input = script.0.stdin.as_mut().context("its input is kept")?;
    writeln!(input, "{own}")?;
    let got: f64 = next()?.parse()?;
    let peak_mib = super::measure::peak_mib(gateway.0.id()).context("no memory of the gateway")?;
    Ok(Crowd {
        peak_mib,
        mbit_per_s: got * 8.0 / 10.0 / 1e6,
    })
}

fn report(
    samples: &[Vec<Sample>],
    crowd: &Crowd,
    runs: usize,
    seconds: u64,
) -> anyhow::Result<String> {
    let mut text = format!(
        "# What a gateway is worth\n\n\
         Written by `cargo xtask bench relay`; run it to get your machine's figures. One `iperf3` stream from end to end \
         over two links of 1 Gbit/s if nothing else is said, `two-segments` of the laboratory: the ends have windows of 4 MiB at most. {seconds} s \
         after {SLOW_START_S} s that do not count, medians of {runs}, ranges in parentheses; ratios are to the direct stream \
         with CUBIC on the same links. The gateway's share of a core is that of its process: with everything else on \
         this machine beside it.\n\n"
    );
    text.push_str(&machine(super::site::memory()));
    let version = output(Command::new(install::find_debian_program(IPERF3)?).arg("--version"))?;
    let _ = writeln!(text, "- {}", version.lines().next().unwrap_or("iperf3"));
    for (path, of_path) in PATHS.iter().zip(samples.chunks(WAYS.len())) {
        text.push_str(&section(path, of_path));
    }
    text.push_str(
        "\nA gateway buys nothing where the path is clean, or where the ends have BBR and windows to match: there the mind \
         leaves it for the straight way ([the rule](../algorithms/ways.md); `scenarios/ways.toml` and \
         `crates/cli/tests/all/ways.rs` show that it does).\n",
    );
    let _ = write!(
        text,
        "\n## Many streams\n\n{IDLE} streams that rest and {BUSY} that carry all they can, on loopback: {} MiB of memory at most, \
         {:.0} Mbit/s together.\n",
        crowd.peak_mib, crowd.mbit_per_s
    );
    Ok(text)
}

/// Returns the results of one pair of links.
fn section(path: &Links, of_path: &[Vec<Sample>]) -> String {
    let direct = Spread::of(&of_path[0], |sample| sample.mbit_per_s).median;
    let mut text = format!(
        "\n## {}\n\n| way | Mbit/s | of the direct stream | gateway, of a core |\n|---|---|---|---|\n",
        path.title
    );
    for (way, samples) in WAYS.iter().zip(of_path) {
        let rate = Spread::of(samples, |sample| sample.mbit_per_s);
        let core = way.gateway.map_or_else(String::new, |_| {
            Spread::of(samples, |sample| sample.gateway).to_string()
        });
        let _ = writeln!(
            text,
            "| {} | {:.0} ({:.0}-{:.0}) | {:.2} | {core} |",
            way.title,
            rate.median,
            rate.least,
            rate.most,
            rate.median / direct
        );
    }
    if let Some(access) = path.access_mbit {
        let _ = writeln!(text, "\n{}", of_access(access, of_path));
    }
    text
}

/// Returns each route's share of the access's rate.
fn of_access(access_mbit: f64, of_path: &[Vec<Sample>]) -> String {
    let shares = WAYS.iter().zip(of_path).map(|(way, samples)| {
        let rate = Spread::of(samples, |sample| sample.mbit_per_s);
        format!("{} {:.1} %", way.title, rate.median / access_mbit * 100.0)
    });
    let shares: Vec<String> = shares.collect();
    format!(
        "Of the {access_mbit:.0} Mbit/s of data that the access carries at most: {}. Where more is reserved, the window of the far \
         end bounds it: 4 MiB of memory hold about 2.6 MiB of data, 355 Mbit/s over 60 ms, whatever the gateway does.",
        shares.join("; ")
    )
}

fn of_reserved(runs: &[Kept]) -> String {
    let spread = |figure: fn(&Kept) -> f64| Spread::of(runs, figure);
    let (kept, data) = (spread(Kept::share), spread(|run| run.data));
    let (others, after) = (spread(|run| run.others), spread(|run| run.others_after));
    let back = spread(|run| run.back_s);
    format!(
        "\n## A reserved rate\n\n{} Mbit/s of a link of {} reserved at a gateway for one stream through it, beside {} streams of others \
         that send all they can on the same link; then the stream ends and its reservation is released. The kernel counts {} bytes for \
         each {} of data.\n\n\
         | | |\n|---|---|\n\
         | the stream kept, of what was reserved for it | {:.3} ({:.3}-{:.3}) |\n\
         | data alone, without headers | {:.3} ({:.3}-{:.3}) |\n\
         | the others had meanwhile | {:.0} Mbit/s |\n\
         | the others had afterwards | {:.0} Mbit/s |\n\
         | 95 % of that from | {:.1} s ({:.1}-{:.1}) after its end |\n",
        reserved::RESERVED_MBIT,
        reserved::LINK_MBIT,
        reserved::COMPETITORS,
        reserved::FRAME_BYTES,
        reserved::DATA_BYTES,
        kept.median,
        kept.least,
        kept.most,
        data.median,
        data.least,
        data.most,
        others.median,
        after.median,
        back.median,
        back.least,
        back.most,
    )
}
