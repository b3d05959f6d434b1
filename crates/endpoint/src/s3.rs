//! S3 and compatible stores.
//!
//! Requests are signed with an unsigned payload. TLS and the CRC-64/NVME (or the CRC-32C or MD5)
//! that the store checks protect bodies, so no SHA-256 is computed over them. The client is our own
//! rather than a general storage layer, for two reasons. A multipart upload must be continued after
//! a crash, and the checksum of the whole object composed from its segments'.
//!
//! Native names: `prefix/path`. Besides its bytes an object keeps `mtime` (seconds since the epoch,
//! as rclone) and `mode` (octal) in its metadata. A symbolic link is an object `NAME.rclonelink`
//! that holds its target, an empty directory an object `NAME/`.

mod client;
mod copy;
mod credentials;
mod frames;
mod headers;
mod held;
mod home;
pub(crate) mod listing;
mod multipart;
mod object;
mod page;
mod ranges;
mod refusal;
mod sums;
mod upload;
mod wire;

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Method;

use crate::{
    BodySum, Capabilities, Checksum, Condition, Endpoint, Errand, Error, ErrorKind, Pass, Result,
    access::Chosen,
    cut::SEGMENT_BYTES_MIN,
    endpoint::{Entry, FileSpec, Kind, Reader, Whole},
    limits::Limits,
    objects::{FILES_AT_ONCE_MAX, Head, Objects, RawStore},
    posix::DraftRules,
    reach::Reach,
    web::Web,
};
use client::{Call, S3Client};
use credentials::Signing;
pub(crate) use credentials::address_of;
use headers::entry_of;
use home::Address;
use listing::KeyListing;
use multipart::Multipart;
use object::S3Reader;
use sums::Sum;

/// Largest object: 5 TiB ("Amazon S3 multipart upload limits").
const OBJECT_BYTES_MAX: u64 = 5 << 40;

/// Address and keys of a store.
#[derive(Clone)]
pub struct Store {
    /// URL `https://host` or `http://host:port`.
    pub endpoint: String,
    /// Region for which requests are signed.
    pub region: String,
    /// Id of the access key.
    pub access_key_id: String,
    /// Secret of the access key.
    pub secret_access_key: String,
    /// Certificates to trust beside the system's, in PEM.
    pub ca_file: Option<PathBuf>,
}

/// Opens `key` in `bucket` with the credentials of the chosen profile or of the environment; with
/// `unsigned` without any.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an unknown profile or a malformed store address.
pub(crate) fn open_chosen(
    (bucket, key): (&str, &str),
    chosen: Option<&Chosen>,
    (unsigned, reach): (bool, Reach),
    held_to: (Option<Limits>, DraftRules),
) -> Result<Arc<dyn Endpoint>> {
    let client = signed(bucket, Signing::load(chosen, unsigned)?, reach)?;
    Ok(Objects::open(client, key, held_to))
}

/// Opens `key` in `bucket` of a store whose address and keys the caller supplies.
///
/// # Errors
/// [`ErrorKind::Invalid`] for a malformed store address.
pub fn open_store(bucket: &str, key: &str, store: &Store) -> Result<Arc<dyn Endpoint>> {
    let client = signed(bucket, Signing::with_keys(store)?, Reach::default())?;
    Ok(Objects::open(client, key, (None, DraftRules::default())))
}

fn signed(bucket: &str, signing: Signing, reach: Reach) -> Result<S3Client> {
    let Signing {
        signer,
        endpoint,
        region,
        ca_file,
        owner,
        requester_pays,
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
    let address = Address {
        realm: format!("s3 {owner} {region} {store}"),
        endpoint,
        region,
        requester_pays,
    };
    let web = Web::reaching(reach, ca_file.as_deref())?;
    Ok(S3Client::new(web, signer, address, bucket.to_owned()))
}

/// Capabilities of S3.
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

impl RawStore for S3Client {
    type Head = Head;
    type Listing = KeyListing<Self>;
    type Segments = Multipart;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            checksums: match self.sums.preferred() {
                Sum::Crc64 => CAPABILITIES.checksums,
                Sum::Crc32c => &["crc32c", "md5"],
                Sum::Md5 => &["md5"],
            },
            segments_held: !self.takes_streams(),
            ..CAPABILITIES
        }
    }

    fn show(&self, key: &str) -> String {
        self.show(key)
    }

    fn round_trip(&self) -> Option<Duration> {
        self.round_trip()
    }

    fn realm(&self) -> String {
        self.realm().to_owned()
    }

    fn bucket(&self) -> &str {
        self.bucket()
    }

    fn place(&self) -> String {
        self.base().to_owned()
    }

    fn refuses(&self, _key: &str) -> Option<&'static str> {
        None
    }

    async fn head(&self, key: &str, operation: &'static str) -> Result<Option<Head>> {
        object::head(self, key, operation).await
    }

    fn entry(head: &Head, kind: Kind) -> Entry {
        entry_of(&head.headers, head.size, kind)
    }

    async fn has_below(&self, prefix: &str) -> Result<bool> {
        let query = [("list-type", "2"), ("max-keys", "1"), ("prefix", prefix)];
        let page = self.ask_page(&query).await;
        let page = page.map_err(|error| error.with("directory", true))?;
        // An empty page with more behind it means that something exists.
        Ok(!page.objects.is_empty() || !page.prefixes.is_empty() || page.next.is_some())
    }

    /// Reading and writing have permissions of their own.
    fn is_about_listing(refusal: &Error) -> bool {
        refusal.kind() == ErrorKind::PermissionDenied
    }

    async fn get(&self, key: &str, entry: &Entry, operation: &'static str) -> Result<Whole> {
        object::fetch(self, key, entry, operation).await
    }

    fn reader(self: &Arc<Self>, key: String, head: &Head) -> Arc<dyn Reader> {
        Arc::new(S3Reader::new(Arc::clone(self), key, head))
    }

    async fn put(
        &self,
        key: &str,
        what: (&FileSpec, Kind),
        content: (Vec<Bytes>, Checksum),
        condition: Option<&Condition>,
    ) -> Result<()> {
        object::store(self, key, what, content, condition).await
    }

    async fn put_damaged(&self, key: &str) -> Result<()> {
        held::put_damaged(self, key).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        object::delete(self, key).await
    }

    async fn pass(&self, key: &str, errand: &Errand, lifetime: Duration) -> Result<Pass> {
        let call = match errand {
            Errand::Read => Call::new(Method::GET, key, "hand out"),
            Errand::Write(sum) => {
                let name = match sum {
                    BodySum::Crc64(_) => wire::CHECKSUM,
                    BodySum::Md5(_) => "content-md5",
                };
                Call::new(Method::PUT, key, "hand out").header(name, sum.to_base64())
            }
        };
        self.presign(call, lifetime).await
    }

    async fn copy(self: &Arc<Self>, from: &str, key: &str, spec: &FileSpec) -> Result<()> {
        copy::copy(self, from, key, spec).await
    }
}

/// Reads a listing, for [`crate::fuzzing`].
pub(crate) fn try_listing(data: &[u8]) {
    if let Ok(page) = page::Page::parse(data) {
        assert!(page.objects.len() + page.prefixes.len() <= data.len());
    }
}
