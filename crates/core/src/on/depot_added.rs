use alloc::string::String;
use posthaste_types::{ByteRate, Bytes, DepotId, Timestamp};

use crate::{
    Mind,
    books::{Depot, Link},
    contract::Outbox,
};

impl Mind {
    /// Registers a depot, or changes its facts: then it also gets a fresh chance.
    pub(crate) fn on_depot_added(
        &mut self,
        id: DepotId,
        name: String,
        capacity: Bytes,
        rate_max: Option<ByteRate>,
        out: &mut Outbox,
    ) {
        let (now, settings) = (self.now, &self.settings);
        let Some(depot) = self.depots.get_mut(&id) else {
            let link = Link::new(rate_max, &settings.prior);
            self.depots
                .insert(id, Depot::new(name, capacity, link, now));
            return;
        };
        depot.name = name;
        depot.capacity = capacity;
        depot.link.set_advert(now, rate_max, settings);
        (depot.failures, depot.losses, depot.fruitless) = (0, 0, 0);
        (depot.resume_at, depot.hold_until) = (Timestamp::default(), Timestamp::default());
        if let Some(answer) = depot.answered.take() {
            self.on_depot_up(id, answer.free, answer.rate_max, out);
        }
    }
}
