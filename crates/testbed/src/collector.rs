use std::{fs, net::SocketAddr, path::PathBuf, process::Stdio};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::{Place, Running, free_port, install};

/// An OpenTelemetry Collector that takes OTLP over HTTP, and writes what it got into a file, a batch of JSON a line.
#[derive(Debug)]
pub struct Collector {
    _running: Running,
    folder: TempDir,
    address: SocketAddr,
}

impl Collector {
    /// Starts it.
    ///
    /// # Errors
    /// When the program is missing or does not start.
    pub fn start() -> Result<Self> {
        let place = Place::default();
        Self::start_at(SocketAddr::new(place.address(), free_port()?))
    }

    /// Starts it where somebody sends to already.
    ///
    /// # Errors
    /// As [`Collector::start`].
    pub fn start_at(address: SocketAddr) -> Result<Self> {
        let program = install::find_collector()?;
        let folder = tempfile::Builder::new()
            .prefix("posthaste-collector-")
            .tempdir()
            .context("make a folder for the collector")?;
        let config = folder.path().join("config.yaml");
        let written = folder.path().join("spans.jsonl");
        let text = format!(
            "receivers:\n  otlp:\n    protocols:\n      http:\n        endpoint: {address}\n\
             exporters:\n  file:\n    path: {}\n    flush_interval: 100ms\n\
             service:\n  telemetry:\n    metrics:\n      level: none\n  pipelines:\n    traces:\n      \
             receivers: [otlp]\n      exporters: [file]\n",
            written.display()
        );
        fs::write(&config, text)?;
        let log = fs::File::create(folder.path().join("log"))?;
        let place = Place::default();
        let child = place
            .command(&program)
            .arg(format!("--config=file:{}", config.display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut running = Running(child);
        place.wait_until_listening(&mut running, address.port(), "the collector")?;
        Ok(Self {
            _running: running,
            folder,
            address,
        })
    }

    /// Where it takes spans.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as people write it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The file with what it got.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("spans.jsonl")
    }
}
