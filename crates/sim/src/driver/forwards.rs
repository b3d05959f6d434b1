//! Forwards between depots. They continue when the driver dies, like the real relays.

use std::{collections::BTreeMap, time::Duration};

use posthaste_core::contract::Fault;
use posthaste_types::{DepotId, FragmentIndex, RequestId};

use super::{
    CONNECT_TIMEOUT, Pending, Run,
    follows::{Following, SOON},
    gathers::Key,
    sends::{Send, answer, answered},
};
use crate::{
    checkers::End,
    world::{Arrival, Condition, Node, Sending},
};

/// All forwards that depots were ordered to start.
#[derive(Debug, Default)]
pub(super) struct Forwards {
    /// Forwards the driver waits for, with the sending depots.
    live: BTreeMap<Send, DepotId>,
    /// Number of forwards ordered by a dead driver. Nobody waits for their answer.
    orphans: BTreeMap<(DepotId, Send), u32>,
    /// Forwards of fragments that still arrive. The driver reports none before the send it follows.
    pub(super) following: BTreeMap<Send, Following>,
}

impl Forwards {
    /// Removes a forward that was answered or that nobody waits for. Returns its sender.
    pub(super) fn end(&mut self, send: &Send) -> Option<DepotId> {
        self.live.remove(send)
    }

    /// Adds a fragment that a depot will forward once it has coded it.
    pub(super) fn insert(&mut self, send: Send, from: DepotId) {
        self.live.insert(send, from);
    }

    /// Returns the number of whole chunks in flight to a destination.
    pub(super) fn whole_to(&self, to: DepotId) -> usize {
        let live = self.live.keys();
        let live = live.filter(|send| send.0 == to && send.3 == FragmentIndex::WHOLE);
        live.count()
    }

    /// Counts off a forward that arrived or was lost. Returns whether nobody waited for it.
    fn take_orphan(&mut self, from: DepotId, send: Send) -> bool {
        let Some(count) = self.orphans.get_mut(&(from, send)) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            self.orphans.remove(&(from, send));
        }
        true
    }
}

impl Run<'_> {
    /// Handles the end of a send, from any sender.
    pub(super) fn end_send(&mut self, send: Send, end: End) {
        self.end_following(send, end);
        let whole = self.scatters.end(&send);
        let bytes = whole.unwrap_or_else(|| self.bytes_of(send.1, send.2, send.3));
        let ends = &mut self.checkers.capacity;
        match self.forwards.end(&send) {
            Some(from) => ends.on_forward_end(from, send.0, bytes),
            None if self.end_gathering(&send) => {}
            None => self.checkers.capacity.on_end(send.0, send.1, send.2, bytes),
        }
        let found = self.checkers.conservation.on_end(send, end);
        self.checkers.note(self.now, found);
    }

    /// Forwards a fragment that a depot holds.
    pub(super) fn forward(&mut self, from: DepotId, send: Send) {
        self.send_on(from, send, false);
    }

    /// Forwards a fragment that a depot holds, or that is on its way there.
    pub(super) fn send_on(&mut self, from: DepotId, send: Send, follows: bool) {
        let (depot, request, chunk, fragment) = send;
        let bytes = self.bytes_of(request, chunk, fragment);
        let (Some(giver), Some(place)) = (self.world.place(from), self.world.place(depot)) else {
            return;
        };
        let site = &self.world.sites[giver];
        let latency = Duration::from_micros(site.latency_micros);
        let bytes_on_way = Sending {
            request,
            chunk,
            fragment,
            bytes,
        };
        let is_coming = follows && self.world.is_coming(giver, &bytes_on_way);
        let holds = site.holds(request, chunk, fragment) || is_coming;
        // A depot hit by a fault may have lost it before anybody knows.
        let is_sound = holds || site.ordeal > 0 || self.forwards.following.contains_key(&send);
        let found = self.checkers.conservation.on_forward(from, send, is_sound);
        self.checkers.note(self.now, found);
        let found = self.checkers.capacity.on_forward(from, depot, bytes);
        self.checkers.note(self.now, found);
        let found = self.checkers.lent.on_send(self.now, request, depot);
        self.checkers.note(self.now, found);
        let found = self.checkers.conservation.on_send(send, bytes);
        self.checkers.note(self.now, found);
        self.forwards.live.insert(send, from);
        let found = self.check_deliveries(depot);
        self.checkers.note(self.now, found);
        let is_dead = |place: usize| self.world.sites[place].condition() == Condition::Dead;
        let fault = if is_dead(giver) || is_dead(place) {
            Some((CONNECT_TIMEOUT, Fault::Unreachable))
        } else {
            (!holds).then_some((latency, Fault::SourceVanished))
        };
        if let Some((span, fault)) = fault {
            self.tell_send(span, send, Some(fault));
            return;
        }
        let sending = bytes_on_way;
        if is_coming {
            self.world.follow(giver, place, sending);
        } else {
            self.world
                .send(Node::site(giver), Node::site(place), sending);
        }
    }

    /// Takes back forwards in flight to a depot, as far as the driver knows of them.
    pub(super) fn drop_forwards(&mut self, request: RequestId, to: DepotId) {
        let Some(place) = self.world.place(to) else {
            return;
        };
        self.drop_gathers(|key| key.0 == to && key.1 == request);
        let dropped = self
            .world
            .drop_forwards(place, |sending| sending.request == request);
        for arrival in dropped {
            let sending = arrival.sending;
            let send = (to, request, sending.chunk, sending.fragment);
            if !self.is_orphan(&arrival) {
                self.end_send(send, End::Dropped);
            }
        }
    }

    /// Marks forwards as orphans, because depots continue after the driver died and nobody receives
    /// their answers.
    pub(super) fn orphan_forwards(&mut self) {
        self.drop_gathers(|_| true);
        for (send, from) in std::mem::take(&mut self.forwards.live) {
            *self.forwards.orphans.entry((from, send)).or_default() += 1;
            self.forwards.live.insert(send, from);
            self.end_send(send, End::Dropped);
        }
    }

    /// Returns whether an arrival or a loss belongs to a dead driver's order.
    pub(super) fn is_orphan(&mut self, arrival: &Arrival) -> bool {
        let Arrival { from, to, sending } = *arrival;
        let id = |node: Node| node.place().map(|place| self.world.sites[place].id);
        let (Some(from), Some(to)) = (id(from), id(to)) else {
            return false;
        };
        let send = (to, sending.request, sending.chunk, sending.fragment);
        self.forwards.take_orphan(from, send)
    }

    /// Forgets answers in flight.
    pub(super) fn forget_answers(&mut self, matches: impl Fn(&Send) -> bool) {
        let last = (self.now + self.answer_max, u64::MAX);
        let answers: Vec<_> = self
            .queue
            .range(..=last)
            .filter_map(|(key, pending)| match pending {
                Pending::Tell { input, .. } => Some((*key, answered(input)?)),
                Pending::Ask { .. }
                | Pending::Probe { .. }
                | Pending::Measure { .. }
                | Pending::Sample
                | Pending::Circuit { .. }
                | Pending::Gateway { .. }
                | Pending::Overdue { .. }
                | Pending::Remove { .. }
                | Pending::Purge { .. }
                | Pending::Strike { .. }
                | Pending::StrikeSource { .. }
                | Pending::HealSource { .. }
                | Pending::Heal { .. } => None,
            })
            .filter(|(_, (send, _))| matches(send))
            .collect();
        for (key, (send, is_stored)) in answers {
            self.queue.remove(&key);
            self.upcoming -= 1;
            if is_stored {
                *self.surplus.entry((send.0, send.1)).or_default() += 1;
            }
            self.end_send(send, End::Dropped);
        }
    }

    /// Drops some gathers. Answers in flight are handled elsewhere.
    pub(super) fn drop_gathers(&mut self, matches: impl Fn(&Key) -> bool) {
        let open = self.gathers.iter();
        let open = open.filter(|(key, of)| !of.is_over && matches(key));
        let open: Vec<(Key, FragmentIndex)> = open.map(|(key, of)| (*key, of.keeps)).collect();
        for (key, keeps) in open {
            self.drop_gathered(key);
            self.end_send((key.0, key.1, key.2, keeps), End::Dropped);
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

    /// Reports the end of a send. A forward that follows another send is reported after that one.
    pub(super) fn tell_send(&mut self, span: Duration, send: Send, fault: Option<Fault>) {
        match self.forwards.following.get_mut(&send) {
            Some(following) => following.ended = Some(fault),
            None => self.tell_after(span, answer(send, fault)),
        }
    }

    /// Takes back a forward that nobody waits for any more, wherever it is.
    pub(super) fn take_back(&mut self, from: DepotId, send: Send, ended: Option<Option<Fault>>) {
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
}
