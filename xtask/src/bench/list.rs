//! `cargo xtask bench list`: buckets and local trees listed by posthaste and its rivals.

mod report;
mod tool;
mod tree;

use std::{fs, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, bail, ensure};
use posthaste_testbed::{S3Server, install};

use super::{
    figures::first_line,
    measure::{self, Sample},
    say,
    stage::{self, Folder},
};
use crate::succeed;
use tool::{Place, Tool};

/// Measurements of each contender.
const RUNS: usize = 3;

/// Objects in the bucket, and entries of the local tree.
const OBJECTS: usize = 100_000;
const ENTRIES: usize = 10_000_000;

/// Longest time of a rival.
const LONGEST: Duration = Duration::from_secs(180);

/// Options of the command line.
struct Options {
    folder: PathBuf,
    runs: usize,
    objects: usize,
    entries: usize,
}

/// The measurements of one contender at one place.
#[derive(Debug)]
pub struct Row {
    pub place: Place,
    pub tool: &'static str,
    /// True if it does less than a listing.
    pub is_limit: bool,
    /// Samples, or the reason why there are none.
    pub samples: Result<Vec<Sample>, String>,
}

/// Runs the benchmark. `--dir DIR` chooses the disk, `--runs N` the number of measurements;
/// `--objects N` and `--entries N` measure less and write no report.
///
/// # Errors
/// Fails if it can't be prepared, or posthaste fails.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let mut options = Options {
        folder: std::env::temp_dir(),
        runs: RUNS,
        objects: OBJECTS,
        entries: ENTRIES,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = words
            .next()
            .with_context(|| format!("{word} wants a value"))?;
        let number = || {
            let number: usize = value.parse().context(format!("{word} wants a number"))?;
            ensure!(number > 0, "{word} wants at least 1");
            anyhow::Ok(number)
        };
        match word.as_str() {
            "--dir" => options.folder = PathBuf::from(value),
            "--runs" => options.runs = number()?,
            "--objects" => options.objects = number()?,
            "--entries" => options.entries = number()?,
            _ => bail!("there is no option {word}"),
        }
    }
    list(&options)
}

fn list(options: &Options) -> anyhow::Result<()> {
    install::ensure_s3_server()?;
    let posthaste = stage::build("posthaste-cli", "posthaste")?;
    let folder = Folder::new(&options.folder)?;
    let tools = tool::all(&posthaste);
    let mut rows = Vec::new();
    for place in [Place::Flat, Place::Deep] {
        say(&format!("preparing {} objects", options.objects));
        let below = folder.path().join(place.name());
        fs::create_dir(&below)?;
        let server = S3Server::start_in(&below)?;
        let keys = tree::objects(&server.bucket_folder(), place, options.objects)?;
        let site = tool::Site {
            benchmark: folder.path(),
            keys: &keys,
            tree: &server.bucket_folder(),
        };
        let environment = server.environment();
        rows.extend(measure_all(
            place,
            &site,
            &tools,
            options.runs,
            &environment,
        )?);
    }
    say(&format!("preparing {} entries", options.entries));
    let tree = folder.path().join("tree");
    tree::entries(&tree, options.entries)?;
    let site = tool::Site {
        benchmark: folder.path(),
        keys: &[],
        tree: &tree,
    };
    rows.extend(measure_all(Place::Local, &site, &tools, options.runs, &[])?);
    let text = report::write(&rows, &tools, folder.path(), options.runs);
    if options.objects == OBJECTS && options.entries == ENTRIES {
        super::publish("list", &text)
    } else {
        say(&text);
        Ok(())
    }
}

/// Lets all contenders that can list the place take turns.
fn measure_all(
    place: Place,
    site: &tool::Site<'_>,
    tools: &[Tool],
    runs: usize,
    environment: &[(&'static str, String)],
) -> anyhow::Result<Vec<Row>> {
    let entrants: Vec<&Tool> = tools.iter().filter(|tool| tool.can(place)).collect();
    let mut all: Vec<Result<Vec<Sample>, String>> = entrants
        .iter()
        .map(|tool| tool.program.clone().map(|_| Vec::new()))
        .collect();
    for turn in 1..=runs {
        for (tool, samples) in entrants.iter().zip(&mut all) {
            let (Ok(program), Ok(kept)) = (&tool.program, samples.as_mut()) else {
                continue;
            };
            forget()?;
            let mut command = tool.command(program, place, site, environment)?;
            let measured = measure::run_within(&mut command, LONGEST);
            match measured.and_then(|sample| tool.check(place, site).map(|()| sample)) {
                Ok(sample) => {
                    say(&format!(
                        "{} {} {turn}/{runs}: {:.2} s, {:.2} CPU s, {} MiB",
                        place.title(),
                        tool.name,
                        sample.wall_s,
                        sample.cpu_s,
                        sample.peak_mib
                    ));
                    kept.push(sample);
                }
                Err(error) if tool.is_ours() => return Err(error),
                Err(error) => {
                    say(&format!("{}: {error:#}", tool.name));
                    *samples = Err(first_line(&format!("failed: {error:#}")).to_owned());
                }
            }
        }
    }
    let rows = entrants.iter().zip(all).map(|(tool, samples)| Row {
        place,
        tool: tool.name,
        is_limit: tool.is_limit(),
        samples,
    });
    Ok(rows.collect())
}

/// Makes the kernel forget cached directories: only root may.
fn forget() -> anyhow::Result<()> {
    succeed(&mut Command::new("sync"))?;
    fs::write("/proc/sys/vm/drop_caches", "3")
        .context("make the kernel forget what it read: run this benchmark as root")
}
