//! Forecasts of when every destination has all of a request (`docs/algorithms/delivery.md`).
//!
//! Requests are looked at in the order in which destinations take from others what they lack. Each
//! destination serves one after another. What it gets from the centre itself comes as the forecast
//! of safety says.

pub(crate) mod ahead;

use alloc::{collections::BTreeMap, vec::Vec};
use core::time::Duration;
use posthaste_plan::Curve;
use posthaste_types::{ByteRate, Bytes, DepotId, RequestId, Timestamp};

use crate::{
    contract::{Hindrance, Undelivered},
    state,
    state::completion::belief::Belief,
    state::{Depot, Request, Route, State},
};

/// Most deliveries looked at in one go, the most urgent first: about a millisecond.
pub(crate) const LOOKS_MAX: usize = 256;

/// Span ahead for which hours of destinations are looked at.
const HOURS_AHEAD: Duration = Duration::from_secs(30 * 86400);

/// Occupation of destinations so far in a look at all of them.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    /// Time until which each takes what it lacks, and of which request.
    pub(crate) until: BTreeMap<DepotId, (Timestamp, RequestId)>,
    /// Absent destination that is assumed to be up.
    pub(crate) supposed: Option<DepotId>,
}

/// Forecast of when every destination has all of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivery {
    /// Time at which the last one has it.
    pub(crate) finish: Timestamp,
    /// Last destination, and what keeps it waiting.
    pub(crate) last: DepotId,
    pub(crate) hindrance: Hindrance,
    /// Longest time that destinations take what they lack once all is safe.
    pub(crate) after: Duration,
    /// True if it counts on a path over which nothing went yet.
    pub(crate) is_assumed: bool,
}

impl Delivery {
    /// Returns how long before its deliver-by all must be safe.
    pub(crate) fn after(&self) -> Duration {
        self.after
    }
}

/// Reason why the end of a delivery is not in sight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutOfSight {
    /// Destination that will not have it.
    pub(crate) last: DepotId,
    /// Obstacle that keeps it waiting.
    pub(crate) hindrance: Hindrance,
}

/// Forecast of what a destination gets without the centre.
struct Ways {
    pub(crate) span: Duration,
    pub(crate) rate: ByteRate,
    pub(crate) is_assumed: bool,
}

/// Returns when a registered request is safe.
pub(crate) fn safe_at(state: &State, request: &Request, belief: Belief) -> Option<Timestamp> {
    if !request.is_moving() {
        return Some(state.now);
    }
    let finish = request.finish?;
    Some(match belief {
        Belief::P10 | Belief::Hopeful => finish.p90,
        Belief::P50 => finish.p50,
        Belief::P90 => finish.p10,
    })
}

/// Returns when a newcomer that is safe then would be delivered, after those promised before,
/// and which requests it would make late.
pub(crate) fn delivery_of_newcomer(
    state: &State,
    newcomer: RequestId,
    request: &Request,
    safe: Option<Timestamp>,
    by: Option<Timestamp>,
    supposed: Option<DepotId>,
) -> (Result<Delivery, OutOfSight>, Option<RequestId>) {
    let belief = Belief::Hopeful;
    let (mut busy, mut busy_without): (Busy, Busy) = Default::default();
    busy.supposed = supposed;
    let (mut found, mut crowded_out) = (None, None);
    for id in state.index.delivering().take(LOOKS_MAX) {
        let Some(other) = state.requests.get(&id) else {
            continue;
        };
        let Some(promised_by) = other.promised_by() else {
            break;
        };
        if found.is_none() && by.is_some_and(|by| (by, newcomer) < (promised_by, id)) {
            found = Some(delivery(state, newcomer, request, safe, belief, &mut busy));
        }
        let safe = safe_at(state, other, belief);
        let after = delivery(state, id, other, safe, belief, &mut busy);
        let before = delivery(state, id, other, safe, belief, &mut busy_without);
        let is_kept = |found: &Result<Delivery, OutOfSight>| {
            found.is_ok_and(|found| found.finish <= promised_by)
        };
        if is_kept(&before) && !is_kept(&after) {
            crowded_out = crowded_out.or(Some(id));
        }
    }
    let found =
        found.unwrap_or_else(|| delivery(state, newcomer, request, safe, belief, &mut busy));
    (found, crowded_out)
}

/// Returns when each destination has all of a request that is safe then, after those that keep
/// it busy.
pub(crate) fn delivery(
    state: &State,
    id: RequestId,
    request: &Request,
    safe: Option<Timestamp>,
    belief: Belief,
    busy: &mut Busy,
) -> Result<Delivery, OutOfSight> {
    let mut all: Option<Delivery> = None;
    for lane in request.destinations() {
        let found = delivery_at(state, id, request, lane, safe, belief, busy)?;
        all = Some(match all {
            None => found,
            Some(all) => {
                let last = if found.finish > all.finish {
                    found
                } else {
                    all
                };
                Delivery {
                    after: all.after.max(found.after),
                    is_assumed: all.is_assumed || found.is_assumed,
                    ..last
                }
            }
        });
    }
    all.ok_or(OutOfSight {
        last: DepotId::default(),
        hindrance: Hindrance::NoGiver,
    })
}

pub(crate) fn delivery_at(
    state: &State,
    id: RequestId,
    request: &Request,
    lane: usize,
    safe: Option<Timestamp>,
    belief: Belief,
    busy: &mut Busy,
) -> Result<Delivery, OutOfSight> {
    let last = request.lanes[lane].depot;
    let out_of_sight = |hindrance| OutOfSight { last, hindrance };
    let depot = state
        .depots
        .get(&last)
        .ok_or(out_of_sight(Hindrance::Away))?;
    let lacks = request.spec.bytes - request.replica.stored(lane).1;
    let found = |finish, hindrance| Delivery {
        finish,
        last,
        hindrance,
        after: Duration::ZERO,
        is_assumed: false,
    };
    if lacks == Bytes::ZERO {
        return Ok(found(state.now, Hindrance::Centre { safe: state.now }));
    }
    let opens = match depot.is_expected() {
        true => state.now,
        false if busy.supposed == Some(last) => state.now,
        false if belief == Belief::Hopeful && depot.is_hoped_for(&state.settings) => {
            depot.may_be_back_at(state.now)
        }
        false => return Err(out_of_sight(Hindrance::Away)),
    };
    let straight = straight(state, request, lane).min(lacks);
    let rest = lacks - straight;
    let refusal = match depot.stores {
        true => Some(Hindrance::Store),
        false => unpaid(state, request, lane),
    };
    if let Some(hindrance) = refusal.filter(|_| rest > Bytes::ZERO) {
        return Err(out_of_sight(hindrance));
    }
    if depot.space() < rest {
        let bytes = rest - depot.space();
        return Err(out_of_sight(Hindrance::Full { bytes }));
    }
    // Data that is not safe may not be sent on; while safety is not in sight nothing is.
    let safe = safe.ok_or(out_of_sight(Hindrance::NoGiver))?;
    if rest == Bytes::ZERO {
        return Ok(found(safe.max(opens), Hindrance::Centre { safe }));
    }
    let ways = ways_to(state, request, lane, rest, belief);
    let ways = ways.ok_or(out_of_sight(Hindrance::NoGiver))?;
    let (free, other) = busy.until.get(&last).copied().unwrap_or((state.now, id));
    // A destination that the centre feeds has its link in full until then.
    let is_fed = request.is_moving() && straight > Bytes::ZERO;
    let begins = opens.max(free).max(if is_fed { safe } else { state.now });
    let chunk = request.spec.chunk_size.min(rest);
    let tail = through(state, depot, safe, ways.rate.time_for(chunk));
    let through = through(state, depot, begins, ways.span);
    let finish = through.zip(tail).map(|(all, tail)| all.max(tail));
    let finish = finish.ok_or(out_of_sight(Hindrance::Away))?;
    busy.until.insert(last, (finish, id));
    let hindrance = if !depot.is_expected() || begins == opens && opens > state.now {
        Hindrance::Away
    } else if other != id && begins == free && free > state.now {
        Hindrance::Others { request: other }
    } else if safe.since(state.now) > ways.span {
        Hindrance::Centre { safe }
    } else {
        Hindrance::Ways {
            rate: ways.rate,
            is_assumed: ways.is_assumed,
        }
    };
    Ok(Delivery {
        after: finish.since(safe),
        is_assumed: ways.is_assumed,
        ..found(finish, hindrance)
    })
}

/// Returns the bytes that the centre itself will send to a destination.
pub(crate) fn straight(_state: &State, request: &Request, lane: usize) -> Bytes {
    match (
        request.is_moving() && request.lead() == Some(lane),
        request.route,
    ) {
        (false, _) => Bytes::ZERO,
        (true, Route::Direct) => request.spec.bytes,
        (true, Route::Staged) => request.due.straight,
    }
}

/// Returns the first destination that lacks something which a budget brings it neither from the
/// centre nor from others, and why.
pub(crate) fn undelivered(state: &State, request: &Request) -> Option<Undelivered> {
    let lacks = |lane: &usize| {
        let lacks = request.spec.bytes - request.replica.stored(*lane).1;
        request.delivery.is_some() && lacks > straight(state, request, *lane)
    };
    let mut lacking = request.destinations().filter(lacks);
    lacking.find_map(|lane| {
        Some(Undelivered {
            depot: request.lanes[lane].depot,
            hindrance: unpaid(state, request, lane)?,
        })
    })
}

/// Returns how a budget keeps a destination from taking anything from others, if it does.
fn unpaid(state: &State, request: &Request, lane: usize) -> Option<Hindrance> {
    let depot_of = |lane: usize| state.depots.get(&request.lanes[lane].depot);
    if !state::usable::takes_for(request, depot_of(lane)?) {
        return Some(Hindrance::Charges);
    }
    let gives = |lane: &usize| {
        depot_of(*lane).is_some_and(|depot| state::usable::gives_for(request, depot))
    };
    let others = request.destinations().filter(|&other| other != lane);
    let mut whole = others.filter(|&other| {
        request.replica.stored(other).1 + straight(state, request, other) > Bytes::ZERO
    });
    let holders = request.depot_lanes().filter(|&lane| holds(request, lane));
    let (giving, charging): (Vec<usize>, Vec<usize>) = holders.partition(gives);
    let is_rebuilt = giving.len() >= usize::from(request.spec.code.data());
    let is_given = is_rebuilt || charging.is_empty() || whole.any(|other| gives(&other));
    (!is_given).then_some(Hindrance::Unpaid)
}

/// Returns whether a depot holds some of the request, or is to.
fn holds(request: &Request, lane: usize) -> bool {
    request.lanes[lane].is_active || request.replica.stored(lane).0 > 0
}

/// Returns how long a destination takes so much from others, and how fast. Chunks that another
/// destination has or gets whole come from there, the rest in fragments from depots. None if no
/// place has it.
fn ways_to(
    state: &State,
    request: &Request,
    lane: usize,
    rest: Bytes,
    belief: Belief,
) -> Option<Ways> {
    let to = request.lanes[lane].depot;
    let is_there = |lane: usize| {
        let depot = state.depots.get(&request.lanes[lane].depot);
        let is_let = depot.is_some_and(|depot| state::usable::gives_for(request, depot));
        is_let && state::usable::can_give(state, request, lane)
    };
    let others = request
        .destinations()
        .filter(|&other| other != lane && is_there(other));
    let whole = others.map(|other| {
        let there = request.replica.stored(other).1 + straight(state, request, other);
        let (rate, is_assumed) = pair_rate(state, request.lanes[other].depot, to, belief);
        (there.min(rest), rate, is_assumed)
    });
    let whole = whole.max_by_key(|&(there, rate, _)| (there, rate));
    let gives = |lane: &usize| holds(request, *lane) && is_there(*lane);
    let givers = request.depot_lanes().filter(gives);
    let mut rates: Vec<(ByteRate, bool)> = givers
        .map(|giver| pair_rate(state, request.lanes[giver].depot, to, belief))
        .collect();
    rates.sort_unstable_by(|one, other| other.cmp(one));
    let needed = usize::from(request.spec.code.data().max(1));
    // The last of the k that would arrive first decides the time.
    let coded = rates.get(needed - 1).map(|&(least, _)| {
        let is_assumed = rates[..needed].iter().any(|(_, is_assumed)| *is_assumed);
        (least.scaled(needed as u64, 1), is_assumed)
    });
    match (whole, coded) {
        (None, None) => None,
        (Some((there, rate, is_assumed)), None) => {
            // Only another destination can have what depots lost.
            (there >= rest).then(|| Ways {
                span: rate.time_for(rest),
                rate,
                is_assumed,
            })
        }
        (None, Some((rate, is_assumed))) => Some(Ways {
            span: rate.time_for(rest),
            rate,
            is_assumed,
        }),
        (Some((there, forward, one)), Some((gather, other))) => Some(Ways {
            span: forward.time_for(there) + gather.time_for(rest - there),
            rate: if there > rest - there {
                forward
            } else {
                gather
            },
            is_assumed: (one && there > Bytes::ZERO) || (other && rest > there),
        }),
    }
}

/// Returns the rate of the path between two depots; the default belief if nothing went over it
/// yet, as for paths from the centre.
fn pair_rate(state: &State, from: DepotId, to: DepotId, belief: Belief) -> (ByteRate, bool) {
    let settings = &state.settings;
    let known = state.crossings.rates(from, to, state.now, settings);
    let is_assumed = known.is_none();
    let rates = known.unwrap_or_else(|| settings.prior.quantiles(None));
    let rate = match belief {
        Belief::P10 => rates.p10,
        Belief::P50 => rates.p50,
        Belief::P90 => rates.p90,
        Belief::Hopeful if is_assumed => rates.p90,
        Belief::Hopeful => rates.p10,
    };
    (rate, is_assumed)
}

/// Returns when a depot has been open for so long; none if its hours never allow it.
fn through(_state: &State, depot: &Depot, begins: Timestamp, span: Duration) -> Option<Timestamp> {
    const ANY: ByteRate = ByteRate::new(1);
    if depot.terms.windows.is_always() {
        return Some(begins + span);
    }
    let mut curve = Curve::constant(ANY);
    let windows = &depot.terms.windows;
    windows.close(&mut curve, begins, begins + HOURS_AHEAD);
    let (mut at, mut left) = (begins, span);
    loop {
        let is_open = curve.rate_at(at) == ANY;
        let Some(next) = curve.next_change(at) else {
            return is_open.then(|| at + left);
        };
        let piece = next.since(at);
        if is_open && piece >= left {
            return Some(at + left);
        }
        left = if is_open { left - piece } else { left };
        at = next;
    }
}
