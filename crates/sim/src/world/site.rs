//! Depots and destinations: their condition, and the data on their disks.

use std::collections::BTreeMap;

use posthaste_core::contract::Windows;
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

use super::{course::CourseId, network::Sending};

/// Actual condition of a depot, whether or not it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Works normally.
    Well,
    /// Gone, with broken connections.
    Dead,
    /// Gone without notice.
    Vanished,
    /// Answers probes and stores nothing.
    Hung,
}

/// Depot in the world.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) id: DepotId,
    pub(crate) name: String,
    pub(super) condition: Condition,
    pub(crate) says_full: bool,
    pub(crate) advertises: bool,
    /// Ability to code chunks.
    pub(crate) codes: bool,
    /// Store, which does nothing by itself.
    pub(crate) stores: bool,
    pub(crate) capacity: Bytes,
    pub(crate) used: Bytes,
    /// Bytes stored for each request.
    pub(crate) stored: BTreeMap<RequestId, Bytes>,
    /// Space reserved for each request, including its stored bytes, and the end of the reservation.
    pub(crate) spaces: BTreeMap<RequestId, (Bytes, Timestamp)>,
    /// Bytes of another party.
    pub(crate) neighbour: Bytes,
    pub(crate) latency_micros: u64,
    /// Rate its owner lends, in bytes a second.
    pub(crate) first_rate: u64,
    /// Course of its path from the centre.
    pub(crate) course: CourseId,
    /// Fragments of each chunk, as a mask; a whole chunk at a destination is bit 0.
    pub(crate) held: BTreeMap<RequestId, Vec<u64>>,
    /// Hours in which its owner lends it.
    pub(crate) hours: Windows,
    /// Knowledge of the mind that it is gone, since it last came back.
    pub(crate) is_told_gone: bool,
    /// Counter of its faults. If two overlap, the later one decides the end.
    pub(crate) ordeal: u32,
}

impl Site {
    pub(crate) fn condition(&self) -> Condition {
        self.condition
    }

    pub(crate) fn is_reachable(&self) -> bool {
        matches!(self.condition, Condition::Well | Condition::Hung)
    }

    pub(crate) fn free(&self) -> Bytes {
        if self.says_full {
            Bytes::ZERO
        } else {
            self.capacity - self.taken()
        }
    }

    /// Returns the bytes stored for a request.
    fn stored(&self, request: RequestId) -> Bytes {
        self.stored.get(&request).copied().unwrap_or_default()
    }

    /// Returns the reserved and unused bytes of a request.
    fn spare(&self, request: RequestId) -> Bytes {
        let kept = self.spaces.get(&request).map(|(kept, _)| *kept);
        kept.unwrap_or_default() - self.stored(request)
    }

    /// Returns the bytes that are stored, reserved, or another party's.
    fn taken(&self) -> Bytes {
        let spare: Bytes = self.spaces.keys().map(|request| self.spare(*request)).sum();
        self.used + self.neighbour + spare
    }

    /// Drops expired reservations.
    pub(crate) fn lapse(&mut self, now: Timestamp) {
        self.spaces.retain(|_, (_, until)| *until > now);
    }

    /// Reserves space for a request, including its stored bytes.
    ///
    /// # Errors
    /// The bytes it could reserve, if space is too small.
    pub(crate) fn reserve(
        &mut self,
        request: RequestId,
        bytes: Bytes,
        until: Timestamp,
    ) -> Result<(), Bytes> {
        let own = self.stored(request) + self.spare(request);
        let most = self.capacity - (self.taken() - own);
        if bytes > most {
            return Err(most);
        }
        self.spaces.insert(request, (bytes, until));
        Ok(())
    }

    /// Lets another party take this much, or the free space. Returns the bytes taken.
    pub(crate) fn let_others(&mut self, now: Timestamp, take: Bytes) -> Bytes {
        self.lapse(now);
        let got = take.min(self.free());
        self.neighbour += got;
        got
    }

    /// Removes all data of a request.
    pub(crate) fn forget(&mut self, request: RequestId) {
        self.held.remove(&request);
        self.used -= self.stored.remove(&request).unwrap_or_default();
    }

    /// Removes everything.
    pub(crate) fn wipe(&mut self) {
        self.held.clear();
        self.stored.clear();
        self.spaces.clear();
        self.used = Bytes::ZERO;
    }

    /// Stores a fragment. Returns false if it does not fit.
    pub(crate) fn store(&mut self, sending: &Sending, chunks: u32) -> bool {
        let room = self.capacity - self.taken() + self.spare(sending.request);
        let held = self
            .held
            .entry(sending.request)
            .or_insert_with(|| vec![0; chunks as usize]);
        let whole = sending.fragment == FragmentIndex::WHOLE;
        let bit = 1u64 << if whole { 0 } else { sending.fragment.get() };
        let mask = &mut held[sending.chunk.get() as usize];
        if *mask & bit != 0 {
            return true;
        }
        if self.says_full || sending.bytes > room {
            return false;
        }
        *mask |= bit;
        self.used += sending.bytes;
        *self.stored.entry(sending.request).or_default() += sending.bytes;
        true
    }

    /// Removes all fragments of a chunk, of `each` bytes.
    pub(crate) fn take_back(&mut self, request: RequestId, chunk: ChunkIndex, each: Bytes) {
        let held = self.held.get_mut(&request);
        let Some(mask) = held.and_then(|held| held.get_mut(chunk.get() as usize)) else {
            return;
        };
        let bytes = each.times(u64::from(core::mem::take(mask).count_ones()));
        self.used -= bytes;
        *self.stored.entry(request).or_default() -= bytes;
    }

    /// Returns whether it holds a fragment.
    pub(crate) fn holds(
        &self,
        request: RequestId,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
    ) -> bool {
        let mask = self.mask(request, chunk.get() as usize);
        let bit = match fragment {
            FragmentIndex::WHOLE => 0,
            fragment => fragment.get(),
        };
        mask.unbounded_shr(u32::from(bit)) & 1 == 1
    }

    /// Returns whether it holds any fragment of a chunk.
    pub(crate) fn has_any(&self, request: RequestId, chunk: ChunkIndex) -> bool {
        self.mask(request, chunk.get() as usize) != 0
    }

    /// Returns its fragments of a chunk, as a mask.
    pub(crate) fn mask(&self, request: RequestId, chunk: usize) -> u64 {
        let held = self.held.get(&request);
        held.and_then(|held| held.get(chunk)).copied().unwrap_or(0)
    }
}
