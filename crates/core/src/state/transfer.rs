use alloc::{collections::BTreeMap, vec::Vec};
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp, record};

record! {
    /// Key of a send: a depot gets at most one fragment of a chunk.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct FlightKey {
        pub(crate) depot: DepotId,
        pub(crate) request: RequestId,
        pub(crate) chunk: ChunkIndex,
    }
}

record! {
    /// Fragment on its way.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Flight {
        pub(crate) fragment: FragmentIndex,
        pub(crate) bytes: Bytes,
        pub(crate) since: Timestamp,
        /// Counted cost of keeping it, in millionths of a dollar.
        pub(crate) keep_micro_usd: u64,
        /// True if its request's optimizer wants more in flight than fits into a window.
        pub(crate) is_raised: bool,
        /// True if all of the chunk is on its way, to be coded there; the fragment is what the
        /// relay keeps.
        pub(crate) is_scattered: bool,
        /// True if it was recalled, which is too late if it has left.
        pub(crate) is_recalled: bool,
    }
}

impl Flight {
    /// Returns the flight of a whole chunk that is read from a source.
    pub(crate) fn of_chunk(bytes: Bytes, since: Timestamp) -> Self {
        Self {
            fragment: FragmentIndex::WHOLE,
            bytes,
            since,
            is_raised: false,
            is_scattered: false,
            is_recalled: false,
            keep_micro_usd: 0,
        }
    }
}

record! {
    /// Everything in flight. Bounded by the windows of the depots.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Transfers {
        flights: BTreeMap<FlightKey, Flight>,
    }
}

impl Transfers {
    pub(crate) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    pub(crate) fn get(
        &self,
        depot: DepotId,
        request: RequestId,
        chunk: ChunkIndex,
    ) -> Option<&Flight> {
        self.flights.get(&FlightKey {
            depot,
            request,
            chunk,
        })
    }

    pub(crate) fn start(&mut self, key: FlightKey, flight: Flight) {
        let before = self.flights.insert(key, flight);
        assert!(
            before.is_none(),
            "a depot gets one fragment of a chunk at a time"
        );
    }

    /// Marks the flight as recalled.
    pub(crate) fn recall(&mut self, key: &FlightKey) {
        if let Some(flight) = self.flights.get_mut(key) {
            flight.is_recalled = true;
        }
    }

    /// Ends the flight if it carries this fragment.
    pub(crate) fn end(&mut self, key: FlightKey, fragment: FragmentIndex) -> Option<Flight> {
        if self.flights.get(&key)?.fragment == fragment {
            self.flights.remove(&key)
        } else {
            None
        }
    }

    /// Ends every flight to the depot, of one request or of all.
    pub(crate) fn end_all(
        &mut self,
        depot: DepotId,
        request: Option<RequestId>,
    ) -> Vec<(FlightKey, Flight)> {
        let keys: Vec<FlightKey> = self.to(depot, request).map(|(key, _)| key).collect();
        keys.into_iter()
            .filter_map(|key| self.flights.remove(&key).map(|flight| (key, flight)))
            .collect()
    }

    /// Returns the flights to the depot, of one request or of all.
    pub(crate) fn to(
        &self,
        depot: DepotId,
        request: Option<RequestId>,
    ) -> impl Iterator<Item = (FlightKey, Flight)> + '_ {
        let first = FlightKey {
            depot,
            request: request.unwrap_or_default(),
            chunk: ChunkIndex::default(),
        };
        self.flights
            .range(first..)
            .take_while(move |(key, _)| {
                key.depot == depot && request.is_none_or(|request| key.request == request)
            })
            .map(|(key, flight)| (*key, *flight))
    }
}
