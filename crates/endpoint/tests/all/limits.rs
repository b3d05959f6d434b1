//! Endpoints under the caps of a profile: the common suite passes, and the caps hold.

use std::{fs, num::NonZeroU32, os::unix::fs::PermissionsExt, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, future::join_all};
use posthaste_endpoint::{
    Access, Checksum, Endpoint, FileSpec, Location,
    limits::{Caps, Limited, Limits},
    posix::{DraftRules, Posix},
};
use posthaste_testbed::conformance::{Scale, open, passes_at_scale};
use posthaste_types::ByteRate;
use tokio::time::{sleep, timeout};

const LONG: Duration = Duration::from_secs(60);

fn caps(connections: u32, rate: u64) -> Caps {
    Caps {
        connections_max: NonZeroU32::new(connections),
        rate_max: Some(ByteRate::new(rate)),
        requests_per_s_max: NonZeroU32::new(100_000),
    }
}

fn below(folder: &tempfile::TempDir, limits: &Limits) -> Arc<dyn Endpoint> {
    let posix = Posix::new(folder.path().join("root"), DraftRules::default());
    Arc::new(Limited::new(Arc::new(posix), limits.clone()))
}

fn spec(size: usize) -> FileSpec {
    FileSpec {
        size: size as u64,
        mtime: None,
        mode: None,
        origin: "test:limits".into(),
        version: None,
    }
}

async fn put(endpoint: &dyn Endpoint, name: &str, len: usize) {
    let bytes = Bytes::from(vec![7; len]);
    let (spec, sum) = (spec(len), Checksum::of(&bytes));
    let putting = endpoint.put(name.as_bytes(), &spec, vec![bytes], sum);
    putting.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn limited_files_pass_the_suite() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits::new(caps(1, 1 << 30));
    passes_at_scale(below(&folder, &limits), Scale::SHORT_LISTINGS).await;
    // Like for both ends of a copy.
    let folder = tempfile::tempdir().unwrap();
    let _other = below(&folder, &limits);
    passes_at_scale(below(&folder, &limits), Scale::SHORT_LISTINGS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_is_held_to_the_caps_of_its_profile() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let capped = format!("[here]\nurl = \"{path}\"\nconnections_max = 3\n");
    let endpoint = open("here:x", &capped).await.unwrap();
    let limits = endpoint.limits().unwrap();
    assert_eq!(limits.caps().connections_max, NonZeroU32::new(3));
    let free = format!("[here]\nurl = \"{path}\"\n");
    let endpoint = open("here:x", &free).await.unwrap();
    assert_eq!(endpoint.limits().unwrap().caps(), Caps::default());
    // A path of this machine has no connection to the profile of the other end.
    let endpoint = open(&path.to_string(), &capped).await.unwrap();
    assert!(endpoint.limits().is_none());
    assert!(matches!(
        Location::parse("here:x".as_ref()),
        Ok(Location::Host { .. })
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn caps_are_followed_where_there_were_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profiles.toml");
    let write = |caps: &str| {
        let text = format!("[here]\nurl = \"{}\"\n{caps}", folder.path().display());
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    };
    write("");
    let access = Access::new(None, Vec::new()).with_profiles(file.clone());
    assert!(!access.may_have_caps());
    let location = Location::parse("here:x".as_ref()).unwrap();
    let endpoint = access.open(location, DraftRules::default()).await.unwrap();
    endpoint.make_directory(b"").await.unwrap();
    put(&*endpoint, "file", 3_000_000).await;
    assert!(access.may_have_caps());
    write("connections_max = 1\n");
    access.renew_caps().unwrap();
    let entry = endpoint.stat(b"file", false).await.unwrap().unwrap();
    let reader = endpoint.open(b"file", &entry).await.unwrap();
    let body = reader.read(0..2_000_000).await.unwrap();
    let looking = || endpoint.stat(b"file", false);
    let early = timeout(Duration::from_millis(200), looking()).await;
    assert!(early.is_err(), "two were under way at once");
    write("");
    access.renew_caps().unwrap();
    timeout(LONG, looking()).await.unwrap().unwrap();
    drop(body);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_go_no_faster_than_allowed_and_a_new_rate_counts_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits::new(caps(8, 2_000_000));
    let endpoint = below(&folder, &limits);
    endpoint.make_directory(b"").await.unwrap();
    let began = tokio::time::Instant::now();
    let names: Vec<String> = (0..4).map(|index| index.to_string()).collect();
    join_all(names.iter().map(|name| put(&*endpoint, name, 500_000))).await;
    let took = began.elapsed();
    assert!(took > Duration::from_millis(700), "2 MB took {took:?}");

    // 10 MB at 10 kB a second would take a quarter of an hour.
    limits.set(caps(8, 10_000));
    let change = async {
        sleep(Duration::from_millis(300)).await;
        limits.set(caps(8, 1 << 30));
    };
    let both = async { tokio::join!(put(&*endpoint, "large", 10_000_000), change) };
    timeout(LONG, both).await.unwrap();

    // Reads count too.
    limits.set(caps(8, 2_000_000));
    let entry = endpoint.stat(b"large", false).await.unwrap().unwrap();
    let reader = endpoint.open(b"large", &entry).await.unwrap();
    let began = tokio::time::Instant::now();
    let mut body = reader.read(0..2_000_000).await.unwrap();
    while let Some(piece) = body.next().await {
        piece.unwrap();
    }
    let took = began.elapsed();
    assert!(took > Duration::from_millis(700), "2 MB took {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_holds_its_place_until_its_last_byte() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits::new(caps(1, 1 << 30));
    let endpoint = below(&folder, &limits);
    endpoint.make_directory(b"").await.unwrap();
    put(&*endpoint, "file", 3_000_000).await;
    let entry = endpoint.stat(b"file", false).await.unwrap().unwrap();
    let reader = endpoint.open(b"file", &entry).await.unwrap();
    let mut body = reader.read(0..2_000_000).await.unwrap();
    body.next().await.unwrap().unwrap();
    let looking = || endpoint.stat(b"file", false);
    let early = timeout(Duration::from_millis(200), looking()).await;
    assert!(early.is_err(), "two were under way at once");
    limits.set(caps(2, 1 << 30));
    timeout(LONG, looking()).await.unwrap().unwrap();
    limits.set(caps(1, 1 << 30));
    let mut len = 0;
    while let Some(piece) = body.next().await {
        len += piece.unwrap().len();
    }
    assert!(len > 0);
    timeout(LONG, looking()).await.unwrap().unwrap();
    // A cancelled read gives its place back.
    drop(reader.read(0..2_000_000).await.unwrap());
    timeout(LONG, looking()).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_begin_as_often_as_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits::new(Caps {
        requests_per_s_max: NonZeroU32::new(20),
        ..Caps::default()
    });
    let endpoint = below(&folder, &limits);
    let began = tokio::time::Instant::now();
    join_all((0..22).map(|_| endpoint.stat(b"", false))).await;
    let took = began.elapsed();
    assert!(took > Duration::from_millis(800), "22 took {took:?}");
}
