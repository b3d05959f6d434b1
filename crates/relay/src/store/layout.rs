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
        DatasetId, check_own_folder,
        wire::{Object, parse_position},
    },
};
use posthaste_types::Digest;
use rustix::fs::{FlockOperation, flock};

use super::Stored;

/// Name of the file with a dataset's expiry.
pub(super) const EXPIRES: &str = "expires";
/// Digits of the digest beside it.
const CHECK_DIGITS: usize = 16;
/// Expiry of what has no known end: the year 9999.
const KEPT_S: u64 = 253_402_300_799;
/// Chunks whose fragments share a directory, so that no directory grows without bound.
const GROUP_CHUNKS: u32 = 4096;

/// Makes a directory private to its owner, also one that exists.
pub(super) fn make_private(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
}

/// Makes the relay's directory and locks it against other relays.
pub(super) fn lock(dir: &Path) -> Result<File> {
    let failed = |cause| Error::io("use", dir.display().to_string(), cause);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(failed)?;
    check_own_folder(dir)?;
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

/// Returns the prefix, in a directory or a store, of everything of a dataset.
pub(crate) fn dataset_name(dataset: &DatasetId) -> String {
    format!("datasets/{dataset}")
}

/// Returns the name of an object in a directory or a store once it counts.
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

/// Returns the path of an object once it counts.
pub(super) fn object_path(
    dir: &Path,
    dataset: &DatasetId,
    object: Object,
    digest: &Digest,
) -> PathBuf {
    dir.join(object_name(dataset, object, digest))
}

/// Parses the object of a file name.
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

/// Returns every dataset below `datasets`. Entries with other names are left alone.
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
        let expires_s = read_expiry(&item.path().join(EXPIRES), !objects.is_empty())?;
        found.push((dataset, expires_s, objects));
    }
    Ok(found)
}

/// Returns the text of an expiry file: a flipped digit of it must not give another moment.
pub(super) fn write_expiry(expires_s: u64) -> String {
    let digest = blake3::hash(expires_s.to_string().as_bytes()).to_hex();
    format!("{expires_s} {}", &digest[..CHECK_DIGITS])
}

fn parse_expiry(text: &str) -> Option<u64> {
    let expires_s = text.split(' ').next()?.parse().ok()?;
    // A relay of a former release wrote one without a check.
    let is_sound = [write_expiry(expires_s), expires_s.to_string()].contains(&text.to_owned());
    is_sound.then_some(expires_s)
}

/// Returns when a dataset expires, given whether it holds something. A damaged or missing file
/// never makes stored data expire.
fn read_expiry(file: &Path, holds_some: bool) -> io::Result<u64> {
    let read = match fs::read(file) {
        Ok(read) => read,
        // No client was told that anything is stored.
        Err(cause) if cause.kind() == io::ErrorKind::NotFound && !holds_some => return Ok(0),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(cause) => return Err(cause),
    };
    let found = str::from_utf8(&read).ok().and_then(parse_expiry);
    if found.is_none() {
        tracing::error!(
            "{} is damaged or gone, so what is stored there is kept: distrust the disk, and remove that directory while the relay is stopped \
             once nobody needs it",
            file.display()
        );
    }
    Ok(found.unwrap_or(KEPT_S))
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

/// Returns the bytes of all files below a directory; 0 if there is none. Links are not followed.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_expires_is_told_and_no_damage_of_that_is_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(EXPIRES);
        let read = |text: &[u8]| {
            fs::write(&file, text).unwrap();
            read_expiry(&file, true).unwrap()
        };
        let written = write_expiry(1_798_000_000);
        assert_eq!(read(written.as_bytes()), 1_798_000_000);
        assert_eq!(read(b"1798000000"), 1_798_000_000, "of a relay of before");
        for place in 0..written.len() {
            let mut damaged = written.clone().into_bytes();
            damaged[place] ^= 1;
            assert_eq!(read(&damaged), KEPT_S, "{place}");
        }
        for damaged in [&b""[..], b"17980000\xff0", b"1798000000 "] {
            assert_eq!(read(damaged), KEPT_S);
        }
        fs::remove_file(&file).unwrap();
        assert_eq!(read_expiry(&file, true).unwrap(), KEPT_S);
        assert_eq!(read_expiry(&file, false).unwrap(), 0);
    }
}
