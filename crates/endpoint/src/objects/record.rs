//! Records of unfinished uploads: ledgers under the state folder.

use std::{fs, io, path::PathBuf};

use super::RawStore;
use crate::{
    Error, Result,
    config::state_folder,
    endpoint::FileSpec,
    ledger::{Head, Kept, Ledger},
};

/// Path of the ledger of one upload.
pub(crate) struct Record(PathBuf);

impl Record {
    /// Returns the record of the upload from `origin` to `key`.
    pub(crate) fn of<S: RawStore>(store: &S, key: &str, origin: &str) -> Self {
        let name = format!("{}\n{key}\n{origin}", store.place());
        let hash = blake3::hash(name.as_bytes()).to_hex();
        let scheme = store.capabilities().scheme;
        Self(state_folder().join(format!("{scheme}-{}", &hash[..32])))
    }

    /// Loads the ledger, like [`Ledger::load`].
    pub(crate) fn load(&self) -> Option<(Head, Vec<Kept>)> {
        Ledger::load(&self.0)
    }

    /// Starts the ledger, like [`Ledger::start`].
    pub(crate) fn start(&self, head: &Head, kept: &[Kept]) -> Result<Ledger> {
        Ledger::start(self.0.clone(), head, kept).map_err(|cause| self.fail(cause))
    }

    /// Adopts the ledger, like [`Ledger::adopt`].
    pub(crate) fn adopt(&self, spec: &FileSpec, note: &str) -> Result<()> {
        Ledger::adopt(&self.0, &spec.identity(), note).map_err(|cause| self.fail(cause))
    }

    /// Removes the ledger.
    pub(crate) fn remove(&self) {
        // The next run finds a ledger that stays.
        let _ = fs::remove_file(&self.0);
    }

    fn fail(&self, cause: io::Error) -> Error {
        let shown = self.0.to_string_lossy();
        Error::io("note an unfinished upload in", shown, cause)
    }
}
