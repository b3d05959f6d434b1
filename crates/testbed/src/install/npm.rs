//! Programs from the npm registry, each in a folder of its own below `target/tools/`.

use std::{fs, path::PathBuf, process::Stdio};

use anyhow::{Context, Result, ensure};

use super::{apt_install, ending_with_us, find_in_path, last_line, say, tools_folder};

/// A program that Node.js runs, at the version the tests were made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeProgram {
    /// The package.
    pub package: &'static str,
    /// Its pinned version.
    pub version: &'static str,
    /// Script for Node.js, below the package's folder.
    pub script: &'static str,
}

/// The Azure Blob server of the tests. The last version that runs on the Node.js of Debian 12.
pub const AZURITE: NodeProgram = NodeProgram {
    package: "azurite",
    version: "3.35.0",
    script: "dist/src/blob/main.js",
};

/// The OpenID provider of the tests, certified by the OpenID Foundation. The last version that runs
/// on the Node.js of Debian 12.
pub const OIDC_PROVIDER: NodeProgram = NodeProgram {
    package: "oidc-provider",
    version: "8.8.1",
    script: "lib/index.js",
};

fn folder_of(program: NodeProgram) -> PathBuf {
    tools_folder().join(format!("{}-{}", program.package, program.version))
}

fn script_of(program: NodeProgram) -> PathBuf {
    let NodeProgram {
        package, script, ..
    } = program;
    folder_of(program)
        .join("node_modules")
        .join(package)
        .join(script)
}

/// Node.js.
///
/// # Errors
/// Fails if it is not installed.
pub(crate) fn find_node() -> Result<PathBuf> {
    find_in_path("node")
        .context("the tests need Node.js: run `apt-get install nodejs npm` or `cargo xtask test`")
}

/// Finds the script of an installed program.
///
/// # Errors
/// Fails if it is not installed.
pub(crate) fn find_node_program(program: NodeProgram) -> Result<PathBuf> {
    let script = script_of(program);
    ensure!(
        script.is_file(),
        "the tests need {}: run `cargo xtask test`, which installs it",
        program.package
    );
    Ok(script)
}

/// Installs the Azure Blob server if it is missing.
///
/// # Errors
/// Fails if Node.js is unavailable or the registry does not serve the package.
pub fn ensure_azure_server() -> Result<PathBuf> {
    ensure_node_program(AZURITE)
}

/// Installs the OpenID provider if it is missing.
///
/// # Errors
/// See [`ensure_azure_server`].
pub fn ensure_identity_server() -> Result<PathBuf> {
    ensure_node_program(OIDC_PROVIDER)
}

fn ensure_node_program(program: NodeProgram) -> Result<PathBuf> {
    if find_node().is_err() || find_in_path("npm").is_none() {
        apt_install("nodejs npm")?;
        find_node()?;
    }
    if let Ok(found) = find_node_program(program) {
        return Ok(found);
    }
    let npm = find_in_path("npm").context("apt installed no npm")?;
    let wanted = format!("{}@{}", program.package, program.version);
    say(&format!("installing {wanted} from the npm registry"));
    // Under another name until it is complete.
    let folder = folder_of(program);
    let partial = folder.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir_all(&partial)?;
    let output = ending_with_us(&npm)
        .args(["install", "--no-audit", "--no-fund", "--omit=dev"])
        // Nothing that it needs is built here, and no script of a package is run.
        .args(["--ignore-scripts", "--loglevel=error", "--prefix"])
        .arg(&partial)
        .arg(&wanted)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("run {}", npm.display()))?;
    let reason = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.success(),
        "the npm registry does not serve {wanted}: {}",
        last_line(&reason)
    );
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::rename(&partial, &folder)?;
    find_node_program(program)
}
