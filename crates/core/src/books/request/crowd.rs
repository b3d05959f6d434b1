//! How close together fragments of a chunk may lie.

use posthaste_types::{Bytes, ChunkIndex};

use super::Request;
use crate::domains::Kin;

impl Request {
    /// Notes which of its depots fail together.
    pub(crate) fn set_kin(&mut self, kin: Kin) {
        self.domain_max = kin.most;
        (self.uncommon.crowded_most, self.uncommon.is_crowd_unsaid) = (0, false);
        self.uncommon.crowded.clear();
        for (lane, mask) in self.lanes.iter_mut().zip(kin.masks) {
            lane.kin = mask;
        }
    }

    /// Whether the lane may get a fragment of a chunk of which those `taken` have one: it has none, and
    /// of those that fail together with it not too many that are there have one.
    pub(crate) fn is_free(&self, taken: u64, lane: usize) -> bool {
        taken >> lane & 1 == 0 && self.crowd(taken, lane) < self.domain_max
    }

    /// Depots that fail together may hold one more fragment of this chunk than of others.
    pub(crate) fn crowd_chunk(&mut self, chunk: ChunkIndex) {
        let (stripes, kept) = (&self.stripes, &mut *self.uncommon);
        kept.crowded.retain(|chunk, _| stripes.contains_key(chunk));
        let more = kept.crowded.entry(chunk).or_default();
        *more += 1;
        kept.is_crowd_unsaid |= *more > kept.crowded_most;
        kept.crowded_most = kept.crowded_most.max(*more);
    }

    /// How many more fragments of this chunk than of others depots that fail together may hold.
    pub(crate) fn crowded_by(&self, chunk: ChunkIndex) -> u32 {
        self.uncommon.crowded.get(&chunk).copied().unwrap_or(0)
    }

    /// Most fragments of any chunk that depots which fail together may hold.
    pub(crate) fn crowd_max(&self) -> u32 {
        self.domain_max + self.uncommon.crowded_most
    }

    /// How many of those `taken` fail together with the lane and are there.
    pub(crate) fn crowd(&self, taken: u64, lane: usize) -> u32 {
        (taken & self.lanes[lane].kin & self.replica.live()).count_ones()
    }

    /// What the lane may get of `room`, which it shares with those that fail together with it. Those of them that are
    /// pinned get all of theirs.
    pub(crate) fn share_of_domain(&self, lane: usize, room: Bytes) -> Bytes {
        if self.is_pinned(lane) {
            return room;
        }
        let kin = self.lanes[lane].kin;
        let pinned = (kin & self.pinned_lanes()).count_ones();
        let kin = (kin.count_ones() - pinned).max(1);
        let most = self.crowd_max().saturating_sub(pinned);
        let share = room.get() / u64::from(kin) * u64::from(most.min(kin));
        if kin <= most { room } else { Bytes::new(share) }
    }
}
