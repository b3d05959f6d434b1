//! Sends whole chunks to the destination, from the end of the dataset on.

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_types::{Bytes, ChunkIndex, FragmentIndex};

use crate::contract::Outbox;
use crate::decide::dispatch::placing::Placing;

impl Placing<'_> {
    /// Sends whole chunks to destinations as long as one has room. Each chunk goes to one of them,
    /// which is enough to make it safe; the others take it from there.
    pub(super) fn send_whole(&mut self, out: &mut Outbox) {
        // A budget pays what makes it safe.
        let is_paid = self.request.wishes.budget_micro_usd.is_none();
        let is_safe_whole = self.request.is_safe_whole();
        if !is_safe_whole && !is_paid {
            return;
        }
        let most = self.request.spec.chunk_size.min(self.request.spec.bytes);
        let mut is_first = is_safe_whole;
        while let Some(lane) = self.next_destination(most) {
            if core::mem::take(&mut is_first) {
                self.take_back_waiting();
            }
            if !self.send_whole_to(lane, out) {
                return;
            }
        }
    }

    /// Returns the destination with room that would have a chunk first.
    fn next_destination(&self, bytes: Bytes) -> Option<usize> {
        let open = self.request.destinations();
        let open = open.filter(|&lane| self.request.replica.is_holder(lane));
        let open = open.filter(|&lane| self.is_open(lane, bytes));
        open.min_by_key(|&lane| (self.finish_micros(lane, bytes), lane))
    }

    /// Sends the next chunk there. Returns whether another may follow.
    fn send_whole_to(&mut self, lane: usize, out: &mut Outbox) -> bool {
        while self.request.has_memory(true, self.settings)
            && let Some(chunk) = self.request.replica.next_whole()
        {
            let bytes = self.request.replica.bytes_of(chunk, FragmentIndex::WHOLE);
            if !self.is_open(lane, bytes) || !self.is_worth_whole(lane, bytes) {
                self.request.replica.put_back(chunk);
                return false;
            }
            let (wanted, taken) = self.mask(chunk);
            if self.request.is_flying(chunk) || taken >> lane & 1 == 1 {
                // It was safe, and lost that again while a late copy is still on its way.
                self.await_flights(chunk, wanted, taken);
                continue;
            }
            let taken = taken | 1 << lane;
            self.await_flights(chunk, self.for_pinned(chunk, 0, taken), taken);
            let reason = self.reason(chunk);
            self.start(lane, chunk, FragmentIndex::WHOLE, reason, out);
            return true;
        }
        false
    }

    /// Takes back chunks that wait for depots with nothing on its way: they may as well go whole.
    fn take_back_waiting(&mut self) {
        let stripes = self.request.stripes.iter();
        let waiting = stripes
            .filter(|(chunk, stripe)| stripe.wanted != 0 && !self.request.is_flying(**chunk));
        let waiting: Vec<ChunkIndex> = waiting.map(|(chunk, _)| *chunk).collect();
        for chunk in waiting {
            self.request.stripes.remove(&chunk);
            self.request.replica.put_back(chunk);
        }
    }

    /// Returns whether depots lack the space for all of a chunk's fragments while the destination
    /// has it: fragments there would be useless.
    pub(super) fn goes_whole_instead(&self, chunk: ChunkIndex, wanted: u64, taken: u64) -> bool {
        if self.lost(chunk, wanted) == 0 || !self.request.is_safe_whole() {
            return false;
        }
        let bytes = self.request.replica.bytes_of(chunk, FragmentIndex::new(0));
        let places = self.request.depot_lanes();
        let places = places.filter(|&lane| taken >> lane & 1 == 0 && self.has_space(lane, bytes));
        let whole = self.request.replica.bytes_of(chunk, FragmentIndex::WHOLE);
        let takes_whole = |lane| self.is_fed(lane, whole) && self.has_space(lane, whole);
        places.count() < wanted.count_ones() as usize
            && self.request.destinations().any(takes_whole)
    }

    /// Returns whether the depot is fed and has space for the request, as far as is known.
    fn has_space(&self, lane: usize, bytes: Bytes) -> bool {
        self.request.lanes[lane].is_active && self.fits(lane, bytes)
    }

    /// Returns whether a chunk that goes whole now would arrive before everything else; otherwise
    /// the depots finish it sooner.
    fn is_worth_whole(&self, lane: usize, bytes: Bytes) -> bool {
        let fed = self
            .request
            .depot_lanes()
            .filter(|&lane| self.has_space(lane, self.request.spec.code.fragment_size(bytes)))
            .filter(|&lane| self.is_fed(lane, Bytes::ZERO));
        if fed.count() < usize::from(self.request.spec.code.total()) {
            return true;
        }
        let arrives = self.now + Duration::from_micros(self.finish_micros(lane, bytes));
        let finish = self.request.finish.map(|finish| finish.p50);
        finish.is_none_or(|finish| arrives <= finish)
    }
}
