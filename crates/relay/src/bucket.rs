//! Relay that keeps everything in an object store. Senders and readers get presigned URLs, each for
//! one object, and none of their bytes pass here.
//!
//! The store has the same names below its prefix as a relay has on disk,
//! `datasets/ID/GROUP/CHUNK.FRAGMENT.DIGEST`, and `posthaste-relay`, which names the prefix's
//! owner. The disk has the same files as that of a relay that keeps bytes itself, with a hole in
//! place of each object's bytes: so counting, reserving and expiry work the same.

mod answers;
mod clean;
mod passes;

use std::{fmt, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use posthaste_endpoint::{
    BodySum, Checksum, Condition, Endpoint, Entry, Errand, Error, ErrorKind, FileSpec, FileTime,
    Kind, Pass, Result,
    kept::KeptFile,
    relay::{
        DatasetId, Fingerprint, is_loopback, read_by_pass, send_by_pass,
        wire::{self, Object, store_name},
    },
};
use posthaste_types::Digest;
use serde::{Deserialize, Serialize};

use crate::{
    clock,
    store::{Store, Stored, object_name},
};
pub(crate) use clean::Cleaner;
pub(crate) use passes::Passes;

/// Features of a relay that keeps everything in an object store and that not every relay has.
pub(crate) const FEATURES: [&str; 2] = [wire::SPACE, wire::PASS];

/// Object that names the prefix's owner.
const CLAIM: &str = "posthaste-relay";
/// Prefix of the objects with which a store is tried.
const CHECKS: &str = "check";
/// Prefix of the probes' objects.
const PROBES: &str = "probe";
/// Lifetime of a presigned URL, for the start of a request: a request that has begun by then may
/// last.
const PASS_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// Checksum by which the store verifies writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checks {
    Crc64,
    Md5,
}

/// Object store whose presigned URLs were tried.
#[derive(Clone)]
pub struct Bucket {
    store: Arc<dyn Endpoint>,
    checks: Checks,
    /// Name of the bucket or container, the same for every prefix of it.
    name: String,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bucket").field(&self.shown()).finish()
    }
}

impl Bucket {
    /// Tries the root of `store`: whether it can be written, read, listed and removed from, and
    /// whether it refuses bytes other than those of the presigned URL.
    ///
    /// # Errors
    /// Errors of the store; [`ErrorKind::Unsupported`] if it gives no presigned URLs or verifies
    /// nothing.
    pub async fn open(store: Arc<dyn Endpoint>) -> Result<Self> {
        // The store's own endpoint best says what is wrong with the address or the keys.
        let mut listing = store.list(b"", false).await?;
        listing.next_page().await?;
        let mut noise = [0; 16];
        getrandom::fill(&mut noise).map_err(|cause| {
            Error::new(ErrorKind::Other, "make", "a name").cause(cause.to_string())
        })?;
        let name = format!("{CHECKS}/{}", Checksum::of(&noise));
        let tried = Trial {
            store: &*store,
            path: name.as_bytes(),
            bytes: Bytes::copy_from_slice(&noise),
        };
        let checks = tried.checks().await;
        let removed = store.remove(name.as_bytes()).await;
        let checks = checks?;
        removed?;
        let pass = store.pass(name.as_bytes(), &Errand::Read, PASS_LIFETIME);
        let (url, bucket) = (pass.await?.url, store.locate(b""));
        let bucket = bucket.split(|byte| *byte == b'/').next();
        let bucket = String::from_utf8_lossy(bucket.unwrap_or_default()).into_owned();
        let name = store_name(host_of(&url), &bucket);
        Ok(Self {
            store,
            checks,
            name,
        })
    }

    /// Returns the address of the bucket, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        self.store.show(b"")
    }

    /// Writes down in `dir` and in the store that they belong together, for good.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if one of them belongs to another.
    pub(crate) async fn claim(&self, dir: &Path, fingerprint: Fingerprint) -> Result<()> {
        let claimed = self.store.stat(CLAIM.as_bytes(), false).await?;
        let ours = Bytes::from(format!("{fingerprint}\n"));
        if let Some(entry) = claimed.filter(|entry| entry.kind == Kind::File) {
            let found = self.store.get(CLAIM.as_bytes(), &entry).await?;
            if found.data.concat() != ours {
                return Err(Error::new(ErrorKind::Conflict, "use", self.shown())
                    .cause("another relay keeps its things there")
                    .hint("give each relay a prefix of its own; if that one is gone for good, remove what it kept there"));
            }
        } else {
            self.put_new(CLAIM.as_bytes(), ours).await?;
        }
        let kept = kept_file(dir);
        let belongs = Belongs { to: self.shown() };
        kept.write(&belongs)
            .map_err(|cause| Error::io("write", kept.path.display().to_string(), cause))
    }

    async fn put_new(&self, path: &[u8], bytes: Bytes) -> Result<()> {
        let spec = spec_of(&bytes);
        let sum = Checksum::of(&bytes);
        let data = vec![bytes];
        if self.store.capabilities().conditional_writes {
            let put = self
                .store
                .put_if(path, &spec, data, sum, &Condition::Absent);
            return put.await;
        }
        self.store.put(path, &spec, data, sum).await
    }

    /// Presigns a URL to read an object.
    pub(crate) async fn reading(
        &self,
        dataset: &DatasetId,
        object: Object,
        stored: &Stored,
    ) -> Result<Pass> {
        self.pass(dataset, object, stored, &Errand::Read).await
    }

    async fn pass(
        &self,
        dataset: &DatasetId,
        object: Object,
        stored: &Stored,
        errand: &Errand,
    ) -> Result<Pass> {
        let name = object_name(dataset, object, &stored.digest);
        let pass = self.store.pass(name.as_bytes(), errand, PASS_LIFETIME);
        pass.await
    }

    /// Presigns a URL to write a probe.
    async fn probing(&self, name: Digest, errand: &Errand) -> Result<Pass> {
        let name = probe_name(name);
        let pass = self.store.pass(name.as_bytes(), errand, PASS_LIFETIME);
        pass.await
    }

    async fn remove_probe(&self, name: Digest) -> Result<()> {
        self.store.remove(probe_name(name).as_bytes()).await
    }

    /// Returns whether the store has as many bytes of an object as it should.
    async fn has(&self, dataset: &DatasetId, object: Object, stored: &Stored) -> Result<bool> {
        let name = object_name(dataset, object, &stored.digest);
        let found = self.store.stat(name.as_bytes(), false).await?;
        Ok(found.is_some_and(|found| found.kind == Kind::File && found.size == stored.size))
    }
}

/// Returns the host and port of a web address.
fn host_of(url: &str) -> &str {
    let behind = url.split_once("://").map_or(url, |(_, behind)| behind);
    behind.split('/').next().unwrap_or_default()
}

/// Returns the name of a probe's object, which exists unless the probe was given up before.
fn probe_name(name: Digest) -> String {
    format!("{PROBES}/{name}")
}

/// Refuses a directory that belongs to another store than `bucket`, or to any if there is none.
///
/// # Errors
/// [`ErrorKind::Conflict`].
pub(crate) fn check_dir(dir: &Path, bucket: Option<&Bucket>) -> Result<()> {
    let conflict = |cause: String| {
        Error::new(ErrorKind::Conflict, "use", dir.display().to_string()).cause(cause)
    };
    let belongs: Option<Belongs> = kept_file(dir).read()?;
    match (belongs, bucket.map(Bucket::shown)) {
        (Some(belongs), None) => {
            let cause = format!("what it tells of lies in {}", belongs.to);
            Err(conflict(cause).hint("give that as --bucket"))
        }
        (Some(belongs), Some(wanted)) if belongs.to != wanted => {
            let cause = format!("what it tells of lies in {}, not in {wanted}", belongs.to);
            Err(conflict(cause).hint("give each bucket a directory of its own"))
        }
        (None, Some(_)) if has_some(&dir.join("datasets")) => {
            let cause = "a relay keeps fragments there itself".to_owned();
            Err(conflict(cause).hint("give a relay with a bucket a directory of its own"))
        }
        _ => Ok(()),
    }
}

fn has_some(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut items| items.next().is_some())
}

/// Record of the bucket to which a directory belongs.
#[derive(Serialize, Deserialize)]
struct Belongs {
    to: String,
}

fn kept_file(dir: &Path) -> KeptFile {
    KeptFile {
        path: dir.join("bucket.json"),
        version: 1,
        bytes_max: 64 << 10,
        operation: "read the bucket's address in",
        hint: "it was made by another release",
    }
}

/// Returns the attributes to keep of a small object.
fn spec_of(bytes: &Bytes) -> FileSpec {
    let secs = i64::try_from(clock::unix_s()).unwrap_or(i64::MAX);
    FileSpec {
        size: bytes.len() as u64,
        mtime: Some(FileTime { secs, nanos: 0 }),
        mode: None,
        origin: "".into(),
        version: None,
    }
}

/// Trial object, written and read with presigned URLs to see how the store treats them.
struct Trial<'a> {
    store: &'a dyn Endpoint,
    path: &'a [u8],
    bytes: Bytes,
}

impl Trial<'_> {
    async fn checks(&self) -> Result<Checks> {
        if self.takes(Checks::Crc64).await.unwrap_or(false) {
            return self.reads().await.map(|()| Checks::Crc64);
        }
        if self.takes(Checks::Md5).await? {
            return self.reads().await.map(|()| Checks::Md5);
        }
        Err(
            Error::new(ErrorKind::Unsupported, "use", self.store.show(b""))
                .cause("the store takes other bytes than it was told")
                .hint("it checks neither CRC-64/NVME nor MD5, so nobody could tell that a fragment is stored"),
        )
    }

    /// Returns whether the store accepts right content and refuses wrong content.
    async fn takes(&self, checks: Checks) -> Result<bool> {
        let other: Vec<u8> = self.bytes.iter().map(|byte| !byte).collect();
        let sum = |bytes: &[u8]| match checks {
            Checks::Crc64 => BodySum::Crc64(Checksum::of(bytes)),
            Checks::Md5 => BodySum::md5_of(bytes),
        };
        let wrong = self.pass(&Errand::Write(sum(&other))).await?;
        let is_refused = send_by_pass(&wrong, self.bytes.clone()).await.is_err();
        let right = self.pass(&Errand::Write(sum(&self.bytes))).await?;
        send_by_pass(&right, self.bytes.clone()).await?;
        Ok(is_refused)
    }

    async fn reads(&self) -> Result<()> {
        let found = read_by_pass(&self.pass(&Errand::Read).await?).await?;
        let entry: Option<Entry> = self.store.stat(self.path, false).await?;
        let mut listing = self.store.list(CHECKS.as_bytes(), false).await?;
        listing.next_page().await?;
        if found == self.bytes && entry.is_some_and(|entry| entry.size == found.len() as u64) {
            return Ok(());
        }
        Err(
            Error::new(ErrorKind::Other, "use", self.store.show(self.path))
                .cause("it does not hold what was just stored there"),
        )
    }

    async fn pass(&self, errand: &Errand) -> Result<Pass> {
        let pass = self.store.pass(self.path, errand, PASS_LIFETIME).await;
        let pass = pass.map_err(|error| match error.kind() == ErrorKind::Unsupported {
            true => Error::new(ErrorKind::Unsupported, "lend", self.store.show(b""))
                .cause("nobody else can be let through to it")
                .hint("an S3 bucket can be lent, with Google's too, and an Azure container with the account's key"),
            false => error,
        })?;
        if leads_without_tls(&pass.url) {
            return Err(
                Error::new(ErrorKind::Unsupported, "use", self.store.show(b""))
                    .cause("those who send and read would reach the store without TLS")
                    .hint("give the profile an https:// address of the store"),
            );
        }
        Ok(pass)
    }
}

/// Returns whether an address is of another machine and has no TLS.
fn leads_without_tls(url: &str) -> bool {
    let uri: Option<http::Uri> = url.parse().ok();
    uri.is_none_or(|uri| {
        let host = uri.host().unwrap_or_default();
        uri.scheme_str() != Some("https") && !is_loopback(host)
    })
}

/// State of a relay whose bytes lie in a store.
pub(crate) struct Backing {
    pub(crate) bucket: Bucket,
    pub(crate) passes: Passes,
    pub(crate) cleaner: Cleaner,
}

impl Backing {
    /// Returns the name of the bucket or container, the same for every prefix of it.
    pub(crate) fn name(&self) -> String {
        self.bucket.name.clone()
    }

    pub(crate) fn new(bucket: Bucket, store: &Arc<Store>) -> Self {
        Self {
            passes: Passes::new(bucket.clone(), Arc::clone(store)),
            cleaner: Cleaner::new(Arc::clone(&bucket.store), Arc::clone(store)),
            bucket,
        }
    }
}
