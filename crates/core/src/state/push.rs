mod pieces;

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::time::Duration;
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp, record};

use crate::state::{Bitmap, FlightKey};
use crate::{Settings, contract::Fault};
use pieces::Rest;

/// Shortest time until postponed chunks are looked at again.
const TURN: Duration = Duration::from_secs(1);

record! {
    /// Chunks of one request that may go on from where they lie. They go to depots nearer its
    /// destination, to its destinations, or to depots that rebuild what was lost.
    ///
    /// A bounded number of chunks is open, the rarest first; the others wait in sets. A chunk that
    /// waits for a busy pair of depots gives way to others, so that one slow pair stops none.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Push {
        /// Chunks to look at, in order.
        todo: Bitmap,
        /// Chunks that were postponed, for when `todo` is empty.
        later: Bitmap,
        /// Chunks that wait for a depot to come back or to have space.
        stuck: Bitmap,
        /// Open chunks: how many fragments lie nearer, and the chunk's number.
        open: BTreeSet<(u32, u32)>,
        /// Earliest turn of the postponed chunks.
        turns_at: Timestamp,
        /// Fragments on their way.
        pub(crate) flying: u32,
        /// Lanes reported as receiving pushes, as a mask.
        pub(crate) said: u64,
        /// Lanes on which space is held until all of it is there, as a mask.
        pub(crate) holds: u64,
        /// True once it was reported that all lies nearer.
        pub(crate) is_said_done: bool,
    }
}

impl Push {
    /// Most chunks that are open at once: each is looked at again whenever a fragment lands.
    const OPEN_MAX: usize = 128;

    /// Returns a push in which everything is to be looked at and so many fragments are on their
    /// way.
    pub(crate) fn new(chunks: u32, flying: u32) -> Self {
        Self {
            todo: Bitmap::full(chunks),
            later: Bitmap::empty(chunks),
            stuck: Bitmap::empty(chunks),
            open: BTreeSet::new(),
            turns_at: Timestamp::default(),
            flying,
            said: 0,
            holds: 0,
            is_said_done: false,
        }
    }

    /// Returns whether decoded bytes made a usable value.
    pub(crate) fn is_sound(&self, chunks: u32) -> bool {
        let sets = [&self.todo, &self.later, &self.stuck];
        sets.into_iter().all(|set| set.fits(chunks))
            && self.open.iter().all(|&(_, chunk)| chunk < chunks)
    }

    /// Marks a chunk as changed.
    pub(crate) fn offer(&mut self, chunk: ChunkIndex) {
        self.todo.insert(chunk.get());
    }

    /// Marks all chunks for another look.
    pub(crate) fn reset(&mut self, chunks: u32) {
        self.todo = Bitmap::full(chunks);
        self.later = Bitmap::empty(chunks);
        self.stuck = Bitmap::empty(chunks);
        self.open.clear();
    }

    /// Returns stuck chunks to the queue, as a depot is back or has space.
    pub(crate) fn revive(&mut self) {
        self.todo.absorb(&mut self.stuck);
    }

    /// Returns whether there is something to look at.
    pub(crate) fn has_work(&self) -> bool {
        !self.open.is_empty() || self.todo.len() > 0 || self.later.len() > 0
    }

    /// Returns whether chunks are left that were not looked at.
    pub(crate) fn has_todo(&self) -> bool {
        self.todo.len() > 0
    }

    /// Returns whether chunks wait for a depot.
    pub(crate) fn is_waiting(&self) -> bool {
        self.stuck.len() > 0
    }

    /// Returns whether nothing is left, nor on its way.
    pub(crate) fn is_done(&self) -> bool {
        !self.has_work() && self.stuck.len() == 0 && self.flying == 0
    }

    /// Returns the open chunks, the rarest first.
    pub(crate) fn opened(&self) -> Vec<(u32, u32)> {
        self.open.iter().copied().collect()
    }

    /// Returns the next chunk to look at. With too many open, half of them give way to others.
    pub(crate) fn next(&mut self) -> Option<u32> {
        if self.todo.len() > 0 && self.open.len() >= Self::OPEN_MAX {
            while self.open.len() > Self::OPEN_MAX / 2
                && let Some((_, chunk)) = self.open.pop_last()
            {
                self.later.insert(chunk);
            }
        }
        self.todo.pop()
    }

    /// Begins a pass: now and then, postponed chunks get another turn once all others had theirs.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        if self.todo.len() == 0 && self.turns_at <= now {
            self.todo.absorb(&mut self.later);
            self.turns_at = now + TURN;
        }
    }

    /// Keeps the chunk open, as it waits for a busy pair.
    pub(crate) fn keep_open(&mut self, chunk: u32, nearer: u32) {
        self.later.remove(chunk);
        self.open.insert((nearer, chunk));
    }

    /// Removes the chunk from the open ones.
    pub(crate) fn close(&mut self, chunk: u32, nearer: u32) {
        self.open.remove(&(nearer, chunk));
    }

    /// Marks the chunk as waiting for a depot.
    pub(crate) fn set_stuck(&mut self, chunk: u32) {
        self.stuck.insert(chunk);
    }
}

record! {
    /// Fragment on its way from one depot to another, or chunk to a destination.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Forwarded {
        /// Depots that send it: one, or those from whose fragments it is rebuilt.
        pub(crate) givers: Vec<DepotId>,
        pub(crate) fragment: FragmentIndex,
        pub(crate) bytes: Bytes,
        /// Bytes that each of them sends.
        pub(crate) share: Bytes,
        /// True if one of them was found at fault: the others are not.
        pub(crate) is_blamed: bool,
        /// True if its sender was sent the chunk to code, so it is on its way from the centre.
        pub(crate) is_piece: bool,
        /// True if its sender was still receiving it from the centre when it began.
        pub(crate) is_following: bool,
        /// True if its receiver rebuilds it from what the givers send.
        pub(crate) is_mend: bool,
        pub(crate) since: Timestamp,
    }
}

record! {
    /// State of the path between two depots.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Pair {
        pub(crate) flights: u32,
        pub(crate) bytes: Bytes,
        /// Failed pushes since the last success.
        pub(crate) failures: u32,
        /// Time before which nothing is pushed.
        pub(crate) resume_at: Timestamp,
        /// Time of the last landing.
        pub(crate) progress_at: Timestamp,
    }
}

record! {
    /// Everything on its way between depots. Bounded by what may be in progress from one to
    /// another.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Pushes {
        flights: BTreeMap<FlightKey, Forwarded>,
        pairs: BTreeMap<(DepotId, DepotId), Pair>,
        /// Depots nearer the destination about which something changed.
        touched: BTreeSet<DepotId>,
        /// Depots that failed to code a chunk.
        rests: BTreeMap<DepotId, Rest>,
        /// Requests of which more may go on.
        offered: BTreeSet<RequestId>,
        /// Time of the next look at more of them.
        pub(crate) more_at: Option<Timestamp>,
    }
}

impl Pushes {
    /// Returns whether nothing is on its way and no pair is at rest.
    pub(crate) fn is_quiet(&self) -> bool {
        self.pairs.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.flights.len()
    }

    pub(crate) fn touch(&mut self, to: DepotId) {
        self.touched.insert(to);
    }

    pub(crate) fn take_touched(&mut self) -> BTreeSet<DepotId> {
        core::mem::take(&mut self.touched)
    }

    pub(crate) fn has_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    pub(crate) fn offer(&mut self, id: RequestId) {
        self.offered.insert(id);
    }

    pub(crate) fn take_offered(&mut self) -> BTreeSet<RequestId> {
        core::mem::take(&mut self.offered)
    }

    pub(crate) fn get(
        &self,
        to: DepotId,
        request: RequestId,
        chunk: ChunkIndex,
    ) -> Option<&Forwarded> {
        self.flights.get(&FlightKey {
            depot: to,
            request,
            chunk,
        })
    }

    /// Returns whether a fragment of `bytes` may start between two depots now, or only once another
    /// has arrived. Two always may, so that the path never idles between them. None if the pair is
    /// at rest.
    pub(crate) fn room(
        &self,
        from: DepotId,
        to: DepotId,
        bytes: Bytes,
        now: Timestamp,
        settings: &Settings,
    ) -> Option<bool> {
        let Some(pair) = self.pairs.get(&(from, to)) else {
            return Some(true);
        };
        let fits = pair.flights < 2
            || (pair.flights < settings.push_flights_max
                && pair.bytes + bytes <= settings.push_bytes_max);
        // A pair that failed is tried with a single fragment.
        let may = pair.resume_at <= now && (pair.failures == 0 || pair.flights == 0);
        may.then_some(fits)
    }

    pub(crate) fn start(&mut self, key: FlightKey, flight: Forwarded) {
        for &from in &flight.givers {
            let pair = self.pairs.entry((from, key.depot)).or_default();
            if pair.flights == 0 {
                pair.progress_at = flight.since;
            }
            pair.flights += 1;
            pair.bytes += flight.share;
        }
        let before = self.flights.insert(key, flight);
        assert!(
            before.is_none(),
            "a depot gets one fragment of a chunk at a time"
        );
    }

    /// Ends the push if it carries this fragment.
    pub(crate) fn end(&mut self, key: FlightKey, fragment: FragmentIndex) -> Option<Forwarded> {
        if self.flights.get(&key)?.fragment != fragment {
            return None;
        }
        let flight = self.flights.remove(&key)?;
        for &from in &flight.givers {
            if let Some(pair) = self.pairs.get_mut(&(from, key.depot)) {
                pair.flights -= 1;
                pair.bytes -= flight.share;
            }
            self.tidy((from, key.depot));
        }
        self.touched.insert(key.depot);
        Some(flight)
    }

    /// Returns the bytes that a depot sends of a push in progress; none if it has no part in that.
    pub(crate) fn share_of(&self, key: FlightKey, from: DepotId) -> Option<Bytes> {
        let flight = self.flights.get(&key)?;
        flight.givers.contains(&from).then_some(flight.share)
    }

    /// Records that one sender of a push in progress was found at fault.
    pub(crate) fn blame(&mut self, key: FlightKey) {
        if let Some(flight) = self.flights.get_mut(&key) {
            flight.is_blamed = true;
        }
    }

    /// Returns whether nothing is in progress between two depots, and nothing failed recently.
    pub(crate) fn is_idle(&self, from: DepotId, to: DepotId) -> bool {
        !self.pairs.contains_key(&(from, to))
    }

    /// Returns whether a depot sends anything to others.
    pub(crate) fn is_sending(&self, from: DepotId) -> bool {
        let pairs = self.pairs.range((from, DepotId::new(0))..);
        let mut pairs = pairs.take_while(|((giver, _), _)| *giver == from);
        pairs.any(|(_, pair)| pair.flights > 0)
    }

    /// Counts the flights between two depots.
    pub(crate) fn flights(&self, from: DepotId, to: DepotId) -> u32 {
        self.pairs.get(&(from, to)).map_or(0, |pair| pair.flights)
    }

    /// Returns the bytes in progress between two depots.
    pub(crate) fn under_way(&self, from: DepotId, to: DepotId) -> Bytes {
        let pair = self.pairs.get(&(from, to));
        pair.map_or(Bytes::ZERO, |pair| pair.bytes)
    }

    /// Records a landing.
    pub(crate) fn succeed(&mut self, from: DepotId, to: DepotId, now: Timestamp) {
        if let Some(pair) = self.pairs.get_mut(&(from, to)) {
            (pair.failures, pair.progress_at) = (0, now);
        }
        self.tidy((from, to));
    }

    /// Records a failure: the pair rests for a while. Returns the number of consecutive failures.
    pub(crate) fn fail(
        &mut self,
        from: DepotId,
        to: DepotId,
        resume: impl Fn(u32) -> Timestamp,
    ) -> u32 {
        let pair = self.pairs.entry((from, to)).or_default();
        pair.failures = pair.failures.saturating_add(1);
        pair.resume_at = resume(pair.failures);
        pair.failures
    }

    /// Returns pushes to a depot, of one request or of all.
    pub(crate) fn to(
        &self,
        depot: DepotId,
        request: Option<RequestId>,
    ) -> impl Iterator<Item = (FlightKey, Forwarded)> + '_ {
        let first = FlightKey {
            depot,
            request: request.unwrap_or_default(),
            chunk: ChunkIndex::default(),
        };
        let all = self.flights.range(first..).take_while(move |(key, _)| {
            key.depot == depot && request.is_none_or(|request| key.request == request)
        });
        all.map(|(key, flight)| (*key, flight.clone()))
    }

    /// Returns the requests and depots to which a depot sends, in order and each once.
    pub(crate) fn ways_from(&self, from: DepotId) -> BTreeSet<(RequestId, DepotId)> {
        let all = self
            .flights
            .iter()
            .filter(|(_, flight)| flight.givers.contains(&from));
        all.map(|(key, _)| (key.request, key.depot)).collect()
    }

    /// Returns requests and depots between which nothing landed for so long that nothing will. Data
    /// that still has to become safe is given less time.
    pub(crate) fn stalled(
        &self,
        before: Timestamp,
        pieces_before: Timestamp,
    ) -> BTreeSet<(RequestId, DepotId, DepotId)> {
        let before = |flight: &Forwarded| match flight.is_piece {
            true => pieces_before,
            false => before,
        };
        let is_still = |from: DepotId, to: DepotId, before: Timestamp| {
            let pair = self.pairs.get(&(from, to));
            pair.is_none_or(|pair| pair.progress_at <= before)
        };
        let all = self.flights.iter();
        let all = all.filter(|(_, flight)| flight.since <= before(flight));
        all.flat_map(|(key, flight)| {
            let before = before(flight);
            let still = flight.givers.iter();
            let still = still.filter(move |&&from| is_still(from, key.depot, before));
            still.map(|&from| (key.request, from, key.depot))
        })
        .collect()
    }

    /// Forgets pairs that failed long ago.
    pub(crate) fn forget_failures(&mut self, before: Timestamp) {
        let is_old = |pair: &Pair| pair.flights == 0 && pair.resume_at <= before;
        self.pairs.retain(|_, pair| !is_old(pair));
        self.rests.retain(|_, rest| rest.lasts_beyond(before));
    }

    /// Returns whether the pairs count the existing flights.
    pub(crate) fn is_balanced(&self) -> bool {
        let mut counted: BTreeMap<(DepotId, DepotId), (u32, Bytes)> = BTreeMap::new();
        for (key, flight) in &self.flights {
            for &from in &flight.givers {
                let sum = counted.entry((from, key.depot)).or_default();
                *sum = (sum.0 + 1, sum.1 + flight.share);
            }
        }
        let pairs = self.pairs.iter().filter(|(_, pair)| pair.flights > 0);
        let pairs: BTreeMap<_, _> = pairs
            .map(|(ends, pair)| (*ends, (pair.flights, pair.bytes)))
            .collect();
        counted == pairs
    }

    fn tidy(&mut self, ends: (DepotId, DepotId)) {
        let is_over = |pair: &Pair| pair.flights == 0 && pair.failures == 0;
        if self.pairs.get(&ends).is_some_and(is_over) {
            self.pairs.remove(&ends);
        }
    }
}

/// Returns whether the sending depot no longer holds what it should send.
pub(crate) fn is_of_giver(fault: Fault) -> bool {
    fault.is_of_source()
}
