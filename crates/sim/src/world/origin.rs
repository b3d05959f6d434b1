//! Sources of stage-ins: their condition, and the path from each.

use posthaste_core::contract::SourcePrice;
use posthaste_types::{DepotId, SourceId};

use super::{Condition, Node, course::CourseId};

/// Source in the world.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) id: SourceId,
    pub(crate) name: String,
    pub(crate) node: Node,
    /// Depot near the centre that this source reads, if it is one.
    pub(crate) near: Option<DepotId>,
    /// Course of its path to the centre.
    pub(super) course: CourseId,
    pub(crate) condition: Condition,
    pub(crate) latency_micros: u64,
    pub(crate) first_rate: u64,
    pub(crate) advertises: bool,
    /// Price of reading from it.
    pub(crate) price: SourcePrice,
    /// Change of its data since it was examined.
    pub(crate) is_changed: bool,
    /// Counter of its faults. If two overlap, the later one decides the end.
    pub(crate) ordeal: u32,
}

impl super::World {
    /// Returns the place of a source among all. Sources are numbered from one.
    pub(crate) fn origin(&self, source: SourceId) -> Option<usize> {
        let place = usize::try_from(source.get()).ok()?.checked_sub(1)?;
        self.origins.get(place).map(|_| place)
    }

    /// Returns the place of the source at a node, if any.
    pub(crate) fn origin_at(&self, node: Node) -> Option<usize> {
        self.origins.iter().position(|origin| origin.node == node)
    }

    /// Returns the current rate of the path from a source.
    pub(crate) fn inbound_rate(&self, place: usize) -> u64 {
        self.courses[self.origins[place].course.0].1.capacity()
    }

    /// Sets the rate of the path from a source, or restores it.
    pub(crate) fn cut_inbound(&mut self, place: usize, rate: Option<u64>) {
        self.bend(self.origins[place].course, |course| course.set_cut(rate));
    }

    /// Sets a source's condition. Nothing comes from a source that isn't well.
    pub(crate) fn set_origin(&mut self, place: usize, condition: Condition) {
        let origin = &mut self.origins[place];
        origin.condition = condition;
        let node = origin.node;
        self.network.set_closed(node, condition != Condition::Well);
    }

    /// Takes back transfers from a source.
    pub(crate) fn drop_inbound(
        &mut self,
        place: usize,
        is_gone: impl Fn(&super::Sending) -> bool,
    ) -> Vec<super::Sending> {
        let node = self.origins[place].node;
        self.network.drop_sends(node, Node::CENTRE, is_gone)
    }
}
