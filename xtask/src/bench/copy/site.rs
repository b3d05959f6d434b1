//! The far ends: real servers on this machine, and the address of a place for each tool.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, bail};
use posthaste_testbed::{
    AzureServer, FtpFace, FtpServer, GcsServer, GridFtpServer, S3Server, SshServer, WebFace,
    WebServer, install,
};

use super::{
    super::{programs, site::output, stage},
    place::Place,
    sink::Sink,
};

/// Space lent by posthaste at the far end, if it runs there.
const RELAY_CAPACITY: &str = "64G";

/// Path of posthaste's profiles in a home.
const PROFILES: &str = ".config/posthaste/profiles.toml";

/// The servers behind a place.
#[derive(Debug)]
enum Server {
    None,
    S3(S3Server),
    Gcs(GcsServer),
    Azure(AzureServer),
    Ssh(SshServer),
    /// A relay, and an SSH server on the same files for tools that don't speak to relays.
    Relay {
        _running: RunningRelay,
        ssh: SshServer,
    },
    Web(WebServer),
    /// An FTP server, with its password in rclone's form.
    Ftp(FtpServer, String),
    Grid(GridFtpServer),
}

/// A relay that ends with its owner.
#[derive(Debug)]
struct RunningRelay {
    child: Child,
}

impl Drop for RunningRelay {
    fn drop(&mut self) {
        // An ended process can't be killed again.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A far end, running.
#[derive(Debug)]
pub struct Site {
    pub place: Place,
    /// Folder of its content on this machine.
    pub ground: PathBuf,
    /// The home of the tools: nobody else's configuration is read.
    pub home: PathBuf,
    server: Server,
    pub sink: Sink,
    posthaste: PathBuf,
}

impl Site {
    /// Starts the servers of the place, below the benchmark's folder.
    ///
    /// # Errors
    /// Fails if a server is missing or does not start.
    pub fn start(place: Place, benchmark: &Path, posthaste: &Path) -> anyhow::Result<Self> {
        let home = benchmark.join("home").join(place.name());
        fs::create_dir_all(&home)?;
        let folder = benchmark.join("far").join(place.name());
        fs::create_dir_all(&folder)?;
        let (server, ground) = start_server(place, benchmark, &home, folder, posthaste)?;
        Ok(Self {
            place,
            home,
            server,
            sink: Sink::start(benchmark)?,
            ground,
            posthaste: posthaste.to_owned(),
        })
    }

    /// Returns the environment of every tool.
    pub fn environment(&self) -> Vec<(String, String)> {
        let mut all = vec![
            ("HOME".to_owned(), self.home.display().to_string()),
            (
                "XDG_STATE_HOME".to_owned(),
                self.home.join("state").display().to_string(),
            ),
            (
                "RCLONE_CONFIG".to_owned(),
                self.home.join("rclone.conf").display().to_string(),
            ),
        ];
        let own = match &self.server {
            Server::S3(server) => server.environment(),
            Server::Gcs(server) => server.environment(),
            Server::Azure(server) => server.environment(),
            Server::None
            | Server::Ssh(_)
            | Server::Relay { .. }
            | Server::Web(_)
            | Server::Ftp(..)
            | Server::Grid(_) => Vec::new(),
        };
        all.extend(
            own.into_iter()
                .map(|(name, value)| (name.to_owned(), value)),
        );
        let rclone = self.rclone_settings().into_iter();
        all.extend(rclone.map(|(name, value)| (format!("RCLONE_CONFIG_FAR_{name}"), value)));
        all
    }

    /// Returns the settings that register `far:` with rclone.
    fn rclone_settings(&self) -> Vec<(&'static str, String)> {
        let here = || "127.0.0.1".to_owned();
        match &self.server {
            Server::None | Server::Grid(_) => Vec::new(),
            Server::S3(server) => vec![
                ("TYPE", "s3".to_owned()),
                ("PROVIDER", "Other".to_owned()),
                ("ENV_AUTH", "true".to_owned()),
                ("REGION", "us-east-1".to_owned()),
                ("ENDPOINT", server.endpoint()),
                ("NO_CHECK_BUCKET", "true".to_owned()),
            ],
            Server::Gcs(server) => vec![
                ("TYPE", "google cloud storage".to_owned()),
                ("ANONYMOUS", "true".to_owned()),
                ("ENDPOINT", format!("{}/storage/v1/", server.endpoint())),
                ("NO_CHECK_BUCKET", "true".to_owned()),
            ],
            Server::Azure(server) => vec![
                ("TYPE", "azureblob".to_owned()),
                ("ACCOUNT", AzureServer::ACCOUNT.to_owned()),
                ("KEY", AzureServer::ACCOUNT_KEY.to_owned()),
                ("ENDPOINT", server.endpoint()),
                ("NO_CHECK_CONTAINER", "true".to_owned()),
            ],
            Server::Ssh(server) | Server::Relay { ssh: server, .. } => vec![
                ("TYPE", "sftp".to_owned()),
                ("HOST", here()),
                ("USER", server.user().to_owned()),
                ("PORT", server.port().to_string()),
                ("KEY_FILE", self.ssh_key()),
                ("SHELL_TYPE", "unix".to_owned()),
            ],
            Server::Web(server) if self.place == Place::Http => vec![
                ("TYPE", "http".to_owned()),
                ("URL", server.address(WebFace::Pages, "")),
            ],
            Server::Web(server) => vec![
                ("TYPE", "webdav".to_owned()),
                ("VENDOR", "other".to_owned()),
                (
                    "URL",
                    format!("http://127.0.0.1:{}", server.port(WebFace::Dav)),
                ),
            ],
            Server::Ftp(server, password) => vec![
                ("TYPE", "ftp".to_owned()),
                ("HOST", here()),
                ("PORT", server.port().to_string()),
                ("USER", FtpServer::USER.to_owned()),
                ("PASS", password.clone()),
            ],
        }
    }

    fn ssh_key(&self) -> String {
        let options = self.ssh_options();
        let key = options
            .iter()
            .find_map(|option| option.strip_prefix("IdentityFile="));
        key.unwrap_or_default().to_owned()
    }

    fn ssh(&self) -> Option<&SshServer> {
        match &self.server {
            Server::Ssh(server) | Server::Relay { ssh: server, .. } => Some(server),
            Server::None
            | Server::S3(_)
            | Server::Gcs(_)
            | Server::Azure(_)
            | Server::Web(_)
            | Server::Ftp(..)
            | Server::Grid(_) => None,
        }
    }

    /// Returns options with which `ssh` reaches the host.
    pub fn ssh_options(&self) -> Vec<String> {
        self.ssh().map_or_else(Vec::new, |server| {
            let mut options = server.options();
            options.push(format!("Port={}", server.port()));
            options
        })
    }

    /// Returns those options as words of a command line.
    pub fn ssh_words(&self) -> Vec<String> {
        let options = self.ssh_options().into_iter();
        options
            .flat_map(|option| ["-o".to_owned(), option])
            .collect()
    }

    /// Returns `user@127.0.0.1`.
    pub fn login(&self) -> String {
        let user = self.ssh().map_or("", SshServer::user);
        format!("{user}@127.0.0.1")
    }

    /// Returns posthaste's address of `name` there.
    pub fn address(&self, name: &str) -> String {
        let path = self.ground.join(name);
        match (&self.server, self.place) {
            (Server::S3(_), _) => format!("s3://{}/{name}", S3Server::BUCKET),
            (Server::Gcs(_), _) => format!("gs://{}/{name}", GcsServer::BUCKET),
            (Server::Azure(_), _) => format!("azblob://{name}/all"),
            (Server::Ftp(..), _) => format!("ftp:{name}"),
            (Server::Ssh(server), Place::Sftp) => server.address(&path.display().to_string()),
            (Server::Ssh(_), _) => format!("{}:{}", self.login(), path.display()),
            (Server::Relay { .. }, _) => format!("far:{name}"),
            (Server::Web(server), Place::Http) => server.address(WebFace::Json, name),
            (Server::Web(server), _) => server.address(WebFace::Dav, name),
            (Server::Grid(server), _) => format!("gsiftp://{}", server.address(name)),
            (Server::None, _) => path.display().to_string(),
        }
    }

    /// Returns the address for `globus-url-copy`.
    pub fn grid_address(&self, name: &str) -> Option<String> {
        let Server::Grid(server) = &self.server else {
            return None;
        };
        Some(format!("{}/", server.url(name)))
    }

    /// Returns the port of the FTP server.
    pub fn ftp_port(&self) -> Option<u16> {
        let Server::Ftp(server, _) = &self.server else {
            return None;
        };
        Some(server.port())
    }

    /// Returns the address for rclone, which reaches a relay's files over SFTP.
    pub fn rclone_address(&self, name: &str) -> String {
        let path = self.ground.join(name);
        match &self.server {
            Server::None | Server::Grid(_) => path.display().to_string(),
            Server::S3(_) => format!("far:{}/{name}", S3Server::BUCKET),
            Server::Gcs(_) => format!("far:{}/{name}", GcsServer::BUCKET),
            Server::Azure(_) => format!("far:{name}/all"),
            Server::Web(_) => format!("far:{name}"),
            Server::Ssh(_) | Server::Relay { .. } | Server::Ftp(..) => {
                format!("far:{}", path.display())
            }
        }
    }

    /// Returns the S3 server's address, if there is one.
    pub fn s3_endpoint(&self) -> Option<String> {
        let Server::S3(server) = &self.server else {
            return None;
        };
        Some(server.endpoint())
    }

    /// Removes the copy at `name`.
    ///
    /// # Errors
    /// Fails if the disk or the server refuses.
    pub fn clear(&self, name: &str) -> anyhow::Result<()> {
        if let Server::Azure(server) = &self.server {
            return server.empty_container(name);
        }
        stage::remove(&self.ground.join(name))
    }

    /// Returns the bytes of all files copied to `name`.
    ///
    /// # Errors
    /// Fails if they can't be listed.
    pub fn bytes(&self, name: &str) -> anyhow::Result<u64> {
        let Server::Azure(_) = &self.server else {
            return stage::bytes_below(&self.ground.join(name));
        };
        let mut command = Command::new(&self.posthaste);
        command.args(["ls", "-lR", "--files-only", &self.address(name)]);
        let listed = output(command.envs(self.environment()))?;
        let sizes = listed.lines().map(|line| {
            let size = line.split_whitespace().next().unwrap_or_default();
            size.parse::<u64>()
                .with_context(|| format!("no size in {line}"))
        });
        sizes.sum()
    }

    /// Returns whether its content is files of this disk under their own names.
    pub fn holds_files(&self) -> bool {
        !matches!(
            &self.server,
            Server::S3(_) | Server::Gcs(_) | Server::Azure(_)
        )
    }
}

/// Starts the server of the place and returns the folder of its content, by default this one.
fn start_server(
    place: Place,
    benchmark: &Path,
    home: &Path,
    folder: PathBuf,
    posthaste: &Path,
) -> anyhow::Result<(Server, PathBuf)> {
    let here = posthaste_testbed::Place::default();
    Ok(match place {
        Place::Local => (Server::None, folder),
        Place::S3 => {
            let server = S3Server::start_in(benchmark)?;
            let ground = server.bucket_folder();
            (Server::S3(server), ground)
        }
        Place::Gcs => {
            let server = GcsServer::start_on_disk(benchmark)?;
            let ground = server.bucket_folder();
            (Server::Gcs(server), ground)
        }
        Place::Azure => (
            Server::Azure(AzureServer::start_at(&here, benchmark)?),
            folder,
        ),
        Place::Sftp | Place::Host => (Server::Ssh(SshServer::start()?), folder),
        Place::Relay => {
            let relay = start_relay(&folder, home, posthaste)?;
            (
                Server::Relay {
                    _running: relay,
                    ssh: SshServer::start()?,
                },
                folder.join("files"),
            )
        }
        Place::Http => {
            let server = WebServer::start_in(benchmark)?;
            let ground = server.files();
            (Server::Web(server), ground)
        }
        Place::WebDav => {
            let server = WebServer::start_in(benchmark)?;
            let ground = server.dav_files();
            (Server::Web(server), ground)
        }
        Place::Ftp => {
            let server = FtpServer::start_in(FtpFace::Plain, benchmark)?;
            let url = server.address_below("");
            let profile = format!("{}url = \"{url}\"\n", server.profile());
            write_private(&home.join(PROFILES), &profile)?;
            let ground = server.files();
            (Server::Ftp(server, obscured(FtpServer::PASSWORD)), ground)
        }
        Place::GridFtp => {
            know_plugin(home)?;
            let server = GridFtpServer::start_at(&here, benchmark)?;
            let ground = server.files();
            (Server::Grid(server), ground)
        }
    })
}

/// Returns a password in the form of rclone's settings; empty without rclone.
fn obscured(password: &str) -> String {
    let rclone = programs::go(install::RCLONE).ok();
    let said =
        rclone.and_then(|rclone| output(Command::new(rclone).args(["obscure", password])).ok());
    said.unwrap_or_default().trim().to_owned()
}

/// Registers the plug-in for GridFTP.
fn know_plugin(home: &Path) -> anyhow::Result<()> {
    let program = crate::root().join("plugins/gridftp/posthaste-plugin-gsiftp");
    let text = format!("[gsiftp]\ncommand = [\"{}\"]\n", program.display());
    write_private(&home.join(".config/posthaste/plugins.toml"), &text)
}

/// Writes a file that only its owner may read.
fn write_private(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::create_dir_all(file.parent().context("the file has a folder")?)?;
    fs::write(file, text)?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))?;
    Ok(())
}

/// Starts a relay and registers it under the name `far`.
fn start_relay(folder: &Path, home: &Path, posthaste: &Path) -> anyhow::Result<RunningRelay> {
    let mut child = Command::new(posthaste)
        .args(["relay", "--json", "--no-flush", "--until-stdin-closes"])
        .args(["--listen", "127.0.0.1:0", "--capacity", RELAY_CAPACITY])
        .arg("--dir")
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start a relay")?;
    let mut line = String::new();
    let out = child.stdout.take().context("the relay says nothing")?;
    BufReader::new(out).read_line(&mut line)?;
    let relay = RunningRelay { child };
    let field = |name: &str| {
        let start = line.find(&format!("\"{name}\":\""))? + name.len() + 4;
        Some(&line[start..start + line[start..].find('"')?])
    };
    let (Some(url), Some(fingerprint), Some(secret)) =
        (field("url"), field("fingerprint"), field("secret_file"))
    else {
        bail!("the relay said {line}");
    };
    let text = format!(
        "[far]\nurl = \"{}/\"\nfingerprint = \"{fingerprint}\"\nsecret_file = \"{secret}\"\n",
        url.replace("https://", "posthaste://")
    );
    write_private(&home.join(PROFILES), &text)?;
    Ok(relay)
}
