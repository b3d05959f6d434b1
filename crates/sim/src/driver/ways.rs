//! Gateways that go away and come back, and data that takes another route.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use posthaste_core::contract::Input;
use posthaste_types::DepotId;

use super::{Pending, Run};
use crate::{
    report::What,
    world::{Arrival, Node},
};

/// Routes of data, as the driver knows them.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// Commanded route of each depot, by the depot's place.
    wanted: BTreeMap<usize, usize>,
    taken: BTreeMap<usize, usize>,
    /// Depots whose route changed since their last measurement.
    turning: BTreeSet<usize>,
    /// Gateways that are gone.
    gone: BTreeSet<usize>,
}

impl Run<'_> {
    /// Returns the existing routes for the mind. Every driver that starts reports them.
    pub(super) fn found_ways(&mut self) -> Vec<Input> {
        let places = 0..self.world.sites.len();
        let mut found = Vec::new();
        for place in places {
            let ways = self.world.ways_to(place);
            if ways.is_empty() {
                continue;
            }
            let name = |gateway: &Option<usize>| match gateway {
                Some(gateway) => self.scenario.gateways[*gateway].name.clone(),
                None => String::from("straight"),
            };
            let names = ways.iter().map(name).collect();
            let depot = self.world.sites[place].id;
            self.ways.wanted.insert(place, 0);
            self.turn_way(place);
            found.push(Input::WaysFound { depot, ways: names });
        }
        found
    }

    /// Queues the outages of gateways.
    pub(super) fn queue_gateways(&mut self) {
        let scenario = self.scenario;
        for (gateway, plan) in scenario.gateways.iter().enumerate() {
            for [from, until] in &plan.gone_s {
                for (at, is_gone) in [(from, true), (until, false)] {
                    let span = Duration::from_secs_f64(*at);
                    self.after(span, Pending::Gateway { gateway, is_gone });
                }
            }
        }
    }

    /// Executes the mind's choice of a route to a depot.
    pub(super) fn take(&mut self, depot: DepotId, way: u8) {
        let Some(place) = self.world.place(depot) else {
            return;
        };
        let way = usize::from(way);
        let is_there = way < self.world.ways_to(place).len();
        let found = self.checkers.ways.on_take(depot, is_there);
        self.checkers.note(self.now, found);
        if is_there {
            self.ways.wanted.insert(place, way);
            self.turn_way(place);
        }
    }

    /// Switches to the wanted route if it is open, else to the first open one. Returns the route if
    /// it changed.
    fn turn_way(&mut self, place: usize) -> Option<usize> {
        let ways = self.world.ways_to(place);
        let wanted = self.ways.wanted.get(&place).copied().unwrap_or(0);
        let is_open = |way: &usize| {
            let gateway = ways.get(*way).copied().flatten();
            gateway.is_none_or(|gateway| !self.ways.gone.contains(&gateway))
        };
        let way = [wanted].into_iter().chain(0..ways.len()).find(is_open)?;
        self.world.take_way(place, way);
        let before = self.ways.taken.insert(place, way);
        if before == Some(way) {
            return None;
        }
        self.ways.turning.insert(place);
        Some(way)
    }

    /// Handles a gateway that goes away, with the data in flight through it, or that comes back.
    pub(super) fn on_gateway(&mut self, gateway: usize, is_gone: bool) {
        let name = self.scenario.gateways[gateway].name.clone();
        let what = match is_gone {
            true => format!("the gateway {name} goes"),
            false => format!("the gateway {name} comes again"),
        };
        self.log(None, None, What::World(what));
        self.last_change = self.now;
        match is_gone {
            true => self.ways.gone.insert(gateway),
            false => self.ways.gone.remove(&gateway),
        };
        for place in 0..self.world.sites.len() {
            let ways = self.world.ways_to(place);
            let taken = self.ways.taken.get(&place).copied().unwrap_or(0);
            let went_through = ways.get(taken).copied().flatten() == Some(gateway);
            if is_gone && went_through {
                self.break_way(place);
            }
            if let Some(way) = self.turn_way(place) {
                let depot = self.world.sites[place].id;
                let way = u8::try_from(way).unwrap_or(u8::MAX);
                self.tell_after(Duration::from_secs(1), Input::WayTold { depot, way });
            }
        }
    }

    /// Breaks all connections from the centre to a depot.
    fn break_way(&mut self, place: usize) {
        let to = Node::site(place);
        let dropped = self.world.drop_sends(place, |_| true).into_iter();
        let lost = dropped.map(|sending| Arrival {
            from: Node::CENTRE,
            to,
            sending,
        });
        self.lose(lost.collect());
    }

    /// Returns whether the last measurement says nothing about the current route, because some data
    /// took another one.
    pub(super) fn was_turning(&mut self, place: usize) -> bool {
        self.ways.turning.remove(&place)
    }
}
