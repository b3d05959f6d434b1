//! Centre with a Slurm.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
};

use posthaste_testbed::{S3Server, Slurm, SshServer};
use serde_json::Value;

pub use crate::support::files::{contents, make_files};
use crate::support::processes::{Relay, Service};

/// User who submits jobs.
pub const USER: u32 = 65534;

/// Centre with a Slurm, a service and scratch, an S3 server and an SSH server that hold inputs, and
/// two relays.
pub struct Centre {
    pub slurm: Slurm,
    pub service: Service,
    _relays: Vec<Relay>,
    pub s3: S3Server,
    pub ssh: SshServer,
    folder: tempfile::TempDir,
}

impl Centre {
    /// Starts a centre whose archive sends so many bytes a second; a stage-in may take so many
    /// seconds.
    pub fn start(rate: &str, stage_in_timeout: u32) -> Self {
        Self::start_with(rate, |slurm, service| {
            install(slurm, service, stage_in_timeout)
        })
    }

    /// Starts a centre with a Slurm that is set up for the service in this way.
    pub fn start_with(rate: &str, install: impl FnOnce(&Slurm, &Service)) -> Self {
        Self::start_all(rate, (Some(USER), &[]), install)
    }

    /// Starts a centre with more arguments for the service.
    pub fn start_serving(rate: &str, more: &[&str]) -> Self {
        let usual = |slurm: &Slurm, service: &Service| install(slurm, service, 600);
        Self::start_all(rate, (Some(USER), more), usual)
    }

    /// Starts a centre and a Slurm that is set up in another way to work with it.
    pub fn start_serving_with(
        rate: &str,
        more: &[&str],
        install: impl FnOnce(&Slurm, &Service),
    ) -> Self {
        Self::start_all(rate, (Some(USER), more), install)
    }

    /// Starts a centre with a service that root runs for everybody.
    pub fn start_for_all(rate: &str) -> Self {
        let usual = |slurm: &Slurm, service: &Service| install(slurm, service, 600);
        Self::start_all(rate, (None, &["--as-owners"]), usual)
    }

    /// Starts a centre with a service of this user, or of root's.
    fn start_all(
        rate: &str,
        (user, more): (Option<u32>, &[&str]),
        install: impl FnOnce(&Slurm, &Service),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let scratch = folder.path().join("scratch");
        fs::create_dir(&scratch).unwrap();
        match user {
            Some(user) => chown(&scratch, Some(user), Some(user)).unwrap(),
            None => fs::set_permissions(&scratch, Permissions::from_mode(0o1777)).unwrap(),
        }
        let (s3, ssh) = (S3Server::start().unwrap(), SshServer::start().unwrap());
        make_files(&s3.bucket_folder().join("run"), 12);
        make_files(&folder.path().join("far"), 2);
        write_profiles(folder.path(), &s3, &ssh, rate);
        ssh.lend_key(USER).unwrap();
        let mut slurm = Slurm::set_up().unwrap();
        // Where the service looks for it.
        let conf = folder.path().join("slurm.conf");
        std::os::unix::fs::symlink(slurm.folder().join("slurm.conf"), conf).unwrap();
        let arguments = [&["--scratch", scratch.to_str().unwrap()], more].concat();
        let service = match user {
            Some(user) => Service::start_as(user, folder.path(), &arguments),
            None => Service::start_with(folder.path(), &arguments),
        };
        let relays: Vec<Relay> = ["a", "b"]
            .map(|name| Relay::start(folder.path(), name, "1G", "500K"))
            .into();
        for relay in &relays {
            service.add(relay);
        }
        service.wait_for_depots(|depot| depot["state"] == "up");
        install(&slurm, &service);
        slurm.start().unwrap();
        Self {
            slurm,
            service,
            _relays: relays,
            s3,
            ssh,
            folder,
        }
    }

    pub fn scratch(&self) -> PathBuf {
        self.folder.path().join("scratch")
    }

    /// Writes a script in the jobs' folder: on scratch, for which `SCRATCH` stands in its text.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.scratch().join(name);
        let scratch = self.scratch();
        fs::write(&path, text.replace("SCRATCH", scratch.to_str().unwrap())).unwrap();
        path
    }

    pub fn wait_for(&self, job: u32, mut wanted: impl FnMut(&str, &str) -> bool) {
        let looked = self
            .slurm
            .wait_until("the job is as it should be", |slurm| {
                let (state, reason) = slurm.state(job)?;
                Ok(wanted(&state, &reason))
            });
        looked.unwrap_or_else(|error| {
            let state = self.slurm.state(job);
            panic!("{error}\n{state:?}\n{}", self.service_log())
        });
    }

    pub fn service_log(&self) -> String {
        fs::read_to_string(self.folder.path().join("service.log")).unwrap_or_default()
    }

    /// Returns the request that stages out a job's results: it appears after the job's end is
    /// reported.
    pub fn leaving(&self, source: &str) -> Value {
        let source = self.scratch().join(source);
        let mut found = Value::Null;
        let asked = self.slurm.wait_until("its output leaves", |_| {
            let out = self.requests(|one| one["source"].as_str() == source.to_str());
            found = out.first().cloned().unwrap_or_default();
            Ok(!out.is_empty())
        });
        asked.unwrap_or_else(|error| panic!("{error}: {:?}", self.requests(|_| true)));
        found
    }

    /// Returns the requests that satisfy `wanted`, newest first.
    pub fn requests(&self, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let all = self.service.json(&["list", "--json"]);
        let all = all.as_array().unwrap().iter();
        all.filter(|one| wanted(one)).cloned().collect()
    }

    /// Returns the stage-ins to a place on scratch.
    pub fn stage_ins(&self, to: &str) -> Vec<Value> {
        let to = self.scratch().join(to);
        self.requests(|one| one["stage_in"].is_object() && one["to"].as_str() == to.to_str())
    }

    pub fn job(&self, job: u32) -> Value {
        let jobs = self
            .slurm
            .ask("scontrol", &["show", "bbstat", "job", &job.to_string()]);
        Value::from(jobs.unwrap())
    }
}

/// Writes the profiles with which `posthaste` on the service's side opens the sources.
fn write_profiles(folder: &Path, s3: &S3Server, ssh: &SshServer, rate: &str) {
    let text = crate::support::profiles::of_sources(folder, s3, ssh, rate);
    let path = folder.join("config/posthaste/profiles.toml");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    chown(&path, Some(USER), Some(USER)).unwrap();
}

/// Returns the line of `burst_buffer.conf` for polling: every second rather than four times a
/// minute, if Slurm polls at all and knows the setting.
pub fn polling(slurm: &Slurm) -> &'static str {
    let version = slurm.ask("scontrol", &["--version"]).unwrap();
    if version.contains("22.05") {
        return "";
    }
    "PollInterval=1\n"
}

/// Installs the plug-in beside slurm.conf.
fn install(slurm: &Slurm, service: &Service, stage_in_timeout: u32) {
    let file = |name: &str| slurm.folder().join(name);
    let hooks = format!(
        "server = {:?}\ntoken_file = {:?}\n",
        service.url,
        service.state.join("token")
    );
    fs::write(file("posthaste.toml"), hooks).unwrap();
    let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/slurm/burst_buffer.lua");
    let plugin = fs::read_to_string(plugin).unwrap();
    let config = file("posthaste.toml");
    let plugin = plugin
        .replace(
            "\"posthaste\"",
            &format!("{:?}", env!("CARGO_BIN_EXE_posthaste")),
        )
        .replace("\"/etc/posthaste/slurm.toml\"", &format!("{config:?}"));
    fs::write(file("burst_buffer.lua"), plugin).unwrap();
    let settings = format!(
        "Directive=POSTHASTE\nFlags=TeardownFailure\nStageInTimeout={stage_in_timeout}\n{}",
        polling(slurm)
    );
    fs::write(file("burst_buffer.conf"), settings).unwrap();
    let conf = fs::read_to_string(file("slurm.conf")).unwrap();
    fs::write(
        file("slurm.conf"),
        format!("{conf}BurstBufferType=burst_buffer/lua\n"),
    )
    .unwrap();
}
