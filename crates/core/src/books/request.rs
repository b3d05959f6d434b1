mod crowd;
mod lost;
mod onward;
mod pieces;
mod pinned;
mod uncommon;
mod wishes;

use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use posthaste_plan::{Pace, tuner::Method};
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, Timestamp, record};

use super::{
    Account, Asks, Blank, Decisions, Due, Push, Quota, Rare, Replica, Shared, Throttle, Tuning,
    Turn,
};
use crate::{
    Settings,
    contract::{Fault, Forecast, RequestSpec, RequestState, Wishes},
};
use uncommon::Uncommon;

record! {
    /// Which way a request's data goes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Route {
        /// Whole chunks straight to the destination, and nothing else.
        0 = Direct,
        /// Fragments to depots, and meanwhile whole chunks to the destination where there is one.
        1 = Staged,
    }
}

record! {
    /// How far the release of the source is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Release {
        /// Not commanded.
        0 = Pending,
        /// Commanded; the source may be gone.
        1 = Commanded,
        /// The source is gone.
        2 = Done,
        /// It could not be removed.
        3 = Kept,
        /// Some of it could not be removed, and the rest is gone, or another one: nothing is read from it any more.
        4 = Left,
    }
}

impl Release {
    /// Whether nothing can be sent again.
    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Left)
    }
}

record! {
    /// One depot as one request uses it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Lane {
        pub(crate) depot: DepotId,
        /// It is fed now.
        pub(crate) is_active: bool,
        /// Something was sent to it: after an interruption it must be asked what it has.
        pub(crate) is_used: bool,
        /// When it was asked what it holds, while the answer is out. Nothing is sent meanwhile.
        pub(crate) asked_at: Option<Timestamp>,
        pub(crate) in_flight: u32,
        /// Fragments on their way here from depots that code.
        pub(crate) awaited: u32,
        /// Lanes to depots that fail together with this one in any way, itself among them, as a mask.
        pub(crate) kin: u64,
        /// Pieces that the last look counted on sending there: their space is kept for them.
        pub(crate) kept: u32,
        /// What a plan in force gives it; none where it may have what it gets.
        pub(crate) quota: Option<Quota>,
        /// Governs how many are; none until the optimizer knows enough to begin.
        pub(crate) tuning: Option<Box<Tuning>>,
    }
}

record! {
    /// A chunk being sent.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Stripe {
        /// Fragments that no depot holds or is being sent, as a mask.
        pub(crate) wanted: u64,
        /// Lanes that hold or are being sent one, as a mask.
        pub(crate) taken: u64,
        /// Sends that failed.
        pub(crate) failures: u32,
        pub(crate) last_fault: Option<Fault>,
    }
}

record! {
    /// A request and everything about it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Request {
        pub(crate) spec: RequestSpec,
        /// The optimizer asked for.
        pub(crate) method: Method,
        /// What is wished beyond the deadline.
        pub(crate) wishes: Shared<Wishes>,
        /// The deadline its user asked for.
        pub(crate) wished_deadline: Timestamp,
        pub(crate) submitted: Timestamp,
        pub(crate) state: RequestState,
        /// It was taken though its deadline can't be met, or it missed it: it gets what is left.
        pub(crate) is_leftover: bool,
        pub(crate) at_risk: bool,
        pub(crate) missed: bool,
        pub(crate) safe_at: Option<Timestamp>,
        pub(crate) finish: Option<Forecast>,
        pub(crate) route: Route,
        /// More urgent ones leave it something of the way out now.
        pub(crate) is_due: bool,
        /// What was begun for it costs, in millionths of a dollar, with keeping it.
        pub(crate) spent_micro_usd: u64,
        /// The depots in the user's order, then the destinations.
        pub(crate) lanes: Box<[Lane]>,
        /// Lanes of destinations, as a mask.
        destinations: u64,
        /// The destination that plans count on: each chunk goes whole to one of them first.
        lead: Option<usize>,
        /// Fragments of a chunk that depots which fail together may hold.
        pub(crate) domain_max: u32,
        pub(crate) replica: Replica,
        pub(crate) stripes: Rare<BTreeMap<ChunkIndex, Stripe>>,
        /// How much of each chunk is on its way; late copies outlive their stripe.
        flying: Rare<BTreeMap<ChunkIndex, u32>>,
        /// What may go on between depots; none where all are of one level.
        pub(crate) push: Option<Box<Push>>,
        /// What destinations may take from each other; none where there is one only.
        pub(crate) delivery: Option<Box<Push>>,
        /// What depots may make again of it without its source; none before anything was lost.
        pub(crate) mend: Option<Box<Push>>,
        /// It was said that chunks are not safe, and not yet that they are again, since the source left.
        pub(crate) is_thin: bool,
        /// How that stands beside when it is wanted there.
        pub(crate) due: Rare<Due>,
        pub(crate) pace: Pace,
        pub(crate) late_ticks: u32,
        pub(crate) on_time_ticks: u32,
        pub(crate) release: Release,
        /// Where its slack went.
        pub(crate) account: Account,
        pub(crate) decisions: Decisions,
        pub(crate) uncommon: Rare<Uncommon>,
    }
}

impl Request {
    pub(crate) fn new(
        spec: RequestSpec,
        method: Method,
        wishes: Wishes,
        pinned: Vec<DepotId>,
        now: Timestamp,
    ) -> Self {
        let lanes = lanes_of(&spec, &wishes, &pinned);
        let destinations = whole_mask(&lanes, &spec);
        let lead = (destinations != 0).then(|| destinations.trailing_zeros() as usize);
        let chunks = Self::cut(&spec);
        let pinned_lanes = pinned::mask(&lanes, &pinned);
        let uncommon = Uncommon {
            throttle: Throttle::new(wishes.rate_max),
            pinned,
            ..Uncommon::BLANK.clone()
        };
        Self {
            method,
            wished_deadline: spec.deadline,
            wishes: Shared::from(wishes),
            submitted: now,
            state: RequestState::Moving,
            is_leftover: false,
            at_risk: false,
            missed: false,
            safe_at: None,
            finish: None,
            route: Route::Staged,
            is_due: true,
            replica: Replica::new(&spec, chunks, lanes.len(), destinations, pinned_lanes),
            spent_micro_usd: 0,
            lanes,
            destinations,
            lead,
            domain_max: 1,
            stripes: Rare::default(),
            flying: Rare::default(),
            push: None,
            delivery: None,
            mend: None,
            is_thin: false,
            due: Rare::default(),
            pace: Pace::default(),
            late_ticks: 0,
            on_time_ticks: 0,
            release: Release::Pending,
            account: Account::default(),
            decisions: Decisions::default(),
            uncommon: Rare::from(uncommon),
            spec,
        }
    }

    /// Depots a request can use: a mask of lanes is a word, and twice 32 fragments is the widest code.
    pub(crate) const LANES_MAX: usize = 64;

    /// Chunks of a dataset: a byte for each and depot must fit into memory. 2^26 chunks of 64 MiB are
    /// 4 EiB.
    const CHUNKS_MAX: u64 = 1 << 26;

    /// Chunks of the dataset; none where it can't be cut.
    fn cut(spec: &RequestSpec) -> u32 {
        if Self::is_cut(spec) { spec.chunks() } else { 0 }
    }

    /// Whether the dataset can be cut into chunks at all.
    pub(crate) fn is_cut(spec: &RequestSpec) -> bool {
        let chunks = spec.bytes.pieces(spec.chunk_size);
        spec.bytes == Bytes::ZERO || (1..=Self::CHUNKS_MAX).contains(&chunks)
    }

    /// Its code was chosen: nothing was stored yet.
    pub(crate) fn recode(&mut self) {
        let chunks = self.replica.chunks();
        self.replica = self.empty_replica(chunks);
    }

    fn empty_replica(&self, chunks: u32) -> Replica {
        let (lanes, pinned) = (self.lanes.len(), self.pinned_lanes());
        let mut empty = Replica::new(&self.spec, chunks, lanes, self.destinations, pinned);
        empty.set_holders(self.replica.holders());
        empty
    }

    /// Forgets what depots hold: nobody will ask again.
    pub(crate) fn close_books(&mut self) {
        self.stripes.clear();
        (self.push, self.delivery, self.mend) = (None, None, None);
        self.replica = self.empty_replica(0);
        (self.at_risk, self.due.at_risk) = (false, false);
        (self.finish, self.due.finish) = (None, None);
    }

    /// It gets what others leave from now on, in this turn among those that do.
    pub(crate) fn go_last(&mut self, turn: Turn) {
        (
            self.is_leftover,
            self.uncommon.has_conceded,
            self.uncommon.turn,
        ) = (true, false, turn);
    }

    /// Its deadline says again when it is its turn.
    pub(crate) fn take_turn(&mut self) {
        (self.is_leftover, self.uncommon.has_conceded) = (false, false);
    }

    pub(crate) fn is_moving(&self) -> bool {
        self.state == RequestState::Moving
    }

    /// Whether nothing about it can change any more, except that depots are lost or people look.
    pub(crate) fn is_final(&self) -> bool {
        match self.state {
            RequestState::Refused
            | RequestState::Delivered
            | RequestState::Cancelled
            | RequestState::Failed => true,
            RequestState::Moving | RequestState::Safe | RequestState::Released => false,
        }
    }

    /// Whether anybody still cares what the depots hold of it.
    pub(crate) fn is_kept(&self) -> bool {
        match self.state {
            RequestState::Refused | RequestState::Cancelled | RequestState::Failed => false,
            RequestState::Moving
            | RequestState::Safe
            | RequestState::Released
            | RequestState::Delivered => true,
        }
    }

    pub(crate) fn lane_of(&self, depot: DepotId) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.depot == depot)
    }

    /// The lane of the destination that plans count on, when there is one.
    pub(crate) fn lead(&self) -> Option<usize> {
        self.lead
    }

    /// From now on plans count on this destination.
    pub(crate) fn set_lead(&mut self, lane: usize) {
        if self.is_destination(lane) {
            self.lead = Some(lane);
        }
    }

    /// Lanes of destinations, as a mask.
    pub(crate) fn whole_lanes(&self) -> u64 {
        self.destinations
    }

    /// Lanes of destinations.
    pub(crate) fn destinations(&self) -> impl Iterator<Item = usize> + use<> {
        let mask = self.destinations;
        (0..self.lanes.len()).filter(move |&lane| mask >> lane & 1 == 1)
    }

    /// Whether bytes from outside made masks that fit the lanes.
    pub(crate) fn is_whole_sound(&self) -> bool {
        let count = u32::try_from(self.lanes.len()).unwrap_or(u32::MAX);
        let beyond = self.destinations & !u64::MAX.unbounded_shr(64 - count.min(64));
        beyond == 0
            && self.lead.is_some() == (self.destinations != 0)
            && self
                .lead
                .is_none_or(|lead| lead < self.lanes.len() && self.is_destination(lead))
    }

    /// Whether the route uses this lane at all.
    pub(crate) fn is_on_route(&self, lane: usize) -> bool {
        self.route == Route::Staged || self.is_destination(lane)
    }

    /// Whether the lane takes whole chunks.
    pub(crate) fn is_destination(&self, lane: usize) -> bool {
        self.destinations >> lane & 1 == 1
    }

    /// Lanes that take fragments.
    pub(crate) fn depot_lanes(&self) -> impl Iterator<Item = usize> + use<> {
        let mask = self.destinations;
        (0..self.lanes.len()).filter(move |&lane| mask >> lane & 1 == 0)
    }

    /// Depots fed at once: the destination counts where it is the only one.
    pub(crate) fn fan_out(&self) -> u32 {
        let fed = self
            .depot_lanes()
            .filter(|&lane| self.lanes[lane].is_active);
        let fed = match self.route {
            Route::Direct => usize::from(self.lead.is_some()),
            Route::Staged => fed.count(),
        };
        u32::try_from(fed).unwrap_or(u32::MAX)
    }

    /// What a lane gets of a chunk at a time: all of it, or the first fragment as an example of its size.
    pub(crate) fn portion(&self, lane: usize) -> FragmentIndex {
        if self.is_destination(lane) {
            FragmentIndex::WHOLE
        } else {
            FragmentIndex::new(0)
        }
    }

    /// Lanes that some chunk could still use, as a mask: whether they have room, are fed, or fail
    /// together with others is not asked.
    pub(crate) fn wanted_lanes(&self, settings: &Settings) -> u64 {
        let whole = self.destinations;
        let whole = if self.replica.has_next_whole() {
            whole
        } else {
            0
        };
        if !self.replica.is_all_open() && self.has_memory(false, settings) {
            return u64::MAX;
        }
        let waiting = self.stripes.values().filter(|stripe| stripe.wanted != 0);
        waiting.fold(whole, |lanes, stripe| lanes | !stripe.taken)
    }

    /// Something of the chunk is on its way through the lane.
    pub(crate) fn begin_flight(&mut self, lane: usize, chunk: ChunkIndex) {
        let fed = &mut self.lanes[lane];
        fed.in_flight += 1;
        fed.kept = fed.kept.saturating_sub(1);
        *self.flying.entry(chunk).or_default() += 1;
    }

    /// That ended, one way or the other.
    pub(crate) fn end_flight(&mut self, lane: usize, chunk: ChunkIndex) {
        self.lanes[lane].in_flight -= 1;
        self.end_one(chunk);
    }

    fn end_one(&mut self, chunk: ChunkIndex) {
        if let Some(count) = self.flying.get_mut(&chunk) {
            *count -= 1;
            if *count == 0 {
                self.flying.remove(&chunk);
            }
        }
    }

    /// Whether anything of the chunk is on its way from the centre.
    pub(crate) fn is_flying(&self, chunk: ChunkIndex) -> bool {
        self.flying.contains_key(&chunk)
    }

    /// Whether one more chunk may be read to be sent in fragments, or whole: neither keeps the other
    /// waiting, and both together are at most twice as many.
    pub(crate) fn has_memory(&self, is_whole: bool, settings: &Settings) -> bool {
        let whole = self.destinations;
        let goes_whole = |stripe: &Stripe| stripe.wanted == 0 && stripe.taken & !whole == 0;
        let stripes = self.stripes.values();
        let open = stripes
            .filter(|stripe| goes_whole(stripe) == is_whole)
            .count();
        let bytes = self.spec.chunk_size.times(open as u64 + 1);
        let most = settings.stripes_max as usize;
        // What went whole counts as coded once a depot comes back with fragments of it.
        let is_late = |chunk: &&ChunkIndex| !self.stripes.contains_key(chunk);
        let late = self.flying.keys().filter(is_late).count();
        let has_room = self.stripes.len() + late < 2 * most;
        has_room && (open < 2 || (open < most && bytes <= settings.stripes_bytes_max))
    }
}

/// A lane to each depot that may hold something, pinned ones first: none is left out for the number of others.
fn lanes_of(spec: &RequestSpec, wishes: &Wishes, pinned: &[DepotId]) -> Box<[Lane]> {
    let mut lanes: Vec<Lane> = Vec::new();
    for &depot in pinned.iter().chain(&spec.via).chain(&spec.destinations) {
        if !wishes.forbidden.contains(&depot)
            && lanes.len() < Request::LANES_MAX
            && lanes.iter().all(|lane| lane.depot != depot)
        {
            lanes.push(Lane::new(depot, lanes.len()));
        }
    }
    lanes.into_boxed_slice()
}

/// Lanes of destinations, as a mask.
fn whole_mask(lanes: &[Lane], spec: &RequestSpec) -> u64 {
    let whole = lanes.iter().enumerate();
    let whole = whole.filter(|(_, lane)| spec.destinations.contains(&lane.depot));
    whole.fold(0, |mask, (place, _)| mask | 1 << place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::books::Entry;

    /// Of a hundred thousand that wait, each byte is a tenth of a megabyte.
    #[test]
    fn a_request_that_waits_takes_little_memory() {
        let sizes = [size_of::<Request>(), size_of::<Lane>(), size_of::<Entry>()];
        let most = [608, 64, 112];
        assert!(
            sizes.iter().zip(most).all(|(size, most)| *size <= most),
            "{sizes:?}"
        );
    }
}
