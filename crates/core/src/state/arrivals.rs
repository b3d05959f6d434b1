use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use posthaste_types::{RequestId, SourceId, Timestamp, record};

use crate::state::{Arrival, Onward, Outward, Purse, Source, Turn};

record! {
    /// All stage-ins, and their sources.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Arrivals {
        /// Boxed: nodes of the map have room for eleven entries, and many places are empty.
        pub(crate) requests: BTreeMap<RequestId, Box<Arrival>>,
        pub(crate) sources: BTreeMap<SourceId, Source>,
        /// Exports among them; one is reported before it is submitted.
        pub(crate) outward: BTreeMap<RequestId, Outward>,
        /// Onward copies, by the numbers of the requests from whose depots they come.
        pub(crate) onward: BTreeMap<RequestId, Onward>,
        /// Budgets of stage-ins that are about to be submitted.
        pub(crate) purses: BTreeMap<RequestId, Purse>,
        /// Time of the next look at all of them, while any is live.
        pub(crate) look_at: Option<Timestamp>,
    }
}

impl Arrivals {
    pub(crate) fn live(&self) -> impl Iterator<Item = (&RequestId, &Arrival)> {
        let all = self.requests.iter().map(|(id, arrival)| (id, &**arrival));
        all.filter(|(_, arrival)| arrival.state.is_live())
    }

    /// Returns live stage-ins, the most urgent first: by their deadlines, and after all of them
    /// those that can't be on time, as shares say.
    pub(crate) fn in_turn(&self) -> Vec<RequestId> {
        self.in_turn_of(|_| true)
    }

    /// Returns the wanted ones of those: mostly few of many, as most wait.
    pub(crate) fn in_turn_of(&self, is_wanted: impl Fn(&Arrival) -> bool) -> Vec<RequestId> {
        let key = |(id, arrival): (&RequestId, &Arrival)| {
            let turn = match arrival.is_leftover {
                true => arrival.turn,
                false => Turn::FIRST,
            };
            (arrival.is_leftover, turn, arrival.spec.deadline, *id)
        };
        let wanted = self.live().filter(|(_, arrival)| is_wanted(arrival));
        let mut keys: Vec<_> = wanted.map(key).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, _, _, id)| id).collect()
    }

    /// Most stage-ins about to be submitted with a known budget: they are submitted in the next
    /// step.
    const PURSES_MAX: usize = 1000;

    /// Keeps the budget of a stage-in that is about to be submitted.
    pub(crate) fn keep_purse(&mut self, id: RequestId, purse: Purse) {
        if !self.requests.contains_key(&id) {
            self.purses.insert(id, purse);
        }
        if self.purses.len() > Self::PURSES_MAX {
            self.purses.pop_first();
        }
    }

    /// Returns live stage-ins to which a source may give something.
    pub(crate) fn users(&self, source: SourceId) -> Vec<RequestId> {
        let users = self.live().filter(|(_, arrival)| arrival.uses(source));
        users.map(|(id, _)| *id).collect()
    }

    /// Returns whether decoded bytes made usable books.
    pub(crate) fn is_sound(&self) -> bool {
        self.requests.values().all(|arrival| arrival.is_sound())
    }
}
