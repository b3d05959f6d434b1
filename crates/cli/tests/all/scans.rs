//! A source whose listing never ends delays nobody but its owner, and can be cancelled.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::support::{
    processes::{Relay, Service},
    sources::{Centre, PATIENCE, command, now, picture, text},
};
use posthaste_testbed::{
    make_empty_files,
    odd::{Answer, Deed, Files, Habits, Server},
};
use serde_json::Value;

/// Keys of a page.
const KEYS: u64 = 100;
/// Scans beyond the limit of one owner.
const ENDLESS: usize = 5;

/// Starts a store in which each page is followed by another; counts them. It lists from no other place
/// than the end of a page: several lists at once would contradict each other.
async fn endless(pages: Arc<AtomicU64>) -> Server {
    Server::start(move |asked| {
        if !asked.target.contains("list-type=2") {
            return Answer::sized(404, "", "");
        }
        if asked.target.contains("start-after=") {
            return Answer::sized(501, "", "");
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

/// Waits until those who follow a request have heard that this happened.
fn hears(url: &str, token: &str, id: &str, wanted: &str) {
    let host = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let asked = format!(
        "GET /v1/events?request={id} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\n\r\n",
        token.trim()
    );
    stream.write_all(asked.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let is_it = |line: &String| line.contains(&format!("\"name\":\"{wanted}\""));
    let heard = lines.find(is_it).unwrap();
    assert!(heard.contains(&format!("\"{id}\"")), "{heard}");
}

/// What somebody stages in from where listings end.
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
            let said = text(&output.stderr);
            assert!(output.status.success(), "{said}\n{}", centre.log());
            let request = centre.json(&["status", id, "--json"]);
            assert_eq!(request["state"], "cancelled", "{request}");
            let token = fs::read_to_string(centre.folder.path().join("service/token")).unwrap();
            hears(&centre.url, &token, id, "cancelled");
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

#[test]
fn an_offload_over_depots_of_what_is_listed_for_long_is_cancelled_and_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let relay = Relay::start(folder.path(), "ash", "1G", "60M");
    let service = Service::start(folder.path());
    service.add(&relay);
    // Its files are looked at one by one, more slowly than anybody waits.
    let is_slow = Arc::new(AtomicBool::new(true));
    let (slow, looks) = (Arc::clone(&is_slow), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&looks);
    let files = Files::mount(Habits::refusing(move |call| {
        if call.deed == Deed::Look && call.has("long/") && slow.load(SeqCst) {
            counted.fetch_add(1, SeqCst);
            std::thread::sleep(Duration::from_millis(100));
        }
        None
    }));
    let long = files.behind().join("long");
    fs::create_dir(&long).unwrap();
    make_empty_files(&long, (0..10_000).map(|number| format!("{number:05}"))).unwrap();
    let quick = folder.path().join("quick");
    fs::create_dir(&quick).unwrap();
    fs::write(quick.join("file"), "bytes").unwrap();
    let from = files.path().join("long");
    let offload = |from: &std::path::Path, owner: &str, more: &[&str]| {
        let what = ["offload", from.to_str().unwrap(), "--to", "home"];
        let how = [
            "--via",
            "ash",
            "--deadline",
            "10m",
            "--code",
            "1+0",
            "--owner",
            owner,
        ];
        service.run(&[&what[..], &how, more].concat())
    };
    std::thread::scope(|scope| {
        // As many as all had together for four owners, and one more.
        let owners = [
            "alice", "alice", "alice", "carol", "carol", "dave", "dave", "erin", "erin",
        ];
        let asking = owners.map(|owner| scope.spawn(|| offload(&from, owner, &["--json"])));
        let start = now();
        let ids: Vec<String> = loop {
            let listed = service.json(&["list", "--state", "scanning", "--json"]);
            let ids = listed.as_array().unwrap().iter();
            let ids: Vec<_> = ids
                .map(|one| one["id"].as_str().unwrap().to_owned())
                .collect();
            if ids.len() == owners.len() && looks.load(SeqCst) > 4 {
                break ids;
            }
            assert!(start.elapsed() < PATIENCE, "{listed}");
            std::thread::sleep(Duration::from_millis(50));
        };
        let other = offload(&quick, "bob", &["--wait"]);
        assert!(other.status.success(), "{}", text(&other.stderr));
        let token = fs::read_to_string(service.state.join("token")).unwrap();
        for id in &ids {
            let output = service.run(&["cancel", id]);
            assert!(output.status.success(), "{}", text(&output.stderr));
            assert_eq!(service.status(id)["state"], "cancelled");
            hears(&service.url, &token, id, "cancelled");
        }
        for asked in asking {
            assert!(!asked.join().unwrap().status.success());
        }
        is_slow.store(false, SeqCst);
        // Its places are given back.
        let again = offload(&from, "alice", &["--wait"]);
        assert!(again.status.success(), "{}", text(&again.stderr));
    });
}

#[test]
fn who_follows_a_request_hears_that_its_source_can_not_be_listed() {
    let folder = tempfile::tempdir().unwrap();
    let relay = Relay::start(folder.path(), "ash", "1G", "60M");
    let service = Service::start(folder.path());
    service.add(&relay);
    let files = Files::mount(Habits::refusing(|call| {
        (call.deed == Deed::List && call.has("broken")).then_some(5)
    }));
    fs::create_dir(files.behind().join("broken")).unwrap();
    let from = files.path().join("broken");
    let what = [
        "offload",
        from.to_str().unwrap(),
        "--to",
        "home",
        "--via",
        "ash",
    ];
    let asked = service.run(&[&what[..], &["--deadline", "10m", "--code", "1+0"]].concat());
    assert!(!asked.status.success());
    let token = fs::read_to_string(service.state.join("token")).unwrap();
    hears(&service.url, &token, "r1", "failed");
}
