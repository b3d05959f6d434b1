//! The network as a fluid: queues of fragments between places, each moving at its fair share.
//!
//! A flow carries one fragment after the other from one place to another. It crosses its own path,
//! the egress of its start, the ingress of its end, and links between them. Bytes are exact
//! integers: bytes in flight are kept in millionths, so that rate times microseconds loses nothing.
//! A flow is updated only when its rate changes or its first fragment arrives. Arrivals wait in a
//! heap, and outdated entries are skipped when they come up.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
    time::Duration,
};

use posthaste_types::{Bytes, ChunkIndex, FragmentIndex, RequestId, Timestamp};

use super::shares::{ResourceId, Shares, UserId};

mod follows;

use follows::Follows;

/// Place that sends or receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node(usize);

impl Node {
    /// Place of the sources.
    pub(crate) const CENTRE: Self = Self(0);

    /// Returns the depot or destination at this place among the sites.
    pub(crate) const fn site(place: usize) -> Self {
        Self(place + 1)
    }

    /// Returns its place among the sites; none for the centre.
    pub(crate) const fn place(self) -> Option<usize> {
        self.0.checked_sub(1)
    }
}

/// Fragment in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sending {
    pub(crate) request: RequestId,
    pub(crate) chunk: ChunkIndex,
    pub(crate) fragment: FragmentIndex,
    pub(crate) bytes: Bytes,
}

/// Fragment that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) from: Node,
    pub(crate) to: Node,
    pub(crate) sending: Sending,
}

/// Bytes that a flow carried since its last measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) from: Node,
    pub(crate) to: Node,
    pub(crate) bytes: u64,
    /// Continuous supply: the flow always had a fragment to send.
    pub(crate) is_saturated: bool,
}

/// Queue of fragments from one place to another. Its number is that of its user of [`Shares`].
#[derive(Debug)]
struct Flow {
    from: Node,
    to: Node,
    queue: VecDeque<Sending>,
    /// Millionths of a byte of the first fragment that are still to move, at `since`.
    left: u128,
    rate: u64,
    since: Timestamp,
    /// Number of its valid entry in the heap.
    entry: u64,
    /// Millionths of a byte moved since the last measurement, at `since`.
    moved: u128,
    was_idle: bool,
    is_busy: bool,
}

impl Flow {
    fn new(from: Node, to: Node, now: Timestamp) -> Self {
        Self {
            from,
            to,
            queue: VecDeque::new(),
            left: 0,
            rate: 0,
            since: now,
            entry: 0,
            moved: 0,
            was_idle: true,
            is_busy: false,
        }
    }

    fn bring_up(&mut self, now: Timestamp) {
        let moved = u128::from(self.rate) * now.since(self.since).as_micros();
        let moved = moved.min(self.left);
        self.left -= moved;
        self.moved += moved;
        self.since = now;
    }

    fn begin_first(&mut self) {
        let first = self.queue.front();
        self.left = first.map_or(0, |first| u128::from(first.bytes.get()) * 1_000_000);
        self.was_idle |= first.is_none();
    }

    fn arrives_at(&self) -> Option<Timestamp> {
        if self.queue.is_empty() || self.rate == 0 {
            return None;
        }
        let micros = self.left.div_ceil(u128::from(self.rate));
        let micros = u64::try_from(micros).unwrap_or(u64::MAX);
        Some(self.since + Duration::from_micros(micros))
    }
}

/// Resources that all flows of a place share.
#[derive(Debug, Default)]
struct Attachment {
    way_out: Option<ResourceId>,
    way_in: Option<ResourceId>,
    /// Links between this place and the rest.
    links: BTreeSet<ResourceId>,
    is_closed: bool,
    flows: Vec<UserId>,
}

/// Flows between all places.
#[derive(Debug, Default)]
pub(crate) struct Network {
    now: Timestamp,
    shares: Shares,
    nodes: Vec<Attachment>,
    flows: Vec<Flow>,
    by_ends: BTreeMap<(Node, Node), UserId>,
    /// Resources that paths between sites cross.
    crosses: BTreeMap<(Node, Node), Vec<ResourceId>>,
    follows: Follows,
    arrivals: BinaryHeap<Reverse<(Timestamp, UserId, u64)>>,
    /// Flows that had a fragment to send since their last measurement.
    busy: Vec<UserId>,
    /// Buffer that each settling reuses.
    changed: Vec<(UserId, u64)>,
}

impl Network {
    /// Creates a network of the centre alone.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            now,
            nodes: vec![Attachment::default()],
            ..Self::default()
        }
    }

    pub(crate) fn add_site(&mut self) -> Node {
        self.nodes.push(Attachment::default());
        Node(self.nodes.len() - 1)
    }

    /// Adds a resource that flows can cross. `capacity` is in bytes a second.
    pub(crate) fn add_resource(&mut self, capacity: u64) -> ResourceId {
        self.shares.add_resource(capacity)
    }

    /// Sets the resource that all outgoing data of the place crosses. Call it before the place's
    /// paths are added.
    pub(crate) fn set_way_out(&mut self, node: Node, way: ResourceId) {
        self.nodes[node.0].way_out = Some(way);
    }

    /// Sets the resource that all incoming data of the place crosses. Call it before the place's
    /// paths are added.
    pub(crate) fn set_way_in(&mut self, node: Node, way: ResourceId) {
        self.nodes[node.0].way_in = Some(way);
    }

    /// Puts a link between the place and all others. Call it before the place's paths are added.
    pub(crate) fn set_link(&mut self, node: Node, link: ResourceId) {
        self.nodes[node.0].links.insert(link);
    }

    /// Adds the path between two places without one.
    pub(crate) fn add_path(&mut self, from: Node, to: Node, path: ResourceId) {
        let (begin, end) = (&self.nodes[from.0], &self.nodes[to.0]);
        let crosses = [Some(path), begin.way_out, end.way_in];
        let links = begin.links.symmetric_difference(&end.links).copied();
        let crosses: Vec<ResourceId> = crosses.into_iter().flatten().chain(links).collect();
        let flow = self.shares.add_user(u64::MAX, crosses.iter().copied());
        if from != Node::CENTRE && to != Node::CENTRE {
            self.crosses.insert((from, to), crosses);
        }
        self.flows.push(Flow::new(from, to, self.now));
        self.by_ends.insert((from, to), flow);
        self.nodes[from.0].flows.push(flow);
        self.nodes[to.0].flows.push(flow);
    }

    /// Adds an alternative route between two places with a path. It crosses the resources at both
    /// ends, and `by` instead of all between them. Returns the flows of the path and of the detour.
    pub(crate) fn add_detour(
        &mut self,
        (from, to): (Node, Node),
        by: ResourceId,
    ) -> Option<(UserId, UserId)> {
        let path = *self.by_ends.get(&(from, to))?;
        let ends = [self.nodes[from.0].way_out, self.nodes[to.0].way_in];
        let crosses = ends.into_iter().flatten().chain([by]);
        let flow = self.shares.add_user(u64::MAX, crosses);
        self.flows.push(Flow::new(from, to, self.now));
        self.nodes[from.0].flows.push(flow);
        self.nodes[to.0].flows.push(flow);
        Some((path, flow))
    }

    /// Routes data between two places over this flow from now on, including transfers in flight.
    pub(crate) fn steer(&mut self, ends: (Node, Node), flow: UserId) {
        let before = self.by_ends.insert(ends, flow);
        let Some(before) = before.filter(|before| *before != flow) else {
            return;
        };
        self.flows[before].bring_up(self.now);
        self.flows[flow].bring_up(self.now);
        let old = &mut self.flows[before];
        let queue = std::mem::take(&mut old.queue);
        let (left, moved) = (
            std::mem::take(&mut old.left),
            std::mem::take(&mut old.moved),
        );
        let (was_idle, is_busy) = (old.was_idle, std::mem::take(&mut old.is_busy));
        let new = &mut self.flows[flow];
        (new.queue, new.left, new.was_idle, new.is_busy) = (queue, left, was_idle, is_busy);
        new.moved += moved;
        self.busy.retain(|busy| *busy != before && *busy != flow);
        if is_busy {
            self.busy.push(flow);
        }
        self.refresh(before);
        self.refresh(flow);
    }

    pub(crate) fn has_path(&self, from: Node, to: Node) -> bool {
        self.by_ends.contains_key(&(from, to))
    }

    /// Adds traffic of others on a resource. It demands nothing yet.
    pub(crate) fn add_background(&mut self, on: ResourceId) -> UserId {
        // An empty queue never has an arrival, so this flow only takes its share.
        self.flows
            .push(Flow::new(Node::CENTRE, Node::CENTRE, self.now));
        self.shares.add_user(0, [on])
    }

    /// Sets the demand of other traffic, in bytes a second.
    pub(crate) fn set_background(&mut self, background: UserId, wants: u64) {
        self.shares.set_limit(background, wants);
        self.shares.set_active(background, wants > 0);
    }

    pub(crate) fn set_capacity(&mut self, resource: ResourceId, capacity: u64) {
        self.shares.set_capacity(resource, capacity);
    }

    /// Closes or opens a place. Queues to and from a closed place stand still.
    pub(crate) fn set_closed(&mut self, node: Node, is_closed: bool) {
        if self.nodes[node.0].is_closed != is_closed {
            self.nodes[node.0].is_closed = is_closed;
            for place in 0..self.nodes[node.0].flows.len() {
                self.refresh(self.nodes[node.0].flows[place]);
            }
        }
    }

    /// Queues a fragment on a path. Without a path, it is lost.
    pub(crate) fn send(&mut self, from: Node, to: Node, sending: Sending) {
        if let Some(&id) = self.by_ends.get(&(from, to)) {
            self.queue(id, sending);
        }
    }

    fn queue(&mut self, id: UserId, sending: Sending) {
        let flow = &mut self.flows[id];
        if !flow.is_busy {
            flow.is_busy = true;
            self.busy.push(id);
        }
        flow.queue.push_back(sending);
        if flow.queue.len() == 1 {
            flow.bring_up(self.now);
            flow.begin_first();
            self.refresh(id);
        }
    }

    /// Takes sends out of one path. Bytes already moved of the first one are lost.
    pub(crate) fn drop_sends(
        &mut self,
        from: Node,
        to: Node,
        is_gone: impl Fn(&Sending) -> bool,
    ) -> Vec<Sending> {
        let found = self.by_ends.get(&(from, to)).copied();
        found.map_or_else(Vec::new, |id| self.drop_of(id, is_gone))
    }

    /// Takes one send out of a path if more than `begun` are before it. Returns whether it was
    /// there.
    pub(crate) fn recall(
        &mut self,
        from: Node,
        to: Node,
        begun: usize,
        is_it: impl Fn(&Sending) -> bool,
    ) -> bool {
        let found = self.by_ends.get(&(from, to)).copied();
        let waiting = found.and_then(|id| {
            let queue = &self.flows[id].queue;
            let place = queue.iter().position(&is_it)?;
            (place >= begun.max(1)).then_some((id, place))
        });
        waiting.is_some_and(|(id, place)| self.flows[id].queue.remove(place).is_some())
    }

    /// Takes out everything in flight to or from a place.
    pub(crate) fn drop_all(&mut self, node: Node) -> Vec<Arrival> {
        let mut dropped = Vec::new();
        for place in 0..self.nodes[node.0].flows.len() {
            let id = self.nodes[node.0].flows[place];
            let (from, to) = (self.flows[id].from, self.flows[id].to);
            let sends = self.drop_of(id, |_| true).into_iter();
            dropped.extend(sends.map(|sending| Arrival { from, to, sending }));
        }
        dropped
    }

    /// Takes sends out of all paths to a place, except the one from the centre.
    pub(crate) fn drop_forwards(
        &mut self,
        node: Node,
        is_gone: impl Fn(&Sending) -> bool,
    ) -> Vec<Arrival> {
        let mut dropped = Vec::new();
        for place in 0..self.nodes[node.0].flows.len() {
            let id = self.nodes[node.0].flows[place];
            let (from, to) = (self.flows[id].from, self.flows[id].to);
            if to == node && from != Node::CENTRE {
                let sends = self.drop_of(id, &is_gone).into_iter();
                dropped.extend(sends.map(|sending| Arrival { from, to, sending }));
            }
        }
        dropped
    }

    fn drop_of(&mut self, id: UserId, is_gone: impl Fn(&Sending) -> bool) -> Vec<Sending> {
        let flow = &mut self.flows[id];
        let first = flow.queue.front().copied();
        let (dropped, kept): (Vec<Sending>, Vec<Sending>) =
            flow.queue.drain(..).partition(|sending| is_gone(sending));
        flow.queue = kept.into();
        if flow.queue.front().copied() != first {
            flow.bring_up(self.now);
            flow.begin_first();
            self.pace(id);
            self.refresh(id);
        }
        dropped
    }

    /// Returns the time of the next arrival, if nothing changes before.
    pub(crate) fn next_arrival(&mut self) -> Option<Timestamp> {
        self.settle();
        while let Some(&Reverse((at, id, entry))) = self.arrivals.peek() {
            if self.flows[id].entry == entry {
                let turn = self.follows.next().unwrap_or(at);
                return Some(at.min(turn).max(self.now));
            }
            self.arrivals.pop();
        }
        self.follows.next()
    }

    /// Moves bytes until `then` and appends the arrivals at exactly that time. Nothing arrives
    /// before.
    pub(crate) fn advance(&mut self, then: Timestamp, arrived: &mut Vec<Arrival>) {
        self.settle();
        self.now = self.now.max(then);
        while let Some(&Reverse((at, id, entry))) = self.arrivals.peek() {
            if self.flows[id].entry != entry {
                self.arrivals.pop();
                continue;
            }
            if at > self.now {
                break;
            }
            self.arrivals.pop();
            let flow = &mut self.flows[id];
            flow.bring_up(self.now);
            let (from, to) = (flow.from, flow.to);
            let sending = flow.queue.pop_front();
            flow.begin_first();
            arrived.extend(sending.map(|sending| Arrival { from, to, sending }));
            self.pace(id);
            self.refresh(id);
        }
        self.pace_all();
    }

    /// Returns the bytes of each path from or to the centre that had data to send since the last
    /// measurement. The order is that of the sites.
    pub(crate) fn measure(&mut self) -> Vec<Carried> {
        let mut busy = std::mem::take(&mut self.busy);
        busy.sort_unstable();
        let mut carried = Vec::new();
        for id in busy {
            let flow = &mut self.flows[id];
            flow.bring_up(self.now);
            if flow.from == Node::CENTRE || flow.to == Node::CENTRE {
                carried.push(Carried {
                    from: flow.from,
                    to: flow.to,
                    bytes: u64::try_from(flow.moved / 1_000_000).unwrap_or(u64::MAX),
                    is_saturated: !flow.was_idle,
                });
            }
            flow.moved = 0;
            flow.was_idle = flow.queue.is_empty();
            flow.is_busy = !flow.queue.is_empty();
            if flow.is_busy {
                self.busy.push(id);
            }
        }
        carried
    }

    /// Updates a flow whose first fragment changed, or whose end opened or closed.
    fn refresh(&mut self, id: UserId) {
        let flow = &mut self.flows[id];
        let (from, to) = (flow.from, flow.to);
        let is_open = !self.nodes[from.0].is_closed && !self.nodes[to.0].is_closed;
        let moves = is_open && !flow.queue.is_empty() && !self.follows.is_held(id);
        if !moves {
            flow.bring_up(self.now);
            flow.rate = 0;
        }
        self.shares.set_active(id, moves);
        self.schedule(id);
    }

    /// Recomputes the rates after changes.
    fn settle(&mut self) {
        let mut changed = std::mem::take(&mut self.changed);
        self.shares.settle(&mut changed);
        for (id, rate) in changed.drain(..) {
            let flow = &mut self.flows[id];
            flow.bring_up(self.now);
            flow.rate = rate;
            self.schedule(id);
        }
        self.changed = changed;
    }

    fn schedule(&mut self, id: UserId) {
        let flow = &mut self.flows[id];
        flow.entry += 1;
        if let Some(at) = flow.arrives_at() {
            self.arrivals.push(Reverse((at, id, flow.entry)));
        }
        if self.arrivals.len() > 64 + 4 * self.flows.len() {
            let flows = &self.flows;
            self.arrivals
                .retain(|Reverse((_, id, entry))| flows[*id].entry == *entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    const START: Timestamp = Timestamp::from_secs(100);

    fn fragment(request: u64, bytes: u64) -> Sending {
        Sending {
            request: RequestId::new(request),
            chunk: ChunkIndex::new(0),
            fragment: FragmentIndex::new(0),
            bytes: Bytes::new(bytes),
        }
    }

    /// Returns the centre and sites with these paths from it; the egress carries 100 bytes a
    /// second.
    fn network(paths: &[u64]) -> (Network, Vec<ResourceId>) {
        let mut network = Network::new(START);
        let way_out = network.add_resource(100);
        network.set_way_out(Node::CENTRE, way_out);
        let paths = paths.iter().map(|path| {
            let site = network.add_site();
            let path = network.add_resource(*path);
            network.add_path(Node::CENTRE, site, path);
            path
        });
        let paths = paths.collect();
        (network, paths)
    }

    /// Plays to the end. Returns the place, request and milliseconds of each arrival.
    fn play(network: &mut Network) -> Vec<(usize, u64, u128)> {
        let mut all = Vec::new();
        while let Some(at) = network.next_arrival() {
            let mut arrived = Vec::new();
            network.advance(at, &mut arrived);
            all.extend(arrived.iter().map(|arrival| {
                let request = arrival.sending.request.get();
                (arrival.to.0, request, at.since(START).as_millis())
            }));
        }
        all
    }

    #[test]
    fn fragments_of_a_path_go_one_after_the_other_and_paths_share_the_way_out() {
        let (mut network, _) = network(&[80, 80]);
        network.send(Node::CENTRE, Node(1), fragment(1, 100));
        network.send(Node::CENTRE, Node(1), fragment(2, 80));
        network.send(Node::CENTRE, Node(2), fragment(3, 100));
        // Both get 50 for 2 s; then the first path is alone with 80.
        assert_eq!(
            play(&mut network),
            [(1, 1, 2000), (2, 3, 2000), (1, 2, 3000)]
        );
    }

    #[test]
    fn a_path_between_sites_shares_their_ways_and_not_the_centres() {
        let (mut network, _) = network(&[100, 100]);
        let site = network.add_site();
        let way_in = network.add_resource(30);
        network.set_way_in(site, way_in);
        for from in [Node::CENTRE, Node(1)] {
            let path = network.add_resource(1000);
            network.add_path(from, site, path);
        }
        network.send(Node::CENTRE, site, fragment(1, 30));
        network.send(Node(1), site, fragment(2, 30));
        network.send(Node::CENTRE, Node(2), fragment(3, 85));
        assert_eq!(
            play(&mut network),
            [(2, 3, 1000), (3, 1, 2000), (3, 2, 2000)]
        );
    }

    #[test]
    fn a_link_is_crossed_by_what_goes_through_it_and_not_by_what_stays_behind_it() {
        let mut network = Network::new(START);
        let link = network.add_resource(10);
        let sites = [network.add_site(), network.add_site()];
        for site in sites {
            network.set_link(site, link);
        }
        for (from, to) in [(Node::CENTRE, sites[0]), (sites[0], sites[1])] {
            let path = network.add_resource(40);
            network.add_path(from, to, path);
        }
        network.send(Node::CENTRE, sites[0], fragment(1, 40));
        network.send(sites[0], sites[1], fragment(2, 40));
        assert_eq!(play(&mut network), [(2, 2, 1000), (1, 1, 4000)]);
    }

    #[test]
    fn a_closed_site_stands_still_and_goes_on_where_it_stopped() {
        let (mut network, paths) = network(&[50]);
        network.send(Node::CENTRE, Node(1), fragment(1, 100));
        network.next_arrival();
        network.advance(START + Duration::from_secs(1), &mut Vec::new());
        network.set_closed(Node(1), true);
        assert_eq!(network.next_arrival(), None);
        network.advance(START + Duration::from_secs(5), &mut Vec::new());
        network.set_closed(Node(1), false);
        network.set_capacity(paths[0], 25);
        assert_eq!(play(&mut network), [(1, 1, 7000)]);
    }

    #[test]
    fn what_is_dropped_leaves_its_share_to_the_others() {
        let (mut network, _) = network(&[100, 100]);
        network.send(Node::CENTRE, Node(1), fragment(1, 500));
        network.send(Node::CENTRE, Node(1), fragment(2, 100));
        network.send(Node::CENTRE, Node(2), fragment(3, 150));
        network.next_arrival();
        network.advance(START + Duration::from_secs(1), &mut Vec::new());
        let first = |sending: &Sending| sending.request == RequestId::new(1);
        let dropped = network.drop_sends(Node::CENTRE, Node(1), first);
        assert_eq!(dropped.len(), 1);
        assert_eq!(network.drop_all(Node(1)).len(), 1);
        assert_eq!(play(&mut network), [(2, 3, 2000)]);
        let bytes: Vec<u64> = network.measure().iter().map(|path| path.bytes).collect();
        assert_eq!(bytes, [50, 150]);
    }

    #[test]
    fn when_the_first_is_dropped_the_second_begins_from_its_beginning() {
        let (mut network, _) = network(&[100]);
        network.send(Node::CENTRE, Node(1), fragment(1, 500));
        network.send(Node::CENTRE, Node(1), fragment(2, 200));
        network.next_arrival();
        network.advance(START + Duration::from_secs(1), &mut Vec::new());
        let first = |sending: &Sending| sending.request == RequestId::new(1);
        network.drop_sends(Node::CENTRE, Node(1), first);
        assert_eq!(play(&mut network), [(1, 2, 3000)]);
    }

    #[test]
    fn the_traffic_of_others_takes_its_fair_share_and_no_more_than_it_wants() {
        let (mut network, paths) = network(&[100]);
        let others = network.add_background(paths[0]);
        network.set_background(others, 80);
        network.send(Node::CENTRE, Node(1), fragment(1, 50));
        network.send(Node::CENTRE, Node(1), fragment(2, 50));
        let at = network.next_arrival();
        assert_eq!(at, Some(START + Duration::from_secs(1)));
        network.advance(START + Duration::from_secs(1), &mut Vec::new());
        network.set_background(others, 0);
        assert_eq!(play(&mut network), [(1, 2, 1500)]);
    }

    /// Action of a test on a network of three sites, the second of which also sends to the third.
    #[derive(Debug, Clone)]
    enum Deed {
        Send(usize, u64),
        Drop(usize),
        Close(usize, bool),
        Carry(usize, u64),
        Others(u64),
        Pass(u64),
    }

    fn deed() -> impl Strategy<Value = Deed> {
        prop_oneof![
            4 => (0..4usize, 0..5000u64).prop_map(|(path, bytes)| Deed::Send(path, bytes)),
            1 => (0..3usize).prop_map(Deed::Drop),
            1 => (0..3usize, any::<bool>()).prop_map(|(site, to)| Deed::Close(site, to)),
            2 => (0..4usize, 0..3000u64).prop_map(|(path, to)| Deed::Carry(path, to)),
            1 => (0..3000u64).prop_map(Deed::Others),
            4 => (1..3_000_000u64).prop_map(Deed::Pass),
        ]
    }

    proptest! {
        /// Checks three rules. Each send arrives once, is dropped once or still waits. The egress
        /// is never exceeded. Nothing arrives before its bytes can have moved.
        #[test]
        fn what_is_sent_arrives_or_is_dropped_or_waits(deeds in vec(deed(), 1..80)) {
            let (mut network, mut paths) = network(&[1000, 1500, 800]);
            network.set_capacity(network.nodes[0].way_out.unwrap(), 2000);
            let ends = [(0, 1), (0, 2), (0, 3), (2, 3)].map(|(from, to)| (Node(from), Node(to)));
            let path = network.add_resource(700);
            network.add_path(Node(2), Node(3), path);
            paths.push(path);
            let others = network.add_background(paths[0]);
            let (mut sent, mut arrived, mut dropped) = (0, 0, 0);
            let mut number = 0;
            let mut waits: BTreeMap<u64, usize> = BTreeMap::new();
            for deed in deeds {
                match deed {
                    Deed::Send(path, bytes) => {
                        number += 1;
                        sent += bytes;
                        waits.insert(number, path);
                        network.send(ends[path].0, ends[path].1, fragment(number, bytes));
                    }
                    Deed::Drop(site) => {
                        for Arrival { sending, .. } in network.drop_all(Node::site(site)) {
                            dropped += sending.bytes.get();
                            prop_assert!(waits.remove(&sending.request.get()).is_some());
                        }
                    }
                    Deed::Close(site, to) => network.set_closed(Node::site(site), to),
                    Deed::Carry(path, to) => network.set_capacity(paths[path], to),
                    Deed::Others(wants) => network.set_background(others, wants),
                    Deed::Pass(micros) => {
                        let until = network.now + Duration::from_micros(micros);
                        let left = |network: &Network| -> u128 {
                            let from = network.flows.iter().filter(|flow| flow.from == Node::CENTRE);
                            from.map(|flow| flow.moved).sum()
                        };
                        network.measure();
                        while let Some(at) = network.next_arrival().filter(|at| *at <= until) {
                            let mut there = Vec::new();
                            network.advance(at, &mut there);
                            prop_assert!(!there.is_empty(), "called for nothing");
                            for Arrival { to, sending, .. } in there {
                                arrived += sending.bytes.get();
                                let path = waits.remove(&sending.request.get());
                                prop_assert_eq!(path.map(|path| ends[path].1), Some(to));
                                prop_assert!(!network.nodes[to.0].is_closed);
                            }
                        }
                        network.advance(until, &mut Vec::new());
                        network.flows.iter_mut().for_each(|flow| flow.bring_up(until));
                        prop_assert!(left(&network) <= 2000 * u128::from(micros));
                    }
                }
            }
            let queued: u64 = network
                .flows
                .iter()
                .flat_map(|flow| &flow.queue)
                .map(|sending| sending.bytes.get())
                .sum();
            prop_assert_eq!(sent, arrived + dropped + queued);
            let waiting: usize = network.flows.iter().map(|flow| flow.queue.len()).sum();
            prop_assert_eq!(waits.len(), waiting);
        }
    }
}
