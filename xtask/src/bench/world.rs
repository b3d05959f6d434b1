//! `cargo xtask bench world`: cost of the simulated world, alone and with the mind.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, bail};

use super::{figures, measure, publish, say, stage};
use crate::root;

/// Longest time of a world; a slower one has lost.
const LONGEST: Duration = Duration::from_secs(1800);

/// Measurements of each world. The fastest counts, as other work on the machine only slows it down.
const RUNS: usize = 3;

/// A world to play.
struct Case {
    title: &'static str,
    what: &'static str,
    scenario: String,
    /// Number of events after which it ends, or `mind`.
    until: &'static str,
}

/// Runs the benchmark. `--whole` also plays the scenario `scale` to its end with the mind, which
/// takes minutes.
///
/// # Errors
/// Fails if it can't be built or a world fails.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let is_whole = match arguments {
        [] => false,
        [option] if option == "--whole" => true,
        [..] => bail!("write `cargo xtask bench world [--whole]`"),
    };
    let program = build()?;
    let folder = stage::Folder::new(&std::env::temp_dir())?;
    let mut rows = String::new();
    for case in cases(is_whole)? {
        say(case.title);
        let row = measure_case(&case, &program, folder.path())?;
        say(row.trim_end());
        rows.push_str(&row);
    }
    publish("world", &report(&rows, folder.path()))
}

fn build() -> anyhow::Result<PathBuf> {
    stage::build_example("posthaste-sim", "world")
}

fn cases(is_whole: bool) -> anyhow::Result<Vec<Case>> {
    let scale = fs::read_to_string(root().join("scenarios/scale.toml"))?;
    let tenth = scale
        .replace("count = 100000", "count = 10000")
        .replace("at_s = [0, 100000]", "at_s = [0, 10000]");
    if tenth == scale {
        bail!("scenarios/scale.toml has other requests than this benchmark knows");
    }
    let mut cases = vec![
        Case {
            title: "ample",
            what: "every depot behind its own path, rates that stray each second",
            scenario: world("", &depots("edge", 1000, "jitter_permille = 100"), QUEUES),
            until: "5000000",
        },
        Case {
            title: "campuses",
            what: "20 links that 50 depots share each, rates that stray each second",
            scenario: world("", &campuses(), QUEUES),
            until: "5000000",
        },
        Case {
            title: "narrow",
            what: "one way out for all, long queues, rates that stray each second",
            scenario: world(
                "egress_mib_per_s = 10000",
                &depots("edge", 1000, "jitter_permille = 100"),
                QUEUES,
            ),
            until: "5000000",
        },
        Case {
            title: "narrow, no queues",
            what: "one way out for all, filled, and every fragment the last of its queue",
            scenario: world(
                "egress_mib_per_s = 1000",
                &depots("edge", 1000, ""),
                SINGLES,
            ),
            until: "5000000",
        },
        Case {
            title: "`scale`",
            what: "the whole scenario: failures, two states, 100,000 requests",
            scenario: scale.clone(),
            until: "100000000",
        },
        Case {
            title: "`scale`, a tenth, with the mind",
            what: "the first 10,000 requests at the same pace; mind, driver and checkers",
            scenario: tenth,
            until: "mind",
        },
    ];
    if is_whole {
        cases.push(Case {
            title: "`scale` with the mind",
            what: "all of it; mind, driver and checkers",
            scenario: scale,
            until: "mind",
        });
    }
    Ok(cases)
}

/// Requests of many fragments: every depot has a queue all the time.
const QUEUES: &str = "count = 8000\nsize_mib = 64\nchunk_mib = 1\ncode = \"4+2\"\nvia_count = 6\n";
/// Requests of one fragment each, as many as the egress carries.
const SINGLES: &str =
    "count = 100000\nat_s = [0, 95]\nsize_mib = 1\nchunk_mib = 1\ncode = \"1+0\"\nvia_count = 1\n";

fn world(centre: &str, depots: &str, requests: &str) -> String {
    format!(
        "name = \"bench\"\nsummary = \"A world to play.\"\nhorizon_s = 1000000\n{centre}\n{depots}\n\
         [[request]]\ndeadline_s = 600\n{requests}"
    )
}

fn depots(name: &str, count: u32, more: &str) -> String {
    format!(
        "[[depot]]\nname = \"{name}\"\ncount = {count}\nrate_mib_per_s = [20, 100]\n\
         latency_ms = [2, 80]\ncapacity_mib = 2000000\n{more}\n"
    )
}

fn campuses() -> String {
    let campus = |number: u32| {
        let depots = depots(&format!("edge{number}"), 50, "jitter_permille = 100");
        format!(
            "[[link]]\nname = \"campus-{number}\"\ndepots = [\"edge{number}\"]\n\
             rate_mib_per_s = 500\n{depots}"
        )
    };
    (0..20).map(campus).collect()
}

/// Plays a world some times and returns its row.
fn measure_case(case: &Case, program: &Path, folder: &Path) -> anyhow::Result<String> {
    let scenario = folder.join("world.toml");
    fs::write(&scenario, &case.scenario)?;
    let said = folder.join("said.txt");
    let mut best: Option<(f64, u64)> = None;
    let mut text = String::new();
    let runs = if case.until == "mind" { 1 } else { RUNS };
    for _ in 0..runs {
        let mut command = Command::new(program);
        command
            .arg(&scenario)
            .arg(case.until)
            .stdout(fs::File::create(&said)?);
        let sample = measure::run_within(&mut command, LONGEST)?;
        text = fs::read_to_string(&said)?;
        if best.is_none_or(|(cpu_s, _)| sample.cpu_s < cpu_s) {
            best = Some((sample.cpu_s, sample.peak_mib));
        }
    }
    let (cpu_s, peak_mib) = best.context("measured at least once")?;
    let figure = |name: &str| -> anyhow::Result<u64> {
        let mut words = text.split_whitespace();
        let value = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value
            .with_context(|| format!("no {name} in: {text}"))?
            .parse()
            .context("a number")
    };
    let (events, span) = (figure("events")?, figure("span")?);
    if case.until == "mind" && figure("violations")? > 0 {
        bail!("a checker objects: {text}");
    }
    let mut row = String::new();
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let rate = events as f64 / cpu_s / 1e6;
    writeln!(
        row,
        "| {} | {} | {events} | {span} | {cpu_s:.2} | {rate:.3} | {peak_mib} |",
        case.title, case.what
    )?;
    Ok(row)
}

fn report(rows: &str, folder: &Path) -> String {
    format!(
        "# The simulated world\n\n\
         Written by `cargo xtask bench world`; `--whole` adds the scenario `scale` with the mind, to its \
         end. A thousand depots each, one core, release build. An event is an arrival, a change of a \
         rate, a fault, or something a driver is told; with the mind, a step of the mind. Processor time \
         is the least of {RUNS} runs (of one, with the mind) and includes building the world and drawing \
         all requests. Without the mind everything is sent at once, queues are as long as they come, and \
         nothing is checked.\n\n{}\n\
         | world | what | events | virtual s | CPU s | 10^6 events a second | peak MiB |\n\
         |---|---|---|---|---|---|---|\n{rows}\n\
         The goal is 10^6 events a second. A world is slower where one narrow resource is shared by all \
         and queues empty all the time: then each event changes the share of every flow that moves, and \
         when it arrives (`docs/algorithms/simulated-network.md`). With the mind, the mind is what takes \
         the time.\n",
        figures::machine(folder)
    )
}
