//! Queue and accounts through slurmrestd: equal to those by Slurm's programs.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    io::{Read, Write},
    net::TcpStream,
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixStream,
    },
    path::Path,
    time::Duration,
};

use jiff::tz::TimeZone;
use posthaste_batch::{
    queue::{Job, Queue, State},
    slurm::{self as reader, job_states, job_states_json},
};
use posthaste_testbed::{Slurm, SlurmRest, is_in_debian_13};
use serde_json::Value;

use crate::{slurm::queue::register, support::processes::Service};

/// Owners of the jobs: accounts of every Debian.
const USERS: [u32; 2] = [65534, 5];

/// Longest wait for the next piece of an answer: more than any needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Gets one path over a plain socket.
fn ask(mut stream: impl Read + Write, path: &str, token: &str) -> Vec<u8> {
    let token = match token {
        "" => String::new(),
        token => format!("X-SLURM-USER-NAME: root\r\nX-SLURM-USER-TOKEN: {token}\r\n"),
    };
    let question = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{token}Connection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).unwrap();
    let mut said = Vec::new();
    let read = stream.read_to_end(&mut said);
    read.unwrap_or_else(|error| panic!("no whole answer to {path}: {error}"));
    let text = String::from_utf8(said).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{path}: {text}");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let len = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    body[..len.unwrap().parse().unwrap()].into()
}

/// Returns the newest version of answers that the Slurms of both Debians have.
fn version() -> &'static str {
    if is_in_debian_13() {
        "v0.0.42"
    } else {
        "v0.0.38"
    }
}

/// Returns the output of one of our calls.
fn printed(slurm: &Slurm, call: posthaste_batch::queue::Call) -> String {
    let mut command = slurm.command(call.program);
    let (name, value) = call.environment;
    let output = command
        .args(call.arguments)
        .env(name, value)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns jobs by their ids, without facts that only one of both forms has.
fn by_id(queue: Queue, is_history: bool) -> BTreeMap<String, Job> {
    let jobs = queue.jobs.into_iter().map(|mut job| {
        if is_history {
            (job.priority, job.reason) = (0, String::new());
        }
        (job.id.clone(), job)
    });
    jobs.collect()
}

/// Waits until both give the same answer in the same second, and returns it.
fn alike<T: PartialEq + std::fmt::Debug>(
    slurm: &Slurm,
    what: &str,
    both: impl Fn() -> (T, T),
) -> T {
    let mut last = None;
    let looked = slurm.wait_until(what, |_| {
        let (one, other) = both();
        let is_alike = one == other;
        last = Some((one, other));
        Ok(is_alike)
    });
    looked.unwrap_or_else(|error| panic!("{error}\n{last:#?}"));
    last.unwrap().0
}

/// Submits jobs of two users: some are over, one runs, and others wait, are held, wait for another,
/// and were cancelled.
fn submit_all(slurm: &Slurm, place: &Path) {
    let script = |name: &str, options: &str, does: &str| {
        let path = place.join(name);
        fs::write(&path, format!("#!/bin/sh\n#SBATCH {options}\n{does}\n")).unwrap();
        path
    };
    let [one, other] = USERS;
    let over = slurm.submit_as(one, &script("over.sh", "--time=3", "true"));
    let array = slurm.submit_as(other, &script("tasks.sh", "--time=3 --array=2,5", "true"));
    let (over, array) = (over.unwrap(), array.unwrap());
    let ended = slurm.wait_until("the first are over", |slurm| {
        let about = |job: u32| slurm.ask("scontrol", &["show", "job", &job.to_string()]);
        let shown = about(over)? + &about(array)?;
        Ok(shown.matches("JobState=COMPLETED").count() == 3)
    });
    ended.unwrap();
    let long = "--ntasks=4 --time=90";
    let runs = slurm.submit_as(one, &script("runs.sh", long, "exec sleep 1000"));
    let runs = runs.unwrap();
    let running = slurm.wait_until("it runs", |slurm| Ok(slurm.state(runs)?.0 == "RUNNING"));
    running.unwrap();
    let after = format!("--time=7 --dependency=afterok:{runs}");
    for (user, options) in [
        (one, "--ntasks=4 --time=5 --array=0,3-5%2"),
        (other, "--ntasks=4 --time=9"),
        (other, "--hold"),
        (one, &*after),
    ] {
        slurm
            .submit_as(user, &script("waits.sh", options, "true"))
            .unwrap();
    }
    let gone = slurm.submit_as(other, &script("gone.sh", "--time=9", "true"));
    slurm.ask("scancel", &[&gone.unwrap().to_string()]).unwrap();
}

fn write_token(slurm: &Slurm, file: &Path, lifespan: &str) {
    let token = slurm.ask("scontrol", &["token", "username=root", lifespan]);
    fs::write(file, token.unwrap()).unwrap();
    fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
}

fn queue(service: &Service) -> Value {
    service.json(&["queue", "--json"])
}

/// Makes the service look until a condition holds.
fn look_until(slurm: &Slurm, service: &Service, what: &str, wanted: impl Fn(&Value) -> bool) {
    register(service, 1);
    let looked = slurm.wait_until(what, |_| Ok(wanted(&queue(service))));
    looked.unwrap_or_else(|error| panic!("{error}: {}", queue(service)));
}

fn says(queue: &Value, key: &str, words: &str) -> bool {
    queue[key].as_str().is_some_and(|said| said.contains(words))
}

#[test]
fn the_queue_and_the_accounts_are_the_same_through_slurmrestd() {
    let folder = tempfile::tempdir().unwrap();
    let mut slurm = Slurm::set_up().unwrap();
    slurm.know_tokens().unwrap();
    if is_in_debian_13() {
        slurm.keep_accounts().unwrap();
    }
    slurm.start().unwrap();
    let place = slurm.folder().join("jobs");
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, Permissions::from_mode(0o777)).unwrap();
    submit_all(&slurm, &place);
    let socket = slurm.rest_on_socket().unwrap();
    let rest = slurm.rest_on_port(None).unwrap();

    let path = socket.url().trim_start_matches("unix://").to_owned();
    says_the_same(&slurm, &|of| {
        let stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        ask(stream, of, "")
    });
    if is_in_debian_13() {
        remembers_the_same(&slurm, &|of| {
            let token = slurm.ask("scontrol", &["token", "username=root"]).unwrap();
            let token = token.trim().trim_start_matches("SLURM_JWT=");
            let stream = TcpStream::connect(("127.0.0.1", rest.port().unwrap())).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            ask(stream, of, token)
        });
    }

    let [by_programs, by_socket] = ["programs", "socket"].map(|name| {
        let folder = folder.path().join(name);
        fs::create_dir(&folder).unwrap();
        folder
    });
    // Only the first finds its Slurm by programs.
    let conf = slurm.folder().join("slurm.conf");
    symlink(conf, by_programs.join("slurm.conf")).unwrap();
    let programs = Service::start_with(&by_programs, &["--queue", "slurm"]);
    let through = ["--queue", "slurm", "--queue-url", socket.url()];
    let through = Service::start_with(&by_socket, &through);
    show_the_same(&slurm, [&programs, &through]);
    if is_in_debian_13() {
        a_token_may_expire_and_slurmrestd_end(&slurm, rest, &programs);
    }
    // A step that runs would outlive its Slurm.
    for user in USERS {
        let user = format!("--user={user}");
        slurm.ask("scancel", &[&user]).unwrap();
    }
    let is_empty = |slurm: &Slurm| Ok(slurm.ask("squeue", &["--noheader"])?.is_empty());
    slurm.wait_until("all jobs are gone", is_empty).unwrap();
}

/// Checks that a service continues once there is a new token, and once slurmrestd is back.
fn a_token_may_expire_and_slurmrestd_end(slurm: &Slurm, rest: SlurmRest, programs: &Service) {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    let shown = token.to_str().unwrap();
    write_token(slurm, &token, "lifespan=1");
    let is_over = slurm.wait_until("the second is over in which it was good", |slurm| {
        let text = fs::read_to_string(&token)?;
        let (_, text) = text.trim().split_once('=').unwrap();
        let asked = slurm.command("squeue").env("SLURM_JWT", text).output()?;
        Ok(!asked.status.success())
    });
    is_over.unwrap();
    let (url, place) = (rest.url().to_owned(), rest.port());
    let more = [
        "--queue",
        "slurm",
        "--queue-url",
        &url,
        "--queue-token-file",
        shown,
    ];
    let service = Service::start_with(folder.path(), &more);
    look_until(slurm, &service, "an old token is told of", |queue| {
        says(queue, "trouble", "is the token in")
    });
    let told = queue(&service);
    assert!(told["looked"].is_null(), "{told}");
    assert!(
        !told.to_string().contains("eyJ"),
        "it tells the token: {told}"
    );
    write_token(slurm, &token, "lifespan=600");
    look_until(slurm, &service, "a new token is taken", |queue| {
        queue["trouble"].is_null() && queue["looked"].is_string()
    });
    show_the_same(slurm, [programs, &service]);

    drop(rest);
    look_until(
        slurm,
        &service,
        "that slurmrestd is gone is told",
        |queue| {
            says(queue, "trouble", "does slurmrestd run there?") && says(queue, "trouble", &url)
        },
    );
    let known = queue(&service);
    assert_eq!(
        known["jobs"].as_array().unwrap().len(),
        5,
        "what was known stays"
    );
    let _rest = slurm.rest_on_port(place).unwrap();
    look_until(slurm, &service, "it is back", |queue| {
        queue["trouble"].is_null()
    });
}

/// Compares the queue, its nodes and the jobs' states as text, as JSON, and from slurmrestd.
fn says_the_same(slurm: &Slurm, rest: &dyn Fn(&str) -> Vec<u8>) {
    let rest = |of: &str| rest(&format!("/slurm/{}/{of}", version()));
    let text = || {
        by_id(
            reader::queue_text(printed(slurm, reader::QUEUE).as_bytes(), &TimeZone::UTC),
            false,
        )
    };
    let read = |json: &[u8]| {
        let queue = reader::queue(json).unwrap();
        // Slurm 22.05 does not tell how many processors one wanted that was called off.
        assert!(
            queue.left_out <= usize::from(!is_in_debian_13()),
            "{queue:?}"
        );
        by_id(queue, false)
    };
    let is_told = |jobs: &mut BTreeMap<String, Job>| {
        jobs.retain(|_, job| is_in_debian_13() || job.state != State::Cancelled);
    };
    let same = |json: &dyn Fn() -> Vec<u8>| {
        alike(slurm, "text and JSON say the same of the queue", || {
            let (mut text, mut json) = (text(), read(&json()));
            is_told(&mut text);
            is_told(&mut json);
            (text, json)
        })
    };
    same(&|| {
        slurm
            .ask("squeue", &["--json", "--states=all"])
            .unwrap()
            .into_bytes()
    });
    let jobs = same(&|| rest("jobs"));
    let count = |state: State| jobs.values().filter(|job| job.state == state).count();
    let counts = [State::Over, State::Running, State::Waiting, State::Held].map(count);
    assert_eq!(counts, [3, 1, 5, 2], "{jobs:#?}");

    let procs = || reader::processors(printed(slurm, reader::PROCESSORS).as_bytes()).unwrap();
    let rest_procs = || reader::processors_json(&rest("nodes")[..]).unwrap();
    assert_eq!((procs(), rest_procs()), (4, 4));
    let node = slurm.ask("sinfo", &["-h", "-N", "-o", "%N"]).unwrap();
    let node = format!("NodeName={}", node.trim());
    for state in ["State=DRAIN", "State=RESUME"] {
        slurm
            .ask("scontrol", &["update", &node, state, "Reason=test"])
            .unwrap();
        alike(slurm, "sinfo and slurmrestd count the same", || {
            (procs(), rest_procs())
        });
    }

    alike(slurm, "jobs stand alike", || {
        let format = format!("--format={}", reader::STATES_FORMAT);
        let text = slurm
            .ask("squeue", &["--noheader", "--states=all", &format])
            .unwrap();
        (
            job_states(&text),
            job_states_json(&rest("jobs")[..]).unwrap(),
        )
    });
}

/// Compares the accounts as text, as JSON, and from slurmrestd.
fn remembers_the_same(slurm: &Slurm, rest: &dyn Fn(&str) -> Vec<u8>) {
    let text = || {
        let text = printed(slurm, reader::HISTORY);
        let mut jobs = by_id(
            reader::history_text(text.as_bytes(), &TimeZone::UTC).unwrap(),
            true,
        );
        // What has not begun of an array is named by its places there, and by bits as JSON.
        jobs.retain(|id, _| !id.contains('['));
        jobs
    };
    let read = |json: &[u8]| {
        let history = reader::history(json).unwrap();
        assert_eq!(history.left_out, 0);
        let mut jobs = by_id(history, true);
        jobs.retain(|id, _| !id.contains('['));
        jobs
    };
    let words: Vec<&str> = reader::HISTORY
        .arguments
        .iter()
        .copied()
        .filter(|word| !word.starts_with("--parsable") && !word.starts_with("--format"))
        .collect();
    let words = [&words[..], &["--json"]].concat();
    alike(slurm, "sacct says the same as text and as JSON", || {
        (text(), read(slurm.ask("sacct", &words).unwrap().as_bytes()))
    });
    let path = format!(
        "/slurmdb/{}/jobs?start_time=now-14days&skip_steps=true&disable_truncate_usage_time=true",
        version()
    );
    let jobs = alike(slurm, "sacct and slurmrestd say the same", || {
        (text(), read(&rest(&path)))
    });
    let over = jobs.iter().filter(|(_, job)| job.state == State::Over);
    let over: Vec<&str> = over.map(|(id, _)| id.as_str()).collect();
    assert_eq!(over.len(), 3);
    assert!(over.iter().any(|id| id.ends_with("_5")), "{over:?}");
}

/// Checks that `posthaste queue` shows the same for both services.
fn show_the_same(slurm: &Slurm, services: [&Service; 2]) {
    let shown = |service: &Service| {
        let queue = queue(service);
        assert!(queue["trouble"].is_null(), "{queue}");
        let jobs = queue["jobs"].as_array().unwrap().iter().map(|job| {
            ["job", "user", "procs", "start_p50", "start_scheduler"].map(|key| job[key].clone())
        });
        let past = [&queue["history_jobs"], &queue["procs"]].map(Value::as_u64);
        (jobs.collect::<Vec<_>>(), past)
    };
    let looked = slurm.wait_until("both show the same", |_| {
        for service in services {
            register(service, 1);
        }
        let [one, other] = services.map(shown);
        Ok(one == other && one.0.len() == 5)
    });
    looked.unwrap_or_else(|error| panic!("{error}\n{:#?}", services.map(shown)));
    for service in services {
        let queue = queue(service);
        if is_in_debian_13() {
            assert!(queue["history_trouble"].is_null(), "{queue}");
            assert!(queue["history_jobs"].as_u64() >= Some(3), "{queue}");
        } else {
            assert!(
                queue["history_trouble"].is_string(),
                "it keeps none: {queue}"
            );
        }
    }
}
