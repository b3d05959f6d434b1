//! Plans over time (`docs/algorithms/time-expanded-plan.md`): asked for if taking turns by deadline
//! is not enough, and followed as quotas.
//!
//! A plan says which request may put how much on which depot. That, and not when, is what turns
//! can't find. Within its quotas each request still takes its turn by deadline, which on one depot
//! is the best there is. So a plan in force needs no other forecast and no other promise than the
//! greedy one's. That forecast also judges its worth: a plan that keeps nothing more is rejected.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::time::Duration;
use posthaste_plan::horizon::Problem;
use posthaste_types::{RequestId, Timestamp, record};

use crate::{Settings, state::Request};

record! {
    /// Demand of a problem, as the books know it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Drawn {
        pub(crate) request: RequestId,
        /// Link of each lane, and the pieces it held; none if the depot can't be used.
        pub(crate) lanes: Vec<Option<(usize, u32)>>,
    }
}

record! {
    /// Plan that was asked for.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Asked {
        pub(crate) at: Timestamp,
        /// Newcomer whose answer waits for it; none if it is for accepted requests.
        pub(crate) newcomer: Option<RequestId>,
        pub(crate) problem: Problem,
        pub(crate) demands: Vec<Drawn>,
    }
}

record! {
    /// State of plans over time.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Planning {
        /// Number of the last one asked for.
        pub(crate) number: u64,
        /// Plan in progress.
        pub(crate) asked: Option<Asked>,
        /// Time before which none is asked for, except for newcomers.
        pub(crate) next_at: Timestamp,
        /// Time from the last to that.
        pub(crate) pause: Duration,
        /// Newcomers whose answer waits.
        pub(crate) held: BTreeMap<RequestId, Request>,
        /// Requests that have quotas.
        pub(crate) in_force: BTreeSet<RequestId>,
        /// Consecutive looks at which one of those would be late.
        pub(crate) late_looks: u32,
    }
}

impl Planning {
    /// Returns when time alone changes something about it.
    pub(crate) fn alarm(&self, settings: &Settings) -> Option<Timestamp> {
        self.asked
            .as_ref()
            .map(|asked| asked.at + settings.plan_wait)
    }

    /// Returns whether decoded bytes made a usable value.
    pub(crate) fn is_sound(&self) -> bool {
        let is_sound = |asked: &Asked| {
            asked.problem.check().is_ok() && asked.demands.len() == asked.problem.demands.len()
        };
        let is_new = |request: &Request| {
            request.lanes.len() <= Request::LANES_MAX
                && request.replica.chunks() == request.spec.chunks()
                && request.replica.is_sound(request.lanes.len())
        };
        self.asked.as_ref().is_none_or(is_sound) && self.held.values().all(is_new)
    }

    /// Returns whether the answer to this newcomer waits.
    pub(crate) fn is_held(&self, id: RequestId) -> bool {
        self.held.contains_key(&id)
    }
}
