//! Real relays code chunks that a real service sends them once, while some of them, and the
//! service, are killed.

use crate::support::processes::{Relay, Service, fullest, make_tree, picture, received, text};
use serde_json::Value;

const MEGABYTES: usize = 24;

struct Scene {
    folder: tempfile::TempDir,
    relays: Vec<Relay>,
    service: Service,
    before: Vec<String>,
}

impl Scene {
    fn new(relays: u32, rate: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let names = (1..=relays).map(|number| format!("d{number}"));
        let relays: Vec<Relay> = names
            .map(|name| Relay::start(folder.path(), &name, "1G", rate))
            .collect();
        let service = Service::start_with(folder.path(), &["--encode", "relays"]);
        relays.iter().for_each(|relay| service.add(relay));
        service.wait_for_depots(|depot| depot["state"] == "up");
        let scratch = folder.path().join("scratch");
        make_tree(&scratch, MEGABYTES, 5);
        let before = picture(&scratch);
        Self {
            folder,
            relays,
            service,
            before,
        }
    }

    fn offload(&self, more: &[&str]) -> Value {
        let scratch = self.folder.path().join("scratch");
        let names: Vec<&str> = self
            .relays
            .iter()
            .map(|relay| relay.name.as_str())
            .collect();
        let via = names.join(",");
        let mut arguments = vec!["offload", scratch.to_str().unwrap(), "--to", "home"];
        arguments.extend([
            "--deadline",
            "10m",
            "--json",
            "--via",
            &via,
            "--code",
            "2+1",
        ]);
        arguments.extend_from_slice(more);
        self.service.json(&arguments)
    }

    /// Checks that everything sent was delivered.
    fn assert_home(&self) {
        let home = self.folder.path().join("arrived");
        self.service
            .json(&["pull", "r1", home.to_str().unwrap(), "--json"]);
        let after = picture(&home);
        let differs = |line: &&String| !after.contains(line) || !self.before.contains(line);
        let differing: Vec<_> = after.iter().chain(&self.before).filter(differs).collect();
        assert!(differing.is_empty(), "{differing:#?}");
    }
}

#[test]
fn what_leaves_the_centre_once_comes_home_with_a_relay_lost() {
    let mut scene = Scene::new(3, "60M");
    let request = scene.offload(&["--wait"]);
    let bytes = request["bytes"].as_u64().unwrap();
    // The chunk to who codes it, and two fragments of half its size from there: what came to
    // relays, less what they sent each other, is what the centre sent.
    let left = received(&scene.relays) - bytes;
    assert!(left >= bytes, "{left} of {bytes}");
    // What is sent again is little; without coding there it would be half as much more.
    assert!(left <= bytes + bytes / 4, "{left} of {bytes}");
    let explained = text(&scene.service.run(&["explain", "r1"]).stdout);
    assert!(explained.contains("depots code its chunks"), "{explained}");
    scene.relays[1].kill();
    scene.assert_home();
}

#[test]
fn whoever_is_killed_while_relays_code_all_is_safe_and_comes_home() {
    let mut scene = Scene::new(4, "4M");
    scene.offload(&[]);
    scene
        .service
        .wait_until("r1", |request| fullest(request).1 >= 6);
    scene.relays[0].kill();
    scene.service.kill();
    scene.service.restart();
    scene
        .service
        .wait_until("r1", |request| request["state"] == "safe");
    scene.relays[2].kill();
    scene.relays[0].restart();
    scene.assert_home();
}
