//! Progress of sends from here, for forwards that follow them.

use std::collections::HashMap;

use posthaste_core::contract::Fault;
use posthaste_types::{ChunkIndex, DepotId, Digest, RequestId};
use tokio::sync::watch;

use crate::hands::Leg;

/// Progress of a send. If it is dropped before it is stored, the send failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lead {
    /// Being read, or waiting its turn.
    Waits,
    /// Under way, with this digest.
    Begun(Digest),
    /// Stored, and reported to the mind.
    Stored,
}

/// Sends under way.
#[derive(Default)]
pub(crate) struct Leads {
    sends: HashMap<(RequestId, DepotId, ChunkIndex), watch::Receiver<Lead>>,
    /// Entries kept before ended ones are forgotten.
    most: usize,
}

impl Leads {
    /// Begins a send.
    pub(crate) fn begin(&mut self, leg: Leg) -> watch::Sender<Lead> {
        if self.sends.len() >= self.most {
            self.sends.retain(|_, lead| lead.has_changed().is_ok());
            self.most = self.sends.len() * 2 + 64;
        }
        let (lead, told) = watch::channel(Lead::Waits);
        self.sends.insert((leg.request, leg.depot, leg.chunk), told);
        lead
    }

    /// Returns a send under way, if there is one.
    pub(crate) fn of(&self, leg: Leg) -> Option<watch::Receiver<Lead>> {
        let lead = self.sends.get(&(leg.request, leg.depot, leg.chunk))?;
        let is_over = *lead.borrow() == Lead::Stored;
        (!is_over).then(|| lead.clone())
    }
}

/// Waits until bytes may be under way and returns their digest; none if everything is stored by
/// now.
///
/// # Errors
/// [`Fault::SourceVanished`] if the send failed.
pub(crate) async fn begun(lead: &mut watch::Receiver<Lead>) -> Result<Option<Digest>, Fault> {
    let begun = lead.wait_for(|lead| *lead != Lead::Waits).await;
    let begun = begun.map_err(|_| Fault::SourceVanished)?;
    Ok(match *begun {
        Lead::Begun(digest) => Some(digest),
        Lead::Waits | Lead::Stored => None,
    })
}

/// Waits until everything is stored.
///
/// # Errors
/// [`Fault::SourceVanished`] if the send failed.
pub(crate) async fn stored(lead: &mut watch::Receiver<Lead>) -> Result<(), Fault> {
    let stored = lead.wait_for(|lead| *lead == Lead::Stored).await;
    stored.map(drop).map_err(|_| Fault::SourceVanished)
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_types::FragmentIndex;

    const LEG: Leg = Leg {
        request: RequestId::new(1),
        depot: DepotId::new(2),
        chunk: ChunkIndex::new(3),
        fragment: FragmentIndex::new(0),
    };

    #[tokio::test]
    async fn what_follows_hears_how_far_a_send_is() {
        let mut leads = Leads::default();
        assert!(leads.of(LEG).is_none());
        let lead = leads.begin(LEG);
        let mut told = leads.of(LEG).unwrap();
        let digest = Digest::new([7; 32]);
        lead.send_replace(Lead::Begun(digest));
        assert_eq!(begun(&mut told).await, Ok(Some(digest)));
        lead.send_replace(Lead::Stored);
        drop(lead);
        assert_eq!(begun(&mut told).await, Ok(None));
        assert_eq!(stored(&mut told).await, Ok(()));
        assert!(leads.of(LEG).is_none());
    }

    #[tokio::test]
    async fn a_send_that_is_given_up_fails_what_follows_and_is_forgotten() {
        let mut leads = Leads::default();
        for _ in 0..2 {
            let lead = leads.begin(LEG);
            let mut told = leads.of(LEG).unwrap();
            lead.send_replace(Lead::Begun(Digest::new([7; 32])));
            drop(lead);
            assert_eq!(stored(&mut told).await, Err(Fault::SourceVanished));
        }
        for chunk in 0..1000 {
            let chunk = ChunkIndex::new(chunk);
            drop(leads.begin(Leg { chunk, ..LEG }));
        }
        assert!(leads.sends.len() < 100);
    }
}
