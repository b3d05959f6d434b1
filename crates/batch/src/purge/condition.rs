//! Conditions of rules, and their truth for a file at a moment.
//!
//! Truth has two values: whether the condition *may* hold, and whether it *must*. They differ if
//! facts of a file are unknown. This program can't see some attributes, and of a file that it last
//! saw on another day it knows only name and kind. Times of a file only move forward, so an age
//! that the remembered times don't reach is not reached.

use super::{
    facts::{Clock, Facts, Kind},
    pattern::Pattern,
};

/// Seconds of a day.
pub(super) const DAY_S: i64 = 86_400;

/// Condition on a file.
#[derive(Debug, Clone)]
pub enum Condition {
    /// All of these; if empty, always true.
    All(Vec<Condition>),
    /// Any of these; if empty, never true.
    Any(Vec<Condition>),
    /// Negation.
    Not(Box<Condition>),
    /// Pattern of the path.
    Path(Pattern),
    /// Pattern of the last name of the path.
    Name(Pattern),
    /// Kind of file.
    Kind(Kind),
    /// Size of at least this many bytes.
    SizeFrom(u64),
    /// Number of the owner.
    Owner(u32),
    /// Minimum age by a clock.
    Age(Clock, Age),
    /// Condition that this program can't evaluate.
    Unknown,
}

/// Age of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// Seconds since the clock's time.
    Seconds(i64),
    /// Midnights since the clock's time, in UTC.
    Midnights(i64),
}

impl Age {
    /// Returns when a file whose clock shows `clock_s` reaches this age; both in seconds since
    /// 1970.
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

/// Truth of a condition: whether it may and whether it must hold.
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

/// File as rules see it.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    /// Path from the root.
    pub path: &'a [u8],
    /// Facts of the file.
    pub facts: &'a Facts,
    /// True if the facts are from an earlier day.
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
    /// Evaluates the condition for a file at a moment, in seconds since 1970.
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

    /// Adds the moments at which the condition's truth may change for a file.
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

    /// Adds the ages that the condition names, in their order.
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

    /// Returns whether the condition can't be known to hold for any file.
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
