//! Depots that send on what they hold: as their owners' processes do, they go on when the driver dies.

use std::{collections::BTreeMap, time::Duration};

use posthaste_core::contract::Fault;
use posthaste_types::{DepotId, FragmentIndex, RequestId};

use super::{CONNECT_TIMEOUT, Run, follows::Following, sends::Send};
use crate::{
    checkers::End,
    world::{Arrival, Condition, Node, Sending},
};

/// Everything that depots are told to send on.
#[derive(Debug, Default)]
pub(super) struct Forwards {
    /// Whose answer the driver waits for, and who sends.
    live: BTreeMap<Send, DepotId>,
    /// What a driver that is dead ordered: nobody waits for the answer.
    orphans: BTreeMap<(DepotId, Send), u32>,
    /// Those that go on while they still arrive: the driver tells of none before what it follows.
    pub(super) following: BTreeMap<Send, Following>,
}

impl Forwards {
    /// The answer is there, or nobody waits for it any more. Returns who sent it.
    pub(super) fn end(&mut self, send: &Send) -> Option<DepotId> {
        self.live.remove(send)
    }

    /// A depot will send it on once it has coded it.
    pub(super) fn insert(&mut self, send: Send, from: DepotId) {
        self.live.insert(send, from);
    }

    /// Whole chunks on their way to a destination.
    pub(super) fn whole_to(&self, to: DepotId) -> usize {
        let live = self.live.keys();
        let live = live.filter(|send| send.0 == to && send.3 == FragmentIndex::WHOLE);
        live.count()
    }

    /// Whether what arrived, or was lost, is one that nobody waits for. It is counted off.
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
    /// A send ended, whoever sent.
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

    /// Lets a depot send on what it holds.
    pub(super) fn forward(&mut self, from: DepotId, send: Send) {
        self.send_on(from, send, false);
    }

    /// Lets a depot send on what it holds, or what is on its way there.
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
        // One that something befell may have lost it, and nobody may know yet.
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

    /// Takes back what is on its way to a depot from others, as far as the driver knows of it.
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

    /// The driver is dead: depots go on, and nobody hears of it.
    pub(super) fn orphan_forwards(&mut self) {
        self.drop_gathers(|_| true);
        for (send, from) in std::mem::take(&mut self.forwards.live) {
            *self.forwards.orphans.entry((from, send)).or_default() += 1;
            self.forwards.live.insert(send, from);
            self.end_send(send, End::Dropped);
        }
    }

    /// Whether what arrived, or was lost on its way, was ordered by a driver that is dead.
    pub(super) fn is_orphan(&mut self, arrival: &Arrival) -> bool {
        let Arrival { from, to, sending } = *arrival;
        let id = |node: Node| node.place().map(|place| self.world.sites[place].id);
        let (Some(from), Some(to)) = (id(from), id(to)) else {
            return false;
        };
        let send = (to, sending.request, sending.chunk, sending.fragment);
        self.forwards.take_orphan(from, send)
    }
}
