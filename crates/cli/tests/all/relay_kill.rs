//! A real relay process is killed with SIGKILL at random moments during uploads: confirmed data is
//! there afterwards, and nothing else.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::support::processes::{PATIENCE, Relay, binary, noise, now, text};
use bytes::Bytes;
use posthaste_endpoint::relay::{
    Credential, DatasetId, RelayAddress, RelayClient, SpaceAnswer, read_secret_file,
    wire::SpaceBody,
};
use posthaste_types::{ChunkIndex, Digest, FragmentIndex, Timestamp};
use tokio::task::JoinSet;

const ROUNDS: u64 = 8;
const LANES: u32 = 4;
/// Fragments that must have been stored before the last kill: without any, none could be lost.
const STORED_MIN: usize = 20;
const F0: FragmentIndex = FragmentIndex::new(0);

fn number(seed: u64, below: u64) -> u64 {
    u64::from_le_bytes(noise(seed ^ 0x5eed, 8).try_into().unwrap()) % below
}

fn fragment(chunk: u32) -> Bytes {
    let size = 1 + number(u64::from(chunk), 700_000);
    noise(u64::from(chunk), usize::try_from(size).unwrap()).into()
}

fn digest(bytes: &[u8]) -> Digest {
    Digest::new(*blake3::hash(bytes).as_bytes())
}

fn client(relay: &Relay) -> RelayClient {
    let ready = &relay.process.ready;
    let address = RelayAddress {
        url: ready["url"].as_str().unwrap().into(),
        fingerprint: ready["fingerprint"].as_str().unwrap().parse().unwrap(),
    };
    let secret = read_secret_file(Path::new(ready["secret_file"].as_str().unwrap())).unwrap();
    RelayClient::new(address, Credential::Secret(secret)).unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests tell real relays when to forget"
)]
fn unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

/// Uploads chunks from `first` on in several lanes until the relay dies; notes the stored ones.
async fn upload_until_it_dies(
    client: RelayClient,
    dataset: DatasetId,
    first: u32,
    stored: Arc<Mutex<BTreeMap<u32, Digest>>>,
) {
    let now_s = unix_s();
    let expires = Timestamp::from_secs(now_s + 3600);
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let (client, stored) = (client.clone(), Arc::clone(&stored));
        lanes.spawn(async move {
            for turn in 0.. {
                let chunk = first + turn * LANES + lane;
                let (bytes, index) = (fragment(chunk), ChunkIndex::new(chunk));
                let digest = digest(&bytes);
                match client
                    .put_fragment(&dataset, index, F0, bytes, digest, expires)
                    .await
                {
                    Ok(()) => stored.lock().unwrap().insert(chunk, digest),
                    Err(error) => {
                        assert!(error.is_temporary(), "{error}");
                        return;
                    }
                };
            }
        });
    }
    lanes.join_all().await;
}

/// Returns the bytes of all fragments on disk.
fn bytes_on_disk(directory: &Path) -> u64 {
    let items = fs::read_dir(directory).unwrap().map(|item| item.unwrap());
    items
        .map(|item| match item.file_type().unwrap().is_dir() {
            true => bytes_on_disk(&item.path()),
            false if item.file_name() == "expires" => 0,
            false => item.metadata().unwrap().len(),
        })
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_counted_as_stored_survives_kill_9_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    let mut relay = Relay::start(folder.path(), "relay", "4G", "1G");
    let (dataset, stored) = (DatasetId::random().unwrap(), Arc::default());
    for round in 0..ROUNDS {
        let first = u32::try_from(round).unwrap() * 100_000;
        let uploads = upload_until_it_dies(client(&relay), dataset, first, Arc::clone(&stored));
        let mut uploading = JoinSet::new();
        uploading.spawn(uploads);
        tokio::time::sleep(Duration::from_millis(20 + number(round, 500))).await;
        let start = now();
        while round + 1 == ROUNDS && stored.lock().unwrap().len() < STORED_MIN {
            assert!(start.elapsed() < PATIENCE, "nothing is stored any more");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        relay.kill();
        uploading.join_all().await;
        relay.restart();
        let shown = format!("round {round}, seed {}", number(round, 500));
        let client = client(&relay);
        let held: BTreeMap<u32, Digest> = client
            .inventory(&dataset)
            .await
            .unwrap()
            .into_iter()
            .map(|(chunk, _, digest)| (chunk.get(), digest))
            .collect();
        let stored = stored.lock().unwrap().clone();
        for (chunk, digest) in &stored {
            assert_eq!(
                held.get(chunk),
                Some(digest),
                "chunk {chunk} is lost in {shown}"
            );
        }
        for (&chunk, &digest) in &held {
            let index = ChunkIndex::new(chunk);
            let bytes = client
                .get_fragment(&dataset, index, F0, digest)
                .await
                .unwrap();
            assert!(
                bytes == fragment(chunk),
                "chunk {chunk} is wrong in {shown}"
            );
        }
        // Each lane may have one more that was stored and not heard of.
        let unheard = held.len() - stored.len();
        assert!(unheard <= usize::try_from(LANES * (u32::try_from(round).unwrap() + 1)).unwrap());
        let incoming = fs::read_dir(relay.directory.join("incoming"))
            .unwrap()
            .count();
        assert_eq!(incoming, 0, "leftovers in {shown}");
        let status = client.status().await.unwrap();
        assert_eq!(
            status.used.get(),
            bytes_on_disk(&relay.directory.join("datasets")),
            "{shown}"
        );
        assert_eq!(status.free + status.used, status.capacity, "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_reserved_survives_kill_9_right_after_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mut relay = Relay::start(folder.path(), "relay", "1G", "1G");
    let mut reserved = BTreeMap::new();
    for round in 1..=5 {
        let dataset = DatasetId::random().unwrap();
        let wanted = SpaceBody {
            bytes: round << 20,
            from_unix_s: None,
            until_unix_s: unix_s() + 3600,
            hold_s: None,
        };
        let granted = client(&relay).reserve_space(&dataset, &wanted).await;
        relay.kill();
        let SpaceAnswer::Granted(grant) = granted.unwrap() else {
            panic!("it is free")
        };
        reserved.insert(dataset, grant);
        relay.restart();
        let client = client(&relay);
        let held = client.spaces().await.unwrap();
        let held: BTreeMap<_, _> = held.iter().map(|one| (one.dataset, one.grant)).collect();
        assert_eq!(held, reserved, "round {round}");
        let bytes: u64 = reserved.values().map(|grant| grant.bytes).sum();
        assert_eq!(client.status().await.unwrap().reserved.get(), bytes);
    }
    let (first, _) = reserved.pop_first().unwrap();
    client(&relay).release_space(&first).await.unwrap();
    relay.kill();
    relay.restart();
    assert_eq!(client(&relay).spaces().await.unwrap().len(), 4);
}

#[test]
fn a_relay_that_cannot_start_says_why_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let relay = Relay::start(folder.path(), "first", "1G", "1G");
    let taken = relay.process.ready["url"]
        .as_str()
        .unwrap()
        .trim_start_matches("https://");
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let (dir, first) = (folder.path().join("second"), relay.directory.clone());
    for (dir, listen, capacity, code) in [
        (&dir, taken, "1G", 1),
        (&first, "127.0.0.1:0", "1G", 1),
        (&file, "127.0.0.1:0", "1G", 1),
        (&dir, "nonsense", "1G", 2),
        (&dir, "127.0.0.1:0", "much", 2),
    ] {
        let output = binary()
            .args(["relay", "--listen", listen, "--capacity", capacity, "--dir"])
            .arg(dir)
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{listen} {capacity}: {said}"
        );
        assert!(output.stdout.is_empty());
        if code == 1 {
            assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        }
    }
}
