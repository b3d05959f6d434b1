//! Placement of one demand on the capacity that is left, in one of a few ways.

use alloc::{collections::BTreeMap, vec, vec::Vec};
use core::cmp::Reverse;
use posthaste_types::Bytes;

use super::{
    Course, Demand, Flow, Price, Problem, Rooms,
    course::{follow, safe},
    limits::Book,
};

/// Order of depots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Price,
    Capacity,
}

/// A way to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) direct: bool,
    pub(super) staged: Option<Order>,
    pub(super) landmarks: bool,
}

impl Way {
    /// Iterates over all ways with or without landmarks, those that use least first.
    pub(super) fn all(landmarks: bool) -> impl Iterator<Item = Self> {
        [(true, None)]
            .into_iter()
            .chain(
                [Order::Price, Order::Capacity]
                    .into_iter()
                    .flat_map(|order| [false, true].map(|direct| (direct, Some(order)))),
            )
            .map(move |(direct, staged)| Self {
                direct,
                staged,
                landmarks,
            })
    }
}

/// Result of a way.
pub(super) struct Trial {
    pub(super) flows: Vec<Flow>,
    pub(super) course: Course,
    /// Number of links it uses.
    fan_out: usize,
    landmarks: u64,
}

impl Trial {
    /// Returns its rank: greater is better; the deadline first, then cost, then fan-out.
    pub(super) fn rank(&self) -> impl Ord + use<> {
        let shortfall = self.course.shortfall;
        let missing = u128::from(shortfall.offload.get()) + u128::from(shortfall.deliver.get());
        let rest = (self.landmarks, self.course.cost, self.fan_out);
        (Reverse(missing), Reverse(rest))
    }
}

/// Tries one way for the demand at `place` and leaves the book as it was. None if the way breaks a
/// rule, such as a budget.
pub(super) fn attempt(problem: &Problem, book: &mut Book, place: usize, way: Way) -> Option<Trial> {
    let mut work = Work::new(problem, book, place, way);
    if problem.demands[place].is_coded() {
        work.offload(way);
    } else {
        work.copy(way);
    }
    let mut flows = core::mem::take(&mut work.flows);
    work.undo(&flows);
    flows.sort_unstable();
    let course = follow(problem, &problem.demands[place], &flows).ok()?;
    let mut links: Vec<usize> = flows.iter().map(|flow| flow.link).collect();
    links.sort_unstable();
    links.dedup();
    let is_landmark = |link: usize| {
        let link = &problem.links[link];
        problem.nodes[link.from].is_landmark || problem.nodes[link.to].is_landmark
    };
    let over_landmarks = flows.iter().filter(|flow| is_landmark(flow.link));
    Some(Trial {
        landmarks: over_landmarks.map(|flow| flow.bytes.get()).sum(),
        fan_out: links.len(),
        flows,
        course,
    })
}

/// A depot as a lane: the links to it and on to the sink.
#[derive(Debug, Clone, Copy)]
struct Lane {
    node: usize,
    up: Option<usize>,
    down: Option<usize>,
}

struct Work<'a> {
    problem: &'a Problem,
    demand: &'a Demand,
    place: usize,
    book: &'a mut Book,
    lanes: Vec<Lane>,
    flows: Vec<Flow>,
    /// Bytes that arrive at each depot in each slot.
    arriving: BTreeMap<usize, Vec<u64>>,
}

impl<'a> Work<'a> {
    fn new(problem: &'a Problem, book: &'a mut Book, place: usize, way: Way) -> Self {
        let demand = &problem.demands[place];
        let mut work = Self {
            problem,
            demand,
            place,
            book,
            lanes: Vec::new(),
            flows: Vec::new(),
            arriving: BTreeMap::new(),
        };
        if let Some(order) = way.staged {
            work.lanes = work.ranked(order, way.landmarks);
        }
        work
    }

    fn link(&self, from: usize, to: usize) -> Option<usize> {
        let joins = |link: &super::Link| (link.from, link.to) == (from, to);
        self.problem.links.iter().position(joins)
    }

    fn ranked(&self, order: Order, landmarks: bool) -> Vec<Lane> {
        let window = self.demand.window(&self.problem.grid);
        let volume = |link: Option<usize>, slots: core::ops::Range<usize>| -> u64 {
            let Some(link) = link else { return 0 };
            let path = self.book.path(self.problem, self.place, link);
            let room = |slot| self.book.limits.calendar.room(&path, slot).get();
            slots.map(room).fold(0, u64::saturating_add)
        };
        let mut lanes: Vec<_> = self
            .demand
            .via
            .iter()
            .filter(|node| {
                landmarks
                    || !self.problem.nodes[**node].is_landmark
                    || self.demand.pinned.contains(node)
            })
            .map(|&node| {
                let up = self.link(self.demand.source, node);
                let down = self.demand.sink.and_then(|sink| self.link(node, sink));
                let lane = Lane { node, up, down };
                let needs_down = !self.demand.is_coded() || self.demand.deliver_by.is_some();
                let volume = if needs_down && self.demand.sink.is_some() {
                    volume(up, window.leave.clone()).min(volume(down, window.arrive.clone()))
                } else {
                    volume(up, window.leave.clone())
                };
                let is_landmark = self.problem.nodes[node].is_landmark;
                let is_pinned = self.demand.pinned.contains(&node);
                let first = (!is_pinned, is_landmark);
                ((first, self.price(lane), Reverse(volume), node), lane)
            })
            .collect();
        lanes.sort_by(|(one, _), (other, _)| match order {
            Order::Price => one.cmp(other),
            Order::Capacity => {
                (one.0, one.2, one.1, one.3).cmp(&(other.0, other.2, other.1, other.3))
            }
        });
        lanes.into_iter().map(|(_, lane)| lane).collect()
    }

    /// Returns the price of a byte on each of both links.
    fn price(&self, lane: Lane) -> (Price, Price) {
        let price =
            |link: Option<usize>| link.map_or(Price::FREE, |link| self.problem.links[link].price);
        let (up, down) = (price(lane.up), price(lane.down));
        (up.max(down), up.min(down))
    }

    fn undo(&mut self, flows: &[Flow]) {
        for flow in flows {
            let path = self.book.path(self.problem, flow.demand, flow.link);
            self.book.limits.calendar.give(&path, flow.slot, flow.bytes);
        }
    }

    /// Takes up to `bytes` of a link in a slot.
    fn take(&mut self, link: usize, path: &[usize], slot: usize, bytes: u64) -> u64 {
        let taken = self
            .book
            .limits
            .calendar
            .take(path, slot, Bytes::new(bytes));
        if taken > Bytes::ZERO {
            self.flows.push(Flow {
                demand: self.place,
                slot,
                link,
                bytes: taken,
            });
            let to = self.problem.links[link].to;
            let slots = self.problem.grid.slots();
            let arriving = self.arriving.entry(to).or_insert_with(|| vec![0; slots]);
            arriving[slot] += taken.get();
        }
        taken.get()
    }

    /// Returns the least free space of a node from each boundary on.
    fn room_from(&self, node: usize) -> Vec<u64> {
        let mut room = self.book.space[node].clone();
        for slot in (1..room.len()).rev() {
            room[slot - 1] = room[slot - 1].min(room[slot]);
        }
        room
    }

    /// Places a stage-out: whole chunks go to the sink, coded ones to depots and from there to the
    /// sink.
    fn offload(&mut self, way: Way) {
        let all = self.demand.bytes.get();
        let mut at_sink = self.demand.sink.map_or(0, |sink| self.demand.held_at(sink));
        if way.direct {
            at_sink += self.direct(all.saturating_sub(at_sink));
        }
        let left = all.saturating_sub(at_sink);
        if left == 0 && self.demand.pinned.is_empty() {
            return;
        }
        self.upload(left);
        if self.demand.sink.is_some() && self.demand.deliver_by.is_some() {
            let mut missing = left;
            for lane in self.lanes.clone() {
                missing -= self.pull(lane, missing);
            }
        }
    }

    /// Spreads the fragments of `left` bytes over the fewest depots in order, each at once.
    fn upload(&mut self, left: u64) {
        let code = self.demand.code;
        let column = left.div_ceil(u64::from(code.data()));
        let domain_max = match u64::from(code.parity()) {
            0 => u64::MAX,
            parity => column.saturating_mul(parity),
        };
        let mut held = self.problem.per_node();
        let mut rooms = Rooms::new(domain_max);
        let mut need = column.saturating_mul(u64::from(code.total()));
        for &node in &self.demand.via {
            held[node] = self.demand.held_at(node);
            let place = &self.problem.nodes[node];
            let counted = held[node].min(column).min(rooms.left(place));
            rooms.take(place, counted);
            need = need.saturating_sub(counted);
        }
        let is_safe = safe(self.problem, self.demand, left, &held) >= left;
        if is_safe && self.demand.unpinned(&held) == 0 {
            return;
        }
        let window = self.demand.window(&self.problem.grid);
        for lane in self.kin_last() {
            let Some(up) = lane.up else { continue };
            let place = &self.problem.nodes[lane.node];
            // A pinned depot needs its fragments whatever others hold.
            let mut quota = if self.demand.pinned.contains(&lane.node) {
                let column = self.demand.column().get();
                let inside = rooms.left_of(place, self.demand.domain_max());
                column.saturating_sub(held[lane.node]).min(inside)
            } else {
                let quota = column.saturating_sub(held[lane.node]);
                quota.min(rooms.left(place)).min(need)
            };
            let path = self.book.path(self.problem, self.place, up);
            let room = self.room_from(lane.node);
            let mut lies = held[lane.node];
            for slot in window.leave.clone() {
                if quota == 0 {
                    break;
                }
                let fits = room[slot + 1].saturating_sub(lies);
                let taken = self.take(up, &path, slot, quota.min(fits));
                quota -= taken;
                need = need.saturating_sub(taken);
                lies += taken;
                rooms.take(place, taken);
            }
        }
    }

    /// Returns the lanes in order. Where depots have several failure domains, those that share them
    /// with the fewest come first, pinned ones and landmarks apart.
    fn kin_last(&self) -> Vec<Lane> {
        let nodes: Vec<usize> = self.lanes.iter().map(|lane| lane.node).collect();
        let mut sorted = self.problem.fewest_shared(&nodes);
        let pinned = &self.demand.pinned;
        sorted.sort_by_key(|&node| {
            let is_landmark = self.problem.nodes[node].is_landmark;
            (!pinned.contains(&node), is_landmark)
        });
        let sorted = sorted.into_iter();
        let lane = |node: usize| self.lanes.iter().find(|lane| lane.node == node);
        sorted.filter_map(lane).copied().collect()
    }

    /// Brings up to `quota` bytes from a depot to the sink as soon as they are there.
    fn pull(&mut self, lane: Lane, quota: u64) -> u64 {
        let Some(down) = lane.down else { return 0 };
        let window = self.demand.window(&self.problem.grid);
        let path = self.book.path(self.problem, self.place, down);
        let room = self.sink_room();
        let (mut lies, mut moved) = (self.demand.held_at(lane.node), 0);
        for slot in 0..window.arrive.end {
            if slot >= window.arrive.start {
                let bytes = lies.min(quota - moved).min(room.saturating_sub(moved));
                let taken = self.take(down, &path, slot, bytes);
                lies -= taken;
                moved += taken;
            }
            lies += self
                .arriving
                .get(&lane.node)
                .map_or(0, |arriving| arriving[slot]);
        }
        moved
    }

    /// Returns the sink's free space, less its data before and during this trial.
    fn sink_room(&self) -> u64 {
        let Some(sink) = self.demand.sink else {
            return 0;
        };
        let brought: u64 = self
            .arriving
            .get(&sink)
            .map_or(0, |slots| slots.iter().sum());
        let free = self.book.space[sink].iter().skip(1).min().copied();
        free.unwrap_or(0)
            .saturating_sub(brought)
            .saturating_sub(self.demand.held_at(sink))
    }

    /// Places a copy: the direct link, then depots in order.
    fn copy(&mut self, way: Way) {
        let Some(sink) = self.demand.sink else { return };
        let mut missing = self
            .demand
            .bytes
            .get()
            .saturating_sub(self.demand.held_at(sink));
        // Data on depots need not leave the source again.
        for lane in self.lanes.clone() {
            if self.demand.held_at(lane.node) > 0 {
                missing -= self.relay(lane, missing, false);
            }
        }
        if way.direct {
            missing -= self.direct(missing);
        }
        for lane in self.lanes.clone() {
            missing -= self.relay(lane, missing, true);
        }
    }

    fn is_late(&self) -> bool {
        self.demand.not_before.is_some()
    }

    /// Sends up to `quota` bytes from the source to the sink: at once, or as late as possible.
    fn direct(&mut self, quota: u64) -> u64 {
        let sink = self.demand.sink;
        let Some(link) = sink.and_then(|sink| self.link(self.demand.source, sink)) else {
            return 0;
        };
        let window = self.demand.window(&self.problem.grid);
        let slots =
            window.leave.start.max(window.arrive.start)..window.leave.end.min(window.arrive.end);
        let path = self.book.path(self.problem, self.place, link);
        let mut left = quota.min(self.sink_room());
        let before = left;
        for step in 0..slots.len() {
            let slot = if self.is_late() {
                slots.end - 1 - step
            } else {
                slots.start + step
            };
            left -= self.take(link, &path, slot, left);
        }
        before - left
    }

    /// Moves up to `quota` bytes over a depot: there as soon as possible, and on at once or as late
    /// as possible. With `fresh` data leaves the source, otherwise only the depot's data goes on.
    fn relay(&mut self, lane: Lane, quota: u64, fresh: bool) -> u64 {
        let Some(down) = lane.down else { return 0 };
        let up = lane.up.filter(|_| fresh);
        let window = self.demand.window(&self.problem.grid);
        let plan = self.reach(lane, up, down, quota);
        if let Some(up) = up {
            let path = self.book.path(self.problem, self.place, up);
            for (slot, &bytes) in plan.up.iter().enumerate() {
                self.take(up, &path, slot, bytes);
            }
        }
        let path = self.book.path(self.problem, self.place, down);
        let mut left = plan.moved;
        if self.is_late() {
            for slot in window.arrive.clone().rev() {
                left -= self.take(down, &path, slot, left);
            }
        } else {
            for (slot, &bytes) in plan.down.iter().enumerate() {
                left -= self.take(down, &path, slot, bytes);
            }
        }
        plan.moved - left
    }

    /// Returns the bytes that can cross a depot in each slot, each as soon as possible.
    fn reach(&self, lane: Lane, up: Option<usize>, down: usize, quota: u64) -> Reach {
        let slots = self.problem.grid.slots();
        let window = self.demand.window(&self.problem.grid);
        let room = self.room_from(lane.node);
        let (used, brought) = self.own_stock(lane.node);
        let mut quota = quota.min(self.sink_room());
        if self.is_late() && up.is_some() {
            // Bytes that wait for the last moment all lie there at once.
            quota = quota.min(room.get(1).map_or(0, |room| room.saturating_sub(brought)));
        }
        let up_path = up.map(|up| self.book.path(self.problem, self.place, up));
        let down_path = self.book.path(self.problem, self.place, down);
        let calendar = &self.book.limits.calendar;
        let (mut lies, mut sent, mut moved) = (used, 0, 0);
        let mut reach = Reach {
            up: vec![0; slots],
            down: vec![0; slots],
            moved: 0,
        };
        for slot in 0..window.arrive.end {
            let arrives = match &up_path {
                Some(path) if window.leave.contains(&slot) => {
                    let fits = room[slot + 1].saturating_sub(lies);
                    calendar.room(path, slot).get().min(quota - sent).min(fits)
                }
                _ => 0,
            };
            if slot >= window.arrive.start {
                let goes = calendar.room(&down_path, slot).get();
                let goes = goes.min(lies).min(quota - moved);
                reach.down[slot] = goes;
                lies -= goes;
                moved += goes;
            }
            reach.up[slot] = arrives;
            sent += arrives;
            lies += arrives;
        }
        // Bytes that would not go on in time need not leave the source.
        let mut waste = sent - moved.saturating_sub(used).min(sent);
        for arrives in reach.up.iter_mut().rev() {
            let less = waste.min(*arrives);
            *arrives -= less;
            waste -= less;
        }
        reach.moved = moved;
        reach
    }

    /// Returns the bytes of this demand that the depot holds and has not sent on yet, and those
    /// brought there.
    fn own_stock(&self, node: usize) -> (u64, u64) {
        let brought: u64 = self
            .arriving
            .get(&node)
            .map_or(0, |slots| slots.iter().sum());
        let gone: u64 = self
            .flows
            .iter()
            .filter(|flow| self.problem.links[flow.link].from == node)
            .map(|flow| flow.bytes.get())
            .sum();
        (
            (self.demand.held_at(node) + brought).saturating_sub(gone),
            brought,
        )
    }
}

/// Bytes that can cross a depot in each slot.
struct Reach {
    up: Vec<u64>,
    down: Vec<u64>,
    moved: u64,
}
