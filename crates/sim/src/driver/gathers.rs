//! Gathers: destinations that rebuild a chunk from fragments of several depots, and depots that
//! rebuild one fragment. Unlike forwards, they stop when the driver dies, because nobody waits for
//! them.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use posthaste_core::contract::{Fault, GiverEnd, Input};
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

use super::{
    CONNECT_TIMEOUT, Run,
    sends::{Send, answer},
};
use crate::world::{Arrival, Condition, Node, Sending};

pub(super) type Key = (DepotId, RequestId, ChunkIndex);

/// Chunk that is being gathered.
#[derive(Debug)]
pub(super) struct Gathering {
    /// Result: the chunk, or one fragment.
    pub(super) keeps: FragmentIndex,
    needed: usize,
    share: Bytes,
    /// All depots that were named.
    named: Vec<DepotId>,
    /// Depots that were not asked yet.
    reserve: VecDeque<(DepotId, FragmentIndex)>,
    asked: BTreeMap<DepotId, Timestamp>,
    came: usize,
    told: Vec<GiverEnd>,
    /// End of the gather, with the answer in flight.
    pub(super) is_over: bool,
}

/// All running gathers.
pub(super) type Gathers = BTreeMap<Key, Gathering>;

impl Run<'_> {
    /// Starts a gather of a chunk at a destination, or of a fragment at a depot.
    pub(super) fn gather(
        &mut self,
        key: Key,
        keeps: FragmentIndex,
        from: Vec<(DepotId, FragmentIndex)>,
    ) {
        let (to, request, chunk) = key;
        let send = (to, request, chunk, keeps);
        let share = self.bytes_of(request, chunk, FragmentIndex::new(0));
        let bytes = self.bytes_of(request, chunk, keeps);
        let found = self.checkers.conservation.on_send(send, bytes);
        if let Some(noted) = &mut self.noted {
            noted.delivered += bytes;
        }
        self.checkers.note(self.now, found);
        for &(giver, fragment) in &from {
            let site = self.world.site(giver);
            // A depot hit by a fault may have lost it before anybody knows.
            let is_sound =
                site.is_some_and(|site| site.holds(request, chunk, fragment) || site.ordeal > 0);
            let given = (to, request, chunk, fragment);
            let found = (self.checkers.conservation).on_forward(giver, given, is_sound);
            self.checkers.note(self.now, found);
            let found = self.checkers.capacity.on_forward(giver, to, share);
            self.checkers.note(self.now, found);
        }
        let spec = self.world.specs.get(&request);
        let needed = spec.map_or(1, |spec| usize::from(spec.code.data()));
        let gathering = Gathering {
            keeps,
            needed,
            share,
            named: from.iter().map(|(giver, _)| *giver).collect(),
            reserve: from.into(),
            asked: BTreeMap::new(),
            came: 0,
            told: Vec::new(),
            is_over: false,
        };
        self.gathers.insert(key, gathering);
        let found = self.check_deliveries(to);
        self.checkers.note(self.now, found);
        let is_dead = self
            .world
            .site(to)
            .is_none_or(|site| site.condition() == Condition::Dead);
        if is_dead {
            self.end_gather(key, CONNECT_TIMEOUT, Some(Fault::Unreachable));
            return;
        }
        for _ in 0..needed {
            self.ask_next(key);
        }
    }

    /// Checks that no more is in flight to a destination than allowed.
    pub(super) fn check_deliveries(&self, to: DepotId) -> Result<(), crate::checkers::Found> {
        let gathered = self.gathers.keys().filter(|key| key.0 == to).count();
        let forwarded = self.forwards.whole_to(to);
        self.checkers.capacity.on_delivery(to, gathered + forwarded)
    }

    /// Asks the next depot in reserve. The gather fails if none is left and too few fragments will
    /// come.
    fn ask_next(&mut self, key: Key) {
        let (to, request, chunk) = key;
        loop {
            let Some(gathering) = self.gathers.get_mut(&key).filter(|of| !of.is_over) else {
                return;
            };
            let Some((giver, fragment)) = gathering.reserve.pop_front() else {
                if gathering.asked.len() + gathering.came < gathering.needed {
                    self.end_gather(key, CONNECT_TIMEOUT, Some(Fault::Unreachable));
                }
                return;
            };
            let (Some(giver_at), Some(place)) = (self.world.place(giver), self.world.place(to))
            else {
                return;
            };
            let site = &self.world.sites[giver_at];
            let fault = if site.condition() == Condition::Dead {
                Some(Fault::Unreachable)
            } else {
                (!site.holds(request, chunk, fragment)).then_some(Fault::SourceVanished)
            };
            if let Some(fault) = fault {
                gathering.told.push(GiverEnd {
                    depot: giver,
                    fault: Some(fault),
                    span: Duration::ZERO,
                });
                continue;
            }
            gathering.asked.insert(giver, self.now);
            let sending = Sending {
                request,
                chunk,
                fragment,
                bytes: gathering.share,
            };
            self.world
                .send(Node::site(giver_at), Node::site(place), sending);
            return;
        }
    }

    /// Handles a fragment of a gather that arrived or was lost. Returns whether it belonged to one.
    pub(super) fn on_gathered(&mut self, arrival: &Arrival, is_lost: bool) -> bool {
        let Some((key, giver)) = self.gathered(arrival) else {
            return false;
        };
        let is_corrupt = !is_lost && self.dice.chance(self.scenario.corrupt_permille);
        let now = self.now;
        let Some(gathering) = self.gathers.get_mut(&key).filter(|of| !of.is_over) else {
            return true;
        };
        let since = gathering.asked.remove(&giver).unwrap_or(now);
        let fault = match (is_lost, is_corrupt) {
            (true, _) => Some(Fault::Unreachable),
            (false, true) => Some(Fault::Corrupt),
            (false, false) => None,
        };
        gathering.told.push(GiverEnd {
            depot: giver,
            fault,
            span: now.since(since),
        });
        if fault.is_some() {
            self.ask_next(key);
            return true;
        }
        gathering.came += 1;
        if gathering.came == gathering.needed {
            self.keep_gathered(key);
        }
        true
    }

    /// Rebuilds and stores the result, or reports that there is no room.
    fn keep_gathered(&mut self, key: Key) {
        let (to, request, chunk) = key;
        let keeps = self.gathers.get(&key).map(|gathering| gathering.keeps);
        let (Some(site), Some(keeps)) = (self.world.site(to), keeps) else {
            return;
        };
        let latency = Duration::from_micros(site.latency_micros);
        let send = (to, request, chunk, keeps);
        let fault = self.store_among_relays(send).flatten();
        self.end_gather(key, latency, fault);
    }

    /// Answers, and takes back fragments still in flight for it.
    fn end_gather(&mut self, key: Key, span: Duration, fault: Option<Fault>) {
        let (depot, request, chunk) = key;
        self.drop_gathered(key);
        let Some(gathering) = self.gathers.get_mut(&key) else {
            return;
        };
        gathering.is_over = true;
        let keeps = gathering.keeps;
        let givers = std::mem::take(&mut gathering.told);
        let told = Input::GatherTold {
            request,
            depot,
            chunk,
            givers,
        };
        let input = answer((depot, request, chunk, keeps), fault);
        self.tell_after(span, told);
        self.tell_after(span, input);
    }

    pub(super) fn drop_gathered(&mut self, (to, request, chunk): Key) {
        if let Some(place) = self.world.place(to) {
            let is_of_it = |sending: &Sending| {
                sending.request == request
                    && sending.chunk == chunk
                    && sending.fragment != FragmentIndex::WHOLE
            };
            self.world.drop_forwards(place, is_of_it);
        }
    }

    /// Handles the end of a gather. Returns whether the send was one.
    pub(super) fn end_gathering(&mut self, send: &Send) -> bool {
        let key = (send.0, send.1, send.2);
        let is_it = |gathering: &&Gathering| gathering.keeps == send.3;
        let ended = match self.gathers.get(&key).filter(is_it) {
            Some(_) => self.gathers.remove(&key),
            None => None,
        };
        for giver in ended.iter().flat_map(|of| &of.named) {
            let share = ended.as_ref().map_or(Bytes::ZERO, |of| of.share);
            self.checkers.capacity.on_forward_end(*giver, send.0, share);
        }
        ended.is_some()
    }

    /// Fails all gathers at a destination that is gone.
    pub(super) fn lose_gathers(&mut self, to: DepotId, span: Duration) {
        let open = self.gathers.iter();
        let open = open.filter(|(key, of)| !of.is_over && key.0 == to);
        let open: Vec<Key> = open.map(|(key, _)| *key).collect();
        for key in open {
            self.end_gather(key, span, Some(Fault::Unreachable));
        }
    }

    /// Returns the chunk and the sender of a fragment that arrived for a gather. Destinations
    /// accept no fragments for themselves.
    fn gathered(&self, arrival: &Arrival) -> Option<(Key, DepotId)> {
        let Arrival { from, to, sending } = arrival;
        let id = |node: &Node| Some(self.world.sites.get(node.place()?)?.id);
        let (giver, to) = (id(from)?, id(to)?);
        let spec = self.world.specs.get(&sending.request)?;
        let key = (to, sending.request, sending.chunk);
        let is_asked = |of: &Gathering| of.asked.contains_key(&giver);
        let is_gathered =
            spec.destinations.contains(&to) || self.gathers.get(&key).is_some_and(is_asked);
        (is_gathered && sending.fragment != FragmentIndex::WHOLE).then_some((key, giver))
    }
}
