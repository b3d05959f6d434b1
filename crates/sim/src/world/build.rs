//! Builds the world of a scenario, with the values the seed draws.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use posthaste_core::contract::SourcePrice;
use posthaste_types::{Bytes, DepotId, SourceId, Timestamp};

use super::{
    Alternation, Condition, Course, CourseId, Loss, Node, Origin, Process, ResourceId, Site, World,
};
use crate::{
    Scenario,
    random::Dice,
    scenario::{DepotPlan, FaultKind, SourcePlan, Varies},
};

/// Builds the world of the scenario at its start.
pub(crate) fn build(scenario: &Scenario, seed: u64, start: Timestamp) -> World {
    let mut builder = Builder {
        world: World::new(start, scenario.egress()),
        scenario,
        seed,
        start,
        links: BTreeMap::new(),
    };
    for place in 0..scenario.depots.len() {
        builder.add_site(place, &scenario.depots[place]);
    }
    for plan in &scenario.sources {
        builder.add_origin(plan);
    }
    builder.add_links();
    builder.add_paths();
    builder.add_circuits();
    builder.add_gateways();
    builder.add_background();
    builder.add_outages();
    builder.world
}

struct Builder<'a> {
    world: World,
    scenario: &'a Scenario,
    seed: u64,
    start: Timestamp,
    links: BTreeMap<&'a str, ResourceId>,
}

impl<'a> Builder<'a> {
    fn dice(&self, of: &str, what: &str) -> Dice {
        Dice::new(self.seed, &format!("{of} {what}"))
    }

    fn add_site(&mut self, place: usize, plan: &DepotPlan) {
        let mut dice = Dice::new(self.seed, &plan.name);
        let rate = plan.rate_mib_per_s.draw_bytes(&mut dice);
        let capacity = Bytes::new(plan.capacity_mib.draw_bytes(&mut dice));
        let latency_micros = plan.latency_ms.draw_milli(&mut dice);
        let loss = Loss::new(plan.loss_permille, 2 * latency_micros, plan.streams);
        let course = self.world.add_course(Course::new(rate, loss));
        let node = self.world.network.add_site();
        let mut dice_of_ways = self.dice(&plan.name, "ways");
        if let Some(way_in) = plan.way_in_mib_per_s {
            let way_in = way_in.draw_bytes(&mut dice_of_ways);
            let way_in = self.world.add_way(way_in);
            self.world.network.set_way_in(node, way_in);
        }
        if let Some(way_out) = plan.way_out_mib_per_s {
            let way_out = way_out.draw_bytes(&mut dice_of_ways);
            let way_out = self.world.add_way(way_out);
            self.world.network.set_way_out(node, way_out);
        }
        let number = u32::try_from(place + 1).unwrap_or(u32::MAX);
        self.world.sites.push(Site {
            id: DepotId::new(number),
            name: plan.name.clone(),
            condition: Condition::Well,
            says_full: false,
            advertises: plan.advertises,
            codes: plan.codes,
            stores: plan.stores,
            capacity,
            used: Bytes::ZERO,
            stored: BTreeMap::new(),
            spaces: BTreeMap::new(),
            neighbour: Bytes::ZERO,
            latency_micros,
            first_rate: rate,
            course,
            held: BTreeMap::new(),
            hours: plan.windows().unwrap_or_default(),
            is_told_gone: false,
            ordeal: 0,
        });
        self.add_jitter(course, plan.jitter_permille, plan.jitter_every_s, dice);
        self.add_varying(course, &plan.name, &plan.varies);
    }

    /// Adds a source with its own path to the centre, which shares nothing with the centre's
    /// egress.
    fn add_origin(&mut self, plan: &SourcePlan) {
        let mut dice = Dice::new(self.seed, &format!("source {}", plan.name));
        let rate = plan.rate_mib_per_s.draw_bytes(&mut dice);
        let latency_micros = plan.latency_ms.draw_milli(&mut dice);
        let course = self.world.add_course(Course::new(rate, Loss::default()));
        let node = self.world.network.add_site();
        let path = self.world.resource(course);
        self.world.network.add_path(node, Node::CENTRE, path);
        let number = u32::try_from(self.world.origins.len() + 1).unwrap_or(u32::MAX);
        self.world.origins.push(Origin {
            id: SourceId::new(number),
            name: plan.name.clone(),
            node,
            near: self.world.sites.iter().find_map(|site| {
                let is_it = plan.near.as_ref() == Some(&site.name);
                is_it.then_some(site.id)
            }),
            course,
            condition: Condition::Well,
            latency_micros,
            first_rate: rate,
            advertises: plan.advertises,
            price: SourcePrice {
                source: SourceId::new(number),
                get_micro_usd: plan.usd_per_1000_gets.micro(),
                egress_micro_usd: plan.usd_per_gb_out.micro(),
            },
            is_changed: false,
            ordeal: 0,
        });
        self.add_jitter(course, plan.jitter_permille, plan.jitter_every_s, dice);
        self.add_varying(course, &plan.name, &plan.varies);
    }

    fn add_jitter(&mut self, course: CourseId, spread_permille: u64, every_s: f64, dice: Dice) {
        if spread_permille > 0 {
            let process = Process::Jitter {
                course,
                spread_permille,
                every: Duration::from_secs_f64(every_s),
                dice,
            };
            self.world.add_process(self.start, process);
        }
    }

    fn add_varying(&mut self, course: CourseId, name: &str, varies: &Varies) {
        if let Some(trace) = self.scenario.trace(varies) {
            let mut dice = self.dice(name, "trace");
            // Each of several followers of one trace starts elsewhere in it.
            let last = trace.len() as u64 - 1;
            let next = usize::try_from(dice.between(0, last)).unwrap_or(0);
            let process = Process::Trace {
                course,
                trace,
                scale_permille: varies.scale_permille(),
                next: if varies.begins_anywhere { next } else { 0 },
            };
            self.world.add_process(self.start, process);
        }
        if let Some(states) = &varies.two_state {
            let means = (micros(states.high_mean_s), micros(states.low_mean_s));
            let mut alternation = Alternation::new(means, self.dice(name, "two-state"));
            let first = self.start + alternation.first();
            let process = Process::TwoState {
                course,
                low_permille: states.low_permille,
                alternation,
            };
            self.world.add_process(first, process);
        }
        let hours = varies.daily_permille.as_deref().map(<[u64; 24]>::try_from);
        if let Some(Ok(hours_permille)) = hours {
            let process = Process::Daily {
                course,
                hours_permille,
            };
            self.world.add_process(self.start, process);
        }
    }

    fn add_links(&mut self) {
        let scenario = self.scenario;
        let places = scenario.places();
        for plan in &scenario.links {
            let mut dice = self.dice(&plan.name, "link");
            let rate = plan.rate_mib_per_s.draw_bytes(&mut dice);
            let course = self.world.add_course(Course::new(rate, Loss::default()));
            let link = self.world.resource(course);
            let named = plan
                .depots
                .iter()
                .filter_map(|name| places.get(name.as_str()));
            let named: Vec<usize> = named.flatten().copied().collect();
            let all = 0..self.world.sites.len();
            let members = if named.is_empty() {
                all.collect()
            } else {
                named
            };
            for place in members {
                self.world.network.set_link(Node::site(place), link);
            }
            self.add_jitter(course, plan.jitter_permille, plan.jitter_every_s, dice);
            self.add_varying(course, &plan.name, &plan.varies);
            self.links.insert(&plan.name, link);
        }
    }

    fn add_circuits(&mut self) {
        let places = self.scenario.places();
        for plan in &self.scenario.circuits {
            let named = plan.depots.iter();
            let named = named.filter_map(|name| places.get(name.as_str()));
            let named: Vec<usize> = named.flatten().copied().collect();
            self.world.add_circuit(&named);
        }
    }

    fn add_gateways(&mut self) {
        let scenario = self.scenario;
        let places = scenario.places();
        for (gateway, plan) in scenario.gateways.iter().enumerate() {
            let mut dice = self.dice(&plan.name, "gateway");
            let rate = plan.rate_mib_per_s.draw_bytes(&mut dice);
            let course = self.world.add_course(Course::new(rate, Loss::default()));
            let named = plan.depots.iter();
            let named = named.filter_map(|name| places.get(name.as_str()));
            let named: Vec<usize> = named.flatten().copied().collect();
            self.world.add_gateway(gateway, &named, course);
            self.add_varying(course, &plan.name, &plan.varies);
        }
    }

    fn add_paths(&mut self) {
        for place in 0..self.world.sites.len() {
            let path = self.world.resource(self.world.sites[place].course);
            self.world
                .network
                .add_path(Node::CENTRE, Node::site(place), path);
        }
        let places = self.scenario.places();
        for plan in &self.scenario.paths {
            let ends = |name: &str| places.get(name).cloned().unwrap_or_default();
            for from in ends(&plan.from) {
                for to in ends(&plan.to) {
                    let (begin, end) = (Node::site(from), Node::site(to));
                    if from == to || self.world.network.has_path(begin, end) {
                        continue;
                    }
                    let name = [&self.world.sites[from], &self.world.sites[to]];
                    let name = name.map(|site| site.name.as_str()).join(" to ");
                    let mut dice = self.dice(&name, "path");
                    let rate = plan.rate_mib_per_s.draw_bytes(&mut dice);
                    let course = self.world.add_course(Course::new(rate, Loss::default()));
                    let path = self.world.resource(course);
                    self.world.network.add_path(begin, end, path);
                    self.add_varying(course, &name, &plan.varies);
                }
            }
        }
    }

    fn add_background(&mut self) {
        let places = self.scenario.places();
        let plans = self.scenario.background.iter().enumerate();
        for (table, plan) in plans {
            let link = self.links.get(plan.on.as_str()).copied();
            let depots = places.get(plan.on.as_str()).into_iter().flatten();
            let paths = depots.map(|&place| self.world.resource(self.world.sites[place].course));
            let resources: Vec<ResourceId> = link.into_iter().chain(paths).collect();
            for (turn, resource) in resources.into_iter().enumerate() {
                for number in 0..plan.count {
                    let means = (micros(plan.off_mean_s), micros(plan.on_mean_s));
                    let dice = self.dice(&plan.on, &format!("background {table} {turn} {number}"));
                    let mut alternation = Alternation::new(means, dice);
                    let first = self.start + alternation.first();
                    self.world.others += 1;
                    let traffic = self.world.network.add_background(resource);
                    let process = Process::Background {
                        traffic,
                        rate: plan.rate_mib_per_s.ends_bytes(),
                        alternation,
                    };
                    self.world.add_process(first, process);
                }
            }
        }
    }

    fn add_outages(&mut self) {
        let scenario = self.scenario;
        for (place, plan) in scenario.depots.iter().enumerate() {
            let fails = plan.mtbf_s.zip(plan.mttr_s);
            self.add_outage(&plan.name, "fails", vec![place], fails, plan.wiped_permille);
            if let Some(means) = plan.online_mean_s.zip(plan.offline_mean_s) {
                let dice = self.dice(&plan.name, "offline");
                let kind = FaultKind::Offline;
                self.add_alternating(vec![place], kind, means, 0, dice);
            }
            let window = |[from, to]: &[f64; 2]| {
                let lasts = Duration::from_secs_f64(to - from);
                (self.start + Duration::from_secs_f64(*from), lasts)
            };
            let windows: VecDeque<(Timestamp, Duration)> = if plan.hours.is_empty() {
                plan.offline_s.iter().map(window).collect()
            } else {
                self.closed(plan)
            };
            if let Some(&(first, _)) = windows.front() {
                let process = Process::Windows { place, windows };
                self.world.add_process(first, process);
            }
        }
        for plan in &scenario.domains {
            let fails = plan.mtbf_s.zip(plan.mttr_s);
            let members = scenario.members(&plan.name);
            self.add_outage(
                &plan.name,
                "domain fails",
                members,
                fails,
                plan.wiped_permille,
            );
        }
    }

    /// Returns the times when a depot's hours keep it away.
    fn closed(&self, plan: &DepotPlan) -> VecDeque<(Timestamp, Duration)> {
        let hours = plan.windows().unwrap_or_default();
        let end = self.start + Duration::from_secs(self.scenario.horizon_s);
        let (mut at, mut closed) = (self.start, VecDeque::new());
        while at < end {
            let next = hours.next_change(at).unwrap_or(end);
            if !hours.is_open(at) {
                closed.push_back((at, next.since(at)));
            }
            at = next;
        }
        closed
    }

    fn add_outage(
        &mut self,
        name: &str,
        what: &str,
        places: Vec<usize>,
        fails: Option<(f64, f64)>,
        wiped_permille: u64,
    ) {
        if let Some(means) = fails {
            let dice = self.dice(name, what);
            self.add_alternating(places, FaultKind::Dies, means, wiped_permille, dice);
        }
    }

    fn add_alternating(
        &mut self,
        places: Vec<usize>,
        kind: FaultKind,
        (well_s, gone_s): (f64, f64),
        wiped_permille: u64,
        dice: Dice,
    ) {
        let mut alternation = Alternation::new((micros(well_s), micros(gone_s)), dice);
        let first = self.start + alternation.first();
        let process = Process::Outage {
            places,
            kind,
            wiped_permille,
            alternation,
        };
        self.world.add_process(first, process);
    }
}

fn micros(seconds: f64) -> u64 {
    u64::try_from(Duration::from_secs_f64(seconds).as_micros()).unwrap_or(u64::MAX)
}
