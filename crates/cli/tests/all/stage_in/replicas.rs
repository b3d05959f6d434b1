//! Stage-ins from several sources with different content, though names and sizes are those of one
//! tree.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::Path,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::{Duration, SystemTime},
};

use posthaste_testbed::odd::{Answer, Server};
use serde_json::Value;

use crate::support::sources::{Centre, make_tree, text};

/// Writes into an existing file.
fn spoil(path: &Path, at: u64, bytes: &[u8]) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

fn refused(centre: &Centre, sources: [&str; 2], said: &str) {
    let to = centre.scratch("input");
    let output = centre.run(&[
        "stage-in",
        sources[0],
        sources[1],
        to.to_str().unwrap(),
        "--deadline",
        "10m",
    ]);
    let error = text(&output.stderr);
    assert!(!output.status.success() && error.contains(said), "{error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    assert!(centre.holds_only(&[]));
}

// In docs/reference/edges.md: "a large file is another in its middle at one of two sources"
#[test]
fn two_trees_that_differ_in_the_middle_of_a_large_file_are_refused_with_its_name() {
    let centre = Centre::with("400M", "400M", 1);
    let trees = ["left", "right"].map(|name| centre.folder.path().join(name));
    for tree in &trees {
        fs::create_dir(tree).unwrap();
        fs::write(tree.join("a"), b"first").unwrap();
        fs::write(tree.join("big"), vec![7; 40 << 20]).unwrap();
        fs::write(tree.join("z"), b"last").unwrap();
    }
    spoil(&trees[1].join("big"), 13 << 20, &vec![8; 2 << 20]);
    let sources = [&trees[0], &trees[1]].map(|tree| tree.to_str().unwrap());
    refused(&centre, sources, "big: the data itself differs");
}

// In docs/reference/edges.md: "two stores keep other checksums of one file"
#[test]
fn two_objects_of_which_the_store_keeps_other_checksums_are_refused_with_their_name() {
    let centre = Centre::with("400M", "400M", 1);
    let file = centre.folder.path().join("object");
    fs::write(&file, vec![7; 3 << 20]).unwrap();
    for (place, byte) in [("one", 7), ("two", 8)] {
        // Where nothing of it is read.
        spoil(&file, 100_000, &[byte]);
        let to = format!("archive:{place}/");
        let copied = centre.run_alone(&["cp", "object", &to]);
        assert!(copied.status.success(), "{}", text(&copied.stderr));
    }
    let said = "object: the checksums that they keep differ";
    refused(&centre, ["archive:one", "archive:two"], said);
}

// In docs/reference/edges.md: "a file of two chunks is another at one of two sources"
#[test]
fn no_file_of_two_chunks_is_a_mixture() {
    let centre = Centre::with("8M", "8M", 1);
    let [left, right] =
        [centre.s3.bucket_folder(), centre.web.files()].map(|root| root.join("mix"));
    for root in [&left, &right] {
        make_tree(root, 60);
    }
    let changed: Vec<String> = (8..52)
        .map(|number| format!("deep/file {number:04}"))
        .collect();
    for path in &changed {
        // Where nothing is read of them before: of a file that begins in one chunk and ends in the
        // next, one byte in each.
        spoil(&right.join(path), 3, b"other");
        spoil(&right.join(path), (1 << 20) - 9, b"other");
    }
    let to = centre.scratch("input");
    let to = to.to_str().unwrap();
    let request = centre.json(&[
        "stage-in",
        "archive:mix",
        "mirror:mix",
        to,
        "--deadline",
        "10m",
        "--json",
    ]);
    let id = request["id"].as_str().unwrap();
    let is_over = |request: &Value| request["state"] == "arrived" || request["state"] == "failed";
    let ended = centre.wait_until(id, is_over);
    if ended["state"] == "failed" {
        // A chunk that was asked for twice, near the end, shows that they differ.
        let why = ended["reason"].as_str().unwrap();
        assert!(why.contains("something else than another source"), "{why}");
        assert!(!Path::new(to).exists());
        return;
    }
    let mut from = [0, 0];
    for path in &changed {
        let found = fs::read(Path::new(to).join(path)).unwrap();
        let mut places = [&left, &right].into_iter();
        let place = places.position(|root| fs::read(root.join(path)).unwrap() == found);
        from[place.unwrap_or_else(|| panic!("{path} is a mixture"))] += 1;
    }
    assert!(from[0] > 0 && from[1] > 0, "both were asked: {from:?}");
}

// In docs/reference/edges.md: "a file changes while it comes, and nothing tells its versions"
#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_no_version_that_changes_while_it_comes_is_no_mixture() {
    const SIZE: usize = 20 << 20;
    let reads = AtomicU32::new(0);
    let server = Server::start(move |asked| {
        if asked.target.ends_with('/') {
            let page = "<html><a href=\"big\">big</a></html>";
            return Answer::sized(200, "content-type: text/html\r\n", page);
        }
        match (&*asked.method, asked.range) {
            ("GET", Some((first, last))) => {
                // It changes after three ranges.
                let is_old = reads.fetch_add(1, SeqCst) < 3;
                let range = format!("content-range: bytes {first}-{last}/{SIZE}\r\n");
                let byte = if is_old { 7 } else { 8 };
                Answer::sized(206, &range, vec![byte; last - first + 1])
            }
            ("GET", None) => Answer::sized(200, "", vec![8; SIZE]),
            _ => Answer::sized(200, "accept-ranges: bytes\r\n", vec![8; SIZE]),
        }
    })
    .await;
    tokio::task::block_in_place(|| {
        let centre = Centre::with("400M", "400M", 1);
        let (to, from) = (centre.scratch("input"), format!("{}/t/", server.url()));
        let to = to.to_str().unwrap();
        let request = centre.json(&["stage-in", &from, to, "--deadline", "20m", "--json"]);
        let id = request["id"].as_str().unwrap();
        centre.wait_until(id, |request| request["state"] == "arrived");
        let found = fs::read(Path::new(to).join("big")).unwrap();
        assert!(found == vec![8; SIZE], "it is a mixture");
    });
}

/// Two folders of the mirror with a large file each, which differ where nothing of them is read before. What came of it, and the request.
fn stage_in_of_two(centre: &Centre, seconds: [u64; 2], differing: &[u64]) -> (Vec<u8>, [Value; 2]) {
    let trees = ["left", "right"].map(|name| centre.web.files().join(name));
    for (tree, seconds) in trees.iter().zip(seconds) {
        fs::create_dir(tree).unwrap();
        let path = tree.join("big");
        fs::write(&path, vec![7; 40 << 20]).unwrap();
        if tree.ends_with("right") {
            differing.iter().for_each(|at| spoil(&path, *at, b"other"));
        }
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(at).unwrap();
    }
    let to = centre.scratch("input");
    let to = to.to_str().unwrap();
    let sources = ["mirror:left", "mirror:right"];
    let request = centre.json(&[
        "stage-in",
        sources[0],
        sources[1],
        to,
        "--deadline",
        "10m",
        "--json",
    ]);
    let id = request["id"].as_str().unwrap();
    let is_over = |request: &Value| request["state"] == "arrived" || request["state"] == "failed";
    let is_warned = |request: &Value| request["warnings"].is_array();
    let warned = centre.wait_until(id, |request| is_warned(request) || is_over(request));
    let ended = centre.wait_until(id, is_over);
    assert_eq!(ended["state"], "arrived", "{ended}");
    let found = fs::read(Path::new(to).join("big")).unwrap();
    (found, [warned, ended])
}

// In docs/reference/edges.md: "nothing shows that a large file is the same at two sources"
#[test]
fn a_large_file_of_which_nothing_shows_that_two_hold_the_same_is_no_mixture_and_that_is_said() {
    let centre = Centre::with("8M", "8M", 1);
    // Between the blocks that are compared: in most of its chunks.
    let differing: Vec<u64> = (0..40).map(|block| block * 1_023_001 + 500_000).collect();
    let (found, [request, _]) =
        stage_in_of_two(&centre, [1_700_000_000, 1_700_000_100], &differing);
    let is_of = |name: &str| fs::read(centre.web.files().join(name).join("big")).unwrap() == found;
    assert!(is_of("left") || is_of("right"), "it is a mixture");
    let said = "big comes from one source: neither checksums nor modification times show";
    assert!(request["warnings"].to_string().contains(said), "{request}");
    assert!(centre.log().contains(said));
    let id = request["id"].as_str().unwrap();
    let told = centre.run(&["explain", id]);
    assert!(text(&told.stdout).contains(said), "{}", text(&told.stdout));
}

#[test]
fn a_large_file_of_one_size_and_time_comes_from_two_sources_at_once() {
    let centre = Centre::with("8M", "8M", 1);
    let (found, [warned, request]) = stage_in_of_two(&centre, [1_700_000_000; 2], &[]);
    assert!(found == vec![7; 40 << 20]);
    let sources = request["stage_in"]["sources"].as_array().unwrap();
    assert!(
        sources
            .iter()
            .all(|source| source["chunks"].as_u64() > Some(0)),
        "{request}"
    );
    let warned = warned["warnings"].to_string();
    assert!(!warned.contains("from one source"), "{warned}");
}
