//! Choice of the fragment that goes on from one depot to another nearer to the destination.
//!
//! The paper's Push (`offload-ics08`, section 3.3): nodes of one level send on to those of the
//! next, so that data flows towards the puller. Here one chunk is considered at a time. Every
//! fragment shall lie once at a nearer level, the rarest first, and no depot gets a second fragment
//! of the chunk. [The algorithm](../../../docs/algorithms/push.md).

use alloc::vec::Vec;

/// State of a depot with respect to one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stand {
    /// Hops from the centre, from 1.
    pub level: u8,
    /// Fragment that lies there, digest verified, and counts.
    pub holds: Option<u8>,
    /// Fragment that another depot is sending there.
    pub awaits: Option<u8>,
    /// Fragment on its way there from the centre.
    pub arrives: Option<u8>,
    /// The depot can send its fragment now.
    pub gives: bool,
    /// The rules allow the depot a fragment of this chunk: it has none, and its failure domains are
    /// below their limit.
    pub is_free: bool,
    /// The depot is up and has space.
    pub is_open: bool,
}

impl Stand {
    fn has(&self, fragment: u8) -> bool {
        self.holds == Some(fragment) || self.awaits == Some(fragment)
    }
}

/// Path between two places that may carry a fragment, now or after a transfer under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Time until the next fragment would arrive, in microseconds.
    pub micros: u64,
    /// Another transfer may start now.
    pub may_start: bool,
}

/// Next step of a chunk's push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Push {
    /// Send this fragment from one depot to another.
    Go {
        /// Place of the sending depot.
        from: usize,
        /// Place of the receiving depot.
        to: usize,
        /// The fragment.
        fragment: u8,
    },
    /// A fragment could go as soon as a pair of depots may start another transfer.
    Busy,
    /// A fragment could go as soon as a depot is up again or has space.
    Stuck,
    /// Every fragment that can lie nearer does, or is on its way.
    Done,
}

/// Counts the fragments of the chunk that lie beyond the first level or are on their way there.
#[must_use]
pub fn nearer(stands: &[Stand]) -> u32 {
    let first = stands.iter().map(|stand| stand.level).min().unwrap_or(0);
    let beyond = stands.iter().filter(|stand| stand.level > first);
    let has = |stand: &Stand| stand.holds.or(stand.awaits);
    let mask = beyond.filter_map(has).fold(0u64, |mask, fragment| {
        mask | 1u64.unbounded_shl(u32::from(fragment))
    });
    mask.count_ones()
}

/// Returns the next step for a chunk. `room` describes the path between two places; none where
/// nothing may go. The cost is one visit of each pair of depots.
///
/// Among all possible fragments, the one with the fewest holders goes, to the next level rather
/// than beyond. Each uses the pair by which it arrives first: it waits for a busy pair rather than
/// use a free one that would take longer.
#[must_use]
pub fn next(stands: &[Stand], room: impl Fn(usize, usize) -> Option<Room>) -> Push {
    let mut firsts: Vec<First> = Vec::new();
    let mut otherwise = Push::Done;
    for (to, target) in stands.iter().enumerate() {
        if !target.is_free || target.holds.is_some() || target.awaits.is_some() {
            continue;
        }
        for (from, source) in stands.iter().enumerate() {
            let Some(fragment) = source.holds.filter(|_| source.level < target.level) else {
                continue;
            };
            let is_there = |stand: &Stand| stand.level >= target.level && stand.has(fragment);
            if stands.iter().any(is_there) {
                continue;
            }
            if !target.is_open || !source.gives {
                if otherwise == Push::Done {
                    otherwise = Push::Stuck;
                }
                continue;
            }
            otherwise = Push::Busy;
            let Some(room) = room(from, to) else {
                continue;
            };
            let rank = (room.micros, !room.may_start, to, from);
            let target = (fragment, target.level);
            match firsts.iter_mut().find(|first| first.target == target) {
                Some(first) => first.rank = first.rank.min(rank),
                None => firsts.push(First { target, rank }),
            }
        }
    }
    let holders = |fragment| stands.iter().filter(|stand| stand.has(fragment)).count();
    let ready = firsts.iter().filter(|First { rank, .. }| !rank.1);
    let best = ready.min_by_key(|First { target, rank }| (target.1, holders(target.0), *rank));
    best.map_or(otherwise, |first| Push::Go {
        from: first.rank.3,
        to: first.rank.2,
        fragment: first.target.0,
    })
}

/// Pair of depots by which a fragment reaches a level first.
struct First {
    /// Fragment and level.
    target: (u8, u8),
    /// Arrival, whether the fragment has to wait for the pair, and the places of receiver and
    /// sender.
    rank: (u64, bool, usize, usize),
}

/// A fragment that goes on while it still arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Follow {
    /// Place of the depot that receives it from the centre and sends it on.
    pub from: usize,
    /// Place of the depot that receives it from there.
    pub to: usize,
    /// The fragment.
    pub fragment: u8,
}

/// Returns a fragment that may go on while it still arrives: one that lies nowhere yet and gets
/// nearer in no other way.
///
/// `is_idle` returns whether nothing is under way between two places, nothing that lies at the
/// sender could go, and the sender supports this. The cost is one visit of each pair of depots.
#[must_use]
pub fn follow(stands: &[Stand], is_idle: impl Fn(usize, usize) -> bool) -> Option<Follow> {
    let mut best = None;
    for (to, target) in stands.iter().enumerate() {
        let is_taken = target.holds.or(target.awaits).or(target.arrives).is_some();
        if is_taken || !target.is_free || !target.is_open {
            continue;
        }
        for (from, source) in stands.iter().enumerate() {
            let Some(fragment) = source.arrives.filter(|_| source.level < target.level) else {
                continue;
            };
            let has = |stand: &Stand| {
                let is_near = stand.level >= target.level && stand.arrives == Some(fragment);
                stand.has(fragment) || is_near
            };
            if !source.gives || stands.iter().any(has) || !is_idle(from, to) {
                continue;
            }
            let rank = (target.level, to, from);
            if best.is_none_or(|(least, _)| rank < least) {
                best = Some((rank, Follow { from, to, fragment }));
            }
        }
    }
    best.map(|(_, follow)| follow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    const FREE: Option<Room> = room(0, true);

    const fn room(micros: u64, may_start: bool) -> Option<Room> {
        Some(Room { micros, may_start })
    }

    fn holder(level: u8, fragment: u8) -> Stand {
        Stand {
            level,
            holds: Some(fragment),
            gives: true,
            ..Stand::default()
        }
    }

    fn empty(level: u8) -> Stand {
        Stand {
            level,
            is_free: true,
            is_open: true,
            ..Stand::default()
        }
    }

    #[test]
    fn a_fragment_goes_to_the_next_level_once() {
        let mut stands = [holder(1, 0), empty(2), empty(2), empty(3)];
        let idle = |_: usize, _: usize| FREE;
        let to_second = Push::Go {
            from: 0,
            to: 1,
            fragment: 0,
        };
        assert_eq!(next(&stands, idle), to_second);
        stands[1].awaits = Some(0);
        assert_eq!(nearer(&stands), 1);
        let to_third = Push::Go {
            from: 0,
            to: 3,
            fragment: 0,
        };
        assert_eq!(next(&stands, idle), to_third, "no second copy at level 2");
        stands[3].awaits = Some(0);
        assert_eq!(next(&stands, idle), Push::Done);
    }

    #[test]
    fn the_rarest_goes_first_over_the_pair_by_which_it_is_there_first() {
        let stands = [holder(1, 0), holder(1, 0), holder(1, 1), empty(2), empty(2)];
        let load = |_: usize, to: usize| room(if to == 3 { 2 } else { 1 }, true);
        let push = Push::Go {
            from: 2,
            to: 4,
            fragment: 1,
        };
        assert_eq!(next(&stands, load), push);
    }

    #[test]
    fn what_can_not_go_says_what_it_waits_for() {
        let mut stands = [holder(1, 0), empty(2)];
        assert_eq!(next(&stands, |_, _| None), Push::Busy);
        stands[1].is_open = false;
        assert_eq!(next(&stands, |_, _| FREE), Push::Stuck);
        stands[1].is_free = false;
        assert_eq!(next(&stands, |_, _| FREE), Push::Done);
    }

    #[test]
    fn a_fragment_waits_for_a_busy_pair_only_where_another_takes_longer() {
        let stands = [holder(1, 0), holder(1, 0), empty(2)];
        let way = |busy: u64, idle: u64| {
            move |from: usize, _: usize| match from {
                0 => room(busy, false),
                _ => room(idle, true),
            }
        };
        assert_eq!(next(&stands, way(3, 4)), Push::Busy);
        let other = Push::Go {
            from: 1,
            to: 2,
            fragment: 0,
        };
        assert_eq!(next(&stands, way(3, 3)), other);
        // A waiting fragment delays no other fragment that may go further.
        let two = [holder(1, 0), holder(1, 1), empty(2)];
        let go = next(&two, way(3, 4));
        assert!(matches!(
            go,
            Push::Go {
                from: 1,
                fragment: 1,
                ..
            }
        ));
        let further = [holder(1, 0), holder(1, 0), empty(2), empty(3)];
        let go = next(&further, |from, to| {
            room(if from == 0 { 1 } else { 5 }, from == 0 && to == 3)
        });
        assert!(matches!(go, Push::Go { from: 0, to: 3, .. }));
    }

    #[test]
    fn what_still_arrives_goes_on_once_where_nothing_else_does() {
        let coming = |level, fragment| Stand {
            level,
            arrives: Some(fragment),
            gives: true,
            ..Stand::default()
        };
        let mut stands = [coming(1, 0), coming(1, 1), empty(2), empty(3)];
        let way = |from, to, fragment| Some(Follow { from, to, fragment });
        assert_eq!(follow(&stands, |_, _| true), way(0, 2, 0));
        assert_eq!(follow(&stands, |from, _| from == 1), way(1, 2, 1));
        assert_eq!(follow(&stands, |_, _| false), None);
        stands[2].awaits = Some(0);
        // A fragment that already goes on takes no second path; the other one may.
        assert_eq!(follow(&stands, |_, _| true), way(1, 3, 1));
        stands[1].gives = false;
        assert_eq!(follow(&stands, |_, _| true), None);
        // Nothing follows a fragment that lies there: it is pushed.
        let stands = [coming(1, 0), holder(1, 0), empty(2)];
        assert_eq!(follow(&stands, |_, _| true), None);
        // Nothing follows where the centre itself sends.
        let stands = [coming(1, 0), coming(2, 0), empty(2)];
        assert_eq!(follow(&stands, |_, _| true), None);
    }

    fn stands() -> impl Strategy<Value = Vec<Stand>> {
        let stand = (1u8..4, proptest::option::of(0u8..4), any::<[bool; 3]>());
        let stand = stand.prop_map(|(level, holds, [gives, is_free, is_open])| Stand {
            level,
            holds,
            awaits: None,
            arrives: None,
            gives,
            is_free: is_free && holds.is_none(),
            is_open,
        });
        proptest::collection::vec(stand, 0..8)
    }

    proptest! {
        #[test]
        fn following_ends_with_each_fragment_nearer_once(
            mut stands in stands(),
            coming in proptest::collection::vec(proptest::option::of(0u8..4), 8),
        ) {
            for (stand, fragment) in stands.iter_mut().zip(coming) {
                stand.arrives = fragment.filter(|_| stand.holds.is_none());
            }
            for _ in 0..=stands.len() {
                let Some(Follow { from, to, fragment }) = follow(&stands, |_, _| true) else {
                    return Ok(());
                };
                let (source, target) = (stands[from], stands[to]);
                prop_assert!(source.level < target.level && source.gives);
                prop_assert_eq!(source.arrives, Some(fragment));
                prop_assert!(target.is_open && target.is_free && target.holds.is_none());
                prop_assert!(target.awaits.is_none() && target.arrives.is_none());
                prop_assert!(stands.iter().all(|stand| !stand.has(fragment)));
                stands[to].awaits = Some(fragment);
            }
            prop_assert!(false, "it does not end");
        }

        #[test]
        fn pushing_ends_with_each_level_holding_a_fragment_once_more_at_most(mut stands in stands()) {
            let before: Vec<Stand> = stands.clone();
            let mut steps = 0;
            while let Push::Go { from, to, fragment } = next(&stands, |_, _| FREE) {
                prop_assert!(stands[from].level < stands[to].level);
                prop_assert!(stands[from].gives && stands[from].holds == Some(fragment));
                prop_assert!(stands[to].is_open && stands[to].is_free && stands[to].holds.is_none());
                prop_assert!(stands.iter().all(|stand| stand.level < stands[to].level || !stand.has(fragment)));
                stands[to].holds = Some(fragment);
                stands[to].gives = true;
                stands[to].is_free = false;
                steps += 1;
                prop_assert!(steps <= before.len());
            }
            // No fragment comes from nowhere.
            let known: BTreeSet<u8> = before.iter().filter_map(|stand| stand.holds).collect();
            prop_assert!(stands.iter().filter_map(|stand| stand.holds).all(|held| known.contains(&held)));
        }
    }
}
