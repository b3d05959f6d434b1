//! The front door of PBS: its hook and its staging under a stand-in for PBS, with a real service, real sources and relays.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[path = "support/processes.rs"]
mod processes;

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use posthaste_testbed::{S3Server, SshServer, install};
use processes::{PATIENCE, Relay, Service, now, text};
use serde_json::{Value, json};

/// A centre of one host: a stand-in for PBS, a service and scratch, an S3 server and an SSH server that hold inputs.
struct Centre {
    folder: tempfile::TempDir,
    service: Service,
    s3: S3Server,
    ssh: SshServer,
}

impl Centre {
    /// The S3 server gives so many bytes a second.
    fn start(rate: &str) -> Self {
        Self::start_with(rate, &[])
    }

    /// With more arguments for the service.
    fn start_with(rate: &str, more: &[&str]) -> Self {
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

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Does what the page for operators says, with the settings of this place.
    fn install_hook(&self) {
        fs::copy(
            plugins().join("posthaste_hook.py"),
            self.path("posthaste_hook.py"),
        )
        .unwrap();
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

    /// The staging programs, with the paths that a site writes into them.
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

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(install::find_python().unwrap());
        command
            .arg(plugins().join("fake/fakepbs"))
            .arg(self.path("pbs"))
            .args(words)
            .current_dir(self.folder.path())
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    fn pbs(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Waits until that holds.
    fn wait_for(&self, what: &str, holds: impl Fn() -> bool) {
        let start = now();
        while !holds() {
            assert!(start.elapsed() < PATIENCE, "{what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// One command of PBS that must go well.
    fn ask(&self, words: &[&str]) -> String {
        let output = self.pbs(words);
        assert!(
            output.status.success(),
            "{words:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout).trim().to_owned()
    }

    /// Submits a script, in which `SCRATCH` and `FAR` stand for folders.
    fn submit(&self, script: &str) -> Output {
        let script = script
            .replace("SCRATCH", self.path("scratch").to_str().unwrap())
            .replace("FAR", self.path("far").to_str().unwrap());
        let path = self.path("job.sh");
        fs::write(&path, script).unwrap();
        self.pbs(&["qsub", path.to_str().unwrap()])
    }

    fn submitted(&self, script: &str) -> String {
        let output = self.submit(script);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    }

    fn job(&self, id: &str) -> Value {
        serde_json::from_str(&self.ask(&["qstat", id])).unwrap()
    }

    /// Lets the scheduler look again and again until the job is as it should be.
    fn cycle_until(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let start = now();
        loop {
            self.ask(&["cycle"]);
            let job = self.job(id);
            if wanted(&job) {
                return job;
            }
            assert!(start.elapsed() < PATIENCE, "{job}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn log(&self) -> String {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        read(self.path("pbs/log")) + &read(self.path("service.log"))
    }

    /// The requests that stage out.
    fn leaving(&self) -> Vec<Value> {
        let requests = self.service.json(&["list", "--json"]);
        let requests = requests.as_array().unwrap().iter();
        requests
            .filter(|one| one["to"] == "home")
            .cloned()
            .collect()
    }
}

fn plugins() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/pbs")
}

/// What the service asks PBS by.
fn install_programs(folder: &Path) {
    let python = install::find_python().unwrap();
    let fake = plugins().join("fake/fakepbs");
    fs::create_dir(folder.join("bin")).unwrap();
    for name in ["qstat", "pbsnodes"] {
        let line = format!(
            "#!/bin/sh\nPYTHONDONTWRITEBYTECODE=1 exec {} {} {} {name} \"$@\"\n",
            python.display(),
            fake.display(),
            folder.join("pbs").display()
        );
        let path = folder.join("bin").join(name);
        fs::write(&path, line).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }
}

/// The profiles of the service, and the same for who stages by himself.
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
    for name in ["config/posthaste", "home/.config/posthaste"] {
        let path = folder.join(name).join("profiles.toml");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
}

fn comment(job: &Value) -> &str {
    job["comment"].as_str().unwrap_or_default()
}

#[test]
fn qsub_refuses_directives_that_make_no_sense() {
    let centre = Centre::start("1G");
    for (variable, said) in [
        (
            "\"stage_in source=archive:a destination=SCRATCH/a; stage_uot source=/a destination=home\"",
            "qsub: posthaste: POSTHASTE: line 2: `stage_uot` is no directive (write stage_out)",
        ),
        (
            "'stage_in source=archive:a destination=a'",
            "line 1: a is no absolute path",
        ),
        (
            "\"stage_out source=/a destination=home via=a,b deadline=soon\"",
            "`deadline=soon` can't be read",
        ),
    ] {
        let output = centre.submit(&format!("#!/bin/sh\n#PBS -v A=1,POSTHASTE={variable}\n"));
        assert_eq!(output.status.code(), Some(1));
        let error = text(&output.stderr);
        assert!(error.contains(said), "{said}: {error}");
    }
    // Jobs that want nothing of posthaste are none of its business, even where it is not set up.
    fs::write(centre.path("pbs/hooks/posthaste.CF"), "{").unwrap();
    let job = centre.submitted("#!/bin/sh\n#PBS -v A=1\necho \"$A\"\n");
    centre.cycle_until(&job, |job| job["job_state"] == "F");
}

#[test]
fn a_job_runs_once_its_data_is_there_and_what_it_leaves_goes_home() {
    let mut centre = Centre::start("2M");
    fs::create_dir(centre.s3.bucket_folder().join("run")).unwrap();
    let content = vec![7_u8; 12 << 20];
    fs::write(centre.s3.bucket_folder().join("run/large"), &content).unwrap();
    fs::create_dir(centre.path("far/mesh")).unwrap();
    fs::write(centre.path("far/mesh/points"), "1 2 3").unwrap();
    let relays = ["a", "b"].map(|name| Relay::start(centre.folder.path(), name, "1G", "10M"));
    for relay in &relays {
        centre.service.add(relay);
    }
    centre
        .service
        .wait_for_depots(|depot| depot["state"] == "up");
    let job = centre.submitted(
        "#!/bin/sh\n\
         #PBS -v POSTHASTE=\"stage_in source=archive:run destination=SCRATCH/run; stage_in source=tape:mesh \
         destination=SCRATCH/mesh; stage_out source=SCRATCH/out destination=home via=a,b code=1+1\"\n\
         mkdir SCRATCH/out && cat SCRATCH/run/large SCRATCH/mesh/points > SCRATCH/out/result\n",
    );
    centre.ask(&["cycle"]);
    let waiting = centre.job(&job);
    assert_eq!(
        waiting["job_state"], "W",
        "the scheduler looks at others meanwhile"
    );
    assert!(
        comment(&waiting).contains("data is on its way"),
        "{waiting}"
    );
    assert!(!centre.path("scratch/run").exists());

    // The service may be away meanwhile: the job waits for it too.
    centre.service.kill();
    centre.cycle_until(&job, |job| comment(job).contains("can't ask the service"));
    centre.service.restart();
    let done = centre.cycle_until(&job, |job| job["job_state"] == "F");
    assert_eq!(done["Exit_status"], 0, "{done}\n{}", centre.log());
    let result = fs::read(centre.path("scratch/out/result")).unwrap();
    assert_eq!(result.len(), content.len() + 5);

    let leaving = centre.leaving();
    assert_eq!(leaving.len(), 1, "{leaving:?}\n{}", centre.log());
    let id = leaving[0]["id"].as_str().unwrap();
    centre
        .service
        .wait_until(id, |request| request["state"] == "safe");
    let start = now();
    while !centre.jobs_of_service().contains("\"gone\"") {
        assert!(start.elapsed() < PATIENCE, "{}", centre.log());
        centre.ask(&["periodic"]);
    }
}

#[test]
fn the_sites_purge_binds_what_a_job_leaves() {
    let site = tempfile::tempdir().unwrap();
    let policy = site.path().join("purge.toml");
    let rule = |name: &str, days: f64| {
        let rule = format!("[[rule]]\nname = \"{name}\"\nclock = \"mtime\"\ndays = {days}\n");
        fs::write(&policy, rule).unwrap();
    };
    rule("an hour", 1.0 / 24.0);
    let centre = Centre::start_with("1G", &["--purge-policy", policy.to_str().unwrap()]);
    let relay = Relay::start(centre.folder.path(), "a", "1G", "10K");
    centre.service.add(&relay);
    let is_up = |depot: &Value| depot["state"] == "up";
    centre.service.wait_for_depots(is_up);
    let job = centre.submitted(
        "#!/bin/sh\n#PBS -v POSTHASTE=\"stage_out source=SCRATCH/out destination=home deadline=5h code=1+0\"\n\
         mkdir -p SCRATCH/out && head -c 4M /dev/urandom > SCRATCH/out/result.h5\n",
    );
    centre.cycle_until(&job, |job| job["job_state"] == "F");
    let leaving = centre.leaving();
    let id = leaving[0]["id"].as_str().unwrap();
    let due = |request: &Value| {
        let due = request["deadline"].as_str().unwrap();
        let due: jiff::Timestamp = due.parse().unwrap();
        due.duration_since(jiff::Timestamp::now()).as_secs() / 60
    };
    let request = centre.service.status(id);
    assert!((50..=60).contains(&due(&request)), "{request}");
    let told = |words: &[&str]| {
        centre.wait_for("the rule is told", || {
            let story = centre.service.run(&["explain", id]);
            let story = text(&story.stdout);
            words.iter().all(|word| story.contains(word))
        });
    };
    told(&["result.h5", "`an hour` (line 1)", "purge.toml"]);

    // Other rules move it soon.
    rule("two hours", 2.0 / 24.0);
    let is_moved = |request: &Value| due(request) > 100;
    centre.service.wait_until(id, is_moved);
    told(&["`two hours` (line 1)"]);

    fs::write(&policy, "[[rule]]\nnonsense = 1\n").unwrap();
    let serve = ["serve", "--state"];
    let output = processes::binary()
        .args(serve)
        .arg(site.path().join("state"))
        .arg("--purge-policy")
        .arg(&policy)
        .output()
        .unwrap();
    let (code, line) = processes::failure(&output);
    assert!(code == 2 && line.contains("nonsense"), "{code}: {line}");
}

impl Centre {
    /// What the service says of all jobs of PBS, also of those that are gone.
    fn jobs_of_service(&self) -> String {
        let token = fs::read_to_string(self.service.state.join("token")).unwrap();
        let asked = Command::new(install::find_python().unwrap())
            .args(["-c", ASK_FOR_JOBS, &self.service.url])
            .env("TOKEN", token.trim())
            .output()
            .unwrap();
        assert!(asked.status.success(), "{}", text(&asked.stderr));
        text(&asked.stdout)
    }
}

const ASK_FOR_JOBS: &str = "import os, sys, urllib.request as r
for query in '', '&phase=gone':
    q = r.Request(sys.argv[1] + '/v1/jobs?scheduler=pbs' + query, headers={'Authorization': 'Bearer ' + os.environ['TOKEN']})
    print(r.urlopen(q).read().decode())";

#[test]
fn an_end_that_the_service_did_not_hear_of_is_told_later_and_a_rerun_is_no_end() {
    let mut centre = Centre::start("1G");
    let relay = Relay::start(centre.folder.path(), "a", "1G", "10M");
    centre.service.add(&relay);
    centre
        .service
        .wait_for_depots(|depot| depot["state"] == "up");
    let job = centre.submitted(
        "#!/bin/sh\n#PBS -v POSTHASTE=\"stage_out source=SCRATCH/out destination=home code=1+0\"\n\
         mkdir -p SCRATCH/out && echo 1 > SCRATCH/out/result\n",
    );
    centre.ask(&["qrerun", &job]);
    assert_eq!(centre.job(&job)["job_state"], "Q");
    assert!(centre.leaving().is_empty(), "it will run again");

    // It runs while the service is there, and ends when it is not.
    let script = centre.job(&job)["script"].as_str().unwrap().to_owned();
    assert!(script.contains("mkdir"));
    let path = centre.path(&format!("pbs/jobs/{job}.json"));
    let mut changed = centre.job(&job);
    let pid = centre.service_pid();
    changed["script"] = format!("{script}kill -9 {pid}\n").into();
    fs::write(&path, changed.to_string()).unwrap();
    centre.cycle_until(&job, |job| job["job_state"] == "F");
    assert_eq!(fs::read_dir(centre.path("pbs/notes")).unwrap().count(), 1);
    assert!(
        centre.log().contains("told later that it ended"),
        "{}",
        centre.log()
    );
    centre.service.kill();
    centre.service.restart();
    // Notes that nobody can read keep none back, and stay for who looks after PBS.
    fs::write(centre.path("pbs/notes/broken"), "{\"job\": ").unwrap();
    fs::write(centre.path("pbs/notes/other"), "[]").unwrap();
    centre.ask(&["periodic"]);
    assert_eq!(fs::read_dir(centre.path("pbs/notes")).unwrap().count(), 2);
    assert_eq!(centre.leaving().len(), 1);
    let broken = format!("can't read {}", centre.path("pbs/notes/broken").display());
    assert!(centre.log().contains(&broken), "{}", centre.log());
}

#[test]
fn a_job_whose_output_can_t_leave_is_forgotten() {
    let centre = Centre::start("1G");
    // The only depot that it may go over is not in the books, so it was refused for good.
    let job = centre.submitted(
        "#!/bin/sh\n#PBS -v POSTHASTE=\"stage_out source=SCRATCH/out destination=home via=nowhere\"\n\
         mkdir -p SCRATCH/out && echo 1 > SCRATCH/out/result\n",
    );
    centre.cycle_until(&job, |job| job["job_state"] == "F");
    assert!(centre.jobs_of_service().contains("\"ended\""));
    centre.ask(&["periodic"]);
    assert!(
        centre.jobs_of_service().contains("\"gone\""),
        "{}",
        centre.jobs_of_service()
    );
}

impl Centre {
    fn service_pid(&self) -> u32 {
        self.service.process.id()
    }
}

#[test]
fn a_job_whose_data_can_t_come_is_held_and_tried_again_when_released() {
    let centre = Centre::start("1G");
    let job = centre.submitted(
        "#!/bin/sh\n#PBS -v POSTHASTE=\"stage_in source=tape:late destination=SCRATCH/late\"\ntest -e SCRATCH/late/x\n",
    );
    let held = centre.cycle_until(&job, |job| job["job_state"] == "H");
    assert_eq!(held["Hold_Types"], "u");
    assert!(
        comment(&held).contains(&format!("(qrls {job} tries again)")),
        "{held}"
    );
    fs::create_dir(centre.path("far/late")).unwrap();
    fs::write(centre.path("far/late/x"), "x").unwrap();
    centre.ask(&["qrls", &job]);
    let done = centre.cycle_until(&job, |job| job["job_state"] == "F");
    assert_eq!(done["Exit_status"], 0, "{done}");
}

#[test]
fn what_is_on_its_way_to_a_job_that_was_deleted_is_given_up() {
    let centre = Centre::start("1M");
    let run = centre.s3.bucket_folder().join("run");
    fs::create_dir(&run).unwrap();
    fs::write(run.join("large"), vec![7_u8; 100 << 20]).unwrap();
    let job = centre.submitted(
        "#!/bin/sh\n#PBS -v POSTHASTE=\"stage_in source=archive:run destination=SCRATCH/run\"\n",
    );
    centre.ask(&["cycle"]);
    assert!(centre.jobs_of_service().contains("\"staging-in\""));
    centre.ask(&["periodic"]);
    assert!(
        centre.jobs_of_service().contains("\"staging-in\""),
        "it is still there"
    );
    centre.ask(&["qdel", &job]);
    centre.ask(&["periodic"]);
    assert!(centre.jobs_of_service().contains("\"gone\""));
}

#[test]
fn plain_staging_goes_through_posthaste() {
    let centre = Centre::start("1G");
    fs::create_dir(centre.s3.bucket_folder().join("run")).unwrap();
    fs::write(
        centre.s3.bucket_folder().join("run/in put"),
        "from the archive",
    )
    .unwrap();
    fs::write(centre.path("far/local"), "from this host").unwrap();
    let job = centre.submitted(
        "#!/bin/sh\n\
         #PBS -W stagein=\"SCRATCH/one@archive:run/in put,SCRATCH/two@localhost:FAR/local\"\n\
         #PBS -W stageout=\"SCRATCH/three@tape:three\"\n\
         cat SCRATCH/one SCRATCH/two > SCRATCH/three\n",
    );
    centre.ask(&["cycle"]);
    let done = centre.job(&job);
    assert_eq!(done["Exit_status"], 0, "{done}\n{}", centre.log());
    let wanted = "from the archivefrom this host";
    assert_eq!(
        fs::read_to_string(centre.path("far/three")).unwrap(),
        wanted
    );
    assert!(!centre.log().contains("scp got"), "{}", centre.log());
    assert!(!centre.log().contains(S3Server::SECRET_KEY));

    // All of it is there already: PBS must not take that for a failure.
    let again = centre.submitted("#!/bin/sh\n#PBS -W stagein=\"SCRATCH/one@archive:run/in put\"\n");
    centre.ask(&["cycle"]);
    assert_eq!(centre.job(&again)["Exit_status"], 0, "{}", centre.log());
    assert_eq!(
        centre.log().matches("in\\ put").count(),
        2,
        "one try each: {}",
        centre.log()
    );
    drop(centre.ssh);
}

#[test]
fn what_only_scp_can_do_is_left_to_scp() {
    let centre = Centre::start("1G");
    let job = centre.submitted("#!/bin/sh\n#PBS -W stagein=\"SCRATCH/all@dtn:FAR/*.nc\"\n");
    centre.ask(&["cycle"]);
    assert_eq!(centre.job(&job)["Exit_status"], 0, "{}", centre.log());
    let log = centre.log();
    assert!(log.contains("the other host expands patterns"), "{log}");
    assert!(log.contains("scp got -Brvp "), "{log}");
}

#[test]
fn the_queue_is_forecast_and_data_comes_shortly_before_a_job_starts() {
    let centre = Centre::start_with("1G", &["--queue", "pbs", "--just-in-time"]);
    fs::create_dir(centre.s3.bucket_folder().join("run")).unwrap();
    fs::write(centre.s3.bucket_folder().join("run/small"), "1 2 3").unwrap();
    let go = centre.path("scratch/go");
    let first = centre.submitted(
        "#!/bin/sh\n#PBS -l ncpus=4,walltime=02:00:00\nwhile [ ! -e SCRATCH/go ]; do sleep 0.1; done\n",
    );
    let mut running = centre.command(&["cycle"]).spawn().unwrap();
    centre.wait_for("it runs", || centre.job(&first)["job_state"] == "R");
    // `part=005` makes what qstat prints no JSON.
    let second = centre.submitted(
        "#!/bin/sh\n\
         #PBS -l ncpus=4,walltime=00:05:00\n\
         #PBS -v part=005,POSTHASTE=\"stage_in source=archive:run destination=SCRATCH/run\"\n\
         cp SCRATCH/run/small SCRATCH/seen\n",
    );
    centre.wait_for("its data is held back", || {
        let queue = centre.service.json(&["queue", "--json"]);
        let requests = centre.service.json(&["list", "--json"]);
        let asked = requests.as_array().unwrap().iter();
        let mut asked = asked.filter_map(|one| one["stage_in"]["not_before"].as_str());
        let is_far =
            |at: jiff::Timestamp| at.duration_since(jiff::Timestamp::now()).as_secs() > 5000;
        let is_held = asked.any(|at| is_far(at.parse().unwrap()));
        assert!(queue["trouble"].is_null(), "{queue}");
        is_held && queue["jobs"][0]["job"].as_str() == Some(&*second)
    });
    let queue = centre.service.json(&["queue", "--json"]);
    assert_eq!(
        (&queue["scheduler"], &queue["procs"]),
        (&json!("pbs"), &json!(4))
    );
    assert!(queue["history_trouble"].is_null(), "{queue}");
    centre.cycle_until(&second, |job| comment(job).contains("data is on its way"));

    fs::write(&go, "").unwrap();
    assert!(running.wait().unwrap().success());
    let done = centre.cycle_until(&second, |job| job["job_state"] == "F");
    assert_eq!(done["Exit_status"], 0, "{done}\n{}", centre.log());
    assert_eq!(
        fs::read_to_string(centre.path("scratch/seen")).unwrap(),
        "1 2 3"
    );
}
