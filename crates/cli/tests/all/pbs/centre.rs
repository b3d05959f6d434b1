//! Centre with a stand-in for PBS.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use posthaste_testbed::{S3Server, SshServer, install};
use serde_json::{Value, json};

use crate::support::processes::{PATIENCE, Service, now, text};
use crate::support::profiles;

/// Timeouts of the hook, longer than at a site, as this machine may be busy; the hook's alarm comes
/// after 30 s.
const WITHIN: [(&str, u32); 4] = [
    ("ANSWER_WITHIN_S = ", 12),
    ("CHECK_WITHIN_S = ", 12),
    ("PERIODIC_WITHIN_S = ", 15),
    ("TASKS_WITHIN_S = ", 15),
];

/// Centre of one host: a stand-in for PBS, a service and scratch, an S3 server and an SSH server
/// that hold inputs.
pub struct Centre {
    pub folder: tempfile::TempDir,
    pub service: Service,
    pub s3: S3Server,
    pub ssh: SshServer,
}

impl Centre {
    /// Starts a centre whose S3 server sends so many bytes a second.
    pub fn start(rate: &str) -> Self {
        Self::start_with(rate, &[])
    }

    /// Starts a centre with a service that root runs for everybody.
    pub fn start_for_all(rate: &str) -> Self {
        let centre = Self::start_with(rate, &["--as-owners"]);
        let modes = [(".", 0o755), ("scratch", 0o1777)];
        for (path, mode) in modes {
            fs::set_permissions(centre.path(path), Permissions::from_mode(mode)).unwrap();
        }
        centre
    }

    /// Starts a centre with more arguments for the service.
    pub fn start_with(rate: &str, more: &[&str]) -> Self {
        install::find_python().unwrap();
        let folder = tempfile::tempdir().unwrap();
        for name in ["scratch", "far", "pbs/hooks", "home"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let (s3, ssh) = (S3Server::start().unwrap(), SshServer::start().unwrap());
        write_profiles(folder.path(), &s3, &ssh, rate);
        let scratch = folder.path().join("scratch");
        install_programs(folder.path());
        let arguments = [&["--scratch", scratch.to_str().unwrap()], more].concat();
        let service = Service::start_with(folder.path(), &arguments);
        let centre = Self {
            folder,
            service,
            s3,
            ssh,
        };
        centre.install_hook();
        centre.install_staging();
        centre
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Installs the hook as the page for operators says, with the settings of this place.
    fn install_hook(&self) {
        let mut hook = fs::read_to_string(plugins().join("posthaste_hook.py")).unwrap();
        for (within, most_s) in WITHIN {
            let lines = hook.lines().map(|line| match line.starts_with(within) {
                true => format!("{within}{most_s}\n"),
                false => format!("{line}\n"),
            });
            let patient: String = lines.collect();
            assert_ne!(hook, patient, "{within}");
            hook = patient;
        }
        fs::write(self.path("posthaste_hook.py"), hook).unwrap();
        let page = fs::read_to_string(plugins().join("../../docs/operating/pbs.md")).unwrap();
        let example = page.split("```json").nth(1).unwrap();
        let example = example.split("```").next().unwrap();
        let mut config: Value = serde_json::from_str(example).unwrap();
        for (name, value) in [
            ("server", json!(self.service.url)),
            ("token_file", json!(self.service.state.join("token"))),
            ("program", json!(env!("CARGO_BIN_EXE_posthaste"))),
            ("notes", json!(self.path("pbs/notes"))),
            ("look_again_after_s", json!(1)),
        ] {
            config[name] = value;
        }
        fs::write(self.path("posthaste.json"), config.to_string()).unwrap();
        let lines = page.lines().map(str::trim);
        let commands = lines.filter_map(|line| line.strip_prefix("qmgr -c \""));
        let commands: Vec<&str> = commands.map(|line| line.trim_end_matches('"')).collect();
        assert_eq!(commands.len(), 3);
        for command in commands {
            self.ask(&["qmgr", "-c", command]);
        }
    }

    /// Installs the staging programs, with the paths that a site writes into them.
    fn install_staging(&self) {
        let scp = self.path("scp");
        fs::write(
            &scp,
            "#!/bin/sh\necho \"scp got $*\"\n[ \"$3\" = -- ] || touch \"$3\"\n",
        )
        .unwrap();
        fs::set_permissions(&scp, Permissions::from_mode(0o755)).unwrap();
        let program = format!("PROGRAM={}", env!("CARGO_BIN_EXE_posthaste"));
        let home = format!("HOME={}", self.path("home").display());
        for name in ["posthaste-scp", "posthaste-cp"] {
            let written = fs::read_to_string(plugins().join(name)).unwrap();
            let lines = written.lines().map(|line| match line {
                "PROGRAM=posthaste" => program.clone(),
                "SCP=/usr/bin/scp" => format!("SCP={}", scp.display()),
                line if line.starts_with("HOME=") => home.clone(),
                line => line.to_owned(),
            });
            let path = self.path("pbs").join(name);
            fs::write(&path, lines.collect::<Vec<_>>().join("\n") + "\n").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        }
        let folder = self.path("pbs");
        let folder = folder.display();
        fs::write(
            self.path("pbs/pbs.conf"),
            format!("PBS_SCP={folder}/posthaste-scp\nPBS_CP={folder}/posthaste-cp\n"),
        )
        .unwrap();
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(install::find_python().unwrap());
        command
            .arg(ALONE)
            .arg(plugins().join("fake/fakepbs"))
            .arg(self.path("pbs"))
            .args(words)
            .current_dir(self.folder.path());
        command
    }

    pub fn pbs(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Waits until a condition holds.
    pub fn wait_for(&self, what: &str, holds: impl Fn() -> bool) {
        let start = now();
        while !holds() {
            assert!(start.elapsed() < PATIENCE, "{what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Runs a command of PBS that must succeed.
    pub fn ask(&self, words: &[&str]) -> String {
        let output = self.pbs(words);
        assert!(
            output.status.success(),
            "{words:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout).trim().to_owned()
    }

    /// Submits a script, in which `SCRATCH` and `FAR` stand for folders.
    pub fn submit(&self, script: &str) -> Output {
        self.submit_with(&[], script)
    }

    /// Submits a script with options.
    pub fn submit_with(&self, options: &[&str], script: &str) -> Output {
        let script = script
            .replace("SCRATCH", self.path("scratch").to_str().unwrap())
            .replace("FAR", self.path("far").to_str().unwrap());
        let path = self.path("job.sh");
        fs::write(&path, script).unwrap();
        self.pbs(&[&["qsub"], options, &[path.to_str().unwrap()]].concat())
    }

    pub fn submitted(&self, script: &str) -> String {
        let output = self.submit(script);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    }

    pub fn job(&self, id: &str) -> Value {
        serde_json::from_str(&self.ask(&["qstat", id])).unwrap()
    }

    /// Lets the scheduler cycle until the job is as wanted.
    pub fn cycle_until(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let start = now();
        loop {
            self.ask(&["cycle"]);
            let job = self.job(id);
            if wanted(&job) {
                return job;
            }
            assert!(start.elapsed() < PATIENCE, "{job}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    pub fn log(&self) -> String {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        read(self.path("pbs/log")) + &read(self.path("service.log"))
    }

    /// Returns the requests that stage out.
    pub fn leaving(&self) -> Vec<Value> {
        let requests = self.service.json(&["list", "--json"]);
        let requests = requests.as_array().unwrap().iter();
        requests
            .filter(|one| one["to"] == "home")
            .cloned()
            .collect()
    }

    /// Returns the service's view of all jobs of PBS, also of finished ones.
    pub fn jobs_of_service(&self) -> String {
        let token = fs::read_to_string(self.service.state.join("token")).unwrap();
        let asked = Command::new(install::find_python().unwrap())
            .args(["-c", ASK_FOR_JOBS, &self.service.url])
            .env("TOKEN", token.trim())
            .output()
            .unwrap();
        assert!(asked.status.success(), "{}", text(&asked.stderr));
        text(&asked.stdout)
    }

    pub fn service_pid(&self) -> u32 {
        self.service.process.id()
    }
}

const ASK_FOR_JOBS: &str = "import os, sys, urllib.request as r
for query in '', '&phase=gone':
    q = r.Request(sys.argv[1] + '/v1/jobs?scheduler=pbs' + query, headers={'Authorization': 'Bearer ' + os.environ['TOKEN']})
    print(r.urlopen(q).read().decode())";

/// Option of Python to look for nothing of the user's or the machine's, and to write nothing: a start
/// takes two thirds of the time.
const ALONE: &str = "-ISB";

fn plugins() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/pbs")
}

/// Installs the programs with which the service asks PBS.
fn install_programs(folder: &Path) {
    let python = install::find_python().unwrap();
    let fake = plugins().join("fake/fakepbs");
    fs::create_dir(folder.join("bin")).unwrap();
    for name in ["qstat", "pbsnodes"] {
        let line = format!(
            "#!/bin/sh\nexec {} {ALONE} {} {} {name} \"$@\"\n",
            python.display(),
            fake.display(),
            folder.join("pbs").display()
        );
        let path = folder.join("bin").join(name);
        fs::write(&path, line).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }
}

/// Writes the profiles of the service, and those of a user who stages alone.
fn write_profiles(folder: &Path, s3: &S3Server, ssh: &SshServer, rate: &str) {
    let text = profiles::of_sources(folder, s3, ssh, rate);
    for name in ["config/posthaste", "home/.config/posthaste"] {
        let path = folder.join(name).join("profiles.toml");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
}

pub fn comment(job: &Value) -> &str {
    job["comment"].as_str().unwrap_or_default()
}
