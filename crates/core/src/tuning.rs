//! Tuning of the number of fragments of a request on their way to a depot at once
//! (`docs/algorithms/tuner.md`). Each depot has an optimizer, fed with what the books see the depot
//! store.

use alloc::{boxed::Box, format};
use core::time::Duration;
use posthaste_plan::tuner::{Bounds, Choice, Method, PathFacts, Stocks, Tuner, Urgency, optimizer};
use posthaste_types::{Bytes, DepotId, RequestId};

use crate::{
    Mind,
    books::{Request, Tuning},
    contract::Reason,
};

/// Assumed round trip to a depot, which the mind does not know: neither near nor far.
const RTT: Duration = Duration::from_millis(5);
/// Assumed most bytes in flight on a stream: Linux's usual maximum.
const BUFFER: Bytes = Bytes::mebi(4);
/// Assumed number of processors.
const CORES: u16 = 4;
/// Lowest choice of the default optimizer, if the window has room for so many. Depots share the
/// centre's uplink by streams, and a request with fewer waits for the slowest depot of each chunk.
/// The opening rule begins there.
const AT_ONCE_MIN: u16 = 8;
/// Fraction of the time left, as its divisor, below which slack means that a deadline is near.
const SLACK_THIN: u32 = 10;

impl Mind {
    /// Gives each depot that the request feeds an optimizer. The default one waits until the link
    /// was measured: until then the window alone decides.
    pub(crate) fn begin_tuning(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let method = request.method;
        let lacks = |&lane: &usize| {
            let fed = &request.lanes[lane];
            let depot = self.depots.get(&fed.depot);
            let is_known = depot.is_some_and(|depot| {
                depot.is_up() && (method != Method::Auto || depot.link.is_measured())
            });
            fed.tuning.is_none() && fed.is_active && request.is_on_route(lane) && is_known
        };
        let lacking: alloc::vec::Vec<usize> = (0..request.lanes.len()).filter(lacks).collect();
        for lane in lacking {
            self.begin_lane(id, lane);
        }
    }

    fn begin_lane(&mut self, id: RequestId, lane: usize) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let depot = request.lanes[lane].depot;
        let Some(book) = self.depots.get(&depot) else {
            return;
        };
        let fragment = fragment_size(request, lane);
        let window = book.link.window(self.settings.window, &self.settings);
        let opened = narrow(window.get() / fragment.get()).max(2);
        let most = self.settings.window_bytes_max.get() / fragment.get();
        let bounds = Bounds {
            concurrency_min: if request.method == Method::Auto {
                opened.min(AT_ONCE_MIN)
            } else {
                1
            },
            concurrency_max: narrow(most)
                .min(narrow(self.settings.flights_max.into()))
                .min(narrow(self.settings.stripes_max.into()))
                .max(2),
            parallelism_max: 1,
            pipelining_max: 1,
        };
        let facts = PathFacts {
            rtt: RTT,
            bandwidth: book.link.advert(),
            buffer: BUFFER,
            cores: CORES,
            piece: Bytes::ZERO,
        };
        let history = book.best.filter(|_| request.method == Method::Auto);
        let urgency = self.urgency(request);
        let tuner: Tuner = optimizer(request.method, facts, bounds, history, urgency);
        let mut stocks = self.stocks(request, lane, &facts);
        if history.is_none() && request.method == Method::Auto {
            // Nothing is known of more at once than the window holds.
            stocks = Stocks::default();
            stocks.add_all(facts.class(fragment), opened.into(), fragment);
        }
        let (tuning, choice) = Tuning::begin(tuner, &stocks, opened, self.now);
        if let Some(request) = self.requests.get_mut(&id) {
            request.lanes[lane].tuning = Some(Box::new(tuning));
        }
        self.remember_tuned(id, depot, &choice);
    }

    /// Asks the optimizers whose period is over what to do next, and keeps their findings.
    pub(crate) fn review_tuning(&mut self, id: RequestId) {
        let lanes = self
            .requests
            .get(&id)
            .map_or(0, |request| request.lanes.len());
        for lane in 0..lanes {
            self.review_lane(id, lane);
        }
    }

    fn review_lane(&mut self, id: RequestId, lane: usize) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let depot = request.lanes[lane].depot;
        let facts = PathFacts {
            rtt: RTT,
            bandwidth: self
                .depots
                .get(&depot)
                .and_then(|depot| depot.link.advert()),
            buffer: BUFFER,
            cores: CORES,
            piece: Bytes::ZERO,
        };
        let stocks = self.stocks(request, lane, &facts);
        let (urgency, now) = (self.urgency(request), self.now);
        let Some(tuning) = self
            .requests
            .get_mut(&id)
            .and_then(|request| request.lanes[lane].tuning.as_mut())
        else {
            return;
        };
        let before = tuning.at_once();
        let Some(choice) = tuning.next(urgency, &stocks, now) else {
            return;
        };
        let best = tuning.best();
        if let Some(depot) = self.depots.get_mut(&depot) {
            depot.best = best.or(depot.best);
        }
        if choice.setting().concurrency != before || !choice.reason.is_routine() {
            self.remember_tuned(id, depot, &choice);
        }
    }

    /// Returns what the lane still has to send, as the optimizers count it.
    fn stocks(&self, request: &Request, lane: usize, facts: &PathFacts) -> Stocks {
        let fragment = fragment_size(request, lane);
        let bytes = if request.is_destination(lane) {
            request.replica.unsafe_bytes()
        } else {
            let fed = u64::from(request.fan_out().max(1));
            let share = Bytes::new(request.replica.missing_bytes().get() / fed);
            share.min(request.replica.room(lane))
        };
        let mut stocks = Stocks::default();
        stocks.add_all(facts.class(fragment), bytes.pieces(fragment), fragment);
        stocks
    }

    /// Returns a request's urgency: it is late when its slack is under a tenth of the time left.
    fn urgency(&self, request: &Request) -> Urgency {
        if request.is_leftover {
            return Urgency::Background;
        }
        let deadline = request.aim();
        let left = deadline.since(self.now);
        let slack = request
            .finish
            .map_or(Duration::ZERO, |finish| deadline.since(finish.p90));
        if slack < left / SLACK_THIN {
            Urgency::Late
        } else {
            Urgency::Normal
        }
    }

    /// Records which optimizer was asked for by name, for `explain`.
    pub(crate) fn remember_optimizer(&mut self, id: RequestId) {
        let method = self.requests.get(&id).map(|request| request.method);
        if let Some(method) = method.filter(|method| *method != Method::Auto) {
            self.remember(id, format!("optimizer {method}"), Reason::Asked);
        }
    }

    /// Records a choice, for `explain`.
    fn remember_tuned(&mut self, id: RequestId, depot: DepotId, choice: &Choice) {
        let why = choice.reason;
        let at_once = choice.setting().concurrency;
        let noun = if at_once == 1 {
            "fragment"
        } else {
            "fragments"
        };
        let (what, name) = (format!("{at_once} {noun} at once"), self.name_of(depot));
        self.remember_of(id, name, at_once.into(), what, Reason::Tuned { why });
    }
}

/// Returns the size of one send on a lane: a whole chunk, or a fragment of one.
fn fragment_size(request: &Request, lane: usize) -> Bytes {
    let chunk = request.spec.chunk_size;
    let size = if request.is_destination(lane) {
        chunk
    } else {
        request.spec.code.fragment_size(chunk)
    };
    size.max(Bytes::new(1))
}

fn narrow(count: u64) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}
