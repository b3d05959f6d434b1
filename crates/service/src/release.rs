//! Removes a source from scratch: only files in the sealed list, only while unchanged, and only
//! after the depots hold all that is needed to restore it.

use std::{collections::HashMap, fs, io, os::unix::fs::MetadataExt, path::Path, sync::Arc};

use posthaste_core::contract::{Fault, Input};
use posthaste_endpoint::{Error, ErrorKind, Locus, Result, posix::Place};
use posthaste_engine::{
    dataset::{FileEntry, FileKind, FileList, Root, changed_ns},
    sealed::Sealed,
};
use posthaste_journal::RequestRecord;
use posthaste_types::{RequestId, Timestamp};

use tokio::sync::mpsc;

use crate::{depots::Depots, driver::Arrival, store::Store};

/// Stores the manifest at depots, then removes the source.
///
/// # Errors
/// [`ErrorKind::Unreachable`] if too few depots stored the manifest, and nothing was removed;
/// [`ErrorKind::Changed`] if a file changed, which then stays.
pub(crate) async fn release(
    request: RequestId,
    sealed: &Arc<Sealed>,
    store: &Arc<Store>,
    depots: &Depots,
) -> Result<()> {
    store_manifest(request, sealed, store, depots).await?;
    let sealed = Arc::clone(sealed);
    let record = tokio::task::block_in_place(|| store.request(request))?;
    // If files of a directory were named, only they are to go.
    let keeps_root = record.is_of_some();
    let backup = tokio::task::block_in_place(|| store.backup_of(request));
    let actor = sealed.seal().actor.clone();
    // The list includes later omissions: omitted files stay.
    let list = tokio::task::block_in_place(|| store.list(request))?;
    let removed = actor.blocking(move || remove(&sealed.seal().root, &list, keeps_root, backup));
    removed.await
}

/// Returns the fault of a release as the mind needs it: where a read would fail at the source, a
/// file can't be removed.
pub(crate) fn fault_of(error: &Error, fault: Fault) -> Fault {
    let is_stuck = matches!(
        fault,
        Fault::SourceUnreadable | Fault::SourceStalled | Fault::Other
    );
    match error.locus() == Locus::Source && is_stuck {
        true => Fault::Unremovable,
        false => fault,
    }
}

/// Tells the mind which file stays, as far as it is one that keeps the source.
pub(crate) async fn tell_kept(inputs: &mpsc::Sender<Arrival>, request: RequestId, error: &Error) {
    if error.locus() == Locus::Source {
        let what = error.to_string();
        let told = Input::SourceFileKept { request, what };
        let _ = inputs.send(Arrival::bare(told)).await;
    }
}

/// Returns the number of depots that must keep the manifest before the source is removed. Without
/// the manifest the fragments are noise, and the journal may be lost with its host. So one copy has
/// to survive the losses that the code survives.
pub(crate) fn keepers(record: &RequestRecord) -> usize {
    (usize::from(record.code.parity()) + 1).min(record.via.len().max(1))
}

async fn store_manifest(
    request: RequestId,
    sealed: &Sealed,
    store: &Arc<Store>,
    depots: &Depots,
) -> Result<()> {
    let seal = sealed.seal();
    let manifest = tokio::task::block_in_place(|| store.manifest_bytes(request))?;
    let digest = posthaste_engine::stripe::digest_of(&manifest);
    let manifest = bytes::Bytes::from(manifest);
    let mut kept = 0;
    let mut last = None;
    let record = tokio::task::block_in_place(|| store.request(request))?;
    let holders = record.holders();
    for depot in holders.filter_map(|name| depots.named(name)) {
        let client = &depot.client;
        match client
            .put_manifest(&seal.dataset, manifest.clone(), digest, seal.expires)
            .await
        {
            Ok(()) => kept += 1,
            Err(error) => last = Some(error),
        }
    }
    if kept >= keepers(&record) {
        return Ok(());
    }
    Err(last.unwrap_or_else(|| {
        Error::new(
            ErrorKind::Unreachable,
            "store",
            format!("the manifest of {}", request),
        )
    }))
}

/// Removes everything in the list that is unchanged. For a request from a backup, only files older
/// than the backup are removed.
///
/// # Errors
/// [`ErrorKind::Changed`] if a file changed, which then stays; and the operating system's.
pub(crate) fn remove(
    root: &Path,
    list: &FileList,
    keeps_root: bool,
    backup: Option<Timestamp>,
) -> Result<()> {
    let directory = match Root::of(root, list) {
        // Everything has gone.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut kept = None;
    // Removing one name of a file alters its other names' change time, which is no change of the
    // file: all are compared before the first is removed.
    let mut names: HashMap<u64, Vec<&FileEntry>> = HashMap::new();
    for entry in &list.files {
        if entry
            .extra
            .as_deref()
            .is_some_and(|extra| extra.same_as.is_some())
        {
            names.entry(entry.inode).or_default();
        }
    }
    for entry in list.files.iter().filter(|entry| is_file(entry)) {
        if let Some(names) = names.get_mut(&entry.inode) {
            names.push(entry);
        }
    }
    let is_to_go = |entry: &&FileEntry| !keeps_root || !entry.path.is_empty();
    // Children follow their directory in the list, so the reverse order empties each first.
    for entry in list.files.iter().rev().filter(is_to_go) {
        let of_file = match is_file(entry) {
            true => names.get_mut(&entry.inode).map(std::mem::take),
            false => None,
        };
        let removed = match of_file {
            Some(names) => remove_names((root, &directory), &names, backup),
            None => remove_entry((root, &directory), entry, Judged::Now { backup }),
        };
        if let Err(error) = removed {
            kept.get_or_insert(error);
        }
    }
    kept.map_or(Ok(()), Err)
}

fn is_file(entry: &FileEntry) -> bool {
    match entry.kind {
        FileKind::Regular | FileKind::Symlink { .. } => true,
        FileKind::Directory | FileKind::LeftOut => false,
    }
}

/// Comparison of a file with its sealed state before its first name was removed.
#[derive(Clone, Copy)]
enum Judged {
    /// Compared now.
    Now { backup: Option<Timestamp> },
    /// Compared before: the removed name changed its change time since.
    Before,
}

/// Removes all names of a file if none of them changed, and otherwise none.
fn remove_names(
    (root, directory): (&Path, &Root),
    names: &[&FileEntry],
    backup: Option<Timestamp>,
) -> Result<()> {
    let mut there = Vec::new();
    for entry in names {
        let shown = entry.below(root).display().to_string();
        let found = look(directory, entry, &shown)?;
        there.extend(found.map(|(_, found)| (*entry, found, shown)));
    }
    let is_one_gone = there.len() < names.len();
    for (entry, found, shown) in there {
        if is_one_gone && is_as_sealed(entry, &found) && is_touched(entry, &found) {
            let why = "another of its names is gone, so nothing tells whether it changed too, and it stays";
            return Err(changed(shown).cause(why));
        }
        judge(entry, &found, &shown, backup)?;
    }
    for entry in names {
        remove_entry((root, directory), entry, Judged::Before)?;
    }
    Ok(())
}

fn remove_entry(
    (root, directory): (&Path, &Root),
    entry: &FileEntry,
    judged: Judged,
) -> Result<()> {
    let shown = entry.below(root).display().to_string();
    if entry.path.is_empty() {
        return remove_directory(root, &shown);
    }
    match &entry.kind {
        FileKind::Directory => match place(directory, entry, &shown)? {
            Some(place) => remove_directory(&place.path, &shown),
            None => Ok(()),
        },
        // No other copy exists.
        FileKind::LeftOut => Ok(()),
        FileKind::Regular | FileKind::Symlink { .. } => {
            let Some((place, found)) = look(directory, entry, &shown)? else {
                return Ok(());
            };
            match judged {
                Judged::Now { backup } => judge(entry, &found, &shown, backup)?,
                Judged::Before if is_as_sealed(entry, &found) => {}
                Judged::Before => return Err(changed(shown)),
            }
            fs::remove_file(&place.path)
                .map_err(|cause| Error::io("remove", shown, cause).at(Locus::Source))
        }
    }
}

/// Returns the place of an entry; none if its directory is gone.
fn place(directory: &Root, entry: &FileEntry, shown: &str) -> Result<Option<Place>> {
    match directory.place(&entry.path) {
        Ok(place) => Ok(Some(place)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(Error::io("look at", shown, cause).at(Locus::Source)),
    }
}

/// Returns the entry's metadata; none if it is gone.
fn look(directory: &Root, entry: &FileEntry, shown: &str) -> Result<Option<(Place, fs::Metadata)>> {
    let Some(place) = place(directory, entry, shown)? else {
        return Ok(None);
    };
    match fs::symlink_metadata(&place.path) {
        Ok(found) => Ok(Some((place, found))),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(Error::io("look at", shown, cause).at(Locus::Source)),
    }
}

/// Compares a file with its sealed state, and with a backup's time.
fn judge(
    entry: &FileEntry,
    found: &fs::Metadata,
    shown: &str,
    backup: Option<Timestamp>,
) -> Result<()> {
    let is_older = backup.is_none_or(|made| is_older(found, made));
    match is_as_sealed(entry, found) && !is_touched(entry, found) && is_older {
        true => Ok(()),
        false => Err(changed(shown)),
    }
}

fn changed(shown: impl Into<String>) -> Error {
    Error::new(ErrorKind::Changed, "release", shown)
        .at(Locus::Source)
        .cause("it changed after the dataset was sealed, so it stays")
}

/// Returns whether its mode, owner or attributes changed, or its bytes changed and its time was set
/// back.
fn is_touched(entry: &FileEntry, found: &fs::Metadata) -> bool {
    entry.changed_ns != 0 && entry.changed_ns != changed_ns(found)
}

fn is_as_sealed(entry: &FileEntry, found: &fs::Metadata) -> bool {
    let size_is_same = match entry.kind {
        FileKind::Regular => found.is_file() && found.len() == entry.size,
        FileKind::Symlink { .. } => found.is_symlink(),
        FileKind::Directory => found.is_dir(),
        FileKind::LeftOut => false,
    };
    let mtime = (entry.mtime_s, i64::from(entry.mtime_ns));
    size_is_same && found.ino() == entry.inode && (found.mtime(), found.mtime_nsec()) == mtime
}

/// Returns whether nothing of a file, including its name, is newer than this. Otherwise its source
/// may have been released after the backup, and another file may have its name, number and time.
fn is_older(found: &fs::Metadata, made: Timestamp) -> bool {
    let made = i128::from(made.as_micros()) * 1000;
    i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec()) <= made
}

/// Removes a directory unless it has new entries, which were never part of the dataset.
fn remove_directory(path: &Path, shown: &str) -> Result<()> {
    match fs::remove_dir(path) {
        Ok(()) => Ok(()),
        Err(cause)
            if matches!(
                cause.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
            ) =>
        {
            Ok(())
        }
        Err(cause) => Err(Error::io("remove", shown, cause).at(Locus::Source)),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::fs::PermissionsExt};

    use posthaste_engine::dataset::scan;

    use super::*;

    #[test]
    fn what_changed_in_any_way_stays_and_all_names_of_one_that_did_not_go() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        fs::create_dir(&root).unwrap();
        let path = |name: &str| root.join(name);
        for name in ["bytes", "mode", "one"] {
            fs::write(path(name), name).unwrap();
        }
        fs::hard_link(path("one"), path("another")).unwrap();
        for name in ["two", "half"] {
            fs::write(path(name), name).unwrap();
            fs::hard_link(path(name), path(&format!("{name}-too"))).unwrap();
        }
        let list = scan(&root).unwrap();
        let modified = fs::metadata(path("bytes")).unwrap().modified().unwrap();
        // Until the file system's clock advances, a change looks like the one before.
        let is_told = |name: &str| {
            let listed = list.files.iter().find(|file| file.path == name.as_bytes());
            listed.unwrap().changed_ns != changed_ns(&fs::metadata(path(name)).unwrap())
        };
        let two = File::options().write(true).open(path("two")).unwrap();
        let before = two.metadata().unwrap().modified().unwrap();
        fs::remove_file(path("half")).unwrap();
        while !["bytes", "mode", "two", "half-too"]
            .iter()
            .all(|name| is_told(name))
        {
            fs::write(path("bytes"), "BYTES").unwrap();
            fs::write(path("two"), "TWO").unwrap();
            two.set_modified(before).unwrap();
            fs::hard_link(path("half-too"), path("half")).unwrap();
            fs::remove_file(path("half")).unwrap();
            fs::set_permissions(path("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        }
        let bytes = File::options().write(true).open(path("bytes")).unwrap();
        bytes.set_modified(modified).unwrap();
        let error = remove(&root, &list, false, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
        let mut left: Vec<_> = fs::read_dir(&root)
            .unwrap()
            .map(|item| item.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["bytes", "half-too", "mode", "two", "two-too"]);
    }
}
