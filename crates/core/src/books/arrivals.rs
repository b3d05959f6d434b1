use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use posthaste_types::{RequestId, SourceId, Timestamp, record};

use super::{Arrival, Onward, Outward, Purse, Source, Turn};

record! {
    /// All stage-ins, and where they come from.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Arrivals {
        /// Boxed: nodes of the map have room for eleven, and a good part of that is empty.
        pub(crate) requests: BTreeMap<RequestId, Box<Arrival>>,
        pub(crate) sources: BTreeMap<SourceId, Source>,
        /// Which of them go the other way; one is told before it is asked for.
        pub(crate) outward: BTreeMap<RequestId, Outward>,
        /// As what requests go on from their depots, by their numbers.
        pub(crate) onward: BTreeMap<RequestId, Onward>,
        /// What those may cost that are about to be asked for.
        pub(crate) purses: BTreeMap<RequestId, Purse>,
        /// When all of them are looked at next, while any is live.
        pub(crate) look_at: Option<Timestamp>,
    }
}

impl Arrivals {
    pub(crate) fn live(&self) -> impl Iterator<Item = (&RequestId, &Arrival)> {
        let all = self.requests.iter().map(|(id, arrival)| (id, &**arrival));
        all.filter(|(_, arrival)| arrival.state.is_live())
    }

    /// Those that something is still to be done for, the most urgent first: by their deadlines, and after
    /// all of them what can't be on time, as shares say.
    pub(crate) fn in_turn(&self) -> Vec<RequestId> {
        self.in_turn_of(|_| true)
    }

    /// Of those the wanted ones: few of many, mostly, as most wait.
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

    /// Those that may be about to be asked for, and what they may cost is known: they are asked for in the next step.
    const PURSES_MAX: usize = 1000;

    /// What one may cost that is about to be asked for.
    pub(crate) fn keep_purse(&mut self, id: RequestId, purse: Purse) {
        if !self.requests.contains_key(&id) {
            self.purses.insert(id, purse);
        }
        if self.purses.len() > Self::PURSES_MAX {
            self.purses.pop_first();
        }
    }

    /// Live stage-ins that a source may give something to.
    pub(crate) fn users(&self, source: SourceId) -> Vec<RequestId> {
        let users = self.live().filter(|(_, arrival)| arrival.uses(source));
        users.map(|(id, _)| *id).collect()
    }

    /// Whether bytes from outside made books that can be used.
    pub(crate) fn is_sound(&self) -> bool {
        self.requests.values().all(|arrival| arrival.is_sound())
    }
}
