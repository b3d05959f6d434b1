//! Number of depots fed at once (offload-ics08 section 3).

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_types::{Timestamp, record};

use crate::{Proposal, Scene};

/// Returns the smallest prefix of the proposal's candidates, best first, that finishes by `by`, and
/// its finish.
///
/// No depot is needed if the destination is fast enough; otherwise at least as many as the code has
/// fragments. Returns all candidates if none suffice.
#[must_use]
pub fn choose(
    scene: &Scene,
    proposal: &Proposal,
    by: Timestamp,
) -> (Vec<usize>, Option<Timestamp>) {
    let all = proposal.candidates.len();
    let least = proposal.least();
    let alone = proposal.destination.filter(|_| proposal.pinned == 0);
    let alone = alone.map(|_| 0);
    alone
        .into_iter()
        .chain(least.min(all)..all)
        .map(|count| &proposal.candidates[..count])
        .map(|chosen| (chosen.to_vec(), scene.finish(proposal, chosen)))
        .find(|(_, finish)| finish.is_some_and(|finish| finish <= by))
        .unwrap_or_else(|| {
            // Fewer depots than the code needs are as good as none.
            let all = if all < least { 0 } else { all };
            let all = proposal.candidates[..all].to_vec();
            // Pinned depots are needed whatever else there is.
            let is_short = all.is_empty() && proposal.pinned > 0;
            let finish = scene.finish(proposal, &all).filter(|_| !is_short);
            (all, finish)
        })
}

record! {
    /// Number of ticks for which a request has been behind or far ahead.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Pace {
        behind: u32,
        ahead: u32,
    }
}

/// Change to the fan-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// No change.
    Keep,
    /// Feed one more.
    Add,
    /// Feed one fewer.
    Drop,
}

/// Counts a tick and returns the change to the fan-out.
///
/// `left` is the time until the deadline less the margin; `finish` is the time the request still
/// takes on its depots (none for never). Adds a depot after `behind_ticks` in a row with `need >
/// have * 0.95`; drops one after `ahead_ticks` in a row with `need < have * 0.5`.
///
/// With need = remaining/left and have = remaining/finish the two tests are tests on times.
#[must_use]
pub fn review(
    pace: &mut Pace,
    finish: Option<Duration>,
    left: Duration,
    behind_ticks: u32,
    ahead_ticks: u32,
) -> Change {
    let finish = finish.unwrap_or(Duration::MAX);
    let is_behind = finish > left / 20 * 19;
    let is_ahead = finish < left / 2;
    pace.behind = if is_behind { pace.behind + 1 } else { 0 };
    pace.ahead = if is_ahead { pace.ahead + 1 } else { 0 };
    if pace.behind >= behind_ticks {
        pace.behind = 0;
        Change::Add
    } else if pace.ahead >= ahead_ticks {
        pace.ahead = 0;
        Change::Drop
    } else {
        Change::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Curve, Supplies, Supply};
    use posthaste_types::{ByteRate, Bytes};

    fn scene(rates: &[u64]) -> Scene {
        let supply = |&rate| Supply::new(Curve::constant(ByteRate::new(rate)), Bytes::new(1 << 40));
        Scene {
            now: Timestamp::default(),
            supplies: Supplies {
                depots: rates.iter().map(supply).collect(),
                way_out: None,
                pace: None,
            },
        }
    }

    fn proposal(deadline_s: u64) -> Proposal {
        Proposal {
            bytes: Bytes::new(10_000),
            chunk_size: Bytes::new(100),
            code: "1+1".parse().unwrap(),
            deadline: Timestamp::from_secs(deadline_s),
            candidates: alloc::vec![0, 1, 2, 3],
            destination: None,
            rate_max: None,
            pinned: 0,
            shut: Vec::new(),
        }
    }

    #[test]
    fn as_few_depots_as_the_deadline_needs_are_fed() {
        let scene = scene(&[100; 4]);
        for (deadline_s, fan_out) in [(200, 2), (101, 2), (99, 3), (60, 4), (10, 4)] {
            let by = Timestamp::from_secs(deadline_s);
            let (chosen, _) = choose(&scene, &proposal(deadline_s), by);
            assert_eq!(chosen.len(), fan_out, "deadline {deadline_s} s");
        }
    }

    /// Checks that no subset smaller than the chosen one keeps the deadline. Rates are sorted, so
    /// the best of each size is a prefix; the oracle tries all subsets.
    #[test]
    fn no_smaller_set_of_depots_would_do() {
        let rates = [90, 70, 40, 10];
        let scene = scene(&rates);
        for deadline_s in 1..400 {
            let proposal = proposal(deadline_s);
            let (chosen, finish) = choose(&scene, &proposal, proposal.deadline);
            if finish.is_none_or(|finish| finish > proposal.deadline) {
                continue;
            }
            for subset in 1u32..16 {
                let depots: Vec<usize> = (0..4).filter(|depot| subset >> depot & 1 == 1).collect();
                let holds = scene.holds(&proposal, &depots, proposal.deadline);
                assert!(
                    !holds || depots.len() >= chosen.len(),
                    "{deadline_s} s: {depots:?}"
                );
            }
        }
    }

    #[test]
    fn a_depot_is_added_after_two_ticks_behind_and_dropped_after_twelve_far_ahead() {
        let (left, mut pace) = (Duration::from_secs(100), Pace::default());
        let mut tick = |finish_s| {
            let finish = Some(Duration::from_secs(finish_s));
            review(&mut pace, finish, left, 2, 12)
        };
        assert_eq!(tick(96), Change::Keep);
        assert_eq!(tick(96), Change::Add);
        assert_eq!(tick(96), Change::Keep);
        assert_eq!(tick(60), Change::Keep);
        assert_eq!(tick(96), Change::Keep);
        for _ in 0..11 {
            assert_eq!(tick(49), Change::Keep);
        }
        assert_eq!(tick(49), Change::Drop);
    }
}
