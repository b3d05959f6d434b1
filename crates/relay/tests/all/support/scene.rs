//! Dataset on relays in this process, and what a pull brought of it.
use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use posthaste_endpoint::relay::{Credential, Scope, mint};
use posthaste_engine::{
    code::Codec,
    dataset::{ChunkDigests, DatasetId, Manifest, SourceReader, scan},
    envelope::{
        self, Cipher, DatasetKey,
        age::{self, Identity},
    },
    pull::{Holder, PullOptions, PullReport, Ticket, pull},
    stripe::{Stripe, encode_stripe},
};
use posthaste_types::{Bytes as Amount, ChunkIndex, Code, FragmentIndex};

use crate::support::running::{Running, later, noise};

/// Source tree, and relays that hold it coded, one fragment of each chunk on each.
pub struct Scene {
    pub folder: tempfile::TempDir,
    pub manifest: Arc<Manifest>,
    pub relays: Vec<Option<Running>>,
}

/// Change of a stripe before it is stored.
pub type Tamper = fn(&mut Stripe);

impl Scene {
    pub async fn new(code: &str, fill: impl FnOnce(&Path)) -> Self {
        Self::with(code, fill, None, |_| ()).await
    }

    /// Makes the scene with an encrypted dataset.
    pub async fn encrypted(code: &str, fill: impl FnOnce(&Path)) -> Self {
        Self::with(code, fill, Some(DatasetKey::random().unwrap()), |_| ()).await
    }

    pub async fn with(
        code: &str,
        fill: impl FnOnce(&Path),
        key: Option<DatasetKey>,
        tamper: Tamper,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        fs::create_dir(&source).unwrap();
        fill(&source);
        let list = Arc::new(scan(&source).unwrap());
        let code: Code = code.parse().unwrap();
        let (codec, chunk_size) = (Codec::new(code), Amount::new(100_000));
        let (dataset, expires) = (DatasetId::random().unwrap(), later());
        let mut relays = Vec::new();
        for n in 0..code.total() {
            let dir = folder.path().join(format!("relay{n}"));
            relays.push(Running::start(&dir, |_| ()).await);
        }
        let reader = SourceReader::new(&source, Arc::clone(&list), chunk_size);
        let clients: Vec<_> = relays.iter().map(Running::client).collect();
        let cipher = key.as_ref().map(Cipher::new);
        let mut chunks = Vec::new();
        for chunk in 0..u32::try_from(Amount::new(list.bytes).pieces(chunk_size)).unwrap() {
            let mut buffer = Vec::new();
            reader.read_chunk(chunk, &mut buffer).unwrap();
            let mut stripe = encode_stripe(&codec, cipher.as_ref(), chunk, buffer).unwrap();
            tamper(&mut stripe);
            for (at, (bytes, digest)) in stripe.fragments.iter().zip(&stripe.digests).enumerate() {
                // Turned by one with each chunk, so that every relay holds data and parity.
                let client = &clients[(at + usize::try_from(chunk).unwrap()) % clients.len()];
                let fragment = FragmentIndex::new(u8::try_from(at).unwrap());
                let chunk = ChunkIndex::new(chunk);
                client
                    .put_fragment(&dataset, chunk, fragment, bytes.clone(), *digest, expires)
                    .await
                    .unwrap();
            }
            chunks.push(ChunkDigests {
                chunk: stripe.chunk_digest,
                fragments: stripe.digests,
                content: stripe.content_digest,
            });
        }
        let list = Arc::unwrap_or_clone(list);
        let manifest = Manifest {
            dataset,
            code,
            chunk_size,
            list,
            chunks,
            cipher,
        };
        let manifest = Arc::new(delivered(&manifest, key.as_ref()));
        Self {
            folder,
            manifest,
            relays: relays.into_iter().map(Some).collect(),
        }
    }

    pub fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Returns a ticket with read-only tokens, as the service issues them.
    pub async fn ticket(&self) -> Ticket {
        let mut holders = Vec::new();
        for (n, relay) in self.relays.iter().enumerate() {
            let Some(relay) = relay else { continue };
            let dataset = &self.manifest.dataset;
            let token = mint(&relay.secret, Scope::Read, Some(dataset), later());
            let client = relay.client_with(Credential::Token(token));
            let held = client.inventory(dataset).await.unwrap();
            let held = held
                .into_iter()
                .map(|(chunk, fragment, _)| (chunk, fragment))
                .collect();
            holders.push(Holder {
                name: format!("relay{n}"),
                client,
                held,
            });
        }
        Ticket {
            manifest: Arc::clone(&self.manifest),
            holders,
        }
    }

    pub async fn pull(&self) -> PullReport {
        let ticket = self.ticket().await;
        let report = pull(ticket, &self.home(), &PullOptions::default(), &|_| ())
            .await
            .unwrap();
        assert_same(&self.source(), &self.home());
        report
    }

    /// Damages the first fragment file a relay holds of each of so many chunks.
    pub fn damage(&self, relay: usize, count: usize) {
        let datasets = self.folder.path().join(format!("relay{relay}/datasets"));
        let files = tree(&datasets)
            .into_keys()
            .filter(|path| path.split(|&byte| byte == b'.').count() == 3);
        for file in files.take(count) {
            let path = datasets.join(std::ffi::OsStr::from_bytes(&file));
            let file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(b"damage", 7).unwrap();
        }
    }
}

/// Returns the manifest as it arrives: as bytes, in an envelope if it is encrypted.
pub fn delivered(manifest: &Manifest, key: Option<&DatasetKey>) -> Manifest {
    let (Some(key), Some(cipher)) = (key, &manifest.cipher) else {
        return Manifest::from_bytes(&manifest.to_bytes()).unwrap();
    };
    let identity = Identity::random().unwrap();
    let secret = key.to_secret_text();
    let wrapped = age::wrap(&[identity.recipient()], secret.as_bytes()).unwrap();
    let envelope = envelope::close(&wrapped, cipher, manifest.to_bytes());
    Manifest::open(&envelope, &[identity]).unwrap()
}

/// Facts of a path, byte for byte: mode, mtime and content, target or nothing.
pub type Facts = (u32, i64, i64, Vec<u8>);

pub fn tree(root: &Path) -> BTreeMap<Vec<u8>, Facts> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let facts = fs::symlink_metadata(&path).unwrap();
        let content = if facts.is_dir() {
            waiting.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|item| item.unwrap().path()),
            );
            Vec::new()
        } else if facts.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_vec()
        } else {
            fs::read(&path).unwrap()
        };
        let name = path
            .strip_prefix(root)
            .unwrap()
            .as_os_str()
            .as_bytes()
            .to_vec();
        found.insert(
            name,
            (facts.mode(), facts.mtime(), facts.mtime_nsec(), content),
        );
    }
    found
}

pub fn assert_same(source: &Path, home: &Path) {
    let (expected, actual) = (tree(source), tree(home));
    let names = |tree: &BTreeMap<Vec<u8>, Facts>| -> Vec<String> {
        tree.keys()
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect()
    };
    assert_eq!(names(&actual), names(&expected));
    for (name, facts) in &expected {
        let name_shown = String::from_utf8_lossy(name);
        // The owner is not kept, so no file may run with an owner's rights.
        let mode = if home.join(std::ffi::OsStr::from_bytes(name)).is_file() {
            facts.0 & !0o6000
        } else {
            facts.0
        };
        assert_eq!(actual[name].0, mode, "mode of {name_shown}");
        assert_eq!(
            (actual[name].1, actual[name].2),
            (facts.1, facts.2),
            "mtime of {name_shown}"
        );
        assert!(actual[name].3 == facts.3, "content of {name_shown}");
    }
}

/// Fills a tree with large, small, empty and sparse files, odd names and modes, links, empty
/// directories.
pub fn fill(root: &Path) {
    let at = |name: &[u8]| root.join(std::ffi::OsString::from_vec(name.to_vec()));
    fs::create_dir_all(at(b"deep/er/est")).unwrap();
    fs::create_dir(at(b"empty")).unwrap();
    fs::write(at(b"large"), noise(1, 2_345_678)).unwrap();
    for n in 0..300u64 {
        fs::write(
            at(format!("deep/small{n}").as_bytes()),
            noise(n, 7 * usize::try_from(n).unwrap()),
        )
        .unwrap();
    }
    fs::write(at(b"deep/er/new\nline \xff"), b"odd").unwrap();
    fs::write(at(b"zero"), b"").unwrap();
    let sparse = fs::File::create(at(b"sparse")).unwrap();
    sparse.set_len(3_000_000).unwrap();
    sparse.write_all_at(b"in the middle", 1_500_000).unwrap();
    symlink("../nowhere", at(b"deep/link")).unwrap();
    symlink("/etc/passwd", at(b"absolute")).unwrap();
    fs::set_permissions(at(b"large"), fs::Permissions::from_mode(0o440)).unwrap();
    fs::set_permissions(at(b"zero"), fs::Permissions::from_mode(0o4755)).unwrap();
    let old = fs::File::open(at(b"large")).unwrap();
    old.set_modified(std::time::UNIX_EPOCH + Duration::new(123, 456_789_012))
        .unwrap();
    fs::set_permissions(at(b"empty"), fs::Permissions::from_mode(0o2750)).unwrap();
    fs::set_permissions(root, fs::Permissions::from_mode(0o711)).unwrap();
}
