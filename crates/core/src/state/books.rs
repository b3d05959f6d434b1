//! All books of the mind, together.

use alloc::{collections::BTreeMap, vec::Vec};
use posthaste_types::{DepotId, RequestId, Timestamp, record};

use crate::{
    Settings,
    contract::LentTerms,
    state::{
        Arrivals, Book, Circuits, Crossings, Depot, Forgets, Index, Push, Pushes, Request, Shares,
        Spaces, Transfers,
        completion::{Promised, Sweep},
        plan_over_time::Planning,
        probing::Probing,
        routes::Trial,
        uplink::WayOut,
    },
};

record! {
    /// Everything the mind knows.
    ///
    /// The books are bounded by what was asked for: a byte for each chunk and depot, plus what is in
    /// flight.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct State {
        pub(crate) settings: Settings,
        pub(crate) now: Timestamp,
        pub(crate) depots: Book<DepotId, Depot>,
        pub(crate) requests: Book<RequestId, Request>,
        pub(crate) transfers: Transfers,
        pub(crate) pushes: Pushes,
        pub(crate) crossings: Crossings,
        pub(crate) index: Index,
        pub(crate) shares: Shares,
        /// Probe in progress: one at a time for the whole centre.
        pub(crate) probing: Option<Probing>,
        /// Way being tried: one at a time for the whole centre.
        pub(crate) trial: Option<Trial>,
        /// Time of the next look at everything, while something moves.
        pub(crate) tick_at: Option<Timestamp>,
        /// Time at which time alone next changes something.
        pub(crate) alarm: Option<Timestamp>,
        /// Look at everything in progress.
        pub(crate) sweep: Option<Sweep>,
        /// Capacity that the last look left for newcomers.
        pub(crate) promised: Option<Promised>,
        pub(crate) way_out: WayOut,
        /// True if depots come and go, at the last tick or loss.
        pub(crate) is_restless: bool,
        pub(crate) planning: Planning,
        /// Stage-ins, and their sources.
        pub(crate) arrivals: Arrivals,
        /// Circuits on offer, and reservations.
        pub(crate) circuits: Circuits,
        /// Space that depots keep for requests.
        pub(crate) spaces: Spaces,
        /// Data that depots should remove, as every destination has it.
        pub(crate) forgets: Forgets,
        /// Terms on which depots are lent for requests that are submitted next.
        pub(crate) lent: BTreeMap<RequestId, Vec<LentTerms>>,
    }
}

impl State {
    /// Returns the state of a mind that knows nothing yet.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            now: Timestamp::default(),
            depots: Book::default(),
            requests: Book::default(),
            transfers: Transfers::default(),
            pushes: Pushes::default(),
            crossings: Crossings::default(),
            index: Index::default(),
            shares: Shares::default(),
            probing: None,
            trial: None,
            tick_at: None,
            alarm: None,
            sweep: None,
            promised: None,
            way_out: WayOut::default(),
            is_restless: false,
            planning: Planning::default(),
            arrivals: Arrivals::default(),
            circuits: Circuits::default(),
            spaces: Spaces::default(),
            forgets: Forgets::default(),
            lent: BTreeMap::new(),
        }
    }

    /// Returns whether decoded bytes made a usable state.
    pub(crate) fn is_sound(&self) -> bool {
        self.requests.values().all(|request| {
            request.lanes.len() <= Request::LANES_MAX
                && (!request.is_kept() || request.replica.chunks() == request.spec.chunks())
                && request.replica.is_sound(request.lanes.len())
                && request.is_whole_sound()
                && is_push_sound(request)
        }) && self.sweep.as_ref().is_none_or(Sweep::is_sound)
            && self.promised.as_ref().is_none_or(Promised::is_sound)
            && self.planning.is_sound()
            && self.arrivals.is_sound()
            && self.spaces.is_sound()
            && self.forgets.is_sound()
            && self.depots.values().all(|depot| depot.fork.is_sound())
    }
}

/// Returns whether decoded bytes made usable pushes.
fn is_push_sound(request: &Request) -> bool {
    let is_sound = |push: &Push| push.is_sound(request.replica.chunks());
    request.goes_on().all(is_sound)
}
