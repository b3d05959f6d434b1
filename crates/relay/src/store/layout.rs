//! Names on disk.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use posthaste_endpoint::{
    Error, ErrorKind, Result,
    relay::{
        DatasetId,
        wire::{Object, parse_position},
    },
};
use posthaste_types::Digest;
use rustix::fs::{FlockOperation, flock};

use super::Stored;

/// Name of the file that tells when a dataset expires.
pub(super) const EXPIRES: &str = "expires";
/// Chunks whose fragments share a directory, so that no directory grows without bound.
const GROUP_CHUNKS: u32 = 4096;

/// Makes a directory that nobody else reads, or makes one so that is there.
pub(super) fn make_private(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
}

/// Makes the relay's directory and makes sure that no other relay uses it.
pub(super) fn lock(dir: &Path) -> Result<File> {
    let failed = |cause| Error::io("use", dir.display().to_string(), cause);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(failed)?;
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false);
    let lock = options.open(dir.join("lock")).map_err(failed)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        Error::new(ErrorKind::Conflict, "use", dir.display().to_string())
            .cause("another relay runs in it")
            .hint("give each relay its own --dir")
    })?;
    Ok(lock)
}

/// Below what, in a directory or a store, all of a dataset lies.
pub(crate) fn dataset_name(dataset: &DatasetId) -> String {
    format!("datasets/{dataset}")
}

/// The name of an object in a directory or a store once it counts.
pub(crate) fn object_name(dataset: &DatasetId, object: Object, digest: &Digest) -> String {
    let dataset = dataset_name(dataset);
    match object {
        Object::Manifest => format!("{dataset}/manifest.{digest}"),
        Object::Fragment(chunk, fragment) => {
            let (chunk, fragment) = (chunk.get(), fragment.get());
            let group = chunk / GROUP_CHUNKS;
            format!("{dataset}/{group}/{chunk}.{fragment}.{digest}")
        }
    }
}

pub(super) fn dataset_path(dir: &Path, dataset: &DatasetId) -> PathBuf {
    dir.join(dataset_name(dataset))
}

/// Where an object lies once it counts.
pub(super) fn object_path(
    dir: &Path,
    dataset: &DatasetId,
    object: Object,
    digest: &Digest,
) -> PathBuf {
    dir.join(object_name(dataset, object, digest))
}

/// The object a file name tells of.
fn parse_name(name: &str) -> Option<(Object, Digest)> {
    let (object, digest) = name.rsplit_once('.')?;
    let digest = digest.parse().ok()?;
    if object == "manifest" {
        return Some((Object::Manifest, digest));
    }
    let (chunk, fragment) = parse_position(object)?;
    Some((Object::Fragment(chunk, fragment), digest))
}

type Found = (DatasetId, u64, BTreeMap<Object, Stored>);

/// Every dataset below `datasets`. What has another name is none of ours and is left alone.
pub(super) fn scan(datasets: &Path) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for item in fs::read_dir(datasets)? {
        let item = item?;
        let name = item.file_name();
        let Some(dataset) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let mut objects = BTreeMap::new();
        scan_objects(&item.path(), true, &mut objects)?;
        let expires = fs::read_to_string(item.path().join(EXPIRES));
        // Without a readable expiry nobody was told that anything is stored.
        let expires_s = expires.ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        found.push((dataset, expires_s, objects));
    }
    Ok(found)
}

fn scan_objects(
    directory: &Path,
    groups: bool,
    objects: &mut BTreeMap<Object, Stored>,
) -> io::Result<()> {
    for item in fs::read_dir(directory)? {
        let item = item?;
        if item.file_type()?.is_dir() {
            if groups {
                scan_objects(&item.path(), false, objects)?;
            }
            continue;
        }
        let name = item.file_name();
        if let Some((object, digest)) = name.to_str().and_then(parse_name) {
            let size = item.metadata()?.len();
            objects.insert(object, Stored { digest, size });
        }
    }
    Ok(())
}

/// Bytes of all files below a directory; 0 when there is none. Links are not followed.
pub(super) fn bytes_below(directory: &Path) -> io::Result<u64> {
    let mut open = vec![directory.to_owned()];
    let mut bytes = 0;
    while let Some(directory) = open.pop() {
        let items = match fs::read_dir(&directory) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => continue,
            items => items?,
        };
        for item in items {
            let item = item?;
            let metadata = item.metadata()?;
            if metadata.is_dir() {
                open.push(item.path());
            } else if metadata.is_file() {
                bytes += metadata.len();
            }
        }
    }
    Ok(bytes)
}

pub(super) fn flush_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
