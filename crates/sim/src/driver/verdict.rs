use std::collections::BTreeSet;

use posthaste_core::{
    Mind,
    contract::{DepotState, RequestState, RequestView},
};
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use super::{Run, START};
use crate::{
    Report,
    checkers::{Conservation, Found, Progress, ensure},
    report::Fate,
    world::Condition,
};

/// How long the mind may leave a depot alone after the last fault, in seconds, and then some.
const SETTLING_S: u64 = 330;

impl Run<'_> {
    /// The last verdicts, and the report.
    pub(super) fn into_report(mut self, seed: u64) -> Report {
        let now = self.now;
        let mut found = self.checkers.deadlines.at_end(now);
        found.push(self.checkers.conservation.at_end());
        found.push(self.checkers.progress.at_end(START, now));
        let mut fates = Vec::new();
        if let Some(mind) = self.mind.take() {
            if !self.checkers.is_violated() {
                found.extend(self.compare_books(&mind));
                found.extend(
                    mind.requests()
                        .map(|view| Progress::ended(&view, self.is_possible(&mind, &view))),
                );
            }
            fates = mind
                .requests()
                .map(|view| (view.request, fate(&view)))
                .collect();
        }
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
            stored: self.checkers.conservation.stored(),
            steps: self.checkers.progress.steps(),
            span: now.since(START),
            fingerprint: self.fingerprint,
            violations: self.checkers.into_violations(),
            start: START,
        }
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

    /// The mind's books of each live depot beside what it holds.
    fn compare_books(&self, mind: &Mind) -> Vec<Result<(), Found>> {
        let states = mind.depots();
        let mut found = Vec::new();
        for view in mind.requests().filter(|view| is_kept(view.state)) {
            let holders = mind.holders(view.request);
            for site in self
                .world
                .sites
                .iter()
                .filter(|site| site.condition() == Condition::Well)
            {
                let is_up = states
                    .iter()
                    .any(|state| state.depot == site.id && state.state == DepotState::Up);
                let is_used = view.shares.iter().any(|share| share.depot == site.id);
                // Whoever is being asked what it holds answers for itself.
                let is_sure =
                    is_up && is_used && !site.is_told_gone && view.state != RequestState::Delivered;
                if !is_sure {
                    continue;
                }
                let believed = holders.iter().find(|(depot, _)| *depot == site.id);
                let believed = believed.map(|(_, held)| held.iter().copied().collect());
                let held = self.held(site.id, &view);
                let surplus = self
                    .surplus
                    .get(&(site.id, view.request))
                    .copied()
                    .unwrap_or(0)
                    + view
                        .shares
                        .iter()
                        .map(|share| share.in_flight as usize)
                        .sum::<usize>();
                found.push(Conservation::compare(
                    site.id,
                    view.request,
                    &believed.unwrap_or_default(),
                    &held,
                    surplus,
                ));
            }
        }
        found
    }

    fn held(&self, depot: DepotId, view: &RequestView) -> BTreeSet<(ChunkIndex, FragmentIndex)> {
        let site = self.world.sites.iter().find(|site| site.id == depot);
        let masks = site.and_then(|site| site.held.get(&view.request));
        let masks = masks.map(Vec::as_slice).unwrap_or_default();
        let is_destination = view.spec.destination == Some(depot);
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

    /// Whether the depots that are left could have made the request safe within the time there was.
    fn is_possible(&self, mind: &Mind, view: &RequestView) -> bool {
        let column = view.spec.code.fragment_size(view.spec.chunk_size);
        let column = column.times(u64::from(view.spec.chunks()));
        let is_well = |depot: &DepotId| {
            self.world.place(*depot).is_some_and(|place| {
                let site = &self.world.sites[place];
                site.condition() == Condition::Well
                    && self.world.rate(place) > 0
                    && site.free() >= column
            })
        };
        let staged = view.spec.via.iter().filter(|depot| is_well(depot)).count();
        let can_go = staged >= usize::from(view.spec.code.total())
            || view.spec.destination.is_some_and(|depot| is_well(&depot));
        let slowest = self.world.slowest();
        let all: u64 = mind
            .requests()
            .map(|view| {
                view.spec.bytes.get() * u64::from(view.spec.code.total())
                    / u64::from(view.spec.code.data())
            })
            .sum();
        let needed_s = SETTLING_S + 4 * all / slowest.max(1);
        can_go && self.now.since(self.last_change).as_secs() > needed_s
    }
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
