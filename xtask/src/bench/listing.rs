//! `cargo xtask bench listing`: trees listed through the service, the first and the second time,
//! beside rclone and a client that asks for one directory after the other, over 60 ms (Figure 5 of
//! StorkCloud).

mod far;
mod report;
mod tool;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail, ensure};
use posthaste_testbed::install::{self, IP};

use super::{
    measure::{self, Sample},
    say,
    site::{self, Site},
    stage::{self, Folder},
};
use far::{Far, Protocol};
use tool::{Desk, Tool};

/// Measurements of each contender.
const RUNS: usize = 3;

/// Directories of the trees.
const SIZES: [usize; 5] = [1, 10, 100, 1_000, 10_000];

/// Time after which a contender is stopped: one directory after the other, six round trips each,
/// takes an hour for the largest tree.
const LIMIT: Duration = Duration::from_secs(5_400);

/// Options of the command line.
struct Options {
    folder: PathBuf,
    runs: usize,
    sizes: Vec<usize>,
    servers: Vec<Protocol>,
    /// True if nobody else takes part.
    only_ours: bool,
}

/// The measurements of one contender with one tree.
#[derive(Debug)]
struct Row {
    protocol: Protocol,
    directories: usize,
    tool: Tool,
    /// Samples, or the reason why there are none.
    samples: Result<Vec<Sample>, String>,
}

impl Options {
    fn read(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self {
            folder: site::memory().to_owned(),
            runs: RUNS,
            sizes: SIZES.to_vec(),
            servers: Protocol::ALL.to_vec(),
            only_ours: false,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            if word == "--ours" {
                options.only_ours = true;
                continue;
            }
            let value = words
                .next()
                .with_context(|| format!("{word} wants a value"))?;
            match word.as_str() {
                "--dir" => options.folder = PathBuf::from(value),
                "--runs" => options.runs = value.parse().context("--runs wants a number")?,
                "--most" => {
                    let most: usize = value.parse().context("--most wants a number")?;
                    options.sizes.retain(|size| *size <= most);
                }
                "--least" => {
                    let least: usize = value.parse().context("--least wants a number")?;
                    options.sizes.retain(|size| *size >= least);
                }
                "--server" => options.servers.retain(|server| server.title() == value),
                _ => bail!("there is no option {word}"),
            }
        }
        ensure!(
            options.runs > 0 && !options.sizes.is_empty() && !options.servers.is_empty(),
            "--runs, --most, --least and --server leave nothing to measure"
        );
        Ok(options)
    }
}

/// Runs the benchmark. `--dir DIR` chooses the disk, `--runs N` the number of measurements; `--most
/// N` leaves larger trees out, `--least N` smaller ones, `--server SFTP` or `S3` the other,
/// `--ours` everybody else; none of these writes a report.
///
/// # Errors
/// Fails if it can't be prepared, or posthaste fails.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let options = Options::read(arguments)?;
    install::ensure_debian_program(IP)?;
    install::ensure_ssh_server()?;
    install::ensure_s3_server()?;
    let posthaste = stage::build("posthaste-cli", "posthaste")?;
    let folder = Folder::new(&options.folder)?;
    let site = Site::start("wan-60ms")?;
    let far = Far::start(&site, folder.path())?;
    let programs = tool::Programs::find(&posthaste);
    let mut rows = Vec::new();
    for &protocol in &options.servers {
        for &directories in &options.sizes {
            say(&format!("preparing {directories} directories"));
            let tree = far.make(protocol, directories)?;
            let desk = Desk {
                site: &site,
                far: &far,
                tree: &tree,
                programs: &programs,
                folder: folder.path(),
            };
            rows.extend(measure_all(&desk, protocol, &options)?);
            stage::remove(&tree.path)?;
        }
    }
    let text = report::write(&rows, &programs, folder.path(), options.runs);
    let is_whole = options.sizes.len() == SIZES.len() && options.servers == Protocol::ALL;
    if is_whole && !options.only_ours {
        super::publish("listing", &text)
    } else {
        say(&text);
        Ok(())
    }
}

/// Lets all take turns. The service is a new one each time, so that it knows nothing at first.
fn measure_all(desk: &Desk<'_>, protocol: Protocol, options: &Options) -> anyhow::Result<Vec<Row>> {
    let mut rows: Vec<Row> = Tool::ALL
        .into_iter()
        .filter(|tool| tool.is_ours() || !options.only_ours)
        .map(|tool| Row {
            protocol,
            directories: desk.tree.directories,
            tool,
            samples: desk.programs.of(tool, protocol).map(|_| Vec::new()),
        })
        .collect();
    for turn in 1..=options.runs {
        let service = desk.start_service()?;
        for row in &mut rows {
            let Ok(samples) = &mut row.samples else {
                continue;
            };
            match measure_one(desk, row.tool, protocol, &service) {
                Ok(sample) => {
                    let (title, wall_s) = (row.tool.title(protocol), sample.wall_s);
                    let (protocol, many) = (protocol.title(), row.directories);
                    say(&format!(
                        "{protocol} {many} {title} {turn}/{}: {wall_s:.3} s",
                        options.runs
                    ));
                    samples.push(sample);
                }
                Err(error) if row.tool.is_ours() => return Err(error),
                Err(error) => {
                    say(&format!("{}: {error:#}", row.tool.title(protocol)));
                    row.samples = Err(format!("failed: {error:#}"));
                }
            }
        }
    }
    Ok(rows)
}

fn measure_one(
    desk: &Desk<'_>,
    tool: Tool,
    protocol: Protocol,
    service: &tool::Service,
) -> anyhow::Result<Sample> {
    let mut command = desk.command(tool, protocol, service)?;
    let sample = measure::run_within(&mut command, LIMIT)?;
    desk.check(tool)?;
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_wrong_ones_refused() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Options::read(&words)
        };
        assert_eq!(read(&[]).unwrap().sizes, SIZES);
        let options = read(&["--most", "100", "--runs", "1"]).unwrap();
        assert_eq!((options.sizes, options.runs), (vec![1, 10, 100], 1));
        assert_eq!(read(&["--least", "5000"]).unwrap().sizes, [10_000]);
        for wrong in [
            &["--most", "0"][..],
            &["--least", "10001"],
            &["--runs", "0"],
            &["--fast", "1"],
            &["--server", "FTP"],
            &["--runs"],
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
