//! Probes paths between depots.

use alloc::format;
use posthaste_types::{Bytes, DepotId, RequestId};

use crate::{
    apply,
    contract::{Command, Outbox, Reason},
    decide::probing::is_open,
    state,
    state::State,
    state::probing::Probing,
};

pub(crate) fn probe_crossing(
    state: &mut State,
    from: DepotId,
    to: DepotId,
    budget: Bytes,
    payer: Option<RequestId>,
    out: &mut Outbox,
) {
    state.crossings.begin_probe(from, to);
    state.probing = Some(Probing {
        from: Some(from),
        depot: to,
        since: state.now,
        budget,
        request: payer,
    });
    let known = state.crossings.get(from, to);
    let measured_at = known.and_then(|known| known.path().measured_at());
    let reason = match payer {
        None => Reason::Asked,
        Some(payer) => {
            let reason = Reason::PathStale {
                measured_at,
                budget,
            };
            let name = format!(
                "{} to {}",
                state::names::name_of(state, from),
                state::names::name_of(state, to)
            );
            apply::probing::charge::charge_probe(state, payer, to, budget, name, reason.clone());
            reason
        }
    };
    out.commands.push(Command::ProbeCrossing {
        from,
        to,
        budget,
        reason,
    });
}

/// Starts a probe that a person asked for, if neither end sends or receives anything.
pub(crate) fn probe_crossing_asked(state: &mut State, out: &mut Outbox) {
    let is_idle = |id: DepotId| {
        let depot = state.depots.get(&id);
        depot.is_some_and(|depot| {
            let gets = depot.link.flights > 0 || depot.arriving > Bytes::ZERO;
            depot.is_up() && !gets && is_open(depot, state.now) && !state.pushes.is_sending(id)
        })
    };
    let mut asked = state.crossings.asked();
    if let Some((from, to)) = asked.find(|&(from, to)| is_idle(from) && is_idle(to)) {
        drop(asked);
        probe_crossing(state, from, to, state.settings.probe_bytes_max, None, out);
    }
}
