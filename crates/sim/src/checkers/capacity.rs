use std::collections::{BTreeMap, BTreeSet};

use posthaste_core::Settings;
use posthaste_types::{Bytes, ChunkIndex, DepotId, RequestId};

use super::{Found, ensure};

pub(super) const NAME: &str = "capacity never exceeded";

#[derive(Debug, Default)]
struct Flying {
    bytes: Bytes,
    count: u32,
    largest: Bytes,
}

/// Checker that depots store no more than their capacity, and that bytes in flight stay within the
/// windows.
#[derive(Debug)]
pub(crate) struct Capacity {
    window_max: Bytes,
    flights_max: u32,
    stripes_max: usize,
    push_bytes_max: Bytes,
    push_flights_max: u32,
    deliver_flights_max: usize,
    /// Fragments in flight from one depot to another.
    between: BTreeMap<(DepotId, DepotId), Flying>,
    flying: BTreeMap<DepotId, Flying>,
    open: BTreeMap<RequestId, BTreeMap<ChunkIndex, u32>>,
}

impl Capacity {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            window_max: settings.window_bytes_max,
            flights_max: settings.flights_max,
            stripes_max: settings.stripes_max as usize,
            push_bytes_max: settings.push_bytes_max,
            push_flights_max: settings.push_flights_max,
            deliver_flights_max: settings.deliver_flights_max as usize,
            between: BTreeMap::new(),
            flying: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }

    pub(crate) fn on_send(
        &mut self,
        depot: DepotId,
        request: RequestId,
        chunk: ChunkIndex,
        bytes: Bytes,
    ) -> Result<(), Found> {
        let flying = self.flying.entry(depot).or_default();
        flying.bytes += bytes;
        flying.count += 1;
        flying.largest = flying.largest.max(bytes);
        let most = self.window_max.max(flying.largest.times(2));
        ensure(NAME, flying.bytes <= most, || {
            format!(
                "{} in flight to {depot}, and {most} is the most",
                flying.bytes
            )
        })?;
        ensure(NAME, flying.count <= self.flights_max.max(2), || {
            format!("{} fragments in flight to {depot}", flying.count)
        })?;
        let open = self.open.entry(request).or_default();
        *open.entry(chunk).or_default() += 1;
        ensure(NAME, open.len() <= 2 * self.stripes_max, || {
            format!("{} chunks of {request} in memory at once", open.len())
        })
    }

    /// Checks a forward that a depot is ordered to start.
    pub(crate) fn on_forward(
        &mut self,
        from: DepotId,
        to: DepotId,
        bytes: Bytes,
    ) -> Result<(), Found> {
        let flying = self.between.entry((from, to)).or_default();
        flying.bytes += bytes;
        flying.count += 1;
        flying.largest = flying.largest.max(bytes);
        let most = self.push_bytes_max.max(flying.largest.times(2));
        let fits = flying.bytes <= most && flying.count <= self.push_flights_max.max(2);
        ensure(NAME, fits, || {
            format!(
                "{} fragments, {}, on their way from {from} to {to}",
                flying.count, flying.bytes
            )
        })
    }

    /// Checks the number of chunks in flight from other depots to a destination.
    pub(crate) fn on_delivery(&self, to: DepotId, count: usize) -> Result<(), Found> {
        ensure(NAME, count <= self.deliver_flights_max, || {
            format!("{count} chunks on their way to {to} from others")
        })
    }

    /// Records that a forward ended, successfully or not.
    pub(crate) fn on_forward_end(&mut self, from: DepotId, to: DepotId, bytes: Bytes) {
        if let Some(flying) = self.between.get_mut(&(from, to)) {
            flying.bytes -= bytes;
            flying.count = flying.count.saturating_sub(1);
        }
    }

    /// Records that a send ended, successfully or not.
    pub(crate) fn on_end(
        &mut self,
        depot: DepotId,
        request: RequestId,
        chunk: ChunkIndex,
        bytes: Bytes,
    ) {
        if let Some(flying) = self.flying.get_mut(&depot) {
            flying.bytes -= bytes;
            flying.count = flying.count.saturating_sub(1);
        }
        if let Some(open) = self.open.get_mut(&request)
            && let Some(count) = open.get_mut(&chunk)
        {
            *count -= 1;
            if *count == 0 {
                open.remove(&chunk);
                if open.is_empty() {
                    self.open.remove(&request);
                }
            }
        }
    }

    pub(crate) fn on_stored(
        &self,
        depot: DepotId,
        used: Bytes,
        capacity: Bytes,
    ) -> Result<(), Found> {
        ensure(NAME, used <= capacity, || {
            format!("{depot} holds {used} of {capacity}")
        })
    }

    /// Forgets all chunks in flight. Returns the depots that the driver had sends to.
    pub(crate) fn forget_all(&mut self) -> BTreeSet<DepotId> {
        self.open.clear();
        self.between.clear();
        std::mem::take(&mut self.flying).into_keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_between_two_depots_is_caught() {
        let settings = Settings {
            push_flights_max: 2,
            ..Settings::default()
        };
        let mut capacity = Capacity::new(&settings);
        let ends = (DepotId::new(1), DepotId::new(2));
        let mut go = || capacity.on_forward(ends.0, ends.1, Bytes::mebi(1));
        assert!(go().is_ok() && go().is_ok() && go().is_err());
    }

    #[test]
    fn too_much_in_flight_or_on_a_disk_is_caught() {
        let settings = Settings {
            flights_max: 3,
            ..Settings::default()
        };
        let mut capacity = Capacity::new(&settings);
        let (depot, request) = (DepotId::new(1), RequestId::new(1));
        let mut send =
            |chunk, bytes| capacity.on_send(depot, request, ChunkIndex::new(chunk), bytes);
        assert!(send(0, Bytes::mebi(200)).is_ok());
        assert!(
            send(1, Bytes::mebi(200)).is_ok(),
            "two fragments always may fly"
        );
        assert!(send(2, Bytes::mebi(1)).is_err());
        capacity.on_end(depot, request, ChunkIndex::new(0), Bytes::mebi(200));
        let mut send =
            |chunk| capacity.on_send(depot, request, ChunkIndex::new(chunk), Bytes::ZERO);
        assert!(send(3).is_ok());
        assert!(send(4).is_err(), "four flights of three");
        assert!(
            capacity
                .on_stored(depot, Bytes::new(2), Bytes::new(1))
                .is_err()
        );
    }
}
