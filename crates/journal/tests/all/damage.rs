//! A damaged journal reports it: changed bytes are found, or nobody reads them.

use crate::support::places;
use crate::support::requests;

use std::{fs, path::Path};

use places::{Place, everywhere};
use posthaste_core::contract::{DepotPrices, DepotTerms, Event, Fault, Happening, Input, Reason};
use posthaste_journal::{
    ChunkRecord, DepotRecord, Journal, JournalError, Scan, Step, TokenRecord, TroubleKind, back_up,
};
use posthaste_types::{Bytes, ChunkIndex, DepotId, Digest, RequestId, Timestamp};
use requests::request;

const STEPS: u32 = 60;
const SNAPSHOTS: [u32; 2] = [20, 40];
/// Places in the file that are tried, each in two ways.
const FLIPS: usize = 500;

fn fill(journal: &mut Journal) {
    let depot = DepotRecord {
        id: DepotId::new(0),
        name: "campus".into(),
        url: "https://127.0.0.1:1".into(),
        fingerprint: "sha256:00".into(),
        capacity: Bytes::mebi(1),
        rate_max: None,
        terms: DepotTerms::default(),
        prices: DepotPrices::default(),
        load_max_permille: None,
        level: 1,
        owner: Some("ann".into()),
    };
    journal.keep_depot(&depot).unwrap();
    let token = TokenRecord {
        name: "ann".into(),
        hash: [7; 32],
        scope: "submit".into(),
        owner: Some("ann".into()),
        project: None,
        below: vec!["/home/ann".into()],
        profiles: Vec::new(),
        created: Timestamp::from_secs(1),
        expires: None,
    };
    assert!(journal.keep_token(&token).unwrap());
    let id = journal.insert_request(&request("00ff")).unwrap();
    let sealed = Scan::Sealed {
        bytes: Bytes::new(77),
        files: 2,
        chunk_size: Bytes::new(4),
    };
    journal.keep_scan(id, &sealed).unwrap();
    for number in 0..STEPS {
        append(journal, id, number);
    }
    journal.leave_out(id, &[3, 5, 3]).unwrap();
    journal.leave_out(id, &[5, 8]).unwrap();
}

fn append(journal: &mut Journal, request: RequestId, number: u32) {
    let at = Timestamp::from_secs(u64::from(number) + 1);
    let depots = number..number + number % 4;
    let inputs = depots.map(|depot| Input::DepotDown {
        depot: DepotId::new(depot),
        fault: Fault::Unreachable,
    });
    let event = Event {
        at,
        request: Some(request),
        depot: None,
        happening: Happening::Missed,
        reason: Reason::Asked,
    };
    let chunk = ChunkRecord {
        request,
        chunk: ChunkIndex::new(number),
        digests: vec![Digest::new([7; 32]); 3],
    };
    let step = Step {
        at,
        inputs: &inputs.collect::<Vec<_>>(),
        events: &[event],
        chunks: &[chunk],
        snapshot: SNAPSHOTS
            .contains(&number)
            .then(|| (0..200).map(|at| (at * number % 251) as u8).collect()),
        ..Step::default()
    };
    journal.append(&step).unwrap();
}

/// Reads everything that the service reads of it, as text.
fn all(journal: &Journal) -> Result<String, JournalError> {
    let request = RequestId::new(1);
    Ok(format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        journal.replay()?,
        journal.replay_all()?,
        journal.events(None, 0, u32::MAX)?,
        journal.chunks(request)?,
        journal.left_out(request)?,
        journal.requests()?,
        journal.depots()?,
        journal.tokens()?,
    ))
}

fn read(path: &Path) -> Result<String, JournalError> {
    all(&Journal::open(path)?)
}

#[test]
fn no_flipped_byte_of_a_file_is_silently_wrong() {
    let place = Place::file();
    fill(&mut place.open());
    let whole = read(&place.path()).unwrap();
    let bytes = fs::read(place.path()).unwrap();
    // Padding is mostly zeros.
    let written: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    let (mut found, mut harmless) = (0, 0);
    for flip in 0..FLIPS {
        let at = written[flip * written.len() / FLIPS];
        for mask in [0xff, 1 << (flip % 8)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("journal.db");
            let mut flipped = bytes.clone();
            flipped[at] ^= mask;
            fs::write(&path, flipped).unwrap();
            match read(&path) {
                Err(_) => found += 1,
                Ok(read) if read == whole => harmless += 1,
                Ok(other) => {
                    let alike = other.bytes().zip(whole.bytes());
                    let alike = alike.take_while(|(one, other)| one == other).count();
                    let [was, is] = [&whole, &other].map(|text| {
                        let from = alike.saturating_sub(60);
                        text.get(from..text.len().min(from + 200))
                    });
                    panic!("byte {at} with {mask:#x} is silently wrong: {is:?} for {was:?}")
                }
            }
        }
    }
    assert!(found > harmless, "{found} found, {harmless} harmless");
}

fn told(error: &JournalError) -> String {
    let JournalError::Database { cause, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(cause.kind(), TroubleKind::Damaged, "{error}");
    error.to_string()
}

#[test]
fn what_is_damaged_is_named() {
    // Step n + 1 has n % 4 inputs, or one row for passed time.
    let every_input = "SELECT seq FROM input WHERE step =";
    for (change, what) in [
        (
            format!("UPDATE input SET at_micros = at_micros + 1 WHERE seq IN ({every_input} 50)"),
            "step 50",
        ),
        (
            "DELETE FROM input WHERE seq = (SELECT max(seq) FROM input WHERE step = 52)".into(),
            "step 52",
        ),
        ("DELETE FROM input WHERE step = 53".into(), "step 53"),
        (
            "UPDATE input SET step = 99 WHERE step = 54".into(),
            "step 54",
        ),
        (
            "UPDATE input SET digest = NULL WHERE step = 55".into(),
            "step 55",
        ),
        (
            "UPDATE input SET record = (SELECT record FROM input WHERE seq = 2) WHERE step = 56"
                .into(),
            "step 56",
        ),
        (
            "DELETE FROM input WHERE step > 57".into(),
            "what follows step 57",
        ),
        (
            "UPDATE input SET digest = NULL WHERE step = 41".into(),
            "the snapshot after step 41",
        ),
        (
            "UPDATE snapshot SET record = digest".into(),
            "the snapshot after step 41",
        ),
        (
            "UPDATE event SET at_micros = 7 WHERE seq = 9".into(),
            "event 9",
        ),
        (
            "UPDATE chunk SET chunk = 99 WHERE chunk = 9".into(),
            "what is kept of chunk 99 of r1",
        ),
        (
            "UPDATE request SET destination = 'elsewhere'".into(),
            "what is kept of r1",
        ),
        (
            "UPDATE request SET ended = 'released'".into(),
            "what is kept of r1",
        ),
        (
            "UPDATE depot SET capacity = capacity + 1".into(),
            "what is kept of depot campus",
        ),
        (
            "UPDATE token SET scope = 'operate'".into(),
            "what is kept of token ann",
        ),
    ] {
        everywhere(|place| {
            fill(&mut place.open());
            place.run(&change);
            let error = told(&all(&place.open()).unwrap_err());
            let wanted = format!("{what} is damaged: it is not as it was written");
            assert!(error.contains(&wanted), "{change}: {error}");
        });
    }
}

#[test]
fn what_a_damaged_key_hides_is_missed() {
    everywhere(|place| {
        let request = RequestId::new(1);
        let chunks = "the list of chunks of r1 is damaged";
        fill(&mut place.open());
        place.run("UPDATE chunk SET request = 257 WHERE chunk = 9");
        let journal = place.open();
        assert!(told(&journal.chunks_read(request).unwrap_err()).contains(chunks));
        assert!(told(&journal.chunks(request).unwrap_err()).contains(chunks));
        drop(journal);
        place.run("UPDATE chunk SET request = 1 WHERE chunk = 9");
        place.run("UPDATE left_out SET request = 257 WHERE file = 5");
        let error = told(&all(&place.open()).unwrap_err());
        assert!(error.contains("the list of what was left out of r1 is damaged"));
        place.run("UPDATE row_sum SET held = held + 1");
        assert!(told(&all(&place.open()).unwrap_err()).contains(chunks));
    });
}

#[test]
fn chunks_from_before_sums_are_counted_with_the_next() {
    everywhere(|place| {
        fill(&mut place.open());
        let whole = all(&place.open()).unwrap();
        place.run("DELETE FROM row_sum");
        assert_eq!(all(&place.open()).unwrap(), whole);
        append(&mut place.open(), RequestId::new(1), STEPS);
        append(&mut place.open(), RequestId::new(1), STEPS);
        all(&place.open()).unwrap();
        place.run("UPDATE chunk SET request = 257 WHERE chunk = 9");
        assert!(told(&all(&place.open()).unwrap_err()).contains("the list of chunks of r1"));
    });
}

#[test]
fn a_step_before_the_snapshot_is_looked_at_by_a_backup() {
    let place = Place::file();
    fill(&mut place.open());
    let copy = place.path().with_extension("copy");
    fs::write(&copy, "").unwrap();
    assert_eq!(back_up(&place.path(), &copy).unwrap(), ["campus"]);
    assert_eq!(read(&copy).unwrap(), read(&place.path()).unwrap());
    place.run("UPDATE input SET at_micros = 7 WHERE step = 3");
    let journal = place.open();
    journal.replay().unwrap();
    assert!(told(&journal.replay_all().unwrap_err()).contains("step 3 is damaged"));
    fs::write(&copy, "").unwrap();
    let error = told(&back_up(&place.path(), &copy).unwrap_err());
    assert!(error.contains("step 3 is damaged"), "{error}");
}

#[test]
fn a_journal_from_before_digests_opens_and_has_them_from_then_on() {
    everywhere(|place| {
        fill(&mut place.open());
        let whole = all(&place.open()).unwrap();
        for table in [
            "input", "snapshot", "event", "chunk", "request", "depot", "token",
        ] {
            place.run(&format!("UPDATE {table} SET digest = NULL"));
        }
        place.run("DELETE FROM row_sum");
        place.run("DELETE FROM meta WHERE key = 'input'");
        assert_eq!(all(&place.open()).unwrap(), whole);
        append(&mut place.open(), RequestId::new(1), STEPS);
        append(&mut place.open(), RequestId::new(1), STEPS + 1);
        all(&place.open()).unwrap();
        place.run(&format!(
            "UPDATE input SET at_micros = 7 WHERE step = {}",
            STEPS + 1
        ));
        let error = told(&all(&place.open()).unwrap_err());
        assert!(error.contains(&format!("step {} is", STEPS + 1)), "{error}");
    });
}
