//! Progress of a request by byte, for views of its files.

use alloc::vec::Vec;
use core::ops::Range;
use posthaste_types::{Bytes, ChunkIndex, RequestId};

use crate::{
    Mind,
    contract::{ArrivalState, RequestState},
    state::{Arrival, Request},
};

impl Mind {
    /// Returns which bytes of a request's stream are safe, or of a stage-in here: in order, with
    /// neighbours joined. Stage-outs are cut into chunks of this size. None if it is unknown.
    /// Visits each of its chunks.
    #[must_use]
    pub fn done(&self, id: RequestId, chunk_size: Bytes) -> Option<Vec<Range<u64>>> {
        let request = self.state.requests.get(&id);
        let request = request.map(|request| joined(safe(request, chunk_size)));
        let arrival = || self.state.arrivals.requests.get(&id);
        request.or_else(|| arrival().map(|arrival| joined(here(arrival))))
    }
}

/// Range that covers everything.
const WHOLE: Range<u64> = 0..u64::MAX;

fn safe(request: &Request, chunk_size: Bytes) -> Vec<Range<u64>> {
    match request.state {
        RequestState::Refused | RequestState::Cancelled | RequestState::Failed => Vec::new(),
        // Holdings of depots are no longer in the books.
        RequestState::Delivered => [WHOLE].into(),
        RequestState::Moving | RequestState::Safe | RequestState::Released => {
            let size = chunk_size.get();
            let chunks = (0..request.replica.chunks()).map(ChunkIndex::new);
            let safe = chunks.filter(|chunk| request.replica.lost(*chunk) == 0);
            let starts = safe.map(|chunk| u64::from(chunk.get()).saturating_mul(size));
            starts
                .map(|start| start..start.saturating_add(size))
                .collect()
        }
    }
}

fn here(arrival: &Arrival) -> Vec<Range<u64>> {
    match arrival.state {
        ArrivalState::Arrived | ArrivalState::Released => [WHOLE].into(),
        // The files written so far are removed.
        ArrivalState::Refused | ArrivalState::Cancelled | ArrivalState::Failed => Vec::new(),
        ArrivalState::Waiting | ArrivalState::Moving | ArrivalState::Landing => {
            let cut = arrival.cut.iter();
            let here = cut.flat_map(|cut| arrival.here.members().map(|chunk| cut.range(chunk)));
            here.collect()
        }
    }
}

/// Joins ranges that lie beside each other.
fn joined(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}
