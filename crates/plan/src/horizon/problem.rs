//! Planning problems.

use alloc::{vec, vec::Vec};
use core::{ops::Range, time::Duration};
use posthaste_types::{ByteRate, Bytes, Code, record};

use super::{Flaw, Flow, Grid, Money, Price};

record! {
    /// A place that can hold data.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Node {
        /// Space for all demands together, including their present data. Data at its source takes
        /// none.
        pub space: Bytes,
        /// Failure domains: its site, its provider, its region, each once. Empty if it fails alone.
        pub domains: Vec<u32>,
        /// Use only if nothing else keeps a deadline.
        pub is_landmark: bool,
        /// Price of keeping a byte here for an hour.
        pub hold: Price,
        /// Most bytes that may leave in each slot over all links; none for no limit.
        pub way_out: Option<Vec<Bytes>>,
        /// Most bytes that may arrive in each slot over all links; none for no limit.
        pub way_in: Option<Vec<Bytes>>,
    }
}

impl Default for Node {
    fn default() -> Self {
        Self {
            space: Bytes::new(u64::MAX >> 8),
            domains: Vec::new(),
            is_landmark: false,
            hold: Price::FREE,
            way_out: None,
            way_in: None,
        }
    }
}

record! {
    /// A link from one node to another.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Link {
        /// Place of its start among the nodes.
        pub from: usize,
        /// Place of its end among the nodes.
        pub to: usize,
        /// Capacity in each slot; zero in slots that are missing.
        pub capacity: Vec<Bytes>,
        /// Price of a byte.
        pub price: Price,
    }
}

record! {
    /// Data to move, with its deadlines. Moments count from now.
    ///
    /// With `offload_by` it is a stage-out: by then each byte must be safe, that is, at the sink as
    /// it is or coded on depots. Without, it is a copy, and depots on the way hold uncoded bytes.
    /// With `not_before` it is a stage-in, which arrives as late as its deadline allows.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Demand {
        /// Node it leaves.
        pub source: usize,
        /// Node it goes to; none if depots are the end.
        pub sink: Option<usize>,
        /// Size, before coding.
        pub bytes: Bytes,
        /// Code of chunks on depots.
        pub code: Code,
        /// Bytes that nodes other than the source hold of it now: fragments at depots, bytes at the
        /// sink. At most one entry per node.
        pub held: Vec<(usize, Bytes)>,
        /// Moment from which the source has it.
        pub release: Duration,
        /// Deadline by which the source must be empty of it.
        pub offload_by: Option<Duration>,
        /// Deadline by which the sink must have all of it.
        pub deliver_by: Option<Duration>,
        /// Moment before which nothing may arrive at the sink.
        pub not_before: Option<Duration>,
        /// Depots it may use; landmarks only if the others don't suffice.
        pub via: Vec<usize>,
        /// Weight of its deadlines relative to others': its priority times its share.
        pub weight: u32,
        /// Budget: the most it may cost.
        pub budget: Option<Money>,
        /// Most bytes that may leave its source per second.
        pub rate_max: Option<ByteRate>,
        /// Limits of this demand alone on some links in each slot, by the link's place, where they
        /// are lower than the link's capacity: a depot is lent for it at some hours only. Zero in
        /// slots that are missing.
        pub lent: Vec<(usize, Vec<Bytes>)>,
        /// Depots of `via` that must hold a fragment of each chunk before it is safe, whatever else
        /// holds it.
        pub pinned: Vec<usize>,
    }
}

/// Slots in which a demand may move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Slots for sending from the source.
    pub leave: Range<usize>,
    /// Slots for arriving at the sink in time.
    pub arrive: Range<usize>,
}

impl Demand {
    /// Returns its slots on a grid. A deadline in the middle of a slot is kept by the slots before.
    #[must_use]
    pub fn window(&self, grid: &Grid) -> Window {
        let by = |deadline: Option<Duration>| {
            deadline.map_or(grid.slots(), |deadline| grid.ended_by(deadline))
        };
        Window {
            leave: grid.first_from(self.release)..by(self.offload_by),
            arrive: grid.first_from(self.not_before.unwrap_or_default())..by(self.deliver_by),
        }
    }

    /// Returns the bytes of all its fragments with one index: the most one depot may hold.
    #[must_use]
    pub fn column(&self) -> Bytes {
        self.code.fragment_size(self.bytes)
    }

    /// Returns its first deadline, if any.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        [self.offload_by, self.deliver_by]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns whether data on its depots is coded.
    #[must_use]
    pub const fn is_coded(&self) -> bool {
        self.offload_by.is_some()
    }

    /// Returns the most bytes of it that one failure domain may hold: m fragments of a chunk. There
    /// is no limit for copies and without parity, where no loss is survived anyway.
    #[must_use]
    pub fn domain_max(&self) -> u64 {
        let parity = u64::from(self.code.parity());
        if self.is_coded() && parity > 0 {
            self.column().times(parity).get()
        } else {
            u64::MAX
        }
    }

    /// Returns the bytes a node holds of it now.
    #[must_use]
    pub fn held_at(&self, node: usize) -> u64 {
        let held = self.held.iter().find(|(place, _)| *place == node);
        held.map_or(0, |(_, bytes)| bytes.get())
    }

    /// Returns its own limit on a link in a slot, where that is lower than the link's capacity.
    #[must_use]
    pub fn lent_at(&self, link: usize, slot: usize) -> Option<Bytes> {
        let (_, caps) = self.lent.iter().find(|(place, _)| *place == link)?;
        Some(caps.get(slot).copied().unwrap_or(Bytes::ZERO))
    }

    /// Returns the bytes whose fragments at pinned depots are missing when nodes hold this much.
    #[must_use]
    pub(crate) fn unpinned(&self, held: &[u64]) -> u64 {
        let data = u64::from(self.code.data());
        let pinned = self.pinned.iter();
        let there = pinned.map(|&node| held[node].saturating_mul(data));
        let least = there.min().unwrap_or(u64::MAX);
        self.bytes.get().saturating_sub(least)
    }

    /// Returns whether its data may go over `link`.
    #[must_use]
    pub fn may_use(&self, link: &Link) -> bool {
        let sends = link.from == self.source || self.via.contains(&link.from);
        let takes = Some(link.to) == self.sink || self.via.contains(&link.to);
        sends && takes && link.to != self.source && Some(link.from) != self.sink
    }
}

record! {
    /// A planning problem, and the plan in force.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Problem {
        /// The slots.
        pub grid: Grid,
        /// Places.
        pub nodes: Vec<Node>,
        /// Links between them.
        pub links: Vec<Link>,
        /// Data to move.
        pub demands: Vec<Demand>,
        /// Plan in force, in the slots of this grid: moving data away from it costs `churn`.
        pub previous: Vec<Flow>,
        /// Price of moving a byte away from the plan in force.
        pub churn: Price,
    }
}

impl Problem {
    /// Returns the capacity of a link in a slot.
    #[must_use]
    pub fn carries(&self, link: usize, slot: usize) -> u64 {
        let capacity = self
            .links
            .get(link)
            .and_then(|link| link.capacity.get(slot));
        capacity.map_or(0, |bytes| bytes.get())
    }

    /// Returns the capacity of a link in a slot for one demand alone.
    #[must_use]
    pub fn carries_for(&self, demand: &Demand, link: usize, slot: usize) -> u64 {
        let lent = demand.lent_at(link, slot);
        let most = self.carries(link, slot);
        lent.map_or(most, |lent| most.min(lent.get()))
    }

    /// Returns the most bytes that may leave the source of a demand in each slot, if limited.
    #[must_use]
    pub fn rate_caps(&self, demand: &Demand) -> Option<Vec<Bytes>> {
        demand.rate_max.map(|rate| self.grid.volumes(rate))
    }

    /// Checks that slots follow each other, and that links and demands name existing nodes, each at
    /// most once in its place.
    ///
    /// # Errors
    /// [`Flaw::Unknown`] if they do not. All other functions assume a sound problem.
    pub fn check(&self) -> Result<(), Flaw> {
        let is_node = |node: &usize| *node < self.nodes.len();
        let are_links_sound = self
            .links
            .iter()
            .all(|link| is_node(&link.from) && is_node(&link.to) && link.from != link.to);
        let is_sound = |demand: &Demand| {
            let ends = [Some(demand.source), demand.sink];
            let mut all: Vec<usize> = ends.into_iter().flatten().collect();
            all.extend(&demand.via);
            let mut held: Vec<usize> = demand.held.iter().map(|(node, _)| *node).collect();
            let is_held_fine = held.iter().all(|node| all[1..].contains(node));
            let is_known = all.iter().all(is_node);
            let differ = |places: &mut Vec<usize>| {
                let count = places.len();
                places.sort_unstable();
                places.dedup();
                places.len() == count
            };
            let is_via = |node: &usize| demand.via.contains(node);
            let is_bound_fine = demand.pinned.iter().all(is_via)
                && (demand.pinned.is_empty() || demand.is_coded())
                && demand.lent.iter().all(|(link, _)| *link < self.links.len());
            is_known && is_held_fine && is_bound_fine && differ(&mut all) && differ(&mut held)
        };
        if self.grid.is_sound() && are_links_sound && self.demands.iter().all(is_sound) {
            Ok(())
        } else {
            Err(Flaw::Unknown)
        }
    }

    /// Returns the order of urgency: by first deadline, then by greater weight, then as given.
    #[must_use]
    pub fn by_deadline(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.demands.len()).collect();
        order.sort_by_key(|&place| {
            let demand = &self.demands[place];
            let deadline = demand.deadline().unwrap_or(Duration::MAX);
            (deadline, core::cmp::Reverse(demand.weight), place)
        });
        order
    }

    /// Returns nodes with those first that share their domains with the fewest others; as given if
    /// no node has several.
    pub(crate) fn fewest_shared(&self, nodes: &[usize]) -> Vec<usize> {
        let mut sorted = nodes.to_vec();
        let domains = |node: &usize| &self.nodes[*node].domains;
        if nodes.iter().any(|node| domains(node).len() > 1) {
            let shares = |node: &usize, other: &&usize| {
                let mut names = domains(node).iter();
                names.any(|name| domains(other).contains(name))
            };
            let kin = |node: &usize| nodes.iter().filter(|other| shares(node, other)).count();
            sorted.sort_by_cached_key(kin);
        }
        sorted
    }

    /// Returns a column of zeros, one for each node.
    pub(crate) fn per_node(&self) -> Vec<u64> {
        vec![0; self.nodes.len()]
    }
}
