//! Removes a file, and never another that took its name meanwhile.
//!
//! Whoever replaces a file by a rename may do so after the last look at it. So it is moved aside,
//! looked at there, and goes back if it is another.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use posthaste_endpoint::leaving_name;
use posthaste_engine::dataset::changed_ns;
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

/// Most names that are tried for a file whose own was taken meanwhile.
const NAMES_MAX: u32 = 1000;

/// Returns the place where a file waits for its last look: the same each time, so that a service
/// that was killed meanwhile finds it again.
fn aside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    path.with_file_name(OsStr::from_bytes(&leaving_name(name.as_bytes())))
}

/// Returns the place where a service that was killed left a file, if it did and nothing has its name.
pub(super) fn left_aside(path: &Path) -> Option<PathBuf> {
    let is_free = fs::symlink_metadata(path).is_err();
    Some(aside(path)).filter(|aside| is_free && fs::symlink_metadata(aside).is_ok())
}

/// Most files that are known as put back: more are told as changed later, and stay.
const KNOWN_MAX: usize = 10_000;

/// Files that this process put back, by device and number, with the change time that this gave them.
static BACK: Mutex<BTreeMap<(u64, u64), i64>> = Mutex::new(BTreeMap::new());

fn back() -> MutexGuard<'static, BTreeMap<(u64, u64), i64>> {
    BACK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that a file that nobody changed was put back: that alters its change time.
pub(super) fn note_back(found: &fs::Metadata) {
    let mut back = back();
    if back.len() < KNOWN_MAX {
        back.insert((found.dev(), found.ino()), changed_ns(found));
    }
}

/// Returns whether nothing happened to a file since it was put back.
pub(super) fn is_only_back(found: &fs::Metadata) -> bool {
    back().get(&(found.dev(), found.ino())) == Some(&changed_ns(found))
}

/// Gives a file that was moved aside its name again. If something has that name meanwhile, it goes if
/// `is_it`; another takes the first free name of `NAME.posthaste-1` and so on, as nobody knows which
/// of both is wanted.
///
/// # Errors
/// Those of the operating system; then it stays aside.
pub(super) fn put_back(path: &Path, is_it: impl Fn(&fs::Metadata) -> bool) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_owned();
    let mut number = 0;
    loop {
        let mut name = name.clone();
        if number > 0 {
            name.push(format!(".posthaste-{number}"));
        }
        match put_at(path, &path.with_file_name(name)) {
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists && number < NAMES_MAX => {
                let aside = aside(path);
                if fs::symlink_metadata(&aside).is_ok_and(|found| is_it(&found)) {
                    return fs::remove_file(aside);
                }
                number += 1;
            }
            put => return put,
        }
    }
}

/// Gives a file that was moved aside from one path another.
fn put_at(from: &Path, path: &Path) -> io::Result<()> {
    let aside = aside(from);
    let named = match renameat_with(CWD, &aside, CWD, path, RenameFlags::NOREPLACE) {
        // Some file systems, Lustre and NFS among them, can't do that in one step.
        Err(Errno::INVAL) => fs::hard_link(&aside, path).and_then(|()| fs::remove_file(&aside)),
        named => named.map_err(io::Error::from),
    };
    match named {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        named => named,
    }
}

/// Removes the file at `path` if `is_it`, and returns whether it did or nothing was there. Nothing
/// may be aside before: [`put_back`] sees to that.
///
/// # Errors
/// Those of the operating system.
pub(super) fn remove(path: &Path, is_it: impl Fn(&fs::Metadata) -> bool) -> io::Result<bool> {
    let aside = aside(path);
    match fs::rename(path, &aside) {
        Ok(()) => {}
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(true),
        // A full disk may take no longer name. Then it is looked at where it is, right before.
        Err(cause)
            if matches!(
                cause.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ) =>
        {
            return match is_it(&fs::symlink_metadata(path)?) {
                true => fs::remove_file(path).map(|()| true),
                false => Ok(false),
            };
        }
        Err(cause) => return Err(cause),
    }
    if fs::symlink_metadata(&aside).is_ok_and(|found| is_it(&found)) {
        return fs::remove_file(&aside).map(|()| true);
    }
    // It was looked at: it is another, or somebody waits to write to it.
    put_back(path, |_| false).map(|()| false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_the_name_of_a_file_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "sealed").unwrap();
        let sealed = fs::metadata(&path).unwrap().ino();
        let is_it = |found: &fs::Metadata| found.ino() == sealed;
        let new = folder.path().join("new");
        fs::write(&new, "newer!").unwrap();
        fs::rename(&new, &path).unwrap();
        assert!(!remove(&path, is_it).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "newer!");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(remove(&path, |found| found.size() == 6).unwrap());
        assert!(remove(&path, is_it).unwrap(), "it is gone");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_service_moved_aside_comes_back_unless_something_newer_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let is_it = |found: &fs::Metadata| found.size() == 5;
        put_back(&path, is_it).unwrap();
        for (moved, files) in [("caught", 1), ("older", 1), ("another", 2), ("a fourth", 3)] {
            fs::write(aside(&path), moved).unwrap();
            put_back(&path, is_it).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "caught");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), files);
        }
        let kept = fs::read_to_string(folder.path().join("file.posthaste-2"));
        assert_eq!(kept.unwrap(), "a fourth");
    }
}
