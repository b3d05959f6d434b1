use alloc::{string::String, vec::Vec};
use core::{fmt, str::FromStr};
use posthaste_types::{ByteRate, DepotId, Timestamp, record};

use crate::contract::Reserve;

record! {
    /// Priority of a request beside others that can't all be served: higher goes first. Promises to
    /// others are kept at any priority.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct Priority {
        level: i64,
    }
}

/// Invalid priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityError;

impl fmt::Display for PriorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = (Priority::LEAST.level, Priority::MOST.level);
        write!(
            f,
            "a priority is low, normal, high, urgent, or a number from {least} to {most}"
        )
    }
}

impl core::error::Error for PriorityError {}

impl Priority {
    /// Lowest priority.
    pub const LEAST: Self = Self { level: -9 };
    /// Highest priority.
    pub const MOST: Self = Self { level: 9 };
    /// Levels that have names.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("low", Self { level: -1 }),
        ("normal", Self { level: 0 }),
        ("high", Self { level: 1 }),
        ("urgent", Self { level: 2 }),
    ];

    /// Returns the priority of this level; 0 is normal.
    ///
    /// # Errors
    /// [`PriorityError`] when it lies outside [`Priority::LEAST`] and [`Priority::MOST`].
    pub fn new(level: i64) -> Result<Self, PriorityError> {
        let priority = Self { level };
        let range = Self::LEAST..=Self::MOST;
        range
            .contains(&priority)
            .then_some(priority)
            .ok_or(PriorityError)
    }

    /// Returns the number of levels above it.
    #[must_use]
    pub fn below_most(self) -> u8 {
        let below = Self::MOST.level.saturating_sub(self.level).max(0);
        u8::try_from(below).unwrap_or(u8::MAX)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Self::NAMES.iter();
        match names.find(|(_, priority)| priority == self) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.level),
        }
    }
}

impl FromStr for Priority {
    type Err = PriorityError;

    fn from_str(text: &str) -> Result<Self, PriorityError> {
        let mut names = Self::NAMES.iter();
        match names.find(|(name, _)| *name == text) {
            Some((_, priority)) => Ok(*priority),
            None => text.parse().map_err(|_| PriorityError).and_then(Self::new),
        }
    }
}

record! {
    /// Wished durability of the data.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Survive {
        /// The parity of the requested code.
        #[default]
        0 = AsCoded,
        /// Loss of any so many depots; the service chooses the code.
        1 = Losses {
            /// Depots that may be lost.
            depots: u32,
        },
        /// Any losses, up to this chance of losing data; the service chooses the code by the
        /// depots' history.
        2 = Chance {
            /// Highest chance that data is lost, in billionths.
            loss_ppb_max: u32,
        },
    }
}

impl fmt::Display for Survive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsCoded => f.write_str("what its code does"),
            Self::Losses { depots: 1 } => f.write_str("the loss of any depot"),
            Self::Losses { depots } => write!(f, "the loss of any {depots} depots"),
            Self::Chance { loss_ppb_max } => {
                let once = 1_000_000_000 / (*loss_ppb_max).max(1);
                write!(f, "all but once in {once} times")
            }
        }
    }
}

record! {
    /// Time at which fragments lost with a depot are rebuilt.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Repair {
        /// At once.
        #[default]
        0 = Eager,
        /// Once a chunk survives just one more loss.
        1 = Lazy,
    }
}

record! {
    /// Wishes of a user beyond the deadline. Each may be left out, and then changes nothing.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Wishes {
        /// Priority beside other requests.
        pub priority: Priority,
        /// Owner; empty if not given.
        pub owner: String,
        /// Project that pays; empty if not given.
        pub project: String,
        /// Budget for sending and keeping together, in millionths of a dollar.
        pub budget_micro_usd: Option<u64>,
        /// Wished durability.
        pub survive: Survive,
        /// Rate limit.
        pub rate_max: Option<ByteRate>,
        /// Depots that may not hold any of it.
        pub forbidden: Vec<DepotId>,
        /// Time at which lost fragments are rebuilt.
        pub repair: Repair,
        /// Losses that suffice by the deadline if there is no time for all of the code; the rest
        /// follows. Without effect if the code survives no more.
        pub safe_with: Option<u32>,
        /// Time until which depots keep it: price and durability are for that span. Default: a
        /// month after the deadline.
        pub keep_until: Option<Timestamp>,
        /// Deliver-by time for every destination; none for any time.
        pub deliver_by: Option<Timestamp>,
        /// Reservation of rate.
        pub reserve: Reserve,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, string::ToString};

    #[test]
    fn a_priority_is_read_as_it_is_shown() {
        for text in ["low", "normal", "high", "urgent", "9", "-9", "5"] {
            let priority: Priority = text.parse().unwrap();
            assert_eq!(priority.to_string(), text);
        }
        assert_eq!("0".parse(), Ok(Priority::default()));
        let (low, high): (Priority, Priority) = ("low".parse().unwrap(), "high".parse().unwrap());
        assert!(low < high && low.below_most() > high.below_most());
        for text in ["", "10", "-10", "highest", "1.5"] {
            let error = text.parse::<Priority>().unwrap_err();
            assert!(format!("{error}").contains("-9 to 9"), "{text}");
        }
    }

    #[test]
    fn nothing_is_wished_by_default() {
        let wishes = Wishes::default();
        assert_eq!(wishes.priority.to_string(), "normal");
        assert_eq!(
            (wishes.survive, wishes.repair),
            (Survive::AsCoded, Repair::Eager)
        );
        let is_free = wishes.budget_micro_usd.is_none() && wishes.rate_max.is_none();
        assert!(is_free && wishes.forbidden.is_empty() && wishes.keep_until.is_none());
        assert_eq!(wishes.safe_with, None);
    }
}
