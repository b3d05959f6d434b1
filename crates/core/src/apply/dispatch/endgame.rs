//! Sends late fragments a second time when nothing else is left to send.

use alloc::vec::Vec;
use posthaste_types::{Bytes, ChunkIndex, FragmentIndex, RequestId};

use crate::{
    apply,
    contract::{Outbox, Reason},
    decide::dispatch::placing::Placing,
    state::State,
};

/// Sends late fragments a second time when nothing else is left to send
/// (`docs/algorithms/greedy-planner.md`). They go to a depot that would have them in half the
/// time, at most twice as many as depots are fed.
pub(crate) fn send_duplicates(state: &mut State, id: RequestId, out: &mut Outbox) {
    if let Some(mut placing) = apply::dispatch::placing::placing(state, id)
        && placing.request.replica.is_all_open()
        && placing
            .request
            .stripes
            .values()
            .all(|stripe| stripe.wanted == 0)
    {
        placing.duplicate_late(out);
    }
}

impl Placing<'_> {
    pub(crate) fn duplicate_late(&mut self, out: &mut Outbox) {
        let most = 2 * self.request.fan_out();
        let open: Vec<ChunkIndex> = self.request.stripes.keys().copied().collect();
        for chunk in open {
            for from in 0..self.request.lanes.len() {
                if self.request.uncommon.duplicates >= most {
                    return;
                }
                self.duplicate(chunk, from, out);
            }
        }
    }

    pub(crate) fn duplicate(&mut self, chunk: ChunkIndex, from: usize, out: &mut Outbox) {
        let depot = self.request.lanes[from].depot;
        let flight = self.transfers.get(depot, self.id, chunk).copied();
        // One fragment more from here would not complete a chunk that is coded elsewhere. Nor would
        // one elsewhere replace a fragment missing at a pinned depot.
        let is_of_use = !self.request.is_pinned(from);
        let Some(flight) = flight.filter(|flight| !flight.is_scattered && is_of_use) else {
            return;
        };
        let Some(stripe) = self.request.stripes.get(&chunk) else {
            return;
        };
        let taken = stripe.taken;
        let left_micros = self.finish_micros(from, Bytes::ZERO);
        let is_whole = flight.fragment == FragmentIndex::WHOLE;
        let portion = |lane: usize| {
            if self.request.is_destination(lane) {
                FragmentIndex::WHOLE
            } else {
                flight.fragment
            }
        };
        let bytes = |lane: usize| self.request.replica.bytes_of(chunk, portion(lane));
        let may_take = |lane: usize| {
            let may_take = match self.request.is_destination(lane) {
                true => taken >> lane & 1 == 0 && self.request.replica.is_holder(lane),
                false => !is_whole && self.request.is_free(taken, lane),
            };
            may_take && !self.is_coming(lane, chunk)
        };
        let other = (0..self.request.lanes.len())
            .filter(|&lane| may_take(lane) && self.is_open(lane, bytes(lane)))
            .min_by_key(|&lane| (self.finish_micros(lane, bytes(lane)), lane));
        let Some(other) = other else {
            // Its fragments would have to start at one moment, and be paid.
            let is_bound = self.request.wishes.rate_max.is_some()
                || self.request.wishes.budget_micro_usd.is_some();
            if is_whole && !is_bound && self.request.uncommon.pinned.is_empty() {
                self.code_late(chunk, left_micros, out);
            }
            return;
        };
        if self.finish_micros(other, bytes(other)).saturating_mul(2) > left_micros {
            return;
        }
        if !self.can_spare(other, bytes(other)) {
            return;
        }
        let fragment = portion(other);
        self.start(other, chunk, fragment, Reason::Endgame, out);
        self.request.uncommon.duplicates += 1;
        if let Some(stripe) = self.request.stripes.get_mut(&chunk) {
            stripe.taken |= 1 << other;
        }
    }

    /// Returns whether others bring something of a chunk to the depot of a lane: they may have
    /// begun after the chunk was opened.
    pub(crate) fn is_coming(&self, lane: usize, chunk: ChunkIndex) -> bool {
        let depot = self.request.lanes[lane].depot;
        self.pushes.get(depot, self.id, chunk).is_some()
    }

    /// Returns whether a second copy leaves the money that everything else may take.
    pub(crate) fn can_spare(&self, lane: usize, bytes: Bytes) -> bool {
        if self.request.wishes.budget_micro_usd.is_none() {
            return true;
        }
        let price = |lane: usize, bytes: Bytes| {
            let depot = self.depots.get(&self.request.lanes[lane].depot);
            depot.map_or(0, |depot| self.request.price(depot, bytes, self.now))
        };
        let fragment = self
            .request
            .replica
            .bytes_of(ChunkIndex::new(0), FragmentIndex::new(0));
        let lanes = (0..self.request.lanes.len()).filter(|&lane| !self.request.is_barred(lane));
        let dearest = lanes.map(|lane| price(lane, fragment)).max().unwrap_or(0);
        let rest = dearest.saturating_mul(self.request.replica.missing());
        rest.saturating_add(price(lane, bytes)) <= self.request.money_left()
    }

    /// Sends a chunk in fragments that is late on its way to the destination.
    pub(crate) fn code_late(&mut self, chunk: ChunkIndex, left_micros: u64, out: &mut Outbox) {
        let bytes = self.request.replica.bytes_of(chunk, FragmentIndex::new(0));
        let Some(stripe) = self.request.stripes.get(&chunk) else {
            return;
        };
        let mut taken = stripe.taken;
        let wanted = self.request.replica.lacking(chunk);
        let bits =
            (0..u32::from(self.request.spec.code.total())).filter(|bit| wanted >> bit & 1 == 1);
        let mut sends = Vec::new();
        for bit in bits {
            let lanes = self.request.depot_lanes();
            let may_take = |lane: &usize| {
                let is_free = self.request.is_free(taken, *lane);
                is_free && !self.is_coming(*lane, chunk) && self.is_open(*lane, bytes)
            };
            let best = lanes
                .filter(may_take)
                .min_by_key(|&lane| (self.finish_micros(lane, bytes), lane));
            let Some(lane) = best
                .filter(|&lane| self.finish_micros(lane, bytes).saturating_mul(2) <= left_micros)
            else {
                return;
            };
            taken |= 1 << lane;
            sends.push((
                lane,
                FragmentIndex::new(u8::try_from(bit).unwrap_or(u8::MAX)),
            ));
        }
        for (lane, fragment) in sends {
            self.start(lane, chunk, fragment, Reason::Endgame, out);
        }
        self.request.uncommon.duplicates += 1;
        if let Some(stripe) = self.request.stripes.get_mut(&chunk) {
            stripe.taken = taken;
        }
    }
}
