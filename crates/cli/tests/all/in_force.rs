//! The API shows the plan in force, the content of depots, and openable datasets, with a real
//! service and real relays.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use crate::support::ask::ask;
use crate::support::processes::{Relay, Service, text};
use serde_json::Value;

const MIB: usize = 1 << 20;

/// Returns the status and the body of an answer.
fn get(service: &Service, path: &str, token: &str) -> (u16, Value) {
    let answer = ask(service, "GET", path, Some(token), "");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

fn own(service: &Service) -> String {
    let token = fs::read_to_string(service.state.join("token")).unwrap();
    token.trim().to_owned()
}

fn shown(service: &Service, path: &str) -> Value {
    let (status, said) = get(service, path, &own(service));
    assert_eq!(status, 200, "{path}: {said}");
    said
}

/// Offloads so many MiB under a name, by a deadline.
fn offload(service: &Service, folder: &Path, name: &str, mib: usize, deadline: &str) -> String {
    let source = folder.join(name);
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("data"), vec![7; mib * MIB]).unwrap();
    let request = service.json(&[
        "offload",
        source.to_str().unwrap(),
        "--to",
        "home",
        "--via",
        "ash",
        "--via",
        "birch",
        "--code",
        "1+1",
        "--deadline",
        deadline,
        "--json",
    ]);
    request["id"].as_str().unwrap().to_owned()
}

/// Starts a service and two relays that accept so many bytes a second each.
fn site(rate: &str) -> (tempfile::TempDir, [Relay; 2], Service) {
    let folder = tempfile::tempdir().unwrap();
    let relays = ["ash", "birch"].map(|name| Relay::start(folder.path(), name, "1G", rate));
    let service = Service::start(folder.path());
    relays.iter().for_each(|relay| service.add(relay));
    (folder, relays, service)
}

#[test]
fn turns_go_by_deadline() {
    // None of them is over before it is looked at.
    let (folder, _relays, service) = site("50k");
    let late = offload(&service, folder.path(), "late", 40, "9h");
    let soon = offload(&service, folder.path(), "soon", 3, "1h");
    let middle = offload(&service, folder.path(), "middle", 3, "3h");

    // Whoever must be safe first has the first turn, and pages go on behind any.
    let plan = shown(&service, "/v1/plan");
    let order: Vec<&str> = plan.as_array().unwrap().iter().map(name_of).collect();
    assert_eq!(order, [&*soon, &middle, &late]);
    let first = &plan[0];
    assert!(first["bytes_left"].as_u64().unwrap() > 0, "{first}");
    assert_eq!(
        (&first["leftover"], &first["paused"]),
        (&false.into(), &false.into())
    );
    assert!(first["finish"]["p90"].is_string(), "{first}");
    assert!(first["slack_s"].as_f64().unwrap() > 3000.0, "{first}");
    let to: Vec<&str> = first["shares"]
        .as_array()
        .unwrap()
        .iter()
        .map(depot_of)
        .collect();
    assert_eq!(to, ["ash", "birch"]);
    let behind = shown(&service, &format!("/v1/plan?limit=1&after={soon}"));
    assert_eq!(
        (name_of(&behind[0]), behind.as_array().unwrap().len()),
        (&*middle, 1)
    );
}

#[test]
fn datasets_say_who_holds_them() {
    let (folder, _relays, service) = site("1M");
    let late = offload(&service, folder.path(), "late", 40, "9h");
    let soon = offload(&service, folder.path(), "soon", 3, "1h");
    let request = service.wait_until(&soon, |request| request["state"] == "safe");
    let id = request["dataset"].as_str().unwrap();
    let dataset = shown(&service, &format!("/v1/datasets/{id}"));
    assert_eq!(
        (&dataset["request"], &dataset["id"]),
        (&request["id"], &request["dataset"])
    );
    assert_eq!(
        (&dataset["bytes"], &dataset["files"]),
        (&(3 * MIB).into(), &1.into())
    );
    assert_eq!(
        (&dataset["code"], &dataset["chunks_safe"]),
        (&"1+1".into(), &dataset["chunks"])
    );
    for (holder, name) in dataset["holders"]
        .as_array()
        .unwrap()
        .iter()
        .zip(["ash", "birch"])
    {
        assert_eq!((depot_of(holder), &holder["state"]), (name, &"up".into()));
        assert_eq!(
            (&holder["fragments"], &holder["bytes"]),
            (&dataset["chunks"], &(3 * MIB).into())
        );
    }
    let newest = shown(&service, "/v1/datasets?limit=1000");
    let newest: Vec<&str> = newest.as_array().unwrap().iter().map(name_of).collect();
    assert!(
        newest.contains(&&*soon) && newest.is_sorted_by(|one, next| one > next),
        "{newest:?}"
    );
    let before = shown(&service, &format!("/v1/datasets?before={soon}"));
    assert!(
        before
            .as_array()
            .unwrap()
            .iter()
            .all(|held| name_of(held) == late)
    );

    let printed = service.run(&["datasets", &soon]);
    let printed = text(&printed.stdout);
    assert!(printed.contains("ash 3.0 MiB, birch 3.0 MiB"), "{printed}");
    assert_eq!(service.json(&["datasets", id, "--json"]), dataset);

    // What depots forget, or nobody knows, is none.
    service.run(&["cancel", &soon]);
    service.wait_until(&soon, |request| request["state"] == "cancelled");
    let held = shown(&service, "/v1/datasets");
    assert!(
        held.as_array()
            .unwrap()
            .iter()
            .all(|held| name_of(held) != soon),
        "{held}"
    );
}

#[test]
fn what_is_not_there_is_not_shown() {
    let (folder, _relays, service) = site("1M");
    let soon = offload(&service, folder.path(), "soon", 1, "1h");
    service.wait_until(&soon, |request| request["state"] == "safe");
    let gone = format!("/v1/plan?after={soon}");
    for (path, status, what) in [
        ("/v1/datasets/nothing", 404, "nothing"),
        (&gone, 404, "takes no turn"),
        ("/v1/plan?after=x", 422, "written like r7"),
    ] {
        let (found, said) = get(&service, path, &own(&service));
        assert_eq!(found, status, "{said}");
        assert!(said["detail"].as_str().unwrap().contains(what), "{said}");
    }
}

#[test]
fn what_can_be_opened_is_told_to_who_may_open_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config/posthaste/profiles.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let secret = "not-to-be-told";
    fs::write(&file, format!("[archive]\nurl = \"s3://b\"\nsecret_access_key = \"{secret}\"\naccess_key_id = \"k\"\n[tape]\nurl = \"sftp://h/\"\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let service = Service::start(folder.path());
    let all = shown(&service, "/v1/endpoints");
    assert_eq!(all["profiles"], serde_json::json!(["archive", "tape"]));
    assert!(!all.to_string().contains(secret), "{all}");
    let kinds = all["kinds"].as_array().unwrap();
    let s3 = kinds.iter().find(|kind| kind["scheme"] == "s3").unwrap();
    assert_eq!(
        (&s3["can"]["server_copy"], &s3["can"]["directories"]),
        (&true.into(), &false.into())
    );
    let token = folder.path().join("reader.token");
    let made = service.run(&[
        "token",
        "add",
        "reader",
        "--scope",
        "read",
        "--profile",
        "tape",
        "--output",
        token.to_str().unwrap(),
    ]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let token = fs::read_to_string(token).unwrap();
    let (status, told) = get(&service, "/v1/endpoints", token.trim());
    assert_eq!(
        (status, &told["profiles"]),
        (200, &serde_json::json!(["tape"]))
    );
}

fn name_of(shown: &Value) -> &str {
    shown["request"].as_str().unwrap()
}

fn depot_of(shown: &Value) -> &str {
    shown["depot"].as_str().unwrap()
}
