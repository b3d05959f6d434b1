use std::{collections::BTreeSet, time::Duration};

use posthaste_core::{
    Mind,
    contract::{
        ArrivalState, ArrivalView, DepotState, Event, Happening, Reason, RequestState, RequestView,
    },
};
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId};

use super::{Decider, Run, START};
use crate::{
    Report,
    checkers::{Arrivals, Conservation, Found, Progress, ensure, on_released},
    report::Fate,
    world::{Condition, Site},
};

/// Longest time, in seconds, that the mind may leave a depot alone after the last fault, with a
/// margin.
const SETTLING_S: u64 = 330;

impl Run<'_> {
    /// Returns the report, with the last verdicts.
    pub(super) fn into_report(mut self, seed: u64) -> Report {
        let now = self.now;
        let mut found = self.checkers.deadlines.at_end(now);
        found.extend(self.checkers.dues.at_end(now));
        found.push(self.checkers.conservation.at_end());
        found.push(self.checkers.progress.at_end(START, now));
        let mut fates = std::mem::take(&mut self.fates).into_known();
        if let Some(decider) = self.mind.take() {
            if let Some(mind) = decider.as_mind()
                && !self.checkers.is_violated()
            {
                found.extend(self.compare_books(mind));
                found.extend(self.told_of_losses(mind));
                let needed_s = self.needed_s(mind);
                found.extend(self.judge_stage_ins(mind, needed_s));
                found.extend(
                    mind.requests()
                        .map(|view| Progress::ended(&view, self.is_possible(&view, needed_s))),
                );
            }
            let views = decider.views();
            let arrivals = decider.as_mind().into_iter().flat_map(Mind::stage_ins);
            fates.extend(arrivals.map(|view| (view.request, fate_of_arrival(&view))));
            fates.extend(views.iter().map(|view| (view.request, fate(view))));
        }
        let fates: Vec<(RequestId, Fate)> = fates.into_iter().collect();
        if !self.checkers.is_violated() {
            found.extend(
                fates
                    .iter()
                    .map(|(request, fate)| self.expect(*request, *fate)),
            );
        }
        for found in found {
            self.checkers.note(now, found);
        }
        let (probes, probed) = self.checkers.probes.sum();
        Report {
            scenario: self.scenario.name.clone(),
            seed,
            depots: self
                .world
                .sites
                .iter()
                .map(|site| site.name.clone())
                .collect(),
            timeline: self.timeline,
            timeline_left_out: self.timeline_left_out,
            fates,
            fan_outs: self.fan_outs,
            sent: self.checkers.conservation.sent(),
            left: self.left,
            stored: self.checkers.conservation.stored(),
            probes,
            probed,
            steps: self.checkers.progress.steps(),
            span: now.since(START),
            fingerprint: self.fingerprint,
            violations: self.checkers.into_violations(),
            start: START,
        }
    }

    /// Compares the mind's state of each stage-in with the chunks that are here, and whether it
    /// should be complete.
    fn judge_stage_ins(&self, mind: &Mind, needed_s: u64) -> Vec<Result<(), Found>> {
        let views = mind.stage_ins();
        let judged = views.flat_map(|view| {
            let is_possible = self.could_be_here(&view, needed_s);
            [
                self.checkers.arrivals.compare(&view),
                Arrivals::ended(&view, is_possible),
            ]
        });
        judged.collect()
    }

    fn expect(&self, request: RequestId, fate: Fate) -> Result<(), Found> {
        let expected = self
            .expected
            .get(&request)
            .map(Vec::as_slice)
            .unwrap_or_default();
        ensure(
            "what the scenario expects",
            expected.is_empty() || expected.contains(&fate),
            || format!("{request} came out {}", fate.name()),
        )
    }

    /// Compares the mind's belief of each live depot's contents with its actual contents.
    fn compare_books(&self, mind: &Mind) -> Vec<Result<(), Found>> {
        let states = mind.depots();
        let up: BTreeSet<DepotId> = states
            .iter()
            .filter(|state| state.state == DepotState::Up)
            .map(|state| state.depot)
            .collect();
        let mut found = Vec::new();
        let is_compared =
            |view: &RequestView| is_kept(view.state) && view.state != RequestState::Delivered;
        for view in mind.requests().filter(is_compared) {
            let holders = mind.holders(view.request);
            let in_flight = view.shares.iter().map(|share| share.in_flight as usize);
            let in_flight: usize = in_flight.sum();
            for depot in view.shares.iter().map(|share| share.depot) {
                let Some(place) = self.world.place(depot) else {
                    continue;
                };
                let site = &self.world.sites[place];
                // A depot that is being asked for its inventory answers for itself.
                let is_sure = site.condition() == Condition::Well
                    && up.contains(&depot)
                    && !site.is_told_gone;
                if !is_sure {
                    continue;
                }
                let believed = holders.iter().find(|(holder, _)| *holder == depot);
                let believed: BTreeSet<_> = believed
                    .map(|(_, held)| held.iter().copied().collect())
                    .unwrap_or_default();
                let mut held = held(site, &view);
                if !held.is_subset(&believed) {
                    // A copy that another depot also holds stops counting if it is in the way.
                    let elsewhere = holders.iter().filter(|(holder, _)| *holder != depot);
                    let spare: BTreeSet<_> = elsewhere.flat_map(|(_, held)| held).collect();
                    held.retain(|held| believed.contains(held) || !spare.contains(held));
                }
                let lost = self.surplus.get(&(depot, view.request)).copied();
                found.push(Conservation::compare(
                    depot,
                    view.request,
                    &believed,
                    &held,
                    lost.unwrap_or(0) + in_flight,
                ));
            }
        }
        found
    }

    /// Checks that a dataset which was safe and can't be rebuilt any more from the remaining depots
    /// is reported.
    fn told_of_losses(&self, mind: &Mind) -> Vec<Result<(), Found>> {
        let is_open = |view: &RequestView| match view.state {
            RequestState::Moving => view.safe_at.is_some(),
            RequestState::Safe | RequestState::Released => true,
            RequestState::Refused
            | RequestState::Delivered
            | RequestState::Cancelled
            | RequestState::Failed => false,
        };
        let found = mind
            .requests()
            .filter(|view| self.is_called_delivered(view));
        let mut found: Vec<_> = found
            .filter(|_| self.upcoming == 0)
            .map(|view| {
                crate::checkers::on_delivered(view.request, self.lost_there(mind, &view, true))
            })
            .collect();
        let judge = |view: RequestView| {
            let there = mind.holders(view.request).into_iter();
            let there = there.filter(|(depot, _)| !self.is_known_gone(*depot));
            let lost = beyond_rebuilding(&view, there.flat_map(|(_, held)| held));
            let is_said = view.at_risk && view.state != RequestState::Safe;
            let is_gone = view.state == RequestState::Released;
            ensure(
                "what is lost is said to be",
                lost == 0 || is_said && (view.chunks_out_of_reach >= lost || !is_gone),
                || {
                    let (request, told) = (view.request, view.chunks_out_of_reach);
                    format!("{lost} chunks of {request} are lost, of {told} it is said")
                },
            )
        };
        found.extend(mind.requests().filter(is_open).map(judge));
        found
    }

    /// Returns whether all data is reported at its destinations, not only at a user that pulled it,
    /// and is to be kept there now.
    fn is_called_delivered(&self, view: &RequestView) -> bool {
        let delivery = view.delivery.as_ref();
        let is_there = delivery.is_some_and(|delivery| delivery.whole_at.is_some());
        view.state == RequestState::Delivered && is_there
    }

    /// Returns a destination that is up, with a chunk it lost. `is_known` says whether the mind
    /// knows that the destination is up.
    fn lost_there(
        &self,
        mind: &Mind,
        view: &RequestView,
        is_known: bool,
    ) -> Option<(DepotId, ChunkIndex)> {
        let is_up = |depot: DepotId| {
            let state = mind.depot(depot).map(|depot| depot.state);
            state == Some(DepotState::Up)
        };
        let chunks = view.spec.chunks();
        let ends = view.spec.destinations.iter();
        let mut lacking = ends.filter_map(|depot| {
            let site = &self.world.sites[self.world.place(*depot)?];
            let is_there = site.condition() == Condition::Well && is_up(*depot) == is_known;
            let lacks = |chunk: &u32| site.mask(view.request, *chunk as usize) & 1 == 0;
            let first = (0..chunks).filter(|_| is_there).find(lacks)?;
            Some((*depot, ChunkIndex::new(first)))
        });
        lacking.next()
    }

    /// Checks an event that reports a source as gone and its data as safe.
    pub(super) fn check_release(&mut self, event: &Event) {
        let (Happening::Released, Reason::AllSafe { .. }, Some(request)) =
            (&event.happening, &event.reason, event.request)
        else {
            return;
        };
        let mind = self.mind.as_ref().and_then(Decider::as_mind);
        let view = mind.and_then(|mind| mind.request(request));
        let found = on_released(request, view.as_ref());
        self.checkers.note(self.now, found);
    }

    /// Returns whether a destination is back without delivered data, and the mind does not know
    /// yet.
    pub(super) fn has_untold_loss(&self) -> bool {
        let mind = self.mind.as_ref().and_then(Decider::as_mind);
        mind.is_some_and(|mind| {
            let mut delivered = mind.requests().filter(|of| self.is_called_delivered(of));
            delivered.any(|view| self.lost_there(mind, &view, false).is_some())
        })
    }

    /// Returns whether a depot is gone within its hours, and the mind knows.
    fn is_known_gone(&self, depot: DepotId) -> bool {
        let place = self.world.place(depot);
        place.is_none_or(|place| {
            let site = &self.world.sites[place];
            let is_open = site.hours.is_open(self.now);
            is_open && site.is_told_gone && !site.is_reachable()
        })
    }

    /// Returns the time in which the slowest depot receives all requested data, with a margin.
    fn needed_s(&self, mind: &Mind) -> u64 {
        let slowest = self.world.slowest();
        let all: u64 = mind.requests().map(|view| all_bytes(&view).get()).sum();
        // A request with a rate limit takes its time, however fast depots are.
        let limited = mind.requests().filter_map(|view| {
            let rate = view.wishes.rate_max?;
            Some(rate.time_for(all_bytes(&view)).as_secs())
        });
        let inbound: u64 = mind.stage_ins().map(|view| view.spec.bytes.get()).sum();
        SETTLING_S + 4 * (all + inbound) / slowest.max(1) + 4 * limited.sum::<u64>()
    }

    /// Returns whether the remaining depots could have made the request safe in time.
    fn is_possible(&self, view: &RequestView, needed_s: u64) -> bool {
        let column = view.spec.code.fragment_size(view.spec.chunk_size);
        let column = column.times(u64::from(view.spec.chunks()));
        let lent = &self.checkers.lent;
        let around = [self.now, self.now - Duration::from_secs(needed_s)];
        let owners = &self.checkers.owners;
        let is_lent = |depot: DepotId| {
            let mut times = around.iter();
            owners.may(view.request, depot)
                && times.all(|at| lent.on_send(*at, view.request, depot).is_ok())
        };
        let is_well = |depot: DepotId, bytes: Bytes| {
            is_lent(depot)
                && self.world.place(depot).is_some_and(|place| {
                    let site = &self.world.sites[place];
                    site.condition() == Condition::Well
                        && self.world.rate(place) > 0
                        && site.free() >= bytes
                })
        };
        let total = usize::from(view.spec.code.total());
        let is_open = |depot: DepotId| !self.checkers.drains.is_drained(depot);
        let ends = &view.spec.destinations;
        // A budget counts fragments: no whole copy at a destination takes the place of one.
        let has_budget = view.wishes.budget_micro_usd.is_some();
        let via = view.spec.via.iter();
        let via = via.filter(|depot| !has_budget || !ends.contains(depot));
        let well = via.filter(|depot| is_open(**depot) && is_well(**depot, column));
        let mut costs: Vec<u64> = well.map(|depot| self.cost(view, *depot, column)).collect();
        costs.sort_unstable_by_key(|cost| std::cmp::Reverse(*cost));
        let is_paid = |cost: u64| {
            let budget = view.wishes.budget_micro_usd;
            budget.is_none_or(|budget| view.spent_micro_usd + cost <= budget)
        };
        let is_staged = costs.len() >= total && is_paid(costs.iter().take(total).sum());
        let is_direct = |depot: DepotId| {
            is_well(depot, view.spec.bytes) && is_paid(self.cost(view, depot, view.spec.bytes))
        };
        let mut pinned = view.pinned.iter();
        let can_pin = pinned.all(|depot| is_open(*depot) && is_well(*depot, column));
        let is_direct = |depot| view.pinned.is_empty() && is_direct(depot);
        // If losses must be survived, a whole copy at one destination counts as one more holder.
        let losses = view.spec.code.parity();
        let is_whole = losses == 0 && ends.iter().copied().any(is_direct);
        let is_stood_in = losses > 0
            && !has_budget
            && costs.len() + 1 == total
            && view.spec.via.len() + 1 == total
            && view
                .spec
                .via
                .iter()
                .chain(ends)
                .all(|depot| self.is_apart(*depot))
            && matches!(ends[..], [end] if is_open(end) && is_direct(end));
        let can_go = (is_staged && can_pin) || is_whole || is_stood_in;
        can_go && self.now.since(self.last_change).as_secs() > needed_s
    }
}

impl Run<'_> {
    /// Returns whether a depot certainly shares no failure domain with another.
    fn is_apart(&self, depot: DepotId) -> bool {
        let place = self.world.place(depot);
        place.is_some_and(|place| {
            self.scenario.depots[place]
                .terms()
                .domains()
                .next()
                .is_none()
        })
    }

    /// Returns the cost of sending bytes of a request to a depot and keeping them there.
    fn cost(&self, view: &RequestView, depot: DepotId, bytes: Bytes) -> u64 {
        const KEEP_DEFAULT: Duration = Duration::from_secs(30 * 86400);
        let until = view.wishes.keep_until;
        let until = until.unwrap_or(view.spec.deadline + KEEP_DEFAULT);
        let keeps = until.since(view.submitted).as_secs();
        let place = self.world.place(depot);
        place.map_or(0, |place| {
            let terms = self.scenario.depots[place].terms();
            let plan = &self.scenario.depots[place];
            let requests = bytes.pieces(view.spec.code.fragment_size(view.spec.chunk_size));
            let puts = plan.prices().put().micro_usd().saturating_mul(requests);
            terms.cost(bytes, keeps).micro_usd().saturating_add(puts)
        })
    }
}

/// Returns the bytes of all fragments of a request.
fn all_bytes(view: &RequestView) -> Bytes {
    let (bytes, code) = (view.spec.bytes, view.spec.code);
    Bytes::new(bytes.get() * u64::from(code.total()) / u64::from(code.data()))
}

/// Returns the number of chunks that these fragments can't rebuild.
fn beyond_rebuilding(
    view: &RequestView,
    held: impl Iterator<Item = (ChunkIndex, FragmentIndex)>,
) -> u32 {
    let mut chunks = vec![BTreeSet::new(); view.spec.chunks() as usize];
    for (chunk, fragment) in held {
        chunks[chunk.get() as usize].insert(fragment);
    }
    let data = usize::from(view.spec.code.data());
    let is_lost = |held: &&BTreeSet<FragmentIndex>| {
        !held.contains(&FragmentIndex::WHOLE) && held.len() < data
    };
    let lost = chunks.iter().filter(is_lost).count();
    u32::try_from(lost).unwrap_or(u32::MAX)
}

/// Returns the fragments of a request that a site actually holds.
fn held(site: &Site, view: &RequestView) -> BTreeSet<(ChunkIndex, FragmentIndex)> {
    let masks = site.held.get(&view.request);
    let masks = masks.map(Vec::as_slice).unwrap_or_default();
    let is_destination = view.spec.destinations.contains(&site.id);
    let chunks = (0..).map(ChunkIndex::new).zip(masks);
    chunks
        .flat_map(|(chunk, mask)| {
            let bits = (0u8..64).filter(move |bit| mask >> bit & 1 == 1);
            bits.map(move |bit| {
                let index = FragmentIndex::new(bit);
                (
                    chunk,
                    if is_destination {
                        FragmentIndex::WHOLE
                    } else {
                        index
                    },
                )
            })
        })
        .collect()
}

fn is_kept(state: RequestState) -> bool {
    match state {
        RequestState::Refused | RequestState::Cancelled | RequestState::Failed => false,
        RequestState::Moving
        | RequestState::Safe
        | RequestState::Released
        | RequestState::Delivered => true,
    }
}

fn fate(view: &RequestView) -> Fate {
    match view.state {
        RequestState::Refused => Fate::Refused,
        RequestState::Cancelled => Fate::Cancelled,
        RequestState::Failed => Fate::Failed,
        RequestState::Moving
        | RequestState::Safe
        | RequestState::Released
        | RequestState::Delivered => match view.safe_at {
            Some(at) if at <= view.spec.deadline => Fate::Met,
            Some(_) => Fate::Late,
            None => Fate::Unsafe,
        },
    }
}

fn fate_of_arrival(view: &ArrivalView) -> Fate {
    match view.state {
        ArrivalState::Refused => Fate::Refused,
        ArrivalState::Cancelled => Fate::Cancelled,
        ArrivalState::Failed => Fate::Failed,
        ArrivalState::Waiting
        | ArrivalState::Moving
        | ArrivalState::Landing
        | ArrivalState::Arrived
        | ArrivalState::Released => match view.arrived_at {
            Some(at) if at <= view.spec.deadline => Fate::Met,
            Some(_) => Fate::Late,
            None => Fate::Unsafe,
        },
    }
}
