//! Service with sources of a limited rate.
use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use posthaste_testbed::{S3Server, WebFace, WebServer, noise};
use serde_json::Value;

/// Interval between two looks: most of them start a program.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longest wait of these tests, on any machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

#[expect(clippy::disallowed_methods, reason = "tests wait for real processes")]
pub fn now() -> Instant {
    Instant::now()
}

/// Service with a home of its own, an S3 server and a web server that hold the same tree.
pub struct Centre {
    pub folder: tempfile::TempDir,
    pub s3: S3Server,
    pub web: WebServer,
    pub url: String,
    pub service: Child,
}

impl Centre {
    /// Starts sources that send so many bytes a second at most, and `files` files of a MiB each.
    pub fn with(s3_rate: &str, web_rate: &str, files: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (s3, web) = (S3Server::start().unwrap(), WebServer::start().unwrap());
        for root in [s3.bucket_folder(), web.files()] {
            make_tree(&root.join("run"), files);
        }
        let profiles = folder.path().join("home/.config/posthaste/profiles.toml");
        fs::create_dir_all(profiles.parent().unwrap()).unwrap();
        let web_url = web.address(WebFace::Json, "");
        let text = format!(
            "[archive]\nurl = \"s3://{}\"\nendpoint = \"{}\"\naccess_key_id = \"{}\"\n\
             secret_access_key = \"{}\"\nrate_max = \"{s3_rate}\"\n\n[mirror]\nurl = \"{}\"\nrate_max = \"{web_rate}\"\n",
            S3Server::BUCKET,
            s3.endpoint(),
            S3Server::ACCESS_KEY,
            S3Server::SECRET_KEY,
            web_url.trim_end_matches('/'),
        );
        fs::write(&profiles, text).unwrap();
        let mut permissions = fs::metadata(&profiles).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
        fs::set_permissions(&profiles, permissions).unwrap();
        fs::create_dir(folder.path().join("scratch")).unwrap();
        // Still free when the service starts again.
        let listen = format!("127.0.0.1:{}", posthaste_testbed::free_port().unwrap());
        let (service, url) = start(folder.path(), &s3, &listen);
        Self {
            folder,
            s3,
            web,
            url,
            service,
        }
    }

    /// Sets the prices of reading in the S3 server's profile.
    pub fn price_archive(&self, prices: &str) {
        let profiles = self
            .folder
            .path()
            .join("home/.config/posthaste/profiles.toml");
        let text = fs::read_to_string(&profiles).unwrap();
        let text = text.replace("[archive]\n", &format!("[archive]\n{prices}\n"));
        fs::write(&profiles, text).unwrap();
    }

    /// Sets another endpoint in the S3 server's profile.
    pub fn move_archive(&self, endpoint: &str) {
        let profiles = self
            .folder
            .path()
            .join("home/.config/posthaste/profiles.toml");
        let text = fs::read_to_string(&profiles).unwrap();
        fs::write(&profiles, text.replace(&self.s3.endpoint(), endpoint)).unwrap();
    }

    /// Runs a command that needs no service.
    pub fn run_alone(&self, arguments: &[&str]) -> Output {
        let mut command = command(self.folder.path(), &self.s3);
        command.args(arguments).output().unwrap()
    }

    pub fn kill(&mut self) {
        self.service.kill().unwrap();
        self.service.wait().unwrap();
    }

    pub fn restart(&mut self) {
        let listen = self.url.trim_start_matches("http://").to_owned();
        (self.service, self.url) = start(self.folder.path(), &self.s3, &listen);
    }

    pub fn scratch(&self, name: &str) -> PathBuf {
        self.folder.path().join("scratch").join(name)
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        command(self.folder.path(), &self.s3)
            .args(arguments)
            .args(["--service", &self.url, "--token-file"])
            .arg(self.folder.path().join("service/token"))
            .output()
            .unwrap()
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}\n{}",
            text(&output.stderr),
            self.log()
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Stages in the tree of both sources at `name` on scratch.
    pub fn stage_in(&self, name: &str, more: &[&str]) -> Value {
        let to = self.scratch(name);
        let mut arguments = vec![
            "stage-in",
            "archive:run",
            "mirror:run",
            to.to_str().unwrap(),
        ];
        arguments.extend_from_slice(&["--json"]);
        arguments.extend_from_slice(more);
        self.json(&arguments)
    }

    pub fn wait_until(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let start = now();
        loop {
            let request = self.json(&["status", id, "--json"]);
            if wanted(&request) {
                return request;
            }
            assert!(start.elapsed() < PATIENCE, "{request}\n{}", self.log());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("service.log")).unwrap_or_default()
    }

    /// Returns whether scratch holds nothing but these names.
    pub fn holds_only(&self, names: &[&str]) -> bool {
        let found = fs::read_dir(self.folder.path().join("scratch")).unwrap();
        let found = found.map(|entry| entry.unwrap().file_name());
        found
            .into_iter()
            .all(|name| names.iter().any(|known| name == *known))
    }
}

impl Drop for Centre {
    fn drop(&mut self) {
        let _ = self.service.kill();
        let _ = self.service.wait();
    }
}

pub fn command(folder: &Path, s3: &S3Server) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder.join("home"))
        .envs(s3.environment())
        .current_dir(folder);
    command
}

pub fn start(folder: &Path, s3: &S3Server, listen: &str) -> (Child, String) {
    let mut log = fs::OpenOptions::new();
    let log = log
        .create(true)
        .append(true)
        .open(folder.join("service.log"));
    let mut service = command(folder, s3)
        .args(["serve", "--json", "--listen", listen, "--state", "service"])
        .args(["--allow-address", "127.0.0.0/8:*"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.unwrap())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(service.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let url = ready["url"].as_str().unwrap().to_owned();
    (service, url)
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn make_tree(root: &Path, files: usize) {
    fs::create_dir_all(root.join("deep/er")).unwrap();
    for number in 0..files {
        let bytes = noise(number as u64, 1 << 20);
        fs::write(root.join(format!("deep/file {number:04}")), bytes).unwrap();
    }
    fs::write(root.join("deep/er/small"), b"small").unwrap();
    fs::write(root.join("zero"), b"").unwrap();
}

/// Returns the content of a tree: paths and bytes.
pub fn picture(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let bytes = fs::read(&path).unwrap();
                files.push((path.strip_prefix(root).unwrap().to_path_buf(), bytes));
            }
        }
    }
    files.sort();
    files
}

pub fn chunks(request: &Value, key: &str) -> u64 {
    request[key].as_u64().unwrap()
}

/// Returns the number of chunks from each source.
pub fn shares(request: &Value) -> Vec<u64> {
    let sources = request["stage_in"]["sources"].as_array().unwrap().iter();
    sources.map(|source| chunks(source, "chunks")).collect()
}
