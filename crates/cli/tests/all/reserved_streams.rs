//! The service's transfers use their request's reservation at a gateway of our own, while there is
//! one: real processes in network namespaces, killed with SIGKILL. Takes root, and the kernel's
//! HTB.

use std::{fs, path::PathBuf, time::Duration};

use crate::support::processes::{
    PATIENCE, Process, Service, binary_in, make_tree, now, picture, text,
};
use posthaste_testbed::{Hosts, install};
use serde_json::Value;

const MEBI: u64 = 1 << 20;

/// Program that accepts everything and discards it.
const SINK: &str = "
import json, socket, threading
def drain(stream):
    while stream.recv(1 << 16):
        pass
server = socket.create_server(('10.77.0.2', 7000), backlog=128)
print(json.dumps({}), flush=True)
while True:
    threading.Thread(target=drain, args=[server.accept()[0]], daemon=True).start()
";

/// Program of the competitors: many streams that use all they can get.
const CROWD: &str = "
import json, socket, threading
def send(stream):
    while True:
        stream.sendall(bytes(1 << 16))
for _ in range(20):
    stream = socket.create_connection(('10.77.0.2', 7000))
    threading.Thread(target=send, args=[stream], daemon=True).start()
print(json.dumps({}), flush=True)
threading.Event().wait()
";

/// Centre, a gateway's machine, and one behind it that can't be reached directly; removed with the
/// test.
struct World {
    hosts: Hosts,
    folder: tempfile::TempDir,
    python: PathBuf,
}

impl World {
    fn build() -> Self {
        let hosts = Hosts::new("streams", &["centre", "gate", "far"]).unwrap();
        hosts
            .join([
                ("centre", "door", &["10.79.0.1/24"]),
                ("gate", "in", &["10.79.0.2/24"]),
            ])
            .unwrap();
        hosts
            .join([
                ("gate", "out", &["10.77.0.1/24"]),
                ("far", "in", &["10.77.0.2/24"]),
            ])
            .unwrap();
        Self {
            hosts,
            folder: tempfile::tempdir().unwrap(),
            python: install::find_python().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn script(&self, host: &str, script: &str) -> Process {
        let mut command = self.hosts.command(host, &self.python);
        Process::run(command.args(["-c", script]), &self.path("scripts.log"))
    }

    fn relay(&self) -> Process {
        let mut command = binary_in(&self.hosts.namespace("far"));
        command.args(["relay", "--json", "--name", "ash", "--capacity", "4G"]);
        command.args(["--listen", "10.77.0.2:0", "--dir"]);
        Process::run(command.arg(self.path("ash")), &self.path("ash.log"))
    }

    /// Starts a gateway that reserves on a link of 5 MB/s.
    fn gateway(&self, listen: &str) -> Process {
        let mut command = binary_in(&self.hosts.namespace("gate"));
        command.args(["gateway", "--json", "--allow", "10.77.0.2:*"]);
        command.args(["--reserve", "out=40Mbit", "--listen", listen, "--dir"]);
        Process::run(command.arg(self.path("gateway")), &self.path("gateway.log"))
    }

    /// Returns the bytes that went through each class of a reservation, since its creation.
    fn reserved(&self) -> Vec<u64> {
        let shown = self.hosts.traffic("gate", "class", "out").unwrap();
        let classes = shown.split("class htb 7e57:").skip(1);
        let ours = classes.filter(|class| !class.starts_with("fff"));
        let sent = ours.map(|class| class.split_once("Sent ").unwrap().1);
        sent.map(|sent| sent.split(' ').next().unwrap().parse().unwrap())
            .collect()
    }

    /// Waits until so many bytes more went through a class of a reservation.
    fn wait_for_reserved(&self, bytes: u64, service: &Service) {
        let before: u64 = self.reserved().iter().sum();
        wait_for("nothing goes under it", service, || {
            let sum: u64 = self.reserved().iter().sum();
            sum >= before + bytes
        });
    }
}

fn log(service: &Service) -> String {
    fs::read_to_string(service.state.with_extension("log")).unwrap_or_default()
}

fn wait_for(what: &str, service: &Service, is_there: impl Fn() -> bool) {
    let start = now();
    while !is_there() {
        assert!(start.elapsed() < PATIENCE, "{what}\n{}", log(service));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn is_up(request: &Value) -> bool {
    request["reservations"][0]["state"] == "up"
}

fn has_step(service: &Service, id: &str, what: &str) -> bool {
    let decisions = service.json(&["explain", id, "--json"]);
    let mut all = decisions.as_array().unwrap().iter();
    all.any(|one| one["what"] == what)
}

/// Starts the service, which knows the relay behind the gateway, and a circuit without flows.
fn serve(world: &World, gateway: &Process, relay: &Process) -> Service {
    let (address, secret) = (&gateway.ready["address"], &gateway.ready["secret_file"]);
    let (gateways, circuits) = (world.path("gateways.toml"), world.path("circuits.toml"));
    fs::write(
        &gateways,
        format!("[door]\naddress = {address}\nsecret_file = {secret}\nto = ['10.77.0.2:*']\n"),
    )
    .unwrap();
    fs::write(
        &circuits,
        format!(
            "[[circuit]]\nname = 'east'\nprovider = 'local'\naddress = 'http://{}'\n\
             secret_file = {secret}\nleads_to = ['door']\nrate_max = '1Gbit'\npatience_s = 3\n",
            address.as_str().unwrap()
        ),
    )
    .unwrap();
    let [gateways, circuits] = [&gateways, &circuits].map(|file| file.to_str().unwrap());
    let more = ["--gateways", gateways, "--circuits", circuits];
    let centre = world.hosts.namespace("centre");
    let service = Service::start_in(&centre, world.folder.path(), &more);
    let known = |key: &str| relay.ready[key].as_str().unwrap().to_owned();
    let (url, fingerprint, secret) = (known("url"), known("fingerprint"), known("secret_file"));
    let add = ["depot", "add", "ash", &url, "--fingerprint", &fingerprint];
    let added = service.run(&[&add[..], &["--secret-file", &secret]].concat());
    assert!(added.status.success(), "{}", text(&added.stderr));
    // Through all that goes there an answer may come too late.
    wait_for("it can't be probed", &service, || {
        let probed = service.run(&["paths", "--probe", "ash"]);
        probed.status.success()
    });
    service
}

#[test]
fn streams_of_the_service_name_their_reservation_and_go_on_without_it() {
    let world = World::build();
    let relay = world.relay();
    let mut gateway = world.gateway("10.79.0.2:0");
    let _sink = world.script("far", SINK);
    let mut crowd = world.script("gate", CROWD);
    let mut service = serve(&world, &gateway, &relay);
    let scratch = world.path("scratch");
    make_tree(&scratch, 200, 5);
    let offload = ["offload", scratch.to_str().unwrap(), "--to", "home"];
    let how = [
        "--deadline",
        "90s",
        "--via",
        "ash",
        "--code",
        "1+0",
        "--json",
    ];
    let request = service.json(&[&offload[..], &how].concat());
    let id = request["id"].as_str().unwrap().to_owned();

    let request = service.wait_until(&id, is_up);
    let key = request["reservations"][0]["key"].as_str().unwrap();
    world.wait_for_reserved(4 * MEBI, &service);
    // Both ends of it may be killed at any moment: what was under way is sent again, under its
    // reservation.
    service.kill();
    service.restart();
    service.wait_until(&id, is_up);
    world.wait_for_reserved(4 * MEBI, &service);
    gateway.kill();
    gateway = world.gateway(gateway.ready["address"].as_str().unwrap());
    world.wait_for_reserved(4 * MEBI, &service);
    service.wait_until(&id, is_up);

    // It is taken away while data goes under it, and data goes on.
    let mut release = binary_in(&world.hosts.namespace("centre"));
    release.args([
        "reserve",
        "release",
        "--provider",
        "east",
        key,
        "--circuits",
    ]);
    let released = release.arg(world.path("circuits.toml")).output().unwrap();
    assert!(released.status.success(), "{}", text(&released.stderr));
    wait_for("nobody notices that it is over", &service, || {
        has_step(&service, &id, "reservation over")
    });
    assert_ne!(service.status(&id)["state"], "safe");
    crowd.kill();
    service.wait_until(&id, |request| request["state"] == "safe");
    let home = world.path("home");
    let pull = ["pull", &id, home.to_str().unwrap(), "--gateways"];
    let pulled =
        service.run(&[&pull[..], &[world.path("gateways.toml").to_str().unwrap()]].concat());
    assert!(pulled.status.success(), "{}", text(&pulled.stderr));
    assert_eq!(picture(&home), picture(&scratch));
    drop(gateway);
}
