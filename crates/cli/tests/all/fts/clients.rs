//! FTS's own programs, and Rucio's tool that drives FTS.

use std::{fs, process::Command};

use posthaste_testbed::{TlsFront, WebFace, install};
use serde_json::{Value, json};

use crate::{
    fts::world::{World, make},
    support::processes::text,
};

#[test]
fn the_clients_of_fts_submit_follow_and_cancel() {
    let world = World::with("100M");
    let sum = make(&world.web.files().join("f1"), 3_000_000, 1);
    let who = world.run("whoami", &[]);
    assert!(
        who.contains("/CN=posthaste") && who.contains("VO: posthaste"),
        "{who}"
    );
    world.run("delegate", &[]);
    assert!(world.run("server-status", &[]).contains("posthaste"));
    // As a checksum says, and so that it is told until the end.
    let job = world.submit(&[
        &world.from("f1"),
        &World::into("out/f1"),
        &format!("ADLER32:{sum}"),
    ]);
    assert_eq!(world.end(&job), "FINISHED");
    assert_eq!(
        fs::read(world.stored("out/f1")).unwrap(),
        fs::read(world.web.files().join("f1")).unwrap()
    );
    let shown: Value = serde_json::from_str(&world.run("transfer-status", &["-j", &job])).unwrap();
    let shown = if shown.is_array() {
        shown[0].clone()
    } else {
        shown
    };
    let shown = if shown["job_id"].is_null() {
        shown[&job].clone()
    } else {
        shown
    };
    let file = &world.get(&format!("/jobs/{job}/files"))[0];
    assert_eq!(
        (&shown["job_state"], &file["file_state"]),
        (&json!("FINISHED"), &json!("FINISHED"))
    );
    assert_eq!(file["filesize"], 3_000_000);
    assert!(
        file["start_time"].is_string() && file["finish_time"].is_string(),
        "{file}"
    );
    let nobody = world.client("wrong", "whoami", &[]);
    assert!(!nobody.status.success(), "{}", text(&nobody.stdout));
    let log = fs::read_to_string(world.service.state.with_extension("log")).unwrap();
    assert!(!log.contains(&world.token()), "tokens are in no log");
}

#[test]
fn what_is_there_is_what_was_said_and_nothing_else_is_replaced() {
    let world = World::with("100M");
    make(&world.web.files().join("f1"), 30_000, 1);
    make(&world.web.files().join("f2"), 100, 2);
    fs::write(world.web.files().join("zero"), "").unwrap();
    let first = world.submit(&[&world.from("f1"), &World::into("out/f1")]);
    assert_eq!(world.end(&first), "FINISHED");
    // Nothing stays that is not what was said.
    let wrong = world.submit(&[
        "-C",
        "both",
        &world.from("f2"),
        &World::into("out/f2"),
        "ADLER32:12345678",
    ]);
    assert_eq!(world.end(&wrong), "FAILED");
    assert!(
        world.reasons(&wrong)[0].contains("adler32:12345678 was to be there"),
        "{:?}",
        world.reasons(&wrong)
    );
    assert!(!world.stored("out/f2").exists());
    let missing = world.submit(&[&world.from("nothing"), &World::into("out/f3")]);
    assert_eq!(world.end(&missing), "FAILED");
    assert!(
        world.reasons(&missing)[0].contains("nothing is there"),
        "{:?}",
        world.reasons(&missing)
    );
    // What is there is replaced where that is asked for alone.
    let taken = world.submit(&[&world.from("f2"), &World::into("out/f1")]);
    assert_eq!(world.end(&taken), "FAILED");
    assert!(
        world.reasons(&taken)[0].contains("already"),
        "{:?}",
        world.reasons(&taken)
    );
    let over = world.submit(&["-o", &world.from("f2"), &World::into("out/f1")]);
    assert_eq!(world.end(&over), "FINISHED");
    assert_eq!(
        fs::read(world.stored("out/f1")).unwrap(),
        fs::read(world.web.files().join("f2")).unwrap()
    );
    let empty = world.submit(&["-C", "both", &world.from("zero"), &World::into("out/zero")]);
    assert_eq!(world.end(&empty), "FINISHED", "{:?}", world.reasons(&empty));
    assert_eq!(fs::read(world.stored("out/zero")).unwrap(), b"");
    assert_eq!(
        world.run("transfer-list", &[]).trim(),
        "",
        "nothing is under way"
    );
    let refused = world.client(
        &world.token(),
        "transfer-submit",
        &["file:///etc/passwd", &World::into("x")],
    );
    assert!(
        !refused.status.success() && text(&refused.stdout).contains("local files"),
        "{}",
        text(&refused.stdout)
    );
}

#[test]
fn rucio_drives_it_over_tls() {
    let world = World::with("100M");
    let dav = world.web.dav_files();
    let mut files = serde_json::Map::new();
    for (seed, name) in (1..).zip(["one", "two", "three", "four"]) {
        let sum = make(&dav.join("a/test").join(name), 200_000, seed);
        files.insert(name.to_owned(), json!([200_000, sum]));
    }
    make(&dav.join("a/test/wrong"), 1000, 9);
    files.insert("wrong".into(), json!([1000, "01020304"]));
    let front = TlsFront::start(&world.fts()).unwrap();
    let python = install::find_fts_clients().unwrap().join("python");
    let output = Command::new(python)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/all/fts/drive_rucio.py"
        ))
        .args([
            &front.url(),
            &world.token(),
            &world.web.port(WebFace::DavTls).to_string(),
        ])
        .arg(Value::Object(files).to_string())
        .env("HOME", world.folder.path())
        .output()
        .unwrap();
    let log = fs::read_to_string(world.service.state.with_extension("log")).unwrap();
    assert!(output.status.success(), "{}\n{log}", text(&output.stderr));
    let said: Value = serde_json::from_str(text(&output.stdout).lines().last().unwrap()).unwrap();
    let done = |name: &str| {
        said["reports"][name]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    for name in [
        "one SITE_B",
        "two SITE_B",
        "three SITE_B",
        "four SITE_C",
        "four SITE_B",
    ] {
        assert!(done(name).contains("DONE"), "{name}: {said}\n{log}");
    }
    assert!(done("wrong SITE_B").contains("FAILED"), "{said}");
    assert!(
        said["errors"]["wrong SITE_B"]
            .as_str()
            .unwrap()
            .contains("adler32"),
        "{said}"
    );
    assert_eq!(said["lost"], true);
    assert_eq!(said["priority"], 5);
    assert_eq!(said["twice"][0], said["twice"][1], "{said}");
    assert_eq!(said["cancelled"], "CANCELED");
    for name in ["one", "two", "three", "four"] {
        let there = fs::read(dav.join("b/test").join(name)).unwrap();
        assert_eq!(
            there,
            fs::read(dav.join("a/test").join(name)).unwrap(),
            "{name}"
        );
    }
    assert!(!dav.join("b/test/wrong").exists());
}
