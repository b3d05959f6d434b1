//! Removes a source from scratch: only what is in the sealed list, only while it is unchanged,
//! and only after the depots hold all that is needed to bring it back.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path, sync::Arc};

use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use posthaste_engine::dataset::{FileEntry, FileKind, FileList};

use crate::{depots::Depots, sealed::Sealed, store::Store};

/// Stores the manifest at depots, then removes the source.
///
/// # Errors
/// [`ErrorKind::Unreachable`] when too few depots took the manifest, and nothing was removed;
/// [`ErrorKind::Changed`] when some file changed, which then stays.
pub(crate) async fn release(
    sealed: &Arc<Sealed>,
    store: &Arc<Store>,
    depots: &Depots,
) -> Result<()> {
    store_manifest(sealed, store, depots).await?;
    let sealed = Arc::clone(sealed);
    let record = tokio::task::block_in_place(|| store.request(sealed.request))?;
    // Of a directory of which files were named, they alone were asked to go.
    let keeps_root = !record.only.is_empty();
    let removed =
        tokio::task::spawn_blocking(move || remove(&sealed.root, &sealed.list, keeps_root));
    removed.await.map_err(|cause| {
        Error::new(ErrorKind::Cancelled, "remove", "the source").cause(cause.to_string())
    })?
}

/// Without the manifest the fragments are noise, and the journal may be lost with its host: so as
/// many depots as survive the losses the code survives must keep a copy.
async fn store_manifest(sealed: &Sealed, store: &Arc<Store>, depots: &Depots) -> Result<()> {
    let manifest = tokio::task::block_in_place(|| store.manifest_bytes(sealed.request))?;
    let digest = posthaste_engine::stripe::digest_of(&manifest);
    let manifest = bytes::Bytes::from(manifest);
    let wanted = usize::from(sealed.code.parity()) + 1;
    let mut kept = 0;
    let mut last = None;
    let record = tokio::task::block_in_place(|| store.request(sealed.request))?;
    let holders = record.holders();
    for depot in holders.filter_map(|name| depots.named(name)) {
        let client = &depot.client;
        match client
            .put_manifest(&sealed.dataset, manifest.clone(), digest, sealed.expires)
            .await
        {
            Ok(()) => kept += 1,
            Err(error) => last = Some(error),
        }
    }
    if kept >= wanted.min(record.via.len().max(1)) {
        return Ok(());
    }
    Err(last.unwrap_or_else(|| {
        Error::new(
            ErrorKind::Unreachable,
            "store",
            format!("the manifest of {}", sealed.request),
        )
    }))
}

fn remove(root: &Path, list: &FileList, keeps_root: bool) -> Result<()> {
    let mut kept = None;
    let is_to_go = |entry: &&FileEntry| !keeps_root || !entry.path.is_empty();
    // Children come after their directory in the list, so backwards empties each first.
    for entry in list.files.iter().rev().filter(is_to_go) {
        if let Err(error) = remove_entry(root, entry) {
            kept.get_or_insert(error);
        }
    }
    kept.map_or(Ok(()), Err)
}

fn remove_entry(root: &Path, entry: &FileEntry) -> Result<()> {
    let path = entry.below(root);
    let shown = path.display().to_string();
    match &entry.kind {
        FileKind::Directory => remove_directory(&path),
        FileKind::Regular | FileKind::Symlink { .. } => {
            let found = match fs::symlink_metadata(&path) {
                Ok(found) => found,
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(cause) => return Err(Error::io("look at", shown, cause).at(Locus::Source)),
            };
            if !is_as_sealed(entry, &found) {
                return Err(Error::new(ErrorKind::Changed, "release", shown)
                    .at(Locus::Source)
                    .cause("it changed after the dataset was sealed, so it stays"));
            }
            fs::remove_file(&path)
                .map_err(|cause| Error::io("remove", shown, cause).at(Locus::Source))
        }
    }
}

fn is_as_sealed(entry: &FileEntry, found: &fs::Metadata) -> bool {
    let size_is_same = match entry.kind {
        FileKind::Regular => found.is_file() && found.len() == entry.size,
        FileKind::Symlink { .. } => found.is_symlink(),
        FileKind::Directory => found.is_dir(),
    };
    let mtime = (entry.mtime_s, i64::from(entry.mtime_ns));
    size_is_same && found.ino() == entry.inode && (found.mtime(), found.mtime_nsec()) == mtime
}

/// A directory with something new in it stays: that was never part of the dataset.
fn remove_directory(path: &Path) -> Result<()> {
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
        Err(cause) => Err(Error::io("remove", path.display().to_string(), cause).at(Locus::Source)),
    }
}
