use alloc::string::String;
use posthaste_types::{ByteRate, Bytes, DepotId, Timestamp};

use crate::{
    apply,
    contract::Outbox,
    state::{Depot, Link, State},
};

/// Registers a depot, or changes its facts: then it also gets a fresh chance.
pub(crate) fn on_depot_added(
    state: &mut State,
    id: DepotId,
    name: String,
    capacity: Bytes,
    rate_max: Option<ByteRate>,
    out: &mut Outbox,
) {
    let (now, settings) = (state.now, &state.settings);
    let Some(depot) = state.depots.get_mut(&id) else {
        let link = Link::new(rate_max, &settings.prior);
        state
            .depots
            .insert(id, Depot::new(name, capacity, link, now));
        return;
    };
    depot.name = name;
    depot.capacity = capacity;
    depot.link.set_advert(now, rate_max, settings);
    (depot.failures, depot.losses, depot.fruitless) = (0, 0, 0);
    (depot.resume_at, depot.hold_until) = (Timestamp::default(), Timestamp::default());
    if let Some(answer) = depot.answered.take() {
        apply::inputs::depot_up::on_depot_up(state, id, answer.free, answer.rate_max, out);
    }
}
