//! Large files read from a server.

use std::{ops::Range, sync::Arc};

use super::{
    file::{FilePath, OpenFile},
    remote::Remote,
    wire::OPEN_READ,
};
use crate::{
    Checksum, FileTime, Result,
    endpoint::{Boxed, ByteStream, Entry, Reader},
};

/// Remote file read by ranges.
pub(super) struct SftpReader {
    file: OpenFile,
    entry: Entry,
}

impl SftpReader {
    pub(super) async fn open(remote: Arc<Remote>, full: Vec<u8>) -> Result<Self> {
        let file = OpenFile::open(remote, FilePath::of(full), OPEN_READ).await?;
        let entry = file.stat().await?;
        Ok(Self { file, entry })
    }
}

impl Reader for SftpReader {
    fn entry(&self) -> &Entry {
        &self.entry
    }

    fn checksum(&self) -> Option<Checksum> {
        None
    }

    /// Returns whether its time is old enough: servers tell whole seconds, and a change within the
    /// same one would not show to a later run.
    fn can_be_continued(&self) -> bool {
        self.entry.mtime.is_some_and(FileTime::shows_changes)
    }

    fn read(&self, range: Range<u64>) -> Boxed<'_, Result<ByteStream>> {
        Box::pin(self.file.read(range))
    }

    fn confirm(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            self.file.confirm(&self.entry).await?;
            // The file was only read.
            let _ = self.file.close().await;
            Ok(())
        })
    }
}
