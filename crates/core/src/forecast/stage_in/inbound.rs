//! Rates of sources, and the turns of stage-ins to take them: early for their forecasts, late for
//! their promises.

use alloc::{collections::BTreeMap, vec::Vec};
use core::cmp::Reverse;
use posthaste_plan::{Curve, Lane, Load, Outcome, Supplies, Supply};
use posthaste_types::{ByteRate, Bytes, SourceId, Timestamp};

use crate::state::{Arrival, Near};

/// Rates of sources, taken in turn.
#[derive(Debug, Clone)]
pub(crate) struct Inbound {
    pub(super) places: BTreeMap<SourceId, usize>,
    /// True for each source that gives anything now or later.
    gives: Vec<bool>,
    /// True for each source that may be counted on, even if it only comes back some time.
    counts: Vec<bool>,
    supplies: Supplies,
}

/// Share of what a stage-in lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Share {
    /// Bytes of a holding that lie at its sources only.
    Far(usize),
    /// Bytes of a holding that lie near the centre.
    Near(usize),
    /// Bytes that go near the centre first, and have to come from there.
    Onward,
}

/// Time at which one share of a stage-in begins or is here; none if it does not fit.
pub(super) type Edge = (Share, Option<Timestamp>);

/// Forecast of a stage-in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fare {
    /// Time at which all of it is here; none if that can't be.
    pub(crate) edge: Option<Timestamp>,
    /// Place of the holding that decides it.
    pub(super) binds: Option<usize>,
}

/// Bounds that a budget sets on what sources give of one stage-in's holdings: each bound covers all
/// such holdings together.
#[derive(Debug, Default)]
struct Rooms {
    most: BTreeMap<(Share, usize), Bytes>,
    taken: BTreeMap<usize, Bytes>,
    /// Share being filled in.
    share: Option<Share>,
}

impl Rooms {
    /// Bounds the lanes of a share.
    fn bound(&mut self, share: Share, load: &mut Load) {
        self.share = match share {
            Share::Far(_) | Share::Near(_) if !self.most.is_empty() => Some(share),
            Share::Far(_) | Share::Near(_) | Share::Onward => None,
        };
        if self.share.is_none() {
            return;
        }
        for lane in &mut load.lanes {
            if let Some(most) = self.most.get(&(share, lane.supply)) {
                let taken = self.taken.get(&lane.supply).copied();
                let room = *most - taken.unwrap_or(Bytes::ZERO);
                lane.room = lane.room.min(room);
            }
        }
    }

    /// Counts what the lanes carried.
    fn take(&mut self, load: &Load, outcome: &Outcome) {
        let Some(share) = self.share else {
            return;
        };
        for (supply, bytes) in load.placed(outcome) {
            if self.most.contains_key(&(share, supply)) {
                *self.taken.entry(supply).or_default() += bytes;
            }
        }
    }
}

impl Inbound {
    /// Builds it from each source, whether it gives anything now or later, whether it may be
    /// counted on, and its rate.
    pub(super) fn new(sources: impl Iterator<Item = (SourceId, [bool; 2], Curve)>) -> Self {
        let mut inbound = Self {
            places: BTreeMap::new(),
            gives: Vec::new(),
            counts: Vec::new(),
            supplies: Supplies::default(),
        };
        for (place, (id, [gives, counts], curve)) in sources.enumerate() {
            inbound.places.insert(id, place);
            inbound.gives.push(gives);
            inbound.counts.push(counts);
            let endless = Bytes::new(u64::MAX >> 1);
            inbound.supplies.depots.push(Supply::new(curve, endless));
        }
        inbound
    }

    /// Returns a load of so many bytes, from any of these sources.
    fn load<'a>(&self, bytes: Bytes, sources: impl Iterator<Item = &'a SourceId>) -> Load {
        let lanes = sources.filter_map(|source| self.places.get(source));
        Load {
            bytes,
            lanes: lanes
                .map(|&supply| Lane::new(supply, bytes, Bytes::ZERO))
                .collect(),
            whole: None,
            rate_max: None,
            shut: Vec::new(),
        }
    }

    /// Returns whether a source gives anything now or later.
    pub(crate) fn gives(&self, source: SourceId) -> bool {
        let place = self.places.get(&source);
        place.is_some_and(|place| self.gives[*place])
    }

    /// Sets the rate of a source.
    pub(crate) fn give_from(&mut self, source: SourceId, curve: Curve) {
        if let Some(place) = self.places.get(&source) {
            self.gives[*place] = true;
            self.supplies.depots[*place].curve = curve;
        }
    }

    /// Adds reserved rate to a source.
    pub(crate) fn reserve(
        &mut self,
        source: SourceId,
        from: Timestamp,
        until: Timestamp,
        rate: ByteRate,
    ) {
        if let Some(place) = self.places.get(&source) {
            let curve = &mut self.supplies.depots[*place].curve;
            curve.give_back(from, until, rate);
        }
    }

    /// Returns the shares that a stage-in lacks, and where they lie. What a depot near the centre
    /// can't give now has to come from its sources after all.
    fn shares(&self, arrival: &Arrival) -> Vec<(Share, Load)> {
        let mut shares = Vec::new();
        for (place, held) in arrival.held.iter().enumerate() {
            let far = arrival.far(place);
            if far > Bytes::ZERO {
                shares.push((Share::Far(place), self.load(far, held.sources.iter())));
            }
            for near in &arrival.near {
                let bytes = near.bytes.get(place).copied().unwrap_or(Bytes::ZERO);
                if bytes == Bytes::ZERO {
                    continue;
                }
                let own = Some(&near.source).filter(|source| self.gives(**source));
                let is_alone =
                    own.is_some() && arrival.comes_from_near(near, place, &self.counting());
                let others = if is_alone { &[] } else { &held.sources[..] };
                let from = own.into_iter().chain(others);
                shares.push((Share::Near(place), self.load(bytes, from)));
            }
        }
        shares
    }

    /// Returns the load that goes near the centre first and has to come from there; nothing if the
    /// rate from there is unknown.
    fn onward(&self, arrival: &Arrival) -> Load {
        let held = arrival.held.iter().enumerate();
        let held = held.filter(|(_, held)| held.may_prestage && arrival.is_near_known);
        let bytes = held.map(|(place, _)| arrival.far(place)).sum();
        let near = arrival.near.iter().map(|near| &near.source);
        self.load(bytes, near.filter(|source| self.gives(**source)))
    }

    /// Fills one share after another, those at the fewest giving sources first, which is the order
    /// in which sources give. All of it can come this way wherever it lies, so the result is never
    /// too optimistic.
    pub(super) fn fill(
        &mut self,
        arrival: &Arrival,
        mut fill: impl FnMut(&Supplies, Share, &Load) -> Outcome,
    ) -> Vec<Edge> {
        let mut order = self.shares(arrival);
        order.sort_by_key(|(share, load)| {
            let lanes = load.lanes.iter();
            let gives = lanes.filter(|lane| self.gives[lane.supply]).count();
            (gives, matches!(share, Share::Near(_)))
        });
        let onward = self.onward(arrival);
        if onward.bytes > Bytes::ZERO {
            order.push((Share::Onward, onward));
        }
        self.supplies.pace = arrival.spec.rate_max.map(Curve::constant);
        let mut rooms = self.rooms(arrival);
        let edges = order.into_iter().map(|(share, mut load)| {
            rooms.bound(share, &mut load);
            let outcome = fill(&self.supplies, share, &load);
            self.supplies.take(&load, &outcome);
            rooms.take(&load, &outcome);
            (share, outcome.edge)
        });
        let edges = edges.collect();
        self.supplies.pace = None;
        edges
    }

    /// Returns what a budget lets each source give of each holding.
    fn rooms(&self, arrival: &Arrival) -> Rooms {
        let mut rooms = Rooms::default();
        if !arrival.has_budget() {
            return rooms;
        }
        let counts = self.counting();
        let spare = arrival.money_to_spare(&counts);
        let mut bound = |share: Share, source: SourceId, room: Option<Bytes>| {
            if let (Some(room), Some(supply)) = (room, self.places.get(&source)) {
                let most = rooms.most.entry((share, *supply)).or_insert(room);
                *most = room.min(*most);
            }
        };
        for (place, held) in arrival.held.iter().enumerate() {
            for source in &held.sources {
                let room = arrival.room_at(*source, place, None, spare, &counts);
                bound(Share::Far(place), *source, room);
            }
            let there = |near: &&Near| near.bytes.get(place) > Some(&Bytes::ZERO);
            for near in arrival.near.iter().filter(there) {
                for source in held.sources.iter().chain([&near.source]) {
                    let room = arrival.room_at(*source, place, Some(near), spare, &counts);
                    bound(Share::Near(place), *source, room);
                }
            }
        }
        rooms
    }

    /// Returns whether a source may be counted on, now or later.
    fn counting(&self) -> impl Fn(SourceId) -> bool + '_ {
        |source| {
            let place = self.places.get(&source);
            place.is_some_and(|place| self.counts[*place])
        }
    }

    /// Lets one stage-in take its shares as early as each may. Returns when it would be here.
    pub(crate) fn early(&mut self, arrival: &Arrival, from: impl Fn(Share) -> Timestamp) -> Fare {
        let edges = self.fill(arrival, |supplies, share, load| {
            supplies.early(load, from(share))
        });
        // A share that never comes is later than any.
        let last = edges
            .iter()
            .max_by_key(|(share, edge)| (edge.is_none(), *edge, Reverse(*share)));
        last.map_or_else(
            || Fare {
                edge: (0..arrival.held.len())
                    .map(|place| from(Share::Far(place)))
                    .max(),
                binds: None,
            },
            |(share, edge)| Fare {
                edge: *edge,
                binds: match share {
                    Share::Far(place) => Some(*place),
                    Share::Near(_) | Share::Onward => None,
                },
            },
        )
    }

    /// Promises one stage-in its shares before `until`. Returns when each must begin; none if it
    /// does not fit.
    pub(crate) fn late(
        &mut self,
        arrival: &Arrival,
        from: Timestamp,
        until: Timestamp,
    ) -> Vec<Edge> {
        self.fill(arrival, |supplies, _, load| {
            supplies.late(load, from, until)
        })
    }

    /// Returns when what may go near the centre first would have to begin to come from there,
    /// beside what lies there.
    pub(crate) fn late_onward(
        &self,
        arrival: &Arrival,
        from: Timestamp,
        until: Timestamp,
    ) -> Option<Timestamp> {
        let near = arrival.near.iter();
        let near = near.filter(|near| self.gives(near.source));
        let held = arrival.held.iter().map(|held| held.missing);
        let mut load = self.load(held.sum(), near.map(|near| &near.source));
        load.rate_max = arrival.spec.rate_max;
        if load.lanes.is_empty() {
            return None;
        }
        self.supplies.late(&load, from, until).edge
    }
}
