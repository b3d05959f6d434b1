//! The ends of unfinished files.

use std::fs::File;

use posthaste_endpoint::{Result, posix::close};
use rustix::fs::{AtFlags, unlinkat};

use super::Destination;

impl Destination {
    /// Closes an unfinished file, and hears what was lost of it, whoever wrote that. It is told once, so nothing is kept of one
    /// that lost some: as long as this chunk is missing, nobody gives the file its name.
    pub(super) fn close_staged(&self, index: usize, file: File) -> Result<()> {
        close(file).map_err(|cause| {
            self.unstage(index);
            self.failed(self.file(index), cause)
        })
    }

    /// Removes an unfinished file. What can't be is read again before it is believed.
    pub(in crate::pull) fn unstage(&self, index: usize) {
        let _ = unlinkat(&self.staging, index.to_string(), AtFlags::empty());
    }
}
