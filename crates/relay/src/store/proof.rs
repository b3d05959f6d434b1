//! Proof that objects are what they were stored as: their files are read and compared.
//!
//! It comes before a source is removed, when a fragment that was damaged in place would be missed
//! too late.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    sync::atomic::Ordering::Relaxed,
};

use posthaste_endpoint::{
    posix::lies_in_memory,
    relay::{
        DatasetId,
        wire::{Held, Object},
    },
};
use posthaste_types::{ChunkIndex, Digest, FragmentIndex};
use rustix::fs::{Advice, fadvise};

use super::{Store, Stored, layout};
use crate::clock;

/// Bytes read for one page, so that an answer comes while its client still waits, which is 10 s: of
/// a slow disk that others read too.
const PAGE_BYTES: u64 = 64 << 20;
/// Bytes read at once.
const BLOCK_BYTES: usize = 1 << 20;
/// Seconds for which a proof counts if nobody touched the file: whoever asks again, because the
/// answer was lost, does not have everything read again.
const COUNTS_S: u64 = 3600;

/// Proof of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proven {
    /// Last change of its file, in nanoseconds since 1970, and its inode number.
    changed: (i128, u64),
    at_s: u64,
}

/// Outcome of reading a file.
enum Found {
    Right,
    Wrong,
    /// Unreadable now.
    Unread,
}

impl Store {
    /// Returns fragments of the dataset from this position on that are right, and the start of the
    /// next page, as [`Store::inventory`] does for those that are there. It reads each that was not
    /// read lately, up to a bound of bytes. Those that are wrong are held no more. Blocking.
    pub(crate) fn proven(
        &self,
        dataset: &DatasetId,
        from: (ChunkIndex, FragmentIndex),
        count: usize,
    ) -> (Vec<Held>, Option<(ChunkIndex, FragmentIndex)>) {
        let (page, mut next) = self.known(dataset, from, count);
        let (mut held, mut lost, mut read) = (Vec::new(), Vec::new(), 0);
        for (object, stored) in page {
            let Object::Fragment(chunk, fragment) = object else {
                continue;
            };
            if read >= PAGE_BYTES {
                next = Some((chunk, fragment));
                break;
            }
            match self.look_into(dataset, object, &stored, &mut read) {
                Found::Right => held.push((chunk, fragment, stored.digest)),
                Found::Wrong => lost.push((object, stored)),
                Found::Unread => {}
            }
        }
        if !lost.is_empty() {
            self.lose(dataset, &lost);
        }
        (held, next)
    }

    /// Reads a fragment that somebody got wrong. If it is wrong here, it is held no more, and counts
    /// as a loss. Blocking.
    pub(crate) fn doubt(
        &self,
        dataset: &DatasetId,
        (chunk, fragment): (ChunkIndex, FragmentIndex),
    ) {
        let object = Object::Fragment(chunk, fragment);
        let Some(stored) = self.find(dataset, object) else {
            return;
        };
        if let Some(holding) = self.index().datasets.get_mut(dataset) {
            holding.proven.remove(&object);
        }
        if let Found::Wrong = self.look_into(dataset, object, &stored, &mut 0) {
            self.lose(dataset, &[(object, stored)]);
            self.losses.fetch_add(1, Relaxed);
        }
    }

    /// Returns the number of fragments that were found wrong because somebody got them so.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Relaxed)
    }

    fn look_into(
        &self,
        dataset: &DatasetId,
        object: Object,
        stored: &Stored,
        read: &mut u64,
    ) -> Found {
        if !self.is_there(dataset, object, stored) {
            return Found::Wrong;
        }
        // The store that has the bytes compared them, and tells if it loses them.
        if self.is_backed {
            return Found::Right;
        }
        let path = layout::object_path(&self.dir, dataset, object, &stored.digest);
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (about, mut file) = match opened {
            Ok(opened) => opened,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Found::Wrong,
            Err(_) => return Found::Unread,
        };
        let nanos = i128::from(about.ctime()) * 1_000_000_000 + i128::from(about.ctime_nsec());
        let (changed, at_s) = ((nanos, about.ino()), clock::unix_s());
        let is_recent = |proven: &Proven| {
            proven.changed == changed && at_s.saturating_sub(proven.at_s) < COUNTS_S
        };
        let index = self.index();
        let holding = index.datasets.get(dataset);
        if holding.is_some_and(|holding| holding.proven.get(&object).is_some_and(is_recent)) {
            return Found::Right;
        }
        drop(index);
        *read += stored.size;
        match digest_of(&mut file) {
            Ok(digest) if digest == stored.digest => {}
            Ok(_) => return Found::Wrong,
            Err(_) => return Found::Unread,
        }
        // Stores to a mapping don't show in the times of files in memory.
        if !lies_in_memory(&self.dir)
            && let Some(holding) = self.index().datasets.get_mut(dataset)
        {
            holding.proven.insert(object, Proven { changed, at_s });
        }
        Found::Right
    }
}

/// Reads a file from the disk, as far as the kernel lets go of what it has of it.
fn digest_of(file: &mut File) -> io::Result<Digest> {
    let _ = fadvise(&*file, 0, None, Advice::DontNeed);
    let (mut hasher, mut block) = (blake3::Hasher::new(), vec![0; BLOCK_BYTES]);
    loop {
        match file.read(&mut block)? {
            0 => break,
            read => hasher.update(&block[..read]),
        };
    }
    let _ = fadvise(&*file, 0, None, Advice::DontNeed);
    Ok(Digest::new(*hasher.finalize().as_bytes()))
}
