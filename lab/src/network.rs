//! The network as a pure machine: packets and the time go in, packets come out when they arrive.
//!
//! A packet passes the access of the sending host, the queue of the link, the link itself (where
//! segments are lost) and the access of the receiving host. Each step happens at its own time,
//! however late the machine is advanced.

mod gate;
mod loss;
mod noise;
mod wire;

use std::{collections::VecDeque, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    packet::Packet,
    topology::{Access, Change, Conditions, Direction, HostId, Span, State, Topology},
};
use gate::Gate;
use loss::Loss;
use noise::Noise;
use wire::Wire;

/// Pipe: one direction of one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipeId(pub(crate) usize);

impl PipeId {
    /// Returns this direction of the link at this place.
    pub fn new(link: usize, direction: Direction) -> Self {
        Self(link * 2 + direction as usize)
    }
}

/// Counts of the segments that entered one direction of a link. A segment is a packet as it would
/// be on the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Count {
    /// Segments entered.
    pub entered: u64,
    /// Segments arrived.
    pub delivered: u64,
    /// Bytes of IP arrived.
    pub delivered_bytes: u64,
    /// Segments lost by chance.
    pub lost: u64,
    /// Segments dropped at a full queue.
    pub dropped: u64,
    /// Segments lost while the link was down.
    pub cut_off: u64,
}

#[derive(Debug)]
struct Pipe {
    from: HostId,
    to: HostId,
    conditions: Conditions,
    gate: Gate,
    loss: Loss,
    wire: Wire,
    count: Count,
}

#[derive(Debug)]
struct Accesses {
    up: Access,
    down: Access,
    up_gate: Gate,
    down_gate: Gate,
}

/// Next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A scripted change.
    Scripted,
    /// A packet has left its host.
    LeftHost(usize),
    /// A packet has left the queue of a pipe.
    Sent(usize),
    /// A packet has arrived at the other end of a pipe.
    Arrived(usize),
    /// A packet has passed the access of the receiving host.
    EnteredHost(usize),
}

/// All links and accesses, and the packets on them.
#[derive(Debug)]
pub struct Network {
    pipes: Vec<Pipe>,
    hosts: Vec<Accesses>,
    script: VecDeque<(Span, Change)>,
    ready: Vec<(PipeId, Packet)>,
    refused_changes: u64,
}

impl Network {
    /// Returns the network of a topology at its start.
    pub fn new(topology: &Topology) -> Self {
        let framing = topology.framing_bytes();
        let mut pipes = Vec::new();
        for link in topology.links() {
            let [first, second] = link.ends;
            for (from, to, conditions) in [(first, second, link.forth), (second, first, link.back)]
            {
                let stream = pipes.len() as u64 * 2;
                pipes.push(Pipe {
                    from,
                    to,
                    conditions,
                    gate: Gate::new(conditions.rate, conditions.queue_bytes(), framing),
                    loss: Loss::new(Noise::new(topology.seed(), stream), &conditions),
                    wire: Wire::new(Noise::new(topology.seed(), stream + 1)),
                    count: Count::default(),
                });
            }
        }
        let gate = |access: &Access| Gate::new(access.rate, access.queue_bytes(), framing);
        let hosts = topology.hosts().iter().map(|host| Accesses {
            up: host.up,
            down: host.down,
            up_gate: gate(&host.up),
            down_gate: gate(&host.down),
        });
        Self {
            pipes,
            hosts: hosts.collect(),
            script: topology.changes().iter().copied().collect(),
            ready: Vec::new(),
            refused_changes: 0,
        }
    }

    /// Accepts a packet that a host sends into a pipe.
    pub fn enter(&mut self, now: Duration, pipe: PipeId, packet: Packet) {
        self.advance(now);
        let segments = u64::from(packet.segments());
        let Some(entered) = self.pipes.get_mut(pipe.0) else {
            return;
        };
        entered.count.entered += segments;
        let access = &mut self.hosts[entered.from.0].up_gate;
        if access.is_open() {
            self.queue(now, pipe, packet);
        } else {
            entered.count.dropped += u64::from(access.offer(now, pipe, packet));
        }
        self.advance(now);
    }

    /// Processes all events until now.
    pub fn advance(&mut self, now: Duration) {
        while let Some((at, event)) = self.earliest()
            && at <= now
        {
            self.on_event(at, event);
        }
    }

    /// Returns the time of the next event.
    pub fn next(&self) -> Option<Duration> {
        self.earliest().map(|(at, _)| at)
    }

    /// Returns the packets that have arrived, each with its pipe.
    pub fn take_ready(&mut self) -> std::vec::Drain<'_, (PipeId, Packet)> {
        self.ready.drain(..)
    }

    /// Changes a link or an access.
    ///
    /// # Errors
    /// Fails if the change is impossible, in one line; then nothing has changed.
    pub fn change(&mut self, now: Duration, change: &Change) -> Result<(), String> {
        self.advance(now);
        self.apply(now, change)?;
        self.advance(now);
        Ok(())
    }

    fn apply(&mut self, now: Duration, change: &Change) -> Result<(), String> {
        match change {
            Change::Link {
                link,
                direction,
                setting,
            } => {
                let ways = Direction::ALL.into_iter();
                let ways: Vec<usize> = ways
                    .filter(|way| direction.is_none_or(|only| only == *way))
                    .map(|way| PipeId::new(link.0, way).0)
                    .collect();
                for way in &ways {
                    self.pipes[*way].conditions.with(setting).check()?;
                }
                for way in ways {
                    let conditions = self.pipes[way].conditions.with(setting);
                    self.pipes[way].set(now, conditions);
                }
            }
            Change::Host { host, setting } => {
                let host = &mut self.hosts[host.0];
                let (up, down) = setting.on(host.up, host.down);
                up.check()?;
                down.check()?;
                (host.up, host.down) = (up, down);
                host.up_gate.set(now, up.rate, up.queue_bytes());
                host.down_gate.set(now, down.rate, down.queue_bytes());
            }
        }
        Ok(())
    }

    /// Returns the current conditions of a pipe.
    pub fn conditions(&self, pipe: PipeId) -> Conditions {
        self.pipes[pipe.0].conditions
    }

    /// Returns the counts of a pipe.
    pub fn count(&self, pipe: PipeId) -> Count {
        self.pipes[pipe.0].count
    }

    /// Returns the queued bytes of a pipe and its bytes in flight.
    pub fn held_bytes(&self, pipe: PipeId) -> (u64, u64) {
        let pipe = &self.pipes[pipe.0];
        (pipe.gate.queued_bytes(), pipe.wire.bytes())
    }

    /// Returns the current accesses of a host.
    pub fn accesses(&self, host: HostId) -> (Access, Access) {
        let host = &self.hosts[host.0];
        (host.up, host.down)
    }

    /// Returns the number of scripted changes made impossible by changes from outside.
    pub fn refused_changes(&self) -> u64 {
        self.refused_changes
    }

    /// Returns the earliest event; of two at one time the one nearer to the sender.
    fn earliest(&self) -> Option<(Duration, Event)> {
        let script = self
            .script
            .front()
            .map(|(at, _)| (at.duration(), Event::Scripted));
        let pipes = self.pipes.iter().enumerate().flat_map(|(place, pipe)| {
            let sent = pipe.gate.next().map(|at| (at, Event::Sent(place)));
            let arrived = pipe.wire.next().map(|at| (at, Event::Arrived(place)));
            sent.into_iter().chain(arrived)
        });
        let hosts = self.hosts.iter().enumerate().flat_map(|(place, host)| {
            let left = host.up_gate.next().map(|at| (at, Event::LeftHost(place)));
            let entered = host
                .down_gate
                .next()
                .map(|at| (at, Event::EnteredHost(place)));
            left.into_iter().chain(entered)
        });
        script.into_iter().chain(pipes).chain(hosts).min()
    }

    fn on_event(&mut self, at: Duration, event: Event) {
        match event {
            Event::Scripted => {
                if let Some((_, change)) = self.script.pop_front()
                    && self.apply(at, &change).is_err()
                {
                    self.refused_changes += 1;
                }
            }
            Event::LeftHost(host) => {
                if let Some((pipe, packet)) = self.hosts[host].up_gate.pass() {
                    self.queue(at, pipe, packet);
                }
            }
            Event::Sent(pipe) => {
                if let Some((pipe, packet)) = self.pipes[pipe].gate.pass() {
                    self.pipes[pipe.0].send(at, packet);
                }
            }
            Event::Arrived(pipe) => {
                if let Some(packet) = self.pipes[pipe].wire.arrive() {
                    self.on_arrival(at, PipeId(pipe), packet);
                }
            }
            Event::EnteredHost(host) => {
                if let Some((pipe, packet)) = self.hosts[host].down_gate.pass() {
                    self.deliver(pipe, packet);
                }
            }
        }
    }

    /// Puts a packet into the queue of a link.
    fn queue(&mut self, now: Duration, pipe: PipeId, packet: Packet) {
        let entered = &mut self.pipes[pipe.0];
        if entered.conditions.state == State::Down {
            entered.count.cut_off += u64::from(packet.segments());
        } else if entered.gate.is_open() {
            entered.send(now, packet);
        } else {
            entered.count.dropped += u64::from(entered.gate.offer(now, pipe, packet));
        }
    }

    /// Puts a packet into the queue of the receiving host's access.
    fn on_arrival(&mut self, now: Duration, pipe: PipeId, packet: Packet) {
        let arrived = &mut self.pipes[pipe.0];
        let access = &mut self.hosts[arrived.to.0].down_gate;
        if access.is_open() {
            self.deliver(pipe, packet);
        } else {
            arrived.count.dropped += u64::from(access.offer(now, pipe, packet));
        }
    }

    fn deliver(&mut self, pipe: PipeId, packet: Packet) {
        let count = &mut self.pipes[pipe.0].count;
        count.delivered += u64::from(packet.segments());
        count.delivered_bytes += packet.wire_bytes(0);
        self.ready.push((pipe, packet));
    }
}

impl Pipe {
    /// Puts a packet on the wire, without the segments that are lost.
    fn send(&mut self, now: Duration, packet: Packet) {
        let lost = self.loss.lost(packet.segments());
        if lost.is_empty() {
            self.count.dropped += u64::from(self.wire.send(now, packet, &self.conditions));
            return;
        }
        self.count.lost += lost.len() as u64;
        let mut start = 0;
        for end in lost.into_iter().chain([packet.segments()]) {
            if let Some(piece) = packet.cut(start..end) {
                self.count.dropped += u64::from(self.wire.send(now, piece, &self.conditions));
            }
            start = end + 1;
        }
    }

    fn set(&mut self, now: Duration, conditions: Conditions) {
        self.conditions = conditions;
        self.loss.set(&conditions);
        if conditions.state == State::Down {
            let waiting = self.gate.clear();
            let segments = waiting
                .iter()
                .map(|(_, packet)| u64::from(packet.segments()));
            self.count.cut_off += segments.sum::<u64>();
        }
        self.gate
            .set(now, conditions.rate, conditions.queue_bytes());
    }
}

#[cfg(test)]
mod tests;
