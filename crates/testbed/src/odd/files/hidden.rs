//! Files removed while they are open.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
};

use fuser::FileHandle;

use super::{System, change::Answer};

impl System {
    /// Removes a file, or hides it from all but its open handles.
    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        let (real, name) = (
            self.real(path),
            identity(&fs::symlink_metadata(self.real(path))?),
        );
        let table = self.table();
        if self.habits.hides_open && table.is_open(name) {
            let hidden = real.with_file_name(format!(".fuse_hidden{}", name.1));
            return fs::rename(&real, &hidden);
        }
        fs::remove_file(&real)
    }

    /// Removes a file kept for its open handles.
    pub(super) fn close(&self, handle: FileHandle) -> Answer<()> {
        let (file, path) = self.table().file(handle)?;
        let mut table = self.table();
        table.close(handle);
        let name = identity(&file.metadata()?);
        let hidden = self
            .real(&path)
            .with_file_name(format!(".fuse_hidden{}", name.1));
        if self.habits.hides_open && !table.is_open(name) && hidden.exists() {
            fs::remove_file(hidden)?;
        }
        Ok(())
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}
