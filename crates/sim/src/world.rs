//! The model world: depots that hold fragments, links that move bytes, a source on scratch.
//!
//! A link carries one fragment after the other at its rate of the moment; all links together share
//! the centre's way out fairly. Bytes are exact integers: an amount on its way is kept in millionths,
//! so that rate times microseconds loses nothing.

use std::collections::{BTreeMap, VecDeque};

use posthaste_core::contract::RequestSpec;
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

use crate::random::Dice;

/// A fragment on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sending {
    pub(crate) request: RequestId,
    pub(crate) chunk: ChunkIndex,
    pub(crate) fragment: FragmentIndex,
    pub(crate) bytes: Bytes,
}

/// How a depot is, whatever anybody knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It works.
    Well,
    /// It is gone and connections break.
    Dead,
    /// It is gone and nothing says so.
    Vanished,
    /// It answers probes and stores nothing.
    Hung,
}

/// A depot in the world.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) id: DepotId,
    pub(crate) name: String,
    pub(crate) condition: Condition,
    pub(crate) says_full: bool,
    pub(crate) advertises: bool,
    pub(crate) capacity: Bytes,
    pub(crate) used: Bytes,
    pub(crate) latency_micros: u64,
    /// Bytes a second now, before jitter.
    pub(crate) base_rate: u64,
    pub(crate) first_rate: u64,
    pub(crate) jitter_permille: u64,
    /// Bytes a second now.
    pub(crate) rate: u64,
    pub(crate) dice: Dice,
    pub(crate) queue: VecDeque<Sending>,
    /// Millionths of a byte of the first in the queue that are still to move.
    pub(crate) head_left: u128,
    /// Millionths of a byte moved since the last measurement.
    pub(crate) moved: u128,
    /// Whether the queue was empty at some time since the last measurement.
    pub(crate) was_idle: bool,
    /// Whether anything was queued since the last measurement.
    pub(crate) was_busy: bool,
    /// Fragments of each chunk, as a mask; a whole chunk at a destination is bit 0.
    pub(crate) held: BTreeMap<RequestId, Vec<u64>>,
    /// Whether the mind was told that it is gone since it last came back.
    pub(crate) is_told_gone: bool,
    /// Counts what befell it: when two faults overlap, the later one decides when it is over.
    pub(crate) ordeal: u32,
}

impl Site {
    pub(crate) fn is_reachable(&self) -> bool {
        matches!(self.condition, Condition::Well | Condition::Hung)
    }

    fn moves(&self) -> bool {
        self.condition == Condition::Well && !self.queue.is_empty()
    }

    pub(crate) fn enqueue(&mut self, sending: Sending) {
        if self.queue.is_empty() {
            self.head_left = u128::from(sending.bytes.get()) * 1_000_000;
        }
        self.was_busy = true;
        self.queue.push_back(sending);
    }

    /// Takes sends out of the queue; what had moved of the first is lost with it.
    pub(crate) fn drop_sends(&mut self, gone: impl Fn(&Sending) -> bool) -> Vec<Sending> {
        let first = self.queue.front().copied();
        let (dropped, kept): (Vec<Sending>, Vec<Sending>) =
            self.queue.drain(..).partition(|sending| gone(sending));
        self.queue = kept.into();
        if self.queue.front().copied() != first {
            self.restart_head();
        }
        dropped
    }

    fn restart_head(&mut self) {
        self.head_left = self
            .queue
            .front()
            .map_or(0, |head| u128::from(head.bytes.get()) * 1_000_000);
        self.was_idle |= self.queue.is_empty();
    }

    pub(crate) fn free(&self) -> Bytes {
        if self.says_full {
            Bytes::ZERO
        } else {
            self.capacity - self.used
        }
    }

    /// Puts a fragment on the disk. False when it does not fit.
    pub(crate) fn store(&mut self, sending: &Sending, chunks: u32) -> bool {
        let held = self
            .held
            .entry(sending.request)
            .or_insert_with(|| vec![0; chunks as usize]);
        let whole = sending.fragment == FragmentIndex::WHOLE;
        let bit = 1u64 << if whole { 0 } else { sending.fragment.get() };
        let mask = &mut held[sending.chunk.get() as usize];
        if *mask & bit != 0 {
            return true;
        }
        if self.says_full || self.used + sending.bytes > self.capacity {
            return false;
        }
        *mask |= bit;
        self.used += sending.bytes;
        true
    }

    pub(crate) fn roll_jitter(&mut self) {
        let spread = self.jitter_permille.min(990);
        let factor = self.dice.between(1000 - spread, 1000 + spread);
        self.rate = self.base_rate * factor / 1000;
    }
}

/// Everything that is really so.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) sites: Vec<Site>,
    pub(crate) egress: Option<u64>,
    pub(crate) specs: BTreeMap<RequestId, RequestSpec>,
}

impl World {
    pub(crate) fn site(&mut self, depot: DepotId) -> Option<&mut Site> {
        self.sites.iter_mut().find(|site| site.id == depot)
    }

    /// What each site moves a second now: its rate, or its fair share of the way out.
    fn rates(&self) -> Vec<u64> {
        let mut rates: Vec<u64> = self
            .sites
            .iter()
            .map(|site| if site.moves() { site.rate } else { 0 })
            .collect();
        let Some(mut left) = self.egress else {
            return rates;
        };
        let mut places: Vec<usize> = (0..rates.len()).filter(|&place| rates[place] > 0).collect();
        places.sort_by_key(|&place| rates[place]);
        let mut sharers = places.len() as u64;
        for place in places {
            let fair = left / sharers;
            rates[place] = rates[place].min(fair);
            left -= rates[place];
            sharers -= 1;
        }
        rates
    }

    /// When the next fragment has arrived, if nothing changes before.
    pub(crate) fn next_arrival(&self) -> Option<Timestamp> {
        let soonest = self
            .sites
            .iter()
            .zip(self.rates())
            .filter(|(_, rate)| *rate > 0);
        soonest
            .map(|(site, rate)| site.head_left.div_ceil(u128::from(rate)))
            .min()
            .map(|micros| {
                let micros = u64::try_from(micros).unwrap_or(u64::MAX);
                self.now + std::time::Duration::from_micros(micros)
            })
    }

    /// Moves bytes until `then` and returns what arrived exactly there. No arrival lies before.
    pub(crate) fn advance(&mut self, then: Timestamp) -> Vec<(DepotId, Sending)> {
        let rates = self.rates();
        let micros = then.since(self.now).as_micros();
        self.now = self.now.max(then);
        let mut arrived = Vec::new();
        for (site, rate) in self.sites.iter_mut().zip(rates) {
            let moved = (u128::from(rate) * micros).min(site.head_left);
            site.head_left -= moved;
            site.moved += moved;
            if site.head_left == 0
                && site.moves()
                && let Some(sending) = site.queue.pop_front()
            {
                arrived.push((site.id, sending));
                site.restart_head();
            }
        }
        arrived
    }

    /// A chunk that the loss of as many depots as the code has parity could destroy, looking at the
    /// depots `counts` lets through; none when the dataset is safe.
    pub(crate) fn weakest(
        &self,
        request: RequestId,
        counts: impl Fn(&Site) -> bool,
    ) -> Option<ChunkIndex> {
        let spec = self.specs.get(&request)?;
        let held = |site: &Site, chunk: usize| {
            site.held
                .get(&request)
                .and_then(|held| held.get(chunk))
                .copied()
                .unwrap_or(0)
        };
        (0..spec.chunks()).map(ChunkIndex::new).find(|chunk| {
            let place = chunk.get() as usize;
            let delivered = self
                .sites
                .iter()
                .any(|site| Some(site.id) == spec.destination && held(site, place) & 1 == 1);
            let masks: Vec<u64> = self
                .sites
                .iter()
                .filter(|site| Some(site.id) != spec.destination && counts(site))
                .map(|site| held(site, place))
                .collect();
            !delivered && !survives(&masks, spec.code.total())
        })
    }
}

/// Whether each of the fragments `0..total` can be taken from a depot of its own: then the loss of
/// any m depots loses at most m fragments.
fn survives(masks: &[u64], total: u8) -> bool {
    let mut owner: Vec<Option<u8>> = vec![None; masks.len()];
    (0..total).all(|fragment| {
        let mut seen = vec![false; masks.len()];
        assign(fragment, masks, &mut owner, &mut seen)
    })
}

/// One augmenting path of a bipartite matching (Kuhn).
fn assign(fragment: u8, masks: &[u64], owner: &mut [Option<u8>], seen: &mut [bool]) -> bool {
    for place in 0..masks.len() {
        if masks[place] >> fragment & 1 == 1 && !seen[place] {
            seen[place] = true;
            let is_free = match owner[place] {
                None => true,
                Some(other) => assign(other, masks, owner, seen),
            };
            if is_free {
                owner[place] = Some(fragment);
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_survives_only_with_each_fragment_on_a_depot_of_its_own() {
        assert!(survives(&[0b001, 0b010, 0b100], 3));
        assert!(survives(&[0b011, 0b001, 0b100], 3));
        assert!(!survives(&[0b011, 0b000, 0b100], 3));
        assert!(!survives(&[0b001, 0b001, 0b010], 3));
    }
}
