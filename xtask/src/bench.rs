//! `cargo xtask bench copy`: posthaste beside its rivals in one run, on this machine.
//!
//! Each measurement is a fresh process against a clean destination. The contenders take turns, so
//! that what the machine does in between meets all of them alike. Figures are medians.

mod contender;
mod measure;
mod report;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail, ensure};
use posthaste_testbed::S3Server;

use crate::{cargo, root, succeed};
use contender::{Contender, Direction};
use measure::Sample;

/// Measurements of each contender.
const RUNS: usize = 5;

/// The large file, in bytes.
const LARGE_BYTES: u64 = 2 << 30;

/// The small files, and the bytes of each.
const SMALL_FILES: usize = 10_000;
const SMALL_BYTES: usize = 100 << 10;

/// Bytes made at a time.
const BLOCK_BYTES: usize = 1 << 20;

/// What is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// One file of 2 GiB.
    Large,
    /// 10,000 files of 100 KiB.
    Small,
}

impl Load {
    const ALL: [Self; 2] = [Self::Large, Self::Small];

    /// Its name below the benchmark's folder.
    fn name(self) -> &'static str {
        match self {
            Self::Large => "large",
            Self::Small => "small",
        }
    }

    /// Its name for people.
    fn title(self) -> &'static str {
        match self {
            Self::Large => "one file of 2 GiB",
            Self::Small => "10,000 files of 100 KiB",
        }
    }

    fn bytes(self) -> u64 {
        match self {
            Self::Large => LARGE_BYTES,
            Self::Small => (SMALL_FILES * SMALL_BYTES) as u64,
        }
    }
}

/// The measurements of one contender in one row of the report.
#[derive(Debug)]
pub struct Row {
    /// What was copied.
    pub load: Load,
    /// From where to where.
    pub direction: Direction,
    /// Who copied.
    pub contender: &'static str,
    /// What it took, or why there is nothing.
    pub samples: Result<Vec<Sample>, String>,
}

/// Runs the benchmark named by the first argument; `--dir DIR` chooses the disk, `--runs N` the
/// number of measurements.
///
/// # Errors
/// When it can't be prepared, or a contender copies wrongly.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let mut words = arguments.iter();
    if words.next().map(String::as_str) != Some("copy") {
        bail!("write `cargo xtask bench copy [--dir DIR] [--runs N]`");
    }
    let (mut folder, mut runs) = (std::env::temp_dir(), RUNS);
    while let Some(word) = words.next() {
        let value = words
            .next()
            .with_context(|| format!("{word} wants a value"))?;
        match word.as_str() {
            "--dir" => folder = PathBuf::from(value),
            "--runs" => runs = value.parse().context("--runs wants a number")?,
            _ => bail!("there is no option {word}"),
        }
    }
    ensure!(runs > 0, "--runs wants at least 1");
    copy(&folder, runs)
}

fn copy(parent: &Path, runs: usize) -> anyhow::Result<()> {
    let posthaste = build()?;
    posthaste_testbed::install::ensure_s3_server()?;
    let folder = Folder::new(parent)?;
    say("preparing the files");
    prepare(&folder.0)?;
    let server = S3Server::start_in(&folder.0)?;
    let contenders = contender::all(&posthaste);
    let mut rows = Vec::new();
    for load in Load::ALL {
        for direction in Direction::ALL {
            rows.extend(measure_all(
                &folder.0,
                &server,
                &contenders,
                load,
                direction,
                runs,
            )?);
        }
    }
    let text = report::write(&rows, &contenders, &folder.0, runs);
    let path = root().join("docs/benchmarks/copy.md");
    fs::create_dir_all(path.parent().context("the report has a folder")?)?;
    fs::write(&path, &text)?;
    say(&format!("{text}\nwritten to {}", path.display()));
    Ok(())
}

/// The benchmark's own folder, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(parent: &Path) -> anyhow::Result<Self> {
        let path = parent.join(format!("posthaste-bench-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            say(&format!("can't remove {}: {error}", self.0.display()));
        }
    }
}

fn build() -> anyhow::Result<PathBuf> {
    succeed(
        cargo(&[
            "build",
            "--release",
            "--locked",
            "--package",
            "posthaste-cli",
        ])
        .stdout(Stdio::null()),
    )?;
    let this = std::env::current_exe().context("find the target folder")?;
    let target = this.ancestors().nth(2).context("find the target folder")?;
    Ok(target.join("release/posthaste"))
}

/// Makes the files; bytes that no file system compresses or shares.
fn prepare(folder: &Path) -> anyhow::Result<()> {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let mut block = vec![0; BLOCK_BYTES];
    let source = folder.join("source");
    fs::create_dir_all(source.join(Load::Large.name()))?;
    let mut large = fs::File::create(source.join("large/file"))?;
    for _ in 0..LARGE_BYTES / BLOCK_BYTES as u64 {
        noise.fill(&mut block);
        large.write_all(&block)?;
    }
    let small = source.join(Load::Small.name());
    for index in 0..SMALL_FILES {
        let below = small.join(format!("{:02}", index % 100));
        fs::create_dir_all(&below)?;
        noise.fill(&mut block[..SMALL_BYTES]);
        fs::write(below.join(format!("{index:05}")), &block[..SMALL_BYTES])?;
    }
    Ok(())
}

/// The xorshift64 generator (Marsaglia, "Xorshift RNGs", 2003).
struct Noise(u64);

impl Noise {
    fn fill(&mut self, block: &mut [u8]) {
        for eight in block.chunks_exact_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            eight.copy_from_slice(&self.0.to_le_bytes());
        }
    }
}

fn measure_all(
    folder: &Path,
    server: &S3Server,
    contenders: &[Contender],
    load: Load,
    direction: Direction,
    runs: usize,
) -> anyhow::Result<Vec<Row>> {
    let entrants: Vec<_> = contenders.iter().filter(|one| one.can(direction)).collect();
    let mut all: Vec<Vec<Sample>> = vec![Vec::new(); entrants.len()];
    if direction == Direction::FromS3 {
        put_source(folder, server, contenders, load)?;
    }
    for turn in 0..runs {
        for (contender, samples) in entrants.iter().zip(&mut all) {
            let Ok(program) = &contender.program else {
                continue;
            };
            clean(folder, server, direction)?;
            let mut command = contender.command(program, folder, server, load, direction);
            let sample = measure::run(&mut command)
                .with_context(|| format!("{} {}", contender.name, direction.title()))?;
            say(&format!(
                "{} {} {} {}/{runs}: {:.2} s, {:.2} CPU s, {} MiB",
                load.name(),
                direction.title(),
                contender.name,
                turn + 1,
                sample.wall_s,
                sample.cpu_s,
                sample.peak_mib
            ));
            check(folder, server, load, direction)
                .with_context(|| format!("{} copied wrongly", contender.name))?;
            samples.push(sample);
        }
    }
    clean(folder, server, direction)?;
    Ok(entrants
        .iter()
        .zip(all)
        .map(|(contender, samples)| Row {
            load,
            direction,
            contender: contender.name,
            samples: match &contender.program {
                Ok(_) => Ok(samples),
                Err(reason) => Err(reason.clone()),
            },
        })
        .collect())
}

/// Puts what is to be fetched into the bucket.
fn put_source(
    folder: &Path,
    server: &S3Server,
    contenders: &[Contender],
    load: Load,
) -> anyhow::Result<()> {
    let posthaste = &contenders[0];
    let Ok(program) = &posthaste.program else {
        bail!("posthaste is not built");
    };
    let held = server.bucket_folder().join("held");
    if held.exists() {
        fs::remove_dir_all(&held)?;
    }
    succeed(
        Command::new(program)
            .args(["cp", "--quiet"])
            .arg(folder.join("source").join(load.name()))
            .arg(format!("s3://{}/held/", S3Server::BUCKET))
            .envs(server.environment())
            .env("XDG_STATE_HOME", folder.join("state")),
    )
}

/// Removes what an earlier contender left, and lets the disk finish.
fn clean(folder: &Path, server: &S3Server, direction: Direction) -> anyhow::Result<()> {
    let left = match direction {
        Direction::Local | Direction::FromS3 => folder.join("there"),
        Direction::ToS3 => server.bucket_folder().join("put"),
    };
    if left.exists() {
        fs::remove_dir_all(&left)?;
    }
    succeed(&mut Command::new("sync"))
}

/// Counts what arrived.
fn check(folder: &Path, server: &S3Server, load: Load, direction: Direction) -> anyhow::Result<()> {
    let arrived = match direction {
        Direction::Local | Direction::FromS3 => folder.join("there"),
        Direction::ToS3 => server.bucket_folder().join("put"),
    };
    let bytes = bytes_below(&arrived)?;
    ensure!(
        bytes == load.bytes(),
        "{bytes} bytes of {} arrived",
        load.bytes()
    );
    Ok(())
}

fn bytes_below(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            bytes_below(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(bytes)
}

fn say(text: &str) {
    eprintln!("{text}");
}
