//! Stage-ins of data that is damaged on its way.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use posthaste_testbed::odd::{Spoils, front};
use tokio::task::block_in_place;

use crate::support::sources::{Centre, text};

/// Size that arrives in several chunks.
const LARGE: usize = 40 << 20;
/// Size that arrives in two chunks, and was sent in one request.
const MIDDLE: usize = 7 << 20;

/// Stages in a file of so many bytes from a store that keeps its checksum, or its MD5 alone, while
/// one bit of each answer is flipped. The file does not arrive until that is over.
async fn arrives_once_it_is_not_damaged(name: &str, size: usize, tells: bool) {
    let centre = Centre::with("400M", "40M", 1);
    let source = centre.folder.path().join(name);
    fs::write(&source, vec![7; size]).unwrap();
    let copied = block_in_place(|| centre.run_alone(&["cp", name, "archive:odd/"]));
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    let is_damaged = Arc::new(AtomicBool::new(true));
    let (damages, wanted) = (Arc::clone(&is_damaged), format!("/odd/{name}"));
    let told = front(centre.s3.address(), Spoils::Sums, move |_| !tells).await;
    let front = front(told.address(), Spoils::Bits, move |asked| {
        damages.load(SeqCst) && asked.method == "GET" && asked.target.contains(&wanted)
    })
    .await;
    centre.move_archive(&front.url());
    block_in_place(|| {
        let to = centre.scratch("input");
        let asked = [
            "stage-in",
            "archive:odd",
            to.to_str().unwrap(),
            "--deadline",
            "20m",
            "--json",
        ];
        let request = centre.json(&asked);
        let id = request["id"].as_str().unwrap();
        let said = format!("{name}: what was read has not the checksum");
        centre.wait_until(id, |request| {
            assert_ne!(request["state"], "arrived", "{request}");
            centre.log().contains(&said)
        });
        assert!(!to.exists());
        is_damaged.store(false, SeqCst);
        centre.wait_until(id, |request| request["state"] == "arrived");
        assert!(fs::read(to.join(name)).unwrap() == fs::read(&source).unwrap());
    });
}

// In docs/reference/edges.md: "one bit of what is read is another"
#[tokio::test(flavor = "multi_thread")]
async fn a_small_file_that_is_damaged_on_its_way_does_not_arrive() {
    arrives_once_it_is_not_damaged("small", 100_000, true).await;
}

// In docs/reference/edges.md: "one bit of what is read is another"
#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_several_chunks_that_is_damaged_on_its_way_does_not_arrive() {
    arrives_once_it_is_not_damaged("large", LARGE, true).await;
}

// In docs/reference/edges.md: "one bit of what is read is another"
#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_which_an_md5_is_kept_does_not_arrive_damaged() {
    // One that was put in one request: only then its ETag is an MD5.
    arrives_once_it_is_not_damaged("small", 100_000, false).await;
    arrives_once_it_is_not_damaged("middle", MIDDLE, false).await;
}
