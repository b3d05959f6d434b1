//! Azure Blob Storage: `azblob://container/path`, `https://ACCOUNT.blob.core.windows.net/…`.
//!
//! An own client rather than a general storage layer, because an unfinished upload must be continued
//! after a crash, and bodies stream with nobody hashing them for a signature. A small blob is sent
//! with its CRC-64/NVME, which the service checks; with its MD5 to emulators, which know no other. A
//! large one travels in blocks whose checksums are known only when they have passed; the service
//! answers with what it got, emulators don't.
//!
//! Native names: `prefix/path`. Beside the bytes a blob keeps `mtime` (RFC 3339, as rclone writes it
//! here), `mode` (octal) and `crc64nvme`, the checksum of the whole, in its metadata. A symbolic link
//! is a blob `NAME.rclonelink` that holds its target, an empty directory a blob `NAME/` marked
//! `hdi_isfolder`, as Azure's own tools mark them.

mod account;
mod client;
mod copy;
mod listing;
mod names;
mod object;
mod page;
mod refusal;
mod sign;
mod upload;
mod whole;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::HeaderMap;

use crate::{
    Capabilities, Checksum, Condition, Error, ErrorKind, Result, Server,
    access::Chosen,
    cut::SEGMENT_BYTES_MIN,
    endpoint::{Boxed, Endpoint, Entry, FileSpec, Kind, Listing, Reader, Whole, Writer, join},
    limits::Limits,
    objects::{FILES_AT_ONCE_MAX, LINK_SUFFIX, prefix_of},
};
use account::Account;
pub(crate) use account::is_address;
use client::{AzureClient, Call};
use listing::AzureListing;
use object::{Metadata, ObjectReader, entry_of};
use page::Page;
use upload::{OBJECT_BYTES_MAX, Upload};

/// A container and a name or prefix in it.
pub struct Azure {
    client: Arc<AzureClient>,
    root: String,
    limits: Option<Limits>,
}

impl Azure {
    /// Opens `key` in `container` with the credentials of the profile somebody chose, or of the
    /// environment.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an unknown profile, an account or credentials that make no sense;
    /// [`ErrorKind::Unauthenticated`] without any.
    pub(crate) fn open_chosen(container: &str, key: &str, chosen: Option<&Chosen>) -> Result<Self> {
        Self::new(Account::load(chosen)?, container, key)
    }

    /// Opens the address of a blob or container of an account: `server`, whose host
    /// [`is_address`] knows. It may hold a signature.
    ///
    /// # Errors
    /// As [`Azure::open_chosen`]; [`ErrorKind::Invalid`] for an address without a container.
    pub(crate) fn open_address(server: &Server, chosen: Option<&Chosen>) -> Result<Self> {
        let fail = |cause: &'static str| {
            let shown = format!("https://{}", server.host);
            Error::new(ErrorKind::Invalid, "understand", shown)
                .cause(cause)
                .hint("write https://ACCOUNT.blob.core.windows.net/container/path")
        };
        let path = std::str::from_utf8(&server.path).map_err(|_| fail("names are UTF-8"))?;
        let path = path.trim_start_matches('/');
        let (container, key) = path.split_once('/').unwrap_or((path, ""));
        if container.is_empty() {
            return Err(fail("no container"));
        }
        Self::new(Account::of_address(server, chosen)?, container, key)
    }

    fn new(account: Account, container: &str, key: &str) -> Result<Self> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_name = |byte| plain(byte) || matches!(byte, b'-' | b'$');
        if !container.bytes().all(is_name) {
            return Err(Error::new(ErrorKind::Invalid, "open", container)
                .cause("containers are named in lower-case letters, digits and dashes"));
        }
        Ok(Self {
            client: Arc::new(AzureClient::new(account, container)?),
            root: key.to_owned(),
            limits: None,
        })
    }

    /// Holds listings, which ask for a page ahead, to these caps.
    pub(crate) fn held_to(self, limits: Option<Limits>) -> Self {
        Self { limits, ..self }
    }

    fn key(&self, path: &[u8]) -> Result<String> {
        names::key_of(&self.root, path)
    }

    /// Asks for a blob's head; `None` when there is no such blob.
    async fn head(&self, key: &str, operation: &'static str) -> Result<Option<HeaderMap>> {
        let about = self.client.reading(operation, key);
        match self.client.ask(Call::new("HEAD", key, about)).await {
            Ok((headers, _)) => Ok(Some(headers)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether any name begins with `prefix`. Unlike a head, a refusal says why.
    async fn has_below(&self, prefix: &str) -> Result<bool> {
        let page = self.client.ask_page(prefix, &[("maxresults", "1")]).await;
        let page: Page = page.map_err(|error| error.with("directory", true))?;
        Ok(!page.found.is_empty() || page.next.is_some())
    }

    async fn look_at(&self, path: &[u8]) -> Result<Option<Entry>> {
        let key = self.key(path)?;
        if path.is_empty() {
            // The first request asks the container, whose refusal comes with a reason.
            match self.has_below(&prefix_of(&key)).await {
                Ok(is_directory) if is_directory || key.is_empty() => {
                    return Ok(Some(Entry::bare(Vec::new(), Kind::Directory)));
                }
                Ok(_) => {}
                // A signature may be that of one blob, and a blob public without its neighbours.
                Err(refused) if is_about_listing(&refused) && !key.is_empty() => {
                    let headers = self.head(&key, "look at").await.ok().flatten();
                    let headers = headers.ok_or(refused)?;
                    return Ok(Some(entry_of(&headers, Kind::File)));
                }
                Err(refused) => return Err(refused),
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
        Ok(is_directory.then(|| Entry::bare(Vec::new(), Kind::Directory)))
    }
}

/// Whether it may be the listing alone that was refused.
fn is_about_listing(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::Unauthenticated | ErrorKind::NotFound
    )
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
    mtimes_listed: true,
    modes: true,
    links: true,
    directories: false,
    server_copy: true,
    conditional_writes: true,
    // Of blobs that travel in one request. It checks CRC-64/NVME on the way, but keeps none.
    checksums: &["md5"],
    segment_size_min: SEGMENT_BYTES_MIN,
    files_at_once_max: FILES_AT_ONCE_MAX,
    file_bytes_max: Some(OBJECT_BYTES_MAX),
    requests_ahead_max: 8,
    segments_held: false,
    ..Capabilities::least("azblob")
};

impl Endpoint for Azure {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
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
            let listing = AzureListing::new(client, prefix_of(&key), true);
            let listing: Box<dyn Listing> = Box::new(listing.held_to(self.limits.clone()));
            Ok(listing)
        })
    }

    fn list_tree<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Option<Box<dyn Listing>>>> {
        Box::pin(async {
            let (client, key) = (Arc::clone(&self.client), self.key(path)?);
            let listing = AzureListing::new(client, prefix_of(&key), false);
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
            let listing = AzureListing::resumed(client, prefix_of(&key), mark)?;
            let listing: Box<dyn Listing> = Box::new(listing.held_to(self.limits.clone()));
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
            let missing = || self.client.reading("read", &key).fail(ErrorKind::NotFound);
            let headers = self.head(&key, "read").await?.ok_or_else(missing)?;
            let reader: Arc<dyn Reader> = Arc::new(ObjectReader {
                client: Arc::clone(&self.client),
                entry: entry_of(&headers, Kind::File),
                checksum: Metadata::of(&headers).checksum,
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
            self.store(&key, spec, (data, sum), Kind::File, None).await
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
            let stored = self.store(&key, spec, (data, sum), Kind::File, Some(condition));
            match stored.await {
                Err(error) if error.kind() == ErrorKind::Changed => {
                    let error = self.client.writing("write", &key).fail(ErrorKind::Conflict);
                    Err(error.cause("somebody else wrote it"))
                }
                stored => stored,
            }
        })
    }

    fn create<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        Box::pin(async {
            let (client, key) = (Arc::clone(&self.client), self.key(path)?);
            let writer: Arc<dyn Writer> = Arc::new(Upload::start(client, key, spec).await?);
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
            let upload = Upload::start_open_ended(client, key, spec).await?;
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
            let data = (data, Checksum::of(target));
            self.store(&key, spec, data, Kind::Link, None).await
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
            let nothing = (Vec::new(), Checksum::EMPTY);
            self.store(&key, &spec, nothing, Kind::Directory, None)
                .await
        })
    }

    fn realm(&self) -> Option<String> {
        Some(self.client.realm())
    }

    fn locate(&self, path: &[u8]) -> Vec<u8> {
        let key = join(self.root.as_bytes(), path);
        join(self.client.container().as_bytes(), &key)
    }

    fn copy_within<'a>(
        &'a self,
        from: &'a [u8],
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            let from = names::key_of("", from)?;
            copy::copy(&self.client, &from, &self.key(path)?, spec).await
        })
    }
}

/// Reads a listing, for [`crate::fuzzing`].
pub(crate) fn try_listing(data: &[u8]) {
    if let Ok(page) = Page::parse(data) {
        assert!(page.found.len() <= data.len());
    }
}
