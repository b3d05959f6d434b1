//! The front door of Slurm: a real Slurm, a real service, real sources and relays.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[path = "support/processes.rs"]
mod processes;

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use posthaste_testbed::{S3Server, Slurm, SshServer};
use processes::{Dice, Relay, Service, picture};
use serde_json::Value;

/// Who submits jobs.
const USER: u32 = 65534;

/// A centre with a Slurm, a service and scratch, an S3 server and an SSH server that hold inputs, and two relays.
struct Centre {
    slurm: Slurm,
    service: Service,
    _relays: Vec<Relay>,
    s3: S3Server,
    ssh: SshServer,
    folder: tempfile::TempDir,
}

impl Centre {
    /// Sources give so many bytes a second; a stage-in may take so many seconds.
    fn start(rate: &str, stage_in_timeout: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let scratch = folder.path().join("scratch");
        fs::create_dir(&scratch).unwrap();
        chown(&scratch, Some(USER), Some(USER)).unwrap();
        let (s3, ssh) = (S3Server::start().unwrap(), SshServer::start().unwrap());
        make_files(&s3.bucket_folder().join("run"), 12);
        make_files(&folder.path().join("far"), 2);
        write_profiles(folder.path(), &s3, &ssh, rate);
        lend_key(&ssh);
        let service = Service::start_as(
            USER,
            folder.path(),
            &["--scratch", scratch.to_str().unwrap()],
        );
        let relays: Vec<Relay> = ["a", "b"]
            .map(|name| Relay::start(folder.path(), name, "1G", "500K"))
            .into();
        for relay in &relays {
            service.add(relay);
        }
        service.wait_for_depots(|depot| depot["state"] == "up");
        let mut slurm = Slurm::set_up().unwrap();
        install(&slurm, &service, stage_in_timeout);
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

    fn scratch(&self) -> PathBuf {
        self.folder.path().join("scratch")
    }

    /// Writes a script where jobs run: on scratch, which `SCRATCH` in its text stands for.
    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.scratch().join(name);
        let scratch = self.scratch();
        fs::write(&path, text.replace("SCRATCH", scratch.to_str().unwrap())).unwrap();
        path
    }

    fn wait_for(&self, job: u32, wanted: impl Fn(&str, &str) -> bool) {
        let looked = self
            .slurm
            .wait_until("the job is as it should be", |slurm| {
                let (state, reason) = slurm.state(job)?;
                Ok(wanted(&state, &reason))
            });
        looked.unwrap_or_else(|error| {
            let log = fs::read_to_string(self.folder.path().join("service.log"));
            panic!(
                "{error}\n{:?}\n{}",
                self.slurm.state(job),
                log.unwrap_or_default()
            )
        });
    }

    /// The request that brings home what a job left: it comes once the job is told of as ended.
    fn leaving(&self) -> Value {
        let mut found = Value::Null;
        let asked = self.slurm.wait_until("its output leaves", |_| {
            let requests = self.service.json(&["list", "--json"]);
            let mut requests = requests.as_array().unwrap().iter();
            let out = requests.find(|one| one["to"] == "home");
            found = out.cloned().unwrap_or_default();
            Ok(out.is_some())
        });
        asked.unwrap_or_else(|error| panic!("{error}: {}", self.job(1)));
        found
    }

    fn job(&self, job: u32) -> Value {
        let jobs = self
            .slurm
            .ask("scontrol", &["show", "bbstat", "job", &job.to_string()]);
        Value::from(jobs.unwrap())
    }
}

/// Files of a MiB each; no links, which sources of a stage-in don't have.
fn make_files(root: &Path, count: u64) {
    let mut dice = Dice::new(count);
    fs::create_dir_all(root.join("deep")).unwrap();
    for number in 0..count {
        let words = (0..1u32 << 17).flat_map(|_| dice.roll(u64::MAX).to_le_bytes());
        let name = if number % 2 == 0 { "deep/" } else { "" };
        fs::write(
            root.join(format!("{name}{number}.h5")),
            words.collect::<Vec<u8>>(),
        )
        .unwrap();
    }
}

/// The names of files with the digests of what they hold.
fn contents(root: &Path) -> Vec<(String, String)> {
    let words = |line: &String| {
        let (name, digest) = (line.split(' ').next(), line.split(' ').next_back());
        (name.unwrap().to_owned(), digest.unwrap().to_owned())
    };
    // The lines of directories end with other things.
    let picture = picture(root);
    let files = picture.iter().filter(|line| line.contains(".h5 "));
    files.map(words).collect()
}

/// What `posthaste` on the service's side knows of the sources.
fn write_profiles(folder: &Path, s3: &S3Server, ssh: &SshServer, rate: &str) {
    let options: Vec<String> = ssh
        .options()
        .iter()
        .map(|option| format!("{option:?}"))
        .collect();
    let text = format!(
        "[archive]\nurl = \"s3://{}\"\nendpoint = \"{}\"\naccess_key_id = \"{}\"\n\
         secret_access_key = \"{}\"\nrate_max = \"{rate}\"\n\n[tape]\nurl = \"{}\"\nssh_options = [{}]\n",
        S3Server::BUCKET,
        s3.endpoint(),
        S3Server::ACCESS_KEY,
        S3Server::SECRET_KEY,
        ssh.address(folder.join("far").to_str().unwrap()),
        options.join(", "),
    );
    let path = folder.join("config/posthaste/profiles.toml");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    chown(&path, Some(USER), Some(USER)).unwrap();
}

/// Lets the service's user log in with the key of who runs the test.
fn lend_key(ssh: &SshServer) {
    let options = ssh.options();
    let key = options[0].strip_prefix("IdentityFile=").unwrap();
    let folder = Path::new(key).parent().unwrap();
    for path in [folder, Path::new(key), &folder.join("known_hosts")] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
}

/// Puts the plug-in beside slurm.conf.
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
    let settings = format!("Directive=POSTHASTE\nStageInTimeout={stage_in_timeout}\n");
    fs::write(file("burst_buffer.conf"), settings).unwrap();
    let conf = fs::read_to_string(file("slurm.conf")).unwrap();
    fs::write(
        file("slurm.conf"),
        format!("{conf}BurstBufferType=burst_buffer/lua\n"),
    )
    .unwrap();
}

#[test]
fn a_job_starts_with_its_data_and_frees_its_node_before_what_it_leaves_is_safe() {
    let centre = Centre::start("4M", 600);
    let script = centre.script(
        "job.sh",
        "#!/bin/sh\n\
         #POSTHASTE stage_in source=archive:run destination=SCRATCH/weather\n\
         #POSTHASTE stage_in source=tape: destination=SCRATCH/mesh\n\
         #POSTHASTE stage_out source=SCRATCH/o*t destination=home via=a,b code=1+1 release=when-safe\n\
         [ \"$POSTHASTE_STAGE_IN_2\" = SCRATCH/mesh ] || exit 3\n\
         mkdir out && find mesh -type f | xargs cat > out/result.h5 && echo x >> mesh/own\n",
    );
    let scratch = centre.scratch();
    let job = centre.slurm.submit(&script).unwrap();
    centre.wait_for(job, |state, reason| {
        state == "PENDING" && reason.contains("BurstBufferStageIn")
    });
    assert!(
        !scratch.join("weather").exists(),
        "it appears when all of it is whole"
    );
    assert!(centre.job(job).as_str().unwrap().contains("archive:run"));

    centre.wait_for(job, |state, _| state == "STAGE_OUT");
    let wanted = contents(&centre.s3.bucket_folder().join("run"));
    assert_eq!(contents(&scratch.join("weather")), wanted);
    assert_eq!(fs::metadata(scratch.join("mesh")).unwrap().uid(), USER);
    let result = scratch.join("out/result.h5");
    assert!(result.exists(), "the job ran");
    let idle = |slurm: &Slurm| Ok(slurm.ask("sinfo", &["-h", "-o", "%T"])?.trim() == "idle");
    centre.slurm.wait_until("the node is free", idle).unwrap();
    let out = centre.leaving();
    assert!(
        ["scanning", "moving"].contains(&out["state"].as_str().unwrap()),
        "{out}"
    );

    centre.wait_for(job, |state, _| state == "COMPLETED");
    let id = out["id"].as_str().unwrap();
    centre
        .service
        .wait_until(id, |request| request["state"] == "released");
    assert!(!result.exists(), "it was to be removed when safe");
    drop(centre.ssh);
}
