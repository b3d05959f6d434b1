use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::{Place, Running, free_port, install};

/// A fake-gcs-server with one bucket. It speaks Google Cloud Storage's JSON API, composition
/// included, but checks no credentials and ignores conditions on reads.
#[derive(Debug)]
pub struct GcsServer {
    _running: Running,
    folder: TempDir,
    address: SocketAddr,
}

impl GcsServer {
    /// The bucket that is there from the start.
    pub const BUCKET: &'static str = "testbed";

    /// Starts it with an empty bucket in memory.
    ///
    /// # Errors
    /// Fails if the program is missing or does not start.
    pub fn start() -> Result<Self> {
        Self::start_with("memory", &std::env::temp_dir(), |_| {})
    }

    /// Starts it with a bucket that holds the files that `fill` writes into the given folder.
    ///
    /// # Errors
    /// See [`GcsServer::start`].
    pub fn start_filled(fill: impl FnOnce(&Path)) -> Result<Self> {
        Self::start_with("memory", &std::env::temp_dir(), fill)
    }

    /// Starts it with an empty bucket on disk below `parent`, where no name can be both an object
    /// and a prefix.
    ///
    /// # Errors
    /// See [`GcsServer::start`].
    pub fn start_on_disk(parent: &Path) -> Result<Self> {
        Self::start_with("filesystem", parent, |_| {})
    }

    fn start_with(backend: &str, parent: &Path, fill: impl FnOnce(&Path)) -> Result<Self> {
        let program = install::find_gcs_server()?;
        let folder = tempfile::Builder::new()
            .prefix("posthaste-gcs-")
            .tempdir_in(parent)
            .context("make a folder for the GCS server")?;
        let seed = folder.path().join("seed");
        let seeded = seed.join(Self::BUCKET);
        fs::create_dir_all(&seeded)?;
        fill(&seeded);
        let place = Place::default();
        let address = SocketAddr::new(place.address(), free_port()?);
        let log = fs::File::create(folder.path().join("log"))?;
        let mut command = place.command(&program);
        if backend == "filesystem" {
            let objects = folder.path().join("objects");
            command.arg("-filesystem-root").arg(objects);
        }
        let child = command
            .args(["-backend", backend, "-scheme", "http"])
            .args(["-host", &address.ip().to_string()])
            .args(["-port", &address.port().to_string()])
            .args(["-log-level", "error", "-data"])
            .arg(&seed)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut running = Running(child);
        place.wait_until_listening(&mut running, address.port(), "the GCS server")?;
        Ok(Self {
            _running: running,
            folder,
            address,
        })
    }

    /// Returns the folder of the bucket's objects, if it is on disk.
    #[must_use]
    pub fn bucket_folder(&self) -> PathBuf {
        self.folder.path().join("objects").join(Self::BUCKET)
    }

    /// Process number, for measurements.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self._running.0.id()
    }

    /// Address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns `http://ADDRESS:PORT`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the environment with which `posthaste` and Google's own tools reach it.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![("STORAGE_EMULATOR_HOST", self.address.to_string())]
    }

    /// Returns a profile that reaches it.
    #[must_use]
    pub fn profile(&self) -> String {
        let endpoint = self.endpoint();
        format!("[gcs]\nendpoint = \"{endpoint}\"\nanonymous = true\n")
    }
}
