use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use posthaste_types::{Bytes, ChunkIndex, RequestId, SourceId, Timestamp, record};

use super::{Bitmap, Flight, Source};
use crate::contract::{ArrivalSpec, ArrivalState, Decision, Fault, Forecast};

record! {
    /// One source as one stage-in uses it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct SourceLane {
        pub(crate) source: SourceId,
        /// It no longer holds what it held.
        pub(crate) is_gone: bool,
        /// Chunks that came from it first, and their bytes.
        pub(crate) arrived: u32,
        pub(crate) bytes: Bytes,
        pub(crate) in_flight: u32,
    }
}

record! {
    /// A chunk asked of a source.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Fetch {
        pub(crate) chunk: ChunkIndex,
        pub(crate) source: SourceId,
    }
}

record! {
    /// A stage-in and everything about it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Arrival {
        pub(crate) spec: ArrivalSpec,
        pub(crate) submitted: Timestamp,
        pub(crate) state: ArrivalState,
        /// It was taken though its deadline can't be met, or it missed it: it gets what is left.
        pub(crate) is_leftover: bool,
        pub(crate) at_risk: bool,
        pub(crate) missed: bool,
        pub(crate) begun_at: Option<Timestamp>,
        pub(crate) arrived_at: Option<Timestamp>,
        pub(crate) begin_by: Option<Timestamp>,
        pub(crate) finish: Option<Forecast>,
        /// Whether chunks may be asked for, as of the last look.
        pub(crate) is_due: bool,
        /// Chunks that are neither here nor on their way.
        pub(crate) open: Bitmap,
        /// Chunks that are here.
        pub(crate) here: Bitmap,
        pub(crate) bytes_here: Bytes,
        pub(crate) fetches: BTreeMap<Fetch, Flight>,
        pub(crate) lanes: Vec<SourceLane>,
        /// When the driver was asked what is here, while the answer is out. Nothing is fetched meanwhile.
        pub(crate) asked_at: Option<Timestamp>,
        /// Nothing is fetched before: there is no room, or the pace is limited.
        pub(crate) held_until: Timestamp,
        pub(crate) paced_until: Timestamp,
        /// Times in a row that the centre could not take what came.
        pub(crate) local_failures: u32,
        pub(crate) last_fault: Option<Fault>,
        pub(crate) duplicates: u32,
        pub(crate) late_ticks: u32,
        pub(crate) on_time_ticks: u32,
        /// The p90 finish that was answered.
        pub(crate) answered: Option<Timestamp>,
        pub(crate) decisions: Vec<Decision>,
    }
}

impl Arrival {
    /// Sources of one stage-in: more replicas than anybody keeps.
    pub(crate) const LANES_MAX: usize = 16;

    pub(crate) fn new(spec: ArrivalSpec, now: Timestamp) -> Self {
        let mut seen = BTreeSet::new();
        let sources = spec.sources.iter().copied();
        let sources = sources.filter(|source| seen.insert(*source));
        let lanes = sources.take(Self::LANES_MAX).map(|source| SourceLane {
            source,
            is_gone: false,
            arrived: 0,
            bytes: Bytes::ZERO,
            in_flight: 0,
        });
        let chunks = spec.chunks().unwrap_or(0);
        Self {
            submitted: now,
            state: ArrivalState::Waiting,
            is_leftover: false,
            at_risk: false,
            missed: false,
            begun_at: None,
            arrived_at: None,
            begin_by: None,
            finish: None,
            is_due: false,
            open: Bitmap::full(chunks),
            here: Bitmap::empty(chunks),
            bytes_here: Bytes::ZERO,
            fetches: BTreeMap::new(),
            lanes: lanes.collect(),
            asked_at: None,
            held_until: Timestamp::default(),
            paced_until: Timestamp::default(),
            local_failures: 0,
            last_fault: None,
            duplicates: 0,
            late_ticks: 0,
            on_time_ticks: 0,
            answered: None,
            decisions: Vec::new(),
            spec,
        }
    }

    /// Chunks it has, while it is live.
    pub(crate) fn chunks(&self) -> u32 {
        self.spec.chunks().unwrap_or(0)
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.here.len() == self.chunks()
    }

    pub(crate) fn missing(&self) -> Bytes {
        self.spec.bytes - self.bytes_here
    }

    pub(crate) fn lane_mut(&mut self, source: SourceId) -> Option<&mut SourceLane> {
        self.lanes.iter_mut().find(|lane| lane.source == source)
    }

    /// Whether this source may give something to it.
    pub(crate) fn uses(&self, source: SourceId) -> bool {
        let mut lanes = self.lanes.iter();
        lanes.any(|lane| lane.source == source && !lane.is_gone)
    }

    /// A chunk is here. Whether that is new.
    pub(crate) fn take(&mut self, chunk: u32) -> bool {
        if self.here.contains(chunk) {
            return false;
        }
        self.here.insert(chunk);
        self.open.remove(chunk);
        self.bytes_here += self.spec.chunk_bytes(chunk);
        true
    }

    /// What is here is this, and nothing is on its way.
    pub(crate) fn found(&mut self, chunks: impl Iterator<Item = u32>) {
        let all = self.chunks();
        (self.open, self.here) = (Bitmap::full(all), Bitmap::empty(all));
        self.bytes_here = Bytes::ZERO;
        for chunk in chunks.filter(|chunk| *chunk < all) {
            self.take(chunk);
        }
    }

    /// How often a chunk is on its way.
    pub(crate) fn fetches_of(&self, chunk: ChunkIndex) -> usize {
        let least = Fetch {
            chunk,
            source: SourceId::new(0),
        };
        let fetches = self.fetches.range(least..);
        fetches.take_while(|(key, _)| key.chunk == chunk).count()
    }

    /// Forgets which chunks are here: nobody will ask again.
    pub(crate) fn close_books(&mut self) {
        (self.open, self.here) = (Bitmap::empty(0), Bitmap::empty(0));
        (self.at_risk, self.finish, self.begin_by) = (false, None, None);
        self.asked_at = None;
    }

    /// Whether bytes from outside made a stage-in that can be used.
    fn is_sound(&self) -> bool {
        let chunks = if self.state.is_live() {
            self.chunks()
        } else {
            0
        };
        let is_known = |fetch: &Fetch| {
            let mut lanes = self.lanes.iter();
            fetch.chunk.get() < chunks
                && lanes.any(|lane| lane.source == fetch.source && lane.in_flight > 0)
        };
        self.open.fits(chunks) && self.here.fits(chunks) && self.fetches.keys().all(is_known)
    }
}

record! {
    /// All stage-ins, and where they come from.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Arrivals {
        pub(crate) requests: BTreeMap<RequestId, Arrival>,
        pub(crate) sources: BTreeMap<SourceId, Source>,
        /// When all of them are looked at next, while any is live.
        pub(crate) look_at: Option<Timestamp>,
    }
}

impl Arrivals {
    pub(crate) fn live(&self) -> impl Iterator<Item = (&RequestId, &Arrival)> {
        let all = self.requests.iter();
        all.filter(|(_, arrival)| arrival.state.is_live())
    }

    /// Those that something is still to be done for, the most urgent first: by their deadlines, and after
    /// all of them what can't be on time, by priority.
    pub(crate) fn in_turn(&self) -> Vec<RequestId> {
        let key = |(id, arrival): (&RequestId, &Arrival)| {
            let below = if arrival.is_leftover {
                arrival.spec.priority.below_most()
            } else {
                0
            };
            (arrival.is_leftover, below, arrival.spec.deadline, *id)
        };
        let mut keys: Vec<_> = self.live().map(key).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, _, _, id)| id).collect()
    }

    /// Live stage-ins that a source may give something to.
    pub(crate) fn users(&self, source: SourceId) -> Vec<RequestId> {
        let users = self.live().filter(|(_, arrival)| arrival.uses(source));
        users.map(|(id, _)| *id).collect()
    }

    /// Whether bytes from outside made books that can be used.
    pub(crate) fn is_sound(&self) -> bool {
        self.requests.values().all(Arrival::is_sound)
    }
}
