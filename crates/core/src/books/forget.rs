use alloc::collections::{BTreeMap, BTreeSet};
use posthaste_types::{DepotId, RequestId, Timestamp, record};

record! {
    /// A depot is to remove what it holds of a request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Forget {
        /// So many destinations have all of it; none: it waited there for a stage-in that is over.
        pub(crate) destinations: u32,
        /// It removes it by itself then.
        pub(crate) until: Timestamp,
        /// It is not told before.
        pub(crate) due: Timestamp,
        /// Times it was told so far.
        pub(crate) told: u32,
    }
}

record! {
    /// What depots are to remove and have not yet.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Forgets {
        all: BTreeMap<(RequestId, DepotId), Forget>,
        due: BTreeSet<(Timestamp, (RequestId, DepotId))>,
    }
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

    /// What is due first, and when.
    pub(crate) fn next_due(&self) -> Option<(Timestamp, (RequestId, DepotId))> {
        self.due.first().copied()
    }

    /// All of one depot, or of all where none is said, are due then.
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

    /// Whether bytes from outside made something of which all that is due has its place.
    pub(crate) fn is_sound(&self) -> bool {
        let due = self.all.iter().map(|(key, forget)| (forget.due, *key));
        due.collect::<BTreeSet<_>>() == self.due
    }
}
