//! Processes and folders of the demo: created, killed and removed.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use posthaste_api as api;
use posthaste_types::Bytes;
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::{
    client::ServiceClient,
    failure::{Exit, Failure},
};

/// Relays, and the share of the dataset that each accepts a second, in thousandths: together they
/// need about half the minute, also after one of them is lost.
const RELAYS: [(&str, u64); 4] = [("ash", 36), ("birch", 33), ("cedar", 30), ("dune", 27)];
/// Least rate: a tiny tree must not be finished before anything is seen.
const RATE_MIN_BYTES_PER_S: u64 = 200 << 10;
/// Capacity of each relay, as a multiple of the tree's size.
const CAPACITY_FACTOR: u64 = 4;

/// Processes and folders of one demo. Dropping it kills and removes them.
pub(super) struct Stage {
    folder: tempfile::TempDir,
    keep: bool,
    relays: Vec<Relay>,
    serving: Option<Child>,
    client: Option<ServiceClient>,
    dead: Option<String>,
}

struct Relay {
    name: &'static str,
    process: Child,
}

/// Output of `posthaste relay --json`.
#[derive(Deserialize)]
struct RelayReady {
    url: String,
    fingerprint: String,
    secret_file: PathBuf,
}

/// Output of `posthaste serve --json`.
#[derive(Deserialize)]
struct ServiceReady {
    url: String,
    token_file: PathBuf,
}

impl Stage {
    pub(super) fn set_up(keep: bool) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("posthaste-demo-").tempdir();
        let folder = folder.map_err(|cause| {
            Failure::new(
                Exit::Other,
                format!("can't make a folder for the demo: {cause}"),
            )
        })?;
        Ok(Self {
            folder,
            keep,
            relays: Vec::new(),
            serving: None,
            client: None,
            dead: None,
        })
    }

    pub(super) fn scratch(&self) -> PathBuf {
        self.folder.path().join("scratch")
    }

    pub(super) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub(super) fn depots(&self) -> Vec<String> {
        RELAYS.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    pub(super) fn dead(&self) -> Option<&str> {
        self.dead.as_deref()
    }

    pub(super) fn service(&self) -> &ServiceClient {
        self.client.as_ref().expect("the stage was started")
    }

    /// Starts the relays and the service, and registers the relays.
    pub(super) async fn start(&mut self, bytes: Bytes) -> Result<(), Failure> {
        let mut depots = Vec::new();
        for (name, thousandths) in RELAYS {
            let rate = (bytes.get() * thousandths / 1000).max(RATE_MIN_BYTES_PER_S);
            let (process, ready) = self.start_relay(name, rate, bytes).await?;
            self.relays.push(Relay { name, process });
            depots.push((name, ready));
        }
        let state = self.folder.path().join("service");
        let arguments = ["serve", "--json", "--listen", "127.0.0.1:0", "--state"];
        let log = self.folder.path().join("service.log");
        let (process, ready) = start::<ServiceReady>(&arguments, &[&state], &log).await?;
        self.serving = Some(process);
        let token = posthaste_service::read_private(&ready.token_file)?;
        let client = ServiceClient::with_token(&ready.url, token)?;
        for (name, relay) in depots {
            let new = api::NewDepot {
                name: name.to_owned(),
                url: relay.url,
                fingerprint: relay.fingerprint,
                secret: posthaste_service::read_private(&relay.secret_file)?,
                ..api::NewDepot::default()
            };
            let _added: api::Depot = client.post("/v1/depots", &new).await?;
        }
        self.client = Some(client);
        Ok(())
    }

    async fn start_relay(
        &self,
        name: &str,
        rate: u64,
        bytes: Bytes,
    ) -> Result<(Child, RelayReady), Failure> {
        let directory = self.folder.path().join("relays").join(name);
        let capacity = bytes.times(CAPACITY_FACTOR).get().max(64 << 20).to_string();
        let rate = rate.to_string();
        let arguments = [
            "relay",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--name",
            name,
            "--capacity",
            &capacity,
            "--rate",
            &rate,
            "--dir",
        ];
        let log = self.folder.path().join(format!("{name}.log"));
        start(&arguments, &[&directory], &log).await
    }

    /// Kills, with SIGKILL, the relay that holds most.
    pub(super) fn kill_busiest(&mut self, request: &api::Request) -> Result<(), Failure> {
        let busiest = request.shares.iter().max_by_key(|share| share.stored_bytes);
        let Some(name) = busiest.map(|share| share.depot.clone()) else {
            return Ok(());
        };
        if let Some(relay) = self.relays.iter_mut().find(|relay| relay.name == name) {
            relay.process.start_kill().map_err(|cause| {
                Failure::new(Exit::Other, format!("can't kill relay {name}: {cause}"))
            })?;
            self.dead = Some(name);
        }
        Ok(())
    }

    /// Ends everything and removes the folders, or reports where they are.
    pub(super) async fn tear_down(mut self) {
        for relay in &mut self.relays {
            let _ = relay.process.kill().await;
        }
        if let Some(serving) = &mut self.serving {
            let _ = serving.kill().await;
        }
        if self.keep {
            let folder = self.folder.keep();
            crate::output::note!("demo: everything is in {}", folder.display());
        }
    }
}

/// Starts this very executable with `arguments` and `paths`, and reads the JSON object it prints
/// when it is ready. It ends when we do, because only we hold the pipe of its standard input.
async fn start<T: for<'a> Deserialize<'a>>(
    arguments: &[&str],
    paths: &[&Path],
    log: &Path,
) -> Result<(Child, T), Failure> {
    let failed =
        |what: String| Failure::new(Exit::Other, format!("can't start {}: {what}", arguments[0]));
    let program = std::env::current_exe().map_err(|cause| failed(cause.to_string()))?;
    let log_file = std::fs::File::create(log).map_err(|cause| failed(cause.to_string()))?;
    let mut child = Command::new(program)
        .args(arguments)
        .args(paths)
        .arg("--until-stdin-closes")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log_file)
        .kill_on_drop(true)
        .spawn()
        .map_err(|cause| failed(cause.to_string()))?;
    let stdout = child
        .stdout
        .take()
        .ok_or_else(|| failed("it has no output".into()))?;
    let mut line = String::new();
    let read = BufReader::new(stdout).read_line(&mut line).await;
    read.map_err(|cause| failed(cause.to_string()))?;
    let ready = serde_json::from_str(&line).map_err(|_| {
        let said = std::fs::read_to_string(log).unwrap_or_default();
        failed(said.trim().to_owned())
    })?;
    Ok((child, ready))
}
