//! Books that one placement needs, borrowed apart, and the ranks of requests at depots.

use alloc::vec::Vec;
use posthaste_types::{DepotId, RequestId, Timestamp};

use crate::{
    Settings,
    state::{Book, Crossings, Depot, Index, Pushes, Request, Transfers},
};

/// Books that one placement needs, borrowed apart.
pub(crate) struct Placing<'a> {
    pub(crate) id: RequestId,
    /// Rank of the request at the depot of each lane; first if missing.
    pub(crate) ranks: Vec<Rank>,
    pub(crate) index: &'a Index,
    pub(crate) request: &'a mut Request,
    pub(crate) depots: &'a mut Book<DepotId, Depot>,
    pub(crate) transfers: &'a mut Transfers,
    pub(crate) pushes: &'a mut Pushes,
    pub(crate) crossings: &'a Crossings,
    pub(crate) settings: &'a Settings,
    pub(crate) now: Timestamp,
}

/// Rank of a request at a depot, among those that have anything for it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rank {
    /// First: no more urgent request has anything for it.
    First,
    /// Behind a more urgent request, which fills the path with so many fragments at once, if its
    /// optimizer knows.
    Behind { at_once: Option<u16> },
}
