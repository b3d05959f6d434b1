//! A depot or destination: whether it is there, and what lies on its disk.

use std::collections::BTreeMap;

use posthaste_core::contract::Windows;
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

use super::{course::CourseId, network::Sending};

/// How a depot is, whatever anybody knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It works.
    Well,
    /// It is gone and connections break.
    Dead,
    /// It is gone and nothing says so.
    Vanished,
    /// It answers probes and stores nothing.
    Hung,
}

/// A depot in the world.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) id: DepotId,
    pub(crate) name: String,
    pub(super) condition: Condition,
    pub(crate) says_full: bool,
    pub(crate) advertises: bool,
    /// It can code chunks.
    pub(crate) codes: bool,
    /// It lies in a store, which does nothing by itself.
    pub(crate) stores: bool,
    pub(crate) capacity: Bytes,
    pub(crate) used: Bytes,
    /// What of that each request has.
    pub(crate) stored: BTreeMap<RequestId, Bytes>,
    /// What is kept for a request, what it has included, and until when.
    pub(crate) spaces: BTreeMap<RequestId, (Bytes, Timestamp)>,
    /// What somebody else has there.
    pub(crate) neighbour: Bytes,
    pub(crate) latency_micros: u64,
    /// Bytes a second its owner lends.
    pub(crate) first_rate: u64,
    /// Of its path from the centre.
    pub(crate) course: CourseId,
    /// Fragments of each chunk, as a mask; a whole chunk at a destination is bit 0.
    pub(crate) held: BTreeMap<RequestId, Vec<u64>>,
    /// When its owner lends it.
    pub(crate) hours: Windows,
    /// Whether the mind was told that it is gone since it last came back.
    pub(crate) is_told_gone: bool,
    /// Counts what befell it: when two faults overlap, the later one decides when it is over.
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

    /// What a request has.
    fn stored(&self, request: RequestId) -> Bytes {
        self.stored.get(&request).copied().unwrap_or_default()
    }

    /// What is kept for a request and not filled yet.
    fn spare(&self, request: RequestId) -> Bytes {
        let kept = self.spaces.get(&request).map(|(kept, _)| *kept);
        kept.unwrap_or_default() - self.stored(request)
    }

    /// What nobody else may use.
    fn taken(&self) -> Bytes {
        let spare: Bytes = self.spaces.keys().map(|request| self.spare(*request)).sum();
        self.used + self.neighbour + spare
    }

    /// Forgets what was kept until now.
    pub(crate) fn lapse(&mut self, now: Timestamp) {
        self.spaces.retain(|_, (_, until)| *until > now);
    }

    /// Keeps so much for a request, what it has included; or says how much it could keep.
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

    /// Lets somebody else take so much, or what is free. How much that is.
    pub(crate) fn let_others(&mut self, now: Timestamp, take: Bytes) -> Bytes {
        self.lapse(now);
        let got = take.min(self.free());
        self.neighbour += got;
        got
    }

    /// Forgets what a request has.
    pub(crate) fn forget(&mut self, request: RequestId) {
        self.held.remove(&request);
        self.used -= self.stored.remove(&request).unwrap_or_default();
    }

    /// Forgets everything.
    pub(crate) fn wipe(&mut self) {
        self.held.clear();
        self.stored.clear();
        self.spaces.clear();
        self.used = Bytes::ZERO;
    }

    /// Puts a fragment on the disk. False when it does not fit.
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

    /// Takes all of a chunk away, of which each piece has so much.
    pub(crate) fn take_back(&mut self, request: RequestId, chunk: ChunkIndex, each: Bytes) {
        let held = self.held.get_mut(&request);
        let Some(mask) = held.and_then(|held| held.get_mut(chunk.get() as usize)) else {
            return;
        };
        let bytes = each.times(u64::from(core::mem::take(mask).count_ones()));
        self.used -= bytes;
        *self.stored.entry(request).or_default() -= bytes;
    }

    /// Whether a fragment lies there.
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

    /// Whether anything of a chunk lies there.
    pub(crate) fn has_any(&self, request: RequestId, chunk: ChunkIndex) -> bool {
        self.mask(request, chunk.get() as usize) != 0
    }

    /// What it holds of a chunk, as a mask.
    pub(crate) fn mask(&self, request: RequestId, chunk: usize) -> u64 {
        let held = self.held.get(&request);
        held.and_then(|held| held.get(chunk)).copied().unwrap_or(0)
    }
}
