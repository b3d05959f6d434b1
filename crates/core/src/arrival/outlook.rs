//! When stage-ins will be here, and when they must begin.
//!
//! Backward: in the order of deadlines each stage-in is promised what the sources give at their p10, as
//! late as its deadline less a margin allows (`plan::Supplies::late`); the moment at which that begins is the
//! latest start. Forward: in the same order each takes what is there as early as it may, at p10, p50 and
//! p90 of the rates; what that comes to is the forecast. `docs/algorithms/just-in-time-arrival.md`.

use alloc::{collections::BTreeMap, vec::Vec};
use core::{cmp::Reverse, time::Duration};
use posthaste_plan::{Curve, Lane, Load, Outcome, Supplies, Supply};
use posthaste_types::{ByteRate, Bytes, RequestId, SourceId, Timestamp};

use crate::{
    Mind,
    books::{Arrival, Held, Source},
    contract::{Binding, Forecast},
};

/// What is kept in reserve before a deadline: this, for the looks that may come late and for files to get
/// their names, and one part in so many of the time that is needed.
const MARGIN: Duration = Duration::from_secs(5);
const MARGIN_SHARE: u32 = 8;

/// Which forecast of a source's rate is counted on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Quantile {
    P10,
    P50,
    P90,
}

/// What the sources give, to be taken in turn.
#[derive(Debug, Clone)]
pub(crate) struct Inbound {
    places: BTreeMap<SourceId, usize>,
    /// Whether each gives anything now or later.
    gives: Vec<bool>,
    supplies: Supplies,
}

/// How a stage-in fares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fare {
    /// When all of it is here; none when that can't be.
    pub(crate) edge: Option<Timestamp>,
    /// The place of the holding that decides it.
    binds: Option<usize>,
}

impl Inbound {
    /// What is missing of a holding, where it lies.
    fn load(&self, held: &Held) -> Load {
        let lanes = held.sources.iter();
        let lanes = lanes.filter_map(|source| self.places.get(source));
        Load {
            bytes: held.missing,
            lanes: lanes
                .map(|&supply| Lane::new(supply, held.missing, Bytes::ZERO))
                .collect(),
            whole: None,
            rate_max: None,
        }
    }

    /// Whether a source gives anything now or later.
    fn gives(&self, source: SourceId) -> bool {
        let place = self.places.get(&source);
        place.is_some_and(|place| self.gives[*place])
    }

    /// Lets one holding after another take its share, those first that lie at the fewest sources that give
    /// anything: a source gives in that order too. Whatever lies where, all of it can come like this, so what
    /// it comes to is never better than what may be.
    fn fill(
        &mut self,
        arrival: &Arrival,
        fill: impl Fn(&Supplies, &Held, &Load) -> Outcome,
    ) -> Vec<(usize, Option<Timestamp>)> {
        let held = arrival.held.iter().enumerate();
        let held = held.filter(|(_, held)| held.missing > Bytes::ZERO);
        let mut order: Vec<(usize, &Held)> = held.collect();
        order.sort_by_key(|(_, held)| {
            let sources = held.sources.iter();
            sources.filter(|source| self.gives(**source)).count()
        });
        self.supplies.pace = arrival.spec.rate_max.map(Curve::constant);
        let edges = order.into_iter().map(|(place, held)| {
            let load = self.load(held);
            let outcome = fill(&self.supplies, held, &load);
            self.supplies.take(&load, &outcome);
            (place, outcome.edge)
        });
        let edges = edges.collect();
        self.supplies.pace = None;
        edges
    }

    /// Lets one stage-in take its share, each holding from when it may on. When it would be here.
    pub(crate) fn early(&mut self, arrival: &Arrival, from: impl Fn(&Held) -> Timestamp) -> Fare {
        let edges = self.fill(arrival, |supplies, held, load| {
            supplies.early(load, from(held))
        });
        // None at all is later than any.
        let last = edges
            .iter()
            .max_by_key(|(place, edge)| (edge.is_none(), *edge, Reverse(*place)));
        last.map_or_else(
            || Fare {
                edge: arrival.held.iter().map(from).max(),
                binds: None,
            },
            |(place, edge)| Fare {
                edge: *edge,
                binds: Some(*place),
            },
        )
    }

    /// Promises one stage-in its share before `until`. When each holding that misses something must begin;
    /// none when it does not fit.
    pub(crate) fn late(
        &mut self,
        arrival: &Arrival,
        from: Timestamp,
        until: Timestamp,
    ) -> Vec<(usize, Option<Timestamp>)> {
        self.fill(arrival, |supplies, _, load| {
            supplies.late(load, from, until)
        })
    }
}

impl Mind {
    /// What all sources are forecast to give.
    pub(crate) fn inbound(&self, quantile: Quantile) -> Inbound {
        let sources = &self.arrivals.sources;
        let gives = |source: &Source| !source.is_down();
        let supply = |source: &Source| {
            Supply::new(self.curve_of(source, quantile), Bytes::new(u64::MAX >> 1))
        };
        Inbound {
            places: sources.keys().copied().zip(0..).collect(),
            gives: sources.values().map(gives).collect(),
            supplies: Supplies {
                depots: sources.values().map(supply).collect(),
                way_out: None,
                pace: None,
            },
        }
    }

    /// One that is lost gives nothing until it gave something again.
    fn curve_of(&self, source: &Source, quantile: Quantile) -> Curve {
        let rates = source.link.rates;
        let rate = match quantile {
            Quantile::P10 => rates.p10,
            Quantile::P50 => rates.p50,
            Quantile::P90 => rates.p90,
        };
        if source.is_down() {
            return Curve::constant(ByteRate::ZERO);
        }
        let mut curve = Curve::constant(rate);
        curve.close(self.now, source.resume_at);
        curve
    }

    /// Lets what is known of the ways from the sources age until now.
    pub(crate) fn look_at_inbound_links(&mut self) {
        let (now, settings) = (self.now, &self.settings);
        for source in self.arrivals.sources.values_mut() {
            source.link.look(now, settings);
        }
    }

    /// Looks at every live stage-in: its latest start, whether it may move, its finish.
    pub(crate) fn look_at_arrivals(&mut self) {
        self.look_at_inbound_links();
        let order = self.arrivals.in_turn();
        self.promise_backward(&order);
        self.forecast_forward(&order);
    }

    fn promise_backward(&mut self, order: &[RequestId]) {
        let now = self.now;
        let alone = self.inbound(Quantile::P10);
        let mut left = alone.clone();
        for id in order {
            let Some(arrival) = self.arrivals.requests.get(id) else {
                continue;
            };
            let finish = alone.clone().early(arrival, |_| now).edge;
            let until = arrival.spec.deadline - margin(finish, now);
            let edges = if arrival.is_leftover {
                Vec::new()
            } else {
                left.late(arrival, now, until)
            };
            if let Some(arrival) = self.arrivals.requests.get_mut(id) {
                set_begin(arrival, &edges, until, now);
            }
        }
    }

    fn forecast_forward(&mut self, order: &[RequestId]) {
        let now = self.now;
        let [mut slow, mut middle, mut fast] =
            [Quantile::P10, Quantile::P50, Quantile::P90].map(|quantile| self.inbound(quantile));
        for id in order {
            let Some(arrival) = self.arrivals.requests.get(id) else {
                continue;
            };
            let from = |held: &Held| starts_at(arrival, held, now);
            let p90 = slow.early(arrival, from);
            let p50 = middle.early(arrival, from).edge;
            let p10 = fast.early(arrival, from).edge;
            let finish = forecast(arrival, now, [p10, p50, p90.edge]);
            let binding = self.binding(arrival, p90);
            if let Some(arrival) = self.arrivals.requests.get_mut(id) {
                (arrival.finish, arrival.binding) = (finish, binding);
            }
        }
    }

    /// When a newcomer would be here at p90 if it took only what nobody was promised, and what binds that.
    pub(crate) fn weigh_arrival(&self, newcomer: &Arrival) -> (Option<Timestamp>, Option<Binding>) {
        let now = self.now;
        let order = self.arrivals.in_turn();
        let promised = order
            .iter()
            .filter_map(|id| self.arrivals.requests.get(id))
            .filter(|arrival| !arrival.is_leftover);
        let mut left = self.inbound(Quantile::P10);
        for arrival in promised {
            left.late(arrival, now, arrival.spec.deadline);
        }
        let fare = left.early(newcomer, |_| now);
        (fare.edge, self.binding(newcomer, fare))
    }

    /// What decides when a stage-in is here, if it does not lie at all of its sources.
    fn binding(&self, arrival: &Arrival, fare: Fare) -> Option<Binding> {
        let held = arrival.held.get(fare.binds?)?;
        let lanes = arrival.lanes.iter().filter(|lane| !lane.is_gone).count();
        let names = held
            .sources
            .iter()
            .map(|source| self.name_of_source(*source));
        (held.sources.len() < lanes).then(|| Binding {
            names: names.collect(),
            bytes: held.missing,
        })
    }
}

/// What is kept in reserve for one that alone would be here at `finish`.
fn margin(finish: Option<Timestamp>, now: Timestamp) -> Duration {
    let needed = finish.map_or(Duration::ZERO, |finish| finish.since(now));
    MARGIN + needed / MARGIN_SHARE
}

/// Notes when each holding must begin, and whether its chunks may be asked for: nothing is in the way, or
/// waiting longer would endanger the deadline.
fn set_begin(
    arrival: &mut Arrival,
    edges: &[(usize, Option<Timestamp>)],
    until: Timestamp,
    now: Timestamp,
) {
    let is_welcome = arrival.spec.not_before.is_none_or(|at| at <= now);
    let is_due = |begin_by: Option<Timestamp>| is_welcome || begin_by.is_none_or(|at| at <= now);
    let mut first = (!arrival.is_leftover).then_some(until);
    for (place, held) in arrival.held.iter_mut().enumerate() {
        if held.missing == Bytes::ZERO {
            continue;
        }
        let edge = edges.iter().find(|(of, _)| *of == place);
        held.begin_by = edge.and_then(|(_, edge)| *edge);
        held.is_due = is_due(held.begin_by);
        first = first.and_then(|first| held.begin_by.map(|at| at.min(first)));
    }
    arrival.begin_by = first;
    arrival.is_due = is_due(first);
}

/// When a holding begins or goes on.
fn starts_at(arrival: &Arrival, held: &Held, now: Timestamp) -> Timestamp {
    if held.is_due {
        return now;
    }
    let welcome = arrival.spec.not_before.unwrap_or(now);
    held.begin_by.unwrap_or(now).min(welcome).max(now)
}

/// One that waits does not come before it may, as far as its deadline lets it wait.
fn forecast(
    arrival: &Arrival,
    now: Timestamp,
    finishes: [Option<Timestamp>; 3],
) -> Option<Forecast> {
    let [Some(p10), Some(p50), Some(p90)] = finishes else {
        return None;
    };
    let held = arrival.spec.not_before.filter(|at| *at > now);
    let held = held.map_or(now, |at| at.min(p90));
    Some(Forecast {
        p10: p10.max(held),
        p50: p50.max(held),
        p90,
    })
}
