//! People log in with a real OpenID provider: through its device flow, and with what it signed or
//! did not.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::{Child, ChildStdout, Command, Output, Stdio},
    time::Duration,
};

use crate::support::ask::ask;
use crate::support::processes::{PATIENCE, Relay, Service, binary, failure, make_tree, now, text};
use posthaste_testbed::{IdentityServer, TlsFront};
use serde_json::{Value, json};

/// Service that trusts a provider, and homes of people who log in.
struct Scene {
    folder: tempfile::TempDir,
    provider: IdentityServer,
    service: Service,
}

impl Scene {
    fn new() -> Self {
        Self::of(IdentityServer::start().unwrap(), "")
    }

    /// Starts a scene with more settings of the provider.
    fn of(provider: IdentityServer, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("posthaste.toml");
        let below = folder.path().join("{user}");
        let settings = format!(
            "[serve]\naudit = {:?}\n[oidc]\nissuer = {:?}\nclient_id = \"posthaste\"\n{more}\
             scopes = [\"openid\", \"profile\", \"groups\", \"offline_access\"]\n\
             [[oidc.grant]]\nclaim = \"groups\"\nvalue = \"climate\"\nscope = \"submit\"\nproject = \"climate\"\nbelow = [{below:?}]\n\
             [[oidc.grant]]\nclaim = \"groups\"\nvalue = \"hpc-ops\"\nscope = \"operate\"\n",
            folder.path().join("audit"),
            provider.issuer(),
        );
        fs::write(&file, settings).unwrap();
        let checked = binary().arg("check-config").arg(&file).output().unwrap();
        let said = text(&checked.stdout);
        assert!(said.contains(&provider.issuer()), "{said}");
        let service = Service::start_with(folder.path(), &["--config", file.to_str().unwrap()]);
        Self {
            folder,
            provider,
            service,
        }
    }

    /// Returns the directory of a person's logins.
    fn logins(&self, who: &str) -> PathBuf {
        self.folder
            .path()
            .join(format!("home-{who}/posthaste/logins"))
    }

    fn command(&self, who: &str, arguments: &[&str]) -> Command {
        let mut command = binary();
        command
            .args(arguments)
            .env("POSTHASTE_SERVICE", &self.service.url)
            .env(
                "XDG_STATE_HOME",
                self.folder.path().join(format!("home-{who}")),
            );
        command
    }

    fn run(&self, who: &str, arguments: &[&str]) -> Output {
        self.command(who, arguments).output().unwrap()
    }

    fn json(&self, who: &str, arguments: &[&str]) -> Value {
        let output = self.run(who, arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Starts a login; returns the offer to open, and the waiting process.
    fn begin(&self, who: &str, more: &[&str]) -> (Value, Child, BufReader<ChildStdout>) {
        let mut command = self.command(who, &[&["login", "--json"], more].concat());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut why = String::new();
            child.stderr.unwrap().read_to_string(&mut why).unwrap();
            panic!("{why}");
        }
        (serde_json::from_str(&line).unwrap(), child, said)
    }

    /// Calls the provider.
    fn ask(&self, chore: &Value) -> String {
        let said = self.provider.ask(&chore.to_string()).unwrap();
        let said: Value = serde_json::from_str(&said).unwrap();
        let done = said["said"].as_str();
        done.unwrap_or_else(|| panic!("{chore}: {said}")).to_owned()
    }

    /// Logs in as an account of the provider; returns the command's last line.
    fn log_in(&self, who: &str, login: &str) -> Value {
        self.log_in_with(who, login, &[])
    }

    fn log_in_with(&self, who: &str, login: &str, more: &[&str]) -> Value {
        let (offer, mut child, mut said) = self.begin(who, more);
        let url = &offer["verification_uri_complete"];
        let page = self.ask(&json!({ "chore": "approve", "url": url, "login": login }));
        assert!(page.contains("successful"), "{page}");
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let status = child.wait().unwrap();
        assert!(status.success(), "{line}");
        serde_json::from_str(&line).unwrap()
    }

    /// Signs claims as the provider, or as somebody in its name.
    fn sign(&self, what: &Value) -> String {
        let mut chore = what.clone();
        chore["chore"] = "sign".into();
        self.ask(&chore)
    }

    /// Returns status and body of the answer to a token.
    fn show(&self, token: &str) -> (u16, String) {
        let answer = ask(&self.service, "GET", "/v1/whoami", Some(token), "");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    /// Lists the files that the service wrote with a text in them.
    fn finds(&self, secret: &str) -> Vec<PathBuf> {
        let mut open = ["service", "audit", "service.log"]
            .map(|name| self.folder.path().join(name))
            .to_vec();
        let (mut found, secret) = (Vec::new(), secret.as_bytes());
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(fs::read_dir(path).unwrap().map(|item| item.unwrap().path()));
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            if bytes.windows(secret.len()).any(|window| window == secret) {
                found.push(path);
            }
        }
        found
    }
}

/// Returns a stored login and its file.
fn kept(scene: &Scene, who: &str) -> (Value, PathBuf) {
    let files = fs::read_dir(scene.logins(who)).unwrap();
    let mut files = files.map(|item| item.unwrap().path());
    let file = files
        .find(|path| path.extension().unwrap() == "json")
        .unwrap();
    let text = fs::read_to_string(&file).unwrap();
    (serde_json::from_str(&text).unwrap(), file)
}

#[test]
fn who_logs_in_submits_as_themselves() {
    let scene = Scene::new();
    let relay = Relay::start(scene.folder.path(), "ash", "1G", "60M");
    scene.service.add(&relay);
    make_tree(&scene.folder.path().join("alice/run"), 3, 1);
    let start = now();
    scene.ask(&json!({ "chore": "slow" }));
    let who = scene.log_in("alice", "u1001");
    // Once it was too early, and the next time five seconds later than usual.
    assert!(start.elapsed() >= Duration::from_secs(7));
    let polls = scene.ask(&json!({ "chore": "polls" }));
    let polls: Vec<u64> = polls.split(' ').map(|at| at.parse().unwrap()).collect();
    assert!(polls[1] - polls[0] >= 6000, "{polls:?}");
    assert_eq!(
        (&who["user"], &who["scope"]),
        (&"alice".into(), &"submit".into())
    );
    assert_eq!(who["subject"], "u1001");
    let (_, file) = kept(&scene, "alice");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    assert_eq!(
        fs::metadata(scene.logins("alice")).unwrap().mode() & 0o777,
        0o700
    );
    let said = text(&scene.run("alice", &["whoami"]).stdout);
    for line in ["alice (subject u1001)", "submit", "climate"] {
        assert!(said.contains(line), "{said}");
    }
    // It is theirs, whatever they say.
    let source = scene.folder.path().join("alice/run");
    let offload = |source: &str| {
        let what = [
            "offload",
            source,
            "--to",
            "home",
            "--deadline",
            "10m",
            "--json",
        ];
        let how = ["--via", "ash", "--code", "1+0", "--owner", "bob"];
        scene.run("alice", &[&what[..], &how].concat())
    };
    let taken = offload(source.to_str().unwrap());
    assert!(taken.status.success(), "{}", text(&taken.stderr));
    let request: Value = serde_json::from_slice(&taken.stdout).unwrap();
    assert_eq!(request["wishes"]["owner"], "alice");
    assert_eq!(request["wishes"]["project"], "climate");
    let (_, said) = failure(&offload("/etc"));
    assert!(said.contains("is not below"), "{said}");
    let (_, said) = failure(&scene.run("alice", &["token", "list"]));
    assert!(said.contains("oidc.grant"), "{said}");
}

#[test]
fn it_is_noted_who_asked_and_nowhere_with_which_token() {
    let scene = Scene::new();
    scene.log_in("alice", "u1001");
    let (stored, file) = kept(&scene, "alice");
    failure(&scene.run("alice", &["token", "remove", "nobody"]));
    // A group lets people operate.
    assert_eq!(scene.log_in("olga", "u1002")["scope"], "operate");
    assert!(scene.run("olga", &["token", "list"]).status.success());
    failure(&scene.run("olga", &["token", "remove", "nobody"]));
    // Who asked is noted, and nothing that was shown.
    let noted = fs::read_to_string(scene.folder.path().join("audit")).unwrap();
    let by = |user: &str, subject: &str, status: u16| {
        noted.lines().any(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["user"] == user && line["subject"] == subject && line["status"] == status
        })
    };
    assert!(by("alice", "u1001", 403), "{noted}");
    assert!(by("olga", "u1002", 404), "{noted}");
    let tokens = &stored["tokens"];
    let shown = tokens["shown"].as_str().unwrap();
    let signature = shown.rsplit_once('.').unwrap().1;
    for secret in [shown, signature, tokens["refresh"].as_str().unwrap()] {
        assert_eq!(scene.finds(secret), [] as [PathBuf; 0]);
    }
    // Whoever logs out is nobody, and what renewed tokens does so no more.
    assert!(scene.run("alice", &["logout"]).status.success());
    assert!(!file.exists());
    let (_, said) = failure(&scene.run("alice", &["whoami"]));
    assert!(said.contains("posthaste login"), "{said}");
    let mut ended = stored.clone();
    ended["tokens"]["ends_s"] = 0.into();
    posthaste_service::write_private(&file, &ended.to_string()).unwrap();
    let (_, said) = failure(&scene.run("alice", &["whoami"]));
    assert!(said.contains("renews it no more"), "{said}");
}

#[test]
fn only_what_the_provider_signed_for_this_service_and_for_now_is_good() {
    let scene = Scene::new();
    for good in [
        json!({}),
        json!({ "by": "ES256" }),
        json!({ "by": "EdDSA", "header": { "typ": "at+jwt" } }),
        json!({ "claims": { "aud": ["other", "posthaste"], "azp": "posthaste" } }),
    ] {
        let (status, said) = scene.show(&scene.sign(&good));
        assert_eq!(status, 200, "{good}: {said}");
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said["user"], "alice");
    }
    let now_s = jiff::Timestamp::now().as_second();
    for (bad, why) in [
        (json!({ "claims": { "exp": now_s - 61 } }), "has expired"),
        (json!({ "claims": { "nbf": now_s + 300 } }), "not good yet"),
        (
            json!({ "claims": { "iss": "https://id.example" } }),
            "another issuer",
        ),
        (json!({ "claims": { "aud": "other" } }), "another audience"),
        (json!({ "by": "none" }), "not signed in a way that counts"),
        (json!({ "by": "HS256" }), "not signed in a way that counts"),
        (
            json!({ "by": "RS256", "whose": "others" }),
            "signature is wrong",
        ),
        (
            json!({ "header": { "alg": "ES256" } }),
            "signature is wrong",
        ),
        (json!({ "header": { "kid": "unknown" } }), "does not have"),
        (
            json!({ "header": { "typ": "logout+jwt" } }),
            "not one that says who",
        ),
    ] {
        let (status, said) = scene.show(&scene.sign(&bad));
        assert_eq!(status, 401, "{bad}: {said}");
        assert!(said.contains(why), "{bad}: {said}");
    }
    // One that is good, and for nobody whom anything is granted to, or who is nobody here.
    for (claims, why) in [
        (json!({ "groups": ["physics"] }), "nothing is granted"),
        (
            json!({ "preferred_username": "../bob" }),
            "no name of an account",
        ),
    ] {
        let (status, said) = scene.show(&scene.sign(&json!({ "claims": claims })));
        assert_eq!(status, 403, "{said}");
        assert!(said.contains(why), "{said}");
    }
    // A good one whose claims were changed.
    let token = scene.sign(&json!({}));
    let (rest, signature) = token.rsplit_once('.').unwrap();
    let other = scene.sign(&json!({ "claims": { "groups": ["hpc-ops"] } }));
    let (changed, _) = other.rsplit_once('.').unwrap();
    assert_eq!(scene.show(&format!("{changed}.{signature}")).0, 401);
    assert_eq!(scene.show(&format!("{rest}.")).0, 401);
    // What is asked without a token says how to get one.
    let told = ask(&scene.service, "GET", "/v1/identity", None, "");
    assert!(told.contains(&scene.provider.issuer()), "{told}");
}

#[test]
fn whom_less_is_granted_from_some_moment_on_may_less_at_once() {
    let scene = Scene::new();
    let token = scene.sign(&json!({}));
    assert_eq!(scene.show(&token).0, 200);
    let settings = scene.folder.path().join("posthaste.toml");
    let granted = fs::read_to_string(&settings).unwrap();
    fs::write(
        &settings,
        granted.replace("\"climate\"\nscope", "\"weather\"\nscope"),
    )
    .unwrap();
    scene.service.process.signal("HUP");
    let start = now();
    while scene.show(&token).0 != 403 {
        assert!(start.elapsed() < PATIENCE, "it is granted for ever");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_provider_is_known_by_the_authority_that_is_named() {
    let provider = IdentityServer::start_with_tls().unwrap();
    let authority = provider.authority();
    let scene = Scene::of(provider, &format!("ca_file = {authority:?}\n"));
    let (_, said) = failure(&scene.run("alice", &["login"]));
    assert!(said.contains("certificate"), "{said}");
    let trusting = ["--ca-file", authority.to_str().unwrap()];
    let who = scene.log_in_with("alice", "u1001", &trusting);
    assert_eq!(who["user"], "alice");
    // A service that does not trust it says so, and lets in nobody.
    let settings = scene.folder.path().join("posthaste.toml");
    let written = fs::read_to_string(&settings).unwrap();
    let written = written.lines().filter(|line| !line.starts_with("ca_file"));
    let written: Vec<_> = written.collect();
    fs::write(&settings, written.join("\n")).unwrap();
    scene.service.process.signal("HUP");
    let start = now();
    loop {
        let said = text(&scene.run("alice", &["whoami"]).stderr);
        if said.contains("certificate") {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn new_keys_are_found_and_a_provider_that_is_down_is_missed_by_nobody_who_is_known() {
    let mut scene = Scene::new();
    let before = scene.sign(&json!({}));
    assert_eq!(scene.show(&before).0, 200);
    scene.ask(&json!({ "chore": "rotate" }));
    let after = scene.sign(&json!({}));
    assert_eq!(scene.show(&after).0, 200);
    // A key that its issuer has no more signs nothing.
    assert_eq!(scene.show(&before).0, 401);
    scene.provider.stop();
    assert_eq!(scene.show(&after).0, 200);
    // Who does not know the keys says so.
    scene.service.kill();
    scene.service.restart();
    let (status, said) = scene.show(&after);
    assert_eq!(status, 502, "{said}");
    assert!(said.contains(&scene.provider.issuer()), "{said}");
    let (_, said) = failure(&scene.run("alice", &["login"]));
    assert!(said.contains("OpenID provider"), "{said}");
    // The service's own tokens need nobody.
    assert!(scene.service.run(&["whoami"]).status.success());
    scene.provider.restart().unwrap();
    let again = scene.sign(&json!({}));
    let start = now();
    while scene.show(&again).0 != 200 {
        assert!(start.elapsed() < PATIENCE, "its keys are never found");
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn a_login_is_renewed_by_as_many_commands_as_there_are_and_nobody_gets_in_who_is_told_no() {
    let scene = Scene::new();
    // Each command has to renew it.
    scene.ask(&json!({ "chore": "live", "s": 20 }));
    scene.log_in("alice", "u1001");
    let (first, _) = kept(&scene, "alice");
    for _ in 0..2 {
        assert_eq!(scene.json("alice", &["whoami", "--json"])["user"], "alice");
    }
    let mut several: Vec<Child> = (0..4)
        .map(|_| {
            let mut command = scene.command("alice", &["whoami", "--json"]);
            command.stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    assert!(
        several
            .iter_mut()
            .all(|child| child.wait().unwrap().success())
    );
    let (last, _) = kept(&scene, "alice");
    assert_ne!(first["tokens"]["shown"], last["tokens"]["shown"]);
    assert_ne!(first["tokens"]["refresh"], last["tokens"]["refresh"]);

    let (offer, mut child, _said) = scene.begin("bob", &[]);
    let url = &offer["verification_uri_complete"];
    scene.ask(&json!({ "chore": "deny", "url": url }));
    let mut why = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut why)
        .unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(why.contains("somebody said no"), "{why}");
    assert!(!scene.logins("bob").exists());
    // Over TLS, too, where the authority is known.
    let front = TlsFront::start(&scene.service.url).unwrap();
    let (url, authority) = (front.url(), front.authority());
    let at = ["--service", &url];
    let (_, said) = failure(&scene.run("carol", &[&["login"], &at[..]].concat()));
    assert!(said.contains("certificate"), "{said}");
    let trusting = [&at[..], &["--ca-file", authority.to_str().unwrap()]].concat();
    assert_eq!(
        scene.log_in_with("carol", "u1001", &trusting)["user"],
        "alice"
    );
    let who = scene.json("carol", &[&["whoami", "--json"], &at[..]].concat());
    assert_eq!(who["user"], "alice");
    // Nobody logs in over what others read, nor to a service that takes tokens alone.
    let far = ["login", "--service", "http://192.0.2.1:7420"];
    let (_, said) = failure(&binary().args(far).output().unwrap());
    assert!(said.contains("neither https"), "{said}");
    let alone = tempfile::tempdir().unwrap();
    let other = Service::start(alone.path());
    let near = ["login", "--service", &other.url];
    let (_, said) = failure(&binary().args(near).output().unwrap());
    assert!(said.contains("takes tokens alone"), "{said}");
}
