//! Datasets pulled from their source and from depots at once, by the same protocol.

use crate::support::running;

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::support::running::{Running, later, noise};
use bytes::Bytes;
use posthaste_endpoint::{
    Error, ErrorKind, Result,
    relay::{Credential, DatasetId, RelayAddress, RelayClient, Scope, mint, wire::Held},
};
use posthaste_engine::{
    code::Codec,
    dataset::{ChunkDigests, Manifest, SourceReader, scan},
    pull::{Holder, Progress, PullOptions, PullReport, Ticket, pull},
    stripe::{Stripe, encode_stripe},
};
use posthaste_relay::{Outlet, Position, Shelf};
use posthaste_types::{ByteRate, Bytes as Amount, ChunkIndex, Code, Digest, FragmentIndex};
use tokio::task::JoinSet;

const CHUNK: usize = 100_000;
const CHUNKS: u32 = 40;
const WHOLE: FragmentIndex = FragmentIndex::WHOLE;

/// Chunks as a source has them.
struct Chunks {
    dataset: DatasetId,
    whole: Vec<(Bytes, Digest)>,
    /// Chunks whose source changed.
    changed: Mutex<BTreeSet<u32>>,
    is_released: AtomicBool,
    given: Mutex<Vec<u32>>,
    /// Fragments it gives before it is released.
    most: AtomicUsize,
}

impl Shelf for Chunks {
    async fn inventory(
        &self,
        dataset: DatasetId,
        (from, _): Position,
        most: usize,
    ) -> Result<(Vec<Held>, Option<Position>)> {
        assert_eq!(dataset, self.dataset);
        let all = (0u32..).zip(&self.whole).skip(from.get() as usize);
        let held: Vec<Held> = all
            .map(|(chunk, (_, digest))| (ChunkIndex::new(chunk), WHOLE, *digest))
            .take(most.min(15))
            .collect();
        let next = from.get() + u32::try_from(held.len()).unwrap();
        let next = (next < CHUNKS).then(|| (ChunkIndex::new(next), WHOLE));
        Ok((held, next))
    }

    async fn fragment(
        &self,
        _dataset: DatasetId,
        (chunk, fragment): Position,
    ) -> Result<(Bytes, Digest)> {
        let gone = |why: &str| {
            Error::new(ErrorKind::NotFound, "hand out", chunk.to_string()).cause(why.to_owned())
        };
        while self.holds_back() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if self.is_released.load(Ordering::Relaxed) {
            return Err(gone("its source was released"));
        }
        if fragment != WHOLE {
            return Err(gone("a source has whole chunks"));
        }
        if self.changed.lock().unwrap().contains(&chunk.get()) {
            return Err(gone("its source is no longer what was sealed"));
        }
        self.given.lock().unwrap().push(chunk.get());
        Ok(self.whole[chunk.get() as usize].clone())
    }

    fn is_pressed(&self) -> bool {
        false
    }
}

impl Chunks {
    fn holds_back(&self) -> bool {
        let given = self.given.lock().unwrap().len();
        given >= self.most.load(Ordering::Relaxed) && !self.is_released.load(Ordering::Relaxed)
    }
}

async fn start_relays(folder: &std::path::Path) -> Vec<Running> {
    let mut relays = Vec::new();
    for number in 0..3 {
        relays.push(Running::start(&folder.join(format!("relay{number}")), |_| ()).await);
    }
    relays
}

/// Dataset, relays that may get fragments of it, and an outlet at its source.
struct Scene {
    folder: tempfile::TempDir,
    manifest: Arc<Manifest>,
    stripes: Vec<Stripe>,
    relays: Vec<Running>,
    chunks: Arc<Chunks>,
    client: RelayClient,
    secret: [u8; 32],
    address: RelayAddress,
    serving: JoinSet<()>,
}

impl Scene {
    async fn new(rate: Option<u64>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        fs::create_dir(&source).unwrap();
        let bytes = noise(7, CHUNK * CHUNKS as usize - 10);
        fs::write(source.join("f"), bytes).unwrap();
        let list = Arc::new(scan(&source).unwrap());
        let code: Code = "2+1".parse().unwrap();
        let (codec, chunk_size) = (Codec::new(code), Amount::new(CHUNK as u64));
        let reader = SourceReader::new(&source, Arc::clone(&list), chunk_size);
        let dataset = DatasetId::random().unwrap();
        let (mut stripes, mut whole, mut digests) = (Vec::new(), Vec::new(), Vec::new());
        for chunk in 0..CHUNKS {
            let mut buffer = Vec::new();
            reader.read_chunk(chunk, &mut buffer).unwrap();
            let bytes = Bytes::copy_from_slice(&buffer);
            let stripe = encode_stripe(&codec, None, chunk, buffer).unwrap();
            whole.push((bytes, stripe.chunk_digest));
            digests.push(ChunkDigests {
                chunk: stripe.chunk_digest,
                fragments: stripe.digests.clone(),
                content: None,
            });
            stripes.push(stripe);
        }
        let relays = start_relays(folder.path()).await;
        let chunks = Arc::new(Chunks {
            dataset,
            whole,
            changed: Mutex::default(),
            is_released: AtomicBool::new(false),
            given: Mutex::default(),
            most: AtomicUsize::new(usize::MAX),
        });
        let listen = "127.0.0.1:0".parse().unwrap();
        let outlet_folder = folder.path().join("outlet");
        let outlet = Outlet::open(&outlet_folder, listen, rate.map(ByteRate::new)).unwrap();
        let address = RelayAddress {
            url: format!("https://{}", outlet.local()),
            fingerprint: outlet.fingerprint(),
        };
        let secret = outlet.secret();
        let token = mint(&secret, Scope::Read, Some(&dataset), later());
        let client = RelayClient::new(address.clone(), Credential::Token(token)).unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(outlet.run(Arc::clone(&chunks)));
        let list = Arc::unwrap_or_clone(list);
        let manifest = Manifest {
            dataset,
            code,
            chunk_size,
            list,
            chunks: digests,
            cipher: None,
        };
        Self {
            folder,
            manifest: Arc::new(manifest),
            stripes,
            relays,
            chunks,
            client,
            secret,
            address,
            serving,
        }
    }

    /// Stores the fragments of some chunks at the relays.
    async fn store(&self, chunks: std::ops::Range<u32>) {
        for (relay, running) in self.relays.iter().enumerate() {
            let client = running.client();
            for chunk in chunks.clone() {
                let stripe = &self.stripes[chunk as usize];
                let place = (relay + chunk as usize) % 3;
                let fragment = FragmentIndex::new(u8::try_from(place).unwrap());
                let (bytes, digest) = (stripe.fragments[place].clone(), stripe.digests[place]);
                let chunk = ChunkIndex::new(chunk);
                client
                    .put_fragment(
                        &self.chunks.dataset,
                        chunk,
                        fragment,
                        bytes,
                        digest,
                        later(),
                    )
                    .await
                    .unwrap();
            }
        }
    }

    async fn ticket(&self) -> Ticket {
        let mut clients: Vec<_> = self.relays.iter().map(Running::client).collect();
        clients.push(self.client.clone());
        let names = ["ash", "birch", "cedar", "source"];
        let mut holders = Vec::new();
        for (client, name) in clients.into_iter().zip(names) {
            let held = client.inventory(&self.chunks.dataset).await.unwrap();
            let held = held
                .into_iter()
                .map(|(chunk, fragment, _)| (chunk, fragment));
            holders.push(Holder {
                name: name.into(),
                held: held.collect(),
                client,
            });
        }
        Ticket {
            manifest: Arc::clone(&self.manifest),
            holders,
        }
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    async fn pull(&self, watch: &(dyn Fn(&Progress) + Sync)) -> Result<PullReport> {
        let options = PullOptions {
            overwrite: false,
            memory: Amount::new(4 * CHUNK as u64),
        };
        pull(self.ticket().await, &self.home(), &options, watch).await
    }

    fn assert_home(&self) {
        let source = fs::read(self.folder.path().join("source/f")).unwrap();
        assert!(fs::read(self.home().join("f")).unwrap() == source);
    }

    fn given(&self) -> Vec<u32> {
        self.chunks.given.lock().unwrap().clone()
    }

    /// Waits until the source was asked so many times.
    async fn until_given(&self, times: usize) {
        let asked = async {
            while self.given().len() < times {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), asked).await;
        waited.expect("the source is asked");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_depot_holds_comes_from_the_source_and_the_rest_from_all() {
    let scene = Scene::new(None).await;
    scene.store(0..20).await;
    let last = Mutex::new(None);
    let watch = |progress: &Progress| *last.lock().unwrap() = Some(progress.clone());
    let report = scene.pull(&watch).await.unwrap();
    assert_eq!((report.corrupt_fragments, report.depots_lost), (0, 0));
    scene.assert_home();
    let given: BTreeSet<u32> = scene.given().into_iter().collect();
    assert!(
        (20..CHUNKS).all(|chunk| given.contains(&chunk)),
        "{given:?}"
    );
    let last = last.into_inner().unwrap().unwrap();
    let of = |name: &str| {
        let mut holders = last.holders.iter();
        holders.find(|holder| holder.name == name).unwrap().received
    };
    assert!(
        of("source") >= Amount::new(20 * CHUNK as u64 - 10),
        "{last:?}"
    );
    assert!(of("ash") > Amount::ZERO, "{last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_source_is_left_to_what_only_it_holds() {
    // From the source alone it would take 20 s.
    let scene = Scene::new(Some(200_000)).await;
    scene.store(0..36).await;
    scene.pull(&|_| ()).await.unwrap();
    scene.assert_home();
    let given = scene.given();
    assert!(given.len() < 20, "{given:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_depots_get_meanwhile_is_taken_there_when_the_source_is_released() {
    let scene = Scene::new(Some(1_000_000)).await;
    scene.chunks.most.store(5, Ordering::Relaxed);
    let storing = async {
        // Some came, and then the source goes.
        scene.until_given(3).await;
        scene.store(0..CHUNKS).await;
        scene.chunks.is_released.store(true, Ordering::Relaxed);
    };
    let (pulled, ()) = tokio::join!(scene.pull(&|_| ()), storing);
    pulled.unwrap();
    scene.assert_home();
    let given = scene.given();
    assert!(
        given.len() < CHUNKS as usize && given.len() >= 3,
        "{given:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_dies_is_given_up_and_depots_give_the_rest() {
    let mut scene = Scene::new(Some(500_000)).await;
    // Depots may be so fast that nobody asks the source for what they hold.
    scene.store(0..CHUNKS - 4).await;
    let mut serving = std::mem::take(&mut scene.serving);
    let dying = async {
        scene.until_given(1).await;
        serving.shutdown().await;
        scene.store(CHUNKS - 4..CHUNKS).await;
    };
    let (pulled, ()) = tokio::join!(scene.pull(&|_| ()), dying);
    assert_eq!(pulled.unwrap().corrupt_fragments, 0);
    scene.assert_home();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_changed_comes_from_depots_or_not_at_all() {
    let scene = Scene::new(None).await;
    scene.store(0..20).await;
    scene.chunks.changed.lock().unwrap().extend([3, 30]);
    let error = scene.pull(&|_| ()).await.unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("chunk 30") && said.contains("no longer what was sealed"),
        "{said}"
    );
    assert!(!scene.home().join("f").exists());
    // The rest is kept, and what is stored since comes from there.
    scene.store(20..CHUNKS).await;
    let report = scene.pull(&|_| ()).await.unwrap();
    assert!(report.skipped_chunks > 0, "{report:?}");
    scene.assert_home();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_may_read_this_dataset_reads_and_nobody_writes() {
    let scene = Scene::new(None).await;
    let dataset = scene.chunks.dataset;
    let other = DatasetId::random().unwrap();
    let (_, digest) = scene.chunks.whole[0].clone();
    let ask = |token: String| {
        let client = RelayClient::new(scene.address.clone(), Credential::Token(token)).unwrap();
        async move {
            client
                .get_fragment(&dataset, ChunkIndex::new(0), WHOLE, digest)
                .await
        }
    };
    let good = mint(&scene.secret, Scope::Read, Some(&dataset), later());
    assert_eq!(ask(good.clone()).await.unwrap().len(), CHUNK);
    let wrong = [
        (
            mint(&[9; 32], Scope::Read, Some(&dataset), later()),
            ErrorKind::Unauthenticated,
        ),
        (
            mint(
                &scene.secret,
                Scope::Read,
                Some(&dataset),
                running::in_seconds(-5),
            ),
            ErrorKind::Unauthenticated,
        ),
        (
            mint(&scene.secret, Scope::Read, Some(&other), later()),
            ErrorKind::PermissionDenied,
        ),
        (
            mint(&scene.secret, Scope::FilesRead, None, later()),
            ErrorKind::PermissionDenied,
        ),
    ];
    for (token, kind) in wrong {
        assert_eq!(ask(token).await.unwrap_err().kind(), kind);
    }
    let all = mint(&scene.secret, Scope::All, Some(&dataset), later());
    let client = RelayClient::new(scene.address.clone(), Credential::Token(all)).unwrap();
    let (chunk, bytes) = (ChunkIndex::new(0), noise(1, 10));
    let stored = client
        .put_fragment(
            &dataset,
            chunk,
            WHOLE,
            bytes.clone(),
            running::digest(&bytes),
            later(),
        )
        .await;
    assert!(stored.is_err());
    assert_eq!(
        client.delete_dataset(&dataset).await.unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    let fragment = FragmentIndex::new(0);
    let error = client
        .get_fragment(&dataset, chunk, fragment, digest)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("whole chunks"), "{error}");
}
