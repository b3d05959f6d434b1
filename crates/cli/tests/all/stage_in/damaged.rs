//! Stage-ins of data that is damaged on its way.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use posthaste_testbed::odd::{Server, Spoils, front};
use tokio::task::block_in_place;

use crate::{
    movers_straight::{mover, token},
    support::sources::{Centre, PATIENCE, now, text},
};

/// Size that arrives in several chunks.
const LARGE: usize = 40 << 20;
/// Size that arrives in two chunks, and was sent in one request.
const MIDDLE: usize = 7 << 20;

/// Puts a file of so many bytes into a store, before which the first `wrong` answers with it have a
/// flipped bit. The store keeps its checksum, or its MD5 alone.
async fn damaged(
    name: &str,
    size: usize,
    tells: bool,
    wrong: u32,
) -> (Centre, Arc<AtomicU32>, [Server; 2]) {
    let centre = Centre::with("400M", "40M", 1);
    let source = centre.folder.path().join(name);
    fs::write(&source, vec![7; size]).unwrap();
    let copied = block_in_place(|| centre.run_alone(&["cp", name, "archive:odd/"]));
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    let (left, wanted) = (Arc::new(AtomicU32::new(wrong)), format!("/odd/{name}"));
    let damages = Arc::clone(&left);
    let told = front(centre.s3.address(), Spoils::Sums, move |_| !tells).await;
    let front = front(told.address(), Spoils::Bits, move |asked| {
        let is_content = asked.method == "GET" && asked.target.contains(&wanted);
        let less = |left: u32| left.checked_sub(1);
        is_content && damages.fetch_update(SeqCst, SeqCst, less).is_ok()
    })
    .await;
    centre.move_archive(&front.url());
    (centre, left, [told, front])
}

/// Stages in a file that is damaged on its way once: it arrives when it is read again.
async fn arrives_once_it_is_not_damaged(name: &str, size: usize, tells: bool) {
    let (centre, _, _servers) = damaged(name, size, tells, 1).await;
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
        centre.wait_until(id, |request| request["state"] == "arrived");
        assert_eq!(fs::read(to.join(name)).unwrap(), vec![7; size]);
        let said = format!("{name}: what was read has not the checksum");
        assert!(centre.log().contains(&said), "{}", centre.log());
    });
}

/// Stages in what is damaged, which ends it, and returns the request.
fn fails(centre: &Centre) -> serde_json::Value {
    let to = centre.scratch("input");
    let asked = ["stage-in", "archive:odd", to.to_str().unwrap()];
    let request = centre.json(&[&asked[..], &["--deadline", "20m", "--json"]].concat());
    let id = request["id"].as_str().unwrap();
    let ended = centre.wait_until(id, |request| request["state"] == "failed");
    assert!(!to.exists());
    ended
}

// In docs/reference/edges.md: "what is read is wrong each time"
#[tokio::test(flavor = "multi_thread")]
async fn what_a_mover_gets_with_a_wrong_md5_does_not_arrive() {
    let (centre, left, _servers) = damaged("small", 100_000, false, u32::MAX).await;
    block_in_place(|| {
        let token = token(&centre);
        let _mover = mover(&centre, centre.folder.path(), &token, "one");
        let start = now();
        while centre
            .json(&["movers", "--json"])
            .as_array()
            .unwrap()
            .is_empty()
        {
            assert!(start.elapsed() < PATIENCE, "{}", centre.log());
            thread::sleep(Duration::from_millis(100));
        }
        let to = centre.scratch("input");
        let to_text = to.to_str().unwrap();
        let words = [
            "stage-in",
            "archive:odd",
            to_text,
            "--deadline",
            "20m",
            "--json",
        ];
        let request = centre.json(&words);
        let id = request["id"].as_str().unwrap();
        centre.wait_until(id, |request| request["state"] == "failed");
        let reads = u32::MAX - left.load(SeqCst);
        assert!(reads > 3, "the mover read it too: {reads}");
    });
}

// In docs/reference/edges.md: "what is read is wrong each time"
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_wrong_each_time_ends_the_stage_in_by_its_name() {
    let (centre, _, _servers) = damaged("small", 100_000, true, u32::MAX).await;
    block_in_place(|| {
        let ended = fails(&centre);
        assert_eq!(ended["error_code"], "corrupt", "{ended}");
        let why = ended["reason"].as_str().unwrap();
        let said = "small: what was read has not the checksum that archive:odd keeps of it";
        assert!(why.contains(said), "{why}");
        let tries = centre.log().matches("small: what was read").count();
        assert_eq!(tries, 3, "{}", centre.log());
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_answers_each_range_with_another_ends_the_stage_in_by_the_files_name() {
    let centre = Centre::with("400M", "40M", 1);
    let whole = vec![7; LARGE];
    fs::write(centre.folder.path().join("large"), &whole).unwrap();
    let copied = block_in_place(|| centre.run_alone(&["cp", "large", "archive:odd/"]));
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    let front = front(centre.s3.address(), Spoils::OtherRanges(whole), |asked| {
        let from = asked.range.map_or(0, |(first, _)| first);
        asked.method == "GET" && asked.target.contains("/odd/large") && from > 0
    })
    .await;
    centre.move_archive(&front.url());
    block_in_place(|| {
        let ended = fails(&centre);
        let why = ended["reason"].as_str().unwrap();
        assert!(
            why.contains("large") && why.contains("were asked for"),
            "{why}"
        );
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_that_is_wrong_each_time_ends_the_stage_in_by_its_name() {
    let (centre, _, _servers) = damaged("large", LARGE, true, u32::MAX).await;
    block_in_place(|| {
        let ended = fails(&centre);
        let why = ended["reason"].as_str().unwrap();
        assert!(why.contains("large: what was read has not"), "{why}");
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
