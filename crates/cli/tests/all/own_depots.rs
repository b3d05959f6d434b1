//! Depots that users register for themselves: nobody else uses, sees or removes them.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::Output,
};

use crate::support::ask::ask;
use crate::support::processes::{
    PATIENCE, Relay, Service, binary, failure, make_tree, received, text,
};
use serde_json::Value;

/// Two people with tokens of their own, a depot for all, and two relays that are nobody's yet.
struct Scene {
    folder: tempfile::TempDir,
    service: Service,
    _ash: Relay,
    oak: Relay,
    elm: Relay,
}

impl Scene {
    fn new(settings: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let relay = |name| Relay::start(folder.path(), name, "1G", "100M");
        let [ash, oak, elm] = ["ash", "oak", "elm"].map(relay);
        let file = folder.path().join("posthaste.toml");
        fs::write(&file, settings).unwrap();
        let config = ["--config", file.to_str().unwrap()];
        let service = Service::start_with(folder.path(), &[&config[..], more].concat());
        service.add(&ash);
        for name in ["alice", "bob"] {
            let below = folder.path().join(name);
            make_tree(&below.join("run"), 3, 1);
            let token = folder.path().join(format!("{name}.token"));
            let what = ["token", "add", name, "--scope", "submit", "--owner", name];
            let more = ["--below", below.to_str().unwrap(), "--output"];
            let token = [token.to_str().unwrap()];
            let made = service.run(&[&what[..], &more, &token].concat());
            assert!(made.status.success(), "{}", text(&made.stderr));
        }
        Self {
            folder,
            service,
            _ash: ash,
            oak,
            elm,
        }
    }

    /// Runs a command with somebody's token.
    fn run(&self, who: &str, arguments: &[&str]) -> Output {
        let mut command = binary();
        let command = command
            .args(arguments)
            .args(["--service", &self.service.url, "--token-file"])
            .arg(self.folder.path().join(format!("{who}.token")));
        command.output().unwrap()
    }

    fn done(&self, who: &str, arguments: &[&str]) -> String {
        let output = self.run(who, arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Adds a relay as somebody's depot.
    fn add(&self, who: &str, relay: &Relay, name: &str) -> Output {
        let ready = |key: &str| relay.process.ready[key].as_str().unwrap();
        let what = ["depot", "add", name, ready("url"), "--fingerprint"];
        let more = ["--secret-file", ready("secret_file")];
        self.run(who, &[&what[..], &[ready("fingerprint")], &more].concat())
    }

    fn offload(&self, who: &str, how: &[&str]) -> Output {
        let source = self.folder.path().join(who).join("run");
        let what = ["offload", source.to_str().unwrap(), "--deadline", "10m"];
        self.run(who, &[&what[..], how, &["--json"]].concat())
    }

    /// Submits it, and returns its number once it is safe.
    fn safe(&self, who: &str, how: &[&str]) -> String {
        let taken = self.offload(who, how);
        assert!(taken.status.success(), "{}", text(&taken.stderr));
        let request: Value = serde_json::from_slice(&taken.stdout).unwrap();
        let id = request["id"].as_str().unwrap().to_owned();
        let is_safe = |request: &Value| {
            ["safe", "released"]
                .map(Value::from)
                .contains(&request["state"])
        };
        self.service.wait_until(&id, is_safe);
        id
    }

    fn token(&self, who: &str) -> String {
        let file = self.folder.path().join(format!("{who}.token"));
        fs::read_to_string(file).unwrap().trim().to_owned()
    }

    fn get(&self, who: &str, path: &str) -> String {
        let answer = ask(&self.service, "GET", path, Some(&self.token(who)), "");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer
    }

    fn names(&self, who: &str) -> Vec<String> {
        let depots: Value = match who {
            "" => self.service.json(&["depot", "list", "--json"]),
            who => serde_json::from_str(&self.done(who, &["depot", "list", "--json"])).unwrap(),
        };
        let names = depots.as_array().unwrap().iter();
        names
            .map(|depot| depot["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Returns all events up to the first with these words.
    fn events(&self, who: &str, until: &str) -> String {
        let address = self.service.url.trim_start_matches("http://");
        let mut connection = TcpStream::connect(address).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        let token = self.token(who);
        let head =
            format!("GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
        connection.write_all(head.as_bytes()).unwrap();
        let (mut said, mut buffer) = (String::new(), [0; 4096]);
        while !said.contains(until) {
            let count = connection.read(&mut buffer).unwrap();
            assert!(count > 0, "{said}");
            said += &text(&buffer[..count]);
        }
        said
    }
}

/// Checks that others get the answer of a name that is not there.
fn is_not_there_for_others(scene: &Scene) {
    // For others it is as if there were none, by whatever name.
    let same = |what: &dyn Fn(&str) -> Output| {
        let [theirs, none] = ["oak@alice", "oak@carol"].map(|name| {
            let (code, said) = failure(&what(name));
            (code, said.replace(name, "NAME"))
        });
        assert_eq!(theirs, none);
        theirs
    };
    let (code, said) = same(&|name| scene.offload("bob", &["--to", "home", "--via", name]));
    assert!(
        code == 4 && said.contains("no depot of that name"),
        "{said}"
    );
    same(&|name| scene.offload("bob", &["--to", "home", "--via", "ash", "--pin", name]));
    same(&|name| scene.offload("bob", &["--to", "home", "--via", "ash", "--without", name]));
    same(&|name| {
        scene.offload(
            "bob",
            &["--to", name, "--via", "ash", "--deliver-by", "10m"],
        )
    });
    same(&|name| scene.run("bob", &["depot", "remove", name]));
    same(&|name| scene.run("bob", &["depot", "drain", name]));
    same(&|name| scene.run("bob", &["depot", "rank", "--to", name]));
    let at = scene.oak.process.ready["url"].as_str().unwrap();
    let at = at.trim_start_matches("https://");
    let (_, said) = failure(&scene.offload("bob", &["--to", "home", "--via", at]));
    assert!(said.contains("no depot of that name"), "{said}");
    let (_, said) = failure(&scene.add("bob", &scene.oak, "oak@alice"));
    assert!(said.contains("it would be a depot of alice"), "{said}");
    let (_, said) = failure(&scene.run("alice", &["depot", "remove", "ash"]));
    assert!(said.contains("ask its owner, or an operator"), "{said}");
}

/// Checks that nothing of it is in what others are shown.
fn is_in_no_list_of_others(scene: &Scene) {
    // Names of pullers are anybody's, and lead to no depot.
    let before = received(std::slice::from_ref(&scene.oak));
    scene.safe(
        "bob",
        &["--to", "oak@alice", "--via", "ash", "--code", "1+0"],
    );
    assert_eq!(received(std::slice::from_ref(&scene.oak)), before);
    for path in [
        "/v1/depots",
        "/v1/paths",
        "/v1/ranking",
        "/v1/metrics",
        "/v1/history",
    ] {
        let said = scene.get("bob", path);
        assert!(!said.contains("oak@alice"), "{path}: {said}");
    }
    let said = scene.events("bob", "admitted");
    assert!(
        said.contains("\"ash\"") && !said.contains("oak@alice"),
        "{said}"
    );
    let said = scene.events("alice", "admitted");
    assert!(said.contains("\"oak@alice\""), "{said}");
}

#[test]
fn what_a_user_registers_is_there_for_them_alone() {
    let mut scene = Scene::new("", &[]);
    let added = scene.add("alice", &scene.oak, "oak");
    assert!(
        text(&added.stdout).contains("depot oak@alice added"),
        "{}",
        text(&added.stderr)
    );
    assert_eq!(scene.names("alice"), ["ash", "oak@alice"]);
    assert_eq!(scene.names("bob"), ["ash"]);
    assert_eq!(scene.names(""), ["ash", "oak@alice"]);
    let all = scene.service.json(&["depot", "list", "--json"]);
    assert_eq!(
        (&all[0]["owner"], &all[1]["owner"]),
        (&Value::Null, &"alice".into())
    );
    // What happens to a depot is an event.
    scene.done("alice", &["depot", "drain", "oak@alice"]);
    scene.done("alice", &["depot", "undrain", "oak@alice"]);
    for verb in ["drain", "undrain"] {
        let done = scene.service.run(&["depot", verb, "ash"]);
        assert!(done.status.success(), "{}", text(&done.stderr));
    }
    is_not_there_for_others(&scene);
    is_in_no_list_of_others(&scene);
    // Bob's own of that name is another one.
    let added = scene.add("bob", &scene.elm, "oak");
    assert!(added.status.success(), "{}", text(&added.stderr));
    assert_eq!(scene.names("bob"), ["ash", "oak@bob"]);
    let at = scene.oak.process.ready["url"].as_str().unwrap();
    let at = at.trim_start_matches("https://");
    // It is used for its owner, also by its address, and after a restart.
    let first = scene.safe(
        "alice",
        &[
            "--to",
            "home",
            "--via",
            &format!("ash,{at}"),
            "--code",
            "1+1",
        ],
    );
    let held = &scene.service.status(&first)["shares"][1];
    assert_eq!(held["depot"], "oak@alice");
    assert!(held["stored"].as_u64() > Some(0), "{held}");
    scene.service.kill();
    scene.service.restart();
    assert_eq!(scene.names("bob"), ["ash", "oak@bob"]);
    let released = ["--to", "home", "--via", "ash,oak@alice", "--code", "1+1"];
    let second = scene.safe(
        "alice",
        &[&released[..], &["--release", "when-safe"]].concat(),
    );
    let is_released = |request: &Value| request["state"] == "released";
    scene.service.wait_until(&second, is_released);
    let (_, said) = failure(&scene.run("alice", &["depot", "remove", "oak@alice"]));
    assert!(said.contains("would not be safe"), "{said}");
    scene.done("alice", &["depot", "remove", "oak@alice", "--force"]);
    assert_eq!(scene.names(""), ["ash", "oak@bob"]);
}

#[test]
fn a_user_has_as_many_depots_as_their_quota_says() {
    let scene = Scene::new("[[quota]]\nuser = \"*\"\ndepots = 1\n", &[]);
    let added = scene.add("alice", &scene.oak, "oak");
    assert!(added.status.success(), "{}", text(&added.stderr));
    let (_, said) = failure(&scene.add("alice", &scene.elm, "elm"));
    assert!(
        said.contains("alice has 1 depots of their own, and 1 are the most"),
        "{said}"
    );
    // Its facts may change, and another takes its place.
    let again = scene.add("alice", &scene.oak, "oak@alice");
    assert!(again.status.success(), "{}", text(&again.stderr));
    scene.done("alice", &["depot", "remove", "oak@alice"]);
    let added = scene.add("alice", &scene.elm, "elm");
    assert!(added.status.success(), "{}", text(&added.stderr));
    let added = scene.add("bob", &scene.oak, "oak");
    assert!(added.status.success(), "{}", text(&added.stderr));
}

#[test]
fn no_depot_of_a_user_lies_where_the_services_machine_is_trusted() {
    let scene = Scene::new("", &["--allow-address", "127.0.0.1:1"]);
    let (_, said) = failure(&scene.add("alice", &scene.oak, "oak"));
    assert!(
        said.contains("is of this machine, its link or its cloud's own"),
        "{said}"
    );
    assert!(said.contains("--allow-address"), "{said}");
    assert_eq!(scene.names(""), ["ash"]);
    // An operator's may, also where its relay redirects to.
    scene.service.add(&scene.oak);
}
