//! Compares files of several chunks with the checksums that their sources keep. A file within one
//! chunk is compared when that chunk arrives.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use posthaste_endpoint::{Error, ErrorKind, Locus, Result, Status, StoredSum};
use posthaste_types::ChunkIndex;

use super::{stage::Stage, union::differs};

/// Checksums of stage-in files that span several chunks.
#[derive(Debug, Default)]
pub(super) struct Sums(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Checksums that the sources keep, by file and source place, of each file read since the
    /// service started.
    told: HashMap<usize, BTreeMap<usize, Option<StoredSum>>>,
    /// Sources for files that came from several and did not match one's checksum: each such file is
    /// fetched again from one source alone.
    only: HashMap<usize, usize>,
    /// Chunks of files that do not match their sources' checksums.
    damaged: HashSet<ChunkIndex>,
}

impl Sums {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the checksum that the source at a place keeps of a file.
    pub(super) fn tell(&self, file: usize, place: usize, told: Option<StoredSum>) {
        let mut known = self.known();
        known.told.entry(file).or_default().insert(place, told);
    }

    /// Returns the source for a file, when the mind asks for another.
    pub(super) fn place(&self, file: usize, asked: usize) -> usize {
        self.known().only.get(&file).copied().unwrap_or(asked)
    }

    /// Notes that the source failed to deliver it: it may come from all sources again, and is
    /// compared again.
    pub(super) fn give_up(&self, file: usize, place: usize) {
        let mut known = self.known();
        if known.only.get(&file) == Some(&place) {
            known.only.remove(&file);
        }
    }

    /// Returns whether a chunk must be fetched again.
    pub(super) fn is_damaged(&self, chunk: ChunkIndex) -> bool {
        self.known().damaged.contains(&chunk)
    }

    /// Records that a chunk was fetched again.
    pub(super) fn mend(&self, chunk: ChunkIndex) {
        self.known().damaged.remove(&chunk);
    }
}

/// Pieces of a file, in order.
type Pieces = Vec<(ChunkIndex, Range<u64>)>;

impl Stage {
    /// Compares each file of several chunks with its sources' checksums, or with one source's bytes
    /// if it came from several. Bytes read before a restart or by a mover are read back.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if a file does not match a source's checksum, and
    /// [`ErrorKind::Busy`] if it is a mixture of several: all of it is then fetched again from one
    /// source alone. [`ErrorKind::Conflict`] if two sources' checksums
    /// contradict each other. The operating system's.
    pub(super) async fn compare_spread(self: &Arc<Self>) -> Result<()> {
        let mut failed = None;
        for (file, pieces) in self.spread() {
            let mut told = self.told(file).await;
            self.refuse_contradiction(file, &told)?;
            let is_told = !told.is_empty();
            if !is_told {
                told.extend(self.hold_mixed(file).await?);
            }
            let pieces = Arc::new(pieces);
            for (place, wanted) in told {
                let of = Arc::clone(&pieces);
                let found = self.blocking(move |stage| stage.sum_of(file, &of, wanted));
                let compared = match (found.await?, is_told) {
                    (found, true) => wanted
                        .expect(found, &self.show(file))
                        .map_err(|error| self.named(error, file, place)),
                    (found, false) if found == wanted => Ok(()),
                    (_, false) => Err(self.is_mixture(file, place)),
                };
                if let Err(error) = compared {
                    let mut known = self.sums.known();
                    let chunks = pieces.iter().map(|(chunk, _)| *chunk);
                    known.damaged.extend(chunks);
                    let is_again = known.only.insert(file, place) == Some(place);
                    drop(known);
                    (0..self.wanted.sources.len()).for_each(|place| self.close_reader(place, file));
                    // A mixture comes right from one source alone: that is no damage yet.
                    let is_damage = is_told || is_again;
                    if is_damage {
                        failed = Some(error);
                    } else if failed.is_none() {
                        failed = Some(error.of_kind(ErrorKind::Busy));
                    }
                    break;
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn is_mixture(&self, file: usize, place: usize) -> Error {
        let source = &self.wanted.sources[place];
        Error::new(ErrorKind::Corrupt, "stage in", self.show(file))
            .cause(format!("it came of several sources or versions and is not what {source} holds: it is fetched again, from there"))
            .at(Locus::Source)
    }

    /// Fails if two sources' checksums of a file contradict each other.
    fn refuse_contradiction(&self, file: usize, told: &[(usize, StoredSum)]) -> Result<()> {
        let Some((first, rest)) = told.split_first() else {
            return Ok(());
        };
        match rest.iter().find(|(_, sum)| sum.contradicts(first.1)) {
            None => self.refuse_contradiction(file, rest),
            Some((place, _)) => {
                let sources = &self.wanted.sources;
                let what = format!("{}: the checksums that they keep differ", self.show(file));
                Err(differs(&sources[first.0], &sources[*place], &what))
            }
        }
    }

    /// Returns the files that span several chunks.
    fn spread(&self) -> BTreeMap<usize, Pieces> {
        let mut spread: BTreeMap<usize, Pieces> = BTreeMap::new();
        for chunk in (0..self.cut.chunks()).map(ChunkIndex::new) {
            for piece in self.pieces(chunk) {
                let is_shared = piece.range != (0..self.list.files[piece.file].size);
                if is_shared && !self.behind.has(piece.file) {
                    let pieces = spread.entry(piece.file).or_default();
                    pieces.push((chunk, piece.range));
                }
            }
        }
        spread
    }

    /// Returns the checksums that the sources of a file keep, with their places. These are all the
    /// sources that were read; if those keep none, the others until one does. A source that can no
    /// longer be asked delays nothing: its bytes are judged by what is known.
    async fn told(self: &Arc<Self>, file: usize) -> Vec<(usize, StoredSum)> {
        let mut told = self
            .sums
            .known()
            .told
            .get(&file)
            .cloned()
            .unwrap_or_default();
        for place in 0..self.wanted.sources.len() {
            let is_unknown = told.values().all(Option::is_none) && !told.contains_key(&place);
            if is_unknown && self.list.entry(place, file).is_some() {
                match self.reader(place, file).await {
                    Ok(reader) => {
                        told.insert(place, reader.stored_sum());
                    }
                    Err(error) => {
                        tracing::warn!(request = %self.request, "a checksum is not compared: {error}");
                    }
                }
            }
        }
        let told = told.into_iter();
        told.filter_map(|(place, told)| Some((place, told?)))
            .collect()
    }

    /// Computes the checksum of an arrived file by its source's algorithm.
    fn sum_of(&self, file: usize, pieces: &Pieces, way: StoredSum) -> Result<StoredSum> {
        let mut whole = way.summer();
        let path = &self.list.files[file].path;
        if !way.adds_up() {
            for (_, range) in pieces {
                let take = |bytes: &[u8]| whole.add(bytes);
                self.draft.read(path, range.clone(), take)?;
            }
            return Ok(whole.sum());
        }
        let mut sum = whole.sum();
        for (chunk, range) in pieces {
            let len = range.end - range.start;
            let noted = {
                let slot = self.slot(*chunk);
                let slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
                let mut sums = slot.sums.iter();
                let next = |(of, noted): &(usize, StoredSum)| {
                    (*of == file).then(|| sum.then(*noted, len)).flatten()
                };
                sums.find_map(next)
            };
            if let Some(next) = noted {
                sum = next;
                continue;
            }
            let mut summer = way.summer();
            let take = |bytes: &[u8]| summer.add(bytes);
            self.draft.read(path, range.clone(), take)?;
            sum = sum.then(summer.sum(), len).unwrap_or(sum);
        }
        Ok(sum)
    }

    /// Names the file and its source in the error for bytes that are not what the source's checksum
    /// says.
    pub(super) fn named(&self, error: Error, file: usize, place: usize) -> Error {
        if error.kind() != ErrorKind::Corrupt || error.locus() != Locus::Source {
            return error;
        }
        let source = &self.wanted.sources[place];
        let cause = format!("what was read has not the checksum that {source} keeps of it");
        Error::new(ErrorKind::Corrupt, "read", self.show(file))
            .cause(cause)
            .hint("if it stays, it is damaged there, or on its way")
            .status_is(Status::Temporary)
            .at(Locus::Source)
    }

    /// Returns the name of a file for messages.
    pub(super) fn show(&self, file: usize) -> String {
        String::from_utf8_lossy(&self.list.files[file].path).into_owned()
    }
}
