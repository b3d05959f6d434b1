//! Depots that send on what they still receive: the driver tells of it after what it follows, and gives it up with that.

use std::time::Duration;

use posthaste_core::contract::Fault;
use posthaste_types::{DepotId, RequestId};

use super::{
    Run,
    sends::{Send, answer},
};
use crate::{checkers::End, world::Sending};

/// How soon the driver tells of one once what it follows has ended.
pub(super) const SOON: Duration = Duration::from_millis(1);

/// One that goes on while it still arrives.
#[derive(Debug, Clone)]
pub(super) struct Following {
    /// What it follows.
    leader: Send,
    /// How it ended, where it did before that.
    ended: Option<Option<Fault>>,
}

impl Run<'_> {
    /// Lets a depot send on what is on its way to it, or what it holds by now.
    pub(super) fn follow(&mut self, from: DepotId, send: Send) {
        let leader = (from, send.1, send.2, send.3);
        if self.checkers.conservation.is_flying(&leader) {
            let ended = None;
            let following = Following { leader, ended };
            self.forwards.following.insert(send, following);
        }
        self.send_on(from, send, true);
    }

    /// Tells how a send ended; of one that follows another, when that one has.
    pub(super) fn tell_send(&mut self, span: Duration, send: Send, fault: Option<Fault>) {
        match self.forwards.following.get_mut(&send) {
            Some(following) => following.ended = Some(fault),
            None => self.tell_after(span, answer(send, fault)),
        }
    }

    /// A send ended: what follows it is told of from now on, or ends too.
    pub(super) fn end_following(&mut self, leader: Send, end: End) {
        if end == End::Stored {
            let is_led = !self.forwards.following.contains_key(&leader);
            let found = self.checkers.conservation.on_followed(leader, is_led);
            self.checkers.note(self.now, found);
        }
        self.forwards.following.remove(&leader);
        let all = self.forwards.following.iter();
        let all = all.filter(|(_, following)| following.leader == leader);
        let all: Vec<(Send, Option<Option<Fault>>)> = all
            .map(|(send, following)| (*send, following.ended))
            .collect();
        for (send, ended) in all {
            self.forwards.following.remove(&send);
            if end == End::Stored {
                if let Some(fault) = ended {
                    self.tell_after(SOON, answer(send, fault));
                }
                continue;
            }
            self.take_back(leader.0, send, ended);
            self.tell_after(SOON, answer(send, Some(Fault::SourceVanished)));
        }
    }

    /// Nobody waits for it any more, wherever it is.
    fn take_back(&mut self, from: DepotId, send: Send, ended: Option<Option<Fault>>) {
        let (depot, request, chunk, fragment) = send;
        if ended == Some(None) {
            *self.surplus.entry((depot, request)).or_default() += 1;
        }
        if let Some(place) = self.world.place(depot) {
            let is_it = |sending: &Sending| {
                (sending.request, sending.chunk, sending.fragment) == (request, chunk, fragment)
            };
            self.world.drop_followed(place, is_it);
            // It may have gone as any other, where all was there when it was ordered.
            if let Some(giver) = self.world.place(from) {
                self.world.drop_between(giver, place, is_it);
            }
        }
    }

    /// The driver gives up what goes to a depot from others: also what it would have told of later.
    pub(super) fn drop_follows(&mut self, request: RequestId, to: DepotId) {
        self.forget_follows(|send| send.1 == request && send.0 == to);
    }

    /// The driver is dead: what followed something from the centre is cut off with that.
    pub(super) fn crash_follows(&mut self) {
        self.forget_follows(|_| true);
    }

    fn forget_follows(&mut self, is_gone: impl Fn(&Send) -> bool) {
        let all = self.forwards.following.iter();
        let all = all.filter(|(send, _)| is_gone(send));
        let all: Vec<(Send, Following)> = all
            .map(|(send, following)| (*send, following.clone()))
            .collect();
        for (send, following) in all {
            self.forwards.following.remove(&send);
            self.take_back(following.leader.0, send, following.ended);
            self.end_send(send, End::Dropped);
        }
    }
}
