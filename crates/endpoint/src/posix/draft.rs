//! Writes a local file that nobody sees until it is whole.

mod forget;

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
use rustix::{
    fs::{CWD, Mode, RenameFlags, renameat_with},
    io::retry_on_intr,
};

use super::{
    BLOCK_BYTES, Place, attributes, flush,
    look::Look,
    mtime_of,
    name::look_for_name,
    owner::Owner,
    partial::{self, Opened, create_own, is_at, ledger_path, own_path, partial_path, usual_mode},
    rules::DraftRules,
    show,
    source::with_block,
    special::refuse_special,
};
use crate::{
    Checksum, Error, ErrorKind, Locus, Result,
    checksum::Summer,
    endpoint::FileSpec,
    ledger::{Head, Kept, Ledger},
    unkept::Unkept,
};

/// Most pieces of one write call (`UIO_MAXIOV` of Linux).
const SLICES_MAX: usize = 1024;

/// Unfinished local file under a hidden name beside its final one.
#[derive(Debug)]
pub struct Draft {
    file: File,
    partial: PathBuf,
    place: Place,
    ledger: Option<Ledger>,
    rules: DraftRules,
    /// Set once the draft has its final name, or can't get it any more.
    ended: AtomicBool,
    /// Entry under the final name when a large file was begun.
    replaces: Option<Look>,
    /// Unfinished copy that another writer left, or still writes, under the name tried first.
    beside: Option<PathBuf>,
    /// Lock on writes, since the kernel lets one thread at a time write to a file. Waiting here
    /// sleeps; waiting there spins.
    turn: Mutex<()>,
}

impl Draft {
    /// Starts a small file: a crash loses all of it. Blocks.
    ///
    /// # Errors
    /// The system's errors.
    pub fn small(place: &Place, spec: &FileSpec, rules: DraftRules) -> Result<Self> {
        refuse_special("write", place)?;
        let path = &place.path;
        let fail = |cause| failed("write", place.shown(), cause);
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
            place: place.clone(),
            ledger: None,
            rules,
            ended: AtomicBool::new(false),
            replaces: None,
            beside,
            turn: Mutex::new(()),
        })
    }

    /// Starts or continues a large file; returns the stored segments that read back right. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if another process writes it; the system's errors.
    pub fn resumable(
        place: &Place,
        spec: &FileSpec,
        segment_size: u64,
        rules: DraftRules,
    ) -> Result<(Self, Vec<(u64, Checksum)>)> {
        Self::continued(place, spec, segment_size, rules, Some(spec.size))
    }

    /// Starts or continues a large file whose size is known only with its last segment. Blocks.
    ///
    /// # Errors
    /// See [`Draft::resumable`].
    pub fn open_ended(
        place: &Place,
        spec: &FileSpec,
        segment_size: u64,
        rules: DraftRules,
    ) -> Result<(Self, Vec<(u64, Checksum)>)> {
        Self::continued(place, spec, segment_size, rules, None)
    }

    fn continued(
        place: &Place,
        spec: &FileSpec,
        segment_size: u64,
        rules: DraftRules,
        size: Option<u64>,
    ) -> Result<(Self, Vec<(u64, Checksum)>)> {
        refuse_special("write", place)?;
        let path = &place.path;
        let fail = |cause| failed("write", place.shown(), cause);
        let replaces = Look::at(path).map_err(fail)?;
        let head = Head {
            identity: spec.identity(),
            segment_size,
            token: Owner::oneself().to_string(),
        };
        let is_same = |found: &Head| {
            (&found.identity, found.segment_size) == (&head.identity, head.segment_size)
        };
        let Opened {
            file,
            path: partial,
            mut kept,
        } = partial::begin(path, &spec.origin, is_same)
            .map_err(|error| error.about(show(place.shown())))?;
        let is_open_ended = size.is_none();
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
        let ledger = match Ledger::start_anew(ledger_path(&partial), &head, &kept) {
            Ok(ledger) => Some(ledger),
            // Another user's file has the name: a resendable file needs no resumable copy.
            Err(cause) if !is_open_ended && is_anothers(&cause) => None,
            Err(cause) => return Err(fail(cause)),
        };
        let segments = kept
            .iter()
            .map(|kept: &Kept| (kept.index, kept.checksum))
            .collect();
        let draft = Self {
            file,
            partial,
            place: place.clone(),
            ledger,
            rules,
            ended: AtomicBool::new(false),
            replaces: Some(replaces),
            beside: None,
            turn: Mutex::new(()),
        };
        Ok((draft, segments))
    }

    /// Returns the path of the unfinished copy of `path` that comes from `origin`.
    #[must_use]
    pub fn partial_path(path: &Path, origin: &str) -> PathBuf {
        partial_path(path, origin)
    }

    /// Returns the final path as shown to people.
    pub(super) fn shown(&self) -> &Path {
        self.place.shown()
    }

    /// Returns the open file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Writes all of `bytes` at `offset`. Unless the rules forbid it, reads each block back while
    /// it is in the processor's cache and compares it. Blocks.
    ///
    /// # Errors
    /// The system's errors; [`ErrorKind::Full`] says that a second run continues.
    /// [`ErrorKind::Corrupt`] if the bytes read back differently.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if !self.rules.verify {
            let written = self.file.write_all_at(bytes, offset);
            return written.map_err(|cause| failed("write", self.shown(), cause));
        }
        let mut at = offset;
        for block in bytes.chunks(BLOCK_BYTES) {
            self.file
                .write_all_at(block, at)
                .map_err(|cause| failed("write", self.shown(), cause))?;
            with_block(|found| self.compare(block, at, &mut found[..block.len()]))?;
            at += block.len() as u64;
        }
        Ok(())
    }

    /// Writes all `pieces` in a row from `offset` on, in as few calls as the system allows; other
    /// threads that write to the file wait. Blocks.
    ///
    /// # Errors
    /// See [`Draft::write_at`].
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
                .map_err(|cause| failed("write", self.shown(), cause.into()))?;
            if written == 0 {
                let cause = io::ErrorKind::WriteZero.into();
                return Err(failed("write", self.shown(), cause));
            }
            offset += written as u64;
            IoSlice::advance_slices(&mut rest, written);
        }
        Ok(())
    }

    fn compare(&self, wanted: &[u8], offset: u64, found: &mut [u8]) -> Result<()> {
        self.file
            .read_exact_at(found, offset)
            .map_err(|cause| failed("read back", self.shown(), cause))?;
        if wanted == found {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Corrupt, "write", show(self.shown()))
            .cause("what was written reads back differently")
            .hint("check the disk")
            .with("offset", offset)
            .at(Locus::Destination))
    }

    /// Sets the file's length to `size`, with holes where nothing was written. Blocks.
    ///
    /// # Errors
    /// The system's errors.
    pub fn set_size(&self, size: u64) -> Result<()> {
        self.file
            .set_len(size)
            .map_err(|cause| failed("write", self.shown(), cause))
    }

    /// Notes that a segment is stored. Blocks.
    ///
    /// # Errors
    /// The system's errors.
    pub fn record(&self, index: u64, sum: Checksum) -> Result<()> {
        match &self.ledger {
            Some(ledger) => ledger
                .add(index, sum, "-")
                .map_err(|cause| failed("write", self.shown(), cause)),
            None => Ok(()),
        }
    }

    /// Flushes the file and its record to the disk. Blocks.
    ///
    /// # Errors
    /// The system's errors.
    pub fn settle(&self) -> Result<()> {
        let fail = |cause| failed("write", self.shown(), cause);
        self.hear(self.file.sync_data())?;
        match &self.ledger {
            Some(ledger) => ledger.flush().map_err(fail),
            None => Ok(()),
        }
    }

    /// Gives the file its mode, its mtime and its final name. Returns which of the first two the
    /// file system does not keep. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another writer took its place, or gave another file its final
    /// name meanwhile; the system's. A small draft, or one of which the file system lost bytes, is
    /// then removed.
    pub fn publish(&self, spec: &FileSpec) -> Result<Unkept> {
        self.publish_with(spec, self.rules.fsync)
    }

    /// Publishes as [`Draft::publish`] does, flushed if `fsync` whatever the rules say. Blocks.
    ///
    /// # Errors
    /// See [`Draft::publish`].
    pub fn publish_with(&self, spec: &FileSpec, fsync: bool) -> Result<Unkept> {
        let fail = |cause| failed("write", self.shown(), cause);
        let taken = || self.conflict("another posthaste wrote it meanwhile");
        if self.ended.load(Ordering::Relaxed) {
            return Err(taken());
        }
        let refused = self.set_attributes(spec).map_err(|cause| {
            // Not every file system can do that to a file without a name.
            let is_there = is_at(&self.file, &self.partial);
            if is_there { fail(cause) } else { taken() }
        })?;
        if fsync {
            self.hear(self.file.sync_all())?;
        }
        self.hear(flush(&self.file))?;
        let found = match fs::symlink_metadata(&self.partial) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Err(taken()),
            found => found.map_err(fail)?,
        };
        // A file of this size and time under its name holds the same bytes, whoever wrote it: most
        // often one look shows that.
        let is_same = self.ledger.is_none() && found.len() == spec.size && spec.mtime.is_some();
        let is_same = is_same && mtime_of(&found) == spec.mtime;
        if !is_same && !is_at(&self.file, &self.partial) {
            return Err(taken());
        }
        let mode = spec.mode.map(attributes::without_lent_rights);
        let unkept = attributes::not_kept(refused, (mode, spec.mtime), &found);
        if let Some(replaces) = &self.replaces
            && *replaces != Look::at(&self.place.path).map_err(fail)?
        {
            self.forget_second(spec);
            return Err(self.conflict("something else got this name meanwhile"));
        }
        self.give_name().inspect_err(|_| self.forget_second(spec))?;
        self.ended.store(true, Ordering::Relaxed);
        look_for_name(&self.place.path, self.shown())?;
        if let Some(ledger) = &self.ledger {
            ledger.remove();
        }
        if let Some(beside) = &self.beside {
            // A killed writer left this; a writer still alive learns that its place was taken.
            let _ = fs::remove_file(beside);
        }
        if fsync && let Some(parent) = self.place.path.parent() {
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

    fn give_name(&self) -> Result<()> {
        let (from, to) = (&self.partial, &self.place.path);
        let fail = |cause| failed("write", self.shown(), cause);
        if self.rules.replaces {
            return fs::rename(from, to).map_err(fail);
        }
        let renamed = renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE);
        let linked = match renamed.map_err(io::Error::from) {
            // Not every file system can: there the file gets a second name, then loses the first.
            Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => {
                fs::hard_link(from, to).and_then(|()| fs::remove_file(from))
            }
            renamed => renamed,
        };
        match linked {
            Ok(()) => Ok(()),
            // For a file system that can do neither, look first.
            Err(_) if to.symlink_metadata().is_err() => fs::rename(from, to).map_err(fail),
            Err(_) => Err(self.conflict("something else got this name meanwhile")),
        }
    }

    fn set_attributes(&self, spec: &FileSpec) -> io::Result<Unkept> {
        if spec.mode.is_none() {
            // The file was made private. If modes are not kept, nothing of the source's is lost.
            let usual = Mode::from_raw_mode(usual_mode(&self.place.path)?);
            let _ = rustix::fs::fchmod(&self.file, usual);
        }
        let mode = spec.mode.map(attributes::without_lent_rights);
        let set_mode = |mode| rustix::fs::fchmod(&self.file, mode);
        let set_times = |times: &_| attributes::set_file_times(&self.file, times);
        Ok(attributes::set((mode, set_mode), (spec.mtime, set_times))?)
    }

    /// Reports the file system's errors about bytes that it accepted before. It reports them once,
    /// so a draft that lost some is given up for good.
    fn hear(&self, said: io::Result<()>) -> Result<()> {
        said.map_err(|cause| {
            self.ended.store(true, Ordering::Relaxed);
            self.forget();
            failed("write", self.shown(), cause)
        })
    }

    fn conflict(&self, cause: &'static str) -> Error {
        Error::new(ErrorKind::Conflict, "write", show(self.shown()))
            .cause(cause)
            .hint("let one at a time write to a name")
            .at(Locus::Destination)
    }
}

/// Returns whether a file can't be made because another user's lies under its name.
fn is_anothers(cause: &io::Error) -> bool {
    matches!(
        cause.kind(),
        io::ErrorKind::AlreadyExists | io::ErrorKind::PermissionDenied
    )
}

/// Returns the bytes that segment `index` covers.
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

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;
    use crate::FileTime;

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
    fn what_got_the_name_meanwhile_stays_where_nothing_is_to_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let rules = DraftRules {
            replaces: false,
            ..DraftRules::default()
        };
        let (spec, place) = (spec(1, None), Place::plain(path.clone()));
        let [first, second] = [(); 2].map(|()| Draft::small(&place, &spec, rules).unwrap());
        first.write_at(b"1", 0).unwrap();
        second.write_at(b"2", 0).unwrap();
        first.publish(&spec).unwrap();
        let error = second.publish(&spec).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"1");
    }

    #[test]
    fn the_second_of_two_writers_of_the_same_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::plain(folder.path().join("file"));
        let rules = DraftRules::default();
        let of = |origin: &str| FileSpec {
            origin: origin.into(),
            mtime: Some(FileTime { secs: 5, nanos: 0 }),
            ..spec(9, None)
        };
        let [first, second] = ["one", "other"].map(|origin| {
            let (draft, _) = Draft::resumable(&place, &of(origin), 3, rules).unwrap();
            draft.write_at(b"012345678", 0).unwrap();
            draft.record(0, Checksum::of(b"012")).unwrap();
            draft
        });
        first.publish(&of("one")).unwrap();
        let error = second.publish(&of("other")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        drop(second);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_pipe_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let place = Place::plain(path.clone());
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        for error in [
            Draft::small(&place, &spec(1, None), DraftRules::default()).unwrap_err(),
            Draft::resumable(&place, &spec(9, None), 3, DraftRules::default()).unwrap_err(),
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
        let draft =
            Draft::small(&Place::plain(path.clone()), &spec, DraftRules::default()).unwrap();
        draft.write_at(b"x", 0).unwrap();
        draft.publish(&spec).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
    }

    #[test]
    fn a_draft_that_got_its_name_meanwhile_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large");
        let spec = spec(9, None);
        let place = Place::plain(path.clone());
        let begin = || Draft::resumable(&place, &spec, 3, DraftRules::default());
        let (first, _) = begin().unwrap();
        assert_eq!(begin().unwrap_err().kind(), ErrorKind::Conflict);
        first.write_at(b"123456789", 0).unwrap();
        first.publish(&spec).unwrap();
        // The first still holds its lock, on a file that is no draft any more.
        let (second, kept) = begin().unwrap();
        assert!(kept.is_empty());
        drop((first, second));
        assert_eq!(fs::read(&path).unwrap(), b"123456789");
    }
}
