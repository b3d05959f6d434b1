//! ISA-L, a rival in the benchmarks.

use std::{path::Path, process::Command};

use anyhow::{Result, ensure};

use super::{apt_install, find_in_path};

/// Installs the compiler and headers for programs that use ISA-L, a rival in the benchmarks, if
/// they are missing.
///
/// # Errors
/// Fails if they can't be installed; the message has the line to run.
pub fn ensure_isal() -> Result<()> {
    let there = || Path::new("/usr/include/isa-l.h").is_file() && find_in_path("cc").is_some();
    if !there() {
        apt_install("libisal-dev")?;
        ensure!(there(), "there is no C compiler: install the package gcc");
    }
    Ok(())
}

/// Returns the installed version of ISA-L, as Debian numbers it.
#[must_use]
pub fn isal_version() -> String {
    let asked = Command::new("dpkg-query")
        .args(["--show", "--showformat=${Version}", "libisal-dev"])
        .output();
    let version = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    version
        .ok()
        .filter(|version| !version.is_empty())
        .unwrap_or_else(|| "unknown".into())
}
