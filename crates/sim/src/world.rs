//! The model world: depots that hold fragments, a network that moves them, a source on scratch, and
//! what changes by itself.

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

/// Sends to one depot that have left at once: the service has so many connections to a relay. Here they move one after the
/// other all the same.
const CONNECTIONS: usize = 8;

/// Everything that is really so.
#[derive(Debug)]
pub(crate) struct World {
    now: Timestamp,
    pub(crate) sites: Vec<Site>,
    /// Where stage-ins come from.
    pub(crate) origins: Vec<Origin>,
    pub(crate) specs: BTreeMap<RequestId, RequestSpec>,
    network: Network,
    /// What bends each resource that changes.
    courses: Vec<(ResourceId, Course)>,
    processes: Processes,
    /// Capacities that never change: ways in and out.
    ways: Vec<u64>,
    circuits: circuit::Ways,
    bypasses: gateway::Bypasses,
    /// Others that send.
    others: u64,
    events: u64,
}

impl World {
    /// A world with a centre whose way out carries `egress` bytes a second.
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

    /// Adds something with a capacity that stays.
    fn add_way(&mut self, capacity: u64) -> ResourceId {
        self.ways.push(capacity);
        self.network.add_resource(capacity)
    }

    /// Arrivals, changes of rates and faults so far.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Adds something with a capacity that may change.
    fn add_course(&mut self, course: Course) -> CourseId {
        let resource = self.network.add_resource(course.capacity());
        self.courses.push((resource, course));
        CourseId(self.courses.len() - 1)
    }

    /// What flows cross when they follow the course.
    fn resource(&self, course: CourseId) -> ResourceId {
        self.courses[course.0].0
    }

    fn add_process(&mut self, at: Timestamp, process: Process) {
        self.processes.add(at, process);
    }

    /// The place of a depot among the sites: depots are numbered from one.
    pub(crate) fn place(&self, depot: DepotId) -> Option<usize> {
        let place = usize::try_from(depot.get()).ok()?.checked_sub(1)?;
        self.sites.get(place).map(|_| place)
    }

    pub(crate) fn site(&mut self, depot: DepotId) -> Option<&mut Site> {
        let place = self.place(depot)?;
        self.sites.get_mut(place)
    }

    /// What the path from the centre to the site carries now.
    pub(crate) fn rate(&self, place: usize) -> u64 {
        self.courses[self.sites[place].course.0].1.capacity()
    }

    /// Bytes a second that something on its way gets at least, however many share: the least that any
    /// path or way carried, faults that are over apart, shared with all others that send.
    pub(crate) fn slowest(&self) -> u64 {
        let courses = self
            .courses
            .iter()
            .filter_map(|(_, course)| course.slowest());
        let least = courses.chain(self.ways.iter().copied()).min();
        least.unwrap_or(1) / (1 + self.others)
    }

    /// The path from the centre carries this from now on, or again what it is meant to.
    pub(crate) fn cut(&mut self, place: usize, rate: Option<u64>) {
        self.bend(self.sites[place].course, |course| course.set_cut(rate));
    }

    /// The site is like this from now on; nothing moves to or from one that isn't well.
    pub(crate) fn set_condition(&mut self, place: usize, condition: Condition) {
        self.sites[place].condition = condition;
        self.network
            .set_closed(Node::site(place), condition != Condition::Well);
    }

    /// Queues a fragment. Between two sites that nobody named a path for, what the slower of their
    /// paths to the centre is declared to carry limits it.
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

    /// Takes sends from the centre back.
    pub(crate) fn drop_sends(
        &mut self,
        place: usize,
        is_gone: impl Fn(&Sending) -> bool,
    ) -> Vec<Sending> {
        self.network
            .drop_sends(Node::CENTRE, Node::site(place), is_gone)
    }

    /// Takes a send from the centre back of which nothing has left. Returns whether there is one.
    pub(crate) fn recall(&mut self, place: usize, is_it: impl Fn(&Sending) -> bool) -> bool {
        let to = Node::site(place);
        self.network.recall(Node::CENTRE, to, CONNECTIONS, is_it)
    }

    /// Takes back what other sites send to one.
    pub(crate) fn drop_forwards(
        &mut self,
        place: usize,
        is_gone: impl Fn(&Sending) -> bool,
    ) -> Vec<Arrival> {
        self.network.drop_forwards(Node::site(place), is_gone)
    }

    /// Whether something is on its way to a site from the centre.
    pub(crate) fn is_coming(&self, place: usize, sending: &Sending) -> bool {
        self.network.is_coming(Node::site(place), sending)
    }

    /// Lets a site send on to another what is on its way there from the centre, as it comes.
    pub(crate) fn follow(&mut self, from: usize, to: usize, sending: Sending) {
        let (from, to) = (Node::site(from), Node::site(to));
        self.find_path(from, to);
        self.network.follow(from, to, sending);
    }

    /// Something from the centre is stored at a site: what follows it may end.
    pub(crate) fn lead(&mut self, place: usize, sending: &Sending) {
        self.network.lead(Node::site(place), sending);
    }

    /// Takes back what other sites send on to one as it comes.
    pub(crate) fn drop_followed(&mut self, place: usize, is_gone: impl Fn(&Sending) -> bool) {
        self.network.drop_followed(Node::site(place), is_gone);
    }

    /// Takes back what one site sends to another.
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

    /// Takes back whatever moves to or from a site.
    pub(crate) fn drop_all(&mut self, place: usize) -> Vec<Arrival> {
        self.network.drop_all(Node::site(place))
    }

    /// What the paths from the centre carried since the last time.
    pub(crate) fn measure(&mut self) -> Vec<Carried> {
        self.network.measure()
    }

    /// When the world changes next by itself.
    pub(crate) fn next(&mut self) -> Option<Timestamp> {
        let arrival = self.network.next_arrival();
        [arrival, self.processes.next()].into_iter().flatten().min()
    }

    /// Moves bytes until `then` and returns what arrived then. Nothing arrives before.
    pub(crate) fn advance(&mut self, then: Timestamp) -> Vec<Arrival> {
        self.now = self.now.max(then);
        let mut arrived = Vec::new();
        self.network.advance(self.now, &mut arrived);
        self.events += arrived.len() as u64;
        arrived
    }

    /// Lets everything change that changes by itself now, and returns the sites that are struck.
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

    /// A chunk that the loss of as many depots as the code has parity could destroy, looking at the
    /// depots `counts` lets through; none when the dataset is safe.
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
            // All of it at one place is lost with that place: where losses are to be survived that is one more that holds some.
            let whole = ends.iter().filter(has_whole);
            let whole = whole.filter(|site| losses == 0 || counts(site)).count();
            let masks = via.iter().map(|site| site.mask(request, place));
            let held = apart(&masks.collect::<Vec<u64>>(), spec.code.total());
            whole <= losses && held + whole < needed
        })
    }
}

impl World {
    /// The chunk of which the fewest fragments lie on the depots `counts` lets through, and how many; of those that no
    /// destination has whole.
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

    /// A destination, and a chunk of the request that it lacks. One that something befell may have lost
    /// it, and nobody may know yet.
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

/// How many of the fragments `0..total` can each be taken from a depot of its own: then the loss of
/// any m depots loses at most m of them.
fn apart(masks: &[u64], total: u8) -> usize {
    let mut owner: Vec<Option<u8>> = vec![None; masks.len()];
    let mut is_apart = |fragment: &u8| {
        let mut seen = vec![false; masks.len()];
        assign(*fragment, masks, &mut owner, &mut seen)
    };
    (0..total).filter(|fragment| is_apart(fragment)).count()
}

/// One augmenting path of a bipartite matching (Kuhn).
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
