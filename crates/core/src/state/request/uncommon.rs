use alloc::{collections::BTreeMap, vec::Vec};
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, Timestamp, record};

use crate::state::request::{Asks, Request, Throttle, Turn};
use crate::{
    contract::{LentTerms, Omission, Pause, PinReason},
    state::{Blank, Release},
};

record! {
    /// Data that few requests have, at least while they wait.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Uncommon {
        /// Terms on which depots are lent for it alone.
        pub(crate) lent: Vec<LentTerms>,
        /// Depots that must hold their share of every chunk.
        pub(crate) pinned: Vec<DepotId>,
        /// Reason why such a depot can't accept what it still lacks.
        pub(crate) pin_trouble: Option<PinReason>,
        /// Time of its source's purge, if known: the deadline is the earlier of both.
        pub(crate) purge_at: Option<Timestamp>,
        /// Files that were left out, in the order of the list.
        pub(crate) omissions: Vec<Omission>,
        /// Chunks that changed when files were left out, and the last time of each.
        pub(crate) renewed: BTreeMap<ChunkIndex, Timestamp>,
        /// Failed releases, and the time of the next.
        pub(crate) release_failures: u32,
        pub(crate) release_at: Option<Timestamp>,
        /// True if every depot was asked what it holds before the source is removed, and none was
        /// found to lack anything since.
        pub(crate) has_asked_all: bool,
        /// Fragments stored since depots were asked what they hold: their answers may be older.
        pub(crate) stored_since_asked: BTreeMap<DepotId, Vec<(ChunkIndex, FragmentIndex)>>,
        /// Throttle to the rate limit.
        pub(crate) throttle: Throttle,
        pub(crate) paused: Option<Pause>,
        /// True if it gets what is left because it could not be on time, while others could without
        /// it.
        pub(crate) has_conceded: bool,
        /// Turn among those that get what is left.
        pub(crate) turn: Turn,
        /// Chance that it is lost, in billionths, if its code was chosen by durability.
        pub(crate) loss_ppb: Option<u32>,
        /// Lanes that would break a wish, as a mask.
        pub(crate) barred: u64,
        /// Lanes that its budget does not pay, as a mask.
        pub(crate) dear: u64,
        /// Lanes to drained depots, as a mask, except destinations.
        pub(crate) drained: u64,
        /// True if its budget pays nothing of what it lacks.
        pub(crate) is_broke: bool,
        /// Chunks being sent of which depots that fail together may hold more, and how many more.
        pub(crate) crowded: BTreeMap<ChunkIndex, u32>,
        /// Most that was allowed to any chunk, on which plans count.
        pub(crate) crowded_most: u32,
        /// True until that is reported.
        pub(crate) is_crowd_unsaid: bool,
        /// Lanes to depots that fail together, as masks, if some are in several such groups.
        pub(crate) groups: Vec<u64>,
        /// Lanes on which a chunk then finds all its places, as a mask; none if even shares find
        /// them too.
        pub(crate) apart: u64,
        /// True once depots coded chunks of it and that was reported.
        pub(crate) is_scattered: bool,
        /// True until that is reported.
        pub(crate) is_scatter_unsaid: bool,
        pub(crate) asks: Asks,
        pub(crate) duplicates: u32,
        pub(crate) repaired: u32,
        pub(crate) last_lost: Option<DepotId>,
        /// Bytes that probes for it sent or may still send.
        pub(crate) probed: Bytes,
        /// Cost of those, or possible cost, in millionths of a dollar.
        pub(crate) probed_micro_usd: u64,
        /// True if its source failed before every depot had reported what it holds: nothing is sent
        /// until then.
        pub(crate) awaits_inventories: bool,
    }
}

impl Blank for Uncommon {
    const BLANK: &'static Self = &Self {
        lent: Vec::new(),
        pinned: Vec::new(),
        pin_trouble: None,
        purge_at: None,
        omissions: Vec::new(),
        renewed: BTreeMap::new(),
        release_failures: 0,
        release_at: None,
        has_asked_all: false,
        stored_since_asked: BTreeMap::new(),
        throttle: Throttle::FREE,
        paused: None,
        has_conceded: false,
        turn: Turn::FIRST,
        loss_ppb: None,
        barred: 0,
        dear: 0,
        drained: 0,
        is_broke: false,
        crowded: BTreeMap::new(),
        crowded_most: 0,
        is_crowd_unsaid: false,
        groups: Vec::new(),
        apart: 0,
        is_scattered: false,
        is_scatter_unsaid: false,
        asks: Asks::NONE,
        duplicates: 0,
        repaired: 0,
        last_lost: None,
        probed: Bytes::ZERO,
        probed_micro_usd: 0,
        awaits_inventories: false,
    };
}

impl Request {
    /// Returns whether a depot has yet to report what it holds of it.
    pub(crate) fn is_asking(&self) -> bool {
        self.lanes.iter().any(|lane| lane.asked_at.is_some())
    }

    /// Records a stored fragment: the depot may have answered an inventory query before that.
    pub(crate) fn note_stored(&mut self, lane: usize, chunk: ChunkIndex, fragment: FragmentIndex) {
        let lane = &self.lanes[lane];
        if lane.asked_at.is_some() {
            let since = self.uncommon.stored_since_asked.entry(lane.depot);
            since.or_default().push((chunk, fragment));
        }
    }

    /// Returns whether some of its source may be gone, as a release began.
    pub(crate) fn has_tried_release(&self) -> bool {
        self.release == Release::Commanded
            || self.release.is_over()
            || self.uncommon.release_failures > 0
    }

    /// Returns whether inventories decide if its source, which failed, is needed at all.
    pub(crate) fn awaits_inventories(&self) -> bool {
        self.uncommon.awaits_inventories && self.is_asking()
    }

    /// Frees memory of data that is empty again.
    pub(crate) fn settle(&mut self) {
        self.uncommon.settle();
        self.due.settle();
        self.stripes.settle();
        self.flying.settle();
        self.account.settle();
    }
}
