use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet},
    string::String,
    vec::Vec,
};
use posthaste_types::{Bytes, ChunkIndex, DepotId, SourceId, Timestamp, record};

use crate::contract::{
    ArrivalSpec, ArrivalState, Binding, Cut, Fault, Forecast, Holding, LeftOut, Pause,
};
use crate::state::{
    Account, Bitmap, Claim, Decisions, Fetch, Flight, Near, Prestage, Purse, Turn, Wrong,
};

record! {
    /// Source as one stage-in uses it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct SourceLane {
        pub(crate) source: SourceId,
        /// Depot near the centre, if the source is one.
        pub(crate) near: Option<DepotId>,
        /// True once it no longer holds its files.
        pub(crate) is_gone: bool,
        /// Chunks that came from it first, and their bytes.
        pub(crate) arrived: u32,
        pub(crate) bytes: Bytes,
        pub(crate) in_flight: u32,
        /// Bytes that lay there at submission, and those of them that lay nowhere else.
        pub(crate) holds: Bytes,
        pub(crate) alone: Bytes,
    }
}

record! {
    /// Files at the same sources, as one stage-in uses them.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Held {
        /// Sources that still hold them.
        pub(crate) sources: Vec<SourceId>,
        /// Chunks that are neither here nor on their way, counted from its first.
        pub(crate) open: Bitmap,
        pub(crate) missing: Bytes,
        /// Time by which it must begin, at the last look; none if it does not fit.
        pub(crate) begin_by: Option<Timestamp>,
        /// True if its chunks may be asked for, at the last look.
        pub(crate) is_due: bool,
        /// True if they may go to depots near the centre meanwhile.
        pub(crate) may_prestage: bool,
    }
}

record! {
    /// Stage-in and everything about it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Arrival {
        pub(crate) spec: ArrivalSpec,
        pub(crate) submitted: Timestamp,
        pub(crate) state: ArrivalState,
        pub(crate) paused: Option<Pause>,
        /// True if it was accepted although its deadline can't be met, or missed it: it gets what
        /// is left.
        pub(crate) is_leftover: bool,
        /// Owner and project.
        pub(crate) owner: String,
        pub(crate) project: String,
        /// Turn among those, at the last look.
        pub(crate) turn: Turn,
        pub(crate) at_risk: bool,
        pub(crate) missed: bool,
        pub(crate) begun_at: Option<Timestamp>,
        pub(crate) arrived_at: Option<Timestamp>,
        pub(crate) begin_by: Option<Timestamp>,
        pub(crate) finish: Option<Forecast>,
        /// True if chunks may be asked for, at the last look.
        pub(crate) is_due: bool,
        /// Cut into chunks; none if it can't be cut.
        pub(crate) cut: Option<Cut>,
        /// Holdings, each run of its byte stream in turn; empty once it is over.
        pub(crate) held: Vec<Held>,
        /// Holding that binds its finish, at the last look.
        pub(crate) binding: Option<Binding>,
        /// Chunks that are here.
        pub(crate) here: Bitmap,
        pub(crate) bytes_here: Bytes,
        pub(crate) fetches: BTreeMap<Fetch, Flight>,
        /// Depots near the centre on which it may wait, and chunks on their way there.
        pub(crate) near: Vec<Near>,
        pub(crate) prestages: BTreeMap<Fetch, Prestage>,
        /// Time by which data that waits there must begin to come, at the last look; none if it
        /// does not fit.
        pub(crate) near_begin_by: Option<Timestamp>,
        /// True if that data may come.
        pub(crate) is_near_due: bool,
        /// True if the rate from there was known at the last look.
        pub(crate) is_near_known: bool,
        /// True once it was reported that data goes there.
        pub(crate) is_near_said: bool,
        /// Bytes sent to measure the rate there.
        pub(crate) probed: Bytes,
        pub(crate) lanes: Vec<SourceLane>,
        /// Time at which the driver was asked which chunks are here, while unanswered. Nothing is
        /// fetched meanwhile.
        pub(crate) asked_at: Option<Timestamp>,
        /// Time before which nothing is fetched: there is no room, or the pace is limited.
        pub(crate) held_until: Timestamp,
        pub(crate) paced_until: Timestamp,
        /// Consecutive times that the centre could not accept data.
        pub(crate) local_failures: u32,
        pub(crate) last_fault: Option<Fault>,
        pub(crate) wrong: Wrong,
        pub(crate) duplicates: u32,
        /// Files that are missing at the destination.
        pub(crate) left_out: LeftOut,
        /// Money of the stage-in; none if it has no budget and no source costs anything.
        pub(crate) purse: Option<Box<Purse>>,
        pub(crate) late_ticks: u32,
        pub(crate) on_time_ticks: u32,
        pub(crate) account: Account,
        pub(crate) decisions: Decisions,
    }
}

impl SourceLane {
    pub(crate) fn new(source: SourceId, near: Option<DepotId>) -> Self {
        Self {
            source,
            near,
            is_gone: false,
            arrived: 0,
            bytes: Bytes::ZERO,
            in_flight: 0,
            holds: Bytes::ZERO,
            alone: Bytes::ZERO,
        }
    }
}

impl Arrival {
    /// Returns its sources that still hold something, except depots near the centre.
    pub(crate) fn named(&self) -> impl Iterator<Item = SourceId> + '_ {
        let lanes = self.lanes.iter();
        let lanes = lanes.filter(|lane| !lane.is_gone && lane.near.is_none());
        lanes.map(|lane| lane.source)
    }

    /// Most sources of one stage-in: more replicas than any dataset has.
    pub(crate) const LANES_MAX: usize = 16;

    pub(crate) fn new(spec: ArrivalSpec, holdings: &[Holding], now: Timestamp) -> Self {
        let mut seen = BTreeSet::new();
        let sources = spec.sources.iter().copied();
        let sources = sources.filter(|source| seen.insert(*source));
        let lanes = sources
            .take(Self::LANES_MAX)
            .map(|source| SourceLane::new(source, None));
        let mut lanes: Vec<SourceLane> = lanes.collect();
        let cut = spec.cut(holdings);
        let all: Vec<SourceId> = lanes.iter().map(|lane| lane.source).collect();
        let held = cut.iter().flat_map(|cut| {
            (0..cut.holdings()).map(|place| {
                let named = holdings.get(place).map(|holding| &holding.sources);
                let named = |source: &SourceId| named.is_none_or(|named| named.contains(source));
                let chunks = cut.chunks_of(place);
                Held {
                    sources: all.iter().copied().filter(named).collect(),
                    open: Bitmap::full(chunks.end - chunks.start),
                    missing: cut.bytes_of(place),
                    begin_by: None,
                    is_due: false,
                    may_prestage: false,
                }
            })
        });
        let held: Vec<Held> = held.collect();
        weigh(&mut lanes, &held);
        Self {
            held,
            submitted: now,
            state: ArrivalState::Waiting,
            paused: None,
            is_leftover: false,
            owner: String::new(),
            project: String::new(),
            turn: Turn::FIRST,
            at_risk: false,
            missed: false,
            begun_at: None,
            arrived_at: None,
            begin_by: None,
            finish: None,
            is_due: false,
            binding: None,
            here: Bitmap::empty(cut.as_ref().map_or(0, Cut::chunks)),
            bytes_here: Bytes::ZERO,
            fetches: BTreeMap::new(),
            near: Vec::new(),
            prestages: BTreeMap::new(),
            near_begin_by: None,
            is_near_due: false,
            is_near_known: false,
            is_near_said: false,
            probed: Bytes::ZERO,
            lanes,
            asked_at: None,
            held_until: Timestamp::default(),
            paced_until: Timestamp::default(),
            local_failures: 0,
            last_fault: None,
            wrong: Wrong::default(),
            duplicates: 0,
            left_out: LeftOut::default(),
            purse: None,
            late_ticks: 0,
            on_time_ticks: 0,
            account: Account::default(),
            decisions: Decisions::default(),
            cut,
            spec,
        }
    }

    /// Removes unknown sources, which can't be asked.
    pub(crate) fn keep_sources(&mut self, is_known: impl Fn(SourceId) -> bool) {
        self.lanes.retain(|lane| is_known(lane.source));
        for held in &mut self.held {
            held.sources.retain(|source| is_known(*source));
        }
    }

    /// Returns whether it is cut into chunks and each of them lies somewhere.
    pub(crate) fn can_be_had(&self) -> bool {
        let is_somewhere = |held: &Held| held.missing == Bytes::ZERO || !held.sources.is_empty();
        !self.lanes.is_empty() && self.cut.is_some() && self.held.iter().all(is_somewhere)
    }

    /// Returns whether it can't be on time and is not over.
    pub(crate) fn gets_what_is_left(&self) -> bool {
        self.is_leftover && self.state.is_live()
    }

    /// Returns its claim on what is left.
    pub(crate) fn claim(&self) -> Claim<'_> {
        Claim {
            priority: self.spec.priority,
            owner: &self.owner,
            project: &self.project,
        }
    }

    /// Returns the number of its chunks.
    pub(crate) fn chunks(&self) -> u32 {
        self.cut.as_ref().map_or(0, Cut::chunks)
    }

    pub(crate) fn chunk_bytes(&self, chunk: u32) -> Bytes {
        let cut = self.cut.as_ref();
        cut.map_or(Bytes::ZERO, |cut| cut.chunk_bytes(chunk))
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.here.len() == self.chunks()
    }

    pub(crate) fn missing(&self) -> Bytes {
        self.spec.bytes - self.bytes_here
    }

    /// Returns the place of a chunk's holding, and the chunk's place in that.
    pub(super) fn place_of(&self, chunk: u32) -> Option<(usize, u32)> {
        let cut = self.cut.as_ref().filter(|cut| chunk < cut.chunks())?;
        let place = cut.holding_of(chunk);
        (place < self.held.len()).then(|| (place, chunk - cut.chunks_of(place).start))
    }

    /// Returns the holding of a chunk.
    pub(crate) fn held_of(&self, chunk: ChunkIndex) -> Option<&Held> {
        let (place, _) = self.place_of(chunk.get())?;
        self.held.get(place)
    }

    /// Returns whether a source may be asked for a chunk.
    pub(crate) fn lies_at(&self, chunk: ChunkIndex, source: SourceId) -> bool {
        if let Some(near) = self.near_as(source) {
            return near.held.contains(chunk.get());
        }
        let held = self.held_of(chunk);
        held.is_some_and(|held| held.sources.contains(&source))
    }

    /// Returns the next chunk of a holding.
    pub(crate) fn next_open(&self, place: usize) -> Option<ChunkIndex> {
        let first = self.cut.as_ref()?.chunks_of(place).start;
        let open = self.held.get(place)?.open.first()?;
        Some(ChunkIndex::new(first + open))
    }

    /// Takes a chunk, which is on its way from now on.
    pub(crate) fn take_open(&mut self, chunk: ChunkIndex) {
        if let Some((place, local)) = self.place_of(chunk.get()) {
            self.held[place].open.remove(local);
        }
        for near in &mut self.near {
            near.open.remove(chunk.get());
        }
    }

    /// Counts bytes read from now on: with a limit, nothing more is read until they are paid for.
    pub(crate) fn pace(&mut self, now: Timestamp, bytes: Bytes) {
        if let Some(rate) = self.spec.rate_max {
            self.paced_until = self.paced_until.max(now) + rate.time_for(bytes);
        }
    }

    /// Returns a chunk to the open ones: it is neither on its way nor here.
    pub(crate) fn reopen(&mut self, chunk: ChunkIndex) {
        let mut near = self.near.iter_mut();
        if let Some(near) = near.find(|near| near.held.contains(chunk.get())) {
            near.open.insert(chunk.get());
        } else if let Some((place, local)) = self.place_of(chunk.get()) {
            self.held[place].open.insert(local);
        }
    }

    /// Counts chunks that are neither here nor on their way.
    pub(crate) fn open(&self) -> u32 {
        let far = self.held.iter().map(|held| held.open.len());
        let near = self.near.iter().map(|near| near.open.len());
        far.chain(near).sum()
    }

    /// Counts open chunks for which a source may be asked, with at most as many more that lie near
    /// the centre.
    pub(crate) fn open_at(&self, source: SourceId) -> u32 {
        if let Some(near) = self.near_as(source) {
            return near.open.len();
        }
        let held = self.held.iter();
        let held = held.filter(|held| held.sources.contains(&source));
        let far: u32 = held.map(|held| held.open.len()).sum();
        let near = self.near.iter().map(|near| near.open.len());
        far + near.sum::<u32>()
    }

    /// Removes a source from the holding of a chunk. Returns whether it gives nothing at all now.
    pub(crate) fn forget_holder(&mut self, chunk: ChunkIndex, source: SourceId) {
        if let Some((place, _)) = self.place_of(chunk.get()) {
            self.held[place].sources.retain(|other| *other != source);
        }
        let mut held = self.held.iter();
        let is_gone = held.all(|held| !held.sources.contains(&source));
        if let Some(lane) = self.lane_mut(source) {
            lane.is_gone |= is_gone;
        }
    }

    pub(crate) fn lane_mut(&mut self, source: SourceId) -> Option<&mut SourceLane> {
        self.lanes.iter_mut().find(|lane| lane.source == source)
    }

    /// Returns whether this source may give something to it.
    pub(crate) fn uses(&self, source: SourceId) -> bool {
        let mut lanes = self.lanes.iter();
        lanes.any(|lane| lane.source == source && !lane.is_gone)
    }

    /// Marks a chunk as here. Returns whether that is new.
    pub(crate) fn take(&mut self, chunk: u32) -> bool {
        if self.here.contains(chunk) {
            return false;
        }
        self.here.insert(chunk);
        let bytes = self.chunk_bytes(chunk);
        self.bytes_here += bytes;
        self.leave_near(chunk);
        if let Some((place, local)) = self.place_of(chunk) {
            let held = &mut self.held[place];
            held.open.remove(local);
            held.missing -= bytes;
        }
        true
    }

    /// Replaces the chunks that are here; nothing is on its way.
    pub(crate) fn found(&mut self, chunks: impl Iterator<Item = u32>) {
        let all = self.chunks();
        self.here = Bitmap::empty(all);
        self.bytes_here = Bytes::ZERO;
        if let Some(cut) = &self.cut {
            for (place, held) in self.held.iter_mut().enumerate() {
                let chunks = cut.chunks_of(place);
                held.open = Bitmap::full(chunks.end - chunks.start);
                held.missing = cut.bytes_of(place);
            }
        }
        for chunk in chunks.filter(|chunk| *chunk < all) {
            self.take(chunk);
        }
        self.found_near();
    }

    /// Counts how often a chunk is on its way.
    pub(crate) fn fetches_of(&self, chunk: ChunkIndex) -> usize {
        let least = Fetch {
            chunk,
            source: SourceId::new(0),
        };
        let fetches = self.fetches.range(least..);
        fetches.take_while(|(key, _)| key.chunk == chunk).count()
    }

    /// Forgets which chunks are here: it won't be asked again.
    pub(crate) fn close_books(&mut self) {
        self.here = Bitmap::empty(0);
        self.held = Vec::new();
        self.near.clear();
        self.prestages.clear();
        self.wrong = Wrong::default();
        self.binding = None;
        (self.at_risk, self.finish, self.begin_by) = (false, None, None);
        if let Some(purse) = &mut self.purse {
            (purse.coming, purse.is_pressed) = (0, false);
        }
        self.asked_at = None;
    }

    /// Returns whether decoded bytes made a usable stage-in.
    pub(super) fn is_sound(&self) -> bool {
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
        let is_cut = |cut: &Cut| {
            let held = self.held.iter().enumerate();
            let fits = |(place, held): (usize, &Held)| {
                let chunks = cut.chunks_of(place);
                held.open.fits(chunks.end - chunks.start)
            };
            cut.is_sound()
                && (self.held.is_empty() || self.held.len() == cut.holdings())
                && held.into_iter().all(fits)
        };
        self.cut.as_ref().map_or(self.held.is_empty(), is_cut)
            && (!self.state.is_live() || !self.held.is_empty())
            && self.here.fits(chunks)
            && self.fetches.keys().all(is_known)
            && self.is_near_sound()
    }
}

/// Records how much lies at each source, and how much of that nowhere else.
fn weigh(lanes: &mut [SourceLane], held: &[Held]) {
    for lane in lanes {
        let there = held
            .iter()
            .filter(|held| held.sources.contains(&lane.source));
        lane.holds = there.clone().map(|held| held.missing).sum();
        let alone = there.filter(|held| held.sources.len() == 1);
        lane.alone = alone.map(|held| held.missing).sum();
    }
}
