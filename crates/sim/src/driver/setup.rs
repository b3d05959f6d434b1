use std::{collections::BTreeMap, rc::Rc, time::Duration};

use posthaste_core::contract::{Input, Method, ReleasePolicy, RequestSpec};
use posthaste_types::{ByteRate, Bytes, Code, DepotId, RequestId, encrypted_sizes};

use super::{Blow, CONNECT_TIMEOUT, Pending, Run, START, faults::BREAK_NOTICED_MAX};
use crate::{
    random::Dice,
    scenario::{FaultKind, RequestPlan, mebi},
    world::Site,
};

impl Run<'_> {
    /// Tells the mind of the world and queues all that will happen to it.
    pub(super) fn set_up(&mut self, seed: u64) {
        let slowest = self
            .world
            .sites
            .iter()
            .map(|site| site.latency_micros)
            .max();
        let slowest = Duration::from_micros(slowest.unwrap_or(0));
        self.answer_max = slowest.max(CONNECT_TIMEOUT).max(BREAK_NOTICED_MAX);
        let added: Vec<Input> = self
            .world
            .sites
            .iter()
            .map(|site| Input::DepotAdded {
                depot: site.id,
                name: site.name.clone(),
                capacity: site.capacity,
                rate_max: site.advertises.then_some(ByteRate::new(site.first_rate)),
            })
            .collect();
        self.step(added.into_iter().chain([Input::DriverStarted]).collect());
        for place in 0..self.world.sites.len() {
            let (span, input) = self.probe_one(place);
            self.tell_after(span, input);
        }
        self.start_routine();
        if self.recorder.is_some() {
            self.after(Duration::ZERO, Pending::Sample);
        }
        self.queue_requests(seed);
        self.queue_faults(seed);
    }

    /// What a driver does all the time.
    pub(super) fn start_routine(&mut self) {
        let epoch = self.epoch;
        let every = Duration::from_secs(self.scenario.probe_every_s);
        self.after(every, Pending::Probe { epoch });
        self.after(super::MEASURE_EVERY, Pending::Measure { epoch });
    }

    fn queue_requests(&mut self, seed: u64) {
        let places = self.scenario.places();
        let scenario = self.scenario;
        let plans = scenario.requests.iter().map(|plan| {
            let named = named(plan, &places, &self.world.sites);
            (plan, Rc::new(named))
        });
        let plans: Vec<_> = plans.collect();
        let plans = plans
            .iter()
            .flat_map(|(plan, named)| (0..plan.count).map(move |_| (*plan, Rc::clone(named))));
        for (number, (plan, named)) in (1u64..).zip(plans) {
            let mut dice = Dice::new(seed, &format!("request {number}"));
            let request = RequestId::new(number);
            // Nobody submits before the depots answered first.
            let at = Duration::from_millis(plan.at_s.draw_milli(&mut dice) + 200);
            let spec = spec(plan, at, &named, &mut dice);
            let optimizer = plan.optimizer.as_deref().and_then(|name| name.parse().ok());
            if spec.release == ReleasePolicy::WhenSafe {
                self.checkers.releases.on_asked(request);
            }
            self.expected.insert(request, plan.expect.clone());
            self.after(
                at,
                Pending::Ask {
                    input: submitted(request, spec, optimizer),
                },
            );
            if let Some(after) = plan.cancel_after_s {
                let span = at + Duration::from_millis(after.draw_milli(&mut dice));
                self.after(
                    span,
                    Pending::Ask {
                        input: Input::RequestCancelled { request },
                    },
                );
            }
            if let Some(after) = plan.delivered_after_s {
                let span = at + Duration::from_millis(after.draw_milli(&mut dice));
                self.after(
                    span,
                    Pending::Ask {
                        input: Input::Delivered { request },
                    },
                );
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
            let named = places.get(plan.depot.as_str());
            let all: Vec<usize> = (0..self.world.sites.len()).collect();
            let drawn = match named.map(Vec::as_slice) {
                Some([place]) => *place,
                Some(several) => several[dice.place(several.len())],
                None => all[dice.place(all.len())],
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
                | FaultKind::Offline
                | FaultKind::SourceChanges => lasts,
            };
            let blow = Blow {
                kind: plan.kind,
                rate,
                lasts,
                is_routine: false,
            };
            for place in struck {
                self.after(at, Pending::Strike { place, blow });
            }
        }
    }
}

fn submitted(request: RequestId, spec: RequestSpec, optimizer: Option<Method>) -> Input {
    match optimizer {
        None => Input::RequestSubmitted { request, spec },
        Some(optimizer) => Input::RequestSubmittedWith {
            request,
            spec,
            optimizer,
        },
    }
}

/// The depots a request's table names.
struct Named {
    via: Vec<DepotId>,
    /// Those one of which the request goes to.
    destinations: Vec<DepotId>,
}

fn named(plan: &RequestPlan, places: &BTreeMap<&str, Vec<usize>>, sites: &[Site]) -> Named {
    let of = |name: &String| {
        let found = places.get(name.as_str()).into_iter().flatten();
        found.map(|place| sites[*place].id)
    };
    let via = if plan.via.is_empty() {
        sites.iter().map(|site| site.id).collect()
    } else {
        plan.via.iter().flat_map(of).collect()
    };
    let destinations = plan.destination.iter().flat_map(of).collect();
    Named { via, destinations }
}

/// Some of the depots, in the order they are drawn in.
fn draw(mut depots: Vec<DepotId>, count: usize, dice: &mut Dice) -> Vec<DepotId> {
    for turn in 0..count.min(depots.len()) {
        let other = turn + dice.place(depots.len() - turn);
        depots.swap(turn, other);
    }
    depots.truncate(count);
    depots
}

fn spec(plan: &RequestPlan, at: Duration, named: &Named, dice: &mut Dice) -> RequestSpec {
    let deadline = Duration::from_millis(plan.deadline_s.draw_milli(dice));
    let bytes = Bytes::new(plan.size_mib.draw_bytes(dice));
    let chunk_size = Bytes::new(mebi(plan.chunk_mib));
    // Of encryption the mind sees nothing but sizes.
    let (bytes, chunk_size) = if plan.encrypted {
        encrypted_sizes(bytes, chunk_size)
    } else {
        (bytes, chunk_size)
    };
    let destination = match named.destinations.as_slice() {
        [] => None,
        [only] => Some(*only),
        several => Some(several[dice.place(several.len())]),
    };
    let via = named.via.iter().copied();
    let via = via.filter(|id| Some(*id) != destination || !plan.via.is_empty());
    let via = match plan.via_count {
        None => via.collect(),
        Some(count) => draw(via.collect(), count, dice),
    };
    RequestSpec {
        bytes,
        files: 1,
        chunk_size,
        deadline: START + at + deadline,
        code: plan.code.parse().unwrap_or(Code::NONE),
        via,
        destination,
        release: if plan.release {
            ReleasePolicy::WhenSafe
        } else {
            ReleasePolicy::Never
        },
        best_effort: plan.best_effort,
    }
}
