mod pieces;

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::time::Duration;
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp, record};

use super::{Bitmap, FlightKey};
use crate::{Settings, contract::Fault};
use pieces::Rest;

/// How long chunks that made way wait at least before they are looked at again.
const TURN: Duration = Duration::from_secs(1);

record! {
    /// What of one request may go on from where it lies: to depots nearer its destination, to its
    /// destinations, or to depots that make again what was lost.
    ///
    /// A bounded number of chunks is open, the rarest first; the others wait in sets. A chunk that waits
    /// for a busy pair of depots makes way for others, so that one slow pair stops none.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Push {
        /// Chunks to look at, in order.
        todo: Bitmap,
        /// Chunks that made way, for when `todo` is through.
        later: Bitmap,
        /// Chunks that wait for a depot to be there again or to have space.
        stuck: Bitmap,
        /// Chunks being looked at: how many fragments lie nearer, and which it is.
        open: BTreeSet<(u32, u32)>,
        /// When those have their turn at the earliest.
        turns_at: Timestamp,
        /// Fragments on their way.
        pub(crate) flying: u32,
        /// Lanes of which it was said that something is pushed on to them, as a mask.
        pub(crate) said: u64,
        /// Lanes on which space is held until all of it is there, as a mask.
        pub(crate) holds: u64,
        /// It was said that all lies nearer.
        pub(crate) is_said_done: bool,
    }
}

impl Push {
    /// Chunks that are open at once: each is looked at again whenever a fragment landed.
    const OPEN_MAX: usize = 128;

    /// Everything is to be looked at, and so many are on their way.
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

    /// Whether bytes from outside made something that can be used.
    pub(crate) fn is_sound(&self, chunks: u32) -> bool {
        let sets = [&self.todo, &self.later, &self.stuck];
        sets.into_iter().all(|set| set.fits(chunks))
            && self.open.iter().all(|&(_, chunk)| chunk < chunks)
    }

    /// Something about a chunk changed.
    pub(crate) fn offer(&mut self, chunk: ChunkIndex) {
        self.todo.insert(chunk.get());
    }

    /// Something about many chunks changed: all are looked at again.
    pub(crate) fn reset(&mut self, chunks: u32) {
        self.todo = Bitmap::full(chunks);
        self.later = Bitmap::empty(chunks);
        self.stuck = Bitmap::empty(chunks);
        self.open.clear();
    }

    /// A depot is there again, or has space.
    pub(crate) fn revive(&mut self) {
        self.todo.absorb(&mut self.stuck);
    }

    /// Whether there is something to look at.
    pub(crate) fn has_work(&self) -> bool {
        !self.open.is_empty() || self.todo.len() > 0 || self.later.len() > 0
    }

    /// Whether chunks are left that were not looked at.
    pub(crate) fn has_todo(&self) -> bool {
        self.todo.len() > 0
    }

    /// Whether chunks wait for a depot.
    pub(crate) fn is_waiting(&self) -> bool {
        self.stuck.len() > 0
    }

    /// Whether nothing is left, nor on its way.
    pub(crate) fn is_done(&self) -> bool {
        !self.has_work() && self.stuck.len() == 0 && self.flying == 0
    }

    /// The open chunks, the rarest first.
    pub(crate) fn opened(&self) -> Vec<(u32, u32)> {
        self.open.iter().copied().collect()
    }

    /// The next chunk to look at. With too many open, half of them make way for others.
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

    /// A pass begins: what made way has its turn again when all others had theirs, once in a while.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        if self.todo.len() == 0 && self.turns_at <= now {
            self.todo.absorb(&mut self.later);
            self.turns_at = now + TURN;
        }
    }

    /// The chunk waits for a busy pair.
    pub(crate) fn keep_open(&mut self, chunk: u32, nearer: u32) {
        self.later.remove(chunk);
        self.open.insert((nearer, chunk));
    }

    /// The chunk is no longer open.
    pub(crate) fn close(&mut self, chunk: u32, nearer: u32) {
        self.open.remove(&(nearer, chunk));
    }

    /// The chunk waits for a depot.
    pub(crate) fn set_stuck(&mut self, chunk: u32) {
        self.stuck.insert(chunk);
    }
}

record! {
    /// A fragment on its way from one depot to another, or a chunk to a destination.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Forwarded {
        /// Who sends it: one, or those from whose fragments it is rebuilt.
        pub(crate) givers: Vec<DepotId>,
        pub(crate) fragment: FragmentIndex,
        pub(crate) bytes: Bytes,
        /// What each of them sends.
        pub(crate) share: Bytes,
        /// One of them was found to be at fault: the others are not.
        pub(crate) is_blamed: bool,
        /// Who sends it was sent the chunk to code, so it is on its way from the centre.
        pub(crate) is_piece: bool,
        /// When it began, who sends it was getting it from the centre still.
        pub(crate) is_following: bool,
        /// Who gets it rebuilds it from what the givers send.
        pub(crate) is_mend: bool,
        pub(crate) since: Timestamp,
    }
}

record! {
    /// How it goes between two depots.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Pair {
        pub(crate) flights: u32,
        pub(crate) bytes: Bytes,
        /// Pushes that failed since the last one that did not.
        pub(crate) failures: u32,
        /// Nothing is pushed before.
        pub(crate) resume_at: Timestamp,
        /// When something landed last.
        pub(crate) progress_at: Timestamp,
    }
}

record! {
    /// Everything on its way between depots. Bounded by what may be under way from one to another.
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
        /// When more of them is looked at.
        pub(crate) more_at: Option<Timestamp>,
    }
}

impl Pushes {
    /// Whether nothing is on its way, and no pair is being left alone.
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

    /// Whether a fragment of `bytes` may start between two depots now, or only once another is through: two
    /// always may, so that the way never idles between them. None where the pair is left alone.
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
        // One that failed is tried with a single fragment.
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

    /// What a depot sends of what is under way; none where it has no part in that.
    pub(crate) fn share_of(&self, key: FlightKey, from: DepotId) -> Option<Bytes> {
        let flight = self.flights.get(&key)?;
        flight.givers.contains(&from).then_some(flight.share)
    }

    /// Notes that one who sends what is under way was found to be at fault.
    pub(crate) fn blame(&mut self, key: FlightKey) {
        if let Some(flight) = self.flights.get_mut(&key) {
            flight.is_blamed = true;
        }
    }

    /// Whether nothing is under way between two depots, and nothing failed of late.
    pub(crate) fn is_idle(&self, from: DepotId, to: DepotId) -> bool {
        !self.pairs.contains_key(&(from, to))
    }

    /// Whether a depot sends anything to others.
    pub(crate) fn is_sending(&self, from: DepotId) -> bool {
        let pairs = self.pairs.range((from, DepotId::new(0))..);
        let mut pairs = pairs.take_while(|((giver, _), _)| *giver == from);
        pairs.any(|(_, pair)| pair.flights > 0)
    }

    /// What is under way between two depots.
    pub(crate) fn flights(&self, from: DepotId, to: DepotId) -> u32 {
        self.pairs.get(&(from, to)).map_or(0, |pair| pair.flights)
    }

    /// Bytes under way between two depots.
    pub(crate) fn under_way(&self, from: DepotId, to: DepotId) -> Bytes {
        let pair = self.pairs.get(&(from, to));
        pair.map_or(Bytes::ZERO, |pair| pair.bytes)
    }

    /// Something landed.
    pub(crate) fn succeed(&mut self, from: DepotId, to: DepotId, now: Timestamp) {
        if let Some(pair) = self.pairs.get_mut(&(from, to)) {
            (pair.failures, pair.progress_at) = (0, now);
        }
        self.tidy((from, to));
    }

    /// Something failed: the pair is left alone for a while. Returns how often it did in a row.
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

    /// Pushes to a depot, of one request or of all.
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

    /// To which depots a depot sends what, in order and each once.
    pub(crate) fn ways_from(&self, from: DepotId) -> BTreeSet<(RequestId, DepotId)> {
        let all = self
            .flights
            .iter()
            .filter(|(_, flight)| flight.givers.contains(&from));
        all.map(|(key, _)| (key.request, key.depot)).collect()
    }

    /// Requests and depots between which nothing landed for so long that nothing will.
    /// What goes to be made safe is not waited for so long.
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

    /// Whether the pairs count the flights there are.
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

/// Whether the sending depot no longer holds what it was told to send.
pub(crate) fn is_of_giver(fault: Fault) -> bool {
    fault.is_of_source()
}
