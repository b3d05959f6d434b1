//! Stage-ins: which chunk comes from which source, and when it must begin to be here in time.
//!
//! `outlook` forecasts, forward and backward; `fetch` asks sources for chunks; `near` lets them go to depots near the
//! centre meanwhile; `review` is what time
//! alone brings; `loss` is what becomes of sources that fail; `ending` how a stage-in ends.

mod ending;
mod fetch;
mod loss;
mod near;
mod outlook;
mod review;
mod views;

use alloc::string::String;
use posthaste_types::{RequestId, SourceId, Timestamp};

use crate::{
    Mind,
    contract::{Happening, Outbox, Reason},
};

impl Mind {
    /// The name people use for a source.
    pub(crate) fn name_of_source(&self, source: SourceId) -> String {
        let known = self.arrivals.sources.get(&source);
        known.map_or_else(|| alloc::format!("{source}"), |source| source.name.clone())
    }

    /// Says something of every live stage-in that uses a source.
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

    /// Stage-ins are looked at within this step.
    pub(crate) fn look_at_arrivals_now(&mut self) {
        self.arrivals.look_at = Some(self.now);
    }

    /// What time alone brings to stage-ins, and then what is to be fetched.
    pub(crate) fn bring_in(&mut self, out: &mut Outbox) {
        if self.arrivals.live().next().is_none() {
            self.arrivals.look_at = None;
            return;
        }
        if self.arrivals.look_at.is_none_or(|at| at <= self.now) {
            self.look_at_arrivals();
            self.review_arrivals(out);
            self.find_stalled_sources(out);
        }
        self.probe_near(out);
        self.fetch(out);
        self.set_next_look();
    }

    /// When a stage-in wants something to be done next, if nothing happens before.
    pub(crate) fn next_arrival_alarm(&self) -> Option<Timestamp> {
        let paced = self.arrivals.live().filter_map(|(_, arrival)| {
            let waits = arrival.may_read() && arrival.paced_until > self.now && arrival.open() > 0;
            waits.then_some(arrival.paced_until)
        });
        paced.chain(self.arrivals.look_at).min()
    }

    /// Forgets the oldest finished stage-ins beyond the number kept.
    pub(crate) fn forget_oldest_arrivals(&mut self) {
        let requests = &mut self.arrivals.requests;
        let over = requests
            .values()
            .filter(|arrival| !arrival.state.is_live())
            .count()
            .saturating_sub(self.settings.finished_max as usize);
        for _ in 0..over {
            let oldest = requests
                .iter()
                .find(|(_, arrival)| !arrival.state.is_live());
            let Some(id) = oldest.map(|(id, _)| *id) else {
                break;
            };
            requests.remove(&id);
        }
    }

    /// Whether the number is that of a stage-in.
    #[must_use]
    pub fn is_stage_in(&self, request: RequestId) -> bool {
        self.arrivals.requests.contains_key(&request)
    }
}
