//! Real servers behind a proxy that spoils the traffic.

use std::{
    any::Any,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use futures_util::TryStreamExt;
use posthaste_endpoint::{
    Checksum, Endpoint, ErrorKind, FileSpec, FileTime, Result, posix::DraftRules, posix::Posix,
};
use posthaste_testbed::{
    AzureServer, GcsServer, S3Kind, S3Server, WebFace, WebServer,
    conformance::open,
    noise,
    odd::{Asked, Spoils, front},
};

use crate::edges::{
    put, spec,
    table::{End, shown},
    write,
};

const SMALL: usize = 100_000;
/// Size of more than two segments of every store.
const LARGE: usize = 40 << 20;
/// Attempts after a temporary error, as in copies.
const TRIES: usize = 4;

/// Real server.
struct Real {
    address: SocketAddr,
    /// Address of a place there, and a profile for it.
    place: String,
    profile: String,
    /// Returns whether a request gives a file its final name.
    is_final: fn(&Asked) -> bool,
    _server: Box<dyn Any>,
}

impl Real {
    /// Opens the place, through the listener at `address`.
    async fn open_at(&self, address: &str) -> Arc<dyn Endpoint> {
        let real = self.address.to_string();
        let place = self.place.replace(&real, address);
        let profile = self.profile.replace(&real, address);
        open(&place, &profile).await.unwrap()
    }

    async fn open(&self) -> Arc<dyn Endpoint> {
        let endpoint = self.open_at(&self.address.to_string()).await;
        endpoint.make_directory(b"").await.unwrap();
        endpoint
    }

    /// Opens it through a proxy that spoils the requests that `is_meant` selects.
    async fn open_behind(
        &self,
        spoils: Spoils,
        is_meant: impl Fn(&Asked) -> bool + Send + Sync + 'static,
    ) -> (Arc<dyn Endpoint>, impl Sized) {
        self.open().await;
        let front = front(self.address, spoils, is_meant).await;
        let address = front.url().replace("http://", "");
        (self.open_at(&address).await, front)
    }
}

fn s3(kind: S3Kind) -> Real {
    let server = S3Server::start_as(kind).unwrap();
    Real {
        address: server.address(),
        place: format!("s3://{}/t", S3Server::BUCKET),
        profile: format!(
            "[store]\nendpoint = \"{}\"\naccess_key_id = \"{}\"\nsecret_access_key = \"{}\"\n",
            server.endpoint(),
            S3Server::ACCESS_KEY,
            S3Server::SECRET_KEY
        ),
        is_final: |asked| match &*asked.method {
            "PUT" => !asked.target.contains("partNumber="),
            "POST" => asked.target.contains("uploadId="),
            _ => false,
        },
        _server: Box::new(server),
    }
}

fn azure() -> Real {
    let server = AzureServer::start().unwrap();
    Real {
        address: server.address(),
        place: format!("azblob://{}/t", AzureServer::CONTAINER),
        profile: server.profile(),
        is_final: |asked| {
            let is_block = asked.target.contains("comp=block&");
            asked.method == "PUT" && !is_block
        },
        _server: Box::new(server),
    }
}

fn gcs() -> Real {
    let server = GcsServer::start().unwrap();
    Real {
        address: server.address(),
        place: format!("gs://{}/t", GcsServer::BUCKET),
        profile: server.profile(),
        is_final: |asked| {
            let body = &asked.body[..asked.body.len().min(2_000)];
            let is_hidden = |text: &str| text.contains("posthaste-partial");
            let is_composed = asked.target.contains("/compose") && !is_hidden(&asked.target);
            let is_sent = asked.method == "POST" && asked.target.contains("/upload/");
            is_composed || is_sent && !is_hidden(&String::from_utf8_lossy(body))
        },
        _server: Box::new(server),
    }
}

fn dav() -> Real {
    let server = WebServer::start().unwrap();
    let place = server.address(WebFace::Dav, "t");
    let address = place.split('/').nth(2).unwrap();
    Real {
        address: address.parse().unwrap(),
        profile: server.profile(),
        place,
        is_final: |asked| asked.method == "MOVE",
        _server: Box::new(server),
    }
}

fn all() -> [Real; 4] {
    [s3(S3Kind::Versity), azure(), gcs(), dav()]
}

async fn read(
    endpoint: &dyn Endpoint,
    path: &[u8],
    range: std::ops::Range<u64>,
) -> Result<Vec<u8>> {
    let entry = endpoint.stat(path, true).await?.unwrap();
    let reader = endpoint.open(path, &entry).await?;
    let pieces: Vec<Bytes> = reader.read(range).await?.try_collect().await?;
    reader.confirm().await?;
    Ok(pieces.concat())
}

/// Retries temporary errors, like copies.
async fn again<T>(mut attempt: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let mut outcome = attempt().await;
    for _ in 1..TRIES {
        if outcome.as_ref().is_ok_and(|_| true)
            || !outcome.as_ref().is_err_and(|error| error.is_temporary())
        {
            return outcome;
        }
        outcome = attempt().await;
    }
    outcome
}

/// Checks that the bytes read are right, or that the read fails.
async fn reads_right_or_not_at_all(real: &Real, bytes: &[u8], spoils: Spoils) -> bool {
    let is_meant = |asked: &Asked| {
        let is_listing = ["list-type", "comp=list", "prefix="];
        asked.target.contains("big")
            && ["GET", "HEAD"].contains(&&*asked.method)
            && !is_listing.iter().any(|word| asked.target.contains(word))
    };
    let (endpoint, _front) = real.open_behind(spoils, is_meant).await;
    let range = 8 << 20..9 << 20;
    let wanted = &bytes[8 << 20..9 << 20];
    match read(&*endpoint, b"big", range).await {
        Ok(found) => {
            assert!(found == wanted, "other bytes came");
            true
        }
        Err(error) => {
            assert_ne!(error.kind(), ErrorKind::Unauthenticated, "{error}");
            false
        }
    }
}

/// Checks that a forbidden read does not count as a fault of the credentials, which would end
/// everything.
async fn tells_what_may_not_be_read(real: &Real) {
    let whole = real.open().await;
    put(&*whole, b"secret", &noise(0, SMALL)).await.unwrap();
    put(&*whole, b"open", &noise(0, SMALL)).await.unwrap();
    let entry = whole.stat(b"secret", true).await.unwrap().unwrap();
    let (endpoint, _front) = real
        .open_behind(Spoils::Rights, |asked| {
            asked.target.contains("secret") && asked.method == "GET"
        })
        .await;
    let Err(error) = endpoint.get(b"secret", &entry).await else {
        panic!("it was read");
    };
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(read(&*endpoint, b"open", 0..SMALL as u64).await.unwrap() == noise(0, SMALL));
}

/// Checks that a successful request with a lost answer counts as arrived.
async fn finds_what_was_done(real: &Real) {
    let once_and_always = [1, u32::MAX];
    let bytes = [
        (&b"small"[..], noise(0, SMALL)),
        (b"large", noise(0, LARGE)),
    ];
    for (times, (path, bytes)) in once_and_always
        .into_iter()
        .flat_map(|times| bytes.clone().map(|one| (times, one)))
    {
        let (endpoint, _front) = real
            .open_behind(Spoils::Answers(times), real.is_final)
            .await;
        let written = match bytes.len() {
            SMALL => again(async || put(&*endpoint, path, &bytes).await).await,
            _ => again(async || write(&*endpoint, path, &bytes).await).await,
        };
        written.unwrap();
        let found = read(&*real.open().await, path, 0..bytes.len() as u64).await;
        assert!(found.unwrap() == bytes, "it is not what was written");
    }
}

/// Checks that a refusal at the very end leaves no file, and that an earlier one does not count as
/// the new.
async fn hears_what_fails_at_the_end(real: &Real, fails: fn() -> Spoils) {
    for (path, bytes) in [
        (&b"small"[..], noise(0, SMALL)),
        (b"large", noise(0, LARGE)),
    ] {
        let plain = real.open().await;
        for was_there in [false, true] {
            let older = vec![1; bytes.len()];
            if was_there {
                let spec = FileSpec {
                    mtime: Some(FileTime { secs: 5, nanos: 0 }),
                    ..spec(&older)
                };
                let data = vec![Bytes::from(older.clone())];
                let put = plain.put(path, &spec, data, Checksum::of(&older));
                put.await.unwrap();
            }
            let (endpoint, _front) = real.open_behind(fails(), real.is_final).await;
            let written = match bytes.len() {
                SMALL => put(&*endpoint, path, &bytes).await,
                _ => write(&*endpoint, path, &bytes).await,
            };
            assert!(written.is_err(), "{} has {path:?}", real.place);
            match was_there {
                false => assert!(plain.stat(path, true).await.unwrap().is_none()),
                true => {
                    let found = read(&*plain, path, 0..bytes.len() as u64).await;
                    assert!(found.unwrap() == older, "{} lost it", real.place);
                }
            }
        }
        plain.remove(path).await.unwrap();
    }
}

/// Checks that spoiled bytes are refused.
async fn notices_what_is_spoiled(real: &Real) {
    let bytes = noise(0, LARGE);
    write(&*real.open().await, b"big", &bytes).await.unwrap();
    for (spoils, is_right) in [
        (Spoils::Ranges(bytes.clone()), true),
        (Spoils::OtherRanges(bytes.clone()), false),
        (Spoils::Ends, false),
    ] {
        let place = &real.place;
        let right = reads_right_or_not_at_all(real, &bytes, spoils).await;
        assert_eq!(right, is_right, "{place}");
    }
    // Some servers also report it elsewhere.
    reads_right_or_not_at_all(real, &bytes, Spoils::Lengths).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn minio_is_no_exception() {
    let real = s3(S3Kind::Minio);
    notices_what_is_spoiled(&real).await;
    hears_what_fails_at_the_end(&real, || Spoils::Finishes).await;
    hears_what_fails_at_the_end(&real, || Spoils::Pages).await;
    finds_what_was_done(&real).await;
    tells_what_may_not_be_read(&real).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_spoiled_on_its_way_is_right_or_refused() {
    for real in all() {
        notices_what_is_spoiled(&real).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_has_arrived_though_nobody_said_so() {
    for real in all() {
        finds_what_was_done(&real).await;
    }
    shown(
        "S3, Azure, Google, WebDAV",
        "the answer to the last step is lost",
        End::Right,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_at_the_very_end_is_not_there() {
    for real in all() {
        hears_what_fails_at_the_end(&real, || Spoils::Finishes).await;
        hears_what_fails_at_the_end(&real, || Spoils::Pages).await;
    }
    shown(
        "S3, Azure, Google, WebDAV",
        "a page is answered to the last step",
        End::Refused,
    );
    shown(
        "S3, Azure, Google, WebDAV",
        "the last step fails",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_cleaned_up_is_the_next_time() {
    let real = gcs();
    let refuses = Arc::new(AtomicBool::new(true));
    let refusing = Arc::clone(&refuses);
    let is_meant = move |asked: &Asked| asked.method == "DELETE" && refusing.load(SeqCst);
    let (endpoint, _front) = real.open_behind(Spoils::Rights, is_meant).await;
    let bytes = noise(0, LARGE);
    write(&*endpoint, b"large", &bytes).await.unwrap();
    let names = async || {
        let mut listing = endpoint.list_tree(b"").await.unwrap().unwrap();
        let mut names = Vec::new();
        loop {
            let page = listing.next_page().await.unwrap();
            if page.is_empty() {
                return names;
            }
            names.extend(page.into_iter().map(|entry| entry.name));
        }
    };
    assert!(names().await.len() > 1, "nothing was left over");
    refuses.store(false, SeqCst);
    let origin = &spec(&bytes).origin;
    endpoint.forget_unfinished(b"another", origin).await;
    assert!(names().await.len() > 1);
    endpoint.forget_unfinished(b"large", origin).await;
    assert_eq!(names().await, [b"large"]);
    assert!(read(&*endpoint, b"large", 0..LARGE as u64).await.unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_begun_as_a_large_one_goes_when_a_small_one_comes() {
    let real = gcs();
    let (endpoint, bytes) = (real.open().await, noise(0, LARGE));
    let writer = endpoint.create(b"x", &spec(&bytes)).await.unwrap();
    let end = usize::try_from(writer.segment_size()).unwrap();
    let body = Bytes::copy_from_slice(&bytes[..end]);
    let body = Box::pin(futures_util::stream::iter([Ok(body)]));
    writer.write(0, 0..end as u64, body).await.unwrap();
    // Like a killed process: it sends nothing more.
    drop(writer);
    put(&*endpoint, b"x", b"small").await.unwrap();
    let mut listing = endpoint.list_tree(b"").await.unwrap().unwrap();
    let names: Vec<_> = listing.next_page().await.unwrap();
    let names: Vec<_> = names.into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, [b"x"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_may_not_be_read_is_one() {
    for real in all() {
        tells_what_may_not_be_read(&real).await;
    }
    shown(
        "S3, Azure, Google, WebDAV",
        "one of many may not be read",
        End::LeftOut,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_server_that_spoils_ranges_is_read_right_or_refused() {
    let server = WebServer::start().unwrap();
    let bytes = noise(0, LARGE);
    let seeds = Posix::new(server.files().join("t"), DraftRules::default());
    seeds.make_parents().await.unwrap();
    seeds.make_directory(b"").await.unwrap();
    write(&seeds, b"big", &bytes).await.unwrap();
    let place = server.address(WebFace::Pages, "t");
    let address = place.split('/').nth(2).unwrap().to_owned();
    for (spoils, is_right) in [
        (Spoils::Ranges(bytes.clone()), true),
        (Spoils::OtherRanges(bytes.clone()), false),
        (Spoils::Ends, false),
    ] {
        let front = front(address.parse().unwrap(), spoils, |asked| {
            asked.target.ends_with("big")
        })
        .await;
        let place = place.replace(&address, &front.url().replace("http://", ""));
        let web = open(&place, &server.profile()).await.unwrap();
        match read(&*web, b"big", 8 << 20..9 << 20).await {
            Ok(found) => assert!(is_right && found == bytes[8 << 20..9 << 20]),
            Err(error) => assert!(!is_right, "{error}"),
        }
    }
}
