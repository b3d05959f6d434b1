//! Checks arrived data: whether it is still as it arrived, or a purge removed some of it.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

use posthaste_endpoint::{Error, ErrorKind, Locus, Result, posix::Lease};
use posthaste_engine::draft::Draft;
use posthaste_journal::RequestRecord;

use super::list::{List, Stamp};
use crate::{jobs::stage_in::is_of_job, store::Store};

/// State of the place where a stage-in arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Landed {
    /// All arrived files are there, whatever else lies among them.
    Whole,
    /// Some of the arrived files, unchanged, and nothing else.
    Partly,
    /// Other contents.
    Changed,
    /// Nothing is there.
    Gone,
    /// Unknown, because no list was kept.
    Unknown,
}

/// Returns whether the list of an arrived stage-in is still needed: jobs check again that their
/// inputs are still there.
pub(crate) fn is_list_of_use(store: &Store, record: &RequestRecord) -> bool {
    is_of_job(record) && is_it(store, record)
}

/// Returns whether the destination is the directory that arrived, as its owner sees it.
fn is_it(store: &Store, record: &RequestRecord) -> bool {
    let then = store.landing(record.id);
    let actor = store.actors.of(record);
    then.zip(actor.ok())
        .is_some_and(|(then, actor)| actor.run(|| Ok(has_landed(record, &then))).unwrap_or(false))
}

/// Returns whether the destination is what arrived, by the stamp that identified it then.
fn has_landed(record: &RequestRecord, then: &str) -> bool {
    Draft::new(Path::new(&record.destination), &record.dataset).has_landed(then)
}

/// Examines the place where a stage-in arrived.
///
/// # Errors
/// The operating system's.
pub(crate) fn look(store: &Store, record: &RequestRecord) -> Result<Landed> {
    // Files of the service itself, which the owner of the arrived data may not read.
    let (list, then) = (list_of(store, record), store.landing(record.id));
    let actor = store.actors.of(record)?;
    actor.run(|| look_here(record, list.as_ref(), then.as_deref()))
}

fn look_here(record: &RequestRecord, list: Option<&List>, then: Option<&str>) -> Result<Landed> {
    let root = Path::new(&record.destination);
    match fs::symlink_metadata(root) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Landed::Gone),
        Err(cause) => return Err(failed(root, cause)),
        Ok(_) => {}
    }
    let Some(list) = list else {
        return Ok(Landed::Unknown);
    };
    let is_there = |path: &[u8], size: u64| {
        let about = fs::symlink_metadata(root.join(std::ffi::OsStr::from_bytes(path)));
        about.is_ok_and(|about| about.is_file() && about.len() == size)
    };
    if list
        .files
        .iter()
        .all(|file| is_there(&file.path, file.size))
    {
        return Ok(Landed::Whole);
    }
    Ok(
        if then.is_some_and(|then| has_landed(record, then)) && has_only(root, root, &came(list))? {
            Landed::Partly
        } else {
            Landed::Changed
        },
    )
}

/// Size and stamp of each file at its arrival.
type Came<'l> = BTreeMap<&'l [u8], (u64, Option<&'l Stamp>)>;

fn list_of(store: &Store, record: &RequestRecord) -> Option<List> {
    let kept = store.stage_in_list(record.id).ok();
    kept.and_then(|bytes| List::restore(&bytes).ok())
}

fn came(list: &List) -> Came<'_> {
    let files = (0..).zip(&list.files);
    files
        .map(|(place, file)| (&file.path[..], (file.size, list.first_stamp(place))))
        .collect()
}

/// Returns whether a directory holds nothing but files that arrived and are unchanged.
fn has_only(root: &Path, folder: &Path, came: &Came<'_>) -> Result<bool> {
    for entry in fs::read_dir(folder).map_err(|cause| failed(folder, cause))? {
        let path = entry.map_err(|cause| failed(folder, cause))?.path();
        let about = fs::symlink_metadata(&path).map_err(|cause| failed(&path, cause))?;
        let is_known = if about.is_dir() {
            has_only(root, &path, came)?
        } else {
            is_as_it_came(root, &path, &about, came)
        };
        if !is_known {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_as_it_came(root: &Path, path: &Path, about: &fs::Metadata, came: &Came<'_>) -> bool {
    let relative = path.strip_prefix(root).unwrap_or(path);
    let Some((size, stamp)) = came.get(relative.as_os_str().as_bytes()) else {
        return false;
    };
    let then = stamp.and_then(Stamp::mtime);
    let is_same = then.is_none_or(|then| {
        then.secs == about.mtime() && i64::from(then.nanos) == about.mtime_nsec()
    });
    about.is_file() && about.len() == *size && is_same
}

/// Removes what a purge left of an arrived stage-in, so that it can be staged in again. Call this
/// only if the state was [`Landed::Partly`]. Each file is checked once more, so files that others
/// write meanwhile stay, with their directories.
///
/// # Errors
/// The operating system's: a directory into which something was written is not empty.
pub(crate) fn evict(store: &Store, record: &RequestRecord) -> Result<()> {
    let root = Path::new(&record.destination);
    match list_of(store, record) {
        Some(list) => {
            let actor = store.actors.of(record)?;
            actor.run(|| remove(root, root, &came(&list)))
        }
        None => Ok(()),
    }
}

fn remove(root: &Path, folder: &Path, came: &Came<'_>) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(|cause| failed(folder, cause))? {
        let path = entry.map_err(|cause| failed(folder, cause))?.path();
        let about = fs::symlink_metadata(&path).map_err(|cause| failed(&path, cause))?;
        if about.is_dir() {
            remove(root, &path, came)?;
            continue;
        }
        // While it is held, nobody writes to it unnoticed.
        let lease = Lease::take(&path);
        let about = fs::symlink_metadata(&path).map_err(|cause| failed(&path, cause))?;
        if matches!(lease, Lease::InUse) {
            let shown = path.display().to_string();
            return Err(Error::new(ErrorKind::Busy, "remove", shown)
                .cause("another process has it open for writing")
                .at(Locus::Destination));
        }
        if is_as_it_came(root, &path, &about, came) {
            fs::remove_file(&path).map_err(|cause| failed(&path, cause))?;
        }
    }
    fs::remove_dir(folder).map_err(|cause| failed(folder, cause))
}

fn failed(path: &Path, cause: std::io::Error) -> Error {
    Error::io("look at", path.display().to_string(), cause).at(Locus::Destination)
}
