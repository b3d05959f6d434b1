//! What arrived: whether it is still there as it came, or what a purge left of it.

use std::{
    collections::BTreeMap,
    fs,
    io::ErrorKind::NotFound,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

use posthaste_endpoint::{Error, Locus, Result};
use posthaste_journal::RequestRecord;

use super::{
    draft::Draft,
    list::{List, Stamp},
};
use crate::{jobs::stage_in::is_of_job, store::Store};

/// What lies where something arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Landed {
    /// All files that came; whatever else lies among them.
    Whole,
    /// Some of the files that came, unchanged, and nothing else.
    Partly,
    /// Something else.
    Changed,
    /// Nothing.
    Gone,
    /// Something of which no list was kept.
    Unknown,
}

/// Whether the list of a stage-in that arrived tells something: jobs look again whether what they read is still there.
pub(crate) fn is_list_of_use(store: &Store, record: &RequestRecord) -> bool {
    is_of_job(record) && is_it(store, record)
}

/// Whether what lies where it arrived is the directory that arrived.
fn is_it(store: &Store, record: &RequestRecord) -> bool {
    let draft = Draft::new(Path::new(&record.destination), &record.dataset);
    let then = store.landing(record.id);
    then.is_some_and(|then| draft.has_landed(&then))
}

/// Looks at what lies where a stage-in arrived.
///
/// # Errors
/// The operating system's.
pub(crate) fn look(store: &Store, record: &RequestRecord) -> Result<Landed> {
    let root = Path::new(&record.destination);
    match fs::symlink_metadata(root) {
        Err(cause) if cause.kind() == NotFound => return Ok(Landed::Gone),
        Err(cause) => return Err(failed(root, cause)),
        Ok(_) => {}
    }
    let kept = store.stage_in_list(record.id).ok();
    let Some(list) = kept.and_then(|bytes| List::restore(&bytes).ok()) else {
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
    let files = (0..).zip(&list.files);
    let came: BTreeMap<&[u8], (u64, Option<&Stamp>)> = files
        .map(|(place, file)| (&file.path[..], (file.size, list.first_stamp(place))))
        .collect();
    Ok(if is_it(store, record) && has_only(root, root, &came)? {
        Landed::Partly
    } else {
        Landed::Changed
    })
}

/// Whether nothing lies below but files that came and are as they were.
fn has_only(
    root: &Path,
    folder: &Path,
    came: &BTreeMap<&[u8], (u64, Option<&Stamp>)>,
) -> Result<bool> {
    for entry in fs::read_dir(folder).map_err(|cause| failed(folder, cause))? {
        let path = entry.map_err(|cause| failed(folder, cause))?.path();
        let about = fs::symlink_metadata(&path).map_err(|cause| failed(&path, cause))?;
        if about.is_dir() {
            if !has_only(root, &path, came)? {
                return Ok(false);
            }
            continue;
        }
        let relative = path.strip_prefix(root).unwrap_or(&path);
        let is_as_it_came =
            came.get(relative.as_os_str().as_bytes())
                .is_some_and(|(size, stamp)| {
                    let then = stamp.and_then(Stamp::mtime);
                    let is_same = then.is_none_or(|then| {
                        then.secs == about.mtime() && i64::from(then.nanos) == about.mtime_nsec()
                    });
                    about.is_file() && about.len() == *size && is_same
                });
        if !is_as_it_came {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes what a purge left of what arrived, so that it can come again: only where it looked [`Landed::Partly`].
///
/// # Errors
/// The operating system's.
pub(crate) fn evict(record: &RequestRecord) -> Result<()> {
    let root = Path::new(&record.destination);
    fs::remove_dir_all(root)
        .map_err(|cause| Error::io("remove", root.display().to_string(), cause))
        .map_err(|error| error.at(Locus::Destination))
}

fn failed(path: &Path, cause: std::io::Error) -> Error {
    Error::io("look at", path.display().to_string(), cause).at(Locus::Destination)
}
