//! When will it be done? The books as a scene for the planner, and the answers put back.

use alloc::{collections::BTreeMap, vec::Vec};
use core::time::Duration;
use posthaste_plan::{Lane, Load, Promise, Scene, Supply, flow};
use posthaste_types::{ByteRate, DepotId, RequestId, Timestamp};

use crate::{
    Mind,
    books::{Depot, Request, Route},
    contract::Forecast,
};

/// Which rate of a depot to count on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Belief {
    /// p10: nine in ten measurements are faster.
    P10,
    /// p50.
    P50,
    /// p90.
    P90,
    /// p10 where the depot was measured, as it was then; p90 of what is believed where it was not: no
    /// request is refused for want of knowledge.
    Hopeful,
}

impl Belief {
    fn rate(self, depot: &Depot) -> ByteRate {
        let rates = depot.link.rates;
        match self {
            Self::P10 => rates.p10,
            Self::P50 => rates.p50,
            Self::P90 => rates.p90,
            Self::Hopeful if depot.link.is_measured() => depot.link.p10_then,
            Self::Hopeful => rates.p90,
        }
    }
}

impl Mind {
    /// What the depots offer, and each one's place in that.
    pub(crate) fn supplies(&self, belief: Belief) -> (Vec<Supply>, BTreeMap<DepotId, usize>) {
        let live = self.depots.iter().filter(|(_, depot)| !depot.is_down());
        live.enumerate()
            .map(|(place, (&id, depot))| {
                let supply = Supply {
                    rate: belief.rate(depot),
                    space: depot.free,
                };
                (supply, (id, place))
            })
            .unzip()
    }

    /// What a request still has to send on the lanes `uses` lets through.
    pub(crate) fn load(
        &self,
        request: &Request,
        places: &BTreeMap<DepotId, usize>,
        route: Route,
        uses: impl Fn(usize) -> bool,
    ) -> Load {
        let destination = request.destination();
        let lanes = request.lanes.iter().enumerate().filter(|&(place, _)| {
            uses(place) && (destination == Some(place)) == (route == Route::Direct)
        });
        let bytes = match route {
            Route::Direct => request.replica.unsafe_bytes(),
            Route::Staged => request.replica.missing_bytes(),
        };
        let lanes = lanes.filter_map(|(place, lane)| {
            let room = match route {
                Route::Direct => bytes,
                Route::Staged => request.replica.room(place),
            };
            Some(Lane {
                supply: *places.get(&lane.depot)?,
                room,
            })
        });
        Load {
            bytes,
            lanes: lanes.collect(),
        }
    }

    /// What the request still has to send as things stand.
    pub(crate) fn load_now(&self, request: &Request, places: &BTreeMap<DepotId, usize>) -> Load {
        self.load(request, places, request.route, |place| {
            request.lanes[place].is_active
        })
    }

    /// Depots and promises, without the request `but`.
    pub(crate) fn scene(
        &self,
        belief: Belief,
        but: Option<RequestId>,
    ) -> (Scene, BTreeMap<DepotId, usize>) {
        let (supplies, places) = self.supplies(belief);
        let mut promises: Vec<Promise> = self
            .requests
            .iter()
            .filter(|&(id, request)| {
                request.is_moving() && !request.is_leftover && Some(*id) != but
            })
            .map(|(_, request)| Promise {
                load: self.load_now(request, &places),
                deadline: request.spec.deadline.since(self.now),
            })
            .collect();
        promises.sort_by_key(|promise| promise.deadline);
        (
            Scene {
                supplies,
                promises,
                egress: self.settings.egress,
            },
            places,
        )
    }

    /// Lets what is known of every link age until now.
    pub(crate) fn look_at_links(&mut self) {
        for depot in self.depots.values_mut() {
            depot.link.look(self.now, &self.settings);
        }
    }

    /// Forecasts the finish of every request that moves.
    pub(crate) fn look_ahead(&mut self) {
        let by = |belief| -> Vec<Option<Timestamp>> {
            let (supplies, places) = self.supplies(belief);
            let moving = self.order.iter().filter_map(|id| self.requests.get(id));
            let loads: Vec<Load> = moving
                .map(|request| self.load_now(request, &places))
                .collect();
            let outcomes = flow(&supplies, &loads, self.settings.egress);
            outcomes
                .into_iter()
                .map(|outcome| outcome.finish.map(|span| self.now + span))
                .collect()
        };
        let slow = by(Belief::P10);
        let middle = by(Belief::P50);
        let fast = by(Belief::P90);
        for (place, id) in self.order.iter().enumerate() {
            if let Some(request) = self.requests.get_mut(id) {
                request.finish = match (fast[place], middle[place], slow[place]) {
                    (Some(p10), Some(p50), Some(p90)) => Some(Forecast { p10, p50, p90 }),
                    _ => None,
                };
            }
        }
    }

    /// How far before the deadline the plan aims: a twentieth of what is left, within reason.
    pub(crate) fn margin(&self, deadline: Timestamp) -> Duration {
        const LEAST: Duration = Duration::from_secs(1);
        const MOST: Duration = Duration::from_secs(60);
        let left = deadline.since(self.now);
        (left / 20).clamp(LEAST, MOST).min(left / 2)
    }
}
