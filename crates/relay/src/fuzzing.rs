//! Entrance to the parser of orders from services and other relays, for the fuzz targets alone. It
//! accepts any bytes, and panics if an invariant fails.

use std::sync::Arc;

use posthaste_endpoint::relay::{
    DatasetId,
    wire::{ForwardBody, MeasureBody, Object, PassBody, SpaceBody},
};
use posthaste_types::{ChunkIndex, FragmentIndex};

use crate::{gather::Gathers, order, others::Others, rate::RateLimit, scatter::Scatters};

/// Parses an order, as each kind there is.
pub fn relay_order(data: &[u8]) {
    let others = Arc::new(Others::default());
    let gathers = Gathers::new(Arc::clone(&others), Arc::new(RateLimit::new(None)));
    let scatters = Scatters::new(Arc::clone(&others));
    let dataset = DatasetId::new([7; 16]);
    for fragment in [FragmentIndex::WHOLE, FragmentIndex::new(1)] {
        let object = Object::Fragment(ChunkIndex::new(3), fragment);
        gathers.try_order(dataset, object, data);
        scatters.try_order(dataset, object, data);
    }
    let _ = order::read::<SpaceBody>(data, "it is none");
    let _ = order::read::<PassBody>(data, "it is none");
    let to = [
        order::read::<ForwardBody>(data, "it is none")
            .map(|order| (order.url, order.fingerprint, order.token)),
        order::read::<MeasureBody>(data, "it is none")
            .map(|order| (order.url, order.fingerprint, order.token)),
    ];
    for (url, fingerprint, token) in to.into_iter().flatten() {
        if let Err(refusal) = others.client(&url, &fingerprint, &token) {
            assert!(
                !refusal.message.contains(char::is_control),
                "it is more than a line"
            );
        }
    }
}
