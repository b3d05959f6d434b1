//! Forwards of fragments that still arrive. The driver reports such a forward after the send it
//! follows, and drops it with that send.

use std::time::Duration;

use posthaste_core::contract::Fault;
use posthaste_types::{DepotId, RequestId};

use super::{
    Run,
    sends::{Send, answer},
};
use crate::{checkers::End, world::Sending};

/// Delay of the report about a forward after the end of the send it follows.
pub(super) const SOON: Duration = Duration::from_millis(1);

/// Forward of a fragment that still arrives.
#[derive(Debug, Clone)]
pub(super) struct Following {
    /// Send that it follows.
    leader: Send,
    /// Result of the forward, if it ended before the send it follows.
    ended: Option<Option<Fault>>,
}

impl Run<'_> {
    /// Forwards a fragment that is on its way to a depot, or that it already holds.
    pub(super) fn follow(&mut self, from: DepotId, send: Send) {
        let leader = (from, send.1, send.2, send.3);
        if self.checkers.conservation.is_flying(&leader) {
            let ended = None;
            let following = Following { leader, ended };
            self.forwards.following.insert(send, following);
        }
        self.send_on(from, send, true);
    }

    /// Reports the end of a send. A forward that follows another send is reported after that one.
    pub(super) fn tell_send(&mut self, span: Duration, send: Send, fault: Option<Fault>) {
        match self.forwards.following.get_mut(&send) {
            Some(following) => following.ended = Some(fault),
            None => self.tell_after(span, answer(send, fault)),
        }
    }

    /// Handles the end of a send. Its followers are reported from now on, or end too.
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

    /// Takes back a forward that nobody waits for any more, wherever it is.
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
            // The transfer was an ordinary forward if the depot held the fragment when it was
            // ordered.
            if let Some(giver) = self.world.place(from) {
                self.world.drop_between(giver, place, is_it);
            }
        }
    }

    /// Drops forwards to a depot, including those whose report is pending.
    pub(super) fn drop_follows(&mut self, request: RequestId, to: DepotId) {
        self.forget_follows(|send| send.1 == request && send.0 == to);
    }

    /// Cuts off forwards that followed a send from the centre, because the driver died.
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
