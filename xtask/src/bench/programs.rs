//! Programs that benchmarks run beside ours: found, installed, or the reason why not.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use posthaste_testbed::install::{self, DebianProgram, GoProgram, PythonProgram};

/// An executable, or the reason why there is none.
pub type Found = Result<PathBuf, String>;

/// Returns a program of a Debian package.
pub fn debian(name: &'static str, package: &'static str) -> Found {
    told(install::ensure_debian_program(DebianProgram {
        name,
        package,
    }))
}

/// Returns a program of the Go module proxy.
pub fn go(program: GoProgram) -> Found {
    match install::find_go_program(program) {
        Some(path) => Ok(path),
        None => told(install::ensure_go_program(program)),
    }
}

/// Returns a program of the Python package index.
pub fn python(program: PythonProgram) -> Found {
    told(install::ensure_python_program(program))
}

/// Returns `curl`, whose orders are the bare limit of programs that speak HTTP.
pub fn curl() -> Found {
    debian("curl", "curl")
}

/// Returns the first line of a program's answer to these words, which ask for its version.
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
