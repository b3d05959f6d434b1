use alloc::{string::String, vec::Vec};
use core::{fmt, str::FromStr};
use posthaste_types::{ByteRate, DepotId, Timestamp, record};

use super::Reserve;

record! {
    /// How much a request matters beside others that can't all be served: higher first. What was
    /// promised to others is kept whatever the priority.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct Priority {
        level: i64,
    }
}

/// A priority that could not be read.
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
    /// The lowest there is.
    pub const LEAST: Self = Self { level: -9 };
    /// The highest there is.
    pub const MOST: Self = Self { level: 9 };
    /// The levels that have names.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("low", Self { level: -1 }),
        ("normal", Self { level: 0 }),
        ("high", Self { level: 1 }),
        ("urgent", Self { level: 2 }),
    ];

    /// This level; 0 is normal.
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

    /// How many levels lie above it.
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
    /// What the data must survive.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Survive {
        /// What the code asked for gives: its parity.
        #[default]
        0 = AsCoded,
        /// The loss of any so many depots; the code is chosen.
        1 = Losses {
            /// How many.
            depots: u32,
        },
        /// Whatever befalls its depots, but for this chance; the code is chosen by how often they
        /// failed so far.
        2 = Chance {
            /// The chance that some of it is lost, in billionths.
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
    /// When fragments that were lost with a depot are made again.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Repair {
        /// At once.
        #[default]
        0 = Eager,
        /// When one more loss is all that a chunk survives.
        1 = Lazy,
    }
}

record! {
    /// What a user may wish of a request beyond its deadline. All of it can be left out, and then
    /// changes nothing.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Wishes {
        /// How much it matters beside others.
        pub priority: Priority,
        /// Whose it is; empty: nobody said.
        pub owner: String,
        /// On whose account it goes; empty: nobody said.
        pub project: String,
        /// Most that it may cost, sending and keeping together, in millionths of a dollar.
        pub budget_micro_usd: Option<u64>,
        /// What the data must survive.
        pub survive: Survive,
        /// Most that may be sent for it.
        pub rate_max: Option<ByteRate>,
        /// Depots that may not hold any of it.
        pub forbidden: Vec<DepotId>,
        /// When what was lost is made again.
        pub repair: Repair,
        /// Losses that suffice by the deadline, where there is no time for all of its code: the rest of it
        /// follows. Of no effect where its code survives no more.
        pub safe_with: Option<u32>,
        /// Until when depots keep it: what is kept so long costs so much, and must last so long. A month
        /// after the deadline when left out.
        pub keep_until: Option<Timestamp>,
        /// When every destination is to have all of it; any time when left out.
        pub deliver_by: Option<Timestamp>,
        /// Whether rate is reserved for it.
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
