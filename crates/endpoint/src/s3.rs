//! S3 and everything that speaks like it.
//!
//! Requests are signed with an unsigned payload: bodies are protected by TLS and by the CRC-64/NVME
//! (or the CRC-32C or MD5) the store checks, so nobody computes SHA-256 over them. An own client rather than a
//! general storage layer, because a multipart upload must be continued after a crash and the
//! checksum of the whole object be composed from its segments'.
//!
//! Native names: `prefix/path`. Beside the bytes an object keeps `mtime` (seconds since the epoch,
//! as rclone) and `mode` (octal) in its metadata. A symbolic link is an object `NAME.rclonelink`
//! that holds its target, an empty directory an object `NAME/`.

mod client;
mod copy;
mod credentials;
mod frames;
mod headers;
pub(crate) mod listing;
mod multipart;
mod object;
mod page;
mod ranges;
mod sums;
mod upload;
mod wire;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;

use crate::{
    Capabilities, Checksum, Condition, Error, ErrorKind, Locus, Result,
    access::Chosen,
    cut::SEGMENT_BYTES_MIN,
    endpoint::{Boxed, Endpoint, Entry, FileSpec, Kind, Listing, Reader, Whole, Writer, join},
    limits::Limits,
    objects::{FILES_AT_ONCE_MAX, LINK_SUFFIX, Spans, prefix_of},
    web::Web,
};
use client::{Address, S3Client};
use credentials::Signing;
use headers::{checksum_in, crc32c_in, entry_of, metadata_of};
use listing::KeyListing;
use object::S3Reader;
use sums::Sum;

/// The largest object: 5 TiB ("Amazon S3 multipart upload limits").
const OBJECT_BYTES_MAX: u64 = 5 << 40;

/// A store's address and keys.
#[derive(Clone)]
pub struct Store {
    /// `https://host` or `http://host:port`.
    pub endpoint: String,
    /// The region requests are signed for.
    pub region: String,
    /// The access key's id.
    pub access_key_id: String,
    /// The access key's secret.
    pub secret_access_key: String,
    /// Certificates to trust beside the system's, in PEM.
    pub ca_file: Option<PathBuf>,
}

/// A bucket and a key or prefix in it.
pub struct S3 {
    client: Arc<S3Client>,
    root: String,
    limits: Option<Limits>,
    /// The store and whose keys are used: among such objects the store copies by itself.
    realm: String,
    /// Whether nothing was at the root or below it when it was looked at.
    was_empty: AtomicBool,
}

impl S3 {
    /// Opens `key` in `bucket` with the credentials of the profile somebody chose, or of the
    /// environment.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an unknown profile or a malformed store address.
    pub(crate) fn open_chosen(bucket: &str, key: &str, chosen: Option<&Chosen>) -> Result<Self> {
        Self::signed(bucket, key, Signing::load(chosen)?)
    }

    /// Opens `key` in `bucket` of a store whose address and keys the caller has.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a malformed store address.
    pub fn open_store(bucket: &str, key: &str, store: &Store) -> Result<Self> {
        Self::signed(bucket, key, Signing::with_keys(store)?)
    }

    fn signed(bucket: &str, key: &str, signing: Signing) -> Result<Self> {
        let Signing {
            signer,
            endpoint,
            region,
            ca_file,
            owner,
        } = signing;
        if let Some(endpoint) = &endpoint
            && !endpoint.starts_with("http://")
            && !endpoint.starts_with("https://")
        {
            return Err(Error::new(ErrorKind::Invalid, "use the store", endpoint)
                .cause("the address has no scheme")
                .hint("write https://host or http://host:port"));
        }
        let endpoint = endpoint.map(|endpoint| endpoint.trim_end_matches('/').to_owned());
        let store = endpoint.as_deref().unwrap_or("amazonaws.com");
        let realm = format!("s3 {owner} {region} {store}");
        let web = Web::new(ca_file.as_deref())?;
        let address = Address { endpoint, region };
        let client = S3Client::new(web, signer, address, bucket.to_owned());
        Ok(Self {
            client: Arc::new(client),
            root: key.to_owned(),
            limits: None,
            realm,
            was_empty: AtomicBool::new(false),
        })
    }

    /// Holds listings, which make several requests at once, to these caps.
    pub(crate) fn held_to(self, limits: Option<Limits>) -> Self {
        Self { limits, ..self }
    }

    fn key(&self, path: &[u8]) -> Result<String> {
        String::from_utf8(join(self.root.as_bytes(), path)).map_err(|_| {
            Error::new(
                ErrorKind::Unsupported,
                "name",
                String::from_utf8_lossy(path),
            )
            .cause("its name is not UTF-8, which S3 needs")
            .hint("rename it")
        })
    }

    /// Whether any key begins with `prefix`. Unlike a head, a refusal says why.
    async fn has_below(&self, prefix: &str) -> Result<bool> {
        let query = [("list-type", "2"), ("max-keys", "1"), ("prefix", prefix)];
        let page = self.client.ask_page(&query).await;
        let page = page.map_err(|error| error.with("directory", true))?;
        Ok(!page.objects.is_empty() || !page.prefixes.is_empty())
    }

    async fn head(&self, key: &str) -> Result<Option<HeaderMap>> {
        object::head(&self.client, key, "look at").await
    }

    async fn look_at(&self, path: &[u8]) -> Result<Option<Entry>> {
        let key = self.key(path)?;
        let (link, marker, prefix) = (
            format!("{key}{LINK_SUFFIX}"),
            format!("{key}/"),
            prefix_of(&key),
        );
        if path.is_empty() {
            if key.is_empty() {
                self.has_below(&prefix).await?;
                return Ok(Some(directory_entry()));
            }
            // Asked together, because mostly nothing is there and each would be waited for. The
            // bucket's refusal comes first, because it has a reason.
            let (below, file, link, marker) = tokio::join!(
                self.has_below(&prefix),
                self.head(&key),
                self.head(&link),
                self.head(&marker)
            );
            if below? {
                return Ok(Some(directory_entry()));
            }
            let found = as_file(file?).or(as_link(link?)).or(as_directory(marker?));
            self.was_empty.store(found.is_none(), Relaxed);
            return Ok(found);
        }
        if let Some(file) = as_file(self.head(&key).await?) {
            return Ok(Some(file));
        }
        if let Some(link) = as_link(self.head(&link).await?) {
            return Ok(Some(link));
        }
        if let Some(directory) = as_directory(self.head(&marker).await?) {
            return Ok(Some(directory));
        }
        let is_directory = self.has_below(&prefix).await?;
        Ok(is_directory.then(directory_entry))
    }
}

fn as_file(headers: Option<HeaderMap>) -> Option<Entry> {
    headers.map(|headers| entry_of(&headers, Kind::File))
}

fn as_link(headers: Option<HeaderMap>) -> Option<Entry> {
    headers.map(|headers| entry_of(&headers, Kind::Link))
}

fn as_directory(headers: Option<HeaderMap>) -> Option<Entry> {
    headers.map(|headers| Entry {
        size: 0,
        version: None,
        ..entry_of(&headers, Kind::Directory)
    })
}

fn directory_entry() -> Entry {
    Entry::bare(Vec::new(), Kind::Directory)
}

/// What it can do.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    lists: true,
    listing_marks: true,
    ranges: true,
    writes: true,
    removes: true,
    segments_in_any_order: true,
    resumes: true,
    open_ended: true,
    mtime_step_ns: Some(1),
    modes: true,
    links: true,
    directories: false,
    server_copy: true,
    conditional_writes: true,
    checksums: &["crc64nvme", "crc32c", "md5"],
    segment_size_min: SEGMENT_BYTES_MIN,
    files_at_once_max: FILES_AT_ONCE_MAX,
    file_bytes_max: Some(OBJECT_BYTES_MAX),
    requests_ahead_max: 8,
    ..Capabilities::least("s3")
};

impl Endpoint for S3 {
    fn capabilities(&self) -> Capabilities {
        let client = &self.client;
        Capabilities {
            checksums: match client.sums.preferred() {
                Sum::Crc64 => CAPABILITIES.checksums,
                Sum::Crc32c => &["crc32c", "md5"],
                Sum::Md5 => &["md5"],
            },
            segments_held: !client.takes_streams(),
            ..CAPABILITIES
        }
    }

    fn round_trip(&self) -> Option<Duration> {
        self.client.round_trip()
    }

    fn show(&self, path: &[u8]) -> String {
        let key = join(self.root.as_bytes(), path);
        self.client.show(&String::from_utf8_lossy(&key))
    }

    fn stat<'a>(&'a self, path: &'a [u8], _follow: bool) -> Boxed<'a, Result<Option<Entry>>> {
        Box::pin(self.look_at(path))
    }

    fn list<'a>(&'a self, path: &'a [u8], _follow: bool) -> Boxed<'a, Result<Box<dyn Listing>>> {
        Box::pin(async {
            let (client, key) = (Arc::clone(&self.client), self.key(path)?);
            let listing = KeyListing::new(client, prefix_of(&key), true);
            let listing: Box<dyn Listing> = Box::new(listing.held_to(self.limits.clone()));
            Ok(listing)
        })
    }

    fn list_tree<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Option<Box<dyn Listing>>>> {
        Box::pin(async {
            let (client, key) = (Arc::clone(&self.client), self.key(path)?);
            let listing = KeyListing::new(client, prefix_of(&key), false);
            let listing: Box<dyn Listing> = Box::new(listing.held_to(self.limits.clone()));
            Ok(Some(listing))
        })
    }

    fn list_on<'a>(
        &'a self,
        path: &'a [u8],
        mark: &'a [u8],
    ) -> Boxed<'a, Result<Box<dyn Listing>>> {
        Box::pin(async move {
            let (client, key) = (Arc::clone(&self.client), self.key(path)?);
            let listing = KeyListing::resumed(client, prefix_of(&key), mark)?;
            let listing: Box<dyn Listing> = Box::new(listing.held_to(self.limits.clone()));
            Ok(listing)
        })
    }

    fn get<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Whole>> {
        Box::pin(async {
            let key = self.key(path)?;
            object::fetch(&self.client, &key, entry.version.as_deref(), "read").await
        })
    }

    fn open<'a>(&'a self, path: &'a [u8], _entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>> {
        Box::pin(async {
            let key = self.key(path)?;
            let headers = object::head(&self.client, &key, "read").await?;
            let headers = headers.ok_or_else(|| {
                Error::new(ErrorKind::NotFound, "read", self.client.show(&key)).at(Locus::Source)
            })?;
            let reader: Arc<dyn Reader> = Arc::new(S3Reader {
                client: Arc::clone(&self.client),
                entry: entry_of(&headers, Kind::File),
                checksum: checksum_in(&headers),
                crc32c: crc32c_in(&headers).filter(|_| checksum_in(&headers).is_none()),
                spans: Spans::default(),
                key,
            });
            Ok(reader)
        })
    }

    fn read_link<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        Box::pin(async {
            let key = format!("{}{LINK_SUFFIX}", self.key(path)?);
            let whole = object::fetch(&self.client, &key, None, "read link").await?;
            Ok(whole.data.concat())
        })
    }

    fn put<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            let key = self.key(path)?;
            object::store(&self.client, &key, metadata_of(spec, Kind::File), data, sum).await
        })
    }

    fn put_if<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
        condition: &'a Condition,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            let key = self.key(path)?;
            object::store_if(&self.client, &key, spec, data, sum, condition).await
        })
    }

    fn realm(&self) -> Option<String> {
        Some(self.realm.clone())
    }

    fn locate(&self, path: &[u8]) -> Vec<u8> {
        let key = join(self.root.as_bytes(), path);
        [self.client.bucket().as_bytes(), b"/", &key].concat()
    }

    fn copy_within<'a>(
        &'a self,
        from: &'a [u8],
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move { copy::copy(&self.client, from, &self.key(path)?, spec).await })
    }

    fn create<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        Box::pin(async {
            let key = self.key(path)?;
            let upload = upload::Upload::start(Arc::clone(&self.client), key, spec).await?;
            let writer: Arc<dyn Writer> = Arc::new(upload);
            Ok(writer)
        })
    }

    fn create_open_ended<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        Box::pin(async {
            let (client, key) = (Arc::clone(&self.client), self.key(path)?);
            let upload = upload::Upload::start_open_ended(client, key, spec).await?;
            let writer: Arc<dyn Writer> = Arc::new(upload);
            Ok(writer)
        })
    }

    fn adopt<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        note: &'a str,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move { upload::adopt(&self.client, &self.key(path)?, spec, note) })
    }

    fn remove<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<()>> {
        Box::pin(async { object::remove(&self.client, &self.key(path)?).await })
    }

    fn make_link<'a>(
        &'a self,
        path: &'a [u8],
        target: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            let key = format!("{}{LINK_SUFFIX}", self.key(path)?);
            let data = vec![Bytes::copy_from_slice(target)];
            let metadata = metadata_of(spec, Kind::Link);
            object::store(&self.client, &key, metadata, data, Checksum::of(target)).await
        })
    }

    fn make_parents(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Prefixes need no making; "new" tells that nothing is there to compare with.
    fn make_directory<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<bool>> {
        Box::pin(async {
            if self.was_empty.load(Relaxed) {
                return Ok(true);
            }
            let key = self.key(path)?;
            Ok(!self.has_below(&prefix_of(&key)).await?)
        })
    }

    fn seal_directory<'a>(
        &'a self,
        path: &'a [u8],
        entry: &'a Entry,
        empty: bool,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            if !empty {
                return Ok(());
            }
            let key = format!("{}/", self.key(path)?);
            let spec = FileSpec {
                size: 0,
                mtime: entry.mtime,
                mode: entry.mode,
                origin: "".into(),
                version: None,
            };
            let metadata = metadata_of(&spec, Kind::Directory);
            object::store(&self.client, &key, metadata, Vec::new(), Checksum::EMPTY).await
        })
    }
}

/// Reads a listing, for [`crate::fuzzing`].
pub(crate) fn try_listing(data: &[u8]) {
    if let Ok(page) = page::Page::parse(data) {
        assert!(page.objects.len() + page.prefixes.len() <= data.len());
    }
}
