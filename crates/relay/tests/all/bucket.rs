//! Relay that keeps its bytes in an object store, over real stores of three kinds: only presigned
//! URLs go through it, and what counts is there.

use std::{
    collections::BTreeSet, fs::Permissions, os::unix::fs::PermissionsExt, sync::Arc, time::Duration,
};

use bytes::Bytes;
use posthaste_endpoint::{
    Access, BodySum, Checksum, Endpoint, ErrorKind, Kind, Location, Pass,
    posix::DraftRules,
    relay::{
        Credential, DatasetId, Rebuilt, RelayClient, Scope, mint, send_by_pass,
        wire::{Object, PassAnswer, PassBody},
    },
    s3,
};
use posthaste_relay::{Bucket, Relay, RelayOptions};
use posthaste_testbed::{AzureServer, S3Kind, S3Server};
use posthaste_types::{Bytes as Amount, ChunkIndex, FragmentIndex};

use crate::support::running::{Running, digest, later, noise};
use crate::support::striped::{CHUNK, DATASET, SIZE, code, fragment, stripe};

/// Interval and maximum number of looks whether something came about: two minutes.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOKS_MAX: u32 = 2_400;

/// Store, and a directory for the relay that has it.
enum Server {
    S3(S3Server),
    Azure(AzureServer),
}

struct Place {
    server: Server,
    dir: tempfile::TempDir,
}

impl Place {
    fn versity() -> Self {
        Self::of(Server::S3(S3Server::start().unwrap()))
    }

    fn minio() -> Self {
        Self::of(Server::S3(S3Server::start_as(S3Kind::Minio).unwrap()))
    }

    fn azure() -> Self {
        let azure = AzureServer::start().unwrap();
        azure.empty_container("lent").unwrap();
        Self::of(Server::Azure(azure))
    }

    fn of(server: Server) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { server, dir }
    }

    async fn open(&self, prefix: &str) -> Arc<dyn Endpoint> {
        match &self.server {
            Server::S3(server) => {
                let store = s3::Store {
                    endpoint: server.endpoint(),
                    region: "us-east-1".into(),
                    access_key_id: S3Server::ACCESS_KEY.into(),
                    secret_access_key: S3Server::SECRET_KEY.into(),
                    ca_file: None,
                };
                s3::open_store(S3Server::BUCKET, prefix, &store).unwrap()
            }
            Server::Azure(server) => {
                let profiles = self.dir.path().join("profiles.toml");
                std::fs::write(&profiles, server.profile()).unwrap();
                std::fs::set_permissions(&profiles, Permissions::from_mode(0o600)).unwrap();
                let access = Access::new(Some("azure".into()), Vec::new()).with_profiles(profiles);
                let address = format!("azblob://lent/{prefix}");
                let location = Location::parse(address.as_ref()).unwrap();
                access.open(location, DraftRules::default()).await.unwrap()
            }
        }
    }

    async fn bucket(&self) -> Bucket {
        Bucket::open(self.open("a prefix").await).await.unwrap()
    }

    async fn start(&self) -> Running {
        let bucket = self.bucket().await;
        Running::start(&self.dir.path().join("relay"), |options| {
            options.bucket = Some(bucket);
            options.capacity = Amount::mebi(4);
        })
        .await
    }

    /// Returns everything the store has of datasets.
    async fn objects(&self) -> BTreeSet<String> {
        self.below("a prefix/datasets").await
    }

    async fn below(&self, prefix: &str) -> BTreeSet<String> {
        let store = self.open(prefix).await;
        let mut listing = store.list_tree(b"").await.unwrap().unwrap();
        let mut found = BTreeSet::new();
        loop {
            let page = listing.next_page().await.unwrap();
            if page.is_empty() {
                return found;
            }
            let files = page.into_iter().filter(|entry| entry.kind == Kind::File);
            found.extend(files.map(|entry| String::from_utf8(entry.name).unwrap()));
        }
    }

    /// Waits until the store has nothing of datasets any more.
    async fn is_emptied(&self) {
        for _ in 0..LOOKS_MAX {
            if self.objects().await.is_empty() {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        panic!("the store still has {:?}", self.objects().await);
    }
}

/// Returns a client that knows what the relay is.
async fn client(relay: &Running) -> RelayClient {
    let client = relay.client();
    assert!(client.status().await.unwrap().lets_through);
    client
}

async fn put(client: &RelayClient, n: usize, bytes: &Bytes) -> posthaste_endpoint::Result<()> {
    let sum = digest(bytes);
    let put = client.put_fragment(&DATASET, CHUNK, fragment(n), bytes.clone(), sum, later());
    put.await
}

/// Returns the request of a presigned URL for fragment 0.
fn wanted(bytes: &[u8]) -> PassBody {
    PassBody {
        size: bytes.len() as u64,
        digest: digest(bytes).to_string(),
        expires_unix_s: later().as_micros() / 1_000_000,
        crc64nvme: Checksum::of(bytes).to_base64(),
        md5: Some(BodySum::md5_of(bytes).to_base64()),
        is_sent: false,
    }
}

async fn pass(client: &RelayClient, body: &PassBody) -> Pass {
    let object = Object::Fragment(CHUNK, fragment(0));
    // A dataset that is being removed accepts no writes.
    let mut tries = 0..LOOKS_MAX;
    let answer = loop {
        match client.ask_pass(&DATASET, object, body).await {
            Err(error) if error.kind() == ErrorKind::Busy && tries.next().is_some() => {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            answer => break answer.unwrap(),
        }
    };
    let PassAnswer::Send { url, headers } = answer else {
        panic!("no pass");
    };
    let headers = headers.into_iter().map(|(name, value)| {
        let name = http::HeaderName::try_from(name).unwrap();
        (name, http::HeaderValue::try_from(value).unwrap())
    });
    let headers = headers.collect();
    Pass { url, headers }
}

/// Sends fragment 0 to the store, and tells the relay nothing.
async fn leave_uncounted(client: &RelayClient, bytes: &Bytes) {
    let pass = pass(client, &wanted(bytes)).await;
    send_by_pass(&pass, bytes.clone()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_lies_in_the_store_and_comes_back() {
    stores_and_gives_back(Place::versity()).await;
    stores_and_gives_back(Place::azure()).await;
}

async fn stores_and_gives_back(place: Place) {
    let relay = place.start().await;
    let client = client(&relay).await;
    let pieces = [noise(1, 300_000), noise(2, 0), noise(3, 1)];
    for (n, bytes) in pieces.iter().enumerate() {
        put(&client, n, bytes).await.unwrap();
        // Again changes nothing.
        put(&client, n, bytes).await.unwrap();
    }
    let manifest = noise(4, 5000);
    let sum = digest(&manifest);
    let put_manifest = client.put_manifest(&DATASET, manifest.clone(), sum, later());
    put_manifest.await.unwrap();
    let name = |n: usize| format!("{DATASET}/0/{}.{n}.{}", CHUNK.get(), digest(&pieces[n]));
    let wanted = [
        name(0),
        name(1),
        name(2),
        format!("{DATASET}/manifest.{sum}"),
    ];
    assert_eq!(place.objects().await, BTreeSet::from(wanted));
    let held = client.inventory(&DATASET).await.unwrap();
    assert_eq!(held.len(), 3);
    for (n, bytes) in pieces.iter().enumerate() {
        let got = client.get_fragment(&DATASET, CHUNK, fragment(n), digest(bytes));
        assert_eq!(got.await.unwrap(), bytes);
    }
    assert_eq!(client.get_manifest(&DATASET, None).await.unwrap(), manifest);
    let status = client.status().await.unwrap();
    assert_eq!(status.used, Amount::new(300_000 + 1 + 5000));
    // Something else in its place, and what is not there.
    let refused = put(&client, 0, &noise(9, 10)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    let missing = client.get_fragment(&DATASET, CHUNK, fragment(7), digest(b""));
    assert_eq!(missing.await.unwrap_err().kind(), ErrorKind::NotFound);
    client.delete_dataset(&DATASET).await.unwrap();
    assert!(client.inventory(&DATASET).await.unwrap().is_empty());
    place.is_emptied().await;
    let used = client.status().await.unwrap().used;
    assert_eq!(used, Amount::ZERO);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_started_again_holds_what_it_held_and_nobody_else_its_prefix() {
    let place = Place::versity();
    let relay = place.start().await;
    let bytes = noise(1, 100_000);
    put(&client(&relay).await, 0, &bytes).await.unwrap();
    relay.kill().await;
    let relay = place.start().await;
    let again = client(&relay).await;
    let got = again.get_fragment(&DATASET, CHUNK, fragment(0), digest(&bytes));
    assert_eq!(got.await.unwrap(), bytes);
    relay.stop().await;
    let refused = |options: RelayOptions| async {
        let refused = Relay::open(options).await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
        refused.to_string()
    };
    let options = RelayOptions {
        dir: place.dir.path().join("relay"),
        listen: "127.0.0.1:0".parse().unwrap(),
        bucket: None,
        capacity: Amount::mebi(1),
        rate: None,
        name: "test".into(),
        flush: false,
        join: None,
        advertise: None,
        hours: None,
        load_from: "/proc/loadavg".into(),
    };
    // Files here without their bytes would be served as they are: holes.
    let said = refused(options.clone()).await;
    assert!(said.contains("s3://testbed/a prefix"), "{said}");
    let other = Bucket::open(place.open("another").await).await.unwrap();
    refused(RelayOptions {
        bucket: Some(other),
        ..options.clone()
    })
    .await;
    let said = refused(RelayOptions {
        bucket: Some(place.bucket().await),
        dir: place.dir.path().join("second"),
        ..options.clone()
    })
    .await;
    assert!(said.contains("another relay"), "{said}");
    // A directory with fragments of its own.
    let own = place.dir.path().join("own");
    Running::start(&own, |_| ()).await.stop().await;
    refused(RelayOptions {
        bucket: Some(place.bucket().await),
        dir: own,
        ..options
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_and_never_counted_is_sent_again_and_removed_with_the_rest() {
    sends_again_what_never_counted(Place::versity()).await;
    sends_again_what_never_counted(Place::azure()).await;
}

async fn sends_again_what_never_counted(place: Place) {
    let relay = place.start().await;
    let bytes = noise(1, 50_000);
    let client = client(&relay).await;
    leave_uncounted(&client, &bytes).await;
    assert_eq!(place.objects().await.len(), 1);
    assert!(client.inventory(&DATASET).await.unwrap().is_empty());
    relay.kill().await;
    let relay = place.start().await;
    let client = self::client(&relay).await;
    // The dataset is unknown here, and yet its objects in the store go.
    client.delete_dataset(&DATASET).await.unwrap();
    place.is_emptied().await;
    leave_uncounted(&client, &bytes).await;
    put(&client, 0, &bytes).await.unwrap();
    assert_eq!(client.inventory(&DATASET).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_the_store_has_whole_counts() {
    let place = Place::versity();
    let relay = place.start().await;
    let client = client(&relay).await;
    let bytes = noise(1, 1000);
    // The request says that it is there, and it is not.
    let body = PassBody {
        is_sent: true,
        ..wanted(&bytes)
    };
    let object = Object::Fragment(CHUNK, fragment(0));
    let refused = client.ask_pass(&DATASET, object, &body).await;
    assert_eq!(refused.err().unwrap().kind(), ErrorKind::Corrupt);
    // Bytes with another digest never leave.
    let wrong = client.put_fragment(
        &DATASET,
        CHUNK,
        fragment(0),
        bytes.clone(),
        digest(b"x"),
        later(),
    );
    assert_eq!(wrong.await.unwrap_err().kind(), ErrorKind::Corrupt);
    // The store refuses what a pass is not for.
    let body = PassBody {
        crc64nvme: Checksum::of(b"others").to_base64(),
        is_sent: false,
        ..body
    };
    let pass = pass(&client, &body).await;
    let sent = send_by_pass(&pass, bytes.clone()).await;
    let refused = sent.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
    let said = format!("{refused} {refused:?} {pass:?}");
    assert!(!said.contains("X-Amz-Signature"), "{said}");
    assert!(place.objects().await.is_empty());
    // More than is lent is refused before a byte is sent.
    let refused = put(&client, 1, &noise(2, 5 << 20)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    // Space that was set aside for what did not come is free once the pass is used again.
    put(&client, 0, &bytes).await.unwrap();
    assert_eq!(client.status().await.unwrap().used, Amount::new(1000));
    // A release that knows no presigned URLs is told so.
    client.expect_passes(false);
    let refused = put(&client, 2, &bytes).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_know_yet_that_it_hands_out_passes_asks_before_bytes_are_sent_to_it() {
    is_asked_before_bytes_are_sent(Place::versity()).await;
    is_asked_before_bytes_are_sent(Place::azure()).await;
}

async fn is_asked_before_bytes_are_sent(place: Place) {
    let relay = place.start().await;
    let stranger = relay.client();
    let bytes = noise(3, 1 << 20);
    let puts = (0..4).map(|n| put(&stranger, n, &bytes));
    for stored in futures_util::future::join_all(puts).await {
        stored.unwrap();
    }
    let status = stranger.status().await.unwrap();
    assert_eq!(status.used, Amount::new(4 << 20));
    let received = status.received.get();
    assert!(received < 1 << 18, "{received} bytes went to the relay");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_relays_send_there_and_take_and_gather_from_there() {
    serves_other_relays(Place::versity()).await;
    serves_other_relays(Place::azure()).await;
}

async fn serves_other_relays(place: Place) {
    let backed = place.start().await;
    let to_backed = client(&backed).await;
    let stripe = stripe();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let near = Running::start(dirs[0].path(), |_| ()).await;
    let far = Running::start(dirs[1].path(), |_| ()).await;
    let (to_near, to_far) = (near.client(), far.client());
    for n in 0..2 {
        put(&to_near, n, &stripe.fragments[n]).await.unwrap();
    }
    let forwarded = to_near.forward_fragment(&DATASET, CHUNK, fragment(0), &to_backed, later());
    forwarded.await.unwrap();
    assert_eq!(place.objects().await.len(), 1);
    // A fragment fetched as it is.
    let size = stripe.fragments[0].len() as u64;
    let piece = (size, stripe.digests[0]);
    let taken = to_far.take(&DATASET, (CHUNK, fragment(0)), piece, &to_backed, later());
    assert!(taken.await.unwrap().is_stored());
    let got = to_far.get_fragment(&DATASET, CHUNK, fragment(0), stripe.digests[0]);
    assert_eq!(got.await.unwrap(), stripe.fragments[0]);
    // The chunk, of a fragment of each.
    let rebuilt = Rebuilt {
        chunk: CHUNK,
        size: SIZE as u64,
        digest: stripe.chunk_digest,
        code: code(),
        keep: None,
    };
    let from = [
        (to_backed.clone(), fragment(0), stripe.digests[0]),
        (to_near.clone(), fragment(1), stripe.digests[1]),
    ];
    let gathered = to_far.gather(&DATASET, rebuilt, &from, later());
    assert!(gathered.await.unwrap().is_stored());
    let got = to_far.get_fragment(&DATASET, CHUNK, FragmentIndex::WHOLE, stripe.chunk_digest);
    assert_eq!(got.await.unwrap().len(), SIZE);
    // The relay does nothing with bytes itself.
    let refused = to_backed
        .forward_fragment(&DATASET, CHUNK, fragment(0), &to_far, later())
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    // Someone with a token alone.
    let token = Credential::Token(mint(&backed.secret, Scope::Read, Some(&DATASET), later()));
    let reader = backed.client_with(token);
    let got = reader.get_fragment(&DATASET, CHUNK, fragment(0), stripe.digests[0]);
    assert_eq!(got.await.unwrap(), stripe.fragments[0]);
    let other = DatasetId::new([9; 16]);
    let refused = reader.get_fragment(&other, ChunkIndex::new(0), fragment(0), digest(b""));
    assert_eq!(
        refused.await.unwrap_err().kind(),
        ErrorKind::PermissionDenied
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_breaks_costs_nothing_that_counted() {
    let mut place = Place::versity();
    let relay = place.start().await;
    let client = client(&relay).await;
    let bytes = noise(1, 100_000);
    put(&client, 0, &bytes).await.unwrap();
    let Server::S3(server) = &mut place.server else {
        panic!("another store");
    };
    server.kill();
    let refused = put(&client, 1, &noise(2, 1000)).await.unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::Unreachable | ErrorKind::Busy),
        "{refused}"
    );
    client.delete_dataset(&DATASET).await.unwrap();
    let Server::S3(server) = &mut place.server else {
        panic!("another store");
    };
    server.restart().unwrap();
    // An object that could not be removed is, in the next turn.
    client.delete_dataset(&DATASET).await.unwrap();
    place.is_emptied().await;
    let mut tries = 0..LOOKS_MAX;
    while let Err(error) = put(&client, 1, &noise(2, 1000)).await {
        // A dataset that is being removed accepts no writes.
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        assert!(tries.next().is_some(), "{error}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_to_the_store_is_measured_and_nothing_is_left_of_it() {
    measures_the_way(Place::versity()).await;
    measures_the_way(Place::azure()).await;
}

async fn measures_the_way(place: Place) {
    let relay = place.start().await;
    let client = client(&relay).await;
    // All of it, and a probe that has seen enough before.
    for (budget, enough) in [(Amount::mebi(1), u64::MAX), (Amount::mebi(64), 4 << 20)] {
        let goes_on = move |_, _, sent: Amount| sent.get() < enough;
        let probed = client.probe(budget, goes_on).await.unwrap();
        assert!(probed.round_trip > Duration::ZERO);
        let (sent, arrived) = (probed.sent.get(), probed.marks.last().unwrap().1.get());
        assert_eq!(sent, budget.get().min(enough));
        assert!(
            arrived > sent / 4 && arrived <= sent * 21 / 20,
            "{arrived} of {sent}"
        );
    }
    assert!(place.below("a prefix/probe").await.is_empty());
    // Another relay measures it too.
    let dir = tempfile::tempdir().unwrap();
    let other = Running::start(dir.path(), |_| ()).await;
    let measured = other
        .client()
        .measure(&client, Amount::mebi(8))
        .await
        .unwrap();
    // The averaged share depends on when the store answers.
    assert!(measured.sent > Amount::ZERO, "{measured:?}");
    assert!(place.below("a prefix/probe").await.is_empty());
}

/// A second S3 server, so that one server's habits are not taken for S3. Building it takes minutes:
/// the nightly run does.
mod minio {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_stored_lies_in_the_store_and_comes_back() {
        stores_and_gives_back(Place::minio()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_sent_and_never_counted_is_sent_again_and_removed_with_the_rest() {
        sends_again_what_never_counted(Place::minio()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_does_not_know_yet_that_it_hands_out_passes_asks_before_bytes_are_sent_to_it() {
        is_asked_before_bytes_are_sent(Place::minio()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn other_relays_send_there_and_take_and_gather_from_there() {
        serves_other_relays(Place::minio()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_way_to_the_store_is_measured_and_nothing_is_left_of_it() {
        measures_the_way(Place::minio()).await;
    }
}
