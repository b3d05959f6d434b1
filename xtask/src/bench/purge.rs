//! `cargo xtask bench purge`: a tree scanned for files that its purge will remove, the first and
//! the second time, beside `find`.

use std::{
    fmt::Write as _,
    fs::{self, File, FileTimes},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use anyhow::{Context, bail, ensure};

use super::{
    figures::{Spread, machine},
    measure::{self, Sample},
    say,
    stage::{self, Folder},
};
use crate::succeed;

/// Measurements of each contender.
const RUNS: usize = 3;

/// Files of the tree, and of one directory of it.
const FILES: usize = 1_000_000;
const PER_FOLDER: usize = 100;

/// Days since files were last read, at most: with 90 days of life, one directory in six goes within
/// 14 days or should be gone.
const AGES_DAYS: usize = 90;

/// Longest time of a contender; a slower one has failed.
const LONGEST: Duration = Duration::from_secs(600);

const POLICY: &str = "[[rule]]\nname = \"scratch\"\nclock = \"atime\"\ndays = 90\n";

struct Contender {
    name: &'static str,
    /// True if the kernel forgets what it read before.
    cold: bool,
    command: fn(&Place) -> Command,
    samples: Vec<Sample>,
}

struct Place {
    posthaste: PathBuf,
    folder: PathBuf,
}

/// Runs the benchmark. `--dir DIR` chooses the disk, `--runs N` the number of measurements;
/// `--files N` measures another tree and writes no report.
///
/// # Errors
/// Fails if it can't be prepared, or a contender fails.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let (mut folder, mut runs, mut files) = (std::env::temp_dir(), RUNS, FILES);
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
            "--dir" => folder = PathBuf::from(value),
            "--runs" => runs = number()?,
            "--files" => files = number()?,
            _ => bail!("there is no option {word}"),
        }
    }
    let posthaste = stage::build("posthaste-cli", "posthaste")?;
    let own = Folder::new(&folder)?;
    say(&format!("preparing {files} files"));
    plant(&own.path().join("tree"), files)?;
    fs::write(own.path().join("policy.toml"), POLICY)?;
    let place = Place {
        posthaste,
        folder: own.path().to_owned(),
    };
    let contenders = measure_all(&place, runs)?;
    let text = report(&contenders, own.path(), runs, files);
    if files == FILES {
        super::publish("purge", &text)
    } else {
        say(&text);
        Ok(())
    }
}

/// Makes the tree: the files of a directory are of one day, as the output of a run is.
#[expect(
    clippy::disallowed_methods,
    reason = "the program that is measured reads the real clock"
)]
fn plant(tree: &Path, files: usize) -> anyhow::Result<()> {
    let day = Duration::from_secs(86_400);
    for number in 0..files {
        let place = number / PER_FOLDER;
        let folder = tree.join(format!("user-{:03}/run-{place:05}", place % 100));
        if number % PER_FOLDER == 0 {
            fs::create_dir_all(&folder)?;
        }
        let file = File::create(folder.join(format!("step-{number:07}.h5")))?;
        let age = day * u32::try_from(place * 37 % AGES_DAYS)?;
        let then = SystemTime::now() - age;
        file.set_times(FileTimes::new().set_accessed(then).set_modified(then))?;
    }
    Ok(())
}

fn report_command(place: &Place, more: &[&str]) -> Command {
    let mut command = Command::new(&place.posthaste);
    command
        .arg("purge-report")
        .arg(place.folder.join("tree"))
        .args(["--json", "--policy"])
        .arg(place.folder.join("policy.toml"))
        .arg("--cache")
        .arg(place.folder.join("cache"))
        .args(more)
        .env("XDG_STATE_HOME", place.folder.join("state"));
    command
}

fn find(place: &Place) -> Command {
    let mut command = Command::new("find");
    let tree = place.folder.join("tree");
    command
        .arg(tree)
        .args(["-type", "f", "-printf", "%s %U %A@ %T@ %C@ %p\\n"]);
    command
}

fn measure_all(place: &Place, runs: usize) -> anyhow::Result<Vec<Contender>> {
    let contender = |name, cold, command| Contender {
        name,
        cold,
        command,
        samples: Vec::new(),
    };
    let first: fn(&Place) -> Command = |place| report_command(place, &["--full"]);
    let second: fn(&Place) -> Command = |place| report_command(place, &[]);
    let soon: fn(&Place) -> Command = |place| report_command(place, &["--within", "1d"]);
    let mut all = vec![
        contender("find -printf, cold", true, find),
        contender("first report, cold", true, first),
        contender("second report, cold", true, second),
        contender("second report --within 1d, cold", true, soon),
        contender("find -printf, warm", false, find),
        contender("first report, warm", false, first),
        contender("second report, warm", false, second),
        contender("second report --within 1d, warm", false, soon),
    ];
    for turn in 1..=runs {
        for one in &mut all {
            if one.cold {
                succeed(&mut Command::new("sync"))?;
                fs::write("/proc/sys/vm/drop_caches", "3")
                    .context("make the kernel forget what it read: run this benchmark as root")?;
            }
            let mut command = (one.command)(place);
            let told = File::create(place.folder.join("told"))?;
            command.stdin(Stdio::null()).stdout(told);
            let sample = measure::run_within(&mut command, LONGEST)?;
            say(&format!(
                "{} {turn}/{runs}: {:.2} s, {:.2} CPU s, {} MiB",
                one.name, sample.wall_s, sample.cpu_s, sample.peak_mib
            ));
            one.samples.push(sample);
        }
    }
    Ok(all)
}

fn report(contenders: &[Contender], folder: &Path, runs: usize, files: usize) -> String {
    let mut text = format!(
        "# What the purge takes, beside find\n\n\
         Written by `cargo xtask bench purge`; run it to get your machine's figures. A tree of {files} empty files, {PER_FOLDER} a \
         directory; those of one directory were last read on one day of the last {AGES_DAYS}, and the purge takes what was not \
         read for 90 days. `find` prints size, owner, times and path of every file to a file and judges nothing. The first report looks at every file and \
         remembers it; the second looks again at those that may go within 14 days, one in six, or within one day. Cold: the kernel \
         forgets what it read before each run, also of what was remembered; warm: it has read all of it just before. Figures are medians of {runs}, ranges in parentheses.\n\n"
    );
    text.push_str(&machine(folder));
    text.push_str(
        "\n| contender | wall s | CPU s | peak MiB | times as quick as find | of the first report |\n|---|---|---|---|---|---|\n",
    );
    for one in contenders {
        let wall = Spread::of(&one.samples, |sample| sample.wall_s);
        let cpu = Spread::of(&one.samples, |sample| sample.cpu_s);
        let peak = one.samples.iter().map(|sample| sample.peak_mib).max();
        let median = |name: &str| {
            let same = contenders.iter().filter(|other| other.cold == one.cold);
            let mut named = same.filter(|other| other.name.starts_with(name));
            let samples = named.next().map_or(&[][..], |other| &other.samples);
            Spread::of(samples, |sample| sample.wall_s).median
        };
        let (rival, first) = (median("find"), median("first"));
        let _ = match one.name.starts_with("find") {
            true => writeln!(
                text,
                "| {} | {wall} | {cpu} | {} | | |",
                one.name,
                peak.unwrap_or(0)
            ),
            false => writeln!(
                text,
                "| {} | {wall} | {cpu} | {} | **{:.2}** | {:.2} |",
                one.name,
                peak.unwrap_or(0),
                rival / wall.median,
                wall.median / first
            ),
        };
    }
    text.push_str("\nTo reach: the first report of 10^6 files in under 60 s and 300 MB, the second in a tenth of that, 6 s. \
         Of its own first time a second report takes more than a tenth: files that may go are looked at again, and what is remembered of all others is read and judged.\n");
    text
}
