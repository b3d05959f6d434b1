//! Who takes part, and what they are told: their defaults, and where to go.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use posthaste_testbed::{
    S3Server,
    install::{self, GoProgram},
};

use super::Load;

/// From where to where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From a local path to a local path.
    Local,
    /// From a local path to the S3 server.
    ToS3,
    /// From the S3 server to a local path.
    FromS3,
}

impl Direction {
    pub const ALL: [Self; 3] = [Self::Local, Self::ToS3, Self::FromS3];

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Local => "local to local",
            Self::ToS3 => "local to S3",
            Self::FromS3 => "S3 to local",
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
}

/// One who takes part.
#[derive(Debug)]
pub struct Contender {
    /// Its name.
    pub name: &'static str,
    /// Its executable, or why there is none.
    pub program: Result<PathBuf, String>,
    /// How it names its version.
    version: &'static [&'static str],
    dialect: Dialect,
}

/// Everybody, posthaste first.
pub fn all(posthaste: &Path) -> Vec<Contender> {
    vec![
        Contender {
            name: "posthaste cp",
            program: Ok(posthaste.to_owned()),
            version: &["--version"],
            dialect: Dialect::Posthaste,
        },
        Contender {
            name: "cp -r",
            program: Ok(PathBuf::from("cp")),
            version: &["--version"],
            dialect: Dialect::Cp,
        },
        Contender {
            name: "rclone",
            program: rival(install::RCLONE),
            version: &["version"],
            dialect: Dialect::Rclone,
        },
        Contender {
            name: "s5cmd",
            program: rival(install::S5CMD),
            version: &["version"],
            dialect: Dialect::S5cmd,
        },
    ]
}

fn rival(program: GoProgram) -> Result<PathBuf, String> {
    match install::find_go_program(program) {
        Some(path) => Ok(path),
        None => install::ensure_go_program(program).map_err(|error| format!("{error:#}")),
    }
}

impl Contender {
    /// Whether it can copy in this direction.
    pub fn can(&self, direction: Direction) -> bool {
        match self.dialect {
            Dialect::Posthaste | Dialect::Rclone => true,
            Dialect::Cp => direction == Direction::Local,
            Dialect::S5cmd => direction != Direction::Local,
        }
    }

    /// The first line it says about its version.
    pub fn version(&self) -> Option<String> {
        let output = Command::new(self.program.as_ref().ok()?)
            .args(self.version)
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().next().map(str::to_owned)
    }

    /// Its command for one measurement.
    pub fn command(
        &self,
        program: &Path,
        folder: &Path,
        server: &S3Server,
        load: Load,
        direction: Direction,
    ) -> Command {
        let source = folder.join("source").join(load.name());
        let source = source.to_string_lossy();
        let there = folder.join("there");
        let there = there.to_string_lossy();
        let bucket = S3Server::BUCKET;
        let (put, held) = (
            format!("{bucket}/put"),
            format!("{bucket}/held/{}", load.name()),
        );
        let mut command = Command::new(program);
        command
            .envs(server.environment())
            .env("XDG_STATE_HOME", folder.join("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        match (self.dialect, direction) {
            (Dialect::Posthaste, Direction::Local) => {
                command.args(["cp", "-q", &source, &there]);
            }
            (Dialect::Posthaste, Direction::ToS3) => {
                command.args(["cp", "-q", &source, &format!("s3://{put}")]);
            }
            (Dialect::Posthaste, Direction::FromS3) => {
                command.args(["cp", "-q", &format!("s3://{held}"), &there]);
            }
            (Dialect::Cp, _) => {
                command.args(["-r", &source, &there]);
            }
            (Dialect::Rclone, direction) => {
                let (from, to) = match direction {
                    Direction::Local => (source.into_owned(), there.into_owned()),
                    Direction::ToS3 => (source.into_owned(), format!("bench:{put}")),
                    Direction::FromS3 => (format!("bench:{held}"), there.into_owned()),
                };
                command
                    .args(["copy", &from, &to])
                    .env("RCLONE_CONFIG", folder.join("rclone.conf"))
                    .env("RCLONE_CONFIG_BENCH_TYPE", "s3")
                    .env("RCLONE_CONFIG_BENCH_PROVIDER", "Other")
                    .env("RCLONE_CONFIG_BENCH_ENV_AUTH", "true")
                    .env("RCLONE_CONFIG_BENCH_REGION", "us-east-1")
                    .env("RCLONE_CONFIG_BENCH_ENDPOINT", server.endpoint())
                    .env("RCLONE_S3_NO_CHECK_BUCKET", "true");
            }
            (Dialect::S5cmd, direction) => {
                let (from, to) = match direction {
                    Direction::Local | Direction::ToS3 => {
                        (format!("{source}/"), format!("s3://{put}/"))
                    }
                    Direction::FromS3 => (format!("s3://{held}/*"), format!("{there}/")),
                };
                let endpoint = server.endpoint();
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
        }
        command
    }
}
