//! Requests in order of slack, for lists of all of them.

use alloc::vec::Vec;
use posthaste_types::{RequestId, Timestamp};

use crate::{
    Mind,
    contract::Forecast,
    state::{Arrival, Request},
};

impl Mind {
    /// Returns every request that is still to be safe, here or delivered, the one with the least
    /// slack first. Slack is the time from its p90 finish to its deadline, or that of its delivery
    /// if that is less. Requests without a finish in sight come before all, and so do those that
    /// are no longer safe and whose source is gone. Visits every request once.
    #[must_use]
    pub fn pressing(&self) -> Vec<RequestId> {
        let moving = self.state.index.after(None).map(|urgency| urgency.request);
        let due = self.state.index.due().iter().copied();
        let due = due.filter(|id| !self.state.index.moves(*id));
        let thin = self
            .state
            .requests
            .iter()
            .filter(|(_, request)| request.is_thin());
        let thin = thin
            .map(|(id, _)| *id)
            .filter(|id| !self.state.index.due().contains(id));
        let requests = moving.chain(due).chain(thin);
        let requests = requests.filter_map(|id| Some((self.state.requests.get(&id)?.slack(), id)));
        let arrivals = self.state.arrivals.live();
        let arrivals = arrivals.map(|(id, arrival)| (arrival.slack(), *id));
        let mut all: Vec<(Option<i64>, RequestId)> = requests.chain(arrivals).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }
}

/// Returns the microseconds from a p90 finish to a moment; none if it is not in sight.
fn slack(by: Timestamp, finish: Option<Forecast>) -> Option<i64> {
    finish.map(|finish| by.slack_micros(finish.p90))
}

impl Request {
    /// Returns the smaller slack of its deadline and its delivery; none if the end of either is not
    /// in sight.
    pub(crate) fn slack(&self) -> Option<i64> {
        let is_open = self.is_moving() || self.is_thin();
        let safe = is_open.then(|| slack(self.spec.deadline, self.finish));
        let is_due = !self.due.missed && self.due.whole_at.is_none();
        let by = self.deliver_by().filter(|_| is_due);
        let delivered = by.map(|by| slack(by, self.due.finish));
        safe.into_iter().chain(delivered).min().flatten()
    }
}

impl Arrival {
    /// Returns whether its deadline is in danger, as reported or by its present forecast.
    pub(crate) fn is_in_danger(&self) -> bool {
        let finish = self.finish.filter(|_| self.state.is_live());
        self.at_risk || finish.is_some_and(|finish| finish.p90 > self.spec.deadline)
    }

    pub(crate) fn slack(&self) -> Option<i64> {
        slack(self.spec.deadline, self.finish)
    }
}
