//! Compares files that come in several chunks with the checksums that their sources keep. A file that comes in one is compared when it
//! does.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use posthaste_endpoint::{Result, StoredSum};
use posthaste_types::ChunkIndex;

use super::stage::Stage;

/// What is known of the files of a stage-in that come in several chunks.
#[derive(Debug, Default)]
pub(super) struct Sums(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// What a source keeps of each that was read since the service began.
    told: HashMap<usize, Option<StoredSum>>,
    /// Chunks of files that turned out not to be what their sources keep.
    damaged: HashSet<ChunkIndex>,
}

impl Sums {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the source of a file keeps of it.
    pub(super) fn tell(&self, file: usize, told: Option<StoredSum>) {
        self.known().told.insert(file, told);
    }

    /// Whether a chunk has to be fetched again.
    pub(super) fn is_damaged(&self, chunk: ChunkIndex) -> bool {
        self.known().damaged.contains(&chunk)
    }

    /// It was fetched again.
    pub(super) fn mend(&self, chunk: ChunkIndex) {
        self.known().damaged.remove(&chunk);
    }
}

/// The pieces of a file, in their order.
type Pieces = Vec<(ChunkIndex, Range<u64>)>;

impl Stage {
    /// Compares each file that came in several chunks. What was read before a restart, or by a mover, is read again where it lies.
    ///
    /// # Errors
    /// [`posthaste_endpoint::ErrorKind::Corrupt`] when one is not what its source keeps: all of it is fetched again then. The
    /// operating system's.
    pub(super) async fn compare_spread(self: &Arc<Self>) -> Result<()> {
        let mut failed = None;
        for (file, pieces) in self.spread() {
            let Some(wanted) = self.told(file).await else {
                continue;
            };
            let chunks: Vec<_> = pieces.iter().map(|(chunk, _)| *chunk).collect();
            let found = self.blocking(move |stage| stage.sum_of(file, &pieces, wanted));
            if let Err(error) = wanted.expect(found.await?, &self.show(file)) {
                self.sums.known().damaged.extend(chunks);
                (0..self.wanted.sources.len()).for_each(|place| self.close_reader(place, file));
                failed = Some(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// The files that are of several chunks.
    fn spread(&self) -> BTreeMap<usize, Pieces> {
        let mut spread: BTreeMap<usize, Pieces> = BTreeMap::new();
        for chunk in (0..self.cut.chunks()).map(ChunkIndex::new) {
            for piece in self.pieces(chunk) {
                if piece.range != (0..self.list.files[piece.file].size) {
                    let pieces = spread.entry(piece.file).or_default();
                    pieces.push((chunk, piece.range));
                }
            }
        }
        spread
    }

    /// What its source keeps of a file. One that can't be asked any more keeps nothing up: what came of it is what it was then.
    async fn told(self: &Arc<Self>, file: usize) -> Option<StoredSum> {
        if let Some(told) = self.sums.known().told.get(&file) {
            return *told;
        }
        let mut places = 0..self.wanted.sources.len();
        let place = places.find(|place| self.list.entry(*place, file).is_some())?;
        match self.reader(place, file).await {
            Ok(reader) => reader.stored_sum(),
            Err(error) => {
                tracing::warn!(request = %self.request, "a checksum is not compared: {error}");
                None
            }
        }
    }

    /// What came of a file, summed as its source does.
    fn sum_of(&self, file: usize, pieces: &Pieces, way: StoredSum) -> Result<StoredSum> {
        let mut sum = way.summer().sum();
        for (chunk, range) in pieces {
            let len = range.end - range.start;
            let noted = {
                let slot = self.slot(*chunk);
                let slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
                let mut sums = slot.sums.iter();
                let noted = sums.find(|(of, _)| *of == file);
                noted.and_then(|(_, noted)| sum.then(*noted, len))
            };
            if let Some(next) = noted {
                sum = next;
                continue;
            }
            let mut summer = way.summer();
            let path = &self.list.files[file].path;
            let take = |bytes: &[u8]| summer.add(bytes);
            self.draft.read(path, range.clone(), take)?;
            sum = sum.then(summer.sum(), len).unwrap_or(sum);
        }
        Ok(sum)
    }

    /// What people call a file.
    pub(super) fn show(&self, file: usize) -> String {
        String::from_utf8_lossy(&self.list.files[file].path).into_owned()
    }
}
