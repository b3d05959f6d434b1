//! What the roster and those who speak to it say.

use alloc::{string::String, vec::Vec};
use posthaste_types::Timestamp;

macro_rules! number {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// By its number.
            #[must_use]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// Its number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
        }
    };
}

number!(
    /// A mover, from when it joins until it leaves or is silent too long.
    MoverId
);
number!(
    /// The right of one mover to do one piece of work.
    LeaseId
);
number!(
    /// A piece of work, numbered by whoever offers it.
    Ticket
);

/// A piece of work that waits, or is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Its number: no other has it.
    pub ticket: Ticket,
    /// When it should be done; the earliest goes first.
    pub due: Timestamp,
    /// What it shares reading with: of one group as much as possible goes to one mover.
    pub group: u64,
}

/// What a mover is told when it asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Turn {
    /// What it is to do from now on.
    pub given: Vec<(LeaseId, Ticket)>,
    /// What it is to stop: nobody waits for it any more.
    pub stop: Vec<LeaseId>,
}

/// Whether what a mover says counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It is not known (any more).
    Unknown,
    /// It has said more since.
    Old,
    /// It does.
    New,
}

/// How a mover is, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Its number.
    pub id: MoverId,
    /// What it calls itself.
    pub name: String,
    /// How much it may have at once.
    pub slots: u32,
    /// How much it has.
    pub leases: usize,
    /// Since when it is there.
    pub joined: Timestamp,
    /// When it was heard last.
    pub heard: Timestamp,
    /// How much it has done.
    pub done: u64,
    /// How much it could not do.
    pub failed: u64,
    /// It gets nothing new, by somebody's wish.
    pub drains: bool,
    /// Until when it rests after failures.
    pub rests_until: Option<Timestamp>,
}
