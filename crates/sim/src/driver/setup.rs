use std::{collections::BTreeMap, time::Duration};

use posthaste_core::contract::{Input, Method, ReleasePolicy, RequestSpec};
use posthaste_types::{ByteRate, Bytes, Code, DepotId, RequestId, encrypted_sizes};

use super::{Pending, Run, START};
use crate::{
    random::Dice,
    scenario::{DepotPlan, FaultKind, RequestPlan},
    world::{Condition, Site},
};

const MEBI: u64 = 1 << 20;

/// Mebibytes as bytes, to the nearest.
#[expect(
    clippy::cast_possible_truncation,
    reason = "scenarios hold small positive numbers"
)]
#[expect(
    clippy::cast_sign_loss,
    reason = "negative amounts are refused when read"
)]
pub(super) fn mebi(amount: f64) -> u64 {
    (amount * 1_048_576.0).round() as u64
}

/// Thousandths of a mebibyte as bytes.
fn from_milli_mebi(milli: u64) -> u64 {
    milli * MEBI / 1000
}

impl Run<'_> {
    /// Builds the world and queues all that will happen to it.
    pub(super) fn set_up(&mut self, seed: u64) {
        for (number, plan) in (1u32..).zip(&self.scenario.depots) {
            self.world
                .sites
                .push(site(DepotId::new(number), plan, seed));
        }
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
        self.after(Duration::ZERO, Pending::Stray);
        self.queue_requests(seed);
        self.queue_faults(seed);
    }

    /// What a driver does all the time.
    pub(super) fn start_routine(&mut self) {
        let epoch = self.epoch;
        self.after(super::PROBE_EVERY, Pending::Probe { epoch });
        self.after(super::MEASURE_EVERY, Pending::Measure { epoch });
    }

    fn queue_requests(&mut self, seed: u64) {
        let ids: BTreeMap<&str, DepotId> = self
            .scenario
            .depots
            .iter()
            .map(|depot| depot.name.as_str())
            .zip((1..).map(DepotId::new))
            .collect();
        let plans = self
            .scenario
            .requests
            .iter()
            .flat_map(|plan| (0..plan.count).map(move |_| plan));
        for (number, plan) in (1u64..).zip(plans) {
            let mut dice = Dice::new(seed, &format!("request {number}"));
            let request = RequestId::new(number);
            // Nobody submits before the depots answered first.
            let at = Duration::from_millis(plan.at_s.draw_milli(&mut dice) + 200);
            let spec = spec(plan, at, &ids, &mut dice);
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
            let rate = plan
                .rate_mib_per_s
                .map(|rate| from_milli_mebi(rate.draw_milli(&mut dice)));
            let named = self
                .world
                .sites
                .iter()
                .position(|site| site.name == plan.depot);
            let last = self.world.sites.len() as u64 - 1;
            let drawn = usize::try_from(dice.between(0, last)).unwrap_or(0);
            let place = named.unwrap_or(drawn);
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
                | FaultKind::SourceChanges => lasts,
            };
            self.after(
                at,
                Pending::Strike {
                    kind: plan.kind,
                    place,
                    rate,
                    lasts,
                },
            );
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

fn site(id: DepotId, plan: &DepotPlan, seed: u64) -> Site {
    let mut dice = Dice::new(seed, &plan.name);
    let rate = from_milli_mebi(plan.rate_mib_per_s.draw_milli(&mut dice));
    Site {
        id,
        name: plan.name.clone(),
        condition: Condition::Well,
        says_full: false,
        advertises: plan.advertises,
        capacity: Bytes::new(from_milli_mebi(plan.capacity_mib.draw_milli(&mut dice))),
        used: Bytes::ZERO,
        latency_micros: plan.latency_ms.draw_milli(&mut dice),
        base_rate: rate,
        first_rate: rate,
        jitter_permille: plan.jitter_permille,
        rate,
        dice,
        queue: std::collections::VecDeque::new(),
        head_left: 0,
        moved: 0,
        was_idle: true,
        was_busy: false,
        held: BTreeMap::new(),
        is_told_gone: false,
        ordeal: 0,
    }
}

fn spec(
    plan: &RequestPlan,
    at: Duration,
    ids: &BTreeMap<&str, DepotId>,
    dice: &mut Dice,
) -> RequestSpec {
    let destination = plan
        .destination
        .as_deref()
        .and_then(|name| ids.get(name))
        .copied();
    let via: Vec<DepotId> = if plan.via.is_empty() {
        ids.values()
            .copied()
            .filter(|id| Some(*id) != destination)
            .collect()
    } else {
        plan.via
            .iter()
            .filter_map(|name| ids.get(name.as_str()))
            .copied()
            .collect()
    };
    let deadline = Duration::from_millis(plan.deadline_s.draw_milli(dice));
    let bytes = Bytes::new(from_milli_mebi(plan.size_mib.draw_milli(dice)));
    let chunk_size = Bytes::new(mebi(plan.chunk_mib));
    // Of encryption the mind sees nothing but sizes.
    let (bytes, chunk_size) = if plan.encrypted {
        encrypted_sizes(bytes, chunk_size)
    } else {
        (bytes, chunk_size)
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
