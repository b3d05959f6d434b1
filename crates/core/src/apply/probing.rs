//! Probes paths that were never measured, or not lately.

pub(crate) mod charge;
pub(crate) mod crossing;

use posthaste_types::{Bytes, DepotId, RequestId};

use crate::{
    apply,
    contract::{Command, Outbox, Reason},
    decide,
    decide::probing::is_open,
    state::State,
    state::probing::Probing,
};

/// Starts a probe for the request, if one is due and none is in progress.
pub(crate) fn probe_for(state: &mut State, id: RequestId, out: &mut Outbox) {
    if !may_probe(state) {
        return;
    }
    if let Some((depot, budget)) = decide::probing::find_stale(state, id) {
        probe(state, depot, budget, Some(id), out);
    } else if let Some((from, to, budget)) =
        decide::probing::crossing::find_stale_crossing(state, id)
    {
        apply::probing::crossing::probe_crossing(state, from, to, budget, Some(id), out);
    }
}

/// Starts a probe for a request that did not use the depot yet, if its link is free and no
/// other is in progress.
pub(crate) fn probe_before(
    state: &mut State,
    id: RequestId,
    to: DepotId,
    budget: Bytes,
    out: &mut Outbox,
) {
    if may_probe(state) && decide::probing::stale_since(state, to).is_some() {
        probe(state, to, budget, Some(id), out);
    }
}

/// Starts a probe that a person asked for, if its link is free and no other is in progress.
pub(crate) fn probe_asked(state: &mut State, out: &mut Outbox) {
    if !may_probe(state) {
        return;
    }
    let now = state.now;
    let asked = state.depots.iter().find(|(_, depot)| {
        depot.link.is_probe_asked && depot.is_up() && depot.link.flights == 0 && is_open(depot, now)
    });
    if let Some(depot) = asked.map(|(id, _)| *id) {
        return probe(state, depot, state.settings.probe_bytes_max, None, out);
    }
    apply::probing::crossing::probe_crossing_asked(state, out);
}

/// Returns whether no probe is in progress, or one that will not be answered any more.
fn may_probe(state: &mut State) -> bool {
    let (now, wait) = (state.now, state.settings.probe_wait);
    state.probing.take_if(|probing| probing.since + wait <= now);
    state.probing.is_none()
}

fn probe(
    state: &mut State,
    id: DepotId,
    budget: Bytes,
    request: Option<RequestId>,
    out: &mut Outbox,
) {
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    depot.link.is_probe_asked = false;
    let measured_at = depot.link.path().measured_at();
    let name = depot.name.clone();
    state.probing = Some(Probing {
        from: None,
        depot: id,
        since: state.now,
        budget,
        request,
    });
    let reason = match request {
        None => Reason::Asked,
        Some(payer) => {
            let reason = Reason::PathStale {
                measured_at,
                budget,
            };
            apply::probing::charge::charge_probe(state, payer, id, budget, name, reason.clone());
            reason
        }
    };
    out.commands.push(Command::Probe {
        depot: id,
        budget,
        reason,
    });
}

/// Records what a probe for the request sent: the rest of its possible cost is there for
/// others.
pub(crate) fn settle_probe(state: &mut State, probing: &Probing, sent: Bytes) {
    let price = |bytes: Bytes| {
        let depot = state.depots.get(&probing.depot);
        depot.map_or(0, |depot| depot.terms.sending().of(bytes).micro_usd())
    };
    let saved = price(probing.budget).saturating_sub(price(sent));
    let payer = probing.request;
    let waits = payer.and_then(|payer| state.arrivals.requests.get_mut(&payer));
    if let Some(payer) = waits {
        payer.probed -= probing.budget - sent;
    }
    if let Some(request) = probing
        .request
        .and_then(|payer| state.requests.get_mut(&payer))
    {
        request.uncommon.probed -= probing.budget - sent;
        request.uncommon.probed_micro_usd = request.uncommon.probed_micro_usd.saturating_sub(saved);
    }
}
