//! Fate of jobs when things go wrong.

use std::{fs, process::Command, time::Duration};

use serde_json::{Value, json};

use crate::{
    fts::world::{PATIENCE, World, make, one},
    support::processes::{now, text},
};

#[test]
fn a_killed_service_goes_on_with_its_jobs_and_does_nothing_twice() {
    let mut world = World::with("6M");
    let names: Vec<String> = (0..60).map(|number| format!("many/{number}")).collect();
    for (seed, name) in (1..).zip(&names) {
        make(&world.web.files().join(name), 500_000, seed);
    }
    let files: Vec<Value> = names
        .iter()
        .map(|name| one(&world.from(name), &World::into(name))[0].clone())
        .collect();
    let job =
        world.post(&json!({ "files": files, "params": { "verify_checksum": "both", "retry": 3 } }));
    let finished = |world: &World| {
        let files = world.get(&format!("/jobs/{job}/files"));
        let files = files.as_array().unwrap().clone();
        files
            .iter()
            .filter(|file| file["file_state"] == "FINISHED")
            .count()
    };
    for at_least in [5, 20, 35] {
        let begun = now();
        while finished(&world) < at_least {
            assert!(begun.elapsed() < PATIENCE, "{} are there", finished(&world));
            std::thread::sleep(Duration::from_millis(50));
        }
        world.service.kill();
        world.service.restart();
    }
    assert_eq!(world.end(&job), "FINISHED");
    for name in &names {
        let there = fs::read(world.stored(name)).unwrap();
        assert!(
            there == fs::read(world.web.files().join(name)).unwrap(),
            "{name}"
        );
    }
    let requests = world.service.json(&["list", "--json"]);
    assert_eq!(
        requests.as_array().unwrap().len(),
        names.len(),
        "one request each"
    );
}

#[test]
fn what_fails_is_tried_again_from_elsewhere_and_what_waits_too_long_ends() {
    let world = World::with("100M");
    make(&world.web.files().join("f"), 1000, 1);
    let away = format!(
        "http://127.0.0.1:{}/f",
        posthaste_testbed::free_port().unwrap()
    );
    // Four ways to the same file: nobody is at the first, nothing at the second, and the last is
    // not needed.
    let sources = [
        away.clone(),
        world.from("none"),
        world.from("f"),
        away.clone(),
    ];
    let ways = json!([{ "sources": sources, "destinations": [World::into("f")] }]);
    let job = world.post(&json!({ "files": ways, "params": { "retry": 1 } }));
    assert_eq!(world.end(&job), "FINISHED");
    let files = world.get(&format!("/jobs/{job}/files"));
    let files = files.as_array().unwrap();
    let states: Vec<&Value> = files.iter().map(|file| &file["file_state"]).collect();
    assert_eq!(states, ["FAILED", "FAILED", "FINISHED", "NOT_USED"]);
    assert!(files.iter().all(|file| file["file_index"] == 0));
    let tried = world.get(&format!(
        "/jobs/{job}/files/{}/retries",
        files[0]["file_id"]
    ));
    assert_eq!(tried.as_array().unwrap().len(), 2, "{tried}");
    assert!(
        tried[0]["reason"].as_str().unwrap().contains("127.0.0.1"),
        "{tried}"
    );
    // A retry that would come too late does not come.
    let params = json!({ "retry": 5, "retry_delay": 60, "max_time_in_queue": "3s" });
    let job = world.post(&json!({ "files": one(&away, &World::into("g")), "params": params }));
    assert_eq!(world.end(&job), "CANCELED");
    assert!(
        world.reasons(&job)[0].contains("max-time-in-queue"),
        "{:?}",
        world.reasons(&job)
    );
    // A deadline that can't be kept is said at once, with the earliest one.
    let slow = World::with("1M");
    make(&slow.web.files().join("big"), 30_000_000, 1);
    make(&slow.web.files().join("small"), 3_000_000, 2);
    let first = slow.post(&json!({ "files": one(&slow.from("small"), &World::into("small")) }));
    assert_eq!(slow.end(&first), "FINISHED");
    let soon = jiff_in(15);
    let params = json!({ "job_metadata": { "deadline": soon } });
    let late = slow
        .post(&json!({ "files": one(&slow.from("big"), &World::into("big")), "params": params }));
    assert_eq!(slow.end(&late), "FAILED");
    assert!(!slow.stored("big").exists());
    // One that moves is ended when its job is.
    let long = slow.post(&json!({ "files": one(&slow.from("big"), &World::into("big2")) }));
    let begun = now();
    while slow.get(&format!("/jobs/{long}"))["job_state"] != "ACTIVE" {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    }
    let cancelled = slow.run("transfer-cancel", &[&long]);
    assert!(cancelled.contains("CANCELED"), "{cancelled}");
    let request = slow.get(&format!("/jobs/{long}/files"))[0]["posthaste_request"].clone();
    slow.service
        .wait_until(request.as_str().unwrap(), |request| {
            request["state"] == "cancelled"
        });
    assert!(!slow.stored("big2").exists());
}

/// Returns the RFC 3339 time in so many seconds.
fn jiff_in(seconds: u64) -> String {
    let output = Command::new("date")
        .args([
            "-u",
            "-d",
            &format!("+{seconds} seconds"),
            "+%Y-%m-%dT%H:%M:%SZ",
        ])
        .output()
        .unwrap();
    text(&output.stdout).trim().to_owned()
}

#[test]
fn what_makes_no_progress_is_given_up() {
    let mut world = World::with("1M");
    make(&world.web.files().join("big"), 30_000_000, 1);
    let files = one(&world.from("big"), &World::into("big"));
    let job = world.post(&json!({ "files": files, "params": { "timeout": 3 } }));
    let begun = now();
    while world.get(&format!("/jobs/{job}"))["job_state"] != "ACTIVE" {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    }
    world.s3.kill();
    assert_eq!(world.end(&job), "FAILED");
    assert!(
        world.reasons(&job)[0].contains("no connection"),
        "{:?}",
        world.reasons(&job)
    );
}
