//! Reserved rate, within depots' rates over time.

use alloc::vec::Vec;
use posthaste_plan::{Curve, Load};
use posthaste_types::{ByteRate, DepotId, Timestamp};

use crate::{
    forecast,
    state::completion::belief::Belief,
    state::completion::{HOURS_AHEAD, Promised, Sweep},
    state::{Depot, State},
};

/// Trial of another rate on the path to some depots, over some time.
pub(crate) struct Raise<'a> {
    pub(crate) depots: &'a [DepotId],
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    /// Rate that each of them has of it now, and has then.
    pub(crate) before: ByteRate,
    pub(crate) after: ByteRate,
}

/// Raises a depot's rate by what is reserved for data to it.
pub(crate) fn raise(state: &State, id: DepotId, depot: &Depot, curve: &mut Curve) {
    if depot.is_expected()
        && let Some(floor) = state.circuits.counted(id)
    {
        curve.raise(&floor);
    }
}

/// Returns by how much a raise changes the rate of each of its depots, and where and when.
fn steps(
    state: &State,
    raise: &Raise<'_>,
    belief: Belief,
) -> Vec<(DepotId, Timestamp, Timestamp, ByteRate, ByteRate)> {
    let spread = forecast::completion::spread::spread(state);
    let mut steps = Vec::new();
    for &id in raise.depots {
        let Some(depot) = state.depots.get(&id).filter(|depot| depot.is_expected()) else {
            continue;
        };
        let shared = belief.rate(depot, spread);
        let counted = state.circuits.counted(id);
        let mut at = raise.from;
        let until = raise.until.min(state.now + HOURS_AHEAD);
        while at < until {
            let turns = depot.terms.windows.next_change(at);
            let floor = counted.as_ref();
            let changes = floor.and_then(|curve| curve.next_change(at));
            let next = [turns, changes].into_iter().flatten().min();
            let next = next.map_or(until, |next| next.min(until));
            let now = floor.map_or(ByteRate::ZERO, |curve| curve.rate_at(at));
            let then = now.get().saturating_sub(raise.before.get());
            let then = ByteRate::new(then.saturating_add(raise.after.get()));
            if depot.is_within_hours(at) {
                steps.push((id, at, next, shared.max(now), shared.max(then)));
            }
            at = next;
        }
    }
    steps
}

/// Returns when a load would be done with what is left, if that were raised.
pub(crate) fn finish_raised(
    state: &State,
    sweep: &Sweep,
    load: &Load,
    raise: &Raise<'_>,
) -> Option<Timestamp> {
    let mut supplies = sweep.slow.clone();
    for (id, from, until, before, after) in steps(state, raise, Belief::P10) {
        let place = sweep.places().get(&id).copied();
        let Some(supply) = place.and_then(|place| supplies.depots.get_mut(place as usize)) else {
            continue;
        };
        change(&mut supply.curve, (from, until), before, after);
    }
    supplies.early(load, state.now).edge
}

/// Returns what is left for a newcomer, if it were raised.
pub(crate) fn left_raised(state: &State, left: &Promised, raise: &Raise<'_>) -> Promised {
    let mut left = left.clone();
    let places = left.places.clone();
    for (belief, scene) in left.scenes() {
        for (id, from, until, before, after) in steps(state, raise, belief) {
            let place = places.get(&id).copied();
            let supplies = &mut scene.supplies.depots;
            let Some(supply) = place.and_then(|place| supplies.get_mut(place as usize)) else {
                continue;
            };
            change(&mut supply.curve, (from, until), before, after);
        }
    }
    left
}

/// Changes a curve; what was taken of it stays taken.
fn change(
    curve: &mut Curve,
    (from, until): (Timestamp, Timestamp),
    before: ByteRate,
    after: ByteRate,
) {
    let (before, after) = (before.get(), after.get());
    if after >= before {
        curve.give_back(from, until, ByteRate::new(after - before));
    } else {
        curve.take(from, until, ByteRate::new(before - after));
    }
}
