use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::{Running, certificates, free_port, install, wait_until_listening};

/// aiosmtpd, which stores each accepted mail in a file.
#[derive(Debug)]
pub struct MailServer {
    _running: Running,
    folder: TempDir,
    face: MailFace,
    port: u16,
}

/// Ways to speak to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailFace {
    /// Plain text, without a login.
    Plain,
    /// TLS after `STARTTLS`, required; with a login.
    Started,
    /// TLS from the first byte; with a login.
    Implicit,
}

const SERVE: &str = r#"
import os, ssl, sys, threading
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

folder, port, face = sys.argv[1], int(sys.argv[2]), sys.argv[3]

class Keep:
    kept = 0
    async def handle_DATA(self, server, session, envelope):
        self.kept += 1
        path = os.path.join(folder, "mails", "%06d.eml" % self.kept)
        with open(path + ".new", "wb") as file:
            file.write(envelope.content)
        os.rename(path + ".new", path)
        return "250 kept"

def check(server, session, envelope, mechanism, data):
    is_known = data.login == b"testbed" and data.password == b"testbed-secret"
    return AuthResult(success=is_known, handled=False)

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(os.path.join(folder, "server.pem"), os.path.join(folder, "server.key"))
more = {
    "plain": {},
    "started": dict(tls_context=context, require_starttls=True, authenticator=check, auth_required=True),
    "implicit": dict(ssl_context=context, authenticator=check, auth_required=True, auth_require_tls=False),
}[face]
Controller(Keep(), hostname="127.0.0.1", port=port, **more).start()
threading.Event().wait()
"#;

impl MailServer {
    /// Its user, where a login is required.
    pub const USER: &'static str = "testbed";
    /// The password, known to every reader of this file.
    pub const PASSWORD: &'static str = "testbed-secret";

    /// Starts it.
    ///
    /// # Errors
    /// Fails if aiosmtpd is missing or does not start.
    pub fn start(face: MailFace) -> Result<Self> {
        let python = install::find_python_program(install::AIOSMTPD)?;
        let folder = tempfile::Builder::new()
            .prefix("posthaste-mail-")
            .tempdir()
            .context("make a folder for the mail server")?;
        fs::create_dir(folder.path().join("mails"))?;
        certificates::write(folder.path())?;
        let port = free_port()?;
        let face_name = match face {
            MailFace::Plain => "plain",
            MailFace::Started => "started",
            MailFace::Implicit => "implicit",
        };
        let log = fs::File::create(folder.path().join("log"))?;
        let child = Command::new(&python)
            .args(["-c", SERVE])
            .arg(folder.path())
            .args([&port.to_string(), face_name])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {}", python.display()))?;
        let mut running = Running(child);
        wait_until_listening(&mut running, port, "the mail server")?;
        Ok(Self {
            _running: running,
            folder,
            face,
            port,
        })
    }

    /// Address as clients write it.
    #[must_use]
    pub fn address(&self) -> String {
        let scheme = match self.face {
            MailFace::Plain | MailFace::Started => "smtp",
            MailFace::Implicit => "smtps",
        };
        format!("{scheme}://localhost:{}", self.port)
    }

    /// Returns the certificate to trust.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join(certificates::AUTHORITY)
    }

    /// Mails accepted so far, in their order.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn mails(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(self.folder.path().join("mails"))?;
        let mut paths = Vec::new();
        for entry in entries {
            let path = entry?.path();
            paths.extend(
                path.extension()
                    .is_some_and(|end| end == "eml")
                    .then_some(path),
            );
        }
        paths.sort();
        let read = |path: &PathBuf| fs::read_to_string(path).context("read a mail");
        paths.iter().map(read).collect()
    }
}
