//! Chooses among several ways to one depot, and tries one now and then.

use alloc::string::String;
use posthaste_plan::ways::{choose, pays};
use posthaste_types::{ByteRate, CircuitId, DepotId, RequestId};

use crate::{
    apply,
    contract::{Happening, Outbox, Reason, WayReason},
    decide,
    decide::routes::{DRAIN_MAX, SAMPLES, TRIAL_MAX, take},
    state::routes::Trial,
    state::{Depot, State},
};

/// Sets the ways that lead to a depot.
pub(crate) fn on_ways_found(
    state: &mut State,
    id: DepotId,
    ways: alloc::vec::Vec<String>,
    out: &mut Outbox,
) {
    let (now, settings) = (state.now, &state.settings);
    state.trial.take_if(|trial| trial.depot == id);
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    let Depot { fork, link, .. } = depot;
    if fork.set_names(ways, link, now, settings) {
        let way = fork.taken();
        let carries = link.rates.p50;
        out.commands
            .push(take(id, way, WayReason::Known { carries }));
    }
}

/// Handles data that changes its way by itself, or returns to the chosen way.
pub(crate) fn on_way_told(state: &mut State, id: DepotId, way: u8, out: &mut Outbox) {
    let way = usize::from(way);
    if state.trial.is_some_and(|trial| trial.depot == id) {
        end_trial(state, out);
    }
    let (now, settings) = (state.now, &state.settings);
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    let Depot { fork, link, .. } = depot;
    if way == fork.taken() || fork.branch(way).is_none() {
        return;
    }
    let other = fork.name(fork.taken());
    fork.divert(way, link, now, settings);
    let name = fork.name(way);
    let why = match fork.is_diverted() {
        true => WayReason::OtherFails { other },
        false => WayReason::OpensAgain,
    };
    let happening = Happening::WayTaken { name };
    apply::tell::tell(state, out, None, Some(id), happening, Reason::Way { why });
}

/// Tries a way for the request, if that is worth it and none is tried yet.
pub(crate) fn try_way_for(state: &mut State, id: RequestId, out: &mut Outbox) {
    if state.trial.is_some_and(|trial| trial.until <= state.now) {
        end_trial(state, out);
    }
    if state.trial.is_some() {
        return;
    }
    let Some((depot, way)) = decide::routes::find_untried(state, id) else {
        return;
    };
    let Some(book) = state.depots.get(&depot) else {
        return;
    };
    let drains_in = book.link.rates.p50.time_for(book.link.in_flight);
    state.trial = Some(Trial {
        depot,
        way,
        until: state.now + drains_in.min(DRAIN_MAX) + TRIAL_MAX,
        samples: 0,
        request: id,
    });
    let why = WayReason::Untried {
        carries: book.link.rates.p50,
    };
    let name = book.fork.name(way);
    out.commands.push(take(depot, way, why.clone()));
    let happening = Happening::WayTried { name };
    let reason = Reason::Way { why };
    apply::tell::tell(state, out, Some(id), Some(depot), happening, reason);
}

/// Handles a measurement of the depot's rate while another way is tried. Only a full one shows
/// the rate of the way. One that was short of data, and yet clearly above the rate of the way
/// before, is enough.
pub(crate) fn on_trial_carried(
    state: &mut State,
    id: DepotId,
    rate: ByteRate,
    saturated: bool,
    out: &mut Outbox,
) {
    let (now, settings) = (state.now, &state.settings);
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    let taken = depot.fork.taken();
    let before = depot.fork.rates(&depot.link, now, settings);
    let before = before.get(taken).copied().flatten();
    let is_proof = before.is_some_and(|before| pays(rate, before));
    let Some(trial) = state.trial.as_mut().filter(|_| saturated || is_proof) else {
        return;
    };
    let advert = depot.link.advert();
    let Some(branch) = depot.fork.branch_mut(trial.way) else {
        return;
    };
    let believed = branch.path.forecast(now, settings.forecast_tau);
    let believed = believed.unwrap_or_else(|| settings.prior.quantiles(advert));
    let rate = rate.min(advert.unwrap_or(rate));
    branch.path.observe_transfer(now, rate, false, believed);
    trial.samples += 1;
    if trial.samples >= SAMPLES {
        end_trial(state, out);
    }
}

/// Switches to the ways on which a circuit lies, to depots that have others too: rate is
/// reserved there.
pub(crate) fn take_ways_of(
    state: &mut State,
    circuit: CircuitId,
    depots: &[DepotId],
    out: &mut Outbox,
) {
    let Some(terms) = state
        .circuits
        .offered
        .get(&circuit)
        .map(|known| &known.terms)
    else {
        return;
    };
    let (ways, why) = (
        terms.ways.clone(),
        WayReason::Reserved {
            circuit: terms.name.clone(),
        },
    );
    for &id in depots {
        let (now, settings) = (state.now, &state.settings);
        let Some(depot) = state.depots.get_mut(&id) else {
            continue;
        };
        let Depot { fork, link, .. } = depot;
        let Some(way) = fork.other_of(&ways) else {
            continue;
        };
        fork.take(way, link, now, settings);
        let name = fork.name(way);
        out.commands.push(take(id, way, why.clone()));
        let happening = Happening::WayTaken { name };
        let reason = Reason::Way { why: why.clone() };
        apply::tell::tell(state, out, None, Some(id), happening, reason);
    }
}

/// Ends the trial: the better way is taken.
pub(crate) fn end_trial(state: &mut State, out: &mut Outbox) {
    let Some(trial) = state.trial.take() else {
        return;
    };
    let (now, settings) = (state.now, &state.settings);
    let Some(depot) = state.depots.get_mut(&trial.depot) else {
        return;
    };
    let Depot { fork, link, .. } = depot;
    let rates = fork.rates(link, now, settings);
    let (taken, straight) = (fork.taken(), fork.straight());
    let chosen = match trial.samples {
        0 => taken,
        _ => choose(&rates, taken, straight),
    };
    let rate = |way: usize| rates.get(way).copied().flatten();
    let (carries, other) = (rate(chosen), rate(taken).unwrap_or_default());
    let why = if chosen == taken {
        if let Some(branch) = fork.branch_mut(trial.way) {
            branch.tried_at = Some(now);
            branch.fruitless = branch.fruitless.saturating_add(1);
        }
        WayReason::OtherNoBetter {
            tried: fork.name(trial.way),
            carries: rate(trial.way).filter(|_| trial.samples > 0),
        }
    } else if chosen == straight {
        WayReason::NeedsNoGateway {
            carries: carries.unwrap_or_default(),
            gateway: fork.name(taken),
            other,
        }
    } else {
        WayReason::CarriesMore {
            carries: carries.unwrap_or_default(),
            than: fork.name(taken),
            other,
        }
    };
    fork.take(chosen, link, now, settings);
    let name = fork.name(chosen);
    if chosen != trial.way {
        out.commands.push(take(trial.depot, chosen, why.clone()));
    }
    let happening = Happening::WayTaken { name };
    let request = state.requests.get(&trial.request).map(|_| trial.request);
    let reason = Reason::Way { why };
    apply::tell::tell(state, out, request, Some(trial.depot), happening, reason);
}
