//! The journal against a real file and a real PostgreSQL: appended data is there after the process
//! is gone.

use crate::support::places;

use places::{Place, everywhere};
use posthaste_core::contract::{
    DepotTerms, Event, Fault, Happening, Input, Method, Reason, ReleasePolicy, RequestSpec, Wishes,
};
use posthaste_journal::{
    ChunkRecord, CredentialRecord, DepotRecord, HISTORY_WIDTHS, JobHold, JobPhase, JobRecord,
    Journal, JournalError, MovedRecord, OneFile, Patterns, PhaseName, RequestRecord, Scan, Scanned,
    StageIn, Step, TokenRecord,
};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, Code, DepotId, Digest, RequestId, Timestamp};

fn down(depot: u32) -> Input {
    Input::DepotDown {
        depot: DepotId::new(depot),
        fault: Fault::Unreachable,
    }
}

fn missed(request: u64) -> Event {
    Event {
        at: Timestamp::from_secs(9),
        request: Some(RequestId::new(request)),
        depot: None,
        happening: Happening::Missed,
        reason: Reason::Asked,
    }
}

#[test]
fn steps_come_back_in_order_in_their_batches_and_with_their_wakeups() {
    everywhere(|place| {
        let mut journal = place.open();
        for (at, inputs) in [
            (1, vec![down(1), down(2)]),
            (2, vec![]),
            (2, vec![down(3)]),
            (2, vec![down(4)]),
        ] {
            let at = Timestamp::from_secs(at);
            journal
                .append(&Step {
                    at,
                    inputs: &inputs,
                    ..Step::default()
                })
                .unwrap();
        }
        drop(journal);
        let replay = place.open().replay().unwrap();
        assert_eq!(replay.snapshot, None);
        assert_eq!(
            replay.steps,
            [
                (Timestamp::from_secs(1), vec![down(1), down(2)]),
                (Timestamp::from_secs(2), vec![]),
                (Timestamp::from_secs(2), vec![down(3)]),
                (Timestamp::from_secs(2), vec![down(4)]),
            ]
        );
    });
}

#[test]
fn only_steps_after_the_newest_snapshot_are_replayed() {
    everywhere(|place| {
        let mut journal = place.open();
        let at = Timestamp::from_secs(1);
        for number in 1..6 {
            let snapshot = (number % 2 == 0).then(|| vec![number]);
            let inputs = [down(number.into())];
            journal
                .append(&Step {
                    at,
                    inputs: &inputs,
                    snapshot,
                    ..Step::default()
                })
                .unwrap();
        }
        let replay = journal.replay().unwrap();
        assert_eq!(replay.snapshot, Some(vec![4]));
        assert_eq!(replay.steps, [(at, vec![down(5)])]);
        let all = journal.replay_all().unwrap();
        assert_eq!(all.snapshot, None);
        assert!(
            all.steps.len() > replay.steps.len(),
            "steps before the snapshot are lost"
        );
    });
}

#[test]
fn events_are_numbered_without_gaps_and_found_by_request() {
    everywhere(|place| {
        let mut journal = place.open();
        assert_eq!(journal.newest_event().unwrap(), 0);
        let first = journal.append(&Step {
            events: &[missed(1), missed(2)],
            ..Step::default()
        });
        let second = journal.append(&Step {
            events: &[missed(1)],
            ..Step::default()
        });
        assert_eq!((first.unwrap(), second.unwrap()), (1, 3));
        let all: Vec<u64> = journal
            .events(None, 0, 9)
            .unwrap()
            .iter()
            .map(|e| e.seq)
            .collect();
        assert_eq!(all, [1, 2, 3]);
        let of_one = journal.events(Some(RequestId::new(1)), 1, 9).unwrap();
        assert_eq!(
            of_one.iter().map(|e| e.seq).collect::<Vec<_>>(),
            [3],
            "another request's event"
        );
        assert_eq!(of_one[0].event, missed(1));
        assert_eq!(journal.events(None, 0, 2).unwrap().len(), 2);
        assert_eq!(journal.newest_event().unwrap(), 3);
    });
}

fn wishes() -> Wishes {
    Wishes {
        priority: "high".parse().unwrap(),
        owner: "ann".into(),
        project: "climate".into(),
        ..Wishes::default()
    }
}

fn request() -> RequestRecord {
    RequestRecord {
        id: RequestId::new(0),
        submission: Some("mine".into()),
        dataset: "00ff".into(),
        source: b"/scratch/\xff\n".to_vec(),
        only: vec!["a,b".into(), "c\n".into()],
        patterns: Patterns {
            include: vec!["*.nc".into()],
            exclude: vec!["/logs/**".into()],
        },
        named: Some(Digest::new([7; 32])),
        destination: "home".into(),
        code: Code::new(2, 1).unwrap(),
        via: vec!["a".into(), "b".into()],
        pinned: Vec::new(),
        recipients: vec!["age1x".into(), "age1y".into()],
        release: true,
        drops_extras: true,
        best_effort: false,
        optimizer: Method::Promc,
        wishes: wishes(),
        stage_in: Some(StageIn {
            sources: vec!["s3://bucket/run 7".into(), "/archive/run,7".into()],
            profile: Some("lab".into()),
            not_before: Some(Timestamp::from_secs(7)),
            rate_max: None,
        }),
        lent: Vec::new(),
        one_file: Some(OneFile {
            replaces: true,
            profile: None,
            verify: false,
            checksum: Some("md5:00".into()),
        }),
        created: Timestamp::from_secs(1),
        deadline: Timestamp::from_secs(2),
        purge_at: Some(Timestamp::from_secs(77)),
        expires: Timestamp::from_secs(3),
        scan: None,
        submitted: false,
        ended: None,
    }
}

fn spec() -> RequestSpec {
    RequestSpec {
        bytes: Bytes::new(10),
        files: 2,
        chunk_size: Bytes::new(4),
        deadline: Timestamp::from_secs(2),
        code: Code::NONE,
        via: vec![],
        destinations: Vec::new(),
        release: ReleasePolicy::Never,
        best_effort: false,
    }
}

#[test]
fn what_ends_a_request_before_the_mind_heard_of_it_is_an_event_among_others() {
    everywhere(|place| {
        let mut journal = place.open();
        let id = journal.insert_request(&request()).unwrap();
        let step = |journal: &mut Journal| {
            let events = &[missed(7)];
            let step = Step {
                events,
                ..Step::default()
            };
            journal.append(&step).unwrap()
        };
        assert_eq!(step(&mut journal), 1);
        let cancelled = Event {
            happening: Happening::Cancelled,
            ..missed(id.get())
        };
        let scanned = Scanned {
            request: id,
            scan: Scan::cancelled(),
            list: None,
            event: Some(cancelled.clone()),
        };
        journal.keep_scans(&[scanned]).unwrap();
        assert_eq!(step(&mut journal), 3);
        drop(journal);
        let journal = place.open();
        assert_eq!(journal.newest_event().unwrap(), 3);
        let heard = journal.events(Some(id), 0, 9).unwrap();
        let heard: Vec<_> = heard
            .iter()
            .map(|record| (record.seq, &record.event))
            .collect();
        assert_eq!(heard, [(2, &cancelled)]);
        assert_eq!(journal.replay().unwrap().steps.len(), 2);
        let ended = journal.request(id).unwrap().unwrap().ended;
        assert_eq!(ended.as_deref(), Some("cancelled"));
    });
}

#[test]
fn a_request_comes_back_with_its_scan_and_its_digests() {
    everywhere(|place| {
        let mut journal = place.open();
        let mut request = request();
        request.id = journal.insert_request(&request).unwrap();
        assert!(
            journal.insert_request(&request).is_err(),
            "the submission id was taken twice"
        );
        assert_eq!(journal.request(request.id).unwrap(), Some(request.clone()));
        let scan = Scan::Sealed {
            bytes: Bytes::new(10),
            files: 2,
            chunk_size: Bytes::new(4),
        };
        let list = Some(b"a small list".to_vec());
        let scanned = Scanned {
            request: request.id,
            scan: scan.clone(),
            list: list.clone(),
            event: None,
        };
        assert_eq!(journal.small_list(request.id).unwrap(), None);
        // Twice, as after a crash in between.
        journal.keep_scans(&[scanned.clone(), scanned]).unwrap();
        assert_eq!(journal.small_list(request.id).unwrap(), list);
        request.scan = Some(scan);
        assert_eq!(journal.submission("mine").unwrap(), Some(request.clone()));
        assert_eq!(journal.requests().unwrap(), [request.clone()]);
        let chunk = ChunkRecord {
            request: request.id,
            chunk: ChunkIndex::new(1),
            digests: vec![Digest::new([7; 32]), Digest::new([8; 32])],
        };
        journal
            .append(&Step {
                chunks: std::slice::from_ref(&chunk),
                ..Step::default()
            })
            .unwrap();
        assert_eq!(journal.chunks(request.id).unwrap(), [chunk]);
    });
}

#[test]
fn what_a_start_looks_at_is_found_among_all() {
    everywhere(|place| {
        let mut journal = place.open();
        let mut insert = |name: &str, is_stage_in: bool, is_encrypted: bool| {
            let mut one = request();
            (one.submission, one.dataset) = (Some(name.into()), name.into());
            one.stage_in = one.stage_in.filter(|_| is_stage_in);
            one.recipients.retain(|_| is_encrypted);
            journal.insert_request(&one).unwrap()
        };
        let plain = insert("plain", false, false);
        let encrypted = insert("encrypted", false, true);
        let stage_in = insert("stage-in", true, false);
        let ids = |found: Vec<RequestRecord>| found.iter().map(|one| one.id).collect::<Vec<_>>();
        assert_eq!(
            ids(journal.untold_requests().unwrap()),
            [plain, encrypted, stage_in]
        );
        assert_eq!(ids(journal.stage_ins().unwrap()), [stage_in]);
        assert_eq!(ids(journal.encrypted_requests().unwrap()), [encrypted]);
    });
}

#[test]
fn requests_are_found_by_their_path_page_and_dataset() {
    everywhere(|place| {
        let mut journal = place.open();
        let mut insert = |name: &str, to: &str, is_stage_in: bool| {
            let mut one = request();
            (one.submission, one.dataset) = (Some(name.into()), name.into());
            one.destination = to.into();
            one.stage_in = one.stage_in.filter(|_| is_stage_in);
            journal.insert_request(&one).unwrap()
        };
        let first = insert("first", "/scratch/a", true);
        insert("elsewhere", "/scratch/b", true);
        insert("out", "/scratch/a", false);
        let second = insert("second", "/scratch/a", true);
        let ids = |most| {
            let found = journal.stage_ins_to("/scratch/a", most).unwrap();
            found.iter().map(|one| one.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(9), [second, first]);
        assert_eq!(ids(1), [second]);
        let page = |before, most| {
            let found = journal.requests_before(before, most).unwrap();
            found.iter().map(|one| one.id.get()).collect::<Vec<_>>()
        };
        assert_eq!(page(None, 3), [4, 3, 2]);
        assert_eq!(page(Some(RequestId::new(2)), 3), [1]);
        assert_eq!(page(Some(first), 3), [0; 0]);
        let among = |ids: &[u64]| {
            let ids: Vec<_> = ids.iter().copied().map(RequestId::new).collect();
            let found = journal.requests_among(&ids).unwrap();
            found.iter().map(|one| one.id.get()).collect::<Vec<_>>()
        };
        assert_eq!(among(&[]), [0; 0]);
        assert_eq!(among(&[3]), [3]);
        assert_eq!(among(&[2, 9, 4]), [4, 2]);
        let many: Vec<u64> = (1..=1500).collect();
        assert_eq!(among(&many), [4, 3, 2, 1]);
        let of = |dataset| journal.request_of_dataset(dataset).unwrap();
        assert_eq!(of("second").map(|one| one.id), Some(second));
        assert_eq!(of("nowhere"), None);
    });
}

fn job(number: u64, phase: JobPhase) -> JobRecord {
    JobRecord {
        scheduler: (if number.is_multiple_of(2) {
            "slurm"
        } else {
            "pbs"
        })
        .into(),
        job: number.to_string(),
        round: 0,
        uid: 1000,
        gid: 100,
        script: String::new(),
        phase,
        created: Timestamp::from_secs(number),
        hold: JobHold::None,
    }
}

#[test]
fn jobs_are_found_by_how_far_they_are() {
    everywhere(|place| {
        let mut journal = place.open();
        let at = Timestamp::from_secs(9);
        for (number, phase) in [
            (1, JobPhase::Registered),
            (2, JobPhase::StagingIn),
            (3, JobPhase::Ended { well: true, at }),
            (4, JobPhase::Ended { well: false, at }),
            (5, JobPhase::Gone),
        ] {
            journal.keep_job(&job(number, phase)).unwrap();
        }
        let found = |scheduler, phases: &[PhaseName], most| {
            let jobs = journal.jobs(scheduler, phases, most).unwrap();
            jobs.into_iter()
                .map(|one| one.job)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(found(None, &PhaseName::BEFORE_THE_END, None), "2 1");
        assert_eq!(found(None, &PhaseName::NOT_GONE, None), "4 3 2 1");
        assert_eq!(found(None, &PhaseName::NOT_GONE, Some(1)), "4");
        assert_eq!(found(Some("pbs"), &PhaseName::NOT_GONE, None), "3 1");
        assert_eq!(
            found(None, &[PhaseName::Gone, PhaseName::Ended], None),
            "5 4 3"
        );
        assert_eq!(journal.count_jobs(&PhaseName::NOT_GONE).unwrap(), 4);
    });
}

#[test]
fn the_oldest_jobs_that_are_gone_are_forgotten_and_no_other() {
    everywhere(|place| {
        let mut journal = place.open();
        journal.keep_job(&job(1, JobPhase::StagingIn)).unwrap();
        let oldest = JobRecord {
            round: 7,
            ..job(2, JobPhase::Gone)
        };
        journal.keep_job(&oldest).unwrap();
        drop(journal);
        // Simulates 9,999 others that went since.
        place.run(
            "WITH RECURSIVE others (number) AS (SELECT 3 UNION ALL SELECT number + 1 FROM others WHERE number < 10001)
             INSERT INTO job (scheduler, job, round, uid, gid, script, phase, created_micros, hold)
             SELECT 'slurm', CAST(number AS TEXT), 3, 0, 0, '', 4, CAST(number AS BIGINT) * 1000000, 0 FROM others",
        );
        let mut journal = place.open();
        assert_eq!(journal.job("slurm", "2").unwrap(), Some(oldest));
        assert_eq!(journal.first_round("slurm").unwrap(), 0);
        journal.keep_job(&job(20_000, JobPhase::Gone)).unwrap();
        assert_eq!(journal.job("slurm", "2").unwrap(), None);
        assert_eq!(journal.count_jobs(&[PhaseName::Gone]).unwrap(), 10_000);
        assert_eq!(journal.count_jobs(&PhaseName::NOT_GONE).unwrap(), 1);
        journal.keep_job(&job(20_002, JobPhase::Gone)).unwrap();
        assert_eq!(journal.job("slurm", "3").unwrap(), None);
        // A job with the id of a removed one asks for its data under a new name.
        assert_eq!(journal.first_round("slurm").unwrap(), 8);
        assert_eq!(journal.first_round("pbs").unwrap(), 0);
    });
}

#[test]
fn how_a_request_went_outlives_the_mind() {
    everywhere(|place| {
        let mut journal = place.open();
        let id = journal.insert_request(&request()).unwrap();
        let submitted = [Input::RequestSubmitted {
            request: id,
            spec: spec(),
        }];
        journal
            .append(&Step {
                inputs: &submitted,
                ..Step::default()
            })
            .unwrap();
        let found = journal.request(id).unwrap().unwrap();
        assert_eq!((found.submitted, found.ended), (true, None));
        assert_eq!(journal.untold_requests().unwrap(), []);
        let mut event = missed(id.get());
        event.happening = Happening::Released;
        journal
            .append(&Step {
                events: &[event],
                ..Step::default()
            })
            .unwrap();
        assert_eq!(
            journal.request(id).unwrap().unwrap().ended.as_deref(),
            Some("released")
        );
    });
}

#[test]
fn a_depot_keeps_its_number_when_its_facts_change() {
    everywhere(|place| {
        let mut journal = place.open();
        let mut depot = DepotRecord {
            id: DepotId::new(0),
            name: "campus".into(),
            url: "https://127.0.0.1:1".into(),
            fingerprint: "sha256:00".into(),
            capacity: Bytes::mebi(1),
            rate_max: Some(ByteRate::new(5)),
            terms: DepotTerms {
                windows: "20-06".parse().unwrap(),
                domain: "north".into(),
                ..DepotTerms::default()
            },
            prices: posthaste_core::contract::DepotPrices::default(),
            load_max_permille: Some(500),
            level: 2,
            owner: Some("alice".into()),
        };
        depot.id = journal.keep_depot(&depot).unwrap();
        depot.url = "https://127.0.0.1:2".into();
        assert_eq!(journal.keep_depot(&depot).unwrap(), depot.id);
        assert_eq!(journal.depots().unwrap(), [depot.clone()]);
        journal.remove_depot(depot.id).unwrap();
        assert_eq!(journal.depots().unwrap(), []);
        assert_ne!(
            journal.keep_depot(&depot).unwrap(),
            depot.id,
            "a number was reused"
        );
    });
}

#[test]
fn tokens_are_kept_by_name_until_they_are_removed() {
    everywhere(|place| {
        let token = |name: &str, hash: u8| TokenRecord {
            name: name.into(),
            hash: [hash; 32],
            scope: "submit".into(),
            owner: Some("alice".into()),
            project: None,
            below: vec!["/scratch/alice".into(), "/data/a \u{e9}".into()],
            profiles: vec!["archive".into(), "lab".into()],
            created: Timestamp::from_secs(5),
            expires: Some(Timestamp::from_secs(9)),
        };
        let plain = TokenRecord {
            owner: Some("alice".into()),
            below: Vec::new(),
            profiles: Vec::new(),
            expires: None,
            ..token("a", 2)
        };
        let mut journal = place.open();
        assert!(journal.keep_token(&token("b", 1)).unwrap());
        assert!(!journal.keep_token(&token("b", 3)).unwrap());
        assert!(journal.keep_token(&plain).unwrap());
        assert_eq!(journal.tokens().unwrap(), [plain.clone(), token("b", 1)]);
        assert!(journal.remove_token("b").unwrap());
        assert!(!journal.remove_token("b").unwrap());
        assert_eq!(journal.tokens().unwrap(), [plain]);
    });
}

#[test]
fn credentials_are_kept_by_owner_and_name_until_they_are_removed() {
    everywhere(|place| {
        let credential = |owner: &str, sealed: &[u8]| CredentialRecord {
            owner: owner.into(),
            name: "archive".into(),
            sealed: sealed.to_vec(),
            created: Timestamp::from_secs(1),
        };
        let mut journal = place.open();
        for (owner, sealed) in [
            ("bob", b"\x00one"),
            ("alice", b"\xfftwo"),
            ("bob", b"\x00new"),
        ] {
            journal.keep_credential(&credential(owner, sealed)).unwrap();
        }
        let (alice, bob) = (
            credential("alice", b"\xfftwo"),
            credential("bob", b"\x00new"),
        );
        assert_eq!(journal.credentials().unwrap(), [alice.clone(), bob]);
        assert!(journal.remove_credential("bob", "archive").unwrap());
        assert!(!journal.remove_credential("bob", "archive").unwrap());
        assert_eq!(journal.credentials().unwrap(), [alice]);
    });
}

/// Statements that undo each migration after the first, in their order.
const BACK: [&str; 28] = [
    "ALTER TABLE request DROP COLUMN recipients;",
    "ALTER TABLE request DROP COLUMN optimizer;",
    "ALTER TABLE depot DROP COLUMN terms;",
    "ALTER TABLE request DROP COLUMN wishes;",
    "ALTER TABLE depot DROP COLUMN level;",
    "ALTER TABLE request DROP COLUMN stage_in; DROP TABLE source;",
    "ALTER TABLE request DROP COLUMN purge_micros;",
    "DROP TABLE job;",
    "DROP INDEX request_of_destination;",
    "DROP INDEX job_watched; ALTER TABLE job DROP COLUMN hold;",
    "ALTER TABLE request DROP COLUMN only_files;",
    "DROP TABLE outcome;",
    "DROP INDEX job_of_phase; DROP TABLE job_round;",
    "ALTER TABLE request DROP COLUMN pinned;",
    "ALTER TABLE depot DROP COLUMN prices;",
    "DROP TABLE token;",
    "ALTER TABLE request DROP COLUMN one_file; DROP TABLE fts_file; DROP TABLE fts_job;",
    "DROP TABLE small_list;",
    "ALTER TABLE request DROP COLUMN named;",
    "DROP TABLE moved;",
    "DROP TABLE credential;",
    "ALTER TABLE request DROP COLUMN lent;",
    "ALTER TABLE depot DROP COLUMN load_max_permille;",
    "ALTER TABLE request DROP COLUMN patterns;",
    "ALTER TABLE input DROP COLUMN digest; ALTER TABLE snapshot DROP COLUMN digest;
    ALTER TABLE event DROP COLUMN digest; ALTER TABLE chunk DROP COLUMN digest;
    ALTER TABLE request DROP COLUMN digest; ALTER TABLE depot DROP COLUMN digest;
    ALTER TABLE token DROP COLUMN digest; DELETE FROM meta WHERE key = 'input';",
    "DROP TABLE left_out;",
    "ALTER TABLE depot DROP COLUMN owner;",
    "DROP TABLE row_sum;",
];

/// Turns a journal into one of an older schema.
fn make_older(place: &Place, schema: usize) {
    let newest = place.run("SELECT value FROM meta WHERE key = 'schema'");
    let message = "every migration has what takes it back";
    assert_eq!(newest, (BACK.len() + 1).to_string(), "{message}");
    for back in BACK[schema - 1..].iter().rev() {
        place.run(back);
    }
    place.run(&format!(
        "UPDATE meta SET value = {schema} WHERE key = 'schema'"
    ));
}

#[test]
fn what_was_moved_adds_up_in_each_width_and_what_is_old_is_forgotten() {
    let [minutes, hours, days] = HISTORY_WIDTHS.map(|(width, _)| width);
    let at = |day: u64, second: u64| Timestamp::from_secs(20_000 * 86_400 + day * 86_400 + second);
    let moved = |path: &str, at, bytes| MovedRecord {
        path: path.into(),
        at,
        bytes: Bytes::new(bytes),
    };
    let all = (Timestamp::from_secs(0), at(9999, 0));
    everywhere(|place| {
        let mut journal = place.open();
        let first = [moved("ash", at(0, 61), 5), moved("s3://b", at(0, 61), 7)];
        journal.keep_moved(&first, at(0, 62)).unwrap();
        let more = [moved("ash", at(0, 100), 3), moved("ash", at(0, 7200), 1)];
        journal.keep_moved(&more, at(0, 7260)).unwrap();
        drop(journal);
        let mut journal = place.open();
        let ash = |width| journal.moved(Some("ash"), width, all).unwrap();
        assert_eq!(
            ash(minutes),
            [moved("ash", at(0, 60), 8), moved("ash", at(0, 7200), 1)]
        );
        assert_eq!(
            ash(hours),
            [moved("ash", at(0, 0), 8), moved("ash", at(0, 7200), 1)]
        );
        assert_eq!(ash(days), [moved("ash", at(0, 0), 9)]);
        let early = (at(0, 0), at(0, 120));
        let both = [moved("ash", at(0, 60), 8), moved("s3://b", at(0, 60), 7)];
        assert_eq!(journal.moved(None, minutes, early).unwrap(), both);
        let count = |journal: &Journal, width| journal.moved(None, width, all).unwrap().len();
        journal.keep_moved(&[], at(2, 0)).unwrap();
        assert_eq!((count(&journal, minutes), count(&journal, hours)), (0, 3));
        journal.keep_moved(&[], at(40, 0)).unwrap();
        assert_eq!((count(&journal, hours), count(&journal, days)), (0, 2));
        journal.keep_moved(&[], at(800, 0)).unwrap();
        assert_eq!(count(&journal, days), 0);
    });
}

#[test]
fn a_journal_from_before_encryption_is_taken_over() {
    everywhere(|place| {
        let mut journal = place.open();
        let mut before = request();
        before.id = journal.insert_request(&before).unwrap();
        drop(journal);
        make_older(place, 1);
        before.recipients.clear();
        before.optimizer = Method::Auto;
        before.wishes = Wishes::default();
        (before.stage_in, before.purge_at) = (None, None);
        before.one_file = None;
        before.only.clear();
        before.named = None;
        before.patterns = Patterns::default();
        let journal = place.open();
        assert_eq!(journal.request(before.id).unwrap(), Some(before));
    });
}

#[test]
fn every_optimizer_is_read_back() {
    everywhere(|place| {
        let mut journal = place.open();
        let fixed = "fixed:8,1,1".parse().unwrap();
        let named = Method::NAMES.map(|(_, method)| method);
        for optimizer in named.into_iter().chain([fixed]) {
            let name = optimizer.to_string();
            let id = journal.insert_request(&RequestRecord {
                submission: None,
                dataset: name.clone(),
                optimizer,
                ..request()
            });
            let found = journal.request(id.unwrap()).unwrap().unwrap();
            assert_eq!(found.optimizer, optimizer, "{name}");
        }
    });
}

#[test]
fn a_journal_from_before_optimizers_is_taken_over() {
    everywhere(|place| {
        let mut before = request();
        before.id = place.open().insert_request(&before).unwrap();
        make_older(place, 2);
        before.optimizer = Method::Auto;
        before.wishes = Wishes::default();
        (before.stage_in, before.purge_at) = (None, None);
        before.one_file = None;
        before.only.clear();
        before.named = None;
        before.patterns = Patterns::default();
        let journal = place.open();
        assert_eq!(journal.request(before.id).unwrap(), Some(before));
    });
}

#[test]
fn a_depot_from_before_terms_is_lent_without_any() {
    everywhere(|place| {
        let mut depot = DepotRecord {
            id: DepotId::new(0),
            name: "campus".into(),
            url: "https://127.0.0.1:1".into(),
            fingerprint: "sha256:00".into(),
            capacity: Bytes::mebi(1),
            rate_max: None,
            terms: DepotTerms {
                is_landmark: true,
                ..DepotTerms::default()
            },
            prices: posthaste_core::contract::DepotPrices::default(),
            load_max_permille: Some(500),
            level: 2,
            owner: None,
        };
        depot.id = place.open().keep_depot(&depot).unwrap();
        make_older(place, 3);
        depot.terms = DepotTerms::default();
        depot.level = 1;
        depot.load_max_permille = None;
        depot.owner = None;
        assert_eq!(place.open().depots().unwrap(), [depot]);
    });
}

#[test]
fn a_second_decision_maker_is_refused() {
    let place = Place::file();
    let path = place.path();
    let _first = Journal::open(&path).unwrap();
    let second = Journal::open(&path).unwrap_err();
    assert!(matches!(second, JournalError::Database { .. }), "{second}");
    assert!(second.to_string().contains("locked"), "{second}");
}

#[test]
fn a_file_that_is_no_journal_is_refused_in_one_line() {
    let place = Place::file();
    let path = place.path();
    std::fs::write(&path, "this is no database, it is a letter to a friend").unwrap();
    let error = Journal::open(&path).unwrap_err().to_string();
    assert!(error.starts_with("can't open the journal"), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn a_file_that_anybody_can_write_to_is_no_journal() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::file();
    drop(place.open());
    let set_mode = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(place.path(), permissions).unwrap();
    };
    set_mode(0o666);
    let refused = Journal::open(&place.path()).err().unwrap().to_string();
    assert!(
        refused.contains("others can write to it (mode 0666)"),
        "{refused}"
    );
    set_mode(0o664);
    drop(place.open());
}
