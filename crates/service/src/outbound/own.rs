//! Refuses destinations that are their own source, by another name or through a mount: what lies
//! there would count as arrived, and then be removed.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, File, FileTimes},
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
    sync::OnceLock,
};

use futures_util::{StreamExt, TryStreamExt, stream};
use posthaste_endpoint::{
    Actor, Endpoint, Error, ErrorKind, Location, Locus, Result, is_same_place, join, mark_name,
};
use posthaste_engine::dataset::{FileEntry, FileKind, FileList, Root};
use posthaste_journal::RequestRecord;
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

/// Directories looked for at once: one answer each.
const AT_ONCE: usize = 32;

/// Checks that the address of a destination is not its source, and that no directory of the source
/// is mounted there.
///
/// # Errors
/// At [`Locus::Destination`]: [`ErrorKind::Conflict`] if one is, and those of looking there.
pub(super) async fn refuse_own(
    destination: &dyn Endpoint,
    record: &RequestRecord,
    actor: &Actor,
    (root, list): (&Path, &FileList),
) -> Result<()> {
    refuse_source(destination, actor, root).await?;
    if let Ok(Location::Local(there)) = Location::parse(OsStr::new(&record.destination)) {
        let look = || refuse_mounted(&there, root, list);
        tokio::task::block_in_place(|| actor.run(look))?;
    }
    // Of a merged view of several directories, such as an overlay, each has numbers of its own.
    refuse_seen(destination, actor, (root, list), &record.dataset).await
}

/// Checks that no directory or file of a local destination is one of the source, mounted there.
///
/// # Errors
/// At [`Locus::Destination`]: [`ErrorKind::Conflict`] if one is.
fn refuse_mounted(there: &Path, root: &Path, list: &FileList) -> Result<()> {
    let place = |folder: &Path, file: &FileEntry| {
        let found = fs::metadata(file.below(folder)).ok()?;
        Some((found.dev(), found.ino()))
    };
    let entries = list.files.iter();
    let mut followed = entries.filter(|file| match file.kind {
        FileKind::Directory | FileKind::Regular => true,
        FileKind::Symlink { .. } | FileKind::LeftOut => false,
    });
    let same = followed.find(|file| {
        let here = place(root, file);
        // One more name of a file keeps its bytes; what is mounted there goes with its source.
        let is_mounted = || file.kind == FileKind::Directory || is_mount(&file.below(there));
        here.is_some() && place(there, file) == here && is_mounted()
    });
    same.map_or(Ok(()), |file| {
        Err(is_mounted(file.below(there).display().to_string()))
    })
}

/// Returns whether something is mounted at a path itself.
fn is_mount(path: &Path) -> bool {
    let looked = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS);
    looked.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn is_mounted(shown: String) -> Error {
    Error::new(ErrorKind::Conflict, "release to", shown)
        .cause("it is the source's own, mounted there")
        .hint("send it elsewhere, or unmount that")
        .at(Locus::Destination)
}

/// Checks that no directory of the source that holds files is seen at a destination elsewhere: a
/// file made here for a moment, of a name with `word` in it, would be there too.
async fn refuse_seen(
    destination: &dyn Endpoint,
    actor: &Actor,
    (root, list): (&Path, &FileList),
    word: &str,
) -> Result<()> {
    let is_file =
        |file: &&FileEntry| matches!(file.kind, FileKind::Regular | FileKind::Symlink { .. });
    let files = list.files.iter().filter(is_file);
    let holders = files.filter(|file| !file.path.is_empty()).map(|file| {
        let slash = file.path.iter().rposition(|byte| *byte == b'/');
        &file.path[..slash.unwrap_or(0)]
    });
    let holders: BTreeSet<&[u8]> = holders.collect();
    let there = destination.stat(b"", true).await;
    let there = there.map_err(|error| error.at(Locus::Destination))?;
    if there.is_none() || holders.is_empty() {
        return Ok(());
    }
    let directory = tokio::task::block_in_place(|| actor.run(|| Root::of(root, list)));
    let here = match directory {
        // Everything has gone.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let (here, name) = (&here, &mark_name(word));
    let holders: Vec<&[u8]> = holders.into_iter().collect();
    let holders = &holders;
    let looks = stream::iter(0..holders.len()).map(|place| async move {
        let holder = holders[place];
        match is_seen(destination, actor, here, (holder, name)).await? {
            true => Err(is_mounted(destination.show(holder))),
            false => Ok(()),
        }
    });
    looks.buffer_unordered(AT_ONCE).try_collect().await
}

/// Returns the times of the directory of a path.
fn times_of(path: &Path) -> Option<FileTimes> {
    let found = fs::metadata(path.parent()?).ok()?;
    let times = FileTimes::new().set_modified(found.modified().ok()?);
    Some(times.set_accessed(found.accessed().ok()?))
}

/// Gives the directory of a path its times again, which a mark changed.
fn set_times(path: &Path, times: Option<FileTimes>) -> io::Result<()> {
    match (path.parent(), times) {
        (Some(directory), Some(times)) => File::open(directory)?.set_times(times),
        _ => Ok(()),
    }
}

/// Returns whether a file that is made in a directory here is seen at a destination. A directory
/// that takes no new file loses none either.
async fn is_seen(
    destination: &dyn Endpoint,
    actor: &Actor,
    here: &Root,
    (holder, name): (&[u8], &[u8]),
) -> Result<bool> {
    let path = join(holder, name);
    let as_user = |work: &dyn Fn(&Path) -> io::Result<()>| {
        let placed = || Ok(here.place(&path).and_then(|place| work(&place.path)));
        tokio::task::block_in_place(|| actor.run(placed))
    };
    let before = OnceLock::new();
    let mark = |path: &Path| {
        let _ = before.set(times_of(path));
        File::create_new(path).map(|_| ())
    };
    match as_user(&mark)? {
        Ok(()) => {}
        // A service that was killed here left it.
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
        Err(cause)
            if matches!(
                cause.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            return Ok(false);
        }
        // Without space here, the file is made there.
        Err(_) => {
            let is_here = |name: &[u8]| {
                let found = || Ok(here.place(&join(holder, name)));
                let found = tokio::task::block_in_place(|| actor.run(found))?;
                Ok(found.is_ok_and(|place| place.path.symlink_metadata().is_ok()))
            };
            let same = is_same_place(destination, holder, is_here).await;
            return same.map_err(|error| error.at(Locus::Destination));
        }
    }
    let there = destination.stat(&path, false).await;
    // One that stays goes with the next look, or with its directory.
    let _ = as_user(&|path| {
        fs::remove_file(path)?;
        set_times(path, before.get().copied().flatten())
    })?;
    let there = there.map_err(|error| error.at(Locus::Destination))?;
    Ok(there.is_some())
}

/// Checks that a place is not the source under another name, as over SFTP to this machine.
///
/// # Errors
/// At [`Locus::Destination`]: [`ErrorKind::Conflict`] if it is, and those of writing there.
async fn refuse_source(destination: &dyn Endpoint, actor: &Actor, root: &Path) -> Result<()> {
    let is_here = |name: &[u8]| {
        actor.run(|| {
            let folder = if root.is_dir() {
                Some(root)
            } else {
                root.parent()
            };
            let path = folder.unwrap_or(root).join(OsStr::from_bytes(name));
            match path.symlink_metadata() {
                Ok(_) => Ok(true),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(cause) => Err(Error::io("look at", path.display().to_string(), cause)),
            }
        })
    };
    let is_same = is_same_place(destination, b"", is_here).await;
    if !is_same.map_err(|error| error.at(Locus::Destination))? {
        return Ok(());
    }
    let shown = destination.show(b"");
    Err(Error::new(ErrorKind::Conflict, "release to", shown)
        .cause("it is the source itself, under another name")
        .hint("send it elsewhere")
        .at(Locus::Destination))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use posthaste_endpoint::posix::{DraftRules, Posix};
    use posthaste_engine::{copy::Filter, dataset::scan_passing};

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_directory_of_the_source_that_is_mounted_there_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let [here, there] = ["here", "there"].map(|name| folder.path().join(name));
        fs::create_dir_all(here.join("deep/er")).unwrap();
        fs::write(here.join("deep/er/file"), "bytes").unwrap();
        let root = Root::open(&here, false).unwrap();
        let list = scan_passing(&root, &Filter::default()).unwrap();
        fs::create_dir_all(there.join("deep/er")).unwrap();
        fs::write(there.join("deep/er/file"), "bytes").unwrap();
        let actor = Actor::oneself();
        let files = Posix::new(there.clone(), DraftRules::default());
        let modified = fs::metadata(here.join("deep/er")).unwrap().modified();
        let modified = modified.unwrap();
        refuse_mounted(&there, &here, &list).unwrap();
        let source = (&*here, &list);
        refuse_seen(&files, &actor, source, "word").await.unwrap();
        // A link leads there as a mount does, and needs no rights.
        fs::remove_dir_all(there.join("deep/er")).unwrap();
        symlink(here.join("deep/er"), there.join("deep/er")).unwrap();
        let near = refuse_mounted(&there, &here, &list);
        let far = refuse_seen(&files, &actor, source, "word").await;
        for error in [near.unwrap_err(), far.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            assert!(error.to_string().contains("there/deep/er"), "{error}");
        }
        let after = fs::metadata(here.join("deep/er")).unwrap().modified();
        assert_eq!(after.unwrap(), modified, "its directory has its time");
        let left = fs::read_dir(here.join("deep/er")).unwrap();
        assert_eq!(left.count(), 1, "nothing stays");
    }
}
