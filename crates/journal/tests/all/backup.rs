//! A copy of a journal under writing is the journal of one moment.

use crate::support::places;
use crate::support::requests;

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
};

use places::Place;
use posthaste_core::contract::{DepotPrices, DepotTerms, Fault, Input};
use posthaste_journal::{ChunkRecord, DepotRecord, Journal, NUMBERS_LEFT_OUT, Step, back_up};
use posthaste_types::{Bytes, ChunkIndex, DepotId, Digest, RequestId, Timestamp};
use requests::request;

const COPIES: usize = 5;
/// Steps before the first copy and between two of them, so that each copy is of another moment.
const STEPS_BETWEEN: u32 = 10;

fn step(number: u32) -> (Vec<Input>, Vec<ChunkRecord>) {
    let fault = Fault::Unreachable;
    let inputs = [1, 2].map(|_| Input::DepotDown {
        depot: DepotId::new(number),
        fault,
    });
    let chunk = ChunkRecord {
        request: RequestId::new(1),
        chunk: ChunkIndex::new(number),
        digests: vec![Digest::new([7; 32]); 100],
    };
    (inputs.to_vec(), vec![chunk])
}

/// Appends and counts steps until `stop` is set.
fn append_until(journal: &mut Journal, stop: &AtomicBool, appended: &AtomicU32) {
    while !stop.load(Ordering::Relaxed) {
        let number = appended.load(Ordering::Relaxed);
        let (inputs, chunks) = step(number);
        let step = Step {
            at: Timestamp::from_secs(number.into()),
            inputs: &inputs,
            chunks: &chunks,
            ..Step::default()
        };
        journal.append(&step).unwrap();
        appended.store(number + 1, Ordering::Relaxed);
    }
}

fn wait_for(appended: &AtomicU32, wanted: u32) {
    while appended.load(Ordering::Relaxed) < wanted {
        thread::yield_now();
    }
}

fn empty_file(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, "").unwrap();
    path
}

#[test]
fn each_copy_is_the_journal_of_one_moment_and_the_writer_waits_for_none() {
    let place = Place::file();
    let (path, folder) = (place.path(), tempfile::tempdir().unwrap());
    let mut journal = Journal::open(&path).unwrap();
    let (stop, appended) = (AtomicBool::new(false), AtomicU32::new(0));
    let mut copies = Vec::new();
    thread::scope(|scope| {
        let (stop, appended) = (&stop, &appended);
        let writer = scope.spawn(move || append_until(&mut journal, stop, appended));
        for number in 0..COPIES {
            let before = appended.load(Ordering::Relaxed);
            wait_for(appended, before + STEPS_BETWEEN);
            let copy = empty_file(folder.path(), &number.to_string());
            let least = appended.load(Ordering::Relaxed);
            let depots = back_up(&path, &copy).unwrap();
            assert_eq!(depots, <[&str; 0]>::default());
            copies.push((copy, least..=appended.load(Ordering::Relaxed) + 1));
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    let all = appended.into_inner();
    let mut sizes = Vec::new();
    for (copy, possible) in copies {
        let journal = Journal::open(&copy).unwrap();
        let steps = journal.replay().unwrap().steps;
        let count = u32::try_from(steps.len()).unwrap();
        assert!(possible.contains(&count), "{count}, not {possible:?}");
        for ((at, inputs), number) in steps.iter().zip(0..) {
            assert_eq!(*at, Timestamp::from_secs(number.into()));
            assert_eq!(*inputs, step(number).0);
        }
        assert_eq!(
            journal.chunks_read(RequestId::new(1)).unwrap(),
            u64::from(count)
        );
        sizes.push(count);
    }
    assert!(
        sizes.is_sorted() && sizes[COPIES - 1] > sizes[0],
        "{sizes:?}"
    );
    let steps = Journal::open(&path).unwrap().replay().unwrap().steps;
    assert_eq!(u32::try_from(steps.len()).unwrap(), all);
}

#[test]
fn numbers_of_requests_that_came_after_the_copy_never_mean_others_in_it() {
    let (place, folder) = (Place::file(), tempfile::tempdir().unwrap());
    let mut journal = Journal::open(&place.path()).unwrap();
    let empty = empty_file(folder.path(), "empty");
    back_up(&place.path(), &empty).unwrap();
    let before = journal.insert_request(&request("before")).unwrap();
    journal
        .keep_depot(&DepotRecord {
            id: DepotId::new(0),
            name: "ash".into(),
            url: "https://127.0.0.1:1".into(),
            fingerprint: "sha256:00".into(),
            capacity: Bytes::mebi(1),
            rate_max: None,
            terms: DepotTerms::default(),
            prices: DepotPrices::default(),
            load_max_permille: None,
            level: 1,
            owner: None,
        })
        .unwrap();
    let copy = empty_file(folder.path(), "copy");
    assert_eq!(back_up(&place.path(), &copy).unwrap(), ["ash"]);
    let after = journal.insert_request(&request("after")).unwrap();
    let next = |copy| {
        let mut journal = Journal::open(copy).unwrap();
        let next = journal.insert_request(&request("restored")).unwrap();
        (journal.requests().unwrap().len(), next.get())
    };
    assert_eq!(next(&empty), (1, NUMBERS_LEFT_OUT + 1));
    assert_eq!(next(&copy), (2, before.get() + NUMBERS_LEFT_OUT + 1));
    assert_eq!(after.get(), before.get() + 1);
}

#[test]
fn where_processes_share_no_memory_the_file_is_locked_and_that_is_said() {
    let (place, folder) = (Place::file(), tempfile::tempdir().unwrap());
    symlink("/nowhere/at all", place.path().with_extension("db-shm")).unwrap();
    let mut journal = Journal::open(&place.path()).unwrap();
    journal.insert_request(&request("kept")).unwrap();
    let copy = empty_file(folder.path(), "copy");
    let error = back_up(&place.path(), &copy).unwrap_err().to_string();
    assert!(error.starts_with("can't copy the journal"), "{error}");
    assert!(Journal::open(&place.path()).is_err());
    drop(journal);
    let journal = Journal::open(&place.path()).unwrap();
    assert_eq!(journal.requests().unwrap().len(), 1);
}

#[test]
fn a_journal_that_is_open_on_another_host_is_not_touched() {
    let (place, folder) = (Place::file(), tempfile::tempdir().unwrap());
    let journal = Journal::open(&place.path()).unwrap();
    fs::write(place.path().with_extension("db-host"), "elsewhere\n").unwrap();
    let copy = empty_file(folder.path(), "copy");
    let error = back_up(&place.path(), &copy).unwrap_err().to_string();
    assert!(
        error.contains("a service on elsewhere has it open"),
        "{error}"
    );
    drop(journal);
    back_up(&place.path(), &copy).unwrap();
}

#[test]
fn what_is_no_journal_or_of_a_newer_release_is_refused_and_nothing_is_made_of_it() {
    let (place, folder) = (Place::file(), tempfile::tempdir().unwrap());
    let copy = empty_file(folder.path(), "copy");
    let refused = || back_up(&place.path(), &copy).unwrap_err().to_string();
    let error = refused();
    assert!(error.starts_with("can't copy the journal"), "{error}");
    assert!(!place.path().exists());
    fs::write(place.path(), "a letter to a friend, and no database at all").unwrap();
    assert!(refused().contains("not a database"), "{}", refused());
    fs::remove_file(place.path()).unwrap();
    drop(Journal::open(&place.path()).unwrap());
    place.run("UPDATE meta SET value = 1000000");
    assert!(
        refused().contains("newer than this posthaste"),
        "{}",
        refused()
    );
    assert_eq!(fs::metadata(&copy).unwrap().len(), 0);
}
