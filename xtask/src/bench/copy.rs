//! `cargo xtask bench copy`: posthaste beside its rivals in one run, on this machine.
//!
//! Each measurement is a fresh process against a clean destination. The contenders take turns, so
//! that what the machine does in between meets all of them alike. Figures are medians.

mod goals;
mod load;
mod loopback;
mod place;
mod report;
mod sink;
mod site;
mod tool;

use std::{
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
use load::{Load, Scale};
use place::Place;
use report::Report;
use site::Site;
use tool::{Role, Run, Tool, Way};

/// Measurements of each contender.
const RUNS: usize = 3;

/// Longest time of a contender: a slower one is no rival, and would make the benchmark take hours.
const LONGEST: Duration = Duration::from_secs(90);

/// A rival that takes more seconds is measured once.
const LONG_S: f64 = 15.0;

/// The measurements of one contender in one row of the report.
#[derive(Debug)]
pub struct Row {
    /// Files copied.
    pub load: Load,
    /// Far end.
    pub place: Place,
    /// Direction.
    pub way: Way,
    /// Contender.
    pub tool: &'static str,
    /// Role of the contender.
    pub role: Role,
    /// Samples, or the reason why there are none.
    pub samples: Result<Vec<Sample>, String>,
}

/// Options of the command line.
struct Options {
    folder: PathBuf,
    runs: usize,
    places: Vec<Place>,
    loads: Vec<Load>,
    scale: Scale,
    /// A build of ours, in place of a new one.
    program: Option<PathBuf>,
    /// An earlier build of ours.
    before: Option<PathBuf>,
    /// Names of the rivals; all if there are none.
    contenders: Vec<String>,
}

/// Runs the benchmark. `--dir DIR` chooses the disk, `--runs N` the number of measurements.
/// `--before FILE` adds an earlier build of posthaste to the contenders, and `--program FILE` is
/// measured in place of a new build. `--place NAME`, `--load NAME` and `--contender NAME`, which may be repeated, and `--quick`, a tenth of the data,
/// measure less. They write no report.
///
/// # Errors
/// Fails if it can't be prepared, or a contender copies wrongly.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let mut options = Options {
        folder: std::env::temp_dir(),
        runs: RUNS,
        places: Vec::new(),
        loads: Vec::new(),
        scale: Scale::Whole,
        program: None,
        before: None,
        contenders: Vec::new(),
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--quick" {
            options.scale = Scale::Quick;
            continue;
        }
        let value = words
            .next()
            .with_context(|| format!("{word} wants a value"))?;
        match word.as_str() {
            "--dir" => options.folder = PathBuf::from(value),
            "--runs" => options.runs = value.parse().context("--runs wants a number")?,
            "--place" => options.places.push(named(&Place::ALL, value, Place::name)?),
            "--load" => options.loads.push(named(&Load::ALL, value, Load::name)?),
            "--program" => options.program = Some(value.into()),
            "--before" => options.before = Some(value.into()),
            "--contender" => options.contenders.push(value.clone()),
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
    let is_whole = options.places.is_empty()
        && options.loads.is_empty()
        && options.before.is_none()
        && options.program.is_none()
        && options.contenders.is_empty();
    if options.places.is_empty() {
        options.places = Place::ALL.to_vec();
    }
    if options.loads.is_empty() {
        options.loads = Load::ALL.to_vec();
    }
    let posthaste = match &options.program {
        Some(program) => program.canonicalize()?,
        None => stage::build("posthaste-cli", "posthaste")?,
    };
    install_servers(&options.places)?;
    let folder = Folder::new(&options.folder)?;
    let loopback = loopback::measure().map_err(|error| format!("{error:#}"));
    say("preparing the files");
    for load in &options.loads {
        load.prepare(folder.path(), options.scale)?;
    }
    let tools = contenders(&options, &posthaste)?;
    let mut rows = Vec::new();
    for &place in &options.places {
        let site = Site::start(place, folder.path(), &posthaste)?;
        for &load in options.loads.iter().filter(|load| place.takes(**load)) {
            for &way in place.ways() {
                let run = Run {
                    benchmark: folder.path(),
                    site: &site,
                    load,
                    scale: options.scale,
                    way,
                };
                rows.extend(measure_all(&run, &tools, options.runs));
            }
        }
        drop(site);
        stage::remove(&folder.path().join("far"))?;
    }
    let report = Report {
        rows: &rows,
        tools: &tools,
        folder: folder.path(),
        runs: options.runs,
        scale: options.scale,
        loopback,
    };
    let text = report.text();
    if is_whole && options.scale == Scale::Whole {
        super::publish("copy", &text)?;
    } else {
        say(&text);
    }
    let ours = rows.iter().filter(|row| row.role == Role::Ours);
    let failed: Vec<&str> = ours
        .filter_map(|row| row.samples.as_ref().err().map(String::as_str))
        .collect();
    ensure!(
        failed.is_empty(),
        "posthaste {}",
        failed.join("; posthaste ")
    );
    Ok(())
}

/// Returns who is measured: posthaste, an earlier build of it, and the rivals that were named.
fn contenders(options: &Options, posthaste: &Path) -> anyhow::Result<Vec<Tool>> {
    let mut tools = tool::all(posthaste);
    let names: Vec<&str> = tools.iter().map(|tool| tool.name).collect();
    for name in &options.contenders {
        ensure!(
            names.contains(&name.as_str()),
            "`{name}` is none of {}",
            names.join(", ")
        );
    }
    let is_meant = |tool: &Tool| {
        let named = &options.contenders;
        tool.role == Role::Ours || named.is_empty() || named.iter().any(|name| name == tool.name)
    };
    tools.retain(is_meant);
    if let Some(before) = &options.before {
        tools.insert(1, tool::before(before.canonicalize()?));
    }
    Ok(tools)
}

/// Installs the missing servers of these places.
fn install_servers(places: &[Place]) -> anyhow::Result<()> {
    for place in places {
        match place {
            Place::Local => {}
            Place::S3 => drop(install::ensure_s3_server()?),
            Place::Gcs => drop(install::ensure_go_program(install::FAKE_GCS_SERVER)?),
            Place::Azure => drop(install::ensure_azure_server()?),
            Place::Sftp | Place::Host | Place::Relay => drop(install::ensure_ssh_server()?),
            Place::Http | Place::WebDav => drop(install::ensure_web_server()?),
            Place::Ftp => drop(install::ensure_ftp_server()?),
            Place::GridFtp => drop(install::ensure_debian_program(install::GRIDFTP_SERVER)?),
        }
    }
    Ok(())
}

/// Lets all able contenders take turns. A contender that fails, or takes too long, is not asked
/// again.
fn measure_all(run: &Run<'_>, tools: &[Tool], runs: usize) -> Vec<Row> {
    let entrants: Vec<_> = tools
        .iter()
        .filter(|tool| tool.can(run.site.place))
        .collect();
    let mut all: Vec<Result<Vec<Sample>, String>> = entrants
        .iter()
        .map(|tool| tool.program.clone().map(|_| Vec::new()))
        .map(|program| program.map_err(|reason| format!("could not be had: {reason}")))
        .collect();
    let prepared = match run.way {
        Way::To => Ok(()),
        Way::From => put_source(run, &tools[0]),
    };
    if let Err(error) = prepared {
        all.fill(Err(format!("failed: nothing to fetch: {error:#}")));
    }
    for turn in 0..runs {
        for (tool, samples) in entrants.iter().zip(&mut all) {
            let (Ok(program), Ok(kept)) = (&tool.program, samples.as_mut()) else {
                continue;
            };
            if tool.role != Role::Ours && kept.iter().any(|sample| sample.wall_s > LONG_S) {
                continue;
            }
            match measure_one(run, tool, program) {
                Ok(sample) => {
                    say_sample(run, tool, turn, &sample);
                    kept.push(sample);
                }
                Err(error) => {
                    let place = run.site.place.name();
                    say(&format!("{} {place}: {error:#}", tool.name));
                    *samples = Err(format!("failed: {error:#}"));
                }
            }
        }
    }
    let rows = entrants.iter().zip(all).map(|(tool, samples)| Row {
        load: run.load,
        place: run.site.place,
        way: run.way,
        tool: tool.name,
        role: tool.role,
        samples,
    });
    rows.collect()
}

fn measure_one(run: &Run<'_>, tool: &Tool, program: &Path) -> anyhow::Result<Sample> {
    clean(run)?;
    let mut command = tool.command(program, run)?;
    let sample = measure::run_within(&mut command, LONGEST)?;
    let bytes = match run.way {
        // Discarded bytes do not arrive.
        Way::To if tool.role == Role::Limit => return Ok(sample),
        Way::To => run.site.bytes("put")?,
        Way::From => stage::bytes_below(&there(run))?,
    };
    let wanted = run.load.bytes(run.scale);
    ensure!(bytes == wanted, "{bytes} bytes of {wanted} arrived");
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

/// Puts the files to be fetched at the far end.
fn put_source(run: &Run<'_>, posthaste: &Tool) -> anyhow::Result<()> {
    run.site.clear("held")?;
    let Ok(program) = &posthaste.program else {
        bail!("posthaste is not built");
    };
    let mut command = Command::new(program);
    command
        .args(["cp", "--quiet"])
        .arg(run.load.folder(run.benchmark))
        .envs(run.site.environment());
    if run.site.holds_files() {
        command.arg(run.site.ground.join("held"));
    } else {
        command.arg(run.site.address("held"));
    }
    succeed(&mut command)
}

/// Returns the place of fetched files.
fn there(run: &Run<'_>) -> PathBuf {
    run.benchmark.join("there")
}

/// Removes the files of an earlier contender, and the state of copies, and lets the disk finish.
fn clean(run: &Run<'_>) -> anyhow::Result<()> {
    match run.way {
        Way::To => run.site.clear("put")?,
        Way::From => stage::remove(&there(run))?,
    }
    stage::remove(&run.site.home.join("state"))?;
    succeed(&mut Command::new("sync"))
}
