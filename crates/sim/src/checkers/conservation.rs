use std::collections::{BTreeMap, BTreeSet};

use posthaste_core::contract::Command;
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId};

use super::{Found, ensure};

pub(super) const NAME: &str = "bytes conserved";

/// Outcome of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Fragment stored and confirmed by the depot.
    Stored,
    /// Fragment rejected by the depot.
    Failed,
    /// Send without any answer to come.
    Dropped,
}

type Send = (DepotId, RequestId, ChunkIndex, FragmentIndex);

/// Checker that every byte sent is stored, failed, dropped or in flight, and that the mind believes
/// in no fragment the world does not hold.
#[derive(Debug, Default)]
pub(crate) struct Conservation {
    flying: BTreeMap<Send, (u32, Bytes)>,
    sent: Bytes,
    stored: Bytes,
    failed: Bytes,
    dropped: Bytes,
}

impl Conservation {
    pub(crate) fn on_send(&mut self, send: Send, bytes: Bytes) -> Result<(), Found> {
        self.sent += bytes;
        let flying = self.flying.entry(send).or_insert((0, bytes));
        flying.0 += 1;
        let count = flying.0;
        ensure(NAME, count == 1, || {
            format!("{} {} sent to {} twice at once", send.2, send.3, send.0)
        })
    }

    /// Checks a command of the mind. A store neither sends, gathers, rebuilds, codes nor measures,
    /// and nothing transfers data between two stores.
    pub(crate) fn on_order(
        command: &Command,
        stores: impl Fn(DepotId) -> bool,
    ) -> Result<(), Found> {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "nothing else is asked of a depot but to take and to give"
        )]
        let is_sound = match command {
            Command::Forward { from, to, .. } => !stores(*from) || !stores(*to),
            Command::Follow { from, .. } | Command::ProbeCrossing { from, .. } => !stores(*from),
            Command::Gather { to, .. } | Command::Mend { to, .. } => !stores(*to),
            Command::Scatter { depot, .. } => !stores(*depot),
            _ => true,
        };
        ensure(NAME, is_sound, || {
            format!("a store does nothing by itself: {command:?}")
        })
    }

    /// Checks a forward that a depot is ordered to start. `is_sound` says whether the depot may
    /// hold the fragment.
    pub(crate) fn on_forward(
        &self,
        from: DepotId,
        send: Send,
        is_sound: bool,
    ) -> Result<(), Found> {
        ensure(NAME, is_sound, || {
            format!(
                "{from} shall send {} {} on to {} and does not hold it",
                send.2, send.3, send.0
            )
        })
    }

    /// Returns whether the fragment is in flight, as far as the driver knows.
    pub(crate) fn is_flying(&self, send: &Send) -> bool {
        self.flying.contains_key(send)
    }

    /// Checks a send that followed another one. It may arrive or count only if the one it followed
    /// arrived.
    pub(crate) fn on_followed(&self, send: Send, is_led: bool) -> Result<(), Found> {
        ensure(NAME, is_led, || {
            format!(
                "{} {} is at {} before it is where it came from",
                send.2, send.3, send.0
            )
        })
    }

    pub(crate) fn on_end(&mut self, send: Send, end: End) -> Result<(), Found> {
        let Some((count, bytes)) = self.flying.get(&send).copied() else {
            return ensure(NAME, end == End::Dropped, || {
                format!(
                    "{} {} ended at {} and was never sent",
                    send.2, send.3, send.0
                )
            });
        };
        if count == 1 {
            self.flying.remove(&send);
        } else {
            self.flying.insert(send, (count - 1, bytes));
        }
        match end {
            End::Stored => self.stored += bytes,
            End::Failed => self.failed += bytes,
            End::Dropped => self.dropped += bytes,
        }
        Ok(())
    }

    /// Checks the balance of the ledger at the end.
    pub(crate) fn at_end(&self) -> Result<(), Found> {
        let flying: Bytes = self
            .flying
            .values()
            .map(|(count, bytes)| bytes.times(u64::from(*count)))
            .sum();
        let accounted = self.stored + self.failed + self.dropped + flying;
        ensure(NAME, accounted == self.sent, || {
            format!("{} were sent and {accounted} are accounted for", self.sent)
        })
    }

    /// Compares the mind's belief of a live depot's contents with its actual contents.
    /// `surplus_max` counts the fragments whose answer was lost.
    pub(crate) fn compare(
        depot: DepotId,
        request: RequestId,
        believed: &BTreeSet<(ChunkIndex, FragmentIndex)>,
        held: &BTreeSet<(ChunkIndex, FragmentIndex)>,
        surplus_max: usize,
    ) -> Result<(), Found> {
        if let Some((chunk, fragment)) = believed.difference(held).next() {
            let what = format!("the mind believes {depot} holds {chunk} {fragment} of {request}");
            return Err(Found {
                checker: NAME,
                what,
            });
        }
        // The mind believes in one fragment where a depot holds two of a chunk.
        let known: BTreeSet<ChunkIndex> = believed.iter().map(|(chunk, _)| *chunk).collect();
        let surplus = held
            .iter()
            .filter(|(chunk, _)| !known.contains(chunk))
            .count();
        ensure(NAME, surplus <= surplus_max, || {
            format!("{depot} holds {surplus} fragments of {request} the mind knows nothing of")
        })
    }

    pub(crate) fn sent(&self) -> Bytes {
        self.sent
    }

    pub(crate) fn stored(&self) -> Bytes {
        self.stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEND: Send = (
        DepotId::new(1),
        RequestId::new(1),
        ChunkIndex::new(0),
        FragmentIndex::new(0),
    );

    #[test]
    fn a_store_without_a_send_and_a_double_send_are_caught() {
        let mut ledger = Conservation::default();
        assert!(ledger.on_end(SEND, End::Stored).is_err());
        assert!(ledger.on_send(SEND, Bytes::new(5)).is_ok());
        assert!(ledger.on_send(SEND, Bytes::new(5)).is_err());
        assert!(ledger.at_end().is_ok());
        assert!(ledger.on_forward(SEND.0, SEND, false).is_err());
        ledger.sent += Bytes::new(1);
        assert!(ledger.at_end().is_err());
    }

    #[test]
    fn a_belief_without_a_fragment_and_an_unexplained_fragment_are_caught() {
        let one: BTreeSet<_> = [(SEND.2, SEND.3)].into();
        let none = BTreeSet::new();
        assert!(Conservation::compare(SEND.0, SEND.1, &one, &one, 0).is_ok());
        assert!(Conservation::compare(SEND.0, SEND.1, &one, &none, 9).is_err());
        assert!(Conservation::compare(SEND.0, SEND.1, &none, &one, 0).is_err());
        assert!(Conservation::compare(SEND.0, SEND.1, &none, &one, 1).is_ok());
    }
}
