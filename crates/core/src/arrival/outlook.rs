//! When stage-ins will be here, and when they must begin.
//!
//! Backward: in the order of deadlines each stage-in is promised what the sources give at their p10, as
//! late as its deadline less a margin allows (`plan::Supplies::late`); the moment at which that begins is the
//! latest start. Forward: in the same order each takes what is there as early as it may, at p10, p50 and
//! p90 of the rates; what that comes to is the forecast. `docs/algorithms/just-in-time-arrival.md`.

use alloc::{collections::BTreeMap, vec::Vec};
use core::time::Duration;
use posthaste_plan::{Curve, Lane, Load, Supplies, Supply};
use posthaste_types::{ByteRate, Bytes, RequestId, SourceId, Timestamp};

use crate::{
    Mind,
    books::{Arrival, Source},
    contract::Forecast,
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
    supplies: Supplies,
}

impl Inbound {
    fn load(&self, arrival: &Arrival) -> Load {
        let missing = arrival.missing();
        let lanes = arrival.lanes.iter().filter(|lane| !lane.is_gone);
        let lanes = lanes.filter_map(|lane| self.places.get(&lane.source));
        Load {
            bytes: missing,
            lanes: lanes
                .map(|&supply| Lane {
                    supply,
                    room: missing,
                    quota: Lane::NO_QUOTA,
                })
                .collect(),
            whole: None,
            rate_max: arrival.spec.rate_max,
        }
    }

    /// Lets one stage-in take its share from `from` on. When it would be here.
    pub(crate) fn early(&mut self, arrival: &Arrival, from: Timestamp) -> Option<Timestamp> {
        let load = self.load(arrival);
        let outcome = self.supplies.early(&load, from);
        self.supplies.take(&load, &outcome);
        outcome.edge
    }

    /// Promises one stage-in its share before `until`. When it must begin; none when it does not fit.
    pub(crate) fn late(
        &mut self,
        arrival: &Arrival,
        from: Timestamp,
        until: Timestamp,
    ) -> Option<Timestamp> {
        let load = self.load(arrival);
        let outcome = self.supplies.late(&load, from, until);
        self.supplies.take(&load, &outcome);
        outcome.edge
    }
}

impl Mind {
    /// What all sources are forecast to give.
    pub(crate) fn inbound(&self, quantile: Quantile) -> Inbound {
        let sources = &self.arrivals.sources;
        let supply = |source: &Source| Supply {
            curve: self.curve_of(source, quantile),
            space: Bytes::new(u64::MAX >> 1),
        };
        Inbound {
            places: sources.keys().copied().zip(0..).collect(),
            supplies: Supplies {
                depots: sources.values().map(supply).collect(),
                way_out: None,
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
            let begin_by = if arrival.is_leftover {
                None
            } else {
                let until = arrival.spec.deadline - margin(alone.clone().early(arrival, now), now);
                left.late(arrival, now, until)
            };
            if let Some(arrival) = self.arrivals.requests.get_mut(id) {
                arrival.begin_by = begin_by;
                arrival.is_due = is_due(arrival, now);
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
            let from = starts_at(arrival, now);
            let p90 = slow.early(arrival, from);
            let p50 = middle.early(arrival, from);
            let p10 = fast.early(arrival, from);
            let finish = forecast(arrival, now, [p10, p50, p90]);
            if let Some(arrival) = self.arrivals.requests.get_mut(id) {
                arrival.finish = finish;
            }
        }
    }

    /// When a newcomer would be here, at p50 and p90, if it took only what nobody was promised.
    pub(crate) fn weigh_arrival(&self, newcomer: &Arrival) -> [Option<Timestamp>; 2] {
        let now = self.now;
        let order = self.arrivals.in_turn();
        let promised: Vec<&Arrival> = order
            .iter()
            .filter_map(|id| self.arrivals.requests.get(id))
            .filter(|arrival| !arrival.is_leftover)
            .collect();
        [Quantile::P50, Quantile::P10].map(|quantile| {
            let mut left = self.inbound(quantile);
            for arrival in &promised {
                left.late(arrival, now, arrival.spec.deadline);
            }
            left.early(newcomer, now)
        })
    }
}

/// What is kept in reserve for one that alone would be here at `finish`.
fn margin(finish: Option<Timestamp>, now: Timestamp) -> Duration {
    let needed = finish.map_or(Duration::ZERO, |finish| finish.since(now));
    MARGIN + needed / MARGIN_SHARE
}

/// Whether chunks may be asked for: nothing is in the way, or waiting longer would endanger the deadline.
fn is_due(arrival: &Arrival, now: Timestamp) -> bool {
    let is_welcome = arrival.spec.not_before.is_none_or(|at| at <= now);
    is_welcome || arrival.begin_by.is_none_or(|at| at <= now)
}

/// When it begins or goes on.
fn starts_at(arrival: &Arrival, now: Timestamp) -> Timestamp {
    if arrival.is_due {
        return now;
    }
    let welcome = arrival.spec.not_before.unwrap_or(now);
    arrival.begin_by.unwrap_or(now).min(welcome).max(now)
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
