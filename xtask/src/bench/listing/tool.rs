//! Contenders and their command lines.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, ensure};
use posthaste_testbed::{S3Server, install};

use super::{
    super::{
        programs::{self, Found},
        site::Site,
    },
    far::{Far, NEAR, Protocol, Tree},
};

/// Contender, in the order of turns: the service knows the tree when it is asked the second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    First,
    Second,
    Direct,
    Rclone,
    OneByOne,
}

impl Tool {
    pub const ALL: [Self; 5] = [
        Self::First,
        Self::Second,
        Self::Direct,
        Self::Rclone,
        Self::OneByOne,
    ];

    /// Returns the name on the command line.
    pub fn title(self, protocol: Protocol) -> &'static str {
        match (self, protocol) {
            (Self::First, _) => "posthaste ls -R --service, first time",
            (Self::Second, _) => "posthaste ls -R --service, second time",
            (Self::Direct, _) => "posthaste ls -R",
            (Self::Rclone, _) => "rclone lsjson -R",
            (Self::OneByOne, Protocol::Sftp) => "sftp, ls of one directory after the other",
            (Self::OneByOne, Protocol::S3) => "curl, one directory after the other",
        }
    }

    /// Returns whether it is ours.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::First | Self::Second | Self::Direct)
    }
}

/// The executables, or the reasons why there are none.
#[derive(Debug)]
pub struct Programs {
    posthaste: PathBuf,
    rclone: Found,
    sftp: Found,
    curl: Found,
}

impl Programs {
    pub fn find(posthaste: &Path) -> Self {
        Self {
            posthaste: posthaste.to_owned(),
            rclone: programs::go(install::RCLONE),
            sftp: programs::debian("sftp", "openssh-client"),
            curl: programs::curl(),
        }
    }

    pub fn of(&self, tool: Tool, protocol: Protocol) -> Found {
        match (tool, protocol) {
            (Tool::First | Tool::Second | Tool::Direct, _) => Ok(self.posthaste.clone()),
            (Tool::Rclone, _) => self.rclone.clone(),
            (Tool::OneByOne, Protocol::Sftp) => self.sftp.clone(),
            (Tool::OneByOne, Protocol::S3) => self.curl.clone(),
        }
    }

    /// Returns the version of each contender that reports one.
    pub fn versions(&self) -> Vec<String> {
        let asked = [
            (Ok(self.posthaste.clone()), "--version"),
            (self.rclone.clone(), "version"),
            (self.curl.clone(), "--version"),
        ];
        let said = asked.into_iter().map(|(program, word)| match program {
            Ok(program) => programs::version(&program, &[word])
                .unwrap_or_else(|| "of unknown version".to_owned()),
            Err(reason) => format!("could not be had: {reason}"),
        });
        said.collect()
    }
}

/// A service on the near host, which knows nothing when it starts; it ends with its owner.
pub struct Service {
    child: Child,
    url: String,
    token_file: String,
}

impl Drop for Service {
    fn drop(&mut self) {
        // The service ends once its standard input is closed.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Environment of a measurement.
pub struct Desk<'a> {
    pub site: &'a Site,
    pub far: &'a Far,
    pub tree: &'a Tree,
    pub programs: &'a Programs,
    pub folder: &'a Path,
}

impl Desk<'_> {
    /// Starts a service without a past.
    ///
    /// # Errors
    /// Fails if it does not start.
    pub fn start_service(&self) -> anyhow::Result<Service> {
        let state = self.folder.join("state");
        super::stage::remove(&state)?;
        let mut command = self.near(&self.programs.posthaste);
        command.args([
            "serve",
            "--json",
            "--until-stdin-closes",
            "--listen",
            "127.0.0.1:0",
        ]);
        command.arg("--state").arg(&state);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(self.folder.join("service.log"))?)
            .spawn()
            .context("start the service")?;
        let mut line = String::new();
        let out = child.stdout.take().context("the service says nothing")?;
        BufReader::new(out).read_line(&mut line)?;
        let said: serde_json::Value = serde_json::from_str(&line).context("start the service")?;
        let word = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        Ok(Service {
            url: word("url"),
            token_file: word("token_file"),
            child,
        })
    }

    /// Returns a command on the near host, with nobody else's configuration.
    fn near(&self, program: &Path) -> Command {
        let mut command = self.site.command(NEAR, program);
        let home = &self.far.home;
        command
            .env("HOME", home)
            .env("XDG_CONFIG_HOME", home.join(".config"))
            .env("XDG_STATE_HOME", home.join("state"))
            .env("RCLONE_CONFIG", home.join("rclone.conf"));
        command
    }

    /// Returns the tree's address for posthaste.
    fn address(&self, protocol: Protocol) -> String {
        match protocol {
            Protocol::Sftp => format!("sftp:{}", self.tree.path.display()),
            Protocol::S3 => format!("s3:tree{}", self.tree.directories),
        }
    }

    /// Returns the command for one measurement; its listing goes to a file.
    ///
    /// # Errors
    /// Fails if its file of orders can't be written.
    pub fn command(
        &self,
        tool: Tool,
        protocol: Protocol,
        service: &Service,
    ) -> anyhow::Result<Command> {
        let program = self
            .programs
            .of(tool, protocol)
            .map_err(anyhow::Error::msg)?;
        let mut command = self.near(&program);
        command
            .stdin(Stdio::null())
            .stdout(fs::File::create(self.listed())?);
        match (tool, protocol) {
            (Tool::First | Tool::Second, _) => {
                command.args(["ls", "-R", "--json", &self.address(protocol)]);
                command.args([
                    "--service",
                    &service.url,
                    "--token-file",
                    &service.token_file,
                ]);
            }
            (Tool::Direct, _) => {
                command.args(["ls", "-R", "--json", &self.address(protocol)]);
            }
            (Tool::Rclone, _) => {
                let address = self.rclone(&mut command, protocol);
                command.args(["lsjson", "-R", &address]);
            }
            (Tool::OneByOne, Protocol::Sftp) => {
                let orders = self.folder.join("orders");
                let lines = self.tree.below.iter();
                let lines =
                    lines.map(|below| format!("ls -l {}{below}\n", self.tree.path.display()));
                fs::write(&orders, lines.collect::<String>())?;
                for option in self.far.ssh.options() {
                    command.args(["-o", &option]);
                }
                command
                    .arg("-q")
                    .args(["-P", &self.far.ssh.port().to_string(), "-b"]);
                command.arg(orders);
                command.arg(format!("{}@{}", self.far.ssh.user(), self.far.address));
            }
            (Tool::OneByOne, Protocol::S3) => {
                let orders = self.folder.join("orders");
                fs::write(&orders, self.pages()?)?;
                command.args(["--silent", "--fail", "--config"]).arg(orders);
            }
        }
        Ok(command)
    }

    /// Returns orders for curl: every directory, and the credentials.
    fn pages(&self) -> anyhow::Result<String> {
        let mut orders = format!(
            "user = \"{}:{}\"\naws-sigv4 = \"aws:amz:us-east-1:s3\"\n\
             header = \"x-amz-content-sha256: UNSIGNED-PAYLOAD\"\n",
            S3Server::ACCESS_KEY,
            S3Server::SECRET_KEY
        );
        for below in &self.tree.below {
            let prefix = format!("tree{}{below}/", self.tree.directories).replace('/', "%2F");
            writeln!(
                orders,
                "url = \"{}/{}?delimiter=%2F&list-type=2&prefix={prefix}\"",
                self.far.s3.endpoint(),
                S3Server::BUCKET
            )?;
        }
        Ok(orders)
    }

    /// Registers the server with rclone, and returns the tree's name there.
    fn rclone(&self, command: &mut Command, protocol: Protocol) -> String {
        let facts = match protocol {
            Protocol::Sftp => vec![
                ("TYPE", "sftp".to_owned()),
                ("HOST", self.far.address.to_string()),
                ("USER", self.far.ssh.user().to_owned()),
                ("PORT", self.far.ssh.port().to_string()),
                ("KEY_FILE", self.far.ssh_key()),
                ("SHELL_TYPE", "unix".to_owned()),
            ],
            Protocol::S3 => vec![
                ("TYPE", "s3".to_owned()),
                ("PROVIDER", "Other".to_owned()),
                ("ACCESS_KEY_ID", S3Server::ACCESS_KEY.to_owned()),
                ("SECRET_ACCESS_KEY", S3Server::SECRET_KEY.to_owned()),
                ("REGION", "us-east-1".to_owned()),
                ("ENDPOINT", self.far.s3.endpoint()),
            ],
        };
        for (name, value) in facts {
            command.env(format!("RCLONE_CONFIG_FAR_{name}"), value);
        }
        match protocol {
            Protocol::Sftp => format!("far:{}", self.tree.path.display()),
            Protocol::S3 => format!("far:{}/tree{}", S3Server::BUCKET, self.tree.directories),
        }
    }

    fn listed(&self) -> PathBuf {
        self.folder.join("listed")
    }

    /// Checks that everything was listed.
    ///
    /// # Errors
    /// Fails if it was not.
    pub fn check(&self, tool: Tool) -> anyhow::Result<()> {
        let text = fs::read_to_string(self.listed())?;
        let found = match tool {
            Tool::First | Tool::Second | Tool::Direct => text.lines().count(),
            Tool::Rclone => text.matches("\"Path\":").count(),
            // One contender prints `ls` before its lines, the other writes XML.
            Tool::OneByOne => text.matches("/file").count() + text.matches("/d").count(),
        };
        let wanted = self.tree.entries();
        // Some print a line once that others print more often.
        let is_whole = match tool {
            Tool::OneByOne => found >= wanted,
            Tool::First | Tool::Second | Tool::Direct | Tool::Rclone => found == wanted,
        };
        ensure!(is_whole, "{found} of {wanted} entries were listed");
        Ok(())
    }
}
