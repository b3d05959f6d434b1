//! Transfers by a relay to another of what it still receives.

use std::{fs::File, io::Write, sync::Arc, time::Duration};

use bytes::Bytes;
use posthaste_endpoint::{
    Error, ErrorKind, Locus, Result,
    relay::{DatasetId, Growing, Grown, RelayClient, wire::Object},
};
use posthaste_types::{ByteRate, Bytes as Amount, ChunkIndex, Digest, FragmentIndex};
use tempfile::TempDir;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::support::running::{Running, digest, later, noise};

const DATASET: DatasetId = DatasetId::new([7; 16]);
const CHUNK: ChunkIndex = ChunkIndex::new(3);
const FRAGMENT: FragmentIndex = FragmentIndex::new(1);
/// Time limit of everything here, whatever else the machine does.
const PATIENCE: Duration = Duration::from_secs(60);

/// Work under way.
type Doing = JoinSet<Result<()>>;

fn run(work: impl Future<Output = Result<()>> + Send + 'static) -> Doing {
    let mut doing = Doing::new();
    doing.spawn(work);
    doing
}

/// Upload whose progress the test controls.
struct Upload {
    bytes: Bytes,
    file: File,
    grown: watch::Sender<Grown>,
    written: usize,
    ended: Doing,
}

impl Upload {
    fn begin(to: &RelayClient, bytes: Bytes, digest: Digest) -> Self {
        let file = tempfile::tempfile().unwrap();
        let (grown, told) = watch::channel(Grown::Bytes(0));
        let growing = Growing {
            file: Arc::new(file.try_clone().unwrap()),
            size: bytes.len() as u64,
            grown: told,
        };
        let to = to.clone();
        let ended = run(async move {
            let object = Object::Fragment(CHUNK, FRAGMENT);
            to.put_growing(&DATASET, object, growing, digest, later())
                .await
        });
        let written = 0;
        Self {
            bytes,
            file,
            grown,
            written,
            ended,
        }
    }

    /// Lets so many bytes go on their way.
    fn reach(&mut self, bytes: usize) {
        let piece = &self.bytes[self.written..bytes];
        self.file.write_all(piece).unwrap();
        self.written = bytes;
        self.grown.send_replace(Grown::Bytes(bytes as u64));
    }

    async fn end(mut self) -> Result<()> {
        self.reach(self.bytes.len());
        self.grown.send_replace(Grown::Whole);
        ended(self.ended).await
    }

    async fn cut_off(self) -> Error {
        self.grown.send_replace(Grown::Failed);
        ended(self.ended).await.unwrap_err()
    }
}

/// Starts two relays; returns them with their directories.
async fn two(rate: Option<u64>, capacity: Amount) -> ([TempDir; 2], [Running; 2]) {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let from = Running::start(dirs[0].path(), |_| ()).await;
    let to = Running::start(dirs[1].path(), |options| {
        options.rate = rate.map(ByteRate::new);
        options.capacity = capacity;
    });
    let to = to.await;
    (dirs, [from, to])
}

fn follow(from: &RelayClient, to: &RelayClient, digest: Digest) -> Doing {
    let (from, to) = (from.clone(), to.clone());
    run(async move {
        from.follow_fragment(&DATASET, (CHUNK, FRAGMENT), digest, &to, later())
            .await
    })
}

async fn ended(mut doing: Doing) -> Result<()> {
    let ended = timeout(PATIENCE, doing.join_next()).await.unwrap();
    ended.unwrap().unwrap()
}

/// Returns whether it has not ended.
fn goes_on(doing: &mut Doing) -> bool {
    doing.try_join_next().is_none()
}

/// Waits until so many bytes of bodies came in.
async fn receives(relay: &RelayClient, bytes: u64) {
    let waits = async {
        while relay.status().await.unwrap().received < Amount::new(bytes) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, waits).await.unwrap();
}

/// Waits until nothing is on its way in, and returns how many objects are stored.
async fn settled(relay: &RelayClient) -> usize {
    let waits = async {
        loop {
            let status = relay.status().await.unwrap();
            if status.free + status.used == status.capacity {
                return relay.inventory(&DATASET).await.unwrap().len();
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, waits).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_go_on_while_they_still_come() {
    let (_dirs, [from, to]) = two(None, Amount::mebi(64)).await;
    let (from, to) = (from.client(), to.client());
    assert!(from.status().await.unwrap().follows);
    let bytes = noise(1, 4 << 20);
    let sum = digest(&bytes);
    let mut upload = Upload::begin(&from, bytes.clone(), sum);
    let following = follow(&from, &to, sum);
    for mebi in [1, 2, 3] {
        upload.reach(mebi << 20);
        // Bytes beside a last batch in memory have gone on.
        receives(&to, (mebi as u64 * 1024 - 128) << 10).await;
        assert!(from.inventory(&DATASET).await.unwrap().is_empty());
    }
    upload.end().await.unwrap();
    ended(following).await.unwrap();
    for relay in [&from, &to] {
        assert_eq!(settled(relay).await, 1);
        let read = relay.get_fragment(&DATASET, CHUNK, FRAGMENT, sum);
        assert_eq!(read.await.unwrap(), bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_byte_waits_until_all_is_stored_where_it_came_from() {
    let (_dirs, [from, to]) = two(None, Amount::mebi(64)).await;
    let (from, to) = (from.client(), to.client());
    let bytes = noise(1, 1 << 20);
    let sum = digest(&bytes);
    let mut upload = Upload::begin(&from, bytes, sum);
    let mut following = follow(&from, &to, sum);
    // The upload lacks its own last byte.
    upload.reach(1 << 20);
    receives(&to, 900 << 10).await;
    assert!(goes_on(&mut following));
    assert!(to.inventory(&DATASET).await.unwrap().is_empty());
    upload.end().await.unwrap();
    ended(following).await.unwrap();
    assert_eq!(settled(&to).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_may_overtake_what_it_follows_for_a_while() {
    let (_dirs, [from, to]) = two(None, Amount::mebi(64)).await;
    let (from, to) = (from.client(), to.client());
    let bytes = noise(1, 1 << 20);
    let sum = digest(&bytes);
    let mut following = follow(&from, &to, sum);
    // It waits: an answer that something else is stored would be there long before.
    let other = from.forward_fragment(&DATASET, CHUNK, FRAGMENT, &to, later());
    assert_eq!(other.await.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(goes_on(&mut following));
    Upload::begin(&from, bytes, sum).end().await.unwrap();
    ended(following).await.unwrap();
    // A stored fragment goes on at once; one with another digest never came.
    ended(follow(&from, &to, sum)).await.unwrap();
    let error = ended(follow(&from, &to, digest(b"another")))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.locus()),
        (ErrorKind::NotFound, Locus::Source)
    );
    assert_eq!(settled(&to).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_arrive_whole_leaves_nothing_beyond() {
    let (_dirs, [from, to]) = two(None, Amount::mebi(64)).await;
    let (from, to) = (from.client(), to.client());
    let bytes = noise(1, 2 << 20);
    for is_cut_off in [true, false] {
        let claimed = digest(if is_cut_off { &bytes } else { b"others" });
        let before = to.status().await.unwrap().received.get();
        let mut upload = Upload::begin(&from, bytes.clone(), claimed);
        let following = follow(&from, &to, claimed);
        upload.reach(1 << 20);
        receives(&to, before + (800 << 10)).await;
        if is_cut_off {
            upload.cut_off().await;
        } else {
            let error = upload.end().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
        }
        let error = ended(following).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.locus()),
            (ErrorKind::NotFound, Locus::Source),
            "{error}"
        );
        assert_eq!((settled(&from).await, settled(&to).await), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_beyond_disturbs_what_arrives() {
    // No room beyond.
    let (_dirs, [from, to]) = two(None, Amount::mebi(1)).await;
    let bytes = noise(1, 2 << 20);
    let sum = digest(&bytes);
    let (near, far) = (from.client(), to.client());
    let mut upload = Upload::begin(&near, bytes.clone(), sum);
    let following = follow(&near, &far, sum);
    upload.reach(1 << 20);
    upload.end().await.unwrap();
    let error = ended(following).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.locus()),
        (ErrorKind::Full, Locus::Destination)
    );
    assert_eq!((settled(&near).await, settled(&far).await), (1, 0));
    near.delete_dataset(&DATASET).await.unwrap();
    // Nobody beyond.
    let mut upload = Upload::begin(&near, bytes, sum);
    upload.reach(1 << 20);
    let following = follow(&near, &far, sum);
    to.kill().await;
    assert_eq!(
        ended(following).await.unwrap_err().locus(),
        Locus::Destination
    );
    upload.end().await.unwrap();
    assert_eq!(settled(&near).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_one_beyond_lags_behind_and_slows_nothing() {
    let (_dirs, [from, to]) = two(Some(2 << 20), Amount::mebi(64)).await;
    let (from, to) = (from.client(), to.client());
    to.status().await.unwrap();
    let bytes = noise(1, 16 << 20);
    let sum = digest(&bytes);
    let mut upload = Upload::begin(&from, bytes, sum);
    let mut following = follow(&from, &to, sum);
    upload.reach(8 << 20);
    receives(&to, 1 << 20).await;
    upload.end().await.unwrap();
    assert!(goes_on(&mut following), "eight seconds for 16 mebibytes");
    assert!(to.status().await.unwrap().received < Amount::mebi(12));
    ended(following).await.unwrap();
    assert_eq!(settled(&to).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_relay_leaves_nothing_beyond() {
    let (dirs, [from, to]) = two(None, Amount::mebi(64)).await;
    let (near, far) = (from.client(), to.client());
    let bytes = noise(1, 2 << 20);
    let sum = digest(&bytes);
    let mut upload = Upload::begin(&near, bytes, sum);
    let following = follow(&near, &far, sum);
    upload.reach(1 << 20);
    receives(&far, 800 << 10).await;
    from.kill().await;
    assert!(ended(following).await.is_err());
    upload.cut_off().await;
    assert_eq!(settled(&far).await, 0);
    let again = Running::start(dirs[0].path(), |_| ()).await;
    assert_eq!(settled(&again.client()).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_pauses_is_followed_all_the_same() {
    let (_dirs, [from, to]) = two(None, Amount::mebi(64)).await;
    let (from, to) = (from.client(), to.client());
    let bytes = noise(1, 2 << 20);
    let sum = digest(&bytes);
    let mut upload = Upload::begin(&from, bytes, sum);
    let following = follow(&from, &to, sum);
    upload.reach(1 << 20);
    receives(&to, 800 << 10).await;
    // Longer than a request may stand still whose bytes are there.
    sleep(Duration::from_secs(12)).await;
    upload.end().await.unwrap();
    ended(following).await.unwrap();
    assert_eq!(settled(&to).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_empty_is_followed_too() {
    let (_dirs, [from, to]) = two(None, Amount::mebi(64)).await;
    let (from, to) = (from.client(), to.client());
    let sum = digest(b"");
    let following = follow(&from, &to, sum);
    Upload::begin(&from, Bytes::new(), sum).end().await.unwrap();
    ended(following).await.unwrap();
    assert_eq!(settled(&to).await, 1);
}
