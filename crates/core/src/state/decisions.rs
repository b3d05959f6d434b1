use alloc::vec::Vec;
use posthaste_types::{Malformed, Record};

use crate::contract::{Decision, Reason};

/// Decisions remembered of a request, oldest first, for later queries. Packed, as there are many
/// requests and few queries: for each its length in 32 bits, whether it is routine, and its record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Decisions(Vec<u8>);

/// Size of a packed decision's length and its routine mark.
const HEAD_BYTES: usize = 5;

impl Decisions {
    /// Remembers a decision; the oldest beyond `most` are forgotten, except the first: the answer.
    /// Only a quarter of `most` are kept for routine decisions, so that these don't push out what
    /// decided the request's fate.
    pub(crate) fn remember(&mut self, decision: &Decision, most: u32) {
        let most = most as usize;
        let is_routine = is_routine(&decision.reason);
        if is_routine {
            let routine = self.packed().filter(|packed| packed.is_routine);
            let routine: Vec<Packed> = routine.collect();
            if routine.len() >= most / 4 {
                let oldest = routine.into_iter().next();
                oldest.into_iter().for_each(|oldest| self.forget(oldest));
            }
        }
        if self.packed().count() >= most {
            let oldest = self.packed().nth(usize::from(most > 1));
            oldest.into_iter().for_each(|oldest| self.forget(oldest));
        }
        let record = decision.to_bytes();
        let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
        // Most requests have few decisions.
        self.0.reserve_exact(HEAD_BYTES + record.len());
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.push(u8::from(is_routine));
        self.0.extend_from_slice(&record);
    }

    /// Returns all of them.
    pub(crate) fn to_vec(&self) -> Vec<Decision> {
        let packed = self.packed();
        let records = packed.filter_map(|packed| self.0.get(packed.at + HEAD_BYTES..packed.end));
        records
            .filter_map(|record| Decision::from_bytes(record).ok())
            .collect()
    }

    /// Takes the newest back.
    pub(crate) fn pop(&mut self) -> Option<Decision> {
        let last = self.packed().last()?;
        let newest = self.0.get(last.at + HEAD_BYTES..last.end)?;
        let newest = Decision::from_bytes(newest).ok()?;
        self.forget(last);
        Some(newest)
    }

    fn packed(&self) -> impl Iterator<Item = Packed> + '_ {
        let mut at = 0;
        core::iter::from_fn(move || {
            let (length, rest) = self.0.get(at..)?.split_first_chunk()?;
            let end = at + HEAD_BYTES + u32::from_le_bytes(*length) as usize;
            let packed = Packed {
                at,
                end: end.min(self.0.len()),
                is_routine: rest.first() == Some(&1),
            };
            at = end;
            Some(packed)
        })
    }

    fn forget(&mut self, packed: Packed) {
        self.0.drain(packed.at..packed.end);
    }
}

/// Position of a packed decision.
#[derive(Debug, Clone, Copy)]
struct Packed {
    at: usize,
    end: usize,
    is_routine: bool,
}

impl Record for Decisions {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        Vec::read(input).map(Self)
    }
}

/// Returns whether a decision for this reason recurs.
fn is_routine(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Tuned { .. } | Reason::RateMoved { .. } | Reason::Retry { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{boxed::Box, format};
    use posthaste_types::{ByteRate, Timestamp};

    fn decision(number: u64, reason: Reason) -> Decision {
        Decision {
            at: Timestamp::from_secs(number),
            happening: None,
            depot: format!("depot {number}").into(),
            count: 0,
            note: Box::default(),
            reason,
        }
    }

    fn moments(decisions: &Decisions) -> Vec<u64> {
        let all = decisions.to_vec();
        all.iter()
            .map(|one| one.at.as_micros() / 1_000_000)
            .collect()
    }

    #[test]
    fn the_answer_stays_and_routine_pushes_out_routine_alone() {
        let rate = ByteRate::new(1);
        let moved = || Reason::RateMoved {
            from: rate,
            to: rate,
        };
        let mut decisions = Decisions::default();
        for number in 0..6 {
            decisions.remember(&decision(number, Reason::DepotBack), 8);
        }
        assert_eq!(decisions.to_vec()[3], decision(3, Reason::DepotBack));
        for number in 6..10 {
            decisions.remember(&decision(number, moved()), 8);
        }
        assert_eq!(moments(&decisions), [0, 1, 2, 3, 4, 5, 8, 9]);
        decisions.remember(&decision(10, Reason::DepotBack), 8);
        assert_eq!(moments(&decisions), [0, 2, 3, 4, 5, 8, 9, 10]);
        assert_eq!(
            Decisions::from_bytes(&decisions.to_bytes()),
            Ok(decisions.clone())
        );
        assert_eq!(decisions.pop(), Some(decision(10, Reason::DepotBack)));
        assert_eq!(moments(&decisions), [0, 2, 3, 4, 5, 8, 9]);
    }
}
