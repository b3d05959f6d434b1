//! Folder of a scan: pairs of files that only grow, and a checkpoint that says how much of them
//! counts.
//!
//! Each worker owns a slot: a file of entries and a file of directories found. Its additions count
//! once the directory it lists is done, or from page to page if the listing leaves marks. The
//! checkpoint is written beside the old one and renamed, after the files were flushed. Bytes beyond
//! its lengths are cut off when the scan continues. So a process killed at any moment, or a machine
//! that loses power, loses what came after the last checkpoint, and nothing is reported twice.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use posthaste_types::Record;
use tokio::sync::Notify;

use super::record::{Checkpoint, Current, Raw, Slot};

/// Version of the files. Another one starts anew.
const FORM: u32 = 1;

const CHECKPOINT: &str = "checkpoint";
const LOCK: &str = "lock";

/// Bytes of directories read ahead.
const AHEAD_BYTES: usize = 64 << 10;

/// A pair of files.
#[derive(Debug)]
pub(super) struct Files {
    pub entries: File,
    pub directories: File,
}

/// Directories read from a file before they are claimed.
#[derive(Debug, Default)]
struct Ahead {
    bytes: Vec<u8>,
    used: usize,
}

#[derive(Debug)]
pub(super) struct State {
    pub checkpoint: Checkpoint,
    ahead: Vec<Ahead>,
    /// The scan has ended for now, by a failure.
    ended: bool,
}

/// Folder of a scan, held by this process alone.
#[derive(Debug)]
pub(super) struct Spool {
    pub(super) folder: PathBuf,
    _lock: File,
    pub(super) files: Vec<Files>,
    state: Mutex<State>,
    pub(super) changed: Notify,
}

/// Identity of a scan: another one does not go on in the same folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Identity<'a> {
    pub address: &'a str,
    pub follow: bool,
    pub whole: bool,
    /// Slots of a new scan.
    pub slots: usize,
}

pub(super) fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let shown = path.display().to_string();
    move |cause| Error::io(operation, shown, cause)
}

impl Spool {
    /// Opens the folder's scan, or starts one where there is none. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if another process works there or it holds another scan;
    /// [`ErrorKind::Corrupt`] if its files are not what the checkpoint says; the system's.
    pub(super) fn open(folder: &Path, identity: Identity<'_>) -> Result<Self> {
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        let lock_path = folder.join(LOCK);
        let lock = File::create(&lock_path).map_err(failed("open", &lock_path))?;
        let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        if rustix::fs::flock(&lock, operation).is_err() {
            let shown = folder.display().to_string();
            return Err(Error::new(ErrorKind::Conflict, "scan into", shown)
                .cause("another process scans into it")
                .hint("wait for it, or choose another folder"));
        }
        let checkpoint = match read_checkpoint(folder)? {
            Some(checkpoint) => check_identity(folder, checkpoint, identity)?,
            None => Checkpoint {
                form: FORM,
                address: Raw(identity.address.as_bytes().to_vec()),
                follow: identity.follow,
                whole: identity.whole,
                slots: vec![Slot::default(); identity.slots],
                again: vec![Current::default()],
                ..Checkpoint::default()
            },
        };
        let mut files = Vec::with_capacity(checkpoint.slots.len());
        for (number, slot) in checkpoint.slots.iter().enumerate() {
            files.push(Files {
                entries: open_cut(&entries_path(folder, number), slot.entries)?,
                directories: open_cut(&directories_path(folder, number), slot.directories)?,
            });
        }
        Ok(Self {
            folder: folder.to_owned(),
            _lock: lock,
            state: Mutex::new(State {
                ahead: files.iter().map(|_| Ahead::default()).collect(),
                checkpoint: resumed(checkpoint),
                ended: false,
            }),
            files,
            changed: Notify::new(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the maximum number of workers.
    pub(super) fn slots(&self) -> usize {
        self.files.len()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.state().checkpoint.finished
    }

    /// Returns whether the whole tree is listed at once.
    pub(super) fn is_whole(&self) -> bool {
        self.state().checkpoint.whole
    }

    /// Returns the entries, directories and failures that count so far.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        let state = self.state();
        let counted = &state.checkpoint;
        (counted.entries, counted.directories, counted.failures)
    }

    /// Returns the files of entries and how much of each counts.
    pub(super) fn written(&self) -> Vec<(PathBuf, u64)> {
        let slots = &self.state().checkpoint.slots;
        let slots = slots.iter().enumerate();
        slots
            .map(|(number, slot)| (entries_path(&self.folder, number), slot.entries))
            .collect()
    }

    /// Claims the next directory for a slot; waits while others may still find some. `None` if all
    /// are done, or the scan has ended for now.
    pub(super) async fn take(&self, slot: usize) -> Result<Option<Current>> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.try_take(slot)? {
                Taken::Directory(current) => {
                    // There may be more.
                    self.changed.notify_one();
                    return Ok(Some(current));
                }
                Taken::Over => {
                    self.changed.notify_waiters();
                    return Ok(None);
                }
                Taken::NotYet => changed.await,
            }
        }
    }

    fn try_take(&self, slot: usize) -> Result<Taken> {
        let mut state = self.state();
        if state.ended {
            return Ok(Taken::Over);
        }
        let mut next = state.checkpoint.again.pop();
        for number in 0..self.files.len() {
            if next.is_some() {
                break;
            }
            next = self.read_directory(&mut state, number)?;
        }
        if let Some(current) = next {
            state.checkpoint.slots[slot].current = Some(current.clone());
            return Ok(Taken::Directory(current));
        }
        let is_busy = |slot: &Slot| slot.current.is_some();
        if state.checkpoint.slots.iter().any(is_busy) {
            return Ok(Taken::NotYet);
        }
        state.checkpoint.finished = true;
        Ok(Taken::Over)
    }

    /// Reads the next unclaimed directory of a file.
    fn read_directory(&self, state: &mut State, number: usize) -> Result<Option<Current>> {
        let State {
            checkpoint, ahead, ..
        } = state;
        let slot = &mut checkpoint.slots[number];
        let ahead = &mut ahead[number];
        if slot.taken >= slot.directories {
            return Ok(None);
        }
        let path = directories_path(&self.folder, number);
        let mut wanted = AHEAD_BYTES;
        loop {
            let mut rest = &ahead.bytes[ahead.used..];
            let before = rest.len();
            if let Ok(path) = Raw::read(&mut rest) {
                let length = before - rest.len();
                ahead.used += length;
                slot.taken += length as u64;
                return Ok(Some(Current { path, mark: None }));
            }
            let left = usize::try_from(slot.directories - slot.taken).unwrap_or(usize::MAX);
            if before >= left {
                return Err(
                    Error::new(ErrorKind::Corrupt, "read", path.display().to_string())
                        .cause("it is not what the checkpoint says")
                        .hint("remove the folder to scan anew"),
                );
            }
            // A path may be longer than what was read ahead.
            ahead.bytes = vec![0; wanted.min(left)];
            ahead.used = 0;
            let file = &self.files[number].directories;
            file.read_exact_at(&mut ahead.bytes, slot.taken)
                .map_err(failed("read", &path))?;
            wanted *= 2;
        }
    }

    /// Gives a directory back: another run lists it. The scan ends for now.
    pub(super) fn give_back(&self, slot: usize) {
        let mut state = self.state();
        let current = state.checkpoint.slots[slot].current.take();
        state.checkpoint.again.extend(current);
        state.ended = true;
        drop(state);
        self.changed.notify_waiters();
    }

    pub(super) fn is_ended(&self) -> bool {
        self.state().ended
    }

    /// Ends the scan for now.
    pub(super) fn end(&self) {
        self.state().ended = true;
        self.changed.notify_waiters();
    }

    /// Leaves out a directory that can't be listed, permanently: its uncounted entries are dropped.
    pub(super) fn leave_out(&self, slot: usize) {
        let mut state = self.state();
        state.checkpoint.slots[slot].current = None;
        state.checkpoint.failures += 1;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Writes the checkpoint, after what it counts. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn save(&self) -> Result<()> {
        let checkpoint = self.state().checkpoint.clone();
        for files in &self.files {
            for file in [&files.entries, &files.directories] {
                file.sync_data().map_err(failed("flush", &self.folder))?;
            }
        }
        let mut bytes = checkpoint.to_bytes();
        let digest = blake3::hash(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        let path = self.folder.join(CHECKPOINT);
        let draft = self.folder.join("checkpoint.new");
        let write = || -> io::Result<()> {
            let mut file = File::create(&draft)?;
            file.write_all(&bytes)?;
            file.sync_data()?;
            fs::rename(&draft, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(failed("write", &path))
    }

    /// Removes the scan, and its folder when nothing else is in it. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn remove(&self) -> Result<()> {
        // The checkpoint first: without it the rest counts for nothing.
        let checkpoint = self.folder.join(CHECKPOINT);
        if checkpoint.exists() {
            fs::remove_file(&checkpoint).map_err(failed("remove", &checkpoint))?;
        }
        for number in 0..self.files.len() {
            for path in [
                entries_path(&self.folder, number),
                directories_path(&self.folder, number),
            ] {
                fs::remove_file(&path).map_err(failed("remove", &path))?;
            }
        }
        let lock = self.folder.join(LOCK);
        fs::remove_file(&lock).map_err(failed("remove", &lock))?;
        // It may hold foreign files.
        let _ = fs::remove_dir(&self.folder);
        Ok(())
    }
}

enum Taken {
    Directory(Current),
    NotYet,
    Over,
}

fn entries_path(folder: &Path, slot: usize) -> PathBuf {
    folder.join(format!("entries-{slot}"))
}

fn directories_path(folder: &Path, slot: usize) -> PathBuf {
    folder.join(format!("directories-{slot}"))
}

/// Opens a file of which `length` bytes count, and cuts off the others.
fn open_cut(path: &Path, length: u64) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(failed("open", path))?;
    let found = file.metadata().map_err(failed("look at", path))?.len();
    if found < length {
        return Err(
            Error::new(ErrorKind::Corrupt, "read", path.display().to_string())
                .cause("it is shorter than the checkpoint says")
                .hint("remove the folder to scan anew"),
        );
    }
    file.set_len(length).map_err(failed("cut", path))?;
    Ok(file)
}

fn read_checkpoint(folder: &Path) -> Result<Option<Checkpoint>> {
    let path = folder.join(CHECKPOINT);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(failed("read", &path)(cause)),
    };
    let whole = bytes
        .split_last_chunk::<32>()
        .filter(|(bytes, digest)| blake3::hash(bytes).as_bytes() == *digest)
        .and_then(|(bytes, _)| Checkpoint::from_bytes(bytes).ok())
        .filter(|checkpoint| checkpoint.form == FORM && !checkpoint.slots.is_empty());
    match whole {
        Some(checkpoint) => Ok(Some(checkpoint)),
        None => Err(
            Error::new(ErrorKind::Corrupt, "read", path.display().to_string())
                .cause("it is no checkpoint of this version")
                .hint("remove the folder to scan anew"),
        ),
    }
}

fn check_identity(
    folder: &Path,
    checkpoint: Checkpoint,
    identity: Identity<'_>,
) -> Result<Checkpoint> {
    let is_same =
        checkpoint.address.0 == identity.address.as_bytes() && checkpoint.follow == identity.follow;
    if is_same {
        return Ok(checkpoint);
    }
    let other = String::from_utf8_lossy(&checkpoint.address.0).into_owned();
    Err(Error::new(
        ErrorKind::Conflict,
        "scan into",
        folder.display().to_string(),
    )
    .cause(format!("it holds a scan of {other}"))
    .hint("choose another folder, or remove that one")
    .at(Locus::Client))
}

/// Schedules interrupted listings again: from their marks, or from their starts with nothing
/// counted.
fn resumed(mut checkpoint: Checkpoint) -> Checkpoint {
    for slot in &mut checkpoint.slots {
        checkpoint.again.extend(slot.current.take());
    }
    checkpoint
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use posthaste_endpoint::Entry;

    use super::{super::pen::Pen, *};

    const IDENTITY: Identity<'static> = Identity {
        address: "here",
        follow: false,
        whole: false,
        slots: 2,
    };

    fn entry(name: &str) -> Entry {
        Entry {
            name: name.as_bytes().to_vec(),
            kind: posthaste_endpoint::Kind::File,
            size: 0,
            mtime: None,
            stored: None,
            mode: None,
            version: None,
        }
    }

    fn open(folder: &Path) -> Arc<Spool> {
        Arc::new(Spool::open(folder, IDENTITY).unwrap())
    }

    fn taken(spool: &Spool, slot: usize) -> Option<String> {
        match spool.try_take(slot).unwrap() {
            Taken::Directory(current) => Some(String::from_utf8(current.path.0).unwrap()),
            Taken::NotYet | Taken::Over => None,
        }
    }

    #[test]
    fn what_did_not_come_to_count_is_listed_again() {
        let folder = tempfile::tempdir().unwrap();
        let spool = open(folder.path());
        assert_eq!(taken(&spool, 0).as_deref(), Some(""));
        let mut pen = Pen::new(&spool, 0);
        pen.begin();
        let below = vec![b"a".to_vec(), vec![b'b'; 3 * AHEAD_BYTES], b"c".to_vec()];
        pen.write(b"", &[entry("x")], below).unwrap();
        assert_eq!(taken(&spool, 1), None, "it does not count yet");
        pen.count(None);
        assert_eq!(taken(&spool, 1).as_deref(), Some("a"));
        let mut other = Pen::new(&spool, 1);
        other.begin();
        other
            .write(b"a", &[entry("half")], vec![b"a/lost".to_vec()])
            .unwrap();
        spool.save().unwrap();
        drop((pen, other, spool));
        let spool = open(folder.path());
        assert_eq!(spool.counts(), (1, 3, 0));
        assert_eq!(taken(&spool, 0).as_deref(), Some("a"));
        assert_eq!(taken(&spool, 1).unwrap().len(), 3 * AHEAD_BYTES);
        let mut pen = Pen::new(&spool, 0);
        pen.begin();
        pen.write(b"a", &[entry("whole")], Vec::new()).unwrap();
        pen.count(None);
        assert_eq!(taken(&spool, 0).as_deref(), Some("c"));
        for slot in 0..2 {
            let mut pen = Pen::new(&spool, slot);
            pen.begin();
            pen.count(None);
        }
        assert!(taken(&spool, 0).is_none() && spool.is_finished());
        spool.remove().unwrap();
        assert!(!folder.path().exists());
    }

    #[test]
    fn another_scan_or_process_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let spool = open(folder.path());
        let twice = Spool::open(folder.path(), IDENTITY).unwrap_err();
        assert_eq!(twice.kind(), ErrorKind::Conflict, "{twice}");
        spool.save().unwrap();
        drop(spool);
        let there = Identity {
            address: "there",
            ..IDENTITY
        };
        let other = Spool::open(folder.path(), there).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::Conflict, "{other}");
        assert!(other.to_string().contains("a scan of here"), "{other}");
        for damage in [&b"nonsense"[..], b""] {
            fs::write(folder.path().join(CHECKPOINT), damage).unwrap();
            let torn = Spool::open(folder.path(), IDENTITY).unwrap_err();
            assert_eq!(torn.kind(), ErrorKind::Corrupt, "{torn}");
        }
    }
}
