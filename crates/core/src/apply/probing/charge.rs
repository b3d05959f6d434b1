//! Charges probes to their budget.

use alloc::string::String;
use posthaste_types::{Bytes, DepotId, RequestId};

use crate::{contract::Reason, state, state::State};

/// Charges a probe to the request, and records its path.
pub(crate) fn charge_probe(
    state: &mut State,
    payer: RequestId,
    to: DepotId,
    budget: Bytes,
    name: String,
    reason: Reason,
) {
    let depot = state.depots.get(&to);
    let price = depot.map_or(0, |depot| depot.terms.sending().of(budget).micro_usd());
    state::memory::remember_of(state, payer, name, 0, "probed".into(), reason);
    if let Some(payer) = state.requests.get_mut(&payer) {
        payer.uncommon.probed += budget;
        payer.uncommon.probed_micro_usd = payer.uncommon.probed_micro_usd.saturating_add(price);
    }
    if let Some(payer) = state.arrivals.requests.get_mut(&payer) {
        payer.probed += budget;
    }
}
