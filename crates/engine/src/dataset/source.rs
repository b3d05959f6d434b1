//! Reads chunks of a dataset at its source.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use posthaste_endpoint::{Error, ErrorKind, Locus, Result, posix::settle_mapped};
use posthaste_types::Bytes;
use rustix::{fs::OFlags, io::Errno};

use super::{Extent, FileEntry, FileKind, FileList, Root, changed_ns};

/// Reader of the stream's chunks that notices every file that is no longer what was listed.
///
/// No file stays open between chunks, so any number of readers may exist.
#[derive(Debug, Clone)]
pub struct SourceReader {
    root: PathBuf,
    list: Arc<FileList>,
    chunk_size: Bytes,
    /// Files that are not as they were listed; `None` for those that were left out.
    at_fault: Arc<Mutex<BTreeMap<usize, Option<FileFault>>>>,
}

/// Fault of one file of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFault {
    /// Index of the file in the list.
    pub file: usize,
    /// Kind of the fault.
    pub kind: ErrorKind,
    /// Fault for people, with the file's name.
    pub what: String,
}

impl SourceReader {
    /// Makes a reader of the files in `list`, which [`scan`](super::scan) found below `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>, list: Arc<FileList>, chunk_size: Bytes) -> Self {
        let files = list.files.iter().enumerate();
        let left_out = files.filter(|(_, file)| file.kind == FileKind::LeftOut);
        let left_out = left_out.map(|(place, _)| (place, None)).collect();
        Self {
            root: root.into(),
            at_fault: Arc::new(Mutex::new(left_out)),
            list,
            chunk_size,
        }
    }

    fn books(&self) -> MutexGuard<'_, BTreeMap<usize, Option<FileFault>>> {
        self.at_fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a file no more: its bytes are zeros.
    pub fn leave_out(&self, file: usize) {
        self.books().insert(file, None);
    }

    /// Returns how many files were left out.
    #[must_use]
    pub fn left_out(&self) -> usize {
        let books = self.books();
        books.values().filter(|fault| fault.is_none()).count()
    }

    /// Returns whether a chunk holds something of a file that was left out.
    #[must_use]
    pub fn lacks_some(&self, chunk: u32) -> bool {
        let books = self.books();
        let mut extents = self.list.extents(chunk, self.chunk_size);
        extents.any(|extent| matches!(books.get(&extent.file), Some(None)))
    }

    /// Returns the files of a chunk that were at fault in its last read and were not left out.
    #[must_use]
    pub fn faults(&self, chunk: u32) -> Vec<FileFault> {
        let books = self.books();
        let extents = self.list.extents(chunk, self.chunk_size);
        let faults = extents.filter_map(|extent| books.get(&extent.file)?.clone());
        faults.collect()
    }

    /// Notes a fault of a file if it is the file's own; otherwise returns it.
    fn note(&self, file: usize, error: Error) -> Result<Error> {
        let is_own = matches!(
            error.kind(),
            ErrorKind::Changed | ErrorKind::NotFound | ErrorKind::PermissionDenied
        );
        if !is_own {
            return Err(error);
        }
        let (kind, what) = (error.kind(), error.to_string());
        let fault = FileFault { file, kind, what };
        self.books().entry(file).or_insert(Some(fault));
        Ok(error)
    }

    /// Returns the files it reads.
    #[must_use]
    pub fn list(&self) -> &Arc<FileList> {
        &self.list
    }

    /// Replaces the content of `buffer` by chunk `chunk`, with zeros for files that were left out.
    /// Afterwards [`Self::faults`] gives the fault of each of its files. Blocking.
    ///
    /// # Errors
    /// At [`Locus::Source`], with the file's path: [`ErrorKind::Changed`] if its size, inode or
    /// one of its times is not as listed, before or after the read; [`ErrorKind::NotFound`] if it vanished;
    /// [`ErrorKind::PermissionDenied`] if it can't be read any more.
    pub fn read_chunk(&self, chunk: u32, buffer: &mut Vec<u8>) -> Result<()> {
        buffer.clear();
        buffer.resize(self.list.chunk_bytes(chunk, self.chunk_size), 0);
        let root = self.open_root()?;
        let mut first = None;
        for extent in self.list.extents(chunk, self.chunk_size) {
            if matches!(self.books().get(&extent.file), Some(None)) {
                continue;
            }
            let end = extent.chunk_offset + extent.length;
            match self.read_extent(&root, extent, &mut buffer[extent.chunk_offset..end]) {
                Ok(()) => {
                    let mut books = self.books();
                    // A file that was left out meanwhile stays so.
                    if matches!(books.get(&extent.file), Some(Some(_))) {
                        books.remove(&extent.file);
                    }
                }
                Err(error) => {
                    let own = self.note(extent.file, error)?;
                    first.get_or_insert(own);
                }
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Checks that every file still is what was listed, for callers that release the source.
    /// Blocking: one system call for each file.
    ///
    /// # Errors
    /// Errors of [`Self::read_chunk`].
    pub fn confirm(&self) -> Result<()> {
        let root = self.open_root()?;
        let is_meant = |file: &&FileEntry| file.kind != FileKind::LeftOut;
        for file in self.list.files.iter().filter(is_meant) {
            let metadata = if file.path.is_empty() {
                root.metadata().map_err(io::Error::other)
            } else {
                let place = root.place(&file.path);
                place.and_then(|place| std::fs::symlink_metadata(&place.path))
            };
            let metadata = metadata.map_err(|cause| self.failed(file, cause))?;
            let same = match &file.kind {
                FileKind::Regular => metadata.is_file() && is_same(file, &metadata),
                FileKind::Directory => metadata.is_dir(),
                FileKind::Symlink { .. } => metadata.is_symlink() && is_same_time(file, &metadata),
                FileKind::LeftOut => true,
            };
            if !same {
                return Err(self.changed(file));
            }
        }
        Ok(())
    }

    fn open_root(&self) -> Result<Root> {
        Root::of(&self.root, &self.list).map_err(|error| {
            if error.kind() != ErrorKind::Changed {
                return error;
            }
            // A reader elsewhere may see other files under that name.
            let shown = self.root.display().to_string();
            Error::new(ErrorKind::NotFound, "read", shown)
                .at(Locus::Source)
                .cause("another directory than was listed has that name")
        })
    }

    fn read_extent(&self, root: &Root, extent: Extent, buffer: &mut [u8]) -> Result<()> {
        let file = &self.list.files[extent.file];
        // A pipe put in the file's place must not hang us, nor a link lead elsewhere.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let open = match root.file(file, flags) {
            Ok(open) => open,
            Err(Errno::LOOP | Errno::NXIO) => return Err(self.changed(file)),
            Err(cause) => return Err(self.failed(file, cause.into())),
        };
        self.check(file, &open)?;
        // Stores through a mapping show in its times from here on.
        settle_mapped(&open, extent.file_offset, extent.length as u64);
        match open.read_exact_at(buffer, extent.file_offset) {
            Ok(()) => self.check(file, &open),
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => Err(self.changed(file)),
            Err(cause) => Err(self.failed(file, cause)),
        }
    }

    fn check(&self, file: &FileEntry, open: &File) -> Result<()> {
        let metadata = open.metadata().map_err(|cause| self.failed(file, cause))?;
        match metadata.is_file() && is_same(file, &metadata) {
            true => Ok(()),
            // Bytes of another version may have been sent before.
            false if metadata.is_file() && is_same_content(file, &metadata) => Err(self
                .changed(file)
                .cause("its content or its attributes changed after it was listed")),
            false => Err(self.changed(file)),
        }
    }

    fn failed(&self, file: &FileEntry, cause: io::Error) -> Error {
        Error::io("read", file.below(&self.root).display().to_string(), cause).at(Locus::Source)
    }

    fn changed(&self, file: &FileEntry) -> Error {
        Error::new(
            ErrorKind::Changed,
            "read",
            file.below(&self.root).display().to_string(),
        )
        .at(Locus::Source)
        .cause("it changed after it was listed")
        .hint("submit it again once nothing writes to it")
    }
}

fn is_same(file: &FileEntry, metadata: &std::fs::Metadata) -> bool {
    is_same_content(file, metadata) && is_untouched(file, metadata)
}

/// Returns whether its content is as it was, unless its time was put back.
fn is_same_content(file: &FileEntry, metadata: &std::fs::Metadata) -> bool {
    metadata.size() == file.size
        && (file.inode == 0 || metadata.ino() == file.inode)
        && is_same_time(file, metadata)
}

fn is_same_time(file: &FileEntry, metadata: &std::fs::Metadata) -> bool {
    metadata.mtime() == file.mtime_s && metadata.mtime_nsec() == i64::from(file.mtime_ns)
}

/// Returns whether nothing of it changed, also if its time was put back.
fn is_untouched(file: &FileEntry, metadata: &std::fs::Metadata) -> bool {
    file.changed_ns == 0 || changed_ns(metadata) == file.changed_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::scan;
    use std::fs;

    fn reader(root: &std::path::Path) -> SourceReader {
        SourceReader::new(root, Arc::new(scan(root).unwrap()), Bytes::new(4))
    }

    #[test]
    fn chunks_span_files() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), b"abc").unwrap();
        fs::write(root.path().join("b"), b"").unwrap();
        fs::write(root.path().join("c"), b"defghij").unwrap();
        let (reader, mut buffer) = (reader(root.path()), Vec::new());
        let mut stream = Vec::new();
        for chunk in 0..3 {
            reader.read_chunk(chunk, &mut buffer).unwrap();
            stream.extend_from_slice(&buffer);
        }
        assert_eq!(stream, b"abcdefghij");
        reader.confirm().unwrap();
    }

    #[test]
    fn a_file_that_is_not_what_was_listed_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("a");
        fs::write(&file, b"abcdef").unwrap();
        let (reader, mut buffer) = (reader(root.path()), Vec::new());
        let mut fails = || {
            let kind = reader.read_chunk(0, &mut buffer).unwrap_err().kind();
            assert_eq!(reader.confirm().unwrap_err().kind(), kind);
            kind
        };
        fs::write(&file, b"abcdefg").unwrap();
        assert_eq!(fails(), ErrorKind::Changed);
        fs::write(&file, b"ABCDEF").unwrap();
        assert_eq!(fails(), ErrorKind::Changed, "same size, later mtime");
        fs::remove_file(&file).unwrap();
        assert_eq!(fails(), ErrorKind::NotFound);
        std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
        assert_eq!(fails(), ErrorKind::Changed);
    }

    #[test]
    fn a_file_that_was_written_over_in_place_with_its_time_put_back_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        fs::write(&path, b"abcdef").unwrap();
        let (reader, mut buffer) = (reader(root.path()), Vec::new());
        reader.read_chunk(0, &mut buffer).unwrap();
        let before = fs::metadata(&path).unwrap();
        // Until the file system's clock advances, a change looks like the one before.
        while changed_ns(&fs::metadata(&path).unwrap()) == changed_ns(&before) {
            let file = File::options().write(true).open(&path).unwrap();
            file.write_all_at(b"ABCDEF", 0).unwrap();
            file.set_modified(before.modified().unwrap()).unwrap();
        }
        let error = reader.read_chunk(1, &mut buffer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed);
        assert!(error.to_string().contains("its content or its attributes"));
        assert_eq!(reader.confirm().unwrap_err().kind(), ErrorKind::Changed);
        // A list of a former release tells nothing of it.
        let mut list = (*reader.list).clone();
        list.files[1].changed_ns = 0;
        let reader = SourceReader::new(root.path(), Arc::new(list), Bytes::new(4));
        reader.read_chunk(1, &mut buffer).unwrap();
    }

    /// Maps a file, stores to it, tells so, and stores once more after each line of its input.
    const MAPS: &str = "import ctypes, os, sys\n\
        libc = ctypes.CDLL(None)\n\
        libc.mmap.restype = ctypes.c_void_p\n\
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]\n\
        file = os.open(sys.argv[1], os.O_RDWR)\n\
        bytes = (ctypes.c_char * 6).from_address(libc.mmap(None, 6, 3, 1, file, 0))\n\
        os.close(file)\n\
        bytes[0] = b'A'\n\
        print('ready', flush=True)\n\
        for line in sys.stdin:\n\
        \x20   bytes[1] = b'B'\n\
        \x20   print('stored', flush=True)\n";

    #[test]
    fn a_store_through_a_mapping_after_the_read_is_noticed() {
        use std::{
            io::{BufRead, BufReader, Write},
            process::{Command, Stdio},
        };
        // Files in memory are read once more before they are removed: their times tell nothing.
        let root = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        if posthaste_endpoint::posix::lies_in_memory(root.path()) {
            println!("not tried: the checkout lies in memory");
            return;
        }
        let path = root.path().join("a");
        fs::write(&path, b"abcdef").unwrap();
        let mut child = Command::new("python3")
            .args(["-c", MAPS])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut output = BufReader::new(output).lines();
        assert_eq!(output.next().unwrap().unwrap(), "ready");
        let list = scan(root.path()).unwrap();
        // Until then a store may get the listed times.
        let clock = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        while list.settled_ns() >= changed_ns(&clock.as_file().metadata().unwrap()) {
            clock.as_file().set_len(0).unwrap();
            clock.as_file().set_len(1).unwrap();
        }
        let reader = SourceReader::new(root.path(), Arc::new(list), Bytes::new(6));
        let mut buffer = Vec::new();
        reader.read_chunk(0, &mut buffer).unwrap();
        assert_eq!(buffer, b"Abcdef");
        reader.confirm().unwrap();
        writeln!(input).unwrap();
        assert_eq!(output.next().unwrap().unwrap(), "stored");
        assert_eq!(fs::read(&path).unwrap(), b"ABcdef");
        assert_eq!(reader.confirm().unwrap_err().kind(), ErrorKind::Changed);
        drop(input);
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn each_file_at_fault_is_told_and_reads_as_zeros_once_it_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        for (name, content) in [("a", "aa"), ("b", "bb"), ("c", "cc"), ("d", "dd")] {
            fs::write(root.path().join(name), content).unwrap();
        }
        let list = Arc::new(scan(root.path()).unwrap());
        let reader = SourceReader::new(root.path(), list, Bytes::new(8));
        fs::write(root.path().join("b"), "longer").unwrap();
        fs::remove_file(root.path().join("d")).unwrap();
        let mut buffer = Vec::new();
        assert!(reader.read_chunk(0, &mut buffer).is_err());
        let faults = reader.faults(0);
        let kinds: Vec<_> = faults
            .iter()
            .map(|fault| (fault.file, fault.kind))
            .collect();
        assert_eq!(kinds, [(2, ErrorKind::Changed), (4, ErrorKind::NotFound)]);
        assert!(faults[0].what.contains("/b: it changed"), "{faults:?}");
        assert!(!reader.lacks_some(0));
        kinds.iter().for_each(|(file, _)| reader.leave_out(*file));
        reader.read_chunk(0, &mut buffer).unwrap();
        assert_eq!(buffer, b"aa\0\0cc\0\0");
        assert!(reader.lacks_some(0) && reader.faults(0).is_empty());
        // The directory itself is no file that can be left out.
        fs::remove_dir_all(root.path()).unwrap();
        assert!(reader.read_chunk(0, &mut buffer).is_err());
        assert!(reader.faults(0).is_empty());
    }
}
