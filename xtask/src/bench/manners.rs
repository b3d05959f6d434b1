//! `cargo xtask bench manners`: effect of an offload on others on its path, and of one that gives
//! way.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use posthaste_testbed::install::{self, IP, IPERF3};

use super::{
    figures::{Spread, machine, runs_and_seconds},
    say,
    site::{Site, figure, memory, output},
    stage,
    streams::{Running, Stream},
};

/// Measurements of each case, and the length of one.
const RUNS: usize = 3;
const SECONDS: u64 = 12;
/// Time before anything counts: both sides have found their pace.
const SETTLES: Duration = Duration::from_secs(10);
/// Seconds of a stream that do not count.
const SLOW_START_S: u64 = 6;
/// Conditions of the path: its queue holds 80 ms.
const PATH: [&str; 3] = ["rate=200Mbit/s", "delay=10ms", "queue=2MB"];
/// Bytes of the offload: more than the path carries in the longest run.
const BYTES: u64 = 1500 << 20;

/// Script that asks for a short answer fifty times a second, as somebody at a terminal does. It
/// prints the median and the p95 of the answer times in milliseconds.
const ASKS: &str = "
import socket, sys, time
if sys.argv[1] == 'answer':
    server = socket.create_server(('0.0.0.0', 5300))
    print('ready', flush=True)
    end, _ = server.accept()
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while question := end.recv(64):
        end.sendall(question)
else:
    end = socket.create_connection((sys.argv[2], 5300))
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    took, until = [], time.monotonic() + float(sys.argv[3])
    while (begin := time.monotonic()) < until:
        end.sendall(b'x')
        end.recv(64)
        took.append(time.monotonic() - begin)
        time.sleep(max(0, begin + 0.02 - time.monotonic()))
    took.sort()
    print('{\"half\": %.6f, \"most\": %.6f}' % (1e3 * took[len(took) // 2], 1e3 * took[len(took) * 19 // 20]))
";

/// Offload that runs beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Offload,
    /// An offload with `--priority low`.
    Humble,
}

const CASES: [(Beside, &str); 3] = [
    (Beside::Nothing, "nothing"),
    (Beside::Offload, "an offload"),
    (Beside::Humble, "an offload that gives way"),
];

/// Rates in Mbit/s, times in ms.
#[derive(Debug)]
struct Sample {
    half_ms: f64,
    most_ms: f64,
    offload_beside_asks: f64,
    stream: f64,
    offload_beside_stream: f64,
}

/// Runs the benchmark; `--runs N` and `--seconds N` make it shorter or longer.
///
/// # Errors
/// Fails if the laboratory can't be built, or a program fails in it.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let (runs, seconds) = runs_and_seconds(arguments, (RUNS, SECONDS))?;
    for program in [IP, IPERF3] {
        install::ensure_debian_program(program)?;
    }
    let bench = Bench {
        posthaste: stage::build("posthaste-cli", "posthaste")?,
        python: install::ensure_python()?,
        site: Site::start("wan-60ms")?,
        seconds,
    };
    bench.site.change("wan", &PATH)?;
    let mut samples: [Vec<Sample>; 3] = Default::default();
    for turn in 1..=runs {
        for ((beside, title), samples) in CASES.iter().zip(&mut samples) {
            let sample = bench.measure(*beside).context(*title)?;
            say(&format!("{title} {turn}/{runs}: {sample:?}"));
            samples.push(sample);
        }
    }
    super::publish("manners", &report(&samples, runs, seconds)?)
}

struct Bench {
    posthaste: std::path::PathBuf,
    python: std::path::PathBuf,
    site: Site,
    seconds: u64,
}

/// A running offload; ends with its owner.
struct Offload {
    _relay: Running,
    _service: Running,
    folder: stage::Folder,
}

impl Bench {
    fn measure(&self, beside: Beside) -> anyhow::Result<Sample> {
        let offload = match beside {
            Beside::Nothing => None,
            Beside::Offload => Some(self.offload("normal")?),
            Beside::Humble => Some(self.offload("low")?),
        };
        if offload.is_some() {
            thread::sleep(SETTLES);
        }
        let stream = Stream {
            from: "near",
            to: "far",
            server: "far",
            congestion: Some("cubic"),
            count: 1,
            skip_s: SLOW_START_S,
            seconds: self.seconds,
        };
        let offload = offload.as_ref();
        let ((half_ms, most_ms), offload_beside_asks) = beside_offload(offload, || self.asks())?;
        let beside = beside_offload(offload, || stream.mbit_per_s(&self.site))?;
        Ok(Sample {
            half_ms,
            most_ms,
            offload_beside_asks,
            stream: beside.0,
            offload_beside_stream: beside.1,
        })
    }

    /// Returns the median and the p95 of the answer times, in ms.
    fn asks(&self) -> anyhow::Result<(f64, f64)> {
        let mut answers = self.site.command("far", &self.python);
        answers.args(["-c", ASKS, "answer"]).stdout(Stdio::piped());
        let mut answers = Running(answers.spawn()?);
        answers.first_line()?;
        let mut asks = self.site.command("near", &self.python);
        asks.args(["-c", ASKS, "ask", "far", &self.seconds.to_string()]);
        let said = output(&mut asks)?;
        Ok((figure(&said, &["half"])?, figure(&said, &["most"])?))
    }

    /// Starts a relay on the far host, a service on the near one, and an offload between them.
    fn offload(&self, priority: &str) -> anyhow::Result<Offload> {
        let folder = stage::Folder::new(memory())?;
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("results"))?;
        fs::write(path("results/data"), noise())?;
        let mut relay = self.site.command("far", &self.posthaste);
        relay.args([
            "relay",
            "--json",
            "--no-flush",
            "--capacity",
            "8G",
            "--listen",
        ]);
        relay.arg("0.0.0.0:7421").arg("--dir").arg(path("relay"));
        let mut relay = Running(relay.stdout(Stdio::piped()).spawn()?);
        let ready = relay.first_line().context("the relay")?;
        let mut service = self.site.command("near", &self.posthaste);
        service
            .args(["serve", "--json", "--state"])
            .arg(path("service"));
        service.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut service = Running(service.spawn()?);
        service.first_line().context("the service")?;
        let client = |words: &[&str]| {
            let mut command = self.site.command("near", &self.posthaste);
            command
                .args(words)
                .arg("--token-file")
                .arg(path("service/token"));
            output(&mut command)
        };
        let (fingerprint, secret) = (word(&ready, "fingerprint")?, word(&ready, "secret_file")?);
        client(&[
            "depot",
            "add",
            "far",
            "https://far:7421",
            "--fingerprint",
            fingerprint,
            "--secret-file",
            secret,
        ])?;
        let results = path("results").display().to_string();
        client(&[
            "offload",
            &results,
            "--to",
            "home",
            "--via",
            "far",
            "--code",
            "1+0",
            "--deadline",
            "12h",
            "--priority",
            priority,
        ])?;
        Ok(Offload {
            _relay: relay,
            _service: service,
            folder,
        })
    }
}

/// Returns the text behind a key in the ready line of a program.
fn word<'a>(ready: &'a str, key: &str) -> anyhow::Result<&'a str> {
    let rest = ready.split_once(&format!("\"{key}\":\""));
    let word = rest.and_then(|(_, rest)| rest.split('"').next());
    word.with_context(|| format!("no {key} in {ready}"))
}

/// Returns bytes that do not compress.
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(usize::try_from(BYTES).unwrap_or(0));
    while (bytes.len() as u64) < BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// Returns the bytes that have arrived at the relay.
fn arrived(offload: Option<&Offload>) -> anyhow::Result<u64> {
    offload.map_or(Ok(0), |offload| below(&offload.folder.path().join("relay")))
}

/// Returns the bytes of all files below a folder; files that vanish meanwhile do not count.
fn below(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(facts) = entry.metadata() else {
            continue;
        };
        bytes += if facts.is_dir() {
            below(&entry.path())?
        } else {
            facts.len()
        };
    }
    Ok(bytes)
}

/// Returns the result of a measurement, and the rate of the offload during it, in Mbit/s.
#[expect(clippy::cast_precision_loss, reason = "bytes of a few seconds")]
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn beside_offload<T>(
    offload: Option<&Offload>,
    runs: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, f64)> {
    let (begun, before) = (Instant::now(), arrived(offload)?);
    let said = runs()?;
    let bytes = arrived(offload)?.saturating_sub(before);
    Ok((
        said,
        bytes as f64 * 8.0 / begun.elapsed().as_secs_f64() / 1e6,
    ))
}

fn report(samples: &[Vec<Sample>; 3], runs: usize, seconds: u64) -> anyhow::Result<String> {
    let mut text = format!(
        "# What others feel\n\n\
         Written by `cargo xtask bench manners`; run it to get your machine's figures. A path of 200 Mbit/s and 20 ms there and back \
         with a queue of 80 ms, in the laboratory, and on it an offload to one depot: an ordinary one, and one with `--priority low`, \
         which gives way (marked as of lower effort, which this path does not look at, and paced by what it sees itself). First somebody \
         at a terminal asks for a short answer fifty times a second; then one `iperf3` stream with CUBIC sends all it can, \
         {SLOW_START_S} s that do not count before it. {seconds} s each, medians of {runs}, ranges in parentheses.\n\n"
    );
    text.push_str(&machine(memory()));
    text.push_str(
        "\n| beside | half of the answers within, ms | 19 of 20 within, ms | the offload meanwhile, Mbit/s | the stream, Mbit/s | the \
         offload meanwhile, Mbit/s |\n|---|---|---|---|---|---|\n",
    );
    for ((beside, title), samples) in CASES.iter().zip(samples) {
        let of = |figure: fn(&Sample) -> f64| {
            let spread = Spread::of(samples, figure);
            format!(
                "{:.1} ({:.1}-{:.1})",
                spread.median, spread.least, spread.most
            )
        };
        let own = |figure: fn(&Sample) -> f64| match beside {
            Beside::Nothing => String::new(),
            Beside::Offload | Beside::Humble => of(figure),
        };
        let _ = writeln!(
            text,
            "| {title} | {} | {} | {} | {} | {} |",
            of(|sample| sample.half_ms),
            of(|sample| sample.most_ms),
            own(|sample| sample.offload_beside_asks),
            of(|sample| sample.stream),
            own(|sample| sample.offload_beside_stream),
        );
    }
    Ok(text)
}
