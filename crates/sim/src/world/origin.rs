//! A source of stage-ins: whether it is there, and the way from it.

use posthaste_core::contract::SourcePrice;
use posthaste_types::{DepotId, SourceId};

use super::{Condition, Node, course::CourseId};

/// A source in the world.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) id: SourceId,
    pub(crate) name: String,
    pub(crate) node: Node,
    /// The depot near the centre that it is, on its way back.
    pub(crate) near: Option<DepotId>,
    /// Of its path to the centre.
    pub(super) course: CourseId,
    pub(crate) condition: Condition,
    pub(crate) latency_micros: u64,
    pub(crate) first_rate: u64,
    pub(crate) advertises: bool,
    /// What reading from it costs.
    pub(crate) price: SourcePrice,
    /// What it holds is no longer what it was when it was looked at.
    pub(crate) is_changed: bool,
    /// Counts what befell it: when two faults overlap, the later one decides when it is over.
    pub(crate) ordeal: u32,
}

impl super::World {
    /// The place of a source among all: they are numbered from one.
    pub(crate) fn origin(&self, source: SourceId) -> Option<usize> {
        let place = usize::try_from(source.get()).ok()?.checked_sub(1)?;
        self.origins.get(place).map(|_| place)
    }

    /// The source at a node, if one is.
    pub(crate) fn origin_at(&self, node: Node) -> Option<usize> {
        self.origins.iter().position(|origin| origin.node == node)
    }

    /// What the path from a source carries now.
    pub(crate) fn inbound_rate(&self, place: usize) -> u64 {
        self.courses[self.origins[place].course.0].1.capacity()
    }

    /// The path from a source carries this from now on, or again what it is meant to.
    pub(crate) fn cut_inbound(&mut self, place: usize, rate: Option<u64>) {
        self.bend(self.origins[place].course, |course| course.set_cut(rate));
    }

    /// A source is like this from now on; nothing comes from one that isn't well.
    pub(crate) fn set_origin(&mut self, place: usize, condition: Condition) {
        let origin = &mut self.origins[place];
        origin.condition = condition;
        let node = origin.node;
        self.network.set_closed(node, condition != Condition::Well);
    }

    /// Takes back what comes from a source.
    pub(crate) fn drop_inbound(
        &mut self,
        place: usize,
        is_gone: impl Fn(&super::Sending) -> bool,
    ) -> Vec<super::Sending> {
        let node = self.origins[place].node;
        self.network.drop_sends(node, Node::CENTRE, is_gone)
    }
}
