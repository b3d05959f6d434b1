//! Forwards of fragments that still arrive from the centre.
//!
//! Such a forward has a flow of its own beside those of the same path. Ten times a second the flow
//! may carry the bytes that arrived and were not forwarded yet. The last byte waits until the
//! fragment it follows is stored. So no byte is forwarded before it arrived.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use posthaste_types::Timestamp;

use super::{Flow, Network, Node, Sending, UserId};

/// Period at which the arrived bytes are checked.
const TURN: Duration = Duration::from_millis(100);
/// Millionths in a byte.
const MILLIONTHS: u128 = 1_000_000;

/// Forward that follows a send.
#[derive(Debug)]
struct Follow {
    flow: UserId,
    from: Node,
    sending: Sending,
}

/// All forwards that follow sends.
#[derive(Debug, Default)]
pub(super) struct Follows {
    /// Flow for followers on each path.
    flows: BTreeMap<(Node, Node), UserId>,
    all: Vec<Follow>,
    /// Flows that wait for the sends they follow.
    held: BTreeSet<UserId>,
    turns_at: Timestamp,
}

impl Follows {
    /// Returns the time of the next check.
    pub(super) fn next(&self) -> Option<Timestamp> {
        (!self.all.is_empty()).then_some(self.turns_at)
    }

    pub(super) fn is_held(&self, flow: UserId) -> bool {
        self.held.contains(&flow)
    }
}

impl Network {
    /// Returns whether a fragment is in flight to a site from the centre.
    pub(crate) fn is_coming(&self, to: Node, sending: &Sending) -> bool {
        let flow = self.by_ends.get(&(Node::CENTRE, to));
        flow.is_some_and(|&id| self.flows[id].queue.contains(sending))
    }

    /// Forwards a fragment in flight to one site on to another. Without a path between them, it is
    /// lost.
    pub(crate) fn follow(&mut self, from: Node, to: Node, sending: Sending) {
        let flow = match self.follows.flows.get(&(from, to)) {
            Some(&flow) => flow,
            None => {
                let Some(crosses) = self.crosses.get(&(from, to)) else {
                    return;
                };
                let flow = self.shares.add_user(u64::MAX, crosses.iter().copied());
                self.flows.push(Flow::new(from, to, self.now));
                self.nodes[from.0].flows.push(flow);
                self.nodes[to.0].flows.push(flow);
                self.follows.flows.insert((from, to), flow);
                flow
            }
        };
        if self.follows.all.is_empty() {
            self.follows.turns_at = self.now + TURN;
        }
        let follow = Follow {
            flow,
            from,
            sending,
        };
        self.follows.all.push(follow);
        self.queue(flow, sending);
        self.pace(flow);
    }

    /// Marks a fragment from the centre as stored at a site, so that its followers may end.
    pub(crate) fn lead(&mut self, at: Node, sending: &Sending) {
        let is_led = |follow: &Follow| follow.from == at && follow.sending == *sending;
        let all = self.follows.all.iter();
        let led: Vec<UserId> = all.filter(|of| is_led(of)).map(|of| of.flow).collect();
        self.follows.all.retain(|of| !is_led(of));
        led.into_iter().for_each(|flow| self.pace(flow));
    }

    /// Takes back followers to a site.
    pub(crate) fn drop_followed(&mut self, to: Node, is_gone: impl Fn(&Sending) -> bool) {
        let all = self.follows.flows.iter();
        let flows: Vec<UserId> = all
            .filter(|((_, end), _)| *end == to)
            .map(|(_, id)| *id)
            .collect();
        for flow in flows {
            self.drop_of(flow, &is_gone);
        }
    }

    /// Paces all followers if a check is due.
    pub(super) fn pace_all(&mut self) {
        if self.follows.next().is_none_or(|at| at > self.now) {
            return;
        }
        self.follows.turns_at = self.now + TURN;
        let flows: BTreeSet<UserId> = self.follows.all.iter().map(|of| of.flow).collect();
        flows.into_iter().for_each(|flow| self.pace(flow));
    }

    /// Sets the rate of a flow of followers until the next check.
    pub(super) fn pace(&mut self, id: UserId) {
        let (flows, now) = (&mut self.flows, self.now);
        let is_own = self.follows.flows.values().any(|flow| *flow == id);
        if !is_own {
            return;
        }
        let queue = &flows[id].queue;
        self.follows
            .all
            .retain(|of| of.flow != id || queue.contains(&of.sending));
        let first = queue.front().copied();
        let mut all = self.follows.all.iter();
        let follow = all.find(|of| of.flow == id && Some(of.sending) == first);
        let Some(follow) = follow else {
            self.follows.held.remove(&id);
            self.shares.set_limit(id, u64::MAX);
            return self.refresh(id);
        };
        let size = u128::from(follow.sending.bytes.get()) * MILLIONTHS;
        let arrived = match self.by_ends.get(&(Node::CENTRE, follow.from)) {
            Some(&leader) if flows[leader].queue.front() == Some(&follow.sending) => {
                flows[leader].bring_up(now);
                size - flows[leader].left
            }
            // The fragment waits for others, or its outcome is not known yet.
            Some(_) | None => 0,
        };
        flows[id].bring_up(now);
        let left = flows[id].left;
        let may = arrived.saturating_sub(size - left);
        let may = may.min(left.saturating_sub(MILLIONTHS));
        let span = self
            .follows
            .turns_at
            .since(now)
            .max(Duration::from_millis(1));
        let rate = u64::try_from(may / span.as_micros()).unwrap_or(u64::MAX);
        if rate == 0 {
            self.follows.held.insert(id);
        } else {
            self.follows.held.remove(&id);
            self.shares.set_limit(id, rate);
        }
        self.refresh(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::network::Arrival;
    use posthaste_types::{Bytes, ChunkIndex, FragmentIndex, RequestId};
    use proptest::prelude::*;

    const START: Timestamp = Timestamp::from_secs(100);

    fn fragment(chunk: u32, bytes: u64) -> Sending {
        Sending {
            request: RequestId::new(1),
            chunk: ChunkIndex::new(chunk),
            fragment: FragmentIndex::new(0),
            bytes: Bytes::new(bytes),
        }
    }

    /// Returns the centre and two sites in a row.
    fn row(near: u64, far: u64) -> (Network, [Node; 2]) {
        let mut network = Network::new(START);
        let sites = [network.add_site(), network.add_site()];
        for (from, to, rate) in [(Node::CENTRE, sites[0], near), (sites[0], sites[1], far)] {
            let path = network.add_resource(rate);
            network.add_path(from, to, path);
        }
        (network, sites)
    }

    /// Plays to the end. Fragments that arrive at the first site are stored there.
    fn play(network: &mut Network, sites: [Node; 2]) -> Vec<(Node, u64)> {
        let mut all = Vec::new();
        while let Some(at) = network.next_arrival() {
            let mut arrived = Vec::new();
            network.advance(at, &mut arrived);
            for Arrival { to, sending, .. } in arrived {
                if to == sites[0] {
                    network.lead(to, &sending);
                }
                let millis = u64::try_from(at.since(START).as_millis()).unwrap_or(u64::MAX);
                all.push((to, millis));
            }
        }
        all
    }

    proptest! {
        #[test]
        fn what_follows_ends_soon_after_what_it_follows_and_never_before(
            near in 1000u64..100_000,
            far in 1000u64..100_000,
            size in 1u64..100_000,
            later in 0u64..5000,
        ) {
            let (mut network, sites) = row(near, far);
            let sending = fragment(0, size);
            network.send(Node::CENTRE, sites[0], sending);
            let until = START + Duration::from_millis(later);
            while let Some(at) = network.next_arrival().filter(|at| *at <= until) {
                let mut arrived = Vec::new();
                network.advance(at, &mut arrived);
                prop_assume!(arrived.is_empty());
            }
            network.advance(until, &mut Vec::new());
            prop_assert!(network.is_coming(sites[0], &sending));
            network.follow(sites[0], sites[1], sending);
            let ends = play(&mut network, sites);
            prop_assert_eq!((ends[0].0, ends[1].0, ends.len()), (sites[0], sites[1], 2));
            let (first, second) = (ends[0].1, ends[1].1);
            prop_assert!(first <= second);
            // Sequential transfers would take the sum of both times. A follower may lag by a turn
            // or two.
            let alone = size * 1000 / far;
            prop_assert!(second <= first.max(later + alone) + alone.min(size * 1000 / near) + 300);
            let least = first.max(later + alone);
            prop_assert!(second <= least + 300 + (alone * 300) / (later + alone).max(1), "{ends:?}");
        }
    }

    #[test]
    fn what_follows_stands_still_while_nothing_arrives_and_goes_when_dropped() {
        let (mut network, sites) = row(1000, 1000);
        let (first, second) = (fragment(0, 2000), fragment(1, 1000));
        network.send(Node::CENTRE, sites[0], first);
        network.send(Node::CENTRE, sites[0], second);
        network.follow(sites[0], sites[1], second);
        network.set_closed(sites[0], true);
        network.next_arrival();
        network.advance(START + Duration::from_secs(9), &mut Vec::new());
        network.set_closed(sites[0], false);
        network.drop_sends(Node::CENTRE, sites[0], |sending| *sending == second);
        network.drop_followed(sites[1], |_| true);
        assert_eq!(play(&mut network, sites), [(sites[0], 11_000)]);
        assert!(network.follows.all.is_empty());
    }
}
