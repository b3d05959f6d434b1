use std::{
    fs,
    net::IpAddr,
    os::unix::fs::{DirBuilderExt, PermissionsExt, chown},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::{Place, Running, free_port, install};

/// An OpenSSH server with a host key, a user key and a `known_hosts` of its own.
#[derive(Debug)]
pub struct SshServer {
    _running: Running,
    folder: TempDir,
    address: IpAddr,
    port: u16,
    user: String,
}

impl SshServer {
    /// Starts it for the user of the test.
    ///
    /// # Errors
    /// Fails if the program is missing or does not start.
    pub fn start() -> Result<Self> {
        Self::start_at(&Place::default())
    }

    /// Starts it at another place.
    ///
    /// # Errors
    /// See [`SshServer::start`].
    pub fn start_at(place: &Place) -> Result<Self> {
        Self::start_refusing(place, "")
    }

    /// Starts it without these requests of SFTP (`fsync` and so on), like older servers or other
    /// than OpenSSH.
    ///
    /// # Errors
    /// See [`SshServer::start`].
    pub fn start_refusing(place: &Place, requests: &str) -> Result<Self> {
        match requests {
            "" => Self::start_serving(place, "internal-sftp"),
            _ => Self::start_serving(place, &format!("internal-sftp -P {requests}")),
        }
    }

    /// Starts it with another program as its server of SFTP.
    ///
    /// # Errors
    /// See [`SshServer::start`].
    pub fn start_serving(place: &Place, subsystem: &str) -> Result<Self> {
        let program = install::find_ssh_server()?;
        let folder = tempfile::Builder::new()
            .prefix("posthaste-ssh-")
            .tempdir()
            .context("make a folder for the SSH server")?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700))?;
        let file = |name: &str| folder.path().join(name);
        make_key(&file("host_key"))?;
        make_key(&file("user_key"))?;
        fs::copy(file("user_key.pub"), file("authorized_keys"))?;
        let user = output(Command::new("id").arg("-un"))?;
        if user == "root" {
            // Debian's package makes this folder at boot only.
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create("/run/sshd")?;
        }
        let (address, port) = (place.address(), free_port()?);
        let host_key = fs::read_to_string(file("host_key.pub"))?;
        fs::write(
            file("known_hosts"),
            format!("[{address}]:{port} {host_key}"),
        )?;
        fs::write(
            file("sshd_config"),
            config(folder.path(), address, port, subsystem),
        )?;
        let log = fs::File::create(file("log"))?;
        let child = place
            .command(&program)
            .arg("-D")
            .arg("-e")
            .arg("-f")
            .arg(file("sshd_config"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut running = Running(child);
        place.wait_until_listening(&mut running, port, "the SSH server")?;
        Ok(Self {
            _running: running,
            folder,
            address,
            port,
            user,
        })
    }

    /// Returns `sftp://user@ADDRESS:PORT` followed by `path`, which begins with a slash.
    #[must_use]
    pub fn address(&self, path: &str) -> String {
        format!("sftp://{}@{}:{}{path}", self.user, self.address, self.port)
    }

    /// Returns the user that may log in.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Gives the key to another user of this machine, which then logs in as the user of the test.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn lend_key(&self, user: u32) -> Result<()> {
        let folder = self.folder.path();
        for path in [
            folder,
            &folder.join("user_key"),
            &folder.join("known_hosts"),
        ] {
            chown(path, Some(user), Some(user))
                .with_context(|| format!("give {} away", path.display()))?;
        }
        Ok(())
    }

    /// Returns the port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the `ssh` options to reach it, and nothing but it.
    #[must_use]
    pub fn options(&self) -> Vec<String> {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        vec![
            format!("IdentityFile={}", file("user_key")),
            format!("UserKnownHostsFile={}", file("known_hosts")),
            "GlobalKnownHostsFile=/dev/null".to_owned(),
            "IdentitiesOnly=yes".to_owned(),
            "IdentityAgent=none".to_owned(),
            "StrictHostKeyChecking=yes".to_owned(),
        ]
    }
}

/// Makes the server's settings. Whoever logs in has the server's folder as their home: start files of the
/// shell of whoever runs the tests may print something, or take long.
fn config(folder: &Path, address: IpAddr, port: u16, subsystem: &str) -> String {
    let folder = folder.display();
    format!(
        "Port {port}\n\
         ListenAddress {address}\n\
         HostKey {folder}/host_key\n\
         AuthorizedKeysFile {folder}/authorized_keys\n\
         PidFile none\n\
         StrictModes no\n\
         UsePAM no\n\
         PasswordAuthentication no\n\
         KbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\n\
         MaxStartups 100\n\
         SetEnv HOME={folder}\n\
         LogLevel ERROR\n\
         Subsystem sftp {subsystem}\n"
    )
}

fn make_key(path: &Path) -> Result<()> {
    let status = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "testbed", "-f"])
        .arg(path)
        .stdin(Stdio::null())
        .status()
        .context("run ssh-keygen")?;
    ensure!(status.success(), "ssh-keygen failed: {status}");
    Ok(())
}

fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("run {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} failed: {}",
        output.status
    );
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
