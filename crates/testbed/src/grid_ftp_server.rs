use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::{Place, Running, free_port, install, is_root};

/// A GridFTP server over a temporary folder, open to everybody: no certificates, no other folders.
#[derive(Debug)]
pub struct GridFtpServer {
    _running: Running,
    folder: TempDir,
    address: SocketAddr,
}

impl GridFtpServer {
    /// Starts it.
    ///
    /// # Errors
    /// Fails if the program is missing or does not start.
    pub fn start() -> Result<Self> {
        Self::start_at(&Place::default(), &std::env::temp_dir())
    }

    /// Starts it somewhere else, with its folder below `parent`.
    ///
    /// # Errors
    /// See [`GridFtpServer::start`].
    pub fn start_at(place: &Place, parent: &Path) -> Result<Self> {
        let program = install::find_debian_program(install::GRIDFTP_SERVER)?;
        let folder = tempfile::Builder::new()
            .prefix("posthaste-gridftp-")
            .tempdir_in(parent)
            .context("make a folder for the GridFTP server")?;
        let files = folder.path().join("files");
        fs::create_dir(&files)?;
        let address = SocketAddr::new(place.address(), free_port()?);
        let interface = place.address().to_string();
        let log = fs::File::create(folder.path().join("log"))?;
        let mut command = place.command(&program);
        command
            .args(["-allow-anonymous", "-port", &address.port().to_string()])
            .args(["-control-interface", &interface])
            .args(["-data-interface", &interface])
            .arg("-restrict-paths")
            .arg(&files)
            .arg("-home-dir")
            .arg(&files);
        if is_root()? {
            command.args(["-anonymous-user", "root", "-allow-root"]);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut running = Running(child);
        place.wait_until_listening(&mut running, address.port(), "the GridFTP server")?;
        Ok(Self {
            _running: running,
            folder,
            address,
        })
    }

    /// Returns the folder of its files.
    #[must_use]
    pub fn files(&self) -> PathBuf {
        self.folder.path().join("files")
    }

    /// Returns `anonymous@ADDRESS:PORT/PATH` of a file or folder below [`GridFtpServer::files`]:
    /// the text after `gsiftp://`.
    #[must_use]
    pub fn address(&self, below: &str) -> String {
        let path = self.files().join(below);
        format!("anonymous@{}{}", self.address, path.display())
    }

    /// Returns the URL of that file or folder for `globus-url-copy`.
    #[must_use]
    pub fn url(&self, below: &str) -> String {
        format!(
            "ftp://{}{}",
            self.address,
            self.files().join(below).display()
        )
    }

    /// Ends every connection, as a server does with long idle ones.
    pub fn hang_up(&self) {
        // Each connection has a process of its own.
        let children = format!("/proc/{0}/task/{0}/children", self.process_id());
        let children = fs::read_to_string(children).unwrap_or_default();
        for child in children.split_whitespace() {
            // A connection may have ended since.
            let _ = Command::new("kill").args(["-KILL", child]).status();
        }
    }

    /// Process number, for measurements.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self._running.0.id()
    }
}
