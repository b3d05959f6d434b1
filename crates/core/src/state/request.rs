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

use crate::state::{
    Account, Asks, Blank, Decisions, Due, Push, Quota, Rare, Replica, Shared, Throttle, Tuning,
    Turn,
};
use crate::{
    Settings,
    contract::{Fault, Forecast, RequestSpec, RequestState, Wishes},
};
use uncommon::Uncommon;

record! {
    /// Route of a request's data.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Route {
        /// Whole chunks straight to the destination, and nothing else.
        0 = Direct,
        /// Fragments to depots, and meanwhile whole chunks to a destination, if there is one.
        1 = Staged,
    }
}

record! {
    /// Progress of the source's release.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Release {
        /// Not commanded.
        0 = Pending,
        /// Commanded; the source may be gone.
        1 = Commanded,
        /// Done: the source is gone.
        2 = Done,
        /// Removal failed.
        3 = Kept,
        /// Some of it could not be removed, and the rest is gone, or another one: nothing is read from it any more.
        4 = Left,
    }
}

impl Release {
    /// Returns whether the source is released, so that nothing can be sent again.
    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Left)
    }
}

record! {
    /// Depot as one request uses it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Lane {
        pub(crate) depot: DepotId,
        /// True if it is fed now.
        pub(crate) is_active: bool,
        /// True if something was sent to it: after an interruption it must be asked what it has.
        pub(crate) is_used: bool,
        /// Time at which it was asked what it holds, while unanswered. Nothing is sent meanwhile.
        pub(crate) asked_at: Option<Timestamp>,
        pub(crate) in_flight: u32,
        /// Fragments on their way here from coding depots.
        pub(crate) awaited: u32,
        /// Lanes to depots that fail together with this one in any way, itself among them, as a
        /// mask.
        pub(crate) kin: u64,
        /// Pieces that the last look counted on sending there, for which space is kept.
        pub(crate) kept: u32,
        /// Quota of a plan in force; none if it has no bound.
        pub(crate) quota: Option<Quota>,
        /// Optimizer of the number of flights; none until it knows enough to begin.
        pub(crate) tuning: Option<Box<Tuning>>,
    }
}

record! {
    /// Chunk being sent.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Stripe {
        /// Fragments that no depot holds or is being sent, as a mask.
        pub(crate) wanted: u64,
        /// Lanes that hold or are being sent one, as a mask.
        pub(crate) taken: u64,
        /// Failed sends.
        pub(crate) failures: u32,
        pub(crate) last_fault: Option<Fault>,
    }
}

record! {
    /// Request and everything about it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Request {
        pub(crate) spec: RequestSpec,
        /// Optimizer asked for.
        pub(crate) method: Method,
        /// Wishes beyond the deadline.
        pub(crate) wishes: Shared<Wishes>,
        /// Deadline that its user asked for.
        pub(crate) wished_deadline: Timestamp,
        pub(crate) submitted: Timestamp,
        pub(crate) state: RequestState,
        /// True if it was accepted although its deadline can't be met, or missed it: it gets what
        /// is left.
        pub(crate) is_leftover: bool,
        pub(crate) at_risk: bool,
        pub(crate) missed: bool,
        pub(crate) safe_at: Option<Timestamp>,
        pub(crate) finish: Option<Forecast>,
        pub(crate) route: Route,
        /// True if more urgent requests leave it some of the uplink now.
        pub(crate) is_due: bool,
        /// Cost of what was begun for it, in millionths of a dollar, including its keeping.
        pub(crate) spent_micro_usd: u64,
        /// Depots in the user's order, then the destinations.
        pub(crate) lanes: Box<[Lane]>,
        /// Lanes of destinations, as a mask.
        destinations: u64,
        /// Destination on which plans count: each chunk goes whole to one of them first.
        lead: Option<usize>,
        /// Most fragments of a chunk that depots failing together may hold.
        pub(crate) domain_max: u32,
        pub(crate) replica: Replica,
        pub(crate) stripes: Rare<BTreeMap<ChunkIndex, Stripe>>,
        /// Number of sends of each chunk on their way; late copies outlive their stripe.
        flying: Rare<BTreeMap<ChunkIndex, u32>>,
        /// Chunks that may go on between depots; none if all are of one level.
        pub(crate) push: Option<Box<Push>>,
        /// Chunks that destinations may take from each other; none if there is only one.
        pub(crate) delivery: Option<Box<Push>>,
        /// Chunks that depots may rebuild without its source; none before anything was lost.
        pub(crate) mend: Option<Box<Push>>,
        /// True if chunks were reported as unsafe, and not yet as safe again, since the source
        /// left.
        pub(crate) is_thin: bool,
        /// Progress against its deliver-by.
        pub(crate) due: Rare<Due>,
        pub(crate) pace: Pace,
        pub(crate) late_ticks: u32,
        pub(crate) on_time_ticks: u32,
        pub(crate) release: Release,
        /// Account of its slack.
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

    /// Most depots of a request: a mask of lanes is a word, and twice 32 fragments is the widest
    /// code.
    pub(crate) const LANES_MAX: usize = 64;

    /// Most chunks of a dataset: a byte for each and depot must fit into memory. 2^26 chunks of 64
    /// MiB are 4 EiB.
    const CHUNKS_MAX: u64 = 1 << 26;

    /// Returns the chunks of the dataset; none if it can't be cut.
    fn cut(spec: &RequestSpec) -> u32 {
        if Self::is_cut(spec) { spec.chunks() } else { 0 }
    }

    /// Returns whether the dataset can be cut into chunks at all.
    pub(crate) fn is_cut(spec: &RequestSpec) -> bool {
        let chunks = spec.bytes.pieces(spec.chunk_size);
        spec.bytes == Bytes::ZERO || (1..=Self::CHUNKS_MAX).contains(&chunks)
    }

    /// Resets the replica for a newly chosen code: nothing was stored yet.
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

    /// Forgets what depots hold: it won't be asked again.
    pub(crate) fn close_books(&mut self) {
        self.stripes.clear();
        (self.push, self.delivery, self.mend) = (None, None, None);
        self.replica = self.empty_replica(0);
        (self.at_risk, self.due.at_risk) = (false, false);
        (self.finish, self.due.finish) = (None, None);
    }

    /// Moves it to those that get what others leave, with this turn among them.
    pub(crate) fn go_last(&mut self, turn: Turn) {
        (
            self.is_leftover,
            self.uncommon.has_conceded,
            self.uncommon.turn,
        ) = (true, false, turn);
    }

    /// Restores its turn by deadline.
    pub(crate) fn take_turn(&mut self) {
        (self.is_leftover, self.uncommon.has_conceded) = (false, false);
    }

    pub(crate) fn is_moving(&self) -> bool {
        self.state == RequestState::Moving
    }

    /// Returns whether nothing about it can change any more, except by lost depots or queries.
    pub(crate) fn is_final(&self) -> bool {
        match self.state {
            RequestState::Refused
            | RequestState::Delivered
            | RequestState::Cancelled
            | RequestState::Failed => true,
            RequestState::Moving | RequestState::Safe | RequestState::Released => false,
        }
    }

    /// Returns whether what the depots hold of it still matters.
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

    /// Returns the lane of the destination on which plans count, if there is one.
    pub(crate) fn lead(&self) -> Option<usize> {
        self.lead
    }

    /// Sets the destination on which plans count from now on.
    pub(crate) fn set_lead(&mut self, lane: usize) {
        if self.is_destination(lane) {
            self.lead = Some(lane);
        }
    }

    /// Returns the lanes of destinations, as a mask.
    pub(crate) fn whole_lanes(&self) -> u64 {
        self.destinations
    }

    /// Returns the lanes of destinations.
    pub(crate) fn destinations(&self) -> impl Iterator<Item = usize> + use<> {
        let mask = self.destinations;
        (0..self.lanes.len()).filter(move |&lane| mask >> lane & 1 == 1)
    }

    /// Returns whether decoded bytes made masks that fit the lanes.
    pub(crate) fn is_whole_sound(&self) -> bool {
        let count = u32::try_from(self.lanes.len()).unwrap_or(u32::MAX);
        let beyond = self.destinations & !u64::MAX.unbounded_shr(64 - count.min(64));
        beyond == 0
            && self.lead.is_some() == (self.destinations != 0)
            && self
                .lead
                .is_none_or(|lead| lead < self.lanes.len() && self.is_destination(lead))
    }

    /// Returns whether the route uses this lane at all.
    pub(crate) fn is_on_route(&self, lane: usize) -> bool {
        self.route == Route::Staged || self.is_destination(lane)
    }

    /// Returns whether the lane takes whole chunks.
    pub(crate) fn is_destination(&self, lane: usize) -> bool {
        self.destinations >> lane & 1 == 1
    }

    /// Returns the lanes that take fragments.
    pub(crate) fn depot_lanes(&self) -> impl Iterator<Item = usize> + use<> {
        let mask = self.destinations;
        (0..self.lanes.len()).filter(move |&lane| mask >> lane & 1 == 0)
    }

    /// Counts depots fed at once, including the destination if it is the only one.
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

    /// Returns what a lane gets of a chunk at a time: all of it, or the first fragment as an
    /// example of its size.
    pub(crate) fn portion(&self, lane: usize) -> FragmentIndex {
        if self.is_destination(lane) {
            FragmentIndex::WHOLE
        } else {
            FragmentIndex::new(0)
        }
    }

    /// Returns the lanes that some chunk could still use, as a mask, whether or not they have room,
    /// are fed, or fail together with others.
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

    /// Records that something of the chunk is on its way through the lane.
    pub(crate) fn begin_flight(&mut self, lane: usize, chunk: ChunkIndex) {
        let fed = &mut self.lanes[lane];
        fed.in_flight += 1;
        fed.kept = fed.kept.saturating_sub(1);
        *self.flying.entry(chunk).or_default() += 1;
    }

    /// Records the end of that flight, with success or not.
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

    /// Returns whether anything of the chunk is on its way from the centre.
    pub(crate) fn is_flying(&self, chunk: ChunkIndex) -> bool {
        self.flying.contains_key(&chunk)
    }

    /// Returns whether one more chunk may be read to be sent in fragments, or whole. Neither kind
    /// keeps the other waiting, and both together are at most twice as many.
    pub(crate) fn has_memory(&self, is_whole: bool, settings: &Settings) -> bool {
        let whole = self.destinations;
        let goes_whole = |stripe: &Stripe| stripe.wanted == 0 && stripe.taken & !whole == 0;
        let stripes = self.stripes.values();
        let open = stripes
            .filter(|stripe| goes_whole(stripe) == is_whole)
            .count();
        let bytes = self.spec.chunk_size.times(open as u64 + 1);
        let most = settings.stripes_max as usize;
        // A chunk that went whole counts as coded once a depot comes back with fragments of it.
        let is_late = |chunk: &&ChunkIndex| !self.stripes.contains_key(chunk);
        let late = self.flying.keys().filter(is_late).count();
        let has_room = self.stripes.len() + late < 2 * most;
        has_room && (open < 2 || (open < most && bytes <= settings.stripes_bytes_max))
    }
}

/// Returns a lane to each depot that may hold something, pinned ones first, so that the bound on
/// lanes drops none of these.
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

/// Returns the lanes of destinations, as a mask.
fn whole_mask(lanes: &[Lane], spec: &RequestSpec) -> u64 {
    let whole = lanes.iter().enumerate();
    let whole = whole.filter(|(_, lane)| spec.destinations.contains(&lane.depot));
    whole.fold(0, |mask, (place, _)| mask | 1 << place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Entry;

    /// With a hundred thousand waiting requests, each byte is a tenth of a megabyte.
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
