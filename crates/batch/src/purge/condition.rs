//! Conditions of rules, and how they stand for a file at a moment.
//!
//! What is true is told with two words: whether it *may* be so and whether it *must*. They differ where something about a
//! file is not known: an attribute that this program can't see, or anything but names and kinds of a file that was looked at
//! another day. Times of a file only move forward, so that an age that was not reached by what is remembered is not reached.

use super::{
    facts::{Clock, Facts, Kind},
    pattern::Pattern,
};

/// Seconds of a day.
pub(super) const DAY_S: i64 = 86_400;

/// What a rule asks of a file.
#[derive(Debug, Clone)]
pub enum Condition {
    /// All of these; of none, always.
    All(Vec<Condition>),
    /// Any of these; of none, never.
    Any(Vec<Condition>),
    /// The opposite.
    Not(Box<Condition>),
    /// The path.
    Path(Pattern),
    /// The last name of the path.
    Name(Pattern),
    /// What it is.
    Kind(Kind),
    /// This many bytes or more.
    SizeFrom(u64),
    /// The number of the owner.
    Owner(u32),
    /// This old or older.
    Age(Clock, Age),
    /// Something that can't be seen from here.
    Unknown,
}

/// How old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// Seconds since then.
    Seconds(i64),
    /// Midnights since then, in UTC.
    Midnights(i64),
}

impl Age {
    /// When a file has this age whose clock shows this; both in seconds since 1970.
    #[must_use]
    pub fn reached_s(self, clock_s: i64) -> i64 {
        match self {
            Self::Seconds(seconds) => clock_s.saturating_add(seconds),
            Self::Midnights(days) => {
                let day = clock_s.div_euclid(DAY_S).saturating_add(days);
                day.saturating_mul(DAY_S)
            }
        }
    }
}

/// How something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Truth {
    pub may: bool,
    pub must: bool,
}

impl Truth {
    const UNKNOWN: Self = Self {
        may: true,
        must: false,
    };

    fn known(so: bool) -> Self {
        Self { may: so, must: so }
    }
}

/// A file as it is judged.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    /// Where it lies, from the root.
    pub path: &'a [u8],
    /// What it is like.
    pub facts: &'a Facts,
    /// It was looked at another day.
    pub is_remembered: bool,
}

impl Sight<'_> {
    fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or(&[])
    }

    fn unless_remembered(&self, so: bool) -> Truth {
        match self.is_remembered {
            true => Truth::UNKNOWN,
            false => Truth::known(so),
        }
    }
}

impl Condition {
    /// How it stands for a file at a moment, in seconds since 1970.
    pub(super) fn truth(&self, sight: &Sight<'_>, at_s: i64) -> Truth {
        match self {
            Self::All(all) => all.iter().fold(Truth::known(true), |so, one| {
                if !so.may {
                    return so;
                }
                let one = one.truth(sight, at_s);
                Truth {
                    may: so.may && one.may,
                    must: so.must && one.must,
                }
            }),
            Self::Any(any) => any.iter().fold(Truth::known(false), |so, one| {
                if so.must {
                    return so;
                }
                let one = one.truth(sight, at_s);
                Truth {
                    may: so.may || one.may,
                    must: so.must || one.must,
                }
            }),
            Self::Not(one) => {
                let one = one.truth(sight, at_s);
                Truth {
                    may: !one.must,
                    must: !one.may,
                }
            }
            Self::Path(pattern) => Truth::known(pattern.is_about(sight.path)),
            Self::Name(pattern) => Truth::known(pattern.is_about(sight.name())),
            Self::Kind(kind) => Truth::known(sight.facts.kind == *kind),
            Self::SizeFrom(least) => sight.unless_remembered(sight.facts.size >= *least),
            Self::Owner(owner) => sight.unless_remembered(sight.facts.owner == *owner),
            Self::Age(clock, age) => {
                let reached = age.reached_s(clock.of(sight.facts)) <= at_s;
                Truth {
                    may: reached,
                    must: reached && !sight.is_remembered,
                }
            }
            Self::Unknown => Truth::UNKNOWN,
        }
    }

    /// Adds the moments at which it may come to stand otherwise for a file.
    pub(super) fn turns(&self, facts: &Facts, turns: &mut Vec<i64>) {
        match self {
            Self::All(several) | Self::Any(several) => {
                several.iter().for_each(|one| one.turns(facts, turns));
            }
            Self::Not(one) => one.turns(facts, turns),
            Self::Age(clock, age) => turns.push(age.reached_s(clock.of(facts))),
            Self::Path(_)
            | Self::Name(_)
            | Self::Kind(_)
            | Self::SizeFrom(_)
            | Self::Owner(_)
            | Self::Unknown => {}
        }
    }

    /// The ages it asks for, in the order in which they stand.
    pub(super) fn ages<'a>(&'a self, ages: &mut Vec<(&'a Clock, Age)>) {
        match self {
            Self::All(several) | Self::Any(several) => {
                several.iter().for_each(|one| one.ages(ages));
            }
            Self::Not(one) => one.ages(ages),
            Self::Age(clock, age) => ages.push((clock, *age)),
            Self::Path(_)
            | Self::Name(_)
            | Self::Kind(_)
            | Self::SizeFrom(_)
            | Self::Owner(_)
            | Self::Unknown => {}
        }
    }

    /// Whether it can't be known to hold, whatever the file.
    pub(super) fn has_unknown(&self) -> bool {
        match self {
            Self::All(several) | Self::Any(several) => several.iter().any(Self::has_unknown),
            Self::Not(one) => one.has_unknown(),
            Self::Unknown => true,
            Self::Path(_)
            | Self::Name(_)
            | Self::Kind(_)
            | Self::SizeFrom(_)
            | Self::Owner(_)
            | Self::Age(..) => false,
        }
    }
}
