//! Azure Blob Storage: `azblob://container/path`, `https://ACCOUNT.blob.core.windows.net/…`.
//!
//! The client is our own rather than a general storage layer, for two reasons: an unfinished upload
//! must be continued after a crash, and bodies stream without being hashed for a signature. A small
//! blob is sent with its CRC-64/NVME, which the service checks; to emulators with its MD5, the only
//! checksum they know. A large one travels in blocks whose checksums are known only at their end.
//! The service answers with the checksum it computed; emulators don't.
//!
//! Native names: `prefix/path`. A blob's metadata has `mtime` (RFC 3339, as rclone writes it here),
//! `mode` (octal) and `crc64nvme`, the checksum of the whole. A symbolic link is a blob
//! `NAME.rclonelink` that holds its target. An empty directory is a blob `NAME/` marked
//! `hdi_isfolder`, as Azure's own tools mark them.

mod account;
mod client;
mod copy;
mod listing;
mod names;
mod object;
mod page;
mod pass;
mod refusal;
mod sign;
mod upload;
mod whole;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    Capabilities, Checksum, Condition, Endpoint, Errand, Error, ErrorKind, Pass, Result, Server,
    access::Chosen,
    cut::SEGMENT_BYTES_MIN,
    endpoint::{Entry, FileSpec, Kind, Reader, Whole},
    limits::Limits,
    objects::{FILES_AT_ONCE_MAX, Head, Objects, RawStore},
    posix::DraftRules,
    reach::Reach,
};
use account::Account;
pub(crate) use account::{address_of, is_address};
use client::{AzureClient, Call};
use listing::AzureListing;
use object::{ObjectReader, entry_of};
use page::Page;
use upload::{Blocks, OBJECT_BYTES_MAX};

/// Opens `key` in `container` with the credentials of the chosen profile or of the environment.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an unknown profile, an invalid account or invalid credentials;
/// [`ErrorKind::Unauthenticated`] without any.
pub(crate) fn open_chosen(
    container: &str,
    key: &str,
    chosen: Option<&Chosen>,
    reach: Reach,
    held_to: (Option<Limits>, DraftRules),
) -> Result<Arc<dyn Endpoint>> {
    let client = client_of(Account::load(chosen)?, container, reach)?;
    Ok(Objects::open(client, key, held_to))
}

/// Opens the address of a blob or container of an account: `server`, whose host [`is_address`]
/// recognizes. It may contain a signature.
///
/// # Errors
/// Errors of [`open_chosen`]; [`ErrorKind::Invalid`] for an address without a container.
pub(crate) fn open_address(
    server: &Server,
    chosen: Option<&Chosen>,
    reach: Reach,
    held_to: (Option<Limits>, DraftRules),
) -> Result<Arc<dyn Endpoint>> {
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
    let client = client_of(Account::of_address(server, chosen)?, container, reach)?;
    Ok(Objects::open(client, key, held_to))
}

fn client_of(account: Account, container: &str, reach: Reach) -> Result<AzureClient> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_name = |byte| plain(byte) || matches!(byte, b'-' | b'$');
    if !container.bytes().all(is_name) {
        return Err(Error::new(ErrorKind::Invalid, "open", container)
            .cause("containers are named in lower-case letters, digits and dashes"));
    }
    AzureClient::new(account, container, reach)
}

/// Capabilities of Azure Blob Storage.
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
    // Only for blobs that travel in one request. The service checks CRC-64/NVME in transit, but
    // keeps none.
    checksums: &["md5"],
    segment_size_min: SEGMENT_BYTES_MIN,
    files_at_once_max: FILES_AT_ONCE_MAX,
    file_bytes_max: Some(OBJECT_BYTES_MAX),
    requests_ahead_max: 8,
    segments_held: false,
    ..Capabilities::least("azblob")
};

impl RawStore for AzureClient {
    type Head = Head;
    type Listing = AzureListing;
    type Segments = Blocks;

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn show(&self, key: &str) -> String {
        self.show(key)
    }

    fn round_trip(&self) -> Option<Duration> {
        self.round_trip()
    }

    fn realm(&self) -> String {
        self.realm()
    }

    fn bucket(&self) -> &str {
        self.container()
    }

    fn place(&self) -> String {
        self.place()
    }

    fn refuses(&self, key: &str) -> Option<&'static str> {
        names::refuses(key)
    }

    async fn head(&self, key: &str, operation: &'static str) -> Result<Option<Head>> {
        let about = self.reading(operation, key);
        match self.ask(Call::new("HEAD", key, about.clone())).await {
            Ok((headers, _)) => Head::of(headers, &about).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn entry(head: &Head, kind: Kind) -> Entry {
        entry_of(&head.headers, head.size, kind)
    }

    async fn has_below(&self, prefix: &str) -> Result<bool> {
        let page = self.ask_page(prefix, &[("maxresults", "1")]).await;
        let page: Page = page.map_err(|error| error.with("directory", true))?;
        Ok(!page.found.is_empty() || page.next.is_some())
    }

    /// Returns whether a refusal may concern only listing: a signature may be valid for one blob
    /// only, and a blob public without its neighbours.
    fn is_about_listing(refusal: &Error) -> bool {
        matches!(
            refusal.kind(),
            ErrorKind::PermissionDenied | ErrorKind::Unauthenticated | ErrorKind::NotFound
        )
    }

    async fn get(&self, key: &str, entry: &Entry, operation: &'static str) -> Result<Whole> {
        whole::fetch(self, key, entry, operation).await
    }

    fn reader(self: &Arc<Self>, key: String, head: &Head) -> Arc<dyn Reader> {
        Arc::new(ObjectReader::new(Arc::clone(self), key, head))
    }

    async fn put(
        &self,
        key: &str,
        what: (&FileSpec, Kind),
        content: (Vec<Bytes>, Checksum),
        condition: Option<&Condition>,
    ) -> Result<()> {
        whole::store(self, key, what, content, condition).await
    }

    async fn put_damaged(&self, key: &str) -> Result<()> {
        whole::put_damaged(self, key).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let call = Call::new("DELETE", key, self.writing("remove", key));
        self.ask(call).await.map(|_| ())
    }

    async fn pass(&self, key: &str, errand: &Errand, lifetime: Duration) -> Result<Pass> {
        pass::pass(self, key, errand, lifetime)
    }

    async fn copy(self: &Arc<Self>, from: &str, key: &str, spec: &FileSpec) -> Result<()> {
        copy::copy(self, from, key, spec).await
    }
}

/// Reads a listing, for [`crate::fuzzing`].
pub(crate) fn try_listing(data: &[u8]) {
    if let Ok(page) = Page::parse(data) {
        assert!(page.found.len() <= data.len());
    }
}
