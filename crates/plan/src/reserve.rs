//! Advance reservations: amounts of a link or a space from one moment to another.
//!
//! [`Reservations`] is a calendar in time, exact to the microsecond. The amount reserved of each
//! resource is a [`Curve`](crate::Curve) of breakpoints. So a reservation a month ahead costs as
//! much as one of the next minute. ([`horizon::Calendar`](crate::horizon::Calendar) counts in the
//! slots of one plan and forgets them with it.)
//!
//! An [`Ask`] names a level and a span, or a volume and a deadline. A hold books it for a short
//! while, a commit makes it last, and its end gives everything back exactly. A refusal says what
//! would fit: [the algorithms](../../../docs/algorithms/reservations.md).

mod book;
mod find;
mod resource;

use core::{fmt, time::Duration};
use posthaste_types::{ByteRate, Bytes, Timestamp, record};

pub use book::Reservations;

/// Time a hold waits for its commit unless its owner sets another: two round trips between
/// programs, not people.
pub const HOLD_LIFETIME: Duration = Duration::from_secs(30);
/// Most reservations of one calendar. Each question visits every one: this takes about a
/// millisecond.
pub const RESERVATIONS_MAX: usize = 1024;
/// Most pieces of one reservation, which it has when its amount follows the free capacity.
pub const PIECES_MAX: usize = 32;
/// Most resources that one reservation uses in a row.
pub const PATH_MAX: usize = 8;
/// Most resources of one calendar.
pub const RESOURCES_MAX: usize = 256;
/// Farthest time ahead for a reservation: a later one is a typing error.
pub const AHEAD_MAX: Duration = Duration::from_secs(400 * 86_400);
/// Factor, in thousandths, of a resource that is not overbooked; twice this sells it twice.
pub const NOT_OVERBOOKED_PERMILLE: u64 = 1000;

record! {
    /// Amount of a resource: bytes a second of a link, bytes of a space.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct Amount {
        count: u64,
    }
}

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self { count: 0 };

    /// Returns the amount of a link.
    #[must_use]
    pub const fn of_link(rate: ByteRate) -> Self {
        Self { count: rate.get() }
    }

    /// Returns the amount of a space.
    #[must_use]
    pub const fn of_space(bytes: Bytes) -> Self {
        Self { count: bytes.get() }
    }

    /// Returns the rate, if it is of a link.
    #[must_use]
    pub const fn rate(self) -> ByteRate {
        ByteRate::new(self.count)
    }

    /// Returns the bytes, if it is of a space.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        Bytes::new(self.count)
    }
}

record! {
    /// Kind of a resource.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Kind {
        /// A link: amounts are bytes a second.
        0 = Link,
        /// A space: amounts are bytes.
        1 = Space,
    }
}

record! {
    /// A constant amount for a while.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Piece {
        /// First moment.
        pub from: Timestamp,
        /// Moment after the last.
        pub to: Timestamp,
        /// Amount.
        pub amount: Amount,
    }
}

record! {
    /// Preference for a volume whose time and rate are free.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Shape {
        /// Finish as early as possible, with all capacity free at each moment.
        0 = EarliestFinish,
        /// Start as late as possible, with all capacity free at each moment: early moments stay
        /// free for others.
        1 = LatestStart,
        /// Use one rate for as short a time as possible; the earliest of those.
        2 = Shortest,
    }
}

record! {
    /// A request for capacity.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Ask {
        /// A constant amount from `start` to `end`.
        0 = Fixed {
            /// Amount.
            amount: Amount,
            /// First moment; time before now does not count.
            start: Timestamp,
            /// Moment after the last.
            end: Timestamp,
        },
        /// A number of bytes between two moments, over links.
        1 = Volume {
            /// Number of bytes.
            bytes: Bytes,
            /// Earliest start.
            earliest: Timestamp,
            /// Latest finish.
            deadline: Timestamp,
            /// Least rate whenever bytes move.
            least: ByteRate,
            /// Highest rate.
            most: ByteRate,
            /// Preference.
            shape: Shape,
        },
    }
}

record! {
    /// State of a reservation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum State {
        /// Held: it expires at this moment unless it is committed before.
        0 = Held {
            /// Moment at which it expires.
            until: Timestamp,
        },
        /// Committed: it lasts until its end.
        1 = Committed,
    }
}

record! {
    /// Reserved capacity.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Reservation {
        /// Resources, each with the same pieces.
        pub path: alloc::vec::Vec<usize>,
        /// Pieces in order of time, none touching another of its amount. Never empty.
        pub pieces: alloc::vec::Vec<Piece>,
        /// Held or committed.
        pub state: State,
    }
}

impl Reservation {
    /// Returns its first moment.
    #[must_use]
    pub fn start(&self) -> Timestamp {
        self.pieces
            .first()
            .map_or_else(Timestamp::default, |piece| piece.from)
    }

    /// Returns the moment after its last.
    #[must_use]
    pub fn end(&self) -> Timestamp {
        self.pieces
            .last()
            .map_or_else(Timestamp::default, |piece| piece.to)
    }

    /// Returns its amount at a moment.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Amount {
        let piece = self
            .pieces
            .iter()
            .find(|piece| piece.from <= now && now < piece.to);
        piece.map_or(Amount::ZERO, |piece| piece.amount)
    }

    /// Returns the bytes it carries from first to last, if it is of links.
    #[must_use]
    pub fn volume(&self) -> Bytes {
        let volume = |piece: &Piece| piece.amount.rate().volume(piece.to.since(piece.from));
        self.pieces.iter().map(volume).sum()
    }
}

/// Change of a reservation. The past stays as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// New first moment, before the reservation has begun.
    pub start: Option<Timestamp>,
    /// New end: an earlier one shrinks it, a later one extends its last amount.
    pub end: Option<Timestamp>,
    /// New amount from now on, for a reservation that does not vary.
    pub amount: Option<Amount>,
}

/// Reason why a reservation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// Nobody committed it in time.
    Expired,
    /// Its time is over.
    Over,
}

record! {
    /// Reason why something is not reserved, and what would fit.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Refusal {
        /// The reservation does not exist: it never did, was released, or its time is over.
        0 = Unknown,
        /// The request makes no sense: no resource, no amount, an end before its start, or a time
        /// that has passed or is too far ahead.
        1 = Senseless,
        /// The calendar is full, or the reservation would have too many pieces.
        2 = TooMany,
        /// A reservation that varies over time can't be given another amount.
        3 = Varies,
        /// The amount is not free all the time.
        4 = NoRoom {
            /// Earliest start from which it is free for as long; none if it never is.
            earliest_start: Option<Timestamp>,
            /// Largest amount that is free all the time.
            most: Amount,
        },
        /// The bytes do not fit.
        5 = NoTime {
            /// Earliest moment by which they would; none if they never do.
            earliest_finish: Option<Timestamp>,
            /// Bytes that fit in the given time.
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
