//! `posthaste pull` from the source itself, while it is still there, beside slow, dying and late
//! depots.

use crate::support::processes;

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::support::processes::{
    PATIENCE, Relay, Service, failure, fullest, make_tree, now, picture, text,
};
use posthaste_endpoint::{
    ErrorKind,
    relay::{Credential, RelayAddress, RelayClient},
};
use posthaste_types::{ChunkIndex, Digest, FragmentIndex};
use serde_json::Value;

struct Scene {
    folder: tempfile::TempDir,
    relays: Vec<Relay>,
    service: Service,
    before: Vec<String>,
}

impl Scene {
    /// Starts three relays that accept so much a second each, and a service that serves sources at
    /// so much a second.
    fn new(relay_rate: &str, source_rate: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let relays: Vec<Relay> = ["ash", "birch", "cedar"]
            .iter()
            .map(|name| Relay::start(folder.path(), name, "1G", relay_rate))
            .collect();
        let lending = [
            "--source-listen",
            "127.0.0.1:0",
            "--source-rate",
            source_rate,
        ];
        let service = Service::start_with(folder.path(), &lending);
        relays.iter().for_each(|relay| service.add(relay));
        make_tree(&folder.path().join("scratch"), 48, 7);
        let before = picture(&folder.path().join("scratch"));
        Self {
            folder,
            relays,
            service,
            before,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn offload(&self, more: &[&str]) -> Value {
        let scratch = self.path("scratch");
        let mut arguments = vec!["offload", scratch.to_str().unwrap()];
        arguments.extend([
            "--to",
            "home",
            "--deadline",
            "30m",
            "--via",
            "ash,birch,cedar",
        ]);
        arguments.extend(["--code", "2+1", "--json"]);
        arguments.extend(more);
        self.service.json(&arguments)
    }

    fn pull(&self) -> Value {
        let home = self.path("home");
        self.service
            .json(&["pull", "r1", home.to_str().unwrap(), "--json"])
    }

    fn assert_home(&self) {
        assert!(
            picture(&self.path("home")) == self.before,
            "what came home differs"
        );
    }

    /// Gets the ticket of a request, as a program of its own would.
    fn ticket(&self) -> Value {
        let token = fs::read_to_string(self.service.state.join("token")).unwrap();
        let host = self.service.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(host).unwrap();
        write!(
            stream,
            "POST /v1/requests/r1/ticket HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
             Authorization: Bearer {}\r\nContent-Length: 0\r\n\r\n",
            token.trim_end()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
    }

    /// Returns the ticket once all chunks were read.
    fn whole_ticket(&self) -> Value {
        let start = now();
        loop {
            let ticket = self.ticket();
            if ticket["unread_chunks"] == 0 {
                return ticket;
            }
            assert!(start.elapsed() < PATIENCE, "{ticket}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.service.state.with_extension("log")).unwrap_or_default()
    }
}

fn source_of(ticket: &Value) -> Option<&Value> {
    let mut holders = ticket["holders"].as_array().unwrap().iter();
    holders.find(|holder| holder["is_source"] == true)
}

#[test]
fn what_no_depot_has_yet_is_pulled_at_once_from_the_source() {
    // Depots alone would take two minutes.
    let scene = Scene::new("200K", "100M");
    assert!(scene.service.process.ready["source_url"].is_string());
    scene.offload(&["--best-effort"]);
    let report = scene.pull();
    let request = scene.service.status("r1");
    let chunks = request["chunks"].as_u64().unwrap();
    // Two fragments of a chunk make it.
    assert!(fullest(&request).1 < 2 * chunks, "{request}");
    assert_eq!(report["corrupt_fragments"], 0);
    scene.assert_home();
    let request = scene
        .service
        .wait_until("r1", |request| request["state"] == "delivered");
    assert!(request["source_released"] != true, "{request}");
    // It is over: nothing is handed out any more.
    assert!(source_of(&scene.ticket()).is_none());
}

#[test]
fn a_source_released_while_it_is_pulled_is_made_up_for_by_depots_even_if_one_is_killed() {
    let mut scene = Scene::new("40M", "3M");
    scene.offload(&["--release", "when-safe"]);
    std::thread::scope(|scope| {
        let home = scene.path("home");
        let service = &scene.service;
        let pulling =
            scope.spawn(move || service.json(&["pull", "r1", home.to_str().unwrap(), "--json"]));
        service.wait_until("r1", |request| {
            matches!(request["state"].as_str(), Some("released" | "delivered"))
        });
        scene.relays[0].kill();
        let report = pulling.join().unwrap();
        assert_eq!(report["corrupt_fragments"], 0, "{report}");
    });
    scene.assert_home();
    let start = now();
    while scene.path("scratch/large.bin").exists() {
        assert!(start.elapsed() < PATIENCE, "it is never released");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn who_has_no_token_gets_nothing_and_who_has_one_gets_whole_chunks_of_that_dataset() {
    let scene = Scene::new("200K", "100M");
    scene.offload(&["--best-effort"]);
    let ticket = scene.whole_ticket();
    let source = source_of(&ticket).unwrap();
    assert_eq!(source["name"], "source");
    let text_of = |key: &str| source[key].as_str().unwrap().to_owned();
    let address = RelayAddress {
        url: text_of("url"),
        fingerprint: text_of("fingerprint").parse().unwrap(),
    };
    let dataset = ticket["dataset"].as_str().unwrap().parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ask = |token: String| {
        let client = RelayClient::new(address.clone(), Credential::Token(token)).unwrap();
        runtime.block_on(async {
            let held = client.inventory(&dataset).await?;
            let (chunk, whole, digest): (ChunkIndex, FragmentIndex, Digest) = held[0];
            client.get_fragment(&dataset, chunk, whole, digest).await
        })
    };
    let good = text_of("token");
    assert!(!ask(good.clone()).unwrap().is_empty());
    let mut forged = good.clone();
    let last = if forged.ends_with('0') { "1" } else { "0" };
    forged.replace_range(forged.len() - 1.., last);
    assert_eq!(ask(forged).unwrap_err().kind(), ErrorKind::Unauthenticated);
    let of_depot = ticket["holders"][0]["token"].as_str().unwrap().to_owned();
    assert_eq!(
        ask(of_depot).unwrap_err().kind(),
        ErrorKind::Unauthenticated
    );
    let secret = scene.service.state.join("source/secret");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(secret).unwrap().permissions());
    assert_eq!(mode & 0o077, 0);
}

#[test]
fn a_source_that_changed_is_never_handed_out() {
    let scene = Scene::new("200K", "100M");
    scene.offload(&["--best-effort"]);
    let ticket = scene.whole_ticket();
    // The same size, and the same time: only the digest tells.
    let large = scene.path("scratch/large.bin");
    let before = fs::metadata(&large).unwrap();
    let mut bytes = fs::read(&large).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&large, &bytes).unwrap();
    let times = fs::FileTimes::new().set_modified(before.modified().unwrap());
    fs::File::options()
        .write(true)
        .open(&large)
        .unwrap()
        .set_times(times)
        .unwrap();
    let home = scene.path("home");
    let output = scene
        .service
        .run(&["pull", "r1", home.to_str().unwrap(), "--json"]);
    assert!(
        !output.status.success(),
        "{ticket}\n{}",
        text(&output.stdout)
    );
    let said = text(&output.stderr);
    assert!(
        said.contains("no longer what was sealed") || said.contains("changed"),
        "{said}"
    );
    assert!(
        !Path::new(&home).join("large.bin").exists(),
        "{}",
        scene.log()
    );
}

#[test]
fn an_encrypted_dataset_is_handed_out_encrypted() {
    let scene = Scene::new("200K", "100M");
    let identity = scene.path("identity");
    let identity = identity.to_str().unwrap();
    let made = processes::binary()
        .args(["keygen", "-o", identity])
        .output()
        .unwrap();
    let recipient = text(&made.stdout).trim().to_owned();
    scene.offload(&["--best-effort", "--encrypt-for", &recipient]);
    let ticket = scene.whole_ticket();
    let source = source_of(&ticket).unwrap();
    let text_of = |key: &str| source[key].as_str().unwrap().to_owned();
    let address = RelayAddress {
        url: text_of("url"),
        fingerprint: text_of("fingerprint").parse().unwrap(),
    };
    let dataset = ticket["dataset"].as_str().unwrap().parse().unwrap();
    let client = RelayClient::new(address, Credential::Token(text_of("token"))).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let stored = runtime.block_on(async {
        let held = client.inventory(&dataset).await.unwrap();
        let (chunk, whole, digest) = held[0];
        client
            .get_fragment(&dataset, chunk, whole, digest)
            .await
            .unwrap()
    });
    let plain = fs::read(scene.path("scratch/deep/file 0")).unwrap();
    let is_plain = stored.windows(64).any(|bytes| bytes == &plain[1000..1064]);
    assert!(!is_plain, "what leaves is encrypted");
    let home = scene.path("home");
    let pull = [
        "pull",
        "r1",
        home.to_str().unwrap(),
        "--identity",
        identity,
        "--json",
    ];
    scene.service.json(&pull);
    scene.assert_home();
}

#[test]
fn without_the_option_nothing_is_handed_out_and_a_wrong_one_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path());
    assert!(service.process.ready["source_url"].is_null());
    let state = folder.path().join("other");
    let state = state.to_str().unwrap();
    let start = |more: &[&str]| {
        let mut command = processes::binary();
        command.args(["serve", "--state", state, "--listen", "127.0.0.1:0"]);
        failure(&command.args(more).output().unwrap())
    };
    let (code, said) = start(&["--source-listen", "0.0.0.0:0"]);
    assert!(code != 0 && said.contains("--source-url"), "{said}");
    let more = [
        "--source-listen",
        "127.0.0.1:0",
        "--source-url",
        "http://here",
    ];
    let (code, said) = start(&more);
    assert!(code != 0 && said.contains("no https:// address"), "{said}");
}
