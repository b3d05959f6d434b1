//! Only one decision maker at a time: a process that lost the lease can change nothing, whatever it
//! still believes.

use crate::support::places;
use crate::support::requests;

use std::{thread, time::Duration};

use places::{LONG, Place, address, want};
use posthaste_core::contract::{DepotTerms, Fault, Input};
use posthaste_journal::{
    ChunkRecord, DatabaseUrl, DepotRecord, Epoch, JobHold, JobPhase, JobRecord, Journal,
    JournalError, Lease, PhaseName, Scan, Step, TroubleKind,
};
use posthaste_testbed::PostgresServer;
use posthaste_types::{Bytes, ChunkIndex, DepotId, Digest, Timestamp};
use requests::request;
use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, pem::PemObject};

/// Time between two looks, and lifetime of leases in these tests.
const SHORT: Duration = Duration::from_millis(50);
/// Most looks until something counts as never happening: five minutes.
const LOOKS_MAX: u32 = 6_000;

/// Takes a lease as soon as it is free.
fn take_over(lease: &mut Lease) -> Epoch {
    for _ in 0..LOOKS_MAX {
        if let Some(epoch) = lease.acquire().unwrap() {
            return epoch;
        }
        lease.wait(SHORT);
    }
    panic!("the lease never expired");
}

fn down(depot: u32) -> Input {
    Input::DepotDown {
        depot: DepotId::new(depot),
        fault: Fault::Unreachable,
    }
}

fn append(journal: &mut Journal, depot: u32) -> Result<u64, JournalError> {
    journal.append(&Step {
        at: Timestamp::from_secs(1),
        inputs: &[down(depot)],
        ..Step::default()
    })
}

/// Returns the depots of all inputs.
fn appended(journal: &Journal) -> Vec<Input> {
    let steps = journal.replay_all().unwrap().steps;
    steps.into_iter().flat_map(|(_, inputs)| inputs).collect()
}

fn is_lost<T>(outcome: Result<T, JournalError>) -> bool {
    matches!(outcome, Err(JournalError::Lost { .. }))
}

fn depot() -> DepotRecord {
    DepotRecord {
        id: DepotId::new(0),
        name: "campus".into(),
        url: "https://127.0.0.1:1".into(),
        fingerprint: "sha256:00".into(),
        capacity: Bytes::mebi(1),
        rate_max: None,
        terms: DepotTerms::default(),
        prices: posthaste_core::contract::DepotPrices::default(),
        load_max_permille: None,
        level: 1,
        owner: None,
    }
}

fn job() -> JobRecord {
    JobRecord {
        scheduler: "slurm".into(),
        job: "12".into(),
        round: 0,
        uid: 1000,
        gid: 100,
        script: String::new(),
        phase: JobPhase::Registered,
        hold: JobHold::None,
        created: Timestamp::from_secs(1),
    }
}

#[test]
fn a_lease_is_one_holders_until_it_gives_it_back() {
    let place = Place::database();
    let address = place.address();
    let mut first = want(&address, "first", LONG);
    let mut second = want(&address, "second", LONG);
    let epoch = first.acquire().unwrap().unwrap();
    assert_eq!(second.acquire().unwrap(), None);
    let holder = second.holder().unwrap();
    assert_eq!(holder, Some(("first".to_owned(), String::new())));
    assert!(is_lost(second.renew()), "renewed what it never had");
    first.renew().unwrap();

    // A waiting process is woken: the lease would last for an hour.
    let waiting = thread::spawn(move || {
        second.wait(LONG);
        (take_over(&mut second), second)
    });
    first.release().unwrap();
    let (later, second) = waiting.join().unwrap();
    assert!(later > epoch, "{later:?} after {epoch:?}");
    assert!(is_lost(first.renew()));
    assert_eq!(first.acquire().unwrap(), None);
    second.renew().unwrap();
}

#[test]
fn a_holder_that_is_known_to_be_over_is_not_waited_for() {
    let place = Place::database();
    let address = place.address();
    let mut first = want(&address, "first", LONG).living("a life".to_owned());
    let mut second = want(&address, "second", LONG);
    first.acquire().unwrap().unwrap();
    for other in ["", "another life"] {
        assert_eq!(second.acquire_after(other).unwrap(), None, "{other:?}");
    }
    second.acquire_after("a life").unwrap().unwrap();
    assert!(is_lost(first.renew()));
    // An unknown life matches nothing: an empty one is none.
    assert_eq!(first.acquire_after("").unwrap(), None);
}

#[test]
fn a_holder_that_slept_too_long_can_change_nothing() {
    let place = Place::database();
    let address = place.address();
    let mut sleeper = want(&address, "sleeper", SHORT);
    let epoch = take_over(&mut sleeper);
    let mut old = Journal::open_database(&address, epoch).unwrap();
    append(&mut old, 1).unwrap();
    let kept = old.insert_request(&request("00ff")).unwrap();
    let depots = old.keep_depot(&depot()).unwrap();

    // The lease has expired, but is nobody else's yet: its decisions still count.
    let mut other = want(&address, "other", LONG);
    let later = take_over(&mut other);
    let mut new = Journal::open_database(&address, later).unwrap();

    assert!(is_lost(append(&mut old, 2)));
    assert!(is_lost(old.insert_request(&request("00ff"))));
    assert!(is_lost(old.keep_scan(
        kept,
        &Scan::Failed {
            code: "not-found".into(),
            error: String::new()
        }
    )));
    assert!(is_lost(old.keep_depot(&depot())));
    assert!(is_lost(old.remove_depot(depots)));
    assert!(is_lost(old.keep_job(&job())));
    assert!(is_lost(old.source("/archive")));
    assert!(is_lost(old.keep_chunks(&[ChunkRecord {
        request: kept,
        chunk: ChunkIndex::new(0),
        digests: vec![Digest::new([1; 32])],
    }])));
    let mut is_done = false;
    assert!(is_lost(old.while_leading(|| is_done = true)));
    assert!(!is_done, "it was done all the same");
    assert!(is_lost(sleeper.renew()));
    assert!(is_lost(Journal::open_database(&address, epoch)));
    sleeper.release().unwrap();
    other.renew().unwrap();

    new.while_leading(|| is_done = true).unwrap();
    assert!(is_done);
    append(&mut new, 3).unwrap();
    assert_eq!(appended(&new), [down(1), down(3)]);
    assert_eq!(new.requests().unwrap().len(), 1);
    assert_eq!(new.request(kept).unwrap().unwrap().scan, None);
    assert_eq!(new.depots().unwrap().len(), 1);
    assert_eq!(new.jobs(None, &PhaseName::NOT_GONE, None).unwrap(), []);
    assert_eq!(new.chunks(kept).unwrap(), []);
    assert_eq!(place.run("SELECT count(*) FROM source"), "0");
}

#[test]
fn who_stops_in_the_middle_of_a_transaction_keeps_nobody_from_the_lease() {
    let place = Place::database();
    let address = place.address();
    let mut first = want(&address, "first", SHORT);
    let epoch = take_over(&mut first);
    let mut old = Journal::open_database(&address, epoch).unwrap();
    let mut second = want(&address, "second", LONG);
    let mut later = None;
    let stopped = old.while_leading(|| {
        for _ in 0..LOOKS_MAX {
            // The wait for the lock of the first has a limit.
            later = second.acquire().unwrap_or_default();
            if later.is_some() {
                break;
            }
        }
    });
    assert!(later.unwrap() > epoch);
    assert!(stopped.is_err(), "it was committed after all");
    assert!(is_lost(append(&mut old, 1)));
}

#[test]
fn who_holds_the_lease_goes_on_after_its_database_was_killed() {
    let mut server = PostgresServer::start().unwrap();
    let name = server.new_database().unwrap();
    let address = address(&server, &name);
    let mut lease = want(&address, "holder", LONG);
    let epoch = lease.acquire().unwrap().unwrap();
    let mut journal = Journal::open_database(&address, epoch).unwrap();
    append(&mut journal, 1).unwrap();

    server.kill().unwrap();
    for error in [
        append(&mut journal, 2).unwrap_err(),
        lease.renew().unwrap_err(),
        Lease::want(&address, "other", LONG).unwrap_err(),
    ] {
        let JournalError::Database { cause, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(cause.kind(), TroubleKind::Unreachable, "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }

    server.restart().unwrap();
    let mut other = want(&address, "other", LONG);
    assert_eq!(other.acquire().unwrap(), None, "the lease was forgotten");
    lease.renew().unwrap();
    append(&mut journal, 3).unwrap();
    assert_eq!(appended(&journal), [down(1), down(3)]);
}

#[test]
fn a_database_that_does_not_know_us_says_so() {
    let place = Place::database();
    let Place::Database(name) = &place else {
        panic!("it is a database");
    };
    let server = PostgresServer::shared().unwrap();
    let parse = |url: &str| DatabaseUrl::parse(url, None).unwrap();
    let guarded = parse(&server.loopback_url(name));
    let refused = |address: &DatabaseUrl| {
        let error = Lease::want(address, "a test", LONG).unwrap_err();
        let JournalError::Database { cause, .. } = &error else {
            panic!("{error}");
        };
        (cause.kind(), error.to_string())
    };
    let (kind, line) = refused(&guarded);
    assert_eq!(kind, TroubleKind::Denied, "{line}");
    let (kind, line) = refused(&guarded.clone().with_password("wrong"));
    assert_eq!(kind, TroubleKind::Denied, "{line}");
    assert!(!line.contains("wrong"), "{line}");
    let (_, line) = refused(&parse(&server.url("nowhere")));
    assert!(line.contains("\"nowhere\" does not exist"), "{line}");
    want(&guarded.with_password(PostgresServer::PASSWORD), "a", LONG);
}

/// Trusts the authority in this file, in PEM.
fn trusting(address: DatabaseUrl, authority: &[u8]) -> DatabaseUrl {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority) {
        roots.add(certificate.unwrap()).unwrap();
    }
    address.with_roots(roots).unwrap()
}

#[test]
fn tls_is_spoken_with_who_has_the_right_certificate_and_nobody_else() {
    let place = Place::database();
    let Place::Database(name) = &place else {
        panic!("it is a database");
    };
    let server = PostgresServer::shared().unwrap();
    let authority = std::fs::read(server.authority()).unwrap();
    let url = format!("{}?sslmode=require", server.loopback_url(name));
    let parse = |url: &str| {
        let address = DatabaseUrl::parse(url, None).unwrap();
        address.with_password(PostgresServer::PASSWORD)
    };
    let lease = want(&trusting(parse(&url), &authority), "a test", LONG);
    let over_tls = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE ssl AND application_name = 'posthaste' AND datname = current_database()";
    assert_eq!(place.run(over_tls), "1");
    drop(lease);

    let elsewhere = url.replace("127.0.0.1", "db.example") + "&hostaddr=127.0.0.1";
    for (why, address) in [
        ("nobody is trusted", trusting(parse(&url), b"")),
        (
            "the name is another's",
            trusting(parse(&elsewhere), &authority),
        ),
        ("nobody said whom to trust", parse(&elsewhere)),
    ] {
        let error = Lease::want(&address, "a test", LONG)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("certificate") || error.contains("TLS"),
            "{why}: {error}"
        );
    }
}
