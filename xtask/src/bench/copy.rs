//! `cargo xtask bench copy`: posthaste beside its rivals in one run, on this machine.
//!
//! Each measurement is a fresh process against a clean destination. The contenders take turns, so
//! that what the machine does in between meets all of them alike. Figures are medians.

mod load;
mod report;
mod sink;
mod site;
mod tool;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use posthaste_testbed::install;

use super::{
    measure::{self, Sample},
    say,
    stage::{self, Folder},
};
use crate::succeed;
use load::Load;
use site::{Place, Site};
use tool::{Run, Tool, Way};

/// Measurements of each contender.
const RUNS: usize = 3;

/// Whoever takes longer is no rival, and would make the benchmark take hours.
const LONGEST: Duration = Duration::from_secs(90);

/// The measurements of one contender in one row of the report.
#[derive(Debug)]
pub struct Row {
    /// What was copied.
    pub load: Load,
    /// Where the far end was.
    pub place: Place,
    /// Which way.
    pub way: Way,
    /// Who copied.
    pub tool: &'static str,
    /// It does less than a copy.
    pub is_limit: bool,
    /// What it took, or why there is nothing.
    pub samples: Result<Vec<Sample>, String>,
}

/// What the command line asks for.
struct Options {
    folder: PathBuf,
    runs: usize,
    places: Vec<Place>,
    loads: Vec<Load>,
}

/// Runs the benchmark. `--dir DIR` chooses the disk, `--runs N` the number of measurements;
/// `--place NAME` and `--load NAME`, which may be repeated, measure less and write no report.
///
/// # Errors
/// When it can't be prepared, or a contender copies wrongly.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let mut options = Options {
        folder: std::env::temp_dir(),
        runs: RUNS,
        places: Vec::new(),
        loads: Vec::new(),
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = words
            .next()
            .with_context(|| format!("{word} wants a value"))?;
        match word.as_str() {
            "--dir" => options.folder = PathBuf::from(value),
            "--runs" => options.runs = value.parse().context("--runs wants a number")?,
            "--place" => options.places.push(named(&Place::ALL, value, Place::name)?),
            "--load" => options.loads.push(named(&Load::ALL, value, Load::name)?),
            _ => bail!("there is no option {word}"),
        }
    }
    ensure!(options.runs > 0, "--runs wants at least 1");
    copy(options)
}

fn named<T: Copy>(all: &[T], name: &str, name_of: fn(T) -> &'static str) -> anyhow::Result<T> {
    let names = || all.iter().map(|one| name_of(*one)).collect::<Vec<_>>();
    let found = all.iter().find(|one| name_of(**one) == name);
    let found = found.with_context(|| format!("`{name}` is none of {}", names().join(", ")))?;
    Ok(*found)
}

fn copy(mut options: Options) -> anyhow::Result<()> {
    let is_whole = options.places.is_empty() && options.loads.is_empty();
    if options.places.is_empty() {
        options.places = Place::ALL.to_vec();
    }
    if options.loads.is_empty() {
        options.loads = Load::ALL.to_vec();
    }
    let posthaste = stage::build("posthaste-cli", "posthaste")?;
    install::ensure_s3_server()?;
    install::ensure_go_program(install::FAKE_GCS_SERVER)?;
    let folder = Folder::new(&options.folder)?;
    say("preparing the files");
    for load in &options.loads {
        load.prepare(folder.path())?;
    }
    let tools = tool::all(&posthaste);
    let mut rows = Vec::new();
    for &place in &options.places {
        let site = Site::start(place, folder.path(), &posthaste)?;
        for &load in options.loads.iter().filter(|load| place.takes(**load)) {
            for &way in place.ways() {
                let run = Run {
                    benchmark: folder.path(),
                    site: &site,
                    load,
                    way,
                };
                rows.extend(measure_all(&run, &tools, options.runs)?);
            }
        }
    }
    let text = report::write(&rows, &tools, folder.path(), options.runs);
    if is_whole {
        super::publish("copy", &text)
    } else {
        say(&text);
        Ok(())
    }
}

fn measure_all(run: &Run<'_>, tools: &[Tool], runs: usize) -> anyhow::Result<Vec<Row>> {
    let entrants: Vec<_> = tools
        .iter()
        .filter(|tool| tool.can(run.site.place))
        .collect();
    let mut all: Vec<Result<Vec<Sample>, String>> = entrants
        .iter()
        .map(|tool| tool.program.clone().map(|_| Vec::new()))
        .collect();
    if run.way == Way::From {
        put_source(run, &tools[0])?;
    }
    for turn in 0..runs {
        for (tool, samples) in entrants.iter().zip(&mut all) {
            if let (Ok(program), Ok(kept)) = (&tool.program, samples.as_mut()) {
                match measure_one(run, tool, program) {
                    Ok(sample) => {
                        say_sample(run, tool, turn, &sample);
                        kept.push(sample);
                    }
                    Err(error) if tool.name == tools[0].name => return Err(error),
                    Err(error) => {
                        say(&format!("{}: {error:#}", tool.name));
                        *samples = Err(format!("failed: {error:#}"));
                    }
                }
            }
        }
    }
    clean(run)?;
    let rows = entrants.iter().zip(all).map(|(tool, samples)| Row {
        load: run.load,
        place: run.site.place,
        way: run.way,
        tool: tool.name,
        is_limit: tool.is_limit,
        samples,
    });
    Ok(rows.collect())
}

fn measure_one(run: &Run<'_>, tool: &Tool, program: &Path) -> anyhow::Result<Sample> {
    clean(run)?;
    let mut command = tool.command(program, run)?;
    let sample = measure::run_within(&mut command, LONGEST)?;
    if !(tool.is_limit && run.way == Way::To) {
        let bytes = stage::bytes_below(&arrived(run))?;
        let wanted = run.load.bytes();
        ensure!(bytes == wanted, "{bytes} bytes of {wanted} arrived");
    }
    Ok(sample)
}

fn say_sample(run: &Run<'_>, tool: &Tool, turn: usize, sample: &Sample) {
    say(&format!(
        "{} {} {} {} {}: {:.2} s, {:.2} CPU s, {} MiB",
        run.load.name(),
        run.way.title(),
        run.site.place.name(),
        tool.name,
        turn + 1,
        sample.wall_s,
        sample.cpu_s,
        sample.peak_mib
    ));
}

/// Puts what is to be fetched where it will be fetched from.
fn put_source(run: &Run<'_>, posthaste: &Tool) -> anyhow::Result<()> {
    let held = run.site.ground.join("held");
    if held.exists() {
        fs::remove_dir_all(&held)?;
    }
    let Ok(program) = &posthaste.program else {
        bail!("posthaste is not built");
    };
    let mut command = Command::new(program);
    command
        .args(["cp", "--quiet"])
        .arg(run.load.folder(run.benchmark))
        .envs(run.site.environment());
    if matches!(run.site.place, Place::S3 | Place::Gcs) {
        command.arg(run.site.address("held"));
    } else {
        command.arg(held);
    }
    succeed(&mut command)
}

/// Where a measurement's files end up on this machine.
fn arrived(run: &Run<'_>) -> PathBuf {
    match run.way {
        Way::To => run.site.ground.join("put"),
        Way::From => run.benchmark.join("there"),
    }
}

/// Removes what an earlier contender left, and what copies remember, and lets the disk finish.
fn clean(run: &Run<'_>) -> anyhow::Result<()> {
    for left in [arrived(run), run.site.home.join("state")] {
        if left.exists() {
            fs::remove_dir_all(&left)?;
        }
    }
    succeed(&mut Command::new("sync"))
}
