//! Choice of the erasure code: the cheapest one that meets the wished durability.
//!
//! Each depot holds at most one fragment of a chunk. So a code `k+m` on n = k + m depots survives
//! the loss of any m of them, and stores n/k bytes for each (Plank and Xu 2006 state this for
//! optimal codes). The chance that more than m are lost is summed exactly over the depots, each
//! with its own chance: a Poisson-binomial distribution, one depot at a time.

use alloc::{vec, vec::Vec};
use posthaste_types::Code;

/// Unit of chances: certainty.
pub const CERTAIN: u64 = 1 << 60;

/// Most data fragments: more save less than a sixteenth of the stored bytes, and each reader needs
/// that many depots at once.
const DATA_MAX: usize = 16;
/// Most parity fragments.
const PARITY_MAX: usize = 16;

/// Losses that the data must survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Loss of any this many depots.
    Losses(usize),
    /// Largest chance of losing the data.
    Chance(u64),
}

/// A depot that could hold fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Chance that it loses its fragment while that is needed.
    pub loss: u64,
    /// Price of storing a gigabyte there, in millionths of a dollar.
    pub micro_usd: u64,
    /// Candidates that share any failure domain with it, as a mask of their places.
    pub kin: u64,
}

/// A code that meets a wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The code.
    pub code: Code,
    /// Candidates on which it meets the wish, for any choice among them.
    pub on: Vec<usize>,
    /// Chance that data is lost on the worst of those.
    pub loss: u64,
}

/// Returns the chance that more than `parity` of depots with these chances are lost
/// independently. It is never too small, apart from roundings of 2^-60.
#[must_use]
pub fn loss(chances: &[u64], parity: usize) -> u64 {
    // kept[j]: the chance that exactly j were lost so far.
    let mut kept = vec![0; parity + 1];
    kept[0] = CERTAIN;
    for &chance in chances {
        let chance = chance.min(CERTAIN);
        let of = |amount: u64, share: u64| {
            let product = u128::from(amount) * u128::from(share);
            u64::try_from(product >> 60).unwrap_or(CERTAIN)
        };
        for lost in (0..=parity).rev() {
            let before = if lost == 0 { 0 } else { kept[lost - 1] };
            kept[lost] = of(kept[lost], CERTAIN - chance) + of(before, chance);
        }
    }
    kept.iter()
        .fold(CERTAIN, |rest, &some| rest.saturating_sub(some))
}

/// Returns every code worth trying, cheapest first: by money, then by bytes stored, then by depots
/// needed. Empty if no code meets the wish on these depots.
#[must_use]
pub fn choices(wish: Wish, candidates: &[Candidate]) -> Vec<Choice> {
    let mut choices: Vec<(u128, Choice)> = (1..=DATA_MAX + PARITY_MAX)
        .filter_map(|total| {
            let choice = match wish {
                Wish::Losses(losses) => for_losses(total, losses, candidates),
                Wish::Chance(most) => for_chance(total, most, candidates),
            }?;
            Some((price(&choice, candidates), choice))
        })
        .collect();
    choices.sort_by(|(price, one), (other_price, other)| {
        let stored = |one: &Code, other: &Code| u32::from(one.total()) * u32::from(other.data());
        let (one, other) = (one.code, other.code);
        price
            .cmp(other_price)
            .then(stored(&one, &other).cmp(&stored(&other, &one)))
            .then(one.total().cmp(&other.total()))
    });
    choices.into_iter().map(|(_, choice)| choice).collect()
}

fn code(total: usize, parity: usize) -> Option<Code> {
    let data = total.checked_sub(parity)?;
    let is_meant = (1..=DATA_MAX).contains(&data) && parity <= PARITY_MAX;
    let (data, parity) = (u8::try_from(data).ok()?, u8::try_from(parity).ok()?);
    is_meant.then(|| Code::new(data, parity).ok())?
}

fn for_losses(total: usize, losses: usize, candidates: &[Candidate]) -> Option<Choice> {
    let code = code(total, losses)?;
    if total > candidates.len() {
        return None;
    }
    let on: Vec<usize> = (0..candidates.len()).collect();
    let loss = loss(&worst(&on, total, candidates), losses);
    Some(Choice { code, on, loss })
}

/// Returns the fewest parity fragments that suffice on the most reliable depots of which no two
/// fail together. Adds all further depots on which they still suffice. Depots with several failure
/// domains are chosen greedily.
fn for_chance(total: usize, most: u64, candidates: &[Candidate]) -> Option<Choice> {
    let mut by_loss: Vec<usize> = (0..candidates.len()).collect();
    by_loss.sort_by_key(|&place| (candidates[place].loss, place));
    let mut apart: Vec<usize> = Vec::new();
    let mut together: Vec<usize> = Vec::new();
    for place in by_loss {
        let is_new = apart
            .iter()
            .all(|&other| candidates[place].kin >> other & 1 == 0);
        if is_new { &mut apart } else { &mut together }.push(place);
    }
    let best = apart.get(..total)?;
    let holds = |on: &[usize], parity: usize| loss(&worst(on, total, candidates), parity) <= most;
    let parity = (0..total.min(PARITY_MAX + 1)).find(|&parity| holds(best, parity))?;
    let code = code(total, parity)?;
    let mut on = best.to_vec();
    for &place in apart[total..].iter().chain(&together) {
        on.push(place);
        if !holds(&on, parity) {
            on.pop();
        }
    }
    let loss = loss(&worst(&on, total, candidates), parity);
    Some(Choice { code, on, loss })
}

/// Returns the chances of the `total` least reliable.
fn worst(on: &[usize], total: usize, candidates: &[Candidate]) -> Vec<u64> {
    let mut chances: Vec<u64> = on.iter().map(|&place| candidates[place].loss).collect();
    chances.sort_unstable_by_key(|&chance| core::cmp::Reverse(chance));
    chances.truncate(total);
    chances
}

/// Returns the price of a gigabyte on the cheapest depots: the prices of one fragment each, over
/// the data fragments. The unit is 1/720720, which every number of data fragments divides.
fn price(choice: &Choice, candidates: &[Candidate]) -> u128 {
    const UNITS: u128 = 720_720;
    let mut prices: Vec<u64> = choice
        .on
        .iter()
        .map(|&place| candidates[place].micro_usd)
        .collect();
    prices.sort_unstable();
    let cheapest = prices.iter().take(usize::from(choice.code.total()));
    let sum: u128 = cheapest.map(|&price| u128::from(price)).sum();
    sum * (UNITS / u128::from(choice.code.data()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, string::String};
    use proptest::prelude::*;

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a chance is at most certain"
    )]
    fn of_certain(chance: f64) -> u64 {
        (chance * CERTAIN as f64) as u64
    }

    fn share(chance: u64) -> f64 {
        chance as f64 / CERTAIN as f64
    }

    fn depots(all: &[(f64, u64, usize)]) -> Vec<Candidate> {
        let kin = |domain: usize| {
            let all = all.iter().enumerate().filter(|(_, one)| one.2 == domain);
            all.fold(0, |mask, (place, _)| mask | 1 << place)
        };
        let one = |&(loss, micro_usd, domain): &(f64, u64, usize)| Candidate {
            loss: of_certain(loss),
            micro_usd,
            kin: kin(domain),
        };
        all.iter().map(one).collect()
    }

    fn alike(count: usize, loss: f64) -> Vec<Candidate> {
        let all: Vec<_> = (0..count).map(|domain| (loss, 0, domain)).collect();
        depots(&all)
    }

    fn codes(wish: Wish, candidates: &[Candidate]) -> Vec<String> {
        let choices = choices(wish, candidates);
        choices
            .iter()
            .map(|choice| format!("{}", choice.code))
            .collect()
    }

    /// Enumerates, as an oracle, every set of depots that may be lost.
    fn by_enumeration(chances: &[f64], parity: usize) -> f64 {
        (0u32..1 << chances.len())
            .filter(|lost| lost.count_ones() as usize > parity)
            .map(|lost| {
                let each = chances.iter().enumerate();
                each.map(|(place, chance)| {
                    if lost >> place & 1 == 1 {
                        *chance
                    } else {
                        1.0 - chance
                    }
                })
                .product::<f64>()
            })
            .sum()
    }

    #[test]
    fn as_many_depots_as_there_are_cost_the_fewest_bytes() {
        assert_eq!(
            codes(Wish::Losses(2), &alike(5, 0.1)),
            ["3+2", "2+2", "1+2"]
        );
        assert_eq!(codes(Wish::Losses(1), &alike(2, 0.1)), ["1+1"]);
        assert_eq!(codes(Wish::Losses(0), &alike(1, 0.1)), ["1+0"]);
        assert!(codes(Wish::Losses(2), &alike(2, 0.1)).is_empty());
        // More than sixteen data fragments save less than they cost readers.
        assert_eq!(codes(Wish::Losses(2), &alike(63, 0.1))[0], "16+2");
    }

    #[test]
    fn replicas_are_chosen_where_they_are_cheaper() {
        let two_free = depots(&[(0.1, 0, 0), (0.1, 0, 1), (0.1, 90_000, 2), (0.1, 90_000, 3)]);
        assert_eq!(codes(Wish::Losses(1), &two_free)[0], "1+1");
        // 1+1 costs 2, 2+1 costs 1.5, 3+1 a third of 30.
        let dear_last = depots(&[(0.1, 10, 0), (0.1, 10, 1), (0.1, 10, 2), (0.1, 100, 3)]);
        assert_eq!(codes(Wish::Losses(1), &dear_last), ["2+1", "1+1", "3+1"]);
    }

    #[test]
    fn a_wished_chance_is_kept_with_the_fewest_bytes() {
        let most = of_certain(1e-4);
        // Among five depots that lose 1 % each, more than two are lost once in 100 000.
        assert_eq!(codes(Wish::Chance(most), &alike(5, 0.01))[0], "3+2");
        let hardly_ever = Wish::Chance(of_certain(1e-12));
        assert!(codes(hardly_ever, &alike(3, 0.01)).is_empty());
        // A depot with frequent losses is left out.
        let mut mixed = alike(6, 0.01);
        mixed[2].loss = of_certain(0.5);
        let choices = choices(Wish::Chance(most), &mixed);
        assert_eq!(
            (format!("{}", choices[0].code), &choices[0].on[..]),
            ("3+2".into(), &[0, 1, 3, 4, 5][..])
        );
        // Two depots that fail together count once.
        let mut sites = alike(5, 0.01);
        (sites[0].kin, sites[1].kin) = (0b11, 0b11);
        assert!(choices_all(&sites, most).iter().all(|total| *total <= 4));
    }

    fn choices_all(candidates: &[Candidate], most: u64) -> Vec<u8> {
        let choices = choices(Wish::Chance(most), candidates);
        choices.iter().map(|choice| choice.code.total()).collect()
    }

    /// Compares with figure 7 of the paper (offload-ics08): of 20 nodes any f fail; the share of
    /// lost stripes of RS(4,6) is exact for f from 0 to 20. With nodes that fail independently it
    /// must be the mean over f.
    #[test]
    fn it_agrees_with_the_papers_figure_of_failures() {
        let choose = |n: u32, k: u32| -> f64 {
            (0..k)
                .map(|i| f64::from(n - i) / f64::from(i + 1))
                .product()
        };
        // A stripe on 10 of 20 nodes is lost when 7 or more of those are among the f.
        let lost_of = |f: u32| -> f64 {
            (7..=10.min(f))
                .filter(|&hit| f - hit <= 10)
                .map(|hit| choose(10, hit) * choose(10, f - hit) / choose(20, f))
                .sum()
        };
        // The table of the notes: stripes of RS(4,6) kept at f = 7, 8, 9, 10.
        for (f, kept) in [(6, 1.0), (7, 0.999), (8, 0.990), (9, 0.965), (10, 0.911)] {
            assert!(
                (1.0 - lost_of(f) - kept).abs() < 6e-4,
                "{f} failed: {}",
                1.0 - lost_of(f)
            );
        }
        for chance in [0.05, 0.2, 0.4, 0.5] {
            let of_f = |f: u32| {
                let exponent = |n: u32| i32::try_from(n).unwrap();
                choose(20, f)
                    * f64::powi(chance, exponent(f))
                    * f64::powi(1.0 - chance, exponent(20 - f))
            };
            let mean: f64 = (0..=20).map(|f| of_f(f) * lost_of(f)).sum();
            let ours = share(loss(&[of_certain(chance); 10], 6));
            assert!((ours - mean).abs() < 1e-9, "{chance}: {ours} and {mean}");
        }
    }

    proptest! {
        #[test]
        fn losses_are_those_of_enumeration(
            chances in proptest::collection::vec(0.0f64..1.0, 0..9), parity in 0usize..5,
        ) {
            let losses: Vec<u64> = chances.iter().map(|&chance| of_certain(chance)).collect();
            let (ours, exact) = (share(loss(&losses, parity)), by_enumeration(&chances, parity));
            prop_assert!((ours - exact).abs() < 1e-12, "{ours} and {exact}");
        }

        /// Checks that no code with fewer bytes on any set of as many depots meets the wish.
        #[test]
        fn nothing_cheaper_keeps_the_wish(
            all in proptest::collection::vec(0.0f64..0.4, 1..7), nines in 1i32..5,
        ) {
            let most = 10f64.powi(-nines);
            let candidates = depots(&all.iter().enumerate()
                .map(|(domain, &loss)| (loss, 0, domain)).collect::<Vec<_>>());
            let choices = choices(Wish::Chance(of_certain(most)), &candidates);
            for choice in &choices {
                let parity = usize::from(choice.code.parity());
                let chances: Vec<f64> =
                    worst(&choice.on, choice.code.total().into(), &candidates).into_iter().map(share).collect();
                prop_assert!(by_enumeration(&chances, parity) <= most * (1.0 + 1e-9));
            }
            let stored = choices.first().map(|choice| {
                f64::from(choice.code.total()) / f64::from(choice.code.data())
            });
            for set in 1u32..1 << all.len() {
                let chances: Vec<f64> = (0..all.len())
                    .filter(|place| set >> place & 1 == 1).map(|place| all[place]).collect();
                for parity in 0..chances.len() {
                    let bytes = chances.len() as f64 / (chances.len() - parity) as f64;
                    let is_cheaper = stored.is_none_or(|stored| bytes < stored - 1e-9);
                    prop_assert!(!is_cheaper || by_enumeration(&chances, parity) > most * (1.0 - 1e-9),
                        "{} of {chances:?} instead of {stored:?}", parity);
                }
            }
        }
    }
}
