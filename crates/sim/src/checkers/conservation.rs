use std::collections::{BTreeMap, BTreeSet};

use posthaste_core::contract::Command;
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId};

use super::{Found, ensure};

pub(super) const NAME: &str = "bytes conserved";

/// How a send ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The depot has it and said so.
    Stored,
    /// The depot did not take it.
    Failed,
    /// Nobody will ever say.
    Dropped,
}

type Send = (DepotId, RequestId, ChunkIndex, FragmentIndex);

/// Every byte sent is stored, failed, dropped or on its way; the mind believes nothing the world
/// does not hold.
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

    /// The mind commands something: a store neither sends, gathers, rebuilds, codes nor measures, and from store to store nobody
    /// carries anything.
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

    /// One depot is told to send on what it holds; `is_sound` unless it does not.
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

    /// Whether it is on its way, as far as the driver knows.
    pub(crate) fn is_flying(&self, send: &Send) -> bool {
        self.flying.contains_key(send)
    }

    /// One that followed another on its way arrived, or counts, which is only right when that one did.
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

    /// The ledger's balance.
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

    /// Compares what the mind believes a live depot holds with what it holds. `surplus_max` are the
    /// fragments whose answer was lost on the way.
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
        // A depot that holds two fragments of a chunk is believed to hold one.
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
