use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, DepotId};

use crate::{apply, contract::Outbox, state::State};

/// Handles the end of a probe, with or without a result.
pub(crate) fn on_probed(
    state: &mut State,
    id: DepotId,
    sent: Bytes,
    bytes: Bytes,
    window: Duration,
    is_bound: bool,
    out: &mut Outbox,
) {
    if let Some(probing) = state
        .probing
        .take_if(|probing| probing.from.is_none() && probing.depot == id)
    {
        apply::probing::settle_probe(state, &probing, sent);
    }
    let (now, settings) = (state.now, &state.settings);
    if let Some(depot) = state.depots.get_mut(&id) {
        depot.link.probed_at = Some(now);
        if !window.is_zero() && bytes > Bytes::ZERO {
            // Fragments that started meanwhile took their share.
            let is_bound = is_bound || depot.link.flights > 0;
            let rate = ByteRate::over(bytes, window);
            depot.link.observe_probe(now, rate, is_bound, settings);
        }
    }
    apply::probing::probe_asked(state, out);
}
