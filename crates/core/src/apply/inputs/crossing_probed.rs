use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, DepotId};

use crate::{apply, contract::Outbox, state::State, state::probing::Probing};

/// Handles the end of a probe from one depot to another. `found` is the rate of the path, or a
/// lower bound if so marked; none if it showed nothing.
pub(crate) fn on_crossing_probed(
    state: &mut State,
    (from, to): (DepotId, DepotId),
    sent: Bytes,
    found: Option<(ByteRate, bool)>,
    round_trip: Option<Duration>,
    out: &mut Outbox,
) {
    let ends = (from, to);
    let is_it = |probing: &mut Probing| (probing.from, probing.depot) == (Some(from), to);
    if let Some(probing) = state.probing.take_if(is_it) {
        apply::probing::settle_probe(state, &probing, sent);
    }
    let (now, settings) = (state.now, &state.settings);
    if let Some(taker) = state.depots.get(&to)
        && state.depots.contains_key(&from)
    {
        // Fragments that started meanwhile took their share.
        let is_shared = taker.arriving > Bytes::ZERO || taker.link.flights > 0;
        let found = found.map(|(rate, is_bound)| (rate, is_bound || is_shared));
        let is_nearer = state
            .crossings
            .observe_probe(ends, found, round_trip, now, settings);
        if is_nearer {
            apply::inputs::depot_levelled::on_distance_changed(state, from);
            apply::inputs::depot_levelled::on_distance_changed(state, to);
        }
    }
    apply::probing::probe_asked(state, out);
}
