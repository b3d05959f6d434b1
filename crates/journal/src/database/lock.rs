//! Write lock on the file of a journal: one process has it, as long as the file is open.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use rusqlite::Connection;

use super::{Trouble, TroubleKind};

/// A lock that ends with its process. It is held on a file beside the journal's: a lock on the
/// journal itself would also keep out processes that copy it.
#[derive(Debug)]
pub(crate) struct Lock {
    /// Connection with an endless transaction, to a database that stays empty: the lock is one of
    /// SQLite's, and works wherever those do.
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

/// Records the host on which the journal at `path` is open.
pub(crate) fn note_host(path: &Path) -> Result<(), Trouble> {
    let written = fs::write(beside(path, "-host"), format!("{}\n", host()));
    written.map_err(|cause| Trouble::new(TroubleKind::Other, cause))
}

/// Returns the host that opened the journal last, if it is not this one. Processes on one host
/// share the index of the data that is not in the file yet. Processes on several hosts do not, and
/// could damage the file.
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
