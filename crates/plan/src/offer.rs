//! Changes that make an infeasible proposal feasible. Each offer was tried before it is made.

use alloc::vec::Vec;
use posthaste_types::{ByteRate, Bytes, Code, Timestamp};

use crate::{Curve, Proposal, Scene, Supply};

/// A change that makes a proposal feasible, all else equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// A later deadline.
    Later(Timestamp),
    /// Fewer parity fragments.
    LighterCode(Code),
    /// Additional rate, spread evenly over as many further depots as the code has fragments.
    MoreRate(ByteRate),
}

/// Binary digits of the highest rate to offer: nobody offers more than 2^50 bytes/s.
const RATE_BITS: u32 = 50;
/// Offered deadlines are rounded up to this, so that a person can type them.
const LATER_STEP_MICROS: u64 = 1_000_000;

/// Returns every offer for `proposal`, simplest first; empty if nothing helps.
#[must_use]
pub fn offers(scene: &Scene, proposal: &Proposal) -> Vec<Offer> {
    let mut offers = Vec::new();
    offers.extend(later(scene, proposal).map(Offer::Later));
    offers.extend(lighter_code(scene, proposal).map(Offer::LighterCode));
    offers.extend(more_rate(scene, proposal).map(Offer::MoreRate));
    offers
}

/// Returns the earliest deadline that the proposal would keep without breaking a promise.
fn later(scene: &Scene, proposal: &Proposal) -> Option<Timestamp> {
    let finish = scene.finish(proposal, &proposal.candidates)?;
    let steps = finish.as_micros().div_ceil(LATER_STEP_MICROS);
    let deadline = Timestamp::from_micros(steps.saturating_mul(LATER_STEP_MICROS));
    (deadline > proposal.deadline).then_some(deadline)
}

fn lighter_code(scene: &Scene, proposal: &Proposal) -> Option<Code> {
    (0..proposal.code.parity()).rev().find_map(|parity| {
        let code = Code::new(proposal.code.data(), parity).ok()?;
        let lighter = Proposal {
            code,
            ..proposal.clone()
        };
        scene
            .holds(&lighter, &lighter.candidates, proposal.deadline)
            .then_some(code)
    })
}

fn more_rate(scene: &Scene, proposal: &Proposal) -> Option<ByteRate> {
    let enough = |rate: u64| {
        let (scene, proposal) = with_more_rate(scene, proposal, ByteRate::new(rate));
        scene.holds(&proposal, &proposal.candidates, proposal.deadline)
    };
    let (mut low, mut high) = (1u64, 1u64 << RATE_BITS);
    if !enough(high) {
        return None;
    }
    while low < high {
        let middle = u64::midpoint(low, high);
        if enough(middle) {
            high = middle
        } else {
            low = middle + 1
        }
    }
    Some(ByteRate::new(low))
}

/// Returns the scene and the proposal with the offer accepted.
pub(crate) fn with_more_rate(
    scene: &Scene,
    proposal: &Proposal,
    rate: ByteRate,
) -> (Scene, Proposal) {
    let (mut scene, mut proposal) = (scene.clone(), proposal.clone());
    let depots = u64::from(proposal.code.total());
    for _ in 0..depots {
        proposal.candidates.push(scene.supplies.depots.len());
        let curve = Curve::constant(ByteRate::new(rate.get().div_ceil(depots)));
        let space = Bytes::new(u64::MAX >> 8);
        scene.supplies.depots.push(Supply::new(curve, space));
    }
    (scene, proposal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lane, Load, Supplies};
    use core::time::Duration;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_secs(1000);

    fn scene(rates: &[u64]) -> Scene {
        let supply = |&rate| Supply::new(Curve::constant(ByteRate::new(rate)), Bytes::new(1 << 50));
        Scene {
            now: NOW,
            supplies: Supplies {
                depots: rates.iter().map(supply).collect(),
                way_out: None,
                pace: None,
            },
        }
    }

    fn promise(scene: &mut Scene, bytes: u64, deadline_s: u64) {
        let room = Bytes::new(bytes);
        let depots = scene.supplies.depots.len();
        let lanes = (0..depots)
            .map(|supply| Lane {
                supply,
                room,
                quota: Lane::NO_QUOTA,
                piece: Bytes::ZERO,
                is_pinned: false,
            })
            .collect();
        scene.promise(
            &Load {
                bytes: room,
                lanes,
                whole: None,
                rate_max: None,
                shut: Vec::new(),
            },
            by(deadline_s),
        );
    }

    fn by(secs: u64) -> Timestamp {
        NOW + Duration::from_secs(secs)
    }

    fn proposal(bytes: u64, code: &str, deadline_s: u64, depots: usize) -> Proposal {
        Proposal {
            bytes: Bytes::new(bytes),
            chunk_size: Bytes::new(1000),
            code: code.parse().unwrap(),
            deadline: by(deadline_s),
            candidates: (0..depots).collect(),
            destination: None,
            rate_max: None,
            pinned: 0,
            shut: Vec::new(),
        }
    }

    #[test]
    fn an_infeasible_deadline_is_answered_with_what_would_buy_it() {
        // 2+1 of 20 000 bytes on three depots at 100 B/s each: 10 000 a depot, 100 s.
        let offers = offers(&scene(&[100; 3]), &proposal(20_000, "2+1", 80, 3));
        assert_eq!(offers[0], Offer::Later(by(100)));
        assert_eq!(offers[1], Offer::LighterCode("2+0".parse().unwrap()));
        assert!(
            matches!(offers[2], Offer::MoreRate(rate) if rate.get() > 50),
            "{offers:?}"
        );
    }

    #[test]
    fn without_any_depot_only_rate_helps() {
        let offers = offers(&scene(&[]), &proposal(10_000, "1+0", 10, 0));
        assert_eq!(offers, [Offer::MoreRate(ByteRate::new(1000))]);
    }

    #[test]
    fn a_promise_far_off_is_in_nobodys_way() {
        let mut scene = scene(&[100]);
        promise(&mut scene, 5000, 100);
        assert_eq!(
            scene.finish(&proposal(5000, "1+0", 50, 1), &[0]),
            Some(by(50))
        );
        assert_eq!(
            scene.finish(&proposal(6000, "1+0", 50, 1), &[0]),
            Some(by(110))
        );
    }

    proptest! {
        #[test]
        fn every_offer_is_true_when_taken(
            rates in proptest::collection::vec(1u64..2000, 1..6),
            promised in proptest::collection::vec((1u64..50_000, 1u64..200), 0..4),
            bytes in 1u64..100_000,
            data in 1u8..4, parity in 0u8..3,
            deadline_s in 1u64..100,
        ) {
            let mut scene = scene(&rates);
            for (bytes, by) in promised {
                promise(&mut scene, bytes, by);
            }
            let code = alloc::format!("{data}+{parity}");
            let asked = proposal(bytes, &code, deadline_s, rates.len());
            for offer in offers(&scene, &asked) {
                let (scene, taken) = match offer {
                    Offer::Later(deadline) => {
                        prop_assert!(deadline > asked.deadline);
                        (scene.clone(), Proposal { deadline, ..asked.clone() })
                    }
                    Offer::LighterCode(code) => (scene.clone(), Proposal { code, ..asked.clone() }),
                    Offer::MoreRate(rate) => with_more_rate(&scene, &asked, rate),
                };
                let finish = scene.finish(&taken, &taken.candidates);
                prop_assert!(finish.is_some_and(|finish| finish <= taken.deadline),
                    "{offer:?}: {finish:?}");
            }
        }
    }
}
