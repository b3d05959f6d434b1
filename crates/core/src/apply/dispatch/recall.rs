//! Recalls fragments that wait for a path that has become slow (`docs/algorithms/placement.md`).
//! They were sent when the path seemed to carry them within seconds, and other depots would have
//! them sooner now.

use alloc::{collections::BTreeMap, format, vec::Vec};
use core::{cmp::Reverse, time::Duration};
use posthaste_types::{Bytes, DepotId, FragmentIndex, RequestId};

use crate::{
    apply,
    contract::{Command, Outbox, Reason},
    decide::dispatch::placing::Placing,
    state,
    state::{Depot, Flight, FlightKey, State},
};

/// Fragments that stay on their way, so that the path never idles.
const STAY_MIN: u32 = 2;

/// Multiple of the longest window that must be on its way to a depot: less is within the error of a
/// forecast.
const WINDOWS_MIN: u32 = 2;

/// Recalls the last sends to depots to which far more is on its way than their paths carry in a
/// window. Others must have them in half the time. Each send is recalled once: what has left
/// already goes on.
pub(crate) fn recall_waiting(state: &mut State, out: &mut Outbox) {
    let most = state.settings.window_raised.saturating_mul(WINDOWS_MIN);
    let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
    let is_behind = |depot: &Depot| {
        let link = &depot.link;
        depot.is_up() && link.flights > STAY_MIN && link.finish_micros(Bytes::ZERO) > most
    };
    let behind = state.depots.iter().filter(|(_, depot)| is_behind(depot));
    let behind: Vec<DepotId> = behind.map(|(id, _)| *id).collect();
    for depot in behind {
        recall_from(state, depot, out);
    }
}

fn recall_from(state: &mut State, id: DepotId, out: &mut Outbox) {
    let Some(depot) = state.depots.get(&id) else {
        return;
    };
    let (mut stays, mut left) = (depot.link.flights, depot.link.in_flight);
    let window = depot.link.window(state.settings.window, &state.settings);
    let waits = Duration::from_micros(depot.link.finish_micros(Bytes::ZERO));
    let mut last_first: Vec<(FlightKey, Flight)> = state.transfers.to(id, None).collect();
    last_first.sort_by_cached_key(|(key, flight)| {
        Reverse((state.index.urgency(key.request), flight.since, key.chunk))
    });
    let mut recalled: BTreeMap<RequestId, u32> = BTreeMap::new();
    for (key, flight) in last_first {
        if stays <= STAY_MIN || left <= window {
            break;
        }
        (stays, left) = (stays - 1, left - flight.bytes);
        let placing = apply::dispatch::placing::placing(state, key.request);
        if flight.is_recalled
            || !placing.is_some_and(|placing| placing.is_sooner_elsewhere(&key, &flight))
        {
            continue;
        }
        state.transfers.recall(&key);
        *recalled.entry(key.request).or_default() += 1;
        out.commands.push(Command::Recall {
            request: key.request,
            depot: id,
            chunk: key.chunk,
            fragment: flight.fragment,
            reason: Reason::Slowed { waits },
        });
    }
    let name = state::names::name_of(state, id);
    for (request, count) in recalled {
        let what = match count {
            1 => format!("a fragment for {name} is asked back"),
            _ => format!("{count} fragments for {name} are asked back"),
        };
        state::memory::remember(state, request, what, Reason::Slowed { waits });
    }
}

impl Placing<'_> {
    /// Returns whether depots that lack this chunk would have the fragment in half the time.
    pub(crate) fn is_sooner_elsewhere(&self, key: &FlightKey, flight: &Flight) -> bool {
        let Some((from, stripe)) = self
            .request
            .lane_of(key.depot)
            .zip(self.request.stripes.get(&key.chunk))
        else {
            return false;
        };
        if flight.is_scattered || self.request.is_pinned(from) {
            return false;
        }
        let is_whole = flight.fragment == FragmentIndex::WHOLE;
        let fragment = match is_whole {
            true => FragmentIndex::new(0),
            false => flight.fragment,
        };
        let bytes = self.request.replica.bytes_of(key.chunk, fragment);
        let within = self.finish_micros(from, Bytes::ZERO) / 2;
        let among = self.among(key.chunk);
        let is_sooner = |&lane: &usize| {
            self.finish_micros(lane, bytes) <= within
                && self.request.quota_left(lane) != Some(0)
                && self.is_free(key.chunk, stripe.taken, lane, among)
                && self.is_fed(lane, bytes)
        };
        let wanted = match is_whole {
            true => usize::from(self.request.spec.code.total()),
            false => 1,
        };
        self.request
            .depot_lanes()
            .filter(is_sooner)
            .take(wanted)
            .count()
            == wanted
    }
}
