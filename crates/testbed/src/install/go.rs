//! Go programs from the Go module proxy, in `target/tools/`. Debian 12's Go is older than they
//! need: then a newer toolchain is fetched, itself a module of the same proxy.

use std::{
    env, fs, iter,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

use super::{apt_install, ending_with_us, find_in_path, last_line, say, tools_folder};

/// A Go program at the version that the tests and benchmarks were made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoProgram {
    /// Name of the command.
    pub name: &'static str,
    /// Argument of `go install`.
    pub package: &'static str,
    /// Its pinned version.
    pub version: &'static str,
    /// Patterns of the packages that do its work: only these and Go's own are optimized. Empty: all
    /// are.
    pub optimized: &'static [&'static str],
}

/// The S3 server of the tests.
pub const VERSITYGW: GoProgram = GoProgram {
    name: "versitygw",
    package: "github.com/versity/versitygw/cmd/versitygw",
    version: "v1.8.0",
    optimized: &[
        "github.com/versity/...",
        "github.com/valyala/...",
        "github.com/gofiber/...",
    ],
};

/// A second S3 server, of another code base. Its licence is the AGPL: the tests run it as a
/// program, nothing is linked with it and nothing that ships contains it.
pub const MINIO: GoProgram = GoProgram {
    name: "minio",
    package: "github.com/minio/minio",
    version: "v0.0.0-20260212201848-7aac2a2c5b7c",
    optimized: &[],
};

/// The Google Cloud Storage server of the tests.
pub const FAKE_GCS_SERVER: GoProgram = GoProgram {
    name: "fake-gcs-server",
    package: "github.com/fsouza/fake-gcs-server",
    version: "v1.56.1",
    optimized: &["github.com/fsouza/..."],
};

/// A rival in the benchmarks.
pub const RCLONE: GoProgram = GoProgram {
    name: "rclone",
    package: "github.com/rclone/rclone",
    version: "v1.75.1",
    optimized: &[],
};

/// Toolchain to fetch if the machine's Go is too old to fetch a newer one itself.
const TOOLCHAIN: &str = "v0.0.1-go1.26.0.linux-amd64";

/// First Go that fetches the toolchain that a program requires.
const SELF_UPDATING: (u32, u32) = (1, 21);

/// Finds the installed program, at the pinned version or, failing that, from `PATH`.
#[must_use]
pub fn find_go_program(program: GoProgram) -> Option<PathBuf> {
    let installed = go_program_path(program);
    installed
        .is_file()
        .then_some(installed)
        .or_else(|| find_in_path(program.name))
}

fn go_program_path(program: GoProgram) -> PathBuf {
    tools_folder()
        .join(format!("{}-{}", program.name, program.version))
        .join(program.name)
}

/// Installs a Go program at its pinned version if it is missing.
///
/// # Errors
/// Fails if Go is unavailable or the proxy does not serve the program.
pub fn ensure_go_program(program: GoProgram) -> Result<PathBuf> {
    let path = go_program_path(program);
    if path.is_file() {
        return Ok(path);
    }
    let go = ensure_go()?;
    let folder = path.parent().context("tools have a folder")?;
    // Under another name until it is complete.
    let partial = folder.join("partial");
    fs::create_dir_all(&partial)?;
    say(&format!(
        "installing {} {} from the Go module proxy",
        program.name, program.version
    ));
    let wanted = format!("{}@{}", program.package, program.version);
    let installing = go_command(&go)
        .arg("install")
        .args(compiler_flags(program))
        .arg(&wanted)
        .env("GOBIN", fs::canonicalize(&partial)?)
        .output();
    let output = installing.with_context(|| format!("run {}", go.display()))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!(
            "the Go module proxy does not serve {wanted}: {}",
            last_line(&reason)
        );
    }
    let built = partial.join(program.name);
    fs::rename(&built, &path).with_context(|| format!("go install left no {}", built.display()))?;
    Ok(path)
}

/// Returns flags that save two thirds of the build time, which go into clients of clouds, queues
/// and directories that no test uses.
fn compiler_flags(program: GoProgram) -> Vec<String> {
    if program.optimized.is_empty() {
        return Vec::new();
    }
    let optimized = iter::once(&"std").chain(program.optimized);
    let optimized = optimized.map(|packages| format!("-gcflags={packages}="));
    // The last flag that concerns a package counts.
    iter::once("-gcflags=all=-N -l".to_owned())
        .chain(optimized)
        .collect()
}

/// Returns Go with the settings of every build here.
pub(super) fn go_command(go: &Path) -> Command {
    let mut command = ending_with_us(go);
    command
        .env("GOTOOLCHAIN", "auto")
        .env("GOFLAGS", "-buildvcs=false -mod=mod")
        // The proxy alone: a module that it refuses must not be fetched from elsewhere.
        .env("GOPROXY", proxies_of(go))
        .env("CGO_ENABLED", "0")
        // The compiler collects less garbage, for some hundred MiB more.
        .env("GOGC", "400")
        .stdin(Stdio::null());
    command
}

/// Returns the configured proxies of Go, without the fallback to a module's own repository.
fn proxies_of(go: &Path) -> String {
    let output = Command::new(go).args(["env", "GOPROXY"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let proxies = text
        .trim()
        .split([',', '|'])
        .filter(|place| *place != "direct");
    proxies.collect::<Vec<_>>().join(",")
}

/// Returns a Go that can build the programs of the tests.
///
/// # Errors
/// Fails if none is available.
pub fn ensure_go() -> Result<PathBuf> {
    let go = match find_in_path("go") {
        Some(go) => go,
        None => {
            apt_install("golang-go")?;
            find_in_path("go").context("apt installed no go")?
        }
    };
    if version_of(&go)? >= SELF_UPDATING {
        return Ok(go);
    }
    fetch_toolchain(&go)
}

fn version_of(go: &Path) -> Result<(u32, u32)> {
    let output = Command::new(go)
        .args(["env", "GOVERSION"])
        .env("GOTOOLCHAIN", "local")
        .output()
        .with_context(|| format!("run {}", go.display()))?;
    let text = String::from_utf8(output.stdout)?;
    parse_version(text.trim()).with_context(|| format!("{} has no version", go.display()))
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text
        .strip_prefix("go")?
        .split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Fetches a newer Go with an old one: it is a module like any other, but modules carry no
/// executable bits.
fn fetch_toolchain(old: &Path) -> Result<PathBuf> {
    say(&format!(
        "this Go is old; fetching {TOOLCHAIN} from the Go module proxy"
    ));
    let output = Command::new(old)
        .args(["mod", "download", "-json"])
        .arg(format!("golang.org/toolchain@{TOOLCHAIN}"))
        .env("GOPROXY", proxies_of(old))
        .env("GOFLAGS", "-mod=mod")
        .current_dir(env::temp_dir())
        .output()
        .with_context(|| format!("run {}", old.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "go mod download failed: {}{text}",
        String::from_utf8_lossy(&output.stderr)
    );
    let folder = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("\"Dir\": \"")?.strip_suffix("\","))
        .context("go mod download names no folder")?;
    // Module files are read-only, so the toolchain is copied to where its bits can be set.
    let toolchain = tools_folder().join(TOOLCHAIN);
    let go = toolchain.join("bin/go");
    if !go.is_file() {
        let partial = toolchain.with_extension("partial");
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        fs::create_dir_all(tools_folder())?;
        let status = Command::new("cp")
            .args(["-r", "--no-preserve=mode", folder])
            .arg(&partial)
            .status()
            .context("run cp")?;
        ensure!(status.success(), "copying the Go toolchain failed");
        make_executable(&partial.join("bin"))?;
        make_executable(&partial.join("pkg/tool"))?;
        fs::rename(&partial, &toolchain)?;
    }
    ensure!(
        version_of(&go)? >= SELF_UPDATING,
        "the fetched Go does not run"
    );
    Ok(go)
}

fn make_executable(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            make_executable(&path)?;
        } else {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_versions_are_compared_as_numbers() {
        assert_eq!(parse_version("go1.19.8"), Some((1, 19)));
        assert_eq!(parse_version("go1.26rc1"), Some((1, 26)));
        assert!(parse_version("go1.9").unwrap() < SELF_UPDATING);
        assert_eq!(parse_version("devel"), None);
    }
}
