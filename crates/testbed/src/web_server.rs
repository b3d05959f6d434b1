use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::{Running, certificates, free_port, install, is_root, wait_until_listening};

/// An nginx that serves a folder of files in several ways, each on a port of its own, and a
/// WebDAV folder.
#[derive(Debug)]
pub struct WebServer {
    _running: Running,
    folder: TempDir,
    ports: Vec<(WebFace, u16)>,
}

/// Way of serving a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebFace {
    /// `http`: the files, indexes as pages.
    Pages,
    /// `http`: the files, indexes as JSON.
    Json,
    /// `https`: the files, indexes as JSON.
    Tls,
    /// `http`: the files, no indexes, no ranges, no HEAD.
    Poor,
    /// `http`: the files with a login ([`WebServer::USER`] and its password).
    Locked,
    /// `http`: busy, come back in 7 seconds.
    Busy,
    /// `http`: redirects everybody to [`WebFace::Pages`].
    Moved,
    /// `http`: WebDAV over a folder of its own.
    Dav,
    /// `http`: WebDAV over the same folder, busy for clients with more than
    /// [`WebServer::NARROW_REQUESTS`] requests at once, and slow enough for requests to meet.
    DavNarrow,
    /// `https`: WebDAV over the same folder, with a login ([`WebServer::USER`] and its password).
    DavTls,
}

impl WebFace {
    const ALL: [Self; 10] = [
        Self::Pages,
        Self::Json,
        Self::Tls,
        Self::Poor,
        Self::Locked,
        Self::Busy,
        Self::Moved,
        Self::Dav,
        Self::DavNarrow,
        Self::DavTls,
    ];

    fn has_tls(self) -> bool {
        matches!(self, Self::Tls | Self::DavTls)
    }

    /// Returns the additions of this face to its server block.
    fn rules(self, pages_port: u16) -> String {
        let locked = "auth_basic \"testbed\"; auth_basic_user_file passwords;";
        let dav =
            "root dav; dav_methods PUT DELETE MKCOL COPY MOVE; dav_ext_methods PROPFIND OPTIONS;";
        match self {
            Self::Pages => "root files; autoindex on;".to_owned(),
            Self::Json | Self::Tls => "root files; autoindex on; autoindex_format json;".to_owned(),
            Self::Poor => {
                "root files; max_ranges 0; if ($request_method = HEAD) { return 405; }".to_owned()
            }
            Self::Locked => format!("root files; autoindex on; {locked}"),
            Self::Busy => "add_header Retry-After 7 always; return 503;".to_owned(),
            Self::Moved => format!("return 302 http://127.0.0.1:{pages_port}$request_uri;"),
            Self::Dav => dav.to_owned(),
            Self::DavNarrow => {
                let most = WebServer::NARROW_REQUESTS;
                format!("{dav} limit_conn at_once {most}; limit_conn_status 503; limit_rate 2m;")
            }
            Self::DavTls => format!("{dav} {locked}"),
        }
    }
}

impl WebServer {
    /// User of the faces with a login.
    pub const USER: &'static str = "testbed";
    /// Requests at once that [`WebFace::DavNarrow`] accepts.
    pub const NARROW_REQUESTS: u32 = 2;
    /// Its password, known to every reader of this file.
    pub const PASSWORD: &'static str = "testbed-secret";

    /// Starts it.
    ///
    /// # Errors
    /// Fails if nginx is missing or does not start.
    pub fn start() -> Result<Self> {
        Self::start_in(&std::env::temp_dir())
    }

    /// Starts it with its folders below `parent`, for benchmarks that choose the disk.
    ///
    /// # Errors
    /// See [`WebServer::start`].
    pub fn start_in(parent: &Path) -> Result<Self> {
        let program = install::find_web_server()?;
        let folder = tempfile::Builder::new()
            .prefix("posthaste-web-")
            .tempdir_in(parent)
            .context("make a folder for the web server")?;
        for name in ["files", "dav", "passing"] {
            fs::create_dir(folder.path().join(name))?;
        }
        certificates::write(folder.path())?;
        let (user, password) = (Self::USER, Self::PASSWORD);
        let passwords = format!("{user}:{{PLAIN}}{password}\n");
        fs::write(folder.path().join("passwords"), passwords)?;
        let mut ports = Vec::new();
        for face in WebFace::ALL {
            ports.push((face, free_port()?));
        }
        let config = folder.path().join("nginx.conf");
        fs::write(&config, settings(&ports)?)?;
        let log = fs::File::create(folder.path().join("log"))?;
        let child = Command::new(&program)
            .arg("-p")
            .arg(folder.path())
            .arg("-c")
            .arg(&config)
            .args(["-e", "stderr"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut running = Running(child);
        for (_, port) in &ports {
            wait_until_listening(&mut running, *port, "the web server")?;
        }
        Ok(Self {
            _running: running,
            folder,
            ports,
        })
    }

    /// Returns the port where it shows this face.
    #[must_use]
    pub fn port(&self, face: WebFace) -> u16 {
        let found = self.ports.iter().find(|(other, _)| *other == face);
        found.map_or(0, |(_, port)| *port)
    }

    /// Returns the address of `path` as this face shows it.
    #[must_use]
    pub fn address(&self, face: WebFace, path: &str) -> String {
        let scheme = match face {
            WebFace::Dav | WebFace::DavNarrow => "webdav",
            WebFace::DavTls => "webdavs",
            WebFace::Tls => "https",
            WebFace::Pages
            | WebFace::Json
            | WebFace::Poor
            | WebFace::Locked
            | WebFace::Busy
            | WebFace::Moved => "http",
        };
        format!("{scheme}://127.0.0.1:{}/{path}", self.port(face))
    }

    /// Returns a profile with its user, its password and the certificate to trust.
    #[must_use]
    pub fn profile(&self) -> String {
        let (user, password) = (Self::USER, Self::PASSWORD);
        let authority = self.authority();
        format!(
            "[web]\nuser = \"{user}\"\npassword = \"{password}\"\nca_file = \"{}\"\n",
            authority.display()
        )
    }

    /// Returns its log: the requests it answered.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("requests")).unwrap_or_default()
    }

    /// Returns the folder of the served files.
    #[must_use]
    pub fn files(&self) -> PathBuf {
        self.folder.path().join("files")
    }

    /// Returns the folder behind WebDAV.
    #[must_use]
    pub fn dav_files(&self) -> PathBuf {
        self.folder.path().join("dav")
    }

    /// Returns the certificate to trust.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join(certificates::AUTHORITY)
    }
}

fn settings(ports: &[(WebFace, u16)]) -> Result<String> {
    let user = if is_root()? { "user root;" } else { "" };
    let dav = install::find_web_dav_module()?;
    let pages_port = ports
        .iter()
        .find(|(face, _)| *face == WebFace::Pages)
        .map_or(0, |(_, port)| *port);
    let mut servers = String::new();
    for (face, port) in ports {
        let tls = if face.has_tls() { " ssl" } else { "" };
        servers.push_str(&format!(
            "server {{ listen 127.0.0.1:{port}{tls}; {} }}\n",
            face.rules(pages_port)
        ));
    }
    // One process, so that nothing is left behind when it ends.
    Ok(format!(
        "{user} load_module {};\n\
         daemon off; master_process off; pid nginx.pid;\n\
         events {{ worker_connections 512; }}\n\
         http {{\n\
         access_log requests; sendfile on; tcp_nopush on; keepalive_timeout 65; keepalive_requests 100000;\n\
         limit_conn_zone $server_port zone=at_once:64k; client_max_body_size 0; default_type application/octet-stream; charset utf-8;\n\
         client_body_temp_path passing/body; proxy_temp_path passing/proxy;\n\
         fastcgi_temp_path passing/fastcgi; uwsgi_temp_path passing/uwsgi;\n\
         scgi_temp_path passing/scgi;\n\
         ssl_certificate {}; ssl_certificate_key {}; ssl_protocols TLSv1.2 TLSv1.3;\n\
         {servers}}}\n",
        dav.display(),
        certificates::CERTIFICATE,
        certificates::KEY
    ))
}
