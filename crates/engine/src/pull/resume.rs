//! Search for what an earlier run, or somebody else, left at the destination: by digest alone.

use std::{fs::File, ops::Range, os::unix::fs::FileExt};

use posthaste_endpoint::{Result, posix::close};
use rustix::fs::FileType;

use super::place::Destination;
use crate::dataset::{FileEntry, FileKind, Manifest};

/// Bytes copied at once from a file that is replaced.
const COPY_BYTES: usize = 1 << 20;

/// Set of chunks.
#[derive(Debug)]
pub(super) struct ChunkSet(Vec<bool>);

impl ChunkSet {
    pub(super) fn contains(&self, chunk: u32) -> bool {
        usize::try_from(chunk)
            .ok()
            .and_then(|at| self.0.get(at))
            .copied()
            .unwrap_or(false)
    }

    fn insert(&mut self, chunk: u32) {
        self.set(chunk, true);
    }

    fn set(&mut self, chunk: u32, is_there: bool) {
        if let Some(there) = usize::try_from(chunk)
            .ok()
            .and_then(|at| self.0.get_mut(at))
        {
            *there = is_there;
        }
    }
}

/// Possible place of a file's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nowhere.
    Absent,
    /// Unfinished.
    Staged,
    /// Under its final name, with the right size.
    Final,
}

/// Verifies every chunk that may be there, settles files that are whole, and sets what the rest
/// wait for. Reads only files that an earlier run or somebody else put there.
pub(super) fn find(destination: &Destination) -> Result<ChunkSet> {
    let manifest = destination.manifest();
    let files = &manifest.list.files;
    let mut places = Vec::with_capacity(files.len());
    for (index, file) in files.iter().enumerate() {
        let mut place = Place::Absent;
        if file.kind != FileKind::Directory && !destination.is_left_out(index) {
            let found = destination.final_state(file).and_then(|there| {
                if file.kind == FileKind::Regular
                    && there.is_some_and(|there| destination.is_other(file, there))
                {
                    return Err(destination.taken(file));
                }
                place = match there {
                    _ if file.kind != FileKind::Regular => Place::Absent,
                    Some((FileType::RegularFile, size)) if size == file.size => Place::Final,
                    _ if file.size > 0 && destination.revive_staged(index) => Place::Staged,
                    _ => Place::Absent,
                };
                Ok(())
            });
            destination.unless_left_out(index, found)?;
        }
        places.push(place);
    }
    let there = verify(destination, &mut places)?;
    for (index, file) in files.iter().enumerate() {
        if file.kind == FileKind::Regular && !destination.is_left_out(index) {
            let settled = settle(destination, index, places[index], &there);
            destination.unless_left_out(index, settled)?;
        }
    }
    Ok(there)
}

/// Returns the chunks whose bytes are there and right.
fn verify(destination: &Destination, places: &mut [Place]) -> Result<ChunkSet> {
    let manifest = destination.manifest();
    let mut recorded = ChunkSet(vec![false; manifest.chunks.len()]);
    for chunk in destination.recorded()?.chunks_exact(4) {
        recorded.insert(chunk.try_into().map_or(u32::MAX, u32::from_le_bytes));
    }
    let mut there = ChunkSet(vec![false; manifest.chunks.len()]);
    let mut buffer = Vec::new();
    let mut lost = Vec::new();
    for chunk in 0..u32::try_from(manifest.chunks.len()).unwrap_or(u32::MAX) {
        let mut extents = manifest.list.extents(chunk, manifest.chunk_size).peekable();
        let may_be_there = extents.by_ref().all(|extent| match places[extent.file] {
            Place::Absent => false,
            Place::Staged => recorded.contains(chunk),
            Place::Final => true,
        });
        if !may_be_there {
            continue;
        }
        buffer.clear();
        buffer.resize(manifest.chunk_bytes(chunk), 0);
        let read = manifest
            .list
            .extents(chunk, manifest.chunk_size)
            .all(|extent| {
                let bytes = &mut buffer[extent.chunk_offset..extent.chunk_offset + extent.length];
                let place = places[extent.file];
                let Some(file) = open(destination, extent.file, place) else {
                    return false;
                };
                let read = read_at(&file, bytes, extent.file_offset);
                // The system may report a failed write to the next process that closes the file,
                // and to none after.
                let is_lost = close(file).is_err();
                lost.extend(is_lost.then_some(extent.file));
                read && !is_lost
            });
        if read && manifest.is_content(chunk, &buffer) {
            there.insert(chunk);
        }
        for file in lost.drain(..) {
            if places[file] == Place::Staged {
                destination.unstage(file);
            }
            places[file] = Place::Absent;
            chunks_of(manifest, &manifest.list.files[file])
                .for_each(|chunk| there.set(chunk, false));
        }
    }
    Ok(there)
}

fn open(destination: &Destination, index: usize, place: Place) -> Option<File> {
    match place {
        Place::Absent => None,
        Place::Staged => destination.open_staged(index),
        Place::Final => destination
            .open_final(&destination.manifest().list.files[index])
            .ok(),
    }
}

/// Fills `bytes`; past the end of an unfinished file there are zeros, as in any hole.
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> bool {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => return true,
            Ok(count) => done += count,
            Err(cause) if cause.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

/// Returns the chunks that hold some of a file.
fn chunks_of(manifest: &Manifest, file: &FileEntry) -> Range<u32> {
    let chunk_size = manifest.chunk_size.get();
    let chunk_of = |byte: u64| u32::try_from(byte / chunk_size).unwrap_or(u32::MAX);
    match file.size {
        0 => 0..0,
        size => chunk_of(file.offset)..chunk_of(file.offset + size - 1) + 1,
    }
}

/// Sets what a file still waits for. Right bytes of a file that must be replaced are copied over.
fn settle(destination: &Destination, index: usize, place: Place, there: &ChunkSet) -> Result<()> {
    let manifest = destination.manifest();
    let file = &manifest.list.files[index];
    let chunk_size = manifest.chunk_size.get();
    let chunks = chunks_of(manifest, file);
    let missing = chunks
        .clone()
        .filter(|&chunk| !there.contains(chunk))
        .count();
    let missing = u32::try_from(missing).unwrap_or(u32::MAX);
    if place == Place::Final && missing == 0 {
        destination.give_extras_there(file)?;
        destination.is_settled(index);
        return Ok(());
    }
    if place == Place::Final {
        let old = destination.open_final(file)?;
        let mut buffer = vec![0; COPY_BYTES];
        for chunk in chunks.filter(|&chunk| there.contains(chunk)) {
            let start = (u64::from(chunk) * chunk_size).max(file.offset) - file.offset;
            let end = ((u64::from(chunk) + 1) * chunk_size - file.offset).min(file.size);
            let mut at = start;
            while at < end {
                let count = usize::try_from(end - at)
                    .unwrap_or(COPY_BYTES)
                    .min(COPY_BYTES);
                old.read_exact_at(&mut buffer[..count], at)
                    .map_err(|cause| destination.failed(file, cause))?;
                destination.write_staged(index, at, &buffer[..count])?;
                at += count as u64;
            }
        }
    }
    destination.expect(index, missing)
}
