//! `cargo xtask bench code`: the erasure code beside ISA-L, on one core.
//!
//! Two programs do the same to the same bytes: `crates/engine/examples/code_speed.rs` and a driver
//! of Debian's ISA-L, compiled here. They take turns on one core, and their results are compared
//! byte for byte. Figures are medians.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail, ensure};
use posthaste_testbed::install;

use super::{figures, figures::Spread, say, stage, stage::Folder};
use crate::{root, succeed};

/// Measurements of each program in each row.
const RUNS: usize = 5;

/// Length of one measurement of an operation, in seconds.
const SECONDS: &str = "0.2";

/// Data and parity fragments: for few depots, for object stores, as much parity as data, and wide
/// with little.
const CODES: [(u8, u8); 4] = [(4, 1), (8, 4), (10, 10), (16, 4)];

/// Sizes of fragments: one that fits the caches with all others, one that does not.
const SIZES: [(usize, &str); 2] = [(64 << 10, "64 KiB"), (1 << 20, "1 MiB")];

/// Size of the chunk that is measured on its way out: that of datasets of some gigabytes.
const CHUNK_BYTES: usize = 16 << 20;

/// Steps of a chunk, as printed and for people.
const STEPS: [(&str, &str); 4] = [
    ("digest ", "digest (BLAKE3)"),
    ("encrypt ", "digest, then AES-256-GCM"),
    ("clear ", "all, in the clear"),
    ("encrypted ", "all, encrypted"),
];

/// Share of ISA-L's speed that the fastest kernel must reach in every row.
const WANTED_RATIO: f64 = 0.7;

/// Results of one run, in GB of data a second.
#[derive(Debug, Clone, Copy)]
struct Sample {
    encode: f64,
    decode: f64,
}

/// A code and a fragment size.
#[derive(Debug)]
struct Row {
    code: (u8, u8),
    size: &'static str,
    ours: Vec<Sample>,
    /// Samples of ISA-L; empty if it is not available.
    theirs: Vec<Sample>,
}

/// Runs the benchmark; `--runs N` is the number of measurements, `--core N` the core.
///
/// # Errors
/// Fails if it can't be prepared, or the two results differ in bytes.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // The first core answers more interrupts than the others.
    let (mut runs, mut core) = (RUNS, cores - 1);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = words
            .next()
            .with_context(|| format!("{word} wants a value"))?;
        match word.as_str() {
            "--runs" => runs = value.parse().context("--runs wants a number")?,
            "--core" => core = value.parse().context("--core wants a number")?,
            _ => bail!("there is no option {word}"),
        }
    }
    ensure!(runs > 0, "--runs wants at least 1");
    let folder = Folder::new(&std::env::temp_dir())?;
    let bench = Bench {
        ours: build()?,
        theirs: driver(folder.path()).map_err(|error| format!("{error:#}")),
        folder,
        core,
    };
    let mut rows = Vec::new();
    for code in CODES {
        for (bytes, size) in SIZES {
            rows.push(bench.row(code, bytes, size, runs)?);
        }
    }
    let kernels = bench.kernels(runs)?;
    let text = bench.report(&rows, &kernels, runs) + &bench.chunks(runs)?;
    super::publish("code", &text)?;
    check(&rows)
}

/// Builds our program, as it ships.
fn build() -> anyhow::Result<PathBuf> {
    stage::build_example("posthaste-engine", "code_speed")
}

/// Compiles ISA-L's program with the system's compiler.
fn driver(folder: &Path) -> anyhow::Result<PathBuf> {
    install::ensure_isal()?;
    let program = folder.join("isal");
    succeed(
        Command::new("cc")
            .args(["-O2", "-Wall", "-o"])
            .arg(&program)
            .arg(root().join("xtask/src/bench/code/isal.c"))
            .arg("-lisal"),
    )?;
    Ok(program)
}

/// The two programs, and their core.
struct Bench {
    ours: PathBuf,
    /// Driver of ISA-L, or the reason why there is none.
    theirs: Result<PathBuf, String>,
    folder: Folder,
    core: usize,
}

impl Bench {
    fn row(
        &self,
        code: (u8, u8),
        bytes: usize,
        size: &'static str,
        runs: usize,
    ) -> anyhow::Result<Row> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let out = |name: &str| self.folder.path().join(name);
        for _ in 0..runs {
            ours.push(self.measure(&self.ours, code, bytes, &out("ours"), None)?);
            let Ok(program) = &self.theirs else { continue };
            theirs.push(self.measure(program, code, bytes, &out("theirs"), None)?);
            ensure!(
                fs::read(out("ours"))? == fs::read(out("theirs"))?,
                "{}+{}: ISA-L computed other bytes",
                code.0,
                code.1
            );
        }
        Ok(Row {
            code,
            size,
            ours,
            theirs,
        })
    }

    /// Returns our other kernels with their measurements: for processors that lack the fastest.
    fn kernels(&self, runs: usize) -> anyhow::Result<Vec<(String, Vec<Row>)>> {
        let listed = Command::new(&self.ours).arg("kernels").output()?;
        let names = String::from_utf8(listed.stdout)?;
        let (bytes, size) = SIZES[1];
        let mut all = Vec::new();
        for (place, name) in names.lines().enumerate() {
            let mut rows = Vec::new();
            for code in CODES {
                let out = self.folder.path().join("kernel");
                let ours = (0..runs)
                    .map(|_| self.measure(&self.ours, code, bytes, &out, Some(place)))
                    .collect::<Result<_, _>>()?;
                rows.push(Row {
                    code,
                    size,
                    ours,
                    theirs: Vec::new(),
                });
            }
            all.push((name.to_owned(), rows));
        }
        Ok(all)
    }

    /// Returns the cost of a chunk on its way out, with and without encryption.
    fn chunks(&self, runs: usize) -> anyhow::Result<String> {
        let (k, m) = CODES[0];
        let words = [k.into(), m.into(), CHUNK_BYTES].map(|word: usize| word.to_string());
        let mut samples = Vec::new();
        for _ in 0..runs {
            let [k, m, bytes] = words.each_ref().map(String::as_str);
            let text = self.pinned(&self.ours, &["chunk", k, m, bytes, SECONDS])?;
            let figures = STEPS.map(|(name, _)| figure(&text, name));
            samples.push(figures.into_iter().collect::<anyhow::Result<Vec<f64>>>()?);
        }
        let mut text = format!(
            "\n## A chunk on its way out\n\nGB of chunk a second on one core, a chunk of {} MiB, code \
             {k}+{m}. Each chunk is digested, encrypted if asked for, coded, and each fragment \
             digested.\n\n| | GB/s |\n|---|---|\n",
            CHUNK_BYTES >> 20
        );
        for (place, (_, what)) in STEPS.iter().enumerate() {
            let speed = Spread::of(&samples, |sample| sample[place]);
            text += &format!("| {what} | {speed} |\n");
        }
        Ok(text)
    }

    /// Returns the output of the program, run on the one core.
    fn pinned(&self, program: &Path, arguments: &[&str]) -> anyhow::Result<String> {
        let output = Command::new("taskset")
            .args(["--cpu-list", &self.core.to_string()])
            .arg(program)
            .args(arguments)
            .output()
            .context("run taskset")?;
        ensure!(
            output.status.success(),
            "{} {}: {}",
            program.display(),
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    fn measure(
        &self,
        program: &Path,
        code: (u8, u8),
        bytes: usize,
        out: &Path,
        kernel: Option<usize>,
    ) -> anyhow::Result<Sample> {
        let (k, m, size) = (code.0.to_string(), code.1.to_string(), bytes.to_string());
        let (out, place) = (out.to_string_lossy(), kernel.map(|place| place.to_string()));
        let mut arguments = vec!["speed", &k, &m, &size, SECONDS, &out];
        arguments.extend(place.as_deref());
        let text = self.pinned(program, &arguments)?;
        let sample = Sample {
            encode: figure(&text, "encode ")?,
            decode: figure(&text, "decode ")?,
        };
        say(&format!(
            "{} {k}+{m} {bytes} B: encode {:.2}, decode {:.2} GB/s",
            figures::first_line(&program.file_name().unwrap_or_default().to_string_lossy()),
            sample.encode,
            sample.decode
        ));
        Ok(sample)
    }

    fn report(&self, rows: &[Row], kernels: &[(String, Vec<Row>)], runs: usize) -> String {
        let fastest = kernels.first().map_or("none", |(name, _)| name);
        let theirs = match &self.theirs {
            Ok(_) => format!("Debian's libisal, version {}", install::isal_version()),
            Err(reason) => format!("could not be had: {reason}"),
        };
        let mut text = format!(
            "# The erasure code beside ISA-L\n\nWritten by `cargo xtask bench code`; run it to get \
             your machine's figures. GB of data a second on one core: k fragments encoded into m \
             more, or as many data fragments as there is parity rebuilt from what is left. Tables \
             for encoding are made before, those for rebuilding count. Memory is warm, both \
             programs take turns, and what they computed was the same to the byte. Figures are \
             medians of {runs}, ranges in parentheses.\n\n{}- posthaste: kernel {fastest}\n- ISA-L: \
             {theirs}\n\n| code | fragments | | posthaste | ISA-L | ratio |\n|---|---|---|---|---|---|\n",
            figures::machine(self.folder.path())
        );
        for row in rows {
            for (what, figure) in OPERATIONS {
                text += &row.line(what, figure);
            }
        }
        text += &format!(
            "\n## Kernels\n\nWhat processors without the newest instructions get: the same \
             machine's figures, fragments of {}.\n\n| kernel |",
            SIZES[1].1
        );
        let head: Vec<String> = CODES
            .iter()
            .map(|(k, m)| format!(" {k}+{m} encode | decode |"))
            .collect();
        text += &format!(
            "{}\n|---|{}\n",
            head.concat(),
            "---|---|".repeat(CODES.len())
        );
        for (name, rows) in kernels {
            let cells = rows.iter().flat_map(|row| {
                OPERATIONS
                    .map(|(_, figure)| format!(" {:.1} |", Spread::of(&row.ours, figure).median))
            });
            text += &format!("| {name} |{}\n", cells.collect::<String>());
        }
        text
    }
}

/// Returns the figure that a program printed under this name.
fn figure(text: &str, name: &str) -> anyhow::Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|figure| figure.trim().parse().ok())
        .with_context(|| format!("no {name} was printed"))
}

type Figure = fn(&Sample) -> f64;

const OPERATIONS: [(&str, Figure); 2] = [
    ("encode", |sample| sample.encode),
    ("decode", |sample| sample.decode),
];

impl Row {
    fn ratio(&self, figure: Figure) -> f64 {
        Spread::of(&self.ours, figure).median / Spread::of(&self.theirs, figure).median
    }

    fn line(&self, what: &str, figure: Figure) -> String {
        let ((k, m), ours) = (self.code, Spread::of(&self.ours, figure));
        let (theirs, ratio) = if self.theirs.is_empty() {
            ("".to_owned(), "".to_owned())
        } else {
            let theirs = Spread::of(&self.theirs, figure).to_string();
            (theirs, format!("**{:.2}**", self.ratio(figure)))
        };
        format!(
            "| {k}+{m} | {} | {what} | {ours} | {theirs} | {ratio} |\n",
            self.size
        )
    }
}

/// Fails with the rows below the wanted ratio.
fn check(rows: &[Row]) -> anyhow::Result<()> {
    let mut slow = Vec::new();
    for row in rows.iter().filter(|row| !row.theirs.is_empty()) {
        for (what, figure) in OPERATIONS {
            if row.ratio(figure) < WANTED_RATIO {
                slow.push(row.line(what, figure));
            }
        }
    }
    ensure!(
        slow.is_empty(),
        "below {WANTED_RATIO} of ISA-L:\n{}",
        slow.concat()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: f64, theirs: &[f64]) -> Row {
        let sample = |speed: f64| Sample {
            encode: speed,
            decode: speed,
        };
        Row {
            code: (4, 1),
            size: "1 MiB",
            ours: vec![sample(ours)],
            theirs: theirs.iter().copied().map(sample).collect(),
        }
    }

    #[test]
    fn a_row_that_is_too_slow_is_said_and_one_without_a_rival_is_not() {
        check(&[row(7.1, &[10.0]), row(1.0, &[])]).unwrap();
        let slow = check(&[row(6.9, &[10.0])]).unwrap_err().to_string();
        assert!(
            slow.contains("| 4+1 | 1 MiB | encode |") && slow.contains("0.69"),
            "{slow}"
        );
    }
}
