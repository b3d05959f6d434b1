use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use posthaste_types::{Bytes, DepotId, RequestId, Timestamp, record};

record! {
    /// Space that a depot keeps for a request, or is asked to keep.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub(crate) struct Space {
        /// Space that it keeps, including what it stores; none until it reports that.
        pub(crate) held: Bytes,
        pub(crate) until: Timestamp,
        /// Space asked for and not answered yet; zero to give it back.
        pub(crate) asked: Option<Bytes>,
        /// Time before which nothing is asked of it: an answer is awaited, or others may have left.
        pub(crate) due: Timestamp,
        /// Time before which it is not asked for less.
        pub(crate) shrinks_at: Timestamp,
        /// Most that it said it could keep when it refused more.
        pub(crate) most: Option<Bytes>,
        /// True if it was refused since it last was granted.
        pub(crate) is_refused: bool,
        /// Consecutive times that it was asked or given back in vain.
        pub(crate) failures: u32,
        /// True once its request needs it no more.
        pub(crate) is_ending: bool,
    }
}

record! {
    /// Space that depots keep for requests.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Spaces {
        /// Depots that can keep space.
        able: BTreeSet<DepotId>,
        at: BTreeMap<DepotId, BTreeMap<RequestId, Space>>,
        /// Spaces to give back, by time.
        ending: BTreeSet<(Timestamp, (RequestId, DepotId))>,
    }
}

impl Spaces {
    /// Returns whether there is nothing to decide.
    pub(crate) fn is_idle(&self) -> bool {
        self.able.is_empty() && self.at.is_empty()
    }

    /// Returns whether the depot can keep space.
    pub(crate) fn is_able(&self, depot: DepotId) -> bool {
        self.able.contains(&depot)
    }

    /// Sets whether the depot can keep space; if not, what it kept becomes unknown.
    pub(crate) fn set_able(&mut self, depot: DepotId, is_able: bool) {
        if is_able {
            self.able.insert(depot);
        } else {
            self.able.remove(&depot);
            self.forget(depot);
        }
    }

    /// Forgets what the depot keeps.
    pub(crate) fn forget(&mut self, depot: DepotId) {
        self.at.remove(&depot);
        self.ending.retain(|(_, (_, at))| *at != depot);
    }

    pub(crate) fn get(&self, depot: DepotId, request: RequestId) -> Option<&Space> {
        self.at.get(&depot)?.get(&request)
    }

    /// Counts the requests for which a depot keeps space, or is asked to.
    pub(crate) fn count_at(&self, depot: DepotId) -> usize {
        self.at.get(&depot).map_or(0, BTreeMap::len)
    }

    /// Returns what a depot keeps, by request.
    pub(crate) fn at(&self, depot: DepotId) -> impl Iterator<Item = (RequestId, &Space)> {
        let all = self.at.get(&depot).into_iter().flatten();
        all.map(|(request, space)| (*request, space))
    }

    /// Changes one entry, which is created if missing.
    pub(crate) fn change(
        &mut self,
        depot: DepotId,
        request: RequestId,
        change: impl FnOnce(&mut Space),
    ) {
        let space = self.at.entry(depot).or_default();
        let space = space.entry(request).or_default();
        self.ending.remove(&(space.due, (request, depot)));
        change(space);
        if space.is_ending {
            self.ending.insert((space.due, (request, depot)));
        }
    }

    pub(crate) fn remove(&mut self, depot: DepotId, request: RequestId) {
        let Some(kept) = self.at.get_mut(&depot) else {
            return;
        };
        if let Some(space) = kept.remove(&request) {
            self.ending.remove(&(space.due, (request, depot)));
        }
        if kept.is_empty() {
            self.at.remove(&depot);
        }
    }

    /// Returns all of them.
    pub(crate) fn all(&self) -> Vec<(DepotId, RequestId)> {
        let at = self.at.iter();
        at.flat_map(|(depot, kept)| kept.keys().map(|request| (*depot, *request)))
            .collect()
    }

    /// Returns the one to give back first, and when.
    pub(crate) fn next_ending(&self) -> Option<(Timestamp, (RequestId, DepotId))> {
        self.ending.first().copied()
    }

    /// Returns whether decoded bytes made a usable value, in which each end has its place.
    pub(crate) fn is_sound(&self) -> bool {
        let all = self.at.iter();
        let all = all.flat_map(|(depot, kept)| kept.iter().map(move |one| (*depot, one)));
        let ending = all.filter(|(_, (_, space))| space.is_ending);
        let ending = ending.map(|(depot, (request, space))| (space.due, (*request, depot)));
        ending.collect::<BTreeSet<_>>() == self.ending
    }
}
