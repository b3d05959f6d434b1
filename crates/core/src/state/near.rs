//! Chunks of a stage-in at depots near the centre, or on their way there.

use alloc::{vec, vec::Vec};
use core::time::Duration;
use posthaste_types::{Bytes, ChunkIndex, DepotId, SourceId, Timestamp, record};

use crate::state::{Arrival, Bitmap, Fetch, Flight, SourceLane};
use crate::{
    Settings,
    contract::{NearDepot, SourcePrice},
};

record! {
    /// Depot near the centre as one stage-in uses it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Near {
        pub(crate) depot: DepotId,
        /// Source under which it is read.
        pub(crate) source: SourceId,
        /// Chunks that lie there and are not here.
        pub(crate) held: Bitmap,
        /// Chunks that lie there and are not on their way here.
        pub(crate) open: Bitmap,
        /// Bytes that it holds of each holding.
        pub(crate) bytes: Vec<Bytes>,
        /// Chunks on their way there, and their bytes.
        pub(crate) in_flight: u32,
        pub(crate) flying: Bytes,
        /// True if anything of the stage-in was ever sent there; the depot is then told when that
        /// is over.
        pub(crate) is_used: bool,
        /// Chunks not accepted since the last one that was.
        pub(crate) failures: u32,
        /// Time before which nothing is sent there.
        pub(crate) resume_at: Timestamp,
        /// Cost of reading it at the last look, with a budget.
        pub(crate) price: Option<SourcePrice>,
        /// True if anything can come from there now, at the last look, with a budget.
        pub(crate) gives: bool,
    }
}

record! {
    /// Chunk on its way from a source to a depot near the centre.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Prestage {
        pub(crate) depot: DepotId,
        pub(crate) flight: Flight,
    }
}

impl Near {
    pub(crate) fn missing(&self) -> Bytes {
        self.bytes.iter().copied().sum()
    }

    /// Records that it did not accept a chunk: nothing is sent there for a while. Returns whether
    /// that is new.
    pub(crate) fn fail(&mut self, now: Timestamp, settings: &Settings) -> bool {
        self.failures = self.failures.saturating_add(1);
        let pause: Duration = settings.hold * (1 << (self.failures - 1).min(16));
        self.resume_at = now + pause.min(settings.hold_max);
        self.failures == 1
    }
}

impl Arrival {
    /// Lets it wait at a depot near the centre.
    pub(crate) fn add_near(&mut self, added: NearDepot) {
        let is_known = self.lanes.iter().any(|lane| lane.source == added.source);
        if is_known || self.near.len() >= NearDepot::MOST {
            return;
        }
        let chunks = self.chunks();
        self.near.push(Near {
            depot: added.depot,
            source: added.source,
            held: Bitmap::empty(chunks),
            open: Bitmap::empty(chunks),
            bytes: vec![Bytes::ZERO; self.held.len()],
            in_flight: 0,
            flying: Bytes::ZERO,
            is_used: false,
            failures: 0,
            resume_at: Timestamp::default(),
            price: None,
            gives: true,
        });
        let lane = SourceLane::new(added.source, Some(added.depot));
        self.lanes.push(lane);
    }

    /// Returns whether chunks may be read at all, to come here or near, at the last look.
    pub(crate) fn may_read(&self) -> bool {
        let is_wanted = self.is_due || self.held.iter().any(|held| held.may_prestage);
        is_wanted && self.paused.is_none()
    }

    pub(crate) fn near_as(&self, source: SourceId) -> Option<&Near> {
        self.near.iter().find(|near| near.source == source)
    }

    pub(crate) fn near_at(&mut self, depot: DepotId) -> Option<&mut Near> {
        self.near.iter_mut().find(|near| near.depot == depot)
    }

    /// Returns the bytes of a holding that lie neither here nor near the centre.
    pub(crate) fn far(&self, place: usize) -> Bytes {
        let near = self.near.iter().filter_map(|near| near.bytes.get(place));
        let missing = self
            .held
            .get(place)
            .map_or(Bytes::ZERO, |held| held.missing);
        missing - near.copied().sum::<Bytes>().min(missing)
    }

    /// Begins a chunk's way to a depot near the centre.
    pub(crate) fn begin_prestage(&mut self, fetch: Fetch, depot: DepotId, flight: Flight) {
        self.take_open(fetch.chunk);
        if let Some(near) = self.near_at(depot) {
            near.in_flight += 1;
            near.flying += flight.bytes;
            near.is_used = true;
        }
        self.prestages.insert(fetch, Prestage { depot, flight });
    }

    /// Ends that in any way: the chunk is wanted again.
    pub(crate) fn end_prestage(&mut self, fetch: Fetch) -> Option<Prestage> {
        let prestage = self.prestages.remove(&fetch)?;
        if let Some(near) = self.near_at(prestage.depot) {
            near.in_flight -= 1;
            near.flying -= prestage.flight.bytes;
        }
        if self.state.is_live() && !self.here.contains(fetch.chunk.get()) {
            self.reopen(fetch.chunk);
        }
        Some(prestage)
    }

    /// Records that a depot near the centre holds a chunk.
    pub(crate) fn keep_near(&mut self, chunk: ChunkIndex, depot: DepotId) {
        let (chunk, bytes) = (chunk.get(), self.chunk_bytes(chunk.get()));
        let Some((place, local)) = self.place_of(chunk) else {
            return;
        };
        let is_kept = self.near.iter().any(|near| near.held.contains(chunk));
        if is_kept || self.here.contains(chunk) {
            return;
        }
        let is_open = self.held[place].open.contains(local);
        if let Some(near) = self.near_at(depot) {
            near.held.insert(chunk);
            near.bytes[place] += bytes;
            if is_open {
                near.open.insert(chunk);
            }
        }
        if is_open {
            self.held[place].open.remove(local);
        }
    }

    /// Removes a chunk near the centre: it is here, or that depot lost it.
    pub(crate) fn leave_near(&mut self, chunk: u32) {
        let bytes = self.chunk_bytes(chunk);
        let Some((place, local)) = self.place_of(chunk) else {
            return;
        };
        for near in &mut self.near {
            if near.held.contains(chunk) {
                near.held.remove(chunk);
                near.bytes[place] -= bytes;
                if near.open.contains(chunk) {
                    near.open.remove(chunk);
                    self.held[place].open.insert(local);
                }
            }
        }
    }

    /// Removes everything that a depot near the centre holds.
    pub(crate) fn leave_all_near(&mut self, source: SourceId) {
        let near = self.near_as(source);
        let chunks: Vec<u32> = near.map_or(Vec::new(), |near| near.held.members().collect());
        for chunk in chunks {
            self.leave_near(chunk);
        }
    }

    /// Restores the rest near the centre, after the chunks here were listed anew and nothing is on
    /// its way.
    pub(crate) fn found_near(&mut self) {
        let kept: Vec<(u32, DepotId)> = self
            .near
            .iter()
            .flat_map(|near| near.held.members().map(|chunk| (chunk, near.depot)))
            .collect();
        let (chunks, places) = (self.chunks(), self.held.len());
        for near in &mut self.near {
            (near.held, near.open) = (Bitmap::empty(chunks), Bitmap::empty(chunks));
            near.bytes = vec![Bytes::ZERO; places];
        }
        for (chunk, depot) in kept {
            self.keep_near(ChunkIndex::new(chunk), depot);
        }
    }

    /// Returns whether decoded bytes made a usable value.
    pub(super) fn is_near_sound(&self) -> bool {
        if !self.state.is_live() {
            return self.prestages.is_empty() && self.near.iter().all(|near| near.in_flight == 0);
        }
        let (chunks, places) = (self.chunks(), self.held.len());
        let is_sound = |near: &Near| {
            let flights = self.prestages.values();
            let flights = flights.filter(|prestage| prestage.depot == near.depot);
            near.held.fits(chunks)
                && near.open.fits(chunks)
                && near.bytes.len() == places
                && flights.count() == near.in_flight as usize
                && near.open.members().all(|chunk| near.held.contains(chunk))
        };
        self.near.iter().all(is_sound)
            && self
                .prestages
                .keys()
                .all(|fetch| fetch.chunk.get() < chunks)
    }
}
