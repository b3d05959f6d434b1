//! Who has what of a link or a space from when until when: advance reservations.
//!
//! [`Reservations`] is a calendar in time, exact to the microsecond: what is taken of each resource is a
//! [`Curve`](crate::Curve) of breakpoints, so that a reservation a month ahead costs as much as one of the next minute.
//! ([`horizon::Calendar`](crate::horizon::Calendar) counts in the slots of one plan and forgets them with it.)
//! An [`Ask`] names a level and a span, or a volume and by when; a hold places it for a short while, a commit makes it
//! last, and what ends is given back exactly. A refusal says what would fit: [the
//! algorithms](../../../docs/algorithms/reservations.md).

mod book;
mod find;
mod resource;

use core::{fmt, time::Duration};
use posthaste_types::{ByteRate, Bytes, Timestamp, record};

pub use book::Reservations;

/// How long a hold waits for its commit unless its owner says otherwise: two round trips between programs, not people.
pub const HOLD_LIFETIME: Duration = Duration::from_secs(30);
/// Reservations of one calendar. Each is looked at once per question: this is about a millisecond.
pub const RESERVATIONS_MAX: usize = 1024;
/// Pieces of one reservation, which it has when it takes what others leave.
pub const PIECES_MAX: usize = 32;
/// Resources in a row that one reservation takes.
pub const PATH_MAX: usize = 8;
/// Resources of one calendar.
pub const RESOURCES_MAX: usize = 256;
/// How far ahead anything may be reserved: what is later is a slip of the pen.
pub const AHEAD_MAX: Duration = Duration::from_secs(400 * 86_400);
/// A resource is sold as it is; twice this is twice over.
pub const NOT_OVERBOOKED_PERMILLE: u64 = 1000;

record! {
    /// How much of a resource: bytes a second of a link, bytes of a space.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct Amount {
        count: u64,
    }
}

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self { count: 0 };

    /// Of a link.
    #[must_use]
    pub const fn of_link(rate: ByteRate) -> Self {
        Self { count: rate.get() }
    }

    /// Of a space.
    #[must_use]
    pub const fn of_space(bytes: Bytes) -> Self {
        Self { count: bytes.get() }
    }

    /// As what it is of a link.
    #[must_use]
    pub const fn rate(self) -> ByteRate {
        ByteRate::new(self.count)
    }

    /// As what it is of a space.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        Bytes::new(self.count)
    }
}

record! {
    /// What a resource is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Kind {
        /// A link: amounts are bytes a second.
        0 = Link,
        /// A space: amounts are bytes.
        1 = Space,
    }
}

record! {
    /// The same amount for a while.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Piece {
        /// Its first moment.
        pub from: Timestamp,
        /// The moment after its last.
        pub to: Timestamp,
        /// How much.
        pub amount: Amount,
    }
}

record! {
    /// What is preferred for a volume that may go when and as fast as it likes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Shape {
        /// Done as early as possible, with what is free at each moment.
        0 = EarliestFinish,
        /// Begun as late as possible, with what is free at each moment: early moments stay free for others.
        1 = LatestStart,
        /// One rate all the time, over as short a time as possible; the earliest of those.
        2 = Shortest,
    }
}

record! {
    /// What somebody asks for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Ask {
        /// The same amount from `start` to `end`.
        0 = Fixed {
            /// How much.
            amount: Amount,
            /// From when; what has passed of it does not count.
            start: Timestamp,
            /// Until when.
            end: Timestamp,
        },
        /// As many bytes between two moments, over links.
        1 = Volume {
            /// How many.
            bytes: Bytes,
            /// Not before.
            earliest: Timestamp,
            /// Done by then.
            deadline: Timestamp,
            /// When anything goes, at least so fast.
            least: ByteRate,
            /// Never faster.
            most: ByteRate,
            /// What is preferred.
            shape: Shape,
        },
    }
}

record! {
    /// Whether a reservation lasts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum State {
        /// It is gone at this moment, unless it is committed before.
        0 = Held {
            /// The moment.
            until: Timestamp,
        },
        /// It lasts until its end.
        1 = Committed,
    }
}

record! {
    /// What somebody has.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Reservation {
        /// The resources, each with the same pieces.
        pub path: alloc::vec::Vec<usize>,
        /// In order of time, none touching another of its amount. Never empty.
        pub pieces: alloc::vec::Vec<Piece>,
        /// Whether it lasts.
        pub state: State,
    }
}

impl Reservation {
    /// Its first moment.
    #[must_use]
    pub fn start(&self) -> Timestamp {
        self.pieces
            .first()
            .map_or_else(Timestamp::default, |piece| piece.from)
    }

    /// The moment after its last.
    #[must_use]
    pub fn end(&self) -> Timestamp {
        self.pieces
            .last()
            .map_or_else(Timestamp::default, |piece| piece.to)
    }

    /// What it has at a moment.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Amount {
        let piece = self
            .pieces
            .iter()
            .find(|piece| piece.from <= now && now < piece.to);
        piece.map_or(Amount::ZERO, |piece| piece.amount)
    }

    /// What passes over it from first to last, if it is of links.
    #[must_use]
    pub fn volume(&self) -> Bytes {
        let volume = |piece: &Piece| piece.amount.rate().volume(piece.to.since(piece.from));
        self.pieces.iter().map(volume).sum()
    }
}

/// What of a reservation is to change. What has passed stays as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// Another first moment, while it has not begun.
    pub start: Option<Timestamp>,
    /// Another end: earlier shrinks it, later extends what it has last.
    pub end: Option<Timestamp>,
    /// Another amount from now on, of a reservation that does not vary.
    pub amount: Option<Amount>,
}

/// Why a reservation is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// Nobody committed it in time.
    Expired,
    /// Its end has come.
    Over,
}

record! {
    /// Why something is not reserved, and what would be.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Refusal {
        /// There is no such reservation: it never was, was released, or its time is over.
        0 = Unknown,
        /// It makes no sense: no resource, nothing asked for, an end before its start, a time that has passed or is
        /// too far ahead.
        1 = Senseless,
        /// There are as many as the calendar keeps, or it would be in too many pieces.
        2 = TooMany,
        /// What varies over time can't be given another amount.
        3 = Varies,
        /// So much is not free all the time.
        4 = NoRoom {
            /// The earliest start from which so much is free for as long; none when it never is.
            earliest_start: Option<Timestamp>,
            /// The largest amount that is free all the time.
            most: Amount,
        },
        /// So many bytes do not fit.
        5 = NoTime {
            /// The earliest moment by which they would; none when they never do.
            earliest_finish: Option<Timestamp>,
            /// How many do, in the time given.
            volume: Bytes,
        },
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "there is no such reservation",
            Self::Senseless => {
                "it makes no sense: nothing, for no time, in the past, or too far ahead"
            }
            Self::TooMany => "there are too many reservations already",
            Self::Varies => "its amount varies over time: only its end can change",
            Self::NoRoom { .. } => "so much is not free all the time",
            Self::NoTime { .. } => "so many bytes do not fit in that time",
        })
    }
}

impl core::error::Error for Refusal {}
