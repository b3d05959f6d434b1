//! Failure domains: how many fragments of a chunk depots that fail together may hold among them.
//!
//! The bound is what the parity covers, so that the loss of a whole group loses nothing. It is less
//! if other depots have room (`docs/algorithms/placement.md`). A depot may belong to several groups
//! at once, such as its site and its provider; each of them counts by itself.

pub(crate) mod apart;

use alloc::{collections::BTreeMap, vec::Vec};
use posthaste_types::DepotId;

use crate::{
    state,
    state::failure_domain::apart::{apart, together},
    state::{Request, State},
};

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

/// Returns which depots of the request fail together.
pub(crate) fn kin(state: &State, request: &Request) -> Kin {
    let groups = groups(state, request);
    let lanes = 0..request.lanes.len();
    let of = |lane: usize| groups.iter().filter(move |group| **group >> lane & 1 == 1);
    let masks = lanes.clone().map(|lane| {
        let kin = of(lane).fold(0, |mask, group| mask | group);
        kin | 1 << lane
    });
    let masks: Vec<u64> = masks.collect();
    let overlap = lanes.clone().any(|lane| of(lane).count() > 1);
    let groups = if overlap { groups } else { Vec::new() };
    let pinned = request.pinned_lanes();
    let together = lanes.map(|lane| match overlap {
        true => together(&groups, lane, pinned),
        false => (masks[lane] & pinned).count_ones(),
    });
    let together = together.max().unwrap_or(0);
    let covered = u32::from(request.code_now().parity());
    let needed = u32::from(request.code_now().total());
    let usable = usable(state, request);
    let holders = holders(request, &masks);
    let stands_in = stand_in(state, request, usable.count_ones(), holders);
    let usable = stands_in.map_or(usable, |lane| usable | 1 << lane);
    // Pinned depots get their fragments whatever that leaves to the others.
    let places = |most: u32| {
        let others = needed.saturating_sub(pinned.count_ones());
        pinned | apart(&groups, pinned, usable & !pinned, most, others)
    };
    let least = match overlap {
        true => (1..=needed)
            .find(|&most| places(most).count_ones() >= needed)
            .unwrap_or(1),
        false => least_crowding(&masks, usable, needed),
    };
    let most = least.max(covered).max(together);
    let apart = match overlap && !do_shares_suffice(&groups, usable, most, needed) {
        true => places(most),
        false => 0,
    };
    Kin {
        masks,
        groups,
        apart,
        most,
        holders,
    }
}

/// Returns the destination that counts as a holder of every chunk, if one depot is lacking and
/// some loss must be survived.
fn stand_in(state: &State, request: &Request, depots: u32, holders: u64) -> Option<usize> {
    let is_one_short = depots + 1 == u32::from(request.code_now().total());
    // A budget counts fragments.
    let may = is_one_short && !request.is_safe_whole() && request.wishes.budget_micro_usd.is_none();
    let lead = request.lead().filter(|_| may);
    lead.filter(|&lane| holders >> lane & 1 == 1 && state::usable::may_use(state, request, lane))
}

/// Returns that destination for a request whose failure domains are known.
pub(crate) fn stands_in(state: &State, request: &Request, depots: usize) -> Option<usize> {
    let depots = u32::try_from(depots).unwrap_or(u32::MAX / 2);
    stand_in(state, request, depots, request.replica.holders())
}

/// Returns how many can hold something of each chunk with so many depots: one more if a
/// destination stands in.
pub(crate) fn holders_with(state: &State, request: &Request, depots: usize) -> usize {
    depots + usize::from(stands_in(state, request, depots).is_some())
}

/// Returns the lanes that share a name, for each name that several have; equal groups once.
fn groups(state: &State, request: &Request) -> Vec<u64> {
    let mut named: BTreeMap<&str, u64> = BTreeMap::new();
    for (place, lane) in request.lanes.iter().enumerate() {
        let depot = state.depots.get(&lane.depot);
        for name in depot.into_iter().flat_map(|depot| depot.terms.domains()) {
            *named.entry(name).or_default() |= 1 << place;
        }
    }
    let mut groups: Vec<u64> = named
        .into_values()
        .filter(|group| group.count_ones() > 1)
        .collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// Returns the lanes to depots that take fragments or may again, as a mask.
fn usable(state: &State, request: &Request) -> u64 {
    (0..request.lanes.len())
        .filter(|&lane| {
            !request.is_destination(lane) && state::usable::may_use(state, request, lane)
        })
        .fold(0, |mask, lane| mask | 1 << lane)
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
fn least_crowding(masks: &[u64], usable: u64, needed: u32) -> u32 {
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
fn do_shares_suffice(groups: &[u64], usable: u64, most: u32, needed: u32) -> bool {
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

/// Returns whether a depot lies in a store.
pub(crate) fn stores(state: &State, id: DepotId) -> bool {
    state.depots.get(&id).is_some_and(|depot| depot.stores)
}
