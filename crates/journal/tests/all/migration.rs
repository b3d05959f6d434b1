//! A journal migrated into a database is the same journal there.

use crate::support::places;
use crate::support::requests;

use places::Place;
use posthaste_core::contract::{DepotTerms, Event, Fault, Happening, Input, Reason};
use posthaste_journal::{
    ChunkRecord, DepotRecord, JobHold, JobPhase, JobRecord, Journal, PhaseName, RequestRecord,
    Scan, SqliteFile, Step,
};
use posthaste_types::{Bytes, ChunkIndex, DepotId, Digest, Timestamp};
use requests::request;

const STEPS: u32 = 3;
/// Inputs of each step: all steps together have more than go at once.
const INPUTS_OF_STEP: u32 = 500;

fn depot(name: &str) -> DepotRecord {
    DepotRecord {
        id: DepotId::new(0),
        name: name.into(),
        url: "https://127.0.0.1:1".into(),
        fingerprint: "sha256:00".into(),
        capacity: Bytes::mebi(1),
        rate_max: None,
        terms: DepotTerms::default(),
        prices: posthaste_core::contract::DepotPrices::default(),
        load_max_permille: Some(500),
        level: 1,
        owner: None,
    }
}

/// Returns a request whose texts are hard to copy.
fn odd_request(dataset: &str) -> RequestRecord {
    RequestRecord {
        submission: Some(dataset.into()),
        source: b"/scratch/\xff\n".to_vec(),
        destination: "it's \\ \"home\"".into(),
        release: true,
        drops_extras: false,
        ..request(dataset)
    }
}

fn job(number: u32) -> JobRecord {
    JobRecord {
        scheduler: "slurm".into(),
        job: number.to_string(),
        round: 1,
        uid: u32::MAX,
        gid: 100,
        script: "#!/bin/sh\n#POSTHASTE …\n".into(),
        phase: JobPhase::Gone,
        hold: JobHold::None,
        created: Timestamp::from_secs(number.into()),
    }
}

/// Fills a journal with something in each table; returns the number of a removed depot.
fn fill(journal: &mut Journal) -> DepotId {
    for name in ["campus", "west"] {
        journal.keep_depot(&depot(name)).unwrap();
    }
    let gone = journal.keep_depot(&depot("gone")).unwrap();
    journal.remove_depot(gone).unwrap();
    journal.source("/archive").unwrap();
    let id = journal.insert_request(&odd_request("00ff")).unwrap();
    let scan = Scan::Sealed {
        bytes: Bytes::new(u64::MAX / 4),
        files: 2,
        chunk_size: Bytes::new(4),
    };
    journal.keep_scan(id, &scan).unwrap();
    journal.keep_job(&job(12)).unwrap();
    for step in 0..STEPS {
        let numbers = step * INPUTS_OF_STEP..(step + 1) * INPUTS_OF_STEP;
        let inputs = numbers.clone().map(|number| Input::DepotDown {
            depot: DepotId::new(number),
            fault: Fault::Unreachable,
        });
        let events = numbers.clone().map(|number| Event {
            at: Timestamp::from_secs(9),
            request: (number % 2 == 0).then_some(id),
            depot: None,
            happening: Happening::Missed,
            reason: Reason::Asked,
        });
        let chunks = numbers.map(|number| ChunkRecord {
            request: id,
            chunk: ChunkIndex::new(number),
            digests: vec![Digest::new([7; 32])],
        });
        journal
            .append(&Step {
                at: Timestamp::from_secs(step.into()),
                inputs: &inputs.collect::<Vec<_>>(),
                events: &events.collect::<Vec<_>>(),
                chunks: &chunks.collect::<Vec<_>>(),
                snapshot: (step == 1).then(|| vec![1, 2, 3]),
                ..Step::default()
            })
            .unwrap();
    }
    gone
}

#[test]
fn a_journal_moves_into_a_database_whole_and_only_once() {
    let (file, database) = (Place::file(), Place::database());
    let gone = fill(&mut file.open());
    let before = file.open();
    let source = SqliteFile::open(&file.path());
    let in_use = source.unwrap_err().to_string();
    assert!(in_use.contains("locked"), "{in_use}");
    let (requests, depots) = (before.requests().unwrap(), before.depots().unwrap());
    let (jobs, events) = (
        before.jobs(None, &PhaseName::NOT_GONE, None).unwrap(),
        before.events(None, 0, 9999).unwrap(),
    );
    let chunks = before.chunks(requests[0].id).unwrap();
    let replay = before.replay().unwrap();
    let all = before.replay_all().unwrap();
    drop(before);

    let mut moved = database.open();
    let source = SqliteFile::open(&file.path()).unwrap();
    let counts = source.counts().unwrap();
    let inputs = STEPS * INPUTS_OF_STEP;
    let wanted = ("input".into(), inputs.into());
    assert!(counts.contains(&wanted), "{counts:?}");
    assert!(counts.contains(&("depot".into(), 2)), "{counts:?}");
    assert_eq!(source.copy_to(&moved).unwrap(), counts);
    for (table, rows) in &counts {
        let there = database.run(&format!("SELECT count(*) FROM {table}"));
        assert_eq!(there, rows.to_string(), "{table}");
    }
    assert_eq!(moved.requests().unwrap(), requests);
    assert_eq!(moved.depots().unwrap(), depots);
    assert_eq!(moved.jobs(None, &PhaseName::NOT_GONE, None).unwrap(), jobs);
    assert_eq!(moved.events(None, 0, 9999).unwrap(), events);
    assert_eq!(moved.chunks(requests[0].id).unwrap(), chunks);
    let moved_replay = moved.replay().unwrap();
    assert_eq!(moved_replay.snapshot, replay.snapshot);
    assert_eq!(moved_replay.steps, replay.steps);
    assert_eq!(moved.replay_all().unwrap().steps, all.steps);

    // The numbering continues: no number is used twice.
    assert!(moved.keep_depot(&depot("new")).unwrap() > gone);
    assert!(moved.insert_request(&odd_request("01")).unwrap() > requests[0].id);
    assert_ne!(
        moved.source("/archive").unwrap(),
        moved.source("/new").unwrap()
    );
    let first_event = moved.append(&Step::default()).unwrap();
    assert_eq!(first_event, u64::from(inputs) + 1);

    let again = source.copy_to(&moved).unwrap_err().to_string();
    assert!(again.contains("it is not empty"), "{again}");
    assert_eq!(moved.depots().unwrap().len(), 3, "something was copied");
    drop(source);
    assert_eq!(
        file.open().requests().unwrap(),
        requests,
        "the file changed"
    );
}

#[test]
fn what_is_no_journal_of_ours_is_not_moved() {
    let place = Place::file();
    place.run("CREATE TABLE letter (text TEXT)");
    let error = SqliteFile::open(&place.path()).unwrap_err().to_string();
    assert!(error.starts_with("can't open the journal"), "{error}");
    let newer = Place::file();
    drop(newer.open());
    newer.run("UPDATE meta SET value = 9999 WHERE key = 'schema'");
    let error = SqliteFile::open(&newer.path()).unwrap_err().to_string();
    assert!(error.contains("install a newer one"), "{error}");
}
