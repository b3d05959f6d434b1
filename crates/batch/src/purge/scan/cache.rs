//! Cache of a scan: one file of segments, with an index of them at its end.
//!
//! The scan writes a new file beside the old one and renames it when it is complete. Data with a
//! wrong checksum is ignored.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions, TryLockError},
    hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher},
    io::{self, BufWriter, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use super::super::Fill;

/// First bytes of a cache; another format gets another number.
const MAGIC: &[u8; 16] = b"posthaste-purge1";

/// Bytes at the end of a cache: start of the index, its length, its digest.
const TAIL_BYTES: u64 = 8 + 8 + 32;

/// Largest index read: 4·10^7 directories.
const INDEX_BYTES_MAX: u64 = 1 << 30;

/// Largest segment: twice the usual size, for the entry that fills it.
const SEGMENT_BYTES_MAX: u32 = 1 << 20;

/// Most fills of the file system that a cache keeps, and for how long, in seconds.
const FILLS_MAX: usize = 64;
const FILLS_KEPT_S: i64 = 30 * 86_400;

/// Bytes of an entry of the index.
const ENTRY_BYTES: usize = 8 + 4 + 8 + 4;

type Index = HashMap<(u64, u32), (u64, u32), BuildHasherDefault<DefaultHasher>>;

/// Cache of an earlier scan.
#[derive(Debug)]
pub struct Cache {
    file: File,
    index: Index,
    fills: Vec<Fill>,
}

/// Reason why there is no cache.
#[derive(Debug)]
pub enum NoCache {
    /// No cache written yet.
    Missing,
    /// File that can't be read.
    Unreadable(io::Error),
    /// File that is damaged, of another format or of another tree.
    Wrong(&'static str),
}

impl Cache {
    /// Opens the cache of a tree.
    ///
    /// # Errors
    /// The reason why there is none; the scan then looks at everything.
    pub fn open(path: &Path, root: &[u8]) -> Result<Self, NoCache> {
        let file = File::open(path).map_err(|cause| {
            if cause.kind() == io::ErrorKind::NotFound {
                NoCache::Missing
            } else {
                NoCache::Unreadable(cause)
            }
        })?;
        let failed = NoCache::Unreadable;
        let torn = || NoCache::Wrong("it is not whole");
        let length = file.metadata().map_err(failed)?.len();
        let tail_at = length.checked_sub(TAIL_BYTES).ok_or_else(torn)?;
        let (mut magic, mut tail) = ([0; MAGIC.len()], [0; 48]);
        file.read_exact_at(&mut magic, 0).map_err(failed)?;
        if magic != *MAGIC {
            return Err(NoCache::Wrong("it is of another form"));
        }
        file.read_exact_at(&mut tail, tail_at).map_err(failed)?;
        let mut tail = Bytes(&tail);
        let (at, size) = (tail.u64().ok_or_else(torn)?, tail.u64().ok_or_else(torn)?);
        if size > INDEX_BYTES_MAX || at.checked_add(size) != Some(tail_at) {
            return Err(torn());
        }
        let mut index = vec![0; usize::try_from(size).map_err(|_| torn())?];
        file.read_exact_at(&mut index, at).map_err(failed)?;
        if blake3::hash(&index).as_bytes() != tail.0 {
            return Err(torn());
        }
        let (of, fills, index) = parse(&index).ok_or_else(torn)?;
        if of != root {
            return Err(NoCache::Wrong("it is of another tree"));
        }
        Ok(Self { file, index, fills })
    }

    /// Returns the remembered fills of the file system.
    #[must_use]
    pub fn fills(&self) -> &[Fill] {
        &self.fills
    }

    /// Reads a segment of a directory; `None` if there is none.
    pub(super) fn segment(&self, path: &[u8], number: u32, into: &mut Vec<u8>) -> Option<()> {
        let (at, length) = *self.index.get(&(digest(path), number))?;
        into.resize(usize::try_from(length).ok()?, 0);
        self.file.read_exact_at(into, at).ok()
    }
}

fn digest(path: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

/// Reader of numbers of fixed length.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }
}

fn parse(bytes: &[u8]) -> Option<(Vec<u8>, Vec<Fill>, Index)> {
    let mut bytes = Bytes(bytes);
    let length = usize::try_from(bytes.u64()?).ok()?;
    let root = bytes.take(length)?.to_vec();
    let mut fills = Vec::new();
    for _ in 0..bytes.u64()?.min(FILLS_MAX as u64) {
        fills.push(Fill {
            at_s: bytes.u64()?.cast_signed(),
            used: bytes.u64()?,
            capacity: bytes.u64()?,
            files: bytes.u64()?,
        });
    }
    let mut index = Index::default();
    index.reserve(bytes.0.len() / ENTRY_BYTES);
    while !bytes.0.is_empty() {
        let key = (bytes.u64()?, bytes.u32()?);
        let place = (bytes.u64()?, bytes.u32()?);
        if place.1 > SEGMENT_BYTES_MAX {
            return None;
        }
        index.insert(key, place);
    }
    Some((root, fills, index))
}

/// Returns the fills to remember: those of the last month, the newest last.
pub(super) fn fills_with(known: &[Fill], new: Fill) -> Vec<Fill> {
    let recent = |fill: &&Fill| fill.at_s < new.at_s && fill.at_s >= new.at_s - FILLS_KEPT_S;
    let mut fills: Vec<Fill> = known.iter().filter(recent).copied().collect();
    if fills.len() >= FILLS_MAX {
        // The first and the last determine the rate.
        fills.remove(1);
    }
    fills.push(new);
    fills
}

/// Cache that is being written.
#[derive(Debug)]
pub struct NewCache {
    path: PathBuf,
    beside: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: BufWriter<File>,
    length: u64,
    index: Vec<u8>,
    /// First error; nothing is written after it.
    failure: Option<io::Error>,
}

impl NewCache {
    /// Begins a cache beside its final file.
    ///
    /// # Errors
    /// If the disk fails, or another process is writing it (`WouldBlock`).
    pub fn begin(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            fs::create_dir_all(folder)?;
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&beside)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::Error(cause) => cause,
            TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        })?;
        // Another writer may have renamed this file between opening and locking.
        let is_ours = fs::metadata(&beside).is_ok_and(|now| {
            file.metadata()
                .is_ok_and(|own| own.ino() == now.ino() && own.dev() == now.dev())
        });
        if !is_ours {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        file.set_len(0)?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        file.write_all(MAGIC)?;
        Ok(Self {
            path: path.to_owned(),
            beside,
            inner: Mutex::new(Inner {
                file,
                length: MAGIC.len() as u64,
                index: Vec::new(),
                failure: None,
            }),
        })
    }

    /// Adds a segment of a directory.
    pub(super) fn add(&self, path: &[u8], number: u32, segment: &[u8]) {
        let Ok(length) = u32::try_from(segment.len()) else {
            return;
        };
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.failure.is_some() {
            return;
        }
        if let Err(failure) = inner.file.write_all(segment) {
            inner.failure = Some(failure);
            return;
        }
        let at = inner.length;
        inner.length += u64::from(length);
        inner.index.extend(digest(path).to_le_bytes());
        inner.index.extend(number.to_le_bytes());
        inner.index.extend(at.to_le_bytes());
        inner.index.extend(length.to_le_bytes());
    }

    /// Completes the cache and gives it its final name.
    ///
    /// # Errors
    /// If the disk fails; the previous cache stays.
    pub fn finish(self, root: &[u8], fills: &[Fill]) -> io::Result<()> {
        let inner = self.inner.into_inner();
        let mut inner = inner.unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = inner.failure {
            return Err(failure);
        }
        let mut index = Vec::with_capacity(inner.index.len() + 4096);
        index.extend((root.len() as u64).to_le_bytes());
        index.extend(root);
        index.extend((fills.len() as u64).to_le_bytes());
        for fill in fills {
            for number in [
                fill.at_s.cast_unsigned(),
                fill.used,
                fill.capacity,
                fill.files,
            ] {
                index.extend(number.to_le_bytes());
            }
        }
        index.append(&mut inner.index);
        inner.file.write_all(&index)?;
        inner.file.write_all(&inner.length.to_le_bytes())?;
        inner.file.write_all(&(index.len() as u64).to_le_bytes())?;
        inner.file.write_all(blake3::hash(&index).as_bytes())?;
        inner.file.flush()?;
        // Not synced: checksums detect a file torn by a crash.
        fs::rename(&self.beside, &self.path)
    }
}
