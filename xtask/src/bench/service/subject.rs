//! The service under test, and its relay.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use posthaste_testbed::PostgresServer;
use serde_json::Value;

use super::{super::streams::Running, load::Load, now};

/// Kind of journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Sqlite,
    Postgres,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }
}

/// A service with one depot.
pub(super) struct Subject {
    pub(super) kind: Kind,
    pub(super) address: String,
    pub(super) token: String,
    program: PathBuf,
    folder: PathBuf,
    database: Option<String>,
    service: Running,
    relays: Vec<Running>,
    _postgres: Option<PostgresServer>,
}

impl Subject {
    pub(super) fn start(program: &Path, folder: &Path, kind: Kind) -> Result<Self> {
        let postgres = match kind {
            Kind::Sqlite => None,
            Kind::Postgres => Some(PostgresServer::start()?),
        };
        let database = match &postgres {
            Some(server) => Some(server.url(&server.new_database()?)),
            None => None,
        };
        let (service, where_it_is) = serve(program, folder, database.as_deref())?;
        let mut subject = Self {
            kind,
            address: String::new(),
            token: String::new(),
            program: program.to_owned(),
            folder: folder.to_owned(),
            database,
            service,
            relays: Vec::new(),
            _postgres: postgres,
        };
        subject.find(&where_it_is)?;
        subject.lend("depot", "1M")?;
        Ok(subject)
    }

    /// Starts a relay that accepts so much a second, and registers it as a depot. Returns its port.
    pub(super) fn lend(&mut self, name: &str, rate: &str) -> Result<u16> {
        let mut relay = Command::new(&self.program);
        relay
            .args(["relay", "--json", "--listen", "127.0.0.1:0"])
            .args(["--name", name, "--capacity", "2T", "--rate", rate, "--dir"])
            .arg(self.folder.join(name));
        let (relay, said) = start(&mut relay, &self.folder.join(format!("{name}.log")))?;
        self.relays.push(relay);
        let text = |key: &str| said[key].as_str().unwrap_or_default().to_owned();
        let added = Command::new(&self.program)
            .args(["depot", "add", name, &text("url")])
            .args(["--fingerprint", &text("fingerprint")])
            .args(["--secret-file", &text("secret_file")])
            .args(["--service", &format!("http://{}", self.address)])
            .arg("--token-file")
            .arg(self.state().join("token"))
            .output()?;
        ensure!(
            added.status.success(),
            "{}",
            String::from_utf8_lossy(&added.stderr)
        );
        let port = text("url")
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse().ok());
        port.context("it has no port")
    }

    /// Returns the connections of the service to these ports, idle or not.
    pub(super) fn connections_to(&self, ports: &[u16]) -> Result<usize> {
        const ESTABLISHED: &str = "01";
        let table = self.stat("net/tcp")?;
        let is_one = |line: &&str| {
            let mut fields = line.split_ascii_whitespace().skip(2);
            let to = fields.next().and_then(|to| to.rsplit_once(':'));
            let port = to.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
            port.is_some_and(|port| ports.contains(&port)) && fields.next() == Some(ESTABLISHED)
        };
        Ok(table.lines().filter(is_one).count())
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Starts the service again.
    fn restart(&mut self) -> Result<()> {
        let _ = self.service.0.kill();
        let _ = self.service.0.wait();
        let (service, said) = serve(&self.program, &self.folder, self.database.as_deref())?;
        self.service = service;
        self.find(&said)
    }

    /// Keeps the address that the service reported.
    fn find(&mut self, said: &Value) -> Result<()> {
        let url = said["url"].as_str().context("it has no address")?;
        url.trim_start_matches("http://")
            .clone_into(&mut self.address);
        self.token = fs::read_to_string(self.state().join("token"))?
            .trim()
            .to_owned();
        Ok(())
    }

    /// Makes a file of so many bytes.
    pub(super) fn source(&self, bytes: usize) -> Result<String> {
        let path = self.folder.join(format!("source-{bytes}.bin"));
        fs::write(&path, vec![7; bytes])?;
        Ok(path.display().to_string())
    }

    /// Makes a tree of so many empty files, a thousand in a directory, on the disk of the state.
    pub(super) fn tree(&self, files: usize) -> Result<Tree> {
        let root = self.folder.join("tree");
        let mut names = Vec::with_capacity(files);
        for number in 0..files {
            let folder = format!("part-{:03}", number / 1000);
            if number % 1000 == 0 {
                fs::create_dir_all(root.join(&folder))?;
            }
            let name = format!("{folder}/result-{number:06}.h5");
            fs::write(root.join(&name), "")?;
            names.push(name);
        }
        let root = root.display().to_string();
        Ok(Tree { root, names })
    }

    fn stat(&self, name: &str) -> Result<String> {
        Ok(fs::read_to_string(format!(
            "/proc/{}/{name}",
            self.service.0.id()
        ))?)
    }

    /// Returns its private memory, in bytes.
    pub(super) fn memory(&self) -> Result<u64> {
        let status = self.stat("status")?;
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        Ok(kib.context("no memory is told")?.parse::<u64>()? << 10)
    }

    /// Returns the share of one core that it uses, in percent.
    pub(super) fn busy_percent(&self, window: Duration) -> Result<f64> {
        let before = self.service.cpu_s()?;
        thread::sleep(window);
        Ok((self.service.cpu_s()? - before) / window.as_secs_f64() * 100.0)
    }

    fn ask(&self, path: &str) -> Result<Value> {
        let load = Load::new(self);
        let (status, said) = load.connect()?.ask(&self.token, "GET", path, "")?;
        ensure!(status == 200, "{path}: {status} {said}");
        Ok(serde_json::from_str(&said)?)
    }

    /// Waits until no source is still to be scanned.
    pub(super) fn wait_until_admitted(&self, patience: Duration) -> Result<()> {
        let begun = now();
        loop {
            let path = "/v1/requests?state=scanning&limit=1&fields=id";
            if self.ask(path)?.as_array().is_some_and(Vec::is_empty) {
                return Ok(());
            }
            ensure!(begun.elapsed() < patience, "some are still scanned");
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// Kills it and starts it again. Returns the time until it answers, and until something is
    /// moved.
    pub(super) fn kill_and_restart(&mut self, patience: Duration) -> Result<(Duration, Duration)> {
        let safe = |subject: &Self| -> Result<usize> {
            let page = subject.ask("/v1/requests?state=safe&fields=id")?;
            Ok(page.as_array().map_or(0, Vec::len))
        };
        let before = safe(self)?;
        let begun = now();
        self.restart()?;
        let answers = begun.elapsed();
        while safe(self)? <= before {
            ensure!(begun.elapsed() < patience, "nothing moves");
            thread::sleep(Duration::from_millis(100));
        }
        Ok((answers, begun.elapsed()))
    }
}

/// Files, by their paths from a directory.
pub(super) struct Tree {
    pub(super) root: String,
    pub(super) names: Vec<String>,
}

fn serve(program: &Path, folder: &Path, database: Option<&str>) -> Result<(Running, Value)> {
    let mut service = Command::new(program);
    service
        .args(["serve", "--json", "--listen", "127.0.0.1:0", "--state"])
        .arg(folder.join("state"));
    if let Some(database) = database {
        service.args(["--database", database]);
    }
    start(&mut service, &folder.join("service.log"))
}

/// Starts a program that prints its address in its first line.
fn start(command: &mut Command, log: &Path) -> Result<(Running, Value)> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(log)?)
        .spawn()?;
    let mut running = Running(child);
    let log = || fs::read_to_string(log).unwrap_or_default();
    let said = serde_json::from_str(&running.first_line().with_context(log)?)?;
    Ok((running, said))
}
