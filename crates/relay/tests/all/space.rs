//! Space that a relay in this process reserves, requested over real TLS sockets.

use std::{fs, path::Path, time::Duration};

use posthaste_endpoint::{
    ErrorKind,
    relay::{
        Credential, DatasetId, RelayClient, Scope, SpaceAnswer, mint,
        wire::{SpaceBody, SpaceGrant},
    },
};
use posthaste_relay::{Relay, RelayOptions};
use posthaste_types::{Bytes as Amount, ChunkIndex, FragmentIndex, Timestamp};
use tokio::time::sleep;

use crate::support::raw::send_raw;
use crate::support::running::{Running, digest, in_seconds, later, noise};

const MEBI: u64 = 1 << 20;
const F0: FragmentIndex = FragmentIndex::new(0);

/// Returns the time so many seconds from now, in seconds since the Unix epoch.
fn unix_s(seconds: i64) -> u64 {
    in_seconds(seconds).as_micros() / 1_000_000
}

fn space(mebi: u64, from: Option<i64>, until: i64) -> SpaceBody {
    SpaceBody {
        bytes: mebi * MEBI,
        from_unix_s: from.map(unix_s),
        until_unix_s: unix_s(until),
        hold_s: None,
    }
}

/// Starts a relay that lends 64 MiB.
async fn start(dir: &Path) -> Running {
    Running::start(dir, |_| ()).await
}

/// Stores a mebibyte.
async fn put(
    client: &RelayClient,
    id: &DatasetId,
    chunk: u32,
    expires: Timestamp,
) -> Result<(), ErrorKind> {
    let bytes = noise(u64::from(chunk), 1 << 20);
    let (index, digest) = (ChunkIndex::new(chunk), digest(&bytes));
    let stored = client.put_fragment(id, index, F0, bytes, digest, expires);
    stored.await.map_err(|error| error.kind())
}

/// Reserves what is free.
async fn granted(client: &RelayClient, id: &DatasetId, wanted: SpaceBody) -> SpaceGrant {
    match client.reserve_space(id, &wanted).await.unwrap() {
        SpaceAnswer::Granted(grant) => grant,
        SpaceAnswer::Full { most } => panic!("{wanted:?}, but {most} are free"),
    }
}

fn ids<const N: usize>() -> [DatasetId; N] {
    std::array::from_fn(|_| DatasetId::random().unwrap())
}

/// Returns the free and the reserved mebibytes.
async fn room(client: &RelayClient) -> (u64, u64) {
    let status = client.status().await.unwrap();
    assert!(status.reserves);
    (status.free.get() / MEBI, status.reserved.get() / MEBI)
}

#[tokio::test(flavor = "multi_thread")]
async fn others_are_refused_what_is_reserved_and_its_owner_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    let (client, [mine, other]) = (relay.client(), ids());
    let wanted = space(60, None, 3600);
    let grant = granted(&client, &mine, wanted).await;
    assert_eq!(
        (grant.bytes, grant.until_unix_s, grant.held_until_unix_s),
        (wanted.bytes, wanted.until_unix_s, None)
    );
    assert_eq!(room(&client).await, (4, 60));
    for chunk in 0..4 {
        put(&client, &other, chunk, later()).await.unwrap();
    }
    assert_eq!(put(&client, &other, 9, later()).await, Err(ErrorKind::Full));
    for chunk in 0..60 {
        put(&client, &mine, chunk, later()).await.unwrap();
    }
    assert_eq!(room(&client).await, (0, 0));
    assert_eq!(put(&client, &mine, 99, later()).await, Err(ErrorKind::Full));
    let held = client.spaces().await.unwrap();
    assert_eq!(held.len(), 1);
    assert_eq!((held[0].dataset, held[0].stored_bytes), (mine, 60 * MEBI));
    assert_eq!(held[0].grant, grant);
    // Deleted, it is still reserved.
    client.delete_dataset(&mine).await.unwrap();
    assert_eq!(room(&client).await, (0, 60));
    for _ in 0..2 {
        client.release_space(&mine).await.unwrap();
    }
    assert_eq!(room(&client).await, (60, 0));
    assert_eq!(client.spaces().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_what_would_be_granted_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    let (client, [mine, other]) = (relay.client(), ids());
    put(&client, &other, 0, later()).await.unwrap();
    granted(&client, &other, space(30, Some(100), 200)).await;
    let grant = granted(&client, &mine, space(10, None, 150)).await;
    let again = client.reserve_space(&mine, &space(35, None, 150)).await;
    let most = Amount::new(34 * MEBI);
    assert_eq!(again.unwrap(), SpaceAnswer::Full { most });
    let held = client.spaces().await.unwrap();
    assert!(held.iter().any(|held| held.grant == grant), "{held:?}");
    // Extended to exactly that, and shrunk again, in bytes and time.
    for (wanted, reserved) in [(space(34, None, 150), 34), (space(5, None, 50), 5)] {
        let grant = granted(&client, &mine, wanted).await;
        assert_eq!(room(&client).await, (63 - reserved, reserved));
        assert_eq!(granted(&client, &mine, wanted).await, grant);
    }
    // Before the other begins there is more.
    granted(&client, &mine, space(63, None, 60)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_gone_unless_it_is_committed() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    let (client, [held, kept]) = (relay.client(), ids());
    let hold = |mebi| SpaceBody {
        hold_s: Some(2),
        ..space(mebi, None, 3600)
    };
    for (id, wanted) in [(held, hold(10)), (kept, hold(20))] {
        let grant = granted(&client, &id, wanted).await;
        let until_s = grant.held_until_unix_s.unwrap();
        assert!(until_s <= unix_s(2) && until_s >= grant.from_unix_s + 2);
    }
    let committed = SpaceBody {
        hold_s: None,
        ..hold(20)
    };
    let grant = granted(&client, &kept, committed).await;
    assert_eq!(grant.held_until_unix_s, None);
    // Free space is computed at every request.
    let mut seen = room(&client).await;
    // Two minutes.
    for _ in 0..2_400 {
        if seen == (44, 20) {
            break;
        }
        sleep(Duration::from_millis(50)).await;
        seen = room(&client).await;
    }
    assert_eq!(seen, (44, 20));
    assert_eq!(client.spaces().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_reserved_for_later_bounds_how_long_others_may_stay() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    let (client, [mine, other]) = (relay.client(), ids());
    granted(&client, &mine, space(63, Some(1000), 2000)).await;
    assert_eq!(room(&client).await, (64, 0));
    for chunk in 0..5 {
        put(&client, &other, chunk, in_seconds(900)).await.unwrap();
    }
    let chunk = noise(7, 1 << 20);
    let (index, digest) = (ChunkIndex::new(7), digest(&chunk));
    let reaching = client.put_fragment(&other, index, F0, chunk, digest, in_seconds(1100));
    let error = reaching.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(error.to_string().contains("could be kept until"), "{error}");
    // Stored data can't stay longer either, and a dataset's own data may come early.
    let longer = put(&client, &other, 0, in_seconds(1100)).await;
    assert_eq!(longer, Err(ErrorKind::Full));
    put(&client, &other, 0, in_seconds(950)).await.unwrap();
    put(&client, &mine, 0, in_seconds(1500)).await.unwrap();
    granted(&client, &mine, space(64, Some(1000), 2000)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_expired_makes_way_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    let (client, [mine, other]) = (relay.client(), ids());
    let grant = granted(&client, &mine, space(64, Some(8), 3600)).await;
    let ends = Timestamp::from_secs(grant.from_unix_s);
    put(&client, &other, 0, ends).await.unwrap();
    while unix_s(0) < grant.from_unix_s {
        sleep(Duration::from_millis(20)).await;
    }
    for chunk in 0..64 {
        put(&client, &mine, chunk, later()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_reserved_survives_a_restart_and_a_damaged_file_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let [mine, short] = ids();
    let wanted = space(40, None, 3600);
    let relay = start(dir.path()).await;
    let client = relay.client();
    let grant = granted(&client, &mine, wanted).await;
    let hold = SpaceBody {
        hold_s: Some(1),
        ..space(5, None, 3600)
    };
    granted(&client, &short, hold).await;
    relay.stop().await;
    sleep(Duration::from_secs(1)).await;
    let relay = start(dir.path()).await;
    let client = relay.client();
    assert_eq!(room(&client).await, (24, 40));
    assert_eq!(granted(&client, &mine, wanted).await, grant);
    relay.stop().await;
    let file = dir.path().join("spaces.json");
    let whole = fs::read(&file).unwrap();
    for damaged in [&whole[..whole.len() / 2], b"{\"version\":9}", b"[]"] {
        fs::write(&file, damaged).unwrap();
        let opened = Relay::open(RelayOptions {
            dir: dir.path().to_owned(),
            listen: "127.0.0.1:0".parse().unwrap(),
            bucket: None,
            capacity: Amount::mebi(64),
            rate: None,
            name: "test".into(),
            flush: false,
            join: None,
            advertise: None,
            hours: None,
            load_from: "/proc/loadavg".into(),
        });
        let Err(error) = opened.await else {
            panic!("it started with nonsense")
        };
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("spaces.json"), "{error}");
        assert!(error.to_string().contains("move it away"), "{error}");
    }
    fs::write(&file, whole).unwrap();
    let relay = start(dir.path()).await;
    assert_eq!(room(&relay.client()).await, (24, 40));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_is_refused_and_so_is_nonsense() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path()).await;
    let [mine, other] = ids();
    let wanted = space(1, None, 3600);
    let kind = |done: Result<SpaceAnswer, posthaste_endpoint::Error>| done.unwrap_err().kind();
    let token = |scope, id| mint(&relay.secret, scope, id, later());
    for (scope, id) in [(Scope::Write, &mine), (Scope::All, &other)] {
        let client = relay.client_with(Credential::Token(token(scope, Some(id))));
        let refused = client.reserve_space(&mine, &wanted).await;
        assert_eq!(kind(refused), ErrorKind::PermissionDenied);
        let refused = client.release_space(&mine).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    }
    let stranger = relay.client_with(Credential::Secret([9; 32]));
    let refused = stranger.reserve_space(&mine, &wanted).await;
    assert_eq!(kind(refused), ErrorKind::Unauthenticated);
    let own = relay.client_with(Credential::Token(token(Scope::All, Some(&mine))));
    granted(&own, &mine, wanted).await;
    let listed = own.spaces().await.unwrap_err();
    assert_eq!(listed.kind(), ErrorKind::PermissionDenied);
    for body in [
        "",
        "{}",
        "nonsense",
        "{\"bytes\":-1,\"until_unix_s\":99999999999}",
        "{\"bytes\":0,\"until_unix_s\":1}",
        "{\"bytes\":1,\"until_unix_s\":99999999999999}",
    ] {
        let request = format!(
            "PUT /v1/datasets/{mine}/space HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             authorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}",
            token(Scope::All, None),
            body.len()
        );
        let answer = send_raw(&relay, request.as_bytes(), true).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 400"), "{body} {answer}");
    }
    assert_eq!(room(&relay.client()).await, (63, 1));
}
