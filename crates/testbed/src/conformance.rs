//! Suite that every endpoint passes, against a real server.
//!
//! The suite branches on [`Capabilities`] as copy does. A claimed capability is tried; any other
//! must be rejected as [`ErrorKind::Unsupported`]. A check that fails panics, as a test does.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

mod large;
mod listing;
mod server;
mod small;
mod steps;
mod writers;

use std::{fs::Permissions, os::unix::fs::PermissionsExt, sync::Arc};

use bytes::Bytes;
use futures_util::StreamExt;
use posthaste_endpoint::{
    Access, ByteStream, Capabilities, Checksum, Endpoint, Entry, ErrorKind, FileSpec, FileTime,
    Kind, Listing, Location, Result, join, posix::DraftRules,
};

pub use steps::leaves_in_steps;

/// Modification time of the files that the suite writes.
const MTIME: FileTime = FileTime {
    secs: 1_600_000_000,
    nanos: 123_456_789,
};

/// Mode of the files that the suite writes.
const MODE: u32 = 0o640;

/// Small files written at once: endpoints are shared by lanes.
const WRITES_AT_ONCE: usize = 8;

/// Amount of data that the suite moves.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Files in the listed directory. More than the 1,000 that fit on a page of S3.
    pub listed_files: usize,
    /// Bytes of the large file. More than two segments of the endpoints that cut files.
    pub large_bytes: usize,
}

impl Scale {
    /// Scale for another way to a server that passed the suite: large files as ever, and short
    /// listings.
    pub const SHORT_LISTINGS: Self = Self {
        listed_files: 60,
        large_bytes: (40 << 20) + 12_345,
    };
}

impl Default for Scale {
    fn default() -> Self {
        Self {
            listed_files: 1_200,
            large_bytes: (40 << 20) + 12_345,
        }
    }
}

/// Checks an endpoint that can be written to, with an empty root.
pub async fn passes_the_suite(endpoint: Arc<dyn Endpoint>) {
    passes_at_scale(endpoint, Scale::default()).await;
}

/// Runs [`passes_the_suite`] with more or less data.
pub async fn passes_at_scale(endpoint: Arc<dyn Endpoint>, scale: Scale) {
    let can = endpoint.capabilities();
    assert!(can.writes, "nothing can be written: use passes_seeded");
    let stage = Stage {
        through: Arc::clone(&endpoint),
        endpoint,
        can,
        scale,
    };
    small::files_keep_bytes_and_attributes(&stage).await;
    small::directories_keep_attributes(&stage).await;
    small::several_travel_together(&stage).await;
    listing::shows_names_as_they_are(&stage).await;
    listing::a_tree_is_listed_at_once(&stage).await;
    listing::links_point_where_they_were_told(&stage).await;
    large::is_continued(&stage).await;
    large::of_unknown_length_is_continued(&stage).await;
    large::of_a_changed_source_starts_anew(&stage).await;
    large::of_a_broken_source_is_not_seen(&stage).await;
    large::that_changes_is_noticed(&stage).await;
    writers::of_one_name_never_mix(&stage).await;
    small::refusals_are_told_apart(&stage).await;
    server::copies_among_its_own(&stage).await;
    server::writes_on_condition(&stage).await;
    server::removes(&stage).await;
}

/// Checks a read-only endpoint; `through` writes the files to read.
pub async fn passes_seeded(endpoint: Arc<dyn Endpoint>, through: Arc<dyn Endpoint>) {
    let can = endpoint.capabilities();
    assert!(!can.writes, "it can be written to: use passes_the_suite");
    let stage = Stage {
        through,
        endpoint,
        can,
        scale: Scale::default(),
    };
    small::files_keep_bytes_and_attributes(&stage).await;
    small::several_travel_together(&stage).await;
    small::refusals_are_told_apart(&stage).await;
    listing::shows_names_as_they_are(&stage).await;
    listing::a_tree_is_listed_at_once(&stage).await;
    large::is_read_in_ranges(&stage).await;
    large::that_changes_is_noticed(&stage).await;
    small::writing_is_refused(&stage).await;
}

/// Checks an endpoint whose root is one file that does not exist yet.
pub async fn passes_as_one_file(endpoint: Arc<dyn Endpoint>) {
    let stage = Stage {
        through: Arc::clone(&endpoint),
        can: endpoint.capabilities(),
        endpoint,
        scale: Scale::default(),
    };
    assert!(stage.endpoint.stat(b"", true).await.unwrap().is_none());
    stage.through.make_parents().await.unwrap();
    let bytes = noise(10_000);
    stage.put(b"", &bytes).await;
    let found = stage.entry(b"").await;
    assert_eq!((found.kind, found.size), (Kind::File, 10_000));
    assert_eq!(stage.read(b"").await, bytes);
    if stage.can.removes {
        stage.endpoint.remove(b"").await.unwrap();
        assert!(stage.endpoint.stat(b"", true).await.unwrap().is_none());
    }
}

/// Opens an address as people do, with the first of these `profiles`.
///
/// # Errors
/// See [`Access::open`].
pub async fn open(address: &str, profiles: &str) -> Result<Arc<dyn Endpoint>> {
    open_with(address, profiles, DraftRules::default()).await
}

/// Opens an address with the given rules.
///
/// # Errors
/// See [`Access::open`].
pub async fn open_with(
    address: &str,
    profiles: &str,
    rules: DraftRules,
) -> Result<Arc<dyn Endpoint>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.toml");
    std::fs::write(&path, profiles).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let name = profiles
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'));
    let access = Access::new(name.map(|(name, _)| name.to_owned()), Vec::new());
    let location = Location::parse(address.as_ref())?;
    access.with_profiles(path).open(location, rules).await
}

/// Endpoint under test, and the one that writes its files.
struct Stage {
    endpoint: Arc<dyn Endpoint>,
    /// Writes the files that `endpoint` reads: the same endpoint unless that is read-only.
    through: Arc<dyn Endpoint>,
    can: Capabilities,
    scale: Scale,
}

impl Stage {
    async fn try_put(&self, path: &[u8], bytes: &[u8]) -> Result<()> {
        let data = vec![Bytes::copy_from_slice(bytes)];
        let spec = spec(bytes.len(), "test:put");
        self.through
            .put(path, &spec, data, Checksum::of(bytes))
            .await
    }

    async fn put(&self, path: &[u8], bytes: &[u8]) {
        self.try_put(path, bytes).await.unwrap();
    }

    async fn entry(&self, path: &[u8]) -> Entry {
        self.endpoint
            .stat(path, false)
            .await
            .unwrap()
            .expect("nothing is there")
    }

    async fn is_there(&self, path: &[u8]) -> bool {
        self.endpoint.stat(path, false).await.unwrap().is_some()
    }

    /// Reads a small file whole.
    async fn read(&self, path: &[u8]) -> Vec<u8> {
        let entry = self.entry(path).await;
        let whole = self.endpoint.get(path, &entry).await.unwrap();
        let bytes = whole.data.concat();
        assert_eq!(whole.checksum, Checksum::of(&bytes));
        bytes
    }

    async fn entries(&self, path: &[u8]) -> Vec<Entry> {
        all_of(self.endpoint.list(path, false).await.unwrap()).await
    }

    async fn names(&self, path: &[u8]) -> Vec<(Vec<u8>, Kind)> {
        let entries = self.entries(path).await.into_iter();
        let mut names: Vec<_> = entries.map(|entry| (entry.name, entry.kind)).collect();
        names.sort_by(|a, b| a.0.cmp(&b.0));
        names
    }

    /// Checks that `entry` has its given mtime and mode, as far as the endpoint keeps them.
    fn is_dressed(&self, entry: &Entry, mode: u32) {
        if let Some(step_ns) = self.can.mtime_step_ns {
            let mtime = entry.mtime.unwrap();
            assert!(mtime.agrees(MTIME, step_ns), "{mtime} was to be {MTIME}");
        }
        if self.can.modes {
            assert_eq!(entry.mode, Some(mode));
        }
    }
}

async fn all_of(mut listing: Box<dyn Listing>) -> Vec<Entry> {
    let mut entries = Vec::new();
    loop {
        let page = listing.next_page().await.unwrap();
        if page.is_empty() {
            return entries;
        }
        entries.extend(page);
    }
}

fn spec(size: usize, origin: &str) -> FileSpec {
    FileSpec {
        size: size as u64,
        mtime: Some(MTIME),
        mode: Some(MODE),
        origin: origin.into(),
        version: None,
    }
}

/// Returns bytes that neither compression nor a repeated block can fake.
fn noise(len: usize) -> Vec<u8> {
    crate::noise(0, len)
}

/// Returns a body in pieces of odd size.
fn body(bytes: &[u8]) -> ByteStream {
    let pieces: Vec<_> = bytes
        .chunks(700_001)
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    Box::pin(futures_util::stream::iter(pieces))
}

async fn collect(mut body: ByteStream) -> Result<Vec<u8>> {
    let mut read = Vec::new();
    while let Some(piece) = body.next().await {
        read.extend_from_slice(&piece?);
    }
    Ok(read)
}

fn assert_refused<T>(outcome: Result<T>, kind: ErrorKind, what: &str) {
    match outcome {
        Ok(_) => panic!("{what} passed"),
        Err(error) => assert_eq!(error.kind(), kind, "{what}: {error}"),
    }
}
