//! `posthaste offload --to ADDRESS --via DEPOTS` against a real service, real relays and real
//! stores: scratch is free once depots hold the dataset, and all of it reaches its address from
//! there, despite absences and kills.

use crate::support::sources;

use std::fs;

use crate::support::processes::{Relay, said_by};
use crate::support::sources::{Centre, chunks, make_tree, picture, text};
use serde_json::Value;

/// Centre with results on scratch, their content, and three relays as fast as this machine.
struct World {
    centre: Centre,
    whole: Vec<(std::path::PathBuf, Vec<u8>)>,
    relays: Vec<Relay>,
}

/// Starts a world whose store accepts so much a second.
fn world(rate: &str, files: usize) -> World {
    let centre = Centre::with(rate, "40M", 0);
    make_tree(&centre.scratch("out"), files);
    let whole = picture(&centre.scratch("out"));
    let relays = ["ash", "birch", "cedar"].map(|name| {
        let relay = Relay::start(centre.folder.path(), name, "400MiB", "500M");
        let ready = &relay.process.ready;
        let word = |key: &str| ready[key].as_str().unwrap().to_owned();
        let (url, fingerprint, secret) = (word("url"), word("fingerprint"), word("secret_file"));
        let arguments = ["depot", "add", &relay.name, &url, "--fingerprint"];
        let more = [&*fingerprint, "--secret-file", &secret];
        let output = centre.run(&[&arguments[..], &more[..]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        relay
    });
    World {
        centre,
        whole,
        relays: relays.into(),
    }
}

const OVER: [&str; 8] = [
    "--via",
    "ash,birch,cedar",
    "--code",
    "2+1",
    "--release",
    "when-safe",
    "--deadline",
    "20m",
];

fn offload(centre: &Centre, to: &str) -> (String, Value) {
    let from = centre.scratch("out");
    let start = ["offload", from.to_str().unwrap(), "--json", "--to", to];
    let request = centre.json(&[&start[..], &OVER[..]].concat());
    (request["id"].as_str().unwrap().to_owned(), request)
}

fn is_state(state: &str) -> impl Fn(&Value) -> bool {
    move |request| request["state"] == state
}

/// Returns the number of the request that sends it onward.
fn onward(request: &Value) -> String {
    request["goes_on_as"].as_str().unwrap().to_owned()
}

/// Waits until nobody needs the data on depots any more.
fn wait_until_empty(relays: &[Relay]) {
    let start = sources::now();
    for relay in relays {
        while said_by(relay).used.get() > 1 << 20 {
            assert!(
                start.elapsed() < sources::PATIENCE,
                "{} keeps it",
                relay.name
            );
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

#[test]
fn scratch_is_free_while_the_bucket_is_away_and_all_of_it_is_there_in_the_end() {
    let World {
        mut centre,
        whole,
        relays,
    } = world("200M", 40);
    let (rehearsed, from) = (centre.scratch("out"), "archive:results/run7");
    let rehearsed = [
        "offload",
        rehearsed.to_str().unwrap(),
        "--to",
        from,
        "--dry-run",
    ];
    let said = text(&centre.run(&[&rehearsed[..], &OVER[..]].concat()).stdout);
    assert!(said.contains("safe") && said.contains("arrives"), "{said}");
    centre.s3.kill();
    let (id, request) = offload(&centre, "archive:results/run7");
    assert_eq!(request["to"], "archive:results/run7");
    let request = centre.wait_until(&id, is_state("released"));
    assert!(!centre.scratch("out").exists(), "scratch is free");
    assert_eq!(request["delivery"]["delivered"], Value::Null);
    let on = onward(&request);
    let waits = centre.json(&["status", &on, "--json"]);
    assert_eq!(waits["source"], Value::String(id.clone()));
    assert_eq!(chunks(&waits, "chunks_safe"), 0, "{waits}");
    centre.wait_until(&on, |request| {
        request["stage_in"]["sources"][0]["state"] == "down"
    });
    centre.s3.restart().unwrap();
    let request = centre.wait_until(&id, is_state("delivered"));
    let there = centre.s3.bucket_folder().join("results/run7");
    assert_eq!(picture(&there), whole);
    assert_ne!(request["delivery"]["delivered"], Value::Null);
    assert_eq!(request["delivery"]["missed"], false);
    let brought = centre.json(&["status", &on, "--json"]);
    assert_eq!(brought["state"], "arrived");
    wait_until_empty(&relays);
    let story = text(&centre.run(&["explain", &id]).stdout);
    assert!(
        story.contains("brought all of it to its address"),
        "{story}"
    );
    let story = text(&centre.run(&["explain", &on]).stdout);
    assert!(story.contains("from depots to archive"), "{story}");
}

#[test]
fn what_its_address_can_not_have_is_named_and_depots_keep_it() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let World {
        centre,
        whole,
        relays: _relays,
    } = world("200M", 4);
    // No key of a bucket.
    let odd = centre
        .scratch("out")
        .join(OsStr::from_bytes(b"deep/odd\xff"));
    fs::write(&odd, "odd").unwrap();
    // What is no file is not at its address either.
    let pipe = centre.scratch("out").join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let (id, request) = offload(&centre, "archive:run7");
    let on = onward(&request);
    let ended = centre.wait_until(&on, is_state("arrived"));
    assert_eq!(ended["left_out"]["files"], 1, "{ended}");
    assert_eq!(picture(&centre.s3.bucket_folder().join("run7")), whole);
    let request = centre.wait_until(&id, is_state("released"));
    assert!(!odd.exists() && pipe.exists(), "its source went");
    assert_eq!(request["left_out"]["files"], 2, "{request}");
    let named = request["left_out"]["named"].as_array().unwrap();
    assert_eq!(named.len(), 2, "each once: {request}");
    let story = text(&centre.run(&["explain", &id]).stdout);
    assert!(story.contains("depots keep it until it expires"), "{story}");
    let output = centre.run(&["watch", &id]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(
        said.contains("2 files left out") && said.contains("deep/odd"),
        "{said}"
    );
    assert!(!said.contains("not removed"), "{said}");
    let to = centre.scratch("back");
    let output = centre.run(&["pull", &id, to.to_str().unwrap()]);
    // The pipe alone.
    assert_eq!(output.status.code(), Some(6), "{}", text(&output.stderr));
    assert_eq!(
        fs::read(to.join(OsStr::from_bytes(b"deep/odd\xff"))).unwrap(),
        b"odd"
    );
}

#[test]
fn a_killed_service_and_a_depot_that_is_gone_for_good_lose_nothing() {
    let World {
        mut centre,
        whole,
        mut relays,
    } = world("6M", 60);
    let (id, request) = offload(&centre, "archive:run7");
    let on = onward(&request);
    centre.wait_until(&id, is_state("released"));
    let before = centre.wait_until(&on, |request| chunks(request, "chunks_safe") >= 3);
    centre.kill();
    relays[0].kill();
    centre.restart();
    let after = centre.json(&["status", &on, "--json"]);
    assert!(chunks(&after, "chunks_safe") >= chunks(&before, "chunks_safe"));
    centre.wait_until(&id, is_state("delivered"));
    assert_eq!(picture(&centre.s3.bucket_folder().join("run7")), whole);
    wait_until_empty(&relays[1..]);
}

#[test]
fn what_can_t_be_read_now_is_read_when_depots_are_back_and_links_stay_links() {
    let World {
        centre,
        whole,
        mut relays,
    } = world("40M", 12);
    let ssh = posthaste_testbed::SshServer::start().unwrap();
    let profiles = centre
        .folder
        .path()
        .join("home/.config/posthaste/profiles.toml");
    let options = ssh.options();
    let options: Vec<String> = options.iter().map(|one| format!("{one:?}")).collect();
    let tape = centre.folder.path().join("tape");
    fs::create_dir(&tape).unwrap();
    let there = tape.join("run7");
    let (url, options) = (ssh.address(tape.to_str().unwrap()), options.join(", "));
    let before = fs::read_to_string(&profiles).unwrap();
    // So slow that depots die before it is through.
    let tape = format!("[tape]\nurl = \"{url}\"\nssh_options = [{options}]\nrate_max = \"1M\"\n");
    fs::write(&profiles, before + "\n" + &tape).unwrap();
    std::os::unix::fs::symlink("file 0001", centre.scratch("out/deep/link")).unwrap();
    let (id, request) = offload(&centre, "tape:run7");
    let on = onward(&request);
    centre.wait_until(&id, is_state("released"));
    for relay in &mut relays[..2] {
        relay.kill();
    }
    std::thread::sleep(std::time::Duration::from_secs(10));
    let meanwhile = centre.json(&["status", &on, "--json"]);
    assert!(
        ["waiting", "moving"].contains(&meanwhile["state"].as_str().unwrap()),
        "{meanwhile}"
    );
    for relay in &mut relays[..2] {
        relay.restart();
    }
    centre.wait_until(&id, is_state("delivered"));
    let link = there.join("deep/link");
    assert_eq!(fs::read_link(&link).unwrap().to_str(), Some("file 0001"));
    fs::remove_file(link).unwrap();
    assert_eq!(picture(&there), whole);
    wait_until_empty(&relays);
}

#[test]
fn nothing_is_replaced_there_and_what_makes_no_sense_is_refused() {
    let World {
        mut centre,
        whole,
        relays,
    } = world("40M", 8);
    let bucket = centre.s3.bucket_folder();
    fs::create_dir_all(bucket.join("old/deep")).unwrap();
    fs::write(bucket.join("old/deep/theirs"), "theirs").unwrap();
    let from = centre.scratch("out");
    let from = from.to_str().unwrap();
    for (more, what) in [
        (&["--to", "archive:old"][..], "nothing is ever replaced"),
        (&["--to", "archive:x,archive:y"], "only destination"),
        (
            &["--to", "archive:x", "--deadline", "1s", "--bwlimit", "1M"],
            "deadline",
        ),
    ] {
        let arguments = [&["offload", from][..], &OVER[..6], more].concat();
        let arguments = match more.contains(&"--deadline") {
            true => arguments,
            false => [&arguments[..], &OVER[6..]].concat(),
        };
        let output = centre.run(&arguments);
        let said = text(&output.stderr);
        assert!(
            !output.status.success() && said.contains(what),
            "{what}: {said}"
        );
    }
    // Somebody takes the place while the bucket is away.
    centre.s3.kill();
    let (id, request) = offload(&centre, "archive:new");
    let on = onward(&request);
    centre.wait_until(&id, is_state("released"));
    fs::create_dir_all(bucket.join("new/deep")).unwrap();
    fs::write(bucket.join("new/deep/theirs"), "theirs").unwrap();
    centre.s3.restart().unwrap();
    let start = sources::now();
    while !centre.log().contains("nothing is ever replaced") {
        assert!(start.elapsed() < sources::PATIENCE, "{}", centre.log());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(picture(&bucket.join("new")).len(), 1);
    assert!(centre.run(&["cancel", &on]).status.success());
    let request = centre.wait_until(&id, |request| request["delivery"]["missed"] == true);
    assert_eq!(request["state"], "released");
    // It lies on depots as after any offload.
    let here = centre.folder.path().join("pulled");
    let pulled = centre.run(&["pull", &id, here.to_str().unwrap()]);
    assert!(pulled.status.success(), "{}", text(&pulled.stderr));
    assert_eq!(picture(&here), whole);
    drop(relays);
}

#[test]
fn what_goes_to_its_own_source_over_depots_is_refused() {
    let World {
        centre,
        whole,
        relays: _relays,
    } = world("200M", 4);
    let from = centre.scratch("out");
    let link = centre.scratch("link");
    std::os::unix::fs::symlink(&from, &link).unwrap();
    for to in [from.clone(), from.join("in"), link] {
        for more in [&[][..], &["--dry-run"]] {
            let words = ["offload", from.to_str().unwrap(), "--to"];
            let words = [&words[..], &[to.to_str().unwrap()], &OVER[..], more].concat();
            let output = centre.run(&words);
            let said = text(&output.stderr);
            assert!(!output.status.success(), "{said}");
            assert!(said.contains("it lies in the source"), "{said}");
        }
    }
    assert_eq!(picture(&from), whole);
}

// Without a release: what is gone from scratch by then is no other name of it.
const KEPT: [&str; 6] = [
    "--via",
    "ash,birch,cedar",
    "--code",
    "2+1",
    "--deadline",
    "20m",
];

#[test]
fn what_goes_to_its_own_source_over_depots_by_sftp_is_refused_and_both_keep_it() {
    let World {
        centre,
        whole,
        relays: _relays,
    } = world("200M", 4);
    let ssh = posthaste_testbed::SshServer::start().unwrap();
    let home = centre.folder.path().join("home");
    let profiles = home.join(".config/posthaste/profiles.toml");
    let options = ssh.options();
    let options: Vec<String> = options.iter().map(|one| format!("{one:?}")).collect();
    let url = ssh.address(centre.folder.path().join("scratch").to_str().unwrap());
    let options = options.join(", ");
    let here = format!("[here]\nurl = \"{url}\"\nssh_options = [{options}]\n");
    let before = fs::read_to_string(&profiles).unwrap();
    fs::write(&profiles, before + "\n" + &here).unwrap();
    let from = centre.scratch("out");
    let start = [
        "offload",
        from.to_str().unwrap(),
        "--json",
        "--to",
        "here:out",
    ];
    let request = centre.json(&[&start[..], &KEPT[..]].concat());
    let (id, on) = (request["id"].as_str().unwrap(), onward(&request));
    let has_ended =
        |request: &Value| ["failed", "arrived"].contains(&request["state"].as_str().unwrap());
    let ended = centre.wait_until(&on, |request| {
        has_ended(request)
            || request["warnings"]
                .to_string()
                .contains("the source itself")
    });
    assert!(ended.to_string().contains("the source itself"), "{ended}");
    assert_ne!(ended["state"], "arrived", "{ended}");
    let request = centre.wait_until(id, is_state("safe"));
    assert_eq!(picture(&from), whole, "{request}");
}

#[test]
fn what_an_address_keeps_other_bytes_of_stays_on_depots() {
    use posthaste_testbed::odd::{Files, Habits};
    let World {
        centre,
        whole,
        relays: _relays,
    } = world("200M", 4);
    let files = Files::mount(Habits {
        loses_writes: true,
        ..Habits::default()
    });
    let to = files.path().join("archive");
    let (id, request) = offload(&centre, to.to_str().unwrap());
    let on = onward(&request);
    let read = "what was read back is not what was written";
    // What is tried next may have failed otherwise by the time of a look.
    let is_found =
        |request: &Value| request.to_string().contains(read) || centre.log().contains(read);
    let ended = centre.wait_until(&on, is_found);
    assert_ne!(ended["state"], "arrived", "{ended}");
    let request = centre.wait_until(&id, is_state("released"));
    assert!(!centre.scratch("out").exists(), "{request}");
    let back = centre.folder.path().join("back");
    let pulled = centre.run(&["pull", &id, back.to_str().unwrap()]);
    assert!(pulled.status.success(), "{}", text(&pulled.stderr));
    assert_eq!(picture(&back), whole);
}
