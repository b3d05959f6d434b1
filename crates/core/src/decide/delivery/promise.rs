//! Deliver-by of requests: promised or not, and never late in silence.

use alloc::{string::String, vec::Vec};
use core::time::Duration;
use posthaste_types::{Bytes, DepotId, RequestId, Timestamp};

use crate::{
    contract::{DeliveryReason, DeliveryView, Reason, WouldBuy},
    decide,
    decide::verdict::Verdict,
    forecast,
    forecast::delivery::{Delivery, OutOfSight},
    state,
    state::completion::Promised,
    state::completion::belief::Belief,
    state::{Request, State},
};

/// Time after its submission in which no danger is reported.
pub(crate) const GRACE_MAX: Duration = Duration::from_secs(3);

/// Returns the flaw of its deliver-by, whatever the rates.
pub(crate) fn find_flaw_of_delivery(state: &State, request: &Request) -> Option<Reason> {
    if let Some(name) = find_store_to_gather(state, request) {
        let why = DeliveryReason::GathersNothing { name };
        return Some(Reason::Delivery { why });
    }
    let deliver_by = request.wishes.deliver_by?;
    if request.lead().is_none() {
        return Some(Reason::Delivery {
            why: DeliveryReason::NoDestination,
        });
    }
    (deliver_by <= state.now).then_some(Reason::Delivery {
        why: DeliveryReason::Passed { deliver_by },
    })
}

/// Returns the name of a destination in a store, which would have to gather what the centre
/// does not send it, and can't.
fn find_store_to_gather(state: &State, request: &Request) -> Option<String> {
    let is_straight = request.spec.code.parity() == 0
        && request.destinations().count() == 1
        && request.depot_lanes().next().is_none();
    let mut depots = request.destinations().map(|lane| request.lanes[lane].depot);
    let store = depots.find(|depot| !is_straight && state::failure_domain::stores(state, *depot));
    store.map(|depot| state::names::name_of(state, depot))
}

/// Weighs a newcomer so that it is delivered in time too; if it can't be, returns the reason.
pub(crate) fn weigh_delivered(
    state: &State,
    id: RequestId,
    request: &mut Request,
    left: &Promised,
    weigh: impl Fn(&State, &mut Request, &Promised) -> Verdict,
) -> Result<Verdict, Reason> {
    let Some(by) = request.wishes.deliver_by else {
        return Ok(weigh(state, request, left));
    };
    request.due.safe_by = Some(by);
    let verdict = weigh(state, request, left);
    let Some(first) = would_deliver(state, id, request, left, &verdict, Some(by), None) else {
        return without_hurry(state, id, request, left, weigh);
    };
    match first {
        (Ok(found), None) if found.finish <= by => {
            request.due.safe_by = Some(by - found.after());
            Ok(verdict)
        }
        (Ok(found), None) => {
            // If it is safe earlier, over more depots, it may be delivered in time.
            request.due.safe_by = Some(by - found.after());
            let verdict = weigh(state, request, left);
            match would_deliver(state, id, request, left, &verdict, Some(by), None) {
                Some((Ok(found), None)) if found.finish <= by => Ok(verdict),
                _ => without_hurry(state, id, request, left, weigh),
            }
        }
        _ => without_hurry(state, id, request, left, weigh),
    }
}

/// Returns when it could be delivered at the earliest, as it can't be in time.
fn without_hurry(
    state: &State,
    id: RequestId,
    request: &mut Request,
    left: &Promised,
    weigh: impl Fn(&State, &mut Request, &Promised) -> Verdict,
) -> Result<Verdict, Reason> {
    let Some(deliver_by) = request.wishes.deliver_by else {
        return Ok(weigh(state, request, left));
    };
    request.due.safe_by = None;
    let verdict = weigh(state, request, left);
    let Some((found, crowded_out)) =
        would_deliver(state, id, request, left, &verdict, Some(deliver_by), None)
    else {
        return Ok(verdict);
    };
    if let (Ok(kept), None) = (found, crowded_out)
        && kept.finish <= deliver_by
    {
        request.due.safe_by = Some(deliver_by - kept.after());
        return Ok(verdict);
    }
    // After all promised deliveries it makes none late.
    let last = would_deliver(state, id, request, left, &verdict, None, None);
    let earliest = last.and_then(|(found, _)| Some(found.ok()?.finish));
    let earliest = earliest.map(|at| at.max(deliver_by));
    let mut would_buy = offers_of_delivery(state, id, request, left, &verdict);
    would_buy.extend(earliest.map(|deliver_by| WouldBuy::DeliveredLater { deliver_by }));
    if let Some(other) = crowded_out {
        return Err(Reason::Delivery {
            why: DeliveryReason::CrowdsOut {
                request: other,
                earliest,
                deliver_by,
                would_buy,
            },
        });
    }
    let (last, hindrance) = match found {
        Ok(found) => (found.last, found.hindrance),
        Err(away) => (away.last, away.hindrance),
    };
    Err(Reason::Delivery {
        why: DeliveryReason::Infeasible {
            name: state::names::name_of(state, last),
            hindrance,
            earliest,
            deliver_by,
            would_buy,
        },
    })
}

/// Returns when it would be delivered if it were accepted like this; none if it is not.
fn would_deliver(
    state: &State,
    id: RequestId,
    request: &Request,
    left: &Promised,
    verdict: &Verdict,
    by: Option<Timestamp>,
    supposed: Option<DepotId>,
) -> Option<(Result<Delivery, OutOfSight>, Option<RequestId>)> {
    let Verdict::Admit {
        route,
        active,
        finish,
        is_leftover: false,
        ..
    } = verdict
    else {
        return None;
    };
    let mut taken = request.clone();
    taken.route = *route;
    for (place, lane) in taken.lanes.iter_mut().enumerate() {
        lane.is_active = active.contains(&place);
    }
    taken.due.straight = straight_of(state, &taken, left);
    Some(forecast::delivery::delivery_of_newcomer(
        state, id, &taken, *finish, by, supposed,
    ))
}

/// Returns what a newcomer would get straight to the destination on which plans count.
fn straight_of(state: &State, request: &Request, left: &Promised) -> Bytes {
    let load = decide::candidates::promised_load(state, request, left);
    let scene = left.scene(Belief::Hopeful);
    let outcome = scene.supplies.early(&load, state.now);
    let lead = request.lead().map(|lane| request.lanes[lane].depot);
    let lead = lead.and_then(|depot| left.places.get(&depot));
    let mut placed = load.placed(&outcome);
    let found = placed.find(|(at, _)| lead.is_some_and(|lead| *lead as usize == *at));
    found.map_or(Bytes::ZERO, |(_, bytes)| bytes)
}

/// Returns what would deliver it in time, each tried.
fn offers_of_delivery(
    state: &State,
    id: RequestId,
    request: &Request,
    left: &Promised,
    verdict: &Verdict,
) -> Vec<WouldBuy> {
    let Some(by) = request.wishes.deliver_by else {
        return Vec::new();
    };
    let mut offers = Vec::new();
    for lane in request.destinations() {
        let depot = request.lanes[lane].depot;
        let is_away = state
            .depots
            .get(&depot)
            .is_some_and(|depot| !depot.is_expected());
        if is_away
            && let Some((Ok(found), None)) =
                would_deliver(state, id, request, left, verdict, Some(by), Some(depot))
            && found.finish <= by
        {
            offers.push(WouldBuy::DestinationBack {
                name: state::names::name_of(state, depot),
                finish: found.finish,
            });
        }
    }
    for lane in request
        .destinations()
        .filter(|_| request.whole_lanes().count_ones() > 1)
    {
        let mut fewer = request.clone();
        fewer.do_without(lane);
        if let Some((Ok(found), None)) =
            would_deliver(state, id, &fewer, left, verdict, Some(by), None)
            && found.finish <= by
        {
            offers.push(WouldBuy::WithoutDestination {
                name: state::names::name_of(state, request.lanes[lane].depot),
                finish: found.finish,
            });
        }
    }
    offers.truncate(2);
    offers
}

/// Returns the state of its delivery, if it has destinations.
pub(crate) fn delivery_view(state: &State, request: &Request) -> Option<DeliveryView> {
    request.lead()?;
    let due = &request.due;
    Some(DeliveryView {
        deliver_by: request.wishes.deliver_by,
        finish: due
            .finish
            .filter(|_| request.delivery.is_some() && due.whole_at.is_none()),
        is_assumed: due.is_assumed,
        at_risk: due.at_risk,
        missed: due.missed,
        whole_at: due.whole_at,
        undelivered: forecast::delivery::undelivered(state, request),
    })
}

/// Returns the last destination, and its obstacle.
pub(crate) fn reason_undelivered(state: &State, id: RequestId) -> Option<Reason> {
    let request = state.requests.get(&id)?;
    let due = &request.due;
    let last = due
        .last
        .or(request.lead().map(|lane| request.lanes[lane].depot))?;
    Some(Reason::Delivery {
        why: DeliveryReason::Behind {
            name: state::names::name_of(state, last),
            hindrance: due.hindrance,
            finish: due.finish.map(|finish| finish.p90.max(state.now)),
            deliver_by: request.deliver_by()?,
        },
    })
}

impl Request {
    /// Returns whether every destination has all of it, whether it is up or not.
    pub(crate) fn is_whole(&self) -> bool {
        let chunks = self.replica.chunks();
        self.destinations()
            .all(|lane| self.replica.stored(lane).0 == chunks)
    }

    /// Returns why it counts as delivered: in time or late, if it had a deliver-by.
    pub(crate) fn reason_whole(&self, now: Timestamp) -> Reason {
        let destinations = self.whole_lanes().count_ones();
        let whole_at = self.due.whole_at.unwrap_or(now);
        match self.wishes.deliver_by {
            None => Reason::Delivery {
                why: DeliveryReason::WholeThere { destinations },
            },
            Some(deliver_by) if whole_at <= deliver_by => Reason::Delivery {
                why: DeliveryReason::InTime {
                    destinations,
                    whole_at,
                    deliver_by,
                },
            },
            Some(deliver_by) => Reason::Delivery {
                why: DeliveryReason::Late {
                    destinations,
                    whole_at,
                    deliver_by,
                },
            },
        }
    }
}
