//! Waits of one class of jobs, and the bounds that their order gives.

use alloc::{collections::VecDeque, vec::Vec};
use core::time::Duration;

/// Waits that a class keeps: the bound of 4,096 is within 1 % of its quantile, and an insertion
/// moves at most 32 KiB.
const WAITS_MAX: usize = 4096;

/// Fewest waits that bound the 95 % quantile with 95 % confidence: .95^59 < .05 < .95^58.
pub(super) const WAITS_MIN: usize = 59;

/// Waits in a row outside the bound that show that the queue has changed (QBETS).
const OUTSIDE_MAX: usize = 3;

/// Jobs within their bound for each that may exceed it: 95 % of all.
const MISS: i32 = 19;

/// Most debt or credit of the balance: a hundred thousand jobs.
const BALANCE_MAX: i32 = 100_000;

/// Share of waits that may lie beyond a bound, and the doubt in the bound itself.
const TAIL: f64 = 0.05;
const DOUBT: f64 = 0.05;

/// Waits by age and by length.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct History {
    /// Waits, oldest first.
    by_age: VecDeque<Duration>,
    sorted: Vec<Duration>,
    /// Waits in a row above the upper bound.
    above: usize,
    /// The history never forgets the waits before a change.
    keeps: bool,
    /// Waits that may lie beyond a bound, for the number that is known.
    beyond: Option<usize>,
    /// Balance of the one in twenty jobs that may exceed their bound: each that did costs 19 of
    /// those that did not.
    balance: i32,
}

impl History {
    /// Returns a history that keeps the waits before a change.
    pub(super) fn keeping() -> Self {
        Self {
            keeps: true,
            ..Self::default()
        }
    }

    /// Returns the bounds below which 5 % and 95 % of all waits lie, each with 95 % confidence;
    /// none before 59 waits.
    ///
    /// BMBP (Brevik, Nurmi, Wolski, UCSB TR 2005-09): the k-th of n waits in order bounds the
    /// quantile q from above when P[Bin(n, q) <= k - 1] >= c. While too many jobs exceed their
    /// bound, the upper one is the longest known wait.
    pub(super) fn bounds(&self) -> Option<(Duration, Duration)> {
        let beyond = self.beyond?;
        let above = if self.balance < 0 { 0 } else { beyond };
        let lower = self.sorted.get(beyond)?;
        let upper = self.sorted.get(self.sorted.len() - 1 - above)?;
        Some((*lower, *upper))
    }

    /// Records whether a job waited longer than its bound.
    pub(super) fn judge(&mut self, is_longer: bool) {
        let change = if is_longer { -MISS } else { 1 };
        self.balance = (self.balance + change).clamp(-BALANCE_MAX, BALANCE_MAX);
    }

    /// Adds a wait. The third in a row above the bound drops all but the last 59. O(log n) and a
    /// move.
    pub(super) fn take(&mut self, wait: Duration) {
        let is_above = self.bounds().is_some_and(|(_, upper)| wait > upper);
        self.above = if is_above { self.above + 1 } else { 0 };
        if self.by_age.len() >= WAITS_MAX {
            self.drop_oldest();
        }
        self.by_age.push_back(wait);
        let to = self.sorted.partition_point(|other| *other <= wait);
        self.sorted.insert(to, wait);
        if self.above >= OUTSIDE_MAX && !self.keeps {
            self.above = 0;
            while self.by_age.len() > WAITS_MIN {
                self.drop_oldest();
            }
        }
        self.count();
    }

    /// Replaces the partial wait known before by the whole one; adds it if the former is gone.
    pub(super) fn replace(&mut self, before: Duration, wait: Duration) {
        let Some(place) = self.by_age.iter().rposition(|other| *other == before) else {
            self.take(wait);
            return;
        };
        self.by_age[place] = wait;
        self.sorted
            .remove(self.sorted.partition_point(|other| *other < before));
        let to = self.sorted.partition_point(|other| *other <= wait);
        self.sorted.insert(to, wait);
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.by_age.pop_front() {
            let place = self.sorted.partition_point(|other| *other < oldest);
            self.sorted.remove(place);
        }
    }

    /// Counts the waits that may lie beyond. The number is constant for a full history, so it is
    /// counted while that grows.
    fn count(&mut self) {
        if self.sorted.len() < WAITS_MAX || self.beyond.is_none() {
            self.beyond = beyond(self.sorted.len());
        }
    }
}

/// Returns the largest e with P[Bin(n, tail) <= e] <= doubt: this many of n waits may lie beyond
/// either bound. Computes each term from the one before, O(n).
fn beyond(waits: usize) -> Option<usize> {
    let mut term = (0..waits).fold(1.0, |product, _| product * (1.0 - TAIL));
    let mut sum = term;
    if sum > DOUBT {
        return None;
    }
    let (mut tries, mut met, mut found) = (waits, 1.0, 0);
    while tries > 0 {
        term *= ratio(tries) / met * (TAIL / (1.0 - TAIL));
        sum += term;
        if sum > DOUBT {
            break;
        }
        (tries, met, found) = (tries - 1, met + 1.0, found + 1);
    }
    Some(found)
}

/// Returns a count of waits as a factor.
fn ratio(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// Computes P[Bin(n, p) <= e] by adding up each way to place one more wait, without a formula
    /// for the terms.
    fn chance(waits: usize, most: usize) -> f64 {
        let mut exactly = std::vec![0.0; most + 1];
        exactly[0] = 1.0;
        for _ in 0..waits {
            for met in (0..=most).rev() {
                let from = if met > 0 { exactly[met - 1] } else { 0.0 };
                exactly[met] = exactly[met] * (1.0 - TAIL) + from * TAIL;
            }
        }
        exactly.iter().sum()
    }

    #[test]
    fn the_rank_is_the_one_that_brute_force_finds() {
        assert_eq!(beyond(58), None);
        assert_eq!(beyond(59), Some(0));
        for waits in (59..600).step_by(7).chain([1000, WAITS_MAX]) {
            let found = beyond(waits).unwrap();
            assert!(chance(waits, found) <= DOUBT, "{waits}");
            assert!(chance(waits, found + 1) > DOUBT, "{waits}");
        }
    }

    #[test]
    fn bounds_want_59_waits_and_are_then_the_ends() {
        let mut history = History::default();
        for wait in 1..59 {
            history.take(seconds(wait));
            assert_eq!(history.bounds(), None);
        }
        history.take(seconds(59));
        assert_eq!(history.bounds(), Some((seconds(1), seconds(59))));
    }

    #[test]
    fn the_third_wait_in_a_row_above_the_bound_forgets_the_past() {
        let mut history = History::default();
        (0..500).for_each(|_| history.take(seconds(10)));
        history.take(seconds(900));
        history.take(seconds(900));
        assert_eq!(history.bounds().unwrap().1, seconds(10));
        history.take(seconds(900));
        assert_eq!(history.by_age.len(), WAITS_MIN);
        assert_eq!(history.bounds().unwrap().1, seconds(900));
    }

    #[test]
    fn both_orders_hold_the_same_waits_however_they_came_and_went() {
        let mut history = History::default();
        for wait in 0..6000u64 {
            history.take(seconds(wait * 7919 % 1009));
            if wait % 5 == 0 {
                history.replace(seconds(wait * 7919 % 1009), seconds(wait % 31));
            }
        }
        let mut sorted: Vec<Duration> = history.by_age.iter().copied().collect();
        sorted.sort_unstable();
        assert_eq!(history.sorted, sorted);
        assert!(sorted.len() <= WAITS_MAX);
    }
}
