use std::{
    cell::RefCell,
    fs,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::{Running, certificates, free_port, install, wait_until_listening};

/// Script of the provider and of its users' browser.
const SCRIPT: &str = include_str!("identity_server/provider.mjs");

/// An OpenID provider, oidc-provider for Node.js, with two users: `u1001` is alice of the group
/// climate, and `u1002` is olga of the groups climate and hpc-ops.
#[derive(Debug)]
pub struct IdentityServer {
    running: Option<Running>,
    chores: RefCell<Option<(ChildStdin, BufReader<ChildStdout>)>>,
    script: PathBuf,
    folder: TempDir,
    port: u16,
    has_tls: bool,
}

impl IdentityServer {
    /// Its public client, which may use the device flow.
    pub const CLIENT_ID: &'static str = "posthaste";

    /// Starts it.
    ///
    /// # Errors
    /// Fails if the program is missing or does not start.
    pub fn start() -> Result<Self> {
        Self::start_as(false)
    }

    /// Starts it with TLS.
    ///
    /// # Errors
    /// See [`IdentityServer::start`].
    pub fn start_with_tls() -> Result<Self> {
        Self::start_as(true)
    }

    fn start_as(has_tls: bool) -> Result<Self> {
        let script = install::find_node_program(install::OIDC_PROVIDER)?;
        let folder = tempfile::Builder::new()
            .prefix("posthaste-identity-")
            .tempdir()
            .context("make a folder for the OpenID provider")?;
        fs::write(folder.path().join("provider.mjs"), SCRIPT)?;
        if has_tls {
            certificates::write(folder.path())?;
        }
        let mut server = Self {
            running: None,
            chores: RefCell::default(),
            script,
            folder,
            port: free_port()?,
            has_tls,
        };
        server.restart()?;
        Ok(server)
    }

    /// Starts it again after [`IdentityServer::stop`], with new keys. Logins in progress are lost.
    ///
    /// # Errors
    /// Fails if it does not start.
    pub fn restart(&mut self) -> Result<()> {
        let log = fs::File::create(self.folder.path().join("log"))?;
        let mut command = Command::new(install::find_node()?);
        command
            .arg(self.folder.path().join("provider.mjs"))
            .arg(&self.script)
            .arg(self.port.to_string());
        if self.has_tls {
            let file = |name| self.folder.path().join(name);
            command
                .args([file(certificates::CERTIFICATE), file(certificates::KEY)])
                .env("NODE_EXTRA_CA_CERTS", self.authority());
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("start node")?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let pipes = pipes.map(|(to, from)| (to, BufReader::new(from)));
        self.chores = RefCell::new(pipes);
        let mut running = Running(child);
        wait_until_listening(&mut running, self.port, "the OpenID provider")?;
        self.running = Some(running);
        Ok(())
    }

    /// Stops it: it is unreachable until it is started again.
    pub fn stop(&mut self) {
        self.running = None;
        self.chores = RefCell::default();
    }

    /// Returns the issuer that its tokens name.
    #[must_use]
    pub fn issuer(&self) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    /// Returns the certificate to trust, for a server with TLS.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join(certificates::AUTHORITY)
    }

    /// Makes it do a chore, such as `{"chore": "rotate"}`, and returns its answer, a line of JSON
    /// with `said` or `failed`:
    /// - `sign` makes a token: `by` an algorithm, with more or other `header` and `claims`, and
    ///   with a foreign key if `whose` is `others`;
    /// - `approve` goes to `url` as the user `login` and consents, `deny` refuses;
    /// - `rotate` replaces all keys by new ones;
    /// - `live` sets the life of ID tokens to `s` seconds;
    /// - `slow` answers the next request for tokens with `slow_down`;
    /// - `polls` returns the times of requests for tokens, in milliseconds.
    ///
    /// # Errors
    /// Fails if it does not run.
    pub fn ask(&self, chore: &str) -> Result<String> {
        let mut chores = self.chores.borrow_mut();
        let Some((to, from)) = chores.as_mut() else {
            bail!("the OpenID provider does not run");
        };
        writeln!(to, "{chore}")?;
        let mut said = String::new();
        from.read_line(&mut said)?;
        Ok(said)
    }
}
