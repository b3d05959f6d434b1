use alloc::vec::Vec;
use posthaste_types::{ByteRate, Timestamp, record};

use super::Rare;
use crate::contract::{Cause, Charge, Party};

/// Finishes that differ by less are the same to people: nothing is charged.
const NOTICED_MICROS: i64 = 1000;

record! {
    /// A fed depot, or a source that may be read, as the last look found it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Seen {
        pub(crate) party: Party,
        /// Forecast rate, p10.
        pub(crate) rate: ByteRate,
        pub(crate) is_measured: bool,
        /// The p50 that was last told with the request.
        pub(crate) told: ByteRate,
    }
}

record! {
    /// Something that is about to move the finish.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Blame {
        cause: Cause,
        party: Option<Party>,
    }
}

record! {
    /// Where the slack of a request went: each look at it charges what moved its finish since the look
    /// before.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Account {
        /// The p90 finish that was answered, and the deadline as it was then.
        answered: Option<Timestamp>,
        deadline: Timestamp,
        /// The last finish in sight.
        finish: Option<Timestamp>,
        seen: Vec<Seen>,
        blame: Option<Blame>,
        charges: Rare<Vec<Charge>>,
    }
}

impl Account {
    /// The account of a request that was answered just now.
    pub(crate) fn open(deadline: Timestamp, finish: Option<Timestamp>) -> Self {
        Self {
            answered: finish,
            deadline,
            finish,
            ..Self::default()
        }
    }

    /// Takes no memory for charges while there are none.
    pub(crate) fn settle(&mut self) {
        self.charges.settle();
    }

    /// When it was to be safe, and the finish that was answered.
    pub(crate) fn answered(&self) -> Option<(Timestamp, Timestamp)> {
        self.answered.map(|finish| (self.deadline, finish))
    }

    pub(crate) fn charges(&self) -> &[Charge] {
        &self.charges
    }

    pub(crate) fn seen(&self) -> &[Seen] {
        &self.seen
    }

    /// Something happened that will show in the finish. What was lost counts before what was done
    /// about it.
    pub(crate) fn blame(&mut self, cause: Cause, party: Option<Party>) {
        let blame = Blame { cause, party };
        let is_stronger = self.blame.is_none_or(|before| cause < before.cause);
        if is_stronger {
            self.blame = Some(blame);
        }
    }

    /// A look found this finish, with these parties to it. `is_first`: no request comes before it.
    pub(crate) fn note(&mut self, finish: Option<Timestamp>, mut seen: Vec<Seen>, is_first: bool) {
        // Most have few, and there are many requests.
        seen.shrink_to_fit();
        let before = core::mem::replace(&mut self.seen, seen);
        // While none is in sight the last one stands, and so does what took it away.
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
        // What was answered rested on beliefs; the first look is a careful one.
        let at_first = before.is_empty().then_some(Blame {
            cause: Cause::Belief,
            party: None,
        });
        let blame = blame
            .or_else(|| self.find_rate(&before, moved))
            .or(at_first.filter(|_| self.charges.is_empty()));
        self.charge(blame.unwrap_or_else(otherwise), moved);
    }

    /// It is safe: what is left between forecast and end is charged.
    pub(crate) fn close(&mut self, at: Timestamp) {
        let seen = Vec::new();
        self.note(Some(at), seen, true);
    }

    /// The party whose forecast changed most in the direction in which the finish moved.
    fn find_rate(&self, before: &[Seen], moved: i64) -> Option<Blame> {
        let change = |now: &Seen| {
            let then = before.iter().find(|then| then.party == now.party)?;
            let (rate, then_rate) = (now.rate.get(), then.rate.get());
            let is_cause = if moved > 0 {
                rate < then_rate
            } else {
                rate > then_rate
            };
            // A change under a hundredth is the noise of every sample.
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
