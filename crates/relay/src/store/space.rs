//! Space reserved for datasets, and the file that keeps it.

use std::{path::Path, sync::PoisonError};

use posthaste_endpoint::{
    Error, ErrorKind, Result,
    kept::KeptFile,
    relay::{
        DatasetId,
        wire::{SpaceBody, SpaceGrant, SpaceHeld},
    },
};

use super::{
    Index, Refusal, Store,
    room::{KeptSpaces, Room},
};
use crate::clock;

/// Maximum of the file's bytes: a thousand reservations.
const FILE_BYTES_MAX: u64 = 1 << 20;
const VERSION: u64 = 1;

/// Describes the file that keeps the reservations.
pub(super) fn file(dir: &Path) -> KeptFile {
    KeptFile {
        path: dir.join("spaces.json"),
        version: VERSION,
        bytes_max: FILE_BYTES_MAX,
        operation: "read the reserved space in",
        hint: "move it away: then nothing is reserved",
    }
}

/// Restores earlier reservations. Blocking.
///
/// # Errors
/// [`ErrorKind::Invalid`] if the file makes no sense.
pub(super) fn restore(file: &KeptFile, room: &mut Room) -> Result<()> {
    let kept: KeptSpaces = file.read()?.unwrap_or_default();
    let now_s = clock::unix_s();
    let restored = room.spaces().restore(kept, now_s).ok_or_else(|| {
        let shown = file.path.display().to_string();
        Error::new(ErrorKind::Invalid, file.operation, shown)
            .cause("what is reserved there makes no sense")
            .hint(file.hint)
    })?;
    room.put_back(restored, now_s);
    Ok(())
}

impl Store {
    /// Makes or changes the reservation of a dataset. Also returns whether there was none.
    /// Blocking.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`]; [`ErrorKind::Full`]: then nothing changes.
    pub(crate) fn reserve_space(
        &self,
        dataset: &DatasetId,
        wanted: SpaceBody,
    ) -> Result<(bool, SpaceGrant), Refusal> {
        self.alter(|index, now_s| index.room.reserve(dataset, wanted, now_s))
    }

    /// Releases the reservation of a dataset, if there is one. Blocking.
    pub(crate) fn release_space(&self, dataset: &DatasetId) -> Result<(), Refusal> {
        self.alter(|index, now_s| {
            index.room.release(dataset, now_s);
            Ok(())
        })
    }

    /// Returns all reservations.
    pub(crate) fn spaces(&self) -> Vec<SpaceHeld> {
        self.index().room.held(clock::unix_s())
    }

    /// Changes the reservations and writes them down; if writing fails, it undoes the change.
    fn alter<T>(
        &self,
        what: impl FnOnce(&mut Index, u64) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let file = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, before, kept) = {
            let mut index = self.index();
            let before = index.room.spaces().clone();
            let done = what(&mut index, clock::unix_s())?;
            (done, before, index.room.spaces().kept())
        };
        // Uploads need not wait for the disk.
        if let Err(cause) = file.write(&kept) {
            self.index().room.put_back(before, clock::unix_s());
            return Err(cause.into());
        }
        Ok(done)
    }
}
