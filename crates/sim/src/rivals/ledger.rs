//! State that every baseline keeps: fragments at depots, fragments in flight, reachable depots.

use std::{collections::BTreeMap, time::Duration};

use posthaste_core::contract::{
    Command, Input, Outbox, Reason, RequestSpec, RequestState, RequestView,
};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

use super::Pick;

/// Time without a stored fragment after which a depot with fragments in flight is left alone.
const STALL: Duration = Duration::from_secs(15);
/// Time for which a stalled depot is left alone.
const HOLD: Duration = Duration::from_secs(15);
/// Assumed rate of a depot without a measurement or a declared rate, in bytes a second.
const UNKNOWN_RATE: u64 = 10 << 20;

/// State of a depot.
#[derive(Debug)]
pub(super) struct Depot {
    pub(super) is_up: bool,
    /// Absence since its holdings were last requested.
    was_away: bool,
    pub(super) free: u64,
    flights: usize,
    flying: u64,
    progress: Timestamp,
    held_until: Timestamp,
    /// Recent or declared rate, in bytes a second.
    pub(super) rate: u64,
    is_measured: bool,
}

impl Depot {
    fn new(now: Timestamp, capacity: Bytes, rate: u64) -> Self {
        Self {
            is_up: false,
            was_away: false,
            free: capacity.get(),
            flights: 0,
            flying: 0,
            progress: now,
            held_until: now,
            rate,
            is_measured: false,
        }
    }

    /// Updates the moving mean of about five measurements. An unsaturated measurement is a lower
    /// bound.
    fn measure(&mut self, rate: u64, is_saturated: bool) {
        if !is_saturated {
            self.rate = self.rate.max(rate);
        } else if self.is_measured {
            self.rate = (4 * self.rate + rate) / 5;
        } else {
            self.rate = rate;
            self.is_measured = true;
        }
    }
}

/// Fragment at a depot or on its way there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) depot: DepotId,
    pub(super) fragment: FragmentIndex,
    pub(super) is_stored: bool,
}

/// State of a request.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) spec: RequestSpec,
    submitted: Timestamp,
    /// Places of the fragments of each chunk.
    pub(super) chunks: Vec<Vec<Place>>,
    pub(super) safe_at: Option<Timestamp>,
    state: RequestState,
}

impl Order {
    pub(super) fn is_moving(&self) -> bool {
        self.state == RequestState::Moving
    }

    fn is_safe(&self, chunk: usize) -> bool {
        let stored = self.chunks[chunk].iter().filter(|place| place.is_stored);
        let fragments = stored
            .clone()
            .filter(|place| place.fragment != FragmentIndex::WHOLE);
        let whole = stored.filter(|place| place.fragment == FragmentIndex::WHOLE);
        let (whole, code) = (whole.count(), self.spec.code);
        whole > usize::from(code.parity()) || fragments.count() + whole >= usize::from(code.total())
    }

    /// Returns the first chunk that is neither whole at the destination nor on its way there.
    pub(super) fn next_whole(&self) -> Option<usize> {
        (0..self.chunks.len()).find(|&chunk| {
            let mut places = self.chunks[chunk].iter();
            !places.any(|place| place.fragment == FragmentIndex::WHOLE) && !self.is_safe(chunk)
        })
    }

    /// Returns the indexes of a chunk's fragments that are neither stored nor in flight.
    pub(super) fn missing(&self, chunk: usize) -> impl Iterator<Item = u8> {
        let places = &self.chunks[chunk];
        let is_whole = places
            .iter()
            .any(|place| place.fragment == FragmentIndex::WHOLE);
        let has = |index: u8| {
            places
                .iter()
                .any(|place| place.fragment == FragmentIndex::new(index))
        };
        let is_safe = is_whole && self.spec.code.parity() == 0;
        (0..self.spec.code.total()).filter(move |&index| !is_safe && !has(index))
    }

    /// Returns whether a depot has a fragment of a chunk, or will.
    pub(super) fn has(&self, chunk: usize, depot: DepotId) -> bool {
        self.chunks[chunk].iter().any(|place| place.depot == depot)
    }
}

#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) now: Timestamp,
    depots: BTreeMap<DepotId, Depot>,
    pub(super) orders: BTreeMap<RequestId, Order>,
    /// Number of fragments, stored or in flight, that were lost.
    pub(super) losses: u64,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            now: Timestamp::from_micros(0),
            depots: BTreeMap::new(),
            orders: BTreeMap::new(),
            losses: 0,
        }
    }
}

impl Ledger {
    /// Returns the depots that accept fragments now.
    pub(super) fn depots(&self) -> Vec<DepotId> {
        let usable = self
            .depots
            .keys()
            .copied()
            .filter(|depot| self.is_usable(*depot));
        usable.collect()
    }

    pub(super) fn is_usable(&self, depot: DepotId) -> bool {
        let is_free = |depot: &Depot| depot.is_up && depot.held_until <= self.now;
        self.depots.get(&depot).is_some_and(is_free)
    }

    pub(super) fn depot(&self, depot: DepotId) -> Option<&Depot> {
        self.depots.get(&depot)
    }

    pub(super) fn flights(&self, depot: DepotId) -> usize {
        self.depots.get(&depot).map_or(0, |depot| depot.flights)
    }

    pub(super) fn is_moving(&self, request: RequestId) -> bool {
        self.orders.get(&request).is_some_and(Order::is_moving)
    }

    /// Returns the moving requests, in the order they came.
    pub(super) fn moving(&self) -> impl Iterator<Item = (RequestId, &Order)> {
        let orders = self.orders.iter().filter(|(_, order)| order.is_moving());
        orders.map(|(request, order)| (*request, order))
    }

    fn bytes(&self, pick: Pick) -> u64 {
        let Some(order) = self.orders.get(&pick.request) else {
            return 0;
        };
        let size = order
            .spec
            .chunk_bytes(u32::try_from(pick.chunk).unwrap_or(u32::MAX));
        if pick.fragment == FragmentIndex::WHOLE {
            size.get()
        } else {
            order.spec.code.fragment_size(size).get()
        }
    }

    /// Records a fragment as in flight. Returns false if the depot has no room for it.
    pub(super) fn start(&mut self, depot: DepotId, pick: Pick) -> bool {
        let bytes = self.bytes(pick);
        let now = self.now;
        let Some(to) = self.depots.get_mut(&depot) else {
            return false;
        };
        if to.free < to.flying + bytes {
            return false;
        }
        if to.flights == 0 {
            to.progress = now;
        }
        to.flights += 1;
        to.flying += bytes;
        if let Some(order) = self.orders.get_mut(&pick.request) {
            order.chunks[pick.chunk].push(Place {
                depot,
                fragment: pick.fragment,
                is_stored: false,
            });
        }
        true
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "rivals make no use of what else the mind is told"
    )]
    pub(super) fn take(&mut self, input: &Input, out: &mut Outbox) {
        match input {
            Input::DepotAdded {
                depot,
                capacity,
                rate_max,
                ..
            } => {
                let rate = rate_max.map_or(UNKNOWN_RATE, ByteRate::get);
                let new = Depot::new(self.now, *capacity, rate);
                self.depots.insert(*depot, new);
            }
            Input::DepotUp { depot, free, .. } => self.on_up(*depot, *free, out),
            Input::DepotDown { depot, .. } => self.on_down(*depot, out),
            Input::DepotInventory {
                depot,
                request,
                held,
            } => self.on_inventory(*depot, *request, held),
            Input::RequestSubmitted { request, spec }
            | Input::RequestSubmittedWith { request, spec, .. }
            | Input::RequestAsked { request, spec, .. }
            | Input::RequestAskedBy { request, spec, .. }
            | Input::RequestPinned { request, spec, .. } => {
                let order = Order {
                    chunks: vec![Vec::new(); spec.chunks() as usize],
                    spec: spec.clone(),
                    submitted: self.now,
                    safe_at: None,
                    state: RequestState::Moving,
                };
                self.orders.insert(*request, order);
            }
            Input::FragmentStored {
                request,
                depot,
                chunk,
                fragment,
            } => {
                self.on_answer(*depot, *request, *chunk, *fragment, true);
            }
            Input::FragmentFailed {
                request,
                depot,
                chunk,
                fragment,
                ..
            } => {
                self.on_answer(*depot, *request, *chunk, *fragment, false);
            }
            Input::Throughput {
                depot,
                bytes,
                window,
                saturated,
            } => {
                if let Some(depot) = self.depots.get_mut(depot) {
                    depot.measure(ByteRate::over(*bytes, *window).get(), *saturated);
                }
            }
            _ => {}
        }
    }

    fn on_up(&mut self, depot: DepotId, free: Bytes, out: &mut Outbox) {
        let Some(known) = self.depots.get_mut(&depot) else {
            return;
        };
        known.is_up = true;
        known.free = free.get();
        if !std::mem::take(&mut known.was_away) {
            return;
        }
        for (request, order) in &self.orders {
            let is_used =
                order.spec.via.contains(&depot) || order.spec.destinations.contains(&depot);
            if order.is_moving() && is_used {
                out.commands.push(Command::Inventory {
                    request: *request,
                    depot,
                    reason: Reason::Asked,
                });
            }
        }
    }

    fn on_down(&mut self, depot: DepotId, out: &mut Outbox) {
        if let Some(known) = self.depots.get_mut(&depot) {
            known.is_up = false;
            known.was_away = true;
        }
        self.abandon(depot, true, out);
    }

    /// Gives up fragments in flight to a depot, and with `all` those stored there until its
    /// inventory is known.
    fn abandon(&mut self, depot: DepotId, all: bool, out: &mut Outbox) {
        self.losses += 1;
        if let Some(known) = self.depots.get_mut(&depot) {
            (known.flights, known.flying) = (0, 0);
        }
        for (request, order) in &mut self.orders {
            let is_flying = |place: &Place| place.depot == depot && !place.is_stored;
            if order.chunks.iter().flatten().any(is_flying) {
                out.commands.push(Command::Abandon {
                    request: *request,
                    depot,
                    reason: Reason::Asked,
                });
            }
            if order.is_moving() {
                for places in &mut order.chunks {
                    places.retain(|place| place.depot != depot || place.is_stored && !all);
                }
            }
        }
    }

    fn on_inventory(
        &mut self,
        depot: DepotId,
        request: RequestId,
        held: &[(ChunkIndex, FragmentIndex)],
    ) {
        let Some(order) = self.orders.get_mut(&request) else {
            return;
        };
        for &(chunk, fragment) in held {
            let places = &mut order.chunks[chunk.get() as usize];
            let is_known = places
                .iter()
                .any(|place| place.depot == depot || place.fragment == fragment);
            if !is_known {
                places.push(Place {
                    depot,
                    fragment,
                    is_stored: true,
                });
            }
        }
        self.settle(request);
    }

    fn on_answer(
        &mut self,
        depot: DepotId,
        request: RequestId,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
        is_stored: bool,
    ) {
        let chunk = chunk.get() as usize;
        let bytes = self.bytes(Pick {
            request,
            chunk,
            fragment,
        });
        let Some(order) = self.orders.get_mut(&request) else {
            return;
        };
        let is_it =
            |place: &Place| place.depot == depot && place.fragment == fragment && !place.is_stored;
        let Some(found) = order.chunks[chunk].iter().position(is_it) else {
            return;
        };
        if is_stored {
            order.chunks[chunk][found].is_stored = true;
        } else {
            order.chunks[chunk].remove(found);
            self.losses += 1;
        }
        if let Some(known) = self.depots.get_mut(&depot) {
            known.flights = known.flights.saturating_sub(1);
            known.flying = known.flying.saturating_sub(bytes);
            if is_stored {
                known.progress = self.now;
                known.free = known.free.saturating_sub(bytes);
            } else if known.flights == 0 {
                // Nothing gets through, so a pause is needed: each rejection would cause the same
                // send again.
                known.held_until = self.now + Duration::from_secs(1);
            }
        }
        self.settle(request);
    }

    /// Marks a request as safe if all its chunks are.
    fn settle(&mut self, request: RequestId) {
        let now = self.now;
        if let Some(order) = self.orders.get_mut(&request)
            && order.is_moving()
            && (0..order.chunks.len()).all(|chunk| order.is_safe(chunk))
        {
            order.safe_at = Some(now);
            order.state = RequestState::Safe;
        }
    }

    /// Leaves depots alone that store none of the fragments in flight to them.
    pub(super) fn drop_stalled(&mut self, out: &mut Outbox) {
        let now = self.now;
        let is_stalled = |depot: &Depot| depot.flights > 0 && depot.progress + STALL < now;
        let stalled = self.depots.iter().filter(|(_, depot)| is_stalled(depot));
        for depot in stalled.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.abandon(depot, false, out);
            if let Some(known) = self.depots.get_mut(&depot) {
                known.held_until = now + HOLD;
            }
        }
    }

    pub(super) fn views(&self) -> Vec<RequestView> {
        let view = |(request, order): (&RequestId, &Order)| {
            let safe = (0..order.chunks.len()).filter(|&chunk| order.is_safe(chunk));
            RequestView {
                request: *request,
                spec: order.spec.clone(),
                wishes: posthaste_core::contract::Wishes::default(),
                pinned: Vec::new(),
                omissions: Vec::new(),
                state: order.state,
                paused: None,
                at_risk: false,
                is_unsafe: false,
                chunks_out_of_reach: 0,
                source_kept: false,
                has_tried_release: false,
                missed: order.safe_at.is_none_or(|at| at > order.spec.deadline),
                submitted: order.submitted,
                safe_at: order.safe_at,
                finish: None,
                chunks_safe: u32::try_from(safe.count()).unwrap_or(u32::MAX),
                chunks_repaired: 0,
                duplicates: 0,
                spent_micro_usd: 0,
                purge_at: None,
                cost: posthaste_core::contract::Cost::default(),
                delivery: None,
                shares: Vec::new(),
            }
        };
        self.orders.iter().map(view).collect()
    }
}
