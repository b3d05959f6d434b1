//! Programs that benchmarks run beside ours: found, installed, or the reason why not.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use posthaste_testbed::install::{self, DebianProgram, GoProgram, PythonProgram};

/// An executable, or why there is none.
pub type Found = Result<PathBuf, String>;

/// A program of a Debian package.
pub fn debian(name: &'static str, package: &'static str) -> Found {
    told(install::ensure_debian_program(DebianProgram {
        name,
        package,
    }))
}

/// A program of the Go module proxy.
pub fn go(program: GoProgram) -> Found {
    match install::find_go_program(program) {
        Some(path) => Ok(path),
        None => told(install::ensure_go_program(program)),
    }
}

/// A program of the Python package index.
pub fn python(program: PythonProgram) -> Found {
    told(install::ensure_python_program(program))
}

/// `curl`, whose orders are the bare limit of what speaks HTTP.
pub fn curl() -> Found {
    debian("curl", "curl")
}

/// The first line a program says when it is asked for its version in these words.
pub fn version(program: &Path, asked: &[&str]) -> Option<String> {
    let output = Command::new(program).args(asked).output().ok()?;
    let said = if output.stdout.is_empty() {
        output.stderr
    } else {
        output.stdout
    };
    let text = String::from_utf8_lossy(&said);
    text.lines().next().map(|line| line.trim().to_owned())
}

fn told(found: anyhow::Result<PathBuf>) -> Found {
    found.map_err(|error| format!("{error:#}"))
}
