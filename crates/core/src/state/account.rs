use alloc::vec::Vec;
use posthaste_types::{ByteRate, Timestamp, record};

use crate::contract::{Cause, Charge, Party};
use crate::state::Rare;

/// Smallest difference of finishes that people notice: less is not charged.
const NOTICED_MICROS: i64 = 1000;

record! {
    /// Fed depot, or source that may be read, at the last look.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Seen {
        pub(crate) party: Party,
        /// Forecast rate, p10.
        pub(crate) rate: ByteRate,
        pub(crate) is_measured: bool,
        /// Last p50 reported with the request.
        pub(crate) told: ByteRate,
    }
}

record! {
    /// Cause that is about to move the finish.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Blame {
        cause: Cause,
        party: Option<Party>,
    }
}

record! {
    /// Account of a request's slack: each look charges what moved its finish since the look before.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Account {
        /// p90 finish in the answer, and the deadline at that time.
        answered: Option<Timestamp>,
        deadline: Timestamp,
        /// Last finish in sight.
        finish: Option<Timestamp>,
        seen: Vec<Seen>,
        blame: Option<Blame>,
        charges: Rare<Vec<Charge>>,
    }
}

impl Account {
    /// Opens the account of a request that was just answered.
    pub(crate) fn open(deadline: Timestamp, finish: Option<Timestamp>) -> Self {
        Self {
            answered: finish,
            deadline,
            finish,
            ..Self::default()
        }
    }

    /// Frees memory while there are no charges.
    pub(crate) fn settle(&mut self) {
        self.charges.settle();
    }

    /// Returns the deadline and the finish in the answer.
    pub(crate) fn answered(&self) -> Option<(Timestamp, Timestamp)> {
        self.answered.map(|finish| (self.deadline, finish))
    }

    pub(crate) fn charges(&self) -> &[Charge] {
        &self.charges
    }

    pub(crate) fn seen(&self) -> &[Seen] {
        &self.seen
    }

    /// Notes a cause that will show in the finish. A loss counts before the response to it.
    pub(crate) fn blame(&mut self, cause: Cause, party: Option<Party>) {
        let blame = Blame { cause, party };
        let is_stronger = self.blame.is_none_or(|before| cause < before.cause);
        if is_stronger {
            self.blame = Some(blame);
        }
    }

    /// Records the finish of a look, and its parties. `is_first`: no request comes before it.
    pub(crate) fn note(&mut self, finish: Option<Timestamp>, mut seen: Vec<Seen>, is_first: bool) {
        // Most accounts have few charges, and there are many requests.
        seen.shrink_to_fit();
        let before = core::mem::replace(&mut self.seen, seen);
        // While none is in sight, the last one stands, and so does its cause.
        let Some(finish) = finish else { return };
        let moved = match self.finish.replace(finish) {
            Some(last) => finish.slack_micros(last),
            None => {
                self.answered = self.answered.or(Some(finish));
                0
            }
        };
        let blame = self.blame.take();
        if moved.abs() < NOTICED_MICROS {
            return;
        }
        let otherwise = || {
            let cause = if is_first { Cause::Pace } else { Cause::Others };
            Blame { cause, party: None }
        };
        // The answer rested on beliefs; the first look is a careful one.
        let at_first = before.is_empty().then_some(Blame {
            cause: Cause::Belief,
            party: None,
        });
        let blame = blame
            .or_else(|| self.find_rate(&before, moved))
            .or(at_first.filter(|_| self.charges.is_empty()));
        self.charge(blame.unwrap_or_else(otherwise), moved);
    }

    /// Charges the difference between forecast and end, once it is safe.
    pub(crate) fn close(&mut self, at: Timestamp) {
        let seen = Vec::new();
        self.note(Some(at), seen, true);
    }

    /// Returns the party whose forecast changed most in the direction in which the finish moved.
    fn find_rate(&self, before: &[Seen], moved: i64) -> Option<Blame> {
        let change = |now: &Seen| {
            let then = before.iter().find(|then| then.party == now.party)?;
            let (rate, then_rate) = (now.rate.get(), then.rate.get());
            let is_cause = if moved > 0 {
                rate < then_rate
            } else {
                rate > then_rate
            };
            // A change below 1 % is the noise of every sample.
            let by = rate.abs_diff(then_rate);
            let is_noise = by < then_rate / 100;
            let was_believed = !then.is_measured;
            (is_cause && !is_noise).then_some((by, was_believed, now.party))
        };
        let (_, was_believed, party) = self.seen.iter().filter_map(change).max()?;
        let cause = if was_believed {
            Cause::Belief
        } else {
            Cause::Rate
        };
        Some(Blame {
            cause,
            party: Some(party),
        })
    }

    fn charge(&mut self, blame: Blame, micros: i64) {
        let same = self
            .charges
            .iter_mut()
            .find(|charge| charge.cause == blame.cause && charge.party == blame.party);
        match same {
            Some(charge) => charge.cost_micros = charge.cost_micros.saturating_add(micros),
            None => {
                self.charges.reserve_exact(1);
                self.charges.push(Charge {
                    cause: blame.cause,
                    party: blame.party,
                    cost_micros: micros,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use core::time::Duration;
    use posthaste_types::{DepotId, SourceId};

    const START: Timestamp = Timestamp::from_secs(1000);
    const A: Party = Party::Depot {
        depot: DepotId::new(1),
    };
    const B: Party = Party::Source {
        source: SourceId::new(1),
    };

    fn at(secs: u64) -> Timestamp {
        START + Duration::from_secs(secs)
    }

    fn seen(party: Party, rate: u64, is_measured: bool) -> Seen {
        Seen {
            party,
            rate: ByteRate::new(rate),
            is_measured,
            told: ByteRate::new(rate),
        }
    }

    fn charges(account: &Account) -> Vec<(Cause, Option<Party>, i64)> {
        let seconds = |charge: &Charge| charge.cost_micros / 1_000_000;
        let charges = account.charges().iter();
        charges
            .map(|charge| (charge.cause, charge.party, seconds(charge)))
            .collect()
    }

    #[test]
    fn what_moved_the_finish_is_charged_and_adds_up() {
        let mut account = Account::open(at(100), Some(at(90)));
        account.note(
            Some(at(90)),
            vec![seen(A, 500, false), seen(B, 500, true)],
            true,
        );
        account.note(
            Some(at(95)),
            vec![seen(A, 400, true), seen(B, 500, true)],
            true,
        );
        account.note(
            Some(at(97)),
            vec![seen(A, 400, true), seen(B, 450, true)],
            true,
        );
        account.blame(Cause::Course, None);
        account.blame(Cause::Loss, Some(B));
        account.note(None, vec![], true);
        account.note(Some(at(140)), vec![seen(A, 400, true)], true);
        account.blame(Cause::Course, None);
        account.note(Some(at(120)), vec![seen(A, 400, true)], true);
        account.note(Some(at(121)), vec![seen(A, 400, true)], false);
        account.close(at(119));
        assert_eq!(
            charges(&account),
            [
                (Cause::Belief, Some(A), 5),
                (Cause::Rate, Some(B), 2),
                (Cause::Loss, Some(B), 43),
                (Cause::Course, None, -20),
                (Cause::Others, None, 1),
                (Cause::Pace, None, -2),
            ]
        );
        let sum: i64 = charges(&account).iter().map(|(_, _, secs)| secs).sum();
        assert_eq!((sum, account.answered()), (29, Some((at(100), at(90)))));
    }

    #[test]
    fn the_first_finish_in_sight_is_the_answer_where_there_was_none() {
        let mut account = Account::open(at(100), None);
        account.note(None, vec![], true);
        account.note(Some(at(150)), vec![], true);
        assert_eq!(account.answered(), Some((at(100), at(150))));
        assert_eq!(charges(&account), []);
    }
}
