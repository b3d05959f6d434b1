//! Google Cloud Storage, `gs://bucket/prefix`, by its JSON API.
//!
//! Native names: `prefix/path`. The store keeps a CRC-32C of every object and refuses bytes that do
//! not match the one sent with them; it is computed in the same pass as ours. A large file is
//! written as hidden components that the store composes (`upload`), not by a resumable session: a
//! session is one stream, and its address is a secret. Symbolic links and empty directories are
//! kept as in S3.

mod client;
mod credentials;
mod listing;
mod object;
mod refusal;
mod resource;
mod upload;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Method;

use crate::{
    Capabilities, Checksum, Condition, Endpoint, Errand, Error, ErrorKind, Pass, Result,
    access::Chosen,
    cut::SEGMENT_BYTES_MIN,
    dates::{parse_rfc3339, show_rfc3339},
    endpoint::{Entry, FileSpec, Kind, Reader, Whole},
    limits::Limits,
    objects::{FILES_AT_ONCE_MAX, Objects, RawStore, check_held},
    posix::DraftRules,
    reach::Reach,
    s3::listing::{KeyListing, ListedPage},
    web::{About, Web},
};
use client::{Call, GcsClient, object_in};
use credentials::Address;
pub(crate) use credentials::address_of;
use object::GcsReader;
use resource::{FIELDS, Resource, Rewrite, kept_of};
use upload::Components;

/// Largest object: 5 TiB ("Cloud Storage quotas & limits").
const OBJECT_BYTES_MAX: u64 = 5 << 40;

/// Longest name of an object, in bytes ("About Cloud Storage objects").
const KEY_BYTES_MAX: usize = 1024;

/// Most requests for one copy on the server: each copies gigabytes.
const REWRITES_MAX: usize = 10_000;

/// Opens `key` in `bucket` with the credentials of the chosen profile or of the environment.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an unknown profile, a malformed store address or key file.
pub(crate) fn open_chosen(
    bucket: &str,
    key: &str,
    chosen: Option<&Chosen>,
    reach: Reach,
    held_to: (Option<Limits>, DraftRules),
) -> Result<Arc<dyn Endpoint>> {
    let Address { base, authority } = Address::find(chosen)?;
    let ca_file = chosen.and_then(|chosen| chosen.ours.as_ref()?.ca_file.as_deref());
    let web = Web::reaching(reach, ca_file)?;
    let client = GcsClient::new(web, authority, base, bucket.to_owned())?;
    Ok(Objects::open(client, key, held_to))
}

/// Capabilities of Google Cloud Storage.
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
    checksums: &["crc32c"],
    segment_size_min: SEGMENT_BYTES_MIN,
    files_at_once_max: FILES_AT_ONCE_MAX,
    file_bytes_max: Some(OBJECT_BYTES_MAX),
    requests_ahead_max: 8,
    ..Capabilities::least("gs")
};

impl RawStore for GcsClient {
    type Head = Resource;
    type Listing = KeyListing<Self>;
    type Segments = Components;

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
        self.bucket()
    }

    fn place(&self) -> String {
        format!("{}/{}", self.base(), self.bucket())
    }

    fn refuses(&self, key: &str) -> Option<&'static str> {
        if key.contains(['\r', '\n']) {
            return Some("its name has a line break, which the store can't hold");
        }
        let is_none = key.len() > KEY_BYTES_MAX || matches!(key, "." | "..");
        is_none.then_some("its name is none the store can hold")
    }

    async fn head(&self, key: &str, operation: &'static str) -> Result<Option<Resource>> {
        object::find(self, key, operation).await
    }

    fn entry(head: &Resource, kind: Kind) -> Entry {
        head.entry(kind)
    }

    async fn has_below(&self, prefix: &str) -> Result<bool> {
        self.has_below(prefix).await
    }

    /// Returns whether a refusal may concern only listing: reading and writing have permissions of
    /// their own, and an object may be public without its neighbours.
    fn is_about_listing(refusal: &Error) -> bool {
        matches!(
            refusal.kind(),
            ErrorKind::PermissionDenied | ErrorKind::Unauthenticated
        )
    }

    async fn get(&self, key: &str, entry: &Entry, _operation: &'static str) -> Result<Whole> {
        object::get(self, key, entry).await
    }

    fn reader(self: &Arc<Self>, key: String, head: &Resource) -> Arc<dyn Reader> {
        Arc::new(GcsReader::new(Arc::clone(self), key, head))
    }

    async fn put(
        &self,
        key: &str,
        what: (&FileSpec, Kind),
        content: (Vec<Bytes>, Checksum),
        condition: Option<&Condition>,
    ) -> Result<()> {
        object::put(self, key, what, content, condition).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        object::remove(self, key).await
    }

    async fn pass(&self, key: &str, _errand: &Errand, _lifetime: Duration) -> Result<Pass> {
        Err(
            Error::new(ErrorKind::Unsupported, "hand out", self.show(key))
                .cause("passes are not signed with Google's own credentials")
                .hint("use the bucket by its S3 interface: an HMAC key, and endpoint = \"https://storage.googleapis.com\" in a profile"),
        )
    }

    async fn copy(self: &Arc<Self>, from: &str, key: &str, spec: &FileSpec) -> Result<()> {
        let about = About::writing("copy on the server to", self.show(key));
        let (bucket, source) = from.split_once('/').ok_or_else(|| {
            let error = about.fail(ErrorKind::Unsupported);
            error.cause("the source is no object")
        })?;
        let to = object_in(self.bucket(), key);
        let to = to.strip_prefix("/storage/v1/").unwrap_or(&to);
        let path = format!("{}/rewriteTo/{to}", object_in(bucket, source));
        let mut token = String::new();
        for _ in 0..REWRITES_MAX {
            let fields = format!("done,rewriteToken,resource({FIELDS})");
            let mut call =
                Call::new(Method::POST, path.clone(), about.clone()).query("fields", fields);
            if let Some(version) = &spec.version {
                call = call.query("ifSourceGenerationMatch", &**version);
            }
            if !token.is_empty() {
                call = call.query("rewriteToken", token);
            }
            let step: Rewrite = self.ask(call.json(&kept_of(spec, Kind::File))).await?;
            if step.done {
                return match step.resource.map(|copied| copied.size) {
                    Some(size) if size == spec.size => Ok(()),
                    Some(size) => Err(about
                        .fail(ErrorKind::Changed)
                        .cause(format!("{size} bytes of {} were copied", spec.size))),
                    None => check_held(&**self, key, spec, spec.size).await,
                };
            }
            token = step.rewrite_token.unwrap_or_default();
        }
        Err(about
            .fail(ErrorKind::Other)
            .cause("the store comes to no end"))
    }
}

/// Reads a page of a listing, for [`crate::fuzzing`].
pub(crate) fn try_listing(data: &[u8]) {
    let Ok(page) = serde_json::from_slice::<resource::Page>(data) else {
        return;
    };
    for object in ListedPage::from(page).objects {
        let Some(mtime) = object.mtime else {
            continue;
        };
        let written = show_rfc3339(mtime);
        let again = written.as_deref().and_then(parse_rfc3339);
        assert!(written.is_none() || again == Some(mtime), "{mtime} changes");
    }
}
