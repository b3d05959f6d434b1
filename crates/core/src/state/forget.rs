use alloc::collections::{BTreeMap, BTreeSet};
use posthaste_types::{DepotId, RequestId, Timestamp, record};

use crate::{
    contract::{ReleasePolicy, RequestState},
    state,
    state::{Request, State},
};

record! {
    /// Order to a depot to remove what it holds of a request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Forget {
        /// Number of destinations that have all of it; none: it waited there for a stage-in that is
        /// over.
        pub(crate) destinations: u32,
        /// Time at which the depot removes it by itself.
        pub(crate) until: Timestamp,
        /// Time before which the order is not sent.
        pub(crate) due: Timestamp,
        /// Times it was sent so far.
        pub(crate) told: u32,
    }
}

record! {
    /// Data that depots should remove and have not yet.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Forgets {
        all: BTreeMap<(RequestId, DepotId), Forget>,
        due: BTreeSet<(Timestamp, (RequestId, DepotId))>,
    }
}

/// Returns whether a user may let depots drop a request: it is delivered, or somebody pulled all of
/// it and only destinations lack it.
pub(crate) fn may_forget(state: &State, id: RequestId) -> bool {
    let may = |request: &Request| match request.state {
        RequestState::Delivered => true,
        RequestState::Safe => request.spec.release == ReleasePolicy::Never,
        RequestState::Released => true,
        RequestState::Moving
        | RequestState::Refused
        | RequestState::Cancelled
        | RequestState::Failed => false,
    };
    let was_pulled =
        |request: &Request| request.state == RequestState::Delivered || request.due.was_pulled;
    let is_going_on = state::onward::is_going_on(state, id);
    let request = state.requests.get(&id);
    !is_going_on && request.is_some_and(|request| may(request) && was_pulled(request))
}

impl Forgets {
    pub(crate) fn get(&self, key: (RequestId, DepotId)) -> Option<&Forget> {
        self.all.get(&key)
    }

    pub(crate) fn insert(&mut self, key: (RequestId, DepotId), forget: Forget) {
        self.remove(key);
        self.due.insert((forget.due, key));
        self.all.insert(key, forget);
    }

    pub(crate) fn remove(&mut self, key: (RequestId, DepotId)) {
        if let Some(forget) = self.all.remove(&key) {
            self.due.remove(&(forget.due, key));
        }
    }

    /// Returns the depots that should remove a request, each with how often it was told.
    pub(crate) fn of(&self, request: RequestId) -> impl Iterator<Item = (DepotId, u32)> {
        let all = self.all.range((request, DepotId::new(0))..);
        let all = all.take_while(move |((of, _), _)| *of == request);
        all.map(|((_, depot), forget)| (*depot, forget.told))
    }

    /// Returns what is due first, and when.
    pub(crate) fn next_due(&self) -> Option<(Timestamp, (RequestId, DepotId))> {
        self.due.first().copied()
    }

    /// Makes all orders of one depot, or of all if none is given, due then.
    pub(crate) fn set_due(&mut self, depot: Option<DepotId>, due: Timestamp) {
        let is_meant = |at: DepotId| depot.is_none_or(|depot| depot == at);
        for (key, forget) in &mut self.all {
            if is_meant(key.1) {
                self.due.remove(&(forget.due, *key));
                forget.due = due;
                self.due.insert((due, *key));
            }
        }
    }

    /// Returns whether decoded bytes made a usable value, in which every due order has its place.
    pub(crate) fn is_sound(&self) -> bool {
        let due = self.all.iter().map(|(key, forget)| (forget.due, *key));
        due.collect::<BTreeSet<_>>() == self.due
    }
}
