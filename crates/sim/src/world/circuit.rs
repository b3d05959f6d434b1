//! Circuits: routes beside the path to a depot, with a reserved rate.

use std::collections::BTreeMap;

use super::{Node, ResourceId, World, shares::UserId};

/// Routes over circuits, by the places of their depots.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// Reserved rate and resource of each circuit.
    circuits: Vec<(u64, ResourceId)>,
    /// Circuit to each depot: its place, and the two flows to choose from.
    leads: BTreeMap<usize, Lead>,
}

#[derive(Debug)]
struct Lead {
    circuit: usize,
    shared: UserId,
    reserved: UserId,
    /// Highest reserved rate since the last query.
    highest: u64,
}

impl World {
    /// Adds a circuit to these sites, except those with an earlier circuit. Call it after their
    /// paths are added.
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

    /// Sets the rate that is reserved and up on a circuit.
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

    /// Routes data to each depot over its circuit if that carries more than the shared path.
    /// Transfers in flight switch too.
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

    /// Returns the highest rate that was reserved and up for a site since the last query, and the
    /// highest rate of its shared path.
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
