use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::{
    LOOK_EVERY, LOOKS_MAX, Running, certificates, free_port, install, is_root, wait_until_listening,
};

/// ProFTPD over a temporary folder, for one user.
#[derive(Debug)]
pub struct FtpServer {
    _running: Running,
    folder: TempDir,
    face: FtpFace,
    port: u16,
}

/// Ways to speak to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FtpFace {
    /// Plain text.
    Plain,
    /// Plain text, [`FtpServer::FEW_SESSIONS`] at once, and without RANG, though it claims to have
    /// it.
    Few,
    /// TLS after `AUTH TLS`, required.
    Explicit,
    /// TLS from the first byte.
    Implicit,
    /// Plain text and without MLSD, like servers before RFC 3659.
    Old,
}

/// Hash of `testbed-secret` in the form of crypt(5).
const PASSWORD_HASH: &str = "$5$testbedsalt$WNEagITY6pDmyLXg2OWbQpo5FpeJX2BMsfpnU60BmvD";

impl FtpServer {
    /// Its user.
    pub const USER: &'static str = "testbed";
    /// The password, known to every reader of this file.
    pub const PASSWORD: &'static str = "testbed-secret";
    /// Sessions that [`FtpFace::Few`] allows at once.
    pub const FEW_SESSIONS: u32 = 2;

    /// Starts it.
    ///
    /// # Errors
    /// Fails if ProFTPD is missing or does not start.
    pub fn start(face: FtpFace) -> Result<Self> {
        Self::start_in(face, &std::env::temp_dir())
    }

    /// Starts it with its folder below `parent`, for benchmarks that choose the disk.
    ///
    /// # Errors
    /// See [`FtpServer::start`].
    pub fn start_in(face: FtpFace, parent: &Path) -> Result<Self> {
        let program = install::find_ftp_server()?;
        let folder = tempfile::Builder::new()
            .prefix("posthaste-ftp-")
            .tempdir_in(parent)
            .context("make a folder for the FTP server")?;
        let files = folder.path().join("files");
        fs::create_dir(&files)?;
        certificates::write(folder.path())?;
        let (user, group) = (own_id("-u")?, own_id("-g")?);
        let (name, home) = (Self::USER, files.display());
        let private = |file: &str, text: String| -> Result<()> {
            let path = folder.path().join(file);
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            Ok(())
        };
        private(
            "passwd",
            format!("{name}:{PASSWORD_HASH}:{user}:{group}::{home}:/bin/sh\n"),
        )?;
        private("group", format!("{name}:x:{group}:{name}\n"))?;
        let key = folder.path().join(certificates::KEY);
        fs::set_permissions(key, fs::Permissions::from_mode(0o600))?;
        let port = free_port()?;
        let config = folder.path().join("proftpd.conf");
        fs::write(&config, settings(folder.path(), face, port)?)?;
        let log = fs::File::create(folder.path().join("log"))?;
        let child = Command::new(&program)
            .args(["--nodaemon", "--quiet", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut running = Running(child);
        wait_until_listening(&mut running, port, "the FTP server")?;
        Ok(Self {
            _running: running,
            folder,
            face,
            port,
        })
    }

    /// Returns the address of `path`, which is absolute.
    #[must_use]
    pub fn address(&self, path: &str) -> String {
        let scheme = match self.face {
            FtpFace::Plain | FtpFace::Few | FtpFace::Old => "ftp",
            FtpFace::Explicit | FtpFace::Implicit => "ftps",
        };
        format!("{scheme}://127.0.0.1:{}{path}", self.port)
    }

    /// Returns the address of `path` below [`FtpServer::files`].
    #[must_use]
    pub fn address_below(&self, path: &str) -> String {
        self.address(&self.files().join(path).to_string_lossy())
    }

    /// Returns a profile with its user, its password and the certificate to trust.
    #[must_use]
    pub fn profile(&self) -> String {
        let (user, password) = (Self::USER, Self::PASSWORD);
        let authority = self.folder.path().join(certificates::AUTHORITY);
        let tls = match self.face {
            FtpFace::Implicit => "tls = \"implicit\"\n",
            FtpFace::Plain | FtpFace::Few | FtpFace::Explicit | FtpFace::Old => "",
        };
        format!(
            "[ftp]\nuser = \"{user}\"\npassword = \"{password}\"\nca_file = \"{}\"\n{tls}",
            authority.display()
        )
    }

    /// Returns its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the user's folder.
    #[must_use]
    pub fn files(&self) -> PathBuf {
        self.folder.path().join("files")
    }

    /// Returns the commands that it received, with the codes of its answers.
    #[must_use]
    pub fn commands(&self) -> String {
        fs::read_to_string(self.folder.path().join("commands")).unwrap_or_default()
    }

    /// Waits until it has no session any more: one whose client has ended counts for a while.
    ///
    /// # Errors
    /// Fails if one stays.
    pub fn wait_until_left(&self) -> Result<()> {
        // Each session has a process of its own.
        let children = format!("/proc/{0}/task/{0}/children", self.process_id());
        for _ in 0..LOOKS_MAX {
            if fs::read_to_string(&children)?.trim().is_empty() {
                return Ok(());
            }
            thread::sleep(LOOK_EVERY);
        }
        bail!("the FTP server still has sessions")
    }

    /// Process number, for measurements.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self._running.0.id()
    }
}

fn own_id(which: &str) -> Result<String> {
    let output = Command::new("id").arg(which).output().context("run id")?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn settings(folder: &Path, face: FtpFace, port: u16) -> Result<String> {
    let folder = folder.display();
    // Runs as the user of the test: that needs no rights to change users.
    let (user, group) = (own_id("-un")?, own_id("-gn")?);
    let login = if is_root()? { "RootLogin on\n" } else { "" };
    let (certificate, key) = (certificates::CERTIFICATE, certificates::KEY);
    let tls = |options: &str| {
        format!(
            "LoadModule mod_tls.c\nTLSEngine on\nTLSRequired on\nTLSLog {folder}/tls-log\n\
             TLSProtocol TLSv1.2 TLSv1.3\nTLSECCertificateFile {folder}/{certificate}\n\
             TLSECCertificateKeyFile {folder}/{key}\nTLSVerifyClient off\n{options}\n"
        )
    };
    let few = FtpServer::FEW_SESSIONS;
    let rules = match face {
        FtpFace::Plain => String::new(),
        FtpFace::Few => {
            format!("MaxClientsPerUser {few}\n<Limit RANG>\nDenyAll\n</Limit>\n")
        }
        FtpFace::Explicit => tls(""),
        FtpFace::Implicit => tls("TLSOptions UseImplicitSSL"),
        FtpFace::Old => "FactsAdvertise off\n".to_owned(),
    };
    Ok(format!(
        "ServerType standalone\nDefaultAddress 127.0.0.1\nPort {port}\nUseIPv6 off\n\
         ServerName testbed\nControlsEngine off\nUser {user}\nGroup {group}\n{login}Umask 022\nAuthOrder mod_auth_file.c\n\
         AuthUserFile {folder}/passwd\nAuthGroupFile {folder}/group\nRequireValidShell off\n\
         WtmpLog off\nUseLastlog off\nUseReverseDNS off\nDelayEngine off\nPidFile {folder}/pid\n\
         ScoreboardFile {folder}/scoreboard\nSystemLog {folder}/system-log\nTransferLog none\n\
         LogFormat commands \"%m %s\"\nExtendedLog {folder}/commands ALL commands\n\
         AllowOverwrite on\nAllowStoreRestart on\nAllowRetrieveRestart on\nMaxInstances 100\n\
         {rules}"
    ))
}
