//! Which requests press most, for whoever looks at all of them.

use alloc::vec::Vec;
use posthaste_types::{RequestId, Timestamp};

use crate::{
    Mind,
    books::{Arrival, Request},
    contract::Forecast,
};

impl Mind {
    /// Every request of which something is still to be safe, here or delivered, the one with the least slack first: the time from its
    /// p90 finish to its deadline, or that of its delivery where that is less. Those whose finish is not in sight come before all.
    /// Visits each of them once.
    #[must_use]
    pub fn pressing(&self) -> Vec<RequestId> {
        let moving = self.index.after(None).map(|urgency| urgency.request);
        let due = self.index.due().iter().copied();
        let due = due.filter(|id| !self.index.moves(*id));
        let requests = moving.chain(due);
        let requests = requests.filter_map(|id| Some((self.requests.get(&id)?.slack(), id)));
        let arrivals = self.arrivals.live();
        let arrivals = arrivals.map(|(id, arrival)| (arrival.slack(), *id));
        let mut all: Vec<(Option<i64>, RequestId)> = requests.chain(arrivals).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }
}

/// Microseconds from a p90 finish to a moment; none where it is not in sight.
fn slack(by: Timestamp, finish: Option<Forecast>) -> Option<i64> {
    finish.map(|finish| by.slack_micros(finish.p90))
}

impl Request {
    /// The least of what there is to its deadline and to that of its delivery; none where the end of either is not in sight.
    fn slack(&self) -> Option<i64> {
        let safe = (self.is_moving()).then(|| slack(self.spec.deadline, self.finish));
        let is_due = !self.due.missed && self.due.whole_at.is_none();
        let by = self.deliver_by().filter(|_| is_due);
        let delivered = by.map(|by| slack(by, self.due.finish));
        safe.into_iter().chain(delivered).min().flatten()
    }
}

impl Arrival {
    fn slack(&self) -> Option<i64> {
        slack(self.spec.deadline, self.finish)
    }
}
