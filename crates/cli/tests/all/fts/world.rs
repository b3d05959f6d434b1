//! A service and stores for tests of FTS's interface.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use posthaste_testbed::{S3Server, WebFace, WebServer, install};
use serde_json::{Value, json};

use crate::support::{
    ask::ask,
    processes::{self, Service, now, text},
};

/// Longest wait of these tests, on any machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Service, a web server and a store that it has profiles for, named after their hosts.
pub struct World {
    pub folder: tempfile::TempDir,
    pub web: WebServer,
    pub s3: S3Server,
    pub service: Service,
}

impl World {
    /// Limits the web server to so many bytes a second.
    pub fn with(rate: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (web, s3) = (WebServer::start().unwrap(), S3Server::start().unwrap());
        let profiles = folder.path().join("config/posthaste/profiles.toml");
        fs::create_dir_all(profiles.parent().unwrap()).unwrap();
        let content = format!(
            "{}rate_max = \"{rate}\"\n[localhost]\nendpoint = \"{}\"\naccess_key_id = \"{}\"\nsecret_access_key = \"{}\"\n",
            web.profile().replace("[web]", "[\"127.0.0.1\"]"),
            s3.endpoint(),
            S3Server::ACCESS_KEY,
            S3Server::SECRET_KEY,
        );
        fs::write(&profiles, content).unwrap();
        let private = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
        fs::set_permissions(&profiles, private).unwrap();
        let settings = folder.path().join("posthaste.toml");
        fs::write(&settings, "").unwrap();
        let settings = ["--config", settings.to_str().unwrap()];
        let listen = ["--fts-listen", "127.0.0.1:0"];
        let service = Service::start_with(folder.path(), &[settings, listen].concat());
        Self {
            folder,
            web,
            s3,
            service,
        }
    }

    /// Changes the service's profiles, which it reads at each use.
    pub fn change_profiles(&self, change: impl Fn(&str) -> String) {
        let profiles = self.folder.path().join("config/posthaste/profiles.toml");
        let text = fs::read_to_string(&profiles).unwrap();
        fs::write(&profiles, change(&text)).unwrap();
    }

    pub fn token(&self) -> String {
        let token = fs::read_to_string(self.service.state.join("token")).unwrap();
        token.trim().to_owned()
    }

    /// Returns the address of FTS's interface, which has its own port.
    pub fn fts(&self) -> String {
        self.service.process.ready["fts_url"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Runs one of FTS's programs.
    pub fn client(&self, token: &str, program: &str, arguments: &[&str]) -> Output {
        let programs = install::find_fts_clients().unwrap();
        Command::new(programs.join(format!("fts-rest-{program}")))
            .env("HOME", self.folder.path())
            .args(["-s", &self.fts(), "--access-token", token])
            .args(arguments)
            .output()
            .unwrap()
    }

    /// Runs a program with the service's own token, which must succeed.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.client(&self.token(), program, arguments);
        let said = text(&output.stdout);
        assert!(
            output.status.success(),
            "{program}: {said}{}",
            text(&output.stderr)
        );
        said
    }

    /// Submits by FTS's program; returns the job's id.
    pub fn submit(&self, arguments: &[&str]) -> String {
        let said = self.run("transfer-submit", arguments);
        said.split_whitespace().last().unwrap().to_owned()
    }

    /// Calls the interface below the API, which must answer with this status; as a user's token if
    /// one is given.
    pub fn call(
        &self,
        (method, path): (&str, &str),
        body: &Value,
        token: Option<&str>,
    ) -> (u16, Value) {
        let own = self.token();
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let answer = ask(
            &self.service,
            method,
            &format!("/fts3{path}"),
            Some(token.unwrap_or(&own)),
            &body,
        );
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    pub fn get(&self, path: &str) -> Value {
        let (status, said) = self.call(("GET", path), &Value::Null, None);
        assert_eq!(status, 200, "{path}: {said}");
        said
    }

    pub fn post(&self, job: &Value) -> String {
        let (status, said) = self.call(("POST", "/jobs"), job, None);
        assert_eq!(status, 200, "{said}");
        said["job_id"].as_str().unwrap().to_owned()
    }

    /// Waits until a job ends; returns its state.
    pub fn end(&self, job: &str) -> String {
        let begun = now();
        loop {
            let shown = self.get(&format!("/jobs/{job}"));
            let state = shown["job_state"].as_str().unwrap();
            if !matches!(state, "SUBMITTED" | "ACTIVE") {
                return state.to_owned();
            }
            let log = self.service.state.with_extension("log");
            assert!(
                begun.elapsed() < PATIENCE,
                "{shown} {}\n{}",
                self.get(&format!("/jobs/{job}/files")),
                fs::read_to_string(log).unwrap()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the reasons for the final states of a job's files.
    pub fn reasons(&self, job: &str) -> Vec<String> {
        let files = self.get(&format!("/jobs/{job}/files"));
        let files = files.as_array().unwrap().iter();
        files
            .map(|file| file["reason"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Returns the address of a file at the web server.
    pub fn from(&self, name: &str) -> String {
        self.web.address(WebFace::Pages, name)
    }

    pub fn stored(&self, key: &str) -> PathBuf {
        self.s3.bucket_folder().join(key)
    }

    /// Returns an address in the store, in the form of FTS's users.
    pub fn into(key: &str) -> String {
        format!("s3s://localhost/{}/{key}", S3Server::BUCKET)
    }
}

/// Makes a unique file, and returns its Adler-32.
pub fn make(path: &Path, bytes: usize, seed: u64) -> String {
    let content = processes::noise(seed, bytes);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, &content).unwrap();
    let (mut low, mut high) = (1_u32, 0_u32);
    for byte in content {
        low = (low + u32::from(byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    format!("{:08x}", high << 16 | low)
}

pub fn one(source: &str, destination: &str) -> Value {
    json!([{ "sources": [source], "destinations": [destination] }])
}
