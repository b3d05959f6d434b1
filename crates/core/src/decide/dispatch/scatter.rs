//! Sends chunks whole to relays that code them and send the fragments on
//! (`docs/algorithms/scatter.md`).
//!
//! The books count the chunk on its way to the relay as a send of the fragment that the relay
//! keeps. They count each fragment that the relay sends on as one that goes from depot to depot.
//! Each fragment counts once it is stored, and each that fails is sent from here.

use alloc::vec::Vec;
use posthaste_plan::scatter::{self, Coder};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex};

use crate::decide::dispatch::placing::Placing;
use crate::{
    contract::{Command, Encode, Outbox, Reason},
    state::{Depot, FlightKey, Forwarded},
};

/// Most relays looked at for one chunk: those that would have it first.
const CODERS_MAX: usize = 8;

/// Decision about a chunk that could be coded at a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scatter {
    /// Begun: the chunk is on its way to a relay.
    Begun,
    /// Waiting is worth it, as a relay will soon have room for it.
    Waits,
    /// No coding at a relay.
    No,
}

/// Relay that could code a chunk, and where its fragments would go.
struct Choice {
    lane: usize,
    takers: Vec<usize>,
    coder: Coder,
}

impl Placing<'_> {
    /// Sends the chunk to a relay that codes it, if relays should and one can.
    pub(super) fn scatter(
        &mut self,
        chunk: ChunkIndex,
        wanted: u64,
        taken: u64,
        out: &mut Outbox,
    ) -> Scatter {
        let code = self.request.spec.code;
        let fragment = self.request.replica.bytes_of(chunk, FragmentIndex::new(0));
        let may = self.settings.encode != Encode::Centre
            && scatter::spares(code, wanted.count_ones())
            // Relays may hold fragments of changed chunks that no other relay replaces.
            && self.request.uncommon.renewed.is_empty()
            // If space is tight, space decides over paths.
            && self.tight(chunk, fragment).is_none();
        if !may {
            return Scatter::No;
        }
        let choices = self.choices(chunk, wanted, taken);
        if choices.is_empty() || !self.is_worth_scattering(wanted, &choices) {
            return Scatter::No;
        }
        let whole = self.request.replica.bytes_of(chunk, FragmentIndex::WHOLE);
        for choice in choices {
            if !self.is_open(choice.lane, whole) {
                continue;
            }
            if let Some(takers) = self.takers(choice.lane, chunk, wanted, taken, true) {
                self.start_scatter(choice.lane, &takers, chunk, wanted, taken, out);
                return Scatter::Begun;
            }
        }
        Scatter::Waits
    }

    /// Returns relays that could code the chunk, now or once they have room, in the order in which
    /// they would have it.
    fn choices(&self, chunk: ChunkIndex, wanted: u64, taken: u64) -> Vec<Choice> {
        let whole = self.request.replica.bytes_of(chunk, FragmentIndex::WHOLE);
        let among = self.among(chunk);
        let could = |&lane: &usize| {
            let depot = self.request.lanes[lane].depot;
            self.is_free(chunk, taken, lane, among)
                && self.is_fed(lane, whole)
                && self.is_ready(lane, whole)
                && self.relays_for_free(lane)
                && self.pushes.may_code(depot, self.now)
                && self.depots.get(&depot).is_some_and(|depot| !depot.stores)
        };
        let mut lanes: Vec<usize> = self.request.depot_lanes().filter(could).collect();
        lanes.sort_by_key(|&lane| (self.level(lane), self.finish_micros(lane, whole), lane));
        let nearest = lanes.first().map(|&lane| self.level(lane));
        lanes.retain(|&lane| Some(self.level(lane)) == nearest);
        lanes.truncate(CODERS_MAX);
        let choice = |lane: usize| {
            let takers = self.takers(lane, chunk, wanted, taken, false)?;
            let slowest = takers.iter().map(|&taker| self.rate_between(lane, taker));
            let depot = self.depots.get(&self.request.lanes[lane].depot)?;
            let coder = Coder {
                rate: depot.link.rates.p50,
                slowest: slowest.min().unwrap_or(ByteRate::ZERO),
            };
            Some(Choice {
                lane,
                takers,
                coder,
            })
        };
        lanes.into_iter().filter_map(choice).collect()
    }

    /// Returns whether coding at a relay is worth it, now that one could.
    fn is_worth_scattering(&self, wanted: u64, choices: &[Choice]) -> bool {
        match self.settings.encode {
            Encode::Centre => false,
            Encode::Relays => choices.iter().any(|choice| !choice.takers.is_empty()),
            Encode::Auto => {
                let own = self.request.wishes.rate_max;
                let limit = self.settings.egress.into_iter().chain(own).min();
                let fed = self.request.depot_lanes();
                let fed = fed.filter(|&lane| self.is_fed(lane, Bytes::ZERO));
                let rates = fed.filter_map(|lane| {
                    let depot = self.depots.get(&self.request.lanes[lane].depot)?;
                    Some(depot.link.rates.p50)
                });
                let fragments = wanted.count_ones();
                let is_begun = self.request.uncommon.is_scattered || self.pushes.has_pieces();
                let code = self.request.spec.code;
                let coders = choices.iter().map(|choice| choice.coder);
                limit.is_some_and(|limit| {
                    scatter::is_sooner(code, fragments, is_begun, limit, rates, coders)
                })
            }
        }
    }

    /// Returns the depots for the fragments that the relay of a lane does not keep; none if not all
    /// find a place. With `now`, only if each can start at once.
    fn takers(
        &self,
        from: usize,
        chunk: ChunkIndex,
        wanted: u64,
        taken: u64,
        now: bool,
    ) -> Option<Vec<usize>> {
        let bytes = self.request.replica.bytes_of(chunk, FragmentIndex::new(0));
        let giver = self.request.lanes[from].depot;
        let pinned = self.open_pinned(chunk, taken);
        let mut taken = taken | 1 << from;
        let mut takers = Vec::new();
        let gives_free = self.depots.get(&giver).is_some_and(Depot::gives_free);
        if self.request.wishes.budget_micro_usd.is_some() && !gives_free {
            return None;
        }
        let could = |lane: usize| {
            let depot = self.request.lanes[lane].depot;
            lane != from
                && self.is_ready(lane, bytes)
                && self.relays_for_free(lane)
                && self.pushes.is_rested(giver, depot, self.now)
                && (!now || self.has_room_between(giver, depot, bytes))
        };
        let could: Vec<usize> = self
            .request
            .depot_lanes()
            .filter(|&lane| could(lane))
            .collect();
        let among = self.among(chunk);
        for _ in 1..wanted.count_ones() {
            let free = could.iter().copied();
            let free = free.filter(|&lane| self.is_free(chunk, taken, lane, among));
            let best = free.min_by_key(|&lane| {
                let planned = core::cmp::Reverse(self.request.quota_left(lane));
                let crowd = self.request.crowds(taken, lane);
                (
                    pinned >> lane & 1 == 0,
                    crowd,
                    self.level(lane),
                    planned,
                    self.micros_between(from, lane, bytes),
                    lane,
                )
            })?;
            taken |= 1 << best;
            takers.push(best);
        }
        (pinned & !taken == 0).then_some(takers)
    }

    /// Returns whether transfers between relays are free: no budget covers them.
    fn relays_for_free(&self, lane: usize) -> bool {
        let depot = self.depots.get(&self.request.lanes[lane].depot);
        let is_free = || depot.is_some_and(Depot::is_free);
        self.request.wishes.budget_micro_usd.is_none() || is_free()
    }

    fn has_room_between(&self, from: DepotId, to: DepotId, bytes: Bytes) -> bool {
        let room = self.pushes.room(from, to, bytes, self.now, self.settings);
        room == Some(true)
    }

    fn rate_between(&self, from: usize, to: usize) -> ByteRate {
        let (from, to) = (self.request.lanes[from].depot, self.request.lanes[to].depot);
        let rates = self.crossings.rates(from, to, self.now, self.settings);
        rates
            .unwrap_or_else(|| self.settings.prior.quantiles(None))
            .p50
    }

    fn micros_between(&self, from: usize, to: usize, bytes: Bytes) -> u64 {
        let (giver, taker) = (self.request.lanes[from].depot, self.request.lanes[to].depot);
        let waits = self.pushes.under_way(giver, taker);
        let span = self.rate_between(from, to).time_for(waits + bytes);
        u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
    }

    fn start_scatter(
        &mut self,
        lane: usize,
        takers: &[usize],
        chunk: ChunkIndex,
        wanted: u64,
        taken: u64,
        out: &mut Outbox,
    ) {
        let fragments = (0..u64::BITS).filter(|bit| wanted >> bit & 1 == 1);
        let mut fragments =
            fragments.map(|bit| FragmentIndex::new(u8::try_from(bit).unwrap_or(u8::MAX)));
        let Some(kept) = fragments.next() else { return };
        let depot = self.request.lanes[lane].depot;
        self.begin_flight(lane, chunk, kept, true);
        let bytes = self.request.replica.bytes_of(chunk, kept);
        let (mut to, mut all) = (Vec::new(), taken | 1 << lane);
        for (&taker, fragment) in takers.iter().zip(fragments) {
            let key = FlightKey {
                depot: self.request.lanes[taker].depot,
                request: self.id,
                chunk,
            };
            if let Some(depot) = self.depots.get_mut(&key.depot) {
                depot.arriving += bytes;
                self.request.pay(depot, bytes, self.now);
            }
            self.request.await_piece(taker, chunk);
            self.pushes.start(
                key,
                Forwarded {
                    givers: alloc::vec![depot],
                    fragment,
                    bytes,
                    share: bytes,
                    is_blamed: false,
                    is_piece: true,
                    is_following: false,
                    is_mend: false,
                    since: self.now,
                },
            );
            all |= 1 << taker;
            to.push((key.depot, fragment));
        }
        self.await_flights(chunk, 0, all);
        self.request.uncommon.is_scatter_unsaid |= !self.request.uncommon.is_scattered;
        out.commands.push(Command::Scatter {
            request: self.id,
            depot,
            chunk,
            fragment: kept,
            to,
            reason: Reason::CodedThere,
        });
    }
}
