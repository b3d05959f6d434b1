//! Dataset: a sealed list of files seen as one byte stream, cut into chunks of equal size.
//!
//! [`scan`] lists a directory. [`SourceReader`] reads the stream's chunks and notices when a file
//! is no longer what was listed. [`Manifest`] is what the far end needs to put the dataset
//! together.

mod bounds;
mod extra;
mod manifest;
mod room;
mod root;
mod scan;
mod source;

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use posthaste_types::Bytes;

pub use bounds::{Bound, Bounds, ENTRIES_MAX, NAME_BYTES_MAX, Wanted};
pub(crate) use extra::{ACCESS_LISTS, is_kept};
pub use extra::{Extra, NOBODY_KNOWS};
pub use manifest::{ChunkDigests, Manifest};
pub use posthaste_endpoint::relay::DatasetId;
pub use room::{Lent, Portion, Room};
pub use root::Root;
pub use scan::{changed_ns, is_path_below, scan, scan_files, scan_passing};
pub use source::{FileFault, SourceReader};

/// Smallest chunk: a smaller one would cost a round trip and a disk flush for too little.
const CHUNK_SIZE_MIN: u64 = 1 << 20;
/// Largest chunk of datasets that fit into [`CHUNKS_AIM_MAX`] of them. It bounds what is in flight
/// twice after a crash and what a lane keeps in memory.
const CHUNK_SIZE_USUAL_MAX: u64 = 64 << 20;
/// Largest chunk of all: the maximum that a relay accepts as one fragment of a code with k = 1.
const CHUNK_SIZE_MAX: u64 = posthaste_endpoint::relay::wire::OBJECT_BYTES_MAX;
/// Minimum number of chunks if the smallest chunk allows, so that shares can follow the depots'
/// rates and a lost depot costs little.
const CHUNKS_AIM_MIN: u64 = 128;
/// Maximum number of chunks if the largest chunk allows, so that books and manifest stay small.
const CHUNKS_AIM_MAX: u64 = 200_000;

/// Kind of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileKind {
    /// Regular file with bytes in the stream.
    Regular,
    /// Directory, kept even if empty.
    Directory,
    /// Symbolic link, kept as a link.
    Symlink {
        /// Target of the link, byte for byte.
        target: Vec<u8>,
    },
    /// Regular file that was left out because of a fault when it was read. Its bytes in the stream
    /// are of no use, and a pull does not make the file.
    LeftOut,
}

/// File of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Path relative to the dataset's root, `/` between components, never with `.` or `..`. Empty
    /// for the root directory itself, which is the first entry.
    pub path: Vec<u8>,
    /// Kind of the file.
    pub kind: FileKind,
    /// Bytes of a regular file; 0 for the others.
    pub size: u64,
    /// Permission bits (`07777`).
    pub mode: u32,
    /// Last change of its content: whole seconds since the Unix epoch, negative before it.
    pub mtime_s: i64,
    /// Nanoseconds after `mtime_s`, below 10^9.
    pub mtime_ns: u32,
    /// Inode number at the source, to detect that another file took the name.
    pub inode: u64,
    /// Start of its bytes in the stream.
    pub offset: u64,
    /// Number of its owner; [`NOBODY_KNOWS`] in a list of a former release.
    pub owner: u32,
    /// Number of its group; [`NOBODY_KNOWS`] in a list of a former release.
    pub group: u32,
    /// Last change of anything about it, in nanoseconds since 1970; 0 in a list of a former
    /// release.
    pub changed_ns: i64,
    /// Attributes that few files have.
    pub extra: Option<Box<Extra>>,
}

impl FileEntry {
    /// Returns the path for people.
    #[must_use]
    pub fn shown(&self) -> String {
        if self.path.is_empty() {
            return ".".into();
        }
        String::from_utf8_lossy(&self.path).into_owned()
    }

    /// Returns the path for the operating system, below `root`.
    #[must_use]
    pub fn below(&self, root: &Path) -> std::path::PathBuf {
        if self.path.is_empty() {
            return root.to_owned();
        }
        root.join(OsStr::from_bytes(&self.path))
    }
}

/// Files of a dataset in order of their paths' bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileList {
    /// Every file; directories come before what they hold.
    pub files: Vec<FileEntry>,
    /// Length of the stream in bytes: the sum of all sizes.
    pub bytes: u64,
}

/// Piece of a chunk: bytes of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Index into [`FileList::files`].
    pub file: usize,
    /// First byte in the file.
    pub file_offset: u64,
    /// First byte in the chunk.
    pub chunk_offset: usize,
    /// Bytes; never 0.
    pub length: usize,
}

impl FileList {
    /// Marks a file as left out.
    pub fn leave_out(&mut self, file: usize) {
        let entry = self.files.get_mut(file);
        if let Some(entry) = entry.filter(|entry| !entry.path.is_empty()) {
            entry.kind = FileKind::LeftOut;
        }
    }

    /// Returns the files that were left out.
    pub fn left_out(&self) -> impl Iterator<Item = &FileEntry> {
        let files = self.files.iter();
        files.filter(|file| file.kind == FileKind::LeftOut)
    }

    /// Returns the number of regular files.
    #[must_use]
    pub fn regular_files(&self) -> usize {
        self.files
            .iter()
            .filter(|file| file.kind == FileKind::Regular)
            .count()
    }

    /// Returns the size of chunk `chunk`: the chunk size, what is left for the last one, 0 past the
    /// end.
    #[must_use]
    pub fn chunk_bytes(&self, chunk: u32, chunk_size: Bytes) -> usize {
        let start = u64::from(chunk).saturating_mul(chunk_size.get());
        let size = self.bytes.saturating_sub(start).min(chunk_size.get());
        usize::try_from(size).unwrap_or(usize::MAX)
    }

    /// Returns the bytes of files that make up chunk `chunk`. O(log files + extents).
    pub fn extents(&self, chunk: u32, chunk_size: Bytes) -> impl Iterator<Item = Extent> {
        let start = u64::from(chunk).saturating_mul(chunk_size.get());
        let end = start + self.chunk_bytes(chunk, chunk_size) as u64;
        let first = self
            .files
            .partition_point(|file| file.offset + file.size <= start);
        let files = self.files[first..].iter().enumerate();
        files
            .take_while(move |(_, file)| file.offset < end)
            .filter_map(move |(at, file)| {
                let from = file.offset.max(start);
                let length = (file.offset + file.size).min(end).saturating_sub(from);
                let length = usize::try_from(length).ok().filter(|&length| length > 0)?;
                Some(Extent {
                    file: first + at,
                    file_offset: from - file.offset,
                    chunk_offset: usize::try_from(from - start).ok()?,
                    length,
                })
            })
    }
}

/// Returns the chunk size for a dataset of `bytes`: a power of two from 1 MiB to 64 MiB that gives
/// 128 chunks or more if possible, and larger (to 256 MiB) only to keep them at 200,000. An
/// encrypted chunk has a tag and must still fit what a relay accepts, so its size is at most half
/// as large.
#[must_use]
pub fn chunk_size_for(bytes: Bytes, is_encrypted: bool) -> Bytes {
    let max = CHUNK_SIZE_MAX >> u32::from(is_encrypted);
    let mut size = CHUNK_SIZE_MIN;
    while size < CHUNK_SIZE_USUAL_MAX && bytes.get() / (2 * size) >= CHUNKS_AIM_MIN {
        size *= 2;
    }
    while size < max && bytes.pieces(Bytes::new(size)) > CHUNKS_AIM_MAX {
        size *= 2;
    }
    Bytes::new(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_many_enough_to_share_and_few_enough_to_count() {
        assert_eq!(chunk_size_for(Bytes::ZERO, false), Bytes::mebi(1));
        assert_eq!(chunk_size_for(Bytes::mebi(100), true), Bytes::mebi(1));
        for mebi in [300, 500, 5_000, 1 << 20, 10 << 20] {
            let count = Bytes::mebi(mebi).pieces(chunk_size_for(Bytes::mebi(mebi), mebi % 2 == 1));
            assert!(
                (100..=200_000).contains(&count),
                "{mebi} MiB in {count} chunks"
            );
        }
        let huge = Bytes::new(u64::MAX);
        assert_eq!(chunk_size_for(huge, false), Bytes::mebi(256));
        assert_eq!(chunk_size_for(huge, true), Bytes::mebi(128));
    }

    #[test]
    fn extents_cover_the_stream_once_and_in_order() {
        let sizes = [0, 5, 0, 11, 3, 0, 20, 0];
        let mut list = FileList::default();
        for (n, size) in sizes.into_iter().enumerate() {
            let path = format!("{n}").into_bytes();
            let kind = if n == 2 {
                FileKind::Directory
            } else {
                FileKind::Regular
            };
            let (mode, mtime_s, mtime_ns, inode) = (0o644, 0, 0, 0);
            let offset = list.bytes;
            list.files.push(FileEntry {
                path,
                kind,
                size,
                mode,
                mtime_s,
                mtime_ns,
                inode,
                offset,
                owner: NOBODY_KNOWS,
                group: NOBODY_KNOWS,
                changed_ns: 0,
                extra: None,
            });
            list.bytes += size;
        }
        let mut at = 0;
        for chunk in 0..6 {
            let mut within = 0;
            for extent in list.extents(chunk, Bytes::new(7)) {
                assert_eq!(extent.chunk_offset, within);
                assert_eq!(list.files[extent.file].offset + extent.file_offset, at);
                within += extent.length;
                at += extent.length as u64;
            }
            assert_eq!(
                within,
                list.chunk_bytes(chunk, Bytes::new(7)),
                "chunk {chunk}"
            );
        }
        assert_eq!(at, list.bytes);
        assert_eq!(list.extents(6, Bytes::new(7)).count(), 0);
    }
}
