//! The service requests circuits if a deadline needs them: real processes, killed with SIGKILL, and
//! a stand-in for OSCARS.

use crate::support::processes;

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::support::processes::{PATIENCE, Relay, Service, binary, make_tree, now, text};
use posthaste_testbed::{Fault, OscarsStandIn, SlowLink};
use serde_json::Value;
use tempfile::TempDir;

const TOKEN: &str = "a-token-that-nobody-may-see";
/// Rate of the path beside other traffic, on each of up to eight connections.
const SLOW: u32 = 80 << 10;
/// Rate of the path on the circuit.
const FAST: u32 = 200 << 20;

/// Returns a circuit to `ash` from the provider at `address`.
fn circuit(address: &str) -> String {
    format!(
        r#"
        [[circuit]]
        name = "east"
        provider = "oscars"
        address = "{address}"
        token_file = "token"
        leads_to = ["ash"]
        rate_max = "1Gbit"
        price_per_hour_usd = 1.5
        lead_time_s = 35
        patience_s = 60
        ends = [
            {{ junction = "a", port = "a:1", vlan = 3000 }},
            {{ junction = "z", port = "z:1", vlan = 3000 }},
        ]
        "#
    )
}

/// Relay behind a slow path, and a file that names the circuit to it.
struct Scene {
    folder: TempDir,
    relay: Relay,
    link: SlowLink,
}

impl Scene {
    fn start(circuits: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        fs::write(&token, TOKEN).unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(folder.path().join("circuits.toml"), circuits).unwrap();
        let relay = Relay::start(folder.path(), "ash", "4G", "1G");
        let url = relay.process.ready["url"].as_str().unwrap();
        let address = url.trim_start_matches("https://").parse().unwrap();
        let link = SlowLink::start(address, SLOW).unwrap();
        Self {
            folder,
            relay,
            link,
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("circuits.toml")
    }

    fn service(&self) -> Service {
        let service = Service::start_with(
            self.folder.path(),
            &["--circuits", self.file().to_str().unwrap()],
        );
        let ready = &self.relay.process.ready;
        let url = format!("https://127.0.0.1:{}", self.link.port());
        let output = service.run(&[
            "depot",
            "add",
            "ash",
            &url,
            "--fingerprint",
            ready["fingerprint"].as_str().unwrap(),
            "--secret-file",
            ready["secret_file"].as_str().unwrap(),
        ]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let probed = service.run(&["paths", "--probe", "ash"]);
        assert!(probed.status.success(), "{}", text(&probed.stderr));
        service
    }

    /// Submits so many megabytes, more than the slow path carries in five minutes.
    fn offload(&self, service: &Service, megabytes: usize) -> String {
        let scratch = self.folder.path().join("scratch");
        make_tree(&scratch, megabytes, 5);
        let offload = ["offload", scratch.to_str().unwrap(), "--to", "home"];
        let how = [
            "--deadline",
            "5m",
            "--via",
            "ash",
            "--code",
            "1+0",
            "--json",
        ];
        let request = service.json(&[&offload[..], &how].concat());
        request["id"].as_str().unwrap().to_owned()
    }
}

/// Waits for a condition at the other end.
fn wait_for(what: &str, service: &Service, is_there: impl Fn() -> bool) {
    let start = now();
    while !is_there() {
        assert!(start.elapsed() < PATIENCE, "{what}\n{}", log(service));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn log(service: &Service) -> String {
    fs::read_to_string(service.state.with_extension("log")).unwrap_or_default()
}

fn steps(service: &Service, id: &str) -> Vec<(String, String)> {
    let decisions = service.json(&["explain", id, "--json"]);
    let all = decisions.as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    all.map(|one| (text(&one["what"]), text(&one["reason"])))
        .collect()
}

fn has_step(service: &Service, id: &str, what: &str) -> bool {
    steps(service, id).iter().any(|(step, _)| step == what)
}

fn is(state: &str) -> impl Fn(&Value) -> bool {
    move |request| request["reservations"][0]["state"] == state
}

#[test]
fn a_late_request_gets_one_circuit_however_often_the_service_is_killed() {
    let server = OscarsStandIn::start(1000, Some(TOKEN)).unwrap();
    let scene = Scene::start(&circuit(&server.address()));
    let mut service = scene.service();
    // The hold is made, and nobody lives to hear of it.
    server.plan("/protected/hold", Fault::Slow(Duration::from_secs(4)));
    let id = scene.offload(&service, 240);
    wait_for("nothing is held", &service, || server.holds() == 1);
    service.kill();
    service.restart();
    let request = service.wait_until(&id, is("granted"));
    let held = &request["reservations"][0];
    assert_eq!(held["circuit"], "east");
    assert_eq!(held["depots"][0], "ash");
    assert!(held["cost_usd"].as_f64().unwrap() > 0.0, "{held}");
    assert!(held["from"].as_str() < held["until"].as_str());
    assert_eq!((server.holds(), server.taken()), (1, 1));
    let shown = text(&service.run(&["status", &id]).stdout);
    assert!(
        shown.contains("on east from") && shown.contains("granted"),
        "{shown}"
    );

    // Its time comes, and data takes the fast way. The service is killed while it does.
    server.pass(60);
    service.wait_until(&id, is("up"));
    service.kill();
    assert_eq!(server.taken(), 1);
    service.restart();
    service.wait_until(&id, is("up"));
    let key = service.status(&id)["reservations"][0]["key"].clone();
    let listed = binary()
        .args(["reserve", "list", "--json", "--circuits"])
        .arg(scene.file())
        .output()
        .unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed[0]["key"], key);
    scene.link.set_rate(FAST);
    let request = service.wait_until(&id, |request| request["state"] == "safe");
    assert_eq!(request["missed"], false, "{}", log(&service));
    wait_for("it is not given back", &service, || server.taken() == 0);
    assert_eq!(server.holds(), 1);
    for step in [
        "reservation asked for",
        "reserved",
        "circuit up",
        "reservation given back",
    ] {
        let all = steps(&service, &id);
        assert!(all.iter().any(|(what, _)| what == step), "{step}: {all:#?}");
    }
    assert!(service.status(&id).get("reservations").is_none());
}

#[test]
fn what_is_refused_goes_at_best_effort() {
    let server = OscarsStandIn::start(0, Some(TOKEN)).unwrap();
    let scene = Scene::start(&circuit(&server.address()));
    let service = scene.service();
    let id = scene.offload(&service, 100);
    wait_for("nothing is refused", &service, || {
        has_step(&service, &id, "reservation refused")
    });
    let all = steps(&service, &id);
    let refused = all.iter().find(|(what, _)| what == "reservation refused");
    assert!(refused.unwrap().1.contains("east has no room"), "{all:#?}");
    scene.link.set_rate(FAST);
    service.wait_until(&id, |request| request["state"] == "safe");
    assert_eq!((server.holds(), server.taken()), (0, 0));
}

#[test]
fn a_provider_that_does_not_know_us_is_not_said_to_have_no_room() {
    let server = OscarsStandIn::start(1000, Some("another-token")).unwrap();
    let scene = Scene::start(&circuit(&server.address()));
    let service = scene.service();
    let id = scene.offload(&service, 100);
    wait_for("nothing is said", &service, || {
        has_step(&service, &id, "reservation can't be had")
    });
    let all = steps(&service, &id);
    let said = all
        .iter()
        .find(|(what, _)| what == "reservation can't be had");
    let why = &said.unwrap().1;
    assert!(why.contains("east does not take our credential"), "{why}");
    assert!(!has_step(&service, &id, "reservation refused"), "{all:#?}");
    assert!(!log(&service).contains(TOKEN));
    scene.link.set_rate(FAST);
    service.wait_until(&id, |request| request["state"] == "safe");
    assert_eq!((server.holds(), server.taken()), (0, 0));
}

#[test]
fn nobody_waits_for_a_provider_that_is_silent() {
    // It takes connections, and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let circuit = circuit(&address).replace("patience_s = 60", "patience_s = 5");
    let scene = Scene::start(&circuit);
    let service = scene.service();
    let id = scene.offload(&service, 100);
    wait_for("nothing is asked for", &service, || {
        has_step(&service, &id, "reservation asked for")
    });
    scene.link.set_rate(FAST);
    service.wait_until(&id, |request| request["state"] == "safe");
    assert!(!has_step(&service, &id, "reserved"));
    wait_for("it is not given back", &service, || {
        has_step(&service, &id, "reservation given back")
    });
}

#[test]
fn a_circuit_that_can_not_be_opened_is_left_out_and_a_wrong_file_is_named() {
    let broken =
        circuit("https://127.0.0.1:9").replace("token_file", "ca_file = \"none.pem\"\ntoken_file");
    let scene = Scene::start(&broken);
    let service = scene.service();
    let said = log(&service);
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("circuit east is left out"))
        .collect();
    assert_eq!(lines.len(), 1, "{said}");
    drop(service);
    fs::write(scene.file(), "[[circuit]]\nname = 7\n").unwrap();
    fails(&scene.file(), 2, "line 2");
    fs::remove_file(scene.file()).unwrap();
    fails(&scene.file(), 4, "circuits.toml");
}

/// Checks that a start with this file fails with one line that contains `says`.
fn fails(file: &Path, code: i32, says: &str) {
    let output = binary()
        .args(["serve", "--listen", "127.0.0.1:0", "--circuits"])
        .arg(file)
        .output()
        .unwrap();
    let (failed_with, line) = processes::failure(&output);
    assert_eq!(failed_with, code, "{line}");
    assert!(line.contains(says), "{line}");
}
