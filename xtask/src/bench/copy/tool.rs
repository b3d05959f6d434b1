//! Contenders and their command lines: their defaults, and an address.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::Context;
use posthaste_testbed::{FtpServer, install};

use super::{
    super::programs::{self, Found},
    load::{Load, Scale},
    place::Place,
    site::Site,
};

/// Direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From this disk.
    To,
    /// To this disk.
    From,
}

impl Way {
    pub const ALL: [Self; 2] = [Self::To, Self::From];

    /// Returns the words for people, beside a place.
    pub fn title(self) -> &'static str {
        match self {
            Self::To => "to",
            Self::From => "from",
        }
    }
}

/// Dialect of a contender's command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Posthaste,
    Cp,
    Rclone,
    S5cmd,
    S3transfer,
    Scp,
    Rsync,
    Lftp,
    GlobusUrlCopy,
    Curl,
}

/// Role of a contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The contender that is compared.
    Ours,
    /// A tool that people use for the same.
    Rival,
    /// A program that does less than a copy.
    Limit,
    /// A copy with nothing to leave out.
    RivalAndLimit,
}

impl Role {
    /// Returns whether people use it for the same.
    pub fn is_rival(self) -> bool {
        matches!(self, Self::Rival | Self::RivalAndLimit)
    }

    /// Returns whether nobody is expected to do better.
    pub fn is_limit(self) -> bool {
        matches!(self, Self::Limit | Self::RivalAndLimit)
    }
}

/// Contender.
#[derive(Debug)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// Its executable, or the reason why there is none.
    pub program: Found,
    /// Words that make it print its version.
    version: &'static [&'static str],
    dialect: Dialect,
    pub role: Role,
}

/// Measurement to make.
pub struct Run<'a> {
    pub benchmark: &'a Path,
    pub site: &'a Site,
    pub load: Load,
    pub scale: Scale,
    pub way: Way,
}

/// Name of an earlier build of ours among the contenders.
pub const BEFORE: &str = "posthaste before";

/// Returns an earlier build of ours as a rival of this one.
pub fn before(program: PathBuf) -> Tool {
    Tool {
        name: BEFORE,
        program: Ok(program),
        version: &["--version"],
        dialect: Dialect::Posthaste,
        role: Role::Rival,
    }
}

/// Returns all contenders, posthaste first.
pub fn all(posthaste: &Path) -> Vec<Tool> {
    let tool = |name, program, version, dialect| Tool {
        name,
        program,
        version,
        dialect,
        role: match dialect {
            Dialect::Posthaste => Role::Ours,
            Dialect::Cp => Role::RivalAndLimit,
            Dialect::Curl => Role::Limit,
            Dialect::Rclone
            | Dialect::S5cmd
            | Dialect::S3transfer
            | Dialect::Scp
            | Dialect::Rsync
            | Dialect::Lftp
            | Dialect::GlobusUrlCopy => Role::Rival,
        },
    };
    let s5cmd = programs::python(install::S5CMD);
    let crt = programs::python(install::AWS_CRT);
    let scp = programs::debian("scp", "openssh-client");
    let globus = install::GLOBUS_URL_COPY;
    let globus = programs::debian(globus.name, globus.package);
    let ours = Ok(posthaste.to_owned());
    let asked: &[&str] = &["--version"];
    vec![
        tool("posthaste cp", ours, asked, Dialect::Posthaste),
        tool("cp -r", Ok(PathBuf::from("cp")), asked, Dialect::Cp),
        tool(
            "rclone",
            programs::go(install::RCLONE),
            &["version"],
            Dialect::Rclone,
        ),
        tool("s5cmd", s5cmd, &["version"], Dialect::S5cmd),
        tool("s3transfer (AWS CRT)", crt, asked, Dialect::S3transfer),
        tool("scp -r", scp, &[], Dialect::Scp),
        tool(
            "rsync -a",
            programs::debian("rsync", "rsync"),
            asked,
            Dialect::Rsync,
        ),
        tool(
            "lftp mirror -P 8",
            programs::debian("lftp", "lftp"),
            asked,
            Dialect::Lftp,
        ),
        tool(
            "globus-url-copy",
            globus,
            &["-version"],
            Dialect::GlobusUrlCopy,
        ),
        tool("bare limit: curl", programs::curl(), asked, Dialect::Curl),
    ]
}

impl Tool {
    /// Returns whether it can copy there.
    pub fn can(&self, place: Place) -> bool {
        match self.dialect {
            Dialect::Posthaste => true,
            Dialect::Cp => place == Place::Local,
            Dialect::Rclone => place != Place::GridFtp,
            Dialect::GlobusUrlCopy => place == Place::GridFtp,
            Dialect::Lftp => place == Place::Ftp,
            Dialect::S5cmd | Dialect::S3transfer => place == Place::S3,
            Dialect::Scp | Dialect::Rsync => {
                matches!(place, Place::Sftp | Place::Host | Place::Relay)
            }
            Dialect::Curl => place != Place::Local,
        }
    }

    /// Returns the first line of its version.
    pub fn version(&self) -> Option<String> {
        if self.version.is_empty() {
            return None;
        }
        programs::version(self.program.as_ref().ok()?, self.version)
    }

    /// Returns its command for one measurement.
    ///
    /// # Errors
    /// Fails if its file of orders can't be written.
    pub fn command(&self, program: &Path, run: &Run<'_>) -> anyhow::Result<Command> {
        let source = run.load.folder(run.benchmark).display().to_string();
        let there = run.benchmark.join("there").display().to_string();
        let far = |name: &str| run.site.ground.join(name).display().to_string();
        let ends = |far_put: String, far_held: String| match run.way {
            Way::To => (source.clone(), far_put),
            Way::From => (far_held, there.clone()),
        };
        let mut command = Command::new(program);
        command
            .envs(run.site.environment())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        match self.dialect {
            Dialect::Posthaste => {
                let (from, to) = ends(run.site.address("put"), run.site.address("held"));
                command.args(["cp", "-q", &from, &to]);
                for option in run.site.ssh_options() {
                    command.args(["--ssh-option", &option]);
                }
                if run.site.place == Place::Host {
                    command.arg("--posthaste-path").arg(program);
                }
            }
            Dialect::Cp => {
                let (from, to) = ends(far("put"), far("held"));
                command.args(["-r", &from, &to]);
            }
            Dialect::Rclone => {
                let address = |name| run.site.rclone_address(name);
                let (from, to) = ends(address("put"), address("held"));
                command.args(["copy", &from, &to]);
            }
            Dialect::S5cmd => s5cmd(&mut command, run, &source, &there),
            Dialect::S3transfer => {
                command.arg(crate::root().join("xtask/src/bench/copy/common_runtime.py"));
                let (from, to) = ends(run.site.address("put"), run.site.address("held"));
                command.args([from, to, run.site.s3_endpoint().unwrap_or_default()]);
            }
            Dialect::Scp => {
                let far = |name: &str| format!("{}:{}", run.site.login(), far(name));
                let (from, to) = ends(far("put"), far("held"));
                command
                    .args(run.site.ssh_words())
                    .args(["-q", "-r", &from, &to]);
            }
            Dialect::Rsync => {
                let far = |name: &str| format!("{}:{}", run.site.login(), far(name));
                let (from, to) = ends(far("put"), far("held"));
                let ssh = format!("ssh {}", run.site.ssh_words().join(" "));
                command.args(["-a", "-e", &ssh, &format!("{from}/"), &to]);
            }
            Dialect::Lftp => lftp(&mut command, run, &source, &there),
            Dialect::GlobusUrlCopy => {
                let grid = |name: &str| run.site.grid_address(name).unwrap_or_default();
                let (from, to) = match run.way {
                    Way::To => (format!("file://{source}/"), grid("put")),
                    Way::From => (grid("held"), format!("file://{there}/")),
                };
                command.args(["-p", "4", "-cc", "8", "-pp", "-fast", "-r", "-cd"]);
                command.args([from, to]);
            }
            Dialect::Curl => {
                let orders = curl_orders(run).context("write what curl is to do")?;
                command.args(["--silent", "--show-error", "--fail"]);
                command.arg("--config").arg(orders);
            }
        }
        Ok(command)
    }
}

fn s5cmd(command: &mut Command, run: &Run<'_>, source: &str, there: &str) {
    let endpoint = run.site.s3_endpoint().unwrap_or_default();
    let far = |name: &str| run.site.address(name);
    let (from, to) = match run.way {
        Way::To => (format!("{source}/"), format!("{}/", far("put"))),
        Way::From => (format!("{}/*", far("held")), format!("{there}/")),
    };
    command.args(["--log", "error", "--endpoint-url", &endpoint]);
    command.args(["cp", &from, &to]);
}

/// Writes the command: eight files at once, and eight ranges of one on a fetch.
fn lftp(command: &mut Command, run: &Run<'_>, source: &str, there: &str) {
    let port = run.site.ftp_port().unwrap_or_default().to_string();
    let far = |name: &str| run.site.ground.join(name).display().to_string();
    let mirror = match run.way {
        Way::To => format!("mirror -R --parallel=8 {source} {}", far("put")),
        Way::From => format!("mirror --parallel=8 --use-pget-n=8 {} {there}", far("held")),
    };
    let user = format!("{},{}", FtpServer::USER, FtpServer::PASSWORD);
    command.args(["--norc", "-u", &user, "-p", &port]);
    command.args(["-e", &format!("{mirror}; bye"), "127.0.0.1"]);
}

/// Writes an order for each file, all on one connection.
fn curl_orders(run: &Run<'_>) -> anyhow::Result<PathBuf> {
    let source = run.load.folder(run.benchmark);
    let url = run.site.sink.url();
    let mut text = String::new();
    for folder in fs::read_dir(&source)? {
        let folder = folder?.path();
        for file in fs::read_dir(&folder)? {
            let file = file?.path();
            let name = file.strip_prefix(run.benchmark)?.display();
            match run.way {
                Way::To => {
                    let _ = writeln!(
                        text,
                        "url = \"{url}/{name}\"\nupload-file = \"{}\"\nheader = \"Expect:\"\nnext",
                        file.display()
                    );
                }
                Way::From => {
                    let there = run.benchmark.join("there");
                    let _ = writeln!(
                        text,
                        "url = \"{url}/{name}\"\noutput = \"{}\"\ncreate-dirs\nnext",
                        there.join(file.strip_prefix(&source)?).display()
                    );
                }
            }
        }
    }
    let path = run.benchmark.join("curl-orders");
    fs::write(&path, text.trim_end_matches("next\n"))?;
    Ok(path)
}
