//! Failure domains: how many fragments of a chunk depots that fail together may hold among them.
//!
//! The bound is what the parity covers, so that the loss of a whole group loses nothing. It is less
//! if other depots have room (`docs/algorithms/placement.md`). A depot may belong to several groups
//! at once, such as its site and its provider; each of them counts by itself.

use alloc::vec::Vec;

use crate::state::Request;

/// Lanes of a request that fail together, and the most fragments of a chunk for each group.
#[derive(Debug)]
pub(crate) struct Kin {
    /// Mask for each lane of those that fail together with it in any way, itself among them.
    pub(crate) masks: Vec<u64>,
    /// Groups, as masks of lanes; none if no lane is in several: the masks then suffice.
    pub(crate) groups: Vec<u64>,
    /// Lanes that can hold a whole chunk if lanes are in several groups and even shares of those
    /// would not.
    pub(crate) apart: u64,
    pub(crate) most: u32,
    /// Destinations that fail together with no depot and none of each other.
    pub(crate) holders: u64,
}

/// Returns destinations that fail together with no depot and with no earlier one of these.
pub(crate) fn holders(request: &Request, masks: &[u64]) -> u64 {
    let depots = request
        .depot_lanes()
        .fold(0, |all, lane| all | 1u64 << lane);
    request.destinations().fold(0, |holders, lane| {
        let is_apart = masks[lane] & (depots | holders) == 0;
        holders | u64::from(is_apart) << lane
    })
}

/// Returns the least number of fragments of a chunk that a group must take for all to find a place,
/// if groups are disjoint.
pub(crate) fn least_crowding(masks: &[u64], usable: u64, needed: u32) -> u32 {
    let mut groups: Vec<u64> = masks.iter().map(|mask| mask & usable).collect();
    groups.sort_unstable();
    groups.dedup();
    let places = |most: u32| -> u32 {
        let taken = groups.iter().map(|group| group.count_ones().min(most));
        taken.sum()
    };
    (1..=needed)
        .find(|&most| places(most) >= needed)
        .unwrap_or(1)
}

/// Returns whether chunks find all their places if each lane takes as many of them as the others of
/// its fullest group.
pub(crate) fn do_shares_suffice(groups: &[u64], usable: u64, most: u32, needed: u32) -> bool {
    const WHOLE: u32 = 1 << 16;
    let share = |lane: u32| {
        let of = groups.iter().filter(|group| **group >> lane & 1 == 1);
        let size = of.map(|group| (group & usable).count_ones()).max();
        let size = size.unwrap_or(0).max(1);
        most.min(size).saturating_mul(WHOLE).div_ceil(size)
    };
    let lanes = (0..u64::BITS).filter(|&lane| usable >> lane & 1 == 1);
    lanes.map(share).sum::<u32>() >= needed.saturating_mul(WHOLE)
}
