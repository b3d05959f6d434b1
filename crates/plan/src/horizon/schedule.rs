//! Schedules, and the check that one is valid.

use alloc::{vec, vec::Vec};
use core::{cmp::Reverse, fmt};
use posthaste_types::{Bytes, record};

use super::{Course, Money, Problem, Shortfall, course::follow};

record! {
    /// Bytes of one demand on one link in one slot.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Flow {
        /// Place of the demand among the demands.
        pub demand: usize,
        /// Slot.
        pub slot: usize,
        /// Place of the link among the links.
        pub link: usize,
        /// Number of bytes.
        pub bytes: Bytes,
    }
}

record! {
    /// All flows of a plan and their result. A schedule that [`Schedule::of`] returned breaks no
    /// rule of its problem.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Schedule {
        /// Flows by demand, slot and link: at most one for each combination, none empty.
        pub flows: Vec<Flow>,
        /// Missing bytes of each demand.
        pub shortfalls: Vec<Shortfall>,
        /// Cost in all.
        pub cost: Money,
    }
}

/// Rule that a schedule breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// A demand, slot, link or node that does not exist.
    Unknown,
    /// A link that this demand may not use.
    Forbidden {
        /// The link.
        link: usize,
    },
    /// Data leaves the source before it is there or after its deadline, or arrives too early.
    OutsideWindow {
        /// The link.
        link: usize,
        /// The slot.
        slot: usize,
    },
    /// More bytes leave a node than lie there when the slot begins.
    NotThere {
        /// The node.
        node: usize,
        /// The slot.
        slot: usize,
    },
    /// A depot holds more than one fragment of a chunk, or the sink more than all.
    TooMuch {
        /// The node.
        node: usize,
        /// The slot.
        slot: usize,
    },
    /// A failure domain holds more fragments than may be lost.
    TooMuchInDomain {
        /// The domain.
        domain: u32,
        /// The slot.
        slot: usize,
    },
    /// A link carries more than its capacity.
    Overbooked {
        /// The link.
        link: usize,
        /// The slot.
        slot: usize,
    },
    /// More bytes leave a node, or arrive there, than its limit allows.
    Crowded {
        /// The node.
        node: usize,
        /// The slot.
        slot: usize,
    },
    /// A demand leaves its source above its rate limit.
    TooFast {
        /// The demand.
        demand: usize,
        /// The slot.
        slot: usize,
    },
    /// A node holds more than its space.
    NoSpace {
        /// The node.
        node: usize,
        /// Slot after which it does.
        slot: usize,
    },
    /// A demand costs more than its budget.
    OverBudget,
    /// Shortfalls or cost do not follow from the flows, or the flows are not sorted.
    Untrue,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("a flow of nothing, or nowhere, or never"),
            Self::Forbidden { link } => write!(f, "link {link} is not for this demand"),
            Self::OutsideWindow { link, slot } => {
                write!(
                    f,
                    "link {link} is used too early or too late in slot {slot}"
                )
            }
            Self::NotThere { node, slot } => {
                write!(f, "node {node} sends in slot {slot} what it does not have")
            }
            Self::TooMuch { node, slot } => {
                write!(
                    f,
                    "node {node} holds too much of a demand after slot {slot}"
                )
            }
            Self::TooMuchInDomain { domain, slot } => {
                write!(
                    f,
                    "domain {domain} holds too much of a demand after slot {slot}"
                )
            }
            Self::Overbooked { link, slot } => {
                write!(f, "link {link} carries more than it can in slot {slot}")
            }
            Self::Crowded { node, slot } => {
                write!(
                    f,
                    "node {node} sends or takes more than it can in slot {slot}"
                )
            }
            Self::TooFast { demand, slot } => {
                write!(
                    f,
                    "demand {demand} leaves faster than it may in slot {slot}"
                )
            }
            Self::NoSpace { node, slot } => write!(f, "node {node} is over-full after slot {slot}"),
            Self::OverBudget => f.write_str("a demand costs more than its budget"),
            Self::Untrue => f.write_str("the schedule does not come to what it says"),
        }
    }
}

impl core::error::Error for Flaw {}

/// Quality of a schedule: greater is better. The weight of kept deadlines comes first, then missing
/// bytes, then churn and cost together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Worth {
    /// Sum of the weights of all demands that lack nothing.
    pub kept: u64,
    /// Missing bytes times weight.
    pub missing: Reverse<u128>,
    /// Bytes that go over links of landmarks.
    pub landmarks: Reverse<u64>,
    /// Cost, churn included.
    pub cost: Reverse<Money>,
}

impl Schedule {
    /// Returns the schedule of `flows`, in any order.
    ///
    /// # Errors
    /// The first rule they break.
    pub fn of(problem: &Problem, flows: Vec<Flow>) -> Result<Self, Flaw> {
        let flows = in_order(flows);
        let courses = courses(problem, &flows)?;
        check_shared(problem, &flows, &courses)?;
        Ok(Self {
            shortfalls: courses.iter().map(|course| course.shortfall).collect(),
            cost: courses.iter().map(|course| course.cost).sum(),
            flows,
        })
    }

    /// Checks every rule of `problem`, and that shortfalls and cost are true.
    ///
    /// # Errors
    /// The first broken rule.
    pub fn check(&self, problem: &Problem) -> Result<(), Flaw> {
        let same = Self::of(problem, self.flows.clone())?;
        if same == *self {
            Ok(())
        } else {
            Err(Flaw::Untrue)
        }
    }

    /// Returns the location of each demand's bytes at every moment.
    ///
    /// # Errors
    /// The first rule that a demand breaks by itself.
    pub fn courses(&self, problem: &Problem) -> Result<Vec<Course>, Flaw> {
        courses(problem, &self.flows)
    }

    /// Returns the flows of one demand, by slot.
    #[must_use]
    pub fn of_demand(&self, demand: usize) -> &[Flow] {
        slice_of(&self.flows, demand)
    }

    /// Returns its quality.
    #[must_use]
    pub fn worth(&self, problem: &Problem) -> Worth {
        let wanted = || problem.demands.iter().zip(&self.shortfalls);
        let lacks = |shortfall: &Shortfall| {
            u128::from(shortfall.offload.get()) + u128::from(shortfall.deliver.get())
        };
        let landmark = |flow: &&Flow| {
            let link = &problem.links[flow.link];
            problem.nodes[link.from].is_landmark || problem.nodes[link.to].is_landmark
        };
        Worth {
            kept: wanted()
                .filter(|(_, shortfall)| shortfall.is_none())
                .map(|(demand, _)| u64::from(demand.weight))
                .sum(),
            missing: Reverse(
                wanted()
                    .map(|(demand, shortfall)| u128::from(demand.weight) * lacks(shortfall))
                    .sum(),
            ),
            landmarks: Reverse(
                self.flows
                    .iter()
                    .filter(landmark)
                    .map(|flow| flow.bytes.get())
                    .sum(),
            ),
            cost: Reverse(self.cost + problem.churn.of(self.moved_from(&problem.previous))),
        }
    }

    /// Returns the bytes of `previous` that are no longer where they were planned.
    #[must_use]
    pub fn moved_from(&self, previous: &[Flow]) -> Bytes {
        let key = |flow: &Flow| (flow.demand, flow.slot, flow.link);
        let kept = |before: &Flow| {
            self.flows
                .binary_search_by_key(&key(before), key)
                .map_or(Bytes::ZERO, |place| self.flows[place].bytes)
        };
        previous
            .iter()
            .map(|before| before.bytes - kept(before))
            .sum()
    }
}

/// Sorts flows, merges those of one demand, slot and link, and drops empty ones.
fn in_order(mut flows: Vec<Flow>) -> Vec<Flow> {
    flows.sort_unstable();
    flows.dedup_by(|next, kept| {
        let same = (next.demand, next.slot, next.link) == (kept.demand, kept.slot, kept.link);
        if same {
            kept.bytes += next.bytes;
        }
        same
    });
    flows.retain(|flow| flow.bytes > Bytes::ZERO);
    flows
}

fn slice_of(flows: &[Flow], demand: usize) -> &[Flow] {
    let first = flows.partition_point(|flow| flow.demand < demand);
    let end = flows.partition_point(|flow| flow.demand <= demand);
    &flows[first..end]
}

fn courses(problem: &Problem, flows: &[Flow]) -> Result<Vec<Course>, Flaw> {
    if flows
        .last()
        .is_some_and(|flow| flow.demand >= problem.demands.len())
    {
        return Err(Flaw::Unknown);
    }
    problem
        .demands
        .iter()
        .enumerate()
        .map(|(place, demand)| follow(problem, demand, slice_of(flows, place)))
        .collect()
}

/// Checks the limits that demands share: links, uplinks, downlinks, space.
fn check_shared(problem: &Problem, flows: &[Flow], courses: &[Course]) -> Result<(), Flaw> {
    let slots = problem.grid.slots();
    let zeros = || vec![0u64; slots];
    let mut on_link = vec![zeros(); problem.links.len()];
    let mut out = vec![zeros(); problem.nodes.len()];
    let mut into = out.clone();
    let mut from_source = vec![zeros(); problem.demands.len()];
    let add = |sum: &mut u64, bytes: u64| *sum = sum.saturating_add(bytes);
    for flow in flows {
        let (link, bytes) = (&problem.links[flow.link], flow.bytes.get());
        add(&mut on_link[flow.link][flow.slot], bytes);
        add(&mut out[link.from][flow.slot], bytes);
        add(&mut into[link.to][flow.slot], bytes);
        if link.from == problem.demands[flow.demand].source {
            add(&mut from_source[flow.demand][flow.slot], bytes);
        }
    }
    let over = |used: &[u64], cap: &[Bytes]| {
        (0..slots).find(|&slot| used[slot] > cap.get(slot).map_or(0, |cap| cap.get()))
    };
    for (place, link) in problem.links.iter().enumerate() {
        if let Some(slot) = over(&on_link[place], &link.capacity) {
            return Err(Flaw::Overbooked { link: place, slot });
        }
    }
    for (place, node) in problem.nodes.iter().enumerate() {
        for (used, cap) in [(&out, &node.way_out), (&into, &node.way_in)] {
            if let Some(slot) = cap.as_ref().and_then(|cap| over(&used[place], cap)) {
                return Err(Flaw::Crowded { node: place, slot });
            }
        }
    }
    for (place, demand) in problem.demands.iter().enumerate() {
        let cap = problem.rate_caps(demand);
        if let Some(slot) = cap.and_then(|cap| over(&from_source[place], &cap)) {
            return Err(Flaw::TooFast {
                demand: place,
                slot,
            });
        }
    }
    check_space(problem, courses)
}

/// Checks space. Nodes that were over-full from the start may stay so, but nothing is added to
/// them.
fn check_space(problem: &Problem, courses: &[Course]) -> Result<(), Flaw> {
    for (place, node) in problem.nodes.iter().enumerate() {
        let lies = |slot: usize| -> u64 {
            let of = |course: &Course| course.stock[slot][place];
            courses.iter().map(of).fold(0, u64::saturating_add)
        };
        let room = node.space.get().max(lies(0));
        if let Some(slot) = (1..=problem.grid.slots()).find(|&slot| lies(slot) > room) {
            return Err(Flaw::NoSpace {
                node: place,
                slot: slot - 1,
            });
        }
    }
    Ok(())
}
