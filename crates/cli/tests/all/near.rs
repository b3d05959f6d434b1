//! `posthaste stage-in --via`: data of a slow source gathers on relays near the centre and comes
//! from there, despite kills.

use crate::support::sources;

use crate::support::processes::{Relay, failure, said_by};
use crate::support::sources::{Centre, chunks, picture, shares};
use serde_json::Value;

/// Starts a source of 2 MiB/s with 40 MiB, and a relay as fast as this machine.
fn centre(name: &str) -> (Centre, Relay) {
    let centre = Centre::with("2M", "2M", 40);
    let relay = Relay::start(centre.folder.path(), name, "200MiB", "500M");
    add(&centre, &relay);
    (centre, relay)
}

fn add(centre: &Centre, relay: &Relay) {
    let ready = &relay.process.ready;
    let word = |key: &str| ready[key].as_str().unwrap().to_owned();
    let (url, fingerprint, secret) = (word("url"), word("fingerprint"), word("secret_file"));
    let arguments = ["depot", "add", &relay.name, &url, "--fingerprint"];
    let more = [&*fingerprint, "--secret-file", &secret];
    let output = centre.run(&[&arguments[..], &more[..]].concat());
    assert!(output.status.success(), "{}", sources::text(&output.stderr));
}

/// Requests the tree of the archive alone.
fn ask(centre: &Centre, not_before: &str, deadline: &str) -> String {
    let to = centre.scratch("run");
    let to = to.to_str().unwrap();
    let asked = ["stage-in", "archive:run", to, "--via", "cache", "--json"];
    let when = ["--not-before", not_before, "--deadline", deadline];
    let request = centre.json(&[&asked[..], &when[..]].concat());
    request["id"].as_str().unwrap().to_owned()
}

/// Checks that it came by its deadline of a minute, except for this machine's own standstills: the
/// deadline leaves some seconds for those.
fn is_in_time(request: &Value) {
    let after_s = request["safe_after_s"].as_f64().unwrap();
    assert!(after_s < 90.0, "{request}");
}

/// Returns how much of it lies on the relay, in MiB.
fn waiting(request: &Value) -> u64 {
    let near = request["stage_in"]["sources"].as_array().unwrap();
    let near = near.iter().find(|source| source["near"] == true).unwrap();
    chunks(near, "holds_bytes") >> 20
}

#[test]
fn what_a_slow_source_gives_waits_near_and_comes_from_there_though_the_service_is_killed() {
    let (mut centre, relay) = centre("cache");
    let id = ask(&centre, "50s", "60s");
    let request = centre.wait_until(&id, |request| waiting(request) >= 12);
    assert_eq!(chunks(&request, "chunks_safe"), 0, "{request}");
    assert_eq!(request["at_risk"], false, "{request}");
    assert!(said_by(&relay).used.get() >= 12 << 20);
    centre.kill();
    centre.restart();
    let request = centre.json(&["status", &id, "--json"]);
    assert!(waiting(&request) >= 12, "{request}");
    let request = centre.wait_until(&id, |request| request["state"] == "arrived");
    is_in_time(&request);
    // Of eleven chunks most were on the relay before they were welcome, and none was read twice.
    let [far, near] = shares(&request)[..] else {
        panic!("{request}");
    };
    assert!(near >= 7 && far + near == 11, "{request}");
    assert_eq!(
        picture(&centre.scratch("run")),
        picture(&centre.s3.bucket_folder().join("run"))
    );
    let story = sources::text(&centre.run(&["explain", &id]).stdout);
    assert!(story.contains("gathered near the centre"), "{story}");
    assert!(story.contains("came from cache"), "{story}");
    // Nobody needs it there any more.
    let start = sources::now();
    while said_by(&relay).used.get() > 1 << 20 {
        assert!(start.elapsed() < sources::PATIENCE, "the relay keeps it");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn what_waits_on_a_relay_that_dies_comes_from_its_source_after_all() {
    let (centre, mut relay) = centre("cache");
    let id = ask(&centre, "45s", "60s");
    centre.wait_until(&id, |request| waiting(request) >= 12);
    relay.kill();
    let request = centre.wait_until(&id, |request| request["state"] == "arrived");
    assert_eq!(shares(&request), [11, 0], "{request}");
    is_in_time(&request);
    assert_eq!(
        picture(&centre.scratch("run")),
        picture(&centre.s3.bucket_folder().join("run"))
    );
}

#[test]
fn what_a_relay_lost_is_read_again_and_what_it_spoiled_is_not_believed() {
    let (centre, mut relay) = centre("cache");
    let id = ask(&centre, "60s", "65s");
    centre.wait_until(&id, |request| waiting(request) >= 20);
    relay.kill();
    let mut fragments = Vec::new();
    let mut open = vec![relay.directory.clone()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.metadata().unwrap().len() == 4 << 20 {
                fragments.push(path);
            }
        }
    }
    fragments.sort();
    assert!(fragments.len() >= 5, "{fragments:?}");
    std::fs::remove_file(&fragments[0]).unwrap();
    let mut spoiled = std::fs::read(&fragments[1]).unwrap();
    spoiled[1 << 20] ^= 1;
    std::fs::write(&fragments[1], spoiled).unwrap();
    relay.restart();
    let request = centre.wait_until(&id, |request| request["state"] == "arrived");
    assert_eq!(
        picture(&centre.scratch("run")),
        picture(&centre.s3.bucket_folder().join("run")),
        "{request}"
    );
    let [_, near] = shares(&request)[..] else {
        panic!("{request}");
    };
    assert!(near >= 3, "{request}");
}

#[test]
fn a_depot_that_is_not_in_the_books_is_refused_in_one_line() {
    let (centre, _relay) = centre("cache");
    let to = centre.scratch("run");
    let to = to.to_str().unwrap();
    let asked = ["stage-in", "archive:run", to, "--deadline", "1h"];
    let unknown = centre.run(&[&asked[..], &["--via", "nowhere"]].concat());
    let (code, said) = failure(&unknown);
    assert!(code == 4 && said.contains("nowhere"), "{code}: {said}");
    let many = ["--via", "a,b,c,d,e,f,g,h,i"];
    let (code, said) = failure(&centre.run(&[&asked[..], &many[..]].concat()));
    assert!(code == 2 && said.contains("8 depots"), "{code}: {said}");
    let plan = centre.run(&[&asked[..], &["--via", "cache", "--dry-run"]].concat());
    let said = sources::text(&plan.stdout);
    assert!(said.contains("via"), "{said}");
    assert!(centre.holds_only(&[]));
}
