//! Google Cloud Storage, `gs://bucket/prefix`, by its JSON API.
//!
//! Native names: `prefix/path`. The store keeps a CRC-32C of every object and refuses what does not
//! have the one it was sent with; it is computed in the same pass as ours. A large file is written
//! as hidden components that the store composes (`upload`), not by a resumable session: a session is
//! one stream, and its address is a secret. Symbolic links and empty directories are kept as in S3.

mod client;
mod credentials;
mod listing;
mod oauth;
mod object;
mod refusal;
mod resource;
mod upload;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Method;

use crate::{
    Capabilities, Checksum, Condition, Error, ErrorKind, Result,
    access::Chosen,
    cut::SEGMENT_BYTES_MIN,
    dates::{parse_rfc3339, show_rfc3339},
    endpoint::{Boxed, Endpoint, Entry, FileSpec, Kind, Listing, Reader, Whole, Writer, join},
    limits::Limits,
    objects::{FILES_AT_ONCE_MAX, LINK_SUFFIX, prefix_of},
    s3::listing::{KeyListing, ListedPage},
    web::{About, Web},
};
use client::{Call, GcsClient, object_in};
use credentials::Address;
use object::GcsReader;
use resource::{FIELDS, Rewrite, kept_of};

/// The largest object: 5 TiB ("Cloud Storage quotas & limits").
const OBJECT_BYTES_MAX: u64 = 5 << 40;

/// The longest name of an object, in bytes ("About Cloud Storage objects").
const KEY_BYTES_MAX: usize = 1024;

/// Requests for one copy on the server: each copies gigabytes.
const REWRITES_MAX: usize = 10_000;

/// A bucket and a key or prefix in it.
pub struct Gcs {
    client: Arc<GcsClient>,
    root: String,
    limits: Option<Limits>,
}

impl Gcs {
    /// Opens `key` in `bucket` with the credentials of the profile somebody chose, or of the
    /// environment.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an unknown profile, a malformed store address or key file.
    pub(crate) fn open_chosen(bucket: &str, key: &str, chosen: Option<&Chosen>) -> Result<Self> {
        let Address { base, authority } = Address::find(chosen)?;
        let ca_file = chosen.and_then(|chosen| chosen.ours.as_ref()?.ca_file.as_deref());
        let client = GcsClient::new(Web::new(ca_file)?, authority, base, bucket.to_owned())?;
        Ok(Self {
            client: Arc::new(client),
            root: key.to_owned(),
            limits: None,
        })
    }

    /// Holds listings, which make several requests at once, to these caps.
    pub(crate) fn held_to(self, limits: Option<Limits>) -> Self {
        Self { limits, ..self }
    }

    fn key(&self, path: &[u8]) -> Result<String> {
        let unsupported = |cause: &'static str| {
            let shown = String::from_utf8_lossy(path);
            Error::new(ErrorKind::Unsupported, "name", shown)
                .cause(cause)
                .hint("rename it")
        };
        let key = String::from_utf8(join(self.root.as_bytes(), path))
            .map_err(|_| unsupported("its name is not UTF-8, which the store needs"))?;
        if key.contains(['\r', '\n']) {
            return Err(unsupported(
                "its name has a line break, which the store can't hold",
            ));
        }
        if key.len() > KEY_BYTES_MAX || matches!(&*key, "." | "..") {
            return Err(unsupported("its name is none the store can hold"));
        }
        Ok(key)
    }

    async fn look_at(&self, path: &[u8]) -> Result<Option<Entry>> {
        let key = self.key(path)?;
        if path.is_empty() {
            // The first request to a store asks the bucket, whose refusal comes with a reason.
            let is_directory = self.client.has_below(&prefix_of(&key)).await?;
            if is_directory || key.is_empty() {
                return Ok(Some(directory_entry()));
            }
        }
        for (suffix, kind) in [("", Kind::File), (LINK_SUFFIX, Kind::Link)] {
            let name = format!("{key}{suffix}");
            if let Some(found) = object::find(&self.client, &name, "look at").await? {
                return Ok(Some(found.entry(kind)));
            }
        }
        let marker = format!("{key}/");
        if let Some(found) = object::find(&self.client, &marker, "look at").await? {
            return Ok(Some(Entry {
                size: 0,
                version: None,
                ..found.entry(Kind::Directory)
            }));
        }
        let is_directory = !path.is_empty() && self.client.has_below(&prefix_of(&key)).await?;
        Ok(is_directory.then(directory_entry))
    }

    async fn put_on(
        &self,
        path: &[u8],
        spec: &FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
        condition: Option<&Condition>,
    ) -> Result<()> {
        let key = self.key(path)?;
        let what = (spec, Kind::File);
        object::put(&self.client, &key, what, data, sum, condition).await
    }

    async fn copy(&self, from: &[u8], path: &[u8], spec: &FileSpec) -> Result<()> {
        let key = self.key(path)?;
        let about = About::writing("copy on the server to", self.client.show(&key));
        let from = std::str::from_utf8(from).ok();
        let (bucket, source) = from.and_then(|from| from.split_once('/')).ok_or_else(|| {
            let error = about.fail(ErrorKind::Unsupported);
            error.cause("the source is no object")
        })?;
        let to = object_in(self.client.bucket(), &key);
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
            let step: Rewrite = self
                .client
                .ask(call.json(&kept_of(spec, Kind::File)))
                .await?;
            if step.done {
                let size = step.resource.map_or(spec.size, |copied| copied.size);
                if size != spec.size {
                    return Err(about
                        .fail(ErrorKind::Changed)
                        .cause(format!("{size} bytes of {} were copied", spec.size)));
                }
                return Ok(());
            }
            token = step.rewrite_token.unwrap_or_default();
        }
        Err(about
            .fail(ErrorKind::Other)
            .cause("the store comes to no end"))
    }

    async fn removed(&self, path: &[u8]) -> Result<()> {
        let key = self.key(path)?;
        object::remove(&self.client, &key).await?;
        object::remove(&self.client, &format!("{key}{LINK_SUFFIX}")).await
    }
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

impl Endpoint for Gcs {
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
        Box::pin(async { object::get(&self.client, &self.key(path)?, entry).await })
    }

    fn open<'a>(&'a self, path: &'a [u8], _entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>> {
        Box::pin(async {
            let (client, key) = (Arc::clone(&self.client), self.key(path)?);
            let found = object::find(&client, &key, "read").await?;
            let found = found.ok_or_else(|| object::missing(&client, &key))?;
            let reader: Arc<dyn Reader> = Arc::new(GcsReader::new(client, key, &found));
            Ok(reader)
        })
    }

    fn read_link<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        Box::pin(async {
            let key = format!("{}{LINK_SUFFIX}", self.key(path)?);
            let any = Entry::bare(Vec::new(), Kind::File);
            Ok(object::get(&self.client, &key, &any).await?.data.concat())
        })
    }

    fn put<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(self.put_on(path, spec, data, sum, None))
    }

    fn put_if<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
        condition: &'a Condition,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(self.put_on(path, spec, data, sum, Some(condition)))
    }

    fn create<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        Box::pin(async {
            let (client, key) = (Arc::clone(&self.client), self.key(path)?);
            let upload = upload::Upload::start(client, key, spec).await?;
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

    fn make_link<'a>(
        &'a self,
        path: &'a [u8],
        target: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            let key = format!("{}{LINK_SUFFIX}", self.key(path)?);
            let data = vec![Bytes::copy_from_slice(target)];
            let what = (spec, Kind::Link);
            let sum = Checksum::of(target);
            object::put(&self.client, &key, what, data, sum, None).await
        })
    }

    fn make_parents(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Prefixes need no making; "new" tells that nothing is there to compare with.
    fn make_directory<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<bool>> {
        Box::pin(async {
            let key = self.key(path)?;
            Ok(!self.client.has_below(&prefix_of(&key)).await?)
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
            let what = (&spec, Kind::Directory);
            let (data, sum) = (Vec::new(), Checksum::EMPTY);
            object::put(&self.client, &key, what, data, sum, None).await
        })
    }

    fn remove<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<()>> {
        Box::pin(self.removed(path))
    }

    fn realm(&self) -> Option<String> {
        Some(self.client.realm())
    }

    fn locate(&self, path: &[u8]) -> Vec<u8> {
        let key = join(self.root.as_bytes(), path);
        join(self.client.bucket().as_bytes(), &key)
    }

    fn copy_within<'a>(
        &'a self,
        from: &'a [u8],
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(self.copy(from, path, spec))
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
