//! The far ends: real servers on this machine, and what each tool calls a place on them.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, bail};
use posthaste_testbed::{GcsServer, GridFtpServer, S3Server, SshServer, WebFace, WebServer};

use super::{load::Load, sink::Sink, tool::Way};

/// What posthaste is at the far end, where it is there at all.
const RELAY_CAPACITY: &str = "64G";

/// A kind of far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A folder on the same disk.
    Local,
    /// An S3 server.
    S3,
    /// A Google Cloud Storage server.
    Gcs,
    /// An SFTP server.
    Sftp,
    /// A host reached over SSH, with its own tools at the other end.
    Host,
    /// A posthaste relay that runs already.
    Relay,
    /// A web server, which only gives.
    Http,
    /// A WebDAV server.
    WebDav,
    /// A GridFTP server, which posthaste reaches through its plug-in.
    GridFtp,
}

impl Place {
    pub const ALL: [Self; 9] = [
        Self::Local,
        Self::S3,
        Self::Gcs,
        Self::Sftp,
        Self::Host,
        Self::Relay,
        Self::Http,
        Self::WebDav,
        Self::GridFtp,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::S3 => "s3",
            Self::Gcs => "gcs",
            Self::Sftp => "sftp",
            Self::Host => "host",
            Self::Relay => "relay",
            Self::Http => "http",
            Self::WebDav => "webdav",
            Self::GridFtp => "gridftp",
        }
    }

    /// Whether this is measured there: servers that take seconds for hundreds of files get few.
    pub fn takes(self, load: Load) -> bool {
        let is_quick = matches!(self, Self::Local | Self::S3 | Self::Host | Self::Relay);
        match load {
            Load::Large | Load::Mixed => true,
            Load::Small => is_quick,
            Load::Few => !is_quick,
        }
    }

    /// Which ways bytes go there.
    pub fn ways(self) -> &'static [Way] {
        match self {
            Self::Local => &[Way::To],
            Self::Http => &[Way::From],
            Self::S3
            | Self::Gcs
            | Self::Sftp
            | Self::Host
            | Self::Relay
            | Self::WebDav
            | Self::GridFtp => &[Way::To, Way::From],
        }
    }

    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Local => "a local path",
            Self::S3 => "S3 (versitygw)",
            Self::Gcs => "Google Cloud Storage (fake-gcs-server)",
            Self::Sftp => "SFTP (OpenSSH)",
            Self::Host => "another host, over SSH",
            Self::Relay => "a posthaste relay",
            Self::Http => "HTTP (nginx)",
            Self::WebDav => "WebDAV (nginx)",
            Self::GridFtp => "GridFTP (globus-gridftp-server)",
        }
    }
}

/// The servers behind a place.
#[derive(Debug)]
enum Server {
    None,
    S3(S3Server),
    Gcs(GcsServer),
    Ssh(SshServer),
    /// With an SSH server on the same files for those who don't speak to relays.
    Relay {
        _running: RunningRelay,
        ssh: SshServer,
    },
    Web(WebServer),
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
    /// Where what it holds lies on this machine.
    pub ground: PathBuf,
    /// The home of the tools: nobody else's configuration is read.
    pub home: PathBuf,
    server: Server,
    pub sink: Sink,
}

impl Site {
    /// Starts what the place needs, below the benchmark's folder.
    ///
    /// # Errors
    /// When a server is missing or does not start.
    pub fn start(place: Place, benchmark: &Path, posthaste: &Path) -> anyhow::Result<Self> {
        let home = benchmark.join("home").join(place.name());
        fs::create_dir_all(&home)?;
        let folder = benchmark.join("far").join(place.name());
        fs::create_dir_all(&folder)?;
        let (server, ground) = match place {
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
            Place::Sftp | Place::Host => (Server::Ssh(SshServer::start()?), folder),
            Place::Relay => {
                let relay = start_relay(&folder, &home, posthaste)?;
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
            Place::GridFtp => {
                know_plugin(&home)?;
                let server =
                    GridFtpServer::start_at(&posthaste_testbed::Place::default(), benchmark)?;
                let ground = server.files();
                (Server::Grid(server), ground)
            }
        };
        Ok(Self {
            place,
            home,
            server,
            sink: Sink::start(benchmark)?,
            ground,
        })
    }

    /// What every tool gets to know.
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
        let mut far = |name: &str, value: String| all.push((name.to_owned(), value));
        match &self.server {
            Server::None => {}
            Server::S3(server) => {
                for (name, value) in server.environment() {
                    far(name, value);
                }
                far("RCLONE_CONFIG_FAR_TYPE", "s3".to_owned());
                far("RCLONE_CONFIG_FAR_PROVIDER", "Other".to_owned());
                far("RCLONE_CONFIG_FAR_ENV_AUTH", "true".to_owned());
                far("RCLONE_CONFIG_FAR_REGION", "us-east-1".to_owned());
                far("RCLONE_CONFIG_FAR_ENDPOINT", server.endpoint());
                far("RCLONE_S3_NO_CHECK_BUCKET", "true".to_owned());
            }
            Server::Gcs(server) => {
                for (name, value) in server.environment() {
                    far(name, value);
                }
                far("RCLONE_CONFIG_FAR_TYPE", "google cloud storage".to_owned());
                far("RCLONE_CONFIG_FAR_ANONYMOUS", "true".to_owned());
                let endpoint = format!("{}/storage/v1/", server.endpoint());
                far("RCLONE_CONFIG_FAR_ENDPOINT", endpoint);
                far("RCLONE_GCS_NO_CHECK_BUCKET", "true".to_owned());
            }
            Server::Ssh(server) | Server::Relay { ssh: server, .. } => {
                far("RCLONE_CONFIG_FAR_TYPE", "sftp".to_owned());
                far("RCLONE_CONFIG_FAR_HOST", "127.0.0.1".to_owned());
                far("RCLONE_CONFIG_FAR_USER", server.user().to_owned());
                far("RCLONE_CONFIG_FAR_PORT", server.port().to_string());
                far("RCLONE_CONFIG_FAR_KEY_FILE", self.ssh_key());
                far("RCLONE_CONFIG_FAR_SHELL_TYPE", "unix".to_owned());
            }
            Server::Web(server) if self.place == Place::Http => {
                far("RCLONE_CONFIG_FAR_TYPE", "http".to_owned());
                far("RCLONE_CONFIG_FAR_URL", server.address(WebFace::Pages, ""));
            }
            Server::Web(server) => {
                let port = server.port(WebFace::Dav);
                far("RCLONE_CONFIG_FAR_TYPE", "webdav".to_owned());
                far("RCLONE_CONFIG_FAR_VENDOR", "other".to_owned());
                far("RCLONE_CONFIG_FAR_URL", format!("http://127.0.0.1:{port}"));
            }
            Server::Grid(_) => {}
        }
        all
    }

    fn ssh_key(&self) -> String {
        let options = self.ssh_options();
        let key = options
            .iter()
            .find_map(|option| option.strip_prefix("IdentityFile="));
        key.unwrap_or_default().to_owned()
    }

    /// Options with which `ssh` reaches the host.
    pub fn ssh_options(&self) -> Vec<String> {
        match &self.server {
            Server::Ssh(server) | Server::Relay { ssh: server, .. } => {
                let mut options = server.options();
                options.push(format!("Port={}", server.port()));
                options
            }
            Server::None | Server::S3(_) | Server::Gcs(_) | Server::Web(_) | Server::Grid(_) => {
                Vec::new()
            }
        }
    }

    /// The same as words of a command line.
    pub fn ssh_words(&self) -> Vec<String> {
        let options = self.ssh_options().into_iter();
        options
            .flat_map(|option| ["-o".to_owned(), option])
            .collect()
    }

    /// `user@127.0.0.1`.
    pub fn login(&self) -> String {
        match &self.server {
            Server::Ssh(server) | Server::Relay { ssh: server, .. } => {
                format!("{}@127.0.0.1", server.user())
            }
            Server::None | Server::S3(_) | Server::Gcs(_) | Server::Web(_) | Server::Grid(_) => {
                String::new()
            }
        }
    }

    /// What posthaste calls `name` there.
    pub fn address(&self, name: &str) -> String {
        let path = self.ground.join(name);
        match (&self.server, self.place) {
            (Server::S3(_), _) => format!("s3://{}/{name}", S3Server::BUCKET),
            (Server::Gcs(_), _) => format!("gs://{}/{name}", GcsServer::BUCKET),
            (Server::Ssh(server), Place::Sftp) => server.address(&path.display().to_string()),
            (Server::Ssh(_), _) => format!("{}:{}", self.login(), path.display()),
            (Server::Relay { .. }, _) => format!("far:{name}"),
            (Server::Web(server), Place::Http) => server.address(WebFace::Json, name),
            (Server::Web(server), _) => server.address(WebFace::Dav, name),
            (Server::Grid(server), _) => format!("gsiftp://{}", server.address(name)),
            (Server::None, _) => path.display().to_string(),
        }
    }

    /// What `globus-url-copy` calls it.
    pub fn grid_address(&self, name: &str) -> String {
        match &self.server {
            Server::Grid(server) => format!("{}/", server.url(name)),
            Server::None
            | Server::S3(_)
            | Server::Gcs(_)
            | Server::Ssh(_)
            | Server::Relay { .. }
            | Server::Web(_) => String::new(),
        }
    }

    /// What rclone calls it; it reaches a relay's files over SFTP.
    pub fn rclone_address(&self, name: &str) -> String {
        let path = self.ground.join(name);
        match &self.server {
            Server::None | Server::Grid(_) => path.display().to_string(),
            Server::S3(_) => format!("far:{}/{name}", S3Server::BUCKET),
            Server::Gcs(_) => format!("far:{}/{name}", GcsServer::BUCKET),
            Server::Web(_) => format!("far:{name}"),
            Server::Ssh(_) | Server::Relay { .. } => format!("far:{}", path.display()),
        }
    }

    /// The S3 server's address, where there is one.
    pub fn s3_endpoint(&self) -> Option<String> {
        match &self.server {
            Server::S3(server) => Some(server.endpoint()),
            Server::None
            | Server::Gcs(_)
            | Server::Ssh(_)
            | Server::Relay { .. }
            | Server::Web(_)
            | Server::Grid(_) => None,
        }
    }
}

/// Makes the plug-in for GridFTP known.
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

/// Starts a relay and makes it known under the name `far`.
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
    write_private(&home.join(".config/posthaste/profiles.toml"), &text)?;
    Ok(relay)
}
