//! `cargo xtask bench wan`: posthaste and its rivals over 1 Gbit/s and 60 ms, in the laboratory.

mod contender;
mod load;
mod report;
mod servers;

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use posthaste_testbed::install::{self, IP};

use super::{
    measure, say,
    site::{self, Site},
    stage::{self, Folder},
};
use contender::{Contender, Run};
use load::Load;
use report::{Case, Outcome, Row, share};
use servers::Servers;

/// Measurements of each contender.
const RUNS: usize = 3;

/// Seconds after which a contender is stopped: a share of 0.08 for the large file.
const LIMIT_S: u64 = 120;

/// 1 Gbit/s in segments of 1448 bytes of payload in 1538 on the wire.
const PAYLOAD_MBIT_PER_S: f64 = 941.5;

/// Pause between two runs, so that bytes of a stopped one have passed.
const PAUSE: Duration = Duration::from_millis(500);

/// Attempts to remove a folder that fills again: for half a minute.
const LOOKS_MAX: u32 = 60;

/// The cases: name on the command line, load, and loss.
const CASES: &[(&str, Load, Option<&str>)] = &[
    ("large", Load::Large, None),
    ("large-loss", Load::Large, Some("0.01%")),
    ("small", Load::Small, None),
    ("mixed", Load::Mixed, None),
];

/// Options of the command line.
#[derive(Debug)]
pub struct Options {
    runs: usize,
    limit: Duration,
    /// Only these, by name; all when there is none.
    cases: Vec<String>,
    contenders: Vec<String>,
    /// True for a tenth of the data.
    quick: bool,
    /// Folder of the files.
    folder: PathBuf,
}

impl Options {
    fn read(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self {
            runs: RUNS,
            limit: Duration::from_secs(LIMIT_S),
            cases: Vec::new(),
            contenders: Vec::new(),
            quick: false,
            folder: site::memory().to_owned(),
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            if word == "--quick" {
                options.quick = true;
                continue;
            }
            let value = words
                .next()
                .with_context(|| format!("{word} wants a value"))?;
            match word.as_str() {
                "--runs" => options.runs = value.parse().context("--runs wants a number")?,
                "--limit" => {
                    let seconds = value.parse().context("--limit wants seconds")?;
                    options.limit = Duration::from_secs(seconds);
                }
                "--case" => options.cases.push(value.clone()),
                "--contender" => options.contenders.push(value.clone()),
                "--dir" => options.folder = PathBuf::from(value),
                _ => bail!("there is no option {word}"),
            }
        }
        ensure!(options.runs > 0, "--runs wants at least 1");
        for case in &options.cases {
            let names: Vec<&str> = CASES.iter().map(|(name, ..)| *name).collect();
            ensure!(
                names.contains(&case.as_str()),
                "cases are {}",
                names.join(", ")
            );
        }
        Ok(options)
    }

    /// Returns whether only some cases run; then the report is only shown.
    fn is_partial(&self) -> bool {
        self.quick || !self.cases.is_empty() || !self.contenders.is_empty()
    }

    fn wants(&self, names: &[String], name: &str) -> bool {
        names.is_empty() || names.iter().any(|wanted| wanted == name)
    }
}

/// Runs the benchmark.
///
/// # Errors
/// Fails if it can't be prepared, or posthaste copies wrongly.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let options = Options::read(arguments)?;
    install::ensure_debian_program(IP)?;
    install::ensure_ssh_server()?;
    install::ensure_s3_server()?;
    let posthaste = stage::build("posthaste-cli", "posthaste")?;
    let folder = Folder::new(&options.folder)?;
    say("preparing the files");
    for load in Load::ALL {
        load.make(
            &folder.path().join("source").join(load.name()),
            options.quick,
        )?;
    }
    let site = Site::start("wan-60ms")?;
    let servers = Servers::start(&site, folder.path(), &posthaste)?;
    let contenders = contender::all(&posthaste, &servers);
    let names: Vec<&str> = contenders.iter().map(|one| one.name).collect();
    for wanted in &options.contenders {
        ensure!(
            names.contains(&wanted.as_str()),
            "contenders are {}",
            names.join(", ")
        );
    }
    let mut cases = Vec::new();
    for (name, load, loss) in CASES {
        if options.wants(&options.cases, name) {
            let loss_now = format!("loss={}", loss.unwrap_or("0%"));
            site.change("wan", &[&loss_now])?;
            let run = Run {
                site: &site,
                servers: &servers,
                folder: folder.path(),
                load: *load,
            };
            let rows = measure_all(&run, name, &contenders, &options)?;
            cases.push(Case {
                load: *load,
                loss: *loss,
                rows,
            });
        }
    }
    let text = report::write(&cases, &contenders, &options, servers::emulator(&site)?);
    if options.is_partial() {
        say(&text);
        return Ok(());
    }
    super::publish("wan", &text)
}

/// Lets all chosen contenders take turns.
fn measure_all(
    run: &Run<'_>,
    case: &str,
    contenders: &[Contender],
    options: &Options,
) -> anyhow::Result<Vec<Row>> {
    let entrants = contenders
        .iter()
        .enumerate()
        .filter(|(_, one)| one.takes(run.load) && options.wants(&options.contenders, one.name));
    let mut rows: Vec<Row> = entrants
        .map(|(contender, one)| Row {
            contender,
            outcome: match &one.program {
                Ok(_) => Outcome::Samples(Vec::new()),
                Err(reason) => Outcome::Nothing(format!("could not be had: {reason}")),
            },
        })
        .collect();
    for turn in 1..=options.runs {
        for row in &mut rows {
            let contender = &contenders[row.contender];
            let label = format!("{case} {} {turn}/{}", contender.name, options.runs);
            measure_one(run, contender, &mut row.outcome, options, &label)?;
        }
    }
    Ok(rows)
}

/// Makes one measurement. A rival that fails or is too slow is not asked again; posthaste has to
/// copy.
fn measure_one(
    run: &Run<'_>,
    contender: &Contender,
    outcome: &mut Outcome,
    options: &Options,
    label: &str,
) -> anyhow::Result<()> {
    let (Outcome::Samples(samples), Ok(program)) = (&mut *outcome, &contender.program) else {
        return Ok(());
    };
    let arrival = contender.arrival(run);
    clean(&[&arrival, &run.servers.home.join("state")])?;
    contender.prepare(run)?;
    thread::sleep(PAUSE);
    let measured = measure::run_unless_slow(&mut contender.command(program, run), options.limit);
    let checked = measured.and_then(|sample| {
        if sample.is_some() {
            load::compare(&run.source(), &arrival)?;
        }
        Ok(sample)
    });
    match checked {
        Ok(Some(sample)) => {
            say(&format!(
                "{label}: {:.2} s, {:.3} of the link, {:.2} CPU s",
                sample.wall_s,
                share(run.load, sample.wall_s, options),
                sample.cpu_s
            ));
            samples.push(sample);
        }
        Ok(None) => {
            say(&format!(
                "{label}: not through after {} s",
                options.limit.as_secs()
            ));
            *outcome = Outcome::TooSlow;
        }
        Err(error) if contender.is_ours() => return Err(error.context(label.to_owned())),
        Err(error) => {
            say(&format!("{label}: {error:#}"));
            *outcome = Outcome::Nothing(format!("failed: {error:#}"));
        }
    }
    clean(&[&arrival])
}

/// Removes the content of these folders. Servers may still be writing bytes of a stopped contender.
fn clean(folders: &[&Path]) -> anyhow::Result<()> {
    for folder in folders {
        let mut looks = 0;
        while folder.exists() {
            match fs::remove_dir_all(folder) {
                Ok(()) => {}
                Err(_) if looks < LOOKS_MAX => thread::sleep(PAUSE),
                Err(cause) => {
                    return Err(cause).with_context(|| format!("remove {}", folder.display()));
                }
            }
            looks += 1;
        }
    }
    Ok(())
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
        let options = read(&["--quick", "--case", "small", "--runs", "1"]).unwrap();
        assert!(options.quick && options.is_partial() && options.runs == 1);
        assert!(options.wants(&options.cases, "small") && !options.wants(&options.cases, "mixed"));
        assert!(options.wants(&options.contenders, "scp"));
        assert!(!read(&[]).unwrap().is_partial());
        for wrong in [
            &["--case", "huge"][..],
            &["--runs", "0"],
            &["--runs"],
            &["--fast", "1"],
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
