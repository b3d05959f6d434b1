//! Places fragments on depots (`docs/algorithms/placement.md`). Each goes where it would be stored
//! first, as far as windows, space and one fragment of a chunk a depot allow. Fast depots have room
//! in their windows more often, so their share grows by itself.

pub(crate) mod lanes;
pub(crate) mod patience;
pub(crate) mod pinned;
pub(crate) mod placing;
pub(crate) mod rank;
pub(crate) mod room;
pub(crate) mod scatter;
pub(crate) mod tight;
pub(crate) mod whole;

use alloc::vec::Vec;
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex};

use crate::{
    contract::{Command, Outbox, Reason},
    decide,
    decide::dispatch::placing::Placing,
    decide::dispatch::scatter::Scatter,
    decide::dispatch::{placing::Rank, rank::is_open},
    state,
    state::{Flight, FlightKey, Route, State, Stripe, Tuning, Urgency},
};

/// Consecutive misses after which a depot counts as full for all requests.
pub(crate) const MISSES_MAX: u32 = 4 * MISS;

/// Weight of a request for which the depot has no room. One for which it has room, but that waits
/// for another depot, counts a sixteenth of that.
pub(crate) const MISS: u32 = 16;

/// Returns whether the depot has room for the next piece of the request.
pub(crate) fn could_take(state: &State, depot: DepotId, urgency: Urgency) -> bool {
    let Some(request) = state.requests.get(&urgency.request) else {
        return false;
    };
    let Some((lane, depot)) = request.lane_of(depot).zip(state.depots.get(&depot)) else {
        return false;
    };
    let bytes = request
        .replica
        .bytes_of(ChunkIndex::new(0), request.portion(lane));
    let id = request.lanes[lane].depot;
    let has_time = depot.resume_at <= state.now
        && depot.is_open_to(request, lane, state.now)
        && (request.is_due || !state::uplink::is_way_out_full(state));
    let may = request.uncommon.throttle.is_open(state.now)
        && request.can_pay(lane, depot, bytes, state.now);
    let is_open = |rank| is_open(request, lane, rank, depot, bytes, &state.settings);
    let (of, space) = (urgency.request, depot.space());
    let has_space = || state.index.has_space_for(of, id, space, bytes);
    has_time
        && may
        && is_open(Rank::First)
        && has_space()
        && is_open(decide::dispatch::rank::rank(state, urgency, id))
}

impl Placing<'_> {
    pub(crate) fn feed(&mut self, out: &mut Outbox) {
        self.send_whole(out);
        if !self.is_any_open() {
            return;
        }
        let waiting: Vec<ChunkIndex> = self
            .request
            .stripes
            .iter()
            .filter(|(_, stripe)| stripe.wanted != 0)
            .map(|(chunk, _)| *chunk)
            .collect();
        for chunk in waiting {
            if !self.fill(chunk, out) && !self.park_if_stuck(chunk) {
                // Room may just have been made.
                self.fill(chunk, out);
            }
        }
        self.open_stripes(out);
    }

    /// Marks the chunk as being sent.
    pub(crate) fn await_flights(&mut self, chunk: ChunkIndex, wanted: u64, taken: u64) {
        let stripe = Stripe {
            wanted,
            taken,
            failures: 0,
            last_fault: None,
        };
        self.request.replica.take_back(chunk);
        self.request.stripes.insert(chunk, stripe);
    }

    /// Returns whether any depot could take a fragment now.
    pub(crate) fn is_any_open(&self) -> bool {
        let mut lanes = self.request.depot_lanes();
        lanes.any(|lane| self.is_open(lane, Bytes::ZERO))
    }

    /// Opens chunks as long as one of their fragments can start at once.
    pub(crate) fn open_stripes(&mut self, out: &mut Outbox) {
        loop {
            if !self.request.has_memory(false, self.settings) || !self.is_any_open() {
                return;
            }
            let Some(chunk) = self.request.replica.next() else {
                return;
            };
            let (wanted, taken) = self.mask(chunk);
            if self.goes_whole_instead(chunk, wanted, taken) {
                self.request.replica.put_back(chunk);
                return;
            }
            match self.scatter(chunk, wanted, taken, out) {
                Scatter::Begun => continue,
                Scatter::Waits => {
                    self.request.replica.put_back(chunk);
                    return;
                }
                Scatter::No => self.await_flights(chunk, wanted, taken),
            }
            if wanted == 0 {
                continue;
            }
            let started = self.fill(chunk, out);
            if !started && !self.park_if_stuck(chunk) && !self.fill(chunk, out) {
                self.request.stripes.remove(&chunk);
                self.request.replica.put_back(chunk);
                return;
            }
        }
    }

    /// Starts as many wanted fragments of the chunk as depots have room for. Returns whether any
    /// started.
    pub(crate) fn fill(&mut self, chunk: ChunkIndex, out: &mut Outbox) -> bool {
        let mut started = false;
        while let Some(stripe) = self.request.stripes.get(&chunk)
            && stripe.wanted != 0
        {
            let bit = self.next_wanted(chunk, stripe.wanted).trailing_zeros();
            let fragment = FragmentIndex::new(u8::try_from(bit).unwrap_or(u8::MAX));
            let bytes = self.request.replica.bytes_of(chunk, fragment);
            let (wanted, taken) = (stripe.wanted, stripe.taken);
            let more = wanted.count_ones() - 1;
            let mut free = self.free(chunk, wanted, taken);
            // A depot that lacks only its turn or window is not waited for while others could take
            // it.
            free.retain(|&lane| self.is_ready(lane, bytes));
            let free = match self.tight(chunk, bytes) {
                Some(tight) => tight.best(&free, more),
                None => free,
            };
            let free = self.leaving_room(free, taken, more, bytes);
            let best = free
                .into_iter()
                .filter(|&lane| self.is_open(lane, bytes))
                .min_by_key(|&lane| {
                    let crowd = self.request.crowds(taken, lane);
                    let level = self.level(lane);
                    // The depot with the largest planned rest waits least, so that shares end
                    // together.
                    let planned = core::cmp::Reverse(self.request.quota_left(lane));
                    (crowd, level, planned, self.finish_micros(lane, bytes), lane)
                });
            let Some(lane) = best else { break };
            let reason = self.reason(chunk);
            self.start(lane, chunk, fragment, reason, out);
            if let Some(stripe) = self.request.stripes.get_mut(&chunk) {
                stripe.wanted &= !(1 << bit);
                stripe.taken |= 1 << lane;
            }
            started = true;
        }
        started
    }

    /// Sets aside a chunk that waits for an absent depot, so that others can go on.
    pub(crate) fn park_if_stuck(&mut self, chunk: ChunkIndex) -> bool {
        let Some(stripe) = self.request.stripes.get(&chunk) else {
            return false;
        };
        let bytes = self.request.replica.bytes_of(chunk, FragmentIndex::new(0));
        let free = self.free(chunk, stripe.wanted, stripe.taken);
        let can_go_on = stripe.wanted == 0 || free.iter().any(|&lane| self.is_fed(lane, bytes));
        let lacks_code = self.lost(chunk, stripe.wanted) != 0;
        if can_go_on || self.request.is_flying(chunk) {
            return false;
        }
        let fed = self.fed(bytes);
        if lacks_code && (self.request.replica).free_redundant(chunk, |lane| fed >> lane & 1 == 1) {
            let (wanted, taken) = self.mask(chunk);
            if let Some(stripe) = self.request.stripes.get_mut(&chunk) {
                (stripe.wanted, stripe.taken) = (wanted, taken);
            }
            return false;
        }
        if lacks_code && self.crowd(chunk, bytes) {
            return false;
        }
        self.request.stripes.remove(&chunk);
        self.request.replica.park(chunk);
        true
    }

    /// Lets another depot with room take a fragment of this chunk if only the failure domains leave
    /// no place for it. Any depot may still be lost, and nothing waits for ever. Returns whether
    /// that helps.
    pub(crate) fn crowd(&mut self, chunk: ChunkIndex, bytes: Bytes) -> bool {
        let Some(stripe) = self.request.stripes.get(&chunk) else {
            return false;
        };
        let taken = stripe.taken;
        let is_kept_free = self.is_kept_free(chunk, stripe.wanted, taken);
        let has_room = |lane: &usize| {
            let is_meant = !is_kept_free || self.request.is_pinned(*lane);
            is_meant && taken >> lane & 1 == 0 && self.is_fed(*lane, bytes)
        };
        let helps = self.request.depot_lanes().any(|lane| has_room(&lane));
        if helps {
            self.request.crowd_chunk(chunk);
        }
        helps
    }

    /// Returns whether a lane may get a fragment of this chunk, if fragments may lie `among` these
    /// lanes.
    pub(crate) fn is_free(&self, chunk: ChunkIndex, taken: u64, lane: usize, among: u64) -> bool {
        let most = self.request.domain_max + self.request.crowded_by(chunk);
        self.request.is_free_among(taken, lane, most, among)
    }

    /// Returns the lanes among which the fragments of this chunk find their places, as a mask: it
    /// matters only if depots fail together.
    pub(crate) fn among(&self, chunk: ChunkIndex) -> u64 {
        if self.request.uncommon.groups.is_empty() {
            return u64::MAX;
        }
        self.fed(self.request.replica.bytes_of(chunk, FragmentIndex::new(0)))
    }

    /// Returns the lanes whose depots are fed and could take `bytes` at some time, as a mask.
    pub(crate) fn fed(&self, bytes: Bytes) -> u64 {
        let lanes = self.request.depot_lanes();
        let fed = lanes.filter(|&lane| self.is_fed(lane, bytes));
        fed.fold(0, |mask, lane| mask | 1 << lane)
    }

    /// Books a flight from now on: the fragment, or the whole chunk for a relay that codes it. Then
    /// the whole send is paid though only the fragment is kept.
    pub(crate) fn begin_flight(
        &mut self,
        lane: usize,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
        is_scattered: bool,
    ) {
        let kept = self.request.replica.bytes_of(chunk, fragment);
        let bytes = match is_scattered {
            true => self.request.replica.bytes_of(chunk, FragmentIndex::WHOLE),
            false => kept,
        };
        let (depot, now) = (self.request.lanes[lane].depot, self.now);
        self.request.begin_flight(lane, chunk);
        let spare = self.request.spare(self.settings);
        self.request.uncommon.throttle.take(now, bytes, spare);
        let paid = self.depots.get(&depot);
        let keep_micro_usd = paid.map_or(0, |depot| {
            if is_scattered {
                let rest = depot.terms.sending().of(bytes - kept).micro_usd();
                let spent = &mut self.request.spent_micro_usd;
                *spent = spent.saturating_add(rest);
            }
            self.request.pay(depot, kept, now)
        });
        let fed = &mut self.request.lanes[lane];
        fed.is_used = true;
        let flight = Flight {
            fragment,
            bytes,
            since: now,
            keep_micro_usd,
            is_raised: fed.tuning.as_deref().is_some_and(Tuning::is_raised),
            is_scattered,
            is_recalled: false,
        };
        if let Some(link) = self.depots.get_mut(&depot).map(|depot| &mut depot.link) {
            link.begin_flight(now, &flight);
        }
        let key = FlightKey {
            depot,
            request: self.id,
            chunk,
        };
        self.transfers.start(key, flight);
    }

    pub(crate) fn start(
        &mut self,
        lane: usize,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
        reason: Reason,
        out: &mut Outbox,
    ) {
        self.begin_flight(lane, chunk, fragment, false);
        let depot = self.request.lanes[lane].depot;
        let could_go_on = match fragment {
            FragmentIndex::WHOLE => self.request.whole_lanes().count_ones() > 1,
            _ => self.request.push.is_some(),
        };
        if could_go_on && self.depots.get(&depot).is_some_and(|depot| depot.follows) {
            self.pushes.offer(self.id);
        }
        out.commands.push(Command::Send {
            request: self.id,
            depot,
            chunk,
            fragment,
            reason,
        });
    }

    pub(crate) fn reason(&self, chunk: ChunkIndex) -> Reason {
        let stripe = self.request.stripes.get(&chunk);
        let failed =
            stripe.and_then(|stripe| stripe.last_fault.map(|fault| (fault, stripe.failures)));
        match (failed, self.request.uncommon.last_lost) {
            (Some((fault, failures)), _) => Reason::Retry {
                fault,
                attempt: failures + 1,
            },
            (None, Some(lost)) if self.request.replica.is_damaged(chunk) => Reason::Repair { lost },
            _ => Reason::FinishesFirst,
        }
    }

    /// Returns the wanted fragments of the chunk, and the taken lanes, as masks.
    pub(crate) fn mask(&self, chunk: ChunkIndex) -> (u64, u64) {
        let mut wanted = self.request.replica.lost(chunk);
        if self.request.route == Route::Direct {
            wanted = 0;
        }
        let (mut taken, mut coming) = (0, 0);
        for (place, lane) in self.request.lanes.iter().enumerate() {
            if let Some(flight) = self.transfers.get(lane.depot, self.id, chunk) {
                (taken, coming) = (taken | 1 << place, coming | 1 << place);
                wanted &= if flight.fragment == FragmentIndex::WHOLE {
                    0
                } else {
                    !1u64.unbounded_shl(u32::from(flight.fragment.get()))
                };
            } else if let Some(pushed) = self.pushes.get(lane.depot, self.id, chunk) {
                (taken, coming) = (taken | 1 << place, coming | 1 << place);
                wanted &= match pushed.is_piece {
                    true => !1u64.unbounded_shl(u32::from(pushed.fragment.get())),
                    false => u64::MAX,
                };
            } else if self.request.replica.holds(place, chunk)
                && (self.request.is_pinned(place)
                    || !self.request.replica.is_redundant(place, chunk))
            {
                taken |= 1 << place;
            }
        }
        (wanted | self.for_pinned(chunk, wanted, coming), taken)
    }
}
