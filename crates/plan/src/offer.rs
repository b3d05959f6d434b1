//! What would make an infeasible proposal feasible. Each offer was tried before it is made.

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, Code};

use crate::{Proposal, Scene, Supply};

/// Something that would make a proposal feasible, all else equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// A later deadline, from now.
    Later(Duration),
    /// Fewer parity fragments.
    LighterCode(Code),
    /// This much rate more, spread evenly over as many further depots as the code has fragments.
    MoreRate(ByteRate),
}

/// Rounds of "if it is done then, is it done then when it is ranked there?".
const LATER_ROUNDS_MAX: u32 = 8;
/// Rates above 2^50 bytes/s are offered by nobody.
const RATE_BITS: u32 = 50;
/// A deadline offered is rounded up to this, so that a person can type it.
const LATER_STEP: Duration = Duration::from_secs(1);

/// Everything that would help `proposal`, cheapest to say first. Empty when nothing would.
#[must_use]
pub fn offers(scene: &Scene, proposal: &Proposal) -> Vec<Offer> {
    let mut offers = Vec::new();
    offers.extend(later(scene, proposal).map(Offer::Later));
    offers.extend(lighter_code(scene, proposal).map(Offer::LighterCode));
    offers.extend(more_rate(scene, proposal).map(Offer::MoreRate));
    offers
}

/// The earliest deadline the proposal would keep without breaking a promise, as far as a few
/// rounds find it: a later deadline ranks later, so its finish is tried until it holds.
pub(crate) fn later(scene: &Scene, proposal: &Proposal) -> Option<Duration> {
    let mut asked = proposal.clone();
    let last = scene
        .promises
        .iter()
        .map(|promise| promise.deadline)
        .max()
        .unwrap_or_default();
    for round in 0..LATER_ROUNDS_MAX {
        let fit = scene.fit(&asked, &asked.candidates);
        if fit.holds_by(asked.deadline) && asked.deadline > proposal.deadline {
            return Some(asked.deadline);
        }
        let finish = round_up(fit.finish?);
        // Ranked before a promise it breaks, it must go behind that promise.
        let behind = if fit.harmless {
            finish
        } else {
            finish.max(next_promise(scene, &asked))
        };
        let next = behind.max(asked.deadline + LATER_STEP);
        asked.deadline = if round + 2 == LATER_ROUNDS_MAX {
            next.max(last)
        } else {
            next
        };
    }
    None
}

/// The first promised deadline after the proposal's own, or its own.
fn next_promise(scene: &Scene, proposal: &Proposal) -> Duration {
    scene
        .promises
        .iter()
        .map(|promise| promise.deadline)
        .find(|&deadline| deadline > proposal.deadline)
        .unwrap_or(proposal.deadline)
}

fn round_up(span: Duration) -> Duration {
    let step = LATER_STEP.as_micros();
    let micros = span.as_micros().div_ceil(step) * step;
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

fn lighter_code(scene: &Scene, proposal: &Proposal) -> Option<Code> {
    (0..proposal.code.parity()).rev().find_map(|parity| {
        let code = Code::new(proposal.code.data(), parity).ok()?;
        let lighter = Proposal {
            code,
            ..proposal.clone()
        };
        let fit = scene.fit(&lighter, &lighter.candidates);
        fit.holds_by(proposal.deadline).then_some(code)
    })
}

fn more_rate(scene: &Scene, proposal: &Proposal) -> Option<ByteRate> {
    let enough = |rate: u64| {
        let (scene, proposal) = with_more_rate(scene, proposal, ByteRate::new(rate));
        scene
            .fit(&proposal, &proposal.candidates)
            .holds_by(proposal.deadline)
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

/// The scene and the proposal with the offer taken.
pub(crate) fn with_more_rate(
    scene: &Scene,
    proposal: &Proposal,
    rate: ByteRate,
) -> (Scene, Proposal) {
    let (mut scene, mut proposal) = (scene.clone(), proposal.clone());
    let depots = u64::from(proposal.code.total());
    for _ in 0..depots {
        proposal.candidates.push(scene.supplies.len());
        scene.supplies.push(Supply {
            rate: ByteRate::new(rate.get().div_ceil(depots)),
            space: Bytes::new(u64::MAX >> 8),
        });
    }
    (scene, proposal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lane, Load, Promise};
    use proptest::prelude::*;

    fn scene(rates: &[u64], promises: Vec<Promise>) -> Scene {
        let supply = |&rate| Supply {
            rate: ByteRate::new(rate),
            space: Bytes::new(1 << 50),
        };
        Scene {
            supplies: rates.iter().map(supply).collect(),
            promises,
            egress: None,
        }
    }

    fn promise(bytes: u64, depots: usize, deadline_s: u64) -> Promise {
        let room = Bytes::new(bytes);
        let lanes = (0..depots).map(|supply| Lane { supply, room }).collect();
        Promise {
            load: Load { bytes: room, lanes },
            deadline: Duration::from_secs(deadline_s),
        }
    }

    fn proposal(bytes: u64, code: &str, deadline_s: u64, depots: usize) -> Proposal {
        Proposal {
            bytes: Bytes::new(bytes),
            chunk_size: Bytes::new(1000),
            code: code.parse().unwrap(),
            deadline: Duration::from_secs(deadline_s),
            candidates: (0..depots).collect(),
        }
    }

    #[test]
    fn an_infeasible_deadline_is_answered_with_what_would_buy_it() {
        // 2+1 of 20 000 bytes on three depots at 100 B/s each: 10 000 a depot, 100 s.
        let offers = offers(
            &scene(&[100; 3], Vec::new()),
            &proposal(20_000, "2+1", 80, 3),
        );
        assert_eq!(offers[0], Offer::Later(Duration::from_secs(100)));
        assert_eq!(offers[1], Offer::LighterCode("2+0".parse().unwrap()));
        assert!(
            matches!(offers[2], Offer::MoreRate(rate) if rate.get() > 50),
            "{offers:?}"
        );
    }

    #[test]
    fn without_any_depot_only_rate_helps() {
        let offers = offers(&scene(&[], Vec::new()), &proposal(10_000, "1+0", 10, 0));
        assert_eq!(offers, [Offer::MoreRate(ByteRate::new(1000))]);
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
            let mut promises: Vec<Promise> =
                promised.iter().map(|&(bytes, by)| promise(bytes, rates.len(), by)).collect();
            promises.sort_by_key(|promise| promise.deadline);
            let scene = scene(&rates, promises);
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
                let fit = scene.fit(&taken, &taken.candidates);
                prop_assert!(fit.holds_by(taken.deadline), "{offer:?}: {fit:?}");
            }
        }
    }
}
