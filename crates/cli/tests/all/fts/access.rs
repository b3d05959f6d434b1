//! Permissions, and the answers to calls.

use std::fs;

use posthaste_testbed::{S3Server, share_of};
use serde_json::{Value, json};

use crate::{
    fts::world::{World, make, one},
    support::{ask::ask, processes::text},
};

/// Makes a token with these words.
fn token(world: &World, words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    let file = world.folder.path().join(words[0]);
    let mut arguments = vec!["token", "add"];
    arguments.extend(&words);
    if words.contains(&"submit") {
        arguments.extend(["--below", world.folder.path().to_str().unwrap()]);
    }
    arguments.extend(["--output", file.to_str().unwrap()]);
    let made = world.service.run(&arguments);
    assert!(made.status.success(), "{}", text(&made.stderr));
    fs::read_to_string(file).unwrap().trim().to_owned()
}

#[test]
fn who_may_do_what_holds_here_too() {
    let world = World::with("100M");
    make(&world.web.files().join("f"), 1000, 1);
    let stores = "--profile localhost --profile 127.0.0.1";
    let alice = token(
        &world,
        &format!("alice --scope submit --owner alice --project climate {stores}"),
    );
    let bob = token(&world, "bob --scope submit --owner bob --profile localhost");
    let reader = token(&world, "reader --scope read");
    let wanted = json!({ "files": one(&world.from("f"), &World::into("f")) });
    let (status, said) = world.call(("POST", "/jobs"), &wanted, Some(&reader));
    assert_eq!(status, 403, "{said}");
    assert!(
        said["message"].as_str().unwrap().contains("scope submit"),
        "{said}"
    );
    // He may use the store, but not where it comes from.
    let (status, said) = world.call(("POST", "/jobs"), &wanted, Some(&bob));
    assert_eq!(status, 403, "{said}");
    assert!(
        said["message"].as_str().unwrap().contains("profile"),
        "{said}"
    );
    let (status, said) = world.call(("POST", "/jobs"), &wanted, Some(&alice));
    assert_eq!(status, 200, "{said}");
    let job = said["job_id"].as_str().unwrap();
    assert_eq!(world.end(job), "FINISHED");
    let shown = world.get(&format!("/jobs/{job}"));
    assert_eq!(
        (&shown["user_dn"], &shown["vo_name"]),
        (&json!("/CN=alice"), &json!("climate"))
    );
}

#[test]
fn a_profile_of_a_host_opens_what_lies_below_its_url_and_nothing_else() {
    let world = World::with("100M");
    world.change_profiles(|text| {
        text.replace(
            "[localhost]\n",
            &format!("[localhost]\nurl = \"s3://{}\"\n", S3Server::BUCKET),
        )
    });
    make(&world.web.files().join("f"), 1000, 1);
    let alice = token(
        &world,
        "alice --scope submit --owner alice --profile localhost --profile 127.0.0.1",
    );
    let job = |to: &str| json!({ "files": one(&world.from("f"), to) });
    let (status, said) = world.call(
        ("POST", "/jobs"),
        &job("s3://localhost/other/f"),
        Some(&alice),
    );
    assert_eq!(status, 403, "{said}");
    let (status, said) = world.call(("POST", "/jobs"), &job(&World::into("f")), Some(&alice));
    assert_eq!(status, 200, "{said}");
    assert_eq!(world.end(said["job_id"].as_str().unwrap()), "FINISHED");
}

#[test]
fn a_signed_address_of_a_job_is_used_and_written_down_nowhere() {
    const SIGNATURE: &str = "5f0c91d2a7b3";
    let world = World::with("100M");
    make(&world.web.files().join("f"), 1000, 1);
    let plain = world.from("f");
    let signed = format!("{plain}?sig={SIGNATURE}");
    let job = world.post(&json!({ "files": one(&signed, &World::into("f")) }));
    assert_eq!(world.end(&job), "FINISHED");
    assert!(world.web.log().contains(SIGNATURE), "it was not sent");
    let shown = world.get(&format!("/jobs/{job}/files"));
    assert_eq!(shown[0]["source_surl"], format!("{plain}?…"), "{shown}");
    let kept = std::process::Command::new("grep")
        .args(["-rl", SIGNATURE])
        .arg(&world.service.state)
        .arg(world.service.state.with_extension("log"))
        .output()
        .unwrap();
    assert_eq!(text(&kept.stdout), "");
}

#[test]
fn an_address_of_no_kind_that_is_known_is_refused_at_once() {
    let world = World::with("100M");
    for (source, into) in [
        ("gopher://host/f".to_owned(), World::into("f")),
        (world.from("f"), "gopher://host/f".to_owned()),
    ] {
        let wanted = json!({ "files": one(&source, &into) });
        let (status, said) = world.call(("POST", "/jobs"), &wanted, None);
        assert_eq!(status, 400, "{said}");
        let why = said["message"].as_str().unwrap();
        assert!(why.contains("gopher"), "{why}");
    }
}

#[test]
fn files_wait_that_are_more_than_their_owner_may_have_open() {
    let world = World::with("100M");
    let settings = world.folder.path().join("posthaste.toml");
    fs::write(settings, "[[quota]]\nuser = \"alice\"\nrequests = 1\n").unwrap();
    world.service.process.signal("HUP");
    let log = world.service.state.with_extension("log");
    while !fs::read_to_string(&log).unwrap().contains("[[quota]]") {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let stores = "--profile localhost --profile 127.0.0.1";
    let alice = token(
        &world,
        &format!("alice --scope submit --owner alice {stores}"),
    );
    let names = ["q1", "q2", "q3"];
    for (seed, name) in (1..).zip(names) {
        make(&world.web.files().join(name), 1000, seed);
    }
    let files = names.map(|name| one(&world.from(name), &World::into(name))[0].clone());
    let (status, said) = world.call(("POST", "/jobs"), &json!({ "files": files }), Some(&alice));
    assert_eq!(status, 200, "{said}");
    let job = said["job_id"].as_str().unwrap();
    // Others don't wait for them.
    let other = world.post(&json!({ "files": one(&world.from("q1"), &World::into("other")) }));
    assert_eq!(world.end(&other), "FINISHED");
    assert_eq!(world.end(job), "FINISHED");
    for name in names {
        assert!(world.stored(name).exists(), "{name}");
    }
    let files = world.get(&format!("/jobs/{job}/files"));
    let times = |which: &str| -> Vec<String> {
        let files = files.as_array().unwrap().iter();
        let mut times: Vec<_> = files
            .map(|file| file[which].as_str().unwrap().to_owned())
            .collect();
        times.sort();
        times
    };
    // One after another.
    let (begun, ended) = (times("start_time"), times("finish_time"));
    assert!(begun[1] >= ended[0] && begun[2] >= ended[1], "{files}");
}

#[test]
fn only_its_owner_ends_a_job() {
    let world = World::with("100M");
    let alice = token(
        &world,
        "alice --scope submit --owner alice --profile localhost --profile 127.0.0.1",
    );
    let bob = token(&world, "bob --scope submit --owner bob --profile localhost");
    let reader = token(&world, "reader --scope read");
    let slow = json!({ "files": one(&format!("http://127.0.0.1:{}/f", posthaste_testbed::free_port().unwrap()), &World::into("g")),
        "params": { "retry": 9, "retry_delay": 60 } });
    let (_, said) = world.call(("POST", "/jobs"), &slow, Some(&alice));
    let path = format!("/jobs/{}", said["job_id"].as_str().unwrap());
    let (status, said) = world.call(("DELETE", &path), &Value::Null, Some(&bob));
    assert_eq!(status, 403, "{said}");
    assert_eq!(said["http_status"], "403 Forbidden");
    let (status, said) = world.call(("GET", &path), &Value::Null, Some(&reader));
    assert_eq!(
        (status, &said["http_status"]),
        (200, &json!("200 Ok")),
        "{said}"
    );
    let (status, said) = world.call(("DELETE", &path), &Value::Null, Some(&alice));
    assert_eq!(
        (status, &said["job_state"]),
        (200, &json!("CANCELED")),
        "{said}"
    );
    let (status, said) = world.call(("DELETE", &path), &Value::Null, Some(&alice));
    assert_eq!(
        (status, &said["http_status"]),
        (200, &json!("304 Not Modified")),
        "{said}"
    );
    let (status, _) = world.call(("DELETE", "/jobs/all"), &Value::Null, Some(&alice));
    assert_eq!(status, 403);
}

#[test]
fn calls_are_answered_as_fts_answers_them() {
    let world = World::with("100M");
    let nobody = ask(&world.service, "GET", "/fts3/", None, "");
    assert!(
        nobody.starts_with("HTTP/1.1 200") && nobody.contains("\"api\""),
        "{nobody}"
    );
    let nobody = ask(&world.service, "GET", "/fts3/jobs", None, "");
    assert!(
        nobody.starts_with("HTTP/1.1 401") && nobody.contains("\"message\""),
        "{nobody}"
    );
    make(&world.web.files().join("f"), 1000, 1);
    let job = world.post(&json!({ "files": one(&world.from("f"), &World::into("f")),
        "params": { "job_metadata": "mine" } }));
    assert_eq!(world.end(&job), "FINISHED");
    // Several ids, one of which nobody knows.
    let (status, said) = world.call(
        ("GET", &format!("//jobs/{job},no-such-job")),
        &Value::Null,
        None,
    );
    assert_eq!(
        (status, &said[0]["job_id"], &said[1]["http_status"]),
        (207, &json!(job), &json!("404 Not Found"))
    );
    let (status, said) = world.call(("GET", &format!("/jobs/{job},")), &Value::Null, None);
    assert_eq!((status, said.as_array().unwrap().len()), (200, 1));
    let (status, said) = world.call(("GET", "/jobs/no-such-job"), &Value::Null, None);
    assert_eq!(
        (status, &said["http_status"]),
        (404, &json!("404 Not Found"))
    );
    let (_, said) = world.call(
        (
            "GET",
            &format!("/jobs/{job}?files=file_state,start_time,nonsense"),
        ),
        &Value::Null,
        None,
    );
    assert_eq!(said["files"][0].as_object().unwrap().len(), 2, "{said}");
    assert_eq!(
        world.get(&format!("/jobs/{job}/job_metadata"))["label"],
        "mine"
    );
    assert_eq!(
        world.get("/jobs"),
        json!([]),
        "without states only what is not over"
    );
    assert_eq!(world.get("/jobs?state_in=FINISHED"), json!([]));
    let found =
        world.get("/jobs?state_in=FINISHED&limit=5&fields=job_id&dest_se=s3s%3A%2F%2Flocalhost");
    assert_eq!(found, json!([{ "job_id": job }]));
    assert_eq!(
        world
            .get("/jobs?state_in=FINISHED&time_window=1")
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn wrong_calls_are_refused_in_a_line() {
    let world = World::with("100M");
    make(&world.web.files().join("f"), 1000, 1);
    let job = world.post(&json!({ "files": one(&world.from("f"), &World::into("f")) }));
    for (method, path, body, status) in [
        ("POST", "/jobs", json!({ "files": [] }), 400),
        ("POST", "/jobs", json!({ "delete": ["https://a/f"] }), 405),
        ("POST", "/jobs", json!([]), 400),
        ("GET", "/jobs?limit=501", Value::Null, 400),
        ("GET", "/jobs?time_window=x", Value::Null, 400),
        ("GET", &format!("/jobs/{job}/nonsense"), Value::Null, 404),
        (
            "POST",
            &format!("/jobs/{job}"),
            json!({ "params": { "priority": "x" } }),
            400,
        ),
        ("PUT", "/config/se", json!({}), 404),
        ("POST", "/ban/se", json!({ "storage": "davs://a" }), 405),
    ] {
        let (found, said) = world.call((method, path), &body, None);
        assert_eq!(found, status, "{method} {path}: {said}");
        assert!(said["message"].is_string(), "{method} {path}: {said}");
    }
}

#[test]
fn a_users_own_credential_opens_the_host_of_its_name() {
    let world = World::with("100M");
    make(&world.web.files().join("f"), 1000, 5);
    let alice = token(
        &world,
        "alice --scope submit --owner alice --profile 127.0.0.1",
    );
    let wanted = json!({ "files": one(&world.from("f"), &World::into("f")) });
    let (status, said) = world.call(("POST", "/jobs"), &wanted, Some(&alice));
    assert_eq!(status, 403, "{said}");
    let credential = json!({
        "name": "localhost", "url": format!("s3://{}", S3Server::BUCKET),
        "settings": {
            "endpoint": world.s3.endpoint(), "access_key_id": S3Server::ACCESS_KEY,
            "secret_access_key": S3Server::SECRET_KEY,
        },
    });
    let service = &world.service;
    let answer = ask(
        service,
        "POST",
        "/v1/credentials",
        Some(&alice),
        &credential.to_string(),
    );
    assert!(answer.contains("201 Created"), "{answer}");
    let (status, said) = world.call(("POST", "/jobs"), &wanted, Some(&alice));
    assert_eq!(status, 200, "{said}");
    assert_eq!(world.end(said["job_id"].as_str().unwrap()), "FINISHED");
    let (there, here) = (
        world.s3.bucket_folder().join("f"),
        world.web.files().join("f"),
    );
    assert_eq!(fs::read(there).unwrap(), fs::read(here).unwrap());
    // It opens nothing but what lies below its address.
    let elsewhere = json!({ "files": one(&world.from("f"), "s3://localhost/other/f") });
    let (status, said) = world.call(("POST", "/jobs"), &elsewhere, Some(&alice));
    assert_eq!(status, 403, "{said}");
}

/// Most memory that a service with large bodies has ever used: all bodies together, one job in
/// memory, and every service's base.
const MEMORY_MEBI_MAX: u64 = 400;

#[test]
fn large_jobs_at_once_take_no_more_memory_than_is_said() {
    let world = World::with("100M");
    // What would be large as a tree. It asks for a tape, so that nothing begins.
    let file = json!({
        "sources": ["https://127.0.0.1/f"], "destinations": ["s3s://localhost/bucket/f"], "metadata": { "a": vec![0; 1400] }
    });
    let files = vec![file.to_string(); 9_900].join(",");
    let body = format!("{{\"files\":[{files}],\"params\":{{\"bring_online\":60}}}}");
    assert!((26 << 20..32 << 20).contains(&body.len()), "{}", body.len());
    let token = world.token();
    std::thread::scope(|scope| {
        for _ in 0..share_of(8) {
            scope.spawn(|| {
                let answer = ask(&world.service, "POST", "/fts3/jobs", Some(&token), &body);
                assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
                assert!(answer.contains("tapes"), "{answer}");
            });
        }
    });
    let about = fs::read_to_string(format!("/proc/{}/status", world.service.process.id()));
    let about = about.unwrap();
    let most = about.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let most = most.unwrap().trim_end_matches("kB").trim();
    let mebi = most.parse::<u64>().unwrap() >> 10;
    assert!(mebi < MEMORY_MEBI_MAX, "it had {mebi} MiB");
}
