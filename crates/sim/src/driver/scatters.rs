//! Scatters: depots that receive a whole chunk, code it, keep a fragment and forward the others.
//!
//! Until the chunk has arrived, one answer counts for all its fragments. From then on each fragment
//! is an ordinary forward.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use posthaste_core::contract::{Fault, Input};
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

use super::{
    CONNECT_TIMEOUT, Pending, Run,
    sends::{Send, answer},
};
use crate::{
    checkers::{End, ensure},
    world::{Arrival, Condition, Node, Sending},
};

/// Coding depot and its chunk.
type Key = (DepotId, RequestId, ChunkIndex);

/// Chunk on its way to the depot that codes it.
#[derive(Debug)]
struct Scattering {
    kept: FragmentIndex,
    pieces: BTreeMap<DepotId, FragmentIndex>,
}

/// All chunks coded at depots.
#[derive(Debug, Default)]
pub(super) struct Scatters {
    /// Chunks that have not arrived, or of which no fragment was begun.
    open: BTreeMap<Key, Scattering>,
    /// Bytes of the whole chunk for each kept fragment, until that is answered.
    whole: BTreeMap<Send, Bytes>,
    /// Sending depot of each fragment, and the start of its forward.
    pieces: BTreeMap<Send, (DepotId, Option<Timestamp>)>,
}

impl Scatters {
    /// Ends a fragment. Returns the bytes of the whole chunk if it was sent for coding.
    pub(super) fn end(&mut self, send: &Send) -> Option<Bytes> {
        self.pieces.remove(send);
        self.whole.remove(send)
    }
}

impl Run<'_> {
    /// Sends a chunk to a depot that codes it.
    pub(super) fn scatter(
        &mut self,
        key: Key,
        kept: FragmentIndex,
        to: &[(DepotId, FragmentIndex)],
    ) {
        let (depot, request, chunk) = key;
        let whole = self.bytes_of(request, chunk, FragmentIndex::WHOLE);
        let share = self.bytes_of(request, chunk, kept);
        let places: BTreeSet<DepotId> = to.iter().map(|(to, _)| *to).chain([depot]).collect();
        let fragments: BTreeSet<FragmentIndex> = to
            .iter()
            .map(|(_, fragment)| *fragment)
            .chain([kept])
            .collect();
        let is_spread = places.len() == to.len() + 1 && fragments.len() == to.len() + 1;
        let found = ensure("one fragment of a chunk a depot", is_spread, || {
            format!("{chunk} of {request} is scattered from {depot} to {to:?}")
        });
        self.checkers.note(self.now, found);
        let found = (self.checkers.kept).on_send(self.now, request, depot, whole);
        self.checkers.note(self.now, found);
        let found = self.checkers.capacity.on_send(depot, request, chunk, whole);
        self.checkers.note(self.now, found);
        let own = (depot, request, chunk, kept);
        let found = self.checkers.conservation.on_send(own, share);
        self.checkers.note(self.now, found);
        self.scatters.whole.insert(own, whole);
        self.left += whole;
        if let Some(noted) = &mut self.noted {
            let all = places.iter().map(|at| (request, *at));
            noted.reached.extend(all);
        }
        for &(to, fragment) in to {
            let send = (to, request, chunk, fragment);
            let found = self.checkers.kept.on_sent_on(request, to, share);
            self.checkers.note(self.now, found);
            let found = self.checkers.capacity.on_forward(depot, to, share);
            self.checkers.note(self.now, found);
            let found = self.checkers.conservation.on_send(send, share);
            self.checkers.note(self.now, found);
            self.forwards.insert(send, depot);
            self.scatters.pieces.insert(send, (depot, None));
        }
        let pieces = to.iter().copied().collect();
        self.scatters.open.insert(key, Scattering { kept, pieces });
        let is_gone = self.source_gone.get(&request).copied().unwrap_or(false);
        let Some(place) = self.world.place(depot) else {
            return;
        };
        let site = &self.world.sites[place];
        let latency = Duration::from_micros(site.latency_micros);
        let fault = if is_gone {
            Some((Duration::from_millis(1), Fault::SourceVanished))
        } else if site.condition() == Condition::Dead {
            Some((CONNECT_TIMEOUT, Fault::Unreachable))
        } else {
            (!site.codes).then_some((latency, Fault::Other))
        };
        if let Some((span, fault)) = fault {
            self.left -= whole;
            self.fail_scatter(key, span, fault);
            return;
        }
        let sending = Sending {
            request,
            chunk,
            fragment: kept,
            bytes: whole,
        };
        self.world.send(Node::CENTRE, Node::site(place), sending);
    }

    fn fail_scatter(&mut self, (depot, request, chunk): Key, span: Duration, fault: Fault) {
        let failed = Input::ScatterFailed {
            request,
            depot,
            chunk,
            fault,
        };
        self.tell_after(span, failed);
    }

    /// Handles a chunk to be coded that arrived from the centre or was lost. Returns whether the
    /// arrival was one.
    pub(super) fn on_to_be_coded(&mut self, arrival: &Arrival, lost: Option<Duration>) -> bool {
        let Arrival { from, to, sending } = arrival;
        let site = to.place().map(|place| &self.world.sites[place]);
        let Some(site) = site.filter(|_| *from == Node::CENTRE) else {
            return false;
        };
        let key = (site.id, sending.request, sending.chunk);
        let latency = Duration::from_micros(site.latency_micros);
        let open = self.scatters.open.get(&key);
        if open.is_none_or(|open| open.kept != sending.fragment) {
            return false;
        }
        if let Some(span) = lost {
            self.fail_scatter(key, span, Fault::Unreachable);
            return true;
        }
        if self.meets_file(key.1, key.2, latency) {
            self.fail_scatter(key, latency, Fault::Busy);
            return true;
        }
        let is_corrupt = self.dice.chance(self.scenario.corrupt_permille);
        if self.source_changed || is_corrupt {
            let fault = match self.source_changed {
                true => Fault::SourceChanged,
                false => Fault::Corrupt,
            };
            self.fail_scatter(key, latency, fault);
            return true;
        }
        if let Some(open) = self.scatters.open.remove(&key) {
            self.keep_own(key, open.kept, latency);
            for (to, fragment) in open.pieces {
                self.send_piece(key, to, fragment);
            }
        }
        true
    }

    /// Stores the fragment that the coding depot keeps.
    fn keep_own(&mut self, (depot, request, chunk): Key, fragment: FragmentIndex, span: Duration) {
        let send = (depot, request, chunk, fragment);
        if let Some(fault) = self.store_among_relays(send) {
            self.tell_after(span, answer(send, fault));
        }
    }

    /// Forwards one fragment from the coding depot.
    fn send_piece(&mut self, (depot, request, chunk): Key, to: DepotId, fragment: FragmentIndex) {
        let send = (to, request, chunk, fragment);
        let (Some(from), Some(place)) = (self.world.place(depot), self.world.place(to)) else {
            return;
        };
        if self.world.sites[place].condition() == Condition::Dead {
            self.tell_after(CONNECT_TIMEOUT, answer(send, Some(Fault::Unreachable)));
            return;
        }
        if let Some(piece) = self.scatters.pieces.get_mut(&send) {
            piece.1 = Some(self.now);
        }
        let bytes = self.bytes_of(request, chunk, fragment);
        let sending = Sending {
            request,
            chunk,
            fragment,
            bytes,
        };
        self.world
            .send(Node::site(from), Node::site(place), sending);
    }

    /// Reports a stored fragment that a depot coded, after the duration of its transfer.
    pub(super) fn tell_piece(&mut self, send: Send, span: Duration) {
        let (depot, request, chunk, _) = send;
        let piece = self.scatters.pieces.get(&send);
        if let Some((_, Some(since))) = piece {
            let told = Input::PieceTold {
                request,
                depot,
                chunk,
                span: self.now.since(*since),
            };
            self.tell_after(span, told);
        }
    }

    /// Fails every fragment of a chunk of which none was begun.
    pub(super) fn on_scatter_failed(&mut self, key: Key) {
        let (depot, request, chunk) = key;
        if let Some(open) = self.scatters.open.remove(&key) {
            self.end_send((depot, request, chunk, open.kept), End::Failed);
            for (to, fragment) in open.pieces {
                self.end_send((to, request, chunk, fragment), End::Failed);
            }
        }
    }

    /// Stops all fragments of a request to a depot: those coded elsewhere, and those it codes for
    /// others.
    pub(super) fn drop_scatters(&mut self, request: RequestId, depot: DepotId) {
        let open = self
            .scatters
            .open
            .iter_mut()
            .filter(|(key, _)| key.1 == request);
        let pieces = open.filter_map(|(key, open)| Some((key.2, open.pieces.remove(&depot)?)));
        let pieces: Vec<_> = pieces.collect();
        for (chunk, fragment) in pieces {
            self.end_send((depot, request, chunk, fragment), End::Dropped);
        }
        let own = self.scatters.pieces.iter();
        let own = own.filter(|(send, piece)| piece.0 == depot && send.1 == request);
        let own: BTreeSet<Send> = own.map(|(send, _)| *send).collect();
        self.drop_open(|key| key.0 == depot && key.1 == request);
        for (to, _, chunk, fragment) in own.iter().copied() {
            let Some((from, to)) = self.world.place(depot).zip(self.world.place(to)) else {
                continue;
            };
            let is_it = |sending: &Sending| {
                (sending.request, sending.chunk, sending.fragment) == (request, chunk, fragment)
            };
            for arrival in self.world.drop_between(from, to, is_it) {
                // A fragment ordered by a dead driver is counted off.
                self.is_orphan(&arrival);
            }
        }
        self.forget_answers(|send| own.contains(send));
        for send in own {
            if self.scatters.pieces.contains_key(&send) {
                self.end_send(send, End::Dropped);
            }
        }
    }

    /// Gives up chunks that some depots should code, with all their fragments.
    fn drop_open(&mut self, matches: impl Fn(&Key) -> bool) {
        let keys: Vec<Key> = self
            .scatters
            .open
            .keys()
            .filter(|key| matches(key))
            .copied()
            .collect();
        for key in keys {
            let (depot, request, chunk) = key;
            let Some(open) = self.scatters.open.remove(&key) else {
                continue;
            };
            for (to, fragment) in open.pieces {
                self.end_send((to, request, chunk, fragment), End::Dropped);
            }
            let own = (depot, request, chunk, open.kept);
            if self.scatters.whole.contains_key(&own) {
                self.end_send(own, End::Dropped);
            }
        }
        let is_stale = |pending: &Pending| {
            if let Pending::Tell {
                input:
                    Input::ScatterFailed {
                        request,
                        depot,
                        chunk,
                        ..
                    },
                ..
            } = pending
            {
                return matches(&(*depot, *request, *chunk));
            }
            false
        };
        let stale = self.queue.iter().filter(|(_, pending)| is_stale(pending));
        let stale: Vec<_> = stale.map(|(at, _)| *at).collect();
        for at in stale {
            self.queue.remove(&at);
            self.upcoming -= 1;
        }
    }

    /// Gives up chunks that have not arrived, because the driver is dead.
    pub(super) fn crash_scatters(&mut self) {
        self.drop_open(|_| true);
        self.scatters = Scatters::default();
    }
}
