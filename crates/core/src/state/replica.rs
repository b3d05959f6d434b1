mod have;
mod pinned;
mod queue;
mod renew;
mod sight;
mod thin;

use alloc::{boxed::Box, vec};
use posthaste_types::{Bytes, ChunkIndex, Code, FragmentIndex, record};

use have::Have;

use crate::contract::RequestSpec;
use crate::state::Bitmap;

/// Marks in a column for nothing of a chunk, and for all of it. Between them: the fragment + 1.
const NOTHING: u8 = 0;
const WHOLE: u8 = u8::MAX;

record! {
    /// Holdings of one depot: a byte a chunk, since it holds at most one fragment of each.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Column {
        /// True if it is a destination and takes whole chunks; what arrived there is delivered.
        is_destination: bool,
        /// True if what it holds counts now.
        is_live: bool,
        /// Column; empty until the first fragment.
        held: Box<[u8]>,
        stored: u32,
        stored_bytes: Bytes,
        /// Chunks that are not safe and have a fragment here: those can't get another one here.
        held_unsafe: u32,
    }
}

record! {
    /// Verified fragments of a dataset by depot, and the chunks that still need some.
    ///
    /// A stored fragment costs one visit of each column. Only the rare inputs about a whole depot
    /// (lost, back, inventory) visit every chunk.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Replica {
        chunks: u32,
        chunk_size: Bytes,
        last_chunk: Bytes,
        code: Code,
        columns: Box<[Column]>,
        /// Chunks that are not safe and not being sent.
        todo: Bitmap,
        /// Unsafe chunks that lost a fragment with a depot: their turn comes last, since the depot
        /// may be back before.
        again: Bitmap,
        /// Chunks that are not safe and of which no depot fed now can take more.
        parked: Bitmap,
        /// Chunks that a destination has and of which only pinned depots lack a copy, and those of
        /// them that no depot fed now can take. These never go whole again.
        copies_todo: Bitmap,
        copies_parked: Bitmap,
        /// Chunks that lost a fragment with a depot and are not safe again yet.
        damaged: Bitmap,
        /// Chunks that the source can no longer give unchanged.
        left: Bitmap,
        safe: u32,
        missing: u64,
        /// True if a chunk that lost fragments waits until it survives only one more loss.
        is_lazy: bool,
        /// True if nobody but depots gives `left` any more: some of the source was removed.
        is_left_for_good: bool,
        /// Fragments of a chunk that are enough for now; none if all of its code are wanted.
        enough: Option<u32>,
        /// Lanes that must hold a fragment of every chunk, as a mask.
        pinned: u64,
        /// Destinations that fail with no depot and no other of these, as a mask: a whole chunk
        /// there counts as one more fragment (`replica/have.rs`).
        holders: u64,
    }
}

/// Effect of storing a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Nothing: it was there, or the depot has another one of the chunk.
    Known,
    /// Additional fragment of the chunk.
    More,
    /// Enough fragments: the chunk is safe now.
    Complete {
        /// True if it had lost a fragment before.
        repaired: bool,
    },
}

impl Replica {
    /// Builds the replica of a dataset of `chunks` chunks; without chunks it takes no memory.
    /// Destinations and pinned lanes are masks.
    pub(crate) fn new(
        spec: &RequestSpec,
        chunks: u32,
        lanes: usize,
        destinations: u64,
        pinned: u64,
    ) -> Self {
        let column = |lane: usize| Column {
            is_destination: destinations >> lane & 1 == 1,
            is_live: true,
            held: Box::default(),
            stored: 0,
            stored_bytes: Bytes::ZERO,
            held_unsafe: 0,
        };
        Self {
            chunks,
            chunk_size: spec.chunk_size,
            last_chunk: spec.chunk_bytes(chunks.saturating_sub(1)),
            code: spec.code,
            columns: (0..lanes).map(column).collect(),
            todo: Bitmap::full(chunks),
            again: Bitmap::empty(chunks),
            parked: Bitmap::empty(chunks),
            copies_todo: Bitmap::empty(chunks),
            copies_parked: Bitmap::empty(chunks),
            damaged: Bitmap::empty(chunks),
            left: Bitmap::empty(chunks),
            safe: 0,
            missing: u64::from(chunks) * u64::from(spec.code.total()),
            is_lazy: false,
            is_left_for_good: false,
            enough: None,
            pinned,
            holders: destinations,
        }
    }

    /// Returns whether decoded bytes made a usable replica.
    pub(crate) fn is_sound(&self, lanes: usize) -> bool {
        let chunks = self.chunks as usize;
        let known = [&self.damaged, &self.left];
        self.columns.len() == lanes
            && (self.pinned | self.holders) & !self.lanes() == 0
            && self.queues().iter().all(|set| set.fits(self.chunks))
            && known.iter().all(|set| set.fits(self.chunks))
            && self
                .columns
                .iter()
                .all(|column| [0, chunks].contains(&column.held.len()))
    }

    pub(crate) fn chunks(&self) -> u32 {
        self.chunks
    }

    pub(crate) fn safe(&self) -> u32 {
        self.safe
    }

    pub(crate) fn is_safe(&self) -> bool {
        self.safe == self.chunks
    }

    /// Returns whether every destination has every chunk.
    pub(crate) fn is_delivered(&self) -> bool {
        let mut whole = self.columns.iter().filter(|column| column.is_destination);
        let has_all = |column: &Column| column.is_live && column.stored == self.chunks;
        let has_any = self.columns.iter().any(|column| column.is_destination);
        self.chunks > 0 && has_any && whole.all(has_all)
    }

    /// Returns the fragments that the depot holds, and their bytes.
    pub(crate) fn stored(&self, lane: usize) -> (u32, Bytes) {
        (self.columns[lane].stored, self.columns[lane].stored_bytes)
    }

    /// Returns the fragments that still have to be stored.
    pub(crate) fn missing(&self) -> u64 {
        self.missing
    }

    /// Returns the coded bytes that still have to be stored.
    pub(crate) fn missing_bytes(&self) -> Bytes {
        let piece = self.code.fragment_size(self.chunk_size);
        let less = piece - self.code.fragment_size(self.last_chunk);
        piece.times(self.missing) - less.times(self.last_lacks().into())
    }

    /// Returns the fragments that the last chunk lacks: it may be smaller than the others.
    fn last_lacks(&self) -> u32 {
        let last = self.chunks.checked_sub(1);
        last.map_or(0, |last| self.lacks(last, self.have(last)))
    }

    /// Returns the most coded bytes of those that the depot can take.
    pub(crate) fn room(&self, lane: usize) -> Bytes {
        self.code
            .fragment_size(self.chunk_size)
            .times(u64::from(self.room_count(lane)))
    }

    /// Returns that room, with the last chunk at its true size.
    pub(crate) fn room_to_the_byte(&self, lane: usize) -> Bytes {
        let last = self.chunks.checked_sub(1).map(ChunkIndex::new);
        let takes_last = last.is_some_and(|last| self.last_lacks() > 0 && !self.holds(lane, last));
        if !takes_last {
            return self.room(lane);
        }
        let piece = self.code.fragment_size(self.chunk_size);
        self.room(lane) - (piece - self.code.fragment_size(self.last_chunk))
    }

    /// Returns the most fragments of those. What a depot that is not live holds does not count, so
    /// it takes no room.
    pub(crate) fn room_count(&self, lane: usize) -> u32 {
        let column = &self.columns[lane];
        let held = if column.is_live {
            column.held_unsafe
        } else {
            0
        };
        (self.chunks - self.safe).saturating_sub(held)
    }

    /// Returns the bytes of the chunks that are not safe, which the direct path has to carry.
    pub(crate) fn unsafe_bytes(&self) -> Bytes {
        let less = match self.last_lacks() {
            0 => Bytes::ZERO,
            _ => self.chunk_size - self.last_chunk,
        };
        self.chunk_size.times(u64::from(self.chunks - self.safe)) - less
    }

    pub(crate) fn bytes_of(&self, chunk: ChunkIndex, fragment: FragmentIndex) -> Bytes {
        let size = if chunk.get() + 1 == self.chunks {
            self.last_chunk
        } else {
            self.chunk_size
        };
        if fragment == FragmentIndex::WHOLE {
            size
        } else {
            self.code.fragment_size(size)
        }
    }

    /// Returns whether the depot has, or had when last heard of, something of the chunk.
    pub(crate) fn holds(&self, lane: usize, chunk: ChunkIndex) -> bool {
        self.columns[lane].at(chunk.get()) != NOTHING
    }

    /// Returns whether an earlier depot holds the same fragment of the chunk, so that this one may
    /// take another in its place. It happens when a send of unknown outcome was repeated elsewhere.
    pub(crate) fn is_redundant(&self, lane: usize, chunk: ChunkIndex) -> bool {
        let held = self.columns[lane].at(chunk.get());
        let earlier = &self.columns[..lane];
        held != NOTHING
            && held != WHOLE
            && earlier
                .iter()
                .any(|column| column.is_live && column.at(chunk.get()) == held)
    }

    /// Returns the fragments of a chunk that are wanted somewhere, as a mask; none when the chunk
    /// is safe. They are those that no live depot holds, and as many others as pinned depots lack
    /// beyond these.
    pub(crate) fn lacking(&self, chunk: ChunkIndex) -> u64 {
        let lost = self.lost(chunk);
        let more = self.lacks(chunk.get(), self.have(chunk.get())) - lost.count_ones();
        lost | self.copies(chunk, lost, more)
    }

    /// Returns the fragments among those that no live depot holds.
    pub(crate) fn lost(&self, chunk: ChunkIndex) -> u64 {
        let have = self.have(chunk.get());
        lowest(
            self.all() & !have.fragments,
            self.lacks_code(chunk.get(), have),
        )
    }

    /// Returns whether the fragment can belong to the dataset and the depot.
    pub(crate) fn accepts(&self, lane: usize, chunk: ChunkIndex, fragment: FragmentIndex) -> bool {
        chunk.get() < self.chunks
            && if self.columns[lane].is_destination {
                fragment == FragmentIndex::WHOLE
            } else {
                fragment.get() < self.code.total()
            }
    }

    /// Records that a live depot stored a fragment and checked its digest.
    pub(crate) fn store(
        &mut self,
        lane: usize,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
    ) -> Stored {
        let had_another = self.holds(lane, chunk);
        let lacked = self.lacks(chunk.get(), self.have(chunk.get()));
        if !self.put(lane, chunk, fragment) {
            return Stored::Known;
        }
        if lacked == 0 {
            return Stored::Known;
        }
        let lacks = self.lacks(chunk.get(), self.have(chunk.get()));
        self.missing -= u64::from(lacked - lacks);
        if lacks > 0 {
            self.columns[lane].held_unsafe += u32::from(!had_another);
            self.unpark_one(chunk);
            return if lacks < lacked {
                Stored::More
            } else {
                Stored::Known
            };
        }
        for (place, column) in self.columns.iter_mut().enumerate() {
            if (place != lane || had_another) && column.at(chunk.get()) != NOTHING {
                column.held_unsafe -= 1;
            }
        }
        self.safe += 1;
        self.open(chunk);
        let repaired = self.damaged.contains(chunk.get());
        self.damaged.remove(chunk.get());
        Stored::Complete { repaired }
    }

    /// Returns whether what a lane holds counts.
    pub(crate) fn is_live(&self, lane: usize) -> bool {
        self.columns[lane].is_live
    }

    /// Sets whether what the depot holds counts. Returns how many chunks lost their safety. Chunks
    /// being sent must be taken out of `todo` again by [`Replica::open`].
    pub(crate) fn set_live(&mut self, lane: usize, is_live: bool) -> u32 {
        let lost = self.columns[lane].is_live && !is_live;
        let changed = self.columns[lane].is_live != is_live;
        self.columns[lane].is_live = is_live;
        if changed && self.columns[lane].stored > 0 {
            let old = if lost {
                self.columns[lane].held.clone()
            } else {
                Box::default()
            };
            self.recount(lane, &old)
        } else {
            self.unpark();
            0
        }
    }

    /// Replaces what the depot holds, which counts. Returns how many chunks lost their safety.
    pub(crate) fn replace(&mut self, lane: usize, held: &[(ChunkIndex, FragmentIndex)]) -> u32 {
        let column = &mut self.columns[lane];
        let old = core::mem::take(&mut column.held);
        let old = if column.is_live { old } else { Box::default() };
        (column.stored, column.stored_bytes, column.is_live) = (0, Bytes::ZERO, true);
        for &(chunk, fragment) in held {
            if self.accepts(lane, chunk, fragment) && !self.put(lane, chunk, fragment) {
                self.prefer(lane, chunk, fragment);
            }
        }
        self.recount(lane, &old)
    }

    /// Makes room on a depot that `can_take` more: its fragment of the chunk, which another live
    /// depot holds too, no longer counts. Depots that came back leave such copies; with one on
    /// every depot the missing fragment would find no place.
    pub(crate) fn free_redundant(
        &mut self,
        chunk: ChunkIndex,
        can_take: impl Fn(usize) -> bool,
    ) -> bool {
        let at = chunk.get();
        let is_coded = |held: u8| held != NOTHING && held != WHOLE;
        let is_held_elsewhere = |lane: usize, held: u8| {
            let others = self
                .columns
                .iter()
                .enumerate()
                .filter(|&(place, _)| place != lane);
            others
                .into_iter()
                .any(|(_, column)| column.is_live && column.at(at) == held)
        };
        let lane = (0..self.columns.len()).find(|&lane| {
            let held = self.columns[lane].at(at);
            let is_pinned = self.pinned >> lane & 1 == 1;
            is_coded(held) && !is_pinned && can_take(lane) && is_held_elsewhere(lane, held)
        });
        let Some(lane) = lane else { return false };
        let bytes = self.bytes_of(chunk, FragmentIndex::new(0));
        let column = &mut self.columns[lane];
        column.held[at as usize] = NOTHING;
        column.stored -= 1;
        column.stored_bytes -= bytes;
        column.held_unsafe -= 1;
        true
    }

    fn all(&self) -> u64 {
        u64::MAX >> (64 - u32::from(self.code.total()).clamp(1, 64))
    }

    fn put(&mut self, lane: usize, chunk: ChunkIndex, fragment: FragmentIndex) -> bool {
        let bytes = self.bytes_of(chunk, fragment);
        let is_redundant = self.is_redundant(lane, chunk);
        let column = &mut self.columns[lane];
        if column.held.is_empty() {
            column.held = vec![NOTHING; self.chunks as usize].into_boxed_slice();
        }
        let held = &mut column.held[chunk.get() as usize];
        let value = if fragment == FragmentIndex::WHOLE {
            WHOLE
        } else {
            fragment.get() + 1
        };
        if *held != NOTHING {
            let replaces = is_redundant && value != *held;
            if replaces {
                *held = value;
            }
            return replaces;
        }
        *held = value;
        column.stored += 1;
        column.stored_bytes += bytes;
        true
    }

    /// Prefers, of two fragments of a chunk at one depot, the one that no other depot holds.
    fn prefer(&mut self, lane: usize, chunk: ChunkIndex, fragment: FragmentIndex) {
        let (at, new) = (chunk.get(), fragment.get().wrapping_add(1));
        let old = self.columns[lane].at(at);
        let is_elsewhere = |held: u8| {
            let others = self
                .columns
                .iter()
                .enumerate()
                .filter(|&(place, _)| place != lane);
            others
                .into_iter()
                .any(|(_, column)| column.is_live && column.at(at) == held)
        };
        if old != WHOLE && is_elsewhere(old) && !is_elsewhere(new) {
            self.columns[lane].held[at as usize] = new;
        }
    }

    /// Recounts everything. `old` is the content of a lane's column that just ceased to count.
    fn recount(&mut self, lane: usize, old: &[u8]) -> u32 {
        self.unpark();
        (self.safe, self.missing) = (0, 0);
        for column in &mut self.columns {
            column.held_unsafe = 0;
        }
        let mut lost = 0;
        for chunk in 0..self.chunks {
            let have = self.have(chunk);
            let lacks = self.lacks(chunk, have);
            if lacks == 0 {
                self.safe += 1;
                self.open(ChunkIndex::new(chunk));
                self.damaged.remove(chunk);
                continue;
            }
            self.missing += u64::from(lacks);
            for column in &mut self.columns {
                column.held_unsafe += u32::from(column.at(chunk) != NOTHING);
            }
            let gone = old.get(chunk as usize).copied().unwrap_or(NOTHING);
            if gone != NOTHING {
                let before = self.with(have, lane, gone);
                let others = self.pinned & !1u64.unbounded_shl(u32::try_from(lane).unwrap_or(64));
                let had_code = self.lacks_code(chunk, before) == 0;
                let was_safe = had_code && self.lacks_of(chunk, others) == 0;
                self.damaged.insert(chunk);
                lost += u32::from(was_safe);
            }
            self.await_turn(chunk);
        }
        lost
    }
}

/// Returns the lowest so many bits of a mask.
fn lowest(mut mask: u64, count: u32) -> u64 {
    let all = mask;
    for _ in 0..count {
        mask &= mask.wrapping_sub(1);
    }
    all & !mask
}

impl Column {
    fn at(&self, chunk: u32) -> u8 {
        self.held.get(chunk as usize).copied().unwrap_or(NOTHING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ReleasePolicy;
    use alloc::vec::Vec;
    use posthaste_types::Timestamp;
    use proptest::prelude::*;

    const CHUNKS: u32 = 5;
    const LANES: usize = 5;
    const DESTINATION: usize = 4;

    fn replica() -> Replica {
        coded("2+1")
    }

    fn coded(code: &str) -> Replica {
        let spec = RequestSpec {
            bytes: Bytes::new(50),
            files: 1,
            chunk_size: Bytes::new(10),
            deadline: Timestamp::default(),
            code: code.parse().unwrap(),
            via: Vec::new(),
            destinations: Vec::new(),
            release: ReleasePolicy::Never,
            best_effort: false,
        };
        Replica::new(&spec, CHUNKS, LANES, 1 << DESTINATION, 0)
    }

    /// Compares every count with one recomputed from the columns.
    fn assert_counts(replica: &Replica) {
        let held = |lane: usize, chunk: u32| replica.columns[lane].at(chunk);
        let is_there = replica.columns[DESTINATION].is_live;
        let is_whole = |chunk: u32| is_there && held(DESTINATION, chunk) == WHOLE;
        let live = |chunk: u32, fragment: u8| {
            (0..LANES).any(|lane| replica.columns[lane].is_live && held(lane, chunk) == fragment)
        };
        let total = replica.code.total();
        let lacks = |chunk: u32| {
            (1..=total)
                .filter(|&fragment| !live(chunk, fragment))
                .count()
        };
        let is_left = |chunk: u32| {
            let survived = usize::from(replica.code.parity()).checked_sub(lacks(chunk));
            replica.is_lazy && !replica.damaged.contains(chunk) && survived >= Some(2)
        };
        let spared = replica.enough.map_or(0, |enough| {
            usize::from(total).saturating_sub(enough as usize)
        });
        let losses = usize::from(replica.code.parity()).saturating_sub(spared);
        // The one destination that has a chunk whole is also one that holds it.
        let of_code = |chunk: u32| match (is_left(chunk), is_whole(chunk)) {
            (true, _) => 0,
            (false, true) if losses == 0 => 0,
            (false, is_whole) => lacks(chunk).saturating_sub(spared + usize::from(is_whole)),
        };
        let has_share = |lane: &usize, chunk: u32| {
            replica.columns[*lane].is_live && held(*lane, chunk) != NOTHING
        };
        let of_pinned = |chunk: u32| {
            let pinned = (0..LANES).filter(|lane| replica.pinned >> lane & 1 == 1);
            pinned.filter(|lane| !has_share(lane, chunk)).count()
        };
        let lacks = |chunk: u32| of_code(chunk).max(of_pinned(chunk));
        let unsafe_chunks: Vec<u32> = (0..CHUNKS).filter(|&chunk| lacks(chunk) > 0).collect();
        assert_eq!(replica.safe as usize, CHUNKS as usize - unsafe_chunks.len());
        let missing: usize = unsafe_chunks.iter().map(|&chunk| lacks(chunk)).sum();
        assert_eq!(replica.missing, missing as u64);
        for lane in 0..LANES {
            let stored = (0..CHUNKS)
                .filter(|&chunk| held(lane, chunk) != NOTHING)
                .count();
            assert_eq!(replica.columns[lane].stored as usize, stored);
            let blocked = unsafe_chunks
                .iter()
                .filter(|&&chunk| held(lane, chunk) != NOTHING);
            assert_eq!(replica.columns[lane].held_unsafe as usize, blocked.count());
        }
        for chunk in unsafe_chunks {
            let lacking = replica.lacking(ChunkIndex::new(chunk));
            assert_eq!(lacking.count_ones() as usize, lacks(chunk));
        }
    }

    /// Stores every fragment of every chunk at a lane of its own.
    fn fill(replica: &mut Replica) {
        for chunk in (0..CHUNKS).map(ChunkIndex::new) {
            for fragment in 0..replica.code.total() {
                replica.store(usize::from(fragment), chunk, FragmentIndex::new(fragment));
            }
        }
    }

    #[test]
    fn all_of_a_chunk_at_a_destination_is_one_more_that_holds_some() {
        let mut replica = replica();
        let chunk = ChunkIndex::new(0);
        assert_eq!(
            replica.store(DESTINATION, chunk, FragmentIndex::WHOLE),
            Stored::More
        );
        assert_eq!(
            (replica.safe(), replica.lacking(chunk).count_ones()),
            (0, 2)
        );
        replica.store(0, chunk, FragmentIndex::new(0));
        let last = replica.store(1, chunk, FragmentIndex::new(1));
        assert_eq!(
            (last, replica.safe()),
            (Stored::Complete { repaired: false }, 1)
        );
        assert_eq!(
            replica.set_live(DESTINATION, false),
            1,
            "two are left of three"
        );
        assert_eq!(replica.lacking(chunk), 0b100);
        // It fails together with a depot.
        replica.set_live(DESTINATION, true);
        replica.set_holders(0);
        assert_eq!(replica.safe(), 0);
        replica.set_enough(Some(2));
        assert_eq!(replica.safe(), 1, "nothing is to be survived now");
        assert_counts(&replica);
    }

    #[test]
    fn lazily_a_chunk_is_made_whole_when_one_more_loss_is_all_it_survives() {
        let mut replica = coded("1+3");
        fill(&mut replica);
        replica.be_lazy();
        assert_eq!(replica.set_live(0, false), 0, "it survives two more");
        assert_eq!((replica.is_safe(), replica.thin()), (true, CHUNKS));
        assert_eq!(replica.survives(), Some(2));
        assert_eq!(replica.set_live(1, false), CHUNKS);
        let chunk = ChunkIndex::new(0);
        assert_eq!((replica.lacking(chunk), replica.thin()), (0b11, 0));
        // It is restored in full, not just to good enough.
        assert_eq!(replica.set_live(0, true), 0);
        assert_eq!(replica.lacking(chunk), 0b10);
        assert_counts(&replica);
        assert_eq!(replica.set_live(1, true), 0);
        assert!(replica.is_safe() && replica.thin() == 0);
    }

    proptest! {
        #[test]
        fn counts_of_a_lazy_replica_are_counts_made_anew(
            moves in proptest::collection::vec((0u8..6, 0usize..4, 0u32..CHUNKS, 0u8..4), 0..80),
        ) {
            let mut replica = coded("1+3");
            fill(&mut replica);
            replica.be_lazy();
            for (kind, lane, chunk, fragment) in moves {
                let (chunk, fragment) = (ChunkIndex::new(chunk), FragmentIndex::new(fragment));
                match kind {
                    0 => { replica.set_live(lane, false); }
                    1 => { replica.set_live(lane, true); }
                    2 => { replica.replace(lane, &[(chunk, fragment)]); }
                    3 => replica.set_enough((lane > 0).then_some(3)),
                    _ if replica.columns[lane].is_live => { replica.store(lane, chunk, fragment); }
                    _ => {}
                }
                assert_counts(&replica);
            }
        }

        #[test]
        fn counts_kept_along_the_way_are_counts_made_anew(
            moves in proptest::collection::vec((0u8..9, 0usize..LANES, 0u32..CHUNKS, 0u8..3), 0..80),
            pinned in 0u64..8,
        ) {
            let mut replica = replica();
            replica.pin(pinned);
            for (kind, lane, chunk, fragment) in moves {
                let chunk = ChunkIndex::new(chunk);
                let fragment = if lane == DESTINATION { FragmentIndex::WHOLE } else { FragmentIndex::new(fragment) };
                match kind {
                    0 => { replica.set_live(lane, false); }
                    1 => { replica.set_live(lane, true); }
                    2 => { replica.replace(lane, &[(chunk, fragment)]); }
                    3 if replica.lacking(chunk) != 0 => {
                        replica.free_redundant(chunk, |other| other == lane);
                    }
                    4 => replica.set_enough((lane > 0).then_some(2)),
                    5 => replica.renew(chunk),
                    _ if replica.columns[lane].is_live => { replica.store(lane, chunk, fragment); }
                    _ => {}
                }
                assert_counts(&replica);
            }
        }
    }
}
