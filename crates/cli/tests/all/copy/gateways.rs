//! Copies through real gateways, which are killed with SIGKILL while they are used.

use std::{
    fs::{self, File},
    net::TcpListener,
    process::{Child, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::Duration,
};

use posthaste_testbed::SshServer;

use crate::{
    copy::{
        host::{at, world_with, wrapper},
        relay::Relay,
        world::{EXACT, World, assert_same, lines_of, make_tree, noise},
    },
    support::processes::{Gateway, PATIENCE, now},
};

const SIZE: usize = 160 << 20;
/// Number of ports from 27,000 on, of which each peer has one.
const PORTS: u32 = 5_000;
/// Most copies until one runs as on an idle machine.
const TRIES_MAX: u32 = 5;

/// Returns a port for one peer that no other process holds.
fn own_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    // Another process of the tests begins elsewhere.
    let first = std::process::id().wrapping_mul(7);
    let mut ports = (0..PORTS).map(|_| {
        let turn = first.wrapping_add(NEXT.fetch_add(1, Relaxed));
        u16::try_from(27_000 + turn % PORTS).unwrap()
    });
    ports.find(is_free).unwrap()
}

/// Registers the gateway as `near`, in the user's own file.
fn introduce(world: &World, gateway: &Gateway, to: &str) {
    let known = format!(
        "[near]\naddress = '{}'\nsecret_file = '{}'\nto = ['{to}']\n",
        gateway.address(),
        gateway.secret_file()
    );
    let folder = world.path("home/.config/posthaste");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("gateways.toml"), known).unwrap();
}

/// Running copy, so slow that it does not end before its limit is lifted; killed when dropped.
struct Copying(Child);

impl Copying {
    fn start(world: &World, from: &str, to: &str) -> Self {
        fs::write(world.path("limit"), "4M").unwrap();
        let child = world
            .cp(["-v", from, to, "--bwlimit", "@limit"])
            .stdout(Stdio::null())
            .stderr(File::create(world.path("lines")).unwrap())
            .spawn();
        Self(child.unwrap())
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Lifts the limit, waits for success, and returns the output.
    fn end(mut self, world: &World) -> String {
        fs::write(world.path("limit"), "off").unwrap();
        let start = now();
        while self.is_running() {
            assert!(start.elapsed() < PATIENCE, "the copy does not end");
            thread::sleep(Duration::from_millis(20));
        }
        let lines = fs::read_to_string(world.path("lines")).unwrap();
        assert!(self.0.wait().unwrap().success(), "{lines}");
        lines
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until so many bytes went through the gateway since it started, while the copy runs.
fn wait_for(gateway: &Gateway, bytes: u64, copying: &mut Copying) {
    let start = now();
    while gateway.carried() < bytes {
        assert!(
            start.elapsed() < PATIENCE && copying.is_running(),
            "only {} bytes went through the gateway",
            gateway.carried()
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Copies until at least so many bytes went through the gateway. A gateway that does not answer for
/// some seconds is bypassed, so this may take several copies.
fn copy_all_through(gateway: &Gateway, bytes: u64, copy: impl Fn()) {
    let goes_through = || {
        let before = gateway.carried();
        copy();
        gateway.carried() - before >= bytes
    };
    let went = (0..TRIES_MAX).any(|_| goes_through());
    assert!(went, "some of {bytes} bytes went another way");
}

fn assert_copied(world: &World, from: &str, to: &str) {
    let read = |name: &str| fs::read(world.path(name)).unwrap();
    assert!(read(from) == read(to), "the copy differs");
}

#[test]
fn a_gateway_killed_in_mid_copy_costs_no_byte_and_is_taken_again_when_it_is_back() {
    let server = SshServer::start().unwrap();
    let world = world_with(&server, env!("CARGO_BIN_EXE_posthaste"));
    let mut gateway = Gateway::start(&world.path("gateway"));
    introduce(&world, &gateway, "127.0.0.1:*");
    fs::write(world.path("large"), noise(7, SIZE)).unwrap();
    let there = at(&server, &world.path("far"));
    // There and back: writes break, and reads.
    for (from, to) in [("large", there.as_str()), (there.as_str(), "back")] {
        let mut copying = Copying::start(&world, from, to);
        wait_for(&gateway, 16 << 20, &mut copying);
        gateway.kill();
        assert!(copying.is_running(), "it was over too soon");
        thread::sleep(Duration::from_millis(1500));
        gateway.restart();
        wait_for(&gateway, 4 << 20, &mut copying);
        gateway.kill();
        assert!(copying.is_running(), "it was over too soon");
        let lines = copying.end(&world);
        assert!(
            lines.contains("connections to 127.0.0.1 through near"),
            "{lines}"
        );
        assert!(!lines.contains("through ssh"), "{lines}");
        gateway.restart();
    }
    assert_copied(&world, "large", "far");
    assert_copied(&world, "large", "back");
    // Nothing of a whole copy goes another way.
    copy_all_through(&gateway, SIZE as u64, || {
        world.copy(["--ignore-times", "large", &there]);
    });
    let listed = world
        .posthaste(["ls", &there, "--gateways", "nowhere.toml"])
        .output();
    let lines = lines_of(&listed.unwrap());
    assert!(lines.contains("nowhere.toml"), "{lines}");
}

#[test]
fn a_relay_that_lends_a_folder_is_reached_through_a_gateway_and_straight_without_it() {
    let world = World::new();
    let relay = Relay::start(&world, "1G");
    relay.introduce(&world, "127.0.0.1");
    let mut gateway = Gateway::start(&world.path("gateway"));
    introduce(&world, &gateway, "127.0.0.1:*");
    make_tree(&world.path("source"), true);
    let there = relay.address("far");
    copy_all_through(&gateway, 20_000_001, || {
        world.copy(["--ignore-times", "source/", &there]);
    });
    copy_all_through(&gateway, 1, || {
        let listed = world.posthaste(["ls", &there]).output().unwrap();
        assert!(listed.status.success(), "{}", lines_of(&listed));
    });
    gateway.kill();
    world.copy([&format!("{there}/"), "back"]);
    assert_same(&world.path("source"), &world.path("back"), EXACT);
}

/// Returns whether a copy goes through the gateway alone. SSH came in on an address that is open as
/// well, but that no gateway leads to.
fn goes_where_a_gateway_leads(server: &SshServer) -> bool {
    let plain = World::new();
    let port = own_port();
    let program = wrapper(&plain, "elsewhere", "--announce 127.0.0.3");
    let world = world_with(server, &program);
    let world = world.with_arguments(&["--ports", &format!("{port}-{port}")]);
    let forward = format!("127.0.0.3:{port}=127.0.0.1:{port}");
    let other = Gateway::start_with(&world.path("other"), &["--forward", &forward]);
    let gateway = Gateway::start(&world.path("gateway"));
    introduce(&world, &gateway, "127.0.0.1:*");
    fs::write(world.path("large"), noise(9, 20 << 20)).unwrap();
    world.copy(["large", &at(server, &world.path("far"))]);
    assert_copied(&world, "large", "far");
    gateway.carried() >= 20 << 20 && other.carried() == 0
}

#[test]
fn a_host_that_a_gateway_leads_to_goes_before_an_address_that_none_does() {
    let server = SshServer::start().unwrap();
    assert!((0..TRIES_MAX).any(|_| goes_where_a_gateway_leads(&server)));
}

#[test]
fn a_gateway_on_which_nothing_moves_any_more_is_left() {
    let server = SshServer::start().unwrap();
    let world = world_with(&server, env!("CARGO_BIN_EXE_posthaste"));
    let gateway = Gateway::start(&world.path("gateway"));
    introduce(&world, &gateway, "127.0.0.1:*");
    fs::write(world.path("large"), noise(10, SIZE)).unwrap();
    let mut copying = Copying::start(&world, "large", &at(&server, &world.path("far")));
    wait_for(&gateway, 16 << 20, &mut copying);
    gateway.stop();
    copying.end(&world);
    assert_copied(&world, "large", "far");
}

/// The port is open by one way only, a forwarded one, as behind a firewall.
#[test]
fn a_copy_goes_on_through_ssh_when_the_one_way_to_a_port_is_gone() {
    let server = SshServer::start().unwrap();
    let plain = World::new();
    let port = own_port();
    let program = wrapper(&plain, "elsewhere", "--announce 127.0.0.3");
    let world = world_with(&server, &program);
    let world = world.with_arguments(&["--ports", &format!("{port}-{port}")]);
    let forward = format!("127.0.0.3:{port}=127.0.0.1:{port}");
    let mut gateway = Gateway::start_with(&world.path("gateway"), &["--forward", &forward]);
    fs::write(world.path("large"), noise(8, SIZE)).unwrap();
    let there = at(&server, &world.path("far"));
    let mut copying = Copying::start(&world, "large", &there);
    wait_for(&gateway, 16 << 20, &mut copying);
    gateway.kill();
    assert!(copying.is_running(), "it was over too soon");
    copying.end(&world);
    assert_copied(&world, "large", "far");
}

#[test]
fn a_wrong_file_of_gateways_is_named_before_anything_is_done() {
    let world = World::new();
    fs::write(world.path("wrong.toml"), "[near]\nadress = 'a:1'\n").unwrap();
    for arguments in [&["cp", "a", "me@host:b"][..], &["ls", "me@host:b"]] {
        let mut command = world.posthaste(arguments);
        let output = command.args(["--gateways", "wrong.toml"]).output().unwrap();
        let lines = lines_of(&output);
        assert_eq!(output.status.code(), Some(2), "{lines}");
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(
            lines.contains("adress") && lines.contains("wrong.toml"),
            "{lines}"
        );
    }
}
