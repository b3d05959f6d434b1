//! Learns from depots what a journal restored from a backup lacks.
//!
//! Digests of chunks read after the backup are not in it. While the source exists, the chunks are
//! read again. If it was released since, its depots have the manifest, stored before the release.
//! Without it, their fragments of those chunks could neither be counted nor pulled.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_engine::stripe::digest_of;
use posthaste_journal::RequestRecord;
use posthaste_types::Digest;
use tokio::{task::block_in_place, time::timeout};

use crate::{
    depots::{self, Depot, Viewer},
    driver::Centre,
    monotonic,
    release::keepers,
    secrets,
    store::Store,
};

/// Longest answer: a slower depot is not asked again, because nothing begins before all were asked.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Learns what a restored journal lacks of unfinished requests. Other journals lack nothing.
///
/// # Errors
/// The journal's. Gaps that remain are logged.
pub(crate) async fn learn(centre: &Centre) -> Result<()> {
    let store = &centre.store;
    if store.restored_from().is_none() {
        return Ok(());
    }
    let mut depots = block_in_place(|| known_depots(centre))?;
    for record in block_in_place(|| store.journal(|journal| journal.requests()))? {
        if !block_in_place(|| store.lacks_digests(&record))? {
            continue;
        }
        let kept = manifests(centre, &record, &mut depots).await?;
        if kept.is_empty() {
            continue;
        }
        let id = record.id;
        match block_in_place(|| believe(store, &record, kept)) {
            Ok(()) => tracing::info!(request = %id, "depots told what the backup does not know"),
            Err(error) => tracing::warn!(request = %id, "{error}"),
        }
    }
    Ok(())
}

/// Returns the depots in the journal, by name. A depot whose secret can't be read is left out: the
/// service reports it at the start.
fn known_depots(centre: &Centre) -> Result<BTreeMap<String, Depot>> {
    let mut known = BTreeMap::new();
    for record in centre.store.journal(|journal| journal.depots())? {
        let name = record.name.clone();
        let path = depots::secret_path(centre.store.directory(), &name);
        let opened = secrets::read_private(&path)
            .and_then(|text| depots::parse_secret(&text, &name))
            .and_then(|secret| depots::open(record, secret, centre.network(), monotonic()));
        if let Ok(depot) = opened {
            known.insert(name, depot);
        }
    }
    Ok(known)
}

/// Returns the manifests of a request that depots keep, with the number of depots for each.
async fn manifests(
    centre: &Centre,
    record: &RequestRecord,
    depots: &mut BTreeMap<String, Depot>,
) -> Result<BTreeMap<Digest, (usize, Bytes)>> {
    let dataset = centre.store.dataset(record.id)?;
    let mut kept: BTreeMap<Digest, (usize, Bytes)> = BTreeMap::new();
    let holders = record.holders();
    let asked = holders.filter_map(|name| depots.get_key_value(name));
    let asked = asked.filter(|(_, depot)| Viewer::of(record).sees(&depot.record));
    // All depots are asked at once: a silent one delays no other.
    let asked = join_all(asked.map(async |(name, depot)| {
        let asked = depot.client.get_manifest(&dataset, None);
        (name.clone(), timeout(ANSWER_MAX, asked).await)
    }));
    for (name, answer) in asked.await {
        let answer = answer.unwrap_or_else(|_| {
            let subject = format!("depot {name}");
            Err(Error::new(ErrorKind::TimedOut, "ask", subject).cause("it does not answer"))
        });
        match answer {
            Ok(bytes) => kept.entry(digest_of(&bytes)).or_insert((0, bytes)).0 += 1,
            // Most sources were not released.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(request = %record.id, "{error}");
                depots.remove(&name);
            }
        }
    }
    Ok(kept)
}

/// Accepts the one manifest that fits the journal and that as many depots keep as the release
/// required. An encrypted manifest needs one depot: only a holder of the key can have made it.
fn believe(
    store: &Store,
    record: &RequestRecord,
    kept: BTreeMap<Digest, (usize, Bytes)>,
) -> Result<()> {
    let wanted = match record.recipients.is_empty() {
        true => keepers(record),
        false => 1,
    };
    let doubt = |cause: String| {
        let subject = format!("the manifest of {}", record.id);
        Error::new(ErrorKind::Conflict, "believe", subject).cause(cause)
    };
    let most = kept.values().map(|(depots, _)| *depots).max().unwrap_or(0);
    let mut error = doubt(format!("too few depots keep the same: {most} of {wanted}"));
    let mut fitting = Vec::new();
    for (_, manifest) in kept.into_values().filter(|(depots, _)| *depots >= wanted) {
        match store.digests_in(record, &manifest) {
            Ok(chunks) => fitting.push(chunks),
            Err(cause) => error = cause,
        }
    }
    match fitting.as_slice() {
        [] => Err(error),
        [chunks] => store.journal(|journal| journal.keep_chunks(chunks)),
        _ => Err(doubt("depots keep different ones".into())),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, sync::Arc};

    use posthaste_core::contract::{DepotPrices, DepotTerms, Method, Wishes};
    use posthaste_endpoint::relay::{Credential, DatasetId, RelayClient, read_secret_file};
    use posthaste_engine::{
        dataset::{FileEntry, FileKind, FileList, Manifest},
        envelope::{self, Cipher, DatasetKey, age::Identity},
    };
    use posthaste_journal::{ChunkRecord, DepotRecord, Scan};
    use posthaste_relay::{Relay, RelayOptions};
    use posthaste_types::{Bytes as Amount, ChunkIndex, Code, DepotId, RequestId};
    use tempfile::TempDir;
    use tokio::{sync::mpsc, task::JoinSet};

    use super::*;
    use crate::{backup, clock::Clock};

    const NAMES: [&str; 4] = ["ash", "birch", "cedar", "dune"];
    const CHUNKS: u32 = 3;
    const CHUNK_SIZE: Amount = Amount::mebi(1);

    /// Service that had read one chunk of each request at its backup and all later, with its
    /// depots.
    struct Before {
        folder: TempDir,
        store: Store,
        clients: Vec<RelayClient>,
        /// Depots, which serve for the lifetime of this value.
        _serving: JoinSet<Result<()>>,
    }

    impl Before {
        async fn start() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let state = folder.path().join("service");
            let store = Store::open(&state, None, false).unwrap();
            secrets::token(&state.join("token")).unwrap();
            let (mut clients, mut serving) = (Vec::new(), JoinSet::new());
            for (number, name) in (1..).zip(NAMES) {
                let relay = relay(&folder.path().join(name)).await;
                fs::copy(relay.secret_file(), depots::secret_path(&state, name)).unwrap();
                let address = relay.address();
                let depot = DepotRecord {
                    id: DepotId::new(number),
                    name: name.into(),
                    url: address.url.clone(),
                    fingerprint: address.fingerprint.to_string(),
                    capacity: Amount::mebi(1),
                    rate_max: None,
                    terms: DepotTerms::default(),
                    prices: DepotPrices::default(),
                    load_max_permille: None,
                    level: 1,
                    owner: None,
                };
                store.journal(|journal| journal.keep_depot(&depot)).unwrap();
                let secret = read_secret_file(relay.secret_file()).unwrap();
                clients.push(RelayClient::new(address, Credential::Secret(secret)).unwrap());
                serving.spawn(relay.run(std::future::pending()));
            }
            Self {
                folder,
                store,
                clients,
                _serving: serving,
            }
        }

        /// Submits a request that may use these depots, and reads its first chunk.
        fn submit(&self, via: &[&str], recipients: &[String]) -> RequestRecord {
            let record = RequestRecord {
                via: via.iter().copied().map(str::to_owned).collect(),
                recipients: recipients.to_vec(),
                ..request()
            };
            let store = &self.store;
            store.make_key(&record).unwrap();
            let insert = store.journal(|journal| journal.insert_request(&record));
            let id = insert.unwrap();
            store.keep_list(id, &list()).unwrap();
            let scan = Scan::Sealed {
                bytes: Amount::new(list().bytes),
                files: 1,
                chunk_size: CHUNK_SIZE,
            };
            store
                .journal(|journal| journal.keep_scan(id, &scan))
                .unwrap();
            let record = store.request(id).unwrap();
            self.read(&record, 0);
            record
        }

        fn read(&self, record: &RequestRecord, chunk: u32) {
            let count = record.code.total() + 1 + u8::from(!record.recipients.is_empty());
            let digests =
                (0..count).map(|number| digest_of(format!("{chunk} {number}").as_bytes()));
            let chunk = ChunkRecord {
                request: record.id,
                chunk: ChunkIndex::new(chunk),
                digests: digests.collect(),
            };
            let kept = self.store.journal(|journal| journal.keep_chunks(&[chunk]));
            kept.unwrap();
        }

        /// Makes a backup, and restarts from a copy of it.
        fn back_up(&self, name: &str) -> Centre {
            let copy = self.folder.path().join(name);
            backup::back_up(self.store.directory(), &copy).unwrap();
            restore(&copy)
        }

        /// Reads the rest of a request, and stores at each depot the manifest that a letter
        /// selects: `t`he true one, a `f`orged one, one that `c`ontradicts what was read before the
        /// backup, that of an`o`ther dataset, none for `-`.
        async fn store(&self, record: &RequestRecord, letters: &str) {
            (1..CHUNKS).for_each(|chunk| self.read(record, chunk));
            let manifest = self.store.manifest_bytes(record.id).unwrap();
            let dataset = self.store.dataset(record.id).unwrap();
            for (client, letter) in self.clients.iter().zip(letters.chars()) {
                let bytes = match letter {
                    '-' => continue,
                    't' => manifest.clone(),
                    letter => forged(&manifest, letter),
                };
                let (digest, bytes) = (digest_of(&bytes), Bytes::from(bytes));
                let put = client.put_manifest(&dataset, bytes, digest, record.expires);
                put.await.unwrap();
            }
        }

        fn is_learned(&self, after: &Centre, request: RequestId) -> bool {
            let store = &after.store;
            let record = store.request(request).unwrap();
            if store.lacks_digests(&record).unwrap() {
                let read = store.journal(|journal| journal.chunks_read(request));
                assert_eq!(read.unwrap(), 1, "it took a part");
                return false;
            }
            let manifests =
                [store, &self.store].map(|store| store.manifest_bytes(request).unwrap());
            assert_eq!(manifests[0], manifests[1]);
            true
        }
    }

    async fn relay(dir: &Path) -> Relay {
        let options = RelayOptions {
            dir: dir.to_owned(),
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
        };
        Relay::open(options).await.unwrap()
    }

    fn restore(state: &Path) -> Centre {
        let options = crate::reload::tests::options(state);
        let store = Arc::new(Store::open(state, None, true).unwrap());
        let (listings, _) = crate::listing::Listings::new(0, &Arc::default());
        let (scans, _) = crate::submit::Scans::new();
        Centre::restore(store, mpsc::channel(1).0, (&listings, scans), &options).unwrap()
    }

    fn list() -> FileList {
        let bytes = u64::from(CHUNKS) * CHUNK_SIZE.get();
        let file = FileEntry {
            path: b"run".to_vec(),
            kind: FileKind::Regular,
            size: bytes,
            mode: 0o644,
            mtime_s: 1,
            mtime_ns: 0,
            inode: 1,
            offset: 0,
            owner: posthaste_engine::dataset::NOBODY_KNOWS,
            group: posthaste_engine::dataset::NOBODY_KNOWS,
            changed_ns: 0,
            extra: None,
        };
        FileList {
            files: vec![file],
            bytes,
        }
    }

    /// Returns a request with a code that survives the loss of one depot.
    fn request() -> RequestRecord {
        let now = Clock::default().now();
        RequestRecord {
            id: RequestId::new(0),
            submission: None,
            dataset: DatasetId::random().unwrap().to_string(),
            source: b"/scratch/run".to_vec(),
            only: Vec::new(),
            named: None,
            patterns: posthaste_journal::Patterns::default(),
            destination: "home".into(),
            code: Code::new(2, 1).unwrap(),
            via: Vec::new(),
            pinned: Vec::new(),
            recipients: Vec::new(),
            release: true,
            drops_extras: false,
            best_effort: false,
            optimizer: Method::Auto,
            wishes: Wishes::default(),
            stage_in: None,
            lent: Vec::new(),
            one_file: None,
            created: now,
            deadline: now + Duration::from_secs(600),
            purge_at: None,
            expires: now + Duration::from_secs(3600),
            scan: None,
            submitted: false,
            ended: None,
        }
    }

    fn forged(manifest: &[u8], letter: char) -> Vec<u8> {
        if envelope::is_envelope(manifest) {
            let another = Cipher::new(&DatasetKey::random().unwrap());
            return envelope::close(b"wrapped", &another, b"a manifest".to_vec());
        }
        let mut manifest = Manifest::from_bytes(manifest).unwrap();
        let forged = digest_of(b"forged");
        match letter {
            'f' => manifest.chunks[2].chunk = forged,
            'c' => manifest.chunks[0].chunk = forged,
            'o' => manifest.dataset = DatasetId::random().unwrap(),
            letter => panic!("{letter} says nothing"),
        }
        manifest.to_bytes()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn as_many_depots_must_tell_the_same_as_had_to_before_the_release() {
        let before = Before::start().await;
        let cases: [(&[&str], &str, bool); 9] = [
            (&NAMES, "----", false),
            (&NAMES, "t---", false),
            (&NAMES[..1], "t---", true),
            (&NAMES, "tt--", true),
            (&NAMES, "t-f-", false),
            (&NAMES, "tft-", true),
            (&NAMES, "tftf", false),
            (&NAMES, "ctct", true),
            (&NAMES, "oooo", false),
        ];
        let requests = cases.map(|(via, _, _)| before.submit(via, &[]));
        let after = before.back_up("after");
        for (record, (_, letters, _)) in requests.iter().zip(cases) {
            before.store(record, letters).await;
        }
        learn(&after).await.unwrap();
        for (record, (via, letters, is_learned)) in requests.iter().zip(cases) {
            let said = before.is_learned(&after, record.id);
            assert_eq!(said, is_learned, "{letters} of {via:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_depot_is_believed_of_what_is_encrypted_and_none_without_the_key() {
        let before = Before::start().await;
        let alice = [Identity::random().unwrap().recipient().to_string()];
        let cases = [("t---", true), ("ffft", true), ("ffff", false)];
        let requests = cases.map(|_| before.submit(&NAMES, &alice));
        let keyless = before.submit(&NAMES, &alice);
        let after = before.back_up("after");
        for (record, (letters, _)) in requests.iter().zip(cases) {
            before.store(record, letters).await;
        }
        before.store(&keyless, "tttt").await;
        let key = after.store.directory().join("keys").join(&keyless.dataset);
        fs::remove_file(key).unwrap();
        learn(&after).await.unwrap();
        for (record, (letters, is_learned)) in requests.iter().zip(cases) {
            let said = before.is_learned(&after, record.id);
            assert_eq!(said, is_learned, "{letters}");
        }
        assert!(!before.is_learned(&after, keyless.id));
    }
}
