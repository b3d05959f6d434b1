use alloc::{collections::BTreeMap, vec::Vec};
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, Timestamp, record};

use super::{Asks, Request, Throttle, Turn};
use crate::{
    books::{Blank, Release},
    contract::{LentTerms, Omission, Pause, PinReason},
};

record! {
    /// What few requests have, at least as long as they wait.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Uncommon {
        /// On which terms depots are lent for it alone.
        pub(crate) lent: Vec<LentTerms>,
        /// Depots that must hold their share of every chunk.
        pub(crate) pinned: Vec<DepotId>,
        /// What keeps such a depot from taking what it still lacks.
        pub(crate) pin_trouble: Option<PinReason>,
        /// When its source is to be purged, where that is known: the deadline is the earlier of both.
        pub(crate) purge_at: Option<Timestamp>,
        /// Files that were left out, in the order of the list.
        pub(crate) omissions: Vec<Omission>,
        /// Chunks that became others when files were left out, and when they did last.
        pub(crate) renewed: BTreeMap<ChunkIndex, Timestamp>,
        /// Releases that failed, and when the next one is due.
        pub(crate) release_failures: u32,
        pub(crate) release_at: Option<Timestamp>,
        /// Every depot was asked what it holds before its source is removed, and none was found to lack anything since.
        pub(crate) has_asked_all: bool,
        /// What depots stored since they were asked what they hold: their answers may be older.
        pub(crate) stored_since_asked: BTreeMap<DepotId, Vec<(ChunkIndex, FragmentIndex)>>,
        /// Holds it to the rate that is wished.
        pub(crate) throttle: Throttle,
        pub(crate) paused: Option<Pause>,
        /// It gets what is left since it could not be on time any more, and others could without it.
        pub(crate) has_conceded: bool,
        /// Among those that get what is left.
        pub(crate) turn: Turn,
        /// The chance that it is lost, in billionths, where its code was chosen by what must be survived.
        pub(crate) loss_ppb: Option<u32>,
        /// Lanes that would break what was wished, as a mask.
        pub(crate) barred: u64,
        /// Lanes that its budget does not pay, as a mask.
        pub(crate) dear: u64,
        /// Lanes to depots that are drained, as a mask; destinations apart.
        pub(crate) drained: u64,
        /// Its budget pays nothing of what it lacks.
        pub(crate) is_broke: bool,
        /// Chunks being sent of which depots that fail together may hold more, and how many more.
        pub(crate) crowded: BTreeMap<ChunkIndex, u32>,
        /// The most that was allowed to any chunk: what plans count on.
        pub(crate) crowded_most: u32,
        /// That was not said yet.
        pub(crate) is_crowd_unsaid: bool,
        /// Lanes to depots that fail together, as masks, where some are in several such groups.
        pub(crate) groups: Vec<u64>,
        /// Lanes on which a chunk finds all its places then, as a mask; none where even shares find them too.
        pub(crate) apart: u64,
        /// Depots coded chunks of it, and that was said, or not yet.
        pub(crate) is_scattered: bool,
        pub(crate) is_scatter_unsaid: bool,
        pub(crate) asks: Asks,
        pub(crate) duplicates: u32,
        pub(crate) repaired: u32,
        pub(crate) last_lost: Option<DepotId>,
        /// Bytes that probes for it sent or may still send.
        pub(crate) probed: Bytes,
        /// What those cost or may still cost, in millionths of a dollar.
        pub(crate) probed_micro_usd: u64,
        /// Its source failed before every depot had said what it holds: until then nothing is sent.
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
    /// Whether a depot has yet to say what it holds of it.
    pub(crate) fn is_asking(&self) -> bool {
        self.lanes.iter().any(|lane| lane.asked_at.is_some())
    }

    /// A depot stored a fragment: what it is being asked may have been answered before that.
    pub(crate) fn note_stored(&mut self, lane: usize, chunk: ChunkIndex, fragment: FragmentIndex) {
        let lane = &self.lanes[lane];
        if lane.asked_at.is_some() {
            let since = self.uncommon.stored_since_asked.entry(lane.depot);
            since.or_default().push((chunk, fragment));
        }
    }

    /// Whether some of its source may be gone: a release began.
    pub(crate) fn has_tried_release(&self) -> bool {
        self.release == Release::Commanded
            || self.release.is_over()
            || self.uncommon.release_failures > 0
    }

    /// Whether that decides if its source, which failed, is needed at all.
    pub(crate) fn awaits_inventories(&self) -> bool {
        self.uncommon.awaits_inventories && self.is_asking()
    }

    /// Takes no memory for what it does not have any more.
    pub(crate) fn settle(&mut self) {
        self.uncommon.settle();
        self.due.settle();
        self.stripes.settle();
        self.flying.settle();
        self.account.settle();
    }
}
