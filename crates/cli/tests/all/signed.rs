//! A signed address opens its object for anybody who has it: a service uses it, and writes it down
//! nowhere.

use std::{fs, path::Path};

use crate::support::processes::{Service, text};
use posthaste_testbed::{WebFace, WebServer};
use serde_json::Value;

const SECRET: &str = "X-Amz-Signature=5f0c91d2a7b3";

/// Lists the files below a folder that contain the secret.
fn leaks(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let found = entries.flat_map(|entry| {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            return leaks(&path);
        }
        let bytes = fs::read(&path).unwrap_or_default();
        let has = |secret: &str| {
            bytes
                .windows(secret.len())
                .any(|some| some == secret.as_bytes())
        };
        let leaks = has(SECRET) || has("5f0c91d2a7b3");
        leaks
            .then(|| path.display().to_string())
            .into_iter()
            .collect()
    });
    found.collect()
}

#[test]
fn a_signed_address_is_used_across_a_kill_and_written_down_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    fs::create_dir(&kept).unwrap();
    let audit = kept.join("audit");
    let mut service = Service::start_with(&kept, &["--audit", audit.to_str().unwrap()]);
    let web = WebServer::start().unwrap();
    let content = vec![7_u8; 12 << 20];
    fs::write(web.files().join("run7.h5"), &content).unwrap();
    let plain = web.address(WebFace::Pages, "run7.h5");
    let signed = format!("{plain}?{SECRET}");
    let here = folder.path().join("here");
    let stage_in = [
        "stage-in",
        &signed,
        here.to_str().unwrap(),
        "--deadline",
        "1h",
        "--submission-id",
        "one",
        "--bwlimit",
        "2M",
        "--json",
    ];
    let taken = service.json(&stage_in);
    assert_eq!(taken["source"], format!("{plain}?…"), "{taken}");
    let again = service.json(&stage_in);
    assert_eq!(again["id"], taken["id"], "it is the same: {again}");
    service.kill();
    service.restart();
    let watched = service.run(&["watch", "r1"]);
    assert!(watched.status.success(), "{}", text(&watched.stderr));
    assert_eq!(fs::read(here.join("run7.h5")).unwrap(), content);
    assert!(web.log().contains(SECRET), "it was not sent");

    let there = folder.path().join("there");
    let offloaded: Value = service.json(&[
        "offload",
        &signed,
        "--to",
        there.to_str().unwrap(),
        "--deadline",
        "1h",
        "--wait",
        "--json",
    ]);
    assert_eq!(offloaded["source"], format!("{plain}?…"), "{offloaded}");
    for question in [
        &["status", "r1", "--json"][..],
        &["status", "r2", "--json"],
        &["explain", "r1", "--json"],
        &["explain", "r2"],
        &["list", "--json"],
        &["status", "--json"],
    ] {
        let said = text(&service.run(question).stdout);
        assert!(!said.contains("5f0c91d2a7b3"), "{question:?}: {said}");
        assert!(!said.contains("~sealed"), "{question:?}: {said}");
    }
    service.process.end();
    assert_eq!(leaks(&kept), Vec::<String>::new());
    let log = fs::read_to_string(&audit).unwrap();
    assert!(log.contains("run7.h5?…"), "{log}");
}

#[test]
fn what_follows_a_question_mark_is_not_shown_where_an_address_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path());
    let port = posthaste_testbed::free_port().unwrap();
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("file"), "bytes").unwrap();
    let address = format!("webdav://127.0.0.1:{port}/f?{SECRET}");
    let here = folder.path().join("here");
    let stage_in = [
        "stage-in",
        &address,
        here.to_str().unwrap(),
        "--deadline",
        "1h",
    ];
    let offload = [
        "offload",
        out.to_str().unwrap(),
        "--to",
        &address,
        "--deadline",
        "1h",
    ];
    let asked = [&stage_in[..], &offload].map(|asked| service.run(asked));
    assert!(
        text(&asked[1].stdout).contains("/f?…"),
        "{}",
        text(&asked[1].stdout)
    );
    let mut said: Vec<String> = Vec::new();
    let mut note = |output: &std::process::Output| {
        said.push(text(&output.stdout));
        said.push(text(&output.stderr));
    };
    asked.iter().for_each(&mut note);
    for question in [
        &["status", "r1"][..],
        &["status", "r2"],
        &["status", "r2", "--json"],
        &["explain", "r1"],
        &["explain", "r2"],
        &["list"],
        &["list", "--json"],
        &["paths"],
    ] {
        note(&service.run(question));
    }
    said.push(fs::read_to_string(folder.path().join("service.log")).unwrap());
    for said in said {
        assert!(
            !said.contains("5f0c91d2a7b3") && !said.contains("~sealed"),
            "{said}"
        );
    }
}
