//! The model world: depots that hold fragments, a network that moves them, a source on scratch, and
//! spontaneous changes.

mod build;
mod circuit;
mod course;
mod gateway;
mod network;
mod origin;
mod process;
mod shares;
mod site;

use std::collections::BTreeMap;

use posthaste_core::contract::RequestSpec;
use posthaste_types::{ChunkIndex, DepotId, RequestId, Timestamp};

pub(crate) use build::build;
pub(crate) use network::{Arrival, Carried, Node, Sending};
pub(crate) use origin::Origin;
pub(crate) use process::Strike;
pub(crate) use site::{Condition, Site};

use course::{Course, CourseId, Loss};
use network::Network;
use process::{Alternation, Change, Process, Processes};
use shares::ResourceId;

/// Most sends in flight to one depot: the service's number of connections to a relay. Here they
/// still move one after the other.
const CONNECTIONS: usize = 8;

/// Actual state of the world.
#[derive(Debug)]
pub(crate) struct World {
    now: Timestamp,
    pub(crate) sites: Vec<Site>,
    /// Sources of stage-ins.
    pub(crate) origins: Vec<Origin>,
    pub(crate) specs: BTreeMap<RequestId, RequestSpec>,
    network: Network,
    /// Course of each resource that changes.
    courses: Vec<(ResourceId, Course)>,
    processes: Processes,
    /// Capacities that never change: ingress and egress.
    ways: Vec<u64>,
    circuits: circuit::Ways,
    bypasses: gateway::Bypasses,
    /// Number of other senders.
    others: u64,
    events: u64,
}

impl World {
    /// Creates a world with a centre whose egress carries `egress` bytes a second.
    fn new(now: Timestamp, egress: Option<u64>) -> Self {
        let mut world = Self {
            now,
            sites: Vec::new(),
            origins: Vec::new(),
            specs: BTreeMap::new(),
            network: Network::new(now),
            courses: Vec::new(),
            processes: Processes::default(),
            ways: Vec::new(),
            circuits: circuit::Ways::default(),
            bypasses: gateway::Bypasses::default(),
            others: 0,
            events: 0,
        };
        if let Some(egress) = egress {
            let way_out = world.add_way(egress);
            world.network.set_way_out(Node::CENTRE, way_out);
        }
        world
    }

    /// Adds a resource with a fixed capacity.
    fn add_way(&mut self, capacity: u64) -> ResourceId {
        self.ways.push(capacity);
        self.network.add_resource(capacity)
    }

    /// Returns the number of arrivals, rate changes and faults so far.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Adds a resource with a variable capacity.
    fn add_course(&mut self, course: Course) -> CourseId {
        let resource = self.network.add_resource(course.capacity());
        self.courses.push((resource, course));
        CourseId(self.courses.len() - 1)
    }

    /// Returns the resource of a course.
    fn resource(&self, course: CourseId) -> ResourceId {
        self.courses[course.0].0
    }

    fn add_process(&mut self, at: Timestamp, process: Process) {
        self.processes.add(at, process);
    }

    /// Returns the place of a depot among the sites. Depots are numbered from one.
    pub(crate) fn place(&self, depot: DepotId) -> Option<usize> {
        let place = usize::try_from(depot.get()).ok()?.checked_sub(1)?;
        self.sites.get(place).map(|_| place)
    }

    pub(crate) fn site(&mut self, depot: DepotId) -> Option<&mut Site> {
        let place = self.place(depot)?;
        self.sites.get_mut(place)
    }

    /// Returns the current rate of the path from the centre to the site.
    pub(crate) fn rate(&self, place: usize) -> u64 {
        self.courses[self.sites[place].course.0].1.capacity()
    }

    /// Returns the least rate, in bytes a second, that a transfer can get with any number of
    /// competitors. Divides the lowest rate of any path or shared resource by all senders, ignoring
    /// past faults.
    pub(crate) fn slowest(&self) -> u64 {
        let courses = self
            .courses
            .iter()
            .filter_map(|(_, course)| course.slowest());
        let least = courses.chain(self.ways.iter().copied()).min();
        least.unwrap_or(1) / (1 + self.others)
    }

    /// Sets the rate of the path from the centre, or restores it.
    pub(crate) fn cut(&mut self, place: usize, rate: Option<u64>) {
        self.bend(self.sites[place].course, |course| course.set_cut(rate));
    }

    /// Sets the site's condition. Nothing moves to or from a site that isn't well.
    pub(crate) fn set_condition(&mut self, place: usize, condition: Condition) {
        self.sites[place].condition = condition;
        self.network
            .set_closed(Node::site(place), condition != Condition::Well);
    }

    /// Queues a fragment. Between two sites without a path of their own, the slower of their
    /// declared rates from the centre is the limit.
    pub(crate) fn send(&mut self, from: Node, to: Node, sending: Sending) {
        self.find_path(from, to);
        self.network.send(from, to, sending);
    }

    fn find_path(&mut self, from: Node, to: Node) {
        if !self.network.has_path(from, to) {
            let declared = [from, to].into_iter().filter_map(Node::place);
            let declared = declared.map(|place| self.sites[place].first_rate).min();
            let path = self.network.add_resource(declared.unwrap_or(0));
            self.network.add_path(from, to, path);
        }
    }

    /// Takes back sends from the centre.
    pub(crate) fn drop_sends(
        &mut self,
        place: usize,
        is_gone: impl Fn(&Sending) -> bool,
    ) -> Vec<Sending> {
        self.network
            .drop_sends(Node::CENTRE, Node::site(place), is_gone)
    }

    /// Takes back a send from the centre of which no byte has left. Returns whether there is one.
    pub(crate) fn recall(&mut self, place: usize, is_it: impl Fn(&Sending) -> bool) -> bool {
        let to = Node::site(place);
        self.network.recall(Node::CENTRE, to, CONNECTIONS, is_it)
    }

    /// Takes back forwards from other sites to one site.
    pub(crate) fn drop_forwards(
        &mut self,
        place: usize,
        is_gone: impl Fn(&Sending) -> bool,
    ) -> Vec<Arrival> {
        self.network.drop_forwards(Node::site(place), is_gone)
    }

    /// Returns whether a fragment is in flight to a site from the centre.
    pub(crate) fn is_coming(&self, place: usize, sending: &Sending) -> bool {
        self.network.is_coming(Node::site(place), sending)
    }

    /// Forwards a fragment from a site to another while it still arrives there from the centre.
    pub(crate) fn follow(&mut self, from: usize, to: usize, sending: Sending) {
        let (from, to) = (Node::site(from), Node::site(to));
        self.find_path(from, to);
        self.network.follow(from, to, sending);
    }

    /// Marks a fragment from the centre as stored at a site, so that forwards which follow it may
    /// end.
    pub(crate) fn lead(&mut self, place: usize, sending: &Sending) {
        self.network.lead(Node::site(place), sending);
    }

    /// Takes back followers in flight from other sites to one site.
    pub(crate) fn drop_followed(&mut self, place: usize, is_gone: impl Fn(&Sending) -> bool) {
        self.network.drop_followed(Node::site(place), is_gone);
    }

    /// Takes back forwards from one site to another.
    pub(crate) fn drop_between(
        &mut self,
        from: usize,
        to: usize,
        is_gone: impl Fn(&Sending) -> bool,
    ) -> Vec<Arrival> {
        let (from, to) = (Node::site(from), Node::site(to));
        let dropped = self.network.drop_sends(from, to, is_gone).into_iter();
        let dropped = dropped.map(|sending| Arrival { from, to, sending });
        dropped.collect()
    }

    /// Takes back all transfers to or from a site.
    pub(crate) fn drop_all(&mut self, place: usize) -> Vec<Arrival> {
        self.network.drop_all(Node::site(place))
    }

    /// Returns the bytes that each path from the centre carried since the last measurement.
    pub(crate) fn measure(&mut self) -> Vec<Carried> {
        self.network.measure()
    }

    /// Returns the time of the next spontaneous change.
    pub(crate) fn next(&mut self) -> Option<Timestamp> {
        let arrival = self.network.next_arrival();
        [arrival, self.processes.next()].into_iter().flatten().min()
    }

    /// Moves bytes until `then` and returns the arrivals at that time. Nothing arrives before.
    pub(crate) fn advance(&mut self, then: Timestamp) -> Vec<Arrival> {
        self.now = self.now.max(then);
        let mut arrived = Vec::new();
        self.network.advance(self.now, &mut arrived);
        self.events += arrived.len() as u64;
        arrived
    }

    /// Applies all spontaneous changes due now, and returns the faults they cause.
    pub(crate) fn turn(&mut self) -> Vec<Strike> {
        let mut strikes = Vec::new();
        while let Some(change) = self.processes.turn(self.now) {
            self.events += 1;
            match change {
                Change::Jitter(course, factor) => {
                    self.bend(course, |course| course.jitter_permille = factor);
                }
                Change::State(course, factor) => {
                    self.bend(course, |course| course.state_permille = factor);
                }
                Change::Day(course, factor) => {
                    self.bend(course, |course| course.day_permille = factor);
                }
                Change::Traced(course, rate) => {
                    self.bend(course, |course| course.traced = Some(rate));
                }
                Change::Background(traffic, wants) => self.network.set_background(traffic, wants),
                Change::Strike(strike) => strikes.push(strike),
            }
        }
        strikes
    }

    fn bend(&mut self, course: CourseId, how: impl FnOnce(&mut Course)) {
        let (resource, course) = &mut self.courses[course.0];
        how(course);
        course.watch();
        self.network.set_capacity(*resource, course.capacity());
    }

    /// Returns a chunk that the loss of as many depots as the code has parity could destroy; none
    /// if the dataset is safe. Only depots that `counts` accepts are considered.
    pub(crate) fn weakest(
        &self,
        request: RequestId,
        losses: u8,
        counts: impl Fn(&Site) -> bool,
    ) -> Option<ChunkIndex> {
        let spec = self.specs.get(&request)?;
        let at = |depot: &DepotId| self.sites.get(self.place(*depot)?);
        let ends: Vec<&Site> = spec.destinations.iter().filter_map(at).collect();
        let is_staged = |site: &&Site| !spec.destinations.contains(&site.id) && counts(site);
        let via: Vec<&Site> = spec.via.iter().filter_map(at).filter(is_staged).collect();
        let losses = usize::from(losses.min(spec.code.parity()));
        let needed = usize::from(spec.code.data()) + losses;
        (0..spec.chunks()).map(ChunkIndex::new).find(|chunk| {
            let place = chunk.get() as usize;
            let has_whole = |site: &&&Site| site.mask(request, place) & 1 == 1;
            // A whole copy is lost with its depot, so it counts as one holder if losses must be
            // survived.
            let whole = ends.iter().filter(has_whole);
            let whole = whole.filter(|site| losses == 0 || counts(site)).count();
            let masks = via.iter().map(|site| site.mask(request, place));
            let held = apart(&masks.collect::<Vec<u64>>(), spec.code.total());
            whole <= losses && held + whole < needed
        })
    }
}

impl World {
    /// Returns the chunk with the fewest fragments on depots that `counts` accepts, and their
    /// number. Chunks that a destination holds whole are ignored.
    pub(crate) fn fewest(
        &self,
        request: RequestId,
        counts: impl Fn(&Site) -> bool,
    ) -> Option<(ChunkIndex, u32)> {
        let spec = self.specs.get(&request)?;
        let at = |depot: &DepotId| self.sites.get(self.place(*depot)?);
        let ends: Vec<&Site> = spec.destinations.iter().filter_map(at).collect();
        let is_staged = |site: &&Site| !spec.destinations.contains(&site.id) && counts(site);
        let via: Vec<&Site> = spec.via.iter().filter_map(at).filter(is_staged).collect();
        let chunks = (0..spec.chunks()).map(ChunkIndex::new);
        let left = chunks.filter_map(|chunk| {
            let place = chunk.get() as usize;
            let mut ends = ends.iter().filter(|site| counts(site));
            let is_delivered = ends.any(|site| site.mask(request, place) & 1 == 1);
            let masks = via.iter().map(|site| site.mask(request, place));
            let held = masks.fold(0, |all, mask| all | mask).count_ones();
            (!is_delivered).then_some((chunk, held))
        });
        left.min_by_key(|(_, held)| *held)
    }

    /// Returns a destination and a chunk of the request that it lacks. Destinations with faults are
    /// skipped, because they may have lost data before anybody knows.
    pub(crate) fn undelivered(&self, request: RequestId) -> Option<(DepotId, ChunkIndex)> {
        let spec = self.specs.get(&request)?;
        let at = |depot: &DepotId| self.sites.get(self.place(*depot)?);
        let ends = spec.destinations.iter().filter_map(at);
        let mut lacking = ends.filter(|site| site.ordeal == 0).flat_map(|site| {
            let chunks = (0..spec.chunks()).map(ChunkIndex::new);
            let lacks = |chunk: &ChunkIndex| site.mask(request, chunk.get() as usize) & 1 == 0;
            chunks.filter(lacks).map(|chunk| (site.id, chunk))
        });
        lacking.next()
    }
}

/// Returns how many of the fragments `0..total` can each be read from a different depot. Then
/// losing m depots loses at most m of them.
fn apart(masks: &[u64], total: u8) -> usize {
    let mut owner: Vec<Option<u8>> = vec![None; masks.len()];
    let mut is_apart = |fragment: &u8| {
        let mut seen = vec![false; masks.len()];
        assign(*fragment, masks, &mut owner, &mut seen)
    };
    (0..total).filter(|fragment| is_apart(fragment)).count()
}

/// Searches one augmenting path of a bipartite matching (Kuhn).
fn assign(fragment: u8, masks: &[u64], owner: &mut [Option<u8>], seen: &mut [bool]) -> bool {
    for place in 0..masks.len() {
        if masks[place] >> fragment & 1 == 1 && !seen[place] {
            seen[place] = true;
            let is_free = match owner[place] {
                None => true,
                Some(other) => assign(other, masks, owner, seen),
            };
            if is_free {
                owner[place] = Some(fragment);
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_survives_only_with_each_fragment_on_a_depot_of_its_own() {
        assert_eq!(apart(&[0b001, 0b010, 0b100], 3), 3);
        assert_eq!(apart(&[0b011, 0b001, 0b100], 3), 3);
        assert_eq!(apart(&[0b011, 0b000, 0b100], 3), 2);
        assert_eq!(apart(&[0b001, 0b001, 0b010], 3), 2);
    }
}
