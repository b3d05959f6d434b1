use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::{LOOK_EVERY, LOOKS_MAX, Place, Running, certificates, free_port, install};

/// Kind of S3 server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum S3Kind {
    /// versitygw: objects are plain files below its folder.
    Versity,
    /// `MinIO`: another code base, with rules and a layout of its own.
    Minio,
}

/// An S3 server over a temporary folder, with one empty bucket.
#[derive(Debug)]
pub struct S3Server {
    running: Running,
    folder: TempDir,
    address: SocketAddr,
    place: Place,
    kind: S3Kind,
    has_tls: bool,
}

impl S3Server {
    /// The bucket that is there from the start.
    pub const BUCKET: &'static str = "testbed";
    /// Its access key.
    pub const ACCESS_KEY: &'static str = "testbed-access";
    /// Its secret, known to every reader of this file.
    pub const SECRET_KEY: &'static str = "testbed-secret";

    /// Starts versitygw.
    ///
    /// # Errors
    /// Fails if the program is missing or does not start.
    pub fn start() -> Result<Self> {
        Self::start_in(&std::env::temp_dir())
    }

    /// Starts a server of this kind.
    ///
    /// # Errors
    /// See [`S3Server::start`].
    pub fn start_as(kind: S3Kind) -> Result<Self> {
        let place = Place::default();
        Self::start_kind(kind, &place, &std::env::temp_dir(), false)
    }

    /// Starts versitygw behind TLS, with a certificate of an unknown authority.
    ///
    /// # Errors
    /// See [`S3Server::start`].
    pub fn start_with_tls() -> Result<Self> {
        let place = Place::default();
        Self::start_kind(S3Kind::Versity, &place, &std::env::temp_dir(), true)
    }

    /// Starts it with its folder below `parent`, for benchmarks that choose the disk.
    ///
    /// # Errors
    /// See [`S3Server::start`].
    pub fn start_in(parent: &Path) -> Result<Self> {
        Self::start_at(&Place::default(), parent)
    }

    /// Starts it with its folder below `parent`, at another place.
    ///
    /// # Errors
    /// See [`S3Server::start`].
    pub fn start_at(place: &Place, parent: &Path) -> Result<Self> {
        Self::start_kind(S3Kind::Versity, place, parent, false)
    }

    fn start_kind(kind: S3Kind, place: &Place, parent: &Path, has_tls: bool) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("posthaste-s3-")
            .tempdir_in(parent)
            .context("make a folder for the S3 server")?;
        fs::create_dir_all(folder.path().join("objects").join(Self::BUCKET))?;
        let address = SocketAddr::new(place.address(), free_port()?);
        if has_tls {
            certificates::write(folder.path())?;
        }
        let running = run(kind, place, folder.path(), address, has_tls)?;
        Ok(Self {
            running,
            folder,
            address,
            place: place.clone(),
            kind,
            has_tls,
        })
    }

    /// Kills it, as a crash would. Its data stays.
    pub fn kill(&mut self) {
        // An ended process can't be killed again.
        let _ = self.running.0.kill();
        let _ = self.running.0.wait();
    }

    /// Starts it again at the same address, with the same data.
    ///
    /// # Errors
    /// See [`S3Server::start`].
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        let (folder, address) = (self.folder.path(), self.address);
        self.running = run(self.kind, &self.place, folder, address, self.has_tls)?;
        Ok(())
    }

    /// Returns `http://ADDRESS:PORT`, or `https://` with TLS.
    #[must_use]
    pub fn endpoint(&self) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the certificate of the authority behind its TLS.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join(certificates::AUTHORITY)
    }

    /// Process number, for measurements.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.running.0.id()
    }

    /// Returns the environment with which `posthaste`, `rclone` and `s5cmd` reach it.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ACCESS_KEY_ID", Self::ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", Self::SECRET_KEY.to_owned()),
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    /// Returns the folder of the bucket's objects, as plain files with versitygw.
    #[must_use]
    pub fn bucket_folder(&self) -> PathBuf {
        self.folder.path().join("objects").join(Self::BUCKET)
    }
}

fn run(
    kind: S3Kind,
    place: &Place,
    folder: &Path,
    address: SocketAddr,
    has_tls: bool,
) -> Result<Running> {
    let program = install::find_s3_server(kind)?;
    let mut command = place.command(&program);
    match kind {
        S3Kind::Versity => versity(&mut command, folder, address, has_tls),
        S3Kind::Minio => minio(&mut command, folder, address),
    }
    let log = fs::File::create(folder.join("log"))?;
    let child = command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    let mut running = Running(child);
    place.wait_until_listening(&mut running, address.port(), "the S3 server")?;
    if kind == S3Kind::Minio {
        wait_until_ready(address)?;
    }
    Ok(running)
}

fn versity(command: &mut Command, folder: &Path, address: SocketAddr, has_tls: bool) {
    command
        .args(["--port", &address.to_string()])
        .args(["--quiet", "--keep-alive"])
        .env("ROOT_ACCESS_KEY", S3Server::ACCESS_KEY)
        .env("ROOT_SECRET_KEY", S3Server::SECRET_KEY);
    if has_tls {
        command
            .arg("--cert")
            .arg(folder.join(certificates::CERTIFICATE))
            .arg("--key")
            .arg(folder.join(certificates::KEY));
    }
    command.arg("posix").arg(folder.join("objects"));
}

fn minio(command: &mut Command, folder: &Path, address: SocketAddr) {
    command
        .args(["server", "--quiet", "--address", &address.to_string()])
        .arg("--certs-dir")
        .arg(folder.join("certificates"))
        .arg(folder.join("objects"))
        .env("MINIO_ROOT_USER", S3Server::ACCESS_KEY)
        .env("MINIO_ROOT_PASSWORD", S3Server::SECRET_KEY)
        .env("MINIO_BROWSER", "off")
        // Without it, the server would ask its maker for updates.
        .env("MINIO_UPDATE", "off")
        .env("HOME", folder);
}

/// Waits until `MinIO` can answer: it listens before that.
fn wait_until_ready(address: SocketAddr) -> Result<()> {
    let is_ready = || -> Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        let request = "GET /minio/health/cluster HTTP/1.0\r\nhost: testbed\r\n\r\n";
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.split(' ').nth(1) == Some("200"))
    };
    for _ in 0..LOOKS_MAX {
        if is_ready().unwrap_or(false) {
            return Ok(());
        }
        thread::sleep(LOOK_EVERY);
    }
    bail!("the S3 server never becomes ready")
}
