//! A source whose listing never ends delays nobody but its owner, and can be cancelled.

use std::{
    fs,
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::support::sources::{Centre, PATIENCE, command, now, picture, text};
use posthaste_testbed::odd::{Answer, Server};
use serde_json::Value;

/// Keys of a page.
const KEYS: u64 = 100;
/// Scans beyond the limit of one owner.
const ENDLESS: usize = 5;

/// Starts a store in which each page is followed by another; counts them.
async fn endless(pages: Arc<AtomicU64>) -> Server {
    Server::start(move |asked| {
        if !asked.target.contains("list-type=2") {
            return Answer::sized(404, "", "");
        }
        // It is to be listed for long, not fast.
        tokio::task::block_in_place(|| std::thread::sleep(Duration::from_millis(20)));
        let page = pages.fetch_add(1, SeqCst);
        let keys = (0..KEYS).map(|key| {
            format!(
                "<Contents><Key>run/{:012}</Key><Size>1</Size><ETag>\"e\"</ETag>\
                 <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>",
                page * KEYS + key
            )
        });
        let keys: String = keys.collect();
        let more = format!(
            "<IsTruncated>true</IsTruncated><NextContinuationToken>{page}</NextContinuationToken>"
        );
        let listed = format!("<ListBucketResult>{more}{keys}</ListBucketResult>");
        Answer::sized(200, "", listed)
    })
    .await
}

/// Requests an endless source, and waits for the decision.
fn ask(centre: &Centre, name: &str) -> Child {
    let to = centre.scratch(name);
    command(centre.folder.path(), &centre.s3)
        .args(["stage-in", "archive:run", to.to_str().unwrap()])
        .args(["--owner", "alice", "--deadline", "10m"])
        .args(["--service", &centre.url, "--token-file"])
        .arg(centre.folder.path().join("service/token"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Returns the ids of scanned requests, once there are so many.
fn scanned(centre: &Centre, count: usize) -> Vec<String> {
    let start = now();
    loop {
        let listed = centre.json(&["list", "--state", "scanning", "--json"]);
        let ids = listed.as_array().unwrap().iter();
        let ids: Vec<String> = ids
            .map(|request| request["id"].as_str().unwrap().to_owned())
            .collect();
        if ids.len() == count {
            return ids;
        }
        assert!(start.elapsed() < PATIENCE, "{listed}\n{}", centre.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Stages in an input from a place where listings end.
fn comes(centre: &Centre, owner: &str, name: &str) {
    let to = centre.scratch(name);
    let what = ["stage-in", "mirror:run", to.to_str().unwrap(), "--json"];
    let how = ["--owner", owner, "--deadline", "10m"];
    let request = centre.json(&[&what[..], &how].concat());
    let id = request["id"].as_str().unwrap();
    centre.wait_until(id, |request| request["state"] == "arrived");
    assert_eq!(picture(&to), picture(&centre.web.files().join("run")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_listing_that_never_ends_is_in_its_owners_way_alone_and_is_cancelled() {
    let pages = Arc::new(AtomicU64::new(0));
    let server = endless(Arc::clone(&pages)).await;
    tokio::task::block_in_place(|| {
        let mut centre = Centre::with("60M", "60M", 2);
        centre.move_archive(&server.url());
        let asking: Vec<Child> = (0..ENDLESS)
            .map(|place| ask(&centre, &format!("endless{place}")))
            .collect();
        let ids = scanned(&centre, ENDLESS);
        let start = now();
        while pages.load(SeqCst) < 20 {
            assert!(start.elapsed() < PATIENCE, "{}", centre.log());
            std::thread::sleep(Duration::from_millis(20));
        }

        // Others go on, to here and from here.
        comes(&centre, "bob", "bob");
        let (from, to) = (centre.scratch("bob"), centre.scratch("out"));
        let what = ["offload", from.to_str().unwrap(), "--to"];
        let how = ["--owner", "bob", "--deadline", "10m", "--json"];
        let request = centre.json(&[&what[..], &[to.to_str().unwrap()], &how].concat());
        let id = request["id"].as_str().unwrap();
        centre.wait_until(id, |request| request["state"] == "arrived");
        assert_eq!(picture(&to), picture(&from));

        // What runs is cancelled, and what waits for its turn.
        for id in &ids {
            let output = centre.run(&["cancel", id]);
            assert!(output.status.success(), "{}", text(&output.stderr));
            let request = centre.json(&["status", id, "--json"]);
            assert_eq!(request["state"], "cancelled", "{request}");
        }
        for mut asked in asking {
            assert!(!asked.wait().unwrap().success());
        }
        let again = centre.run(&["cancel", &ids[0]]);
        let said = text(&again.stderr);
        assert!(said.contains("it is already cancelled"), "{said}");
        assert!(centre.holds_only(&["bob", "out"]));
        // Places are given back: of those that run and of those that wait.
        comes(&centre, "alice", "alice");
        centre.kill();
        centre.restart();
        let listed: Value = centre.json(&["list", "--state", "cancelled", "--json"]);
        assert_eq!(listed.as_array().unwrap().len(), ENDLESS, "{listed}");
        assert!(fs::exists(centre.scratch("alice")).unwrap());
    });
}
