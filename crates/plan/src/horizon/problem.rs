//! What is to be planned.

use alloc::{vec, vec::Vec};
use core::{ops::Range, time::Duration};
use posthaste_types::{ByteRate, Bytes, Code, record};

use super::{Flaw, Flow, Grid, Money, Price};

record! {
    /// A place data can be.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Node {
        /// Room for all demands together, what they hold there already included. What lies at its source
        /// takes none.
        pub space: Bytes,
        /// With what it fails together: its site, its provider, its region, each once. None: with nothing.
        pub domains: Vec<u32>,
        /// Whether it is to be used only when nothing else keeps a deadline.
        pub is_landmark: bool,
        /// What keeping a byte here for an hour costs.
        pub hold: Price,
        /// Most that may leave in each slot over all links; none for no limit.
        pub way_out: Option<Vec<Bytes>>,
        /// Most that may arrive in each slot over all links; none for no limit.
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
    /// A way from one node to another.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Link {
        /// Where data comes from, as a place among the nodes.
        pub from: usize,
        /// Where it goes.
        pub to: usize,
        /// What it carries in each slot; none in slots that are missing.
        pub capacity: Vec<Bytes>,
        /// What a byte costs.
        pub price: Price,
    }
}

record! {
    /// What somebody wants moved, and by when. Moments count from now.
    ///
    /// With `offload_by` it is a stage-out: by then each byte must be safe, which is to say at the sink
    /// as it is or coded on depots. Without, it is a copy, and depots on the way hold uncoded bytes. With
    /// `not_before` it is a stage-in, which arrives as late as its deadline allows.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Demand {
        /// The node it leaves.
        pub source: usize,
        /// The node it goes to; none when depots are the end.
        pub sink: Option<usize>,
        /// Size, before coding.
        pub bytes: Bytes,
        /// How chunks are coded on depots.
        pub code: Code,
        /// What nodes other than the source hold of it now: fragments at depots, bytes at the sink. One
        /// entry for each such node.
        pub held: Vec<(usize, Bytes)>,
        /// When the source has it.
        pub release: Duration,
        /// When the source must be empty of it.
        pub offload_by: Option<Duration>,
        /// When the sink must have all of it.
        pub deliver_by: Option<Duration>,
        /// Nothing may arrive at the sink before.
        pub not_before: Option<Duration>,
        /// Depots it may use; landmarks only where the others don't suffice.
        pub via: Vec<usize>,
        /// How much keeping its deadlines counts beside others': its priority times its share.
        pub weight: u32,
        /// Most it may cost.
        pub budget: Option<Money>,
        /// Most that may leave its source a second.
        pub rate_max: Option<ByteRate>,
        /// What it alone may send over some links in each slot, by their place, where that is less than they carry: a depot is
        /// lent for it at some hours only. None in slots that are missing.
        pub lent: Vec<(usize, Vec<Bytes>)>,
        /// Depots of `via` that must hold a fragment of each chunk before it is safe, whatever else holds it.
        pub pinned: Vec<usize>,
    }
}

/// The slots in which a demand may do what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Sending from the source.
    pub leave: Range<usize>,
    /// Arriving at the sink in time.
    pub arrive: Range<usize>,
}

impl Demand {
    /// Its slots on a grid. A deadline in the middle of a slot is kept by the slots before.
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

    /// Bytes of all its fragments with one index: the most one depot may hold.
    #[must_use]
    pub fn column(&self) -> Bytes {
        self.code.fragment_size(self.bytes)
    }

    /// Its first deadline; none when it has none.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        [self.offload_by, self.deliver_by]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether data on its depots is coded.
    #[must_use]
    pub const fn is_coded(&self) -> bool {
        self.offload_by.is_some()
    }

    /// Most bytes of it that nodes of one failure domain may hold: m fragments of a chunk; no limit
    /// without parity, where no loss is survived anyway, and for copies.
    #[must_use]
    pub fn domain_max(&self) -> u64 {
        let parity = u64::from(self.code.parity());
        if self.is_coded() && parity > 0 {
            self.column().times(parity).get()
        } else {
            u64::MAX
        }
    }

    /// What a node holds of it now.
    #[must_use]
    pub fn held_at(&self, node: usize) -> u64 {
        let held = self.held.iter().find(|(place, _)| *place == node);
        held.map_or(0, |(_, bytes)| bytes.get())
    }

    /// Most that it may send over the link of that place in a slot, where that is less than the link carries.
    #[must_use]
    pub fn lent_at(&self, link: usize, slot: usize) -> Option<Bytes> {
        let (_, caps) = self.lent.iter().find(|(place, _)| *place == link)?;
        Some(caps.get(slot).copied().unwrap_or(Bytes::ZERO))
    }

    /// Bytes of it whose fragments at pinned depots are missing when nodes hold this much.
    #[must_use]
    pub(crate) fn unpinned(&self, held: &[u64]) -> u64 {
        let data = u64::from(self.code.data());
        let pinned = self.pinned.iter();
        let there = pinned.map(|&node| held[node].saturating_mul(data));
        let least = there.min().unwrap_or(u64::MAX);
        self.bytes.get().saturating_sub(least)
    }

    /// Whether its data may go over `link`.
    #[must_use]
    pub fn may_use(&self, link: &Link) -> bool {
        let sends = link.from == self.source || self.via.contains(&link.from);
        let takes = Some(link.to) == self.sink || self.via.contains(&link.to);
        sends && takes && link.to != self.source && Some(link.from) != self.sink
    }
}

record! {
    /// All that is to be planned, and what was planned before.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Problem {
        /// The slots.
        pub grid: Grid,
        /// Places.
        pub nodes: Vec<Node>,
        /// Ways between them.
        pub links: Vec<Link>,
        /// What is wanted.
        pub demands: Vec<Demand>,
        /// The plan in force, in the slots of this grid: what is moved away from it costs `churn`.
        pub previous: Vec<Flow>,
        /// What moving a byte away from the plan in force counts.
        pub churn: Price,
    }
}

impl Problem {
    /// What a link carries in a slot.
    #[must_use]
    pub fn carries(&self, link: usize, slot: usize) -> u64 {
        let capacity = self
            .links
            .get(link)
            .and_then(|link| link.capacity.get(slot));
        capacity.map_or(0, |bytes| bytes.get())
    }

    /// What a link carries in a slot of one demand alone.
    #[must_use]
    pub fn carries_for(&self, demand: &Demand, link: usize, slot: usize) -> u64 {
        let lent = demand.lent_at(link, slot);
        let most = self.carries(link, slot);
        lent.map_or(most, |lent| most.min(lent.get()))
    }

    /// What may leave the source of a demand in each slot, where it is limited.
    #[must_use]
    pub fn rate_caps(&self, demand: &Demand) -> Option<Vec<Bytes>> {
        demand.rate_max.map(|rate| self.grid.volumes(rate))
    }

    /// Checks that slots follow each other, and that links and demands name nodes there are, each at most
    /// once in its place.
    ///
    /// # Errors
    /// [`Flaw::Unknown`] when they do not. Everything else takes problems for sound.
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

    /// The order of urgency: by first deadline, then the weightier, then as given.
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

    /// Nodes, those first that share their domains with the fewest of the others; as given where no node has several.
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

    /// A column of zeros, one for each node.
    pub(crate) fn per_node(&self) -> Vec<u64> {
        vec![0; self.nodes.len()]
    }
}
