//! Tokens of a real service: the rights of each, on every route, and the owner of its requests.

use std::{fs, path::Path, process::Output};

use crate::support::ask::ask;
use crate::support::processes::{Relay, Service, binary, failure, make_tree, text};
use posthaste_api::Scope;
use serde_json::Value;

/// Makes a token, and returns the text to present.
fn token(service: &Service, folder: &Path, name: &str, more: &[&str]) -> String {
    let file = folder.join(name);
    let output = ["--output", file.to_str().unwrap()];
    let made = service.run(&[&["token", "add", name], more, &output].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    let shown = fs::read_to_string(file).unwrap();
    assert!(!text(&made.stdout).contains(shown.trim()));
    shown.trim().to_owned()
}

/// Returns the status of an answer.
fn status(service: &Service, (method, path): (&str, &str), token: Option<&str>) -> u16 {
    let answer = ask(service, method, path, token, "{}");
    answer[9..12].parse().unwrap()
}

/// Returns every route in the document, with the scope that it needs; `None` if it needs no token.
fn routes() -> Vec<(String, String, Option<String>)> {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/posthaste.json");
    let document: Value = serde_json::from_str(&fs::read_to_string(document).unwrap()).unwrap();
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, route) in methods.as_object().unwrap() {
            let needed = route["security"][0]["bearer"][0].as_str();
            let path = path.replace("{id}", "r999").replace(['{', '}'], "");
            routes.push((method.to_uppercase(), path, needed.map(str::to_owned)));
        }
    }
    routes
}

#[test]
fn every_route_asks_for_a_token_of_its_scope() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path());
    let below = ["--owner", "alice", "--below", "/nowhere"];
    let tokens = [
        token(&service, folder.path(), "read", &["--scope", "read"]),
        token(
            &service,
            folder.path(),
            "submit",
            &[&["--scope", "submit"], &below[..]].concat(),
        ),
        token(&service, folder.path(), "move", &["--scope", "move"]),
        token(&service, folder.path(), "operate", &["--scope", "operate"]),
    ];
    let routes = routes();
    assert!(routes.len() > 30, "{routes:?}");
    for (method, path, needed) in &routes {
        let route = (&**method, &**path);
        let Some(needed) = needed else {
            assert!(["/v1/health", "/v1/identity"].contains(&&**path), "{path}");
            continue;
        };
        // The stream of events never ends.
        let ends = path != "/v1/events";
        assert_eq!(status(&service, route, None), 401, "{route:?}");
        assert_eq!(status(&service, route, Some("pht_00")), 401, "{route:?}");
        let needed = Scope::read(needed).unwrap();
        for (scope, token) in Scope::ALL.into_iter().zip(&tokens) {
            if !scope.covers(needed) {
                assert_eq!(status(&service, route, Some(token)), 403, "{route:?}");
            } else if ends {
                let status = status(&service, route, Some(token));
                assert!(!matches!(status, 401 | 500..), "{route:?}: {status}");
            }
        }
    }
    // What is nowhere in the document is nowhere.
    assert_eq!(
        status(&service, ("GET", "/v1/secrets"), Some(&tokens[0])),
        404
    );
}

/// Two people with tokens of their own and directories of their own, and a depot.
struct Scene {
    folder: tempfile::TempDir,
    _relay: Relay,
    service: Service,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let relay = Relay::start(folder.path(), "ash", "1G", "60M");
        let audit = folder.path().join("audit");
        let service = Service::start_with(folder.path(), &["--audit", audit.to_str().unwrap()]);
        service.add(&relay);
        for name in ["alice", "bob"] {
            let below = folder.path().join(name);
            make_tree(&below.join("run"), 3, 1);
            let scope = ["--scope", "submit", "--owner", name];
            let below = ["--project", "climate", "--below", below.to_str().unwrap()];
            let file = format!("{name}.token");
            token(&service, folder.path(), &file, &[scope, below].concat());
        }
        Self {
            folder,
            _relay: relay,
            service,
        }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs a command with somebody's token.
    fn run(&self, who: &str, arguments: &[&str]) -> Output {
        let mut command = binary();
        let command = command
            .args(arguments)
            .args(["--service", &self.service.url])
            .args(["--token-file", &self.path(&format!("{who}.token"))]);
        command.output().unwrap()
    }

    /// Offloads as a person who claims to be bob.
    fn offload(&self, who: &str, source: &str) -> Output {
        let source = self.path(source);
        let what = ["offload", &source, "--to", "home", "--deadline", "10m"];
        let how = ["--via", "ash", "--code", "1+0", "--owner", "bob"];
        self.run(who, &[&what[..], &how, &["--json"]].concat())
    }

    /// Submits Alice's first request, and waits until it is safe.
    fn submit(&self) {
        let taken = self.offload("alice", "alice/run");
        assert!(taken.status.success(), "{}", text(&taken.stderr));
        let request: Value = serde_json::from_slice(&taken.stdout).unwrap();
        let wishes = &request["wishes"];
        assert_eq!(
            (&wishes["owner"], &wishes["project"]),
            (&"alice".into(), &"climate".into())
        );
        let is_safe = |request: &Value| request["state"] == "safe";
        self.service.wait_until("r1", is_safe);
    }
}

#[test]
fn a_token_submits_as_its_owner_what_lies_below_its_directories() {
    let scene = Scene::new();
    scene.submit();
    // What is not below, also by a link that leads out.
    let link = scene.path("alice/way");
    std::os::unix::fs::symlink(scene.path("bob/run"), link).unwrap();
    for source in ["bob/run", "alice/way", "alice/../bob/run"] {
        let (_, said) = failure(&scene.offload("alice", source));
        assert!(said.contains("is not below"), "{said}");
    }
    let input = scene.path("alice/input");
    for (from, why) in [
        (scene.path("bob/run"), "is not below"),
        ("s3://b/k".to_owned(), "with a profile"),
    ] {
        let asked = ["stage-in", &from, &input, "--deadline", "10m"];
        let (_, said) = failure(&scene.run("alice", &asked));
        assert!(said.contains(why), "{said}");
    }
    // Everybody looks; only the owner and operators change it, or get its data.
    assert!(scene.run("bob", &["status", "r1"]).status.success());
    let home = scene.path("home");
    for arguments in [
        &["cancel", "r1"][..],
        &["deadline", "r1", "20m"],
        &["pull", "r1", &home],
    ] {
        let (_, said) = failure(&scene.run("bob", arguments));
        assert!(said.contains("it is alice's"), "{said}");
    }
    let pulled = scene.run("alice", &["pull", "r1", &home]);
    assert!(pulled.status.success(), "{}", text(&pulled.stderr));
    // Who asked is noted.
    let noted = fs::read_to_string(scene.path("audit")).unwrap();
    let asked = |line: &str, token: &str, path: &str, status: u16| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["token"] == token && line["path"] == path && line["status"] == status
    };
    for (token, path, status) in [
        ("alice.token", "/v1/requests", 201),
        ("alice.token", "/v1/requests", 403),
        ("bob.token", "/v1/requests/r1", 403),
        ("alice.token", "/v1/requests/r1/ticket", 200),
    ] {
        let is_noted = noted.lines().any(|line| asked(line, token, path, status));
        assert!(is_noted, "{path}: {noted}");
    }
    let admitted = noted
        .lines()
        .map(|line| -> Value { serde_json::from_str(line).unwrap() });
    let mut admitted = admitted.filter(|line| line["event"] == "admitted");
    let admitted = admitted.next().expect("what was decided is noted");
    assert_eq!(
        (&admitted["request"], &admitted["owner"]),
        (&"r1".into(), &"alice".into())
    );
    assert!(
        admitted["reason"].as_str().unwrap().contains("deadline"),
        "{admitted}"
    );
}

#[test]
fn a_token_is_known_after_a_restart_until_it_is_taken_back_and_lies_nowhere() {
    let mut scene = Scene::new();
    scene.submit();
    scene.service.kill();
    scene.service.restart();
    assert!(scene.run("bob", &["status"]).status.success());
    let listed = scene.service.json(&["token", "list", "--json"]);
    assert_eq!(listed.as_array().unwrap().len(), 2);
    let (_, said) = failure(&scene.service.run(&[
        "token",
        "add",
        "bob.token",
        "--scope",
        "read",
        "--output",
        &scene.path("again"),
    ]));
    assert!(said.contains("one has that name"), "{said}");
    let removed = scene.service.run(&["token", "remove", "bob.token"]);
    assert!(removed.status.success());
    let (_, said) = failure(&scene.run("bob", &["status"]));
    assert!(said.contains("good no more"), "{said}");
    // What is shown is in no file of the service.
    let shown = fs::read_to_string(scene.path("alice.token")).unwrap();
    let shown = shown.trim().as_bytes();
    let mut open = ["service", "audit", "service.log"]
        .map(|name| scene.folder.path().join(name))
        .to_vec();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(path).unwrap().map(|item| item.unwrap().path()));
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let is_there = bytes.windows(shown.len()).any(|window| window == shown);
        assert!(!is_there, "{}", path.display());
    }
}

/// Returns the answer to an offload of a user's own tree under one submission id.
fn submit_as(scene: &Scene, who: &str, to: &str) -> (u16, Value) {
    let token = fs::read_to_string(scene.path(&format!("{who}.token"))).unwrap();
    let body = serde_json::json!({
        "source": scene.path(&format!("{who}/run")), "to": to, "via": ["ash"], "code": "1+0",
        "deadline": "2099-01-01T00:00:00Z", "submission_id": "monday",
    });
    let answer = ask(
        &scene.service,
        "POST",
        "/v1/requests",
        Some(token.trim()),
        &body.to_string(),
    );
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (
        head[9..12].parse().unwrap(),
        serde_json::from_str(body).unwrap(),
    )
}

#[test]
fn a_submission_id_is_its_owners_and_means_one_thing() {
    let mut scene = Scene::new();
    let (status, first) = submit_as(&scene, "alice", "home");
    assert_eq!(status, 201, "{first}");
    let (status, others) = submit_as(&scene, "bob", "home");
    assert_eq!(status, 201, "{others}");
    assert_ne!(first["id"], others["id"], "bob was given alice's request");
    for _ in 0..2 {
        let (status, again) = submit_as(&scene, "alice", "home");
        assert_eq!((status, &again["id"]), (200, &first["id"]), "{again}");
        let (status, refused) = submit_as(&scene, "alice", "elsewhere");
        assert_eq!(status, 409, "{refused}");
        scene.service.kill();
        scene.service.restart();
    }
}

#[test]
fn what_the_service_itself_has_open_is_no_source() {
    let scene = Scene::new();
    for source in [
        "/proc/self/fd",
        "/proc/self/fd/3",
        "/proc/self/environ",
        "/sys/kernel",
    ] {
        let what = ["offload", source, "--to", "home", "--deadline", "10m"];
        let how = ["--via", "ash", "--code", "1+0"];
        let refused = scene.service.run(&[&what[..], &how].concat());
        let (code, said) = failure(&refused);
        let why = ["the system's own", "a symbolic link", "No such file"];
        let why = why.iter().any(|why| said.contains(why));
        assert!(code != 0 && why, "{source}: {said}");
    }
    let listed = scene.service.json(&["list", "--json"]);
    for request in listed.as_array().unwrap() {
        let nothing = (&request["state"], &request["bytes"]);
        assert_eq!(nothing, (&"failed".into(), &0.into()), "{request}");
    }
}
