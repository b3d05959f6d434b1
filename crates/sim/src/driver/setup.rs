use std::time::Duration;

use posthaste_core::contract::{
    DepotPrices, DepotTerms, Input, LentTerms, Method, ReleasePolicy, Wishes,
};
use posthaste_types::ByteRate;

use super::{Blow, CONNECT_TIMEOUT, Pending, Run, START, faults::BREAK_NOTICED_MAX};
use crate::{
    crowd::{Crowd, Wish},
    random::Dice,
    scenario::{FaultKind, LentPlan, permille},
};

impl Run<'_> {
    /// Reports the world to the mind, and queues all future events.
    pub(super) fn set_up(&mut self, seed: u64) {
        let slowest = self
            .world
            .sites
            .iter()
            .map(|site| site.latency_micros)
            .max();
        let slowest = Duration::from_micros(slowest.unwrap_or(0));
        self.answer_max = slowest.max(CONNECT_TIMEOUT).max(BREAK_NOTICED_MAX);
        let sources = self.found_sources();
        let told = self.known_sites();
        for input in &told {
            if let Input::DepotLent { depot, terms } = input {
                self.checkers.probes.on_lent(*depot, terms);
                self.checkers.kept.on_lent(*depot, terms);
            }
            if let Input::DepotPriced { depot, prices } = input {
                self.checkers.kept.on_priced(*depot, prices);
            }
            self.checkers.lent.on_asked(input);
            self.checkers.owners.on_asked(input);
        }
        let told = told.into_iter().chain(sources);
        let told = told.chain(self.offered_circuits());
        let told = told.chain(self.found_ways());
        self.step(told.chain([Input::DriverStarted]).collect());
        for place in 0..self.world.sites.len() {
            let (span, input) = self.probe_one(place);
            self.tell_after(span, input);
        }
        self.start_routine();
        if self.recorder.is_some() {
            self.after(Duration::ZERO, Pending::Sample);
        }
        self.queue_requests(seed);
        self.queue_stage_ins(seed);
        self.queue_faults(seed);
        self.queue_circuits();
        self.queue_gateways();
    }

    /// Returns the reports about every depot at the start.
    fn known_sites(&self) -> Vec<Input> {
        let added = self.world.sites.iter().map(|site| Input::DepotAdded {
            depot: site.id,
            name: site.name.clone(),
            capacity: site.capacity,
            rate_max: site.advertises.then_some(ByteRate::new(site.first_rate)),
        });
        let lent = self.world.sites.iter().zip(&self.scenario.depots);
        let lent = lent.filter_map(|(site, plan)| {
            let terms = plan.terms();
            (terms != DepotTerms::default()).then_some(Input::DepotLent {
                depot: site.id,
                terms,
            })
        });
        let priced = self.world.sites.iter().zip(&self.scenario.depots);
        let priced = priced.filter_map(|(site, plan)| {
            let prices = plan.prices();
            (prices != DepotPrices::default()).then_some(Input::DepotPriced {
                depot: site.id,
                prices,
            })
        });
        let bounded = self.world.sites.iter().zip(&self.scenario.depots);
        let bounded = bounded.filter_map(|(site, plan)| {
            let load_max_permille = Some(permille(plan.load_max?));
            Some(Input::LoadBounded {
                depot: site.id,
                load_max_permille,
            })
        });
        let lent = lent.chain(priced).chain(bounded);
        let levels = self.world.sites.iter().zip(&self.scenario.depots);
        let levels = levels.filter(|(_, plan)| plan.level != 1);
        let levels = levels.map(|(site, plan)| Input::DepotLevelled {
            depot: site.id,
            level: plan.level,
        });
        let follows = self.world.sites.iter().zip(&self.scenario.depots);
        let follows = follows.filter(|(_, plan)| plan.follows);
        let follows = follows.map(|(site, _)| Input::DepotFollows {
            depot: site.id,
            follows: true,
        });
        let stores = self.world.sites.iter().zip(&self.scenario.depots);
        let stores = stores.filter(|(_, plan)| plan.stores);
        let stores = stores.map(|(site, _)| Input::DepotStores {
            depot: site.id,
            stores: true,
        });
        let reserves = self.world.sites.iter().zip(&self.scenario.depots);
        let reserves = reserves.filter(|(_, plan)| plan.reserves);
        let reserves = reserves.map(|(site, _)| Input::DepotReserves {
            depot: site.id,
            reserves: true,
        });
        let distances = self.world.sites.iter().map(|site| Input::DistanceTold {
            depot: site.id,
            round_trip: Duration::from_micros(2 * site.latency_micros),
        });
        let told = added
            .chain(self.owned_sites())
            .chain(lent)
            .chain(levels)
            .chain(distances);
        told.chain(follows).chain(stores).chain(reserves).collect()
    }

    /// Returns the owners of depots that have one.
    fn owned_sites(&self) -> impl Iterator<Item = Input> {
        let owned = self.world.sites.iter().zip(&self.scenario.depots);
        let owned = owned.filter(|(_, plan)| !plan.owner.is_empty());
        owned.map(|(site, plan)| Input::DepotOwned {
            depot: site.id,
            owner: plan.owner.clone(),
        })
    }

    /// Starts the driver's periodic work.
    pub(super) fn start_routine(&mut self) {
        let epoch = self.epoch;
        let every = Duration::from_secs(self.scenario.probe_every_s);
        self.after(every, Pending::Probe { epoch });
        self.after(super::MEASURE_EVERY, Pending::Measure { epoch });
    }

    /// Returns the terms of depots lent for one request, for each depot of a numbered name.
    fn lent(&self, plan: &LentPlan) -> Vec<LentTerms> {
        let sites = self.world.sites.iter().zip(&self.scenario.depots);
        let named = sites.filter(|(_, depot)| {
            let template = depot.template.as_ref().unwrap_or(&depot.name);
            plan.depot == *template || plan.depot == depot.name
        });
        named.map(|(site, _)| plan.terms(site.id)).collect()
    }

    /// Queues the depots' load reports.
    fn queue_loads(&mut self) {
        let sites = self.world.sites.iter().zip(&self.scenario.depots);
        let told = sites.flat_map(|(site, plan)| {
            plan.load.iter().map(|[at, load]| {
                let input = Input::LoadTold {
                    depot: site.id,
                    load_permille: Some(permille(*load)),
                };
                (Duration::from_secs_f64(*at), input)
            })
        });
        for (at, input) in told.collect::<Vec<_>>() {
            self.after(at, Pending::Ask { input });
        }
    }

    /// Returns the current load of each depot: its last report.
    pub(super) fn loads_now(&self) -> Vec<Input> {
        let now_s = self.now.since(START).as_secs_f64();
        let sites = self.world.sites.iter().zip(&self.scenario.depots);
        let told = sites.filter_map(|(site, plan)| {
            let said = plan.load.iter().filter(|[at, _]| *at <= now_s);
            let [_, load] = said.max_by(|one, other| one[0].total_cmp(&other[0]))?;
            Some(Input::LoadTold {
                depot: site.id,
                load_permille: Some(permille(*load)),
            })
        });
        told.collect()
    }

    fn queue_requests(&mut self, seed: u64) {
        self.queue_loads();
        for wish in Crowd::new(self.scenario, &self.world.sites, seed).wishes(START) {
            let Wish { request, at, .. } = wish;
            if self
                .only
                .as_ref()
                .is_some_and(|only| !only.contains(&request))
            {
                continue;
            }
            if wish.spec.release == ReleasePolicy::WhenSafe {
                self.checkers.releases.on_asked(request);
            }
            if !wish.plan.expect.is_empty() {
                self.expected.insert(request, wish.plan.expect.clone());
            }
            let lent = &wish.plan.lent;
            if !lent.is_empty() {
                let terms = lent.iter().flat_map(|one| self.lent(one)).collect();
                let input = Input::LentTold { request, terms };
                self.after(at, Pending::Ask { input });
            }
            let input = submitted(&wish);
            self.after(at, Pending::Ask { input });
            if let Some(at) = wish.cancelled_at {
                let input = Input::RequestCancelled { request };
                self.after(at, Pending::Ask { input });
            }
            self.queue_pause(request, wish.paused_at, wish.resumed_at);
            if let Some(at) = wish.purged_at {
                self.after(at, Pending::Purge { request });
            }
            if let Some(at) = wish.delivered_at {
                let input = Input::Delivered { request };
                self.after(at, Pending::Ask { input });
            }
        }
    }

    fn queue_faults(&mut self, seed: u64) {
        let places = self.scenario.places();
        let plans = self
            .scenario
            .faults
            .iter()
            .flat_map(|plan| (0..plan.count).map(move |_| plan));
        for (number, plan) in plans.enumerate() {
            let mut dice = Dice::new(seed, &format!("fault {number}"));
            let at = Duration::from_millis(plan.at_s.draw_milli(&mut dice));
            let lasts = plan
                .for_s
                .map(|lasts| Duration::from_millis(lasts.draw_milli(&mut dice)));
            let rate = plan.rate_mib_per_s.map(|rate| rate.draw_bytes(&mut dice));
            let has_sites = !self.world.sites.is_empty();
            let named = places.get(plan.depot.as_str());
            let all: Vec<usize> = (0..self.world.sites.len()).collect();
            let drawn = match named.map(Vec::as_slice) {
                Some([place]) => *place,
                Some(several) => several[dice.place(several.len())],
                None if has_sites => all[dice.place(all.len())],
                None => 0,
            };
            let struck = match &plan.domain {
                Some(domain) => self.scenario.members(domain),
                None => vec![drawn],
            };
            let lasts = match plan.kind {
                FaultKind::DriverCrash => {
                    Some(lasts.unwrap_or(Duration::from_millis(dice.between(500, 5000))))
                }
                FaultKind::Dies
                | FaultKind::Vanishes
                | FaultKind::Hangs
                | FaultKind::Wiped
                | FaultKind::Slows
                | FaultKind::Full
                | FaultKind::Neighbour
                | FaultKind::Offline
                | FaultKind::Drains
                | FaultKind::Empties
                | FaultKind::SourceChanges
                | FaultKind::FileChanges => lasts,
            };
            let blow = Blow {
                kind: plan.kind,
                rate,
                takes: plan.takes_mib.map(|takes| takes.draw_bytes(&mut dice)),
                lasts,
                is_routine: false,
            };
            if plan.source.is_some() {
                self.queue_fault_of_source(plan, at, blow);
                continue;
            }
            for place in struck {
                self.after(at, Pending::Strike { place, blow });
            }
        }
    }
}

fn submitted(wish: &Wish<'_>) -> Input {
    let (request, spec) = (wish.request, wish.spec.clone());
    let optimizer = wish.plan.optimizer.as_deref();
    let optimizer = optimizer.and_then(|name| name.parse::<Method>().ok());
    // Invalid options were rejected when the scenario was read.
    let wishes = Wishes {
        forbidden: wish.without.clone(),
        deliver_by: wish.deliver_by.map(|by| START + by),
        ..wish.plan.wishes().unwrap_or_default()
    };
    if !wish.pinned.is_empty() {
        return Input::RequestPinned {
            request,
            spec,
            optimizer: optimizer.unwrap_or_default(),
            wishes,
            purge_at: wish.purged_at.map(|at| START + at),
            pinned: wish.pinned.clone(),
        };
    }
    if let Some(at) = wish.purged_at {
        return Input::RequestAskedBy {
            request,
            spec,
            optimizer: optimizer.unwrap_or_default(),
            wishes,
            purge_at: START + at,
        };
    }
    match optimizer {
        None if wishes == Wishes::default() => Input::RequestSubmitted { request, spec },
        Some(optimizer) if wishes == Wishes::default() => Input::RequestSubmittedWith {
            request,
            spec,
            optimizer,
        },
        Some(_) | None => Input::RequestAsked {
            request,
            spec,
            optimizer: optimizer.unwrap_or_default(),
            wishes,
        },
    }
}
