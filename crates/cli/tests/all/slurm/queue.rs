//! Queue of a real Slurm: polled, forecast, and scored when a job starts.

use std::{
    fs::{self, Permissions},
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use posthaste_testbed::Slurm;
use serde_json::{Value, json};

use crate::{
    slurm::centre::{Centre, contents},
    support::processes::{Service, binary, text},
};

fn queue(service: &Service) -> Value {
    service.json(&["queue", "--json"])
}

/// Returns the ids of the jobs; each look forecasts their starts anew.
fn ids(jobs: &Value) -> Vec<&Value> {
    let jobs = jobs.as_array().unwrap().iter();
    jobs.map(|job| &job["job"]).collect()
}

/// Returns the number of jobs by which the simulated queue was scored.
fn scored(queue: &Value) -> u64 {
    let mut scores = queue["scores"].as_array().unwrap().iter();
    let simulated = scores.find(|score| score["forecaster"] == "simulated");
    simulated.map_or(0, |score| score["scored"].as_u64().unwrap())
}

/// Waits until the service's view of the queue satisfies `wanted`.
fn wait_until(slurm: &Slurm, service: &Service, what: &str, wanted: impl Fn(&Value) -> bool) {
    let looked = slurm.wait_until(what, |_| Ok(wanted(&queue(service))));
    looked.unwrap_or_else(|error| panic!("{error}: {}", queue(service)));
}

/// Registers a job without data with the service, so that it looks at the queue soon.
pub fn register(service: &Service, job: u32) {
    // A service acts for its own user only.
    let user = fs::metadata(&service.state).unwrap().uid();
    let body = json!({"uid": user, "gid": 0, "script": ""}).to_string();
    tell(service, &format!("PUT /v1/jobs/slurm/{job}"), &body);
}

/// Calls a route of the service that no command uses; returns the answer, which must be no refusal.
pub fn tell(service: &Service, question: &str, body: &str) -> String {
    let token = fs::read_to_string(service.state.join("token")).unwrap();
    let address = service.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{question} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        token.trim(),
        body.len()
    )
    .unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 20"), "{said}");
    said
}

fn moment(text: &Value) -> jiff::Timestamp {
    text.as_str().unwrap().parse().unwrap()
}

/// Returns a job of all processors for so many minutes at most, which ends when a file exists.
fn crowd(minutes: u32, go: &Path) -> String {
    let go = go.display();
    format!(
        "#!/bin/sh\n#SBATCH --ntasks=4 --time={minutes}\nwhile [ ! -e {go} ]; do sleep 0.1; done\n"
    )
}

fn wait_for(slurm: &Slurm, job: u32, states: &[&str]) {
    let looked = slurm.wait_until("the job is as it should be", |slurm| {
        let (state, _) = slurm.state(job)?;
        Ok(states.contains(&state.as_str()))
    });
    looked.unwrap();
}

#[test]
fn a_job_that_waits_is_forecast_and_scored_and_that_outlives_slurm_and_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let mut slurm = Slurm::set_up().unwrap();
    slurm.start().unwrap();
    let place = slurm.folder().join("jobs");
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, Permissions::from_mode(0o777)).unwrap();
    let (script, go) = (place.join("job.sh"), place.join("go"));
    fs::write(&script, crowd(5, &go)).unwrap();
    let first = slurm.submit(&script).unwrap();
    wait_for(&slurm, first, &["RUNNING"]);
    let second = slurm.submit(&script).unwrap();

    let conf = slurm.folder().join("slurm.conf");
    std::os::unix::fs::symlink(conf, folder.path().join("slurm.conf")).unwrap();
    let mut service = Service::start_with(folder.path(), &["--queue", "slurm"]);
    wait_until(&slurm, &service, "the second job is forecast", |queue| {
        queue["jobs"][0]["job"].as_str() == Some(&*second.to_string())
    });
    let found = queue(&service);
    let job = &found["jobs"][0];
    assert_eq!(
        (&job["procs"], &job["forecaster"]),
        (&json!(4), &json!("simulated"))
    );
    let ahead = moment(&job["start_p50"]).duration_since(moment(&found["looked"]));
    assert!(
        (1..=300).contains(&ahead.as_secs()),
        "the first job may run for 5 min: {ahead:?}"
    );
    assert!(
        found["history_trouble"].as_str().unwrap().contains("sacct"),
        "this Slurm keeps no accounts: {found}"
    );
    let shown = text(&service.run(&["queue"]).stdout);
    assert!(
        shown.contains("SCHEDULER") && shown.contains(&second.to_string()),
        "{shown}"
    );

    users_see_their_own(&service, folder.path(), &found);

    slurm.stop_controller().unwrap();
    register(&service, 1);
    wait_until(
        &slurm,
        &service,
        "a Slurm that is away is told of",
        |queue| {
            queue["trouble"]
                .as_str()
                .is_some_and(|trouble| trouble.contains("squeue"))
        },
    );
    assert_eq!(
        ids(&queue(&service)["jobs"]),
        ids(&found["jobs"]),
        "what was known stays"
    );
    slurm.start_controller().unwrap();
    fs::write(&go, "").unwrap();
    wait_for(&slurm, second, &["RUNNING", "COMPLETED"]);
    register(&service, 2);
    wait_until(&slurm, &service, "its forecast is scored", |queue| {
        scored(queue) == 1 && queue["trouble"].is_null()
    });

    service.kill();
    service.restart();
    wait_until(&slurm, &service, "the score is known again", |queue| {
        scored(queue) == 1
    });
}

/// Checks that a job's owner sees it, and others only that it exists.
fn users_see_their_own(service: &Service, folder: &Path, found: &Value) {
    let user = found["jobs"][0]["user"].as_str().unwrap();
    let shown = |name: &str, owner: &[&str]| {
        let file = folder.join(name);
        let made = ["--scope", "read", "--output", file.to_str().unwrap()];
        let made = service.run(&[&["token", "add", name], owner, &made].concat());
        assert!(made.status.success(), "{}", text(&made.stderr));
        let asked = binary()
            .args(["queue", "--json", "--service", &service.url, "--token-file"])
            .arg(file)
            .output()
            .unwrap();
        let shown: Value = serde_json::from_slice(&asked.stdout).unwrap();
        (shown["jobs"].clone(), shown["jobs_of_others"].clone())
    };
    assert_eq!(found["jobs_of_others"], 0, "who operates sees all");
    let (own, others) = shown("own", &["--owner", user]);
    assert_eq!((ids(&own), others), (ids(&found["jobs"]), json!(0)));
    let nothing = (json!([]), json!(1));
    assert_eq!(shown("other", &["--owner", "carol"]), nothing);
    assert_eq!(shown("watching", &[]), nothing);
}

#[test]
fn what_a_job_reads_waits_until_its_start_is_near_and_comes_when_that_moves() {
    let centre = Centre::start_serving("1G", &["--queue", "slurm", "--just-in-time"]);
    let (service, slurm, go) = (&centre.service, &centre.slurm, centre.scratch().join("go"));
    let first = slurm
        .submit(&centre.script("first.sh", &crowd(120, &go)))
        .unwrap();
    wait_for(slurm, first, &["RUNNING"]);
    let asked = jiff::Timestamp::now();
    let script = "#!/bin/sh\n\
        #SBATCH --ntasks=4 --time=5\n\
        #POSTHASTE stage_in source=archive:run destination=SCRATCH/weather\n\
        ls weather > seen\n";
    let second = slurm.submit(&centre.script("second.sh", script)).unwrap();
    // The first job may run for two hours, and data is wanted shortly before the second starts.
    let held_back = slurm.wait_until("its data is held back", |_| {
        let asked_for = centre.stage_ins("weather");
        let not_before = asked_for.first().map(|one| &one["stage_in"]["not_before"]);
        let not_before = not_before.filter(|at| at.is_string()).map(moment);
        Ok(not_before.is_some_and(|at| at.duration_since(asked).as_secs() > 5000))
    });
    held_back.unwrap_or_else(|error| panic!("{error}: {}", queue(service)));
    assert!(centre.stage_ins("weather")[0]["stage_in"]["begun"].is_null());
    let before = scored(&queue(service));
    centre.wait_for(second, |state, reason| {
        state == "PENDING" && reason.contains("BurstBufferStageIn")
    });

    fs::write(&go, "").unwrap();
    wait_for(slurm, first, &["COMPLETED"]);
    register(service, 999_999);
    centre.wait_for(second, |state, _| state == "COMPLETED");
    let wanted = contents(&centre.s3.bucket_folder().join("run"));
    assert_eq!(contents(&centre.scratch().join("weather")), wanted);
    assert!(centre.scratch().join("seen").exists(), "it ran");
    // What it waited for its data is known to be that.
    register(service, 999_998);
    wait_until(slurm, service, "its forecast is scored", |queue| {
        scored(queue) == before + 1
    });
}

#[test]
fn what_an_array_reads_waits_until_the_first_of_it_may_start() {
    let centre = Centre::start_serving("1G", &["--queue", "slurm", "--just-in-time"]);
    let (service, slurm, go) = (&centre.service, &centre.slurm, centre.scratch().join("go"));
    let first = slurm
        .submit(&centre.script("first.sh", &crowd(120, &go)))
        .unwrap();
    wait_for(slurm, first, &["RUNNING"]);
    let asked = jiff::Timestamp::now();
    let script = "#!/bin/sh\n\
        #SBATCH --ntasks=4 --time=5 --array=0-1\n\
        #POSTHASTE stage_in source=archive:run destination=SCRATCH/weather\n\
        ls $POSTHASTE_STAGE_IN_1/deep > seen-$SLURM_ARRAY_TASK_ID || rm seen-$SLURM_ARRAY_TASK_ID\n";
    slurm.submit(&centre.script("many.sh", script)).unwrap();
    let held_back = slurm.wait_until("its data is held back", |_| {
        let asked_for = centre.stage_ins("weather");
        let not_before = asked_for.first().map(|one| &one["stage_in"]["not_before"]);
        let not_before = not_before.filter(|at| at.is_string()).map(moment);
        Ok(not_before.is_some_and(|at| at.duration_since(asked).as_secs() > 5000))
    });
    held_back.unwrap_or_else(|error| {
        let asked_for = centre.stage_ins("weather");
        panic!("{error}: {} {asked_for:?}", queue(service))
    });
    assert!(centre.stage_ins("weather")[0]["stage_in"]["begun"].is_null());
    fs::write(&go, "").unwrap();
    wait_for(slurm, first, &["COMPLETED"]);
    register(service, 999_999);
    let ran = slurm.wait_until("both ran", |_| {
        let ran = |one: u32| centre.scratch().join(format!("seen-{one}")).exists();
        Ok(ran(0) && ran(1))
    });
    ran.unwrap_or_else(|error| panic!("{error}: {}", centre.service_log()));
    let wanted = contents(&centre.s3.bucket_folder().join("run"));
    assert_eq!(contents(&centre.scratch().join("weather")), wanted);
}
