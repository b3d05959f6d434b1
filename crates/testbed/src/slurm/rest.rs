//! slurmrestd of a Slurm, as another user than root, since it refuses to be root.

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{PermissionsExt, chown},
        net::UnixStream,
    },
    path::Path,
    process::Command,
    thread,
};

use anyhow::{Context, Result, bail};

use super::{SUBMITTER, Slurm, accounts::quietly};
use crate::{
    LOOK_EVERY, LOOKS_MAX, Running, free_port, install, is_in_debian_13, wait_until_listening,
};

/// Interfaces that the slurmrestd of 22.05 offers where no accounts are kept: with its others it
/// would end at once.
const WITHOUT_ACCOUNTS: [&str; 2] = ["-s", "openapi/v0.0.36,openapi/v0.0.37,openapi/v0.0.38"];

/// A slurmrestd that runs.
#[derive(Debug)]
pub struct SlurmRest {
    url: String,
    port: Option<u16>,
    _running: Running,
}

impl SlurmRest {
    /// Returns the URL it listens on: `unix:///PATH` or `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns its port, if it has one.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }
}

/// Returns the settings for tokens.
pub(super) fn tokens(folder: &Path) -> String {
    format!(
        "AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={}/jwt.key\n",
        folder.display()
    )
}

impl Slurm {
    /// Makes it accept tokens from `scontrol token`. To be called before the start.
    ///
    /// # Errors
    /// Fails if nothing can be written.
    pub fn know_tokens(&self) -> Result<()> {
        let folder = self.folder.path();
        let key = folder.join("jwt.key");
        fs::write(&key, [7; 32])?;
        fs::set_permissions(&key, Permissions::from_mode(0o600))?;
        let conf = fs::read_to_string(folder.join("slurm.conf"))?;
        fs::write(folder.join("slurm.conf"), conf + &tokens(folder))?;
        Ok(())
    }

    /// Starts a slurmrestd on a socket, on which root is root.
    ///
    /// # Errors
    /// Fails if it is not installed, or does not start.
    pub fn rest_on_socket(&self) -> Result<SlurmRest> {
        let folder = self.folder.path().join("rest");
        fs::create_dir_all(&folder)?;
        let user = SUBMITTER.parse()?;
        chown(&folder, Some(user), Some(user))?;
        let socket = folder.join("socket");
        let _ = fs::remove_file(&socket);
        let place = format!("unix:{}", socket.display());
        let mut running = self.rest(self.as_user("slurmrestd"), "rest_auth/local", &place)?;
        for _ in 0..LOOKS_MAX {
            if UnixStream::connect(&socket).is_ok() {
                return Ok(SlurmRest {
                    url: format!("unix://{}", socket.display()),
                    port: None,
                    _running: running,
                });
            }
            if let Some(status) = running.0.try_wait()? {
                bail!("slurmrestd ended at once: {status}\n{}", self.rest_said());
            }
            thread::sleep(LOOK_EVERY);
        }
        bail!("slurmrestd does not listen at {}", socket.display())
    }

    /// Starts a slurmrestd that requires tokens on this port of the machine, or on any.
    ///
    /// # Errors
    /// Fails if it is not installed, or does not start.
    pub fn rest_on_port(&self, port: Option<u16>) -> Result<SlurmRest> {
        let port = port.map_or_else(free_port, Ok)?;
        let place = format!("127.0.0.1:{port}");
        let mut command = self.as_user("slurmrestd");
        // It requires some word there to accept tokens.
        command.env("SLURM_JWT", "daemon");
        let mut running = self.rest(command, "rest_auth/jwt", &place)?;
        wait_until_listening(&mut running, port, "slurmrestd").with_context(|| self.rest_said())?;
        Ok(SlurmRest {
            url: format!("http://{place}"),
            port: Some(port),
            _running: running,
        })
    }

    fn rest(&self, mut command: Command, auth: &str, place: &str) -> Result<Running> {
        install::find_debian_program(install::SLURM_REST)?;
        let mut arguments = vec!["-a", auth, place];
        if self.accounts.is_none() && !is_in_debian_13() {
            arguments.extend(WITHOUT_ACCOUNTS);
        }
        let child = quietly(&mut command, self.folder(), "slurmrestd", &arguments)?;
        Ok(Running(child))
    }

    fn rest_said(&self) -> String {
        fs::read_to_string(self.folder.path().join("slurmrestd.said")).unwrap_or_default()
    }
}
