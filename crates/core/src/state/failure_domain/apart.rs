//! Places for fragments if a depot may belong to several failure domains.
//!
//! If domains are disjoint, any order fills as many places as there are. If they overlap, one depot
//! may block two that block only it. Finding the most places is then a hard problem (the largest
//! independent set, if each domain takes one). So the search has a bounded effort, the depots that
//! block the fewest first.

/// Most choices that are taken back.
const EFFORT_MAX: u32 = 64;

/// Returns lanes among `free` that may get a fragment each, with those `taken`, so that no group
/// gets more than `most`. It returns as many as are wanted, or as are found: with bounded effort,
/// overlapping groups may have more.
pub(crate) fn apart(groups: &[u64], taken: u64, free: u64, most: u32, wanted: u32) -> u64 {
    let mut search = Search {
        groups,
        most,
        effort: EFFORT_MAX,
    };
    search.dive(taken, free & !taken, wanted)
}

/// Returns the most of `lanes` that lie in one group of the lane.
pub(crate) fn together(groups: &[u64], lane: usize, lanes: u64) -> u32 {
    let all = groups.iter().filter(|group| **group >> lane & 1 == 1);
    let counts = all.map(|group| (group & lanes).count_ones());
    counts.max().unwrap_or((lanes >> lane & 1) as u32)
}

struct Search<'a> {
    groups: &'a [u64],
    most: u32,
    effort: u32,
}

impl Search<'_> {
    fn dive(&mut self, taken: u64, free: u64, wanted: u32) -> u64 {
        let full = self.union(|group| (group & taken).count_ones() >= self.most);
        let free = free & !full;
        if wanted == 0 || free == 0 {
            return 0;
        }
        let most = self.most;
        let binds = move |group: u64| (group & (taken | free)).count_ones() > most;
        let loose = first(free & !self.union(binds), wanted);
        if loose != 0 {
            let rest = wanted - loose.count_ones();
            return loose | self.dive(taken | loose, free & !loose, rest);
        }
        let blocked = |lane: u32| {
            let binding = self.union(|group| group >> lane & 1 == 1 && binds(group));
            (binding & free).count_ones()
        };
        let lanes = (0..u64::BITS).filter(|&lane| free >> lane & 1 == 1);
        let Some(lane) = lanes.min_by_key(|&lane| (blocked(lane), lane)) else {
            return 0;
        };
        let bit = 1u64 << lane;
        let with = bit | self.dive(taken | bit, free & !bit, wanted - 1);
        let bound = wanted.min(free.count_ones());
        if with.count_ones() >= bound || self.effort == 0 {
            return with;
        }
        self.effort -= 1;
        let without = self.dive(taken, free & !bit, wanted);
        match without.count_ones() > with.count_ones() {
            true => without,
            false => with,
        }
    }

    /// Returns the lanes of all groups of that kind.
    fn union(&self, is_such: impl Fn(u64) -> bool) -> u64 {
        let such = self.groups.iter().filter(|group| is_such(**group));
        such.fold(0, |mask, group| mask | group)
    }
}

/// Returns the first so many lanes of a mask.
fn first(lanes: u64, count: u32) -> u64 {
    let all = (0..u64::BITS).filter(|&lane| lanes >> lane & 1 == 1);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    all.take(count).fold(0, |mask, lane| mask | 1 << lane)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn a_depot_that_blocks_two_is_left_out() {
        // Lane 0 shares its site with lane 1 and its provider with lane 2.
        let groups = [0b011, 0b101];
        assert_eq!(apart(&groups, 0, 0b111, 1, 3), 0b110);
        assert_eq!(apart(&groups, 0b001, 0b111, 1, 3), 0);
        assert_eq!(apart(&groups, 0, 0b111, 2, 3), 0b111);
        assert_eq!(apart(&groups, 0, 0b111, 1, 1).count_ones(), 1);
        assert_eq!(
            (together(&groups, 0, 0b110), together(&groups, 1, 0b110)),
            (1, 1)
        );
        assert_eq!(
            (together(&groups, 3, 0b111), together(&groups, 3, 0b1111)),
            (0, 1)
        );
    }

    /// Searches every set of lanes, as the oracle.
    fn exact(groups: &[u64], lanes: u32, most: u32) -> u32 {
        let fits = |set: &u64| {
            groups
                .iter()
                .all(|group| (group & set).count_ones() <= most)
        };
        let sets = (0..1u64 << lanes).filter(fits).map(u64::count_ones);
        sets.max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn it_finds_the_most_places_of_few_depots(
            names in proptest::collection::vec((0u32..3, 0u32..3), 1..9), most in 1u32..4,
        ) {
            let member = |of: &dyn Fn(&(u32, u32)) -> bool| {
                let lanes = names.iter().enumerate().filter(|(_, at)| of(at));
                lanes.fold(0u64, |mask, (lane, _)| mask | 1 << lane)
            };
            let sites = (0..3).map(|name| member(&|at| at.0 == name));
            let groups: Vec<u64> = sites.chain((0..3).map(|name| member(&|at| at.1 == name))).collect();
            let lanes = u32::try_from(names.len()).unwrap();
            let found = apart(&groups, 0, (1 << lanes) - 1, most, 64);
            prop_assert!(groups.iter().all(|group| (group & found).count_ones() <= most));
            prop_assert_eq!(found.count_ones(), exact(&groups, lanes, most));
        }
    }
}
