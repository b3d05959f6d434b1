//! Files of tests run side by side: most of them wait for servers, links and clocks, and cargo runs one after the other.

use std::{
    collections::VecDeque,
    io::{Write as _, stdout},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::{cargo, root};

/// Files that run at once. Each runs as many of its tests at once as there are cores, and few of these compute.
const LANES: usize = 3;
/// Files whose tests wait for a batch system nearly all of their time, and how many of their tests run at once: two at once
/// take twelve minutes.
const WAITING: [(&str, &str); 1] = [("slurm", "5")];
/// One that hangs is ended after this time, in seconds, with all that it started, and fails. The slowest takes under eight minutes.
const LIMIT_S: &str = "1200";
/// Between asking a file that hangs to end and ending it, in seconds.
const MERCY_S: &str = "10";
/// Files that take more than a minute begin first, or the last of them would run alone.
const LONG: [&str; 10] = [
    "slurm",
    "copy",
    "ways",
    "shared_link",
    "reserved_streams",
    "space",
    "seeds",
    "conformance",
    "swarm",
    "chaos",
];

/// A built file of tests.
struct File {
    /// Of its target: `slurm`.
    name: String,
    program: PathBuf,
    /// Where cargo would run it.
    package: PathBuf,
}

/// One that failed, and what it said.
struct Failed {
    name: String,
    said: String,
}

/// Builds every file of tests of the workspace and runs all of them, each one's words together; those of files that fail
/// come last.
///
/// # Errors
/// When one doesn't build, or a test fails: then after all have run.
pub fn run() -> anyhow::Result<()> {
    let files = build()?;
    let count = files.len();
    let failed = run_all(files);
    for file in &failed {
        write(&file.said);
    }
    if !failed.is_empty() {
        let names: Vec<&str> = failed.iter().map(|file| file.name.as_str()).collect();
        bail!(
            "tests fail in {} of {count} files: {}",
            failed.len(),
            names.join(", ")
        );
    }
    Ok(())
}

/// What cargo built, the long ones first.
fn build() -> anyhow::Result<VecDeque<File>> {
    eprintln!("xtask: cargo test --workspace --locked --no-run");
    let output = cargo(&[
        "test",
        "--workspace",
        "--locked",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ])
    .stderr(Stdio::inherit())
    .output()
    .context("can't run `cargo test --no-run`")?;
    if !output.status.success() {
        bail!("`cargo test --no-run` failed: {}", output.status);
    }
    let mut files = Vec::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        files.extend(file(line)?);
    }
    if files.is_empty() {
        bail!("cargo built no tests");
    }
    files.sort_by_key(|file| {
        LONG.iter()
            .position(|long| *long == file.name)
            .unwrap_or(LONG.len())
    });
    Ok(files.into())
}

/// The file of tests of a line of cargo's, if it tells of one.
fn file(line: &str) -> anyhow::Result<Option<File>> {
    let message: Value = serde_json::from_str(line)
        .with_context(|| format!("can't read what cargo says of its build: {line}"))?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return Ok(None);
    }
    let (Some(name), Some(program), Some(manifest)) = (
        message["target"]["name"].as_str(),
        message["executable"].as_str(),
        message["manifest_path"].as_str(),
    ) else {
        return Ok(None);
    };
    Ok(Some(File {
        name: name.into(),
        program: program.into(),
        package: Path::new(manifest)
            .parent()
            .context("a manifest lies in no folder")?
            .into(),
    }))
}

/// Runs all. Those that failed.
fn run_all(files: VecDeque<File>) -> Vec<Failed> {
    let (files, failed) = (Mutex::new(files), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                // Taken in a step of its own: in the condition of the loop the lock would be held while the file runs.
                let next = || lock(&files).pop_front();
                while let Some(file) = next() {
                    if let Err(said) = run_file(&file) {
                        eprintln!("xtask: tests of {} fail", file.name);
                        let name = file.name;
                        lock(&failed).push(Failed { name, said });
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one and prints what it says.
///
/// # Errors
/// When it fails: with what it said, which is not printed then.
fn run_file(file: &File) -> Result<(), String> {
    let mut command = Command::new("timeout");
    if let Some((_, tests)) = WAITING.iter().find(|(name, _)| *name == file.name) {
        command.env("RUST_TEST_THREADS", tests);
    }
    let output = command
        .args(["--verbose", "--kill-after", MERCY_S, LIMIT_S])
        .arg(&file.program)
        .current_dir(&file.package)
        .env("CARGO_MANIFEST_DIR", &file.package)
        // Of a test that fails, its place and words tell enough; a hundred frames hide them.
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("can't run {}: {error}\n", file.program.display()))?;
    let program = file.program.strip_prefix(root()).unwrap_or(&file.program);
    let said = format!(
        "     Ran {}: {}\n{}{}",
        program.display(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    if !output.status.success() {
        return Err(said);
    }
    write(&said);
    Ok(())
}

/// Whoever read it may be gone: the tests run on, and their result is told by how this ends.
fn write(said: &str) {
    let _ = stdout().write_all(said.as_bytes());
}
