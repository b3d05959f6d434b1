use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::{Place, Running, free_port, install};

/// A versitygw over a temporary folder, with one empty bucket.
#[derive(Debug)]
pub struct S3Server {
    _running: Running,
    folder: TempDir,
    address: SocketAddr,
}

impl S3Server {
    /// The bucket that is there from the start.
    pub const BUCKET: &'static str = "testbed";
    /// The access key it knows.
    pub const ACCESS_KEY: &'static str = "testbed-access";
    /// Its secret, known to everybody who reads this.
    pub const SECRET_KEY: &'static str = "testbed-secret";

    /// Starts it.
    ///
    /// # Errors
    /// When the program is missing or does not start.
    pub fn start() -> Result<Self> {
        Self::start_in(&std::env::temp_dir())
    }

    /// Starts it with its folder below `parent`, for benchmarks that choose the disk.
    ///
    /// # Errors
    /// As [`S3Server::start`].
    pub fn start_in(parent: &Path) -> Result<Self> {
        Self::start_at(&Place::default(), parent)
    }

    /// As [`S3Server::start_in`], somewhere else.
    ///
    /// # Errors
    /// As [`S3Server::start`].
    pub fn start_at(place: &Place, parent: &Path) -> Result<Self> {
        let program = install::find_s3_server()?;
        let folder = tempfile::Builder::new()
            .prefix("posthaste-s3-")
            .tempdir_in(parent)
            .context("make a folder for the S3 server")?;
        let objects = folder.path().join("objects");
        fs::create_dir_all(objects.join(Self::BUCKET))?;
        let address = SocketAddr::new(place.address(), free_port()?);
        let log = fs::File::create(folder.path().join("log"))?;
        let child = place
            .command(&program)
            .args(["--port", &address.to_string()])
            .args(["--quiet", "--keep-alive", "posix"])
            .arg(&objects)
            .env("ROOT_ACCESS_KEY", Self::ACCESS_KEY)
            .env("ROOT_SECRET_KEY", Self::SECRET_KEY)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut running = Running(child);
        place.wait_until_listening(&mut running, address.port(), "the S3 server")?;
        Ok(Self {
            _running: running,
            folder,
            address,
        })
    }

    /// `http://ADDRESS:PORT`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The process, to measure it.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self._running.0.id()
    }

    /// The environment with which `posthaste`, `rclone` and `s5cmd` reach it.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ACCESS_KEY_ID", Self::ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", Self::SECRET_KEY.to_owned()),
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    /// Where the bucket's objects lie as files.
    #[must_use]
    pub fn bucket_folder(&self) -> PathBuf {
        self.folder.path().join("objects").join(Self::BUCKET)
    }
}
