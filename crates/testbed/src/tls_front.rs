use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::{Running, certificates, free_port, install, is_root, wait_until_listening};

/// An nginx that speaks TLS to clients, and plain HTTP to a server behind it.
#[derive(Debug)]
pub struct TlsFront {
    _running: Running,
    folder: TempDir,
    port: u16,
}

impl TlsFront {
    /// Starts an nginx before the server at `behind`, such as `http://127.0.0.1:8446`.
    ///
    /// # Errors
    /// Fails if nginx is missing or does not start.
    pub fn start(behind: &str) -> Result<Self> {
        let program = install::find_web_server()?;
        let folder = tempfile::Builder::new()
            .prefix("posthaste-front-")
            .tempdir()
            .context("make a folder for what speaks TLS")?;
        certificates::write(folder.path())?;
        let port = free_port()?;
        let user = if is_root()? { "user root;" } else { "" };
        let (certificate, key) = (certificates::CERTIFICATE, certificates::KEY);
        // The lines that operators copy are the same as in `docs/operating/fts.md`.
        let config = format!(
            "{user} daemon off; master_process off; pid nginx.pid; events {{ }}\n\
             http {{ access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;\n\
             uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
             server {{\n\
                 listen 127.0.0.1:{port} ssl;\n\
                 ssl_certificate {certificate};\n\
                 ssl_certificate_key {key};\n\
                 client_max_body_size 32m;\n\
                 location / {{ proxy_pass {behind}; }}\n\
             }} }}\n"
        );
        fs::write(folder.path().join("nginx.conf"), config)?;
        let log = fs::File::create(folder.path().join("log"))?;
        let child = Command::new(&program)
            .arg("-p")
            .arg(folder.path())
            .args(["-c", "nginx.conf", "-e", "stderr"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut running = Running(child);
        wait_until_listening(&mut running, port, "what speaks TLS")?;
        Ok(Self {
            _running: running,
            folder,
            port,
        })
    }

    /// Returns the URL of the front.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Returns the certificate to trust.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join(certificates::AUTHORITY)
    }
}
