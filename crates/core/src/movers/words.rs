//! Types of the roster's interface.

use alloc::{string::String, vec::Vec};
use posthaste_types::Timestamp;

macro_rules! number {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// Wraps a number.
            #[must_use]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// Returns its number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
        }
    };
}

number!(
    /// Mover, from when it joins until it leaves or is silent too long.
    MoverId
);
number!(
    /// Right of one mover to do one piece of work.
    LeaseId
);
number!(
    /// Piece of work, numbered by its offerer.
    Ticket
);

/// Piece of work that waits, or is in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Number that no other offer has.
    pub ticket: Ticket,
    /// Time by which it should be done; the earliest goes first.
    pub due: Timestamp,
    /// Group that shares a read: as much as possible of one group goes to one mover.
    pub group: u64,
}

/// Answer to a mover that asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Turn {
    /// Work to do from now on.
    pub given: Vec<(LeaseId, Ticket)>,
    /// Leases to stop, as their work is no longer needed.
    pub stop: Vec<LeaseId>,
}

/// Validity of a mover's report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// Report of a mover that is unknown, or no longer known.
    Unknown,
    /// Report older than one received since.
    Old,
    /// Report that counts.
    New,
}

/// State of a mover, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Number of the mover.
    pub id: MoverId,
    /// Name of the mover.
    pub name: String,
    /// Most work that it may have at once.
    pub slots: u32,
    /// Number of leases that it has.
    pub leases: usize,
    /// Time at which it joined.
    pub joined: Timestamp,
    /// Time of its last report.
    pub heard: Timestamp,
    /// Number of pieces of work done.
    pub done: u64,
    /// Number of pieces of work that it could not do.
    pub failed: u64,
    /// True if it gets nothing new, at an operator's request.
    pub drains: bool,
    /// Time until which it rests after failures.
    pub rests_until: Option<Timestamp>,
}
