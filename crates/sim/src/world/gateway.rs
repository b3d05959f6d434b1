//! Gateways: alternative routes to depots, shared by the depots behind one gateway.

use std::collections::BTreeMap;

use super::{Node, World, course::CourseId, shares::UserId};

/// Flows to a depot: by its gateways in their order, the direct one last.
#[derive(Debug, Default)]
pub(super) struct Bypasses {
    ways: BTreeMap<usize, Vec<(Option<usize>, UserId)>>,
}

impl World {
    /// Adds a gateway to these sites. Call it after their paths are added.
    pub(super) fn add_gateway(&mut self, gateway: usize, places: &[usize], course: CourseId) {
        let resource = self.resource(course);
        for &place in places {
            let ends = (Node::CENTRE, Node::site(place));
            let Some((straight, by)) = self.network.add_detour(ends, resource) else {
                continue;
            };
            let ways = self.bypasses.ways.entry(place).or_default();
            if ways.is_empty() {
                ways.push((None, straight));
            }
            let last = ways.len() - 1;
            ways.insert(last, (Some(gateway), by));
        }
    }

    /// Returns the routes to a site with several, each by its gateway; the direct one has none.
    pub(crate) fn ways_to(&self, place: usize) -> Vec<Option<usize>> {
        let ways = self.bypasses.ways.get(&place).into_iter().flatten();
        ways.map(|(gateway, _)| *gateway).collect()
    }

    /// Switches the route to a site. Transfers in flight switch too.
    pub(crate) fn take_way(&mut self, place: usize, way: usize) {
        let ways = self.bypasses.ways.get(&place);
        if let Some((_, flow)) = ways.and_then(|ways| ways.get(way)) {
            self.network.steer((Node::CENTRE, Node::site(place)), *flow);
        }
    }
}
