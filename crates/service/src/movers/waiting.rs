//! Callers that wait for work of movers.

use std::{ops::ControlFlow, sync::Arc};

use posthaste_api as api;
use posthaste_core::movers::{MoverId, Offer, Ticket};
use posthaste_endpoint::{Checksum, relay::Departure};
use posthaste_types::{ChunkIndex, Digest, RequestId, Timestamp};
use tokio::sync::mpsc;

use super::{Movers, Pending};

/// Unread news of one piece of work; the last slot is for its end.
const NEWS_MAX: usize = 8;

/// News of work for its caller.
#[derive(Debug)]
pub(crate) enum News {
    /// Given to a mover. If another mover was lost, this comes again.
    Given,
    /// Its fragment is under way, with this digest.
    Begun(Digest),
    /// Bytes fetched since it was given.
    Fetched(u64),
}

/// End of a mover's work.
#[derive(Debug)]
pub(crate) enum Ending {
    /// Done, with the digests of its chunk.
    Done(Vec<Digest>),
    /// Done: a store holds an object with this checksum, and gave this receipt.
    Stored(Checksum, String),
    /// Failed at this mover.
    Failed(MoverId),
}

/// Work offered to movers.
pub(crate) struct Offered {
    pub(crate) request: RequestId,
    /// Chunk of the work; all work of one chunk is read together.
    pub(crate) chunk: ChunkIndex,
    pub(crate) due: Timestamp,
    /// Never given once it was recalled, and never recalled once it was given.
    pub(crate) departure: Arc<Departure>,
    /// Makes the chore when it is given, so that its credentials are fresh.
    pub(crate) chore: Arc<dyn Fn() -> api::Chore + Send + Sync>,
}

/// Update on work: news until it has ended.
pub(super) type Told = ControlFlow<Ending, News>;

impl Movers {
    /// Lets movers do this work and passes news of it to `hear`. Returns none if no mover is to do
    /// it, or none could. Then the caller does it, and reports by [`Movers::could_be_done`] whether
    /// it could be done.
    pub(crate) async fn carry(
        &self,
        offered: Offered,
        mut hear: impl FnMut(News) + Send,
    ) -> Option<Ending> {
        let (teller, mut news) = mpsc::channel(NEWS_MAX);
        let _withdrawal = self.offer(offered, teller)?;
        loop {
            match news.recv().await? {
                ControlFlow::Break(ending) => return Some(ending),
                ControlFlow::Continue(news) => hear(news),
            }
        }
    }

    /// Returns whether any mover may get work.
    pub(crate) fn are_there(&self) -> bool {
        self.state().roster.is_manned(self.now())
    }

    fn offer(&self, offered: Offered, teller: mpsc::Sender<Told>) -> Option<Withdrawal<'_>> {
        let mut state = self.state();
        state.next += 1;
        let ticket = Ticket::new(state.next);
        let offer = Offer {
            ticket,
            due: offered.due,
            group: offered.request.get().rotate_left(32) ^ u64::from(offered.chunk.get()),
        };
        if !state.roster.offer(self.now(), offer) {
            return None;
        }
        state.pending.insert(ticket, Pending { offered, teller });
        self.settle(&mut state);
        Some(Withdrawal {
            movers: self,
            ticket,
        })
    }

    /// Notes that work a mover could not do was done here, so the failure was the mover's.
    pub(crate) fn could_be_done(&self, id: MoverId) {
        let mut state = self.state();
        state.roster.was_its_fault(self.now(), id);
        self.settle(&mut state);
    }
}

/// Withdraws the work when its caller is gone.
struct Withdrawal<'a> {
    movers: &'a Movers,
    ticket: Ticket,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        let mut state = self.movers.state();
        if state.pending.remove(&self.ticket).is_some() {
            let worker = state.roster.worker(self.ticket);
            state.roster.withdraw(self.ticket);
            let about = worker.and_then(|worker| state.about.get(&worker));
            if let Some(about) = about {
                about.woken.notify_waiters();
            }
        }
    }
}
