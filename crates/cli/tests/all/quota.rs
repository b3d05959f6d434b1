//! Limits of users' open requests: refused with the present amount, counted over a kill, and
//! changed while a service runs.

use std::{fs, process::Output, thread, time::Duration};

use crate::support::ask::ask;
use crate::support::processes::{PATIENCE, Relay, Service, binary, failure, make_tree, now, text};
use serde_json::{Value, json};

struct Scene {
    folder: tempfile::TempDir,
    service: Service,
    _relay: Relay,
}

impl Scene {
    /// Starts a service for two people, and a depot that accepts so much a second.
    fn new(quota: &str, rate: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let relay = Relay::start(folder.path(), "ash", "1G", rate);
        let settings = folder.path().join("posthaste.toml");
        fs::write(&settings, format!("[[quota]]\nuser = \"*\"\n{quota}")).unwrap();
        let checked = binary().arg("check-config").arg(&settings).output();
        assert!(checked.unwrap().status.success());
        let service = Service::start_with(folder.path(), &["--config", settings.to_str().unwrap()]);
        service.add(&relay);
        make_tree(&folder.path().join("run"), 3, 1);
        for name in ["alice", "bob"] {
            let file = folder.path().join(name);
            let below = folder.path().to_str().unwrap();
            let what = ["token", "add", name, "--scope", "submit", "--owner", name];
            let more = ["--below", below, "--output", file.to_str().unwrap()];
            let made = service.run(&[&what[..], &more].concat());
            assert!(made.status.success(), "{}", text(&made.stderr));
        }
        Self {
            folder,
            service,
            _relay: relay,
        }
    }

    fn run(&self, who: &str, arguments: &[&str]) -> Output {
        let mut command = binary();
        let command = command
            .args(arguments)
            .args(["--service", &self.service.url])
            .arg("--token-file")
            .arg(self.folder.path().join(who));
        command.output().unwrap()
    }

    fn offload(&self, who: &str) -> Output {
        let source = self.folder.path().join("run");
        let what = [
            "offload",
            source.to_str().unwrap(),
            "--to",
            "home",
            "--json",
        ];
        let how = ["--deadline", "30m", "--via", "ash", "--code", "1+0"];
        self.run(who, &[&what[..], &how].concat())
    }

    /// Returns the id of an accepted request.
    fn taken(&self, who: &str) -> String {
        let taken = self.offload(who);
        assert!(taken.status.success(), "{}", text(&taken.stderr));
        let request: Value = serde_json::from_slice(&taken.stdout).unwrap();
        request["id"].as_str().unwrap().to_owned()
    }

    fn quota(&self, who: &str) -> Value {
        let said = self.run(who, &["whoami", "--json"]);
        let said: Value = serde_json::from_slice(&said.stdout).unwrap();
        said["quota"].clone()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("service.log")).unwrap()
    }
}

fn wait(what: &str, is_so: impl Fn() -> bool) {
    let start = now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what} never comes");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn nobody_has_more_requests_open_than_they_may() {
    let mut scene = Scene::new("requests = 2\n", "10K");
    let first = scene.taken("alice");
    scene.taken("alice");
    let refused = |scene: &Scene| {
        let (code, said) = failure(&scene.offload("alice"));
        let why = "alice has 2 open requests, and 2 are the most";
        assert!(said.contains(why) && said.contains("whoami"), "{said}");
        assert_eq!(code, 5);
    };
    refused(&scene);
    // What would be decided is the same, and others have quotas of their own.
    let source = scene.folder.path().join("run");
    let what = ["plan", source.to_str().unwrap(), "--to", "home"];
    let rehearsed = [&what[..], &["--deadline", "30m", "--via", "ash"]].concat();
    let (_, said) = failure(&scene.run("alice", &rehearsed));
    assert!(said.contains("2 are the most"), "{said}");
    scene.taken("bob");
    assert_eq!(scene.quota("alice")["requests"], 2);
    assert_eq!(scene.quota("bob")["requests"], 1);
    let said = text(&scene.run("alice", &["whoami"]).stdout);
    assert!(said.contains("2 of 2 requests"), "{said}");
    // Operators have none.
    assert!(scene.service.json(&["whoami", "--json"])["quota"].is_null());
    scene.service.kill();
    scene.service.restart();
    refused(&scene);
    // What is over makes room.
    assert!(scene.run("alice", &["cancel", &first]).status.success());
    wait("room", || scene.quota("alice")["requests"] == 1);
    scene.taken("alice");
    refused(&scene);
}

#[test]
fn bytes_are_weighed_once_they_are_known_and_limits_change_while_a_service_runs() {
    let scene = Scene::new("bytes = \"100M\"\n", "10K");
    let bytes = |quota: &Value| quota["bytes"].as_u64().unwrap();
    let first = scene.taken("alice");
    wait("its size", || bytes(&scene.quota("alice")) > 0);
    let size = bytes(&scene.quota("alice"));
    let state = |id: &str| scene.service.status(id);
    let second = scene.taken("alice");
    // As much as fits between one of them and two.
    let limit = |most: u64| {
        let file = scene.folder.path().join("posthaste.toml");
        let settings = format!("[[quota]]\nuser = \"*\"\nbytes = \"{most}\"\n");
        fs::write(file, settings).unwrap();
        let before = scene.log().len();
        scene.service.process.signal("HUP");
        wait("the limit", || {
            scene.log()[before..].contains("changed [[quota]]")
        });
    };
    wait("its scan", || state(&second)["state"] != "scanning");
    assert_eq!(state(&second)["state"], "moving");
    limit(size * 2 + size / 2);
    let (_, said) = failure(&scene.offload("alice"));
    assert!(said.contains("other open requests of alice"), "{said}");
    // There is nothing left at all.
    limit(size * 2);
    let (_, said) = failure(&scene.offload("alice"));
    assert!(said.contains("are the most"), "{said}");
    limit(size * 3);
    let fourth = scene.taken("alice");
    wait("its scan", || state(&fourth)["state"] == "moving");
    assert_eq!(bytes(&scene.quota("alice")), size * 3);
    assert_eq!(state(&first)["state"], "moving");
}

#[test]
fn what_jobs_read_waits_for_room_and_what_they_leave_is_never_refused() {
    let scene = Scene::new(
        "requests = 0\n[[quota]]\nuser = \"\"\nrequests = 1\n",
        "60M",
    );
    let path = |name: &str| scene.folder.path().join(name).display().to_string();
    // The first takes longer than the second is asked for after it.
    for (tree, mebi) in [("read1", 64), ("read2", 1)] {
        fs::create_dir(path(tree)).unwrap();
        fs::write(path(&format!("{tree}/data")), vec![7; mebi << 20]).unwrap();
    }
    let script = format!(
        "#POSTHASTE stage_in source={} destination={}\n#POSTHASTE stage_in source={} destination={}\n\
         #POSTHASTE stage_out source={} destination=home deadline=2h via=ash code=1+0\n\
         #POSTHASTE stage_out source={} destination=home deadline=2h via=ash code=1+0\n",
        path("read1"),
        path("in1"),
        path("read2"),
        path("in2"),
        path("in1"),
        path("in2")
    );
    let token = fs::read_to_string(scene.service.state.join("token")).unwrap();
    let call = |method: &str, path: &str, body: &Value| -> (u16, Value) {
        let path = format!("/v1/jobs/slurm/7{path}");
        let answer = ask(
            &scene.service,
            method,
            &path,
            Some(token.trim()),
            &body.to_string(),
        );
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (
            head[9..12].parse().unwrap(),
            serde_json::from_str(body).unwrap(),
        )
    };
    let owner = fs::metadata(scene.folder.path()).unwrap();
    let (uid, gid) = (
        std::os::unix::fs::MetadataExt::uid(&owner),
        std::os::unix::fs::MetadataExt::gid(&owner),
    );
    let job = json!({ "script": script, "uid": uid, "gid": gid });
    let (status, said) = call("PUT", "", &job);
    assert_eq!(status, 200, "{said}");
    let (status, said) = call("POST", "/stage-in", &json!({}));
    assert_eq!((status, &said["code"]), (503, &"busy".into()), "{said}");
    // Whoever asks for them asks again.
    wait("its data", || {
        let (status, said) = call("POST", "/stage-in", &json!({}));
        status == 200 && said["ready"] == true
    });
    let (status, said) = call("POST", "/ended", &json!({ "well": true }));
    assert_eq!(status, 200, "{said}");
    wait("what it leaves", || {
        call("GET", "", &json!({})).1["safe"] == true
    });
}
