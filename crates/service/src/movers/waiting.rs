//! Those who wait for work that movers do.

use std::{ops::ControlFlow, sync::Arc};

use posthaste_api as api;
use posthaste_core::movers::{MoverId, Offer, Ticket};
use posthaste_endpoint::{Checksum, relay::Departure};
use posthaste_types::{ChunkIndex, Digest, RequestId, Timestamp};
use tokio::sync::mpsc;

use super::{Movers, Pending};

/// News of one piece of work that may wait to be heard; the last place is for its end.
const NEWS_MAX: usize = 8;

/// What those who wait for work hear of it.
#[derive(Debug)]
pub(crate) enum News {
    /// A mover has it. After another was lost, this comes again.
    Given,
    /// Its fragment is on its way, and has this digest.
    Begun(Digest),
    /// So many bytes came since it was given.
    Fetched(u64),
}

/// How work of a mover ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// It is done, and these are the digests of its chunk.
    Done(Vec<Digest>),
    /// It is done: a store holds what has this checksum, and gave this receipt for it.
    Stored(Checksum, String),
    /// This mover could not do it.
    Failed(MoverId),
}

/// Work that is offered to movers.
pub(crate) struct Offered {
    pub(crate) request: RequestId,
    /// What it is about; all of one chunk is read together.
    pub(crate) chunk: ChunkIndex,
    pub(crate) due: Timestamp,
    /// It is given to nobody once it was called back, and not called back once it was given.
    pub(crate) departure: Arc<Departure>,
    /// What is to be done, said when it is given: what it needs then is fresh.
    pub(crate) chore: Arc<dyn Fn() -> api::Chore + Send + Sync>,
}

/// What is told of work: news, until it has ended.
pub(super) type Told = ControlFlow<Ending, News>;

impl Movers {
    /// Lets movers do this; what is heard of it meanwhile is told to `hear`. None where no mover is to do it, or none could:
    /// then it is the caller's, who says by [`Movers::could_be_done`] whether it could be done.
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

    /// Whether any may be given work.
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

    /// What a mover could not do was done here.
    pub(crate) fn could_be_done(&self, id: MoverId) {
        let mut state = self.state();
        state.roster.was_its_fault(self.now(), id);
        self.settle(&mut state);
    }
}

/// Takes work back when whoever waits for it is gone.
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
