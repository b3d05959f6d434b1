//! Who may write the file of a journal: one process, as long as it has it open.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use rusqlite::Connection;

use super::{Trouble, TroubleKind};

/// A lock that ends with its process. It is held on a file beside the journal's: a lock on that one would also keep out whoever
/// copies it.
#[derive(Debug)]
pub(crate) struct Lock {
    /// In a transaction that never ends, of a database that stays empty: the lock is one of SQLite's, and holds wherever those do.
    _held: Connection,
}

impl Lock {
    /// Takes the lock of the journal at `path`.
    pub(crate) fn take(path: &Path) -> Result<Self, Trouble> {
        let held = Connection::open(beside(path, "-lock"))?;
        held.execute_batch("BEGIN EXCLUSIVE")?;
        Ok(Self { _held: held })
    }
}

/// Notes on which host the journal at `path` is open.
pub(crate) fn note_host(path: &Path) -> Result<(), Trouble> {
    let written = fs::write(beside(path, "-host"), format!("{}\n", host()));
    written.map_err(|cause| Trouble::new(TroubleKind::Other, cause))
}

/// The host where the journal was opened last, where that is another than this one. Processes on one host see the same index of
/// what is not in the file yet; those on several hosts do not, and could damage it.
pub(crate) fn other_host(path: &Path) -> Option<String> {
    let noted = fs::read_to_string(beside(path, "-host")).ok()?;
    let noted = noted.trim();
    (noted != host()).then(|| noted.to_owned())
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}
