//! Stage-ins: which chunk comes from which source, and when it must begin to be here in time.
//!
//! `outlook` forecasts, forward and backward, from the rates of sources in `inbound`. `fetch` asks
//! sources for chunks; `near` sends them to depots near the centre meanwhile. `outward` removes the
//! source of exports, and `onward` exports from depots. `review` handles the passage of time, and
//! `loss` sources that fail. `bargain` makes counter-offers for refused stage-ins. `purse` holds
//! budgets, and the share of dear sources; `ending` finishes a stage-in.

mod bargain;
mod ending;
mod fetch;
mod inbound;
mod loss;
mod near;
mod onward;
mod outlook;
mod outward;
mod purse;
mod refusal;
mod review;
mod slack;
mod views;

pub(crate) use outlook::Coming;

use alloc::{collections::BTreeMap, string::String};
use posthaste_types::{RequestId, SourceId, Timestamp};

pub(crate) use outlook::Quantile;

use crate::{
    Mind,
    books::{Arrival, Fetch, Outward, Purse},
    contract::{ArrivalState, Happening, Outbox, Reason, StageInNews},
};

impl Mind {
    /// Returns the name that people use for a source.
    pub(crate) fn name_of_source(&self, source: SourceId) -> String {
        let known = self.arrivals.sources.get(&source);
        known.map_or_else(|| alloc::format!("{source}"), |source| source.name.clone())
    }

    /// Reports something to every live stage-in that uses a source.
    fn tell_users(
        &mut self,
        source: SourceId,
        happening: &Happening,
        reason: &Reason,
        out: &mut Outbox,
    ) {
        for id in self.arrivals.users(source) {
            self.tell(out, Some(id), None, happening.clone(), reason.clone());
        }
    }

    /// Handles news of a stage-in.
    pub(crate) fn on_stage_in_told(&mut self, id: RequestId, news: &StageInNews, out: &mut Outbox) {
        match *news {
            StageInNews::MayWait { ref near } => self.on_may_wait(id, near),
            StageInNews::Stored {
                source,
                chunk,
                depot,
            } => self.on_prestaged(id, Fetch { chunk, source }, depot, out),
            StageInNews::Failed {
                source,
                chunk,
                depot,
                fault,
            } => self.on_prestage_failed(id, Fetch { chunk, source }, depot, fault),
            StageInNews::GoesOut { release } => self.on_goes_out(id, release),
            StageInNews::GoesOn { of } => self.on_goes_on(id, of),
            StageInNews::IsFor {
                ref owner,
                ref project,
            } => self.on_is_for(id, owner, project),
            StageInNews::Costs { budget, ref prices } => {
                let purse = Purse::new(budget, prices);
                self.arrivals.keep_purse(id, purse);
            }
            StageInNews::Refused { ref said } => self.on_refused_there(id, said),
            StageInNews::Unkept { modes, times } => self.on_unkept_there(id, modes, times),
            StageInNews::FromOne { ref said } => self.on_from_one(id, said),
            StageInNews::LeftOut { ref left_out } => self.on_left_out_there(id, left_out),
        }
    }

    /// Sets the owner and project of a stage-in.
    fn on_is_for(&mut self, id: RequestId, owner: &str, project: &str) {
        let Some(arrival) = self.arrivals.requests.get_mut(&id) else {
            return;
        };
        arrival.owner = owner.into();
        arrival.project = project.into();
        arrival.turn = self.shares.turn(arrival.claim(), &self.settings);
    }

    /// Updates the turns of stage-ins that can't be on time (`docs/algorithms/fair-shares.md`).
    fn review_turns(&mut self) {
        // Otherwise the review of outgoing requests has found the least served.
        if self.index.is_idle() {
            self.shares.settle(self.now, &self.settings);
        }
        let mut requests = self.arrivals.requests.values_mut();
        while let Some(arrival) = requests.find(|arrival| arrival.gets_what_is_left()) {
            arrival.turn = self.shares.turn(arrival.claim(), &self.settings);
        }
    }

    /// Schedules a look at stage-ins within this step.
    pub(crate) fn look_at_arrivals_now(&mut self) {
        self.arrivals.look_at = Some(self.now);
    }

    /// Handles the passage of time for stage-ins, then fetches.
    pub(crate) fn bring_in(&mut self, out: &mut Outbox) {
        self.release_outward(out);
        if self.arrivals.live().next().is_none() {
            self.arrivals.look_at = None;
            return;
        }
        self.price_near();
        if self.arrivals.look_at.is_none_or(|at| at <= self.now) {
            self.review_turns();
            self.look_at_arrivals();
            self.review_arrivals(out);
            self.find_stalled_sources(out);
        }
        self.probe_near(out);
        self.fetch(out);
        self.set_next_look();
    }

    /// Returns when a stage-in next needs something done, if nothing happens before.
    pub(crate) fn next_arrival_alarm(&self) -> Option<Timestamp> {
        let paced = self.arrivals.live().filter_map(|(_, arrival)| {
            let waits = arrival.may_read() && arrival.paced_until > self.now && arrival.open() > 0;
            waits.then_some(arrival.paced_until)
        });
        let release = self.next_outward_release();
        paced.chain(self.arrivals.look_at).chain(release).min()
    }

    /// Forgets the oldest finished stage-ins beyond the number kept.
    pub(crate) fn forget_oldest_arrivals(&mut self) {
        let (requests, outward) = (&mut self.arrivals.requests, &mut self.arrivals.outward);
        let is_over =
            |id: &RequestId, arrival: &Arrival, outward: &BTreeMap<RequestId, Outward>| {
                let has_arrived = arrival.state == ArrivalState::Arrived;
                let is_released = outward.get(id).is_none_or(|outward| !outward.waits());
                !arrival.state.is_live() && (!has_arrived || is_released)
            };
        let over = requests
            .iter()
            .filter(|(id, arrival)| is_over(id, arrival, outward))
            .count()
            .saturating_sub(self.settings.finished_max as usize);
        for _ in 0..over {
            let oldest = requests
                .iter()
                .find(|(id, arrival)| is_over(id, arrival, outward));
            let Some(id) = oldest.map(|(id, _)| *id) else {
                break;
            };
            requests.remove(&id);
            let of = outward.remove(&id).and_then(|outward| outward.of);
            of.and_then(|of| self.arrivals.onward.remove(&of));
        }
    }

    /// Returns whether the number is that of a stage-in.
    #[must_use]
    pub fn is_stage_in(&self, request: RequestId) -> bool {
        self.arrivals.requests.contains_key(&request)
    }
}
