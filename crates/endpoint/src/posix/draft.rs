//! Writing a local file that nobody sees until it is whole.

use std::{
    fs::{self, File},
    io::{self, IoSlice},
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use rustix::io::retry_on_intr;

use super::{
    BLOCK_BYTES, attributes, flush,
    owner::Owner,
    partial::{create_own, is_at, ledger_path, open_own_partial, own_path, partial_path},
    show,
    source::with_block,
};
use crate::{
    Checksum, Error, ErrorKind, Locus, Result,
    checksum::Summer,
    endpoint::FileSpec,
    ledger::{Head, Kept, Ledger},
    unkept::Unkept,
};

/// Pieces of one write call (`UIO_MAXIOV` of Linux).
const SLICES_MAX: usize = 1024;

/// How unfinished files are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraftRules {
    /// Read back what was written and compare checksums.
    pub verify: bool,
    /// Flush each file to the disk before it gets its final name.
    pub fsync: bool,
}

impl DraftRules {
    /// The rules for bytes that come from a network: they were summed as they came and the sum is
    /// compared with the sender's, which reading them back from the page cache would not add to.
    #[must_use]
    pub fn of_received(self) -> Self {
        Self {
            verify: false,
            ..self
        }
    }
}

impl Default for DraftRules {
    fn default() -> Self {
        Self {
            verify: true,
            fsync: false,
        }
    }
}

/// An unfinished local file under a hidden name beside its final one.
#[derive(Debug)]
pub struct Draft {
    file: File,
    partial: PathBuf,
    path: PathBuf,
    ledger: Option<Ledger>,
    rules: DraftRules,
    published: AtomicBool,
    /// What another writer left, or still writes, under the name that is tried first.
    beside: Option<PathBuf>,
    /// The kernel lets one thread at a time write to a file. Waiting here sleeps; waiting there
    /// spins.
    turn: Mutex<()>,
}

impl Draft {
    /// Starts a small file: a crash costs all of it. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub fn small(path: &Path, spec: &FileSpec, rules: DraftRules) -> Result<Self> {
        refuse_special(path)?;
        let fail = |cause| failed("write", path, cause);
        let mut partial = partial_path(path, &spec.origin);
        let mut beside = None;
        let file = match create_own(&partial) {
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
                beside = Some(partial);
                partial = own_path(path);
                create_own(&partial)
            }
            created => created,
        };
        Ok(Self {
            file: file.map_err(fail)?,
            partial,
            path: path.to_owned(),
            ledger: None,
            rules,
            published: AtomicBool::new(false),
            beside,
            turn: Mutex::new(()),
        })
    }

    /// Starts a large file or continues it; returns the segments that are there and read back
    /// well. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another process writes it; the system's.
    pub fn resumable(
        path: &Path,
        spec: &FileSpec,
        segment_size: u64,
        rules: DraftRules,
    ) -> Result<(Self, Vec<(u64, Checksum)>)> {
        Self::continued(path, spec, segment_size, rules, Some(spec.size))
    }

    /// Starts or continues a large file that ends where its last segment will. Blocks.
    ///
    /// # Errors
    /// As [`Draft::resumable`].
    pub fn open_ended(
        path: &Path,
        spec: &FileSpec,
        segment_size: u64,
        rules: DraftRules,
    ) -> Result<(Self, Vec<(u64, Checksum)>)> {
        Self::continued(path, spec, segment_size, rules, None)
    }

    fn continued(
        path: &Path,
        spec: &FileSpec,
        segment_size: u64,
        rules: DraftRules,
        size: Option<u64>,
    ) -> Result<(Self, Vec<(u64, Checksum)>)> {
        refuse_special(path)?;
        let partial = partial_path(path, &spec.origin);
        let fail = |cause| failed("write", path, cause);
        let ledger_path = ledger_path(&partial);
        let found = Ledger::load(&ledger_path);
        let owner = found.as_ref().map(|(head, _)| head.token.as_str());
        let file = open_own_partial(&partial, path, owner)?;
        let head = Head {
            identity: spec.identity(),
            segment_size,
            token: Owner::oneself().to_string(),
        };
        let is_same = |found: &Head| {
            (&found.identity, found.segment_size) == (&head.identity, head.segment_size)
        };
        let mut kept = match found {
            Some((found, kept)) if is_same(&found) => kept,
            Some(_) | None => {
                // Truncating even an empty file makes ext4 write it out when it is closed.
                if file.metadata().map_err(fail)?.len() > 0 {
                    file.set_len(0).map_err(fail)?;
                }
                Vec::new()
            }
        };
        let size = match size {
            Some(size) => {
                file.set_len(size).map_err(fail)?;
                size
            }
            None => file.metadata().map_err(fail)?.len(),
        };
        kept.retain(|kept| {
            let range = segment_range(kept.index, segment_size, size);
            let sum = with_block(|block| sum_of(&file, range.clone(), block));
            !range.is_empty() && sum.is_ok_and(|sum| sum == kept.checksum)
        });
        kept.sort_by_key(|kept| kept.index);
        kept.dedup_by_key(|kept| kept.index);
        let ledger = Ledger::start(ledger_path, &head, &kept).map_err(fail)?;
        let segments = kept
            .iter()
            .map(|kept: &Kept| (kept.index, kept.checksum))
            .collect();
        let draft = Self {
            file,
            partial,
            path: path.to_owned(),
            ledger: Some(ledger),
            rules,
            published: AtomicBool::new(false),
            beside: None,
            turn: Mutex::new(()),
        };
        Ok((draft, segments))
    }

    /// Where the unfinished copy of `path` lies that comes from `origin`.
    #[must_use]
    pub fn partial_path(path: &Path, origin: &str) -> PathBuf {
        partial_path(path, origin)
    }

    /// Its final path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Writes all of `bytes` at `offset` and, unless the rules say not to, reads each block back
    /// while it is in the processor's cache and compares it. Blocks.
    ///
    /// # Errors
    /// The system's; [`ErrorKind::Full`] says that a second run continues. [`ErrorKind::Corrupt`]
    /// when what was written reads back differently.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if !self.rules.verify {
            let written = self.file.write_all_at(bytes, offset);
            return written.map_err(|cause| failed("write", &self.path, cause));
        }
        let mut at = offset;
        for block in bytes.chunks(BLOCK_BYTES) {
            self.file
                .write_all_at(block, at)
                .map_err(|cause| failed("write", &self.path, cause))?;
            with_block(|found| self.compare(block, at, &mut found[..block.len()]))?;
            at += block.len() as u64;
        }
        Ok(())
    }

    /// Writes all `pieces` in a row from `offset` on, in as few calls as the system allows; other
    /// threads that write to the file wait. Blocks.
    ///
    /// # Errors
    /// As [`Draft::write_at`].
    pub fn write_pieces(&self, pieces: &[Bytes], mut offset: u64) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.rules.verify {
            for bytes in pieces {
                self.write_at(bytes, offset)?;
                offset += bytes.len() as u64;
            }
            return Ok(());
        }
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|bytes| IoSlice::new(bytes)).collect();
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let group = &rest[..rest.len().min(SLICES_MAX)];
            let written = retry_on_intr(|| rustix::io::pwritev(&self.file, group, offset))
                .map_err(|cause| failed("write", &self.path, cause.into()))?;
            if written == 0 {
                let cause = io::ErrorKind::WriteZero.into();
                return Err(failed("write", &self.path, cause));
            }
            offset += written as u64;
            IoSlice::advance_slices(&mut rest, written);
        }
        Ok(())
    }

    fn compare(&self, wanted: &[u8], offset: u64, found: &mut [u8]) -> Result<()> {
        self.file
            .read_exact_at(found, offset)
            .map_err(|cause| failed("read back", &self.path, cause))?;
        if wanted == found {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Corrupt, "write", show(&self.path))
            .cause("what was written reads back differently")
            .hint("check the disk")
            .with("offset", offset)
            .at(Locus::Destination))
    }

    /// Makes the file `size` long, holes where nothing is written. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub fn set_size(&self, size: u64) -> Result<()> {
        self.file
            .set_len(size)
            .map_err(|cause| failed("write", &self.path, cause))
    }

    /// Notes that a segment is there. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub fn record(&self, index: u64, sum: Checksum) -> Result<()> {
        match &self.ledger {
            Some(ledger) => ledger
                .add(index, sum, "-")
                .map_err(|cause| failed("write", &self.path, cause)),
            None => Ok(()),
        }
    }

    /// Flushes what was written, and the record of it, to the disk. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub fn settle(&self) -> Result<()> {
        let fail = |cause| failed("write", &self.path, cause);
        self.file.sync_data().map_err(fail)?;
        match &self.ledger {
            Some(ledger) => ledger.flush().map_err(fail),
            None => Ok(()),
        }
    }

    /// Gives the file its mode, its mtime and its final name, and tells which of the first two the file system refuses. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another writer took its place; the system's. The unfinished copy is then removed if it is small.
    pub fn publish(&self, spec: &FileSpec) -> Result<Unkept> {
        self.publish_with(spec, self.rules.fsync)
    }

    /// As [`Draft::publish`], flushed to the disk if `fsync` whatever the rules say. Blocks.
    ///
    /// # Errors
    /// As [`Draft::publish`].
    pub fn publish_with(&self, spec: &FileSpec, fsync: bool) -> Result<Unkept> {
        let fail = |cause| failed("write", &self.path, cause);
        let mode = spec.mode.map(attributes::without_lent_rights);
        let set_mode = |mode| rustix::fs::fchmod(&self.file, mode);
        let set_times = |times: &_| rustix::fs::futimens(&self.file, times);
        let unkept = attributes::set((mode, set_mode), (spec.mtime, set_times))
            .map_err(|cause| fail(cause.into()))?;
        if fsync {
            self.file.sync_all().map_err(fail)?;
        }
        flush(&self.file).map_err(fail)?;
        if !is_at(&self.file, &self.partial) {
            return Err(Error::new(ErrorKind::Conflict, "write", show(&self.path))
                .cause("another posthaste wrote it meanwhile")
                .hint("let one at a time write to a name")
                .at(Locus::Destination));
        }
        fs::rename(&self.partial, &self.path).map_err(fail)?;
        self.published.store(true, Ordering::Relaxed);
        if let Some(ledger) = &self.ledger {
            ledger.remove();
        }
        if let Some(beside) = &self.beside {
            // Left by who was killed; whoever still writes it is told that its place was taken.
            let _ = fs::remove_file(beside);
        }
        if fsync && let Some(parent) = self.path.parent() {
            let parent = if parent.as_os_str().is_empty() {
                Path::new(".")
            } else {
                parent
            };
            File::open(parent)
                .and_then(|folder| folder.sync_all())
                .map_err(fail)?;
        }
        Ok(unkept)
    }

    /// Removes the unfinished copy and its record. Blocks.
    pub fn discard(&self) {
        let _ = fs::remove_file(&self.partial);
        if let Some(ledger) = &self.ledger {
            ledger.remove();
        }
    }
}

impl Drop for Draft {
    /// A small file that did not get its final name is of no use: it is written anew next time.
    fn drop(&mut self) {
        let is_left = self.ledger.is_none() && !self.published.load(Ordering::Relaxed);
        if is_left && is_at(&self.file, &self.partial) {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// The bytes segment `index` covers.
#[must_use]
pub fn segment_range(index: u64, segment_size: u64, size: u64) -> Range<u64> {
    let start = index.saturating_mul(segment_size).min(size);
    start..start.saturating_add(segment_size).min(size)
}

pub(super) fn failed(operation: &'static str, path: &Path, cause: io::Error) -> Error {
    let error = Error::io(operation, show(path), cause).at(Locus::Destination);
    match error.kind() {
        ErrorKind::Full => error.hint("free space there, then run the same command to continue"),
        ErrorKind::PermissionDenied => error.hint("choose a directory you may write to"),
        ErrorKind::NotFound
        | ErrorKind::Unauthenticated
        | ErrorKind::Corrupt
        | ErrorKind::Changed
        | ErrorKind::Conflict
        | ErrorKind::Invalid
        | ErrorKind::Unsupported
        | ErrorKind::Unreachable
        | ErrorKind::TimedOut
        | ErrorKind::Busy
        | ErrorKind::Cancelled
        | ErrorKind::Other => error,
    }
}

/// Fails where something is that a file must not replace: a device, a pipe or a socket.
fn refuse_special(path: &Path) -> Result<()> {
    let Ok(there) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    let kind = there.file_type();
    if kind.is_file() || kind.is_symlink() || kind.is_dir() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Conflict, "write", show(path))
        .cause("a device, a pipe or a socket is there")
        .hint("name a file, or a directory that it may go into")
        .at(Locus::Destination))
}

fn sum_of(file: &File, range: Range<u64>, block: &mut [u8]) -> io::Result<Checksum> {
    let mut summer = Summer::default();
    let mut offset = range.start;
    while offset < range.end {
        let rest = usize::try_from(range.end - offset).unwrap_or(usize::MAX);
        let len = rest.min(block.len());
        file.read_exact_at(&mut block[..len], offset)?;
        summer.add(&block[..len]);
        offset += len as u64;
    }
    Ok(summer.sum())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn spec(size: u64, mode: Option<u32>) -> FileSpec {
        FileSpec {
            size,
            mtime: None,
            mode,
            origin: "test".into(),
            version: None,
        }
    }

    #[test]
    fn a_pipe_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        for error in [
            Draft::small(&path, &spec(1, None), DraftRules::default()).unwrap_err(),
            Draft::resumable(&path, &spec(9, None), 3, DraftRules::default()).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn nobody_else_lends_an_owners_rights() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let spec = spec(1, Some(0o6755));
        let draft = Draft::small(&path, &spec, DraftRules::default()).unwrap();
        draft.write_at(b"x", 0).unwrap();
        draft.publish(&spec).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
    }

    #[test]
    fn a_draft_that_got_its_name_meanwhile_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large");
        let spec = spec(9, None);
        let begin = || Draft::resumable(&path, &spec, 3, DraftRules::default());
        let (first, _) = begin().unwrap();
        assert_eq!(begin().unwrap_err().kind(), ErrorKind::Conflict);
        first.write_at(b"123456789", 0).unwrap();
        first.publish(&spec).unwrap();
        // The first still holds its lock, on what is no draft any more.
        let (second, kept) = begin().unwrap();
        assert!(kept.is_empty());
        drop((first, second));
        assert_eq!(fs::read(&path).unwrap(), b"123456789");
    }
}
