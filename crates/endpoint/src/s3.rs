//! S3 and everything that speaks like it.
//!
//! Requests are signed with an unsigned payload: bodies are protected by TLS and by the CRC-64/NVME
//! the store checks and keeps, so nobody computes SHA-256 over them. An own client rather than a
//! general storage layer, because a multipart upload must be continued after a crash and the
//! checksum of the whole object be composed from its segments'.
//!
//! Native names: `prefix/path`. Beside the bytes an object keeps `mtime` (seconds since the epoch,
//! as rclone) and `mode` (octal) in its metadata. A symbolic link is an object `NAME.rclonelink`
//! that holds its target, an empty directory an object `NAME/`.

mod client;
mod credentials;
mod object;
mod upload;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, Method};
use md5::{Digest as _, Md5};

use crate::{
    Checksum, Error, ErrorKind, Locus, Result, Summer,
    endpoint::{
        Boxed, Capabilities, Endpoint, Entry, FileSpec, Kind, Listing, Reader, Whole, Writer, join,
    },
};
use client::{Call, S3Client, stream};
use credentials::Signing;
use object::{S3Listing, S3Reader};
use wire::{
    CHECKSUM, CHECKSUM_TYPE, LINK_SUFFIX, ListBucketResult, MODE, MTIME, parse_http_date,
    parse_mode,
};

/// Objects up to this size travel in one request; larger ones as a multipart upload.
const SEGMENT_BYTES_MIN: u64 = 8 << 20;

/// Lanes when nobody says: hides the latency of small objects without many connections.
const TRANSFERS_AUTO: usize = 16;

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
}

/// A bucket and a key or prefix in it.
pub struct S3 {
    client: Arc<S3Client>,
    root: String,
}

impl S3 {
    /// Opens `key` in `bucket` with the credentials of `profile`, or of the environment.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an unknown profile or a malformed store address.
    pub fn open(bucket: &str, key: &str, profile: Option<&str>) -> Result<Self> {
        Self::signed(bucket, key, Signing::load(profile)?)
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
        } = signing;
        let base = match &endpoint {
            // Path-style: a store of one's own rarely has a wildcard certificate.
            Some(endpoint) => {
                let endpoint = endpoint.trim_end_matches('/');
                if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
                    return Err(Error::new(ErrorKind::Invalid, "use the store", endpoint)
                        .cause("the address has no scheme")
                        .hint("write https://host or http://host:port"));
                }
                format!("{endpoint}/{bucket}")
            }
            // A dot in a bucket's name breaks the wildcard certificate.
            None if bucket.contains('.') => {
                format!("https://s3.{region}.amazonaws.com/{bucket}")
            }
            None => format!("https://{bucket}.s3.{region}.amazonaws.com"),
        };
        let path_style = endpoint.is_some() || bucket.contains('.');
        let client = S3Client::new(signer, base, bucket.to_owned(), path_style)?;
        Ok(Self {
            client: Arc::new(client),
            root: key.to_owned(),
        })
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

    /// Asks for an object's head; `None` when there is no such object.
    async fn head(&self, key: &str, operation: &'static str) -> Result<Option<HeaderMap>> {
        let call = Call::new(Method::HEAD, key, operation).header("x-amz-checksum-mode", "ENABLED");
        match self.client.ask(call).await {
            Ok((headers, _)) => Ok(Some(headers)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether any key begins with `prefix`. Unlike a head, a refusal says why.
    async fn has_below(&self, prefix: &str) -> Result<bool> {
        let query = [("list-type", "2"), ("max-keys", "1"), ("prefix", prefix)];
        let call = Call::new(Method::GET, "", "list").query(&query);
        let list: ListBucketResult = self
            .client
            .ask_xml(call)
            .await
            .map_err(|error| error.with("directory", true))?;
        Ok(!list.contents.is_empty() || !list.common_prefixes.is_empty())
    }

    async fn look_at(&self, path: &[u8]) -> Result<Option<Entry>> {
        let key = self.key(path)?;
        if path.is_empty() {
            // The first request to a store asks the bucket, whose refusal comes with a reason.
            let is_directory = self.has_below(&prefix_of(&key)).await?;
            if is_directory || key.is_empty() {
                return Ok(Some(directory_entry()));
            }
        }
        if let Some(headers) = self.head(&key, "look at").await? {
            return Ok(Some(entry_of(&headers, Kind::File)));
        }
        if let Some(headers) = self.head(&format!("{key}{LINK_SUFFIX}"), "look at").await? {
            return Ok(Some(entry_of(&headers, Kind::Link)));
        }
        if let Some(headers) = self.head(&format!("{key}/"), "look at").await? {
            let entry = entry_of(&headers, Kind::Directory);
            return Ok(Some(Entry {
                size: 0,
                version: None,
                ..entry
            }));
        }
        let is_directory = !path.is_empty() && self.has_below(&prefix_of(&key)).await?;
        Ok(is_directory.then(directory_entry))
    }

    async fn fetch(
        &self,
        key: &str,
        version: Option<&str>,
        operation: &'static str,
    ) -> Result<Whole> {
        let mut call =
            Call::new(Method::GET, key, operation).header("x-amz-checksum-mode", "ENABLED");
        if let Some(version) = version {
            call = call.header("if-match", version);
        }
        let (head, body) = self.client.send(call).await?.into_parts();
        let entry = entry_of(&head.headers, Kind::File);
        let mut body = stream(body, self.client.show(key));
        let mut data = Vec::new();
        let mut summer = Summer::default();
        while let Some(bytes) = body.next().await {
            let bytes = bytes?;
            summer.add(&bytes);
            data.push(bytes);
        }
        let checksum = summer.sum();
        if !matches_store(&head.headers, checksum, &data) {
            return Err(
                Error::new(ErrorKind::Corrupt, "read", self.client.show(key))
                    .cause("what was read has not the checksum the store keeps for it")
                    .hint("copy it again; if it stays, the stored object is damaged")
                    .status_is(crate::Status::Temporary)
                    .at(Locus::Source),
            );
        }
        Ok(Whole {
            entry,
            data,
            checksum,
        })
    }

    /// Stores one object; the store refuses it unless the checksum is right.
    async fn store(
        &self,
        key: &str,
        spec: &FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
        kind: Kind,
    ) -> Result<()> {
        let mut call = Call::new(Method::PUT, key, "write")
            .header(CHECKSUM, sum.to_base64())
            .body(data.clone())
            .at(Locus::Destination);
        call.headers.extend(metadata_of(spec, kind));
        let (headers, _) = self.client.ask(call).await?;
        if matches_store(&headers, sum, &data) {
            return Ok(());
        }
        Err(
            Error::new(ErrorKind::Corrupt, "write", self.client.show(key))
                .cause("the store holds other bytes than were sent")
                .status_is(crate::Status::Temporary)
                .at(Locus::Destination),
        )
    }
}

/// Whether the store's checksum, or else its MD5 in a plain ETag, is that of `data`. A store that
/// says neither has nothing to compare.
fn matches_store(headers: &HeaderMap, sum: Checksum, data: &[Bytes]) -> bool {
    if let Some(wanted) = checksum_in(headers) {
        return wanted == sum;
    }
    let encrypted = headers.contains_key("x-amz-server-side-encryption");
    let etag = text_of(headers, "etag").map(|etag| etag.trim_matches('"'));
    match etag.filter(|etag| etag.len() == 32 && !encrypted) {
        Some(etag) => {
            let mut md5 = Md5::new();
            data.iter().for_each(|bytes| md5.update(bytes));
            let digest = md5.finalize();
            let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            hex.eq_ignore_ascii_case(etag)
        }
        None => true,
    }
}

fn prefix_of(key: &str) -> String {
    if key.is_empty() {
        String::new()
    } else {
        format!("{key}/")
    }
}

fn directory_entry() -> Entry {
    Entry {
        name: Vec::new(),
        kind: Kind::Directory,
        size: 0,
        mtime: None,
        mode: None,
        version: None,
    }
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The whole object's checksum, where the store keeps one.
fn checksum_in(headers: &HeaderMap) -> Option<Checksum> {
    let composite = text_of(headers, CHECKSUM_TYPE).is_some_and(|kind| kind != "FULL_OBJECT");
    if composite {
        return None;
    }
    Checksum::from_base64(text_of(headers, CHECKSUM)?)
}

fn entry_of(headers: &HeaderMap, kind: Kind) -> Entry {
    let mtime = text_of(headers, MTIME)
        .and_then(|text| text.parse().ok())
        .or_else(|| parse_http_date(text_of(headers, "last-modified")?));
    Entry {
        name: Vec::new(),
        kind,
        size: text_of(headers, "content-length")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0),
        mtime,
        mode: text_of(headers, MODE).and_then(parse_mode),
        version: text_of(headers, "etag").map(Into::into),
    }
}

/// What an object keeps beside its bytes, as rclone writes it.
fn metadata_of(spec: &FileSpec, kind: Kind) -> Vec<(&'static str, String)> {
    let file_type = match kind {
        Kind::File | Kind::Special => 0o100_000,
        Kind::Directory => 0o040_000,
        Kind::Link => 0o120_000,
    };
    let content_type = match kind {
        Kind::Directory => "application/x-directory",
        Kind::File | Kind::Link | Kind::Special => "application/octet-stream",
    };
    let mut headers = vec![("content-type", content_type.to_owned())];
    if let Some(mtime) = spec.mtime {
        headers.push((MTIME, mtime.to_string()));
    }
    if let Some(mode) = spec.mode {
        headers.push((MODE, format!("{:o}", file_type | mode)));
    }
    headers
}

impl Endpoint for S3 {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            scheme: "s3",
            byte_names: false,
            mtime_step_ns: 1,
            mtimes_listed: false,
            directory_attributes: false,
            stores_checksum: true,
            segment_size_min: SEGMENT_BYTES_MIN,
            transfers_auto: TRANSFERS_AUTO,
        }
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
            let listing: Box<dyn Listing> = Box::new(S3Listing {
                client: Arc::clone(&self.client),
                prefix: prefix_of(&self.key(path)?),
                token: None,
                ended: false,
            });
            Ok(listing)
        })
    }

    fn get<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Whole>> {
        Box::pin(async {
            let key = self.key(path)?;
            self.fetch(&key, entry.version.as_deref(), "read").await
        })
    }

    fn open<'a>(&'a self, path: &'a [u8], _entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>> {
        Box::pin(async {
            let key = self.key(path)?;
            let headers = self.head(&key, "read").await?.ok_or_else(|| {
                Error::new(ErrorKind::NotFound, "read", self.client.show(&key)).at(Locus::Source)
            })?;
            let reader: Arc<dyn Reader> = Arc::new(S3Reader {
                client: Arc::clone(&self.client),
                entry: entry_of(&headers, Kind::File),
                checksum: checksum_in(&headers),
                key,
            });
            Ok(reader)
        })
    }

    fn read_link<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        Box::pin(async {
            let key = format!("{}{LINK_SUFFIX}", self.key(path)?);
            Ok(self.fetch(&key, None, "read link").await?.data.concat())
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
            self.store(&key, spec, data, sum, Kind::File).await
        })
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

    fn make_link<'a>(
        &'a self,
        path: &'a [u8],
        target: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            let key = format!("{}{LINK_SUFFIX}", self.key(path)?);
            let data = vec![Bytes::copy_from_slice(target)];
            self.store(&key, spec, data, Checksum::of(target), Kind::Link)
                .await
        })
    }

    fn make_parents(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Prefixes need no making; "new" tells that nothing is there to compare with.
    fn make_directory<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<bool>> {
        Box::pin(async {
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
            self.store(&key, &spec, Vec::new(), Checksum::EMPTY, Kind::Directory)
                .await
        })
    }
}
