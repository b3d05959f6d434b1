use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::{Place, Running, certificates, free_port, install};

/// Script that signs in the name of the account.
const SCRIPT: &str = include_str!("azure_server/account.js");

/// Azurite, the blob service of a storage account over a temporary folder, with one empty
/// container.
#[derive(Debug)]
pub struct AzureServer {
    _running: Running,
    folder: TempDir,
    address: SocketAddr,
    has_tls: bool,
}

impl AzureServer {
    /// The container that is there from the start.
    pub const CONTAINER: &'static str = "testbed";
    /// The storage account.
    pub const ACCOUNT: &'static str = "testbedaccount";
    /// Key of the account, known to every reader of this file.
    pub const ACCOUNT_KEY: &'static str = "dGVzdGJlZC1zZWNyZXQ=";

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
    /// See [`AzureServer::start`].
    pub fn start_at(place: &Place, parent: &Path) -> Result<Self> {
        Self::start_as(place, parent, &["--skipApiVersionCheck"])
    }

    /// Starts it with TLS, which it requires of clients with a bearer token.
    ///
    /// # Errors
    /// See [`AzureServer::start`].
    pub fn start_with_tls() -> Result<Self> {
        let parent = std::env::temp_dir();
        Self::start_as(&Place::default(), &parent, &["--oauth", "basic"])
    }

    /// Starts it such that it ignores unknown headers, CRC-64/NVME above all, instead of rejecting
    /// them.
    ///
    /// # Errors
    /// See [`AzureServer::start`].
    pub fn start_loose() -> Result<Self> {
        Self::start_as(&Place::default(), &std::env::temp_dir(), &["--loose"])
    }

    fn start_as(place: &Place, parent: &Path, options: &[&str]) -> Result<Self> {
        let has_tls = options.contains(&"--oauth");
        let script = install::find_node_program(install::AZURITE)?;
        let folder = tempfile::Builder::new()
            .prefix("posthaste-azure-")
            .tempdir_in(parent)
            .context("make a folder for the Azure server")?;
        let address = SocketAddr::new(place.address(), free_port()?);
        let log = fs::File::create(folder.path().join("log"))?;
        let mut command = place.command(&install::find_node()?);
        command
            .arg(&script)
            .args(["--blobHost", &address.ip().to_string()])
            .args(["--blobPort", &address.port().to_string()])
            .arg("--location")
            .arg(folder.path().join("blobs"))
            .args(["--silent", "--disableTelemetry"])
            .args(options);
        if has_tls {
            certificates::write(folder.path())?;
            command
                .arg("--cert")
                .arg(folder.path().join(certificates::CERTIFICATE))
                .arg("--key")
                .arg(folder.path().join(certificates::KEY));
        }
        let accounts = format!("{}:{}", Self::ACCOUNT, Self::ACCOUNT_KEY);
        let child = command
            .env("AZURITE_ACCOUNTS", accounts)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {}", script.display()))?;
        let mut running = Running(child);
        place.wait_until_listening(&mut running, address.port(), "the Azure server")?;
        let server = Self {
            _running: running,
            folder,
            address,
            has_tls,
        };
        server.do_as_owner(place, "container", Self::CONTAINER)?;
        Ok(server)
    }

    /// Returns `http://ADDRESS:PORT/ACCOUNT`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://{}/{}", self.address, Self::ACCOUNT)
    }

    /// Address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Creates a container again, empty.
    ///
    /// # Errors
    /// Fails if the server refuses.
    pub fn empty_container(&self, name: &str) -> Result<()> {
        for chore in ["removal", "container"] {
            self.do_as_owner(&Place::default(), chore, name)?;
        }
        Ok(())
    }

    /// Returns a SAS token with these permissions, such as `rl` to read and list.
    ///
    /// # Errors
    /// Fails if Node.js is missing.
    pub fn sas_token(&self, permissions: &str) -> Result<String> {
        self.do_as_owner(&Place::default(), "sas", permissions)
    }

    /// Returns a bearer token for clients over TLS.
    ///
    /// # Errors
    /// Fails if Node.js is missing.
    pub fn bearer_token(&self) -> Result<String> {
        self.do_as_owner(&Place::default(), "token", "")
    }

    /// Returns the certificate of the authority that signed the server's.
    #[must_use]
    pub fn authority_file(&self) -> PathBuf {
        self.folder.path().join(certificates::AUTHORITY)
    }

    /// Returns a profile `azure` with the account's key.
    #[must_use]
    pub fn profile(&self) -> String {
        format!(
            "[azure]\nendpoint = \"{}\"\naccount = \"{}\"\naccount_key = \"{}\"\n",
            self.endpoint(),
            Self::ACCOUNT,
            Self::ACCOUNT_KEY
        )
    }

    /// Returns the environment with which `posthaste` reaches it.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let text = format!(
            "DefaultEndpointsProtocol=http;AccountName={};AccountKey={};BlobEndpoint={};",
            Self::ACCOUNT,
            Self::ACCOUNT_KEY,
            self.endpoint()
        );
        vec![("AZURE_STORAGE_CONNECTION_STRING", text)]
    }

    /// Process number, for measurements.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self._running.0.id()
    }

    fn do_as_owner(&self, place: &Place, chore: &str, argument: &str) -> Result<String> {
        let mut command: Command = place.command(&install::find_node()?);
        let output = command
            .args(["-e", SCRIPT, "--", chore, &self.endpoint()])
            .args([Self::ACCOUNT, Self::ACCOUNT_KEY, argument])
            .stdin(Stdio::null())
            .output()
            .context("run node")?;
        ensure!(
            output.status.success(),
            "can't do \"{chore}\" with the Azure server: {}",
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
        Ok(String::from_utf8(output.stdout)?)
    }
}
