//! The audit file notes decisions about requests, and removals for them.

use std::{fs, path::Path, thread, time::Duration};

use crate::support::processes::{PATIENCE, Relay, Service, make_tree, now, text};
use serde_json::Value;

fn noted(file: &Path) -> Vec<Value> {
    let lines = fs::read_to_string(file).unwrap();
    // The last may be half written.
    let (whole, _) = lines.rsplit_once('\n').unwrap_or_default();
    let lines = whole.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

/// Waits for the line about this request.
fn line(file: &Path, request: &str, event: &str) -> Value {
    let start = now();
    loop {
        let lines = noted(file);
        let wanted = |line: &&Value| line["event"] == event && line["request"] == request;
        if let Some(line) = lines.iter().find(wanted) {
            return line.clone();
        }
        assert!(start.elapsed() < PATIENCE, "{request} {event}: {lines:#?}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn decisions_releases_and_removals_are_noted_with_request_and_owner() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let audit = folder.join("audit");
    let relay = Relay::start(folder, "ash", "1G", "50M");
    let tiny = Relay::start(folder, "elf", "2M", "50M");
    let service = Service::start_with(folder, &["--audit", audit.to_str().unwrap()]);
    service.add(&relay);
    service.add(&tiny);
    let scratch = folder.join("run");
    make_tree(&scratch, 4, 1);
    let source = scratch.to_str().unwrap();
    let offload = [
        "offload",
        source,
        "--to",
        "home",
        "--code",
        "1+0",
        "--deadline",
        "10m",
    ];
    let submit = |more: &[&str]| -> String {
        let said = service.run(&[&offload[..], more, &["--json", "--owner", "alice"]].concat());
        let request: Value = serde_json::from_slice(&said.stdout)
            .unwrap_or_else(|_| panic!("{}", text(&said.stderr)));
        request["id"].as_str().unwrap().to_owned()
    };
    let refused = submit(&["--via", "elf"]);
    let said = line(&audit, &refused, "refused");
    assert_eq!(said["owner"], "alice");
    assert!(
        said["reason"].as_str().is_some_and(|why| !why.is_empty()),
        "{said}"
    );

    let taken = submit(&["--via", "ash", "--release", "when-safe"]);
    assert_eq!(line(&audit, &taken, "admitted")["owner"], "alice");
    let released = line(&audit, &taken, "released");
    assert_eq!(
        (&released["owner"], &released["source"]),
        (&"alice".into(), &source.into())
    );
    assert!(!scratch.exists());
    make_tree(&scratch, 4, 2);
    let dropped = submit(&["--via", "ash"]);
    service.wait_until(&dropped, |request| request["state"] == "safe");
    let cancelled = service.run(&["cancel", &dropped]);
    assert!(cancelled.status.success(), "{}", text(&cancelled.stderr));
    assert_eq!(line(&audit, &dropped, "cancelled")["owner"], "alice");
    let removed = line(&audit, &dropped, "fragments-removed");
    assert_eq!(
        (&removed["owner"], &removed["depot"]),
        (&"alice".into(), &"ash".into())
    );
    let as_wanted = ["--format", "{id:>4}|{state}|{owner}|{percent}"];
    let shown = service.run(&[&["status", &taken][..], &as_wanted].concat());
    assert_eq!(
        text(&shown.stdout),
        format!("{taken:>4}|released|alice|100\n")
    );
    let listed = text(&service.run(&["list", "-o", "{id} {flag}"]).stdout);
    assert_eq!(listed.lines().count(), 3, "{listed}");
    let wrong = service.run(&["status", "--format", "{speed}"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("nothing is called `speed`"));
    // Each thing is noted once.
    let lines = noted(&audit);
    let count = |event: &str| lines.iter().filter(|line| line["event"] == event).count();
    let counts = ["admitted", "refused", "released", "fragments-removed"].map(count);
    assert_eq!(counts, [2, 1, 1, 1], "{lines:#?}");
}
