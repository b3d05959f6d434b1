use core::time::Duration;
use posthaste_types::{Bytes, DepotId};

use crate::{
    apply,
    contract::{Happening, Outbox, Reason},
    decide,
    state::State,
    state::uplink::Taken,
};

/// Handles a measurement of a depot's rate.
pub(crate) fn on_throughput(
    state: &mut State,
    id: DepotId,
    bytes: Bytes,
    window: Duration,
    saturated: bool,
    out: &mut Outbox,
) {
    let now = state.now;
    let Some(depot) = state.depots.get_mut(&id).filter(|_| !window.is_zero()) else {
        return;
    };
    if bytes > Bytes::ZERO {
        depot.link.progress_at = now;
    }
    let shows_rate = depot.link.shows_rate(bytes);
    // The bytes of a probe are missing here.
    let is_probed = state.probing.is_some_and(|probing| probing.depot == id);
    let taken = Taken {
        at: now,
        depot: id,
        bytes,
        window,
        saturated: saturated && shows_rate && !is_probed,
        is_trial: decide::routes::is_trial_of(state, id),
    };
    if state.settings.egress.is_none() {
        learn_throughput(state, taken, false, out);
        return;
    }
    learn_known(state, out);
    if let Some(before) = state.way_out.observe(taken) {
        learn_judged(state, before, out);
    }
}

/// Judges the last measurements, if nothing more comes.
pub(crate) fn settle_way_out(state: &mut State, out: &mut Outbox) {
    learn_known(state, out);
    state.way_out.forget_old(state.now);
}

fn learn_known(state: &mut State, out: &mut Outbox) {
    for taken in state.way_out.known(state.now) {
        learn_judged(state, taken, out);
    }
}

/// Learns from a depot's rate: measurements beside it show whether the uplink was full.
fn learn_judged(state: &mut State, taken: Taken, out: &mut Outbox) {
    let is_held = apply::uplink::is_held_by_way_out(state, &taken);
    learn_throughput(state, taken, is_held, out);
}

/// Learns from a depot's rate, which the uplink held back or not.
fn learn_throughput(state: &mut State, taken: Taken, is_held: bool, out: &mut Outbox) {
    let (now, id) = (state.now, taken.depot);
    let rate = taken.rate();
    let saturated = taken.saturated && !is_held;
    let may_carry = state.circuits.may_carry(id, now);
    if decide::routes::is_trial_of(state, id) != taken.is_trial {
        // It went another way.
        return;
    }
    if taken.is_trial {
        apply::routes::on_trial_carried(state, id, rate, saturated && !may_carry, out);
        return;
    }
    let settings = &state.settings;
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    let rate = match may_carry {
        true => depot.link.at_most_believed(rate),
        false => rate,
    };
    if let Some((from, to)) = depot.link.observe(now, rate, saturated, settings) {
        apply::tell::tell(
            state,
            out,
            None,
            Some(id),
            Happening::ForecastMoved,
            Reason::RateMoved { from, to },
        );
    }
}
