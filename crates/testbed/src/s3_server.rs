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
    running: Running,
    folder: TempDir,
    address: SocketAddr,
    place: Place,
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
        let folder = tempfile::Builder::new()
            .prefix("posthaste-s3-")
            .tempdir_in(parent)
            .context("make a folder for the S3 server")?;
        let objects = folder.path().join("objects");
        fs::create_dir_all(objects.join(Self::BUCKET))?;
        let address = SocketAddr::new(place.address(), free_port()?);
        let running = run(place, folder.path(), address)?;
        Ok(Self {
            running,
            folder,
            address,
            place: place.clone(),
        })
    }

    /// Kills it, as a crash would. What it had stays.
    pub fn kill(&mut self) {
        // An ended process can't be killed again.
        let _ = self.running.0.kill();
        let _ = self.running.0.wait();
    }

    /// Starts it again at the same address, with what it had.
    ///
    /// # Errors
    /// As [`S3Server::start`].
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        self.running = run(&self.place, self.folder.path(), self.address)?;
        Ok(())
    }

    /// `http://ADDRESS:PORT`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The process, to measure it.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.running.0.id()
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

fn run(place: &Place, folder: &Path, address: SocketAddr) -> Result<Running> {
    let program = install::find_s3_server()?;
    let log = fs::File::create(folder.join("log"))?;
    let child = place
        .command(&program)
        .args(["--port", &address.to_string()])
        .args(["--quiet", "--keep-alive", "posix"])
        .arg(folder.join("objects"))
        .env("ROOT_ACCESS_KEY", S3Server::ACCESS_KEY)
        .env("ROOT_SECRET_KEY", S3Server::SECRET_KEY)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    let mut running = Running(child);
    place.wait_until_listening(&mut running, address.port(), "the S3 server")?;
    Ok(running)
}
