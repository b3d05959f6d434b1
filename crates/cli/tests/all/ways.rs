//! Depots reached through real gateways, which are killed with SIGKILL while transfers use them.

use std::{
    fs,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use crate::support::processes::{
    Gateway, PATIENCE, Relay, Service, binary, make_tree, now, picture, text,
};
use posthaste_testbed::SlowLink;

/// Two relays behind a gateway, and a file that says so.
struct Scene {
    folder: tempfile::TempDir,
    gateway: Gateway,
    relays: Vec<Relay>,
    gateways: PathBuf,
}

impl Scene {
    fn start() -> Self {
        Self::start_at("40M")
    }

    /// Starts relays that accept so much a second each.
    fn start_at(rate: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let gateway = Gateway::start(&folder.path().join("gateway"));
        let relays = ["ash", "birch"].map(|name| Relay::start(folder.path(), name, "1G", rate));
        let gateways = folder.path().join("gateways.toml");
        let known = format!(
            "[near]\naddress = '{}'\nsecret_file = '{}'\nto = ['127.0.0.1:*']\n",
            gateway.address(),
            gateway.secret_file()
        );
        fs::write(&gateways, known).unwrap();
        Self {
            folder,
            gateway,
            relays: relays.into(),
            gateways,
        }
    }

    fn service(&self) -> Service {
        let service = Service::start_with(
            self.folder.path(),
            &["--gateways", self.gateways.to_str().unwrap()],
        );
        self.relays.iter().for_each(|relay| service.add(relay));
        service
    }

    /// Waits until so many bytes more went through the gateway.
    fn wait_for(&self, bytes: u64) {
        let (start, before) = (now(), self.gateway.carried());
        while self.gateway.carried() < before + bytes {
            assert!(
                start.elapsed() < PATIENCE,
                "nothing goes through the gateway"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns an address that leads to the gateway, and from which answers come slowly, so that a pull
/// takes a while.
fn slow_answers(gateway: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // It ends with the process.
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(gateway) else {
                continue;
            };
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || {
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
            thread::spawn(move || {
                let _ = trickle(&server, &client);
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

fn trickle(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let mut block = vec![0; 16 << 10];
    loop {
        let len = from.read(&mut block)?;
        if len == 0 {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
        to.write_all(&block[..len])?;
    }
}

fn assert_same(one: &Path, other: &[String]) {
    let after = picture(one);
    let differs = |line: &&String| !after.contains(line) || !other.contains(line);
    let differing: Vec<_> = after.iter().chain(other).filter(differs).collect();
    assert!(differing.is_empty(), "{differing:#?}");
}

#[test]
fn a_gateway_killed_in_mid_stream_costs_no_byte_of_an_offload_or_a_pull() {
    let mut scene = Scene::start();
    let service = scene.service();
    let scratch = scene.folder.path().join("scratch");
    make_tree(&scratch, 160, 5);
    let before = picture(&scratch);
    let request = service.json(&[
        "offload",
        scratch.to_str().unwrap(),
        "--to",
        "home",
        "--deadline",
        "10m",
        "--json",
        "--via",
        "ash,birch",
        "--code",
        "1+1",
        // It takes half a minute until the limit is lifted.
        "--bwlimit",
        "10M",
    ]);
    let id = request["id"].as_str().unwrap().to_owned();
    scene.wait_for(4 << 20);
    let state = service.status(&id)["state"].clone();
    scene.gateway.kill();
    assert_ne!(state, "safe", "it was over before the gateway was killed");
    let lifted = service.run(&["modify", &id, "--bwlimit", "off"]);
    assert!(lifted.status.success(), "{}", text(&lifted.stderr));
    service.wait_until(&id, |request| request["state"] == "safe");

    // The same of a pull, with the gateway back.
    scene.gateway.restart();
    let known = fs::read_to_string(&scene.gateways).unwrap();
    let slow = slow_answers(scene.gateway.address().parse().unwrap()).to_string();
    let known = known.replace(scene.gateway.address(), &slow);
    fs::write(&scene.gateways, known).unwrap();
    let home = scene.folder.path().join("home");
    let mut pulling = binary()
        .args(["pull", &id, home.to_str().unwrap(), "--json", "--gateways"])
        .arg(&scene.gateways)
        .args(["--service", &service.url, "--token-file"])
        .arg(service.state.join("token"))
        .spawn()
        .unwrap();
    scene.wait_for(4 << 20);
    assert!(
        pulling.try_wait().unwrap().is_none(),
        "it was over too soon"
    );
    scene.gateway.kill();
    let start = now();
    let status = loop {
        if let Some(status) = pulling.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > PATIENCE {
            pulling.kill().unwrap();
            panic!("the pull does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status}");
    assert_same(&home, &before);
}

/// The gateway lies behind a slow link, the relays don't: in the end the operator's first choice is
/// not used.
#[test]
fn a_gateway_that_buys_nothing_is_left_for_the_straight_way() {
    let scene = Scene::start_at("16M");
    let address = scene.gateway.address().parse().unwrap();
    let link = SlowLink::start(address, 160 << 10).unwrap();
    let known = fs::read_to_string(&scene.gateways).unwrap();
    let slow = format!("127.0.0.1:{}", link.port());
    fs::write(
        &scene.gateways,
        known.replace(scene.gateway.address(), &slow),
    )
    .unwrap();
    let service = scene.service();
    let scratch = scene.folder.path().join("scratch");
    // Twice as much as goes before all is known that a trial needs: eight connections carry 1.25
    // MiB/s.
    make_tree(&scratch, 256, 5);
    let mut offload = vec!["offload", scratch.to_str().unwrap(), "--to", "home"];
    offload.extend([
        "--deadline",
        "30m",
        "--json",
        "--via",
        "ash",
        "--code",
        "1+0",
    ]);
    let request = service.json(&offload);
    let id = request["id"].as_str().unwrap();
    let way = |name: &str| {
        let paths = service.json(&["paths", "--json"]);
        let mut paths = paths.as_array().unwrap().iter();
        let ash = paths.find(|path| path["to"] == "ash").unwrap();
        let mut ways = ash["ways"].as_array().unwrap().iter();
        ways.find(|way| way["name"] == name).unwrap().clone()
    };
    assert_eq!(way("near")["taken"], true, "it stands first");
    let start = now();
    while way("straight")["taken"] == false {
        assert!(
            start.elapsed() < PATIENCE,
            "{}",
            service.json(&["status", id, "--json"])
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let rate = |name: &str| way(name)["rate_p50_bytes_per_s"].as_u64().unwrap();
    assert!(rate("straight") > 2 * rate("near"), "{}", way("near"));
    service.wait_until(id, |request| request["state"] == "safe");
    let story = text(&service.run(&["explain", id]).stdout);
    assert!(
        story.contains("took the way straight") && story.contains("without a gateway"),
        "{story}"
    );
    let shown = text(&service.run(&["paths"]).stdout);
    assert!(
        shown.contains("straight") && shown.contains("taken"),
        "{shown}"
    );
}

#[test]
fn what_a_gateway_refuses_goes_straight_and_a_wrong_file_is_named() {
    let mut scene = Scene::start();
    // Its secret is another from now on, as seen from here.
    let known = fs::read_to_string(&scene.gateways).unwrap();
    let other = scene.relays[0].process.ready["secret_file"]
        .as_str()
        .unwrap();
    let known = known.replace(scene.gateway.secret_file(), other);
    fs::write(&scene.gateways, known).unwrap();
    let service = scene.service();
    service.wait_for_depots(|depot| depot["state"] == "up");
    assert_eq!(scene.gateway.carried(), 0);
    drop(service);
    scene.gateway.kill();
    fs::write(&scene.gateways, "[near]\nadress = 'a:1'\n").unwrap();
    let output = binary()
        .args(["serve", "--listen", "127.0.0.1:0", "--gateways"])
        .arg(&scene.gateways)
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("adress") && said.contains("gateways.toml"),
        "{said}"
    );
}
