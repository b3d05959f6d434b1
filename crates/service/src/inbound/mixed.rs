//! Files that come from several sources, none of which keeps a checksum; and those whose source tells
//! nothing by which its versions differ.
//!
//! A file that two or three chunks share comes from one source, whichever the mind asks for them, for as long as that one gives it, and so
//! does a larger one of which nothing shows that its sources hold the same. Where it came of two all the same, it is compared with what one
//! of them holds before it arrives. Any other comes from all sources at once.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::StreamExt;
use posthaste_endpoint::{
    Entry, Error, ErrorKind, FileTime, Locus, Reader, Result, StoredSum, Summer,
};

use super::{list::List, stage::Stage};

/// Chunks as large as a file may be that comes from one source: longer than for these no source waits for another.
pub(super) const CHUNKS_MAX: u64 = 2;

/// Mark of a kept number with a large file's source: the bits below the place are the file.
const ORIGIN: u64 = 1 << 63;
const PLACE_SHIFT: u32 = 48;

/// Sources of the fetched bytes, by file.
#[derive(Debug, Default)]
pub(super) struct Mixed {
    known: Mutex<Known>,
    /// Held while the state is saved, so that no older state replaces it.
    keeping: Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    /// Source that each file comes from.
    from: HashMap<usize, Origin>,
    /// Files whose bytes came from several sources.
    mixed: BTreeSet<usize>,
    /// Last source of each large file. It is kept, since much of a file may be read when the
    /// service ends.
    large: BTreeMap<usize, usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Requested from this source.
    Asked(usize),
    /// Received in part from this source.
    Came(usize),
    /// Some of it came from there, which then failed once: the next one that is asked may give more of it.
    Left(usize),
    /// Some of it came before the service began.
    Unknown,
}

impl Mixed {
    /// Restores the kept state; some of these files had arrived in part before.
    pub(super) fn restore(kept: &[u8], partly: impl Iterator<Item = usize>) -> Self {
        let (numbers, _) = kept.as_chunks::<8>();
        let numbers = numbers.iter().copied().map(u64::from_le_bytes);
        let mut known = Known {
            from: partly.map(|file| (file, Origin::Unknown)).collect(),
            ..Known::default()
        };
        let place_of = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        for number in numbers {
            if number & ORIGIN == 0 {
                known.mixed.insert(place_of(number));
                continue;
            }
            let place = place_of((number & !ORIGIN) >> PLACE_SHIFT);
            let file = place_of(number & ((1 << PLACE_SHIFT) - 1));
            known.from.insert(file, Origin::Came(place));
            known.large.insert(file, place);
        }
        Self {
            known: Mutex::new(known),
            keeping: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the source for a file, when the mind asks for another.
    fn place(&self, file: usize, asked: usize) -> usize {
        let mut known = self.known();
        match known.from.entry(file).or_insert(Origin::Asked(asked)) {
            Origin::Asked(place) | Origin::Came(place) => *place,
            Origin::Left(_) | Origin::Unknown => asked,
        }
    }

    /// Notes that a source failed to deliver a file: the next one asked may.
    fn give_up(&self, file: usize, place: usize) {
        let mut known = self.known();
        match known.from.get(&file) {
            Some(Origin::Asked(of)) if *of == place => {
                known.from.remove(&file);
            }
            Some(Origin::Came(of)) if *of == place => {
                known.from.insert(file, Origin::Left(place));
            }
            Some(_) | None => {}
        }
    }

    /// Some of a file came from a place. Whether that is to be kept: it came of several, and nobody knew, or is large.
    fn came(&self, file: usize, place: usize, is_large: bool) -> bool {
        let mut known = self.known();
        let before = known.from.insert(file, Origin::Came(place));
        let is_one = match before {
            Some(Origin::Came(of) | Origin::Left(of)) => of == place,
            Some(Origin::Unknown) => false,
            Some(Origin::Asked(_)) | None => true,
        };
        let is_mixed = !is_one && known.mixed.insert(file);
        let is_new = is_large && known.large.insert(file, place) != Some(place);
        is_mixed || is_new
    }

    /// Keeps the files that came from several sources, as known now.
    ///
    /// # Errors
    /// Errors of `keep`.
    pub(super) fn keep(&self, keep: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        let _alone = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        let numbers: Vec<u64> = {
            let known = self.known();
            let mixed = known.mixed.iter().map(|file| *file as u64);
            let large = known.large.iter();
            let large =
                large.map(|(file, place)| ORIGIN | (*place as u64) << PLACE_SHIFT | *file as u64);
            mixed.chain(large).collect()
        };
        let bytes = numbers.into_iter().flat_map(u64::to_le_bytes);
        keep(&bytes.collect::<Vec<u8>>())
    }

    /// Notes a file of which nothing shows that its pieces are of one version. Returns whether that
    /// is new.
    fn doubt(&self, file: usize) -> bool {
        self.known().mixed.insert(file)
    }

    /// Returns the place that gave the last piece of a file, as far as that is known.
    fn origin(&self, file: usize) -> Option<usize> {
        match self.known().from.get(&file)? {
            Origin::Came(place) => Some(*place),
            Origin::Asked(_) | Origin::Left(_) | Origin::Unknown => None,
        }
    }

    fn has(&self, file: usize) -> bool {
        self.known().mixed.contains(&file)
    }
}

/// Returns whether a file should come from one source if no source keeps a checksum of it.
pub(super) fn is_watched(list: &List, chunk_bytes: u64, file: usize) -> bool {
    let mut sources = (0..list.singles.len()).filter(|source| list.entry(*source, file).is_some());
    list.is_apart(file)
        || list.files[file].size <= chunk_bytes * CHUNKS_MAX && sources.nth(1).is_some()
}

impl Stage {
    fn is_watched(&self, file: usize) -> bool {
        is_watched(&self.list, self.cut.chunk_size().get(), file)
    }

    /// Returns the source for a piece of a file, when the mind asks for another.
    pub(super) fn place_of(&self, file: usize, asked: usize, is_whole: bool) -> usize {
        let place = self.sums.place(file, asked);
        match place == asked && !is_whole && self.is_watched(file) {
            true if self.list.is_apart(file) => self.mixed.place(file, self.cheaper(file, asked)),
            true => self.mixed.place(file, asked),
            false => place,
        }
    }

    /// Returns a cheaper source of a large file than the one asked for first: the mind counts
    /// requests by the latter.
    fn cheaper(&self, file: usize, asked: usize) -> usize {
        let places = (0..self.prices.len()).filter(|place| self.list.stamp(*place, file).is_some());
        let cheapest = places.min_by_key(|place| self.prices[*place]);
        match (cheapest, self.prices.get(asked)) {
            (Some(place), Some(price)) if self.prices[place] < *price => place,
            _ => asked,
        }
    }

    /// A place did not give a file.
    pub(super) fn give_up(&self, file: usize, place: usize) {
        self.sums.give_up(file, place);
        self.mixed.give_up(file, place);
    }

    /// Records that a piece of a file came from a source, durably if needed.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) async fn came(self: &Arc<Self>, file: usize, place: usize) -> Result<()> {
        if !self.is_watched(file) {
            return Ok(());
        }
        match self.mixed.came(file, place, self.list.is_apart(file)) {
            false => Ok(()),
            true => self.blocking(Self::keep_mixed).await,
        }
    }

    /// Records a file that came in pieces from a source whose answers don't show that they are of one
    /// version. It is compared with what one stream of it brings.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) async fn came_unproved(
        self: &Arc<Self>,
        file: usize,
        reader: &dyn Reader,
    ) -> Result<()> {
        match reader.is_of_one_version() || !self.mixed.doubt(file) {
            true => Ok(()),
            false => self.blocking(Self::keep_mixed).await,
        }
    }

    /// Records a file that a mover fetched a piece of, like [`Stage::came_unproved`].
    ///
    /// # Errors
    /// The operating system's.
    pub(super) async fn came_by_mover(self: &Arc<Self>, file: usize, place: usize) -> Result<()> {
        let listed = self.list.entry(place, file);
        let is_proved = |entry: Entry| {
            let is_strong = |version: &str| !version.starts_with("W/");
            entry.version.as_deref().is_some_and(is_strong)
                || entry.mtime.is_some_and(FileTime::shows_changes)
        };
        if listed.is_none_or(is_proved) {
            return Ok(());
        }
        match self.reader(place, file).await {
            Ok(reader) if reader.stored_sum().is_none() => self.came_unproved(file, &*reader).await,
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Returns the checksum of one source's bytes of a file that came from several sources, none of
    /// which keeps a checksum. Returns none for other files.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if no source can be read now.
    pub(super) async fn hold_mixed(
        self: &Arc<Self>,
        file: usize,
    ) -> Result<Option<(usize, StoredSum)>> {
        if !self.mixed.has(file) {
            return Ok(None);
        }
        let mut failed = None;
        // Of one that came from a single source, that one may be the only one with these bytes.
        let mut places: Vec<usize> = (0..self.wanted.sources.len()).collect();
        let origin = self.mixed.origin(file);
        places.sort_by_key(|place| Some(*place) != origin);
        for place in places {
            if self.list.entry(place, file).is_none() {
                continue;
            }
            match self.sum_at(place, file).await {
                Ok(sum) => return Ok(Some((place, sum))),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(None), |error| {
            let busy = Error::new(ErrorKind::Busy, "compare", self.show(file));
            Err(busy.cause(error.to_string()).at(Locus::Source))
        })
    }

    async fn sum_at(&self, place: usize, file: usize) -> Result<StoredSum> {
        let reader = self.reader(place, file).await?;
        let mut bytes = reader.read(0..self.list.files[file].size).await?;
        let mut summer = Summer::default();
        while let Some(some) = bytes.next().await {
            summer.add(&some?);
        }
        reader.confirm().await?;
        Ok(StoredSum::Crc64(summer.sum()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_from_where_it_was_asked_for_first_until_that_fails() {
        let mixed = Mixed::restore(&[], [9].into_iter());
        assert_eq!([mixed.place(1, 0), mixed.place(1, 1)], [0, 0]);
        assert!(!mixed.came(1, 0, false));
        mixed.give_up(1, 1);
        assert_eq!(mixed.place(1, 1), 0, "another one failed");
        mixed.give_up(1, 0);
        assert_eq!(mixed.place(1, 1), 1);
        // What is kept is enough to know it again.
        assert!(mixed.came(1, 1, false) && mixed.has(1) && !mixed.has(2));
        assert!(!mixed.came(1, 1, false), "it is known");
        let mut kept = Vec::new();
        let keep = mixed.keep(|bytes| {
            kept.extend_from_slice(bytes);
            Ok(())
        });
        keep.unwrap();
        let again = Mixed::restore(&kept, std::iter::empty());
        assert!(again.has(1) && !again.has(9));
        // Of what came before nobody knows from where.
        assert!(mixed.came(9, 0, false) && mixed.has(9));
        // Who gave nothing of it leaves no trace.
        assert_eq!(mixed.place(2, 0), 0);
        mixed.give_up(2, 0);
        assert_eq!((mixed.place(2, 1), mixed.came(2, 1, false)), (1, false));
    }

    #[test]
    fn of_a_large_file_it_is_kept_where_it_came_from() {
        let mixed = Mixed::default();
        assert!(mixed.came(7, 3, true) && !mixed.came(7, 3, true));
        mixed.give_up(7, 3);
        assert_eq!(mixed.place(7, 1), 1, "it failed");
        assert!(!mixed.came(7, 3, true) && !mixed.has(7), "it gave more");
        let mut kept = Vec::new();
        let keep = mixed.keep(|bytes| {
            kept.extend_from_slice(bytes);
            Ok(())
        });
        keep.unwrap();
        let again = Mixed::restore(&kept, [7].into_iter());
        assert_eq!(again.place(7, 1), 3);
        assert!(!again.has(7) && !again.came(7, 3, true));
        again.give_up(7, 3);
        assert!(again.came(7, 1, true) && again.has(7));
    }
}
