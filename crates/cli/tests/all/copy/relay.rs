//! Copies to a relay and back: unchanged files, in the folder that it lends.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::copy::{
    directions::copy_twice,
    world::{EXACT, World, assert_same, leftovers, lines_of, make_tree, noise},
};

/// Running `posthaste relay`; ends with its test.
pub struct Relay {
    child: Child,
    ready: Value,
}

impl Relay {
    pub fn start(world: &World, capacity: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_posthaste"))
            .args(["relay", "--json", "--no-flush", "--until-stdin-closes"])
            .args(["--listen", "127.0.0.1:0", "--capacity", capacity, "--dir"])
            .arg(world.path("relay"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap();
        Self { child, ready }
    }

    pub fn address(&self, path: &str) -> String {
        let url = self.ready["url"].as_str().unwrap();
        format!("{}/{path}", url.replace("https", "posthaste"))
    }

    /// Registers the relay under a name.
    fn write_profile(&self, world: &World, name: &str, fingerprint: &str) {
        let folder = world.path("home/.config/posthaste");
        fs::create_dir_all(&folder).unwrap();
        let secret = self.ready["secret_file"].as_str().unwrap();
        let file = folder.join("profiles.toml");
        let text = format!(
            "[\"{name}\"]\nurl = \"{}\"\nfingerprint = \"{fingerprint}\"\nsecret_file = \"{secret}\"\n",
            self.address("")
        );
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub fn introduce(&self, world: &World, name: &str) {
        self.write_profile(world, name, self.ready["fingerprint"].as_str().unwrap());
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn local_to_relay_and_back() {
    let world = World::new();
    let relay = Relay::start(&world, "1G");
    relay.introduce(&world, "127.0.0.1");
    make_tree(&world.path("source"), true);
    let there = relay.address("far/away");
    copy_twice(&world, "source/", &there);
    let lent = world.path("relay/files/far");
    assert_same(&world.path("source"), &lent.join("away"), EXACT);
    copy_twice(&world, &format!("{there}/"), "back");
    assert_same(&world.path("source"), &world.path("back"), EXACT);
    assert!(leftovers(&lent).is_empty());
    relay.introduce(&world, "lender");
    world.copy(["lender:far/away/secret", "one"]);
    assert_eq!(fs::read(world.path("one")).unwrap(), b"hush");
}

/// The ends differ in the size that they accept whole: 8 MiB the relay, 16 MiB a local disk.
#[test]
fn files_that_only_one_end_takes_whole_come_back() {
    let world = World::new();
    let relay = Relay::start(&world, "1G");
    relay.introduce(&world, "127.0.0.1");
    fs::create_dir(world.path("source")).unwrap();
    for (seed, len) in [
        (1, 8 << 20),
        (2, (8 << 20) + 1),
        (3, 10 << 20),
        (4, 17 << 20),
    ] {
        let file = world.path("source").join(format!("{len}"));
        fs::write(file, noise(seed, len)).unwrap();
    }
    let there = relay.address("there");
    world.copy(["source/", &there]);
    world.copy([&format!("{there}/"), "back"]);
    assert_same(&world.path("source"), &world.path("back"), EXACT);
}

#[test]
fn a_relay_that_is_full_or_another_ends_the_copy_with_a_line() {
    let world = World::new();
    let relay = Relay::start(&world, "1M");
    fs::write(world.path("large"), vec![1; 900_000]).unwrap();
    let copy = |name: &str| {
        let output = world.cp(["large", &relay.address(name)]).output().unwrap();
        (output.status.code().unwrap(), lines_of(&output))
    };
    let (code, lines) = copy("one");
    assert_eq!(code, 2, "{lines}");
    assert!(
        lines.contains("no fingerprint in a profile 127.0.0.1"),
        "{lines}"
    );
    relay.introduce(&world, "127.0.0.1");
    assert_eq!(copy("one").0, 0);
    let (code, lines) = copy("two");
    assert_eq!(code, 7, "{lines}");
    assert!(
        lines.contains("/two: 148576 of 1048576 bytes are free, 900000 are needed"),
        "{lines}"
    );
    assert_eq!(lines.lines().count(), 1, "{lines}");
    fs::remove_file(world.path("relay/files/one")).unwrap();
    relay.write_profile(&world, "127.0.0.1", &format!("sha256:{}", "5a".repeat(32)));
    let (code, lines) = copy("three");
    assert_eq!(code, 7, "{lines}");
    assert!(lines.contains("its key is sha256:"), "{lines}");
}
