//! Bounds on fragments of a chunk in one failure domain.

use posthaste_types::{Bytes, ChunkIndex};

use crate::state::request::Request;
use crate::{
    state::failure_domain::Kin,
    state::failure_domain::apart::{apart, together},
};

impl Request {
    /// Records which of its depots fail together.
    pub(crate) fn set_kin(&mut self, kin: Kin) {
        self.domain_max = kin.most;
        self.replica.set_holders(kin.holders);
        (self.uncommon.crowded_most, self.uncommon.is_crowd_unsaid) = (0, false);
        self.uncommon.crowded.clear();
        // Few have groups that overlap: the others use no memory for them.
        if !kin.groups.is_empty() || !self.uncommon.groups.is_empty() {
            (self.uncommon.groups, self.uncommon.apart) = (kin.groups, kin.apart);
        }
        for (lane, mask) in self.lanes.iter_mut().zip(kin.masks) {
            lane.kin = mask;
        }
    }

    /// Returns whether the lane may get a fragment of a chunk whose fragments lie on the lanes
    /// `taken`. The lane must hold none, and its failure domains must be below their limit among
    /// lanes that are up. The remaining fragments must still find places.
    pub(crate) fn is_free(&self, taken: u64, lane: usize) -> bool {
        self.is_free_among(taken, lane, self.domain_max, u64::MAX)
    }

    /// Returns whether the lane is free if its failure domains may have `most`, and the rest goes
    /// to lanes `among` those.
    pub(crate) fn is_free_among(&self, taken: u64, lane: usize, most: u32, among: u64) -> bool {
        let is_free = taken >> lane & 1 == 0 && self.crowd(taken, lane) < most;
        is_free && (self.uncommon.groups.is_empty() || self.leaves_places(taken, lane, most, among))
    }

    /// Returns whether as many fragments find a place with one at the lane as without. If groups
    /// are disjoint, they do.
    fn leaves_places(&self, taken: u64, lane: usize, most: u32, among: u64) -> bool {
        let live = self.replica.live();
        let taken = taken & !self.destinations;
        let there = (taken & live).count_ones();
        let wanted = u32::from(self.code_now().total()).saturating_sub(there);
        let usable = self
            .depot_lanes()
            .filter(|&lane| !self.is_barred(lane))
            .fold(0, |mask, lane| mask | 1 << lane);
        let free = usable & live & among & !taken;
        let places = |taken: u64, wanted: u32| {
            let groups = &self.uncommon.groups;
            apart(groups, taken & live, free & !taken, most, wanted)
        };
        if wanted <= 1 {
            return true;
        }
        let without = places(taken, wanted);
        let is_one = without >> lane & 1 == 1;
        is_one || 1 + places(taken | 1 << lane, wanted - 1).count_ones() >= without.count_ones()
    }

    /// Returns whether the lane has nothing of the chunk that the lanes `taken` hold, with its
    /// failure domains below their limit. The places of the rest don't matter.
    pub(crate) fn fits(&self, taken: u64, lane: usize) -> bool {
        taken >> lane & 1 == 0 && self.crowd(taken, lane) < self.domain_max
    }

    /// Returns whether its depots can be used without more of a chunk failing together than the
    /// parity covers. If no loss is to be survived, they can be used wherever they are.
    pub(crate) fn is_spread(&self) -> bool {
        let parity = u32::from(self.spec.code.parity());
        parity == 0 || self.domain_max <= parity
    }

    /// Returns whether so many lanes suffice for all fragments of a chunk.
    pub(crate) fn can_hold(&self, lanes: u64) -> bool {
        let total = u32::from(self.spec.code.total());
        let is_enough = lanes.count_ones() >= total;
        let groups = &self.uncommon.groups;
        is_enough
            && (groups.is_empty()
                || apart(groups, 0, lanes, self.domain_max, total).count_ones() >= total)
    }

    /// Returns how many of those lanes at most fail together, by the groups of this one.
    pub(crate) fn together(&self, lane: usize, lanes: u64) -> u32 {
        match self.uncommon.groups.is_empty() {
            true => (lanes & self.lanes[lane].kin).count_ones(),
            false => together(&self.uncommon.groups, lane, lanes),
        }
    }

    /// Allows depots that fail together one more fragment of this chunk than of others.
    pub(crate) fn crowd_chunk(&mut self, chunk: ChunkIndex) {
        let (stripes, kept) = (&self.stripes, &mut *self.uncommon);
        kept.crowded.retain(|chunk, _| stripes.contains_key(chunk));
        let more = kept.crowded.entry(chunk).or_default();
        *more += 1;
        kept.is_crowd_unsaid |= *more > kept.crowded_most;
        kept.crowded_most = kept.crowded_most.max(*more);
    }

    /// Returns how many more fragments of this chunk than of others depots that fail together may
    /// hold.
    pub(crate) fn crowded_by(&self, chunk: ChunkIndex) -> u32 {
        self.uncommon.crowded.get(&chunk).copied().unwrap_or(0)
    }

    /// Returns the most fragments of any chunk that depots which fail together may hold.
    pub(crate) fn crowd_max(&self) -> u32 {
        self.domain_max + self.uncommon.crowded_most
    }

    /// Counts the lanes `taken` that are up and fail together with the lane, in the fullest of its
    /// groups.
    pub(crate) fn crowd(&self, taken: u64, lane: usize) -> u32 {
        self.together(lane, taken & self.replica.live())
    }

    /// Returns that count, and how many fail together with it in any way, to choose among lanes.
    pub(crate) fn crowds(&self, taken: u64, lane: usize) -> (u32, u32) {
        let any = taken & self.lanes[lane].kin & self.replica.live();
        (self.crowd(taken, lane), any.count_ones())
    }

    /// Returns the lane's share of `room`, which it shares with those that fail together with it.
    /// Pinned lanes among them get all of theirs.
    pub(crate) fn share_of_domain(&self, lane: usize, room: Bytes) -> Bytes {
        let kept = &self.uncommon;
        if self.is_pinned(lane) || kept.apart >> lane & 1 == 1 {
            return room;
        }
        let groups = kept.groups.iter().copied();
        let groups = groups.filter(|group| group >> lane & 1 == 1);
        let shares = groups.map(|group| self.share_of(group, room));
        match kept.groups.is_empty() {
            true => self.share_of(self.lanes[lane].kin, room),
            false => shares.min().unwrap_or(room),
        }
    }

    /// Returns the share of `room` for one of those that fail together.
    fn share_of(&self, kin: u64, room: Bytes) -> Bytes {
        let pinned = (kin & self.pinned_lanes()).count_ones();
        let kin = (kin.count_ones() - pinned).max(1);
        let most = self.crowd_max().saturating_sub(pinned);
        let share = room.get() / u64::from(kin) * u64::from(most.min(kin));
        if kin <= most { room } else { Bytes::new(share) }
    }
}
