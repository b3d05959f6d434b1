//! Reading of local files that may change meanwhile.

use std::{
    cell::RefCell,
    fs::File,
    io::{self, Read},
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::PathBuf,
    sync::Arc,
};

use bytes::Bytes;
use futures_util::stream;
use rustix::{
    buffer::spare_capacity,
    fs::{OFlags, SeekFrom},
    io::{Errno, retry_on_intr},
};

use super::{BLOCK_BYTES, Block, Place, RECEIVED_SEGMENT_BYTES_MIN, entry_of, show};
use crate::{
    Actor, Checksum, Error, ErrorKind, Locus, Result,
    checksum::Summer,
    endpoint::{Boxed, ByteStream, Entry, Kind, Reader, Whole},
};

/// Longest file without a size, in bytes: it is held whole.
pub(crate) const UNTOLD_BYTES_MAX: u64 = 16 << 20;

/// Largest size, in bytes, that a file without blocks may report wrongly: those of /sys say a page.
const PAGE_BYTES: u64 = 4096;

/// Excess bytes of a read that cost less than zeroing its memory.
const OVERREAD_BYTES_MAX: usize = 4096;

thread_local! {
    static BLOCK: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends this thread's block buffer, which is allocated once.
pub(crate) fn with_block<T>(call: impl FnOnce(&mut [u8]) -> T) -> T {
    BLOCK.with_borrow_mut(|block| {
        block.resize(BLOCK_BYTES, 0);
        call(block)
    })
}

/// Local file open for reading, and its attributes at that moment.
#[derive(Debug)]
pub struct SourceFile {
    file: File,
    entry: Entry,
    path: PathBuf,
    sparse: bool,
    /// Time of the last change to anything of it, be it a time that was put back.
    changed: (i64, i64),
    /// The whole content, if the reported size may be wrong: files of /proc say 0, those of /sys a
    /// page.
    untold: Option<Vec<u8>>,
}

impl SourceFile {
    /// Opens the file. If a link replaced it after it was listed, follows it only if `follow`.
    /// Blocks.
    ///
    /// # Errors
    /// The system's errors; [`ErrorKind::Changed`] if it is no file any more.
    pub fn open(path: PathBuf, follow: bool) -> Result<Self> {
        Self::open_at(&Place::plain(path), follow)
    }

    /// Opens the file at a place. Blocks.
    ///
    /// # Errors
    /// See [`SourceFile::open`].
    pub fn open_at(place: &Place, follow: bool) -> Result<Self> {
        let path = place.shown().to_owned();
        // A pipe that replaced the file must not hang us.
        let mut flags = OFlags::NONBLOCK;
        if !follow {
            flags |= OFlags::NOFOLLOW;
        }
        let opened = File::options()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(&place.path);
        let fail = |cause| Error::io("read", show(&path), cause).at(Locus::Source);
        let is_none = || {
            Error::new(ErrorKind::Changed, "read", show(&path))
                .cause("it is no file any more")
                .at(Locus::Source)
        };
        let file = match opened {
            Err(cause) if !follow && Errno::from_io_error(&cause) == Some(Errno::LOOP) => {
                return Err(is_none());
            }
            opened => opened.map_err(fail)?,
        };
        let metadata = file.metadata().map_err(fail)?;
        let mut entry = entry_of(Vec::new(), &metadata);
        if entry.kind != Kind::File {
            return Err(is_none());
        }
        if entry.size > RECEIVED_SEGMENT_BYTES_MIN {
            // Another run may continue a copy of it. A replacement with the same time and size has
            // another version.
            entry.version = Some(format!("{}.{}", metadata.ctime(), metadata.ctime_nsec()).into());
        }
        let sparse = metadata.blocks() * 512 < metadata.len();
        let mut source = Self {
            file,
            entry,
            path,
            sparse,
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            untold: None,
        };
        let said = source.entry.size;
        if said == 0 || metadata.blocks() == 0 && said <= PAGE_BYTES {
            source.hold_untold()?;
        }
        Ok(source)
    }

    /// Reads a file's content, whatever its reported size. For an empty file this is one call.
    fn hold_untold(&mut self) -> Result<()> {
        let mut untold = Vec::new();
        let reading = Read::take(&self.file, UNTOLD_BYTES_MAX + 1).read_to_end(&mut untold);
        reading.map_err(|cause| Error::io("read", show(&self.path), cause).at(Locus::Source))?;
        let (said, size) = (self.entry.size, untold.len() as u64);
        self.entry.size = size;
        self.untold = (said > 0 || size > 0).then_some(untold);
        if size > UNTOLD_BYTES_MAX {
            return Err(Error::new(ErrorKind::Unsupported, "read", show(&self.path))
                .cause("its size is said to be 0, and it holds many bytes")
                .hint("copy it as a stream: cat FILE | posthaste cp - DESTINATION")
                .at(Locus::Source));
        }
        Ok(())
    }

    /// Returns the entry as it was when the file was opened.
    #[must_use]
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Returns the open file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns whether the file occupies less than its size.
    #[must_use]
    pub fn is_sparse(&self) -> bool {
        self.sparse
    }

    /// Fills `block` from `offset`. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] if the file has become shorter; the system's errors.
    pub fn read_at(&self, block: &mut [u8], offset: u64) -> Result<()> {
        if let Some(untold) = &self.untold {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let held = untold.get(start..start.saturating_add(block.len()));
            block.copy_from_slice(held.ok_or_else(|| self.changed("it became shorter"))?);
            return Ok(());
        }
        self.file.read_exact_at(block, offset).map_err(|cause| {
            if cause.kind() == io::ErrorKind::UnexpectedEof {
                return self.changed("it became shorter while it was read");
            }
            Error::io("read", show(&self.path), cause).at(Locus::Source)
        })
    }

    /// Returns the first range of data at or after `from` and before `to`; holes lie between.
    /// Blocks.
    #[must_use]
    pub fn next_data(&self, from: u64, to: u64) -> Option<Range<u64>> {
        if from >= to {
            return None;
        }
        if !self.sparse {
            return Some(from..to);
        }
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(from)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return None,
            Err(_) => return Some(from..to),
        };
        if start >= to {
            return None;
        }
        let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start)).unwrap_or(to);
        Some(start..end.min(to))
    }

    /// Fails unless the file's size and all of its times are unchanged since it was opened. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`].
    pub fn confirm(&self) -> Result<()> {
        // The held content was read at once, and the file's time may be that of each look.
        if self.untold.is_some() {
            return Ok(());
        }
        let metadata = self
            .file
            .metadata()
            .map_err(|cause| Error::io("read", show(&self.path), cause).at(Locus::Source))?;
        let now = entry_of(Vec::new(), &metadata);
        let is_same = (now.size, now.mtime) == (self.entry.size, self.entry.mtime);
        if is_same && (metadata.ctime(), metadata.ctime_nsec()) == self.changed {
            return Ok(());
        }
        Err(self.changed("it changed while it was read"))
    }

    fn changed(&self, what: &'static str) -> Error {
        Error::new(ErrorKind::Changed, "copy", show(&self.path))
            .cause(what)
            .hint("copy it again when nothing writes to it")
            .at(Locus::Source)
    }

    /// Reads the whole file, for small ones. Blocks.
    ///
    /// # Errors
    /// See [`SourceFile::read_at`] and [`SourceFile::confirm`].
    pub fn read_whole(&self) -> Result<Whole> {
        let size = usize::try_from(self.entry.size).unwrap_or(usize::MAX);
        let mut data = Vec::with_capacity(size.div_ceil(Block::BYTES));
        let mut summer = Summer::default();
        let mut offset = 0;
        while offset < self.entry.size {
            let rest = size - data.iter().map(Bytes::len).sum::<usize>();
            let block = self.read_block(offset, rest)?;
            summer.add(&block);
            offset += block.len() as u64;
            data.push(block);
        }
        self.confirm()?;
        Ok(Whole {
            entry: self.entry.clone(),
            data,
            checksum: summer.sum(),
        })
    }

    fn read_block(&self, offset: u64, rest: usize) -> Result<Bytes> {
        let mut block = Block::new();
        self.append_to(block.bytes(), offset, rest.min(Block::BYTES))?;
        Ok(block.freeze())
    }

    /// Appends `len` bytes from `offset` to `out`, which has room for them. Blocks.
    ///
    /// # Errors
    /// See [`SourceFile::read_at`].
    pub fn append_to(&self, out: &mut Vec<u8>, mut offset: u64, len: usize) -> Result<()> {
        let end = out.len() + len;
        if self.untold.is_some() {
            out.resize(end, 0);
            return self.read_at(&mut out[end - len..], offset);
        }
        out.reserve(len);
        while out.len() < end {
            let missing = end - out.len();
            let ends_there = offset + missing as u64 >= self.entry.size;
            let spare = out.capacity() - out.len();
            let count = if ends_there || spare <= missing + OVERREAD_BYTES_MAX {
                // Bytes after the end are cut off again, and nothing is zeroed first.
                retry_on_intr(|| rustix::io::pread(&self.file, spare_capacity(out), offset))
            } else {
                let start = out.len();
                out.resize(end, 0);
                let read =
                    retry_on_intr(|| rustix::io::pread(&self.file, &mut out[start..], offset));
                out.truncate(start + read.unwrap_or(0));
                read
            };
            out.truncate(end);
            match count {
                Ok(0) => return Err(self.changed("it became shorter while it was read")),
                Ok(count) => offset += count as u64,
                Err(cause) => {
                    return Err(Error::io("read", show(&self.path), cause.into()).at(Locus::Source));
                }
            }
        }
        Ok(())
    }
}

/// Bytes of the first block of a range: if many ranges begin at once, none waits until all have
/// read more than a new connection sends in its first round trips.
const FIRST_BLOCK_BYTES: usize = 128 << 10;

/// Local file read by ranges for a remote destination.
pub(super) struct PosixReader {
    actor: Actor,
    source: Arc<SourceFile>,
}

impl PosixReader {
    pub(super) fn new(actor: Actor, place: &Place, follow: bool) -> Result<Self> {
        Ok(Self {
            actor,
            source: Arc::new(SourceFile::open_at(place, follow)?),
        })
    }
}

impl Reader for PosixReader {
    fn entry(&self) -> &Entry {
        self.source.entry()
    }

    fn checksum(&self) -> Option<Checksum> {
        None
    }

    fn read(&self, range: Range<u64>) -> Boxed<'_, Result<ByteStream>> {
        let (source, actor) = (Arc::clone(&self.source), self.actor.clone());
        let first = range.start;
        let blocks = stream::try_unfold(
            (source, actor, range),
            move |(source, actor, range)| async move {
                if range.is_empty() {
                    return Ok(None);
                }
                let reading = Arc::clone(&source);
                let mut rest = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                if range.start == first {
                    rest = rest.min(FIRST_BLOCK_BYTES);
                }
                let block = actor
                    .blocking(move || reading.read_block(range.start, rest))
                    .await?;
                let next = range.start + block.len() as u64..range.end;
                Ok(Some((block, (source, actor, next))))
            },
        );
        let blocks: ByteStream = Box::pin(blocks);
        Box::pin(async { Ok(blocks) })
    }

    fn confirm(&self) -> Boxed<'_, Result<()>> {
        let source = Arc::clone(&self.source);
        Box::pin(self.actor.blocking(move || source.confirm()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_took_a_files_place_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("secret"), "s").unwrap();
        std::os::unix::fs::symlink("secret", at("file")).unwrap();
        let refused = SourceFile::open(at("file"), false).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Changed);
        assert!(SourceFile::open(at("file"), true).is_ok());
    }

    #[test]
    fn a_file_that_tells_no_size_is_read_whole() {
        let source = SourceFile::open("/proc/version".into(), false).unwrap();
        let wanted = std::fs::read("/proc/version").unwrap();
        assert_eq!(source.entry().size, wanted.len() as u64);
        let whole = source.read_whole().unwrap();
        assert_eq!(whole.data.concat(), wanted);
        assert_eq!(whole.checksum, Checksum::of(&wanted));
        let mut end = [0; 4];
        source.read_at(&mut end, wanted.len() as u64 - 4).unwrap();
        assert_eq!(end[..], wanted[wanted.len() - 4..]);
        assert!(source.read_at(&mut end, wanted.len() as u64 - 3).is_err());
    }

    #[test]
    fn a_file_that_gives_less_than_it_says_is_read_whole() {
        let path = "/sys/kernel/fscaps";
        let wanted = std::fs::read(path).unwrap();
        assert!(std::fs::metadata(path).unwrap().len() > wanted.len() as u64);
        let source = SourceFile::open(path.into(), true).unwrap();
        assert_eq!(source.entry().size, wanted.len() as u64);
        assert_eq!(source.read_whole().unwrap().data.concat(), wanted);
        source.confirm().unwrap();
    }

    #[test]
    fn a_hole_is_read_as_zeros() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4000).unwrap();
        let source = SourceFile::open(file.path().to_owned(), false).unwrap();
        assert_eq!(source.read_whole().unwrap().data.concat(), [0; 4000]);
    }

    #[test]
    fn an_empty_file_is_empty() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let source = SourceFile::open(file.path().to_owned(), false).unwrap();
        assert_eq!(source.read_whole().unwrap().data.concat(), b"");
    }
}
