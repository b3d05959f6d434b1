//! Circuits: a way beside the path to a depot, with rate that nobody else takes.

use std::collections::BTreeMap;

use super::{Node, ResourceId, World, shares::UserId};

/// The ways over circuits, by the places of the depots they lead to.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// What is reserved on each circuit, and what it is as a resource.
    circuits: Vec<(u64, ResourceId)>,
    /// The circuit that leads to a depot: its place, and the two flows to choose from.
    leads: BTreeMap<usize, Lead>,
}

#[derive(Debug)]
struct Lead {
    circuit: usize,
    shared: UserId,
    reserved: UserId,
    /// Most that was reserved since that was last asked.
    highest: u64,
}

impl World {
    /// Adds a circuit to these sites; one that a circuit leads to already keeps to that. To be said after
    /// their paths are added.
    pub(super) fn add_circuit(&mut self, places: &[usize]) {
        let resource = self.network.add_resource(0);
        let circuit = self.circuits.circuits.len();
        self.circuits.circuits.push((0, resource));
        for &place in places {
            if self.circuits.leads.contains_key(&place) {
                continue;
            }
            let ends = (Node::CENTRE, Node::site(place));
            if let Some((shared, reserved)) = self.network.add_detour(ends, resource) {
                let lead = Lead {
                    circuit,
                    shared,
                    reserved,
                    highest: 0,
                };
                self.circuits.leads.insert(place, lead);
            }
        }
    }

    /// So much is reserved on a circuit and up from now on.
    pub(crate) fn set_circuit(&mut self, circuit: usize, rate: u64) {
        let Some((reserved, resource)) = self.circuits.circuits.get_mut(circuit) else {
            return;
        };
        *reserved = rate;
        let leads = self.circuits.leads.values_mut();
        for lead in leads.filter(|lead| lead.circuit == circuit) {
            lead.highest = lead.highest.max(rate);
        }
        self.network.set_capacity(*resource, rate);
        self.steer();
    }

    /// Lets data to each depot go over its circuit where that carries more than the path it shares: what is
    /// under way moves over with it.
    pub(crate) fn steer(&mut self) {
        for (&place, lead) in &self.circuits.leads {
            let (rate, _) = self.circuits.circuits[lead.circuit];
            let shared = self.courses[self.sites[place].course.0].1.capacity();
            let flow = if rate > shared {
                lead.reserved
            } else {
                lead.shared
            };
            self.network.steer((Node::CENTRE, Node::site(place)), flow);
        }
    }

    /// The most that was reserved for data to a site and up since this was last asked, and the most that the path it
    /// shares carried.
    pub(crate) fn take_highest(&mut self, place: usize) -> (u64, u64) {
        let circuits = &self.circuits.circuits;
        let reserved = self.circuits.leads.get_mut(&place).map_or(0, |lead| {
            let (now, _) = circuits[lead.circuit];
            std::mem::replace(&mut lead.highest, now)
        });
        let course = self.sites[place].course;
        (reserved, self.courses[course.0].1.take_highest())
    }
}
