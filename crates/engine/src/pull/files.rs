//! Dataset on depots, read like any other endpoint: chunks come from the fastest holders, are
//! rebuilt if necessary and verified, and files are cut out of them.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use posthaste_endpoint::{
    Boxed, ByteStream, Capabilities, Checksum, Endpoint, Entry, Error, ErrorKind, FileTime, Kind,
    Listing, Locus, Reader, Result, Summer, Whole, base_name,
};
use tokio::{sync::OnceCell, task::spawn_blocking};

use super::{Ticket, fetch::Fetcher};
use crate::dataset::{FileEntry, FileKind, Manifest};

/// Memory for recently read chunks, in bytes: small files beside each other in a chunk are read
/// from one fetch.
const MEMORY_BYTES: u64 = 128 << 20;
/// Minimum of chunks kept: so many files may be read at once without fetching any chunk twice.
const CHUNKS_MIN: u64 = 4;
/// Maximum of chunks kept, however small.
const CHUNKS_MAX: u64 = 64;
/// Entries of one page of a listing.
const PAGE: usize = 1000;
/// Files up to this size are read whole.
const WHOLE_BYTES_MAX: u64 = 8 << 20;

/// Content of a chunk, in consecutive pieces.
type Content = Arc<Vec<Bytes>>;
/// Chunk that is being fetched, or that is here.
type Slot = Arc<OnceCell<Content>>;

/// Files of a dataset on depots. Read-only.
pub struct DepotFiles {
    shelf: Arc<Shelf>,
    /// Positions in the list by directory.
    below: BTreeMap<Vec<u8>, Vec<usize>>,
    /// Name of the dataset, for people.
    name: String,
}

/// Recently read chunks.
struct Shelf {
    fetcher: Fetcher,
    manifest: Arc<Manifest>,
    /// Chunks, the newest last.
    recent: Mutex<VecDeque<(u32, Slot)>>,
    room: usize,
}

impl DepotFiles {
    /// Opens a dataset by its holders; people know it by `name`.
    #[must_use]
    pub fn new(ticket: Ticket, name: String) -> Self {
        let Ticket { manifest, holders } = ticket;
        let mut below: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
        for (place, file) in manifest.list.files.iter().enumerate() {
            if !file.path.is_empty() && file.kind != FileKind::LeftOut {
                below.entry(above(&file.path)).or_default().push(place);
            }
        }
        let room = MEMORY_BYTES / manifest.chunk_size.get().max(1);
        let room = usize::try_from(room.clamp(CHUNKS_MIN, CHUNKS_MAX)).unwrap_or(1);
        Self {
            shelf: Arc::new(Shelf {
                fetcher: Fetcher::new(Arc::clone(&manifest), holders),
                manifest,
                recent: Mutex::default(),
                room,
            }),
            below,
            name,
        }
    }

    fn find(&self, path: &[u8]) -> Option<&FileEntry> {
        let files = &self.shelf.manifest.list.files;
        let place = files
            .binary_search_by(|file| file.path[..].cmp(path))
            .ok()?;
        let found = files.get(place);
        found.filter(|file| file.kind != FileKind::LeftOut)
    }

    fn missing(&self, operation: &'static str, path: &[u8]) -> Error {
        Error::new(ErrorKind::NotFound, operation, self.show(path)).at(Locus::Source)
    }

    fn reader(&self, path: &[u8]) -> Result<DepotReader> {
        let file = self.find(path);
        let file = file.filter(|file| file.kind == FileKind::Regular);
        let file = file.ok_or_else(|| self.missing("read", path))?;
        Ok(DepotReader {
            shelf: Arc::clone(&self.shelf),
            entry: entry_of(file),
            offset: file.offset,
        })
    }
}

/// Returns the directory of a path; the root is empty.
fn above(path: &[u8]) -> Vec<u8> {
    let end = path.iter().rposition(|&byte| byte == b'/');
    path[..end.unwrap_or(0)].to_vec()
}

fn entry_of(file: &FileEntry) -> Entry {
    let kind = match file.kind {
        FileKind::Regular | FileKind::LeftOut => Kind::File,
        FileKind::Directory => Kind::Directory,
        FileKind::Symlink { .. } => Kind::Link,
    };
    Entry {
        size: file.size,
        mtime: Some(FileTime {
            secs: file.mtime_s,
            nanos: file.mtime_ns,
        }),
        mode: Some(file.mode),
        ..Entry::bare(base_name(&file.path).to_vec(), kind)
    }
}

impl Shelf {
    fn recent(&self) -> MutexGuard<'_, VecDeque<(u32, Slot)>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the slot of a chunk among the recent ones.
    fn slot(&self, chunk: u32) -> Slot {
        let mut recent = self.recent();
        let found = recent.iter().position(|(other, _)| *other == chunk);
        let kept = found.and_then(|place| recent.remove(place));
        let (_, slot) = kept.unwrap_or_else(|| (chunk, Slot::default()));
        recent.push_back((chunk, Arc::clone(&slot)));
        while recent.len() > self.room {
            recent.pop_front();
        }
        slot
    }

    /// Returns the content of a chunk, fetched by the first caller that wants it.
    async fn chunk(self: &Arc<Self>, chunk: u32) -> Result<Content> {
        let slot = self.slot(chunk);
        let content = slot.get_or_try_init(|| async {
            let fetched = self.fetcher.fetch(chunk).await?;
            let shelf = Arc::clone(self);
            let content = spawn_blocking(move || shelf.fetcher.assemble(chunk, fetched));
            let content = content.await.map_err(|cause| {
                Error::new(ErrorKind::Cancelled, "read", format!("chunk {chunk}")).cause(cause)
            })?;
            Ok::<_, Error>(Arc::new(content?.0))
        });
        Ok(Arc::clone(content.await?))
    }

    /// Returns bytes of the dataset's stream that lie in one chunk.
    async fn piece(self: Arc<Self>, chunk: u32, range: Range<u64>) -> Result<Vec<Bytes>> {
        let content = self.chunk(chunk).await?;
        Ok(cut(&content, &range))
    }
}

/// Returns the bytes of a range of consecutive pieces.
fn cut(pieces: &[Bytes], range: &Range<u64>) -> Vec<Bytes> {
    let mut start = 0u64;
    let mut found = Vec::new();
    for piece in pieces {
        let end = start + piece.len() as u64;
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            let place = |at: u64| usize::try_from(at - start).unwrap_or(usize::MAX);
            found.push(piece.slice(place(from)..place(to)));
        }
        start = end;
    }
    found
}

struct DepotReader {
    shelf: Arc<Shelf>,
    entry: Entry,
    /// Start of the file in the dataset's stream.
    offset: u64,
}

impl DepotReader {
    /// Returns the chunks of a range of the file, with the range in each.
    fn chunks(&self, range: &Range<u64>) -> Vec<(u32, Range<u64>)> {
        let size = self.shelf.manifest.chunk_size.get().max(1);
        let to = self.offset + range.end.min(self.entry.size);
        let from = (self.offset + range.start).min(to);
        let mut chunks = Vec::new();
        let mut at = from;
        while at < to {
            let chunk = at / size;
            let end = ((chunk + 1) * size).min(to);
            let number = u32::try_from(chunk).unwrap_or(u32::MAX);
            chunks.push((number, at - chunk * size..end - chunk * size));
            at = end;
        }
        chunks
    }
}

impl Reader for DepotReader {
    fn entry(&self) -> &Entry {
        &self.entry
    }

    fn checksum(&self) -> Option<Checksum> {
        None
    }

    fn read(&self, range: Range<u64>) -> Boxed<'_, Result<ByteStream>> {
        let shelf = Arc::clone(&self.shelf);
        let chunks = self.chunks(&range);
        let pieces = stream::iter(chunks).then(move |(chunk, range)| {
            let shelf = Arc::clone(&shelf);
            async move {
                let pieces = shelf.piece(chunk, range).await?;
                Ok::<_, Error>(stream::iter(pieces.into_iter().map(Ok)))
            }
        });
        let stream: ByteStream = Box::pin(pieces.try_flatten());
        Box::pin(async move { Ok(stream) })
    }

    /// Succeeds always: the content of a dataset never changes.
    fn confirm(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// Listing of a directory, page by page.
struct Pages {
    entries: std::vec::IntoIter<Entry>,
}

impl Listing for Pages {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        let page = self.entries.by_ref().take(PAGE).collect();
        Box::pin(async move { Ok(page) })
    }
}

impl Endpoint for DepotFiles {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            byte_names: true,
            lists: true,
            ranges: true,
            mtime_step_ns: Some(1),
            mtimes_listed: true,
            modes: true,
            links: true,
            directory_attributes: true,
            segment_size_min: WHOLE_BYTES_MAX,
            requests_ahead_max: 8,
            ..Capabilities::least("depots")
        }
    }

    fn show(&self, path: &[u8]) -> String {
        let path = String::from_utf8_lossy(path);
        match path.is_empty() {
            true => self.name.clone(),
            false => format!("{path} of {}", self.name),
        }
    }

    fn stat<'a>(&'a self, path: &'a [u8], _follow: bool) -> Boxed<'a, Result<Option<Entry>>> {
        let found = self.find(path).map(entry_of);
        // The directory of named files is not listed.
        let root = || {
            path.is_empty()
                .then(|| Entry::bare(Vec::new(), Kind::Directory))
        };
        Box::pin(async move { Ok(found.or_else(root)) })
    }

    fn list<'a>(&'a self, path: &'a [u8], _follow: bool) -> Boxed<'a, Result<Box<dyn Listing>>> {
        let places = self.below.get(path).map(Vec::as_slice).unwrap_or_default();
        let files = &self.shelf.manifest.list.files;
        let entries: Vec<Entry> = places
            .iter()
            .map(|&place| entry_of(&files[place]))
            .collect();
        let entries = entries.into_iter();
        Box::pin(async move { Ok(Box::new(Pages { entries }) as Box<dyn Listing>) })
    }

    fn get<'a>(&'a self, path: &'a [u8], _entry: &'a Entry) -> Boxed<'a, Result<Whole>> {
        Box::pin(async move {
            let reader = self.reader(path)?;
            let mut summer = Summer::default();
            let mut data = Vec::new();
            let mut bytes = reader.read(0..reader.entry.size).await?;
            while let Some(some) = bytes.next().await {
                let some = some?;
                summer.add(&some);
                data.push(some);
            }
            Ok(Whole {
                entry: reader.entry.clone(),
                data,
                checksum: summer.sum(),
            })
        })
    }

    fn open<'a>(&'a self, path: &'a [u8], _entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>> {
        let reader = self.reader(path);
        Box::pin(async move { Ok(Arc::new(reader?) as Arc<dyn Reader>) })
    }

    fn read_only(&self, path: &[u8]) -> Error {
        Error::new(ErrorKind::Unsupported, "write", self.show(path))
            .cause("what lies on depots is only read")
            .at(Locus::Destination)
    }

    fn read_link<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        let target = self.find(path).and_then(|file| match &file.kind {
            FileKind::Symlink { target } => Some(target.clone()),
            FileKind::Regular | FileKind::Directory | FileKind::LeftOut => None,
        });
        Box::pin(async move { target.ok_or_else(|| self.missing("read link", path)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_across_pieces() {
        let pieces = ["abc", "", "defg", "h"].map(Bytes::from);
        let cut = |range| {
            let found = cut(&pieces, &range);
            String::from_utf8(found.concat()).unwrap_or_default()
        };
        assert_eq!(cut(0..8), "abcdefgh");
        assert_eq!(cut(2..5), "cde");
        assert_eq!(cut(3..3), "");
        assert_eq!(cut(7..99), "h");
    }

    #[test]
    fn the_directory_of_a_path_is_what_comes_before_its_name() {
        for (path, folder) in [("a", ""), ("a/b", "a"), ("a/b/c", "a/b")] {
            assert_eq!(above(path.as_bytes()), folder.as_bytes());
        }
    }
}
